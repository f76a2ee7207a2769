// Bad descriptions of plans: each field gets bad values, one at a time. Values at the limits are accepted.
#include "rotation_run.h"

#include "core/plan.h"

TEST_CASE("errors: plans", "[errors]") {
    RotationRun s;
    const CallChecker &plans = s.plans;
    auto &desc = s.plan;
    auto &first = s.tensors[0], &second = s.tensors[1];
    const std::string head_dim = text(RotationRun::D);
    plans.refuse_each(HALYARD_ERROR_ROTARY_DIM, {0, -2, 1, 5, INT64_MAX}, {desc.rotary_dim});
    plans.refuse_each(HALYARD_ERROR_SHAPE, {0, HALYARD_MAX_TENSORS + 1, INT32_MAX}, {desc.n_tensors});
    for (const std::int64_t value : Numbers{5, 8, 9, INT64_MAX, INT64_MAX - 3}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"tensors[1].rotary_offset", text(value), head_dim},
                     {{second.rotary_offset, value}});
    }
    for (const std::int64_t value : Numbers{8, 10, INT64_MAX - 1}) {
        plans.refuse(HALYARD_ERROR_WINDOW, {"tensors[0]", text(value), head_dim}, {{desc.rotary_dim, value}});
    }
    plans.refuse({
        {HALYARD_ERROR_SHAPE, {}, {{first.head_dim, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].dtype is not set"}, {{second.dtype, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"pairing is not set, and no frequencies tell it"}, {{second.pairing, 0}}},
        {HALYARD_ERROR_UNKNOWN_VALUE, {"pairing is 9"}, {{second.out_pairing, 1}, {second.pairing, 9}}},
        {HALYARD_ERROR_WINDOW, {"tensors[1]", "5"}, {{second.head_dim, 5}}},
        {HALYARD_ERROR_MISMATCH, {"target", "max"}, {{desc.target, "reference"}, {desc.max_target, "reference"}}},
    });
    // A rotated window may end where the head ends. Tensors beyond n_tensors are not read.
    plans.accept_each({{{first.rotary_offset, 4}, {second.rotary_offset, 1}},
                       {{desc.rotary_dim, 6}},
                       {{desc.rotary_dim, 6}, {first.head_dim, INT64_MAX}, {first.rotary_offset, INT64_MAX - 6}},
                       {{desc.n_tensors, 1}, {second.dtype, 99}}});
}

TEST_CASE("plans: what the frequencies of a config tell need not be stated", "[plans]") {
    using halyard::pairing;
    const auto from = [](const std::string &config) {
        return halyard::frequencies::from_config(config.data(), std::ssize(config));
    };
    const auto llama = from(R"({"model_type": "llama", "head_dim": 64, "rope_theta": 10000.0})");
    const auto deepseek = from(R"({"model_type": "deepseek_v3", "qk_rope_head_dim": 64, "rope_theta": 10000.0})");
    const auto from_base = halyard::frequencies::from_base(10000.0, 64);
    const auto bare = halyard::describe_tensor(halyard::dtype::bf16);
    const auto stated = halyard::describe_tensor(halyard::dtype::f32, 192, pairing::interleaved, 128);
    auto half = bare, into_half = bare;
    half.pairing = into_half.out_pairing = HALYARD_PAIRING_HALF;
    const auto check = [](const halyard::frequencies &of, const halyard_tensor_desc &tensor, pairing in, pairing out,
                          std::int64_t head_dim) {
        const halyard::plan plan(halyard::plan_desc(of, {tensor}));
        const auto &made = plan.get()->tensors[0];
        CHECK(plan.get()->rotary_dim == 64);
        CHECK(std::int32_t(made.dtype) == tensor.dtype);
        CHECK(std::int32_t(made.pairing) == std::int32_t(in));
        CHECK(std::int32_t(made.out_pairing) == std::int32_t(out));
        CHECK(made.head_dim == head_dim);
        CHECK(made.rotary_offset == tensor.rotary_offset);
    };
    check(llama, bare, pairing::half, pairing::half, 64);
    check(deepseek, bare, pairing::interleaved, pairing::half, 64);
    check(deepseek, into_half, pairing::interleaved, pairing::half, 64);
    check(deepseek, stated, pairing::interleaved, pairing::interleaved, 192);  // an explicit pairing beats the model's

    const auto refuse = [&](halyard_status status, const Words &words, const halyard_tensor_desc &tensor,
                            std::int64_t rotary_dim) {
        halyard::plan_desc desc(from_base, {tensor});
        desc.rotary_dim = rotary_dim;
        const auto given = desc.get();
        halyard_plan *made = nullptr;
        check_refused(status, words, [&](auto *error) { return halyard_create_plan(&given, &made, error); });
    };
    refuse(HALYARD_ERROR_UNKNOWN_VALUE, {"pairing is not set"}, halyard::describe_tensor(halyard::dtype::f32, 64), 64);
    refuse(HALYARD_ERROR_SHAPE, {"head_dim is 0"}, half, 64);
    half.head_dim = 128;
    refuse(HALYARD_ERROR_MISMATCH, {"rotary_dim is 128, but the frequencies' is 64"}, half, 128);
}
