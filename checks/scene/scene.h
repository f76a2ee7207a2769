// A random call: its plan, tensors, stages, slots, caches, angles and positions, with the memory that all of it lies
// in; and the check of all that it wrote.
#pragma once

#include "checks/scene/angles.h"
#include "checks/scene/cache_layouts.h"

namespace scenes {

class Scene {
public:
    /// Draws all of it, and makes the angle source.
    Scene(Draw &draw, const Choice &choice);
    /// The same in steps, between which a fuzzer changes what was drawn.
    struct InSteps {};
    Scene(Draw &draw, const Choice &choice, InSteps) : draw_(draw), choice_(choice) {}
    void draw_plan();
    void draw_run();
    std::string create_angles();

    Call call;
    Angles angles;
    Memory memory;
    Images before;  // what memory holds before a run

    bool has_bad_position(std::int64_t batch, std::int64_t token) const;
    bool has_bad_slot(std::int64_t batch, std::int64_t token) const;
    /// Whether a run is refused for its positions or slots.
    bool is_refused() const;
    /// Gives all tokens of an accepted run the rows that it gave those that are stored, and the others some.
    std::int32_t accepting_policy() const {
        const std::int32_t policy = call.args.bad_position;
        return policy == HALYARD_BAD_POSITION_ERROR ? HALYARD_BAD_POSITION_IDENTITY : policy;
    }

    /// What is wrong with what a run of some target has left, in words, or nothing: each output is within the bounds of
    /// halyard.h, or has the very bits where a tensor is rotated only, and nothing else was written.
    std::string fault(const Images &after) const;
    /// The first output in which two runs differ, in words, or nothing; any NaN equals any other.
    std::string difference(const Images &expected, const Images &result) const;
    /// What was drawn, in words.
    std::string text() const;

private:
    Draw &draw_;
    const Choice choice_;
    oracle::Random contents_{0};  // of memory
    std::int64_t n_batch_ = 1, n_tokens_ = 0, n_heads_[HALYARD_MAX_TENSORS] = {}, n_slots_ = 0;
    bool in_place_[HALYARD_MAX_TENSORS] = {};
    int position_scales_[HALYARD_MAX_TENSORS] = {};
    std::int64_t page_scales_[HALYARD_MAX_TENSORS] = {};  // where those of groups lie in a block of the cache, or 0
    int strides_ = 0, positions_ = 0;
    bool are_packed_ = false;
    bool are_numbers_ = true;  // the inputs
    oracle::Values values_ = oracle::Values::ordinary;

    int level(Factor factor, bool is_first = true);
    void draw_tensor(int i);
    void draw_turn(int i, int turn);
    void draw_norm(int i);
    void draw_hadamard(int i);
    void draw_scale(int i);
    void draw_cache(int i, int layout);
    void draw_records(int i);
    std::int32_t draw_preset(std::int64_t head_dim, std::int32_t given = 0);
    void draw_group_scales(int i, bool is_input);
    bool add_group_scales(int i);
    void draw_view(int i);
    void draw_strides(halyard_tensor &tensor, std::int64_t step, bool is_input);
    void pack_inputs();
    void place_tensors();
    void add_stages(int i, std::size_t caches, std::size_t weights);
    void add_position_scales(int i);
    void draw_slots();
    void draw_positions();
    void draw_form(halyard_positions &positions);

    void fill_slots();
    void fill_positions();
    std::int64_t moved_position(const halyard_positions *view, std::int64_t axis, std::int64_t b, std::int64_t t);
    std::int64_t good_position();
    std::int64_t bad_position(std::int32_t type);
    void fill_stages(int i);
    void fill_input(int i);
    void fill_record(int i, const Head &at);

    oracle::Road road_of(int i) const;
    std::string check_token(int i, std::int64_t batch, std::int64_t token, const Images &after) const;
    std::string check_head(int i, const Head &at, const oracle::RoadValues &values, const Images &after) const;
    std::string check_scale(int i, const Head &at, const oracle::RoadValues &values, float scale) const;
    std::vector<long double> read_head(int i, const Head &at) const;
    halyard_positions accepted(const halyard_positions *given, std::vector<std::int32_t> &numbers) const;
    std::vector<float> floats_of(int i) const;
    std::string check_records(int i, const Images &after) const;
    std::vector<float> make_rows() const;
    std::string check_bits(int i, const std::vector<float> &rows, const Images &after) const;
    std::string check_rest(const Images &after) const;
    bool is_kept(std::int64_t batch, std::int64_t token) const;
    bool is_written(std::int64_t batch, std::int64_t token) const;
    bool is_padding(const halyard_positions &view, std::int64_t b, std::int64_t t) const;
};

}  // namespace scenes
