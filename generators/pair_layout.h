// The memory layout of x and y: the strides that a pairing has, and how the elements of a pair are written.
#pragma once

#include "arithmetic/angles.h"

#include <map>
#include <string>

namespace halyard {

/// Which elements of a head are a pair: see halyard.h. strided: any layout.
enum class Pairing { half, interleaved, strided };

inline const std::map<std::string, Pairing> pairings = {
    {"half", Pairing::half}, {"interleaved", Pairing::interleaved}, {"strided", Pairing::strided}};

/// The order in which a kernel writes its results.
enum class WriteOrder {
    both_members,      // first members, then second members
    member_by_member,  // in the order of memory, in which the members of a pair are neighbours
    as_neighbours,     // likewise, but in x the members are in different halves
    both_in_word       // an element is a word that holds both members of a pair
};

/// Constraints on the shape and strides of a buffer [pair, member, head, token].
struct Layout {
    Pairing pairing;
    int width = 1;       // GPU: elements in one access
    int per_thread = 1;  // GPU: elements that a thread processes in a step

    template <typename AnyBuffer>
    void constrain(AnyBuffer &buffer, WriteOrder order, bool is_on_cuda) const {
        begin_at_zero(buffer);
        buffer.dim(1).set_extent(order == WriteOrder::both_in_word ? 1 : 2);
        if (pairing == Pairing::interleaved && order != WriteOrder::both_in_word) {
            buffer.dim(0).set_stride(2);
            buffer.dim(1).set_stride(1);
        } else if (pairing == Pairing::strided) {
            buffer.dim(0).set_stride(Halide::Expr());
        }  // half: Halide's default stride of dimension 0 is 1
        if (is_on_cuda && width > 1) {
            // Wide accesses need multiples of per_thread pairs, and strides that are multiples of width. Halide checks
            // both when the kernel is called.
            buffer.dim(0).set_extent(buffer.dim(0).extent() / per_thread * per_thread);
            for (int i = pairing == Pairing::half || order == WriteOrder::both_in_word ? 1 : 2; i < 4; i++) {
                buffer.dim(i).set_stride(buffer.dim(i).stride() / width * width);
            }
        }
    }
};

}  // namespace halyard
