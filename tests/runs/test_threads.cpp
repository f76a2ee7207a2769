// Threads: pools, the executor hook and its mistakes, sharing, fork. Any number of threads gives the same bits.
#include "checks/rotate.h"

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

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

/// Heads of which half is rotated, by default so many that they are worth 16 threads.
struct Work {
    std::int64_t n_tokens;
    Rotation rotation = {.rotary_dim = 64, .head_dim = 128, .offset = 3};
    halyard::angle_source angles;
    halyard::plan plan;
    Elements x;

    explicit Work(std::int64_t n_batch = 2, std::int64_t tokens = 150, std::int64_t n_heads = 64)
        : n_tokens(tokens),
          angles(halyard::angle_source::table(halyard::frequencies::from_base(10000.0, 64), 0, tokens + 1)),
          plan(rotation.plan()), x(HALYARD_F32, {n_batch, tokens, n_heads, 128}) {
        oracle::Random random(7);
        x = Elements::random(HALYARD_F32, x.shape, random);
    }

    /// Throws halyard::error.
    Elements rotate(const halyard_executor *executor, bool in_place = false,
                    const halyard_positions *positions = nullptr) const {
        Elements y = x, input = x;
        if (!in_place) {
            std::fill(y.bytes.begin(), y.bytes.end(), '\x5a');
        }
        halyard::run_options options;
        options.executor = executor;
        if (positions != nullptr) {
            options.positions = *positions;
        }
        halyard::run(plan, angles, in_place ? y.tensor() : input.tensor(), y.tensor(), options);
        return y;
    }
};

/// Work is slow to make and read only: one for all tests.
const Work &work() {
    static const Work shared;
    return shared;
}

const Elements &expected() {
    static const Elements result = work().rotate(nullptr);
    return result;
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

/// Checks that a run fails, with a sentence that holds these words.
void check_failure(const Hook &hook, const std::string &words, bool in_place = false) {
    try {
        work().rotate(&hook.executor, in_place);
        FAIL_CHECK("accepted");
    } catch (const halyard::error &error) {
        CAPTURE(error.what());
        CHECK(error.status() == HALYARD_ERROR_EXECUTOR);
        CHECK(std::string(error.what()).find(words) != std::string::npos);
    }
}

/// Calls function(i) for each i below n, each call on a thread of its own, and waits for all of them.
template <typename Function>
void on_threads(std::int64_t n, Function function) {
    std::vector<std::jthread> threads;
    for (std::int64_t i = 0; i < n; i++) {
        threads.emplace_back(function, i);
    }
}

}  // namespace

// ---- Pools ---------------------------------------------------------------------------------------------------------

TEST_CASE("pools: 1 to 16 threads give the same bits, where few tokens are shared by heads too", "[threads]") {
    std::vector<Work> works(1);
    for (const std::int64_t n_tokens : {1, 2, 5}) {
        for (const std::int64_t n_heads : {3, 257, 1024}) {
            works.emplace_back(1, n_tokens, n_heads);
        }
    }
    for (std::int32_t n_threads = 1; n_threads <= 16; n_threads++) {
        const halyard::pool pool(n_threads);
        const halyard_executor *executor = pool.executor();
        REQUIRE(executor != nullptr);
        CHECK(executor->size == sizeof(halyard_executor));
        CHECK(executor->n_threads == n_threads);
        for (const Work &each : works) {
            CAPTURE(n_threads, each.x.shape);
            const auto alone = each.rotate(nullptr);
            CHECK(each.rotate(executor) == alone);
            CHECK(each.rotate(executor, true) == alone);
        }
    }
}

TEST_CASE("pools: made and destroyed, awake and asleep, for one caller or several at once", "[threads]") {
    const Work small(1, 64, 64);
    const auto alone = small.rotate(nullptr);
    std::atomic<int> n_wrong{0};
    for (int i = 0; i < 60; i++) {
        const halyard::pool unused(1 + i % 16);
        const halyard::pool pool(1 + i % 16);
        for (int j = 0; j < i % 8; j++) {
            n_wrong += small.rotate(pool.executor(), j % 2 == 0) == alone ? 0 : 1;
        }
        if (i % 10 == 0) {
            std::this_thread::sleep_for(std::chrono::milliseconds(2));  // long enough for every thread to sleep
            n_wrong += small.rotate(pool.executor()) == alone ? 0 : 1;
        }
    }
    const halyard::pool pool(3);
    on_threads(4, [&](std::int64_t) {
        for (int i = 0; i < 60; i++) {
            n_wrong += small.rotate(pool.executor()) == alone ? 0 : 1;
        }
    });
    CHECK(n_wrong == 0);
}

TEST_CASE("threads: the executor is called from the size on that the header states, with as many tasks as it states",
          "[threads]") {
    struct Worth {
        halyard::dtype dtype;
        std::int64_t bytes_a_task, element_bytes;
    };
    const auto frequencies = halyard::frequencies::from_base(10000.0, 64);
    const halyard::angle_source angles(frequencies);
    for (const Worth &worth : {Worth{halyard::dtype::f32, 256 << 10, 4}, Worth{halyard::dtype::f16, 48 << 10, 2},
                               Worth{halyard::dtype::bf16, 48 << 10, 2}}) {
        // Columns beside the window don't count.
        const halyard::plan plan(
            halyard::plan_desc(frequencies, {halyard::describe_tensor(worth.dtype, 96, halyard::pairing::half)}));
        const std::int64_t tokens_a_task = worth.bytes_a_task / (64 * worth.element_bytes);
        std::vector<char> memory(static_cast<std::size_t>(5 * tokens_a_task * 96 * worth.element_bytes));
        for (const std::int64_t n_tasks : {2, 3, 4}) {
            for (const std::int64_t missing : {1, 0}) {
                Hook hook(run_tasks, 4);
                halyard::run_options options;
                options.executor = &hook.executor;
                const auto x =
                    halyard::tensor(memory.data(), worth.dtype, {1, n_tasks * tokens_a_task - missing, 1, 96});
                halyard::run(plan, angles, x, x, options);
                const std::int64_t expected = n_tasks - missing;
                CHECK(hook.n_tasks_seen == (expected < 2 ? 0 : expected));
            }
        }
    }
}

TEST_CASE("pools: their executor runs each task once, also for other users", "[threads]") {
    const halyard::pool pool(4);
    const halyard_executor *executor = pool.executor();
    for (const std::int64_t n_tasks : {0, 1, 3, 4, 5, 1000}) {
        std::vector<std::atomic<int>> counts(static_cast<std::size_t>(n_tasks));
        const auto task = [](void *data, std::int64_t i) {
            (*static_cast<std::vector<std::atomic<int>> *>(data))[static_cast<std::size_t>(i)]++;
        };
        CHECK(executor->parallel_for(executor->context, n_tasks, task, &counts) == 0);
        CHECK(std::all_of(counts.begin(), counts.end(), [](const auto &n) { return n == 1; }));
    }
}

TEST_CASE("pools: as many tasks run at once as there are threads, awake or asleep", "[threads]") {
    struct Meeting {
        std::atomic<std::int64_t> n_come{0}, n_met{0};
    };
    constexpr std::int64_t n_threads = 4;
    const halyard::pool pool(n_threads);
    const halyard_executor *executor = pool.executor();
    for (int i = 0; i < 3; i++) {
        Meeting meeting;
        const auto meet = [](void *data, std::int64_t) {
            auto &at = *static_cast<Meeting *>(data);
            at.n_come++;
            const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(20);
            while (at.n_come < n_threads && std::chrono::steady_clock::now() < give_up) {
                std::this_thread::yield();
            }
            at.n_met += at.n_come == n_threads ? 1 : 0;
        };
        CHECK(executor->parallel_for(executor->context, n_threads, meet, &meeting) == 0);
        REQUIRE(meeting.n_met == n_threads);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));  // long enough for every thread to sleep
    }
}

#if defined(__unix__)

namespace {

/// Calls f in a child process, which has to end by itself within ten seconds.
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
    const Work &large = work();
    const auto &alone = expected();
    auto pool = std::make_unique<halyard::pool>(4);
    REQUIRE(large.rotate(pool->executor()) == alone);
    const bool asleep = GENERATE(false, true), destroys = GENERATE(false, true);
    if (asleep) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    CHECK(succeeds_in_child([&] {
        if (destroys) {
            pool.reset();
            return true;
        }
        return large.rotate(pool->executor()) == alone;
    }));
// QEMU 7.2 and ThreadSanitizer themselves fail where a forked child starts threads.
#if !defined(HALYARD_EMULATED) && !defined(__SANITIZE_THREAD__)
    CHECK(succeeds_in_child([&] {
        const halyard::pool own(3);
        return large.rotate(own.executor()) == alone && large.rotate(pool->executor()) == alone;
    }));
#endif
    // The parent goes on as before.
    CHECK(large.rotate(pool->executor()) == alone);
}

TEST_CASE("pools: signals in the middle of runs change nothing", "[threads]") {
    static std::atomic<int> n_signals{0};
    struct sigaction interrupt = {}, usual = {};
    interrupt.sa_handler = [](int) { n_signals++; };  // without SA_RESTART: whatever waits is woken
    REQUIRE(sigaction(SIGALRM, &interrupt, &usual) == 0);
    const halyard::pool pool(4);
    const itimerval often = {{0, 200}, {0, 200}}, never = {};
    const auto &alone = expected();
    REQUIRE(setitimer(ITIMER_REAL, &often, nullptr) == 0);
    int n_wrong = 0;
    for (int i = 0; i < 40; i++) {
        n_wrong += work().rotate(i % 2 == 0 ? pool.executor() : nullptr, i % 4 < 2) == alone ? 0 : 1;
    }
    setitimer(ITIMER_REAL, &never, nullptr);
    sigaction(SIGALRM, &usual, nullptr);
    CHECK(n_wrong == 0);
    CHECK(n_signals > 0);
}

#endif

// ---- Executors -----------------------------------------------------------------------------------------------------

TEST_CASE("executors: any order and any threads give the same bits", "[threads]") {
    const auto check = [](const Work &what, const Function &function, std::int32_t n_threads, std::int64_t least) {
        Hook hook(function, n_threads);
        const auto alone = what.rotate(nullptr);
        CHECK(what.rotate(&hook.executor) == alone);
        CHECK(what.rotate(&hook.executor, true) == alone);
        CHECK((hook.n_tasks_seen > least && hook.n_tasks_seen <= n_threads));
    };
    const auto backwards = [](std::int64_t n, const Task &task) {
        for (std::int64_t i = n; i-- > 0;) {
            task(i);
        }
        return 0;
    };
    const auto each_on_its_own = [](std::int64_t n, const Task &task) {
        on_threads(n, task);
        return 0;
    };
    for (const Function &function : {Function(run_tasks), Function(backwards), Function(each_on_its_own)}) {
        check(work(), function, 16, 1);
    }
    check(Work(1, 2048, 16), run_tasks, 1024, 16);  // as many threads as there may be
    check(Work(1, 1, 4096), run_tasks, 1024, 1);
}

TEST_CASE("executors: positions that change after the check count as 0 where they are bad", "[threads]") {
    const Work &what = work();
    const auto n = static_cast<std::size_t>(what.n_tokens);
    std::vector<std::int32_t> numbers(n, 0);
    const auto positions = halyard::positions(numbers.data(), {1, what.n_tokens});
    Hook hook([&](std::int64_t n_tasks, const Task &task) {
        for (std::size_t i = 0; i < n; i++) {
            numbers[i] = i % 2 == 0 ? 7 : (i % 4 == 1 ? INT32_MAX : INT32_MIN);
        }
        return run_tasks(n_tasks, task);
    });
    const auto changed = what.rotate(&hook.executor, true, &positions);
    for (std::size_t i = 0; i < n; i++) {
        numbers[i] = i % 2 == 0 ? 7 : 0;
    }
    CHECK(changed == what.rotate(nullptr, true, &positions));
}

TEST_CASE("executors: mistakes are errors", "[threads]") {
    const auto after = [](std::int64_t n_left_out, std::function<void(std::int64_t, const Task &)> mistake) {
        return Function([=](std::int64_t n, const Task &task) {
            run_tasks(n - n_left_out, task);
            mistake(n, task);
            return 0;
        });
    };
    struct Mistake {
        const char *what;
        Function function;
        const char *words;
        bool in_place = false;
    };
    std::vector<Mistake> mistakes = {
        {"returns something else than 0",
         [](std::int64_t n, const Task &task) {
             run_tasks(n, task);
             return -42;
         },
         "executor.parallel_for returned -42"},
        {"throws", [](std::int64_t, const Task &) -> std::int32_t { throw std::runtime_error("out of threads"); },
         "executor.parallel_for threw"},
        {"throws after some tasks, and something odd",
         [](std::int64_t, const Task &task) -> std::int32_t {
             task(0);
             throw 7;
         },
         "executor.parallel_for threw"},
        {"runs nothing", [](std::int64_t, const Task &) { return 0; }, "ran 0 of 16 tasks"},
        {"leaves out a task", after(1, [](std::int64_t, const Task &) {}), "ran 15 of 16 tasks"},
        {"runs one task twice in place of another", after(1, [](std::int64_t, const Task &task) { task(0); }),
         "ran 15 of 16 tasks"},
        {"runs a task twice", after(0, [](std::int64_t n, const Task &task) { task(n / 2); }), "executor.parallel_for",
         true}};
    for (const std::int64_t beyond : std::initializer_list<std::int64_t>{-1, 16, INT64_MAX, INT64_MIN}) {
        const auto run_beyond = [=](std::int64_t, const Task &task) { task(beyond); };
        mistakes.push_back({"runs a task that does not exist", after(0, run_beyond), "executor.parallel_for"});
        mistakes.push_back({"runs one in place of another", after(1, run_beyond), "ran 15 of 16 tasks"});
    }
    for (const auto &[what, function, words, in_place] : mistakes) {
        CAPTURE(what);
        check_failure(Hook(function), words, in_place);
    }
    const Hook hook;
    CHECK(work().rotate(&hook.executor) == expected());  // the next run is fine
}

// ---- Sharing -------------------------------------------------------------------------------------------------------

TEST_CASE("sharing: one plan and table serve 16 threads, while others are made, forced and refused", "[threads]") {
    const Work small(1, 24, 4);
    const auto alone = small.rotate(nullptr);
    const std::size_t n_targets = halyard::targets().size();
    std::atomic<int> n_wrong{0};
    const auto expect = [&](bool holds) { n_wrong += holds ? 0 : 1; };
    on_threads(16, [&](std::int64_t t) {
        for (int i = 0; i < 40; i++) {
            expect(small.rotate(nullptr, (i + t) % 2 == 0) == alone);
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
        const Work own(1, 8, 2), other(1, 8, 2);
        expect(own.rotate(nullptr) == other.rotate(nullptr));
    });
    CHECK(n_wrong == 0);
}
