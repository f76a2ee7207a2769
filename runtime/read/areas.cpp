#include "read/areas.h"

#include "base/error.h"

#include <cstdio>
#include <cstring>

namespace halyard {

StageName::StageName(const RunFrame &run, const char *field, int index) noexcept {
    const bool is_plural = field[std::strlen(field) - 1] == 's' || std::strcmp(field, "scales_out") == 0;
    if (run.is_bound) {
        const char *const ending = std::strcmp(field, "bias") == 0 ? "es" : is_plural ? "" : "s";
        std::snprintf(text_, sizeof(text_), "args.%s%s[%d]", field, ending, index);
    } else {
        std::snprintf(text_, sizeof(text_), "stages[%d].%s", index, field);
    }
}

Lattice scales_out_of(const Run &run, int index) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const RunStages &stages = run.stages[index];
    return {stages.scales_out,
            sizeof(float),
            {desc.cache ? 1 : run.n_batch, desc.cache ? desc.cache->n_slots : run.n_tokens, run.tensors[index].n_heads,
             1, 1, 1},
            {stages.stride_batch, stages.stride_token, stages.stride_head, 0, 0, 0}};
}

Lattice cache_of(const Run &run, int index) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    return desc.cache->elements(run.tensors[index].y, desc.out_dtype, run.tensors[index].n_heads, desc.out_dim());
}

Lattice group_scales_of(const Run &run, int index, const GroupsDesc &groups, const GroupScales &scales,
                        bool by_slot) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    return {scales.data + groups.scale_offset,
            1,
            {by_slot ? desc.cache->n_slots / desc.cache->block_size : run.n_batch,
             by_slot ? desc.cache->block_size : run.n_tokens, run.tensors[index].n_heads, groups.n_groups,
             groups.scale_bytes(), 1},
            {scales.stride_batch, scales.stride_token, scales.stride_head, groups.scale_stride, 1, 0}};
}

/// Tensors, caches and scales that are written may have gaps, so their elements are compared. All else fills its span.
bool Areas::may_meet(int i, int j, const Name *names, const halyard_tensor *x, const halyard_tensor *y) const noexcept {
    if (!spans_[i].overlaps(spans_[j])) {
        return false;
    }
    Lattice lattices[2];
    for (const int k : {0, 1}) {
        const Name &name = names[k == 0 ? i : j];
        switch (name.what) {
        case What::x: lattices[k] = lattice_of(x[name.tensor]); break;
        case What::y:
            lattices[k] =
                run_.plan->tensors[name.tensor].cache ? cache_of(run_, name.tensor) : lattice_of(y[name.tensor]);
            break;
        case What::scales_out: lattices[k] = scales_out_of(run_, name.tensor); break;
        case What::group_scales:
            lattices[k] = group_scales_of(run_, name.tensor, *run_.plan->tensors[name.tensor].groups,
                                          run_.stages[name.tensor].group_scales,
                                          run_.plan->tensors[name.tensor].cache.has_value());
            break;
        case What::from_group_scales:
            lattices[k] = group_scales_of(run_, name.tensor, *run_.plan->tensors[name.tensor].from_groups,
                                          run_.stages[name.tensor].from_group_scales, false);
            break;
        default: return true;
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
        const auto set_stage = [&](const char *field) { set(StageName(run_, field, i).text()); };
        switch (name.what) {
        case What::x: return set("x[%d]");
        case What::weight: return set_stage("weight");
        case What::bias: return set_stage("bias");
        case What::scales: return set_stage("scales");
        case What::position_scales: return set_stage("position_scales");
        case What::positions: return set("positions.data", "args.positions");
        case What::from_positions: return set("from_positions.data", "args.from_positions");
        case What::cos: return set("the cos rows of the angle source");
        case What::sin: return set("the sin rows of the angle source");
        case What::source_index: return set("the index of the angle source");
        case What::from_source_index: return set("the index of from_angles");
        case What::slots: return set("slots.data", "args.slots");
        case What::y: return run_.plan->tensors[i].cache ? set_stage("cache") : set("y[%d]");
        case What::scales_out: return set_stage("scales_out");
        case What::group_scales: return set_stage("group_scales");
        case What::from_group_scales: return set_stage("from_group_scales");
        case What::scratch: return set("slots.scratch", "args.slots_scratch");
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
