// The one list of all memory that a run reads and writes, and the check that nothing written overlaps anything else.
#pragma once

#include "base/error.h"
#include "base/overlap.h"
#include "read/read_run.h"

namespace halyard {

/// What the caller calls an array that a tensor's stages read or write: a field of halyard_stages, or of
/// halyard_bound_run_args.
class StageName {
public:
    StageName(const RunFrame &run, StageArray array, int index) noexcept;

    operator Part() const noexcept { return text_; }
    const char *text() const noexcept { return text_; }

private:
    char text_[40];
};

/// Every run makes the list, so it costs only a few stores. Names are added only when spans meet.
class Areas {
public:
    /// Angles and positions are separate arguments because a bound run's call may bring its own.
    Areas(const Run &run, const halyard_angle_source *angles, const CheckedPositions &positions,
          const Spans &spans) noexcept
        : run_(run), angles_(angles), positions_(positions), tensors_(spans),
          n_(list([this](int i, What, int, const MemoryRange &span) { spans_[i] = span; })) {}

    /// Whether the span of something written meets another span. Their elements may still be apart.
    bool any_spans_meet() const noexcept {
        bool found = false;
        for (int i = n_.read; i < n_.all && !found; i++) {
            unsigned meets = 0;  // no branches, for the cost of a run
            for (int j = 0; j < i; j++) {
                meets |= static_cast<unsigned>(spans_[i].begin < spans_[j].end) &
                         static_cast<unsigned>(spans_[j].begin < spans_[i].end);
            }
            found = meets != 0;
        }
        return found;
    }

    /// Where spans meet, checks their elements and names those that meet. x and y are the run's tensors.
    halyard_status check(const halyard_tensor *x, const halyard_tensor *y, halyard_error *error) const noexcept;

private:
    enum class What : std::uint8_t {
        stage,  // … + a StageArray, but for caches, which are y
        x = n_stage_arrays,
        positions,
        from_positions,
        cos,
        sin,
        slots,
        y,  // or a cache
        scratch
    };
    // NOLINTNEXTLINE(*EnumCastOutOfRange): those below x are StageArray's
    static constexpr What what_of(StageArray array) noexcept { return What(array); }
    struct Name {
        What what;
        std::int16_t tensor;
    };
    struct Counts {
        int all, read;  // what is read comes first
    };
    static constexpr int most = 8 * HALYARD_MAX_TENSORS + 6;

    const Run &run_;
    const halyard_angle_source *angles_;
    const CheckedPositions &positions_;
    const Spans &tensors_;
    MemoryRange spans_[most];
    Counts n_;

    /// Calls note(i, what, tensor, span) for every area. An empty one does not advance i, so the next overwrites it.
    template <typename Note>
    Counts list(Note note) const noexcept {
        Counts n = {0, 0};
        const auto add = [&](What what, int tensor, const MemoryRange &span) {
            note(n.all, what, tensor, span);
            n.all += span.begin != span.end ? 1 : 0;
        };
        const bool only_rotates = run_.plan->only_rotates;
        for (int i = 0; i < run_.plan->n_tensors; i++) {
            if (run_.tensors[i].n_heads != 0) {
                if (!run_.tensors[i].in_place) {  // else y is the same
                    add(What::x, i, tensors_.x[i]);
                }
                if (!only_rotates) {
                    for (const StageArray array :
                         {weight_array, bias_array, scales_array, position_scales_array, from_group_scales_array}) {
                        add(what_of(array), i, run_.stages[i].memory(array));
                    }
                }
            }
        }
        add(What::positions, 0, positions_.memory);
        if (run_.plan->rerotates) {
            add(What::from_positions, 0, run_.from_positions.memory);
        }
        if (angles_ != nullptr) {
            add(What::cos, 0, angles_->cos_memory);
            add(What::sin, 0, angles_->sin_memory);
        }
        const bool has_slots = run_.slots.data != nullptr;
        if (has_slots) {
            add(What::slots, 0, run_.slots.memory);
        }
        n.read = n.all;
        for (int i = 0; i < run_.plan->n_tensors; i++) {
            if (run_.tensors[i].n_heads != 0) {
                add(What::y, i, tensors_.y[i]);
                if (!only_rotates) {
                    for (const StageArray array : {scales_out_array, group_scales_array}) {
                        add(what_of(array), i, run_.stages[i].memory(array));
                    }
                }
            }
        }
        if (has_slots) {
            add(What::scratch, 0, run_.slots.scratch_memory);
        }
        return n;
    }
    bool may_meet(int i, int j, const Name *names, const halyard_tensor *x, const halyard_tensor *y) const noexcept;
};

/// Where the scales of a tensor are written, which have the shape of its tokens or of its cache's slots.
Lattice scales_out_of(const Run &run, int index) noexcept;

/// Scales of groups that lie apart, in bytes: of the slots of a cache if there is one, else of tokens.
Lattice group_scales_of(const Run &run, int index) noexcept;

/// Those that are read.
Lattice from_group_scales_of(const Run &run, int index) noexcept;

/// The cache of a tensor, wherever that has one.
Lattice cache_of(const Run &run, int index) noexcept;

}  // namespace halyard
