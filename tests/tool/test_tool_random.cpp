// Random command lines: `halyard rotate` must write what the library gives for the same rotation.
#include "checks/oracle.h"
#include "halyard/halyard.hpp"
#include "tool/run_tool.h"

#include <catch2/catch_get_random_seed.hpp>

namespace {

/// The CPU targets that this machine can run.
std::vector<std::string> supported_targets() {
    std::vector<std::string> names;
    for (const auto &target : nlohmann::json::parse(ToolFolder().succeed("list --json"))) {
        const std::string name = target.at("name");
        if (!name.starts_with("cuda_") && target.at("built") && target.at("supported")) {
            names.push_back(name);
        }
    }
    return names;
}

/// A random command line, and the same rotation as a run of the library.
class Rotation {
public:
    Rotation(std::uint64_t seed, const std::string &target)
        : random_(seed), tensor_(halyard::describe_tensor(static_cast<halyard::dtype>(random_.in(1, 3)),
                                                          2 * random_.in(4, 40), halyard::pairing::half)) {
        const bool is_interleaved = maybe("pairing interleaved"), converts = maybe("out-pairing interleaved");
        tensor_.pairing = is_interleaved ? HALYARD_PAIRING_INTERLEAVED : HALYARD_PAIRING_HALF;
        tensor_.out_pairing = converts ? HALYARD_PAIRING_INTERLEAVED : 0;
        desc_.rotary_dim = 2 * random_.in(3, tensor_.head_dim / 2);
        add("rotary-dim", std::to_string(desc_.rotary_dim));
        tensor_.rotary_offset = random_.in(0, tensor_.head_dim - desc_.rotary_dim);
        add("rotary-offset", std::to_string(tensor_.rotary_offset));
        desc_.direction = maybe("inverse") ? HALYARD_INVERSE : HALYARD_FORWARD;
        if (!converts || is_interleaved) {
            maybe("in-place");
        }
        static constexpr const char *dtypes[] = {"f32", "f16", "bf16"}, *descrs[] = {"<f4", "<f2", "<u2"};
        add("dtype", dtypes[tensor_.dtype - HALYARD_F32]);
        descr_ = descrs[tensor_.dtype - HALYARD_F32];
        desc_.target = target.c_str();
        add("target", target);
        add("threads", std::to_string(random_.in(1, 3)));
        heads_first_ = maybe("layout bhsd");
        has_batch_ = heads_first_ || n_batch_ > 1 || random_.one_in(2);
    }

    void compare_with_library() {
        const auto source = random_.one_in(3) ? of_rows() : of_positions();
        const std::int64_t B = n_batch_, T = n_tokens_, H = random_.in(1, 4), D = tensor_.head_dim;
        auto x = oracle::random_elements(random_, tensor_.dtype, oracle::Values::ordinary, B * T * H * D);
        auto expected = x;
        auto given = halyard::tensor(x.data(), static_cast<halyard::dtype>(tensor_.dtype), {B, T, H, D});
        if (heads_first_) {
            given.strides[1] = D;
            given.strides[2] = T * D;
        }
        auto made = given;
        made.data = expected.data();
        desc_.tensors = {tensor_};
        halyard::run_options how;
        how.positions = positions_;
        halyard::run(halyard::plan(desc_), source, given, made, how);

        Shape shape = {B, heads_first_ ? H : T, heads_first_ ? T : H, D};
        shape.erase(shape.begin(), shape.begin() + (has_batch_ ? 0 : 1));
        halyard::tool::write_npy(dir_ / "x.npy", descr_, shape, x.data(), x.size());
        dir_.succeed("rotate x.npy -o y.npy" + words_);
        const auto y = halyard::tool::read_npy(dir_ / "y.npy", {descr_});
        CAPTURE(words_, shape);
        REQUIRE(y.shape == shape);
        REQUIRE(std::ranges::equal(y.elements<char>(), expected));
    }

private:
    oracle::Random random_;
    ToolFolder dir_;
    std::string words_, descr_;
    halyard_tensor_desc tensor_;
    halyard::plan_desc desc_{2, {}};
    std::int64_t n_batch_ = random_.in(1, 3), n_tokens_ = random_.in(1, 9);
    bool heads_first_ = false, has_batch_ = false;
    std::vector<std::int32_t> numbers_;
    std::vector<float> rows_;
    std::optional<halyard_positions> positions_;

    void add(const std::string &name, const std::string &value) { words_ += " --" + name + " " + value; }
    bool maybe(const std::string &option) {
        const bool is_said = random_.one_in(2);
        words_ += is_said ? " --" + option : "";
        return is_said;
    }

    halyard::angle_source of_rows() {
        const std::int64_t n_pairs = desc_.rotary_dim / 2;
        for (std::int64_t i = 0; i < n_tokens_ * 2 * n_pairs; i++) {
            rows_.push_back(static_cast<float>(random_.unit()));
        }
        add("cos-sin", write(dir_, "rows.npy", {n_tokens_, 2, n_pairs}, rows_));
        return halyard::angle_source::given_by_token(rows_.data(), n_tokens_, 2 * n_pairs, true);
    }

    halyard::frequencies make_frequencies() {
        if (const double base = 100 + random_.unit(); random_.one_in(2)) {
            add("base", nlohmann::json(base).dump());
            return halyard::frequencies::from_base(base, desc_.rotary_dim);
        }
        std::vector<double> list(static_cast<std::size_t>(desc_.rotary_dim / 2));
        std::ranges::generate(list, [&] { return random_.unit(); });
        add("inv-freq", write(dir_, "f.npy", {std::ssize(list)}, list));
        add("attention-factor", "1.25");
        return halyard::frequencies::from_list(list.data(), std::ssize(list), 1.25);
    }

    halyard::angle_source of_positions() {
        const auto frequencies = make_frequencies();
        const bool is_phase = random_.one_in(2);
        const std::int32_t kind = is_phase ? HALYARD_ANGLES_PHASE : HALYARD_ANGLES_TABLE;
        add("angles", is_phase ? "phase" : "table");
        const std::int64_t n_pairs = desc_.rotary_dim / 2, n_axes = random_.one_in(2) ? 1 : 3;
        const Shape shape = n_axes > 1 ? Shape{n_axes, n_batch_, n_tokens_} : Shape{n_batch_, n_tokens_};
        for (std::int64_t i = 0; i < n_axes * n_batch_ * n_tokens_; i++) {
            numbers_.push_back(static_cast<std::int32_t>(random_.in(-50, 49)));
        }
        add("positions", random_.one_in(2) ? write(dir_, "p.npy", shape, numbers_)
                                           : write(dir_, "p.npy", shape,
                                                   std::vector<std::int64_t>(numbers_.begin(), numbers_.end())));
        positions_ = halyard::positions(numbers_.data(), {n_batch_, n_tokens_});
        halyard::axis_map map;
        if (n_axes > 1) {
            positions_->n_axes = n_axes;
            positions_->stride_axis = n_batch_ * n_tokens_;
            const bool is_interleaved = random_.one_in(2);
            map = is_interleaved ? halyard::axis_map::interleaved({n_pairs - 2, 1, 1})
                                 : halyard::axis_map::sections({n_pairs - 2, 1, 1});
            add("axis-map", (is_interleaved ? "interleaved:" : "sections:") + std::to_string(n_pairs - 2) + ",1,1");
        }
        return halyard::angle_source(frequencies, halyard::describe_angles(kind, map, -50, 100));
    }
};

}  // namespace

TEST_CASE("tool: random rotations are the library's", "[tool]") {
    const auto targets = supported_targets();
    for (std::uint64_t i = 0; i < 100; i++) {
        CAPTURE(Catch::getSeed(), i);
        Rotation(Catch::getSeed() + i, targets[i % targets.size()]).compare_with_library();
    }
}
