// The kernels of stages: every target against the portable loops, bit by bit and within the memory that they are given.
// test_conversions.cpp has the roundings of each dtype, test_norms.cpp how far norms are off.
#include "checks/kernel_checker.h"
#include "checks/oracle.h"
#include "halyard/halyard.hpp"
#include "kernels/stage_calls.h"
#include "kernels/stage_kernels_here.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

using halyard::StageKernels;
using halyard::Target;

namespace {

/// With the target.
std::string name_of(const StageRow &row) { return std::string(row.name) + "_" + halyard::name_of(row.target); }

const StageKernels portable = halyard::select_stage_kernels(0);

// ---- Stages on random bits in random layouts -----------------------------------------------------------------------

/// The first element of an operand that is not as it ought to be, in words, or nothing; any NaN equals any other.
std::string difference(const Operand &operand) {
    const auto type = static_cast<std::int32_t>(operand.dtype);
    std::int64_t i = 0;
    char text[100] = "";
    operand.for_each_element([&](std::uint32_t got, std::uint32_t want) {
        if (text[0] == '\0' && got != want && !(oracle::is_nan(type, got) && oracle::is_nan(type, want))) {
            std::snprintf(text, sizeof(text), "element %lld is %x, but should be %x", static_cast<long long>(i), got,
                          want);
        }
        i++;
    });
    return text;
}

/// One call of a stage, and the same call by the portable loops on images. The first fault in words, or nothing.
std::string fault_of(const StageRow &row, const StageKernels &kernels, Random &random, TrialText &told) {
    StageTrial trial(row, random);
    std::snprintf(told, sizeof(told), "%s: %s", name_of(row).c_str(), trial.text.c_str());
    const StageCall &call = trial.call;
    const bool is_done = call.run_by(kernels);
    if (trial.on_images.run_by(portable) != is_done) {
        return std::string(told) + ": one says that all is finite, the other does not";
    }
    for (const auto &[name, operand] : trial.operands) {
        const bool is_left_anyhow = !is_done && operand->data() != call.x.data;
        if (const std::string what = is_left_anyhow ? "" : difference(*operand); !what.empty()) {
            return std::string(told) + ": " + name + ": " + what;
        }
    }
    return "";
}

/// Calls a stage until something is wrong, in a process of its own.
KernelReport check_stage(const StageRow &row, const StageKernels &kernels, int n_calls) {
    return check_apart(name_of(row), 0, [&](TrialText &text) {
        Random random(Catch::getSeed());
        KernelReport report;
        while (report.n_runs < n_calls && report.fault.empty()) {
            report.fault = fault_of(row, kernels, random, text);
            report.n_runs++;
        }
        return report;
    });
}

bool is_here(Target target) {
    return (halyard::supported_targets() & halyard::bit(target)) != 0 &&
           halyard::select_stage_kernels(halyard::bit(target)).target == target;
}

}  // namespace

TEST_CASE("stage kernels: every target of kernels has all that are listed", "[stages]") {
    int index = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        const auto target = static_cast<Target>(index++);
        const StageKernels kernels = halyard::select_stage_kernels(halyard::bit(target));
        const bool is_gpu = target == Target::cuda_sm80;
        const bool has_kernels = info.built != 0 && target != Target::reference && !is_gpu;
        INFO(info.name);
        CHECK(kernels.target == (has_kernels ? target : Target::reference));
        for (const StageRow &row : stage_rows) {
            if (row.target == target) {
                CHECK(row.is_in(kernels) == has_kernels);
            }
        }
    }
}

TEST_CASE("stage kernels: the portable loops' bits within the memory that they are given", "[stages]") {
    for (const StageRow &row : stage_rows) {
        if (is_here(row.target)) {
            const KernelReport report = check_stage(row, halyard::select_stage_kernels(halyard::bit(row.target)), 400);
            CHECK(report.fault == "");
            CHECK(report.n_runs == 400);
        }
    }
}

namespace {

void widen_rightly(halyard_buffer *x, halyard_buffer *y) {
    const ElementStrides in = {1, x->dim[1].stride, x->dim[2].stride}, out = {1, y->dim[1].stride, y->dim[2].stride};
    const Extents extents = {x->dim[0].extent, x->dim[1].extent, x->dim[2].extent};
    widen(portable, Dtype::f32, extents, {reinterpret_cast<char *>(x->host), in},
          {reinterpret_cast<float *>(y->host), out});
}

}  // namespace

TEST_CASE("stage kernels: the check catches what is wrong, what writes elsewhere and what reads too far", "[stages]") {
    const auto fault_of = [](halyard_widen_kernel *kernel) {
        StageKernels kernels = portable;
        kernels.widen[halyard::index_of(Dtype::f32)] = kernel;
        return check_stage({"widen", Stage::widen, Dtype::f32, Target::reference, nullptr}, kernels, 400).fault;
    };
    const auto wrong = fault_of([](halyard_buffer *, halyard_buffer *) { return 0; });
    CHECK(wrong.find("but should be") != std::string::npos);
    const auto elsewhere = fault_of([](halyard_buffer *x, halyard_buffer *y) {
        widen_rightly(x, y);
        if (y->dim[1].stride > y->dim[0].extent && y->dim[1].extent > 1) {
            reinterpret_cast<float *>(y->host)[y->dim[0].extent] = 1;
        }
        return 0;
    });
    CHECK(elsewhere.find("but should be") != std::string::npos);
    const auto beyond = fault_of([](halyard_buffer *x, halyard_buffer *y) {
        widen_rightly(x, y);
        const volatile auto *const data = reinterpret_cast<const volatile float *>(x->host);
        return data[(x->dim[0].extent + 15) / 16 * 16 + (x->dim[1].extent - 1) * x->dim[1].stride +
                    (x->dim[2].extent - 1) * x->dim[2].stride] == 0.5f
                   ? 1
                   : 0;
    });
    CHECK(beyond.find("crashes with signal") != std::string::npos);
}

// ---- The largest magnitude -----------------------------------------------------------------------------------------

TEST_CASE("stage kernels: the largest magnitude passes over NaN and infinities", "[stages]") {
    for (const StageRow &row : stage_rows) {
        if (row.stage != Stage::largest || !is_here(row.target)) {
            continue;
        }
        const StageKernels kernels = halyard::select_stage_kernels(halyard::bit(row.target));
        for (const StageKernels &by : {kernels, portable}) {
            std::vector<float> heads(4 * 64, NAN);
            heads[5] = -7.5f;
            heads[40] = 7.0f;
            std::fill_n(heads.begin() + 64, 64, -INFINITY);
            heads[128 + 63] = -0x1p-149f;
            heads[192] = -0x1.fffffep127f;
            std::vector<float> largest(4, -1.0f);
            find_largest(by, {64, 4, 1}, {heads.data(), {1, 64, 0}}, largest.data());
            CHECK(largest == std::vector<float>{7.5f, 0.0f, 0x1p-149f, 0x1.fffffep127f});
        }
    }
}

TEST_CASE("stage kernels: the range passes over NaN and infinities, and its zeros have no sign", "[stages]") {
    for (const StageKernels &by : stage_kernels_here()) {
        for (const std::int64_t n : {64, 33}) {
            std::vector<float> heads(static_cast<std::size_t>(5 * n), NAN);
            const auto head = [&](std::int64_t i) { return heads.begin() + i * n; };
            *(head(0) + 5) = -7.5f;
            *(head(0) + 30) = -7.0f;
            std::fill_n(head(1), n, -INFINITY);
            *(head(2) + n - 1) = -0x1p-149f;
            *(head(2) + 1) = INFINITY;
            std::fill_n(head(3), n, -0.0f);
            *head(4) = 0x1.fffffep127f;
            *(head(4) + 2) = -0.0f;
            std::vector<float> least(5, -1.0f), greatest(5, -1.0f);
            find_range(by, {n, 5, 1}, {heads.data(), {1, n, 0}}, least.data(), greatest.data());
            CHECK(least == std::vector<float>{-7.5f, 0.0f, -0x1p-149f, 0.0f, 0.0f});
            CHECK(greatest == std::vector<float>{-7.0f, 0.0f, -0x1p-149f, 0.0f, 0x1.fffffep127f});
            const auto has_sign = [](float end) { return end == 0.0f && std::signbit(end); };
            CHECK(std::none_of(least.begin(), least.end(), has_sign));
            CHECK(std::none_of(greatest.begin(), greatest.end(), has_sign));
        }
    }
}
