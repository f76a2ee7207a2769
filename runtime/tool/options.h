// The command line as data: what each sub-command takes, checked as far as it can be without opening a file.
#pragma once

#include "tool/road_options.h"

#include "halyard/halyard.hpp"

#include <CLI/CLI.hpp>

#include <cstdint>
#include <optional>
#include <string>

namespace halyard::tool {

struct FrequencyOptions {
    std::optional<double> base;
    std::string inv_freq;  // files are "" when not given
    std::optional<double> attention_factor;
    std::string config;
    std::optional<std::int64_t> seq_len;
    std::string layer_type;
    std::optional<std::int64_t> rotary_dim;
    std::string reference = "exact";
};

/// --positions: START:STOP or a file.
struct PositionOptions {
    std::string path;
    bool is_range = false;
    std::int64_t start = 0;  // of a range: an int32,
    std::int64_t stop = 0;   // and at most one beyond
};

struct RotationOptions {
    std::string pairing;      // "": the model's, else half
    std::string out_pairing;  // "": as pairing; where that isn't given either, the model's
    std::int64_t rotary_offset = 0;
    bool inverse = false;
    bool in_place = false;
    std::string target;  // "": the best

    /// The one tensor of `head_dim` columns that is rotated. `model` is what its frequencies tell, if there are any.
    plan_desc describe(dtype type, std::int64_t head_dim, std::int64_t rotary_dim,
                       const halyard_frequencies_info *model = nullptr) const;
    /// The same without a rotation.
    plan_desc describe_unrotated(dtype type, std::int64_t head_dim) const;
};

struct ListOptions {
    bool json = false;
};

struct ExplainOptions {
    RotationOptions rotation;
    std::string type = "f32";
    std::int64_t head_dim = 128;
    std::optional<std::int64_t> rotary_dim;
};

struct RotateOptions {
    std::string input;
    std::string output;
    FrequencyOptions frequencies;
    PositionOptions positions;
    PositionOptions from_positions;  // given: keys move, and road.moves
    RotationOptions rotation;
    std::string axis_map;
    std::string angles = "auto";
    std::string cos_sin;
    std::string type;  // "": as the file says
    std::string layout;
    std::int64_t n_threads = 1;
    std::string bad_position = "error";
    std::optional<std::int64_t> max_position;
    RoadOptions road;
};

struct AnglesOptions {
    std::string output;
    FrequencyOptions frequencies;
    PositionOptions positions;
    std::string angles = "auto";
};

struct Options {
    ListOptions list;
    ExplainOptions explain;
    RotateOptions rotate;
    AnglesOptions angles;
    FrequencyOptions frequencies;
};

/// Teaches `app` the sub-commands and their options; parsing then fills in `options`, which must outlive it. Wrong
/// usage shows as a CLI::ParseError. Where parsing succeeds, exactly one sub-command was given.
void add_commands(CLI::App &app, Options &options);

/// The library's value for a word that parsing has let through.
dtype parse_dtype(const std::string &word);
pairing parse_pairing(const std::string &word);
bad_position parse_bad_position(const std::string &word);

}  // namespace halyard::tool
