// How x and y lie in memory: the strides of a pairing, the elements of a pair, and where a GPU's memory begins.
#pragma once

#include "arithmetic/angles.h"
#include "gpu/fields.h"

#include <map>
#include <string>
#include <vector>

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

/// What a buffer's shape and strides have to be.
struct Layout {
    Pairing pairing;
    bool packed;         // an element is a word of two neighbours
    int width = 1;       // elements in each access of a GPU to one member, or to neighbours
    int per_thread = 1;  // elements that one thread of a GPU takes in a step

    /// A stride or an offset of elements, rounded so that Halide knows it to be a multiple of an access's.
    Halide::Expr aligned(const Halide::Expr &elements) const {
        return width == 1 ? elements : elements / width * width;
    }

    /// Sets the constraints of a buffer [pair, member, head, token] or [pair, member, head, token, offset].
    template <typename AnyBuffer>
    void constrain(AnyBuffer &buffer, Order order, bool has_offset) const {
        begin_at_zero(buffer);
        buffer.dim(1).set_extent(order == Order::both_in_word ? 1 : 2);
        if (pairing == Pairing::interleaved && order != Order::both_in_word) {
            buffer.dim(0).set_stride(2);
            buffer.dim(1).set_stride(1);
        } else if (pairing == Pairing::strided) {
            buffer.dim(0).set_stride(Halide::Expr());
        }  // half: Halide takes 1 for the stride of dimension 0
        if (has_offset) {
            constrain_for_gpu(buffer, order);
        }
    }

private:
    /// What wide accesses need. Halide checks it when a kernel is called.
    template <typename AnyBuffer>
    void constrain_for_gpu(AnyBuffer &buffer, Order order) const {
        buffer.dim(4).set_stride(1);
        buffer.dim(0).set_extent(buffer.dim(0).extent() / per_thread * per_thread);
        for (int i = 1; i < 4; i++) {
            if (i > 1 || pairing == Pairing::half || order == Order::both_in_word) {
                buffer.dim(i).set_stride(aligned(buffer.dim(i).stride()));
            }
        }
    }
};

/// Where x and y begin. CPU kernels get addresses, and GPU kernels offsets, which are 0: their buffers
/// have one more dimension, of stride 1.
class Origins {
public:
    Origins() = default;
    explicit Origins(const Fields::Offsets &offsets) : offsets_(&offsets) {}

    bool are_offsets() const { return offsets_ != nullptr; }
    int n_dims() const { return are_offsets() ? 5 : 4; }

    /// The left side of y's pure definition.
    std::vector<Halide::Var> everywhere(std::vector<Halide::Var> place) const {
        if (are_offsets()) {
            place.emplace_back("offset");
        }
        return place;
    }

    /// What y is written over, besides its own dimensions: the member if it is written member by member, and its
    /// offset, which is a reduction over one value. Only that may be an expression on the left of a definition.
    Halide::RDom domain(const Layout &layout, Order order) const {
        Halide::Region over;
        if (order == Order::member_by_member || order == Order::as_neighbours) {
            over.emplace_back(0, 2);
        }
        if (are_offsets()) {
            over.emplace_back(layout.aligned(*offsets_->y), 1);
        }
        return over.empty() ? Halide::RDom() : Halide::RDom(over, "over");
    }

    /// A place in x, and one in y, which is written over the domain.
    std::vector<Halide::Expr> in_x(std::vector<Halide::Expr> place, const Layout &layout) const {
        if (are_offsets()) {
            place.push_back(layout.aligned(*offsets_->x));
        }
        return place;
    }

    std::vector<Halide::Expr> in_y(std::vector<Halide::Expr> place, const Halide::RDom &domain) const {
        if (are_offsets()) {
            place.push_back(domain[domain.dimensions() - 1]);
        }
        return place;
    }

private:
    const Fields::Offsets *offsets_ = nullptr;
};

}  // namespace halyard
