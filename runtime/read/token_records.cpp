#include "read/token_records.h"

#include "base/error.h"

#include <bit>

namespace halyard {

namespace {

/// The records that begin at `bytes`, with scales of their own, or with those of a token in a block or batch row that
/// lie `apart` if that is not NULL.
TokenRecords records_at(char *bytes, std::int64_t stride_head, char *apart, const GroupStrides &strides,
                        std::int64_t block, std::int64_t token) {
    if (apart == nullptr) {
        return {bytes, stride_head, bytes, stride_head};
    }
    return {bytes, stride_head, apart + block * strides.stride_batch + token * strides.stride_token,
            strides.stride_head};
}

/// The same where a tensor's records lie as a view.
TokenRecords records_of_view(const Run &run, char *data, const RunTensor::Strides &strides, char *apart,
                             const GroupStrides &apart_strides, std::int64_t at) {
    const std::int64_t batch = at / run.n_tokens, token = at - batch * run.n_tokens;
    return records_at(data + batch * strides.batch + token * strides.token, strides.head, apart, apart_strides, batch,
                      token);
}

}  // namespace

TokenRecords written_records(const Run &run, int index, std::int64_t token) noexcept {
    const auto &cache = run.plan->tensors[index].cache;
    const RunTensor &tensor = run.tensors[index];
    const RunStages &stages = run.stages[index];
    char *const apart = stages.data(group_scales_array);
    if (!cache) {
        return records_of_view(run, tensor.y, tensor.out, apart, stages.group_scales, token);
    }
    const std::int64_t slot = run.slots.of_token(token);
    if (slot < 0) {
        return {nullptr, 0, nullptr, 0};
    }
    const std::int64_t block = slot / cache->block_size;
    return records_at(tensor.y + cache->offset_of(slot), cache->stride_head, apart, stages.group_scales, block,
                      slot - block * cache->block_size);
}

TokenRecords read_records(const Run &run, int index, std::int64_t token) noexcept {
    const RunTensor &tensor = run.tensors[index];
    const RunStages &stages = run.stages[index];
    const bool moves = run.plan->rerotates;
    if (moves && run.plan->tensors[index].cache) {
        return written_records(run, index, token);
    }
    return records_of_view(run, const_cast<char *>(tensor.x), tensor.in,
                           stages.data(moves ? group_scales_array : from_group_scales_array),
                           moves ? stages.group_scales : stages.from_group_scales, token);
}

float load_group_scale(const GroupsDesc &groups, const char *at) noexcept {
    switch (groups.scale) {
    case GroupScale::f32: return read_word<float>(at);
    case GroupScale::f16: return F16::widen(read_word<std::uint16_t>(at));
    case GroupScale::power_up:
    case GroupScale::power_ocp: break;
    }
    const auto byte = static_cast<std::uint32_t>(read_word<std::uint8_t>(at));
    constexpr std::uint32_t tiniest = 0x00400000, nan = 0x7fc00000;  // 2^-127 is no normal number; 255 is E8M0's NaN
    return std::bit_cast<float>(byte == 0 ? tiniest : byte == 255 ? nan : byte << 23);
}

namespace {

/// Whether scales of a record's groups, or its zero point, are finite. No branch is taken for one: moves would wait for
/// it.
bool are_finite(const GroupsDesc &groups, const char *at) {
    const auto all_finite = [&](auto exponent) {
        unsigned found = 0;
        for (std::int64_t g = 0; g < groups.n_groups; g++) {
            found |= (read_word<decltype(exponent)>(at + g * groups.scale_stride) & exponent) == exponent ? 1u : 0u;
        }
        return found == 0;
    };
    switch (groups.scale) {
    case GroupScale::f32: return all_finite(std::uint32_t{0x7f800000});
    case GroupScale::f16: return all_finite(std::uint16_t{0x7c00});
    case GroupScale::power_up:
    case GroupScale::power_ocp: break;
    }
    return all_finite(std::uint8_t{0xff});
}

halyard_status fail_infinite(const Run &run, int index, std::int64_t token, std::int64_t head, const char *scale,
                             const char *zero, halyard_error *error) {
    const TensorDesc &desc = run.plan->tensors[index];
    const GroupsDesc &groups = *desc.groups;
    for (std::int64_t g = 0;; g++) {
        const float s = load_group_scale(groups, scale + g * groups.scale_stride);
        const float z = groups.has_zero() ? read_word<float>(zero) : 0.0f;
        if (g == groups.n_groups - 1 || s - s != 0.0f || z - z != 0.0f) {
            return fail(error, HALYARD_ERROR_SCALE, "the record of ", desc.cache ? "slot " : "token ",
                        desc.cache ? run.slots.of_token(token) : token % run.n_tokens, ", head ", head, ", of tensor ",
                        index, " has ", double(s - s != 0.0f ? s : z), " as the ",
                        s - s != 0.0f ? "scale" : "zero point", " of group ", g,
                        ", but it must be finite: no key was stored there");
        }
    }
}

}  // namespace

halyard_status check_moved_records(const Run &run, int index, halyard_error *error) noexcept {
    const GroupsDesc &groups = *run.plan->tensors[index].groups;
    const std::int64_t n_heads = run.tensors[index].n_heads;
    for (std::int64_t token = 0; n_heads != 0 && token < run.n_batch * run.n_tokens; token++) {
        const TokenRecords records = read_records(run, index, token);
        for (std::int64_t head = 0; records.bytes != nullptr && head < n_heads; head++) {
            const char *const scale = records.scales + head * records.scales_stride_head + groups.scale_offset;
            const char *const zero = records.bytes + head * records.stride_head + groups.zero_offset;
            if (!are_finite(groups, scale) || (groups.has_zero() && !are_finite(groups, zero))) {
                return fail_infinite(run, index, token, head, scale, zero, error);
            }
        }
    }
    return HALYARD_OK;
}

}  // namespace halyard
