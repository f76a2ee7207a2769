// Bad arguments of roads: plans with stages that cannot be, and runs that bring what does not fit. Each has its status,
// and a sentence that names the argument and its value; nothing is written. Beside each bad value stands a good one.
#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "halyard/halyard.hpp"
#include "refused.h"

#include <catch2/catch_get_random_seed.hpp>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN(),
                 infinite = std::numeric_limits<double>::infinity();

/// A plan of q in place, k with norm, static scales and a cache, v with dynamic scales and another cache; and a run.
/// All memory lies in one arena.
struct RoadScene {
    static constexpr std::int64_t n_batch = 2, n_tokens = 3, H = 2, D = 8, bs = 4, n_slots = 8;

    halyard::frequencies frequencies = halyard::frequencies::from_base(100.0, D);
    halyard::angle_source angles = halyard::angle_source::table(frequencies, 0, 9);
    halyard_norm_desc norm = halyard::describe_norm(halyard::dtype::f32);
    halyard_scale_desc fixed = halyard::describe_static_scales(HALYARD_SCALE_PER_HEAD);
    halyard_scale_desc dynamic = halyard::describe_dynamic_scales();
    halyard_cache_desc k_cache = halyard::describe_hnd_cache(n_slots / bs, bs, H, D);
    halyard_cache_desc v_cache = halyard::describe_nhd_cache(n_slots / bs, bs, H, D);
    halyard_tensor_desc tensors[3];
    halyard_plan_desc plan = halyard::make_struct<halyard_plan_desc>();
    std::vector<float> arena = std::vector<float>(4096);
    halyard_tensor x[3], y[3];
    halyard_stages stages[3];
    halyard_slots slots;
    halyard_run_args args = halyard::make_struct<halyard_run_args>();

    float *at(std::int64_t element) { return arena.data() + element; }
    std::int64_t *slot_values() { return reinterpret_cast<std::int64_t *>(at(2000)); }

    RoadScene() {
        std::iota(arena.begin(), arena.end(), 1.0f);
        auto head = halyard::describe_tensor(halyard::dtype::f32, D, halyard::pairing::half);
        std::fill(tensors, tensors + 3, head);
        tensors[1].norm = &norm;
        tensors[1].scale = &fixed;
        tensors[1].cache = &k_cache;
        tensors[2].no_rotation = 1;
        tensors[2].out_dtype = HALYARD_E4M3;
        tensors[2].scale = &dynamic;
        tensors[2].cache = &v_cache;
        plan.rotary_dim = D;
        plan.n_tensors = 3;
        plan.tensors = tensors;
        for (int i = 0; i < 3; i++) {
            x[i] = y[i] = halyard::tensor(at(200 * i), halyard::dtype::f32, {n_batch, n_tokens, H, D});
            stages[i] = halyard::stages();
        }
        stages[1] = halyard::stages(at(900), D, at(1000));  // 128 elements
        stages[1].scales = at(950);
        stages[1].n_scales = H;
        stages[2] = halyard::stages(at(1300));  // 128 bytes
        stages[2].scales_out = at(1400);        // 16
        stages[2].stride_scales[1] = H;
        stages[2].stride_scales[2] = 1;
        const std::int64_t values[] = {5, 0, -1, 7, 2, 3};
        std::copy_n(values, 6, slot_values());
        slots = halyard::slots(slot_values(), {n_batch, n_tokens}, at(2100), 1);
        args.angles = angles.get();
        args.x = x;
        args.y = y;
        args.slots = &slots;
        args.stages = stages;
    }
    RoadScene(const RoadScene &) = delete;
    RoadScene &operator=(const RoadScene &) = delete;
};
using Change = std::function<void(RoadScene &)>;

/// The plan is refused.
void refuse_plan(halyard_status status, const Words &words, const Change &change) {
    CAPTURE(words);
    RoadScene scene;
    change(scene);
    auto *const untouched = reinterpret_cast<halyard_plan *>(16);
    halyard_plan *plan = untouched;
    check_refused(status, words, [&](auto *error) { return halyard_create_plan(&scene.plan, &plan, error); });
    CHECK(plan == untouched);
}

void accept_plan(const Change &change) {
    RoadScene scene;
    change(scene);
    halyard_plan *plan = nullptr;
    auto error = sized<halyard_error>();
    const halyard_status status = halyard_create_plan(&scene.plan, &plan, &error);
    CAPTURE(error.message);
    CHECK(status == HALYARD_OK);
    halyard_destroy_plan(plan);
}

/// The run is refused: whole, each part of it, and bound, where that is told when it is bound or when it runs.
void refuse_run(halyard_status status, const Words &words, const Change &change) {
    CAPTURE(words);
    RoadScene scene;
    change(scene);
    const halyard::plan plan(scene.plan);
    const auto before = scene.arena;
    // The scratch may be written, but nothing else.
    const auto is_untouched = [&] {
        auto after = scene.arena;
        after[2100] = before[2100];
        return std::memcmp(after.data(), before.data(), before.size() * sizeof(float)) == 0;
    };
    check_refused(status, words, [&](auto *error) { return halyard_run(plan.get(), &scene.args, error); });
    CHECK(is_untouched());
    for (const std::int32_t part : {0, 1, 2}) {
        auto args = scene.args;
        args.part = part;
        args.n_parts = 3;
        check_refused(status, words, [&](auto *error) { return halyard_run(plan.get(), &args, error); });
        CHECK(is_untouched());
    }
}

void accept_run(const Change &change) {
    RoadScene scene;
    change(scene);
    const halyard::plan plan(scene.plan);
    auto error = sized<halyard_error>();
    const halyard_status status = halyard_run(plan.get(), &scene.args, &error);
    CAPTURE(error.message);
    CHECK(status == HALYARD_OK);
}

}  // namespace

TEST_CASE("errors: roads, norms of a plan", "[errors][road]") {
    accept_plan([](auto &) {});
    for (const std::uint32_t size : bad_sizes<halyard_norm_desc>()) {
        refuse_plan(HALYARD_ERROR_STRUCT_SIZE, {"tensors[1].norm.size", text(size)},
                    [=](auto &s) { s.norm.size = size; });
    }
    struct Field {
        const char *name;
        std::int32_t halyard_norm_desc::*field;
        std::int32_t last;
    };
    for (const Field &f :
         {Field{"kind", &halyard_norm_desc::kind, 0}, Field{"width", &halyard_norm_desc::width, 1},
          Field{"order", &halyard_norm_desc::order, 1}, Field{"unit_offset", &halyard_norm_desc::unit_offset, 1},
          Field{"rounding", &halyard_norm_desc::rounding, 3}, Field{"no_eps", &halyard_norm_desc::no_eps, 1}}) {
        for (const std::int32_t value : {-1, f.last + 1, INT32_MAX, INT32_MIN}) {
            refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].norm->" + std::string(f.name) + " is " + text(value)},
                        [&](auto &s) { s.norm.*f.field = value; });
        }
        accept_plan([&](auto &s) {
            s.norm.eps = 0;
            s.norm.*f.field = f.last;
        });
    }
    for (const std::int32_t dtype : {-1, 7, int{HALYARD_E4M3}, int{HALYARD_INT8}}) {
        refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].norm->weight_dtype is " + text(dtype)},
                    [=](auto &s) { s.norm.weight_dtype = dtype; });
    }
    refuse_plan(HALYARD_ERROR_MISMATCH, {"unit_offset is 1", "no weight"}, [](auto &s) {
        s.norm.weight_dtype = 0;
        s.norm.unit_offset = 1;
    });
    for (const double eps : {-1e-6, nan_value, infinite, -infinite, 1e39}) {
        refuse_plan(HALYARD_ERROR_SCALE, {"tensors[1].norm->eps is "}, [=](auto &s) { s.norm.eps = eps; });
    }
    for (const double eps : {0.0, 1e-5, 1.0, 1e38}) {
        accept_plan([=](auto &s) { s.norm.eps = eps; });
    }
    refuse_plan(HALYARD_ERROR_MISMATCH, {"eps is 1e-06", "no_eps is 1"}, [](auto &s) { s.norm.no_eps = 1; });
    const std::int64_t D = RoadScene::D;
    struct Window {
        std::int64_t offset, size;
    };
    for (const Window &w : {Window{-1, 4}, Window{D, 0}, Window{D, 1}, Window{0, D + 1}, Window{4, 5}, Window{0, -1},
                            Window{1, INT64_MAX}, Window{INT64_MIN, 0}, Window{INT64_MAX, INT64_MAX}}) {
        refuse_plan(HALYARD_ERROR_WINDOW, {"window_offset is " + text(w.offset), "window_size " + text(w.size)},
                    [=](auto &s) {
                        s.norm.window_offset = w.offset;
                        s.norm.window_size = w.size;
                    });
    }
    refuse_plan(HALYARD_ERROR_MISMATCH, {"window_size is 4", "rows"}, [](auto &s) {
        s.norm.width = HALYARD_NORM_ROW;
        s.norm.window_size = 4;
    });
    refuse_plan(HALYARD_ERROR_MISMATCH, {"window_offset is 2", "rows"}, [](auto &s) {
        s.norm.width = HALYARD_NORM_ROW;
        s.norm.window_offset = 2;
    });
    refuse_plan(HALYARD_ERROR_UNSUPPORTED, {"tensors[1].head_dim is 2050", "2048"}, [](auto &s) {
        s.tensors[1].head_dim = 2050;
        s.k_cache = halyard::describe_hnd_cache(2, 4, RoadScene::H, 2050);
    });
}

TEST_CASE("errors: roads, dtypes, scales and caches of a plan", "[errors][road]") {
    for (const std::int32_t dtype : {HALYARD_E4M3, HALYARD_E5M2, HALYARD_INT8}) {
        refuse_plan(HALYARD_ERROR_UNSUPPORTED, {"tensors[0].dtype is ", "only outputs"},
                    [=](auto &s) { s.tensors[0].dtype = dtype; });
        accept_plan([=](auto &s) { s.tensors[0].out_dtype = dtype; });
    }
    for (const std::int32_t value : {-1, 2}) {
        refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[0].no_rotation is " + text(value)},
                    [=](auto &s) { s.tensors[0].no_rotation = value; });
        refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].scale->kind is " + text(value)},
                    [=](auto &s) { s.fixed.kind = value; });
        refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].scale->per is " + text(2 * value)},
                    [=](auto &s) { s.fixed.per = 2 * value; });
        refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].scale->reserved is " + text(value)},
                    [=](auto &s) { s.fixed.reserved = value; });
        refuse_plan(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].cache->reserved is " + text(value)},
                    [=](auto &s) { s.k_cache.reserved = value; });
    }
    refuse_plan(HALYARD_ERROR_STRUCT_SIZE, {"tensors[2].scale.size is 0"}, [](auto &s) { s.dynamic.size = 0; });
    refuse_plan(HALYARD_ERROR_STRUCT_SIZE, {"tensors[2].cache.size is 4"}, [](auto &s) { s.v_cache.size = 4; });
    refuse_plan(HALYARD_ERROR_MISMATCH, {"tensors[2].scale->per is 1"}, [](auto &s) { s.dynamic.per = 1; });
    refuse_plan(HALYARD_ERROR_MISMATCH, {"tensors[2].out_dtype is bf16", "dynamic"},
                [](auto &s) { s.tensors[2].out_dtype = HALYARD_BF16; });
    refuse_plan(HALYARD_ERROR_ROTARY_DIM, {"rotary_dim is 0"}, [](auto &s) { s.plan.rotary_dim = 0; });
    accept_plan([](auto &s) {
        s.plan.rotary_dim = 0;
        s.tensors[0].no_rotation = s.tensors[1].no_rotation = 1;
    });
    accept_plan([](auto &s) { s.tensors[2].pairing = 99; });  // of what is not rotated, not read

    struct Field {
        const char *name;
        std::int64_t halyard_cache_desc::*field;
        bool may_be_zero;
    };
    for (const Field &f : {Field{"n_slots", &halyard_cache_desc::n_slots, false},
                           Field{"block_size", &halyard_cache_desc::block_size, true},
                           Field{"tile_tokens", &halyard_cache_desc::tile_tokens, true},
                           Field{"stride_tile_tokens", &halyard_cache_desc::stride_tile_tokens, true},
                           Field{"stride_token", &halyard_cache_desc::stride_token, true},
                           Field{"tile_elements", &halyard_cache_desc::tile_elements, true},
                           Field{"stride_tile_elements", &halyard_cache_desc::stride_tile_elements, true},
                           Field{"stride_element", &halyard_cache_desc::stride_element, true},
                           Field{"extent", &halyard_cache_desc::extent, true}}) {
        for (const std::int64_t value : {std::int64_t{-1}, INT64_MIN, std::int64_t{f.may_be_zero ? -7 : 0}}) {
            refuse_plan(HALYARD_ERROR_SHAPE, {"tensors[1].cache->" + std::string(f.name) + " is " + text(value)},
                        [&](auto &s) { s.k_cache.*f.field = value; });
        }
    }
    refuse_plan(HALYARD_ERROR_SHAPE, {"n_slots is 9", "multiple of block_size, 4"},
                [](auto &s) { s.k_cache.n_slots = 9; });
    // A head's tokens of 8 elements each, 4 of them: 32 elements.
    refuse_plan(HALYARD_ERROR_STRIDE, {"extent is 31", "element 31"}, [](auto &s) { s.k_cache.extent = 31; });
    accept_plan([](auto &s) { s.k_cache.extent = 32; });
    refuse_plan(HALYARD_ERROR_STRIDE, {"tensors[1].cache", "could meet"}, [](auto &s) { s.k_cache.stride_token = 7; });
    accept_plan([](auto &s) { s.k_cache.stride_token = 9; });
    refuse_plan(HALYARD_ERROR_STRIDE, {"could meet"}, [](auto &s) { s.k_cache.stride_block = 31; });
    refuse_plan(HALYARD_ERROR_STRIDE, {"could meet"}, [](auto &s) { s.k_cache.stride_block = -31; });
    refuse_plan(HALYARD_ERROR_OVERFLOW, {"tensors[1].cache", "address space"},
                [](auto &s) { s.k_cache.stride_token = INT64_MAX / 2; });
    refuse_plan(HALYARD_ERROR_OVERFLOW, {"address space"}, [](auto &s) { s.k_cache.stride_block = INT64_MIN; });
    refuse_plan(HALYARD_ERROR_OVERFLOW, {"address space"}, [](auto &s) {
        s.k_cache.n_slots = INT64_MAX / 4 * 4;
        s.k_cache.stride_block = 1 << 20;
    });
}

TEST_CASE("errors: roads, slots of a run", "[errors][road]") {
    accept_run([](auto &) {});
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"args.slots is NULL"}, [](auto &s) { s.args.slots = nullptr; });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"slots.data is NULL"}, [](auto &s) { s.slots.data = nullptr; });
    for (const std::uint32_t size : bad_sizes<halyard_slots>()) {
        refuse_run(HALYARD_ERROR_STRUCT_SIZE, {"slots.size", text(size)}, [=](auto &s) { s.slots.size = size; });
    }
    for (const std::int32_t value : {-1, 2, INT32_MIN}) {
        refuse_run(HALYARD_ERROR_UNKNOWN_VALUE, {"slots.type is " + text(value)},
                   [=](auto &s) { s.slots.type = value; });
        refuse_run(HALYARD_ERROR_UNKNOWN_VALUE, {"slots.policy is " + text(value)},
                   [=](auto &s) { s.slots.policy = value; });
        refuse_run(HALYARD_ERROR_UNKNOWN_VALUE, {"slots.consecutive is " + text(value)},
                   [=](auto &s) { s.slots.consecutive = value; });
    }
    for (const int i : {0, 1}) {
        for (const std::int64_t n : {std::int64_t{1}, std::int64_t{0}, std::int64_t{-1}, INT64_MAX}) {
            refuse_run(HALYARD_ERROR_SHAPE, {"slots.shape", text(n), "{2, 3}"}, [=](auto &s) { s.slots.shape[i] = n; });
        }
        refuse_run(HALYARD_ERROR_OVERFLOW, {"slots", text(INT64_MAX)},
                   [=](auto &s) { s.slots.strides[i] = INT64_MAX; });
    }
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"slots.scratch is NULL", "1 bytes"},
               [](auto &s) { s.slots.scratch = nullptr; });
    for (const std::int64_t n : Numbers{0, -1}) {
        refuse_run(HALYARD_ERROR_SHAPE, {"slots.scratch_bytes is " + text(n), "at least 1 for 8 slots"},
                   [=](auto &s) { s.slots.scratch_bytes = n; });
    }
    for (const std::int64_t slot : {std::int64_t{-2}, std::int64_t{8}, INT64_MAX, INT64_MIN}) {
        for (const std::int32_t policy : {HALYARD_SLOTS_CHECK, HALYARD_SLOTS_RANGE_ONLY}) {
            refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 1, token 1] is " + text(slot), "-1 to 7"}, [=](auto &s) {
                s.slot_values()[4] = slot;
                s.slots.policy = policy;
            });
        }
    }
    // The smaller of two caches counts.
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 0, token 0] is 5", "-1 to 3"},
               [](auto &s) { s.v_cache = halyard::describe_nhd_cache(1, 4, RoadScene::H, RoadScene::D); });
    refuse_run(HALYARD_ERROR_SLOT, {"slots[batch 1, token 2] is 0, as is slots[batch 0, token 1]"},
               [](auto &s) { s.slot_values()[5] = 0; });
    accept_run([](auto &s) {
        s.slot_values()[5] = 0;
        s.slots.policy = HALYARD_SLOTS_RANGE_ONLY;
        s.slots.scratch = nullptr;
    });
    accept_run([](auto &s) { s.slot_values()[5] = s.slot_values()[4] = -1; });
    refuse_run(HALYARD_ERROR_MISMATCH, {"args.slots is set", "no tensor"}, [](auto &s) {
        s.plan.n_tensors = 1;
        s.args.stages = nullptr;
    });
    accept_run([](auto &s) {
        s.plan.n_tensors = 1;
        s.args.stages = nullptr;
        s.args.slots = nullptr;
    });
    refuse_run(HALYARD_ERROR_OVERFLOW, {"slots.scratch leaves the address space"},
               [](auto &s) { s.slots.scratch = reinterpret_cast<void *>(UINTPTR_MAX); });
    // Scratch and slots share memory with nothing that is written or read.
    refuse_run(HALYARD_ERROR_OVERLAP, {"slots.scratch", "slots.data"}, [](auto &s) { s.slots.scratch = s.at(2000); });
    refuse_run(HALYARD_ERROR_OVERLAP, {"slots.scratch", "y[0]"}, [](auto &s) { s.slots.scratch = s.at(7); });
    refuse_run(HALYARD_ERROR_OVERLAP, {"slots.scratch", "stages[1].cache"},
               [](auto &s) { s.slots.scratch = s.at(1127); });
    accept_run([](auto &s) { s.slots.scratch = s.at(1128); });
}

TEST_CASE("errors: roads, stages of a run", "[errors][road]") {
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"args.stages is NULL", "tensors[1] has a cache"},
               [](auto &s) { s.args.stages = nullptr; });
    const auto without_stages = [](auto &s, bool has_norm, bool has_scale) {
        s.tensors[1].norm = has_norm ? &s.norm : nullptr;
        s.tensors[1].scale = has_scale ? &s.fixed : nullptr;
        s.tensors[1].cache = nullptr;
        s.plan.n_tensors = 2;
        s.args.slots = nullptr;
        s.args.stages = nullptr;
    };
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"args.stages is NULL", "tensors[1] has a norm with a weight"},
               [&](auto &s) { without_stages(s, true, false); });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"args.stages is NULL", "tensors[1] has a scale"},
               [&](auto &s) { without_stages(s, false, true); });
    accept_run([&](auto &s) { without_stages(s, false, false); });
    accept_run([&](auto &s) {
        without_stages(s, true, false);
        s.norm.weight_dtype = 0;
    });
    accept_run([](auto &s) {  // nothing is asked of a tensor without heads
        s.x[1].shape[2] = 0;
        s.stages[1] = halyard::stages();
    });
    refuse_run(HALYARD_ERROR_STRUCT_SIZE, {"stages[2].size is 8"}, [](auto &s) { s.stages[2].size = 8; });
    refuse_run(HALYARD_ERROR_UNKNOWN_VALUE, {"stages[0].reserved is 1"}, [](auto &s) { s.stages[0].reserved = 1; });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"stages[1].weight is NULL"}, [](auto &s) { s.stages[1].weight = nullptr; });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"stages[1].scales is NULL"}, [](auto &s) { s.stages[1].scales = nullptr; });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"stages[2].scales_out is NULL"},
               [](auto &s) { s.stages[2].scales_out = nullptr; });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"stages[2].cache is NULL"}, [](auto &s) { s.stages[2].cache = nullptr; });
    refuse_run(HALYARD_ERROR_MISMATCH, {"stages[0].weight is set"}, [](auto &s) { s.stages[0].weight = s.at(0); });
    refuse_run(HALYARD_ERROR_MISMATCH, {"stages[2].scales is set"}, [](auto &s) { s.stages[2].scales = s.at(950); });
    refuse_run(HALYARD_ERROR_MISMATCH, {"stages[1].scales_out is set"},
               [](auto &s) { s.stages[1].scales_out = s.at(950); });
    refuse_run(HALYARD_ERROR_MISMATCH, {"stages[0].cache is set"}, [](auto &s) { s.stages[0].cache = s.at(950); });
    for (const std::int64_t n : {std::int64_t{7}, std::int64_t{9}, std::int64_t{0}, std::int64_t{-1}, INT64_MAX}) {
        refuse_run(HALYARD_ERROR_SHAPE, {"stages[1].n_weights is " + text(n), "8"},
                   [=](auto &s) { s.stages[1].n_weights = n; });
        refuse_run(HALYARD_ERROR_SHAPE, {"stages[1].n_scales is " + text(n), "2"},
                   [=](auto &s) { s.stages[1].n_scales = n; });
    }
    accept_run([](auto &s) {
        s.norm.width = HALYARD_NORM_ROW;
        s.stages[1].n_weights = RoadScene::H * RoadScene::D;
    });
    for (const double scale : {0.0, -0.0, -1.0, nan_value, infinite, 0x1p-140}) {
        refuse_run(HALYARD_ERROR_SCALE, {"stages[1].scales[1] is "},
                   [=](auto &s) { *s.at(951) = static_cast<float>(scale); });
    }
    for (const double scale : {0x1p-126, 0x1.fffffep127, 1.0}) {
        accept_run([=](auto &s) { *s.at(951) = static_cast<float>(scale); });
    }
    refuse_run(HALYARD_ERROR_STRIDE, {"tensors[1].cache->stride_head is 31"},
               [](auto &s) { s.k_cache.stride_head = 31; });
    accept_run([](auto &s) { s.k_cache.stride_head = 32; });
    refuse_run(HALYARD_ERROR_STRIDE, {"stages[2].stride_scales is 0, 1, 1"},
               [](auto &s) { s.stages[2].stride_scales[1] = 1; });
    refuse_run(HALYARD_ERROR_OVERFLOW, {"stages[2].scales_out", "address space"},
               [](auto &s) { s.stages[2].stride_scales[1] = INT64_MAX; });
    refuse_run(HALYARD_ERROR_OVERFLOW, {"stages[1].cache", "address space"},
               [](auto &s) { s.stages[1].cache = reinterpret_cast<void *>(UINTPTR_MAX - 100); });
    refuse_run(HALYARD_ERROR_OVERFLOW, {"stages[1].weight", "address space"},
               [](auto &s) { s.stages[1].weight = reinterpret_cast<void *>(UINTPTR_MAX - 30); });
    refuse_run(HALYARD_ERROR_OVERFLOW, {"stages[1].scales", "address space"},
               [](auto &s) { s.stages[1].scales = reinterpret_cast<float *>(UINTPTR_MAX - 6); });
    refuse_run(HALYARD_ERROR_UNSUPPORTED, {"rows of 1025 x 8", "8192"}, [](auto &s) {
        s.norm.width = HALYARD_NORM_ROW;
        s.x[1].shape[2] = 1025;
        s.x[1].strides[2] = 0;
    });
    // Overlaps, each with the nearest place that is right.
    const auto overlap = [](const Words &words, const Change &wrong, const Change &right) {
        refuse_run(HALYARD_ERROR_OVERLAP, words, wrong);
        accept_run(right);
    };
    overlap(
        {"stages[1].cache", "x[2]"}, [](auto &s) { s.stages[1].cache = s.at(495); },
        [](auto &s) { s.stages[1].cache = s.at(496); });
    overlap(
        {"y[0]", "stages[1].weight"}, [](auto &s) { s.stages[1].weight = s.at(95); },
        [](auto &s) { s.stages[1].weight = s.at(96); });
    overlap(
        {"stages[1].cache", "stages[1].scales"}, [](auto &s) { s.stages[1].cache = s.at(951); },
        [](auto &s) { s.stages[1].cache = s.at(952); });
    overlap(
        {"stages[2].cache", "stages[1].cache"}, [](auto &s) { s.stages[2].cache = s.at(1127); },
        [](auto &s) { s.stages[2].cache = s.at(1128); });
    overlap(
        {"stages[2].scales_out", "stages[2].cache"}, [](auto &s) { s.stages[2].scales_out = s.at(1331); },
        [](auto &s) { s.stages[2].scales_out = s.at(1332); });
    overlap(
        {"stages[2].scales_out", "slots.data"}, [](auto &s) { s.stages[2].scales_out = s.at(2000); },
        [](auto &s) { s.stages[2].scales_out = s.at(2012); });
    // In place goes only where nothing changes its size.
    refuse_run(HALYARD_ERROR_OVERLAP, {"y[0] shares elements with x[0]", "only an output of its input's dtype"},
               [](auto &s) {
                   s.tensors[0].out_dtype = HALYARD_BF16;
                   s.y[0].dtype = HALYARD_BF16;
               });
    refuse_run(HALYARD_ERROR_MISMATCH, {"y[0].dtype is f32, but the plan's is bf16"},
               [](auto &s) { s.tensors[0].out_dtype = HALYARD_BF16; });
    accept_run([](auto &s) {
        s.tensors[0].out_dtype = s.y[0].dtype = HALYARD_BF16;
        s.y[0].data = s.at(3000);
    });
    accept_run([](auto &s) { s.y[1].size = 0; });  // of a tensor with a cache, not read
    accept_run([](auto &s) {                       // nothing is rotated, so angles are not needed
        s.tensors[0].no_rotation = s.tensors[1].no_rotation = 1;
        s.args.angles = nullptr;
    });
    refuse_run(HALYARD_ERROR_NULL_POINTER, {"args.angles is NULL"}, [](auto &s) { s.args.angles = nullptr; });
}

TEST_CASE("errors: roads, counts and strides that nothing bounds", "[errors][road]") {
    // As many scales as are said to be there are looked at, whatever the heads ask for.
    const GuardedMemory memory(1);
    refuse_run(HALYARD_ERROR_SHAPE, {"stages[1].n_scales is 2", "3"}, [&](auto &s) {
        s.x[1].shape[2] = 3;
        s.k_cache.stride_block = 96;
        s.stages[1].scales = reinterpret_cast<float *>(memory.end()) - 2;
        std::fill_n(reinterpret_cast<float *>(memory.end()) - 2, 2, 1.0f);
    });
    // Heads without an end, in a cache whose heads could all lie in one place.
    refuse_run(HALYARD_ERROR_OVERFLOW, {"stages[1].scales", "address space"}, [](auto &s) {
        s.fixed.per = HALYARD_SCALE_PER_HEAD_AND_CHANNEL;
        s.x[1].shape[2] = INT64_MAX / 2;
        s.x[1].strides[2] = s.k_cache.stride_head = 0;
    });
    // Tokens without an end, in inputs and slots of stride 0.
    refuse_run(HALYARD_ERROR_OVERFLOW, {"slots.shape", text(std::int64_t{1} << 32)}, [](auto &s) {
        s.tensors[0] = s.tensors[2];
        s.stages[0] = s.stages[2];
        s.plan.n_tensors = 1;
        for (int i = 0; i < 2; i++) {
            s.x[0].shape[i] = s.slots.shape[i] = std::int64_t{1} << 32;
            s.x[0].strides[i] = s.slots.strides[i] = 0;
        }
    });
    // The stride of what there is one of may be anything.
    for (const std::int64_t stride : {INT64_MIN, INT64_MAX}) {
        accept_run([=](auto &s) {
            s.x[1].shape[2] = 1;
            s.stages[1].n_scales = 1;
            s.k_cache.stride_head = stride;
        });
        accept_run([=](auto &s) {
            s.tensors[0].no_rotation = s.tensors[0].head_dim = s.x[0].shape[3] = s.y[0].shape[3] = 1;
            s.x[0].strides[3] = stride;
        });
    }
}

TEST_CASE("errors: roads, bound runs", "[errors][road][bound]") {
    struct Bound {
        RoadScene scene;
        halyard::plan plan{scene.plan};
        halyard_bound_run *bound = nullptr;
        const void *x[3];
        void *y[3];
        const void *weights[3];
        const float *scales[3];
        float *scales_out[3];
        void *caches[3];
        halyard_bound_run_args args = halyard::make_struct<halyard_bound_run_args>();

        Bound() {
            REQUIRE(halyard_bind_run(plan.get(), &scene.args, &bound, nullptr) == HALYARD_OK);
            for (int i = 0; i < 3; i++) {
                x[i] = scene.x[i].data;
                y[i] = i == 0 ? scene.y[i].data : nullptr;
                weights[i] = scene.stages[i].weight;
                scales[i] = scene.stages[i].scales;
                scales_out[i] = scene.stages[i].scales_out;
                caches[i] = scene.stages[i].cache;
            }
            args.n_tensors = 3;
            args.x = x;
            args.y = y;
            args.slots = scene.slots.data;
            args.slots_scratch = scene.slots.scratch;
            args.weights = weights;
            args.scales = scales;
            args.scales_out = scales_out;
            args.caches = caches;
        }
        ~Bound() { halyard_destroy_bound_run(bound); }
    };
    const auto refuse = [](halyard_status status, const Words &words, const std::function<void(Bound &)> &change) {
        CAPTURE(words);
        Bound b;
        change(b);
        const auto before = b.scene.arena;
        check_refused(status, words, [&](auto *error) { return halyard_run_bound(b.bound, &b.args, error); });
        auto after = b.scene.arena;
        after[2100] = before[2100];
        CHECK(std::memcmp(after.data(), before.data(), before.size() * sizeof(float)) == 0);
    };
    Bound good;
    CHECK(halyard_run_bound(good.bound, &good.args, nullptr) == HALYARD_OK);
    {
        RoadScene v;  // alone, so that there are neither angles nor positions
        v.tensors[0] = v.tensors[2];
        v.stages[0] = v.stages[2];
        v.x[0] = v.x[2];
        v.plan.n_tensors = 1;
        v.args.angles = nullptr;
        const halyard::plan plan(v.plan);
        REQUIRE(halyard_run(plan.get(), &v.args, nullptr) == HALYARD_OK);
        const auto expected = v.arena;
        halyard_bound_run *bound = nullptr;
        REQUIRE(halyard_bind_run(plan.get(), &v.args, &bound, nullptr) == HALYARD_OK);
        std::fill_n(v.at(1300), 128 / 4, 0.0f);
        std::fill_n(v.at(1400), 16, 0.0f);
        const void *x[] = {v.x[0].data};
        void *y[] = {nullptr}, *caches[] = {v.stages[0].cache};
        float *scales_out[] = {v.stages[0].scales_out};
        auto args = halyard::make_struct<halyard_bound_run_args>();
        args.n_tensors = 1;
        args.x = x;
        args.y = y;
        args.slots = v.slots.data;
        args.slots_scratch = v.slots.scratch;
        args.scales_out = scales_out;
        args.caches = caches;
        CHECK(halyard_run_bound(bound, &args, nullptr) == HALYARD_OK);
        std::size_t n_same = 0;
        for (const std::int64_t slot : {5, 0, 7, 2, 3}) {
            n_same += std::memcmp(v.at(1300 + slot * 4), &expected[static_cast<std::size_t>(1300 + slot * 4)], 16) == 0;
        }
        CHECK(n_same == 5);
        halyard_destroy_bound_run(bound);
    }
    refuse(HALYARD_ERROR_NULL_POINTER, {"args.slots is NULL"}, [](auto &b) { b.args.slots = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"args.slots_scratch is NULL"}, [](auto &b) { b.args.slots_scratch = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"stages[1].weight is NULL"}, [](auto &b) { b.args.weights = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"stages[1].scales is NULL"}, [](auto &b) { b.scales[1] = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"stages[2].scales_out is NULL"}, [](auto &b) { b.scales_out[2] = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"stages[1].cache is NULL"}, [](auto &b) { b.args.caches = nullptr; });
    refuse(HALYARD_ERROR_NULL_POINTER, {"args.x[1] is NULL"}, [](auto &b) { b.x[1] = nullptr; });
    refuse(HALYARD_ERROR_MISMATCH, {"stages[0].cache is set"}, [](auto &b) { b.caches[0] = b.caches[1]; });
    refuse(HALYARD_ERROR_SCALE, {"stages[1].scales[0] is 0"}, [](auto &b) { *b.scene.at(950) = 0.0f; });
    refuse(HALYARD_ERROR_SLOT, {"slots[batch 0, token 2] is 8"}, [](auto &b) { b.scene.slot_values()[2] = 8; });
    refuse(HALYARD_ERROR_SLOT, {"slots[batch 0, token 2] is 5"}, [](auto &b) { b.scene.slot_values()[2] = 5; });
    refuse(HALYARD_ERROR_OVERLAP, {"stages[1].cache", "x[2]"}, [](auto &b) { b.caches[1] = b.scene.at(495); });
    refuse(HALYARD_ERROR_OVERLAP, {"stages[2].cache", "stages[1].cache"}, [](auto &b) { b.caches[2] = b.caches[1]; });
    refuse(HALYARD_ERROR_OVERLAP, {"stages[1].cache", "stages[1].weight"}, [](auto &b) { b.weights[1] = b.caches[1]; });
    refuse(HALYARD_ERROR_OVERLAP, {"stages[2].scales_out", "x[2]"}, [](auto &b) { b.scales_out[2] = b.scene.at(495); });
    refuse(HALYARD_ERROR_OVERLAP, {"slots.scratch", "slots.data"},
           [](auto &b) { b.args.slots_scratch = const_cast<void *>(b.args.slots); });
    refuse(HALYARD_ERROR_OVERFLOW, {"stages[1].cache", "address space"},
           [](auto &b) { b.caches[1] = reinterpret_cast<void *>(UINTPTR_MAX - 100); });
    refuse(HALYARD_ERROR_OVERFLOW, {"args.slots leaves the address space"},
           [](auto &b) { b.args.slots = reinterpret_cast<void *>(UINTPTR_MAX - 3); });
}

TEST_CASE("errors: roads, whatever is accepted stays in its memory and is the same in parts and bound",
          "[errors][road]") {
    oracle::Random random(Catch::getSeed());
    int n_accepted = 0, n_refused = 0;
    for (int round = 0; round < 20000; round++) {
        CAPTURE(round);
        RoadScene s;
        // Everything has room: caches of two dozen slots, whose strides are small, in the middle of the arena.
        s.stages[1].cache = s.at(3000);
        s.stages[2].cache = s.at(1300);
        std::vector<std::int64_t *> longs = {&s.norm.window_offset,
                                             &s.norm.window_size,
                                             &s.tensors[0].rotary_offset,
                                             &s.tensors[1].head_dim,
                                             &s.plan.rotary_dim,
                                             &s.slots.strides[0],
                                             &s.slots.strides[1],
                                             &s.stages[1].n_weights,
                                             &s.stages[1].n_scales,
                                             &s.stages[2].stride_scales[1],
                                             &s.stages[2].stride_scales[2],
                                             &s.slots.scratch_bytes};
        for (halyard_cache_desc *cache : {&s.k_cache, &s.v_cache}) {
            longs.insert(longs.end(),
                         {&cache->n_slots, &cache->block_size, &cache->stride_block, &cache->stride_head,
                          &cache->tile_tokens, &cache->stride_tile_tokens, &cache->stride_token, &cache->tile_elements,
                          &cache->stride_tile_elements, &cache->stride_element, &cache->extent});
        }
        const std::vector<std::int32_t *> ints = {&s.norm.width,
                                                  &s.norm.order,
                                                  &s.norm.unit_offset,
                                                  &s.norm.rounding,
                                                  &s.norm.weight_dtype,
                                                  &s.fixed.per,
                                                  &s.tensors[0].out_dtype,
                                                  &s.tensors[1].out_dtype,
                                                  &s.tensors[2].out_dtype,
                                                  &s.tensors[1].pairing,
                                                  &s.tensors[1].out_pairing,
                                                  &s.tensors[1].no_rotation,
                                                  &s.slots.policy,
                                                  &s.slots.type,
                                                  &s.norm.no_eps};
        const std::int64_t n_changes = random.in(1, 3);
        for (std::int64_t change = 0; change < n_changes; change++) {
            if (random.one_in(2)) {
                static constexpr std::int64_t values[] = {
                    -9, -1, 0, 1, 2, 3, 4, 6, 7, 8, 9, 12, 16, 17, 24, 31, 33, INT64_MIN, INT64_MAX, INT64_MIN / 4};
                *longs[static_cast<std::size_t>(random.in(0, static_cast<std::int64_t>(longs.size()) - 1))] =
                    random.one_of(values);
            } else if (random.one_in(3)) {
                s.slot_values()[random.in(0, 5)] = random.in(-1, 8);
            } else {
                *ints[static_cast<std::size_t>(random.in(0, static_cast<std::int64_t>(ints.size()) - 1))] =
                    static_cast<std::int32_t>(random.in(0, 6));
            }
        }
        const auto before = s.arena;
        auto error = sized<halyard_error>();
        halyard_plan *made = nullptr;
        halyard_status status = halyard_create_plan(&s.plan, &made, &error);
        const halyard::plan plan(made);
        if (status == HALYARD_OK) {
            status = halyard_run(plan.get(), &s.args, &error);
        }
        const auto after = s.arena;
        // All scratch is a float, whatever it is said to be.
        const auto rest_is = [&](std::vector<float> expected) {
            expected[2100] = s.arena[2100];
            return std::memcmp(s.arena.data(), expected.data(), expected.size() * sizeof(float)) == 0;
        };
        CAPTURE(error.message);
        if (status != HALYARD_OK) {
            n_refused++;
            REQUIRE(std::strlen(error.message) > 8);
            REQUIRE(rest_is(before));
            continue;
        }
        n_accepted++;
        s.arena = before;
        for (const std::int32_t part : {1, 2, 0, 3}) {
            auto args = s.args;
            args.part = part;
            args.n_parts = 4;
            REQUIRE(halyard_run(plan.get(), &args, &error) == HALYARD_OK);
        }
        REQUIRE(rest_is(after));
        s.arena = before;
        halyard_bound_run *bound = nullptr;
        REQUIRE(halyard_bind_run(plan.get(), &s.args, &bound, &error) == HALYARD_OK);
        const void *x[3], *weights[3];
        void *y[3], *caches[3];
        const float *scales[3];
        float *scales_out[3];
        for (int i = 0; i < 3; i++) {
            x[i] = s.x[i].data;
            y[i] = s.y[i].data;
            weights[i] = s.stages[i].weight;
            caches[i] = s.stages[i].cache;
            scales[i] = s.stages[i].scales;
            scales_out[i] = s.stages[i].scales_out;
        }
        auto args = halyard::make_struct<halyard_bound_run_args>();
        args.n_tensors = 3;
        args.x = x;
        args.y = y;
        args.slots = s.slots.data;
        args.slots_scratch = s.slots.scratch;
        args.weights = weights;
        args.caches = caches;
        args.scales = scales;
        args.scales_out = scales_out;
        REQUIRE(halyard_run_bound(bound, &args, &error) == HALYARD_OK);
        REQUIRE(rest_is(after));
        halyard_destroy_bound_run(bound);
    }
    CHECK(n_accepted > 1000);
    CHECK(n_refused > 1000);
}
