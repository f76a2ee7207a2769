// Random rotations by command lines: all that the options of rotate say, in every pair. What the tool leaves in its
// file is put where a run of the library leaves it, and checked there against the oracle.
#include "checks/scene/scene.h"
#include "tool/run_tool.h"

#include <catch2/catch_get_random_seed.hpp>

#include <cstring>

namespace {

using namespace scenes;

Choice choice_of(Levels levels) {
    Choice choice;
    levels[of_source] = levels[of_source] == 2 ? Angles::by_token : levels[of_source];
    choice.level = levels;
    choice.n_tensors = 1;
    return choice;
}

class ToolScene {
public:
    ToolScene(const Levels &levels, std::uint64_t seed, const std::string &target)
        : random_(seed), draw_(random_), scene_(draw_, choice_of(levels)), target_(target),
          other_form_(seed / 7 % 2 != 0), has_batch_(call_.n_batch() > 1 || other_form_),
          heads_first_(has_batch_ && seed / 11 % 3 == 0) {}

    /// Files have no rows for each token of each batch row.
    bool can_be_said() const {
        return scene_.angles.kind != Angles::by_token || scene_.angles.desc.by_token != 1 || call_.n_batch() == 1;
    }

    /// Runs the tool. What is wrong with what it has left, in words, or nothing.
    std::string fault() {
        add("target", target_);
        add("threads", std::to_string(1 + call_.n_tokens() % 3));
        add_rotation();
        add_flag(heads_first_, "layout bhsd");
        add_flag(call_.x[0].data == call_.y[0].data, "in-place");
        static constexpr const char *words[] = {"", "f32", "f16", "bf16"}, *descrs[] = {"", "<f4", "<f2", "<u2"};
        add("dtype", words[tensor_.dtype]);
        const std::string descr = descrs[tensor_.dtype], line = "rotate x.npy -o y.npy " + words_;
        const std::int64_t n_elements = call_.n_batch() * call_.n_tokens() * n_heads() * tensor_.head_dim;
        std::string x(static_cast<std::size_t>(n_elements) * bytes(), '\0');
        for_each_element([&](const Head &at, std::int64_t d) {
            std::memcpy(&x[index_of(at, d)], place_of_input(call_, 0, at, d), bytes());
        });
        halyard::tool::write_npy(dir_ / "x.npy", descr, shape(), x.data(), x.size());
        INFO(line);
        dir_.succeed(line);
        const auto y = halyard::tool::read_npy(dir_ / "y.npy", {descr});
        REQUIRE(y.shape == shape());
        Images after = scene_.before;
        for_each_element([&](const Head &at, std::int64_t d) {
            std::memcpy(scene_.memory.in(after, place_of_output(call_, 0, at, d)), y.data.get() + index_of(at, d), bytes());
        });
        return scene_.fault(after);
    }

private:
    ToolFolder dir_;
    oracle::Random random_;
    Draw draw_;
    Scene scene_;
    Call &call_ = scene_.call;
    const halyard_tensor_desc &tensor_ = call_.tensors[0];
    const std::string target_;
    const bool other_form_;  // then defaults are said, too, and what can be said in two ways is said in the other
    const bool has_batch_, heads_first_;
    std::string words_;

    // ---- X and Y as files have them, dense ----

    std::int64_t n_heads() const { return call_.x[0].shape[2]; }
    std::size_t bytes() const { return static_cast<std::size_t>(bytes_of(tensor_.dtype)); }

    void for_each_element(const auto &act) const {
        for_each_head(call_, 0, [&](const Head &at) {
            for (std::int64_t d = 0; d < tensor_.head_dim; d++) {
                act(at, d);
            }
        });
    }

    Shape shape() const {
        const std::int64_t H = n_heads(), T = call_.n_tokens();
        Shape shape = {call_.n_batch(), heads_first_ ? H : T, heads_first_ ? T : H, tensor_.head_dim};
        shape.erase(shape.begin(), shape.begin() + (has_batch_ ? 0 : 1));
        return shape;
    }

    /// Where an element lies, in bytes.
    std::size_t index_of(const Head &at, std::int64_t d) const {
        const std::int64_t H = n_heads(), T = call_.n_tokens();
        const std::int64_t head =
            heads_first_ ? (at.batch * H + at.head) * T + at.token : (at.batch * T + at.token) * H + at.head;
        return static_cast<std::size_t>(head * tensor_.head_dim + d) * bytes();
    }

    // ---- Options ----

    void add(const std::string &name, const std::string &value) { words_ += " --" + name + " " + value; }
    void add_flag(bool is_set, const char *name) { words_ += is_set ? std::string(" --") + name : ""; }

    void add_positions() {
        const halyard_positions *const view = call_.args.positions;
        if (view == nullptr) {
            return;
        }
        const std::int64_t n_axes = scene_.angles.n_axes(), B = call_.n_batch(), T = call_.n_tokens();
        std::vector<std::int64_t> all;
        for (std::int64_t i = 0; i < n_axes * B * T; i++) {
            all.push_back(position_of(view, i / (B * T), i % (B * T) / T, i % T));
        }
        const Shape shape = n_axes > 1 ? Shape{n_axes, B, T} : Shape{B, T};
        add("positions", view->type == HALYARD_INT64
                             ? write(dir_, "p.npy", shape, all)
                             : write(dir_, "p.npy", shape, std::vector<std::int32_t>(all.begin(), all.end())));
    }

    void add_rotation() {
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
            add("base", nlohmann::json(model.base).dump());
        } else {
            const std::vector<double> list(model.inv_freq, model.inv_freq + model.rotary_dim / 2);
            add("inv-freq", write(dir_, "f.npy", {std::ssize(list)}, list));
            add("attention-factor", nlohmann::json(model.attention_factor).dump());
        }
        if (other_form_ || scene_.angles.kind == Angles::phase) {
            add("angles", scene_.angles.kind == Angles::phase ? "phase" : "table");
        }
        if (desc.n_axes > 1) {
            const auto n = [&](int axis) { return std::to_string(desc.axis_counts[axis]); };
            const std::string word = desc.axis_map == HALYARD_AXIS_MAP_SECTIONS ? "sections:" : "interleaved:";
            add("axis-map", word + n(0) + "," + n(1) + "," + n(2));
        }
        add_positions();
    }

    void add_rows() {
        const std::int64_t n_pairs = call_.plan.rotary_dim / 2;
        std::vector<float> rows;
        for (std::int64_t i = 0; i < call_.n_tokens() * 2 * n_pairs; i++) {
            const auto turn = scene_.angles.at(call_, 0, i / n_pairs / 2, i % n_pairs);
            const long double sin = call_.plan.direction == HALYARD_INVERSE ? -turn.sin : turn.sin;
            rows.push_back(static_cast<float>(i / n_pairs % 2 == 0 ? turn.cos : sin));
        }
        add("cos-sin", write(dir_, "rows.npy", {call_.n_tokens(), 2, n_pairs}, rows));
    }
};

}  // namespace

TEST_CASE("tool: rotations, every pair of what they are put together from", "[tool]") {
    Levels n_levels;
    n_levels.fill(1);
    n_levels[of_dtype] = n_levels[of_axes] = n_levels[of_heads] = 3;
    n_levels[of_turn] = 4;
    n_levels[of_window] = n_levels[of_direction] = 2;
    n_levels[of_head_dim] = n_levels[of_shape] = 5;
    n_levels[of_source] = 3;  // table, phase, given by token
    std::vector<std::string> targets;
    for (const auto &target : nlohmann::json::parse(ToolFolder().succeed("list --json"))) {
        const std::string name = target.at("name");
        if (!name.starts_with("cuda_") && target.at("built") && target.at("supported")) {
            targets.push_back(name);
        }
    }
    oracle::Random random(Catch::getSeed());
    std::uint64_t seed = Catch::getSeed();
    int n_said = 0;
    const auto choices = cover_pairs(random, n_levels);
    for (const Levels &levels : choices) {
        CAPTURE(levels, ++seed);
        ToolScene scene(levels, seed, targets[seed % targets.size()]);
        if (scene.can_be_said()) {
            REQUIRE(scene.fault() == "");
            n_said++;
        }
    }
    CHECK(n_said * 2 > std::ssize(choices));
}
