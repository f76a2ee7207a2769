#include "tool/options.h"

#include "tool/arguments.h"
#include "tool/files/input_file.h"
#include "tool/refusal.h"

#include <algorithm>
#include <filesystem>
#include <initializer_list>
#include <limits>
#include <memory>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace halyard::tool {
namespace {

constexpr std::int64_t min_position = std::numeric_limits<std::int32_t>::min();
constexpr std::int64_t max_position = std::numeric_limits<std::int32_t>::max();

/// Options without CLI11's list of what excludes what: the descriptions say it in words.
class HelpFormatter : public CLI::Formatter {
public:
    std::string make_option_opts(const CLI::Option *option) const override {
        const auto type = option->get_type_name();
        return (type.empty() ? "" : " " + type) + (option->get_required() ? " (required)" : "");
    }
};

/// What the frequencies come from: options that a caller's own cos and sin exclude.
struct FrequencyFlags {
    std::vector<CLI::Option *> sources;
    CLI::Option *rotary_dim;
};

/// `has_rows`: cos and sin are made; otherwise just the references are known that round frequencies and angles.
FrequencyFlags add_frequencies(CLI::App &app, FrequencyOptions &options, bool has_rows) {
    auto *base = add_real(app, "--base", options.base, "inv_freq[k] = BASE^(-2k / rotary_dim) [10000]");
    auto *inv_freq = add_file(app, "--inv-freq", options.inv_freq,
                              "or: inverse frequencies, radians per position; .npy, <f8 or <f4, [rotary_dim / 2]");
    auto *factor = add_real(app, "--attention-factor", options.attention_factor,
                            "what cos and sin are multiplied by, with --inv-freq [1]");
    auto *config = add_file(app, "--config", options.config, "or: a model's Hugging Face config.json");
    auto *seq_len = add_integer(app, "--seq-len", options.seq_len,
                                "context length in tokens, for the methods that depend on it, with --config", 1);
    auto *layer_type = add_text(app, "--layer-type", options.layer_type,
                                "whose frequencies, with --config: one of its layer types, or vision", "NAME");
    auto *rotary_dim = add_integer(app, "--rotary-dim", options.rotary_dim, "how many columns of a head are rotated");
    auto *reference =
        has_rows ? add_word(app, "--reference", options.reference,
                            "whose cos and sin: exact, hf_f32 (Hugging Face's float32), vllm_f16 or vllm_bf16 (vLLM's "
                            "table), ggml (llama.cpp's); all but exact are for tables only [exact]",
                            {"exact", "hf_f32", "vllm_f16", "vllm_bf16", "ggml"})
                 : add_word(app, "--reference", options.reference,
                            "whose rounding: exact, or hf_f32 as Hugging Face's float32 [exact]", {"exact", "hf_f32"});
    base->excludes(inv_freq)->excludes(config);
    inv_freq->excludes(config);
    factor->needs(inv_freq);
    seq_len->needs(config);
    layer_type->needs(config);
    const std::vector<CLI::Option *> sources = {base, inv_freq, factor, config, seq_len, layer_type, reference};
    for (auto *option : sources) {
        option->group("Frequencies");
    }
    rotary_dim->group("Frequencies");
    return {sources, rotary_dim};
}

/// START:STOP, or the path of a file; what looks like a range must be one.
PositionOptions parse_positions(const std::string &name, const std::string &text) {
    PositionOptions options;
    const auto colon = text.find(':');
    if (text.empty()) {
        throw CLI::ValidationError(name, "it is empty");
    }
    if (colon == text.npos || text.find('/') != text.npos || text.ends_with(".npy")) {
        options.path = text;
        return options;
    }
    const auto start = parse_number<std::int64_t>(std::string_view(text).substr(0, colon));
    const auto stop = parse_number<std::int64_t>(std::string_view(text).substr(colon + 1));
    if (!start || !stop) {
        throw CLI::ValidationError(name, "'" + text + "' is not START:STOP, two whole numbers");
    }
    if (*start > *stop) {
        throw CLI::ValidationError(name, "'" + text + "' stops before it starts");
    }
    if (*start < min_position || *stop > max_position + 1) {
        throw CLI::ValidationError(name, "'" + text + "' leaves the positions of 32 bits");
    }
    options.is_range = true;
    options.start = *start;
    options.stop = *stop;
    return options;
}

CLI::Option *add_positions(CLI::App &app, PositionOptions &options, const std::string &help,
                           const std::string &name = "--positions") {
    const auto read = [&options, name](const std::string &text) { options = parse_positions(name, text); };
    return app.add_option_function<std::string>(name, read, help)->type_name("FILE|START:STOP");
}

/// METHOD:N,N,… — what is wrong with the numbers themselves is for the library to say.
void check_axis_map(const std::string &name, const std::string &text) {
    std::string_view rest = text;
    const auto colon = rest.find(':');
    bool good = colon != rest.npos && (rest.substr(0, colon) == "sections" || rest.substr(0, colon) == "interleaved");
    while (good && !rest.empty()) {
        rest.remove_prefix(rest.find_first_of(":,") + 1);
        const auto end = std::min(rest.find(','), rest.size());
        good = parse_number<std::int64_t>(rest.substr(0, end)).has_value();
        rest.remove_prefix(end);
    }
    if (!good) {
        throw CLI::ValidationError(name, "'" + text + "' is not like sections:16,24,24 or interleaved:24,20,20");
    }
}

CLI::Option *add_angles(CLI::App &app, std::string &angles) {
    return add_word(app, "--angles", angles, "how cos and sin are made [auto: table, of just the positions that occur]",
                    {"auto", "table", "factored", "phase"});
}

/// What `rotate` and `explain` share.
void add_rotation(CLI::App &app, RotationOptions &options) {
    add_word(app, "--pairing", options.pairing,
             "which columns form a pair: k and k + rotary_dim/2, or 2k and 2k + 1 [the config's, else half]",
             {"half", "interleaved"});
    add_word(app, "--out-pairing", options.out_pairing,
             "the pairing that is written [as --pairing; without that, the config's, else half]",
             {"half", "interleaved"});
    add_integer(app, "--rotary-offset", options.rotary_offset, "the first column that is rotated [0]");
    app.add_flag("--inverse", options.inverse, "turn back: negate the angles");
    app.add_flag("--in-place", options.in_place, "read and write the same memory");
    add_text(app, "--target", options.target, "run exactly this target of 'halyard list' [the best]", "NAME");
}

/// Where a config may decide about the pairing, the rest is for later.
void check_rotation(const RotationOptions &options, bool has_config = false) {
    const std::string pairing = !options.pairing.empty() || has_config ? options.pairing : "half";
    if (options.in_place && !options.out_pairing.empty() && !pairing.empty() && options.out_pairing != pairing) {
        throw CLI::ValidationError("--in-place", "--out-pairing " + options.out_pairing + " contradicts it");
    }
}

/// Two files can't both be what comes in there.
void check_standard_input(std::initializer_list<std::pair<const char *, const std::string &>> files) {
    const char *first = nullptr;
    for (const auto &[option, path] : files) {
        if (path != standard_stream) {
            continue;
        }
        if (first != nullptr) {
            throw CLI::ValidationError(option, std::string("only one input can be '-', and ") + first + " is");
        }
        first = option;
    }
}

void add_list(CLI::App &app, ListOptions &options) {
    auto *command = app.add_subcommand("list", "Every kernel target: built? supported here? chosen? If not, why");
    command->add_flag("--json", options.json, "an array of objects instead of a table");
}

void add_explain(CLI::App &app, ExplainOptions &options) {
    auto *command = app.add_subcommand("explain", "Each candidate kernel for a rotation: taken or refused, and why");
    add_word(*command, "--dtype", options.type, "the elements' type [f32]", {"f32", "f16", "bf16"});
    add_integer(*command, "--head-dim", options.head_dim, "columns of a head [128]", 1);
    add_integer(*command, "--rotary-dim", options.rotary_dim, "how many of them are rotated [--head-dim]");
    add_rotation(*command, options.rotation);
    command->callback([&options] { check_rotation(options.rotation); });
}

/// What keys that move have to do with, and what only they have.
void check_moves(const RotateOptions &options) {
    const RoadOptions &road = options.road;
    if (!road.moves) {
        if (!road.slots.empty() && road.cache.empty()) {
            throw CLI::RequiresError("--slots", "--cache");
        }
        if (!road.cache_scales.empty()) {
            throw CLI::RequiresError("--cache-scales", "--from-positions");
        }
        if (options.type == "e4m3" || options.type == "e5m2" || options.type == "int8") {
            throw CLI::ValidationError("--dtype", options.type + " is for keys that move, by --from-positions");
        }
        return;
    }
    const char *const contradicts = !road.out_type.empty()                     ? "--out-dtype"
                                    : road.no_rotation                         ? "--no-rotation"
                                    : !road.norm.empty()                       ? "--norm"
                                    : !road.cache.empty()                      ? "--cache"
                                    : options.frequencies.reference != "exact" ? "--reference"
                                    : options.bad_position != "error"          ? "--bad-position"
                                    : options.max_position                     ? "--max-position"
                                                                               : nullptr;
    if (contradicts != nullptr) {
        throw CLI::ValidationError("--from-positions", std::string(contradicts) +
                                                           " contradicts it: keys stay as they are, and move from and "
                                                           "to every position of 32 bits by exact angles");
    }
    if (!road.scale_dynamic.empty() && road.cache_scales.empty()) {
        throw CLI::RequiresError("--scale-dynamic", "--cache-scales");
    }
    if (road.cache_scales == standard_stream && road.scale_dynamic.empty()) {
        throw CLI::RequiresError("--cache-scales -", "--scale-dynamic");
    }
}

/// Where the road's outputs go.
void check_files(const RotateOptions &options) {
    const auto &dynamic = options.road.scale_dynamic.empty() ? options.road.cache_scales : options.road.scale_dynamic;
    if (options.rotation.in_place && !options.road.cache.empty()) {
        throw CLI::ValidationError("--in-place", "--cache contradicts it: what is stored in a cache is not where X is");
    }
    if (options.road.scale_dynamic == standard_stream) {
        throw CLI::ValidationError("--scale-dynamic", "it has to be a file's name, not '-'");
    }
    const auto leads_to = [](const std::string &path) {
        std::error_code ignored;
        return std::filesystem::weakly_canonical(std::filesystem::absolute(path, ignored), ignored);
    };
    if (!dynamic.empty() && leads_to(dynamic) == leads_to(options.output)) {
        throw CLI::ValidationError(options.road.scale_dynamic.empty() ? "--cache-scales" : "--scale-dynamic",
                                   "'" + dynamic + "' is where Y is written");
    }
}

void add_rotate(CLI::App &app, RotateOptions &options) {
    auto *command = app.add_subcommand("rotate", "Apply RoPE to an array");
    add_file(*command, "X", options.input,
             ".npy in C order, <f4, <f2 or <u2 (bf16 bits), [tokens, heads, head_dim] or 4-D (see --layout)")
        ->required();
    add_file(*command, "-o,--output", options.output, "Y, of X's shape; of its type too without --out-dtype")
        ->required();
    auto frequencies = add_frequencies(*command, options.frequencies, true);
    frequencies.rotary_dim->description("how many columns of a head are rotated [the config's, else X's head_dim]");
    auto excluded = frequencies.sources;
    excluded.push_back(
        add_positions(*command, options.positions,
                      "<i4 or <i8, [tokens] or [batch, tokens], with an axis map [axes, ...]; or START ... STOP - 1 "
                      "[0, 1, 2, ...]"));
    excluded.push_back(add_positions(*command, options.from_positions,
                                     "X holds keys that were rotated for these positions, as --positions takes them; "
                                     "they move from there to --positions. With --slots X is the cache",
                                     "--from-positions"));
    add_rotation(*command, options.rotation);
    excluded.push_back(
        command
            ->add_option_function<std::string>(
                "--axis-map",
                [&options](const std::string &text) {
                    check_axis_map("--axis-map", text);
                    options.axis_map = text;
                },
                "which pairs read which axis of positions [axes, tokens]: sections:16,24,24 or interleaved:24,20,20")
            ->type_name("sections:N,...|interleaved:N,..."));
    excluded.push_back(add_angles(*command, options.angles));
    auto *cos_sin = add_file(*command, "--cos-sin", options.cos_sin,
                             "instead of frequencies and positions: cos and sin rows as 'angles' writes them, <f4, "
                             "[tokens, 2, pairs]");
    add_word(*command, "--dtype", options.type, "X's type, needed for bf16, e4m3 and e5m2; see --out-dtype for Y's",
             {"f32", "f16", "bf16", "e4m3", "e5m2", "int8"});
    add_word(*command, "--layout", options.layout,
             "a 4-D X is [batch, tokens, heads, head_dim] or [batch, heads, tokens, head_dim] [bshd]",
             {"bshd", "bhsd"});
    add_integer(*command, "--threads", options.n_threads, "1 ... 1024 [1]", 1, 1024);
    excluded.push_back(add_word(*command, "--bad-position", options.bad_position,
                                "a position that is not valid: refuse, take the nearest, or don't rotate [error]",
                                {"error", "clamp", "identity"}));
    excluded.push_back(add_integer(*command, "--max-position", options.max_position,
                                   "the valid positions are 0 ... N - 1 [those of 32 bits]", 1, max_position + 1));
    for (auto *option : excluded) {
        cos_sin->excludes(option);
    }
    add_road(*command, options.road);
    command->callback([&options] {
        options.road.moves = options.from_positions.is_range || !options.from_positions.path.empty();
        check_rotation(options.rotation, !options.frequencies.config.empty());
        check_moves(options);
        check_files(options);
        check_standard_input({{"X", options.input},
                              {"--positions", options.positions.path},
                              {"--inv-freq", options.frequencies.inv_freq},
                              {"--config", options.frequencies.config},
                              {"--cos-sin", options.cos_sin},
                              {"--norm-weight", options.road.norm_weight},
                              {"--scale", options.road.scales},
                              {"--slots", options.road.slots},
                              {"--cache", options.road.cache},
                              {"--from-positions", options.from_positions.path},
                              {"--cache-scales", options.road.cache_scales}});
    });
}

/// Without a tensor, only these say how many frequencies there are.
void require_rotary_dim(const FrequencyOptions &options) {
    if (!options.rotary_dim && options.inv_freq.empty() && options.config.empty()) {
        throw CLI::RequiredError("--rotary-dim, --inv-freq or --config");
    }
}

void add_angles_command(CLI::App &app, AnglesOptions &options) {
    auto *command = app.add_subcommand("angles", "Write cos and sin, float32 [tokens, 2, pairs], attention_factor "
                                                 "applied");
    add_positions(*command, options.positions, "<i4 or <i8, [tokens]; or START ... STOP - 1")->required();
    add_file(*command, "-o,--output", options.output, "the cos row and the sin row of each token")->required();
    add_frequencies(*command, options.frequencies, true)
        .rotary_dim->description("twice the number of pairs [the config's, or 2 * the length of --inv-freq]");
    add_angles(*command, options.angles);
    command->callback([&options] {
        require_rotary_dim(options.frequencies);
        check_standard_input({{"--positions", options.positions.path},
                              {"--inv-freq", options.frequencies.inv_freq},
                              {"--config", options.frequencies.config}});
    });
}

void add_frequencies_command(CLI::App &app, FrequencyOptions &options) {
    auto *command = app.add_subcommand("frequencies", "Print inv_freq, attention_factor, rotary_dim, pairing and "
                                                      "method as JSON");
    add_frequencies(*command, options, false)
        .rotary_dim->description("twice the number of pairs [the config's, or 2 * the length of --inv-freq]");
    command->callback([&options] { require_rotary_dim(options); });
}

}  // namespace

void add_commands(CLI::App &app, Options &options) {
    app.require_subcommand(1);
    app.formatter(std::make_shared<HelpFormatter>());
    app.set_help_flag("-h,--help", "Print this and exit");
    app.set_version_flag("--version", halyard::version(), "Print the version and exit");
    add_list(app, options.list);
    add_explain(app, options.explain);
    add_rotate(app, options.rotate);
    add_angles_command(app, options.angles);
    add_frequencies_command(app, options.frequencies);
    for (auto *command : app.get_subcommands(nullptr)) {
        if (command->get_option_no_throw("--config") != nullptr) {
            command->footer("A FILE that is - is the standard input, or the standard output.");
        }
    }
}

dtype parse_dtype(const std::string &word) {
    return word == "f32"    ? dtype::f32
           : word == "f16"  ? dtype::f16
           : word == "bf16" ? dtype::bf16
           : word == "e4m3" ? dtype::e4m3
           : word == "e5m2" ? dtype::e5m2
                            : dtype::int8;
}

pairing parse_pairing(const std::string &word) { return word == "half" ? pairing::half : pairing::interleaved; }

bad_position parse_bad_position(const std::string &word) {
    return word == "error" ? bad_position::error : word == "clamp" ? bad_position::clamp : bad_position::identity;
}

plan_desc RotationOptions::describe(dtype type, std::int64_t head_dim, std::int64_t rotary_dim,
                                    const halyard_frequencies_info *model) const {
    if (rotary_offset < 0 || rotary_dim > head_dim - rotary_offset) {
        throw Refusal("a rotary_dim of " + std::to_string(rotary_dim) + " and --rotary-offset " +
                      std::to_string(rotary_offset) + " don't fit a head of " + std::to_string(head_dim) + " columns");
    }
    auto tensor = describe_tensor(type, head_dim, parse_pairing(pairing.empty() ? "half" : pairing), rotary_offset);
    if (pairing.empty() && model != nullptr && model->pairing != 0) {
        tensor.pairing = model->pairing;
        tensor.out_pairing = model->out_pairing;
    }
    if (!out_pairing.empty()) {
        tensor.out_pairing = static_cast<std::int32_t>(parse_pairing(out_pairing));
    }
    if (in_place && tensor.out_pairing != 0 && tensor.pairing != tensor.out_pairing) {
        throw Refusal("--in-place keeps the pairing, but the config's model writes another one: see --out-pairing");
    }
    plan_desc desc(rotary_dim, {tensor}, inverse ? direction::inverse : direction::forward);
    desc.target = target.empty() ? nullptr : target.c_str();
    return desc;
}

plan_desc RotationOptions::describe_unrotated(dtype type, std::int64_t head_dim) const {
    auto tensor = describe_tensor(type, head_dim);
    tensor.no_rotation = 1;
    plan_desc desc(0, {tensor});
    desc.target = target.empty() ? nullptr : target.c_str();
    return desc;
}

}  // namespace halyard::tool
