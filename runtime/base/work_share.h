// How a call's work is divided: into parts for the caller's threads, or tasks for an executor. Each is a share.
#pragma once

#include "base/error.h"

#include <algorithm>
#include <cstdint>

namespace halyard {

struct Share {
    std::int64_t index, count;
};

/// The first of the n items that belong to a share. If shares cannot be equal, the first ones have one item more.
constexpr std::int64_t first_of_share(std::int64_t n, const Share &share) noexcept {
    return share.count == 1 ? n * share.index : n / share.count * share.index + std::min(share.index, n % share.count);
}

/// One past the last of the n items that belong to a share.
constexpr std::int64_t end_of_share(std::int64_t n, const Share &share) noexcept {
    return first_of_share(n, {share.index + 1, share.count});
}

inline constexpr Share all_heads = {0, 1};

/// Tokens first … last - 1, and the share of their heads that is to be done.
struct TokenShare {
    std::int64_t first, last;
    Share heads;
};

/// Divides n tokens and their heads. A share has whole tokens, so that one thread reads each row of cos and sin. If
/// there are too few tokens for equal shares, it has all tokens and a share of their heads.
constexpr TokenShare share_of_tokens(std::int64_t n, const Share &share) noexcept {
    return n < 4 * share.count ? TokenShare{0, n, share}
                               : TokenShare{first_of_share(n, share), end_of_share(n, share), all_heads};
}

/// Checks part and n_parts of a call that is not whole.
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

/// Reads part and n_parts (0 means 1) of a call into *out. A call with an executor must be whole, since the executor
/// divides it.
inline halyard_status read_part(std::int32_t part, std::int32_t n_parts, bool has_executor, Share *out,
                                halyard_error *error) noexcept {
    *out = {part, n_parts == 0 ? 1 : n_parts};
    return part == 0 && out->count == 1 ? HALYARD_OK : check_part(part, n_parts, has_executor, error);
}

}  // namespace halyard
