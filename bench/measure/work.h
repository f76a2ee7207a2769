// A rotation that is timed, as bench/works.py describes it.
#pragma once

#include "halyard/halyard.hpp"

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>

namespace halyard::bench {

struct Work {
    pairing in = pairing::half, out = pairing::half;
    std::int64_t n_q_heads = 1, n_k_heads = 0, head_dim = 128, rotary_dim = 128;
    std::int64_t n_tokens = 1;
    dtype type = dtype::f32;
    bool in_place = true;
    bool cold = false;  // each call uses other memory, none of it in a cache; hot: every call uses the same
    std::int32_t angles = HALYARD_ANGLES_TABLE;
    int n_threads = 1;
    bool read_back = false;            // the output is read after each call, as a model's next step would
    bool apart = false;                // q and k are two tensors of a run, one behind the other in memory
    bool cold_table = false;           // each call has other positions, scattered over a table that fills no cache
    bool strided = false;              // in memory, element i of all heads of a token comes before element i + 1
    std::int64_t first_position = -1;  // of consecutive ones; negative: those that are usual for so many tokens

    std::int64_t n_heads() const { return n_q_heads + n_k_heads; }
    /// The distance between two heads of a token, and between two elements of a head.
    std::int64_t stride_head() const { return strided ? 1 : head_dim; }
    std::int64_t stride_element() const { return strided ? n_heads() : 1; }
    std::int64_t element_bytes() const { return type == dtype::f32 ? 4 : 2; }
    std::size_t tensor_bytes() const {
        return static_cast<std::size_t>(n_tokens * n_heads() * head_dim * element_bytes());
    }
};

/// Throws std::runtime_error, or nlohmann's exceptions, where it is not described as it must be.
Work read_work(const nlohmann::json &described);

const char *name_of(pairing pairing);
const char *name_of(dtype type);
/// "f32", "f16", "bf16" or "e4m3".
dtype read_dtype(const std::string &name);

}  // namespace halyard::bench
