#include "tool/road_options.h"

#include "tool/arguments.h"
#include "tool/files/input_file.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace halyard::tool {
namespace {

/// A number, or the path of a file; what looks like a number must be one.
void parse_scale(const std::string &name, const std::string &text, RoadOptions &options) {
    if (text.empty()) {
        throw CLI::ValidationError(name, "it is empty");
    }
    options.scale = parse_number<double>(text);
    if (options.scale) {
        return;
    }
    const bool is_path = text == standard_stream || text.find('/') != text.npos || text.ends_with(".npy");
    if (!is_path && std::string_view("+-.0123456789").find(text.front()) != std::string_view::npos) {
        throw CLI::ValidationError(name, "'" + text + "' is neither a number that a double holds nor a .npy file");
    }
    options.scales = text;
}

/// What follows "tile:": bs,Tt,s0,s1,Dt,s2,s3.
RoadOptions::Tile parse_tile(const std::string &name, const std::string &text) {
    static constexpr const char *names[] = {"bs", "Tt", "s0", "s1", "Dt", "s2", "s3"};
    std::array<std::int64_t, 7> numbers{};
    std::string_view rest = std::string_view(text).substr(text.find(':') + 1);
    bool good = true;
    for (std::size_t i = 0; i < numbers.size() && good; ++i) {
        const auto end = i + 1 < numbers.size() ? rest.find(',') : rest.size();
        const auto number = parse_number<std::int64_t>(rest.substr(0, end));
        good = end != rest.npos && number;
        numbers[i] = number.value_or(0);
        rest.remove_prefix(good ? std::min(end + 1, rest.size()) : 0);
    }
    if (!good) {
        throw CLI::ValidationError(name, "'" + text + "' is not tile:bs,Tt,s0,s1,Dt,s2,s3, seven whole numbers");
    }
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const std::int64_t least = names[i][0] == 's' ? 0 : 1;  // strides may be 0 where there is one step
        if (numbers[i] < least) {
            throw CLI::ValidationError(name, std::string(names[i]) + " of '" + text + "' is " +
                                                 std::to_string(numbers[i]) + ", but must be at least " +
                                                 std::to_string(least));
        }
    }
    return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6]};
}

void parse_cache_layout(const std::string &name, const std::string &text, RoadOptions &options) {
    if (text.starts_with("tile:")) {
        options.tile = parse_tile(name, text);
    } else if (text != "rows" && text != "nhd" && text != "hnd") {
        throw CLI::ValidationError(name, "'" + text + "' is not rows, nhd, hnd or tile:bs,Tt,s0,s1,Dt,s2,s3");
    }
    options.cache_layout = text;
}

void add_norm(CLI::App &command, RoadOptions &options) {
    auto *norm =
        add_word(command, "--norm", options.norm, "normalise: v / sqrt(mean(v^2) + eps), times a weight", {"rms"});
    auto *weight = add_file(command, "--norm-weight", options.norm_weight,
                            "the norm's weights; .npy, <f4, <f2 or <u2 (bf16 bits), [head_dim], or [heads * head_dim] "
                            "with --norm-width row [none]");
    auto *unit_offset = command.add_flag("--norm-unit-offset", options.norm_unit_offset, "multiply by 1 + w, not w");
    unit_offset->needs(weight);
    for (auto *option :
         {weight, unit_offset, add_real(command, "--norm-eps", options.norm_eps, "the norm's eps, at least 0 [1e-6]"),
          add_word(command, "--norm-width", options.norm_width,
                   "what is normalised: each head, or all heads of a token together [head]", {"head", "row"}),
          add_word(command, "--norm-order", options.norm_order, "normalise before or after the rotation [before]",
                   {"before", "after"}),
          command.add_flag("--norm-round", options.norm_round,
                           "round the normalised value to X's type, before it meets the weight")}) {
        option->needs(norm);
        option->group("Norm");
    }
    norm->group("Norm");
}

}  // namespace

std::string RoadOptions::find_given() const {
    return !out_type.empty()        ? "--out-dtype"
           : no_rotation            ? "--no-rotation"
           : !norm.empty()          ? "--norm"
           : scale                  ? "--scale"
           : !scales.empty()        ? "--scale"
           : !scale_dynamic.empty() ? "--scale-dynamic"
           : !cache.empty()         ? "--cache"
           : moves                  ? "--from-positions"
                                    : "";
}

void add_road(CLI::App &command, RoadOptions &options) {
    add_norm(command, options);
    const std::string group = "Scale, type and cache";
    command.add_flag("--no-rotation", options.no_rotation,
                     "every stage but the rotation: what says how to rotate, positions too, is not looked at");
    add_word(command, "--out-dtype", options.out_type,
             "Y's type: f32 is <f4, f16 <f2, bf16 <u2, e4m3 and e5m2 |u1, int8 |i1 [X's]",
             {"f32", "f16", "bf16", "e4m3", "e5m2", "int8"})
        ->group(group);
    const auto read_scale = [&options](const std::string &text) { parse_scale("--scale", text, options); };
    auto *scale = command
                      .add_option_function<std::string>("--scale", read_scale,
                                                        "what is stored is v / scale: a number, or .npy, <f4, [], "
                                                        "[heads], [head_dim] or [heads, head_dim]")
                      ->type_name("S|FILE");
    auto *dynamic = add_file(command, "--scale-dynamic", options.scale_dynamic,
                             "make a scale for each token and head, and write them: <f4, [tokens, heads], or [batch, "
                             "tokens, heads]; with --slots [slots, heads], the others as they were, or 1");
    scale->excludes(dynamic);
    auto *slots = add_file(command, "--slots", options.slots,
                           "where each token goes in the cache, -1: nowhere; <i4 or <i8, [tokens] or, of a 4-D X, "
                           "[batch, tokens]");
    auto *cache = add_file(command, "--cache", options.cache,
                           "the cache before, of Y's type; Y is the cache after; with --from-positions X is the cache");
    auto *cache_scales = add_file(command, "--cache-scales", options.cache_scales,
                                  "with --from-positions: the scales of X's tokens and heads, <f4, [slots, heads], or "
                                  "without --slots [tokens, heads] or [batch, tokens, heads]; new ones are written "
                                  "there, or where --scale-dynamic says");
    const auto read_layout = [&options](const std::string &text) {
        parse_cache_layout("--cache-layout", text, options);
    };
    auto *layout =
        command
            .add_option_function<std::string>(
                "--cache-layout", read_layout,
                "[slots, heads, head_dim]; [pages, bs, heads, head_dim]; [pages, heads, bs, head_dim]; [pages, heads, "
                "bs * head_dim], where element d of a block's token t and one head is number (t / Tt) * s0 + (t % Tt) "
                "* s1 + (d / Dt) * s2 + (d % Dt) * s3")
            ->type_name("rows|nhd|hnd|tile:bs,Tt,s0,s1,Dt,s2,s3");
    cache_scales->excludes(scale);
    slots->needs(layout);
    cache->needs(slots)->needs(layout);
    layout->needs(slots);
    for (auto *option : {scale, dynamic, slots, cache, layout, cache_scales}) {
        option->group(group);
    }
}

}  // namespace halyard::tool
