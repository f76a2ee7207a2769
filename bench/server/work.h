// What is timed: a run of Halyard over some tensors, as bench/works.py and bench/roads.py describe it.
#pragma once

#include "halyard/halyard.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace halyard::bench {

/// A tensor of a run. x of a token is a row that all parts share.
struct Part {
    std::int64_t n_heads, head_dim;
    std::int64_t offset, stride_head;  // in a token's row, in elements
    bool rotates = true, is_cached = false;
    std::int64_t rotary_offset = 0;
    std::int64_t norm_size = 0;  // 0: it has no norm; else elements from the head's first
};

struct Work {
    pairing in = pairing::half, out = pairing::half;
    std::int64_t n_tokens = 1, rotary_dim = 128, row_elements = 128;
    std::int64_t stride_element = 1;
    std::vector<Part> parts;
    dtype type = dtype::f32;
    bool in_place = true;
    bool cold = false;  // each call uses other memory, none of it in a cache; hot: every call uses the same
    std::int32_t angles = HALYARD_ANGLES_TABLE;
    int n_threads = 1;
    bool read_back = false;            // the output is read after each call, as a model's next step would
    bool cold_table = false;           // each call has other positions, scattered over a table that fills no cache
    std::int64_t first_position = -1;  // of consecutive ones; negative: those that are usual for so many tokens

    // Of a road, whose outputs have memory of their own, and of a shift, which moves what caches hold.
    std::int64_t n_slots = 0;   // of a cache
    dtype cache = dtype::bf16;  // uint8: records of ggml's q8_0
    bool hadamard = false;      // what is cached is transformed over its whole head
    bool by_column = false;     // k's cache is [pages, heads, head_dim, page_size], as vLLM has it on CPUs
    bool in_pages = false;      // a road's slots fill pages, as a prompt's do
    bool unit_offset = false;   // a norm's weights are 1 + w
    std::int64_t moved_by = 0;  // a shift's positions
    std::int64_t n_layers = 1;

    bool is_road() const { return n_slots > 0 && !is_shift(); }
    bool is_shift() const { return moved_by != 0; }
    bool has_norm() const;
    std::int64_t n_heads() const;
    std::size_t tensor_bytes() const;  // of x
};

/// Throws std::runtime_error, or nlohmann's exceptions, where it is not described as it must be.
Work read_work(const nlohmann::json &described);

/// Of "table" and "phase".
std::int32_t read_angles(const std::string &name);

const char *name_of(dtype type);
inline std::int64_t bytes_of(dtype type) {
    return type == dtype::f32 ? 4 : type == dtype::e4m3 || type == dtype::uint8 ? 1 : 2;
}
/// Of q8_0: a group has a scale in f16 and so many elements of int8.
inline constexpr std::int64_t group_size = 32, group_bytes = 34;
/// How many elements a head takes; of a record: bytes.
inline std::int64_t head_size(dtype type, std::int64_t head_dim) {
    return type == dtype::uint8 ? head_dim / group_size * group_bytes : head_dim;
}

}  // namespace halyard::bench
