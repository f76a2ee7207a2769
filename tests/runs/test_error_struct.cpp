// Names of statuses, the error struct itself, and the bad arguments of pools and target infos.
#include "refused.h"

#include <set>

TEST_CASE("errors: every status has a name, and nothing else has", "[errors]") {
    std::set<std::string> names;
    for (halyard_status status = HALYARD_OK; status <= HALYARD_ERROR_SCALE; status++) {
        const char *name = halyard_status_name(status);
        REQUIRE(name != nullptr);
        CHECK(std::string(name).rfind(status == HALYARD_OK ? "HALYARD_OK" : "HALYARD_ERROR_", 0) == 0);
        CHECK(names.insert(name).second);
    }
    for (const halyard_status status : {-1, HALYARD_ERROR_SCALE + 1, INT32_MAX, INT32_MIN}) {
        CHECK(halyard_status_name(status) == nullptr);
    }
    CHECK(halyard_status_name(HALYARD_ERROR_WINDOW) == std::string("HALYARD_ERROR_WINDOW"));
    CHECK(halyard_version() == std::string("0.1.0"));
}

TEST_CASE("errors: the struct is optional, checked for its size, and left alone by success", "[errors]") {
    halyard_pool *pool = nullptr;
    CHECK(halyard_create_pool(0, &pool, nullptr) == HALYARD_ERROR_THREADS);

    // A size that is not set is told at once, also by a call that would succeed.
    halyard_error poisoned;
    std::memset(&poisoned, 0x5a, sizeof(poisoned));
    for (const std::uint32_t size :
         {0u, 4u, 8u, unsigned(sizeof(halyard_error)) - 1, unsigned(sizeof(halyard_error)) + 8}) {
        for (const std::int32_t n_threads : {0, 1}) {
            halyard_error error = poisoned;
            error.size = size;
            const halyard_error before = error;
            CHECK(halyard_create_pool(n_threads, &pool, &error) == HALYARD_ERROR_STRUCT_SIZE);
            CHECK(pool == nullptr);
            CHECK(std::memcmp(&error, &before, sizeof(error)) == 0);
        }
    }
    halyard_error error = poisoned;
    error.size = sizeof(error);
    const halyard_error before = error;
    REQUIRE(halyard_create_pool(1, &pool, &error) == HALYARD_OK);
    CHECK(std::memcmp(&error, &before, sizeof(error)) == 0);
    halyard_destroy_pool(pool);
}

TEST_CASE("errors: a sentence that is too long is cut, not overrun", "[errors]") {
    halyard::plan_desc description(4, {halyard::describe_tensor(halyard::dtype::f32, 8, halyard::pairing::half)});
    const std::string name(5000, 'n');
    description.target = name.c_str();
    const auto desc = description.get();
    struct {
        halyard_error error = sized<halyard_error>();
        char guard[16] = "guard";
    } guarded;
    halyard_plan *plan = nullptr;
    CHECK(halyard_create_plan(&desc, &plan, &guarded.error) == HALYARD_ERROR_UNKNOWN_TARGET);
    check_error(guarded.error, HALYARD_ERROR_UNKNOWN_TARGET, {"target is \"nnn"});
    CHECK(guarded.guard == std::string("guard"));
}

TEST_CASE("errors: pools", "[errors]") {
    auto *const untouched = reinterpret_cast<halyard_pool *>(16);
    halyard_pool *pool = untouched;
    for (const std::int32_t n_threads : {0, -1, 1025, INT32_MAX, INT32_MIN}) {
        check_refused(HALYARD_ERROR_THREADS, {"n_threads", text(n_threads)},
                      [&](auto *error) { return halyard_create_pool(n_threads, &pool, error); });
    }
    check_refused(HALYARD_ERROR_NULL_POINTER, {"out is NULL"},
                  [](auto *error) { return halyard_create_pool(2, nullptr, error); });
    CHECK(pool == untouched);
    CHECK(halyard_get_pool_executor(nullptr) == nullptr);
    halyard_destroy_pool(nullptr);
}

TEST_CASE("errors: target infos", "[errors]") {
    auto info = sized<halyard_target_info>();
    for (const std::int32_t index : {-1, halyard_get_target_count(), INT32_MAX, INT32_MIN}) {
        check_refused(HALYARD_ERROR_UNKNOWN_VALUE, {"index", text(index)},
                      [&](auto *error) { return halyard_get_target_info(index, &info, error); });
    }
    check_refused(HALYARD_ERROR_NULL_POINTER, {"info is NULL"},
                  [](auto *error) { return halyard_get_target_info(0, nullptr, error); });
    for (const std::uint32_t size : bad_sizes<halyard_target_info>()) {
        info.size = size;
        check_refused(HALYARD_ERROR_STRUCT_SIZE, {"info.size", text(size)},
                      [&](auto *error) { return halyard_get_target_info(0, &info, error); });
    }
    CHECK(info.name == nullptr);
}
