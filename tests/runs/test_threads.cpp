// Threads: pools, executors (also wrong ones), shared objects, fork. Any number of threads gives the same bits.
#include "checks/rotate.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_exception.hpp>
#include <catch2/matchers/catch_matchers_predicate.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <climits>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#if defined(__unix__)
#include <csignal>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>
#endif

namespace {

/// A rotation of half of each head, by default large enough for 16 threads, and its result on one thread.
struct Workload {
    Rotation rotation = {.rotary_dim = 64, .head_dim = 128, .offset = 3};
    halyard::angle_source angles;
    halyard::plan plan = rotation.plan();
    oracle::Random random{7};
    Elements x, expected;

    explicit Workload(std::int64_t n_batch = 2, std::int64_t n_tokens = 150, std::int64_t n_heads = 64)
        : angles(halyard::angle_source::table(halyard::frequencies::from_base(10000.0, 64), 0, n_tokens + 1)),
          x(Elements::random(HALYARD_F32, {n_batch, n_tokens, n_heads, 128}, random)), expected(rotate({})) {}

    Elements rotate(const halyard::run_options &options, bool in_place = true) const {
        Elements y = x, input = x;
        if (!in_place) {
            std::fill(y.bytes.begin(), y.bytes.end(), '\x5a');
        }
        halyard::run(plan, angles, in_place ? y.tensor() : input.tensor(), y.tensor(), options);
        return y;
    }
    /// Whether a run with an executor gives the expected bits, in place and out of place.
    bool is_right(const halyard_executor *executor = nullptr) const {
        halyard::run_options options;
        options.executor = executor;
        return rotate(options) == expected && rotate(options, false) == expected;
    }
};

/// The default workload, which all tests share because it is slow to make.
const Workload &workload() {
    static const Workload shared;
    return shared;
}

using Task = std::function<void(std::int64_t)>;
using Function = std::function<std::int32_t(std::int64_t, const Task &)>;

/// Runs the first n tasks in order.
std::int32_t run_tasks(std::int64_t n, const Task &task) {
    for (std::int64_t i = 0; i < n; i++) {
        task(i);
    }
    return 0;
}

/// An executor from a function (n_tasks, task) → status.
struct Hook {
    Function function;
    halyard_executor executor;
    std::int64_t n_tasks_seen = 0;

    explicit Hook(Function f = run_tasks, std::int32_t n_threads = 16)
        : function(std::move(f)), executor{sizeof(halyard_executor), n_threads, this, &Hook::parallel_for} {}
    Hook(const Hook &) = delete;
    Hook &operator=(const Hook &) = delete;

    static std::int32_t parallel_for(void *context, std::int64_t n_tasks, void (*task)(void *, std::int64_t),
                                     void *data) {
        auto &hook = *static_cast<Hook *>(context);
        hook.n_tasks_seen = n_tasks;
        return hook.function(n_tasks, [=](std::int64_t i) { task(data, i); });
    }
};

/// Calls function(i) for each i below n, each call on a thread of its own, and waits for all of them.
template <typename Function>
void on_threads(std::int64_t n, Function function) {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 0; i < n; i++) {
        threads.emplace_back(function, i);
    }
}

/// Waits so long that every idle thread of a pool sleeps.
void let_sleep() { std::this_thread::sleep_for(std::chrono::milliseconds(20)); }

}  // namespace

// ---- Pools ---------------------------------------------------------------------------------------------------------

TEST_CASE("pools: of 1 to 16 threads, made and destroyed, awake and asleep, for one caller or several at once",
          "[threads]") {
    const Workload small(1, 64, 64), few(1, 2, 1024);  // few tokens: heads are split among threads too
    std::atomic<int> n_wrong{0};
    for (int i = 0; i < 64; i++) {
        const halyard::pool unused(1 + i % 16), pool(1 + i % 16);
        CHECK(pool.executor()->size == sizeof(halyard_executor));
        CHECK(pool.executor()->n_threads == 1 + i % 16);
        for (int j = 0; j < (i + i / 16) % 4; j++) {
            n_wrong += small.is_right(pool.executor()) && few.is_right(pool.executor()) ? 0 : 1;
        }
        if (i % 10 == 0) {
            let_sleep();
            n_wrong += small.is_right(pool.executor()) ? 0 : 1;
        }
    }
    const halyard::pool pool(3);
    on_threads(4, [&](std::int64_t) {
        for (int i = 0; i < 30; i++) {
            n_wrong += small.is_right(pool.executor()) ? 0 : 1;
        }
    });
    CHECK(n_wrong == 0);
}

TEST_CASE("pools: their executor runs each task once, as many at once as there are threads, awake or asleep",
          "[threads]") {
    struct Meeting {
        std::vector<std::atomic<int>> n_done;
        std::atomic<int> n_come{0}, n_met{0};
    };
    constexpr int n_threads = 4;
    const halyard::pool pool(n_threads);
    const auto meet = [](void *data, std::int64_t i) {
        auto &at = *static_cast<Meeting *>(data);
        at.n_done[static_cast<std::size_t>(i)]++;
        at.n_come++;
        const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (at.n_done.size() >= n_threads && at.n_come < n_threads && std::chrono::steady_clock::now() < give_up) {
            std::this_thread::yield();
        }
        at.n_met += at.n_come >= n_threads ? 1 : 0;
    };
    for (const std::size_t n_tasks : {0, 1, 3, 4, 4, 5, 1000}) {
        Meeting meeting{std::vector<std::atomic<int>>(n_tasks)};
        CHECK(pool.executor()->parallel_for(pool.executor()->context, std::int64_t(n_tasks), meet, &meeting) == 0);
        CHECK(std::all_of(meeting.n_done.begin(), meeting.n_done.end(), [](const auto &n) { return n == 1; }));
        REQUIRE(meeting.n_met == (n_tasks < n_threads ? 0 : int(n_tasks)));
        let_sleep();
    }
}

#if defined(__unix__)

namespace {

/// Calls f in a forked child. Returns whether the child exits with success within ten seconds.
template <typename Function>
bool succeeds_in_child(Function f) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        alarm(10);  // a child that hangs is killed
        _exit(f() ? 0 : 1);
    }
    int status = -1;
    REQUIRE(waitpid(child, &status, 0) == child);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace

TEST_CASE("pools: after fork(), the child works on its own thread", "[threads]") {
    auto pool = std::make_unique<halyard::pool>(4);
    REQUIRE(workload().is_right(pool->executor()));
    if (GENERATE(false, true)) {
        let_sleep();
    }
    CHECK(succeeds_in_child([&] { return workload().is_right(pool->executor()); }));
    CHECK(succeeds_in_child([&] {
        pool.reset();
        return true;
    }));
// QEMU 7.2 and ThreadSanitizer cannot run a forked child that starts threads.
#if !defined(HALYARD_EMULATED) && !defined(__SANITIZE_THREAD__)
    CHECK(succeeds_in_child([&] {
        const halyard::pool own(3);
        return workload().is_right(own.executor()) && workload().is_right(pool->executor());
    }));
#endif
    // The parent's pool still works.
    CHECK(workload().is_right(pool->executor()));
}

TEST_CASE("pools: signals in the middle of runs change nothing", "[threads]") {
    static std::atomic<int> n_signals{0};
    struct sigaction interrupt = {}, usual = {};
    interrupt.sa_handler = [](int) { n_signals++; };  // without SA_RESTART: signals interrupt waits
    REQUIRE(sigaction(SIGALRM, &interrupt, &usual) == 0);
    const halyard::pool pool(4);
    const itimerval often = {{0, 200}, {0, 200}}, never = {};
    const Workload &what = workload();
    REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);
    int n_wrong = 0;
    for (int i = 0; i < 20; i++) {
        n_wrong += what.is_right(i % 2 == 0 ? pool.executor() : nullptr) ? 0 : 1;
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &usual, nullptr);
    CHECK(n_wrong == 0);
    CHECK(n_signals > 0);
}

#endif

// ---- Executors -----------------------------------------------------------------------------------------------------

TEST_CASE("executors: they are called from the size on that the header states, with as many tasks as it states",
          "[threads]") {
    const auto frequencies = halyard::frequencies::from_base(10000.0, 64);
    const halyard::angle_source angles(frequencies);
    for (const halyard::dtype dtype : {halyard::dtype::f32, halyard::dtype::f16, halyard::dtype::bf16}) {
        // The threshold for threads does not count unrotated columns.
        const halyard::plan plan(
            halyard::plan_desc(frequencies, {halyard::describe_tensor(dtype, 96, halyard::pairing::half)}));
        const std::int64_t tokens_a_task =
            dtype == halyard::dtype::f32 ? (256 << 10) / (64 * 4) : (48 << 10) / (64 * 2);
        std::vector<float> memory(static_cast<std::size_t>(4 * tokens_a_task * 96));
        for (const std::int64_t n_tasks : {2, 3, 4}) {
            for (const std::int64_t missing : {1, 0}) {
                Hook hook(run_tasks, 4);
                halyard::run_options options;
                options.executor = &hook.executor;
                const auto x = halyard::tensor(memory.data(), dtype, {1, n_tasks * tokens_a_task - missing, 1, 96});
                halyard::run(plan, angles, x, x, options);
                const std::int64_t expected = n_tasks - missing;
                CHECK(hook.n_tasks_seen == (expected < 2 ? 0 : expected));
            }
        }
    }
}

TEST_CASE("executors: any order and any threads give the same bits", "[threads]") {
    const auto check = [](const Workload &what, const Function &function, std::int32_t n_threads, std::int64_t least) {
        Hook hook(function, n_threads);
        CHECK(what.is_right(&hook.executor));
        CHECK((hook.n_tasks_seen > least && hook.n_tasks_seen <= n_threads));
    };
    const auto backwards = [](std::int64_t n, const Task &task) {
        return run_tasks(n, [&](std::int64_t i) { task(n - 1 - i); });
    };
    const auto each_on_its_own = [](std::int64_t n, const Task &task) {
        on_threads(n, task);
        return 0;
    };
    for (const Function &function : {Function(run_tasks), Function(backwards), Function(each_on_its_own)}) {
        check(workload(), function, 16, 1);
    }
    check(Workload(1, 2048, 16), run_tasks, 1024, 16);  // the maximum number of threads
    check(Workload(1, 1, 4096), run_tasks, 1024, 1);
}

TEST_CASE("executors: positions that change after the check count as 0 where they are bad", "[threads]") {
    std::vector<std::int32_t> numbers(150, 0);
    const auto change = [&](std::int32_t bad, std::int32_t other_bad) {
        for (std::size_t i = 0; i < numbers.size(); i++) {
            numbers[i] = i % 2 == 0 ? 7 : i % 4 == 1 ? bad : other_bad;
        }
    };
    Hook hook([&](std::int64_t n_tasks, const Task &task) {
        change(INT32_MAX, INT32_MIN);
        return run_tasks(n_tasks, task);
    });
    halyard::run_options options;
    options.at(halyard::positions(numbers.data(), {1, std::ssize(numbers)})).executor = &hook.executor;
    const auto changed = workload().rotate(options);
    change(0, 0);
    options.executor = nullptr;
    CHECK(changed == workload().rotate(options));
}

TEST_CASE("executors: mistakes are errors", "[threads]") {
    const auto check = [](const char *what, const std::string &words, const Function &function) {
        const Hook hook(function);
        const auto says = [&](const halyard::error &error) {
            return error.status() == HALYARD_ERROR_EXECUTOR &&
                   std::string(error.what()).find("executor.parallel_for " + words) != std::string::npos;
        };
        CAPTURE(what, words);
        CHECK_THROWS_MATCHES(workload().is_right(&hook.executor), halyard::error,
                             Catch::Matchers::Predicate<halyard::error>(says, "says so"));
    };
    /// Runs all tasks but the last n_left_out, then task `other`, which no correct executor does.
    const auto after = [](std::int64_t n_left_out, std::int64_t other) {
        return [=](std::int64_t n, const Task &task) {
            run_tasks(n - n_left_out, task);
            task(other);
            return 0;
        };
    };
    check("returns something else than 0", "returned -42",
          [](std::int64_t n, const Task &task) { return run_tasks(n, task) - 42; });
    check("throws", "threw",
          [](std::int64_t, const Task &) -> std::int32_t { throw std::runtime_error("no threads"); });
    check("throws after some tasks, and something odd", "threw", [](std::int64_t, const Task &task) -> std::int32_t {
        task(0);
        throw 7;
    });
    check("runs nothing", "ran 0 of 16 tasks", [](std::int64_t, const Task &) { return 0; });
    check("leaves out a task", "ran 15 of 16 tasks",
          [](std::int64_t n, const Task &task) { return run_tasks(n - 1, task); });
    check("runs one task twice in place of another", "ran 15 of 16 tasks", after(1, 0));
    check("runs a task twice", "", after(0, 8));
    for (const std::int64_t beyond : std::initializer_list<std::int64_t>{-1, 16, INT64_MAX, INT64_MIN}) {
        check("runs a task that does not exist", "", after(0, beyond));
        check("runs one in place of another", "ran 15 of 16 tasks", after(1, beyond));
    }
    const Hook hook;
    CHECK(workload().is_right(&hook.executor));  // the next run is not affected
}

// ---- Sharing -------------------------------------------------------------------------------------------------------

TEST_CASE("sharing: a plan, a table and a bound run serve 16 threads, while others are made, forced and refused",
          "[threads][bound]") {
    const Workload small(1, 24, 4);
    Elements example = small.x;
    const std::int32_t start = 0;
    halyard::run_options options;
    options.at(halyard::consecutive_positions(&start, 1));
    const halyard::bound_run bound(small.plan, small.angles, example.tensor(), example.tensor(), options);
    const std::size_t n_targets = halyard::targets().size();
    std::atomic<int> n_wrong{0};
    const auto expect = [&](bool holds) { n_wrong += holds ? 0 : 1; };
    on_threads(16, [&](std::int64_t t) {
        for (int i = 0; i < 20; i++) {
            Elements mine = small.x;
            const std::int32_t at = i % 2;  // each call has its own address and position
            bound({mine.at(0)}, {mine.at(0)}, &at);
            halyard::run_options how;
            expect(mine == small.rotate(how.at(halyard::consecutive_positions(&at, 1))));
            expect(small.is_right());
        }
        for (int i = 0; i < 8; i++) {
            halyard::plan_desc desc(64, {halyard::describe_tensor(halyard::dtype::f16, 64, halyard::pairing::half)});
            desc.target = (i + t) % 2 == 0 ? nullptr : "reference";
            expect(halyard::targets().size() == n_targets);
            expect(halyard::plan(desc).target() != nullptr);
            desc.target = "no_such";
            halyard_plan *plan = nullptr;
            const auto given = desc.get();
            expect(halyard_create_plan(&given, &plan, nullptr) == HALYARD_ERROR_UNKNOWN_TARGET);
            const auto frequencies = halyard::frequencies::from_base(10000.0, 64);
            expect(halyard::angle_source::table(frequencies, 0, 65).info().n_rows == 65);
        }
        const Workload own(1, 8, 2);
        expect(own.is_right());
    });
    CHECK(n_wrong == 0);
}
