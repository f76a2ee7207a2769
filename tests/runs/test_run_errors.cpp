// Bad arguments of runs, one at a time. Each must give its status and an error message that names the argument and its
// value, and nothing may be written.
#include "checks/guarded_memory.h"
#include "rotation_run.h"

#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_predicate.hpp>

TEST_CASE("errors: runs, every field", "[errors]") {
    RotationRun s;
    const CallChecker &runs = s.runs;
    s.args.positions = &s.positions;
    s.refuse_fields({"x[1].strides[2]", "y[1].strides[2]"});  // a single head may have any stride
    s.args.executor = &s.executor;
    s.refuse_fields({"x*", "y*", "tensors*"});
    runs.refuse_each(HALYARD_ERROR_SHAPE, {1, 3, INT32_MAX}, {s.args.n_tensors});
    runs.accept({{s.args.n_tensors, 2}});
    runs.refuse_each(HALYARD_ERROR_THREADS, {0, 1025, INT32_MAX}, {s.executor.n_threads});
    runs.refuse_each(HALYARD_ERROR_UNSUPPORTED, {HALYARD_CUDA}, {s.x[0].device, s.y[1].device});
    runs.refuse({
        {HALYARD_ERROR_MISMATCH,
         {},
         {{s.args.kv, &s.kv_args}, {s.kv_args.slots, nullptr}, {s.stages[0].cache, s.at(0)}}},
        {HALYARD_ERROR_MISMATCH, {}, {{s.args.n_parts, 2}}},
        {HALYARD_ERROR_SHAPE, {}, {{s.args.executor, nullptr}, {s.args.n_parts, 1025}}},
        {HALYARD_ERROR_SHAPE, {}, {{s.args.executor, nullptr}, {s.args.n_parts, 2}, {s.args.part, 2}}},
        {HALYARD_ERROR_SHAPE, {}, {{s.args.executor, nullptr}, {s.args.part, 1}}},
    });

    // If a tensor's size field is not set, its other fields are not read: here they lie beyond the end of memory.
    const GuardedMemory memory(1);
    auto *const cut = reinterpret_cast<halyard_tensor *>(memory.end() - alignof(halyard_tensor));
    cut->size = 0;
    runs.refuse(HALYARD_ERROR_STRUCT_SIZE, {"x[0].size is 0"}, {{s.args.x, cut}});
    runs.refuse(HALYARD_ERROR_STRUCT_SIZE, {"y[0].size is 0"}, {{s.args.y, cut}});
    halyard_tensor *const second = cut - 1;
    *second = s.x[0];
    runs.refuse(HALYARD_ERROR_STRUCT_SIZE, {"x[1].size is 0"}, {{s.args.x, second}});
}

TEST_CASE("errors: runs, shapes that do not agree", "[errors]") {
    RotationRun s;
    const CallChecker &runs = s.runs;
    const auto narrow = halyard::angle_source::table(halyard::frequencies::from_base(100.0, 6), 0, 10);
    auto &x = s.x, &y = s.y;
    runs.refuse({
        {HALYARD_ERROR_MISMATCH, {"angles", "6", "4"}, {{s.args.angles, narrow.get()}}},
        {HALYARD_ERROR_MISMATCH, {"x[1].dtype is f16, but the plan's is f32"}, {{x[1].dtype, HALYARD_F16}}},
        {HALYARD_ERROR_MISMATCH, {"y[0].dtype is bf16, but the plan's is f32"}, {{y[0].dtype, HALYARD_BF16}}},
        {HALYARD_ERROR_MISMATCH, {"x[1].dtype is f32, but the plan's is f16"}, {{s.tensors[1].dtype, HALYARD_F16}}},
        {HALYARD_ERROR_SHAPE, {}, {{y[0].shape[1], 4}}},
        {HALYARD_ERROR_SHAPE, {}, {{y[1].shape[1], 2}, {x[1].shape[1], 2}}},
        {HALYARD_ERROR_SHAPE, {}, {{y[1].shape[0], 1}, {x[1].shape[0], 1}}},
        {HALYARD_ERROR_SHAPE, {}, {{y[1].shape[2], 2}}},
        {HALYARD_ERROR_SHAPE, {}, {{y[0].shape[1], 0}}},
        {HALYARD_ERROR_SHAPE, {"y[0].shape[2] is 2"}, {{x[0].shape[2], 0}}},
        // All tensors have the same bad shape, with heads and without.
        {HALYARD_ERROR_SHAPE, {"x[0].shape[0] is -1"}, s.all_shapes(0, -1)},
        {HALYARD_ERROR_SHAPE, {"x[0].shape[1] is -1"}, s.all_shapes(1, -1)},
        {HALYARD_ERROR_SHAPE,
         {"x[1].shape[1] is 3", "7"},
         {{x[0].shape[2], 0}, {y[0].shape[2], 0}, {x[0].shape[1], 7}, {y[0].shape[1], 7}}},
    });
    const std::int64_t head_dim = RotationRun::D;
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {0, head_dim - 1, head_dim + 1, INT64_MAX},
                     {x[1].shape[3], y[0].shape[3]});
    s.args.positions = &s.positions;
    for (const auto &[consecutive, rows, columns] : std::initializer_list<std::array<std::int64_t, 3>>{
             {0, 2, 2}, {0, 3, 3}, {0, 0, 3}, {0, 2, 0}, {1, 2, 3}, {1, 3, 1}, {1, 2, 0}}) {
        runs.refuse(
            HALYARD_ERROR_SHAPE, {"positions.shape", text(rows), text(columns)},
            {{s.positions.consecutive, consecutive}, {s.positions.shape[0], rows}, {s.positions.shape[1], columns}});
    }
}

TEST_CASE("errors: runs, sizes and strides that leave the address space", "[errors]") {
    RotationRun s;
    const auto refuse = [&](const std::string &name, const std::string &number, const std::vector<Change> &changes) {
        s.runs.refuse(HALYARD_ERROR_OVERFLOW, {name, "address space", number}, changes);
    };
    for (const std::int64_t size : Numbers{INT64_MAX, INT64_MAX / 2, 1LL << 59}) {
        refuse("x[1]", text(size), {{s.x[1].shape[2], size}, {s.y[1].shape[2], size}});
        auto tokens = s.all_shapes(1, size);
        tokens.insert(tokens.end(), {{s.x[0].strides[1], 0}, {s.x[1].strides[1], 0}});  // only y is at fault
        refuse("y[0]", text(size), tokens);
    }
    // Negative strides lead below address 0. In the second row two dimensions span 2^63 bytes each, so the sum of their
    // spans wraps to 0 in 64 bits. In the last two rows data is too near the end or the beginning of the address space.
    refuse("x[0]", "", {{s.x[0].strides, Strides{-(1LL << 56), -(1LL << 56), 8, 1}}});
    refuse("x[0]", "", {{s.x[0].strides, Strides{-(1LL << 61), -(1LL << 60), 8, 1}}});
    refuse("x[0]", "", {{s.x[0].data, before_the_end_of_memory(63)}});
    refuse("y[1]", "", {{s.y[1].data, reinterpret_cast<void *>(std::uintptr_t{8})}, {s.y[1].strides[3], -1}});
}

TEST_CASE("errors: runs, outputs whose elements could meet", "[errors]") {
    RotationRun s;
    // test_overlap.cpp checks overlapping strides by brute force; here only the message.
    const Strides nested = {48, 16, 7, 1};
    const Words words = {"y[0]", "48", "16", "7"};
    s.runs.refuse(HALYARD_ERROR_STRIDE, words, {{s.y[0].strides, nested}});
    s.runs.refuse(HALYARD_ERROR_STRIDE, words,
                  {{s.x[0].data, s.y[0].data}, {s.x[0].strides, nested}, {s.y[0].strides, nested}});
}

TEST_CASE("errors: runs, outputs over other arguments", "[errors]") {
    RotationRun s;
    auto &x = s.x, &y = s.y;
    const auto refuse = [&](const std::string &output, const std::string &other, const std::vector<Change> &changes) {
        s.runs.refuse(HALYARD_ERROR_OVERLAP, {output, other}, changes);
    };
    refuse("y[0]", "x[0]", {{y[0].data, static_cast<char *>(x[0].data) + 1}});
    refuse("y[0]", "x[1]", {{y[0].data, x[1].data}});
    refuse("y[1]", "x[0]", {{y[1].data, x[0].data}});
    refuse("y[1]", "y[0]", {{y[1].data, static_cast<float *>(y[0].data) + 95}});
    refuse("y[1]", "y[0]", {{x[1], x[0]}, {y[1], x[0]}, {y[0], x[0]}});  // two tensors in place in the same memory
    // The refused run leaves its tensors' spans on the stack. The next run has an empty tensor and must not read them.
    s.runs.accept({{y[1].data, y[0].data}, {x[1].data, y[0].data}, {x[1].shape[2], 0}, {y[1].shape[2], 0}});
    const auto given = halyard::angle_source::given(s.at(3072), s.at(3080), 4, 2, RotationRun::rotary_dim);
    const auto n_of_y1 = RotationRun::n_batch * RotationRun::n_tokens * RotationRun::D;
    s.args.positions = &s.positions;
    refuse("y[1]", "positions", {{y[1].data, s.at(2048 + 5)}});
    refuse("y[1]", "rows of the angle source",  // first the rows of cos, then of sin
           {{s.args.angles, given.get()}, {y[1].data, s.at(3072 - n_of_y1 + 1)}});
    refuse("y[0]", "rows of the angle source", {{s.args.angles, given.get()}, {y[0].data, s.at(3087)}});

    s.args.positions = nullptr;
    y[0].data = x[0].data;                                            // in place, but …
    refuse("y[0]", "x[0]", {{y[0].strides, Strides{48, 8, 24, 1}}});  // heads and tokens are transposed
    refuse("y[0]", "x[0]",                                            // the heads are swapped
           {{y[0].data, static_cast<float *>(x[0].data) + RotationRun::D}, {y[0].strides[2], -RotationRun::D}});
    refuse("y[0]", "x[0]", {{s.tensors[0].out_pairing, HALYARD_PAIRING_INTERLEAVED}});  // changes the pairing
    refuse("y[0]", "x[0]", {{x[0].strides[1], 0}});                                     // all tokens share x
    for (const Strides &further : {Strides{121, 40, 20, 1}, {120, 44, 20, 1}, {120, 40, 24, 1}, {120, 40, 20, 2}}) {
        refuse("y[0]", "x[0]", {{x[0].strides, Strides{120, 40, 20, 1}}, {y[0].strides, further}});
    }
}

TEST_CASE("runs: layouts that share a buffer without sharing elements", "[errors]") {
    RotationRun s;
    // A fused buffer [batch, tokens, 2 q + k + v heads, head_dim]: q is rotated in place, k into the place of v.
    const Strides packed = {RotationRun::n_tokens * 32, 32, RotationRun::D, 1};
    s.runs.accept({{s.x[0].strides, packed},
                   {s.y[0], s.x[0]},
                   {s.y[0].strides, packed},
                   {s.x[1].data, s.at(16)},
                   {s.x[1].strides, packed},
                   {s.y[1].data, s.at(24)},
                   {s.y[1].strides, packed}});
    // x are the buffer's even elements, y its odd elements.
    const Strides even = {96, 32, 16, 2};
    s.runs.accept({{s.x[0].strides, even}, {s.y[0].strides, even}, {s.y[0].data, s.at(1)}});
}

TEST_CASE("runs: nothing to do is fine, however large, and does not stop others", "[errors]") {
    constexpr std::int64_t most = INT64_MAX;
    const halyard::pool pool(2);
    RotationRun s;
    const auto before = s.arena;
    std::vector<Change> nowhere;
    for (halyard_tensor *const tensor : {&s.x[0], &s.x[1], &s.y[0], &s.y[1]}) {
        nowhere.insert(nowhere.end(),
                       {{tensor->data, nullptr}, {tensor->strides, Strides{INT64_MAX, INT64_MIN, 0, 0}}});
    }
    for (const auto &[batch, tokens, heads] : std::initializer_list<std::array<std::int64_t, 3>>{
             {0, most, most}, {most, 0, most}, {most, most, 0}, {1, 1LL << 40, 0}}) {
        CAPTURE(batch, tokens, heads);
        auto all = nowhere;
        for (const auto &[d, size] : {std::pair(0, batch), {1, tokens}, {2, heads}}) {
            std::ranges::move(s.all_shapes(d, size), std::back_inserter(all));
        }
        CallChecker::with(all, [&] {
            s.runs.accept_each({{}, {{s.args.executor, pool.executor()}}});
            if (batch == 0 || tokens == 0) {  // without tokens, positions may have any address and strides
                s.positions.data = nullptr;
                s.positions.strides[0] = most;
                s.runs.accept({{s.args.positions, &s.positions},
                               {s.positions.shape[0], batch},
                               {s.positions.shape[1], tokens},
                               {s.positions.strides[1], INT64_MIN}});
            }
        });
    }
    CHECK(s.arena_equals(before));
    CallChecker::with({{s.x[0].shape[2], 0}, {s.y[0].shape[2], 0}, {s.x[0].data, nullptr}, {s.y[0].data, nullptr}},
                      [&] { s.run(); });
    RotationRun whole;
    whole.run();
    CHECK(std::equal(s.at(1280), s.at(1536), whole.at(1280)));
    CHECK(std::equal(s.at(1024), s.at(1280), before.begin() + 1024));
}

TEST_CASE("errors: runs, positions that the source does not cover", "[errors]") {
    RotationRun s;
    const CallChecker &runs = s.runs;
    const auto given = halyard::angle_source::given(s.at(3072), s.at(3080), 4, 2, RotationRun::rotary_dim);
    const auto by_token = halyard::angle_source::given_by_token(s.at(3072), 2, RotationRun::rotary_dim);
    CallChecker::with({{s.args.angles, given.get()}}, [&] {
        runs.refuse(HALYARD_ERROR_MISMATCH, {"args.positions is NULL, but 2 batch rows"}, {});
        runs.accept(s.all_shapes(1, 0));
    });
    // Sequences of one token each need positions too, which may be consecutive.
    CallChecker::with(s.all_shapes(1, 1), [&] {
        const std::int64_t starts[] = {3, 9};
        const auto start = halyard::consecutive_positions(starts, 2);
        runs.refuse(HALYARD_ERROR_MISMATCH, {"positions is NULL, but each of 2 sequences has one token"}, {});
        runs.accept(s.all_shapes(2, 0));
        runs.accept_each({{{s.args.angles, by_token.get()}},
                          {{s.kv[0].no_rotation, 1}, {s.kv[1].no_rotation, 1}},
                          {{s.args.positions, &start}}});
    });
    // Of the policies, only HALYARD_BAD_POSITION_ERROR refuses the run.
    const auto refuse = [&](const Words &words, const std::vector<Change> &changes) {
        CallChecker::with(changes, [&] {
            runs.refuse(HALYARD_ERROR_POSITION, words, {});
            runs.accept_each({{{s.args.bad_position, HALYARD_BAD_POSITION_CLAMP}},
                              {{s.args.bad_position, HALYARD_BAD_POSITION_IDENTITY}}});
        });
    };
    const auto two = halyard::angle_source::table(s.frequencies, 0, 2);
    refuse({"positions[batch 0, token 2] is 2", "0 to 1"}, {{s.args.angles, two.get()}});
    s.args.positions = &s.positions;
    const std::string where = "positions[batch 1, token 1] is ";
    for (const std::int32_t value : {-1, 10, INT32_MAX, INT32_MIN}) {
        refuse({where + text(value), "0 to 9"}, {{reinterpret_cast<std::int32_t *>(s.at(2048))[4], value}});
    }
    std::int64_t *const wide = s.numbers(2048);
    std::iota(wide, wide + 6, std::int64_t{0});
    s.positions.type = HALYARD_INT64;
    for (const std::int64_t value : Numbers{-1, 10, 1LL << 32, (1LL << 32) + 1, -(1LL << 32), INT64_MAX, INT64_MIN}) {
        refuse({where + text(value), "0 to 9"}, {{wide[4], value}});
    }
    s.positions = halyard::consecutive_positions(wide, 2);
    refuse({"positions[batch 1, token 2] is 10"}, {{wide[1], 8}});
    refuse({"positions[batch 1, token 0] is -1"}, {{wide[1], -1}});
    refuse({"positions[batch 1, token 0]"}, {{wide[1], INT64_MAX}});
}

TEST_CASE("errors: runs, the C++ face counts what it is given", "[errors]") {
    RotationRun s;
    const halyard::plan plan(s.plan);
    const auto before = s.arena;
    const auto refuse = [&](const std::string &words, const halyard::tensors &x, const halyard::tensors &y) {
        const auto says = [&](const halyard::error &error) {
            return error.status() == HALYARD_ERROR_SHAPE && std::string(error.what()).find(words) != std::string::npos;
        };
        const auto is_right = Catch::Matchers::Predicate<halyard::error>(says, words);
        CHECK_THROWS_MATCHES(halyard::run(plan, s.angles, x, y), halyard::error, is_right);
        CHECK_THROWS_MATCHES(halyard::bound_run(plan, s.angles, x, y), halyard::error, is_right);
        CHECK(s.arena_equals(before));
    };
    refuse("args.n_tensors is 1, but the plan's is 2", s.x[0], s.y[0]);
    refuse("x has 2 tensors, y 1, but both must have as many", {s.x, 2}, s.y[0]);
    refuse("args.n_tensors is 3, but the plan's is 2", {s.x[0], s.x[1], s.x[0]}, {s.y[0], s.y[1], s.y[0]});
    refuse("args.n_tensors is 5, but the plan's is 2", {s.x, 5}, {s.y, 5});
    refuse("x has 0 tensors, y 0", {s.x, std::size_t{0}}, {s.y, std::size_t{0}});

    // run_options keeps copies: the descriptions passed to it were temporaries.
    const std::int64_t numbers[] = {9, 8, 7, 6, 5, 4};
    halyard::run_options options;
    options.at(halyard::positions(numbers, {RotationRun::n_batch, RotationRun::n_tokens}));
    halyard::run(plan, s.angles, {s.x, 2}, {s.y, 2}, options);
    const auto by_options = s.arena;
    s.arena = before;
    CHECK_FALSE(s.arena_equals(by_options));
    s.positions = halyard::positions(numbers, {RotationRun::n_batch, RotationRun::n_tokens});
    CallChecker::with({{s.args.positions, &s.positions}}, [&] { s.run(); });
    CHECK(s.arena_equals(by_options));
}
