// Bad input: every argument that can be wrong is, one at a time. Each mistake has its own status and a sentence that
// names the argument and its value, and nothing is written. What looks odd but is right is accepted.
// (Frequencies, angle sources and make_rows are in test_angles.cpp.)
#include "base/memory.h"
#include "base/storage.h"
#include "halyard/halyard.hpp"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstdint>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

using Strides = std::array<std::int64_t, 4>;

constexpr std::int64_t batch = 2, tokens = 3, head_dim = 8, rotary_dim = 4;
constexpr std::int64_t n_heads[] = {2, 1};

template <typename Struct>
Struct sized() {
    Struct value = {};
    value.size = sizeof(value);
    return value;
}

template <typename Struct>
std::vector<std::uint32_t> bad_sizes() {
    return {0, 1, 4, sizeof(Struct) - 1, sizeof(Struct) + 1, sizeof(Struct) + 8, UINT32_MAX};
}

std::string text(std::int64_t value) { return std::to_string(value); }

/// An error struct after a call: whether it holds the status and all the words.
void check_error(const halyard_error &error, halyard_status status, const std::vector<std::string> &words) {
    const std::string message(error.message, strnlen(error.message, sizeof(error.message)));
    CAPTURE(message);
    CHECK(error.code == status);
    CHECK(message.size() < sizeof(error.message));
    for (const std::string &word : words) {
        CAPTURE(word);
        CHECK(message.find(word) != std::string::npos);
    }
}

halyard_plan_desc describe() {
    const auto tensor = halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing::half, 2);
    return halyard::describe_plan(rotary_dim, {tensor, tensor});
}

/// A run of two tensors (q and k) that is valid until a test changes something. All its memory is in one arena, whose
/// bytes are compared afterwards.
struct Scene {
    halyard::frequencies frequencies = halyard::frequencies::from_base(100.0, rotary_dim);
    halyard::angle_source source = halyard::angle_source::table(frequencies, 0, 9);
    halyard_plan_desc desc = describe();
    std::vector<float> arena = std::vector<float>(4096);
    halyard_tensor x[2], y[2];
    halyard_positions positions = {};
    halyard_executor executor = sized<halyard_executor>();
    halyard_run_args args = sized<halyard_run_args>();

    Scene() {
        std::iota(arena.begin(), arena.end(), 1.0f);
        for (int i = 0; i < 2; i++) {
            x[i] = halyard::tensor(at(256 * i), halyard::dtype::f32, {batch, tokens, n_heads[i], head_dim});
            y[i] = halyard::tensor(at(1024 + 256 * i), halyard::dtype::f32, {batch, tokens, n_heads[i], head_dim});
        }
        const std::int32_t values[] = {0, 1, 2, 3, 4, 9};
        std::memcpy(at(2048), values, sizeof(values));
        positions = halyard::positions(reinterpret_cast<const std::int32_t *>(at(2048)), {batch, tokens});
        executor.n_threads = 2;
        executor.parallel_for = [](void *, std::int64_t, void (*)(void *, std::int64_t), void *) {
            return std::int32_t{0};
        };
        args.angles = source.get();
        args.x = x;
        args.y = y;
    }
    Scene(const Scene &) = delete;
    Scene &operator=(const Scene &) = delete;

    float *at(std::int64_t element) { return arena.data() + element; }

    halyard_status run(halyard_error *error) {
        const halyard::plan plan(desc);
        return halyard_run(plan.get(), &args, error);
    }
};

void check_refused(Scene &scene, halyard_status status, const std::vector<std::string> &words) {
    const std::vector<float> before = scene.arena;
    const auto unchanged = [&] { return std::memcmp(before.data(), scene.arena.data(), before.size() * 4) == 0; };
    auto error = sized<halyard_error>();
    CHECK(scene.run(&error) == status);
    check_error(error, status, words);
    CHECK(unchanged());
    CHECK(scene.run(nullptr) == status);
    CHECK(unchanged());
}

void check_accepted(Scene &scene) {
    auto error = sized<halyard_error>();
    const halyard_status status = scene.run(&error);
    CAPTURE(error.message);
    CHECK(status == HALYARD_OK);
}

struct BadRun {
    std::string what;
    std::function<void(Scene &)> change;
    halyard_status status;
    std::vector<std::string> words;
};

void check_all(const std::vector<BadRun> &cases) {
    for (const BadRun &bad : cases) {
        CAPTURE(bad.what);
        Scene scene;
        bad.change(scene);
        check_refused(scene, bad.status, bad.words);
    }
}

void set_strides(halyard_tensor &tensor, const Strides &strides) {
    std::copy(strides.begin(), strides.end(), tensor.strides);
}

}  // namespace

// ---- The error struct ----------------------------------------------------------------------------------------------

TEST_CASE("errors: every status has a name, and nothing else has", "[errors]") {
    std::set<std::string> names;
    for (halyard_status status = HALYARD_OK; status <= HALYARD_ERROR_DEVICE; status++) {
        const char *name = halyard_status_name(status);
        REQUIRE(name != nullptr);
        CHECK(std::string(name).rfind(status == HALYARD_OK ? "HALYARD_OK" : "HALYARD_ERROR_", 0) == 0);
        CHECK(names.insert(name).second);
    }
    for (const halyard_status status : {-1, HALYARD_ERROR_DEVICE + 1, INT32_MAX, INT32_MIN}) {
        CHECK(halyard_status_name(status) == nullptr);
    }
    CHECK(halyard_status_name(HALYARD_ERROR_WINDOW) == std::string("HALYARD_ERROR_WINDOW"));
    CHECK(halyard_version() == std::string("0.1.0"));
}

TEST_CASE("errors: the struct is optional, checked for its size, and left alone by success", "[errors]") {
    halyard_pool *pool = nullptr;
    CHECK(halyard_create_pool(0, &pool, nullptr) == HALYARD_ERROR_THREADS);

    halyard_error poisoned;
    std::memset(&poisoned, 0x5a, sizeof(poisoned));
    for (const std::uint32_t size : {0u, 4u, 8u, unsigned(sizeof(halyard_error)) - 1}) {
        halyard_error error = poisoned;
        error.size = size;
        const halyard_error before = error;
        CHECK(halyard_create_pool(0, &pool, &error) == HALYARD_ERROR_THREADS);
        CHECK(std::memcmp(&error, &before, sizeof(error)) == 0);
    }
    // A newer caller's struct only ends with more than this library knows.
    struct {
        halyard_error error;
        char newer[64];
    } larger;
    std::memset(&larger, 0x5a, sizeof(larger));
    larger.error.size = sizeof(larger);
    CHECK(halyard_create_pool(0, &pool, &larger.error) == HALYARD_ERROR_THREADS);
    CHECK(larger.error.size == sizeof(larger));
    check_error(larger.error, HALYARD_ERROR_THREADS, {"n_threads is 0"});
    CHECK(std::all_of(std::begin(larger.newer), std::end(larger.newer), [](char c) { return c == 0x5a; }));

    halyard_error error = poisoned;
    error.size = sizeof(error);
    const halyard_error before = error;
    REQUIRE(halyard_create_pool(1, &pool, &error) == HALYARD_OK);
    CHECK(std::memcmp(&error, &before, sizeof(error)) == 0);
    halyard_destroy_pool(pool);
}

TEST_CASE("errors: a sentence that is too long is cut, not overrun", "[errors]") {
    auto desc = describe();
    const std::string name(5000, 'n');
    desc.target = name.c_str();
    struct {
        halyard_error error = sized<halyard_error>();
        char guard[16] = "guard";
    } guarded;
    halyard_plan *plan = nullptr;
    CHECK(halyard_create_plan(&desc, &plan, &guarded.error) == HALYARD_ERROR_UNKNOWN_TARGET);
    check_error(guarded.error, HALYARD_ERROR_UNKNOWN_TARGET, {"target is \"nnn"});
    CHECK(guarded.guard == std::string("guard"));
}

// ---- Plans ---------------------------------------------------------------------------------------------------------

TEST_CASE("errors: plans", "[errors]") {
    struct BadPlan {
        std::string what;
        std::function<void(halyard_plan_desc &)> change;
        halyard_status status;
        std::vector<std::string> words;
    };
    std::vector<BadPlan> cases;
    const auto add = [&](std::string what, std::function<void(halyard_plan_desc &)> change, halyard_status status,
                         std::vector<std::string> words) {
        cases.push_back({std::move(what), std::move(change), status, std::move(words)});
    };
    for (const std::uint32_t size : bad_sizes<halyard_plan_desc>()) {
        add("size " + text(size), [=](auto &desc) { desc.size = size; }, HALYARD_ERROR_STRUCT_SIZE,
            {"desc.size", text(size)});
    }
    for (const std::int32_t value : {-1, 2, INT32_MAX, INT32_MIN}) {
        add("direction", [=](auto &desc) { desc.direction = value; }, HALYARD_ERROR_UNKNOWN_VALUE,
            {"direction", text(value)});
        add("pairing", [=](auto &desc) { desc.tensors[1].pairing = value; }, HALYARD_ERROR_UNKNOWN_VALUE,
            {"tensors[1].pairing", text(value)});
        add("out_pairing", [=](auto &desc) { desc.tensors[1].out_pairing = value; }, HALYARD_ERROR_UNKNOWN_VALUE,
            {"tensors[1].out_pairing", text(value)});
        add("reserved", [=](auto &desc) { desc.tensors[0].reserved = value; }, HALYARD_ERROR_UNKNOWN_VALUE,
            {"tensors[0].reserved", text(value)});
    }
    for (const std::int32_t value : {-1, 3, INT32_MAX, INT32_MIN}) {
        add("dtype", [=](auto &desc) { desc.tensors[1].dtype = value; }, HALYARD_ERROR_UNKNOWN_VALUE,
            {"tensors[1].dtype", text(value)});
    }
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-2}, std::int64_t{-1}, std::int64_t{1},
                                     std::int64_t{5}, std::int64_t{INT64_MAX}, std::int64_t{INT64_MIN}}) {
        add("rotary_dim", [=](auto &desc) { desc.rotary_dim = value; }, HALYARD_ERROR_ROTARY_DIM,
            {"rotary_dim", text(value)});
    }
    for (const std::int32_t value : {0, -1, HALYARD_MAX_TENSORS + 1, INT32_MAX, INT32_MIN}) {
        add("n_tensors", [=](auto &desc) { desc.n_tensors = value; }, HALYARD_ERROR_SHAPE, {"n_tensors", text(value)});
    }
    for (const std::int64_t value : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{INT64_MIN}}) {
        add("head_dim", [=](auto &desc) { desc.tensors[0].head_dim = value; }, HALYARD_ERROR_SHAPE,
            {"tensors[0].head_dim", text(value)});
    }
    for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{5}, std::int64_t{8}, std::int64_t{9},
                                     std::int64_t{INT64_MAX}, INT64_MAX - 3, std::int64_t{INT64_MIN}}) {
        add("rotary_offset", [=](auto &desc) { desc.tensors[1].rotary_offset = value; }, HALYARD_ERROR_WINDOW,
            {"tensors[1].rotary_offset", text(value), text(head_dim)});
    }
    for (const std::int64_t value : {std::int64_t{8}, std::int64_t{10}, std::int64_t{INT64_MAX} - 1}) {
        add("rotary_dim too large", [=](auto &desc) { desc.rotary_dim = value; }, HALYARD_ERROR_WINDOW,
            {"tensors[0]", text(value), text(head_dim)});
    }
    add("head_dim too small", [](auto &desc) { desc.tensors[1].head_dim = 5; }, HALYARD_ERROR_WINDOW,
        {"tensors[1]", "5"});
    add("target and max_target", [](auto &desc) { desc.target = desc.max_target = "reference"; },
        HALYARD_ERROR_MISMATCH, {"target", "max_target"});

    auto *const untouched = reinterpret_cast<halyard_plan *>(16);
    for (const BadPlan &bad : cases) {
        CAPTURE(bad.what);
        auto desc = describe();
        bad.change(desc);
        halyard_plan *plan = untouched;
        auto error = sized<halyard_error>();
        CHECK(halyard_create_plan(&desc, &plan, &error) == bad.status);
        check_error(error, bad.status, bad.words);
        CHECK(halyard_create_plan(&desc, &plan, nullptr) == bad.status);
        CHECK(plan == untouched);

        char lines[64];
        std::memset(lines, 'p', sizeof(lines));
        std::int64_t n_needed = -7;
        error = sized<halyard_error>();
        CHECK(halyard_explain_plan(&desc, lines, sizeof(lines), &n_needed, &error) == bad.status);
        check_error(error, bad.status, bad.words);
        CHECK(n_needed == -7);
        CHECK(std::all_of(std::begin(lines), std::end(lines), [](char c) { return c == 'p'; }));
    }

    const auto desc = describe();
    halyard_plan *plan = untouched;
    auto error = sized<halyard_error>();
    CHECK(halyard_create_plan(nullptr, &plan, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"desc is NULL"});
    CHECK(halyard_create_plan(&desc, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"out is NULL"});
    CHECK(plan == untouched);
    CHECK(halyard_get_plan_target(nullptr) == nullptr);
    halyard_destroy_plan(nullptr);
}

TEST_CASE("errors: explaining a plan", "[errors]") {
    const auto desc = describe();
    char lines[8] = "before";
    std::int64_t n_needed = -7;
    auto error = sized<halyard_error>();
    CHECK(halyard_explain_plan(nullptr, lines, 8, &n_needed, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"desc is NULL"});
    CHECK(halyard_explain_plan(&desc, nullptr, 8, &n_needed, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"text is NULL"});
    for (const std::int64_t n_bytes : {std::int64_t{-1}, std::int64_t{INT64_MIN}}) {
        CHECK(halyard_explain_plan(&desc, lines, n_bytes, &n_needed, &error) == HALYARD_ERROR_SHAPE);
        check_error(error, HALYARD_ERROR_SHAPE, {"n_bytes", text(n_bytes)});
    }
    CHECK(lines == std::string("before"));
    CHECK(n_needed == -7);
}

TEST_CASE("plans: what is right at the limits", "[errors]") {
    const auto accepted = [](halyard_plan_desc desc) {
        auto error = sized<halyard_error>();
        halyard_plan *plan = nullptr;
        const halyard_status status = halyard_create_plan(&desc, &plan, &error);
        CAPTURE(error.message);
        CHECK(status == HALYARD_OK);
        halyard_destroy_plan(plan);
    };
    auto desc = describe();
    desc.tensors[0].rotary_offset = 4;  // the window ends where the head ends
    desc.tensors[1].rotary_offset = 1;
    accepted(desc);
    desc = describe();
    desc.rotary_dim = 6;
    accepted(desc);
    desc.tensors[0].head_dim = INT64_MAX;
    desc.tensors[0].rotary_offset = INT64_MAX - 6;
    accepted(desc);
    desc = describe();
    desc.n_tensors = 1;
    desc.tensors[1].dtype = 99;  // beyond n_tensors, so not read
    accepted(desc);
}

// ---- Runs ----------------------------------------------------------------------------------------------------------

TEST_CASE("errors: runs, pointers and enumerations", "[errors]") {
    std::vector<BadRun> cases = {
        {"angles", [](Scene &s) { s.args.angles = nullptr; }, HALYARD_ERROR_NULL_POINTER, {"angles is NULL"}},
        {"x", [](Scene &s) { s.args.x = nullptr; }, HALYARD_ERROR_NULL_POINTER, {"x is NULL"}},
        {"y", [](Scene &s) { s.args.y = nullptr; }, HALYARD_ERROR_NULL_POINTER, {"y is NULL"}},
        {"x[0].data", [](Scene &s) { s.x[0].data = nullptr; }, HALYARD_ERROR_NULL_POINTER, {"x[0].data is NULL"}},
        {"y[1].data", [](Scene &s) { s.y[1].data = nullptr; }, HALYARD_ERROR_NULL_POINTER, {"y[1].data is NULL"}},
        {"parallel_for",
         [](Scene &s) {
             s.args.executor = &s.executor;
             s.executor.parallel_for = nullptr;
         },
         HALYARD_ERROR_NULL_POINTER,
         {"executor.parallel_for is NULL"}},
        {"positions.data",
         [](Scene &s) {
             s.args.positions = &s.positions;
             s.positions.data = nullptr;
         },
         HALYARD_ERROR_NULL_POINTER,
         {"positions.data is NULL"}},
    };
    for (const std::uint32_t size : bad_sizes<halyard_run_args>()) {
        cases.push_back({"args.size " + text(size),
                         [=](Scene &s) { s.args.size = size; },
                         HALYARD_ERROR_STRUCT_SIZE,
                         {"args.size", text(size)}});
    }
    for (const std::uint32_t size : bad_sizes<halyard_executor>()) {
        cases.push_back({"executor.size " + text(size),
                         [=](Scene &s) {
                             s.args.executor = &s.executor;
                             s.executor.size = size;
                         },
                         HALYARD_ERROR_STRUCT_SIZE,
                         {"executor.size", text(size)}});
    }
    for (const std::uint32_t size : bad_sizes<halyard_positions>()) {
        cases.push_back({"positions.size " + text(size),
                         [=](Scene &s) {
                             s.args.positions = &s.positions;
                             s.positions.size = size;
                         },
                         HALYARD_ERROR_STRUCT_SIZE,
                         {"positions.size", text(size)}});
    }
    for (const std::int32_t value : {-1, 3, INT32_MAX, INT32_MIN}) {
        cases.push_back({"bad_position",
                         [=](Scene &s) { s.args.bad_position = value; },
                         HALYARD_ERROR_UNKNOWN_VALUE,
                         {"bad_position", text(value)}});
        cases.push_back({"x dtype",
                         [=](Scene &s) { s.x[1].dtype = value; },
                         HALYARD_ERROR_UNKNOWN_VALUE,
                         {"x[1].dtype", text(value)}});
        cases.push_back({"y dtype",
                         [=](Scene &s) { s.y[0].dtype = value; },
                         HALYARD_ERROR_UNKNOWN_VALUE,
                         {"y[0].dtype", text(value)}});
        cases.push_back({"x device",
                         [=](Scene &s) { s.x[0].device = value; },
                         HALYARD_ERROR_UNSUPPORTED,
                         {"x[0].device", text(value)}});
        cases.push_back({"y device",
                         [=](Scene &s) { s.y[1].device = value; },
                         HALYARD_ERROR_UNSUPPORTED,
                         {"y[1].device", text(value)}});
        const auto with_positions = [](auto change) {
            return [=](Scene &s) {
                s.args.positions = &s.positions;
                change(s.positions);
            };
        };
        cases.push_back({"positions.type",
                         with_positions([=](auto &p) { p.type = value; }),
                         HALYARD_ERROR_UNKNOWN_VALUE,
                         {"positions.type", text(value)}});
        cases.push_back({"positions.consecutive",
                         with_positions([=](auto &p) { p.consecutive = value; }),
                         HALYARD_ERROR_UNKNOWN_VALUE,
                         {"positions.consecutive", text(value)}});
    }
    for (const std::int32_t value : {0, -1, 1025, INT32_MAX, INT32_MIN}) {
        cases.push_back({"n_threads",
                         [=](Scene &s) {
                             s.args.executor = &s.executor;
                             s.executor.n_threads = value;
                         },
                         HALYARD_ERROR_THREADS,
                         {"executor.n_threads", text(value)}});
    }
    check_all(cases);

    Scene scene;
    auto error = sized<halyard_error>();
    CHECK(halyard_run(nullptr, &scene.args, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"plan is NULL"});
    const halyard::plan plan(scene.desc);
    CHECK(halyard_run(plan.get(), nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"args is NULL"});
}

TEST_CASE("errors: runs, shapes that do not agree", "[errors]") {
    std::vector<BadRun> cases = {
        {"rotary_dim of the source",
         [](Scene &s) {
             s.source = halyard::angle_source::table(halyard::frequencies::from_base(100.0, 6), 0, 9);
             s.args.angles = s.source.get();
         },
         HALYARD_ERROR_MISMATCH,
         {"angles", "6", "4"}},
        {"x dtype", [](Scene &s) { s.x[1].dtype = HALYARD_F16; }, HALYARD_ERROR_MISMATCH, {"x[1].dtype is 1"}},
        {"y dtype", [](Scene &s) { s.y[0].dtype = HALYARD_BF16; }, HALYARD_ERROR_MISMATCH, {"y[0].dtype is 2"}},
        {"plan's dtype",
         [](Scene &s) { s.desc.tensors[1].dtype = HALYARD_F16; },
         HALYARD_ERROR_MISMATCH,
         {"x[1].dtype is 0"}},
        {"tokens of y", [](Scene &s) { s.y[0].shape[1] = 4; }, HALYARD_ERROR_SHAPE, {"y[0].shape[1] is 4", "3"}},
        {"tokens of k",
         [](Scene &s) { s.x[1].shape[1] = s.y[1].shape[1] = 2; },
         HALYARD_ERROR_SHAPE,
         {"x[1].shape[1] is 2", "3"}},
        {"batch of k",
         [](Scene &s) { s.x[1].shape[0] = s.y[1].shape[0] = 1; },
         HALYARD_ERROR_SHAPE,
         {"x[1].shape[0] is 1", "2"}},
        {"heads of y", [](Scene &s) { s.y[1].shape[2] = 2; }, HALYARD_ERROR_SHAPE, {"y[1].shape[2] is 2", "1"}},
        {"no tokens in y", [](Scene &s) { s.y[0].shape[1] = 0; }, HALYARD_ERROR_SHAPE, {"y[0].shape[1] is 0"}},
        {"no heads in x", [](Scene &s) { s.x[0].shape[2] = 0; }, HALYARD_ERROR_SHAPE, {"y[0].shape[2] is 2"}},
    };
    for (const int d : {0, 1, 2, 3}) {
        for (const std::int64_t value : {std::int64_t{-1}, std::int64_t{INT64_MIN}}) {
            const std::string where = ".shape[" + text(d) + "] is " + text(value);
            cases.push_back(
                {"negative", [=](Scene &s) { s.x[1].shape[d] = value; }, HALYARD_ERROR_SHAPE, {"x[1]" + where}});
            cases.push_back(
                {"negative", [=](Scene &s) { s.y[0].shape[d] = value; }, HALYARD_ERROR_SHAPE, {"y[0]" + where}});
        }
    }
    // Tensors that agree with each other on it.
    for (const int d : {0, 1}) {
        cases.push_back({"negative everywhere",
                         [=](Scene &s) { s.x[0].shape[d] = s.y[0].shape[d] = s.x[1].shape[d] = s.y[1].shape[d] = -1; },
                         HALYARD_ERROR_SHAPE,
                         {"x[0].shape[" + text(d) + "] is -1"}});
    }
    for (const std::int64_t value : {std::int64_t{0}, head_dim - 1, head_dim + 1, std::int64_t{INT64_MAX}}) {
        cases.push_back({"head_dim",
                         [=](Scene &s) { s.x[1].shape[3] = value; },
                         HALYARD_ERROR_MISMATCH,
                         {"x[1].shape[3] is " + text(value), text(head_dim)}});
        cases.push_back({"head_dim",
                         [=](Scene &s) { s.y[0].shape[3] = value; },
                         HALYARD_ERROR_MISMATCH,
                         {"y[0].shape[3] is " + text(value), text(head_dim)}});
    }
    struct PositionShape {
        std::int32_t consecutive;
        std::int64_t rows, columns;
    };
    for (const auto &[consecutive, rows, columns] : std::vector<PositionShape>{
             {0, 2, 2}, {0, 3, 3}, {0, 0, 3}, {0, 2, 0}, {0, -1, 3}, {0, 2, -3}, {1, 2, 3}, {1, 3, 1}, {1, 2, 0}}) {
        cases.push_back({"positions " + text(rows) + " x " + text(columns),
                         [consecutive = consecutive, rows = rows, columns = columns](Scene &s) {
                             s.args.positions = &s.positions;
                             s.positions.consecutive = consecutive;
                             s.positions.shape[0] = rows;
                             s.positions.shape[1] = columns;
                         },
                         HALYARD_ERROR_SHAPE,
                         {"positions.shape", text(rows), text(columns)}});
    }
    check_all(cases);
}

TEST_CASE("errors: runs, sizes and strides that leave the address space", "[errors]") {
    std::vector<BadRun> cases;
    for (const std::int64_t stride : {std::int64_t{INT64_MIN}, std::int64_t{INT64_MAX}, INT64_MAX / 2, INT64_MIN / 4,
                                      std::int64_t{1} << 60, -(std::int64_t{1} << 60)}) {
        for (const int d : {0, 1, 2, 3}) {
            const auto words = [&](const char *name) {
                return std::vector<std::string>{name, "address space", text(stride)};
            };
            cases.push_back(
                {"stride of x", [=](Scene &s) { s.x[0].strides[d] = stride; }, HALYARD_ERROR_OVERFLOW, words("x[0]")});
            cases.push_back(
                {"stride of y", [=](Scene &s) { s.y[0].strides[d] = stride; }, HALYARD_ERROR_OVERFLOW, words("y[0]")});
        }
        cases.push_back({"stride of positions",
                         [=](Scene &s) {
                             s.args.positions = &s.positions;
                             s.positions.strides[1] = stride;
                         },
                         HALYARD_ERROR_OVERFLOW,
                         {"positions", "address space", text(stride)}});
    }
    for (const std::int64_t size : {std::int64_t{INT64_MAX}, INT64_MAX / 2, std::int64_t{1} << 59}) {
        cases.push_back({"heads",
                         [=](Scene &s) { s.x[1].shape[2] = s.y[1].shape[2] = size; },
                         HALYARD_ERROR_OVERFLOW,
                         {"x[1]", "address space", text(size)}});
        cases.push_back({"tokens",
                         [=](Scene &s) {
                             for (int i = 0; i < 2; i++) {
                                 s.x[i].shape[1] = s.y[i].shape[1] = size;
                                 s.x[i].strides[1] = 0;  // only the output is at fault
                             }
                         },
                         HALYARD_ERROR_OVERFLOW,
                         {"y[0]", "address space", text(size)}});
    }
    // Each dimension would fit, but not their sum: with elements on both sides of data, and above it.
    cases.push_back({"below zero",
                     [](Scene &s) {
                         set_strides(s.x[0], {-(1LL << 56), -(1LL << 56), 8, 1});
                     },
                     HALYARD_ERROR_OVERFLOW,
                     {"x[0]", "address space"}});
    cases.push_back({"below zero by 2^64, which wraps to nothing",
                     [](Scene &s) {
                         set_strides(s.x[0], {-(1LL << 61), -(1LL << 60), 8, 1});
                     },
                     HALYARD_ERROR_OVERFLOW,
                     {"x[0]", "address space"}});
    cases.push_back({"the end of memory",
                     [](Scene &s) { s.x[0].data = reinterpret_cast<void *>(UINTPTR_MAX - 63); },
                     HALYARD_ERROR_OVERFLOW,
                     {"x[0]", "address space"}});
    cases.push_back({"the start of memory",
                     [](Scene &s) {
                         s.y[1].data = reinterpret_cast<void *>(std::uintptr_t{8});
                         s.y[1].strides[3] = -1;
                     },
                     HALYARD_ERROR_OVERFLOW,
                     {"y[1]", "address space"}});
    check_all(cases);
}

TEST_CASE("errors: runs, outputs whose elements could meet", "[errors]") {
    struct BadStrides {
        std::string what;
        Strides strides;
    };
    std::vector<BadRun> cases;
    for (const BadStrides &bad : std::vector<BadStrides>{
             {"one batch row over the other", {0, 16, 8, 1}},
             {"one token over the other", {48, 0, 8, 1}},
             {"one head over the other", {48, 16, 0, 1}},
             {"one element over the other", {48, 16, 8, 0}},
             {"all on one", {0, 0, 0, 0}},
             {"heads nested by one element", {48, 16, 7, 1}},
             {"tokens nested in heads", {48, 8, 8, 1}},
             {"tokens nested by one element", {48, 15, 8, 1}},
             {"batch rows nested by one element", {47, 16, 8, 1}},
             {"downwards, nested by one element", {-47, 16, 8, 1}},
             {"two ways down, nested", {48, -16, -7, 1}},
             {"downwards within the head", {48, 16, 7, -1}},
             {"heads that meet only across the members", {48, 16, 4, 2}},
         }) {
        std::vector<std::string> words = {"y[0]"};
        for (const std::int64_t stride : bad.strides) {
            words.push_back(text(stride));
        }
        cases.push_back({bad.what, [=](Scene &s) { set_strides(s.y[0], bad.strides); }, HALYARD_ERROR_STRIDE, words});
        cases.push_back({bad.what + ", in place",
                         [=](Scene &s) {
                             s.x[0].data = s.y[0].data;
                             set_strides(s.x[0], bad.strides);
                             set_strides(s.y[0], bad.strides);
                         },
                         HALYARD_ERROR_STRIDE, words});
    }
    check_all(cases);
}

TEST_CASE("errors: runs, outputs over other arguments", "[errors]") {
    const auto shifted = [](std::ptrdiff_t bytes) {
        return [=](Scene &s) { s.y[0].data = static_cast<char *>(s.x[0].data) + bytes; };
    };
    const std::vector<std::string> own = {"y[0]", "x[0]"};
    std::vector<BadRun> cases = {
        {"up by one byte", shifted(1), HALYARD_ERROR_OVERLAP, own},
        {"down by one byte", shifted(-1), HALYARD_ERROR_OVERLAP, own},
        {"up by one element", shifted(4), HALYARD_ERROR_OVERLAP, own},
        {"down by one element", shifted(-4), HALYARD_ERROR_OVERLAP, own},
        {"up by a head", shifted(32), HALYARD_ERROR_OVERLAP, own},
        {"up by a token", shifted(64), HALYARD_ERROR_OVERLAP, own},
        {"the last byte", shifted(batch * tokens * 2 * head_dim * 4 - 1), HALYARD_ERROR_OVERLAP, own},
        {"in place, but heads and tokens are transposed",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             set_strides(s.y[0], {48, 8, 24, 1});
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but the heads change places",
         [](Scene &s) {
             s.y[0].data = static_cast<float *>(s.x[0].data) + head_dim;
             s.y[0].strides[2] = -head_dim;
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but to another pairing",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             s.desc.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but tokens further apart",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             set_strides(s.y[0], {96, 32, 8, 1});
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but heads further apart",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             set_strides(s.x[0], {120, 40, 16, 1});
             set_strides(s.y[0], {120, 40, 20, 1});
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but batch rows further apart",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             s.y[0].strides[0] += 1;
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but elements further apart",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             set_strides(s.x[0], {120, 40, 20, 1});
             set_strides(s.y[0], {120, 40, 20, 2});
         },
         HALYARD_ERROR_OVERLAP, own},
        {"in place, but x is one token for all",
         [](Scene &s) {
             s.y[0].data = s.x[0].data;
             s.x[0].strides[1] = 0;
         },
         HALYARD_ERROR_OVERLAP, own},
        {"q's output over k's input",
         [](Scene &s) { s.y[0].data = s.x[1].data; },
         HALYARD_ERROR_OVERLAP,
         {"y[0]", "x[1]"}},
        {"k's output over q's input",
         [](Scene &s) { s.y[1].data = s.x[0].data; },
         HALYARD_ERROR_OVERLAP,
         {"y[1]", "x[0]"}},
        {"k's output over q's output",
         [](Scene &s) { s.y[1].data = static_cast<float *>(s.y[0].data) + 95; },
         HALYARD_ERROR_OVERLAP,
         {"y[1]", "y[0]"}},
        {"both in place of the same memory",
         [](Scene &s) { s.x[1] = s.y[1] = s.y[0] = s.x[0]; },
         HALYARD_ERROR_OVERLAP,
         {"y[0]", "x[1]"}},
        {"an output over the positions",
         [](Scene &s) {
             s.args.positions = &s.positions;
             s.y[1].data = s.at(2048 + 5);
         },
         HALYARD_ERROR_OVERLAP,
         {"y[1]", "positions"}},
        {"an output over given cos",
         [](Scene &s) {
             s.source = halyard::angle_source::given(s.at(3072), s.at(3080), 4, 2, rotary_dim);
             s.args.angles = s.source.get();
             s.y[1].data = s.at(3072 - batch * tokens * head_dim + 1);
         },
         HALYARD_ERROR_OVERLAP,
         {"y[1]", "rows of the angle source"}},
        {"an output over given sin",
         [](Scene &s) {
             s.source = halyard::angle_source::given(s.at(3072), s.at(3080), 4, 2, rotary_dim);
             s.args.angles = s.source.get();
             s.y[0].data = s.at(3087);
         },
         HALYARD_ERROR_OVERLAP,
         {"y[0]", "rows of the angle source"}},
    };
    check_all(cases);
}

TEST_CASE("errors: runs, positions that the source does not cover", "[errors]") {
    const auto narrow = [](std::int32_t value) {
        return [=](Scene &s) {
            s.args.positions = &s.positions;
            std::memcpy(s.at(2048 + 4), &value, 4);
        };
    };
    const auto wide = [](std::int64_t value) {
        return [=](Scene &s) {
            s.args.positions = &s.positions;
            s.positions.type = HALYARD_INT64;
            const std::int64_t values[] = {0, 1, 2, 3, value, 5};
            std::memcpy(s.at(2048), values, sizeof(values));
        };
    };
    const auto start = [](std::int64_t value) {
        return [=](Scene &s) {
            s.args.positions = &s.positions;
            s.positions.type = HALYARD_INT64;
            const std::int64_t values[] = {0, value};
            std::memcpy(s.at(2048), values, sizeof(values));
            s.positions.consecutive = 1;
            s.positions.shape[1] = 1;
            s.positions.strides[0] = 1;
        };
    };
    const std::string where = "positions[batch 1, token 1] is ";
    std::vector<BadRun> cases;
    for (const std::int32_t value : {-1, 10, INT32_MAX, INT32_MIN}) {
        cases.push_back(
            {"int32 " + text(value), narrow(value), HALYARD_ERROR_POSITION, {where + text(value), "0 to 9"}});
    }
    for (const std::int64_t value :
         {std::int64_t{-1}, std::int64_t{10}, std::int64_t{1} << 32, (std::int64_t{1} << 32) + 1,
          -(std::int64_t{1} << 32), std::int64_t{INT64_MAX}, std::int64_t{INT64_MIN}}) {
        cases.push_back({"int64 " + text(value), wide(value), HALYARD_ERROR_POSITION, {where + text(value), "0 to 9"}});
    }
    cases.push_back({"start 8", start(8), HALYARD_ERROR_POSITION, {"positions[batch 1, token 2] is 10"}});
    cases.push_back({"start -1", start(-1), HALYARD_ERROR_POSITION, {"positions[batch 1, token 0] is -1"}});
    cases.push_back({"start INT64_MAX", start(INT64_MAX), HALYARD_ERROR_POSITION, {"positions[batch 1, token 0]"}});
    cases.push_back({"no positions, but too few rows",
                     [](Scene &s) {
                         s.source = halyard::angle_source::table(s.frequencies, 0, 1);
                         s.args.angles = s.source.get();
                     },
                     HALYARD_ERROR_POSITION,
                     {"positions[batch 0, token 2] is 2", "0 to 1"}});
    check_all(cases);

    // The other policies take each of them.
    for (const BadRun &bad : cases) {
        for (const std::int32_t policy : {HALYARD_BAD_POSITION_CLAMP, HALYARD_BAD_POSITION_IDENTITY}) {
            CAPTURE(bad.what, policy);
            Scene scene;
            bad.change(scene);
            scene.args.bad_position = policy;
            check_accepted(scene);
        }
    }
}

TEST_CASE("runs: a clamped position and an identity rotate as they should", "[errors]") {
    const auto rotated = [](std::int32_t position, std::int32_t policy) {
        Scene scene;
        scene.args.positions = &scene.positions;
        scene.args.bad_position = policy;
        std::fill_n(reinterpret_cast<std::int32_t *>(scene.at(2048)), 6, position);
        check_accepted(scene);
        return std::vector<float>(scene.at(1024), scene.at(1024 + 96));
    };
    for (const std::int32_t bad : {10, INT32_MAX}) {
        CHECK(rotated(bad, HALYARD_BAD_POSITION_CLAMP) == rotated(9, HALYARD_BAD_POSITION_ERROR));
        CHECK(rotated(bad, HALYARD_BAD_POSITION_IDENTITY) == rotated(0, HALYARD_BAD_POSITION_ERROR));
    }
    for (const std::int32_t bad : {-1, INT32_MIN}) {
        CHECK(rotated(bad, HALYARD_BAD_POSITION_CLAMP) == rotated(0, HALYARD_BAD_POSITION_ERROR));
        CHECK(rotated(bad, HALYARD_BAD_POSITION_IDENTITY) == rotated(0, HALYARD_BAD_POSITION_ERROR));
    }
    CHECK(rotated(9, HALYARD_BAD_POSITION_ERROR) != rotated(0, HALYARD_BAD_POSITION_ERROR));
}

// ---- What must be accepted -----------------------------------------------------------------------------------------

namespace {

/// Rotates dense copies of the scene's inputs out of place, and checks that the scene's own run gives the same bits and
/// writes nothing but its outputs.
void check_same_as_dense(Scene &scene) {
    Scene dense;
    dense.desc = scene.desc;
    dense.args.positions = scene.args.positions;
    std::vector<std::uint8_t> bytes(scene.arena.size() * 4), expected_bytes;
    std::memcpy(bytes.data(), scene.arena.data(), bytes.size());
    expected_bytes = bytes;
    const auto *base = reinterpret_cast<const std::uint8_t *>(scene.arena.data());
    const auto for_each = [](const halyard_tensor &tensor, auto visit) {
        for (std::int64_t b = 0; b < tensor.shape[0]; b++) {
            for (std::int64_t t = 0; t < tensor.shape[1]; t++) {
                for (std::int64_t h = 0; h < tensor.shape[2]; h++) {
                    for (std::int64_t i = 0; i < tensor.shape[3]; i++) {
                        visit(static_cast<std::uint8_t *>(tensor.data) +
                              4 * (b * tensor.strides[0] + t * tensor.strides[1] + h * tensor.strides[2] +
                                   i * tensor.strides[3]));
                    }
                }
            }
        }
    };
    for (int k = 0; k < scene.desc.n_tensors; k++) {
        float *to = dense.at(256 * k);
        for_each(scene.x[k], [&](const std::uint8_t *element) { std::memcpy(to++, element, 4); });
    }
    check_accepted(dense);
    check_accepted(scene);
    for (int k = 0; k < scene.desc.n_tensors; k++) {
        const float *from = dense.at(1024 + 256 * k);
        for_each(scene.y[k], [&](const std::uint8_t *element) {
            std::memcpy(expected_bytes.data() + (element - base), from++, 4);
        });
    }
    std::memcpy(bytes.data(), scene.arena.data(), bytes.size());
    CHECK(bytes == expected_bytes);
}

}  // namespace

TEST_CASE("runs: layouts that share a buffer without sharing elements", "[errors]") {
    Scene s;
    // [batch, tokens, q q k v, head_dim] in one buffer.
    constexpr std::int64_t row = 4 * head_dim;
    const Strides packed = {tokens * row, row, head_dim, 1};
    const auto slice = [&](halyard_tensor &tensor, std::int64_t head) {
        tensor.data = s.at(head * head_dim);
        set_strides(tensor, packed);
    };
    SECTION("packed QKV in place") {
        slice(s.x[0], 0);
        slice(s.x[1], 2);
        s.y[0] = s.x[0];
        s.y[1] = s.x[1];
    }
    SECTION("packed QKV, k into the slot of v") {
        slice(s.x[0], 0);
        slice(s.x[1], 2);
        s.y[0] = s.x[0];
        slice(s.y[1], 3);
    }
    SECTION("packed QKV, q into another buffer of the same kind") {
        slice(s.x[0], 0);
        slice(s.y[0], 0);
        s.y[0].data = s.at(512);
        slice(s.x[1], 2);
        s.y[1] = s.x[1];
    }
    SECTION("[batch, heads, tokens, head_dim] in place, with room between the heads") {
        for (int i = 0; i < 2; i++) {
            set_strides(s.x[i], {n_heads[i] * 64, head_dim, 64, 1});
            s.y[i] = s.x[i];
        }
    }
    SECTION("from [batch, tokens, heads, head_dim] to [batch, heads, tokens, head_dim]") {
        set_strides(s.y[0], {48, head_dim, tokens * head_dim, 1});
    }
    SECTION("an axis for the tensors, between heads and head_dim") {
        set_strides(s.x[0], {96, 32, 16, 1});
        s.y[0] = s.x[0];
        s.y[0].data = static_cast<float *>(s.x[0].data) + head_dim;
    }
    SECTION("even elements in, odd elements out") {
        set_strides(s.x[0], {96, 32, 16, 2});
        s.y[0] = s.x[0];
        s.y[0].data = static_cast<float *>(s.x[0].data) + 1;
    }
    SECTION("backwards") {
        for (int d = 0; d < 4; d++) {
            s.x[0].data = static_cast<float *>(s.x[0].data) + (s.x[0].shape[d] - 1) * s.x[0].strides[d];
            s.x[0].strides[d] = -s.x[0].strides[d];
        }
        set_strides(s.y[0], {-48, 16, -8, 1});
        s.y[0].data = static_cast<float *>(s.y[0].data) + 48 + 8;
    }
    SECTION("misaligned by a byte") {
        for (int i = 0; i < 2; i++) {
            s.x[i].data = static_cast<char *>(s.x[i].data) + 1;
            s.y[i].data = static_cast<char *>(s.y[i].data) + 3;
        }
    }
    SECTION("misaligned in place") {
        for (int i = 0; i < 2; i++) {
            s.x[i].data = static_cast<char *>(s.x[i].data) + 2;
            s.y[i] = s.x[i];
        }
    }
    SECTION("one token for all batch rows") { s.x[0].strides[0] = 0; }
    SECTION("one head for all heads and tokens") { s.x[0].strides[1] = s.x[0].strides[2] = 0; }
    SECTION("one element for all") { set_strides(s.x[0], {0, 0, 0, 0}); }
    SECTION("inputs that share memory with each other") { s.x[1].data = s.x[0].data; }
    SECTION("strides that are never walked") {
        s.x[1].strides[2] = INT64_MIN;
        s.y[1].strides[2] = INT64_MAX;
    }
    SECTION("in place, though strides that are never walked differ") {
        s.y[1] = s.x[1];
        s.x[1].strides[2] = INT64_MAX;
        s.y[1].strides[2] = 0;
    }
    check_same_as_dense(s);
}

TEST_CASE("runs: nothing to do is fine, however large", "[errors]") {
    struct Empty {
        std::int64_t batch, tokens, heads;
    };
    for (const auto &[n_batch, n_tokens, heads] : std::vector<Empty>{{0, 3, 2},
                                                                     {2, 0, 2},
                                                                     {2, 3, 0},
                                                                     {0, 0, 0},
                                                                     {0, INT64_MAX, INT64_MAX},
                                                                     {INT64_MAX, 0, INT64_MAX},
                                                                     {INT64_MAX, INT64_MAX, 0},
                                                                     {1, std::int64_t{1} << 40, 0}}) {
        CAPTURE(n_batch, n_tokens, heads);
        Scene s;
        for (int i = 0; i < 2; i++) {
            for (halyard_tensor *tensor : {&s.x[i], &s.y[i]}) {
                tensor->data = nullptr;
                tensor->shape[0] = n_batch;
                tensor->shape[1] = n_tokens;
                tensor->shape[2] = heads;
                set_strides(*tensor, {INT64_MAX, INT64_MIN, 0, 0});
            }
        }
        const halyard::pool pool(2);
        const std::vector<float> before = s.arena;
        for (const halyard_executor *executor : {static_cast<const halyard_executor *>(nullptr), pool.executor()}) {
            s.args.executor = executor;
            check_accepted(s);
            CHECK(s.arena == before);
        }
    }
}

TEST_CASE("runs: positions of no token may lie nowhere, with any strides", "[errors]") {
    for (const int d : {0, 1}) {
        Scene s;
        s.args.positions = &s.positions;
        s.positions.data = nullptr;
        s.positions.strides[0] = s.positions.strides[1] = INT64_MIN;
        s.positions.shape[d] = 0;
        for (halyard_tensor *tensor : {&s.x[0], &s.y[0], &s.x[1], &s.y[1]}) {
            tensor->shape[d] = 0;
        }
        check_accepted(s);
    }
}

TEST_CASE("runs: where an empty tensor would lie does not matter", "[errors]") {
    Scene s;
    s.x[1].data = s.y[1].data = s.y[0].data;
    check_refused(s, HALYARD_ERROR_OVERLAP, {"y[0]", "x[1]"});  // and leaves its spans on the stack
    s.x[1].shape[2] = s.y[1].shape[2] = 0;
    check_accepted(s);
}

TEST_CASE("runs: an empty tensor does not stop the others", "[errors]") {
    Scene s, whole;
    s.x[0].shape[2] = s.y[0].shape[2] = 0;
    s.x[0].data = s.y[0].data = nullptr;
    check_accepted(s);
    check_accepted(whole);
    CHECK(std::equal(s.at(1280), s.at(1536), whole.at(1280)));
    CHECK(*s.at(1024) == 1025.0f);
    // Still checked where it has a shape.
    s.x[0].shape[1] = s.y[0].shape[1] = 7;
    s.x[1].shape[1] = s.y[1].shape[1] = 3;
    check_refused(s, HALYARD_ERROR_SHAPE, {"x[1].shape[1] is 3", "7"});
}

// ---- Threads and targets -------------------------------------------------------------------------------------------

TEST_CASE("errors: pools", "[errors]") {
    auto *const untouched = reinterpret_cast<halyard_pool *>(16);
    halyard_pool *pool = untouched;
    auto error = sized<halyard_error>();
    for (const std::int32_t n_threads : {0, -1, 1025, INT32_MAX, INT32_MIN}) {
        CHECK(halyard_create_pool(n_threads, &pool, &error) == HALYARD_ERROR_THREADS);
        check_error(error, HALYARD_ERROR_THREADS, {"n_threads", text(n_threads)});
    }
    CHECK(halyard_create_pool(2, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"out is NULL"});
    CHECK(pool == untouched);
    CHECK(halyard_get_pool_executor(nullptr) == nullptr);
    halyard_destroy_pool(nullptr);
}

TEST_CASE("errors: target infos", "[errors]") {
    auto error = sized<halyard_error>();
    auto info = sized<halyard_target_info>();
    const std::int32_t count = halyard_get_target_count();
    for (const std::int32_t index : {-1, count, INT32_MAX, INT32_MIN}) {
        CHECK(halyard_get_target_info(index, &info, &error) == HALYARD_ERROR_UNKNOWN_VALUE);
        check_error(error, HALYARD_ERROR_UNKNOWN_VALUE, {"index", text(index)});
    }
    CHECK(halyard_get_target_info(0, nullptr, &error) == HALYARD_ERROR_NULL_POINTER);
    check_error(error, HALYARD_ERROR_NULL_POINTER, {"info is NULL"});
    for (const std::uint32_t size : bad_sizes<halyard_target_info>()) {
        info.size = size;
        CHECK(halyard_get_target_info(0, &info, &error) == HALYARD_ERROR_STRUCT_SIZE);
        check_error(error, HALYARD_ERROR_STRUCT_SIZE, {"info.size", text(size)});
    }
    CHECK(info.name == nullptr);
}

// ---- Overlap -------------------------------------------------------------------------------------------------------

namespace {

/// The tests below only compare addresses; nothing is read there.
constexpr std::uintptr_t nowhere = 0x10000000;

halyard_tensor at_address(std::uintptr_t address, std::int32_t dtype, const Strides &shape, const Strides &strides) {
    halyard_tensor tensor = {};
    tensor.data = reinterpret_cast<void *>(address);
    tensor.dtype = dtype;
    std::copy(shape.begin(), shape.end(), tensor.shape);
    set_strides(tensor, strides);
    return tensor;
}

template <typename Visit>
void for_each_address(const halyard_tensor &tensor, Visit visit) {
    const auto base = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(tensor.data));
    const std::int64_t bytes = halyard::element_bytes(halyard::Dtype(tensor.dtype));
    for (std::int64_t i = 0; i < tensor.shape[0]; i++) {
        for (std::int64_t j = 0; j < tensor.shape[1]; j++) {
            for (std::int64_t k = 0; k < tensor.shape[2]; k++) {
                for (std::int64_t l = 0; l < tensor.shape[3]; l++) {
                    visit(base + bytes * (i * tensor.strides[0] + j * tensor.strides[1] + k * tensor.strides[2] +
                                          l * tensor.strides[3]));
                }
            }
        }
    }
}

std::vector<std::int64_t> sorted_addresses(const halyard_tensor &tensor) {
    std::vector<std::int64_t> addresses;
    for_each_address(tensor, [&](std::int64_t address) { addresses.push_back(address); });
    std::sort(addresses.begin(), addresses.end());
    return addresses;
}

bool really_share(const halyard_tensor &a, const halyard_tensor &b) {
    const std::int64_t bytes_a = halyard::element_bytes(halyard::Dtype(a.dtype)),
                       bytes_b = halyard::element_bytes(halyard::Dtype(b.dtype));
    const auto addresses = sorted_addresses(a);
    bool found = false;
    for_each_address(b, [&](std::int64_t address) {
        // The first element of a that does not end before this one begins.
        const auto near = std::upper_bound(addresses.begin(), addresses.end(), address - bytes_a);
        found = found || (near != addresses.end() && *near < address + bytes_b);
    });
    return found;
}

bool really_apart(const halyard_tensor &tensor) {
    const auto addresses = sorted_addresses(tensor);
    return std::adjacent_find(addresses.begin(), addresses.end()) == addresses.end();
}

class Random {
public:
    std::int64_t between(std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(engine_);
    }

private:
    std::mt19937_64 engine_{Catch::getSeed()};
};

halyard_tensor random_tensor(Random &random, std::int64_t largest_stride) {
    Strides shape, strides;
    for (int d = 0; d < 4; d++) {
        shape[d] = random.between(1, 4);
        strides[d] = random.between(-largest_stride, largest_stride);
    }
    return at_address(nowhere + static_cast<std::uintptr_t>(random.between(0, 120)),
                      static_cast<std::int32_t>(random.between(0, 2)), shape, strides);
}

}  // namespace

TEST_CASE("overlap: the checks agree with brute force on small tensors", "[errors]") {
    CAPTURE(Catch::getSeed());
    Random random;
    int n_sharing = 0, n_disjoint = 0, n_apart = 0, n_refused_though_apart = 0;
    for (int i = 0; i < 20000; i++) {
        const std::int64_t largest_stride = random.between(1, 40);
        const halyard_tensor a = random_tensor(random, largest_stride), b = random_tensor(random, largest_stride);
        const bool share = really_share(a, b), may_share = halyard::may_share_bytes(a, b);
        CAPTURE(i, a.strides[0], a.strides[1], a.strides[2], a.strides[3], a.shape[0], a.shape[1], a.shape[2],
                a.shape[3]);
        if (share) {
            REQUIRE(may_share);
        } else if (halyard::element_bytes(halyard::Dtype(a.dtype)) == halyard::element_bytes(halyard::Dtype(b.dtype))) {
            REQUIRE_FALSE(may_share);  // the search is exact where the elements are of one size and it runs to the end
        }
        REQUIRE(halyard::may_share_bytes(b, a) == may_share);
        (share ? n_sharing : n_disjoint)++;

        const bool apart = really_apart(a);
        if (halyard::elements_are_apart(a)) {
            REQUIRE(apart);
        } else {
            n_refused_though_apart += apart ? 1 : 0;
        }
        n_apart += apart ? 1 : 0;
    }
    // Both answers have to be common, or the comparison above shows nothing.
    CHECK(n_sharing > 2000);
    CHECK(n_disjoint > 2000);
    CHECK(n_apart > 2000);
    CHECK(n_refused_though_apart > 0);
}

TEST_CASE("overlap: strides that are never walked may be of 2^64 bytes", "[errors]") {
    const std::int64_t stride = std::int64_t{1} << 62;
    const auto a = at_address(nowhere, HALYARD_F32, {1, 1, 1, 4}, {stride, stride, stride, 1});
    CHECK(halyard::may_share_bytes(a, a));
    CHECK_FALSE(halyard::may_share_bytes(a, at_address(nowhere + 16, HALYARD_F32, {1, 1, 1, 4}, {0, 0, 0, 1})));
}

TEST_CASE("overlap: dense, padded, transposed and mirrored tensors have their elements apart", "[errors]") {
    Random random;
    for (int i = 0; i < 2000; i++) {
        std::array<int, 4> order = {0, 1, 2, 3};
        std::next_permutation(order.begin(), order.end());
        for (int n = static_cast<int>(random.between(0, 23)); n > 0; n--) {
            std::next_permutation(order.begin(), order.end());
        }
        Strides shape, strides;
        std::int64_t stride = random.between(1, 2);
        for (const int d : order) {
            shape[d] = random.between(1, 5);
            strides[d] = random.between(0, 1) == 0 ? stride : -stride;
            stride = stride * shape[d] + random.between(0, 1) * random.between(0, 5);
        }
        const auto tensor = at_address(nowhere, HALYARD_F32, shape, strides);
        REQUIRE(really_apart(tensor));
        REQUIRE(halyard::elements_are_apart(tensor));
    }
}

TEST_CASE("overlap: slices of one buffer are told apart exactly, at the sizes of real models", "[errors]") {
    // The buffer's axes, slowest first; a slot is q, k or v. Every order of them with head_dim last is in use
    // somewhere.
    const std::int64_t n_batch = 3, n_tokens = 1000, heads = 32, dim = 128, n_slots = 3;
    std::array<int, 4> order = {0, 1, 2, 3};  // batch, tokens, heads, slot
    do {
        const std::int64_t sizes[] = {n_batch, n_tokens, heads, n_slots};
        std::int64_t strides[4], stride = dim;
        for (int i = 3; i >= 0; i--) {
            strides[order[i]] = stride;
            stride *= sizes[order[i]];
        }
        for (const std::int32_t dtype : {HALYARD_F32, HALYARD_F16}) {
            const std::int64_t bytes = halyard::element_bytes(halyard::Dtype(dtype));
            const auto view = [&](std::int64_t slot, std::int64_t first_head, std::int64_t n, std::int64_t skip) {
                return at_address(
                    nowhere + static_cast<std::uintptr_t>((slot * strides[3] + first_head * strides[2] + skip) * bytes),
                    dtype, {n_batch, n_tokens, n, dim - skip}, {strides[0], strides[1], strides[2], 1});
            };
            for (std::int64_t slot = 0; slot < n_slots; slot++) {
                for (std::int64_t other = 0; other < n_slots; other++) {
                    CAPTURE(order, slot, other);
                    CHECK(halyard::may_share_bytes(view(slot, 0, heads, 0), view(other, 0, heads, 0)) ==
                          (slot == other));
                    CHECK(halyard::may_share_bytes(view(slot, 0, heads, 0), view(other, 0, heads, 64)) ==
                          (slot == other));
                    // Grouped heads: the first few of a slot against the rest.
                    CHECK_FALSE(halyard::may_share_bytes(view(slot, 0, 24, 0), view(other, 24, 8, 0)));
                    CHECK(halyard::may_share_bytes(view(slot, 0, 25, 0), view(other, 24, 8, 0)) == (slot == other));
                }
            }
            CHECK(halyard::elements_are_apart(view(0, 0, heads, 0)));
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("overlap: strides that defy the search count as sharing, soon", "[errors]") {
    // Odd, pairwise prime strides in a: even offsets from the start of b are hard to rule out.
    const Strides shape = {1000003, 1000033, 1000037, 1000039};
    const auto a = at_address(nowhere, HALYARD_F16, shape, {15485863, 32452843, 49979687, 67867967});
    const auto b = at_address(nowhere + 1234567, HALYARD_F16, shape, {86028121, 104395301, 122949823, 141650939});
    const auto start = std::chrono::steady_clock::now();
    CHECK(halyard::may_share_bytes(a, b));
    // No element meets another: the search cannot know that all steps are multiples of 16 bytes.
    const auto c = at_address(nowhere, HALYARD_F16, {99, 99, 99, 99}, {8 * 1009, 8 * 1013, 8 * 1019, 8 * 1021});
    const auto d = at_address(nowhere + 8, HALYARD_F16, {99, 99, 99, 99}, {8 * 1031, 8 * 1033, 8 * 1039, 8 * 1049});
    CHECK(halyard::may_share_bytes(c, d));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));  // some microseconds
}
