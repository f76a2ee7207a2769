#include "base/overlap.h"

#include "base/storage.h"

#include <algorithm>

namespace halyard {

namespace {

std::uint64_t magnitude(std::int64_t value) {
    return value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
}

/// One dimension of the differences between addresses of two lattices: step * i for i in 0 … count - 1.
struct Axis {
    std::int64_t step = 0;   // in bytes, > 0
    std::int64_t count = 0;  // >= 2
    std::int64_t reach() const { return step * (count - 1); }
};

/// Whether one multiple from each axis can be chosen so that their sum is more than target - before and less than
/// target + after. The axes are in descending order of step, and rest is the sum of their reaches. `budget` bounds the
/// search; when it runs out the answer is yes.
bool can_reach(const Axis *axes, int n_axes, std::int64_t rest, std::int64_t target, std::int64_t before,
               std::int64_t after, int &budget) {
    if (target <= -after || target >= rest + before) {
        return false;
    }
    if (n_axes == 0 || --budget <= 0) {
        return true;
    }
    const Axis axis = axes[0];
    rest -= axis.reach();
    // The multiples i with -after < target - step * i < rest + before.
    const std::int64_t low = target - rest - before;
    std::int64_t first = low < 0 ? 0 : low / axis.step + 1;
    const std::int64_t last = std::min(axis.count - 1, (target + after - 1) / axis.step);
    for (; first <= last; first++) {
        if (can_reach(axes + 1, n_axes - 1, rest, target - axis.step * first, before, after, budget)) {
            return true;
        }
    }
    return false;
}

}  // namespace

bool elements_are_disjoint(const Lattice &lattice) noexcept {
    std::uint64_t strides[Lattice::n_dims], steps[Lattice::n_dims];
    int n = 0;
    for (int i = 0; i < Lattice::n_dims; i++) {
        if (lattice.shape[i] > 1) {
            // Insertion sort by stride, since there are six dimensions at most.
            const std::uint64_t stride = magnitude(lattice.strides[i]);
            int at = n++;
            for (; at > 0 && strides[at - 1] > stride; at--) {
                strides[at] = strides[at - 1];
                steps[at] = steps[at - 1];
            }
            strides[at] = stride;
            steps[at] = static_cast<std::uint64_t>(lattice.shape[i] - 1);
        }
    }
    std::uint64_t reach = 0;
    for (int i = 0; i < n; i++) {
        if (strides[i] <= reach) {
            return false;
        }
        reach += strides[i] * steps[i];
    }
    return true;
}

Lattice lattice_of(const halyard_tensor &tensor) noexcept {
    return {tensor.data,
            element_bytes(Dtype(tensor.dtype)),
            {tensor.shape[0], tensor.shape[1], tensor.shape[2], tensor.shape[3], 1, 1},
            {tensor.strides[0], tensor.strides[1], tensor.strides[2], tensor.strides[3], 0, 0}};
}

bool may_share_bytes(const Lattice &a, const Lattice &b) noexcept {
    constexpr int n_dims = Lattice::n_dims;
    // An element of a and one of b share a byte if the difference of their addresses, a's minus b's, is more than
    // -a.element_bytes and less than b.element_bytes. So the search is for such a difference. Negative steps are made
    // positive by counting from the other end.
    Axis axes[2 * n_dims];
    int n = 0;
    std::int64_t target =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
    std::int64_t rest = 0;
    for (int i = 0; i < 2 * n_dims; i++) {
        const Lattice &lattice = i < n_dims ? a : b;
        const std::int64_t count = lattice.shape[i % n_dims], stride = lattice.strides[i % n_dims];
        if (count < 2 || stride == 0) {
            continue;  // all elements have one offset in this dimension
        }
        const std::int64_t step = (i < n_dims ? a.element_bytes : -b.element_bytes) * stride;
        Axis axis = {step, count};
        if (step < 0) {
            target -= step * (count - 1);
            axis.step = -step;
        }
        rest += axis.reach();
        // Long steps come first. Equal steps add up to one axis: that keeps the search short for two views of one
        // buffer.
        int at = n;
        while (at > 0 && axes[at - 1].step < axis.step) {
            at--;
        }
        if (at > 0 && axes[at - 1].step == axis.step) {
            axes[at - 1].count += count - 1;
            continue;
        }
        for (int j = n++; j > at; j--) {
            axes[j] = axes[j - 1];
        }
        axes[at] = axis;
    }
    int budget = 1000;
    return can_reach(axes, n, rest, target, a.element_bytes, b.element_bytes, budget);
}

}  // namespace halyard
