#include "checks/row_checker.h"

#include "checks/guarded_memory.h"
#include "core/rotate.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <vector>

namespace {

using oracle::Random;

/// n values that end where a guard page begins, or begin where one ends.
template <typename T>
class Guarded {
public:
    Guarded(std::int64_t n, bool at_end)
        : memory_(static_cast<std::size_t>(n) * sizeof(T) / GuardedMemory::page + 1),
          first_(reinterpret_cast<T *>(at_end ? memory_.end() - static_cast<std::size_t>(n) * sizeof(T)
                                              : memory_.begin())),
          n_(n) {}

    T *data() { return first_; }
    T &operator[](std::int64_t i) { return first_[i]; }
    T *begin() { return first_; }
    T *end() { return first_ + n_; }

private:
    GuardedMemory memory_;
    T *first_;
    std::int64_t n_;
};

/// Where rows go: cos of pair k of token t to t * stride_token + k, and sin to stride_sin behind it.
struct RowsShape {
    std::int64_t n_tokens, n_pairs, stride_token, stride_sin;

    std::int64_t extent() const { return (n_tokens - 1) * stride_token + stride_sin + n_pairs; }
};

RowsShape random_shape(Random &random) {
    static constexpr std::int64_t long_rows[] = {128, 288, 1000, 2048, 5000};
    RowsShape layout = {};
    layout.n_pairs = random.one_in(8) ? random.one_of(long_rows) : random.in(1, 97);
    layout.n_tokens = random.in(1, layout.n_pairs > 500 ? 3 : 7);
    if (random.one_in(4)) {  // all cos, then all sin
        layout.stride_token = layout.n_pairs + random.in(0, 3);
        layout.stride_sin = layout.n_tokens * layout.stride_token + random.in(0, 3);
    } else {
        layout.stride_sin = layout.n_pairs + random.in(0, 3);
        layout.stride_token = layout.stride_sin + layout.n_pairs + random.in(0, 3);
    }
    return layout;
}

/// A frequency in 2^-64 turns. For half of them position 1 or -1 comes near a border of octants.
std::uint64_t random_turns(Random &random) {
    if (random.one_in(2)) {
        return random.bits();
    }
    const std::uint64_t border = random.bits() << 61;
    return border + static_cast<std::uint64_t>(static_cast<std::int64_t>(random.bits()) >> random.in(3, 40));
}

/// One call: where its rows go, what they ought to be, and the first thing that is wrong with them.
class Trial {
public:
    Trial(const std::string &name, Random &random, TrialText &text)
        : layout(random_shape(random)), at_end(!random.one_in(4)), out(layout.extent(), at_end), report_(text) {
        std::fill(out.begin(), out.end(), poison);
        want_.assign(out.begin(), out.end());
        std::snprintf(text, sizeof(text), "%s: %lld tokens of %lld pairs, sin %lld after cos, tokens %lld apart, %s",
                      name.c_str(), static_cast<long long>(layout.n_tokens), static_cast<long long>(layout.n_pairs),
                      static_cast<long long>(layout.stride_sin), static_cast<long long>(layout.stride_token),
                      at_end ? "ending at a page" : "beginning at a page");
    }

    const RowsShape layout;
    const bool at_end;
    Guarded<float> out;

    float *want(std::int64_t token) { return want_.data() + token * layout.stride_token; }
    RowBuffer rows() { return {out.data(), layout.n_pairs, layout.stride_sin, layout.n_tokens, layout.stride_token}; }
    void take_the_reference() { std::copy(want_.begin(), want_.end(), out.begin()); }

    void expect_status(int status) {
        if (status != 0) {
            fail("the kernel returns %d", status);
        }
    }

    /// Rows must have the reference's bits, but for the payload of a NaN, and nothing else may be written.
    void expect_reference() {
        for (std::size_t i = 0; i < want_.size(); i++) {
            const float got = out[static_cast<std::int64_t>(i)];
            const bool same = std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(want_[i]) ||
                              (std::isnan(got) && std::isnan(want_[i]));
            if (!same && want_[i] == poison) {
                fail("float %zu is no row's, but is %a", i, static_cast<double>(got));
            } else if (!same) {
                fail("float %zu is %a, but should be %a", i, static_cast<double>(got), static_cast<double>(want_[i]));
            }
        }
    }

    /// cos (member 0) or sin (1) of a pair must be no further from the exact value than the bound.
    void expect_near(std::int64_t token, std::int64_t pair, int member, long double exact, long double bound) {
        const float got = out[token * layout.stride_token + member * layout.stride_sin + pair];
        if (!(std::fabs(got - exact) <= bound)) {
            fail("%s of pair %lld of token %lld is %a, but exactly %La", member == 0 ? "cos" : "sin",
                 static_cast<long long>(pair), static_cast<long long>(token), static_cast<double>(got), exact);
        }
    }

    const std::string &fault() const { return fault_; }

private:
    static constexpr float poison = -7.25e30f;
    std::vector<float> want_;
    const char *report_;
    std::string fault_;

    template <typename... Values>
    void fail(const char *format, Values... values) {
        if (fault_.empty()) {
            char text[200];
            std::snprintf(text, sizeof(text), format, values...);
            fault_ = std::string(report_) + ": " + text;
        }
    }
};

/// Makes trials until one shows a fault.
template <typename Try>
KernelReport check(const std::string &name, std::uint64_t seed, int n_trials, unsigned limit_seconds, Try make_rows) {
    return check_apart(name, limit_seconds, [&](TrialText &text) {
        Random random(seed);
        KernelReport report;
        while (report.n_runs < n_trials && report.fault.empty()) {
            Trial trial(name, random, text);
            make_rows(trial, random);
            report.fault = trial.fault();
            report.n_runs++;
            report.n_outputs += trial.layout.n_tokens * trial.layout.n_pairs;
        }
        return report;
    });
}

}  // namespace

RowBuffer::RowBuffer(const void *data, std::int64_t n, std::int64_t stride_member, std::int64_t n_rows,
                     std::int64_t stride_row) {
    header.host = static_cast<std::uint8_t *>(const_cast<void *>(data));
    header.dimensions = n_rows == 0 ? 1 : 3;
    header.dim = dims;
    dims[0] = {0, static_cast<std::int32_t>(n), 1, 0};
    dims[1] = {0, 2, static_cast<std::int32_t>(stride_member), 0};
    dims[2] = {0, static_cast<std::int32_t>(n_rows), static_cast<std::int32_t>(stride_row), 0};
}

std::int32_t random_position(Random &random) {
    static constexpr std::int32_t special[] = {0, 1, -1, 2, least_position, least_position + 1, greatest_position};
    return random.one_in(3) ? random.one_of(special)
                            : static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 62));
}

ExactCosSin exact_of_turns(std::uint64_t turns, std::int32_t position) {
    const auto angle = static_cast<std::int64_t>(turns * static_cast<std::uint64_t>(std::int64_t{position}));
    const long double theta = static_cast<long double>(angle) * 0x1p-63L * std::acos(-1.0L);
    return {std::cos(theta), std::sin(theta)};
}

KernelReport check_phase_rows(const std::string &name, halyard_rows_phase_kernel *kernel, std::uint64_t seed,
                              int n_trials, unsigned limit_seconds) {
    return check(name, seed, n_trials, limit_seconds, [&](Trial &trial, Random &random) {
        const RowsShape &layout = trial.layout;
        const double factor = random.one_of(attention_factors);
        const auto scale_high = static_cast<float>(factor), scale_low = static_cast<float>(factor - scale_high);
        Guarded<std::int32_t> positions(layout.n_tokens, trial.at_end);
        Guarded<std::uint32_t> high(layout.n_pairs, trial.at_end), low(layout.n_pairs, trial.at_end);
        for (std::int32_t &position : positions) {
            position = random_position(random);
        }
        for (std::int64_t k = 0; k < layout.n_pairs; k++) {
            const std::uint64_t turns = random_turns(random);
            high[k] = static_cast<std::uint32_t>(turns >> 32);
            low[k] = static_cast<std::uint32_t>(turns);
        }
        for (std::int64_t t = 0; t < layout.n_tokens; t++) {
            halyard::phase_row_reference(positions[t], {high.data(), low.data(), scale_high, scale_low}, layout.n_pairs,
                                         trial.want(t), trial.want(t) + layout.stride_sin);
        }
        if (kernel == nullptr) {
            trial.take_the_reference();
        } else {
            RowBuffer position(positions.data(), layout.n_tokens), turns_high(high.data(), layout.n_pairs),
                turns_low(low.data(), layout.n_pairs), rows = trial.rows();
            trial.expect_status(
                kernel(&position.header, &turns_high.header, &turns_low.header, scale_high, scale_low, &rows.header));
        }
        trial.expect_reference();
        for (std::int64_t t = 0; t < layout.n_tokens; t++) {
            for (std::int64_t k = 0; k < layout.n_pairs; k++) {
                const ExactCosSin exact = exact_of_turns(std::uint64_t{high[k]} << 32 | low[k], positions[t]);
                trial.expect_near(t, k, 0, factor * exact.cos, phase_bound * factor);
                trial.expect_near(t, k, 1, factor * exact.sin, phase_bound * factor);
            }
        }
    });
}
