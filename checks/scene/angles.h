// The angle source of a scene, of any kind, and the exact cos and sin that it stands for.
#pragma once

#include "checks/scene/choice.h"
#include "checks/scene/draw.h"
#include "checks/scene/memory.h"

#include <string>

namespace scenes {

struct Angles {
    enum Kind { table, phase, given_f32, given_f16, given_bf16, by_token };
    /// Where keys come from that move: by the same source, or another one.
    enum From { same, other };

    halyard_angle_source_desc desc = sized<halyard_angle_source_desc>();  // GIVEN: of the rows in a scene's memory
    Kind kind = table;
    std::int32_t first = 0, last = 0;  // what it covers
    From from = same;

    /// Draws a source for a run's tokens, and puts into memory what it reads there.
    void draw(Draw &draw, const Choice &choice, const Call &call, Kind of_kind, int axes);
    void add_to(Draw &draw, Memory &memory);
    void fill(oracle::Random &random) const;
    /// When all memory is placed; for keys that move, another source, too. Returns why there is none, if there is none.
    std::string create(bool moves);

    const halyard_angle_source *get() const { return sources_[0].get(); }
    /// NULL where that is the same.
    const halyard_angle_source *get_from() const { return from == other ? sources_[1].get() : nullptr; }
    const halyard::frequencies &frequencies() const { return frequencies_[0]; }
    bool is_given() const { return desc.kind == HALYARD_ANGLES_GIVEN; }
    bool is_covered(std::int64_t position) const { return position >= first && position <= last; }
    std::int64_t n_axes() const { return std::max(desc.n_axes, 1); }

    /// cos and sin of a token's pair, with the sign of the direction. How far halyard.h lets results be, in eps.
    struct CosSin {
        long double cos, sin;
    };
    CosSin at(const Call &call, std::int64_t batch, std::int64_t token, std::int64_t pair) const;

private:
    std::vector<std::int32_t> axis_of_pair_[2];  // of both sources, where there are two
    std::vector<long double> inv_freq_[2];
    bool are_from_base_ = false;  // and not from a list
    double factors_[2] = {1, 1};
    halyard::frequencies frequencies_[2];
    halyard::angle_source sources_[2];

    void draw_range(Draw &draw, const Choice &choice);
    void draw_axes(Draw &draw, int axes, std::int64_t n_pairs);
    halyard_angle_source_desc describe(std::size_t source) const;
    std::int64_t axis_of(std::size_t source, std::int64_t pair) const;
    /// What a run takes in the place of a position, by its policy.
    std::int64_t resolve(const Call &call, std::int64_t position) const;
};

}  // namespace scenes
