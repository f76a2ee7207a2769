// Every kernel of the list must have the model's bits and write nothing else. Each rotation kernel has a test case of
// its own name. test_conversions.cpp checks conversions, test_row_kernels.cpp the accuracy of the model's cos and sin
// rows.
#include "kernels/kernel_checker.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <cstdlib>
#include <map>

using halyard::Target;

namespace {

/// How often each number of pairs is tried: HALYARD_TEST_ROUNDS in the environment, for nightly runs.
int n_rounds() {
    const char *const rounds = std::getenv("HALYARD_TEST_ROUNDS");
    return rounds != nullptr ? std::max(std::atoi(rounds), 1) : 6;
}

void test_rotation(const std::string &name) {
    for (const KernelRow &row : all_built_kernels()) {
        if (row.name != name) {
            continue;
        }
        if (!row.is_here()) {
            SKIP("this machine cannot run " << halyard::name_of(row.target));
        }
        INFO("seed " << Catch::getSeed());
        CHECK(fault_of(row, Catch::getSeed(), 99 * n_rounds()) == "");
        return;
    }
    FAIL("not in the list");
}

}  // namespace

#define HALYARD_KERNEL(name, ...)                                                                                      \
    TEST_CASE(#name, "[kernel]") { test_rotation(#name); }
#include "built_kernels.inc"

TEST_CASE("stage kernels: every target has those that are listed, and the reference none", "[stages]") {
    int n_wrong = 0;
    const auto check = [&](auto *found, auto *listed) { n_wrong += found == listed ? 0 : 1; };
#define HALYARD_ROW_KERNEL(name, target) check(halyard::select_row_kernels(halyard::bit(Target::target)).phase, name);
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target)                                                               \
    check(halyard::find_stage_kernels(halyard::bit(Target::target))->stage[halyard::index_of(Dtype::dtype)], name);
#include "built_kernels.inc"
    CHECK(n_wrong == 0);
    for (const halyard::TargetSet none : {halyard::TargetSet{0}, halyard::bit(Target::reference)}) {
        CHECK(halyard::find_stage_kernels(none) == nullptr);
        CHECK(halyard::select_row_kernels(none).target == Target::reference);
        CHECK(halyard::select_row_kernels(none).phase == nullptr);
    }
}

TEST_CASE("stage kernels: the model's bits within the memory that they are given", "[stages]") {
    for (const KernelRow &row : all_built_kernels()) {
        if (row.stage != "rotate" && row.is_here()) {
            CHECK(fault_of(row, Catch::getSeed(), 400) == "");
        }
    }
}

// All kernels give the bits of the model in C++, and these must not depend on the machine. This hash changes if a
// compiler fuses or reorders the model's arithmetic, or if random calls are drawn differently.
TEST_CASE("hashes: the model's bits are the same on every machine", "[stages]") {
    std::map<std::string, KernelRow> rows;  // by name without the target; not every machine has non-temporal kernels
    for (const KernelRow &row : all_built_kernels()) {
        if (row.stage != "rotate" || row.rotation.place != Place::non_temporal) {
            rows.emplace(row.name.substr(0, row.name.rfind(halyard::name_of(row.target))), row);
        }
    }
    std::uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a
    for (const auto &[name, row] : rows) {
        Random random(20261121);
        for (int n = 0; n < 100; n++) {
            Trial trial(row, random, n);
            for (const std::vector<char> &image : trial.run(row.model, false)) {
                for (const char byte : image) {
                    hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3u;
                }
            }
        }
        UNSCOPED_INFO(name << ": " << hash);
    }
    CHECK(hash == 563803083846957614u);
}
