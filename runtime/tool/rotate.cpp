// halyard rotate: X.npy → Y.npy. From top to bottom: options, what contradicts what, files, the description, the run.
#include "tool/commands.h"
#include "tool/device.h"
#include "tool/files/input_file.h"
#include "tool/files/refusal.h"
#include "tool/options/angle_options.h"
#include "tool/options/dtypes.h"
#include "tool/options/frequency_options.h"
#include "tool/options/linear_options.h"
#include "tool/options/norm_options.h"
#include "tool/options/position_scales.h"
#include "tool/options/rotation_options.h"
#include "tool/options/store_options.h"

#include <array>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace halyard::tool {
namespace {

class Rotate {
public:
    void add_options(CLI::App &command) {
        add_file(command, "X", input_,
                 ".npy in C order, <f4, <f2 or <u2 (bf16 bits), [tokens, heads, head_dim] or 4-D (see --layout); for "
                 "records see --from-groups")
            ->required();
        add_file(command, "-o,--output", output_, "Y, of X's shape; of its type too without --out-dtype")->required();
        auto excluded =
            frequencies_.add(command, "how many columns of a head are rotated [the config's, else X's head_dim]", true);
        auto *positions = positions_.add(
            command, "<i4 or <i8, [tokens] or [batch, tokens], with an axis map [axes, ...]; or START ... STOP - 1 "
                     "[0, 1, 2, ...]; see --axis-matrix, too");
        excluded.push_back(from_.add(command,
                                     "X holds keys that were rotated for these positions, as --positions takes "
                                     "them; they move from there to --positions. With --slots X is the cache"));
        rotation_.add(command);
        excluded.push_back(angles_.add_axis_map(command));
        excluded.push_back(angles_.add_kind(command));
        auto *rows = add_file(command, "--cos-sin", cos_sin_,
                              "instead of frequencies and positions: cos and sin rows as 'angles' writes them, <f4, "
                              "[tokens, 2, pairs] or [tokens, heads, 2, pairs]");
        add_word(command, "--dtype", type_, "X's type, needed for bf16, e4m3 and e5m2; see --out-dtype for Y's",
                 words_of_dtypes<std::optional<dtype>>());
        add_word(command, "--layout", heads_first_,
                 "a 4-D X is [batch, tokens, heads, head_dim] or [batch, heads, tokens, head_dim] [bshd]",
                 {{"bshd", false}, {"bhsd", true}});
        add_integer(command, "--threads", n_threads_, "1 ... 1024 [1]", 1, 1024);
        excluded.push_back(add_word(
            command, "--bad-position", angles_.policy,
            "a position that is not valid: refuse, take the nearest, or don't rotate [error]",
            {{"error", bad_position::error}, {"clamp", bad_position::clamp}, {"identity", bad_position::identity}}));
        excluded.push_back(add_integer(command, "--max-position", angles_.max_position,
                                       "the valid positions are 0 ... N - 1 [those of 32 bits]", 1,
                                       std::int64_t{1} << 31));
        auto *matrix = linear_.add(command);
        for (auto *option : excluded) {
            rows->excludes(option);
            matrix->excludes(option);
        }
        rows->excludes(positions)->excludes(matrix);
        matrix->needs(positions);
        norm_.add(command);
        command.add_flag("--no-rotation", no_rotation_,
                         "every stage but the rotation: what says how to rotate, positions too, is not looked at");
        position_scales_.add(command);
        store_.add(command);
    }

    void run() {
        call_.moves = from_.is_given();
        rotation_.check(!frequencies_.config.empty());
        call_.moves ? check_with_moves() : check_without_moves();
        check_files();
        check_device();

        read_x();
        norm_.read(call_);
        position_scales_.read(call_);
        store_.read(call_);
        const auto out_type = store_.type_of(call_);
        if (rotation_.in_place && out_type != call_.type) {
            throw Refusal(std::string("--in-place keeps X's type, but --out-dtype is ") + find_dtype(out_type).word);
        }
        auto desc = describe();
        if (device_of(rotation_.target) != HALYARD_CPU) {
            desc.target = "reference";  // checks the description; the device decides on its kernels
        }
        const plan plan(desc);
        if (call_.x.n_elements != 0) {
            take_positions();
            run_plan(plan, desc);
        }
        store_.write(call_, output_);
    }

private:
    void check_without_moves() const {
        if (store_.has_cache() && store_.cache.empty()) {
            throw CLI::RequiresError("--slots", "--cache");
        }
        const bool has_groups = store_.groups.is_given() || store_.from_groups.is_given();
        if (!store_.cache_scales.empty() && !has_groups) {
            throw CLI::RequiresError("--cache-scales", "--from-positions");
        }
        if (has_groups && rotation_.in_place) {
            throw CLI::ValidationError("--in-place",
                                       "--groups and --from-groups contradict it: heads take other places");
        }
        if (store_.from_groups.is_given() && type_) {
            throw CLI::ValidationError("--dtype", "--from-groups contradicts it: X holds records");
        }
        if (type_ && find_dtype(*type_).n_bytes == 1) {
            throw CLI::ValidationError("--dtype", std::string(find_dtype(*type_).word) +
                                                      " is for keys that move, by --from-positions");
        }
    }

    void check_with_moves() const {
        const bool converts =
            rotation_.pairing != 0 && rotation_.out_pairing != 0 && rotation_.pairing != rotation_.out_pairing;
        const char *const contradicts = converts                                            ? "--out-pairing"
                                        : store_.from_groups.is_given()                     ? "--from-groups"
                                        : no_rotation_                                      ? "--no-rotation"
                                        : norm_.is_given()                                  ? "--norm"
                                        : position_scales_.is_given()                       ? "--position-scales"
                                        : !store_.cache.empty()                             ? "--cache"
                                        : frequencies_.reference != HALYARD_REFERENCE_EXACT ? "--reference"
                                        : angles_.policy != bad_position::error             ? "--bad-position"
                                        : angles_.max_position                              ? "--max-position"
                                                                                            : nullptr;
        if (contradicts != nullptr) {
            throw CLI::ValidationError("--from-positions", std::string(contradicts) +
                                                               " contradicts it: keys stay as they are, and move from "
                                                               "and to every position of 32 bits by exact angles");
        }
        if (store_.groups.is_given() && type_) {
            throw CLI::ValidationError("--dtype", "--groups contradicts it: X holds records");
        }
        if (!store_.scale_dynamic.empty() && store_.cache_scales.empty() && !store_.groups.is_given()) {
            throw CLI::RequiresError("--scale-dynamic", "--cache-scales");
        }
        if (store_.cache_scales == standard_stream && store_.scale_dynamic.empty()) {
            throw CLI::RequiresError("--cache-scales -", "--scale-dynamic");
        }
    }

    void check_files() const {
        if (rotation_.in_place && !store_.cache.empty()) {
            throw CLI::ValidationError("--in-place",
                                       "--cache contradicts it: what is stored in a cache is not where X is");
        }
        if (store_.scale_dynamic == standard_stream) {
            throw CLI::ValidationError("--scale-dynamic", "it has to be a file's name, not '-'");
        }
        const auto leads_to = [](const std::string &path) {
            std::error_code ignored;
            return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
        };
        const auto &scales = store_.scales_path();
        if (!scales.empty() && leads_to(scales) == leads_to(output_)) {
            throw CLI::ValidationError(store_.scale_dynamic.empty() ? "--cache-scales" : "--scale-dynamic",
                                       "'" + scales + "' is where Y is written");
        }
        check_standard_input({{"X", input_},
                              {"--positions", positions_.path()},
                              {"--inv-freq", frequencies_.inv_freq},
                              {"--config", frequencies_.config},
                              {"--cos-sin", cos_sin_},
                              {"--axis-matrix", linear_.path()},
                              {"--norm-weight", norm_.path()},
                              {"--norm-bias", norm_.bias_path()},
                              {"--position-scales", position_scales_.path()},
                              {"--scale", store_.scales},
                              {"--slots", store_.slots},
                              {"--cache", store_.cache},
                              {"--from-positions", from_.path()},
                              {"--cache-scales", store_.cache_scales}});
    }

    void check_device() const {
        const char *const given = n_threads_ > 1                           ? "--threads"
                                  : no_rotation_                           ? "--no-rotation"
                                  : norm_.is_given()                       ? "--norm"
                                  : position_scales_.is_given()            ? "--position-scales"
                                  : store_.scale || !store_.scales.empty() ? "--scale"
                                  : !store_.scale_dynamic.empty()          ? "--scale-dynamic"
                                  : store_.hadamard != 0                   ? "--hadamard"
                                  : store_.groups.is_given()               ? "--groups"
                                  : store_.from_groups.is_given()          ? "--from-groups"
                                  : !store_.cache.empty()                  ? "--cache"
                                  : call_.moves                            ? "--from-positions"
                                  : linear_.is_given()                     ? "--axis-matrix"
                                                                           : nullptr;
        if (device_of(rotation_.target) != HALYARD_CPU && given != nullptr) {
            throw Refusal(std::string(given) + " is for the CPU, but --target is " + rotation_.target +
                          (n_threads_ > 1 ? "" : ", which only rotates"));
        }
    }

    /// What keeps X's type may say so, but name no other.
    void check_out_type() const {
        const bool is_on_device = device_of(rotation_.target) != HALYARD_CPU;
        if (store_.out_type && *store_.out_type != call_.type && (call_.moves || is_on_device)) {
            throw Refusal(std::string("--out-dtype is ") + find_dtype(*store_.out_type).word + ", but X holds " +
                          find_dtype(call_.type).word + ", and " +
                          (call_.moves ? "keys keep their type where they move"
                                       : "--target " + rotation_.target + " only rotates"));
        }
    }

    void read_x() {
        const bool has_records = store_.groups_of_x(call_.moves) != nullptr;
        call_.x = has_records   ? read_npy(input_, {"|u1"})
                  : call_.moves ? read_npy(input_, {"<f4", "<f2", "<u2", "|u1", "|i1"})
                                : read_npy(input_, {"<f4", "<f2", "<u2"});
        call_.type = has_records ? dtype::uint8 : find_type();
        check_out_type();
        if (!is_cache()) {
            find_shape();
        }
        store_.read_slots(call_);
        store_.find_widths(call_);
        call_.tensor = describe_tensor(call_.type, call_.shape[3]);
    }

    /// Whether X is a cache, of which just some keys move.
    bool is_cache() const { return call_.moves && store_.has_cache(); }

    /// X's type; --dtype must agree where it is given.
    dtype find_type() const {
        const auto &x = call_.x;
        std::string held;
        for (const auto &each : dtypes) {
            if (x.descr == each.descr && each.value != dtype::uint8) {
                const bool holds_bits = x.descr[1] == 'u';  // of a type that NumPy does not have
                if (type_ ? *type_ == each.value : !holds_bits) {
                    return each.value;
                }
                held += (held.empty() ? "" : " or ") + std::string(each.word);
            }
        }
        if (type_) {
            throw Refusal(x.name + " holds " + x.descr + " (" + held + "), but --dtype says " +
                          find_dtype(*type_).word);
        }
        throw Refusal(x.name + " holds " + x.descr +
                      (x.descr == "<u2" ? "; if those are the bits of bfloat16, say --dtype bf16"
                                        : "; say --dtype e4m3 or e5m2, whose bits those are"));
    }

    void find_shape() {
        const auto &x = call_.x.shape;
        call_.has_batch = x.size() == 4;
        if (x.size() != 3 && x.size() != 4) {
            refuse_shape(call_.x, "[tokens, heads, head_dim] or four dimensions are needed");
        }
        if (!call_.has_batch && heads_first_) {
            refuse_shape(call_.x, "--layout bhsd needs four dimensions");
        }
        const auto n_batch = call_.has_batch ? x[0] : 1;
        const auto second = x[x.size() - 3], third = x[x.size() - 2], head_dim = x.back();
        call_.shape =
            heads_first_ ? std::array{n_batch, third, second, head_dim} : std::array{n_batch, second, third, head_dim};
        if (call_.x.n_elements != 0) {  // else nothing will be addressed, and the other sizes may be anything
            call_.strides = {second * third * head_dim, heads_first_ ? head_dim : third * head_dim,
                             heads_first_ ? third * head_dim : head_dim, 1};
        }
    }

    /// The plan, with cos and sin of the caller's, or of just the positions that occur.
    plan_desc describe() {
        if (no_rotation_) {
            return rotation_.describe_unrotated(call_.tensor);
        }
        if (!cos_sin_.empty()) {
            read_rows();
            return rotation_.describe(call_.tensor, 2 * rows_.shape.back());
        }
        if (linear_.is_given()) {
            read_linear();
            return rotation_.describe(call_.tensor, linear_.rotary_dim());
        }
        made_ = frequencies_.make(call_.shape[3]);
        const auto model = made_.info();
        positions_.read(call_.shape[1]);
        angles_.settle_axis_map(model, positions_, call_.has_batch);
        positions_.check_shape(call_.shape, angles_.n_axes());
        if (call_.moves) {
            from_.read(call_.shape[1]);
            from_.check_shape(call_.shape, angles_.n_axes());
        }
        auto desc = rotation_.describe(call_.tensor, model.rotary_dim, &model);
        desc.rerotates = call_.moves;
        auto &tensor = desc.tensors.front();
        if (call_.moves && tensor.out_pairing != 0) {
            tensor.pairing = tensor.out_pairing;  // keys are what such a rotation wrote
        }
        return desc;
    }

    void check_heads(const std::string &name, std::int64_t n_heads) const {
        if (n_heads != call_.shape[2]) {
            throw Refusal(name + " is for " + std::to_string(n_heads) + " heads, but X has " +
                          std::to_string(call_.shape[2]));
        }
    }

    /// Rows of cos and sin from a file, one for each token.
    void read_rows() {
        rows_ = read_npy(cos_sin_, {"<f4"});
        const auto &shape = rows_.shape;
        const bool by_head = shape.size() == 4;
        if ((shape.size() != 3 && !by_head) || shape[shape.size() - 2] != 2) {
            refuse_shape(rows_, "[tokens, 2, pairs] or [tokens, heads, 2, pairs] is needed");
        }
        if (by_head && device_of(rotation_.target) != HALYARD_CPU) {
            throw Refusal(rows_.name + " has rows for each head, but on a GPU heads share theirs");
        }
        if (shape[0] != call_.shape[1]) {
            throw Refusal(rows_.name + " has rows for " + std::to_string(shape[0]) + " tokens, but X has " +
                          std::to_string(call_.shape[1]));
        }
        if (by_head) {
            check_heads(rows_.name, shape[1]);
        }
        const auto wanted = frequencies_.rotary_dim;
        const auto n_pairs = shape.back();
        if (wanted && (*wanted % 2 != 0 || *wanted / 2 != n_pairs)) {
            throw Refusal(rows_.name + " has rows of " + std::to_string(n_pairs) + " pairs, but --rotary-dim is " +
                          std::to_string(*wanted));
        }
        if (n_pairs == 0) {
            throw Refusal(rows_.name + " has rows of no pairs");
        }
        if (rows_.n_elements != 0) {
            const auto *const cos = rows_.elements<float>().data();
            auto rows = angle_source::describe_rows(cos, cos + n_pairs, dtype::f32, shape[0],
                                                    rows_.n_elements / shape[0], 2 * n_pairs);
            rows.n_heads = by_head ? shape[1] : 0;
            rows.stride_head = by_head ? 2 * n_pairs : 0;
            source_ = angle_source::given(rows);
        }
    }

    /// Rows of fractional positions, one for each token and, by some matrices, head.
    void read_linear() {
        linear_.read(positions_, frequencies_.rotary_dim);
        if (linear_.n_tokens() != call_.shape[1]) {
            throw Refusal(positions_.name() + " has positions for " + std::to_string(linear_.n_tokens()) +
                          " tokens, but X has " + std::to_string(call_.shape[1]));
        }
        if (linear_.n_heads() != 0) {
            check_heads(linear_.name(), linear_.n_heads());
        }
        if (call_.x.n_elements != 0) {
            linear_rows_ = linear_.make_rows();
            source_ = angle_source::given_by_token(linear_rows_.data(), linear_.n_tokens(), linear_.rotary_dim(), true,
                                                   linear_.n_heads());
        }
    }

    void take_positions() {
        auto &how = call_.how;
        if (!made_) {
            if (!no_rotation_ && !linear_.is_given()) {
                how.positions = from_first_row_;
            }
            return;
        }
        const auto n_axes = angles_.n_axes();
        how.policy = angles_.policy;
        how.positions = positions_.view(n_axes);
        if (how.policy == bad_position::error) {
            positions_.require_valid(n_axes, angles_.max_position, call_.moves ? "" : " (see --bad-position)");
        }
        if (call_.moves) {
            how.from_positions = from_.view(n_axes);
            from_.require_valid(n_axes, std::nullopt, "");
            angles_.kind = HALYARD_ANGLES_PHASE;  // keys move by no table
        }
    }

    void run_plan(const plan &plan, plan_desc desc) {
        auto x = call_.describe(is_cache() ? nullptr : call_.x.data.get(), call_.type, call_.x_width);
        const auto y = call_.describe(store_.memory(call_), store_.type_of(call_), call_.y_width);
        if (rotation_.in_place && !is_cache()) {
            std::memcpy(y.data, x.data, call_.x.n_bytes);
            x = y;
        }
        const auto device = device_of(rotation_.target);
        if (device == HALYARD_CPU) {
            if (made_) {
                source_ = angles_.make(made_, frequencies_.reference, positions_);
            }
            pool threads;
            if (n_threads_ > 1) {
                threads = pool(static_cast<std::int32_t>(n_threads_));
                call_.how.executor = threads.executor();
            }
            call_.how.stages = call_.stages;
            halyard::run(plan, source_, x, y, call_.how);
        } else if constexpr (has_gpu) {
            desc.target = nullptr;
            if (made_) {
                source_ = make_device_source(made_, frequencies_.reference, angles_, positions_);
            }
            rotate_on_device({device, desc, source_, rows_, call_.how, x, y, call_.x.n_bytes});
        }
    }

    std::string input_, output_;
    FrequencyOptions frequencies_;
    TokenPositions positions_, from_{"--from-positions"};  // the latter given: keys move
    RotationOptions rotation_;
    AngleOptions angles_;
    std::string cos_sin_;
    std::optional<dtype> type_;  // none: as the file says
    bool heads_first_ = false;
    std::int64_t n_threads_ = 1;
    NormOptions norm_;
    PositionScales position_scales_;
    bool no_rotation_ = false;
    StoreOptions store_;

    Call call_;
    frequencies made_;
    NpyArray rows_;  // of cos and sin
    LinearOptions linear_;
    std::vector<float> linear_rows_;
    angle_source source_;
    const std::int32_t first_row_ = 0;  // all batch rows read the caller's cos and sin from there on
    const halyard_positions from_first_row_ = consecutive_positions(&first_row_, 1);
};

}  // namespace

void add_rotate(CLI::App &app) {
    auto *command = app.add_subcommand("rotate", "Apply RoPE to an array");
    const auto rotate = std::make_shared<Rotate>();
    rotate->add_options(*command);
    command->callback([rotate] { rotate->run(); });
}

}  // namespace halyard::tool
