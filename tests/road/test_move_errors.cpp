// What is refused of plans and runs that move keys, with a sentence that names the argument and its value; nothing is
// written. Beside each bad value stands a good one.
#include "checks/make_sources.h"
#include "halyard/halyard.hpp"
#include "refused.h"
#include "walk/plan.h"

#include <functional>
#include <limits>
#include <numeric>

namespace {

/// A plan of one view in place, and of keys in a cache with dynamic scales; and a run. All memory lies in one arena.
struct MoveScene {
    static constexpr std::int64_t n_batch = 2, n_tokens = 3, H = 2, D = 8, n_slots = 8;

    halyard::frequencies frequencies = with_factor(halyard::frequencies::from_base(100.0, D), 1.25);
    halyard::angle_source angles = halyard::angle_source::table(frequencies, 0, 9), other, inner;
    halyard_scale_desc dynamic = halyard::describe_dynamic_scales();
    halyard_norm_desc norm = halyard::describe_norm(halyard::dtype::f32);
    halyard_cache_desc cache = halyard::describe_hnd_cache(2, 4, H, D);
    halyard_tensor_desc tensors[2];
    halyard_plan_desc plan = sized<halyard_plan_desc>();
    std::vector<float> arena = std::vector<float>(4096);
    halyard_tensor x[2];
    halyard_stages stages[2];
    halyard_slots slots;
    halyard_positions positions, from_positions;
    halyard_run_args args = sized<halyard_run_args>();

    float *at(std::int64_t element) { return arena.data() + element; }
    std::int64_t *numbers(std::int64_t element) { return reinterpret_cast<std::int64_t *>(at(element)); }

    MoveScene() {
        std::iota(arena.begin(), arena.end(), 1.0f);
        tensors[0] = halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half);
        tensors[1] = halyard::describe_tensor(halyard::dtype::e4m3, D, halyard::pairing::half);
        tensors[1].scale = &dynamic;
        tensors[1].cache = &cache;
        plan.rotary_dim = D;
        plan.n_tensors = 2;
        plan.tensors = tensors;
        plan.rerotates = 1;
        x[0] = halyard::tensor(at(0), halyard::dtype::f32, {n_batch, n_tokens, H, D});
        x[1] = halyard::tensor(nullptr, halyard::dtype::e4m3, {n_batch, n_tokens, H, D});
        stages[0] = halyard::stages();
        stages[1] = halyard::stages(at(1300));  // 128 bytes
        stages[1].scales_out = at(1400);        // 16
        stages[1].stride_scales[1] = H;
        stages[1].stride_scales[2] = 1;
        const std::int64_t values[] = {5, 0, -1, 7, 2, 3};
        std::copy_n(values, 6, numbers(2000));
        std::iota(numbers(2200), numbers(2200) + 6, std::int64_t{100});
        std::iota(numbers(2300), numbers(2300) + 6, std::int64_t{-7});
        slots = halyard::slots(numbers(2000), {n_batch, n_tokens}, at(2100), 1);
        positions = halyard::positions(numbers(2200), {n_batch, n_tokens});
        from_positions = halyard::positions(numbers(2300), {n_batch, n_tokens});
        args.angles = angles.get();
        args.positions = &positions;
        args.from_positions = &from_positions;
        args.x = args.y = x;
        args.slots = &slots;
        args.stages = stages;
    }
    MoveScene(const MoveScene &) = delete;
    MoveScene &operator=(const MoveScene &) = delete;

    void take_source(const halyard_angle_source_desc &desc, const halyard_angle_source *halyard_run_args::*field) {
        other = halyard::angle_source(frequencies, desc);
        args.*field = other.get();
    }
};
using Change = std::function<void(MoveScene &)>;

void refuse_plan(halyard_status status, const Words &words, const Change &change) {
    CAPTURE(words);
    MoveScene scene;
    change(scene);
    halyard_plan *plan = nullptr;
    check_refused(status, words, [&](auto *error) { return halyard_create_plan(&scene.plan, &plan, error); });
    CHECK(plan == nullptr);
}

/// The run is refused whole and in parts, and nothing but slots' scratch is written.
void refuse_run(halyard_status status, const Words &words, const Change &change) {
    CAPTURE(words);
    MoveScene scene;
    change(scene);
    const halyard::plan plan(scene.plan);
    const auto before = scene.arena;
    for (const std::int32_t n_parts : {0, 3}) {
        scene.args.n_parts = n_parts;
        scene.args.part = n_parts / 2;
        check_refused(status, words, [&](auto *error) { return halyard_run(plan.get(), &scene.args, error); });
        scene.arena[2100] = before[2100];
        CHECK(std::memcmp(scene.arena.data(), before.data(), before.size() * sizeof(float)) == 0);
    }
}

void accept_run(const Change &change) {
    MoveScene scene;
    change(scene);
    const halyard::plan plan(scene.plan);
    auto error = sized<halyard_error>();
    const halyard_status status = halyard_run(plan.get(), &scene.args, &error);
    CAPTURE(error.message);
    CHECK(status == HALYARD_OK);
}

}  // namespace

TEST_CASE("errors: moves, plans", "[errors][road][moves]") {
    MoveScene scene;
    CHECK_NOTHROW(halyard::plan(scene.plan));
    for (const int i : {0, 1}) {
        const std::string tensor = "tensors[" + text(i) + "].";
        refuse_plan(HALYARD_ERROR_MISMATCH, {tensor + "out_dtype is bf16", "keeps the dtype"},
                    [=](auto &s) { s.tensors[i].out_dtype = HALYARD_BF16; });
        refuse_plan(HALYARD_ERROR_MISMATCH, {tensor + "out_pairing is 2", "keeps the pairing, 1"},
                    [=](auto &s) { s.tensors[i].out_pairing = HALYARD_PAIRING_INTERLEAVED; });
        refuse_plan(HALYARD_ERROR_MISMATCH, {tensor + "no_rotation is set"},
                    [=](auto &s) { s.tensors[i].no_rotation = 1; });
        refuse_plan(HALYARD_ERROR_MISMATCH, {tensor + "norm is set"}, [=](auto &s) { s.tensors[i].norm = &s.norm; });
    }
    refuse_plan(HALYARD_ERROR_UNSUPPORTED, {"tensors[1].dtype is e4m3"}, [](auto &s) { s.plan.rerotates = 0; });
    refuse_plan(HALYARD_ERROR_MISMATCH, {"tensors[0].scale", "dynamic"},
                [](auto &s) { s.tensors[0].scale = &s.dynamic; });
    // Keys have the pairing that a model's rotations write, not that which they read.
    auto about = halyard::frequencies::from_base(100.0, 8);
    about.get()->about.pairing = HALYARD_PAIRING_INTERLEAVED;
    about.get()->about.out_pairing = HALYARD_PAIRING_HALF;
    scene.plan.frequencies = about.get();
    scene.tensors[0].pairing = scene.tensors[1].pairing = 0;
    const halyard::plan plan(scene.plan);
    CHECK(plan.get()->tensors[0].pairing == halyard::Pairing::half);
    CHECK(plan.get()->tensors[1].out_pairing == halyard::Pairing::half);
}

TEST_CASE("errors: moves, runs", "[errors][road][moves]") {
    accept_run([](auto &) {});
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"args.from_positions is NULL"},
               [](auto &s) { s.args.from_positions = nullptr; });
    accept_run([](auto &s) { s.args.positions = nullptr; });  // to 0, 1, 2, …
    for (const auto &[what, field] :
         {std::pair("from_angles ", &halyard_run_args::from_angles), std::pair("angles ", &halyard_run_args::angles)}) {
        auto desc = describe_source(HALYARD_ANGLES_TABLE, 0, 9);
        accept_run([&](auto &s) { s.take_source(desc, field); });
        desc.reference = HALYARD_REFERENCE_HF_F32;
        refuse_run(HALYARD_ERROR_MISMATCH, {what, "has another reference than EXACT"},
                   [&](auto &s) { s.take_source(desc, field); });
        refuse_run(HALYARD_ERROR_MISMATCH, {what, "has given rows"}, [&](auto &s) {
            auto given = describe_source(HALYARD_ANGLES_GIVEN);
            given.cos_rows = given.sin_rows = s.at(3000);
            given.n_rows = 6;
            given.stride_row = 4;
            given.rotary_dim = 8;
            s.take_source(given, field);
        });
        refuse_run(HALYARD_ERROR_MISMATCH, {what, "has sources of its own"}, [&](auto &s) {
            static const std::int32_t index[2] = {};
            s.inner = halyard::angle_source(s.frequencies, describe_source(HALYARD_ANGLES_PHASE));
            s.other = halyard::angle_source::joined({&s.inner}, index, 2);
            s.args.*field = s.other.get();
        });
        refuse_run(HALYARD_ERROR_MISMATCH, {what, "has a rotary_dim of 6, but the plan's is 8"}, [&](auto &s) {
            s.frequencies = halyard::frequencies::from_base(100.0, 6);
            s.take_source(describe_source(HALYARD_ANGLES_PHASE), field);
        });
    }
    for (const std::int32_t policy : {HALYARD_BAD_POSITION_CLAMP, HALYARD_BAD_POSITION_IDENTITY}) {
        refuse_run(HALYARD_ERROR_MISMATCH, {"bad_position is " + text(policy)},
                   [=](auto &s) { s.args.bad_position = policy; });
    }
    refuse_run(HALYARD_ERROR_SHAPE, {"from_positions.shape"}, [](auto &s) { s.from_positions.shape[1] = 2; });
    refuse_run(HALYARD_ERROR_SHAPE, {"from_positions.n_axes is 2"}, [](auto &s) { s.from_positions.n_axes = 2; });
    for (const std::int64_t position : {std::int64_t{INT32_MIN}, std::int64_t{INT32_MAX}}) {
        const std::int64_t beyond = position + (position < 0 ? -1 : 1);
        for (const int first : {2200, 2300}) {
            accept_run([=](auto &s) { s.numbers(first)[4] = position; });
            refuse_run(HALYARD_ERROR_POSITION,
                       {first == 2200 ? "positions[batch 1, token 1] is" : "from_positions[batch 1, token 1] is",
                        text(beyond)},
                       [=](auto &s) { s.numbers(first)[4] = beyond; });
        }
    }
    const auto axes = [](MoveScene &s) {
        auto desc = describe_source(HALYARD_ANGLES_PHASE);
        desc.axis_map = HALYARD_AXIS_MAP_SECTIONS;
        desc.n_axes = 2;
        desc.axis_counts[0] = desc.axis_counts[1] = 2;
        s.take_source(desc, &halyard_run_args::angles);
        s.positions.n_axes = s.from_positions.n_axes = 2;
        s.positions.stride_axis = s.from_positions.stride_axis = 6;
        std::fill_n(s.numbers(2212), 6, 0);
        std::fill_n(s.numbers(2312), 6, 0);
    };
    accept_run(axes);
    refuse_run(HALYARD_ERROR_POSITION, {"from_positions[axis 1, batch 1, token 0] is 4294967296"}, [&](auto &s) {
        axes(s);
        s.numbers(2300)[9] = std::int64_t{1} << 32;
    });
    refuse_run(HALYARD_ERROR_OVERLAP, {"stages[1].cache", "from_positions.data"},
               [](auto &s) { s.from_positions.data = s.at(1310); });
    refuse_run(HALYARD_ERROR_OVERLAP, {"y[0]", "from_positions.data"},
               [](auto &s) { s.from_positions.data = s.at(90); });
    accept_run([](auto &s) { s.from_positions.data = s.positions.data; });
    // Other plans have nothing to do with it.
    for (const bool is_source : {false, true}) {
        refuse_run(HALYARD_ERROR_MISMATCH, {is_source ? "args.from_angles is set" : "args.from_positions is set"},
                   [=](auto &s) {
                       s.plan.rerotates = 0;
                       s.plan.n_tensors = 1;
                       s.args.slots = nullptr;
                       s.args.stages = nullptr;
                       s.args.positions = nullptr;
                       if (is_source) {
                           s.args.from_positions = nullptr;
                           s.args.from_angles = s.args.angles;
                       }
                   });
    }
}

TEST_CASE("errors: moves, slots and scales", "[errors][road][moves]") {
    refuse_run(HALYARD_ERROR_MISMATCH, {"slots.policy is HALYARD_SLOTS_RANGE_ONLY"},
               [](auto &s) { s.slots.policy = HALYARD_SLOTS_RANGE_ONLY; });
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 1, token 2] is 0"}, [](auto &s) { s.numbers(2000)[5] = 0; });
    const auto ranges = [](MoveScene &s, std::int64_t first, std::int64_t second) {
        s.slots.consecutive = 1;
        s.slots.shape[1] = s.slots.strides[0] = 1;
        s.numbers(2000)[0] = first;
        s.numbers(2000)[1] = second;
    };
    accept_run([&](auto &s) { ranges(s, 5, 2); });
    accept_run([&](auto &s) { ranges(s, 5, -1); });
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 0, token 2] is 8"}, [&](auto &s) { ranges(s, 6, 0); });
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 1, token 0] is 4", "slots[batch 0, token 1]"},
               [&](auto &s) { ranges(s, 3, 4); });
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 0, token 0] is 9223372036854775806"},
               [&](auto &s) { ranges(s, INT64_MAX - 1, 0); });
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 0, token 0] is -2"}, [&](auto &s) { ranges(s, -2, 0); });
    refuse_run(HALYARD_ERROR_SHAPE, {"slots.shape is {2, 3}, but it must be {2, 1}"},
               [](auto &s) { s.slots.consecutive = 1; });
    using Float = std::numeric_limits<float>;
    for (const float scale : {0.0f, -0.0f, -1.0f, Float::quiet_NaN(), Float::infinity(), Float::denorm_min()}) {
        refuse_run(HALYARD_ERROR_SCALE, {"stages[1].scales_out[slot 7, head 1] is"},
                   [=](auto &s) { *s.at(1400 + 7 * 2 + 1) = scale; });
        accept_run([=](auto &s) { *s.at(1400 + 6 * 2 + 1) = scale; });  // a slot that stays as it is
        refuse_run(HALYARD_ERROR_SCALE, {"stages[1].scales_out[token 2, head 0] is"}, [=](auto &s) {
            s.tensors[1].cache = nullptr;
            s.stages[1].cache = nullptr;
            s.x[1].data = s.at(1300);
            s.args.slots = nullptr;
            s.stages[1].stride_scales[0] = 6;
            *s.at(1400 + 6 + 2 * 2) = scale;
        });
    }
    accept_run([](auto &s) { *s.at(1400 + 7 * 2 + 1) = Float::min(); });
    accept_run([](auto &s) { *s.at(1400 + 7 * 2 + 1) = Float::max(); });
}

TEST_CASE("errors: moves, bound", "[errors][road][moves]") {
    MoveScene scene;
    const halyard::plan plan(scene.plan);
    halyard_bound_run *made = nullptr;
    REQUIRE(halyard_bind_run(plan.get(), &scene.args, &made, nullptr) == HALYARD_OK);
    const halyard::bound_run bound(made);
    const void *const x[] = {scene.x[0].data, nullptr};
    void *const y[] = {scene.x[0].data, nullptr}, *const caches[] = {nullptr, scene.stages[1].cache};
    float *const scales_out[] = {nullptr, scene.stages[1].scales_out};
    auto args = sized<halyard_bound_run_args>();
    args.n_tensors = 2;
    args.x = x;
    args.y = y;
    args.caches = caches;
    args.scales_out = scales_out;
    args.positions = scene.positions.data;
    args.slots = scene.slots.data;
    args.slots_scratch = scene.slots.scratch;
    const auto before = scene.arena;
    const auto refuse = [&](halyard_status status, const Words &words) {
        check_refused(status, words, [&](auto *error) { return halyard_run_bound(bound.get(), &args, error); });
        scene.arena[2100] = before[2100];
        CHECK(std::memcmp(scene.arena.data(), before.data(), before.size() * sizeof(float)) == 0);
    };
    refuse(HALYARD_ERROR_MISMATCH, {"args.from_positions is NULL, but the run was bound with"});
    args.from_positions = reinterpret_cast<const void *>(UINTPTR_MAX - 8);
    refuse(HALYARD_ERROR_OVERFLOW, {"args.from_positions leaves the address space"});
    args.from_positions = scene.at(1310);
    refuse(HALYARD_ERROR_OVERLAP, {"stages[1].cache", "from_positions.data"});
    args.from_positions = scene.from_positions.data;
    *scene.at(1400) = 0.0f;
    check_refused(HALYARD_ERROR_SCALE, {"stages[1].scales_out[slot 0, head 0] is 0"},
                  [&](auto *error) { return halyard_run_bound(bound.get(), &args, error); });
    *scene.at(1400) = 1.0f;
    CHECK(halyard_run_bound(bound.get(), &args, nullptr) == HALYARD_OK);

    scene.plan.rerotates = 0;
    scene.plan.n_tensors = 1;
    const halyard::plan turns(scene.plan);
    const halyard::bound_run rotates(turns, scene.angles, scene.x[0], scene.x[0]);
    args.n_tensors = 1;
    args.positions = args.slots = nullptr;
    check_refused(HALYARD_ERROR_MISMATCH, {"args.from_positions is set, but the plan does not rerotate"},
                  [&](auto *error) { return halyard_run_bound(rotates.get(), &args, error); });
}
