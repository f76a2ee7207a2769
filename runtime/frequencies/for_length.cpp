// The frequencies of a model for another context length.
#include "base/error.h"
#include "frequencies/frequencies.h"
#include "frequencies/scaling.h"

#include <algorithm>
#include <cstdint>
#include <memory>

namespace halyard {
namespace {

/// Copies frequencies that are a list, not computed by a formula. NULL when memory runs out.
std::unique_ptr<halyard_frequencies> copy(const halyard_frequencies &from) noexcept {
    auto to = allocate_frequencies(from.n_pairs, from.about.method);
    if (to == nullptr) {
        return nullptr;
    }
    std::copy_n(from.inv_freq.get(), from.n_pairs, to->inv_freq.get());
    std::copy_n(from.rounded_inv_freq.get(), from.n_pairs, to->rounded_inv_freq.get());
    std::copy_n(from.quarter_turns.get(), from.n_pairs, to->quarter_turns.get());
    to->attention_factor = from.attention_factor;
    to->last_seq_len = from.last_seq_len;
    return to;
}

/// Makes frequencies for another context length by the original frequencies' formula and numbers. (Most methods ignore
/// the length and give equal frequencies.)
halyard_status remake(const Origin &origin, std::int64_t seq_len, std::unique_ptr<halyard_frequencies> *out,
                      halyard_error *error) noexcept {
    halyard_scaling scaling = origin.scaling;
    scaling.seq_len = seq_len;
    scaling.short_factor = origin.factors.get();
    scaling.long_factor = origin.factors.get() + scaling.n_factors;
    if (origin.short_attention_factor != 0.0) {
        scaling.attention_factor =
            seq_len > scaling.original_max_position ? origin.long_attention_factor : origin.short_attention_factor;
    }
    return make_scaled_frequencies(scaling, {}, out, error);
}

}  // namespace
}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_create_frequencies_for_length(const halyard_frequencies *frequencies, int64_t seq_len,
                                                                halyard_frequencies **out, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(frequencies, "frequencies", error));
    HALYARD_TRY(check_given(out, "out", error));
    if (seq_len < 0 || seq_len > max_tokens) {
        return fail(error, HALYARD_ERROR_SHAPE, "seq_len is ", seq_len, ", but it must be in 0 to 2^53");
    }
    if (frequencies->origin != nullptr && seq_len > frequencies->origin->longest_seq_len) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "seq_len is ", seq_len,
                    ", but this model's frequencies are known ", "up to ", frequencies->origin->longest_seq_len,
                    " tokens only");
    }
    std::unique_ptr<halyard_frequencies> result;
    if (frequencies->origin != nullptr) {
        HALYARD_TRY(remake(*frequencies->origin, seq_len, &result, error));
    } else {
        result = copy(*frequencies);
        if (result == nullptr) {
            return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for ", frequencies->n_pairs,
                        " inverse frequencies");
        }
    }
    result->about = frequencies->about;
    if (result->origin != nullptr) {
        result->origin->short_attention_factor = frequencies->origin->short_attention_factor;
        result->origin->long_attention_factor = frequencies->origin->long_attention_factor;
        result->origin->longest_seq_len = frequencies->origin->longest_seq_len;
        result->last_seq_len = std::min(result->last_seq_len, result->origin->longest_seq_len);
    }
    *out = result.release();
    return HALYARD_OK;
}
