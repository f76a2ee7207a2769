// halyard rotate: X.npy → Y.npy. Members are in the order of what happens: options, files, the plan's description, run.
#include "tool/commands.h"
#include "tool/files/file.h"
#include "tool/options/angle_options.h"
#include "tool/options/frequency_options.h"
#include "tool/options/rotation_options.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {
namespace {

class Rotate {
public:
    void add_options(CLI::App &command) {
        add_file(command, "X", input_,
                 ".npy in C order, <f4, <f2 or <u2 (bf16 bits), [tokens, heads, head_dim] or 4-D (see --layout)")
            ->required();
        add_file(command, "-o,--output", output_, "Y, of X's shape and type")->required();
        auto excluded =
            frequencies_.add(command, "how many columns of a head are rotated [the config's, else X's head_dim]");
        excluded.push_back(positions_.add(
            command, "<i4 or <i8, [tokens] or [batch, tokens], with an axis map [axes, ...]; or START ... STOP - 1 "
                     "[0, 1, 2, ...]"));
        rotation_.add(command);
        command.add_flag("--in-place", in_place_, "read and write the same memory");
        excluded.push_back(angles_.add_axis_map(command));
        excluded.push_back(angles_.add_kind(command));
        auto *rows = add_file(command, "--cos-sin", cos_sin_,
                              "instead of frequencies and positions: cos and sin rows as 'angles' writes them, <f4, "
                              "[tokens, 2, pairs]");
        add_word(command, "--dtype", given_type_, "X's type, needed for bf16", words_of_dtypes<std::optional<dtype>>());
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
        for (auto *option : excluded) {
            rows->excludes(option);
        }
    }

    void run() {
        x_ = read_npy(input_, {"<f4", "<f2", "<u2"});
        type_ = find_type();
        find_shape();
        const plan plan(describe());
        const auto y = std::make_unique<std::byte[]>(x_.n_bytes);
        if (x_.n_elements != 0) {
            run_plan(plan, y.get());
        }
        write_npy(output_, x_.descr, x_.shape, y.get(), x_.n_bytes);
    }

private:
    /// X's type; if --dtype is given, it must agree.
    dtype find_type() const {
        for (const auto &each : dtypes) {
            if (x_.descr == each.descr && (given_type_ ? *given_type_ == each.value : each.value != dtype::bf16)) {
                return each.value;
            }
        }
        throw Refusal(x_.name + " holds " + x_.descr +
                      (given_type_ ? std::string(", but --dtype says ") + find_dtype(*given_type_).word
                                   : "; if those are the bits of bfloat16, say --dtype bf16"));
    }

    void find_shape() {
        const auto &x = x_.shape;
        has_batch_ = x.size() == 4;
        if (x.size() != 3 && x.size() != 4) {
            refuse_shape(x_, "[tokens, heads, head_dim] or four dimensions are needed");
        }
        if (!has_batch_ && heads_first_) {
            refuse_shape(x_, "--layout bhsd needs four dimensions");
        }
        const auto n_batch = has_batch_ ? x[0] : 1;
        const auto second = x[x.size() - 3], third = x[x.size() - 2], head_dim = x.back();
        shape_ =
            heads_first_ ? std::array{n_batch, third, second, head_dim} : std::array{n_batch, second, third, head_dim};
        if (x_.n_elements != 0) {  // without elements no memory is accessed, so the other sizes may be anything
            strides_ = {second * third * head_dim, heads_first_ ? head_dim : third * head_dim,
                        heads_first_ ? third * head_dim : head_dim, 1};
        }
    }

    /// The plan's description. Also reads the rows of --cos-sin or, without that option, makes the frequencies.
    plan_desc describe() {
        const auto tensor = describe_tensor(type_, shape_[3]);
        positions_.read(shape_[1]);
        if (!cos_sin_.empty()) {
            read_rows();
            return rotation_.describe(tensor, 2 * rows_.shape[2]);
        }
        made_ = frequencies_.make(shape_[3]);
        const auto model = made_.info();
        angles_.settle_axis_map(model, positions_, has_batch_);
        positions_.check_shape(shape_, angles_.n_axes());
        return rotation_.describe(tensor, model.rotary_dim, &model);
    }

    /// Reads rows of cos and sin from a file, one for each token.
    void read_rows() {
        rows_ = read_npy(cos_sin_, {"<f4"});
        const auto n_pairs = rows_.shape.empty() ? 0 : rows_.shape.back();
        if (rows_.shape != std::vector{shape_[1], std::int64_t{2}, n_pairs}) {
            refuse_shape(rows_, "X needs rows [" + std::to_string(shape_[1]) + ", 2, pairs]");
        }
        const auto wanted = frequencies_.rotary_dim;
        if (wanted && *wanted != 2 * n_pairs) {
            throw Refusal(rows_.name + " has rows of " + std::to_string(n_pairs) + " pairs, but --rotary-dim is " +
                          std::to_string(*wanted));
        }
        if (rows_.n_elements != 0) {
            const auto *const cos = rows_.elements<float>().data();
            source_ = angle_source::given(cos, cos + n_pairs, shape_[1], 2 * n_pairs, 2 * n_pairs);
        }
    }

    void run_plan(const plan &plan, void *output) {
        run_options how;
        how.policy = angles_.policy;
        auto positions = positions_.view(angles_.n_axes());
        if (how.policy == bad_position::error) {
            positions_.require_valid(angles_.n_axes(), angles_.max_position, " (see --bad-position)");
        }
        const auto y = tensor(output, type_, shape_, strides_);
        auto x = input_tensor(x_.data.get(), type_, shape_, strides_);
        if (in_place_) {
            std::memcpy(y.data, x.data, x_.n_bytes);
            x = y;
        }
        if (made_) {
            source_ = angles_.make(made_, frequencies_.reference, positions_, positions);
        }
        pool threads;
        if (n_threads_ > 1) {
            threads = pool(static_cast<std::int32_t>(n_threads_));
            how.executor = threads.executor();
        }
        halyard::run(plan, source_, x, y, how.at(positions));
    }

    std::string input_, output_;
    FrequencyOptions frequencies_;
    TokenPositions positions_;
    RotationOptions rotation_;
    AngleOptions angles_;
    std::string cos_sin_;
    std::optional<dtype> given_type_;  // none: the file's
    bool heads_first_ = false, in_place_ = false;
    std::int64_t n_threads_ = 1;

    NpyArray x_;
    dtype type_{};
    bool has_batch_ = false;                 // whether X has a batch dimension
    std::array<std::int64_t, 4> shape_{};    // [batch, tokens, heads, head_dim]
    std::array<std::int64_t, 4> strides_{};  // of X and Y
    frequencies made_;
    NpyArray rows_;  // of cos and sin
    angle_source source_;
};

}  // namespace

void add_rotate(CLI::App &app) {
    auto *command = app.add_subcommand("rotate", "Apply RoPE to an array");
    const auto rotate = std::make_shared<Rotate>();
    rotate->add_options(*command);
    command->callback([rotate] { rotate->run(); });
}

}  // namespace halyard::tool
