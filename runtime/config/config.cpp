// From a Hugging Face config.json to frequencies: finds the fields that matter, in each of the places where models keep
// them, and hands the numbers to the scaling methods. Inside, errors are exceptions; none leaves this file.
#include "config/config.h"
#include "angles/scaling.h"
#include "base/error.h"

#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <utility>

namespace halyard {
namespace {

constexpr std::int64_t max_tokens = std::int64_t{1} << 53;
constexpr std::int64_t max_text = std::int64_t{1} << 30;

/// Error messages about numbers then name the config's fields.
constexpr ScalingNames config_names = {.base = "rope_theta",
                                       .rotary_dim = "rotary_dim (from head_dim and the partial rotary factor)",
                                       .rotated_dim = "head_dim times partial_rotary_factor",
                                       .factor = "factor",
                                       .original_max_position = "original_max_position_embeddings",
                                       .max_position = "max_position_embeddings",
                                       .seq_len = "options.seq_len",
                                       .attention_factor = "attention_factor",
                                       .beta_fast = "beta_fast",
                                       .beta_slow = "beta_slow",
                                       .mscale = "mscale",
                                       .mscale_all_dim = "mscale_all_dim",
                                       .low_freq_factor = "low_freq_factor",
                                       .high_freq_factor = "high_freq_factor",
                                       .short_factor = "short_factor",
                                       .long_factor = "long_factor",
                                       .n_factors = "the length of short_factor"};

/// The frequencies of one axis, once for each of the two.
std::unique_ptr<halyard_frequencies> repeat(const halyard_frequencies &once) noexcept {
    auto twice = allocate_frequencies(2 * once.n_pairs, once.about.method);
    for (std::int64_t k = 0; twice != nullptr && k < twice->n_pairs; ++k) {
        set_inv_freq(*twice, k, once.inv_freq.get()[k % once.n_pairs]);
    }
    return twice;
}

Rope read_text(std::string_view text, const Request &request, bool *is_vision) {
    const auto document = parse_json(text);
    const JsonObject root(document, "");
    *is_vision = request.layer_type == "vision";
    if (*is_vision) {
        return read_vision(root);
    }
    const auto model = find_model(root);
    return read_rope(model, choose_layer(model, request), request);
}

halyard_status make_frequencies(std::string_view text, const Request &request,
                                std::unique_ptr<halyard_frequencies> *out, halyard_error *error) {
    bool is_vision = false;
    auto rope = read_text(text, request, &is_vision);
    rope.scaling.short_factor = rope.short_factor.data();
    rope.scaling.long_factor = rope.long_factor.data();
    std::unique_ptr<halyard_frequencies> result;
    const auto status = make_scaled_frequencies(rope.scaling, config_names, &result, error);
    if (status != HALYARD_OK) {
        return status;
    }
    result = is_vision ? repeat(*result) : std::move(result);
    if (result == nullptr) {
        throw std::bad_alloc();
    }
    rope.about.method = result->about.method;
    result->about = rope.about;
    *out = std::move(result);
    return HALYARD_OK;
}

}  // namespace
}  // namespace halyard

using namespace halyard;

extern "C" halyard_status halyard_create_frequencies_from_config(const char *text, int64_t n_bytes,
                                                                 const halyard_config_options *options,
                                                                 halyard_frequencies **out, halyard_error *error) {
    if (text == nullptr) {
        return fail_null(error, "text");
    }
    if (out == nullptr) {
        return fail_null(error, "out");
    }
    if (n_bytes < 0 || n_bytes > max_text) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_bytes is ", n_bytes, ", but it must be in 0 to 2^30");
    }
    halyard_config_options copy = {};
    if (options != nullptr) {
        if (const auto status = read_struct(options, sizeof(copy), "options", &copy, error); status != HALYARD_OK) {
            return status;
        }
    }
    if (copy.seq_len < 0 || copy.seq_len > max_tokens) {
        return fail(error, HALYARD_ERROR_SHAPE, "options.seq_len is ", copy.seq_len, ", but it must be in 0 to 2^53");
    }
    try {
        Request request;
        request.seq_len = copy.seq_len;
        if (copy.layer_type != nullptr) {
            request.layer_type = copy.layer_type;
        }
        std::unique_ptr<halyard_frequencies> result;
        const auto status = make_frequencies({text, static_cast<std::size_t>(n_bytes)}, request, &result, error);
        if (status == HALYARD_OK) {
            *out = result.release();
        }
        return status;
    } catch (const ConfigError &refusal) {
        return fail(error, refusal.status(), refusal.what());
    } catch (const std::bad_alloc &) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a config of ", n_bytes, " bytes");
    } catch (const std::exception &unforeseen) {
        return fail(error, HALYARD_ERROR_CONFIG, "the config can't be read: ", unforeseen.what());
    }
}
