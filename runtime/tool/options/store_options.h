// Where Y ends: its type, the scales that it is divided by, groups that it is kept in, and a cache that it is stored
// in.
#pragma once

#include "tool/files/input_file.h"
#include "tool/files/refusal.h"
#include "tool/options/cache_layout.h"
#include "tool/options/call.h"
#include "tool/options/dtypes.h"
#include "tool/options/groups_options.h"

#include "halyard/halyard.hpp"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace halyard::tool {

/// From options and files to what the library reads and writes. Its memory stays here.
class StoreOptions {
public:
    // Files are "" when not given.
    std::optional<dtype> out_type;
    std::optional<double> scale;  // --scale as a number,
    std::string scales;           // or as a file
    std::string scale_dynamic;
    std::int32_t hadamard = 0;                                    // 0: none
    std::string slots, cache;                                     // both or none; where keys move, X is the cache
    std::string cache_scales;                                     // of keys that move, and of records that are read
    GroupsWord groups{"--groups"}, from_groups{"--from-groups"};  // how records hold Y, and X

    void add(CLI::App &command) {
        auto *type = add_word(command, "--out-dtype", out_type,
                              "Y's type: f32 is <f4, f16 <f2, bf16 <u2, e4m3 and e5m2 |u1, int8 |i1 [X's]",
                              words_of_dtypes<std::optional<dtype>>());
        auto *fixed =
            add_value(command, "--scale", "S|FILE",
                      "what is stored is v / scale: a number, or .npy, <f4, [], [heads], [head_dim] or [heads, "
                      "head_dim]",
                      [this](const std::string &text) { return parse_scale(text); });
        auto *dynamic =
            add_file(command, "--scale-dynamic", scale_dynamic,
                     "make a scale for each token and head, and write them: <f4, [tokens, heads], or [batch, "
                     "tokens, heads]; with --slots [slots, heads], the others as they were, or 1; with --groups: where "
                     "scales go that lie apart, by that shape and, where a head has several, [..., groups]");
        auto *blocks = add_integer(command, "--hadamard", hadamard,
                                   "a Hadamard transform of each N elements, before scales; a power of two that "
                                   "divides head_dim",
                                   2, 1 << 20);
        auto *to_slots =
            add_file(command, "--slots", slots,
                     "where each token goes in the cache, -1: nowhere; <i4 or <i8, [tokens] or, of a 4-D X, "
                     "[batch, tokens]");
        auto *before =
            add_file(command, "--cache", cache,
                     "the cache before, of Y's type; Y is the cache after; with --from-positions X is the cache");
        auto *moved = add_file(command, "--cache-scales", cache_scales,
                               "with --from-positions: the scales of X's tokens and heads, <f4, [slots, heads], or "
                               "without --slots [tokens, heads] or [batch, tokens, heads]; new ones are written "
                               "there, or where --scale-dynamic says; with --from-groups: those of X's records, if "
                               "they lie apart");
        auto *layout =
            add_value(command, "--cache-layout", "rows|nhd|hnd|tile:bs,Tt,s0,s1,Dt,s2,s3",
                      "[slots, heads, head_dim]; [pages, bs, heads, head_dim]; [pages, heads, bs, head_dim]; "
                      "[pages, heads, bs * head_dim], where element d of a block's token t and one head is "
                      "number (t / Tt) * s0 + (t % Tt) * s1 + (d / Dt) * s2 + (d % Dt) * s3",
                      [this](const std::string &text) { return layout_.parse(text); });
        add_groups(command)->excludes(type)->excludes(fixed);
        fixed->excludes(dynamic);
        moved->excludes(fixed);
        to_slots->needs(layout);
        before->needs(to_slots)->needs(layout);
        layout->needs(to_slots);
        for (auto *option : {type, blocks, fixed, dynamic, to_slots, before, layout, moved}) {
            option->group("Scale, type and cache");
        }
    }

    bool has_cache() const { return !slots.empty(); }
    /// Where dynamic scales are written.
    const std::string &scales_path() const {
        return scale_dynamic.empty() && !from_groups.is_given() ? cache_scales : scale_dynamic;
    }
    /// How records hold X; NULL where elements do.
    const GroupsWord *groups_of_x(bool moves) const {
        const auto &of_x = moves ? groups : from_groups;
        return of_x.is_given() ? &of_x : nullptr;
    }

    /// Reads which slots of the cache the tokens have. Where keys move, those and the cache tell the call's shape.
    void read_slots(Call &call) {
        if (!has_cache()) {
            return;
        }
        slots_file_ = read_npy(slots, {"<i4", "<i8"});
        if (!call.moves) {
            return;
        }
        const auto &shape = slots_file_.shape;
        if (shape.size() != 1 && shape.size() != 2) {
            refuse_shape(slots_file_, "slots are [tokens] or [batch, tokens]");
        }
        call.has_batch = shape.size() == 2;
        const auto [heads, width] = layout_.find_heads(call.x);
        call.shape = {call.has_batch ? shape[0] : 1, shape.back(), heads, width};
    }

    /// Tells the call how wide heads are in X and Y, of which it knows the former as the last of its shape.
    void find_widths(Call &call) {
        call.x_width = call.y_width = call.shape[3];
        const auto *const of_x = groups_of_x(call.moves);
        if (of_x != nullptr) {
            call.y_width = call.shape[3] = of_x->find_head_dim(call.x, call.x_width);
        }
        for (auto *const each : {&groups, &from_groups}) {
            if (each->is_given()) {
                each->resolve(call.shape[3]);
            }
        }
        call.y_width = groups.is_given() ? groups.desc().record_bytes : call.y_width;
    }

    /// Reads the other files, checks their types and shapes, and brings them to the call. Throws Refusal.
    void read(Call &call) {
        const auto &type = find_dtype(type_of(call));
        call.tensor.out_dtype = static_cast<std::int32_t>(type.value);
        if (hadamard != 0 && ((hadamard & (hadamard - 1)) != 0 || call.shape[3] % hadamard != 0)) {
            throw Refusal("--hadamard is " + std::to_string(hadamard) + ", but must be a power of two that divides " +
                          "head_dim, " + std::to_string(call.shape[3]));
        }
        call.tensor.hadamard = hadamard;
        if (has_cache()) {
            read_cache(call);
            n_bytes_ = cache_of(call).n_bytes;
        } else {
            const auto n_heads = call.x.n_elements != 0 ? call.x.n_elements / call.x_width : 0;
            n_bytes_ = static_cast<std::size_t>(n_heads) * static_cast<std::size_t>(call.y_width * type.n_bytes);
            y_ = std::make_unique<std::byte[]>(n_bytes_);  // gaps in records are zeros
        }
        if (groups.is_given() || from_groups.is_given()) {
            call.tensor.groups = groups.is_given() ? &groups.desc() : nullptr;
            call.tensor.from_groups = from_groups.is_given() ? &from_groups.desc() : nullptr;
            read_group_scales(call);
        }
        if (scale || !scales.empty()) {
            read_static_scales(call);
        } else if (!scales_path().empty() && !groups.is_given()) {
            read_dynamic_scales(call);
        }
    }

    /// Y's type and memory: the cache, or as many elements as X has.
    dtype type_of(const Call &call) const {
        return groups.is_given()        ? dtype::uint8
               : from_groups.is_given() ? out_type.value_or(dtype::f32)
                                        : out_type.value_or(call.type);
    }
    void *memory(const Call &call) const { return has_cache() ? cache_of(call).data.get() : y_.get(); }
    /// Writes Y, and dynamic scales; all or nothing.
    void write(const Call &call, const std::string &output) const {
        auto shape = has_cache() ? cache_of(call).shape : call.x.shape;
        if (!has_cache()) {
            shape.back() = call.y_width;
        }
        std::vector<NpyOutput> files = {{output, find_dtype(type_of(call)).descr, shape, memory(call), n_bytes_}};
        if (group_scales_.is_described()) {
            files.push_back(group_scales_.output(scales_path()));
        } else if (!scales_path().empty()) {
            files.push_back({scales_path(), "<f4", scales_shape_, scales_.data(), scales_.size() * sizeof(float)});
        }
        write_npy_files(files);
    }

private:
    /// Returns --groups.
    CLI::Option *add_groups(CLI::App &command) {
        auto *to = add_value(command, "--groups", "PRESET|FIELD=VALUE,...",
                             "store heads as records of groups with scales, |u1, their bytes in the place of "
                             "head_dim; with --from-positions X holds such. PRESET is " +
                                 list_presets() +
                                 "; fields say what the library's header says of them: " + list_group_fields(),
                             [this](const std::string &text) { return groups.parse(text); });
        auto *from = add_value(command, "--from-groups", "PRESET|FIELD=VALUE,...",
                               "X holds records of such groups; Y holds f32, or what --out-dtype or --groups says",
                               [this](const std::string &text) { return from_groups.parse(text); });
        for (auto *option : {to, from}) {
            option->group("Scale, type and cache");
        }
        return to;
    }

    /// Of records whose scales lie apart. Throws for those that are missing, or have no use.
    void read_group_scales(Call &call) {
        const bool writes = groups.is_given() && groups.desc().scales_apart != 0;
        const bool reads = from_groups.is_given() && from_groups.desc().scales_apart != 0;
        const auto require = [](bool has_use, const std::string &path, const GroupsWord &of, const char *option) {
            if (has_use && path.empty()) {
                throw CLI::RequiresError(of.name(), option);
            }
            if (!has_use && !path.empty()) {
                throw CLI::ValidationError(option, (of.is_given() ? of.name() + " keeps" : "such records keep") +
                                                       std::string(" no scales apart"));
            }
        };
        if (groups.is_given() || reads) {
            require(writes, scales_path(), groups,
                    scale_dynamic.empty() && !scales_path().empty() ? "--cache-scales" : "--scale-dynamic");
        }
        if (!call.moves) {
            require(reads, cache_scales, from_groups, "--cache-scales");
        }
        const auto [batch, tokens, heads, elements] = call.shape;
        const auto of_tokens = call.has_batch ? std::vector{batch, tokens, heads} : std::vector{tokens, heads};
        if (reads) {
            from_group_scales_.describe(from_groups, of_tokens);
            from_group_scales_.read(cache_scales);
            call.stages.from_group_scales = from_group_scales_.data();
        }
        if (writes) {
            group_scales_.describe(groups, has_cache() ? std::vector{cache_desc_.n_slots, heads} : of_tokens);
            if (call.moves || (has_cache() && !is_new_file(scales_path()))) {
                group_scales_.read(call.moves && !cache_scales.empty() ? cache_scales : scales_path());
            }
            call.stages.group_scales = group_scales_.data();
        }
    }

    static bool is_new_file(const std::string &path) {
        std::error_code code;
        return std::filesystem::status(path, code).type() == std::filesystem::file_type::not_found;
    }

    /// A number, or the path of a file; what looks like a number must be one.
    std::string parse_scale(const std::string &text) {
        if (text.empty()) {
            return "it is empty";
        }
        scale = parse_number<double>(text);
        const bool is_path = text == standard_stream || text.find('/') != text.npos || text.ends_with(".npy");
        const bool looks_like_number = std::string_view("+-.0123456789").find(text.front()) != std::string_view::npos;
        if (!scale && !is_path && looks_like_number) {
            return "'" + text + "' is neither a number that a double holds nor a .npy file";
        }
        scales = scale ? "" : text;
        return "";
    }

    const NpyArray &cache_of(const Call &call) const { return call.moves ? call.x : cache_; }
    void read_cache(Call &call) {
        const auto &type = find_dtype(type_of(call));
        if (!call.moves) {
            cache_ = read_npy(cache, {"<f4", "<f2", "<u2", "|u1", "|i1"});
        }
        const auto &file = cache_of(call);
        if (file.descr != type.descr) {
            throw Refusal(file.name + " holds " + file.descr + ", but what is stored is " + type.word + ", " +
                          type.descr + (out_type ? "" : ", as X is (see --out-dtype)"));
        }
        const auto [batch, tokens, heads, elements] = call.shape;
        cache_desc_ = layout_.describe(file, heads, call.y_width);
        call.tensor.cache = file.n_elements != 0 ? &cache_desc_ : nullptr;  // of no heads it has no strides
        call.stages.cache = file.data.get();

        const auto needed = call.has_batch ? std::vector{batch, tokens} : std::vector{tokens};
        if (slots_file_.shape != needed) {
            refuse_shape(slots_file_, std::string("X needs slots ") +
                                          (call.has_batch ? "[batch, tokens], " : "[tokens], ") + format_shape(needed));
        }
        slots_values_ = slots_file_.widened<std::int64_t, std::int32_t>();
        scratch_.resize(static_cast<std::size_t>((cache_desc_.n_slots - 1) / 8 + 1));
        slots_ = halyard::slots(slots_values_.data(), {batch, tokens}, scratch_.data(),
                                static_cast<std::int64_t>(scratch_.size()));
        call.how.slots = slots_;
    }

    void read_static_scales(Call &call) {
        std::string name = "--scale";
        scale_desc_ = describe_static_scales();
        if (scale) {
            scales_ = {static_cast<float>(*scale)};
        } else {
            const auto file = read_npy(scales, {"<f4"});
            scale_desc_.per = find_what_scales_are_per(file, call);
            const auto values = file.elements<float>();
            scales_.assign(values.begin(), values.end());
            name = file.name;
        }
        for (std::size_t i = 0; i < scales_.size(); ++i) {
            // Here, and not by the library, so that a number is named as it was typed.
            if (!(scales_[i] > 0.0f) || !std::isfinite(scales_[i]) || !std::isfinite(1.0f / scales_[i])) {
                char number[40];
                std::snprintf(number, sizeof(number), "%.9g", scale ? *scale : double{scales_[i]});
                throw Refusal((scale ? name : "scale " + std::to_string(i) + " of " + name) + " is " + number +
                              ", but a scale and its reciprocal must be positive and finite, in f32");
            }
        }
        call.tensor.scale = &scale_desc_;
        call.stages.scales = scales_.data();
        call.stages.n_scales = static_cast<std::int64_t>(scales_.size());
    }

    std::int32_t find_what_scales_are_per(const NpyArray &file, const Call &call) const {
        const auto &shape = file.shape;
        const auto heads = call.shape[2], head_dim = call.shape[3];
        const std::vector of_heads = {heads}, of_channels = {head_dim}, of_both = {heads, head_dim};
        if (shape == of_heads && heads == head_dim) {
            refuse_shape(file, "X has as many heads as columns: it may mean either, and [heads, head_dim] is needed");
        }
        if (!shape.empty() && shape != of_heads && shape != of_channels && shape != of_both) {
            refuse_shape(file, "scales are [], [heads], [head_dim] or [heads, head_dim], for " + std::to_string(heads) +
                                   " heads of " + std::to_string(head_dim));
        }
        return shape.empty()          ? HALYARD_SCALE_PER_TENSOR
               : shape == of_heads    ? HALYARD_SCALE_PER_HEAD
               : shape == of_channels ? HALYARD_SCALE_PER_CHANNEL
                                      : HALYARD_SCALE_PER_HEAD_AND_CHANNEL;
    }

    void read_dynamic_scales(Call &call) {
        const auto &type = find_dtype(type_of(call));
        if (type.n_bytes != 1) {
            throw Refusal(std::string(call.moves ? "--cache-scales" : "--scale-dynamic") +
                          " is for e4m3, e5m2 and int8, but what is written is " + type.word +
                          (call.moves ? "" : " (see --out-dtype)"));
        }
        const auto [batch, tokens, heads, head_dim] = call.shape;
        scales_shape_ = has_cache()      ? std::vector{cache_desc_.n_slots, heads}
                        : call.has_batch ? std::vector{batch, tokens, heads}
                                         : std::vector{tokens, heads};
        const bool is_new = !call.moves && is_new_file(scale_dynamic);
        if ((has_cache() || call.moves) && !is_new) {
            const auto before = read_npy(call.moves ? cache_scales : scale_dynamic, {"<f4"});
            if (before.shape != scales_shape_) {
                refuse_shape(before, std::string("the scales of ") +
                                         (has_cache()      ? "this cache are [slots, heads], "
                                          : call.has_batch ? "these keys are [batch, tokens, heads], "
                                                           : "these keys are [tokens, heads], ") +
                                         format_shape(scales_shape_));
            }
            const auto values = before.elements<float>();
            scales_.assign(values.begin(), values.end());
        } else if (call.x.n_elements != 0 || has_cache()) {
            scales_.assign(static_cast<std::size_t>((has_cache() ? cache_desc_.n_slots : batch * tokens) * heads),
                           1.0f);
        }
        scale_desc_ = describe_dynamic_scales();
        call.tensor.scale = &scale_desc_;
        call.stages.scales_out = scales_.data();
        // Sizes of an empty array may have any product.
        call.stages.stride_scales[0] = has_cache() || call.x.n_elements == 0 ? 0 : tokens * heads;
        call.stages.stride_scales[1] = heads;
        call.stages.stride_scales[2] = 1;
    }

    CacheLayout layout_;
    NpyArray cache_, slots_file_;
    std::vector<std::int64_t> slots_values_;
    std::vector<unsigned char> scratch_;
    std::unique_ptr<std::byte[]> y_;
    std::size_t n_bytes_ = 0;
    GroupScales group_scales_, from_group_scales_;
    std::vector<float> scales_;  // static, or as they will be written
    std::vector<std::int64_t> scales_shape_;
    halyard_scale_desc scale_desc_;
    halyard_cache_desc cache_desc_;
    halyard_slots slots_;
};

}  // namespace halyard::tool
