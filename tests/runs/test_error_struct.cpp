// Names of statuses, the error struct itself, and bad arguments that are passed outside of structs.
#include "checks/make_sources.h"
#include "rotation_run.h"

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
    // An error struct whose size is not set is reported even by a call that would succeed.
    halyard_error error, before;
    std::memset(&before, 0x5a, sizeof(before));
    for (const std::uint32_t size : bad_sizes<halyard_error>()) {
        for (const std::int32_t n_threads : {0, 1}) {
            before.size = size;
            error = before;
            CHECK(halyard_create_pool(n_threads, &pool, &error) == HALYARD_ERROR_STRUCT_SIZE);
            CHECK(pool == nullptr);
            CHECK(std::memcmp(&error, &before, sizeof(error)) == 0);
        }
    }
    before.size = sizeof(before);
    error = before;
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

TEST_CASE("errors: the table of fields has every byte of every struct", "[errors]") {
    for (const fields::Struct *const each : fields::all()) {
        std::size_t end = 0;
        for (const fields::Field &field : each->fields) {
            CAPTURE(each->name, field.name);
            end = (end + field.bytes - 1) / field.bytes * field.bytes;
            CHECK(field.offset == end);
            end += field.bytes * field.n_elements;
        }
        CHECK((end + 7) / 8 * 8 == each->size);
    }
}

namespace {

/// Checks that a function refuses NULL for each of its arguments that has a name in `names`.
template <typename Function, typename... Arguments>
void refuse_nulls(Function function, const std::array<const char *, sizeof...(Arguments)> &names,
                  Arguments... arguments) {
    std::size_t i = 0;
    const auto refuse = [&](auto &argument) {
        if constexpr (std::is_pointer_v<std::remove_reference_t<decltype(argument)>>) {
            if (names[i] != nullptr) {
                const auto valid = std::exchange(argument, nullptr);
                check_refused(HALYARD_ERROR_NULL_POINTER, {names[i] + std::string(" is NULL")},
                              [&](auto *error) { return function(arguments..., error); });
                argument = valid;
            }
        }
        i++;
    };
    (refuse(arguments), ...);
}

/// Checks that get() refuses an info struct of every bad size.
template <typename Info, typename Get>
void check_sizes_refused(Get get) {
    for (const std::uint32_t size : bad_sizes<Info>()) {
        auto info = sized<Info>();
        info.size = size;
        const Info before = info;
        check_refused(HALYARD_ERROR_STRUCT_SIZE, {"info.size is " + text(size)},
                      [&](auto *error) { return get(&info, error); });
        CHECK(std::memcmp(&before, &info, sizeof(info)) == 0);
    }
}

template <typename Object>
Object **untouched() {
    static auto *object = reinterpret_cast<Object *>(16);
    CHECK(object == reinterpret_cast<Object *>(16));
    return &object;
}

}  // namespace

TEST_CASE("errors: every function refuses NULL, and infos whose size is not set", "[errors]") {
    RotationRun s;
    const halyard::plan plan(s.plan);
    const BoundRun bound(s);
    const auto source = describe_source(HALYARD_ANGLES_AUTO, 0, 3);
    auto rows = sized<halyard_rows_args>();
    auto scaling = sized<halyard_scaling>();
    auto of_frequencies = sized<halyard_frequencies_info>();
    auto of_angles = sized<halyard_angle_source_info>();
    auto of_target = sized<halyard_target_info>();
    auto of_groups = sized<halyard_groups_info>();
    const double list[] = {1.0};
    char lines[8] = "before";
    std::int64_t n_needed = -7;
    const halyard_frequencies *const f = s.frequencies.get();
    const halyard_plan *const p = plan.get();
    for (int round = 0; round < 2; round++) {  // the second round sees what the first one left
        auto *const to_f = untouched<halyard_frequencies>();
        refuse_nulls(halyard_create_frequencies_from_base, {"", "", "out"}, 100.0, std::int64_t{4}, to_f);
        refuse_nulls(halyard_create_frequencies_from_list, {"inv_freq", "", "", "out"}, list, std::int64_t{1}, 1.0,
                     to_f);
        refuse_nulls(halyard_create_frequencies_from_scaling, {"scaling", "out"}, &scaling, to_f);
        refuse_nulls(halyard_create_frequencies_from_config, {"text", "", nullptr, "out"}, lines, std::int64_t{8},
                     static_cast<halyard_config_options *>(nullptr), to_f);
        refuse_nulls(halyard_create_frequencies_for_length, {"frequencies", "", "out"}, f, std::int64_t{9}, to_f);
        refuse_nulls(halyard_get_frequencies_info, {"frequencies", "info"}, f, &of_frequencies);
        refuse_nulls(halyard_create_angle_source, {"frequencies", "desc", "out"}, f, &source,
                     untouched<halyard_angle_source>());
        refuse_nulls(halyard_get_angle_source_info, {"source", "info"}, s.args.angles, &of_angles);
        refuse_nulls(halyard_create_plan, {"desc", "out"}, &s.plan, untouched<halyard_plan>());
        refuse_nulls(halyard_explain_plan, {"desc", "text", "", nullptr}, &s.plan, lines, std::int64_t{8}, &n_needed);
        refuse_nulls(halyard_make_rows, {"plan", "args"}, p, &rows);
        refuse_nulls(halyard_run, {"plan", "args"}, p, &s.args);
        refuse_nulls(halyard_bind_run, {"plan", "args", "out"}, p, &s.args, untouched<halyard_bound_run>());
        refuse_nulls(halyard_run_bound, {"bound", "args"}, bound.bound.get(), &bound.args);
        refuse_nulls(halyard_create_pool, {"", "out"}, 2, untouched<halyard_pool>());
        refuse_nulls(halyard_get_target_info, {"", "info"}, 0, &of_target);
        refuse_nulls(halyard_get_groups_info, {"", "", "info"}, 1, std::int64_t{32}, &of_groups);
    }
    CHECK((lines == std::string("before") && n_needed == -7));
    check_sizes_refused<halyard_frequencies_info>([&](auto... to) { return halyard_get_frequencies_info(f, to...); });
    check_sizes_refused<halyard_angle_source_info>(
        [&](auto... to) { return halyard_get_angle_source_info(s.args.angles, to...); });
    check_sizes_refused<halyard_target_info>([](auto... to) { return halyard_get_target_info(0, to...); });
    check_sizes_refused<halyard_groups_info>([](auto... to) { return halyard_get_groups_info(1, 32, to...); });
    CHECK(halyard_get_plan_target(nullptr) == nullptr);
    CHECK(halyard_get_pool_executor(nullptr) == nullptr);
    halyard_destroy_frequencies(nullptr);
    halyard_destroy_angle_source(nullptr);
    halyard_destroy_plan(nullptr);
    halyard_destroy_bound_run(nullptr);
    halyard_destroy_pool(nullptr);
}

TEST_CASE("errors: numbers of pools, targets and explanations", "[errors]") {
    RotationRun s;
    auto info = sized<halyard_target_info>();
    std::int64_t n_needed = -7;
    char lines[8] = "before";
    for (const std::int32_t n : {0, -1, 1025, INT32_MAX, INT32_MIN}) {
        check_refused(HALYARD_ERROR_THREADS, {"n_threads is " + text(n)},
                      [&](auto *error) { return halyard_create_pool(n, untouched<halyard_pool>(), error); });
    }
    for (const std::int32_t n : {-1, halyard_get_target_count(), INT32_MAX, INT32_MIN}) {
        check_refused(HALYARD_ERROR_UNKNOWN_VALUE, {"index is " + text(n)},
                      [&](auto *error) { return halyard_get_target_info(n, &info, error); });
    }
    for (const std::int64_t n : {std::int64_t{-1}, INT64_MIN}) {
        check_refused(HALYARD_ERROR_SHAPE, {"n_bytes is " + text(n)},
                      [&](auto *error) { return halyard_explain_plan(&s.plan, lines, n, &n_needed, error); });
    }
    CHECK((info.name == nullptr && lines == std::string("before") && n_needed == -7));
}
