// All memory that a run reads and writes, listed in one place, and whether any of it meets.
#pragma once

#include "base/overlap.h"
#include "read/read_run.h"

namespace halyard {

/// Makes the list at the cost of a few stores, because every run does.
class Areas {
public:
    /// The run's angles and positions are given apart: a bound run may bring others.
    Areas(const Run &run, const halyard_angle_source *angles, const CheckedPositions &positions,
          const Spans &spans) noexcept {
        const bool only_rotates = run.plan->only_rotates;
        for (int i = 0; i < run.plan->n_tensors; i++) {
            if (run.tensors[i].n_heads != 0) {
                add(What::x, i, run.tensors[i].in_place ? nothing : spans.x[i]);  // else y is the same
                if (!only_rotates) {
                    add(What::weight, i, run.stages[i].weight_memory);
                    add(What::scales, i, run.stages[i].scales_memory);
                }
            }
        }
        add(What::positions, 0, positions.memory);
        add(What::from_positions, 0, run.plan->rerotates ? run.from_positions.memory : nothing);
        if (angles != nullptr) {
            add(What::cos, 0, angles->cos_memory);
            add(What::sin, 0, angles->sin_memory);
            add(What::source_index, 0, angles->index_memory);
        }
        const bool has_slots = run.slots.data != nullptr;
        add(What::slots, 0, has_slots ? run.slots.memory : nothing);
        n_read_ = n_;
        for (int i = 0; i < run.plan->n_tensors; i++) {
            if (run.tensors[i].n_heads != 0) {
                add(What::y, i, spans.y[i]);
                add(What::scales_out, i, only_rotates ? nothing : run.stages[i].scales_out_memory);
            }
        }
        add(What::scratch, 0, has_slots ? run.slots.scratch_memory : nothing);
    }

    /// Whether what is written spans anything else. Elements may lie apart all the same.
    bool any_spans_meet() const noexcept {
        bool found = false;
        for (int i = n_read_; i < n_ && !found; i++) {
            unsigned meets = 0;  // no branches, for the cost of a run
            for (int j = 0; j < i; j++) {
                meets |= static_cast<unsigned>(spans_[i].begin < spans_[j].end) &
                         static_cast<unsigned>(spans_[j].begin < spans_[i].end);
            }
            found = meets != 0;
        }
        return found;
    }

    /// Looks closer where spans meet, and says which elements do. x and y are the run's tensors.
    halyard_status check(const Run &run, const halyard_tensor *x, const halyard_tensor *y,
                         halyard_error *error) const noexcept;

private:
    enum class What : std::uint8_t {
        x,
        weight,
        scales,
        positions,
        from_positions,
        cos,
        sin,
        source_index,
        slots,
        y,  // or a cache
        scales_out,
        scratch
    };
    struct Name {
        What what;
        std::int8_t tensor;
    };
    static constexpr MemoryRange nothing = {0, 0};
    static constexpr int most = 5 * HALYARD_MAX_TENSORS + 7;

    MemoryRange spans_[most];
    Name names_[most];
    int n_ = 0, n_read_ = 0;

    void add(What what, int tensor, const MemoryRange &span) noexcept {
        spans_[n_] = span;
        names_[n_] = {what, static_cast<std::int8_t>(tensor)};
        n_ += span.begin != span.end ? 1 : 0;
    }
    bool may_meet(int i, int j, const Run &run, const halyard_tensor *x, const halyard_tensor *y) const noexcept;
};

/// Where the scales of a tensor are written, which have the shape of its tokens or of its cache's slots.
Lattice scales_out_of(const Run &run, int index) noexcept;

/// The cache of a tensor, wherever that has one.
Lattice cache_of(const Run &run, int index) noexcept;

}  // namespace halyard
