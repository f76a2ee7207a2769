#include "tool/options/groups_options.h"

#include "tool/files/refusal.h"
#include "tool/options/arguments.h"
#include "words/group_words.h"

#include <cstddef>
#include <cstring>
#include <span>
#include <utility>

namespace halyard::tool {
namespace {

/// Fields whose values are words. One is a flag, which is typed as 0 or 1.
struct Choice {
    const char *name;
    std::int32_t halyard_groups_desc::*field;
    std::span<const words::Word> values;
};

std::vector<Choice> choices() {
    static constexpr words::Word flag[] = {{"0", 0}, {"1", 1}};
    std::vector<Choice> all;
    for (const auto &[name, field, values] : words::choices) {
        all.push_back({name, field, values});
    }
    all.push_back({"scales_apart", &halyard_groups_desc::scales_apart, flag});
    return all;
}

std::vector<std::string> names_of_fields() {
    std::vector<std::string> names;
    for (const auto &choice : choices()) {
        names.emplace_back(choice.name);
    }
    names.emplace_back("floor");
    for (const auto &size : words::sizes) {
        names.emplace_back(size.name);
    }
    return names;
}

std::vector<std::string> names_of(std::span<const words::Word> values) {
    std::vector<std::string> names;
    for (const auto &[word, value] : values) {
        names.push_back(word);
    }
    return names;
}

/// Returns what is wrong, or "".
std::string take_word(const std::string &what, const std::string &text, std::span<const words::Word> values,
                      std::int32_t &value) {
    for (const auto &[word, meaning] : values) {
        if (text == word) {
            value = meaning;
            return "";
        }
    }
    return what + "'" + text + "' is not one of " + join(names_of(values));
}

}  // namespace

std::string list_presets() { return join(names_of(words::presets)); }
std::string list_group_fields() {
    std::string text;
    for (const auto &choice : choices()) {
        text += (text.empty() ? "" : ", ") + std::string(choice.name) + "=" + join(names_of(choice.values), "|", "|");
    }
    for (const auto &size : words::sizes) {
        text += std::string(", ") + size.name;
    }
    return text + " and floor";
}

std::string GroupsWord::parse(const std::string &text) {
    desc_ = make_struct<halyard_groups_desc>();
    text_ = text;
    for (std::size_t at = 0, end = 0; end != text.npos; at = end + 1) {
        end = text.find(',', at);
        const auto item = text.substr(at, end == text.npos ? end : end - at);
        const auto equals = item.find('=');
        const auto wrong = equals != item.npos ? take_field(item.substr(0, equals), item.substr(equals + 1))
                           : at == 0           ? take_word("", item, words::presets, desc_.preset)
                                               : "'" + item + "' is no FIELD=VALUE";
        if (!wrong.empty()) {
            return wrong;
        }
    }
    return "";
}

std::string GroupsWord::take_field(const std::string &name, const std::string &text) {
    for (const auto &choice : choices()) {
        if (name == choice.name) {
            return take_word(name + " ", text, choice.values, desc_.*choice.field);
        }
    }
    for (const auto &size : words::sizes) {
        if (name == size.name) {
            const auto number = parse_number<std::int64_t>(text);
            desc_.*size.field = number.value_or(0);
            return number ? "" : (name + " '").append(text).append("' is not a whole number of 64 bits");
        }
    }
    if (name != "floor") {
        return "'" + name + "' is no field; there are " + join(names_of_fields(), ", ", " and ");
    }
    const auto number = parse_number<float>(text);
    desc_.floor = number.value_or(0.0f);
    return number ? "" : "floor '" + text + "' is not a number that a float holds";
}

std::int64_t GroupsWord::find_head_dim(const NpyArray &file, std::int64_t record_bytes) const {
    const auto found = halyard::find_head_dim(desc_, record_bytes);
    if (found == 0) {
        refuse_shape(file, "by " + name() + " no head, or more than one, has a record of " +
                               std::to_string(record_bytes) + " bytes (n_grouped=N says how many elements)");
    }
    return found;
}

void GroupsWord::resolve(std::int64_t head_dim) {
    try {
        desc_ = resolve_groups(desc_, head_dim);
    } catch (const error &refused) {
        std::string sentence = refused.what();
        const std::string name = "groups->";  // of either option
        throw error(refused.status(), sentence.starts_with(name)
                                          ? std::string("in ") + option_ + ", " + sentence.substr(name.size())
                                          : sentence);
    }
}

void GroupScales::describe(const GroupsWord &groups, std::vector<std::int64_t> rows) {
    static constexpr struct {
        const char *descr;
        std::int64_t n_bytes;
        std::uint32_t one;
    } kinds[] = {{"<f4", 4, 0x3f800000}, {"<f2", 2, 0x3c00}, {"<u2", 2, 0x3f80}, {"|u1", 1, 127}, {"|u1", 1, 127}};
    const auto &desc = groups.desc();
    const auto &kind = kinds[desc.scale_dtype - 1];
    if (desc.scale_offset != 0 || desc.scale_stride != kind.n_bytes) {
        throw Refusal(groups.name() + " has scales in steps of " + std::to_string(desc.scale_stride) + " bytes from " +
                      std::to_string(desc.scale_offset) +
                      " on, but apart they are elements of an array: scale_stride " + "has to be " +
                      std::to_string(kind.n_bytes) + ", and scale_offset 0");
    }
    descr_ = kind.descr;
    shape_ = std::move(rows);
    if (groups.n_groups() > 1) {
        shape_.push_back(groups.n_groups());
    }
    const auto step = static_cast<std::size_t>(kind.n_bytes);
    std::size_t n_bytes = step;
    for (const auto size : shape_) {
        n_bytes *= static_cast<std::size_t>(size);
    }
    bytes_.resize(n_bytes);
    for (std::size_t at = 0; at < n_bytes; at += step) {
        std::memcpy(bytes_.data() + at, &kind.one, step);
    }
}

void GroupScales::read(const std::string &path) {
    const auto file = read_npy(path, {descr_});
    if (file.shape != shape_) {
        refuse_shape(file, "the scales of these records are " + format_shape(shape_));
    }
    std::memcpy(bytes_.data(), file.data.get(), file.n_bytes);
}

NpyOutput GroupScales::output(const std::string &path) const {
    return {path, descr_, shape_, bytes_.data(), bytes_.size()};
}

}  // namespace halyard::tool
