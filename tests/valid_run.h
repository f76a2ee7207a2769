// A valid plan and run of the KV path. Tests change single fields and check that the change is refused.
#pragma once

#include "checks/cases/bound_pointers.h"
#include "every_field.h"
#include "halyard/halyard_kv.hpp"

#include <numeric>

/// Up to three tensors, in place unless they have a cache. All memory lies in one arena of floats: x of 96 floats each
/// at 0, 200 and 400; slots at 2000; one byte of slots' scratch at 2100.
struct ValidRun {
    static constexpr std::int64_t n_batch = 2, n_tokens = 3, H = 2, D = 8, bs = 4, n_slots = 8;

    halyard::frequencies frequencies;
    halyard::angle_source angles;
    halyard_norm_desc norm = halyard::describe_norm(halyard::dtype::f32);
    halyard_scale_desc dynamic = halyard::describe_dynamic_scales();
    halyard_kv_desc kv[3];
    halyard_tensor_desc tensors[3];
    halyard_plan_desc plan = sized<halyard_plan_desc>();
    std::vector<float> arena = std::vector<float>(4096);
    halyard_tensor x[3], y[3];
    halyard_stages stages[3];
    halyard_slots slots;
    halyard_kv_args kv_args = sized<halyard_kv_args>();
    halyard_run_args args = sized<halyard_run_args>();

    float *at(std::int64_t element) { return arena.data() + element; }
    std::int64_t *numbers(std::int64_t element) { return reinterpret_cast<std::int64_t *>(at(element)); }

    explicit ValidRun(std::int32_t n_tensors, std::int64_t rotary_dim = D)
        : frequencies(halyard::frequencies::from_base(100.0, rotary_dim)),
          angles(halyard::angle_source::table(frequencies, 0, 10)) {
        std::iota(arena.begin(), arena.end(), 1.0f);
        plan.rotary_dim = rotary_dim;
        plan.n_tensors = n_tensors;
        plan.tensors = tensors;
        for (int i = 0; i < 3; i++) {
            tensors[i] = halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half);
            kv[i] = sized<halyard_kv_desc>();
            tensors[i].kv = &kv[i];
            x[i] = y[i] = halyard::tensor(at(200 * i), halyard::dtype::f32, {n_batch, n_tokens, H, D});
            stages[i] = halyard::stages();
        }
        const std::int64_t values[] = {5, 0, -1, 7, 2, 3};
        std::copy_n(values, 6, numbers(2000));
        slots = halyard::slots(numbers(2000), {n_batch, n_tokens}, at(2100), 1);
        args.angles = angles.get();
        args.x = x;
        args.y = y;
        kv_args.slots = &slots;
        kv_args.stages = stages;
        args.kv = &kv_args;
    }
    ValidRun(const ValidRun &) = delete;
    ValidRun &operator=(const ValidRun &) = delete;

    /// Gives tensor i a cache (128 bytes at 1300 of the arena) and dynamic scales (at 1400).
    void store_with_dynamic_scales(int i, const halyard_cache_desc &cache) {
        kv[i].scale = &dynamic;
        kv[i].cache = &cache;
        stages[i] = halyard::stages_into(at(1300));
        stages[i].scales_out = at(1400);
        stages[i].stride_scales[1] = H;
        stages[i].stride_scales[2] = 1;
    }

    /// Whether the arena equals `expected`, except for the slots' scratch, which a run may write.
    bool arena_equals(std::vector<float> expected) const {
        expected[2100] = kv_args.slots != nullptr ? arena[2100] : expected[2100];
        return std::memcmp(arena.data(), expected.data(), expected.size() * sizeof(float)) == 0;
    }

    /// Makes the run and checks that it is accepted.
    void run() const {
        const halyard::plan made(plan);
        auto error = sized<halyard_error>();
        const halyard_status status = halyard_run(made.get(), &args, &error);
        CAPTURE(error.message);
        CHECK(status == HALYARD_OK);
    }

    /// Binds the run and calls the bound run. Returns the status of the step that fails, or HALYARD_OK.
    halyard_status run_bound(halyard_error *error) const;

    /// Checks that the plan and the run refuse bad values in all fields (see every_field.h), except fields that are not
    /// read and those in `but`, where "x*" stands for all paths that begin with x.
    void refuse_fields(Words but = {}) const {
        for (int i = 0; i < plan.n_tensors; i++) {
            const std::string at = "[" + text(i) + "]";
            if (kv[i].cache != nullptr) {
                but.push_back("y" + at + ".*");
            }
            if (kv[i].no_rotation != 0) {
                but.insert(but.end(),
                           {"tensors" + at + ".pairing", "tensors" + at + ".out*", "tensors" + at + ".rot*"});
            }
        }
        every_field::refuse(plans, places_of_plan(), but);
        every_field::refuse(runs, places_of_run(), but);
    }

    std::vector<fields::Place> places_of_plan() const {
        return fields::places(fields::of<halyard_plan_desc>(), &plan, std::min(plan.n_tensors, 3));
    }
    std::vector<fields::Place> places_of_run() const {
        return fields::places(fields::of<halyard_run_args>(), &args, std::min(plan.n_tensors, 3));
    }
    Words words_of(const void *field) const {
        auto all = places_of_plan();
        std::ranges::move(places_of_run(), std::back_inserter(all));
        const auto found = std::ranges::find(all, field, &fields::Place::at);
        REQUIRE(found != all.end());
        return every_field::words_of(*found);
    }

    /// Checks that the description is refused by halyard_create_plan and halyard_explain_plan, or that a plan is made.
    CallChecker plans{[this](halyard_status status, const Words &words) {
                          auto *const untouched = reinterpret_cast<halyard_plan *>(16);
                          halyard_plan *made = untouched;
                          check_refused(status, words, [&](auto *e) { return halyard_create_plan(&plan, &made, e); });
                          CHECK(made == untouched);
                          std::string lines(64, 'p');
                          std::int64_t n_needed = -7;
                          check_refused(status, words, [&](auto *e) {
                              return halyard_explain_plan(&plan, lines.data(), std::ssize(lines), &n_needed, e);
                          });
                          CHECK(n_needed == -7);
                          CHECK(lines == std::string(64, 'p'));
                      },
                      [this] {
                          CHECK_NOTHROW(halyard::plan(plan));
                          CHECK_NOTHROW(halyard::detail::read_text(halyard_explain_plan, &plan));
                      },
                      [this](const void *field) { return words_of(field); }};

    /// Checks that the run is refused, or that it is accepted. Refusals are checked as a whole run and, if args has
    /// neither an executor nor parts, in each of three parts and as a bound run.
    CallChecker runs{[this](halyard_status status, const Words &words) {
                         const halyard::plan made(plan);
                         const auto before = arena;
                         const bool has_parts = args.executor == nullptr && args.part == 0 && args.n_parts == 0;
                         for (std::int32_t part = -1; part < (has_parts ? 3 : 0); part++) {
                             auto some = args;
                             some.part = part < 0 ? args.part : part;
                             some.n_parts = part < 0 ? args.n_parts : 3;
                             check_refused(status, words, [&](auto *e) { return halyard_run(made.get(), &some, e); });
                             CHECK(arena_equals(before));
                         }
                         if (has_parts) {
                             auto error = sized<halyard_error>();
                             CHECK(run_bound(&error) == status);
                             check_error(error, status, {});
                             CHECK(arena_equals(before));
                         }
                     },
                     [this] {
                         const auto before = arena;
                         run();
                         if (args.n_parts == 0) {
                             const auto after = arena;
                             arena = before;
                             CHECK(run_bound(nullptr) == HALYARD_OK);
                             CHECK(arena_equals(after));
                         }
                         arena = before;
                     },
                     [this](const void *field) { return words_of(field); }};
};

/// A bound run, and the pointers that it is called with.
struct BoundRun : BoundPointers {
    halyard::plan plan;
    halyard::bound_run bound;
    CallChecker calls;  // checks that a call is refused and writes nothing

    explicit BoundRun(const ValidRun &run)
        : BoundPointers(run.plan, run.args), plan(run.plan),
          calls([this, &run](halyard_status status, const Words &words) {
              const auto before = run.arena;
              check_refused(status, words, [&](auto *error) { return (*this)(error); });
              CHECK(run.arena_equals(before));
          }) {
        halyard_bound_run *made = nullptr;
        REQUIRE(halyard_bind_run(plan.get(), &run.args, &made, nullptr) == HALYARD_OK);
        bound = halyard::bound_run(made);
    }

    halyard_status operator()(halyard_error *error = nullptr) const {
        return halyard_run_bound(bound.get(), &args, error);
    }
};

inline halyard_status ValidRun::run_bound(halyard_error *error) const {
    halyard_bound_run *made = nullptr;
    const halyard_status status = halyard_bind_run(halyard::plan(plan).get(), &args, &made, error);
    const halyard::bound_run owner(made);
    return status == HALYARD_OK ? BoundRun(*this)(error) : status;
}
