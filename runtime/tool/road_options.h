// What `rotate` takes for the stages beside the rotation: norm, scale, conversion, and a store by slot.
#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace halyard::tool {

/// Files and words are "" when not given.
struct RoadOptions {
    std::string out_type;
    bool no_rotation = false;

    std::string norm;  // the other norm options need it
    std::string norm_weight;
    std::optional<double> norm_eps;
    bool norm_unit_offset = false;
    std::string norm_width = "head";
    std::string norm_order = "before";
    bool norm_round = false;

    std::optional<double> scale;  // --scale as a number,
    std::string scales;           // or as a file
    std::string scale_dynamic;

    std::string slots, cache, cache_layout;  // all three or none; where keys move, X is the cache
    bool moves = false;                      // keys that are there, by --from-positions
    std::string cache_scales;                // of those
    /// Of a cache_layout that is tile:…
    struct Tile {
        std::int64_t block_size, tokens, stride_tokens, stride_token, elements, stride_elements, stride_element;
    };
    std::optional<Tile> tile;

    /// One of these options that was given; "" if none was.
    std::string find_given() const;
};

/// Teaches `command` the options.
void add_road(CLI::App &command, RoadOptions &options);

}  // namespace halyard::tool
