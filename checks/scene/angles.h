// The angle source of a scene, of any kind, and the exact cos and sin that it stands for.
#pragma once

#include "checks/scene/choice.h"
#include "checks/scene/draw.h"
#include "checks/scene/memory.h"

#include <string>

namespace scenes {

struct Angles {
    enum Kind { table, phase, factored, listed, given_f32, given_f16, given_bf16, joined, by_token };

    halyard_angle_source_desc desc = sized<halyard_angle_source_desc>();  // GIVEN: of the rows in a scene's memory
    Kind kind = table;
    std::int32_t first = 0, last = 0;  // what it covers, with gaps where it is listed,
    std::int32_t last_dense = 0;       // but up to here without, unless the choice has gaps
    std::vector<std::int32_t> list;    // of a table, all that it covers
    std::int32_t *index = nullptr;     // of joined sources, in a scene's memory
    std::int64_t n_index = 0;
    bool index_by_token = false;

    /// Draws a source for a run's tokens, and puts into memory what it reads there.
    void draw(Draw &draw, const Choice &choice, const Call &call, Kind of_kind, int axes);
    void add_to(Draw &draw, Memory &memory);
    void fill(oracle::Random &random) const;
    /// When all memory is placed; for keys that move, another source, too. Returns why there is none, if there is none.
    std::string create(bool moves);

    const halyard_angle_source *get() const { return joined_ ? joined_.get() : sources_[0].get(); }
    const halyard_angle_source *other() const { return sources_[1].get(); }
    bool is_given() const { return desc.kind == HALYARD_ANGLES_GIVEN; }
    bool is_covered(std::int64_t position) const;
    std::int64_t n_axes() const { return std::max(desc.n_axes, 1); }
    const char *name() const;

    /// cos and sin of a head's pair, with the sign of the direction. How far halyard.h lets results be, in eps.
    struct CosSin {
        long double cos, sin;
    };
    CosSin at(const Call &call, const Head &head, std::int64_t pair) const;
    /// How many heads have rows of their own.
    std::int64_t n_rows_of_token() const { return std::max<std::int64_t>(desc.n_heads, 1); }
    long double eps() const { return kind == factored ? 4 : 2; }

private:
    std::vector<std::int32_t> axis_of_pair_;
    halyard_positions listed_ = sized<halyard_positions>();
    std::vector<long double> inv_freq_[2];  // of both sources, where there are two
    bool are_from_base_ = false;            // and not from a list
    double factors_[2] = {1, 1};
    halyard::frequencies frequencies_[2];
    halyard::angle_source sources_[2], joined_;

    void draw_range(Draw &draw, const Choice &choice);
    void draw_axes(Draw &draw, int axes, std::int64_t n_pairs);
    void draw_list(Draw &draw, const Choice &choice);
    void draw_index(Draw &draw, const Call &call);
    void draw_heads(Draw &draw, const Choice &choice, const Call &call);
    std::int64_t axis_of(std::int64_t pair) const;
    /// What a run takes in the place of a position, by its policy.
    std::int64_t resolve(const Call &call, std::int64_t position) const;
};

}  // namespace scenes
