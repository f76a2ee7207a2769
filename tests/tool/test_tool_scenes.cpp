// Random calls by command lines: all that the options of rotate say, in every pair. What the tool leaves in files is
// put where a run of the library leaves it, and checked there against the oracle.
#include "checks/scene/scene.h"
#include "tool/arrays.h"
#include "words/group_words.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cstring>
#include <functional>

namespace {

using namespace scenes;

constexpr std::int64_t n_slots = 128, bs = 32;  // of a scene's caches

/// An array of a scene as files have it, dense: `width` elements for each token and head, or for each slot and head.
struct Array {
    bool by_slot;
    std::string descr;
    Shape shape;
    std::int64_t width, bytes;                                               // of an element
    std::function<std::int64_t(const Head &at, std::int64_t i)> index = {};  // of an element in the file
    std::function<char *(const Head &at, std::int64_t i)> place = {};        // where it is in the scene's memory
};

const char *descr_of_dtype(std::int32_t dtype) {
    static constexpr const char *names[] = {"", "<f4", "<f2", "<u2", "|u1", "|u1", "|i1", "|u1"};
    return names[dtype];
}

const char *word_of(std::int32_t dtype) {
    static constexpr const char *words[] = {"", "f32", "f16", "bf16", "e4m3", "e5m2", "int8"};
    return words[dtype];
}

std::string say(double number) {
    char text[40];
    std::snprintf(text, sizeof(text), "%.17g", number);
    return text;
}

/// As --groups takes it.
std::string say(const halyard_groups_desc &groups) {
    std::string text;
    const auto add_word = [&](const std::string &field, std::int32_t value, std::span<const halyard::words::Word> all) {
        for (const auto &[word, meaning] : all) {
            text += value == meaning && value != 0 ? "," + field + word : "";
        }
    };
    add_word("", groups.preset, halyard::words::presets);
    for (const auto &[name, field, values] : halyard::words::choices) {
        add_word(std::string(name) + "=", groups.*field, values);
    }
    for (const auto &[name, field] : halyard::words::sizes) {
        text += groups.*field != 0 ? std::string(",") + name + "=" + std::to_string(groups.*field) : "";
    }
    text += groups.scales_apart != 0 ? ",scales_apart=1" : "";
    text += groups.floor != 0 ? ",floor=" + say(static_cast<double>(groups.floor)) : "";
    return text.substr(1);
}

Choice choice_of(const Levels &levels, bool moves) {
    Choice choice;
    choice.level = levels;
    choice.n_tensors = 1;
    choice.moves = moves;
    int &source = choice.level[of_source];
    source = source == 2 ? Angles::by_token : source;
    return choice;
}

class ToolScene {
public:
    ToolScene(const Levels &levels, bool moves, std::uint64_t seed, const std::string &target)
        : random_(seed), draw_(random_), scene_(draw_, choice_of(levels, moves), Scene::InSteps{}), target_(target),
          layout_(levels[of_layout]), other_form_(seed / 7 % 2 != 0) {
        scene_.draw_plan();
        leave_out();
        scene_.draw_run();
        REQUIRE(scene_.create_angles() == "");
        const bool is_row_major = layout_ <= hnd, is_whole = tensor_.groups == nullptr && tensor_.head_dim % 16 == 0;
        layout_ = tensor_.cache == nullptr ? no_cache : is_row_major || is_whole ? layout_ : hnd;
        has_batch_ = call_.n_batch() > 1 || other_form_;
        heads_first_ = has_batch_ && seed / 11 % 3 == 0;
        words_ = "--target " + target;
        if (!is_device(target)) {
            add("threads", std::to_string(1 + seed % 3));
        }
    }

    /// Files have no rows for each token of each batch row, and devices none for each head. A record has to tell how
    /// wide a head is, and scales what they are for.
    bool can_be_said() const {
        const halyard_groups_desc *const groups = call_.groups_of(0, true);
        const halyard_angle_source_desc &angles = scene_.angles.desc;
        return (angles.by_token != 1 || call_.n_batch() == 1) && (angles.n_heads == 0 || !is_device(target_)) &&
               (groups == nullptr || halyard::find_head_dim(*groups, call_.width_of(0, true)) == tensor_.head_dim) &&
               (tensor_.scale == nullptr || call_.x[0].shape[2] != tensor_.head_dim);
    }

    /// Runs the tool. What is wrong with what it has left, in words, or nothing.
    std::string fault() {
        add_rotation();
        add_norm();
        add_scales();
        const Array x = heads(true), y = heads(false);
        std::string cache = write_array("x.npy", x), output = "y.npy";
        if (layout_ != no_cache) {
            add_slots();
        }
        if (layout_ != no_cache && !moves()) {
            cache = write_array("cache.npy", y);
            add("cache", "cache.npy");
            output = other_form_ ? "cache.npy" : output;
        }
        add_types();
        Images after = scene_.before;
        std::function<void()> take_scales = [] {};
        if (call_.is_dynamic(0)) {
            take_scales = add_written_scales(scales(), after);
        } else if (has_scales_apart(false)) {
            take_scales = add_written_scales(group_scales(false), after);
        }
        const std::string line = "rotate x.npy -o " + output + " " + words_;
        INFO(line);
        dir_.succeed(line);
        take(output, y, cache, after);
        take_scales();
        return scene_.fault(layout_ == no_cache ? only_outputs(after) : after, target_ != "x86_sse41");
    }

private:
    ToolFolder dir_;
    oracle::Random random_;
    Draw draw_;
    Scene scene_;
    Call &call_ = scene_.call;
    const halyard_tensor_desc &tensor_ = call_.tensors[0];
    const std::string target_;
    int layout_;
    const bool other_form_;  // then defaults are said, too, and what can be said in two ways is said in the other
    bool has_batch_ = false, heads_first_ = false;
    std::string words_;

    bool moves() const { return call_.plan.rerotates != 0; }
    bool has_scales_apart(bool is_input) const {
        return call_.groups_of(0, is_input) != nullptr && call_.record_of(0, is_input).scales_apart;
    }

    /// Windows of norms, rounding after weights, and gaps between scales have no options.
    void leave_out() {
        halyard_norm_desc &norm = call_.norms[0];
        norm.window_offset = norm.window_size = 0;
        norm.rounding &= HALYARD_NORM_ROUND_BEFORE_WEIGHT;
        for (halyard_groups_desc *const groups : {&call_.groups[0], &call_.from_groups[0]}) {
            if (groups->scales_apart != 0) {
                groups->scale_offset = 0;
                groups->scale_stride = oracle::record_of(*groups, tensor_.head_dim).scale_bytes();
            }
        }
    }

    // ---- Arrays ----

    bool is_by_slot(bool is_input) const { return layout_ != no_cache && (moves() || !is_input); }

    /// [batch, tokens, …], or [tokens, …].
    Shape by_token(const Shape &more) const {
        Shape shape = {call_.n_batch(), call_.n_tokens()};
        shape.erase(shape.begin(), shape.begin() + (has_batch_ ? 0 : 1));
        shape.insert(shape.end(), more.begin(), more.end());
        return shape;
    }

    /// X or Y.
    Array heads(bool is_input) const {
        const std::int64_t H = call_.x[0].shape[2], T = call_.n_tokens(), W = call_.width_of(0, is_input);
        const std::int32_t dtype = is_input ? call_.in_dtype(0) : call_.out_dtype(0);
        Array array = {is_by_slot(is_input), descr_of_dtype(dtype), {}, W, bytes_of(dtype)};
        array.place = [=, this](const Head &at, std::int64_t d) {
            return is_input ? place_of_input(call_, 0, at, d) : place_of_output(call_, 0, at, d);
        };
        if (array.by_slot) {
            array.shape = layout_ == rows  ? Shape{n_slots, H, W}
                          : layout_ == nhd ? Shape{n_slots / bs, bs, H, W}
                          : layout_ == hnd ? Shape{n_slots / bs, H, bs, W}
                                           : Shape{n_slots / bs, H, bs * W};
            array.index = [=, this](const Head &at, std::int64_t d) {
                return index_in_layout(layout_, bs, H, W, slot_of(call_, at.batch, at.token), at.head, d);
            };
        } else {
            array.shape = heads_first_ ? Shape{call_.n_batch(), H, T, W} : by_token({H, W});
            array.index = [=, this](const Head &at, std::int64_t d) {
                const std::int64_t row =
                    heads_first_ ? (at.batch * H + at.head) * T + at.token : (at.batch * T + at.token) * H + at.head;
                return row * W + d;
            };
        }
        return array;
    }

    /// Dynamic scales, or those of records, which may have several for each head.
    Array scales_of(bool by_slot, const std::string &descr, std::int64_t n, std::int64_t bytes) const {
        const std::int64_t H = call_.x[0].shape[2], T = call_.n_tokens();
        Array array = {by_slot, descr, by_slot ? Shape{n_slots, H} : by_token({H}), n, bytes};
        if (n > 1) {
            array.shape.push_back(n);
        }
        array.index = [=, this](const Head &at, std::int64_t i) {
            const std::int64_t row = by_slot ? slot_of(call_, at.batch, at.token) : at.batch * T + at.token;
            return (row * H + at.head) * n + i;
        };
        return array;
    }
    Array scales() const {
        Array array = scales_of(is_by_slot(false), "<f4", 1, 4);
        array.place = [this](const Head &at, std::int64_t) { return place_of_scale(call_, 0, at); };
        return array;
    }
    Array group_scales(bool is_input) const {
        static constexpr const char *names[] = {"", "<f4", "<f2", "<u2", "|u1", "|u1"};
        const oracle::Record record = call_.record_of(0, is_input);
        Array array =
            scales_of(is_by_slot(is_input), names[record.scale_dtype], record.n_groups(), record.scale_bytes());
        array.place = [=, this](const Head &at, std::int64_t group) {
            return place_of_group_scales(call_, 0, at, is_input) + record.scale_offset + group * record.scale_stride;
        };
        return array;
    }

    template <typename Function>
    void for_each_element(const Array &array, Function function) const {
        for_each_head(call_, 0, [&](const Head &at) {
            const bool is_nowhere = array.by_slot && slot_of(call_, at.batch, at.token) < 0;
            for (std::int64_t i = 0; i < array.width && !is_nowhere; i++) {
                function(static_cast<std::size_t>(array.index(at, i) * array.bytes), array.place(at, i));
            }
        });
    }

    /// A file of what the scene holds, and of other elements. Returns its data.
    std::string write_array(const std::string &name, const Array &array, const std::string &others = "\x3c") {
        std::int64_t n = array.bytes;
        for (const std::int64_t size : array.shape) {
            n *= size;
        }
        std::string data;
        while (std::ssize(data) < n) {
            data += others;
        }
        for_each_element(array, [&](std::size_t at, const char *place) {
            std::memcpy(&data[at], place, static_cast<std::size_t>(array.bytes));
        });
        halyard::tool::write_npy(dir_ / name, array.descr, array.shape, data.data(), data.size());
        return data;
    }

    /// Without what lies between the places of a record, where an array of the tool's own has zeros.
    Images only_outputs(const Images &after) const {
        Images outputs = scene_.before;
        for_each_output(call_, [&](const char *at, std::int32_t dtype) {
            std::copy_n(scene_.memory.in(after, at), bytes_of(dtype), scene_.memory.in(outputs, at));
        });
        return outputs;
    }

    /// Takes the tokens' elements of a file to the image. By slots others have to be as before.
    void take(const std::string &name, const Array &array, const std::string &before, Images &after) const {
        const auto file = halyard::tool::read_npy(dir_ / name, {array.descr});
        REQUIRE(file.shape == array.shape);
        std::string rest = bytes_of(file);
        for_each_element(array, [&](std::size_t at, const char *place) {
            const auto n = static_cast<std::size_t>(array.bytes);
            std::memcpy(scene_.memory.in(after, place), &rest[at], n);
            rest.replace(at, n, array.by_slot ? before.substr(at, n) : std::string(n, '\0'));
        });
        CHECK((!array.by_slot || rest == before));
    }

    // ---- Options ----

    void add(const std::string &name, const std::string &value) { words_ += " --" + name + " " + value; }
    void add_flag(bool is_set, const char *name) { words_ += is_set ? std::string(" --") + name : ""; }

    /// A file of integers.
    template <typename Of>
    void add_integers(const std::string &name, std::int32_t type, const Shape &shape, std::int64_t n_axes, Of of) {
        std::vector<std::int64_t> all;
        for (std::int64_t i = 0, T = call_.n_tokens(), n = call_.n_batch() * T; i < n_axes * n; i++) {
            all.push_back(of(i / n, i % n / T, i % T));
        }
        const std::string file = name + ".npy";
        add(name, type == HALYARD_INT64 ? write(dir_, file, shape, all)
                                        : write(dir_, file, shape, std::vector<std::int32_t>(all.begin(), all.end())));
    }

    void add_slots() {
        add_integers("slots", call_.slots.type, by_token({}), 1,
                     [&](std::int64_t, std::int64_t b, std::int64_t t) { return slot_of(call_, b, t); });
        const char *const names[] = {"", "rows", "nhd", "hnd"};
        if (layout_ <= hnd) {
            add("cache-layout", names[layout_]);
            return;
        }
        halyard_cache_desc cache = {};
        const std::int64_t D = tensor_.head_dim;
        describe_layout(layout_, n_slots / bs, bs, call_.x[0].shape[2], D, cache);
        const auto or_else = [](std::int64_t value, std::int64_t other) { return value != 0 ? value : other; };
        std::string tile = "tile:" + std::to_string(bs);
        for (const std::int64_t number :
             {or_else(cache.tile_tokens, bs), cache.stride_tile_tokens, cache.stride_token,
              or_else(cache.tile_elements, D), cache.stride_tile_elements, or_else(cache.stride_element, 1)}) {
            tile += "," + std::to_string(number);
        }
        add("cache-layout", tile);
    }

    void add_types() {
        add_flag(heads_first_, "layout bhsd");
        add_flag(call_.x[0].data == call_.y[0].data && layout_ == no_cache && (tensor_.groups == nullptr || moves()) &&
                     tensor_.from_groups == nullptr,
                 "in-place");
        if (tensor_.from_groups != nullptr) {
            add("from-groups", say(*tensor_.from_groups));
        } else if (!moves() || tensor_.groups == nullptr) {
            add("dtype", word_of(tensor_.dtype));
        }
        if (tensor_.groups != nullptr) {
            add("groups", say(*tensor_.groups));
        } else if (tensor_.out_dtype != 0) {
            add("out-dtype", word_of(tensor_.out_dtype));
        }
    }

    void add_positions(const std::string &name, const halyard_positions *view) {
        if (view != nullptr) {
            const std::int64_t n_axes = scene_.angles.n_axes(), B = call_.n_batch(), T = call_.n_tokens();
            add_integers(
                name, view->type, n_axes > 1 ? Shape{n_axes, B, T} : Shape{B, T}, n_axes,
                [&](std::int64_t axis, std::int64_t b, std::int64_t t) { return position_of(view, axis, b, t); });
        }
    }

    void add_rotation() {
        add_flag(tensor_.no_rotation != 0, "no-rotation");
        if (tensor_.no_rotation != 0) {
            return;
        }
        const auto word = [](std::int32_t pairing) { return pairing == HALYARD_PAIRING_HALF ? "half" : "interleaved"; };
        if (other_form_ || tensor_.pairing != HALYARD_PAIRING_HALF) {
            add("pairing", word(tensor_.pairing));
        }
        if (tensor_.out_pairing != 0) {
            add("out-pairing", word(tensor_.out_pairing));
        }
        add("rotary-offset", std::to_string(tensor_.rotary_offset));
        add("rotary-dim", std::to_string(call_.plan.rotary_dim));
        add_flag(call_.plan.direction == HALYARD_INVERSE, "inverse");
        const halyard_angle_source_desc &desc = scene_.angles.desc;
        if (scene_.angles.kind == Angles::by_token) {
            add_rows();
            return;
        }
        const halyard_frequencies_info model = scene_.angles.frequencies().info();
        if (model.base != 0) {
            add("base", say(model.base));
        } else {
            const std::vector<double> list(model.inv_freq, model.inv_freq + model.rotary_dim / 2);
            add("inv-freq", write(dir_, "f.npy", {std::ssize(list)}, list));
            add("attention-factor", say(model.attention_factor));
        }
        if (other_form_ || scene_.angles.kind == Angles::phase) {
            add("angles", scene_.angles.kind == Angles::phase ? "phase" : "table");
        }
        if (desc.n_axes > 1) {
            add("axis-map", (desc.axis_map == HALYARD_AXIS_MAP_SECTIONS ? "sections:" : "interleaved:") +
                                std::to_string(desc.axis_counts[0]) + "," + std::to_string(desc.axis_counts[1]) + "," +
                                std::to_string(desc.axis_counts[2]));
        }
        add_positions("positions", call_.args.positions);
        add_positions("from-positions", call_.args.from_positions);
    }

    void add_rows() {
        const std::int64_t n_heads = scene_.angles.n_rows_of_token(), n_pairs = call_.plan.rotary_dim / 2;
        std::vector<float> rows;
        for (std::int64_t i = 0; i < call_.n_tokens() * n_heads * 2 * n_pairs; i++) {
            const std::int64_t row = i / n_pairs / 2;
            const auto turn = scene_.angles.at(call_, {0, row / n_heads, row % n_heads}, i % n_pairs);
            const long double sin = call_.plan.direction == HALYARD_INVERSE ? -turn.sin : turn.sin;
            rows.push_back(static_cast<float>(i / n_pairs % 2 == 0 ? turn.cos : sin));
        }
        const Shape shape = {call_.n_tokens(), n_heads, 2, n_pairs}, shared = {call_.n_tokens(), 2, n_pairs};
        add("cos-sin", write(dir_, "rows.npy", scene_.angles.desc.n_heads != 0 ? shape : shared, rows));
    }

    void add_norm() {
        if (tensor_.norm == nullptr) {
            return;
        }
        const halyard_norm_desc &norm = *tensor_.norm;
        const bool is_row = norm.width == HALYARD_NORM_ROW, is_after = norm.order == HALYARD_NORM_AFTER;
        add("norm", norm.kind == HALYARD_NORM_LAYER ? "layer" : "rms");
        if (norm.weight_dtype != 0) {
            const std::int64_t n = call_.stages[0].n_weights, D = tensor_.head_dim;
            const Shape shape = norm.weight_per_head != 0 ? Shape{n / D, D} : Shape{n};
            const auto add_file = [&](const std::string &name, const void *data) {
                const auto n_bytes = static_cast<std::size_t>(n * bytes_of(norm.weight_dtype));
                halyard::tool::write_npy(dir_ / (name + ".npy"), descr_of_dtype(norm.weight_dtype), shape, data,
                                         n_bytes);
                add(name, name + ".npy");
            };
            add_file("norm-weight", call_.stages[0].weight);
            if (norm.has_bias != 0) {
                add_file("norm-bias", call_.stages[0].bias);
            }
        }
        add_flag(norm.unit_offset != 0, "norm-unit-offset");
        add_flag(norm.rounding != 0, "norm-round");
        if (norm.eps != 0 || norm.no_eps != 0 || other_form_) {
            add("norm-eps", say(norm.no_eps != 0 ? 0 : norm.eps != 0 ? norm.eps : 1e-6));
        }
        if (is_row || other_form_) {
            add("norm-width", is_row ? "row" : "head");
        }
        if (is_after || other_form_) {
            add("norm-order", is_after ? "after" : "before");
        }
    }

    /// Those that are read. Those by position are as few as they may be.
    void add_scales() {
        const halyard_stages &stages = call_.stages[0];
        const std::int64_t H = call_.x[0].shape[2], D = tensor_.head_dim;
        if (tensor_.hadamard != 0) {
            add("hadamard", std::to_string(tensor_.hadamard));
        }
        if (tensor_.position_scales != 0) {
            const bool of_heads = stages.stride_position_scales[2] != 0;
            const bool is_shared = !of_heads && (stages.stride_position_scales[0] == 0 || call_.n_batch() == 1);
            std::vector<float> values;
            for_each_head(call_, 0, [&](const Head &at) {
                if ((of_heads || at.head == 0) && (!is_shared || at.batch == 0)) {
                    std::memcpy(&values.emplace_back(), place_of_position_scale(call_, 0, at), sizeof(float));
                }
            });
            const Shape shape = is_shared ? Shape{call_.n_tokens()} : by_token(of_heads ? Shape{H} : Shape{});
            add("position-scales", write(dir_, "position_scales.npy", shape, values));
        }
        if (tensor_.scale != nullptr && !call_.is_dynamic(0)) {
            const std::int32_t per = call_.scales[0].per;
            Shape shape = (per & 1) != 0 ? Shape{H} : Shape{};
            if ((per & 2) != 0) {
                shape.push_back(D);
            }
            add("scale", per == HALYARD_SCALE_PER_TENSOR && other_form_
                             ? say(static_cast<double>(stages.scales[0]))
                             : write(dir_, "scale.npy", shape,
                                     std::vector<float>(stages.scales, stages.scales + stages.n_scales)));
        }
        if (!moves() && has_scales_apart(true)) {
            write_array("from_scales.npy", group_scales(true));
            add("cache-scales", "from_scales.npy");
        }
    }

    /// Keys that move have scales before. A cache may have. Returns what takes those of the tool to the image.
    std::function<void()> add_written_scales(const Array &array, Images &after) {
        const std::string ones[] = {{"\0\0\x80\x3f", 4}, {"\0\x3c", 2}, "\x80\x3f", "\x7f"};  // f32, f16, bf16, 2^0
        const std::string &one = ones[array.descr == "<f4"   ? 0
                                      : array.descr == "<f2" ? 1
                                      : array.descr == "<u2" ? 2
                                                             : 3];
        const bool are_new = !moves() && array.by_slot && other_form_;
        const std::string before = write_array("scales.npy", array, are_new ? one : "\x3c");
        std::string output = "scales.npy";
        if (moves()) {
            add("cache-scales", output);
            output = other_form_ ? "new.npy" : output;
        } else if (are_new) {
            std::filesystem::remove(dir_ / output);
        } else if (!array.by_slot) {
            dir_.write(output, "what is there does not matter");
        }
        if (!moves() || other_form_) {
            add("scale-dynamic", output);
        }
        return [=, this, &after] { take(output, array, before, after); };
    }
};

/// Each pair of levels at least once, and all targets in turns.
void check_pairs(Levels n_levels, bool moves, const Arguments &targets) {
    n_levels[of_layout] = std::min<int>(n_levels[of_layout], packed_v);  // which has gaps
    n_levels[of_shape] = std::min(n_levels[of_shape], 5);
    n_levels[of_heads] = std::min(n_levels[of_heads], 3);
    n_levels[of_source] = moves ? 2 : 3;  // table, phase, given by token
    n_levels[of_axes] = 3;
    n_levels[of_policy] = n_levels[of_strides] = n_levels[of_from] = n_levels[of_values] = 1;
    oracle::Random random(Catch::getSeed());
    std::uint64_t seed = Catch::getSeed();
    int n_said = 0;
    const auto choices = cover_pairs(random, n_levels);
    for (const Levels &levels : choices) {
        CAPTURE(levels, ++seed);
        ToolScene scene(levels, moves, seed, targets[seed % targets.size()]);
        if (scene.can_be_said()) {
            REQUIRE(scene.fault() == "");
            n_said++;
        }
    }
    CHECK(n_said * 2 > std::ssize(choices));
}

}  // namespace

TEST_CASE("tool: every pair of stages", "[tool][road]") {
    Levels n_levels = of_roads;
    n_levels[of_head_dim] = 5;
    n_levels[of_groups] = n_levels[of_from_groups] = 1;
    check_pairs(n_levels, false, supported_targets(false));
}

TEST_CASE("tool: keys move, every pair of what they are put together from", "[tool][road][moves]") {
    Levels n_levels = of_moves;
    n_levels[of_head_dim] = 5;
    n_levels[of_groups] = 1;
    check_pairs(n_levels, true, supported_targets(false));
}

TEST_CASE("tool: records and every pair of stages", "[tool][road][groups]") {
    Levels n_levels = of_roads;
    n_levels[of_head_dim] = 10;
    n_levels[of_scale] = 1;
    check_pairs(n_levels, false, supported_targets(false));
}

TEST_CASE("tool: keys move in records", "[tool][road][moves][groups]") {
    Levels n_levels = of_moves;
    n_levels[of_head_dim] = 10;
    n_levels[of_dtype] = n_levels[of_scale] = 1;
    check_pairs(n_levels, true, supported_targets(false));
}

TEST_CASE("tool: rotations on a cuda device or by OpenCL", "[tool][gpu]") {
    const auto targets = supported_targets(true);
    if (targets.empty()) {
        SKIP("no CUDA or OpenCL device is to be had");
    }
    Levels n_levels = of_roads;
    for (const Factor none :
         {of_out_dtype, of_norm, of_scale, of_layout, of_position_scales, of_hadamard, of_groups, of_from_groups}) {
        n_levels[none] = 1;
    }
    n_levels[of_turn] = 4;
    n_levels[of_head_dim] = 5;
    n_levels[of_shape] = 3;  // for emulation is slow
    n_levels[of_heads] = 2;
    check_pairs(n_levels, false, targets);
}
