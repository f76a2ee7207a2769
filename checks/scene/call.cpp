#include "checks/scene/call.h"

#include <array>
#include <cstring>

namespace scenes {

namespace {

/// Wide enough for what is refused, too; strides where there is one step or none do not count.
std::int64_t times(std::int64_t index, std::int64_t stride) {
    return static_cast<std::int64_t>(static_cast<std::uint64_t>(index) * static_cast<std::uint64_t>(stride));
}

std::int64_t or_else(std::int64_t value, std::int64_t other) { return value != 0 ? value : other; }

bool is_of_cache(const Call &call, int i, bool is_input) {
    return call.kv[i].cache != nullptr && (!is_input || call.plan.rerotates != 0);
}

std::int64_t bytes_of_number(std::int32_t type) { return type == HALYARD_INT64 ? 8 : 4; }

}  // namespace

Extent extent_of(const halyard_tensor &tensor) {
    Extent extent(bytes_of(tensor.dtype));
    for (int d = 0; d < 4; d++) {
        extent.add(tensor.shape[d], tensor.strides[d]);
    }
    return extent;
}

Extent extent_of(const halyard_slots &slots) {
    return Extent(bytes_of_number(slots.type))
        .add(slots.shape[0], slots.strides[0])
        .add(slots.shape[1], slots.strides[1]);
}

Extent extent_of(const halyard_positions &positions) {
    return Extent(bytes_of_number(positions.type))
        .add(positions.shape[0], positions.strides[0])
        .add(positions.shape[1], positions.strides[1])
        .add(std::max<std::int64_t>(positions.n_axes, 1), positions.stride_axis);
}

Extent extent_of_cache(const Call &call, int i) {
    const halyard_cache_desc &cache = *call.kv[i].cache;
    const std::int64_t head_dim = call.width_of(i, false);
    const std::int64_t bs = std::max<std::int64_t>(or_else(cache.block_size, cache.n_slots), 1);
    const std::int64_t tile_t = std::max<std::int64_t>(or_else(cache.tile_tokens, bs), 1);
    const std::int64_t tile_d = std::max<std::int64_t>(or_else(cache.tile_elements, head_dim), 1);
    return Extent(bytes_of(call.out_dtype(i)))
        .add(cache.n_slots / bs, cache.stride_block)
        .add(call.x[i].shape[2], cache.stride_head)
        .add((bs - 1) / tile_t + 1, cache.stride_tile_tokens)
        .add(std::min(tile_t, bs), cache.stride_token)
        .add((std::max<std::int64_t>(head_dim, 1) - 1) / tile_d + 1, cache.stride_tile_elements)
        .add(std::min(tile_d, head_dim), or_else(cache.stride_element, 1));
}

Extent extent_of_scales_out(const Call &call, int i) {
    const halyard_cache_desc *const cache = call.kv[i].cache;
    const std::int64_t *strides = call.stages[i].stride_scales, *shape = call.x[i].shape;
    return Extent(4)
        .add(cache != nullptr ? 1 : shape[0], strides[0])
        .add(cache != nullptr ? cache->n_slots : shape[1], strides[1])
        .add(shape[2], strides[2]);
}

Extent extent_of_position_scales(const Call &call, int i) {
    const std::int64_t *strides = call.stages[i].stride_position_scales, *shape = call.x[i].shape;
    return Extent(4).add(shape[0], strides[0]).add(shape[1], strides[1]).add(shape[2], strides[2]);
}

namespace {

/// Strides of scales that lie apart, in bytes: block or batch row, token or slot, head.
std::array<std::int64_t, 3> strides_of_group_scales(const Call &call, int i, bool is_input,
                                                    const oracle::Record &record) {
    const std::int64_t(&given)[3] = record.scale_strides;
    if (given[0] != 0 || given[1] != 0 || given[2] != 0) {
        return {given[0], given[1], given[2]};
    }
    const halyard_cache_desc *const cache = is_of_cache(call, i, is_input) ? call.kv[i].cache : nullptr;
    const std::int64_t n = cache != nullptr ? or_else(cache->block_size, cache->n_slots) : call.n_tokens();
    const std::int64_t head = record.dense_scales(), token = times(call.x[i].shape[2], head);
    return {times(n, token), token, head};
}

}  // namespace

Extent extent_of_group_scales(const Call &call, int i, bool is_input) {
    const oracle::Record record = call.record_of(i, is_input);
    const auto strides = strides_of_group_scales(call, i, is_input, record);
    const halyard_cache_desc *const cache = is_of_cache(call, i, is_input) ? call.kv[i].cache : nullptr;
    const std::int64_t bs =
        cache != nullptr ? std::max<std::int64_t>(or_else(cache->block_size, cache->n_slots), 1) : 0;
    Extent extent(1);
    extent.add(cache != nullptr ? cache->n_slots / bs : call.n_batch(), strides[0])
        .add(cache != nullptr ? bs : call.n_tokens(), strides[1])
        .add(call.x[i].shape[2], strides[2]);
    extent.high += (record.n_groups() - 1) * record.scale_stride + record.scale_bytes() - 1;
    return extent;
}

char *place_of_group_scales(const Call &call, int i, const Head &at, bool is_input) {
    const oracle::Record record = call.record_of(i, is_input);
    const auto strides = strides_of_group_scales(call, i, is_input, record);
    const halyard_stages &stages = call.stages[i];
    const bool is_from = is_input && call.plan.rerotates == 0;
    std::int64_t row = at.batch, token = at.token;
    if (is_of_cache(call, i, is_input)) {
        const halyard_cache_desc &cache = *call.kv[i].cache;
        const std::int64_t slot = slot_of(call, at.batch, at.token), bs = or_else(cache.block_size, cache.n_slots);
        row = slot / bs;
        token = slot % bs;
    }
    return static_cast<char *>(is_from ? const_cast<void *>(stages.from_group_scales) : stages.group_scales) +
           times(row, strides[0]) + times(token, strides[1]) + times(at.head, strides[2]);
}

void write_number(std::int32_t type, char *at, std::int64_t value) {
    const auto narrow = static_cast<std::int32_t>(value);
    type == HALYARD_INT64 ? std::memcpy(at, &value, 8) : std::memcpy(at, &narrow, 4);
}

std::int64_t read_number(std::int32_t type, const char *at) {
    std::int64_t value = 0;
    std::int32_t narrow = 0;
    type == HALYARD_INT64 ? std::memcpy(&value, at, 8) : std::memcpy(&narrow, at, 4);
    return type == HALYARD_INT64 ? value : narrow;
}

char *place_of_number(const halyard_positions &p, std::int64_t axis, std::int64_t b, std::int64_t t) {
    const std::int64_t at = times(p.n_axes > 1 ? axis : 0, p.stride_axis) +
                            times(p.shape[0] > 1 ? b : 0, p.strides[0]) +
                            times(p.consecutive != 0 ? 0 : t, p.strides[1]);
    return static_cast<char *>(const_cast<void *>(p.data)) + at * bytes_of_number(p.type);
}

char *place_of_number(const halyard_slots &slots, std::int64_t b, std::int64_t t) {
    const std::int64_t at = times(b, slots.strides[0]) + times(slots.consecutive != 0 ? 0 : t, slots.strides[1]);
    return static_cast<char *>(const_cast<void *>(slots.data)) + at * bytes_of_number(slots.type);
}

std::int64_t position_of(const halyard_positions *positions, std::int64_t axis, std::int64_t b, std::int64_t t) {
    if (positions == nullptr) {
        return t;
    }
    const std::int64_t number = read_number(positions->type, place_of_number(*positions, axis, b, t));
    const std::int64_t later = positions->consecutive != 0 ? t : 0;
    return number > INT64_MAX - later ? INT64_MAX : number + later;  // a bad start may be the last there is
}

std::int64_t slot_of(const Call &call, std::int64_t b, std::int64_t t) {
    const std::int64_t slot = read_number(call.slots.type, place_of_number(call.slots, b, t));
    const auto later = static_cast<std::uint64_t>(slot) + static_cast<std::uint64_t>(t);  // a fuzzer's may be the last
    return call.slots.consecutive == 0 || slot == -1 ? slot : static_cast<std::int64_t>(later);
}

char *place_in(const halyard_tensor &tensor, const Head &at, std::int64_t d) {
    const std::int64_t *strides = tensor.strides;
    const std::int64_t offset =
        times(at.batch, strides[0]) + times(at.token, strides[1]) + times(at.head, strides[2]) + times(d, strides[3]);
    return static_cast<char *>(tensor.data) + offset * bytes_of(tensor.dtype);
}

char *place_of_output(const Call &call, int i, const Head &at, std::int64_t d) {
    if (call.kv[i].cache == nullptr) {
        return place_in(call.y[i], at, d);
    }
    const halyard_cache_desc &cache = *call.kv[i].cache;
    const std::int64_t slot = slot_of(call, at.batch, at.token), bs = or_else(cache.block_size, cache.n_slots);
    const std::int64_t tile_t = or_else(cache.tile_tokens, bs);
    const std::int64_t tile_d = or_else(cache.tile_elements, call.width_of(i, false)), t = slot % bs;
    const std::int64_t offset = times(slot / bs, cache.stride_block) + times(at.head, cache.stride_head) +
                                times(t / tile_t, cache.stride_tile_tokens) + times(t % tile_t, cache.stride_token) +
                                times(d / tile_d, cache.stride_tile_elements) +
                                times(d % tile_d, or_else(cache.stride_element, 1));
    return slot < 0 ? nullptr : static_cast<char *>(call.stages[i].cache) + offset * bytes_of(call.out_dtype(i));
}

char *place_of_scale(const Call &call, int i, const Head &at) {
    const halyard_stages &stages = call.stages[i];
    const bool has_cache = call.kv[i].cache != nullptr;
    const std::int64_t row = has_cache
                                 ? times(slot_of(call, at.batch, at.token), stages.stride_scales[1])
                                 : times(at.batch, stages.stride_scales[0]) + times(at.token, stages.stride_scales[1]);
    return reinterpret_cast<char *>(stages.scales_out) + 4 * (row + times(at.head, stages.stride_scales[2]));
}

char *place_of_position_scale(const Call &call, int i, const Head &at) {
    const std::int64_t(&strides)[3] = call.stages[i].stride_position_scales;
    const std::int64_t element = times(at.batch, strides[0]) + times(at.token, strides[1]) + times(at.head, strides[2]);
    return reinterpret_cast<char *>(const_cast<float *>(call.stages[i].position_scales)) + 4 * element;
}

std::optional<float> scale_of(const Call &call, int i, const Head &at) {
    if (call.kv[i].scale == nullptr || call.is_dynamic(i)) {
        return std::nullopt;
    }
    return call.stages[i].scales[call.scales[i].per == HALYARD_SCALE_PER_HEAD ? at.head : 0];
}

}  // namespace scenes
