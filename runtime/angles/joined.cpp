// Joins angle sources into one of which each batch row or token of a run chooses: LongRoPE's short and long frequencies
// in one batch, say. What chooses is in angle_source.h, beside what finds a position's row.
#include "angles/angle_source.h"
#include "base/error.h"
#include "base/overlap.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>

using namespace halyard;

namespace {

/// Checks that a source can be chosen beside the first.
halyard_status check_alike(const halyard_angle_source *const *sources, std::int32_t i, halyard_error *error) noexcept {
    if (sources[i] == nullptr) {
        return fail(error, HALYARD_ERROR_NULL_POINTER, "sources[", i, "] is NULL");
    }
    const halyard_angle_source &first = *sources[0], &other = *sources[i];
    if (other.kind == AngleKind::given || other.kind == AngleKind::joined) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, "sources[", i, "] has ",
                    other.kind == AngleKind::given ? "given rows, which are every token's own already"
                                                   : "sources of its own");
    }
    const auto refuse = [&](const char *what, std::int64_t its, std::int64_t wanted) {
        return fail(error, HALYARD_ERROR_MISMATCH, "sources[", i, "] has ", what, " ", its, ", but sources[0] has ",
                    wanted);
    };
    if (other.rotary_dim != first.rotary_dim) {
        return refuse("rotary_dim", other.rotary_dim, first.rotary_dim);
    }
    if (other.axes.n_axes != first.axes.n_axes) {
        return refuse("n_axes", other.axes.n_axes, first.axes.n_axes);
    }
    if (other.reference != first.reference) {
        return refuse("reference", static_cast<std::int32_t>(other.reference),
                      static_cast<std::int32_t>(first.reference));
    }
    return HALYARD_OK;
}

}  // namespace

extern "C" halyard_status halyard_create_joined_angle_source(const halyard_angle_source *const *sources,
                                                             int32_t n_sources, const int32_t *index, int64_t n_index,
                                                             int32_t by_token, halyard_angle_source **out,
                                                             halyard_error *error) {
    HALYARD_TRY(check_error(error));
    HALYARD_TRY(check_given(sources, "sources", error));
    HALYARD_TRY(check_given(index, "index", error));
    HALYARD_TRY(check_given(out, "out", error));
    constexpr std::int32_t most = 1 << 20;
    if (n_sources < 1 || n_sources > most) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_sources is ", n_sources, ", but it must be 1 to ", most);
    }
    if (by_token < 0 || by_token > 1) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, "by_token is ", by_token, ", but it must be 0 or 1");
    }
    if (n_index < 1) {
        return fail(error, HALYARD_ERROR_SHAPE, "n_index is ", n_index, ", but it must be at least 1");
    }
    for (std::int32_t i = 0; i < n_sources; ++i) {
        HALYARD_TRY(check_alike(sources, i, error));
    }
    std::unique_ptr<halyard_angle_source> result(new (std::nothrow) halyard_angle_source);
    if (result != nullptr) {
        result->joined.reset(new (std::nothrow) const halyard_angle_source *[static_cast<std::size_t>(n_sources)]);
    }
    if (result == nullptr || result->joined == nullptr) {
        return fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a list of ", n_sources, " angle sources");
    }
    const std::int64_t shape[] = {n_index}, strides[] = {1};
    if (!find_memory_range(index, shape, strides, sizeof(std::int32_t), &result->index_memory)) {
        return fail(error, HALYARD_ERROR_OVERFLOW, "n_index is ", n_index, ": the index leaves the address space");
    }
    result->kind = AngleKind::joined;
    result->rotary_dim = sources[0]->rotary_dim;
    result->axes.n_axes = sources[0]->axes.n_axes;
    result->reference = sources[0]->reference;
    result->first = sources[0]->first;
    result->last = sources[0]->last;
    for (std::int32_t i = 0; i < n_sources; ++i) {
        result->joined[static_cast<std::size_t>(i)] = sources[i];
        result->first = std::max(result->first, sources[i]->first);
        result->last = std::min(result->last, sources[i]->last);
    }
    result->n_joined = n_sources;
    result->index = index;
    result->n_index = n_index;
    result->index_by_token = by_token == 1;
    result->bytes = static_cast<std::uint64_t>(n_sources) * sizeof(sources[0]);
    *out = result.release();
    return HALYARD_OK;
}
