// Fuzzes the reader of config.json: any bytes must give frequencies that the rest of the library can use, or an error.
#include "angles/angle_source.h"
#include "checks/require.h"
#include "checks/sized.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <utility>

namespace {

void check_frequencies(halyard_frequencies *frequencies) {
    auto info = sized<halyard_frequencies_info>();
    WatchedError error;
    require(error.check(halyard_get_frequencies_info(frequencies, &info, &error.error)) == HALYARD_OK, "has an info");
    require(info.rotary_dim >= 2 && info.rotary_dim % 2 == 0, "rotary_dim is even");
    for (std::int64_t k = 0; k < info.rotary_dim / 2; k++) {
        require(std::fabs(info.inv_freq[k]) <= 0x1p20, "inv_freq is finite and in range");
    }
    require(info.attention_factor >= 0x1p-60 && info.attention_factor <= 0x1p60, "attention_factor is in range");
    require(info.n_axes >= 0 && info.n_axes <= HALYARD_MAX_AXES, "the axes are a map's");
    require(info.n_axes == 0 || std::accumulate(info.axis_counts, info.axis_counts + info.n_axes, std::int64_t{0}) ==
                                    info.rotary_dim / 2,
            "the axes have all pairs");
    using Source = std::pair<std::int32_t, std::int32_t>;  // a kind and a reference
    for (const auto &[kind, reference] :
         {Source(HALYARD_ANGLES_PHASE, HALYARD_REFERENCE_EXACT), Source(HALYARD_ANGLES_TABLE, HALYARD_REFERENCE_EXACT),
          Source(HALYARD_ANGLES_TABLE, HALYARD_REFERENCE_HF_F32)}) {
        auto desc = sized<halyard_angle_source_desc>();
        desc.kind = kind;
        desc.reference = reference;
        desc.first = std::numeric_limits<std::int32_t>::max();
        desc.n_positions = 1;
        desc.axis_map = info.axis_map;
        desc.n_axes = info.n_axes;
        std::copy_n(info.axis_counts, info.n_axes, desc.axis_counts);
        halyard_angle_source *source = nullptr;
        require(error.check(halyard_create_angle_source(frequencies, &desc, &source, &error.error)) == HALYARD_OK,
                "a source can be made of a config's frequencies");
        const auto *const row = static_cast<const float *>(source->cos_rows);
        require(kind != HALYARD_ANGLES_TABLE ||
                    std::all_of(row, row + source->rotary_dim, [](float value) { return std::isfinite(value); }),
                "rows are finite");
        halyard_destroy_angle_source(source);
    }
}

/// Checks that frequencies can be changed to another context length, unless the config is not known for that length.
void check_lengths(const halyard_frequencies *frequencies, std::int64_t seq_len) {
    halyard_frequencies *other = nullptr;
    WatchedError error;
    const halyard_status status =
        error.check(halyard_create_frequencies_for_length(frequencies, seq_len, &other, &error.error));
    require((status == HALYARD_OK) == (other != nullptr), "an object, or an error");
    require(status == HALYARD_OK || status == HALYARD_ERROR_UNSUPPORTED, "only a length is refused");
    if (status == HALYARD_OK) {
        auto info = sized<halyard_frequencies_info>();
        require(error.check(halyard_get_frequencies_info(other, &info, &error.error)) == HALYARD_OK, "info");
        require(info.first_seq_len <= seq_len && seq_len <= info.last_seq_len, "they are for the length asked for");
        check_frequencies(other);
    }
    halyard_destroy_frequencies(other);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    const char *const layer_types[] = {nullptr, "full_attention", "sliding_attention", "vision"};
    for (const char *layer_type : layer_types) {
        const auto layer = static_cast<std::int64_t>(size % 64);
        halyard_config_options options = {sizeof(options), size % 3 == 0 ? 1 << 20 : 0, layer_type,
                                          size % 2 == 0 ? &layer : nullptr};
        halyard_frequencies *frequencies = nullptr;
        WatchedError error;
        const halyard_status status = error.check(halyard_create_frequencies_from_config(
            reinterpret_cast<const char *>(data), static_cast<std::int64_t>(size), &options, &frequencies,
            &error.error));
        require((status == HALYARD_OK) == (frequencies != nullptr), "an object, or an error");
        if (status == HALYARD_OK) {
            check_frequencies(frequencies);
            check_lengths(frequencies, static_cast<std::int64_t>(size) << (size % 40));
        }
        halyard_destroy_frequencies(frequencies);
        if (status != HALYARD_ERROR_MISMATCH) {
            break;  // other layer types fail alike
        }
    }
    return 0;
}
