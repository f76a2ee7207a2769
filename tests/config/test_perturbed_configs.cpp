// Fixtures with one RoPE field changed: reading must fail or give other facts, else the reader has ignored the field.
// The fields that it may ignore are listed here with the reason.
#include "config/read_config.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

namespace {

using nlohmann::json;
using Path = json::json_pointer;

struct Fixture {
    json config;
    std::set<std::string> layer_types;  // to read; "" means without a layer type
};

/// A field that the reader may ignore: in fixtures or model types whose names begin with `fixture` (NULL: any), the
/// field `key` (NULL: all fields).
struct Ignored {
    const char *fixture;
    const char *key;
    const char *why;
};

constexpr Ignored silent[] = {
    {nullptr, "no_rope_layers", "which layers rotate; those that do are alike"},
    {nullptr, "no_rope_layer_interval", "likewise"},
    {nullptr, "original_rope", "ChatGLM's code turns the same way whatever this says"},
    {"hunyuan-7b", "beta_fast", "its code reads alpha alone"},
    {"hunyuan-7b", "beta_slow", "likewise"},
    {"hunyuan-7b", "factor", "likewise"},
    {"hunyuan-7b", "mscale", "likewise"},
    {"hunyuan-7b", "mscale_all_dim", "likewise"},
    {"deepseek_v4", "partial_rotary_factor", "qk_rope_head_dim says how wide the rotated part is"},
    {"deepseek_v4", "rope_theta", "the entries for its kinds of layers have a base each"},
    {"deepseek_v4", "compress_rope_theta", "likewise"},
    {"deepseek-ocr", "qk_rope_head_dim", "without MLA there is no such part"},
    {"glm-5", "indexer_rope_interleave", "q and k of the indexer, which chooses keys"},
    {"step-3.5-flash", "rope_theta", "one base for all layers is good, too"},
    {"dots3_note", "partial_rotary_factor", "qk_rope_head_dim says how wide the rotated part is"},
    {"mistral4", "partial_rotary_factor", "likewise"},
    {"granite", "rope_theta", "layer_rope_theta has the base of each layer"},
    {"muse", "rope_theta", "likewise"},
    {"musicflamingo", nullptr, "around the language model's part stands what is about the audio"},
};

/// The results of reading a config for each layer type, for a short and for a long context: the facts as text (empty if
/// refused), and all error messages together.
struct Outcomes {
    std::map<std::string, std::string> told;
    std::string words;

    bool says(const std::string &name) const { return words.find(name) != words.npos; }

    /// Whether the part of the model that has the field (the language model or the image encoder) was refused for every
    /// layer type, and an error message holds `name`.
    bool is_refused(const Path &path, const std::string &name) const {
        const bool is_vision = path.to_string().starts_with("/vision_config");
        return says(name) && std::ranges::all_of(told, [&](const auto &one) {
                   return one.second.empty() || one.first.starts_with("vision ") != is_vision;
               });
    }
};

Outcomes read_all(const Fixture &fixture, const std::string &text) {
    Outcomes outcomes;
    for (const auto &layer_type : fixture.layer_types) {
        for (const std::int64_t seq_len : {0, 1 << 20}) {
            const auto outcome = read(text, layer_type.empty() ? nullptr : layer_type.c_str(), seq_len);
            const auto &info = outcome.info;
            auto &told = outcomes.told[layer_type + " " + std::to_string(seq_len)];
            outcomes.words += outcome.message + "\n";
            if (outcome.status == HALYARD_OK) {
                told = facts_of(info).dump() +
                       json(std::vector<double>(info.inv_freq, info.inv_freq + info.rotary_dim / 2)).dump();
            }
        }
    }
    return outcomes;
}

bool speaks_of_rope(const std::string &name) {
    return name.find("rope") != name.npos || name.find("rotary") != name.npos || name.find("theta") != name.npos;
}

/// Collects the fields whose names have to do with RoPE, and all fields inside of such fields.
void collect_paths(const json &object, const Path &path, std::vector<Path> *paths) {
    for (const auto &[key, value] : object.items()) {
        if (!value.is_null() && speaks_of_rope((path / key).to_string()) && !value.empty()) {
            paths->push_back(path / key);
        }
        if (value.is_object()) {
            collect_paths(value, path / key, paths);
        }
    }
}

/// Another value of the same type; null for an object.
json other_value(const json &value) {
    if (value.is_number()) {
        return value.get<double>() * 2.0;
    }
    if (value.is_array()) {
        auto changed = value;
        changed[0] = other_value(value[0]);
        return changed;
    }
    return value.is_boolean()  ? json(!value.get<bool>())
           : value.is_string() ? json(value.get<std::string>() + "x")
                               : json();
}

bool may_be_ignored(const std::string &fixture, const Path &path, std::set<const Ignored *> *met) {
    for (const auto &one : silent) {
        if ((one.fixture == nullptr || fixture.starts_with(one.fixture)) &&
            (one.key == nullptr || path.back() == one.key)) {
            met->insert(&one);
            return true;
        }
    }
    return false;
}

/// JSON texts of values that must be refused in a field with a value of this type.
std::vector<std::string> bad_values(const json &value) {
    if (value.is_array()) {
        std::vector<std::string> values = {"5", "\"x\"", "[{}]"};
        for (const auto &one : value.empty() ? values : bad_values(value[0])) {
            values.push_back("[" + one + "]");
        }
        return values;
    }
    return value.is_number()    ? std::vector<std::string>{"\"5\"", "true", "[5]", "NaN", "-Infinity"}
           : value.is_boolean() ? std::vector<std::string>{"5", "\"true\""}
                                : std::vector<std::string>{"5", "[\"x\"]"};
}

void check_field(const std::string &name, const Fixture &fixture, const Path &path, std::set<const Ignored *> *met) {
    const std::string key = path.back(), whole = fixture.config.dump();
    const auto &value = fixture.config.at(path);
    const auto text_with = [&](const json &instead) {
        auto changed = fixture.config;
        changed[path] = instead;
        return changed.dump();
    };
    const auto other = other_value(value);
    CHECK((other.is_null() || read_all(fixture, text_with(other)).told != read_all(fixture, whole).told ||
           may_be_ignored(name, path, met)));
    if (value.is_number()) {  // a field of one layer type: only reading that type must fail
        CHECK((read_all(fixture, text_with(-1e30)).says(key) || may_be_ignored(name, path, met)));
    }
    for (const auto &bad : bad_values(value)) {
        auto text = text_with("PLACE");
        text.replace(text.find("\"PLACE\""), 7, bad);
        CAPTURE(bad);
        CHECK((read_all(fixture, text).is_refused(path, key) || may_be_ignored(name, path, met)));
    }

    auto changed = fixture.config;
    auto &parent = changed[path.parent_pointer()];
    parent.erase(key);
    const auto misspelt = key.substr(0, key.size() - 2) + key.back();
    parent[misspelt] = value;
    if (speaks_of_rope(misspelt) || speaks_of_rope(path.parent_pointer().to_string())) {
        CAPTURE(misspelt);
        const auto outcomes = read_all(fixture, changed.dump());
        CHECK((outcomes.is_refused(path, misspelt + " is not known here") ||
               outcomes.is_refused(path, "needs, is missing") || may_be_ignored(name, path, met)));
    }

    auto text = whole;
    text.insert(text.find('"' + key + "\":"), '"' + key + "\":null,");
    CHECK(read(text).message.find("twice in one object") != std::string::npos);
}

std::map<std::string, Fixture> read_fixtures() {
    std::map<std::string, Fixture> fixtures;
    for (const auto &file : std::filesystem::directory_iterator(places::configs())) {
        const auto name = file.path().stem().string();
        fixtures[name] = {json::parse(read_fixture(name)),
                          {"", "full_attention", "sliding_attention", "chunked_attention", "vision"}};
    }
    for (const auto &one : json::parse(golden::read_file(places::configs() + "/../model_types.json"))) {
        if (one.at("verdict") == "right" && !one.contains("is_partial")) {
            auto &fixture = fixtures[one.at("model_type")];
            fixture.config = one.at("config");
            fixture.layer_types.insert(one.value("layer_type", ""));
            for (const char *place : {"/rope_parameters", "/text_config/rope_parameters"}) {
                const auto entries = fixture.config.value(Path(place), json::object());
                for (const auto &[key, value] : entries.items()) {
                    fixture.layer_types.insert(value.is_object() ? key : "");
                }
            }
        }
    }
    return fixtures;
}

}  // namespace

TEST_CASE("config: no field that speaks of RoPE is left out silently", "[config]") {
    std::set<const Ignored *> met;
    for (const auto &[name, fixture] : read_fixtures()) {
        std::vector<Path> paths;
        collect_paths(fixture.config, Path(), &paths);
        for (const auto &path : paths) {
            INFO(name << " " << path);
            check_field(name, fixture, path, &met);
        }
    }
    for (const auto &one : silent) {
        INFO(one.key << ": " << one.why);
        CHECK(met.contains(&one));
    }
}
