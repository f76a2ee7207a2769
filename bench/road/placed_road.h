// What the road's rows time: a layer's q, k and v from where a projection left them to q and a paged cache, laid out in
// memory that all rivals share; and the check of what they leave there.
#pragma once

#include "checks/road_oracle.h"
#include "measure/placed_work.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace halyard::bench {

/// One tensor of a road.
struct RoadPart {
    std::int64_t n_heads, head_dim;
    std::int64_t x_offset, x_stride_head;  // in a token's row of the projection's output, in elements
    bool rotates, is_cached;
    std::int64_t rotary_offset = 0;
    std::int64_t norm_size = 0;  // 0: it has no norm; else elements from the head's first
};

struct RoadModel {
    std::string name;
    std::int64_t row_elements, rotary_dim;  // of the projection's output for a token
    pairing how;
    bool unit_offset;  // weights are 1 + w
    std::vector<RoadPart> parts;

    bool has_norm() const;
};

struct RoadWork {
    RoadModel model;
    std::int64_t n_tokens;
    dtype cache;  // bf16 or e4m3

    std::int64_t stored_bytes(const RoadPart &part) const { return part.is_cached && cache == dtype::e4m3 ? 1 : 2; }
};

inline constexpr std::int64_t road_page_size = 16, road_pages = 128;
inline constexpr float road_scale = 0.015625f, road_eps = 1e-6f;

/// Llama-3-8B, Qwen3-8B, Gemma-3-4B and DeepSeek-V3.
std::vector<RoadModel> road_models();

class PlacedRoad {
public:
    static std::size_t bytes_needed(const RoadWork &work) { return lay_out(work).n_bytes; }

    PlacedRoad(const RoadWork &work, const Arena &arena);

    /// Where things lie in the arena. x, positions, slots and rows of cos and sin are dense; y is a tensor's output:
    /// [tokens, heads, head_dim] in bf16, or its cache [slots, heads, head_dim].
    struct Layout {
        std::size_t positions, slots, cos, sin, scale, scratch, x;
        std::vector<std::size_t> y, weight, between;  // of each part; between: bf16 [tokens, heads, head_dim]
        std::size_t n_bytes;
    };
    const Layout &layout() const { return layout_; }
    const RoadWork &work() const { return work_; }
    template <typename T>
    T *at(std::size_t offset) const {
        return reinterpret_cast<T *>(arena_.data() + offset);
    }

    /// Poisons all outputs.
    void reset() const;

    /// What the outputs are against the formula in long double, over at most 64 tokens.
    struct Check {
        long n_wrong = 0;        // elements beyond the bound
        double max_error = 0.0;  // in lengths of a pair, without the rounding to the dtype that is stored
    };
    /// The bound is halyard.h's, and a part of the pair's length for what rounds on its way.
    Check check(bool with_norm, double slack) const;

private:
    static Layout lay_out(const RoadWork &work);
    oracle::Road describe(std::size_t p, bool with_norm) const;
    std::vector<float> read_x(std::size_t p, std::int64_t token) const;
    /// Compares what a part has left of a token.
    void compare(std::size_t p, std::int64_t token, const oracle::Road &road, const oracle::RoadValues &values,
                 double slack, Check &check) const;

    RoadWork work_;
    const Arena &arena_;
    Layout layout_;
    std::vector<std::int64_t> positions_, slots_;
};

}  // namespace halyard::bench
