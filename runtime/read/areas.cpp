#include "read/areas.h"

#include "base/error.h"

#include <cstdio>
#include <cstring>

namespace halyard {

StageName::StageName(const RunFrame &run, StageArray array, int index) noexcept {
    static constexpr const char *fields[] = {
        "weight", "bias", "scales", "scales_out", "cache", "position_scales", "group_scales", "from_group_scales"};
    static constexpr const char *endings[n_stage_arrays] = {"s", "es", "", "", "s", "", "", ""};
    if (run.is_bound) {
        std::snprintf(text_, sizeof(text_), "args.%s%s[%d]", fields[array], endings[array], index);
    } else {
        std::snprintf(text_, sizeof(text_), "stages[%d].%s", index, fields[array]);
    }
}

Lattice scales_out_of(const Run &run, int index) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunStages &stages = run.stages[index];
    return {stages.data(scales_out_array),
            sizeof(float),
            {desc.cache ? 1 : run.n_batch, desc.cache ? desc.cache->n_slots : run.n_tokens, run.tensors[index].n_heads,
             1, 1, 1},
            {stages.stride_batch, stages.stride_token, stages.stride_head, 0, 0, 0}};
}

Lattice cache_of(const Run &run, int index) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    return desc.cache->elements(run.tensors[index].y, desc.out_dtype, run.tensors[index].n_heads, desc.out_dim());
}

namespace {

/// Scales of so many blocks or batch rows of so many slots or tokens.
Lattice lattice_of(const char *data, const GroupsDesc &groups, const GroupStrides &strides, std::int64_t n_blocks,
                   std::int64_t n_tokens, std::int64_t n_heads) {
    return {data,
            1,
            {n_blocks, n_tokens, n_heads, groups.n_groups, groups.scale_bytes(), 1},
            {strides.stride_batch, strides.stride_token, strides.stride_head, groups.scale_stride, 1, 0}};
}

}  // namespace

Lattice group_scales_of(const Run &run, int index) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunStages &stages = run.stages[index];
    return lattice_of(stages.data(group_scales_array), *desc.groups, stages.group_scales,
                      desc.cache ? desc.cache->n_slots / desc.cache->block_size : run.n_batch,
                      desc.cache ? desc.cache->block_size : run.n_tokens, run.tensors[index].n_heads);
}

Lattice from_group_scales_of(const Run &run, int index) noexcept {
    const RunStages &stages = run.stages[index];
    return lattice_of(stages.data(from_group_scales_array), *run.plan->tensors[index].from_groups,
                      stages.from_group_scales, run.n_batch, run.n_tokens, run.tensors[index].n_heads);
}

/// Tensors, caches and scales that are written may have gaps, so their elements are compared. All else fills its span.
bool Areas::may_meet(int i, int j, const Name *names, const halyard_tensor *x, const halyard_tensor *y) const noexcept {
    if (!spans_[i].overlaps(spans_[j])) {
        return false;
    }
    Lattice lattices[2];
    for (const int k : {0, 1}) {
        const Name &name = names[k == 0 ? i : j];
        if (name.what == What::x) {
            lattices[k] = lattice_of(x[name.tensor]);
        } else if (name.what == What::y) {
            lattices[k] =
                run_.plan->tensors[name.tensor].cache ? cache_of(run_, name.tensor) : lattice_of(y[name.tensor]);
        } else if (name.what == what_of(scales_out_array)) {
            lattices[k] = scales_out_of(run_, name.tensor);
        } else if (name.what == what_of(group_scales_array)) {
            lattices[k] = group_scales_of(run_, name.tensor);
        } else if (name.what == what_of(from_group_scales_array)) {
            lattices[k] = from_group_scales_of(run_, name.tensor);
        } else {
            return true;
        }
    }
    return may_share_bytes(lattices[0], lattices[1]);
}

halyard_status Areas::check(const halyard_tensor *x, const halyard_tensor *y, halyard_error *error) const noexcept {
    Name names[most];
    list([&](int i, What what, int tensor, const MemoryRange &) {
        names[i] = {what, static_cast<std::int16_t>(tensor)};
    });
    const auto name_of = [&](const Name &name, char(&text)[40]) {
        const int i = name.tensor;
        const auto set = [&](const char *of_run, const char *of_bound_run = nullptr) {
            const bool is_bound = run_.is_bound && of_bound_run != nullptr;
            std::snprintf(text, sizeof(text), is_bound ? of_bound_run : of_run, i);
        };
        const auto set_stage = [&](StageArray array) { set(StageName(run_, array, i).text()); };
        switch (name.what) {
        case What::x: return set("x[%d]");
        case What::positions: return set("positions.data", "args.positions");
        case What::from_positions: return set("from_positions.data", "args.from_positions");
        case What::cos: return set("the cos rows of the angle source");
        case What::sin: return set("the sin rows of the angle source");
        case What::slots: return set("slots.data", "args.slots");
        case What::y: return run_.plan->tensors[i].cache ? set_stage(cache_array) : set("y[%d]");
        case What::scratch: return set("slots.scratch", "args.slots_scratch");
        default: return set_stage(StageArray(name.what));
        }
    };
    for (int i = n_.read; i < n_.all; i++) {
        for (int j = 0; j < i; j++) {
            if (!may_meet(i, j, names, x, y)) {
                continue;
            }
            char written[40], other[40];
            name_of(names[i], written);
            name_of(names[j], other);
            const TensorDesc &desc = run_.plan->tensors[names[i].tensor];
            const bool is_its_input = names[i].what == What::y && names[j].what == What::x &&
                                      names[i].tensor == names[j].tensor && !desc.cache;
            return fail(error, HALYARD_ERROR_OVERLAP, written, " shares elements with ", other,
                        is_its_input && desc.dtype != desc.out_dtype
                            ? ", but only an output of its input's dtype can be in place"
                            : "");
        }
    }
    return HALYARD_OK;
}

}  // namespace halyard
