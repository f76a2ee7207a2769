// How x and y lie in memory: the strides of a pairing, and the elements of a pair.
#pragma once

#include "arithmetic/angles.h"

#include <map>
#include <string>

namespace halyard {

/// How the members of a pair lie in a head: see halyard.h. Strided is any layout at all.
enum class Pairing { half, interleaved, strided };

inline const std::map<std::string, Pairing> pairings = {
    {"half", Pairing::half}, {"interleaved", Pairing::interleaved}, {"strided", Pairing::strided}};

/// The order in which a kernel writes its results.
enum class Order {
    both_members,      // the elements of both members at once
    member_by_member,  // elements in the order of memory, where members of pairs are neighbours
    as_neighbours,     // likewise, but they come from halves that lie apart
    both_in_word       // an element is a word that holds both members
};

/// What the shape and strides of a buffer [pair, member, head, token] have to be.
struct Layout {
    Pairing pairing;
    int width = 1;       // elements in each access of a GPU to one member, or to neighbours
    int per_thread = 1;  // elements that one thread of a GPU takes in a step

    template <typename AnyBuffer>
    void constrain(AnyBuffer &buffer, Order order, bool is_on_cuda) const {
        begin_at_zero(buffer);
        buffer.dim(1).set_extent(order == Order::both_in_word ? 1 : 2);
        if (pairing == Pairing::interleaved && order != Order::both_in_word) {
            buffer.dim(0).set_stride(2);
            buffer.dim(1).set_stride(1);
        } else if (pairing == Pairing::strided) {
            buffer.dim(0).set_stride(Halide::Expr());
        }  // half: Halide takes 1 for the stride of dimension 0
        if (is_on_cuda && width > 1) {
            // What wide accesses need. Halide checks it when a kernel is called.
            buffer.dim(0).set_extent(buffer.dim(0).extent() / per_thread * per_thread);
            for (int i = pairing == Pairing::half || order == Order::both_in_word ? 1 : 2; i < 4; i++) {
                buffer.dim(i).set_stride(buffer.dim(i).stride() / width * width);
            }
        }
    }
};

}  // namespace halyard
