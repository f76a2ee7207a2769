// Bad arguments of re-rotations (plans with `rerotates`). Each must be refused with an error message that names the
// argument and its value, and nothing may be written. Beside each bad value a good one is accepted.
#include "checks/make_sources.h"
#include "core/plan.h"
#include "valid_run.h"

#include <limits>

namespace {

/// A re-rotation of a tensor in place, and of keys in a cache with dynamic scales.
struct MoveRun : ValidRun {
    halyard_cache_desc cache = halyard::describe_hnd_cache(2, 4, H, D);
    halyard_positions positions, from_positions;

    MoveRun() : ValidRun(2) {
        frequencies = halyard::frequencies::from_base(100.0, D);
        frequencies.get()->attention_factor = 1.25;  // frequencies from a base have none
        angles = halyard::angle_source::table(frequencies, 0, 10);
        args.angles = angles.get();
        plan.rerotates = 1;
        tensors[1] = halyard::describe_tensor(halyard::dtype::e4m3, D, halyard::pairing::half);
        tensors[1].kv = &kv[1];
        store_with_dynamic_scales(1, cache);
        x[1] = y[1] = halyard::tensor(nullptr, halyard::dtype::e4m3, {n_batch, n_tokens, H, D});
        std::iota(numbers(2200), numbers(2200) + 6, std::int64_t{100});
        std::iota(numbers(2300), numbers(2300) + 6, std::int64_t{-7});
        positions = halyard::positions(numbers(2200), {n_batch, n_tokens});
        from_positions = halyard::positions(numbers(2300), {n_batch, n_tokens});
        args.positions = &positions;
        kv_args.from_positions = &from_positions;
    }

    /// These changes, and those by which tensor 1's keys are in memory and not in a cache.
    std::vector<Change> without_cache(float *keys, std::initializer_list<Change> changes) {
        std::vector<Change> all = {{kv[1].cache, nullptr}, {stages[1].cache, nullptr}, {kv_args.slots, nullptr},
                                   {x[1].data, keys},      {y[1].data, keys}};
        all.insert(all.end(), changes);
        return all;
    }
};

}  // namespace

TEST_CASE("errors: moves, plans", "[errors][kv][moves]") {
    MoveRun s;
    const CallChecker &plans = s.plans;
    s.refuse_fields({"tensors[0].kv.position_scales", "tensors[1].kv.position_scales", "x[1].strides*", "kv"});
    plans.accept({});
    for (const int i : {0, 1}) {
        auto &desc = s.tensors[i];
        auto &kv = s.kv[i];
        plans.refuse({{HALYARD_ERROR_MISMATCH, {}, {{kv.out_dtype, HALYARD_BF16}}},
                      {HALYARD_ERROR_MISMATCH, {}, {{desc.out_pairing, HALYARD_PAIRING_INTERLEAVED}}},
                      {HALYARD_ERROR_MISMATCH, {"no_rotation is set"}, {{kv.no_rotation, 1}}},
                      {HALYARD_ERROR_MISMATCH, {"norm is set"}, {{kv.norm, &s.norm}}},
                      {HALYARD_ERROR_MISMATCH, {"position_scales is set"}, {{kv.position_scales, 1}}}});
    }
    plans.refuse({{HALYARD_ERROR_UNSUPPORTED, {"tensors[1].dtype is e4m3"}, {{s.plan.rerotates, 0}}},
                  {HALYARD_ERROR_MISMATCH, {"tensors[0].kv.scale", "dynamic"}, {{s.kv[0].scale, &s.dynamic}}}});
    // Stored keys have the model's out_pairing, not its pairing.
    auto about = halyard::frequencies::from_base(100.0, 8);
    about.get()->about.pairing = HALYARD_PAIRING_INTERLEAVED;
    about.get()->about.out_pairing = HALYARD_PAIRING_HALF;
    s.plan.frequencies = about.get();
    s.tensors[0].pairing = s.tensors[1].pairing = 0;
    const halyard::plan plan(s.plan);
    CHECK(plan.get()->tensors[0].pairing == halyard::Pairing::half);
    CHECK(plan.get()->tensors[1].out_pairing == halyard::Pairing::half);
}

TEST_CASE("errors: moves, angles from which and to which keys turn", "[errors][kv][moves]") {
    MoveRun s;
    const auto make = [&](const halyard_angle_source_desc &desc) { return halyard::angle_source(s.frequencies, desc); };
    auto table = describe_source(HALYARD_ANGLES_TABLE, 0, 9);
    const auto exact = make(table);
    table.reference = HALYARD_REFERENCE_HF_F32;
    const auto rounded = make(table), by_rows = make(describe_given(s.at(3000), s.at(3000), 6, 4, 8));
    const auto narrow = make_source(halyard::frequencies::from_base(100.0, 6), HALYARD_ANGLES_PHASE, 0, 0);
    s.kv_args.from_angles = exact.get();  // so that from_angles differ from angles
    for (const auto &[what, field] :
         {std::pair("from_angles ", &s.kv_args.from_angles), std::pair("angles ", &s.args.angles)}) {
        s.runs.accept({{*field, exact.get()}});
        s.runs.refuse({
            {HALYARD_ERROR_MISMATCH, {what, "has another reference than EXACT"}, {{*field, rounded.get()}}},
            {HALYARD_ERROR_MISMATCH, {what, "has given rows"}, {{*field, by_rows.get()}}},
            {HALYARD_ERROR_MISMATCH, {what, "has a rotary_dim of 6, but the plan's is 8"}, {{*field, narrow.get()}}},
        });
    }
}

TEST_CASE("errors: moves, positions", "[errors][kv][moves]") {
    MoveRun s;
    const CallChecker &runs = s.runs;
    auto &from = s.from_positions;
    runs.accept_each({{}, {{s.args.positions, nullptr}}, {{from.data, s.positions.data}}});  // NULL: 0, 1, 2, …
    runs.refuse_each(HALYARD_ERROR_MISMATCH, {HALYARD_BAD_POSITION_CLAMP, HALYARD_BAD_POSITION_IDENTITY},
                     {s.args.bad_position});
    runs.refuse({
        {HALYARD_ERROR_SHAPE, {}, {{from.shape[1], 2}}},
        {HALYARD_ERROR_SHAPE, {}, {{from.n_axes, 2}}},
        {HALYARD_ERROR_OVERLAP, {"stages[1].cache", "from_positions.data"}, {{from.data, s.at(1310)}}},
        {HALYARD_ERROR_OVERLAP, {"y[0]", "from_positions.data"}, {{from.data, s.at(90)}}},
        {HALYARD_ERROR_OVERFLOW,
         {"from_positions.data leaves"},
         {{s.args.positions, nullptr}, {from.data, before_the_end_of_memory<const void *>(3)}}},
    });
    for (const auto &[name, first] : {std::pair("positions", 2200), std::pair("from_positions", 2300)}) {
        auto &position = s.numbers(first)[4];
        runs.accept({{position, INT32_MIN}});
        runs.accept({{position, INT32_MAX}});
        runs.refuse_each(HALYARD_ERROR_POSITION, {std::int64_t{INT32_MIN} - 1, std::int64_t{INT32_MAX} + 1},
                         {{name + std::string("[batch 1, token 1]"), position}});
        // A token without a slot is padding, so its position may be bad, unless a tensor without a cache has the token.
        auto &padding = s.numbers(first)[2];
        runs.refuse_each(HALYARD_ERROR_POSITION, {INT64_MIN, INT64_MAX},
                         {{name + std::string("[batch 0, token 2]"), padding}});
        runs.accept({{padding, INT64_MIN}, {s.x[0].shape[2], 0}, {s.y[0].shape[2], 0}});
        runs.refuse(HALYARD_ERROR_POSITION, {name + std::string("[batch 0, token 1]")},  // this token has slot 0
                    {{s.numbers(first)[1], INT64_MIN}, {s.x[0].shape[2], 0}, {s.y[0].shape[2], 0}});
        // If batch rows share positions, token 2 is padding in row 0 but stored in row 1.
        runs.refuse(HALYARD_ERROR_POSITION, {name + std::string("[batch 1, token 2]")},
                    {{padding, INT64_MIN},
                     {s.x[0].shape[2], 0},
                     {s.y[0].shape[2], 0},
                     {(first == 2200 ? s.positions : from).shape[0], 1}});
    }
    // Plans that do not re-rotate must not have from_positions.
    s.plan.rerotates = 0;
    s.plan.n_tensors = 1;
    s.kv_args.slots = nullptr;
    s.kv_args.stages = nullptr;
    s.args.positions = nullptr;
    runs.refuse(HALYARD_ERROR_MISMATCH, {"args.kv.from_positions is set"}, {});
    runs.refuse(HALYARD_ERROR_MISMATCH, {"args.kv.from_angles is set"},
                {{s.kv_args.from_positions, nullptr}, {s.kv_args.from_angles, s.args.angles}});
}

TEST_CASE("errors: moves, slots", "[errors][kv][moves]") {
    MoveRun s;
    s.runs.refuse({
        {HALYARD_ERROR_MISMATCH, {}, {{s.slots.policy, HALYARD_SLOTS_RANGE_ONLY}}},
        {HALYARD_ERROR_SLOT, {"slots[batch 1, token 2] is 0"}, {{s.numbers(2000)[5], 0}}},
        {HALYARD_ERROR_SHAPE, {"slots.shape is {2, 3}, but it must be {2, 1}"}, {{s.slots.consecutive, 1}}},
    });
    s.slots.consecutive = 1;
    s.slots.shape[1] = s.slots.strides[0] = 1;
    auto &first = s.numbers(2000)[0], &second = s.numbers(2000)[1];
    s.runs.accept({{first, 5}, {second, 2}});
    s.runs.accept({{first, 5}, {second, -1}});
    s.runs.refuse({
        {HALYARD_ERROR_SLOT, {"slots[batch 0, token 2] is 8"}, {{first, 6}, {second, 0}}},
        {HALYARD_ERROR_SLOT, {"slots[batch 1, token 0] is 4", "slots[batch 0, token 1]"}, {{first, 3}, {second, 4}}},
        {HALYARD_ERROR_SLOT, {"slots[batch 0, token 0] is 9223372036854775806"}, {{first, INT64_MAX - 1}, {second, 0}}},
        {HALYARD_ERROR_SLOT, {"slots[batch 0, token 0] is -2"}, {{first, -2}, {second, 0}}},
    });
}

TEST_CASE("errors: moves, scales", "[errors][kv][moves]") {
    MoveRun s;
    using Float = std::numeric_limits<float>;
    auto &of_slot_7 = *s.at(1400 + 7 * 2 + 1), &of_slot_6 = *s.at(1400 + 6 * 2 + 1);  // no token has slot 6
    for (const float scale : {0.0f, -0.0f, -1.0f, Float::quiet_NaN(), Float::infinity(), Float::denorm_min()}) {
        s.runs.refuse(HALYARD_ERROR_SCALE, {"stages[1].scales_out[slot 7, head 1] is"}, {{of_slot_7, scale}});
        s.runs.accept({{of_slot_6, scale}});
        s.runs.refuse(HALYARD_ERROR_SCALE, {"stages[1].scales_out[token 2, head 0] is"},
                      s.without_cache(s.at(1300), {{s.stages[1].stride_scales[0], 6},
                                                   {*s.at(1400 + 6 + 2 * 2), scale}}));
    }
    s.runs.accept({{of_slot_7, Float::min()}});
    s.runs.accept({{of_slot_7, Float::max()}});
}

TEST_CASE("errors: moves, scales and zero points of records", "[errors][kv][moves][groups]") {
    MoveRun s;
    auto groups = halyard::describe_groups(HALYARD_GROUPS_OPENVINO_U8);
    auto cache = halyard::describe_hnd_cache(2, 4, MoveRun::H, 48);
    s.tensors[1] = halyard::describe_tensor(halyard::dtype::uint8, 40, halyard::pairing::half);
    s.kv[1] = sized<halyard_kv_desc>();
    s.tensors[1].kv = &s.kv[1];
    s.kv[1].groups = &groups;
    s.kv[1].cache = &cache;
    s.stages[1] = halyard::stages_into(s.at(1400));
    s.x[1] = s.y[1] =
        halyard::tensor(nullptr, halyard::dtype::uint8, {MoveRun::n_batch, MoveRun::n_tokens, MoveRun::H, 48});
    s.runs.accept({});
    float *const of_slot_7 = s.at(1400 + (96 + 48 + 36)), *const of_slot_6 = of_slot_7 - 12;  // scales of head 1
    const float infinite = std::numeric_limits<float>::infinity();
    const std::string record = "the record of slot 7, head 1, of tensor 1 has inf as the ";
    s.runs.refuse({
        {HALYARD_ERROR_SCALE, {record + "scale of group 0"}, {{of_slot_7[0], infinite}, {of_slot_7[1], infinite}}},
        {HALYARD_ERROR_SCALE, {record + "zero point of group 0", "no key was stored"}, {{of_slot_7[1], infinite}}},
    });
    s.runs.accept({{of_slot_6[0], infinite}});  // no token has slot 6
    s.runs.refuse(HALYARD_ERROR_SCALE, {"the record of token 2, head 0, of tensor 1 has inf as the scale of group 0"},
                  s.without_cache(s.at(1400), {{*s.at(1400 + 2 * 2 * 12), infinite}}));
    // The message names the first bad group of several.
    groups.preset = HALYARD_GROUPS_GGML_Q8_0;
    s.tensors[1].head_dim = 64;
    s.x[1].shape[3] = s.y[1].shape[3] = 68;
    cache = halyard::describe_hnd_cache(2, 4, MoveRun::H, 68);
    s.runs.accept({});
    auto &scale = reinterpret_cast<std::uint16_t *>(s.at(1400))[((8 + 4 + 3) * 68 + 34) / 2];
    s.runs.refuse(HALYARD_ERROR_SCALE, {record + "scale of group 1"}, {{scale, 0x7c00}});
}

TEST_CASE("errors: moves, bound", "[errors][kv][moves]") {
    MoveRun s;
    BoundRun bound(s);
    bound.calls.refuse(HALYARD_ERROR_MISMATCH, {"args.kv.from_positions.data is NULL, but the run was bound with"},
                       {{bound.from_positions.data, nullptr}});
    bound.calls.refuse(HALYARD_ERROR_STRUCT_SIZE, {"from_positions.size is 8"}, {{bound.from_positions.size, 8}});
    s.plan.rerotates = 0;
    s.plan.n_tensors = 1;
    s.args.positions = nullptr;
    s.kv_args.from_positions = nullptr;
    s.kv_args.slots = nullptr;
    s.kv_args.stages = nullptr;
    BoundRun rotates(s);
    rotates.calls.refuse(HALYARD_ERROR_MISMATCH, {"args.kv.from_positions is set, but the plan does not rerotate"},
                         {{rotates.kv.from_positions, &s.from_positions}});
    rotates.calls.refuse(HALYARD_ERROR_MISMATCH, {"args.kv.from_angles is set, but the plan does not rerotate"},
                         {{rotates.kv.from_angles, s.args.angles}});
    rotates.calls.refuse(HALYARD_ERROR_MISMATCH, {"args.kv.slots is set, but no tensor of the plan has a cache"},
                         {{rotates.kv.slots, &s.slots}});
}
