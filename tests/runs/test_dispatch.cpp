// Which kernel serves what: the list of kernels, the choice, the environment, and how the library explains it.
#include "base/text.h"
#include "checks/rotate.h"
#include "checks/scene/ways.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <set>
#include <string>
#include <vector>

using halyard::Dtype;
using halyard::Kernel;
using halyard::Layout;
using halyard::Pairing;
using halyard::Place;
using halyard::Target;
using halyard::TargetSet;

namespace {

/// Sets an environment variable while this object lives; NULL unsets it.
class Variable {
public:
    Variable(const char *name, const char *value) : name_(name) {
        if (const char *before = std::getenv(name)) {
            before_ = before;
        }
        set(value);
    }
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;
    ~Variable() { set(before_ ? before_->c_str() : nullptr); }

    void set(const char *value) const { value == nullptr ? unsetenv(name_) : setenv(name_, value, 1); }

private:
    const char *name_;
    std::optional<std::string> before_;
};

/// As it is without these variables, until a test sets them.
struct Environment {
    Variable target{"HALYARD_TARGET", nullptr}, max_target{"HALYARD_MAX_TARGET", nullptr};
};

/// Whether a target has kernels for large outputs; without a name, whether any target has.
bool has_non_temporal(const std::string &target = "") {
    return std::any_of(halyard::kernels().begin(), halyard::kernels().end(), [&](const Kernel &kernel) {
        return kernel.place == Place::non_temporal && (target.empty() || target == halyard::name_of(kernel.target));
    });
}

std::vector<halyard::Task> every_task() {
    std::vector<halyard::Task> tasks;
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        for (const Pairing pairing : {Pairing::half, Pairing::interleaved}) {
            for (const Pairing out_pairing : {Pairing::half, Pairing::interleaved}) {
                for (const Place place : {Place::out_of_place, Place::in_place, Place::non_temporal}) {
                    for (const Layout layout : {Layout::strided, Layout::dense, Layout::even}) {
                        if (place != Place::in_place || pairing == out_pairing) {
                            tasks.push_back({dtype, pairing, out_pairing, place, layout});
                        }
                    }
                }
            }
        }
    }
    return tasks;
}

std::set<Target> built_targets() {
    std::set<Target> built;
    for (const Kernel &kernel : halyard::kernels()) {
        built.insert(kernel.target);
    }
    return built;
}

/// The targets that a plan can be made for here, best first.
std::vector<std::string> usable_targets() {
    const auto targets = targets_here();
    return {targets.begin(), targets.end()};
}

halyard::plan_desc describe(halyard::dtype dtype = halyard::dtype::f32) {
    return halyard::plan_desc(128, {halyard::describe_tensor(dtype, 128, halyard::pairing::half)});
}

/// Makes a plan. Returns the name of its target, or the sentence of the error.
std::string resolve(const halyard::plan_desc &desc, halyard_status expected = HALYARD_OK) {
    auto error = sized<halyard_error>();
    halyard_plan *plan = nullptr;
    const auto given = desc.get();
    const halyard_status status = halyard_create_plan(&given, &plan, &error);
    CAPTURE(error.message);
    CHECK(status == expected);
    CHECK((plan != nullptr) == (status == HALYARD_OK));
    const halyard::plan owner(plan);
    return plan != nullptr ? owner.target() : error.message;
}

bool has_all(const std::string &text, const std::vector<std::string> &words) {
    return std::all_of(words.begin(), words.end(),
                       [&](const std::string &word) { return text.find(word) != std::string::npos; });
}

const std::vector<std::string> all_names = {"x86_avx512", "x86_avx2", "arm_neon", "cuda_sm89", "cuda_sm80", "reference"};

}  // namespace

// ---- The table -----------------------------------------------------------------------------------------------------

TEST_CASE("dispatch: the kernels are ordered best first and end in the reference", "[dispatch]") {
    const auto kernels = halyard::kernels();
    REQUIRE(!kernels.empty());
    CHECK(std::is_sorted(kernels.begin(), kernels.end(),
                         [](const Kernel &a, const Kernel &b) { return a.target < b.target; }));
    const Kernel &last = kernels.back();
    CHECK(last.target == Target::reference);
    CHECK(last.function == nullptr);
    CHECK(last.name == std::string("halyard_rotate_reference"));
    // A kernel for any layout serves what the others of its target do, so it has to come after them.
    for (const Kernel &general : kernels) {
        for (const Kernel *after = &general + 1; !general.pairing && after <= &last; after++) {
            CAPTURE(general.name, after->name);
            CHECK_FALSE((after->target == general.target && after->pairing.has_value() &&
                         after->dtype == general.dtype && after->place == general.place));
        }
    }
}

TEST_CASE("dispatch: large outputs take a non-temporal kernel where there is one", "[dispatch]") {
    for (const Kernel &kernel : halyard::kernels()) {
        if (kernel.place == Place::non_temporal) {
            CAPTURE(kernel.name);
            halyard::Task task = {kernel.dtype, kernel.pairing.value(), kernel.out_pairing.value(), Place::non_temporal,
                                  Layout::even};
            CHECK(&halyard::select(task, halyard::bit(kernel.target)) == &kernel);
            task.place = Place::out_of_place;
            CHECK(halyard::select(task, halyard::bit(kernel.target)).place == Place::out_of_place);
            task.layout = Layout::strided;
            CHECK_FALSE(halyard::select(task, halyard::bit(kernel.target)).pairing.has_value());
        }
    }
}

TEST_CASE("dispatch: every target serves every task with a kernel of its own", "[dispatch]") {
    for (const Target target : built_targets()) {
        for (const halyard::Task &task : every_task()) {
            const Kernel &kernel = halyard::select(task, halyard::bit(target));
            CAPTURE(halyard::name_of(target), kernel.name, static_cast<int>(task.layout));
            CHECK(kernel.target == target);
            CHECK(halyard::why_not(kernel, task) == nullptr);
            if (task.layout == Layout::even && target != Target::reference) {
                CHECK((kernel.pairing == task.pairing));
            }
        }
    }
}

// ---- The list ------------------------------------------------------------------------------------------------------

TEST_CASE("dispatch: the list of targets", "[dispatch]") {
    const Environment environment;
    const auto targets = halyard::targets();
    REQUIRE(targets.size() == all_names.size());
    const std::set<Target> built = built_targets();
    const std::string best = usable_targets().front();
    CHECK(best == resolve(describe()));
    for (std::size_t i = 0; i < targets.size(); i++) {
        const halyard_target_info &info = targets[i];
        CAPTURE(info.name, info.reason);
        CHECK(info.size == sizeof(info));
        CHECK(info.name == all_names[i]);
        CHECK(std::strlen(info.isa) > 5);
        CHECK(info.built == (built.count(Target(static_cast<std::int32_t>(i))) != 0 ? 1 : 0));
        CHECK((info.supported == 0 || info.supported == 1));
        CHECK(info.active == (info.name == best ? 1 : 0));
        if (info.built != 0 && info.supported != 0) {
            CHECK(info.reason == (info.active != 0 ? "" : best + " is better"));
        } else {
            CHECK(has_all(info.reason, {info.built == 0 ? "not built" : "not supported"}));
        }
    }
    CHECK((targets.back().built == 1 && targets.back().supported == 1));
    // Under the environment.
    environment.target.set("reference");
    for (const auto &info : halyard::targets()) {
        CHECK(info.active == (info.name == std::string("reference") ? 1 : 0));
        CHECK((info.active != 0) == (info.reason[0] == '\0'));
        CHECK((info.active != 0 || info.built == 0 || info.supported == 0 || has_all(info.reason, {"environment"})));
    }
    environment.target.set("x86_avx1024");
    for (const auto &info : halyard::targets()) {
        CHECK(info.active == 0);
        CHECK(has_all(info.reason, {"HALYARD_TARGET", "x86_avx1024"}));
    }
}

// ---- The environment -----------------------------------------------------------------------------------------------

TEST_CASE("dispatch: a target can be forced, a ceiling leaves what is below, and the API beats the environment",
          "[dispatch]") {
    const Environment environment;
    const std::string best = usable_targets().front();
    for (const std::string &name : usable_targets()) {
        auto forced = describe(), below = describe();
        forced.target = below.max_target = name.c_str();
        CHECK(resolve(forced) == name);
        CHECK(resolve(below) == name);
        environment.max_target.set(name.c_str());
        CHECK(resolve(describe()) == name);
        environment.max_target.set(name == "reference" ? best.c_str() : "reference");
        CHECK(resolve(below) == name);
        environment.target.set(name.c_str());
        CHECK(resolve(describe()) == name);  // a ceiling has no effect where a target is forced
        environment.target.set("nonsense");
        CHECK(resolve(forced) == name);
        CHECK(resolve(below) == name);
        environment.target.set(nullptr);
        environment.max_target.set("nonsense");
        CHECK(resolve(forced) == name);
        CHECK(resolve(below) == name);
    }
    // An empty variable counts as none.
    environment.target.set("");
    environment.max_target.set("");
    CHECK(resolve(describe()) == best);
}

TEST_CASE("dispatch: a name that cannot be had is an error, never another target", "[dispatch]") {
    const Environment environment;
    struct Bad {
        std::string name;
        halyard_status status;
        std::vector<std::string> words;
    };
    std::vector<Bad> cases;
    for (const char *name : {"nope", "X86_AVX2", "x86_avx2 ", "x86_avx", "avx2", "auto"}) {
        std::vector<std::string> words = all_names;
        words.push_back(name);
        cases.push_back({name, HALYARD_ERROR_UNKNOWN_TARGET, words});
    }
    for (const auto &info : halyard::targets()) {
        if (info.built == 0) {
            const std::string name = info.name;
            const bool is_device = name.starts_with("cuda_");
            cases.push_back({name, HALYARD_ERROR_TARGET_NOT_BUILT, {name, is_device ? "device's" : "built without"}});
        } else if (info.supported == 0) {
            cases.push_back({info.name, HALYARD_ERROR_TARGET_UNSUPPORTED, {info.name, info.isa, "this machine"}});
        }
    }
    const auto source = halyard::angle_source::table(halyard::frequencies::from_base(100.0, 4), 0, 10);
    const halyard::plan plan(
        halyard::plan_desc(4, {halyard::describe_tensor(halyard::dtype::f32, 4, halyard::pairing::half)}));
    std::vector<float> rows(8), rows_before(8);
    halyard::make_rows(plan, source, nullptr, 1, 2, rows_before.data(), 8);
    for (const Bad &bad : cases) {
        CAPTURE(bad.name);
        const auto check = [&](const halyard::plan_desc &desc, const std::string &source) {
            const std::string sentence = resolve(desc, bad.status);
            CAPTURE(sentence, source);
            CHECK(sentence.rfind(source + " is ", 0) == 0);
            CHECK(has_all(sentence, bad.words));
            // To explain such a description is no error: the explanation holds the sentence.
            CHECK(has_all(halyard::explain(desc), {sentence}));
        };
        auto desc = describe();
        desc.target = bad.name.c_str();
        check(desc, "target");
        desc.target = nullptr;
        desc.max_target = bad.name.c_str();
        check(desc, "max_target");
        environment.target.set(bad.name.c_str());
        check(describe(), "the environment variable HALYARD_TARGET");
        // What was resolved before goes on as it is.
        halyard::make_rows(plan, source, nullptr, 1, 2, rows.data(), 8);
        CHECK(rows == rows_before);
        environment.target.set(nullptr);
        environment.max_target.set(bad.name.c_str());
        check(describe(), "the environment variable HALYARD_MAX_TARGET");
        environment.max_target.set(nullptr);
    }
    auto desc = describe();
    desc.target = "";
    CHECK(has_all(resolve(desc, HALYARD_ERROR_UNKNOWN_TARGET), {"target is \"\""}));
}

// ---- Explanations --------------------------------------------------------------------------------------------------

namespace {

int count(const std::string &in, const std::string &word) {
    int n = 0;
    for (auto at = in.find(word); at != std::string::npos; at = in.find(word, at + 1)) {
        n++;
    }
    return n;
}

/// The line of an explanation that says that a kernel is taken.
std::string taken(const std::string &kernel) { return "  * " + kernel + "_" + usable_targets().front() + ": taken\n"; }

}  // namespace

TEST_CASE("dispatch: an explanation names what is taken, and why others are not", "[dispatch]") {
    const Environment environment;
    const std::string best = usable_targets().front();
    const std::string text = halyard::explain(describe());
    CAPTURE(text);
    CHECK(text.back() == '\n');
    CHECK(has_all(text, {"tensor 0, out of place, dense heads:", "tensor 0, in place, dense heads:",
                         "tensor 0, out of place, strided heads:", "tensor 0, in place, strided heads:"}));
    if (best != "reference") {
        CHECK(has_all(text, {taken("halyard_rotate_half_f32"), taken("halyard_rotate_half_f32_in_place"),
                             taken("halyard_rotate_strided_f32"), taken("halyard_rotate_strided_f32_in_place")}));
        CHECK(has_all(text, {"comes after the one that is taken", "is for another pairing",
                             "needs heads whose elements are neighbours"}));
    }
    // Kernels that work only in place, or only out of place, are no candidates for the other.
    for (const char *word : {"tensor 1", "f16", "works "}) {
        CHECK(count(text, word) == 0);
    }
    // Each heading has exactly one kernel taken.
    const bool non_temporal = has_non_temporal(best);
    CHECK(count(text, ": taken\n") == (non_temporal ? 5 : 4));
    CHECK(count(text, "tensor 0, ") == (non_temporal ? 5 : 4));
    CHECK(count(text, "tensor 0, out of place past the caches, dense heads:") == (non_temporal ? 1 : 0));
    CHECK(count(text, taken("halyard_rotate_half_f32_non_temporal")) == (non_temporal ? 1 : 0));
    CHECK((count(text, "is for large outputs on whole cache lines") > 0) == has_non_temporal());
}

TEST_CASE("dispatch: an explanation is of each tensor, and of the target that is asked for", "[dispatch]") {
    const Environment environment;
    const bool has_kernels = usable_targets().front() != "reference";
    // A run to another pairing cannot be in place.
    auto desc = describe(halyard::dtype::bf16);
    desc.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    desc.tensors.push_back(describe(halyard::dtype::f16).tensors[0]);
    const std::string two = halyard::explain(desc);
    CAPTURE(two);
    CHECK(count(two, "tensor 0, in place") == 0);
    CHECK(count(two, "tensor 1, in place") > 0);
    if (has_kernels) {
        CHECK(has_all(two, {taken("halyard_rotate_half_to_interleaved_bf16"), taken("halyard_rotate_half_f16")}));
    }
    CHECK(count(two, "halyard_rotate_reference") == count(two, "tensor "));
    // But it may be too large for the caches.
    desc = describe();
    desc.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    CHECK(count(halyard::explain(desc), "past the caches") == (has_non_temporal(usable_targets().front()) ? 1 : 0));

    desc = describe();
    desc.target = "reference";
    const std::string forced = halyard::explain(desc);
    CHECK(has_all(forced, {"  * halyard_rotate_reference: taken"}));
    CHECK(count(forced, "tensor 0, in place") == 2);
    CHECK(has_all(forced, {"excluded by the request"}) == has_kernels);

    // Into columns of a cache heads are rotated as anywhere, and copied; with a stage they go through floats.
    auto columns = halyard::describe_hnd_cache(1, 16, 1, 128);
    columns.stride_token = columns.tile_elements = 1;
    columns.stride_tile_elements = 16;
    desc = describe(halyard::dtype::bf16);
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.cache = &columns;
    desc.tensors[0].kv = &kv;
    if (has_kernels) {
        CHECK(has_all(halyard::explain(desc), {"tensor 0, in blocks: rotate, scatter\n", "bf16_", ": taken"}));
        kv.position_scales = 1;
        CHECK(has_all(halyard::explain(desc),
                      {"tensor 0, in blocks: load, rotate, scale by position, store in the cache\n", "f32_in_place_"}));
    }
    // The reference has no stages.
    desc.target = "reference";
    const std::string refused = resolve(desc, HALYARD_ERROR_TARGET_UNSUPPORTED);
    CHECK(has_all(refused, {"tensors[0] has more stages than its rotation", "but the target is reference"}));
    CHECK(has_all(halyard::explain(desc), {refused}));
}

TEST_CASE("dispatch: an odd number of pairs keeps words of two away", "[dispatch]") {
    if (usable_targets().front() == "reference") {
        SKIP("no kernels are built for this machine");
    }
    halyard::plan_desc desc(126, {halyard::describe_tensor(halyard::dtype::bf16, 128, halyard::pairing::half)});
    CHECK(has_all(halyard::explain(desc), {"needs even offsets, strides and halves", "* halyard_rotate_strided_bf16"}));
    desc = describe(halyard::dtype::bf16);
    CHECK(has_all(halyard::explain(desc), {"* halyard_rotate_half_bf16"}));
}

TEST_CASE("dispatch: an explanation names a schedule that is not the default", "[dispatch]") {
    char said[64];
    halyard::Text text{said, sizeof(said)};
    text.add_schedule("default");
    text.add_schedule("znver5");
    text.end(nullptr);
    CHECK(said == std::string("        its schedule is tuned for znver5\n"));
}

TEST_CASE("dispatch: an explanation is cut to the caller's buffer", "[dispatch]") {
    const auto description = describe();
    const std::string whole = halyard::explain(description);
    const auto desc = description.get();
    const auto length = static_cast<std::int64_t>(whole.size());
    for (const std::int64_t n_bytes :
         std::initializer_list<std::int64_t>{0, 1, 2, 100, length - 1, length, length + 1, length + 50}) {
        CAPTURE(n_bytes);
        std::string buffer(static_cast<std::size_t>(n_bytes) + 8, 'p');
        std::int64_t n_needed = -1;
        REQUIRE(halyard_explain_plan(&desc, buffer.data(), n_bytes, &n_needed, nullptr) == HALYARD_OK);
        CHECK(n_needed == length);
        const auto n_text = static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(n_bytes - 1, length)));
        CHECK(buffer.compare(0, n_text, whole, 0, n_text) == 0);
        if (n_bytes > 0) {
            CHECK(buffer[n_text] == '\0');
        }
        CHECK(buffer.substr(static_cast<std::size_t>(n_bytes)) == "pppppppp");
    }
    CHECK(halyard_explain_plan(&desc, nullptr, 0, nullptr, nullptr) == HALYARD_OK);
}

// ---- On other machines ---------------------------------------------------------------------------------------------

TEST_CASE("dispatch: this machine takes the target that it should", "[.][dispatch][emulated]") {
    // Tests on emulated CPUs set this, because they know what the CPU has.
    const char *expected = std::getenv("HALYARD_TEST_EXPECTED_TARGET");
    if (expected == nullptr) {
        SKIP("HALYARD_TEST_EXPECTED_TARGET is not set");
    }
    const Environment environment;
    CHECK(resolve(describe()) == expected);
    bool below = false;
    for (const auto &info : halyard::targets()) {
        below = below || info.name == std::string(expected);
        CAPTURE(info.name, info.reason);
        if (info.built != 0) {
            CHECK(info.supported == (below ? 1 : 0));
        }
    }
}

TEST_CASE("dispatch: every target that this machine has rotates", "[dispatch][emulated]") {
    using namespace scenes;
    // A quick look at each kernel, for slow emulators; test_kernels.cpp looks closely.
    oracle::Random random(Catch::getSeed());
    for (int form = 0; form < 3 * 4 * 2 * 5; form++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_dtype] = form % 3;
        choice.level[of_turn] = form / 3 % 4;
        choice.level[of_strides] = form < 3 * 4 * 2 ? 0 : 4;  // dense; any, mostly with elements apart
        choice.in_place = form / 3 / 4 % 2 == 0;
        choice.n_tensors = 1;
        choice.shape = {1, 3, 3};
        choice.rotary_dim = 64;
        choice.head_dim = 72;
        choice.rotary_offset = 4;
        Draw draw(random);
        Scene scene(draw, choice);
        REQUIRE(fault_of_ways(scene) == "");
    }
}
