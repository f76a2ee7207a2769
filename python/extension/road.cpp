#include "road.h"

#include "names.h"

#include <nanobind/stl/string.h>

#include <utility>

namespace nb = nanobind;

namespace halyard::python {
namespace {

std::int64_t number_in(nb::handle object, const char *field) { return nb::cast<std::int64_t>(object.attr(field)); }

/// What a CacheLayout says, by the names of its fields.
constexpr std::pair<const char *, std::int64_t halyard_cache_desc::*> numbers_of_tiles[] = {
    {"n_slots", &halyard_cache_desc::n_slots},
    {"block_size", &halyard_cache_desc::block_size},
    {"stride_block", &halyard_cache_desc::stride_block},
    {"stride_head", &halyard_cache_desc::stride_head},
    {"tile_tokens", &halyard_cache_desc::tile_tokens},
    {"tile_elements", &halyard_cache_desc::tile_elements},
    {"stride_tile_tokens", &halyard_cache_desc::stride_tile_tokens},
    {"stride_token", &halyard_cache_desc::stride_token},
    {"stride_tile_elements", &halyard_cache_desc::stride_tile_elements},
    {"stride_element", &halyard_cache_desc::stride_element}};

/// A stride of a cache within a block, where 0 means that there is one step.
std::int64_t stride_within(const Array &array, int dim) { return array.size(dim) > 1 ? array.stride(dim) : 0; }

/// A tensor whose batch rows, tokens, heads and elements are these dimensions of an array; -1: it has none.
halyard_tensor view_of(const Array &array, const std::array<int, 4> &dims) {
    auto result = make_struct<halyard_tensor>();
    result.dtype = array.dtype();
    result.device = array.device() == Array::on_cpu ? HALYARD_CPU : HALYARD_CUDA;
    result.data = array.data();
    for (std::size_t i = 0; i < dims.size(); ++i) {
        result.shape[i] = dims[i] < 0 ? 1 : array.size(dims[i]);
        result.strides[i] = dims[i] < 0 ? 0 : array.stride(dims[i]);
    }
    return result;
}

}  // namespace

halyard_tensor HeadOrder::view(const Array &array) const {
    const int n = array.n_dims();
    if (n != 3 && n != 4) {
        array.refuse_shape(heads_first ? "[heads, tokens, head_dim] or [batch, heads, tokens, head_dim]"
                                       : "[tokens, heads, head_dim] or [batch, tokens, heads, head_dim]");
    }
    return view_of(array, {n - 4, heads_first ? n - 2 : n - 3, heads_first ? n - 3 : n - 2, n - 1});
}

halyard_tensor Part::view(const Array &array, HeadOrder layout) const {
    const auto heads = std::to_string(total) + " heads of q, k and v";
    if (layout.heads_first) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "layout is \"bhsd\", but heads of q, k and v in one array come after tokens");
    }
    halyard_tensor result{};
    if (head_dim == 0) {
        result = layout.view(array);
        if (result.shape[2] != total) {
            array.refuse_shape("[tokens, heads, head_dim] or [batch, tokens, heads, head_dim], with " + heads);
        }
    } else {
        const int last = array.n_dims() - 1;
        if ((last != 1 && last != 2) || array.size(last) % total != 0 || array.size(last) / total != head_dim) {
            const auto columns = std::to_string(detail::multiply(total, head_dim)) + "]";
            array.refuse_shape("[tokens, " + columns + " or [batch, tokens, " + columns + ", for " + heads + " of " +
                               std::to_string(head_dim));
        }
        result = view_of(array, {last - 2, last - 1, -1, last});
        result.shape[3] = head_dim;
        result.strides[2] = detail::multiply(head_dim, array.stride(last));
    }
    result.shape[2] = n;
    if (array.n_elements() > 0) {
        result.data = static_cast<char *>(result.data) + first * result.strides[2] * array.element_bytes();
    }
    return result;
}

void Road::read(const char *name, nb::handle x_object, nb::handle y_object, HeadOrder layout,
                const StageArguments &arguments, std::int32_t device, const Part *part) {
    name_ = name;
    input_.emplace(x_object, part != nullptr ? "packed" : name, device);
    x = part != nullptr ? part->view(*input_, layout) : layout.view(*input_);
    has_batch_ = input_->n_dims() == (part != nullptr && part->head_dim != 0 ? 3 : 4);
    desc = make_struct<halyard_tensor_desc>();
    kv = make_struct<halyard_kv_desc>();
    desc.kv = &kv;
    desc.head_dim = x.shape[3];
    desc.dtype = input_->dtype();
    if (!arguments.from_groups.is_none()) {
        read_from_groups(arguments.from_groups);
    } else if (desc.dtype != HALYARD_F32 && desc.dtype != HALYARD_F16 && desc.dtype != HALYARD_BF16) {
        refuse(HALYARD_ERROR_UNSUPPORTED,
               std::string(name) + " holds " + input_->dtype_name() + ", but has to hold float32, float16 or bfloat16");
    }
    stages = make_struct<halyard_stages>();
    read_groups(arguments.groups, nullptr);
    if (!arguments.cache.is_none()) {
        read_cache(arguments.cache, arguments.cache_layout, arguments.dtype);
        y = x;
    } else {
        read_output(y_object, layout, arguments.dtype, y_object.is(x_object) ? part : nullptr);
    }
    read_norm(arguments.norm);
    read_position_scales(arguments.position_scales, layout);
    read_hadamard(arguments.hadamard);
    read_scale(arguments.scale, layout);
    read_group_scales(arguments.group_scales, layout);
    read_from_group_scales(arguments.from_group_scales, layout);
}

void Road::read_keys(const KeyArguments &arguments, HeadOrder layout) {
    name_ = "keys";
    desc = make_struct<halyard_tensor_desc>();
    kv = make_struct<halyard_kv_desc>();
    desc.kv = &kv;
    stages = make_struct<halyard_stages>();
    if (arguments.slots.is_none()) {
        read_moving_array(arguments, layout);
    } else {
        read_moving_cache(arguments);
    }
    read_hadamard(arguments.stages.hadamard);
    read_scale(arguments.stages.scale, layout);
    read_group_scales(arguments.stages.group_scales, layout);
}

void Road::read_moving_array(const KeyArguments &arguments, HeadOrder layout) {
    input_.emplace(arguments.keys, "keys");
    x = layout.view(*input_);
    has_batch_ = input_->n_dims() == 4;
    desc.head_dim = x.shape[3];
    read_groups(arguments.stages.groups, &*input_);
    desc.dtype = x.dtype = dtype_of(*input_, arguments.stages.dtype);
    if (arguments.out.is_none()) {
        input_->require_writable();
        kv.out_dtype = desc.dtype;
        y = x;
    } else {
        read_output(arguments.out, layout, arguments.stages.dtype);
    }
}

void Road::read_moving_cache(const KeyArguments &arguments) {
    const Array tokens(arguments.slots, "slots"), cache(arguments.keys, "keys");
    const auto layout = arguments.stages.cache_layout;
    const bool tiled = !PyUnicode_Check(layout.ptr());
    if (!arguments.out.is_none()) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "keys in slots move where they lie, so that out has to be None");
    }
    if (tiled != arguments.n_heads.has_value() || tiled != arguments.head_dim.has_value()) {
        refuse(HALYARD_ERROR_MISMATCH, "n_heads and head_dim are for a cache with a CacheLayout, and needed there");
    }
    if (!tiled && cache.n_dims() != 3 && cache.n_dims() != 4) {
        cache.refuse_shape("a cache");
    }
    const bool hnd = !tiled && cache.n_dims() == 4 && nb::cast<std::string>(layout) == "hnd";
    x = make_struct<halyard_tensor>();
    x.shape[0] = tokens.n_dims() == 2 ? tokens.size(0) : 1;
    x.shape[1] = tokens.n_dims() > 0 ? tokens.size(tokens.n_dims() - 1) : 0;
    x.shape[2] = tiled ? *arguments.n_heads : cache.size(hnd ? 1 : cache.n_dims() - 2);
    desc.head_dim = tiled ? *arguments.head_dim : cache.size(cache.n_dims() - 1);
    read_groups(arguments.stages.groups, tiled ? nullptr : &cache);
    x.shape[3] = stored_width();
    read_cache(arguments.keys, layout, arguments.stages.dtype);
    desc.dtype = x.dtype = kv.out_dtype;
    y = x;
}

std::int32_t Road::dtype_of(const Array &array, nb::handle asked) const {
    if (kv.groups != nullptr) {
        if (!asked.is_none()) {
            refuse(HALYARD_ERROR_MISMATCH, name_of("dtype") + " is " + nb::cast<std::string>(asked) + ", but " +
                                               name_of("groups") + " make records of bytes");
        }
        if (!array.is_uint8()) {
            refuse(HALYARD_ERROR_MISMATCH,
                   array.name() + " holds " + array.dtype_name() + ", but records are bytes, uint8");
        }
        return HALYARD_UINT8;
    }
    const auto stored = array.dtype();
    if (asked.is_none()) {
        if (stored == 0) {
            refuse(HALYARD_ERROR_UNSUPPORTED,
                   array.name() + " holds " + array.dtype_name() +
                       ", which Halyard does not write; uint8 is written as what dtype says, e4m3 or e5m2");
        }
        return stored;
    }
    const auto name = nb::cast<std::string>(asked);
    const auto wanted = value_of(dtypes, "dtype", name);
    const bool as_bytes = array.is_uint8() && (wanted == HALYARD_E4M3 || wanted == HALYARD_E5M2);
    if (stored != wanted && !as_bytes) {
        refuse(HALYARD_ERROR_MISMATCH,
               name_of("dtype") + " is " + name + ", but " + array.name() + " holds " + array.dtype_name());
    }
    return wanted;
}

void Road::read_output(nb::handle object, HeadOrder layout, nb::handle dtype, const Part *part) {
    output_.emplace(object, name_of("out"), input_->device());
    output_->require_writable();
    if (part == nullptr && output_->n_dims() != (has_batch_ ? 4 : 3)) {
        refuse(HALYARD_ERROR_SHAPE, output_->name() + " has the shape " + output_->shape_text() + ", and " + name_ +
                                        " has " + input_->shape_text());
    }
    y = part != nullptr ? part->view(*output_, layout) : layout.view(*output_);
    kv.out_dtype = dtype_of(*output_, dtype);
    y.dtype = kv.out_dtype;
}

void Road::read_norm(nb::handle norm) {
    if (norm.is_none()) {
        return;
    }
    norm_ = make_struct<halyard_norm_desc>();
    norm_.kind = value_of(norm_kinds, "kind of a norm", nb::cast<std::string>(norm.attr("kind")));
    norm_.width = value_of(norm_widths, "width of a norm", nb::cast<std::string>(norm.attr("width")));
    norm_.order = value_of(norm_orders, "order of a norm", nb::cast<std::string>(norm.attr("order")));
    norm_.rounding = value_of(norm_roundings, "rounding of a norm", nb::cast<std::string>(norm.attr("rounding")));
    norm_.unit_offset = nb::cast<bool>(norm.attr("unit_offset")) ? 1 : 0;
    norm_.eps = nb::cast<double>(norm.attr("eps"));
    norm_.no_eps = norm_.eps == 0.0 ? 1 : 0;
    norm_.window_offset = number_in(norm, "window_offset");
    norm_.window_size = number_in(norm, "window_size");
    kv.norm = &norm_;
    const nb::object weight = norm.attr("weight");
    if (weight.is_none()) {
        if (!norm.attr("bias").is_none()) {
            refuse(HALYARD_ERROR_MISMATCH, name_of("bias") + " is given, but there is no weight");
        }
        return;
    }
    weight_.emplace(weight, name_of("weight"), input_->device());
    if (!weight_->is_dense() || weight_->n_dims() == 0) {
        weight_->refuse_shape("a dense row");
    }
    norm_.weight_dtype = weight_->dtype();
    if (norm_.weight_dtype == 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED,
               weight_->name() + " holds " + weight_->dtype_name() + ", but has to hold float32, float16 or bfloat16");
    }
    const bool is_by_head = weight_->n_dims() == 2 && weight_->size(0) == x.shape[2];
    norm_.weight_per_head = is_by_head && norm_.width == HALYARD_NORM_HEAD ? 1 : 0;
    stages.weight = weight_->data();
    stages.n_weights = weight_->n_elements();
    has_stages = true;
    read_bias(norm.attr("bias"));
}

void Road::read_bias(nb::handle bias) {
    if (bias.is_none()) {
        return;
    }
    bias_.emplace(bias, name_of("bias"), input_->device());
    if (!bias_->is_dense() || bias_->shape_text() != weight_->shape_text() || bias_->dtype() != weight_->dtype()) {
        refuse(HALYARD_ERROR_SHAPE, bias_->name() + " holds " + bias_->dtype_name() + " of the shape " +
                                        bias_->shape_text() + ", but has to be dense, and as the weight is: " +
                                        weight_->dtype_name() + " of the shape " + weight_->shape_text());
    }
    norm_.has_bias = 1;
    stages.bias = bias_->data();
}

void Road::read_scale(nb::handle scale, HeadOrder layout) {
    if (scale.is_none()) {
        return;
    }
    scale_ = make_struct<halyard_scale_desc>();
    kv.scale = &scale_;
    has_stages = true;
    if (nb::hasattr(scale, "scales_out")) {
        scale_.kind = HALYARD_SCALE_DYNAMIC;
        read_dynamic_scales(scale.attr("scales_out"), layout);
        return;
    }
    if (PyFloat_Check(scale.ptr()) || PyLong_Check(scale.ptr())) {
        scale_value_ = static_cast<float>(nb::cast<double>(scale));
        stages.scales = &scale_value_;
        stages.n_scales = 1;
        return;
    }
    scales_.emplace(scale, name_of("scale"));
    const bool is_one = scales_->n_elements() == 1;
    const bool per_head = scales_->n_dims() == 1 && scales_->size(0) == x.shape[2];
    if (scales_->dtype() != HALYARD_F32 || !scales_->is_dense() || (!is_one && !per_head)) {
        scales_->refuse_kind("dense float32: one, or [heads]");
    }
    scale_.per = is_one ? HALYARD_SCALE_PER_TENSOR : HALYARD_SCALE_PER_HEAD;
    stages.scales = static_cast<const float *>(scales_->data());
    stages.n_scales = scales_->n_elements();
}

void Road::read_dynamic_scales(nb::handle out, HeadOrder layout) {
    scales_.emplace(out, name_of("scales_out"));
    scales_->require_writable();
    const auto &array = *scales_;
    const auto rows = cache_ ? HeadRows{-1, 0, 1, 1, cache_desc_.n_slots, x.shape[2]} : rows_of_views(layout);
    if (array.dtype() != HALYARD_F32 || !rows.fit(array)) {
        array.refuse_kind("float32 of " +
                          (cache_ ? "[slots, heads]" : "the shape of " + std::string(name_) + " without head_dim"));
    }
    rows.set_strides(array, stages.stride_scales);
    stages.scales_out = static_cast<float *>(array.data());
}

void Road::read_hadamard(nb::handle n) {
    if (n.is_none()) {
        return;
    }
    const auto value = nb::cast<std::int64_t>(n);
    if (value < 0 || (value & (value - 1)) != 0 || value == 1 || (value != 0 && desc.head_dim % value != 0)) {
        refuse(HALYARD_ERROR_SHAPE, name_of("hadamard") + " is " + std::to_string(value) +
                                        ", but has to be 0 or a power of two that divides head_dim, " +
                                        std::to_string(desc.head_dim));
    }
    kv.hadamard = static_cast<std::int32_t>(value);
    has_stages = has_stages || value != 0;
}

void Road::read_groups(nb::handle groups, const Array *moving) {
    if (groups.is_none()) {
        return;
    }
    if (moving != nullptr) {
        desc.head_dim = find_head_dim(groups, *moving, name_of("groups"));
    }
    groups_ = Groups(groups, desc.head_dim, name_of("groups"));
    kv.groups = &groups_.desc;
}

void Road::read_from_groups(nb::handle groups) {
    const auto name = name_of("from_groups");
    desc.head_dim = find_head_dim(groups, *input_, name);
    from_groups_ = Groups(groups, desc.head_dim, name);
    kv.from_groups = &from_groups_.desc;
    desc.dtype = x.dtype = HALYARD_UINT8;
}

void Road::require_scales(nb::handle scales, bool is_apart, const char *what, const char *groups) const {
    if (scales.is_none() == is_apart) {
        refuse(HALYARD_ERROR_MISMATCH, name_of(what) + (is_apart ? " is None, but " : " is given, but ") +
                                           name_of(groups) + " has " + (is_apart ? "its" : "no") + " scales apart");
    }
}

HeadRows Road::rows_of_views(HeadOrder layout) const {
    const int tokens = (has_batch_ ? 1 : 0) + (layout.heads_first ? 1 : 0), heads = (has_batch_ ? 3 : 1) - tokens;
    return {has_batch_ ? 0 : -1, tokens, heads, x.shape[0], x.shape[1], x.shape[2]};
}

void Road::read_group_scales(nb::handle scales, HeadOrder layout) {
    const bool is_apart = kv.groups != nullptr && groups_.info.scales_apart != 0;
    require_scales(scales, is_apart, "group_scales", "groups");
    if (!is_apart) {
        return;
    }
    const auto &array =
        group_scales_.emplace(scales, name_of("group_scales"), input_ ? input_->device() : Array::on_cpu);
    array.require_writable();
    has_stages = true;
    if (!cache_) {
        stages.group_scales = python::read_group_scales(array, rows_of_views(layout), groups_,
                                                        "the shape of " + std::string(name_) + " without head_dim");
        return;
    }
    const auto block_size = cache_desc_.block_size != 0 ? cache_desc_.block_size : cache_desc_.n_slots;
    const bool is_paged = array.n_dims() == (groups_.info.n_groups > 1 ? 4 : 3);
    const auto n_pages = is_paged && block_size != 0 ? cache_desc_.n_slots / block_size : 1;
    const HeadRows rows = is_paged ? HeadRows{0, 1, 2, n_pages, block_size, x.shape[2]}
                                   : HeadRows{-1, 0, 1, 1, cache_desc_.n_slots, x.shape[2]};
    stages.group_scales =
        python::read_group_scales(array, rows, groups_, "[slots, heads] or [pages, slots of a page, heads]");
    if (!is_paged) {
        groups_.desc.scales_stride_block = detail::multiply(block_size, groups_.desc.scales_stride_token);
    }
}

void Road::read_from_group_scales(nb::handle scales, HeadOrder layout) {
    const bool is_apart = kv.from_groups != nullptr && from_groups_.info.scales_apart != 0;
    require_scales(scales, is_apart, "from_group_scales", "from_groups");
    if (is_apart) {
        const auto &array = from_group_scales_.emplace(scales, name_of("from_group_scales"), input_->device());
        stages.from_group_scales = python::read_group_scales(
            array, rows_of_views(layout), from_groups_, "the shape of " + std::string(name_) + " without its bytes");
        has_stages = true;
    }
}

void Road::read_position_scales(nb::handle scales, HeadOrder layout) {
    if (scales.is_none()) {
        return;
    }
    const auto &array = position_scales_.emplace(scales, name_of("position_scales"), input_->device());
    const int n = array.n_dims(), batch = has_batch_ && n > 1 ? 1 : 0;  // dimensions in front of tokens and heads
    const bool has_heads = n == batch + 2;
    const int tokens = batch + (has_heads && layout.heads_first ? 1 : 0), heads = 2 * batch + 1 - tokens;
    const HeadRows rows{batch - 1, tokens, has_heads ? heads : -1, x.shape[0], x.shape[1], x.shape[2]};
    if (array.dtype() != HALYARD_F32 || !rows.fit(array)) {
        array.refuse_kind("float32 [tokens]" + std::string(has_batch_ ? ", [batch, tokens]" : "") +
                          ", or of the shape of " + name_ + " without head_dim");
    }
    kv.position_scales = 1;
    stages.position_scales = static_cast<const float *>(array.data());
    rows.set_strides(array, stages.stride_position_scales);
    has_stages = true;
}

void Road::read_cache(nb::handle object, nb::handle layout, nb::handle dtype) {
    cache_.emplace(object, name_of("cache"), input_ ? input_->device() : Array::on_cpu);
    cache_->require_writable();
    kv.out_dtype = dtype_of(*cache_, dtype);
    cache_desc_ = make_struct<halyard_cache_desc>();
    kv.cache = &cache_desc_;
    stages.cache = cache_->data();
    has_stages = true;
    if (!PyUnicode_Check(layout.ptr())) {
        read_tiles(layout);
        return;
    }
    const auto name = nb::cast<std::string>(layout);
    const auto &array = *cache_;
    if (name != "nhd" && name != "hnd") {
        refuse(HALYARD_ERROR_UNKNOWN_VALUE,
               "cache_layout is \"" + name.substr(0, 40) + "\", which is none of: nhd, hnd");
    }
    const int n = array.n_dims(), heads = name == "hnd" && n == 4 ? 1 : n - 2, tokens = n == 3 ? 0 : 3 - heads;
    if ((n != 3 && n != 4) || array.size(heads) != x.shape[2] || array.size(n - 1) != stored_width()) {
        array.refuse_shape(std::string("[slots, heads, head_dim] or ") +
                           (name == "hnd" ? "[pages, heads, slots, head_dim]" : "[pages, slots, heads, head_dim]") +
                           " with " + std::to_string(x.shape[2]) + " heads of " + std::to_string(stored_width()) +
                           (kv.groups != nullptr ? ", the bytes of a record" : ""));
    }
    if (array.size(n - 1) > 1 && array.stride(n - 1) == 0) {
        refuse(HALYARD_ERROR_STRIDE, array.name() + " repeats one element, and cannot be written");
    }
    cache_desc_.block_size = array.size(tokens);
    cache_desc_.n_slots = n == 4 ? detail::multiply(array.size(0), array.size(tokens)) : array.size(0);
    cache_desc_.stride_block = n == 4 ? array.stride(0) : 0;
    cache_desc_.stride_head = array.stride(heads);
    cache_desc_.stride_token = stride_within(array, tokens);
    cache_desc_.stride_element = stride_within(array, n - 1);
}

void Road::read_tiles(nb::handle layout) {
    for (const auto &[name, field] : numbers_of_tiles) {
        cache_desc_.*field = number_in(layout, name);
    }
    // Only here the library is told strides that are not an array's, so it is here that they must stay in its memory.
    auto all = cache_desc_;
    const auto set = [](std::int64_t &number, std::int64_t otherwise) { number = number != 0 ? number : otherwise; };
    set(all.block_size, all.n_slots);
    set(all.tile_tokens, all.block_size);
    set(all.tile_elements, stored_width());
    set(all.stride_element, 1);
    for (const auto &[name, field] : numbers_of_tiles) {
        if (all.*field < 0 || all.*field > std::int64_t{1} << 48) {
            refuse(HALYARD_ERROR_STRIDE,
                   "cache_layout holds " + std::to_string(all.*field) + ", but its numbers have to be in 0 … 2^48");
        }
    }
    if (!cache_->is_dense() || all.n_slots == 0 || all.block_size == 0 || all.tile_tokens == 0 ||
        all.tile_elements == 0) {
        refuse(HALYARD_ERROR_SHAPE, "cache_layout takes a dense array and at least one slot, but " + cache_->name() +
                                        " has the shape " + cache_->shape_text() + ", and n_slots is " +
                                        std::to_string(all.n_slots));
    }
    const auto reach = [](std::int64_t steps, std::int64_t stride) {
        return steps > 1 ? static_cast<long double>(steps - 1) * static_cast<long double>(stride) : 0.0L;
    };
    const auto in_tiles = [&](std::int64_t n, std::int64_t tile, std::int64_t stride_tile, std::int64_t stride) {
        return reach((n + tile - 1) / tile, stride_tile) + reach(n < tile ? n : tile, stride);
    };
    const auto last = reach(all.n_slots / all.block_size, all.stride_block) + reach(x.shape[2], all.stride_head) +
                      in_tiles(all.block_size, all.tile_tokens, all.stride_tile_tokens, all.stride_token) +
                      in_tiles(stored_width(), all.tile_elements, all.stride_tile_elements, all.stride_element);
    if (!(last < static_cast<long double>(cache_->n_elements()))) {
        refuse(HALYARD_ERROR_SHAPE, "cache_layout reaches element " + std::to_string(static_cast<std::int64_t>(last)) +
                                        " of " + cache_->name() + ", which has " +
                                        std::to_string(cache_->n_elements()));
    }
}

}  // namespace halyard::python
