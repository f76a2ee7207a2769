// halyard_make_position_scales: the factors by which some models multiply q at each position.
#include "angles/positions.h"
#include "base/error.h"
#include "base/floats_out.h"
#include "frequencies/frequencies.h"
#include "halyard/halyard_kv.h"

#include <cstdint>

using namespace halyard;

namespace {

/// A model's q_scale_rule, computed in twice double precision.
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
        if (n_lengths != n_lengths_) {  // neighbouring positions mostly share it
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

}  // namespace

extern "C" halyard_status halyard_make_position_scales(const halyard_frequencies *frequencies,
                                                       const halyard_positions *positions, int64_t n_batch,
                                                       int64_t n_tokens, float *out, int64_t n_floats,
                                                       halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(frequencies, "frequencies", error));
    const halyard_frequencies_info &about = frequencies->about;
    if (about.q_scale_rule == HALYARD_Q_SCALE_NONE) {
        return fail(error, HALYARD_ERROR_MISMATCH, "the frequencies tell no rule by which q is scaled by position");
    }
    if (n_batch < 0 || n_tokens < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_batch is ", n_batch, " and n_tokens is ", n_tokens,
                    ", but neither may be negative");
    }
    Positions read;
    HALYARD_TRY(bind_positions(positions, n_batch, n_tokens, 1, "positions", &read, error));
    const void *const data = positions == nullptr ? nullptr : positions->data;
    MemoryRange written = {0, 0}, span = {0, 0};
    HALYARD_TRY(find_floats_out({out, n_floats, "out", "n_floats", "scales"}, {n_batch, n_tokens, 1}, &written, error));
    if (!find_range(data, read.reach, &span)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "positions.data leaves the address space");
    }
    if (written.overlaps(span)) {
        return fail(error, HALYARD_ERROR_OVERLAP, "out shares memory with positions.data");
    }
    const auto is_good = [](std::int64_t position) { return position >= 0 && position <= INT32_MAX; };
    for (std::int64_t i = 0; i < read.count(); ++i) {
        const std::int64_t batch = i / read.n_tokens, token = i % read.n_tokens;
        if (const std::int64_t position = read.at(data, batch, token); !is_good(position)) {
            const TokenNumbers::Name name = read.name_of(batch, token);
            return fail(error, HALYARD_ERROR_POSITION, "positions[batch ", name.batch, ", token ", name.token, "] is ",
                        position, ", but a scale by position needs 0 to 2^31 - 1");
        }
    }
    Rule rule(about);
    for (std::int64_t i = 0; i < read.count(); ++i) {
        const std::int64_t position = read.at(data, i / read.n_tokens, i % read.n_tokens);
        out[i] = rule.at(is_good(position) ? position : 0);  // bad only if another thread changes them now
    }
    return HALYARD_OK;
}
