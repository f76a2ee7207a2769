// The stages beside the rotation, from options and files to what the library reads.
#pragma once

#include "tool/files/npy.h"
#include "tool/road_options.h"

#include "halyard/halyard.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace halyard::tool {

/// What a tensor goes through beside its rotation, and where it ends: as an array of X's shape, or in a cache. All its
/// files have been read, and their types and shapes checked. The library gets pointers into it.
class RoadFiles {
public:
    /// `shape` is X's [batch, tokens, heads, head_dim]; none: X is a cache, whose keys move. Throws Refusal.
    RoadFiles(const RoadOptions &options, const NpyArray &x, dtype type,
              const std::optional<std::array<std::int64_t, 4>> &shape);
    RoadFiles(const RoadFiles &) = delete;
    RoadFiles &operator=(const RoadFiles &) = delete;

    dtype out_type() const { return out_type_; }
    /// X's, or of a cache the slots' batch and tokens and the cache's heads.
    const std::array<std::int64_t, 4> &shape() const { return shape_; }
    bool has_batch() const { return has_batch_; }
    /// Y's memory: the cache, or as many elements as X has.
    void *output() { return has_cache() ? cache().data.get() : y_.get(); }

    void describe(halyard_tensor_desc &tensor) const;
    void bring_to(run_options &run) const;

    /// Writes Y, and dynamic scales; all or nothing.
    void write(const std::string &output) const;

private:
    const RoadOptions &options_;
    const NpyArray &x_;
    std::array<std::int64_t, 4> shape_;
    bool has_batch_;
    dtype type_, out_type_;
    std::unique_ptr<std::byte[]> y_;
    std::size_t n_bytes_ = 0;
    NpyArray weight_, slots_file_, cache_;
    std::int64_t n_slots_ = 0;
    std::vector<float> scales_;  // static, or as they will be written
    std::vector<std::int64_t> scales_shape_;
    std::vector<unsigned char> scratch_;
    std::optional<halyard_norm_desc> norm_;
    std::optional<halyard_scale_desc> scale_;
    std::optional<halyard_cache_desc> cache_desc_;
    std::optional<halyard_slots> slots_;
    halyard_stages stages_ = make_struct<halyard_stages>();

    bool has_cache() const { return !options_.slots.empty(); }
    const NpyArray &cache() const { return options_.moves ? x_ : cache_; }
    const std::string &scales_path() const {
        return options_.scale_dynamic.empty() ? options_.cache_scales : options_.scale_dynamic;
    }
    void read_norm();
    std::array<std::int64_t, 4> shape_of_cache();
    void read_cache();
    void read_slots();
    void read_scale();
    void read_dynamic_scales();
};

}  // namespace halyard::tool
