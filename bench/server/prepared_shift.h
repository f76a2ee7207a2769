// A context shift of a whole paged cache, ready to be timed: by bound runs and by C loops.
#pragma once

#include "server/prepared.h"

#include <cstdint>
#include <memory>

namespace halyard::bench {

/// A cache of keys, [slots, heads, head_dim] for each layer, all of whose tokens move by one number of positions. Their
/// pages are in random order. e4m3 keys have one scale.
struct ShiftWork {
    std::int64_t n_layers, n_heads, head_dim, n_tokens;
    dtype type;  // bf16 or e4m3

    std::int64_t layer_bytes() const { return n_heads * head_dim * n_tokens * (type == dtype::e4m3 ? 1 : 2); }
    std::int64_t n_bytes() const { return n_layers * layer_bytes(); }
};

ShiftWork read_shift(const nlohmann::json &described);

std::unique_ptr<Prepared> prepare_shift(const nlohmann::json &request, const Site &site);

}  // namespace halyard::bench
