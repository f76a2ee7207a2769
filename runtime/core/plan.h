// A plan: a checked description, resolved to kernels.
#pragma once

#include "base/text.h"
#include "core/kernels.h"
#include "halyard/halyard_kv.h"

#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

namespace halyard {

/// What the KV path does with the tensors of a plan: see kv/stages.h.
struct KvPlan;

/// A tensor of a plan, with a kernel for each memory layout that the tensor of a run can have.
struct TensorPlan {
    Dtype dtype, out_dtype;  // of x and y
    Pairing pairing, out_pairing;
    std::int64_t bytes, out_bytes;  // of an element of x and y
    std::int64_t head_dim, rotary_offset;
    std::int64_t in_dim, out_dim;  // last dimensions of x and y: head_dim, or the bytes of a record
    bool rotates;
    bool is_plain;           // it is only rotated, from x to y; the KV path handles all others
    bool reads_x, writes_y;  // false: only dtype and shape of x are read; y is ignored
    const Kernel *kernels[n_places][n_layouts];

    const Kernel &kernel(Place place, Layout layout) const noexcept {
        return *kernels[static_cast<int>(place)][static_cast<int>(layout)];
    }
};

}  // namespace halyard

struct halyard_plan {
    std::int64_t rotary_dim = 0;  // 0 if no tensor is rotated
    std::uint32_t sin_sign = 0;   // 0x80000000 for the inverse
    std::int32_t n_tensors = 0;
    halyard::TensorPlan tensors[HALYARD_MAX_TENSORS] = {};
    halyard::RowKernels row_kernels = {};
    halyard::Target target = {};                     // the best one that is allowed
    std::shared_ptr<const halyard::KvPlan> kv_plan;  // NULL if all tensors are plain
};

namespace halyard {

/// A copy of a plan's description with its defaults filled in.
struct PlanReading {
    halyard_plan_desc desc;
    halyard_tensor_desc tensors[HALYARD_MAX_TENSORS];
    halyard_kv_desc kv_descs[HALYARD_MAX_TENSORS];  // without stages for tensors whose kv is NULL
};

/// Whether a tensor of this dtype has no conversion, and no stages except those that `fields` of kv_desc describe.
template <typename... Fields>
bool has_only(halyard_kv_desc kv_desc, Dtype dtype, Fields halyard_kv_desc::*...fields) noexcept {
    static_assert(std::has_unique_object_representations_v<halyard_kv_desc>);  // no padding, no floats
    ((kv_desc.*fields = {}), ...);
    halyard_kv_desc none = {};
    none.size = kv_desc.size;
    none.out_dtype = static_cast<std::int32_t>(dtype);
    return std::memcmp(&kv_desc, &none, sizeof(kv_desc)) == 0;
}

/// Checks a description except its stages. Fills in *given, and *out except its kernels and kv_plan.
halyard_status read_plan(const halyard_plan_desc *desc, halyard_plan *out, PlanReading *given,
                         halyard_error *error) noexcept;

/// Chooses the kernels that rotate tensors in their own dtype, and those that make rows of cos and sin.
void choose_kernels(halyard_plan &plan, TargetSet allowed) noexcept;

/// What a kernel has to support to rotate a tensor in this dtype, place and layout.
Task task_for(const TensorPlan &tensor, Dtype dtype, std::int64_t rotary_dim, Place place, Layout layout) noexcept;

/// Appends a line for each kernel that could serve a task, and why it is chosen or not.
void explain_task(Text &text, const Task &task, TargetSet allowed) noexcept;

/// The same for each place and layout that a plain tensor can have.
void explain_tensor(Text &text, const halyard_plan &plan, int index, TargetSet allowed) noexcept;

}  // namespace halyard
