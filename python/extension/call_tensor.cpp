#include "call_tensor.h"

#include "enum_names.h"

#include <nanobind/stl/string.h>

namespace halyard::python {
namespace {

/// The fields of a CacheLayout, by name.
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

/// A stride within a block of a cache; 0 for a dimension of size 1, whose stride does not matter.
std::int64_t stride_within(const Array &array, int dim) { return array.size(dim) > 1 ? array.stride(dim) : 0; }

}  // namespace

halyard_tensor Operand::view(const Array &array) const {
    const int n = array.n_dims();
    if (n != 3 && n != 4) {
        array.refuse_shape(heads_first_ ? "[heads, tokens, head_dim] or [batch, heads, tokens, head_dim]"
                                        : "[tokens, heads, head_dim] or [batch, tokens, heads, head_dim]");
    }
    auto result = make_struct<halyard_tensor>();
    result.dtype = array.dtype();
    result.device = array.device() == Array::on_cpu ? HALYARD_CPU : HALYARD_CUDA;
    result.data = array.data();
    const int dims[] = {n - 4, heads_first_ ? n - 2 : n - 3, heads_first_ ? n - 3 : n - 2, n - 1};  // -1: no batch
    for (std::size_t i = 0; i < std::size(dims); ++i) {
        result.shape[i] = dims[i] < 0 ? 1 : array.size(dims[i]);
        result.strides[i] = dims[i] < 0 ? 0 : array.stride(dims[i]);
    }
    return result;
}

void Operand::read_stages(nb::handle tensor) {
    // The order matters: groups determine head_dim, and the cache determines the shape of scales.
    using Stage = std::pair<nb::object, void (Operand::*)(nb::handle)>;
    static const auto &all = *new std::vector<Stage>{{intern("rotary_offset"), &Operand::read_rotary_offset},
                                                     {intern("from_groups"), &Operand::read_from_groups},
                                                     {intern("dtype"), &Operand::read_dtype},
                                                     {intern("groups"), &Operand::read_groups},
                                                     {intern("cache"), &Operand::read_cache},
                                                     {intern("groups"), &Operand::read_group_scales},
                                                     {intern("norm"), &Operand::read_norm},
                                                     {intern("position_scales"), &Operand::read_position_scales},
                                                     {intern("hadamard"), &Operand::read_hadamard},
                                                     {intern("scale"), &Operand::read_scale}};
    for (std::size_t i = 0; i < all.size() && !tensor.is_none(); ++i) {
        const auto value = nb::getattr(tensor, all[i].first);
        if (!value.is_none()) {
            (this->*all[i].second)(value);
        }
    }
}

void Operand::begin(nb::handle completed, bool heads_first) {
    name_ = nb::cast<std::string>(at(completed, 0));
    heads_first_ = heads_first;
    desc = make_struct<halyard_tensor_desc>();
    kv = make_struct<halyard_kv_desc>();
    desc.kv = &kv;
    kv.no_rotation = nb::cast<bool>(at(completed, 3)) ? 0 : 1;
    stages = make_struct<halyard_stages>();
}

void Operand::read_array(nb::handle array, std::int32_t device) {
    input_.emplace(array, name_, device);
    device_ = input_->device();
    x = view(*input_);
    has_batch_ = input_->n_dims() == 4;
    desc.head_dim = x.shape[3];
}

void Operand::read(nb::handle completed, bool heads_first, std::int32_t device) {
    begin(completed, heads_first);
    read_array(at(completed, 1), device);
    desc.dtype = input_->dtype();
    read_stages(at(completed, 4));
    if (kv.from_groups == nullptr && desc.dtype != HALYARD_F32 && desc.dtype != HALYARD_F16 &&
        desc.dtype != HALYARD_BF16) {
        refuse(HALYARD_ERROR_UNSUPPORTED, name_, " holds ", input_->dtype_name(),
               ", but has to hold float32, float16 or bfloat16");
    }
    if (kv.cache != nullptr) {
        y = x;
        result_ = at(completed, 4).attr("cache").attr("array");
    } else {
        const auto out = at(completed, 2);
        result_ = out.is_none() ? make_output() : nb::borrow(out);
        read_output(result_);
    }
}

nb::object Operand::result() const { return made_scales_.is_valid() ? nb::make_tuple(result_, made_scales_) : result_; }

/// A new array like the input, with another dtype (NULL: the same) and with `tail` in place of its last dimension
/// (None: the same).
nb::object Operand::make_like_input(const char *dtype, nb::object tail) const {
    static auto *const new_like = new nb::object(nb::module_::import_("halyard._arrays").attr("new_like"));
    return (*new_like)(name_, input_->owner(), dtype != nullptr ? nb::object(nb::str(dtype)) : nb::none(), tail);
}

nb::object Operand::make_output() const {
    const char *const otherwise = kv.groups != nullptr ? "uint8" : kv.from_groups != nullptr ? "f32" : nullptr;
    const bool is_as_wide = kv.groups == nullptr && kv.from_groups == nullptr;
    return make_like_input(asked_dtype_ && kv.groups == nullptr ? asked_dtype_->c_str() : otherwise,
                           is_as_wide ? nb::none() : nb::object(nb::make_tuple(stored_width())));
}

void Operand::read_keys(nb::handle completed, const halyard_slots *slots, bool heads_first) {
    begin(completed, heads_first);
    const auto tensor = at(completed, 4);
    if (slots == nullptr) {
        read_array(at(completed, 1), Array::on_cpu);
        records_ = &*input_;
        read_stages(tensor);
        desc.dtype = x.dtype = dtype_of(*input_);
        read_output(at(completed, 2));
        return;
    }
    if (!nb::getattr(tensor, "out").is_none()) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "keys in slots move where they lie, so that out has to be None");
    }
    const nb::object layout = tensor.attr("cache").attr("layout");
    const Array cache(at(completed, 1), name_);
    const int n = cache.n_dims();
    x = make_struct<halyard_tensor>();
    if (PyUnicode_Check(layout.ptr())) {
        if (n != 3 && n != 4) {
            cache.refuse_shape("a cache");
        }
        x.shape[2] = cache.size(n == 4 && nb::cast<std::string>(layout) == "hnd" ? 1 : n - 2);
        desc.head_dim = cache.size(n - 1);
        records_ = &cache;
    } else {
        x.shape[2] = cast<std::int64_t>(layout.attr("n_heads"), "n_heads");
        desc.head_dim = cast<std::int64_t>(layout.attr("head_dim"), "head_dim");
        if (x.shape[2] < 1 || desc.head_dim < 1) {
            refuse(HALYARD_ERROR_MISMATCH, "cache_layout has to say n_heads and head_dim of keys that move");
        }
    }
    x.shape[0] = slots->shape[0];
    x.shape[1] = slots->shape[1];
    read_stages(tensor);
    records_ = nullptr;
    x.shape[3] = stored_width();
    desc.dtype = x.dtype = kv.out_dtype;
    y = x;
}

void Operand::read_rotary_offset(nb::handle offset) {
    desc.rotary_offset = cast<std::int64_t>(offset, name_of("rotary_offset"));
}

void Operand::read_dtype(nb::handle dtype) { asked_dtype_ = cast<std::string>(dtype, name_of("dtype")); }

std::int32_t Operand::dtype_of(const Array &array) const {
    if (kv.groups != nullptr) {
        if (asked_dtype_) {
            refuse(HALYARD_ERROR_MISMATCH, name_of("dtype"), " is ", *asked_dtype_, ", but ", name_of("groups"),
                   " make records of bytes");
        }
        if (!array.holds<std::uint8_t>()) {
            refuse(HALYARD_ERROR_MISMATCH, array.name(), " holds ", array.dtype_name(),
                   ", but records are bytes, uint8");
        }
        return HALYARD_UINT8;
    }
    const auto stored = array.dtype();
    const auto wanted = asked_dtype_ ? value_of(dtypes, "dtype", *asked_dtype_) : stored;
    if (wanted == 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, array.name(), " holds ", array.dtype_name(),
               ", which Halyard does not write; uint8 is written as what dtype says, e4m3 or e5m2");
    }
    const bool as_bytes = array.holds<std::uint8_t>() && (wanted == HALYARD_E4M3 || wanted == HALYARD_E5M2);
    if (stored != wanted && !as_bytes) {
        refuse(HALYARD_ERROR_MISMATCH, name_of("dtype"), " is ", *asked_dtype_, ", but ", array.name(), " holds ",
               array.dtype_name());
    }
    return wanted;
}

void Operand::read_output(nb::handle object) {
    output_.emplace(object, name_of("out"), device_);
    output_->require_writable();
    if (output_->n_dims() != input_->n_dims()) {
        refuse(HALYARD_ERROR_SHAPE, output_->name(), " has the shape ", output_->shape_text(), ", and ", name_, " has ",
               input_->shape_text());
    }
    y = view(*output_);
    y.dtype = kv.out_dtype = dtype_of(*output_);
}

void Operand::read_norm(nb::handle norm) {
    const auto word = [&](const char *name, Names names) {
        return value_of(names, std::string(name) + " of a norm", cast<std::string>(norm.attr(name), name));
    };
    norm_ = make_struct<halyard_norm_desc>();
    norm_.kind = word("kind", norm_kinds);
    norm_.width = word("width", norm_widths);
    norm_.order = word("order", norm_orders);
    norm_.rounding = word("rounding", norm_roundings);
    norm_.unit_offset = cast<bool>(norm.attr("unit_offset"), "unit_offset") ? 1 : 0;
    norm_.eps = float_in(norm.attr("eps"), "eps");
    norm_.no_eps = norm_.eps == 0.0 ? 1 : 0;
    norm_.window_offset = cast<std::int64_t>(norm.attr("window_offset"), "window_offset");
    norm_.window_size = cast<std::int64_t>(norm.attr("window_size"), "window_size");
    kv.norm = &norm_;
    const nb::object weight = norm.attr("weight"), bias = norm.attr("bias");
    if (weight.is_none()) {
        if (!bias.is_none()) {
            refuse(HALYARD_ERROR_MISMATCH, name_of("bias"), " is given, but there is no weight");
        }
        return;
    }
    weight_.emplace(weight, name_of("weight"), device_);
    if (!weight_->is_dense() || weight_->n_dims() == 0) {
        weight_->refuse_shape("a dense row");
    }
    norm_.weight_dtype = weight_->dtype();
    if (norm_.weight_dtype == 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, weight_->name(), " holds ", weight_->dtype_name(),
               ", but has to hold float32, float16 or bfloat16");
    }
    const bool is_by_head = weight_->n_dims() == 2 && weight_->size(0) == x.shape[2];
    norm_.weight_per_head = is_by_head && norm_.width == HALYARD_NORM_HEAD ? 1 : 0;
    stages.weight = weight_->data();
    stages.n_weights = weight_->n_elements();
    if (bias.is_none()) {
        return;
    }
    bias_.emplace(bias, name_of("bias"), device_);
    if (!bias_->is_dense() || bias_->kind_text() != weight_->kind_text()) {
        refuse(HALYARD_ERROR_SHAPE, bias_->name(), " is ", bias_->kind_text(),
               ", but has to be dense, and as the weight is: ", weight_->kind_text());
    }
    norm_.has_bias = 1;
    stages.bias = bias_->data();
}

void Operand::read_scale(nb::handle scale) {
    scale_ = make_struct<halyard_scale_desc>();
    kv.scale = &scale_;
    if (PyFloat_Check(scale.ptr()) || PyLong_Check(scale.ptr())) {
        scale_value_ = static_cast<float>(float_in(scale, name_of("scale")));
        stages.scales = &scale_value_;
        stages.n_scales = 1;
        return;
    }
    if (nb::hasattr(scale, "scales_out")) {
        scale_.kind = HALYARD_SCALE_DYNAMIC;
        const auto &array = scales_.emplace(scale.attr("scales_out"), name_of("scales_out"));
        array.require_writable();
        const auto rows = cache_ ? HeadRows{-1, 0, 1, 1, cache_desc_.n_slots, x.shape[2]} : rows_of_views();
        if (!array.holds<float>() || !rows.fit(array)) {
            array.refuse_kind("float32 of " +
                              (cache_ ? "[slots, heads]" : "the shape of " + name_ + " without head_dim"));
        }
        rows.set_strides(array, stages.stride_scales);
        stages.scales_out = static_cast<float *>(array.data());
        return;
    }
    const auto &array = scales_.emplace(scale, name_of("scale"));
    const bool is_one = array.n_elements() == 1, per_head = array.n_dims() == 1 && array.size(0) == x.shape[2];
    if (!array.holds<float>() || !array.is_dense() || (!is_one && !per_head)) {
        array.refuse_kind("dense float32: one, or [heads]");
    }
    scale_.per = is_one ? HALYARD_SCALE_PER_TENSOR : HALYARD_SCALE_PER_HEAD;
    stages.scales = static_cast<const float *>(array.data());
    stages.n_scales = array.n_elements();
}

void Operand::read_hadamard(nb::handle n) {
    const auto value = cast<std::int64_t>(n, name_of("hadamard"));
    if (value != 0 && (value < 2 || (value & (value - 1)) != 0 || desc.head_dim % value != 0)) {
        refuse(HALYARD_ERROR_SHAPE, name_of("hadamard"), " is ", value,
               ", but has to be 0 or a power of two that divides head_dim, ", desc.head_dim);
    }
    kv.hadamard = static_cast<std::int32_t>(value);
}

void Operand::read_groups(nb::handle groups) {
    groups_ = Groups(groups, name_of("groups"), desc.head_dim, records_);
    desc.head_dim = groups_.head_dim;
    kv.groups = &groups_.desc;
}

void Operand::read_from_groups(nb::handle groups) {
    from_groups_ = Groups(groups, name_of("from_groups"), 0, &*input_);
    desc.head_dim = from_groups_.head_dim;
    kv.from_groups = &from_groups_.desc;
    desc.dtype = x.dtype = HALYARD_UINT8;
    if (from_groups_.needs_scales()) {
        const auto &array = from_group_scales_.emplace(from_groups_.scales, "scales of " + from_groups_.name, device_);
        stages.from_group_scales =
            from_groups_.read_scales(array, rows_of_views(), "the shape of " + name_ + " without its bytes");
    }
}

HeadRows Operand::rows_of_views() const {
    const int tokens = (has_batch_ ? 1 : 0) + (heads_first_ ? 1 : 0), heads = (has_batch_ ? 3 : 1) - tokens;
    return {has_batch_ ? 0 : -1, tokens, heads, x.shape[0], x.shape[1], x.shape[2]};
}

void Operand::read_group_scales(nb::handle) {
    if (groups_.scales.is_none() && !cache_ && groups_.info.scales_apart != 0 && records_ == nullptr) {
        const auto n_groups = groups_.info.n_groups;
        const nb::object tail = n_groups > 1 ? nb::make_tuple(n_groups) : nb::make_tuple();
        groups_.scales = made_scales_ = make_like_input(groups_.has_powers() ? "uint8" : "f32", tail);
    }
    if (!groups_.needs_scales()) {
        return;
    }
    const auto &array = group_scales_.emplace(groups_.scales, "scales of " + groups_.name, device_);
    array.require_writable();
    if (!cache_) {
        stages.group_scales =
            groups_.read_scales(array, rows_of_views(), "the shape of " + name_ + " without head_dim");
        return;
    }
    const auto block_size = cache_desc_.block_size != 0 ? cache_desc_.block_size : cache_desc_.n_slots;
    const bool is_paged = array.n_dims() == (groups_.info.n_groups > 1 ? 4 : 3);
    const auto n_pages = is_paged && block_size != 0 ? cache_desc_.n_slots / block_size : 1;
    const HeadRows rows = is_paged ? HeadRows{0, 1, 2, n_pages, block_size, x.shape[2]}
                                   : HeadRows{-1, 0, 1, 1, cache_desc_.n_slots, x.shape[2]};
    stages.group_scales = groups_.read_scales(array, rows, "[slots, heads] or [pages, slots of a page, heads]");
    if (!is_paged) {
        groups_.desc.scales_stride_block = detail::multiply(block_size, groups_.desc.scales_stride_token);
    }
}

void Operand::read_position_scales(nb::handle scales) {
    const auto &array = position_scales_.emplace(scales, name_of("position_scales"), device_);
    const int n = array.n_dims(), batch = has_batch_ && n > 1 ? 1 : 0;  // batch: 1 if the first dimension is the batch
    const bool has_heads = n == batch + 2;
    const int tokens = batch + (has_heads && heads_first_ ? 1 : 0), heads = 2 * batch + 1 - tokens;
    const HeadRows rows{batch - 1, tokens, has_heads ? heads : -1, x.shape[0], x.shape[1], x.shape[2]};
    if (!array.holds<float>() || !rows.fit(array)) {
        array.refuse_kind(text("float32 [tokens]", has_batch_ ? ", [batch, tokens]" : "", ", or of the shape of ",
                               name_, " without head_dim"));
    }
    kv.position_scales = 1;
    stages.position_scales = static_cast<const float *>(array.data());
    rows.set_strides(array, stages.stride_position_scales);
}

void Operand::read_cache(nb::handle cache) {
    const nb::object layout = cache.attr("layout");
    cache_.emplace(cache.attr("array"), name_of("cache"), device_);
    cache_->require_writable();
    kv.out_dtype = dtype_of(*cache_);
    cache_desc_ = make_struct<halyard_cache_desc>();
    kv.cache = &cache_desc_;
    stages.cache = cache_->data();
    if (!PyUnicode_Check(layout.ptr())) {
        read_tiles(layout);
        return;
    }
    const bool heads_first = value_of(cache_layouts, "cache_layout", nb::cast<std::string>(layout)) != 0;
    const auto &array = *cache_;
    const int n = array.n_dims(), heads = heads_first && n == 4 ? 1 : n - 2, tokens = n == 3 ? 0 : 3 - heads;
    if ((n != 3 && n != 4) || array.size(heads) != x.shape[2] || array.size(n - 1) != stored_width()) {
        array.refuse_shape(text("[slots, heads, head_dim] or ",
                                heads_first ? "[pages, heads, slots, head_dim]" : "[pages, slots, heads, head_dim]",
                                " with ", x.shape[2], " heads of ", stored_width(),
                                kv.groups != nullptr ? ", the bytes of a record" : ""));
    }
    if (array.size(n - 1) > 1 && array.stride(n - 1) == 0) {
        refuse(HALYARD_ERROR_STRIDE, array.name(), " repeats one element, and cannot be written");
    }
    cache_desc_.block_size = array.size(tokens);
    cache_desc_.n_slots = n == 4 ? detail::multiply(array.size(0), array.size(tokens)) : array.size(0);
    cache_desc_.stride_block = n == 4 ? array.stride(0) : 0;
    cache_desc_.stride_head = array.stride(heads);
    cache_desc_.stride_token = stride_within(array, tokens);
    cache_desc_.stride_element = stride_within(array, n - 1);
}

void Operand::read_tiles(nb::handle layout) {
    for (const auto &[name, field] : numbers_of_tiles) {
        cache_desc_.*field = cast<std::int64_t>(layout.attr(name), name);
    }
    // These strides are the caller's, not an array's. The library cannot check them against the array's memory, so this
    // function does, after it has set the fields that are 0 to their defaults.
    auto all = cache_desc_;
    const auto set = [](std::int64_t &number, std::int64_t otherwise) { number = number != 0 ? number : otherwise; };
    set(all.block_size, all.n_slots);
    set(all.tile_tokens, all.block_size);
    set(all.tile_elements, stored_width());
    set(all.stride_element, 1);
    for (const auto &[name, field] : numbers_of_tiles) {
        if (all.*field < 0 || all.*field > std::int64_t{1} << 48) {
            refuse(HALYARD_ERROR_STRIDE, "cache_layout holds ", all.*field, ", but its numbers have to be in 0 … 2^48");
        }
    }
    if (!cache_->is_dense() || all.n_slots == 0 || all.block_size == 0 || all.tile_tokens == 0 ||
        all.tile_elements == 0) {
        refuse(HALYARD_ERROR_SHAPE, "cache_layout takes a dense array and at least one slot, but ", cache_->name(),
               " has the shape ", cache_->shape_text(), ", and n_slots is ", all.n_slots);
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
        refuse(HALYARD_ERROR_SHAPE, "cache_layout reaches element ", static_cast<std::int64_t>(last), " of ",
               cache_->name(), ", which has ", cache_->n_elements());
    }
}

}  // namespace halyard::python
