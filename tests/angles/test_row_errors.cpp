// Bad arguments of halyard_make_rows, with an angle source and with angles that are linear in positions. Each must give
// its status and an error message that names the argument and its value, and nothing may be written.
#include "checks/make_sources.h"
#include "every_field.h"

#include <cmath>

namespace {

/// A valid call that makes rows of cos and sin for two batch rows of three tokens each. A refused call must leave the
/// output at 42.
struct ValidRows {
    static constexpr std::int64_t n_floats = 2 * 3 * 8;
    halyard::plan made = plan_for(8);
    const halyard_plan *plan = made.get();
    halyard::frequencies frequencies = halyard::frequencies::from_base(100, 8);
    halyard::angle_source angles = halyard::angle_source::table(frequencies, 0, 10);
    std::vector<std::int64_t> numbers = std::vector<std::int64_t>(3 * 6, 5);
    halyard_positions positions = halyard::positions(numbers.data(), {2, 3});
    std::vector<double> reals = std::vector<double>(2 * 6, 1.5), matrix = std::vector<double>(2 * 4, 0.25);
    halyard_linear_angles linear = halyard::linear_angles(reals.data(), {2, 3}, matrix.data(), 2);
    std::vector<float> rows = std::vector<float>(n_floats + 64, 42.0f);
    halyard_rows_args args = rows_args(angles, &positions, 2, 3, rows.data(), n_floats);

    ValidRows() = default;
    ValidRows(const ValidRows &) = delete;

    void use_linear() {
        args.angles = nullptr;
        args.positions = nullptr;
        args.linear = &linear;
    }

    CallChecker calls{[this](halyard_status status, const Words &words) {
                          const auto before = rows;
                          check_refused(status, words, [&](auto *e) { return halyard_make_rows(plan, &args, e); });
                          CHECK(rows == before);
                      },
                      [this] {
                          CHECK(halyard_make_rows(plan, &args, nullptr) == HALYARD_OK);
                          CHECK(std::count(rows.begin() + n_floats, rows.end(), 42.0f) == 64);
                      }};

    void refuse_fields() const {
        every_field::refuse(calls, fields::places(fields::of<halyard_rows_args>(), &args, 0));
    }
    /// The changes that set n_batch and n_tokens, together with those in `more`.
    std::vector<Change> change_counts(std::int64_t n_batch, std::int64_t n_tokens, std::vector<Change> more = {}) {
        more.insert(more.end(), {{args.n_batch, n_batch}, {args.n_tokens, n_tokens}});
        return more;
    }
};

}  // namespace

TEST_CASE("make_rows: arguments are checked before the first write", "[angles][errors]") {
    ValidRows s;
    auto &args = s.args;
    s.calls.accept({});
    s.refuse_fields();
    const auto narrow = plan_for(4);
    const auto by_token = halyard::angle_source::given_by_token(s.rows.data(), 6, 8);
    s.calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"angles has a rotary_dim of 8, but the plan's is 4"}, {{s.plan, narrow.get()}}},
        {HALYARD_ERROR_MISMATCH, {"angles has rows by_token"}, {{args.angles, by_token.get()}}},
        {HALYARD_ERROR_SHAPE, {"n_floats is 47, but the rows need 48"}, {{args.n_floats, 47}}},
        {HALYARD_ERROR_MISMATCH,
         {"positions is NULL, but each of 3 sequences has one token"},
         s.change_counts(3, 1, {{args.positions, nullptr}})},
    });
    // In 64 bits the number of floats that these tokens need wraps around to that of one or two tokens.
    const std::vector<Change> in_order = {{args.positions, nullptr}};
    s.calls.refuse(HALYARD_ERROR_OVERFLOW, {"address space"}, s.change_counts(1, (1LL << 61) + 1, in_order));
    s.calls.refuse(HALYARD_ERROR_OVERFLOW, {"address space"}, s.change_counts((1LL << 60) + 1, 2, in_order));
    s.calls.refuse(HALYARD_ERROR_OVERFLOW, {"address space"}, s.change_counts(INT64_MAX, INT64_MAX, in_order));
    // A call without tokens is accepted.
    const std::vector<Change> nothing = {{args.positions, nullptr}, {args.rows, nullptr}, {args.n_floats, 0}};
    s.calls.accept(s.change_counts(INT64_MAX, 0, nothing));
    s.calls.accept(s.change_counts(0, INT64_MAX, nothing));
}

TEST_CASE("make_rows: positions are checked before the first write", "[angles][errors]") {
    ValidRows s;
    auto &at = s.positions;
    auto *const rows = s.rows.data();
    s.calls.refuse({
        {HALYARD_ERROR_SHAPE, {"positions.shape is {2, 3}", "{1 or 2, 1}"}, {{at.consecutive, 1}}},
        {HALYARD_ERROR_SHAPE,
         {"positions.shape is {2, 3}, but it must be {1 or 2, 4}, batch and tokens, on the one axis"},
         {{s.args.n_tokens, 4}}},
        {HALYARD_ERROR_POSITION,
         {"positions[batch 1, token 1] is 70000, but the angle source covers 0 to 9"},
         {{s.numbers[4], 70000}, {s.numbers[5], -8}}},
        // positions.data points to floats, but nothing is read before the overlap is refused.
        {HALYARD_ERROR_OVERLAP, {"positions.data"}, {{at.data, rows + ValidRows::n_floats - 1}}},
    });
    s.calls.accept({{at.data, rows + ValidRows::n_floats}, {s.args.bad_position, HALYARD_BAD_POSITION_CLAMP}});
    const std::int32_t starts[] = {0, 8};
    const auto consecutive = halyard::consecutive_positions(starts, 2);
    s.calls.refuse(HALYARD_ERROR_POSITION, {"positions[batch 1, token 2] is 10, but the angle source covers 0 to 9"},
                   {{s.args.positions, &consecutive}});
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{5, 0}, {0, 7}, {INT64_MAX, 0}}) {
        s.calls.accept(
            s.change_counts(n_batch, n_tokens, {{at.data, nullptr}, {at.shape[0], n_batch}, {at.shape[1], n_tokens}}));
    }
    // The output must not overlap the source's given rows.
    std::vector<float> cos(48, 42.0f), sin = cos;
    const auto given = halyard::angle_source::given(cos.data(), sin.data(), 12, 4, 8);
    for (float *const over : {cos.data() + 47, sin.data() - 47}) {
        s.calls.refuse(HALYARD_ERROR_OVERLAP, {"the rows of the angle source"},
                       {{s.args.angles, given.get()}, {s.args.rows, over}});
    }
    CHECK(std::count(cos.begin(), cos.end(), 42.0f) + std::count(sin.begin(), sin.end(), 42.0f) == 96);
}

TEST_CASE("make_rows: positions on several axes, and messages that name the axis", "[angles][axes][errors]") {
    ValidRows s;
    auto &at = s.positions;
    s.calls.refuse_each(HALYARD_ERROR_SHAPE, {2, 3}, {{"positions.n_axes", at.n_axes}}, {"but it must be 1"});
    for (const std::int32_t kind : {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_PHASE}) {
        CAPTURE(kind);
        const halyard::angle_source mapped(
            s.frequencies, halyard::describe_angles(kind, halyard::axis_map::sections({1, 2, 1}), 0, 10));
        s.args.angles = mapped.get();
        at.n_axes = 3;
        at.stride_axis = 6;
        s.calls.accept({});
        s.calls.refuse_each(HALYARD_ERROR_SHAPE, {2, 4}, {{"positions.n_axes", at.n_axes}},
                            {"but it must be 3, or 1 where all axes are equal"});
        s.calls.refuse(HALYARD_ERROR_SHAPE, {"but it must be {1 or 2, 3}, batch and tokens, on every axis"},
                       {{at.shape[0], 3}});
        for (const std::int64_t stride : Numbers{INT64_MAX, INT64_MIN, INT64_MAX / 4}) {
            s.calls.refuse(HALYARD_ERROR_OVERFLOW,
                           {"n_axes 3 and stride_axis " + text(stride) + " leave the address space"},
                           {{at.stride_axis, stride}});
        }
        for (std::size_t i = 0; i < s.numbers.size(); i++) {
            s.calls.refuse(HALYARD_ERROR_POSITION,
                           {"positions[axis " + text(i / 6) + ", batch " + text(i / 3 % 2) + ", token " + text(i % 3) +
                            "] is 4294967301"},
                           {{s.numbers[i], (1LL << 32) + 5}});
        }
        // Only the positions of axis 2 overlap the output.
        s.calls.refuse(HALYARD_ERROR_OVERLAP, {"positions.data"},
                       {{s.args.rows, reinterpret_cast<float *>(s.numbers.data() + 13)}});
    }
}

TEST_CASE("linear angles: arguments are checked before the first write", "[angles][errors]") {
    ValidRows s;
    s.use_linear();
    auto &args = s.args;
    auto &linear = s.linear;
    s.calls.accept({});
    s.refuse_fields();
    s.calls.refuse_each(HALYARD_ERROR_SHAPE, {0, 5}, {{"linear.n_axes", linear.n_axes}});
    for (const double factor : {0x1p-61, 0x1.8p60}) {
        s.calls.refuse(HALYARD_ERROR_FREQUENCY, {"linear.attention_factor is"}, {{linear.attention_factor, factor}});
    }
    const auto tokens = s.change_counts(1, 1LL << 60, {{linear.stride_token, 0}});
    s.calls.refuse({
        {HALYARD_ERROR_MISMATCH, {"args.angles is set"}, {{args.angles, s.angles.get()}}},
        {HALYARD_ERROR_MISMATCH, {"args.positions is set"}, {{args.positions, &s.positions}}},
        {HALYARD_ERROR_MISMATCH, {"args.bad_position is set"}, {{args.bad_position, 1}}},
        {HALYARD_ERROR_SHAPE, {"n_floats is 47, but the rows need 48"}, {{args.n_floats, 47}}},
        {HALYARD_ERROR_OVERFLOW, {"linear.matrix"}, {{linear.matrix, before_the_end_of_memory<const double *>(63)}}},
        {HALYARD_ERROR_OVERFLOW, {"leave the address space"}, tokens},
        // linear's pointers point to floats, but nothing is read before the overlap is refused.
        {HALYARD_ERROR_OVERLAP, {"shares memory with linear.positions"}, {{linear.positions, s.rows.data() + 47}}},
        {HALYARD_ERROR_OVERLAP,
         {"shares memory with linear.matrix"},
         {{linear.matrix, reinterpret_cast<const double *>(s.rows.data() + 46)}}},
    });
    for (const auto &[n_batch, n_tokens] : {std::pair<std::int64_t, std::int64_t>{0, 7}, {5, 0}, {INT64_MAX, 0}}) {
        s.calls.accept(s.change_counts(n_batch, n_tokens, {{linear.positions, nullptr}}));
    }
}

TEST_CASE("linear angles: numbers are checked before the first write", "[angles][errors]") {
    ValidRows s;
    s.use_linear();
    auto &at = s.reals;
    const auto refuse = [&](halyard_status status, const Words &words, const std::vector<Change> &changes) {
        s.calls.refuse(status, words, changes);
    };
    for (const double bad : {HUGE_VAL, -HUGE_VAL, std::nan("")}) {
        refuse(HALYARD_ERROR_POSITION, {"linear.positions[axis 1, batch 0, token 2] is", "finite"}, {{at[8], bad}});
        refuse(HALYARD_ERROR_FREQUENCY, {"linear.matrix[axis 1, pair 3] is", "finite"}, {{s.matrix[7], bad}});
    }
    const double far = 0x1p33 + 0x1p6;  // the matrix's factor is a quarter
    refuse(HALYARD_ERROR_POSITION, {"linear.positions[batch 1, token 1] turn pair 0 by 2.14748", "beyond 2^31"},
           {{at[4], far}});
    refuse(HALYARD_ERROR_POSITION, {"turn pair 3 by", "beyond 2^31"}, {{s.matrix[7], -0x1p31}});
    refuse(HALYARD_ERROR_POSITION,
           {"linear.positions[axis 0, batch 0, token 0] times linear.matrix[axis 0, pair 0]", "beyond 2^40"},
           {{at[0], 0x1.8p42}, {at[6], -0x1.8p42}});
    // The largest accepted angle, and larger terms whose sum is small.
    s.calls.accept({{at[0], 0x1p33 - 1.5}});
    s.calls.accept({{at[0], 0x1p42}, {at[6], -0x1p42 + 1}});
    CHECK(std::fabs(s.rows[0] - std::cos(0.25)) < 1.2e-7);
}
