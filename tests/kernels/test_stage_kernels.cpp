// The kernels of stages: every target against the model, bit by bit and within the memory that they are given.
// test_conversions.cpp has the roundings of each dtype, test_norms.cpp how far norms are off.
#include "checks/kernel_checker.h"
#include "checks/model.h"
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

/// One call of a stage, and the same call of the model on images. The first fault in words, or nothing.
std::string fault_of(const StageRow &row, const StageKernels &kernels, Random &random, TrialText &told) {
    StageTrial trial(row, random);
    std::snprintf(told, sizeof(told), "%s: %s", name_of(row).c_str(), trial.text().c_str());
    trial.run_by(kernels, false);
    trial.run_by(model::stage_kernels, true);
    for (const auto &operand : trial.operands) {
        if (const std::string what = trial.is_of_use(*operand) ? difference(*operand) : ""; !what.empty()) {
            return std::string(told) + ": " + operand->name + ": " + what;
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

}  // namespace

TEST_CASE("stage kernels: every target of kernels has all that are listed", "[stages]") {
    int index = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        const auto target = static_cast<Target>(index++);
        const StageKernels *const kernels = halyard::find_stage_kernels(halyard::bit(target));
        const bool has_kernels = info.built != 0 && target != Target::reference;
        INFO(info.name);
        CHECK((kernels != nullptr) == has_kernels);
        for (const StageRow &row : stage_rows) {
            if (kernels != nullptr && row.target == target) {
                CHECK((row.is_in(*kernels) && row.is_in(model::stage_kernels)));
            }
        }
    }
}

TEST_CASE("stage kernels: the model's bits within the memory that they are given", "[stages]") {
    for (const StageRow &row : stage_rows) {
        const StageKernels *const kernels =
            halyard::find_stage_kernels(halyard::supported_targets() & halyard::bit(row.target));
        if (kernels != nullptr) {
            const KernelReport report = check_stage(row, *kernels, 400);
            CHECK(report.fault == "");
            CHECK(report.n_runs == 400);
        }
    }
}

TEST_CASE("stage kernels: the check catches what is wrong, what writes elsewhere and what reads too far", "[stages]") {
    const auto fault_of = [](halyard_widen_kernel *kernel) {
        StageKernels kernels = model::stage_kernels;
        kernels.widen[halyard::index_of(Dtype::f32)] = kernel;
        return check_stage({"widen", Stage::widen, Dtype::f32, Target::reference, nullptr}, kernels, 400).fault;
    };
    const auto wrong = fault_of([](halyard_buffer *, halyard_buffer *) { return 0; });
    CHECK(wrong.find("but should be") != std::string::npos);
    const auto elsewhere = fault_of([](halyard_buffer *x, halyard_buffer *y) {
        model::stage_kernels.widen[0](x, y);
        if (y->dim[1].stride > y->dim[0].extent && y->dim[1].extent > 1) {
            reinterpret_cast<float *>(y->host)[y->dim[0].extent] = 1;
        }
        return 0;
    });
    CHECK(elsewhere.find("but should be") != std::string::npos);
    const auto beyond = fault_of([](halyard_buffer *x, halyard_buffer *y) {
        model::stage_kernels.widen[0](x, y);
        const volatile auto *const data = reinterpret_cast<const volatile float *>(x->host);
        return data[(x->dim[0].extent + 15) / 16 * 16 + (x->dim[1].extent - 1) * x->dim[1].stride +
                    (x->dim[2].extent - 1) * x->dim[2].stride] == 0.5f
                   ? 1
                   : 0;
    });
    CHECK(beyond.find("crashes with signal") != std::string::npos);
}

// ---- Reductions ----------------------------------------------------------------------------------------------------

TEST_CASE("stage kernels: largest and range pass over NaN and infinities, and zeros have no sign", "[stages]") {
    constexpr std::int32_t n = 64, n_heads = 5;
    std::vector<float> heads(n_heads * n, NAN), largest(n_heads), least(n_heads), greatest(n_heads);
    const auto head = [&](std::int64_t i) { return heads.begin() + i * n; };
    *(head(0) + 5) = -7.5f;
    *(head(0) + 40) = -7.0f;
    std::fill_n(head(1), n, -INFINITY);
    *(head(2) + n - 1) = -0x1p-149f;
    *(head(2) + 1) = INFINITY;
    std::fill_n(head(3), n, -0.0f);
    *head(4) = 0x1.fffffep127f;
    *(head(4) + 2) = -0.0f;
    halyard_dimension dims[] = {{0, n, 1, 0}, {0, n_heads, n, 0}, {0, 1, n * n_heads, 0}};
    halyard_dimension of_heads[] = {{0, n_heads, 1, 0}, {0, 1, n_heads, 0}};
    const auto buffer = [](std::vector<float> &floats, halyard_dimension *of) {
        return halyard_buffer{0, nullptr, reinterpret_cast<std::uint8_t *>(floats.data()), 0, 0, 0, of, nullptr};
    };
    halyard_buffer x = buffer(heads, dims), of_largest = buffer(largest, of_heads), of_least = buffer(least, of_heads),
                   of_greatest = buffer(greatest, of_heads);
    for (const StageKernels &kernels : stage_kernels_here()) {
        kernels.largest[0](&x, &of_largest);
        kernels.range[0](&x, &of_least, &of_greatest);
        CHECK(largest == std::vector<float>{7.5f, 0.0f, 0x1p-149f, 0.0f, 0x1.fffffep127f});
        CHECK(least == std::vector<float>{-7.5f, 0.0f, -0x1p-149f, 0.0f, 0.0f});
        CHECK(greatest == std::vector<float>{-7.0f, 0.0f, -0x1p-149f, 0.0f, 0x1.fffffep127f});
        const auto has_sign = [](float end) { return end == 0.0f && std::signbit(end); };
        CHECK(std::none_of(least.begin(), least.end(), has_sign));
        CHECK(std::none_of(greatest.begin(), greatest.end(), has_sign));
    }
}
