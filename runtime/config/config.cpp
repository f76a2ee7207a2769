// From a Hugging Face config.json to frequencies: finds the fields that matter, in each of the objects where models
// keep them, and passes the numbers to the scaling methods. Reading throws Failure, which becomes a status here.
#include "base/error.h"
#include "base/text.h"
#include "base/versioned.h"
#include "config/rope.h"
#include "frequencies/scaling.h"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace halyard {
namespace {

constexpr std::int64_t max_text = std::int64_t{1} << 30;

/// Returns the frequencies of an image encoder's first axis, followed by the same ones for the second axis.
std::unique_ptr<halyard_frequencies> repeat(const halyard_frequencies &once) noexcept {
    auto twice = allocate_frequencies(2 * once.n_pairs, once.about.method);
    for (std::int64_t k = 0; twice != nullptr && k < twice->n_pairs; ++k) {
        set_inv_freq(*twice, k, once.inv_freq.get()[k % once.n_pairs]);
    }
    return twice;
}

/// Negates all frequencies, so that every pair rotates the other way.
void negate_frequencies(halyard_frequencies &frequencies) noexcept {
    for (std::int64_t k = 0; k < frequencies.n_pairs; ++k) {
        const auto value = frequencies.inv_freq.get()[k];
        set_inv_freq(frequencies, k, {-value.hi, -value.lo});
    }
}

bool is_vision(const std::optional<std::string> &layer_type) { return layer_type == "vision"; }

Rope read_text(std::string_view text, const RequestedLayer &asked, std::int64_t seq_len) {
    const auto document = parse_json(text);
    const JsonObject root(document, "");
    if (is_vision(asked.type)) {
        if (asked.number) {
            refuse("layer is " + std::to_string(*asked.number) + ", but all layers of an image encoder are alike",
                   HALYARD_ERROR_MISMATCH);
        }
        return read_vision(root);
    }
    const auto model = find_model(root);
    check_keys(model);
    return read_rope(model, choose_layer(model, asked), seq_len);
}

halyard_status make_frequencies(std::string_view text, const halyard_config_options &options, halyard_frequencies **out,
                                halyard_error *error) {
    RequestedLayer asked;
    if (options.layer_type != nullptr) {
        asked.type = options.layer_type;
    }
    if (options.layer != nullptr) {
        asked.number = *options.layer;
    }
    auto rope = read_text(text, asked, options.seq_len);
    rope.scaling.short_factor = rope.short_factor.data();
    rope.scaling.long_factor = rope.long_factor.data();
    std::unique_ptr<halyard_frequencies> result;
    HALYARD_TRY(make_scaled_frequencies(rope.scaling, rope.names, &result, error));
    result->origin->short_attention_factor = rope.short_attention_factor;
    result->origin->long_attention_factor = rope.long_attention_factor;
    result->origin->longest_seq_len = rope.longest_seq_len;
    result->last_seq_len = std::min(result->last_seq_len, rope.longest_seq_len);
    if (rope.is_backward) {
        if (result->last_seq_len != max_tokens) {
            refuse_unsupported(
                "a model that turns by -position is not supported with a scaling that changes with the context");
        }
        negate_frequencies(*result);
    }
    result = is_vision(asked.type) ? repeat(*result) : std::move(result);
    if (result == nullptr) {
        throw std::bad_alloc();
    }
    rope.about.method = result->about.method;
    result->about = rope.about;
    *out = result.release();
    return HALYARD_OK;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_create_frequencies_from_config(const char *text, int64_t n_bytes,
                                                                 const halyard_config_options *options,
                                                                 halyard_frequencies **out, halyard_error *error) {
    HALYARD_TRY(check_error_size(error));
    HALYARD_TRY(check_given(text, "text", error));
    HALYARD_TRY(check_given(out, "out", error));
    if (n_bytes < 0 || n_bytes > max_text) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_bytes is ", n_bytes, ", but it must be in 0 to 2^30");
    }
    halyard_config_options copy = {};
    if (options != nullptr) {
        HALYARD_TRY(read_struct(options, "options", &copy, error));
    }
    if (copy.seq_len < 0 || copy.seq_len > max_tokens) {
        return fail(error, HALYARD_ERROR_SHAPE, "options.seq_len is ", copy.seq_len, ", but it must be in 0 to 2^53");
    }
    if (copy.layer != nullptr && *copy.layer < 0) {
        return fail(error, HALYARD_ERROR_SHAPE, "options.layer is ", *copy.layer, ", but layers count from 0");
    }
    char what[48];
    Text{what, sizeof(what)}.add("a config of ", n_bytes, " bytes");
    return guard(error, what, [&] {
        return make_frequencies({text, static_cast<std::size_t>(n_bytes)}, copy, out, error);
    });
}
