// Which kernel a plan takes, how environment variables change the choice, and how halyard::explain reports it.
#include "base/text.h"
#include "checks/cases/run_modes.h"
#include "checks/rotate.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

using halyard::Dtype;
using halyard::Kernel;
using halyard::Layout;
using halyard::Pairing;
using halyard::Place;
using halyard::Target;
using Words = std::vector<std::string>;

namespace {

/// An environment variable that is unset except while a test sets it. The library treats an empty value as unset.
struct Variable {
    const char *const name;
    const std::string before = std::getenv(name) == nullptr ? "" : std::getenv(name);

    explicit Variable(const char *its_name) : name(its_name) { unsetenv(name); }
    Variable(const Variable &) = delete;
    Variable &operator=(const Variable &) = delete;
    ~Variable() { set(before); }
    void set(const std::string &value) const { setenv(name, value.c_str(), 1); }
};
struct Environment {
    Variable target{"HALYARD_TARGET"}, max_target{"HALYARD_MAX_TARGET"};
};

std::string best_target() { return targets_here().front(); }

/// The line of an explanation which says that this kernel is taken.
std::string taken(const std::string &kernel) { return "  * " + kernel + "_" + best_target() + ": taken\n"; }

halyard::plan_desc describe(halyard::dtype dtype = halyard::dtype::f32) {
    return halyard::plan_desc(128, {halyard::describe_tensor(dtype, 128, halyard::pairing::half)});
}

/// Makes a plan. Returns the name of its target, or the error message.
std::string target_or_error(const halyard::plan_desc &desc, halyard_status expected = HALYARD_OK) {
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

int count(const std::string &in, const std::string &word) {
    int n = 0;
    for (auto at = in.find(word); at != std::string::npos; at = in.find(word, at + 1)) {
        n++;
    }
    return n;
}

void check_words(const std::string &text, const Words &words) {
    CAPTURE(text);
    for (const std::string &word : words) {
        CAPTURE(word);
        CHECK(count(text, word) > 0);
    }
}

std::map<Target, std::string> targets_built() {
    std::map<Target, std::string> built;
    for (const Kernel &kernel : halyard::kernels()) {
        built[kernel.target] = halyard::name_of(kernel.target);
    }
    return built;
}

const Words all_names = {"x86_avx512", "x86_avx2", "arm_neon", "cuda_sm89", "cuda_sm80", "reference"};

}  // namespace

TEST_CASE("dispatch: every target serves every task with a kernel of its own", "[dispatch]") {
    const Pairing pairings[] = {Pairing::half, Pairing::interleaved};
    const Dtype dtypes[] = {Dtype::f32, Dtype::f16, Dtype::bf16};
    const Place places[] = {Place::out_of_place, Place::in_place, Place::non_temporal};
    const Layout layouts[] = {Layout::strided, Layout::dense, Layout::even};
    for (const auto &[target, name] : targets_built()) {
        for (int i = 0; i < 3 * 3 * 3 * 4; i++) {
            const halyard::Task task = {dtypes[i % 3], pairings[i / 27 % 2], pairings[i / 54], places[i / 3 % 3],
                                        layouts[i / 9 % 3]};
            if (task.place == Place::in_place && task.pairing != task.out_pairing) {
                continue;
            }
            const Kernel &kernel = halyard::select(task, halyard::bit(target));
            CAPTURE(name, kernel.name, i);
            CHECK(kernel.target == target);
            CHECK(halyard::why_not(kernel, task) == nullptr);
            CHECK((task.layout != Layout::even || target == Target::reference || kernel.pairing == task.pairing));
        }
    }
}

TEST_CASE("dispatch: the list of targets", "[dispatch]") {
    const Environment environment;
    const std::string best = best_target();
    CHECK(target_or_error(describe()) == best);
    REQUIRE(halyard::targets().size() == all_names.size());
    for (const std::string forced : {"", "reference", "x86_avx1024"}) {
        environment.target.set(forced);
        const std::string taken = forced.empty() ? best : forced;
        for (std::size_t i = 0; i < all_names.size(); i++) {
            const halyard_target_info info = halyard::targets()[i];
            CAPTURE(forced, info.name, info.reason);
            CHECK(info.size == sizeof(info));
            CHECK(info.name == all_names[i]);
            CHECK(std::strlen(info.isa) > 5);
            CHECK(info.built == std::int32_t(targets_built().count(Target(i))));
            CHECK((info.supported == 0 || info.supported == 1));
            CHECK(info.active == (info.name == taken ? 1 : 0));
            check_words(info.reason, taken == "x86_avx1024" ? Words{"HALYARD_TARGET", taken}
                                     : info.built == 0      ? Words{"not built"}
                                     : info.supported == 0  ? Words{"not supported"}
                                     : forced.empty()       ? Words{info.active == 0 ? best + " is better" : ""}
                                                            : Words{info.active == 0 ? "environment" : ""});
            CHECK((info.active != 0) == (info.reason[0] == '\0'));
        }
    }
}

TEST_CASE("dispatch: a target can be forced, a ceiling leaves what is below, and the API beats the environment",
          "[dispatch]") {
    const Environment environment;
    for (const std::string name : targets_here()) {
        auto forced = describe(), below = describe();
        forced.target = below.max_target = name.c_str();
        struct Row {
            std::string target, max_target, taken;  // the two variables; what a plan without a target takes
        };
        for (const auto &[target, max_target, taken] :
             {Row{"", name, name}, Row{name, "reference", name}, Row{"", "reference", "reference"},
              Row{name, best_target(), name}, Row{name, "nonsense", name}, Row{"nonsense", "", ""},
              Row{"", "nonsense", ""}, Row{"", "", best_target()}}) {
            CAPTURE(name, target, max_target);
            environment.target.set(target);
            environment.max_target.set(max_target);
            CHECK(target_or_error(forced) == name);
            CHECK(target_or_error(below) == name);
            CHECK((taken.empty() || target_or_error(describe()) == taken));
        }
    }
}

TEST_CASE("dispatch: a name that cannot be had is an error, never another target", "[dispatch]") {
    const Environment environment;
    struct BadName {
        std::string name;
        halyard_status status;
        Words words;
    };
    std::vector<BadName> rows;
    for (const char *name : {"nope", "X86_AVX2", "x86_avx2 ", "x86_avx", "avx2", "auto"}) {
        rows.push_back({name, HALYARD_ERROR_UNKNOWN_TARGET, all_names});
    }
    for (const auto &info : halyard::targets()) {
        const std::string name = info.name;
        if (info.built == 0) {
            rows.push_back(
                {name, HALYARD_ERROR_TARGET_NOT_BUILT, {name.starts_with("cuda_") ? "device's" : "built without"}});
        } else if (info.supported == 0) {
            rows.push_back({name, HALYARD_ERROR_TARGET_UNSUPPORTED, {info.isa, "this machine"}});
        }
    }
    for (const auto &[name, status, words] : rows) {
        CAPTURE(name);
        const auto check = [&](const halyard::plan_desc &desc, const std::string &given_by) {
            const std::string sentence = target_or_error(desc, status);
            check_words(sentence, words);
            CHECK(sentence.starts_with(given_by + " is "));
            CHECK(count(sentence, name) > 0);
            // halyard::explain accepts such a description, and the explanation contains the error message.
            check_words(halyard::explain(desc), {sentence});
        };
        auto forced = describe(), below = describe();
        forced.target = below.max_target = name.c_str();
        check(forced, "target");
        check(below, "max_target");
        environment.max_target.set(name);
        check(describe(), "the environment variable HALYARD_MAX_TARGET");
        environment.target.set(name);
        check(describe(), "the environment variable HALYARD_TARGET");
        environment.target.set("");
        environment.max_target.set("");
    }
    auto desc = describe();
    desc.target = "";
    check_words(target_or_error(desc, HALYARD_ERROR_UNKNOWN_TARGET), {"target is \"\""});
}

TEST_CASE("dispatch: an explanation names what is taken, and why others are not", "[dispatch]") {
    const Environment environment;
    const std::string best = best_target(), text = halyard::explain(describe());
    const bool has_non_temporal =
        std::any_of(halyard::kernels().begin(), halyard::kernels().end(), [&](const Kernel &kernel) {
            return kernel.place == Place::non_temporal && halyard::name_of(kernel.target) == best;
        });
    const int n_non_temporal = has_non_temporal ? 1 : 0;
    CHECK(text.back() == '\n');
    check_words(text, {"tensor 0, out of place, dense heads:", "tensor 0, in place, dense heads:",
                       "tensor 0, out of place, strided heads:", "tensor 0, in place, strided heads:"});
    // Under each heading exactly one kernel is taken.
    CHECK(count(text, ": taken\n") == 4 + n_non_temporal);
    CHECK(count(text, "tensor 0, ") == 4 + n_non_temporal);
    CHECK(count(text, "tensor 0, out of place past the caches, dense heads:") == n_non_temporal);
    CHECK(count(text, taken("halyard_rotate_half_f32_non_temporal")) == n_non_temporal);
    auto partial = describe();
    partial.tensors[0].head_dim *= 2;
    CHECK(count(halyard::explain(partial), "past the caches") == 0);
    // Kernels of other tensors and dtypes are not listed. Kernels that work only in place are not listed out of place.
    for (const char *word : {"tensor 1", "f16", "works "}) {
        CHECK(count(text, word) == 0);
    }
    if (best != "reference") {
        check_words(text, {taken("halyard_rotate_half_f32"), taken("halyard_rotate_half_f32_in_place"),
                           taken("halyard_rotate_strided_f32"), taken("halyard_rotate_strided_f32_in_place"),
                           "comes after the one that is taken", "is for another pairing",
                           "needs heads whose elements are neighbours"});
        CHECK((count(text, "is for large outputs on whole cache lines") > 0 || !has_non_temporal));
    }
}

TEST_CASE("dispatch: an explanation is of each tensor and its stages, and of the target that is asked for",
          "[dispatch]") {
    const Environment environment;
    // Tensor 0 changes the pairing, so it cannot be rotated in place.
    auto two = describe(halyard::dtype::bf16);
    two.tensors[0].out_pairing = HALYARD_PAIRING_INTERLEAVED;
    two.tensors.push_back(describe(halyard::dtype::f16).tensors[0]);
    const std::string of_two = halyard::explain(two);
    CHECK(count(of_two, "tensor 0, in place") == 0);
    CHECK(count(of_two, "tensor 1, in place") > 0);
    CHECK(count(of_two, "halyard_rotate_reference") == count(of_two, "tensor "));

    auto forced = describe();
    forced.target = "reference";
    CHECK(count(halyard::explain(forced), "  * halyard_rotate_reference: taken") == 4);
    // The reference target has no KV stages.
    auto columns = halyard::describe_hnd_cache(1, 16, 1, 128);
    columns.stride_token = columns.tile_elements = 1;
    columns.stride_tile_elements = 16;
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.cache = &columns;
    forced.tensors[0].kv = &kv;
    const std::string refused = target_or_error(forced, HALYARD_ERROR_TARGET_UNSUPPORTED);
    check_words(refused, {"tensors[0] has more stages than its rotation", "but the target is reference"});
    check_words(halyard::explain(forced), {refused});
    if (best_target() == "reference") {
        SKIP("no kernels are built for this machine");
    }

    check_words(of_two, {taken("halyard_rotate_half_to_interleaved_bf16"), taken("halyard_rotate_half_f16")});
    forced.tensors[0].kv = nullptr;
    check_words(halyard::explain(forced), {"excluded by the request"});
    // If a cache scatters elements, heads are rotated as usual, then copied. With a scaling stage they go through f32.
    auto stored = describe(halyard::dtype::bf16);
    stored.tensors[0].kv = &kv;
    check_words(halyard::explain(stored), {"tensor 0, in blocks: rotate, scatter to the cache\n", "bf16_", ": taken"});
    const auto norm = halyard::describe_norm(halyard::dtype::bf16);
    kv.norm = &norm;
    check_words(halyard::explain(stored), {"tensor 0, in blocks: norm and rotate, scatter to the cache\n"});
    kv.norm = nullptr;
    kv.position_scales = 1;
    check_words(
        halyard::explain(stored),
        {"tensor 0, in blocks: load, rotate, scale by position, narrow, scatter to the cache\n", "f32_in_place_"});
    // With an odd number of pairs no packed kernel fits.
    auto odd = describe(halyard::dtype::bf16);
    check_words(halyard::explain(odd), {"* halyard_rotate_half_bf16"});
    odd.rotary_dim = 126;
    check_words(halyard::explain(odd), {"needs even strides and halves", "* halyard_rotate_strided_bf16"});
    odd.tensors[0].dtype = HALYARD_F32;
    check_words(halyard::explain(odd), {"* halyard_rotate_half_f32"});
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
    const auto desc = describe();
    const auto given = desc.get();
    const std::string whole = halyard::explain(desc);
    const std::int64_t length = std::ssize(whole);
    for (const std::int64_t n_bytes : {std::int64_t{0}, std::int64_t{1}, length - 1, length, length + 1, length + 50}) {
        std::string buffer(whole.size() + 60, 'p');
        std::int64_t n_needed = -1;
        REQUIRE(halyard_explain_plan(&given, buffer.data(), n_bytes, &n_needed, nullptr) == HALYARD_OK);
        CHECK(n_needed == length);
        const std::string expected = n_bytes == 0 ? "" : whole.substr(0, std::size_t(n_bytes - 1)) + '\0';
        CHECK(buffer == expected + std::string(buffer.size() - expected.size(), 'p'));
    }
    CHECK(halyard_explain_plan(&given, nullptr, 0, nullptr, nullptr) == HALYARD_OK);
}

// ---- On other machines ---------------------------------------------------------------------------------------------

TEST_CASE("dispatch: this machine takes the target that it should", "[.][dispatch][emulated]") {
    // Tests on emulated CPUs set this variable, because they know the CPU's features.
    const char *expected = std::getenv("HALYARD_TEST_EXPECTED_TARGET");
    if (expected == nullptr) {
        SKIP("HALYARD_TEST_EXPECTED_TARGET is not set");
    }
    const Environment environment;
    CHECK(target_or_error(describe()) == expected);
    bool below = false;
    for (const auto &info : halyard::targets()) {
        below = below || info.name == std::string(expected);
        CAPTURE(info.name, info.reason);
        CHECK((info.built == 0 || info.supported == (below ? 1 : 0)));
    }
}

TEST_CASE("dispatch: every target that this machine has rotates", "[dispatch][emulated]") {
    using namespace cases;
    // A quick check of each kernel for slow emulators; test_kernels.cpp is thorough.
    oracle::Random random(Catch::getSeed());
    for (int form = 0; form < 3 * 4 * 2 * 5; form++) {
        Choice choice = Choice::of_rotations();
        choice.level[of_dtype] = form % 3;
        choice.level[of_pairing] = form / 3 % 4;
        choice.level[of_strides] = form < 3 * 4 * 2 ? 0 : 4;  // 0: dense; 4: any strides, mostly scattered elements
        choice.in_place = form / 3 / 4 % 2 == 0;
        choice.n_tensors = 1;
        choice.shape = {1, 3, 3};
        choice.rotary_dim = 64;
        choice.head_dim = 72;
        choice.rotary_offset = 4;
        Draw draw(random);
        Case drawn(draw, choice);
        REQUIRE(fault_in_run_modes(drawn) == "");
    }
}
