// halyard_make_position_scales: what models multiply q by at each position.
#include "angles/positions.h"
#include "base/error.h"
#include "base/floats_out.h"
#include "frequencies/frequencies.h"

#include <cstdint>

using namespace halyard;

namespace {

/// A model's rule, in twice double precision.
class Rule {
public:
    explicit Rule(const halyard_frequencies_info &about) noexcept
        : about_(about), log2_length_(precise_log2(static_cast<double>(about.q_scale_length))) {}

    float at(std::int64_t position) noexcept {
        const std::int64_t shifted = position + about_.q_scale_shift;
        if (about_.q_scale_rule == HALYARD_Q_SCALE_POWER) {
            const auto log2 = precise_log2(static_cast<double>(about_.q_scale_length + shifted)) + -log2_length_;
            return round_to_float(precise_exp2(log2 * about_.q_scale));
        }
        const std::int64_t n_lengths = shifted / about_.q_scale_length;
        if (n_lengths != n_lengths_) {  // it changes seldom
            n_lengths_ = n_lengths;
            scale_ = round_to_float(precise_log2(static_cast<double>(1 + n_lengths)) * ln_2 * about_.q_scale + 1.0);
        }
        return scale_;
    }

private:
    const halyard_frequencies_info &about_;
    DoubleDouble log2_length_;
    std::int64_t n_lengths_ = 0;
    float scale_ = 1.0f;
};

/// Checks where the scales go: `out`, with room for n_floats.
halyard_status check_out(const CheckedPositions &positions, std::int64_t n_batch, std::int64_t n_tokens,
                         const float *out, std::int64_t n_floats, halyard_error *error) {
    MemoryRange written = {0, 0};
    const FloatsOut scales = {out, n_floats, "out", "n_floats", "scales"};
    HALYARD_TRY(find_floats_out(scales, {n_batch, n_tokens, 1}, &written, error));
    if (written.overlaps(positions.memory)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "out shares memory with positions.data");
    }
    return HALYARD_OK;
}

}  // namespace

extern "C" halyard_status halyard_make_position_scales(const halyard_frequencies *frequencies,
                                                       const halyard_positions *positions, int64_t n_batch,
                                                       int64_t n_tokens, float *out, int64_t n_floats,
                                                       halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(frequencies, "frequencies", error));
    const halyard_frequencies_info &about = frequencies->about;
    if (about.q_scale_rule == HALYARD_Q_SCALE_NONE) {
        return fail(error, HALYARD_ERROR_MISMATCH, "the frequencies tell no rule by which q is scaled by position");
    }
    if (n_batch < 0 || n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_batch is ", n_batch, " and n_tokens is ", n_tokens,
                    ", but neither may be negative");
    }
    CheckedPositions checked;
    HALYARD_TRY(read_positions(positions, n_batch, n_tokens, 1, &checked, error));
    HALYARD_TRY(check_out(checked, n_batch, n_tokens, out, n_floats, error));
    const auto is_good = [](std::int64_t position) { return position >= 0 && position <= INT32_MAX; };
    for (std::int64_t i = 0; i < n_batch * n_tokens; ++i) {
        if (const std::int64_t position = checked.at(i / n_tokens, i % n_tokens); !is_good(position)) {
            return fail(error, HALYARD_ERROR_POSITION, "positions[batch ", i / n_tokens, ", token ", i % n_tokens,
                        "] is ", position, ", but a scale by position needs 0 to 2^31 - 1");
        }
    }
    Rule rule(about);
    for (std::int64_t i = 0; i < n_batch * n_tokens; ++i) {
        const std::int64_t position = checked.at(i / n_tokens, i % n_tokens);
        out[i] = rule.at(is_good(position) ? position : 0);  // else another thread is writing them
    }
    return HALYARD_OK;
}
