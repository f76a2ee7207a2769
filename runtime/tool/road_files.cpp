#include "tool/road_files.h"

#include "tool/options.h"
#include "tool/refusal.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <span>
#include <system_error>

namespace halyard::tool {
namespace {

/// A type in words and in .npy files.
struct Type {
    dtype value;
    const char *word;
    const char *descr;
    std::int64_t n_bytes;
};
constexpr Type types[] = {{dtype::f32, "f32", "<f4", 4},   {dtype::f16, "f16", "<f2", 2},
                          {dtype::bf16, "bf16", "<u2", 2}, {dtype::e4m3, "e4m3", "|u1", 1},
                          {dtype::e5m2, "e5m2", "|u1", 1}, {dtype::int8, "int8", "|i1", 1}};

const Type &find_type(dtype value) { return types[static_cast<std::size_t>(value) - 1]; }

/// Whether n is a times b, which may be beyond 64 bits.
bool is_product(std::int64_t n, std::int64_t a, std::int64_t b) {
    return a == 0 || b == 0 ? n == 0 : n % a == 0 && n / a == b;
}

[[noreturn]] void refuse_shape(const NpyArray &file, const std::string &needed) {
    throw Refusal(file.name + " has shape " + format_shape(file.shape) + ", but " + needed);
}

/// Tiles that follow each other evenly are one: the library is strict about a last one that is cut off.
void join_tiles(std::int64_t &tile, std::int64_t stride_tile, std::int64_t stride) {
    std::int64_t even = 0;
    if (!__builtin_mul_overflow(tile, stride, &even) && even == stride_tile) {
        tile = 0;  // all
    }
}

}  // namespace

RoadFiles::RoadFiles(const RoadOptions &options, const NpyArray &x, dtype type,
                     const std::optional<std::array<std::int64_t, 4>> &shape)
    : options_(options), x_(x), shape_(), has_batch_(x.shape.size() == 4), type_(type),
      out_type_(options.out_type.empty() ? type : parse_dtype(options.out_type)) {
    if (has_cache()) {
        slots_file_ = read_npy(options_.slots, {"<i4", "<i8"});
    }
    shape_ = shape ? *shape : shape_of_cache();
    if (!options.norm.empty()) {
        read_norm();
    }
    if (has_cache()) {
        read_cache();
        read_slots();
        n_bytes_ = cache().n_bytes;
    } else {
        n_bytes_ = static_cast<std::size_t>(x.n_elements) * static_cast<std::size_t>(find_type(out_type_).n_bytes);
        y_ = std::make_unique_for_overwrite<std::byte[]>(n_bytes_);
    }
    if (options.scale || !options.scales.empty()) {
        read_scale();
    } else if (!scales_path().empty()) {
        read_dynamic_scales();
    }
}

void RoadFiles::read_norm() {
    norm_ = make_struct<halyard_norm_desc>();
    norm_->width = options_.norm_width == "row" ? HALYARD_NORM_ROW : HALYARD_NORM_HEAD;
    norm_->order = options_.norm_order == "after" ? HALYARD_NORM_AFTER : HALYARD_NORM_BEFORE;
    norm_->unit_offset = options_.norm_unit_offset ? 1 : 0;
    norm_->rounding = options_.norm_round ? HALYARD_NORM_ROUND_BEFORE_WEIGHT : 0;
    norm_->eps = options_.norm_eps.value_or(1e-6);
    norm_->no_eps = norm_->eps == 0.0 ? 1 : 0;
    if (options_.norm_weight.empty()) {
        return;
    }
    weight_ = read_npy(options_.norm_weight, {"<f4", "<f2", "<u2"});
    const bool is_row = norm_->width == HALYARD_NORM_ROW;
    const std::int64_t heads = shape_[2], head_dim = shape_[3];
    if (weight_.shape.size() != 1 || !is_product(weight_.shape[0], is_row ? heads : 1, head_dim)) {
        refuse_shape(weight_, is_row ? "the weights of --norm-width row are [heads * head_dim], for " +
                                           std::to_string(heads) + " heads of " + std::to_string(head_dim)
                                     : "the weights are [head_dim], [" + std::to_string(head_dim) + "]");
    }
    norm_->weight_dtype = weight_.descr == "<f4" ? HALYARD_F32 : weight_.descr == "<f2" ? HALYARD_F16 : HALYARD_BF16;
    stages_.weight = weight_.data.get();
    stages_.n_weights = weight_.n_elements;
}

/// Of keys that move in a cache, whose own shape its layout tells.
std::array<std::int64_t, 4> RoadFiles::shape_of_cache() {
    const auto &slots = slots_file_.shape;
    if (slots.size() != 1 && slots.size() != 2) {
        refuse_shape(slots_file_, "slots are [tokens] or [batch, tokens]");
    }
    has_batch_ = slots.size() == 2;
    const std::size_t n_dims = options_.cache_layout == "nhd" || options_.cache_layout == "hnd" ? 4 : 3;
    if (x_.shape.size() != n_dims || (options_.tile && x_.shape[2] % options_.tile->block_size != 0)) {
        refuse_shape(x_, "--cache-layout " + options_.cache_layout + " is " +
                             (options_.tile                     ? "[pages, heads, bs * head_dim]"
                              : options_.cache_layout == "rows" ? "[slots, heads, head_dim]"
                              : options_.cache_layout == "nhd"  ? "[pages, bs, heads, head_dim]"
                                                                : "[pages, heads, bs, head_dim]"));
    }
    return {has_batch_ ? slots[0] : 1, slots.back(), x_.shape[options_.cache_layout == "nhd" ? 2 : 1],
            options_.tile ? x_.shape[2] / options_.tile->block_size : x_.shape.back()};
}

void RoadFiles::read_cache() {
    const auto &type = find_type(out_type_);
    if (!options_.moves) {
        cache_ = read_npy(options_.cache, {"<f4", "<f2", "<u2", "|u1", "|i1"});
    }
    if (cache().descr != type.descr) {
        throw Refusal(cache().name + " holds " + cache().descr + ", but what is stored is " + type.word + ", " +
                      type.descr + (options_.out_type.empty() ? ", as X is (see --out-dtype)" : ""));
    }
    const auto &shape = cache().shape;
    const std::int64_t heads = shape_[2], head_dim = shape_[3];
    const auto require = [&](bool good, const std::string &layout) {
        if (!good) {
            refuse_shape(cache(), "--cache-layout " + options_.cache_layout + " is " + layout + ", for " +
                                      std::to_string(heads) + " heads of " + std::to_string(head_dim));
        }
    };
    auto &desc = cache_desc_.emplace();
    if (options_.tile) {
        const auto &tile = *options_.tile;
        require(shape.size() == 3 && shape[1] == heads && is_product(shape[2], tile.block_size, head_dim),
                "[pages, heads, bs * head_dim]");
        if (tile.stride_element == 0 && std::min(tile.elements, head_dim) > 1) {
            throw Refusal("--cache-layout " + options_.cache_layout +
                          " has an s3 of 0, by which neighbouring elements would meet");
        }
        desc = describe_hnd_cache(shape[0], tile.block_size, heads, head_dim);
        desc.extent = shape[2];
        desc.tile_tokens = tile.tokens;
        desc.stride_tile_tokens = tile.stride_tokens;
        desc.stride_token = tile.stride_token;
        desc.tile_elements = tile.elements;
        desc.stride_tile_elements = tile.stride_elements;
        desc.stride_element = tile.stride_element;
        join_tiles(desc.tile_tokens, tile.stride_tokens, tile.stride_token);
        join_tiles(desc.tile_elements, tile.stride_elements, tile.stride_element);
    } else if (options_.cache_layout == "rows") {
        require(shape.size() == 3 && shape[1] == heads && shape[2] == head_dim, "[slots, heads, head_dim]");
        desc = describe_nhd_cache(1, shape[0], heads, head_dim);
    } else if (options_.cache_layout == "nhd") {
        require(shape.size() == 4 && shape[2] == heads && shape[3] == head_dim, "[pages, bs, heads, head_dim]");
        desc = describe_nhd_cache(shape[0], shape[1], heads, head_dim);
    } else {
        require(shape.size() == 4 && shape[1] == heads && shape[3] == head_dim, "[pages, heads, bs, head_dim]");
        desc = describe_hnd_cache(shape[0], shape[2], heads, head_dim);
    }
    n_slots_ = desc.n_slots;
    if (n_slots_ == 0) {
        refuse_shape(cache(), "it needs a slot");
    }
    stages_.cache = cache().data.get();
}

void RoadFiles::read_slots() {
    const std::array<std::int64_t, 2> shape = {shape_[0], shape_[1]};
    const auto needed = has_batch_ ? std::vector{shape[0], shape[1]} : std::vector{shape[1]};
    if (slots_file_.shape != needed) {
        refuse_shape(slots_file_, std::string("X needs slots ") + (has_batch_ ? "[batch, tokens], " : "[tokens], ") +
                                      format_shape(needed));
    }
    scratch_.resize(static_cast<std::size_t>((n_slots_ - 1) / 8 + 1));
    const auto n_scratch = static_cast<std::int64_t>(scratch_.size());
    slots_ = slots_file_.descr == "<i4"
                 ? slots(slots_file_.elements<std::int32_t>().data(), shape, scratch_.data(), n_scratch)
                 : slots(slots_file_.elements<std::int64_t>().data(), shape, scratch_.data(), n_scratch);
}

void RoadFiles::read_scale() {
    scale_ = describe_static_scales();
    const std::int64_t heads = shape_[2], head_dim = shape_[3];
    std::string name = "--scale";
    if (options_.scale) {
        scales_ = {static_cast<float>(*options_.scale)};
    } else {
        const auto file = read_npy(options_.scales, {"<f4"});
        const auto &shape = file.shape;
        name = file.name;
        if (shape.size() == 1 && heads == head_dim && shape[0] == heads) {
            refuse_shape(file, "X has as many heads as columns: it may mean either, and [heads, head_dim] is needed");
        }
        if (shape.size() == 2 && shape[0] == heads && shape[1] == head_dim) {
            scale_->per = HALYARD_SCALE_PER_HEAD_AND_CHANNEL;
        } else if (shape.size() == 1 && shape[0] == heads) {
            scale_->per = HALYARD_SCALE_PER_HEAD;
        } else if (shape.size() == 1 && shape[0] == head_dim) {
            scale_->per = HALYARD_SCALE_PER_CHANNEL;
        } else if (!shape.empty()) {
            refuse_shape(file, "scales are [], [heads], [head_dim] or [heads, head_dim], for " + std::to_string(heads) +
                                   " heads of " + std::to_string(head_dim));
        }
        const auto values = file.elements<float>();
        scales_.assign(values.begin(), values.end());
    }
    for (std::size_t i = 0; i < scales_.size(); ++i) {
        // Here, and not by the library, so that a number is named as it was typed.
        if (!(scales_[i] > 0.0f) || !std::isfinite(scales_[i]) || !std::isfinite(1.0f / scales_[i])) {
            char number[40];
            std::snprintf(number, sizeof(number), "%.9g", options_.scale ? *options_.scale : double{scales_[i]});
            throw Refusal((options_.scale ? name : "scale " + std::to_string(i) + " of " + name) + " is " + number +
                          ", but a scale and its reciprocal must be positive and finite, in f32");
        }
    }
    stages_.scales = scales_.data();
    stages_.n_scales = static_cast<std::int64_t>(scales_.size());
}

void RoadFiles::read_dynamic_scales() {
    const auto &type = find_type(out_type_);
    if (type.n_bytes != 1) {
        throw Refusal(std::string(options_.moves ? "--cache-scales" : "--scale-dynamic") +
                      " is for e4m3, e5m2 and int8, but what is written is " + type.word +
                      (options_.moves ? "" : " (see --out-dtype)"));
    }
    scale_ = describe_dynamic_scales();
    const std::int64_t batch = shape_[0], tokens = shape_[1], heads = shape_[2];
    scales_shape_ = has_cache()  ? std::vector{n_slots_, heads}
                    : has_batch_ ? std::vector{batch, tokens, heads}
                                 : std::vector{tokens, heads};
    std::error_code code;
    const bool is_new = !options_.moves && std::filesystem::status(options_.scale_dynamic, code).type() ==
                                               std::filesystem::file_type::not_found;
    if ((has_cache() || options_.moves) && !is_new) {
        const auto before = read_npy(options_.moves ? options_.cache_scales : options_.scale_dynamic, {"<f4"});
        if (before.shape != scales_shape_) {
            refuse_shape(before, std::string("the scales of ") +
                                     (has_cache()  ? "this cache are [slots, heads], "
                                      : has_batch_ ? "these keys are [batch, tokens, heads], "
                                                   : "these keys are [tokens, heads], ") +
                                     format_shape(scales_shape_));
        }
        const auto values = before.elements<float>();
        scales_.assign(values.begin(), values.end());
    } else if (x_.n_elements != 0 || has_cache()) {
        scales_.assign(static_cast<std::size_t>(has_cache() ? n_slots_ * heads : batch * tokens * heads), 1.0f);
    }
    stages_.scales_out = scales_.data();
    stages_.stride_scales[0] = has_cache() ? 0 : tokens * heads;
    stages_.stride_scales[1] = heads;
    stages_.stride_scales[2] = 1;
}

void RoadFiles::describe(halyard_tensor_desc &tensor) const {
    tensor.out_dtype = static_cast<std::int32_t>(out_type_);
    tensor.norm = norm_ ? &*norm_ : nullptr;
    tensor.scale = scale_ ? &*scale_ : nullptr;
    tensor.cache = cache_desc_ && cache().n_elements != 0 ? &*cache_desc_ : nullptr;  // of no heads it has no strides
}

void RoadFiles::bring_to(run_options &run) const {
    run.stages = &stages_;
    run.slots = slots_ ? &*slots_ : nullptr;
}

void RoadFiles::write(const std::string &output) const {
    const std::span<const std::int64_t> shape = has_cache() ? cache().shape : x_.shape;
    const void *const data = has_cache() ? cache().data.get() : y_.get();
    std::vector<NpyOutput> files = {{output, find_type(out_type_).descr, shape, data, n_bytes_}};
    if (!scales_path().empty()) {
        files.push_back({scales_path(), "<f4", scales_shape_, scales_.data(), scales_.size() * sizeof(float)});
    }
    write_npy_files(files);
}

}  // namespace halyard::tool
