#include "base/overlap.h"

#include "base/storage.h"

#include <algorithm>

namespace halyard {

namespace {

std::uint64_t magnitude(std::int64_t value) {
    return value < 0 ? ~static_cast<std::uint64_t>(value) + 1 : static_cast<std::uint64_t>(value);
}

/// One dimension of the differences between elements of two tensors: step * i for i in 0 … count - 1.
struct Axis {
    std::int64_t step = 0;   // in bytes, > 0
    std::int64_t count = 0;  // >= 2
    std::int64_t reach() const { return step * (count - 1); }
};

/// Whether some choice of one multiple for each axis sums up to within (-width, width) of target, the axes being in
/// descending order of step. `budget` bounds the search; when it runs out the answer is yes.
bool can_reach(const Axis *axes, int n_axes, std::int64_t rest, std::int64_t target, std::int64_t width, int &budget) {
    if (target <= -width || target >= rest + width) {
        return false;
    }
    if (n_axes == 0 || --budget <= 0) {
        return true;
    }
    const Axis axis = axes[0];
    rest -= axis.reach();
    // The multiples i with -width < target - step * i < rest + width.
    const std::int64_t low = target - rest - width;
    std::int64_t first = low < 0 ? 0 : low / axis.step + 1;
    const std::int64_t last = std::min(axis.count - 1, (target + width - 1) / axis.step);
    for (; first <= last; first++) {
        if (can_reach(axes + 1, n_axes - 1, rest, target - axis.step * first, width, budget)) {
            return true;
        }
    }
    return false;
}

}  // namespace

bool elements_are_apart_in_some_order(const halyard_tensor &tensor) noexcept {
    std::uint64_t strides[4], steps[4];
    int n = 0;
    for (int i = 0; i < 4; i++) {
        if (tensor.shape[i] > 1) {
            // Insertion by size: four dimensions at most.
            const std::uint64_t stride = magnitude(tensor.strides[i]);
            int at = n++;
            for (; at > 0 && strides[at - 1] > stride; at--) {
                strides[at] = strides[at - 1];
                steps[at] = steps[at - 1];
            }
            strides[at] = stride;
            steps[at] = static_cast<std::uint64_t>(tensor.shape[i] - 1);
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

bool may_share_bytes(const halyard_tensor &a, const halyard_tensor &b) noexcept {
    // The bytes meet where (a's element) - (b's element) is less than an element apart, so this asks which differences
    // the two lattices of offsets can make. All steps are made positive by moving the starting points.
    const std::int64_t bytes_a = element_bytes(Dtype(a.dtype)), bytes_b = element_bytes(Dtype(b.dtype));
    Axis axes[8];
    int n = 0;
    std::int64_t target =
        static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(b.data) - reinterpret_cast<std::uintptr_t>(a.data));
    std::int64_t rest = 0;
    for (int i = 0; i < 8; i++) {
        const halyard_tensor &tensor = i < 4 ? a : b;
        const std::int64_t count = tensor.shape[i % 4];
        if (count < 2 || tensor.strides[i % 4] == 0) {
            continue;  // never walked, so its stride may be anything
        }
        const std::int64_t step = (i < 4 ? bytes_a : -bytes_b) * tensor.strides[i % 4];
        Axis axis = {step, count};
        if (step < 0) {
            target -= step * (count - 1);
            axis.step = -step;
        }
        rest += axis.reach();
        int at = n++;
        for (; at > 0 && axes[at - 1].step < axis.step; at--) {
            axes[at] = axes[at - 1];
        }
        axes[at] = axis;
    }
    // Equal steps add up to one axis; that keeps the search short for two views of one buffer.
    int merged = 0;
    for (int i = 0; i < n; i++) {
        if (merged > 0 && axes[merged - 1].step == axes[i].step) {
            axes[merged - 1].count += axes[i].count - 1;
        } else {
            axes[merged++] = axes[i];
        }
    }
    int budget = 1000;
    return can_reach(axes, merged, rest, target, std::max(bytes_a, bytes_b), budget);
}

}  // namespace halyard
