// Bad descriptions of plans: each field that can be wrong is made wrong, one at a time. What is right at the limits is
// accepted.
#include "scene.h"

#include <algorithm>

namespace {

/// Changes one thing in a good description, which then gives neither a plan nor an explanation.
void refuse(halyard_status status, const Words &words, const std::function<void(halyard_plan_desc &)> &change) {
    auto *const untouched = reinterpret_cast<halyard_plan *>(16);
    auto desc = Scene::describe();
    change(desc);
    CAPTURE(words);
    halyard_plan *plan = untouched;
    check_refused(status, words, [&](auto *error) { return halyard_create_plan(&desc, &plan, error); });
    CHECK(plan == untouched);

    char lines[64];
    std::memset(lines, 'p', sizeof(lines));
    std::int64_t n_needed = -7;
    check_refused(status, words,
                  [&](auto *error) { return halyard_explain_plan(&desc, lines, sizeof(lines), &n_needed, error); });
    CHECK(n_needed == -7);
    CHECK(std::all_of(std::begin(lines), std::end(lines), [](char c) { return c == 'p'; }));
}

}  // namespace

TEST_CASE("errors: plans", "[errors]") {
    const std::string head_dim = text(Scene::head_dim);
    for (const std::uint32_t size : bad_sizes<halyard_plan_desc>()) {
        refuse(HALYARD_ERROR_STRUCT_SIZE, {"desc.size", text(size)}, [=](auto &desc) { desc.size = size; });
    }
    for (const std::int32_t value : {-1, 2, INT32_MAX, INT32_MIN}) {
        const auto unknown = [&](const char *name, auto change) {
            refuse(HALYARD_ERROR_UNKNOWN_VALUE, {name, text(value)}, change);
        };
        unknown("direction", [=](auto &desc) { desc.direction = value; });
        unknown("tensors[1].pairing", [=](auto &desc) { desc.tensors[1].pairing = value; });
        unknown("tensors[1].out_pairing", [=](auto &desc) { desc.tensors[1].out_pairing = value; });
        unknown("tensors[0].reserved", [=](auto &desc) { desc.tensors[0].reserved = value; });
    }
    for (const std::int32_t value : {-1, 3, INT32_MAX, INT32_MIN}) {
        refuse(HALYARD_ERROR_UNKNOWN_VALUE, {"tensors[1].dtype", text(value)},
               [=](auto &desc) { desc.tensors[1].dtype = value; });
    }
    for (const std::int64_t value : Numbers{0, -2, -1, 1, 5, INT64_MAX, INT64_MIN}) {
        refuse(HALYARD_ERROR_ROTARY_DIM, {"rotary_dim", text(value)}, [=](auto &desc) { desc.rotary_dim = value; });
    }
    for (const std::int32_t value : {0, -1, HALYARD_MAX_TENSORS + 1, INT32_MAX, INT32_MIN}) {
        refuse(HALYARD_ERROR_SHAPE, {"n_tensors", text(value)}, [=](auto &desc) { desc.n_tensors = value; });
    }
    for (const std::int64_t value : Numbers{0, -1, INT64_MIN}) {
        refuse(HALYARD_ERROR_SHAPE, {"tensors[0].head_dim", text(value)},
               [=](auto &desc) { desc.tensors[0].head_dim = value; });
    }
    for (const std::int64_t value : Numbers{-1, 5, 8, 9, INT64_MAX, INT64_MAX - 3, INT64_MIN}) {
        refuse(HALYARD_ERROR_WINDOW, {"tensors[1].rotary_offset", text(value), head_dim},
               [=](auto &desc) { desc.tensors[1].rotary_offset = value; });
    }
    for (const std::int64_t value : Numbers{8, 10, INT64_MAX - 1}) {
        refuse(HALYARD_ERROR_WINDOW, {"tensors[0]", text(value), head_dim},
               [=](auto &desc) { desc.rotary_dim = value; });
    }
    refuse(HALYARD_ERROR_WINDOW, {"tensors[1]", "5"}, [](auto &desc) { desc.tensors[1].head_dim = 5; });
    refuse(HALYARD_ERROR_MISMATCH, {"target", "max_target"},
           [](auto &desc) { desc.target = desc.max_target = "reference"; });

    const auto desc = Scene::describe();
    auto *const untouched = reinterpret_cast<halyard_plan *>(16);
    halyard_plan *plan = untouched;
    check_refused(HALYARD_ERROR_NULL_POINTER, {"desc is NULL"},
                  [&](auto *error) { return halyard_create_plan(nullptr, &plan, error); });
    check_refused(HALYARD_ERROR_NULL_POINTER, {"out is NULL"},
                  [&](auto *error) { return halyard_create_plan(&desc, nullptr, error); });
    CHECK(plan == untouched);
    CHECK(halyard_get_plan_target(nullptr) == nullptr);
    halyard_destroy_plan(nullptr);
}

TEST_CASE("errors: explaining a plan", "[errors]") {
    const auto desc = Scene::describe();
    char lines[8] = "before";
    std::int64_t n_needed = -7;
    const auto refuse = [&](halyard_status status, const Words &words, const halyard_plan_desc *of, char *to,
                            std::int64_t n_bytes) {
        check_refused(status, words,
                      [&](auto *error) { return halyard_explain_plan(of, to, n_bytes, &n_needed, error); });
    };
    refuse(HALYARD_ERROR_NULL_POINTER, {"desc is NULL"}, nullptr, lines, 8);
    refuse(HALYARD_ERROR_NULL_POINTER, {"text is NULL"}, &desc, nullptr, 8);
    refuse(HALYARD_ERROR_SHAPE, {"n_bytes", "-1"}, &desc, lines, -1);
    refuse(HALYARD_ERROR_SHAPE, {"n_bytes", text(INT64_MIN)}, &desc, lines, INT64_MIN);
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
    auto desc = Scene::describe();
    desc.tensors[0].rotary_offset = 4;  // the window ends where the head ends
    desc.tensors[1].rotary_offset = 1;
    accepted(desc);
    desc = Scene::describe();
    desc.rotary_dim = 6;
    accepted(desc);
    desc.tensors[0].head_dim = INT64_MAX;
    desc.tensors[0].rotary_offset = INT64_MAX - 6;
    accepted(desc);
    desc = Scene::describe();
    desc.n_tensors = 1;
    desc.tensors[1].dtype = 99;  // beyond n_tensors, so not read
    accepted(desc);
}
