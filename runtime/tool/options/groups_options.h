// Records of groups: their descriptions as they are typed, and scales that lie apart, from files to what the library
// reads and writes.
#pragma once

#include "tool/files/npy.h"

#include "halyard/halyard.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace halyard::tool {

/// What one of --groups and --from-groups says.
class GroupsWord {
public:
    explicit GroupsWord(const char *option) : option_(option) {}

    /// Takes a preset, or FIELD=VALUE,…, or both. Returns what is wrong with it, or "".
    std::string parse(const std::string &text);

    bool is_given() const { return !text_.empty(); }
    /// The option and its value.
    std::string name() const { return std::string(option_) + " " + text_; }

    /// How many elements the heads of a file have, which are records of so many bytes. Throws Refusal.
    std::int64_t find_head_dim(const NpyArray &file, std::int64_t record_bytes) const;

    /// Fills in what is left out, for heads of head_dim. Throws halyard::error.
    void resolve(std::int64_t head_dim);

    /// As typed, or once resolved.
    const halyard_groups_desc &desc() const { return desc_; }
    std::int64_t n_groups() const { return desc_.n_grouped / desc_.group; }

private:
    std::string take_field(const std::string &name, const std::string &text);

    const char *option_;
    std::string text_;  // "": not given
    halyard_groups_desc desc_ = make_struct<halyard_groups_desc>();
};

/// The names of presets and of fields, as help shows them.
std::string list_presets();
std::string list_group_fields();

/// Scales of records that lie apart, as an array of a file, dense: an element for each of `rows`, which are [slots,
/// heads], [tokens, heads] or [batch, tokens, heads], or one for each group of those where a head has several.
class GroupScales {
public:
    /// All are 1 so far. Throws Refusal.
    void describe(const GroupsWord &groups, std::vector<std::int64_t> rows);
    /// Takes those of a file. Throws Refusal.
    void read(const std::string &path);

    bool is_described() const { return !shape_.empty(); }
    void *data() { return bytes_.data(); }
    NpyOutput output(const std::string &path) const;

private:
    const char *descr_ = "";
    std::vector<std::int64_t> shape_;
    std::vector<unsigned char> bytes_;
};

}  // namespace halyard::tool
