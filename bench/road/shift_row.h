// Rows of keys that move: a context shift of a whole paged cache, timed in the same rounds as other ways to it.
#pragma once

#include "measure/row.h"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace halyard::bench {

/// A cache of keys, [slots, heads, head_dim] for each layer, all of whose tokens move by one number of positions. Their
/// pages are in random order. e4m3 keys have one scale.
struct ShiftWork {
    std::int64_t n_layers, n_heads, head_dim, n_tokens;
    dtype type;  // bf16 or e4m3

    /// "shift/32x8x128x8192/bf16"
    std::string name() const;
    std::int64_t layer_bytes() const { return n_heads * head_dim * n_tokens * (type == dtype::e4m3 ? 1 : 2); }
};

struct ShiftWay {
    std::string name;
    long n_wrong;
    Timing timing;
};

struct ShiftRow {
    ShiftWork work;
    std::string target;
    std::vector<ShiftWay> ways;  // the first is a bound run for each layer

    bool loses() const;
};

/// Only works whose names match the selection's filter; a quick run has two layers.
std::vector<ShiftRow> measure_shifts(const Selection &selection, const Setting &setting);
ShiftRow measure_shift(const ShiftWork &work, const Setting &setting);

std::string format_shifts(const std::vector<ShiftRow> &rows);
nlohmann::json to_json(const ShiftRow &row);

}  // namespace halyard::bench
