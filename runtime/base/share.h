// A share of a call's work: a part that the caller's threads do, or a task of an executor.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <cstdint>

namespace halyard {

struct Share {
    std::int64_t index, count;
};

/// Where a share of n things begins, the first shares being larger by one where they cannot be equal.
constexpr std::int64_t first_of_share(std::int64_t n, const Share &share) noexcept {
    return share.count == 1 ? n * share.index : n / share.count * share.index + std::min(share.index, n % share.count);
}

/// Where it ends.
constexpr std::int64_t end_of_share(std::int64_t n, const Share &share) noexcept {
    return first_of_share(n, {share.index + 1, share.count});
}

inline constexpr Share all_heads = {0, 1};

/// Tokens first … last - 1, and which of their heads.
struct TokenShare {
    std::int64_t first, last;
    Share heads;
};

/// A share of n tokens and their heads. Whole tokens keep each row of angles with one thread, but few would be shared
/// unevenly.
constexpr TokenShare share_of_tokens(std::int64_t n, const Share &share) noexcept {
    return n < 4 * share.count ? TokenShare{0, n, share}
                               : TokenShare{first_of_share(n, share), end_of_share(n, share), all_heads};
}

/// Checks a part of several.
[[gnu::cold]] inline halyard_status check_part(std::int32_t part, std::int32_t n_parts, bool has_executor,
                                               halyard_error *error) noexcept {
    if (n_parts < 0 || n_parts > 1024) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.n_parts is ", n_parts, ", but must be 0 to 1024");
    }
    const std::int32_t count = std::max(n_parts, 1);
    if (part < 0 || part >= count) {
        return fail(error, HALYARD_ERROR_SHAPE, "args.part is ", part, ", but must be 0",
                    count == 1 ? Part("") : Part(" to "), count == 1 ? Part("") : Part(count - 1));
    }
    if (has_executor) {
        return fail(error, HALYARD_ERROR_MISMATCH, "args.n_parts is ", n_parts,
                    ", but the run has an executor, which shares it out already");
    }
    return HALYARD_OK;
}

/// Reads which part of a call is to be done; 0 parts are one. An executor shares the call out itself.
inline halyard_status read_part(std::int32_t part, std::int32_t n_parts, bool has_executor, Share *out,
                                halyard_error *error) noexcept {
    *out = {part, n_parts == 0 ? 1 : n_parts};
    return part == 0 && out->count == 1 ? HALYARD_OK : check_part(part, n_parts, has_executor, error);
}

}  // namespace halyard
