#include "kv/groups.h"

#include "base/error.h"
#include "base/versioned.h"
#include "kv/block.h"
#include "kv/scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <type_traits>

namespace halyard {

namespace {

/// The format of a preset, HALYARD_GROUPS_….
GroupsDesc preset_of(std::int32_t preset) {
    using enum GroupScale;
    using enum GroupRule;
    using enum Packing;
    using enum Rounding;
    using enum Reciprocal;
    constexpr Dtype int8 = Dtype::int8, uint8 = Dtype::uint8, e4m3 = Dtype::e4m3;
    constexpr bool in_record = false, apart = true;
    constexpr float mla_floor = 1e-4f / 448.0f;  // the scale of a group whose largest magnitude is 1e-4
    // Fields have the order of GroupsDesc: element, scale, group, floor, data_offset, data_stride, scale_offset,
    // scale_stride, … Trailing fields with their defaults are left out.
    static constexpr GroupsDesc presets[] = {
        {int8, f16, 32, 0, 2, 34, 0, 34, in_record, even, of_largest},                           // GGML_Q8_0
        {int8, f16, 32, 0, 2, 34, 0, 34},                                                        // …_NEON
        {int8, f16, 32, 0, 2, 34, 0, 34, in_record, away},                                       // …_REFERENCE
        {uint8, f16, 32, 0, 2, 18, 0, 18, in_record, offset, of_scale, signed_largest, halves},  // GGML_Q4_0
        {int8, f32, 0, 1e-6f, 0, 0, 0, 4, apart, away},                                          // VLLM_INT8
        {e4m3, f32, 0, 1e-6f, 0, 0, 0, 4, apart},                                                // VLLM_FP8
        {uint8, f32, 0, 1e-4f, 8, 0, 0, 0, in_record, even, of_scale, range, none, 4},           // OPENVINO_U8
        {uint8, f32, 0, 1e-4f, 8, 0, 0, 0, in_record, even, of_scale, range, high_first, 4},     // OPENVINO_U4
        {e4m3, f32, 128, mla_floor, 0, 128, 512, 4, in_record, even, of_scale, largest, none, 0, 64, 528,
         576},                                                                                                // MLA_V32
        {e4m3, power_up, 64, mla_floor, 0, 64, 0, 1, apart, even, of_scale, largest, none, 0, 64, 448, 512},  // MLA_V4
        {e4m3, power_up, 32, mla_floor, 0, 32, 0, 1, apart, even, of_scale, largest, none, 0, 0, 0, 512},     // MLA_V41
        {e4m3, power_ocp, 32, 0, 1, 33, 0, 33},                                                               // MX
    };
    return presets[preset - 1];
}

/// Copies words of `size` bytes, or, if it is 0, of any size.
template <std::size_t size>
void copy_words(const RecordField &field, const char *from, std::int64_t from_stride, char *to,
                std::int64_t to_stride) {
    for (std::int64_t i = 0; i < field.n; i++) {
        std::memcpy(to + i * to_stride, from + i * from_stride,
                    size != 0 ? size : static_cast<std::size_t>(field.bytes));
    }
}

RecordField field_of(RecordPart part, std::int64_t n, std::int64_t bytes, std::int64_t offset, std::int64_t stride) {
    return {part,
            n,
            bytes,
            offset,
            stride,
            bytes == 1    ? copy_words<1>
            : bytes == 2  ? copy_words<2>
            : bytes == 4  ? copy_words<4>
            : bytes == 16 ? copy_words<16>
            : bytes == 32 ? copy_words<32>
            : bytes == 64 ? copy_words<64>
                          : copy_words<0>};
}

}  // namespace

halyard_status read_preset(std::int32_t preset, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept {
    const bool exists = preset >= HALYARD_GROUPS_GGML_Q8_0 && preset <= HALYARD_GROUPS_MX;
    GroupsDesc &groups = *out = preset_of(exists ? preset : HALYARD_GROUPS_GGML_Q8_0);
    const std::int64_t divisor = groups.group != 0 ? groups.group : groups.is_4_bit() ? 2 : 1;
    HALYARD_TRY(check_fields(name,
                             {{!exists, HALYARD_ERROR_UNKNOWN_VALUE, "preset", preset,
                               preset == 0 ? ", not set, but must be " : ", but must be ", HALYARD_GROUPS_GGML_Q8_0,
                               " to ", HALYARD_GROUPS_MX},
                              {groups.head_dim != 0 && groups.head_dim != head_dim, HALYARD_ERROR_SHAPE, "preset",
                               preset, ", whose heads have ", groups.head_dim, " elements, but head_dim is ", head_dim},
                              {groups.head_dim == 0 && head_dim % divisor != 0, HALYARD_ERROR_SHAPE, "preset", preset,
                               ", whose heads have a multiple of ", divisor, " elements, but head_dim is ", head_dim}},
                             error));
    groups.head_dim = head_dim;
    groups.n_grouped = head_dim - groups.n_raw;
    groups.group = groups.group != 0 ? groups.group : groups.n_grouped;
    groups.n_groups = groups.n_grouped / groups.group;
    groups.record_bytes = groups.n_raw != 0
                              ? groups.raw_offset + groups.n_raw * element_bytes(Dtype::bf16)
                              : groups.data_offset + (groups.n_groups - 1) * groups.data_stride + groups.data_bytes();
    groups.greatest = groups.rule == GroupRule::signed_largest ? -8.0f
                      : groups.rule == GroupRule::largest      ? greatest_of(groups.element)
                      : groups.is_4_bit()                      ? 15.0f
                                                               : 255.0f;
    groups.unpacked = groups.is_4_bit() ? block_floats : 0;
    const std::int64_t raw_bytes = groups.n_raw * element_bytes(Dtype::bf16);
    for (const RecordField &field :
         {field_of(RecordPart::elements, groups.n_groups, groups.data_bytes(), groups.data_offset, groups.data_stride),
          field_of(RecordPart::scales, groups.n_groups, groups.scale_bytes(), groups.scale_offset, groups.scale_stride),
          field_of(RecordPart::zero_point, groups.has_zero() ? 1 : 0, sizeof(float), groups.zero_offset, 0),
          field_of(RecordPart::raw, groups.n_raw != 0 ? 1 : 0, raw_bytes, groups.raw_offset, 0)}) {
        if (field.n != 0) {
            groups.fields[groups.n_fields++] = field;
        }
    }
    return HALYARD_OK;
}

halyard_status read_groups(const halyard_groups_desc *groups, const char *name, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept {
    halyard_groups_desc given = {};
    HALYARD_TRY(read_struct(groups, name, &given, error));
    HALYARD_TRY(read_preset(given.preset, name, head_dim, out, error));
    out->strides[0] = given.scales_stride_block;
    out->strides[1] = given.scales_stride_token;
    out->strides[2] = given.scales_stride_head;
    return check_fields(name,
                        {{!out->scales_apart && !out->are_dense(), "scales_stride_…", "set", ", but preset is ",
                          given.preset, ", whose scales lie in the record"}},
                        error);
}

namespace {

// ---- Scales --------------------------------------------------------------------------------------------------------

constexpr std::int64_t numbers_of_groups = 6;
static_assert(block_heads >= numbers_of_groups * block_groups && sizeof(Workspace::spare) >= 4 * block_floats);

/// Arrays with a number for each group of a block. s, r and z are those of halyard_kv.h.
struct GroupNumbers {
    float *least, *most;  // minimum and maximum of elements; for GroupRule::largest, most is the largest magnitude
    float *s, *r, *z;
    char *words;  // scales as they are stored

    explicit GroupNumbers(const Block &block)
        : least(block.work->numbers), most(least + block_groups), s(most + block_groups), r(s + block_groups),
          z(r + block_groups), words(reinterpret_cast<char *>(z + block_groups)) {}
};

/// Reads the scale of a group.
template <GroupScale scale>
float load_scale(const char *at) {
    if constexpr (scale == GroupScale::f32 || scale == GroupScale::f16) {
        return scale == GroupScale::f32 ? read_word<float>(at) : F16::widen(read_word<std::uint16_t>(at));
    }
    const auto byte = static_cast<std::uint32_t>(read_word<std::uint8_t>(at));
    constexpr std::uint32_t tiniest = 0x00400000, nan = 0x7fc00000;  // 2^-127 is no normal number; 255 is E8M0's NaN
    return std::bit_cast<float>(byte == 0 ? tiniest : byte == 255 ? nan : byte << 23);
}

/// Finds s of each group, not yet rounded to its stored type. The compiler vectorises the loops, except the last one.
template <GroupRule rule>
void find_scales(const StageKernels &kernels, const GroupsDesc &groups, const Extents &extents,
                 const Elements<float> &heads, const GroupNumbers &numbers) {
    const std::int64_t n = extents.n_heads * extents.n_tokens;
    const float greatest = groups.greatest,
                floor = groups.floor, *const least = numbers.least, *const most = numbers.most;
    float *const s = numbers.s;
    if constexpr (rule == GroupRule::largest) {
        find_largest(kernels, extents, heads, numbers.most);
        for (std::int64_t i = 0; i < n; i++) {
            s[i] = std::max(most[i] / greatest, floor);
        }
        return;
    }
    StageCall(extents, heads, one_number_per_head(numbers.least, extents.n_heads),
              one_number_per_head(numbers.most, extents.n_heads))
        .join(1, 2)
        .for_each_part(kernels.range[0]);
    for (std::int64_t i = 0; i < n && rule == GroupRule::range; i++) {
        const float range = (most[i] - least[i]) / greatest;
        s[i] = std::min(range == 0.0f ? floor : range, std::numeric_limits<float>::max());
    }
    for (std::int64_t i = 0; i < n && rule == GroupRule::signed_largest; i++) {
        float largest = -least[i] > most[i] ? least[i] : most[i];
        if (-least[i] == most[i] && most[i] != 0.0f) {  // v and -v are equally large: the first counts
            const std::int64_t head = i / extents.n_heads, group = i - head * extents.n_heads;
            const float *element = heads.data + head * heads.strides.token + group * heads.strides.head;
            while (std::fabs(*element) != most[i]) {
                element++;
            }
            largest = *element;
        }
        s[i] = largest / greatest;
    }
}

/// Rounds scales to powers of two (E8M0): s up, or as the OCP MX standard says.
template <GroupScale scale>
void round_to_powers(std::int64_t n, const GroupNumbers &numbers) {
    constexpr bool up = scale == GroupScale::power_up;
    constexpr int of_greatest = 8;  // the exponent of e4m3's 448
    for (std::int64_t i = 0; i < n; i++) {
        const auto bits = std::bit_cast<std::uint32_t>(up ? numbers.s[i] : numbers.most[i]);
        const auto exponent = static_cast<int>(bits >> 23), fraction = static_cast<int>(bits & 0x7fffffu);
        constexpr int half = 0x400000;  // of the smallest normal number: 2^-127, E8M0's smallest
        const int above = exponent == 0 ? fraction > half : fraction != 0;
        const int byte = std::clamp(up ? exponent + above : exponent - of_greatest, 0, 254);
        numbers.words[i] = static_cast<char>(byte);
        numbers.s[i] = load_scale<scale>(numbers.words + i);
    }
}

/// Computes the numbers of groups: scales s, the stored form of scales (words), factors r and zero points z.
template <GroupRule rule, GroupScale scale, Reciprocal reciprocal>
void make_numbers(const StageKernels &kernels, const GroupsDesc &groups, const Extents &extents,
                  const Elements<float> &heads, const GroupNumbers &numbers) {
    constexpr float finite = std::numeric_limits<float>::max();
    const std::int64_t n = extents.n_heads * extents.n_tokens;
    const float *const most = numbers.most;
    float *const s = numbers.s, *const r = numbers.r;
    find_scales<rule>(kernels, groups, extents, heads, numbers);
    if constexpr (scale == GroupScale::power_up || scale == GroupScale::power_ocp) {
        round_to_powers<scale>(n, numbers);
    } else if constexpr (scale == GroupScale::f16) {
        constexpr float largest = 65504.0f, overflow = 65520.0f;  // of f16; from there on a float rounds to infinity
        for (std::int64_t i = 0; i < n; i++) {
            s[i] = std::fabs(s[i]) < overflow ? s[i] : std::copysign(largest, s[i]);
        }
        narrow(kernels, Dtype::f16, {n, 1, 1}, {s, {1, 0, 0}}, one, {numbers.words, {1, 0, 0}});
    } else {
        std::memcpy(numbers.words, s, static_cast<std::size_t>(n) * sizeof(float));
    }
    std::fill_n(numbers.z, n, rule == GroupRule::signed_largest ? 8.5f : 0.0f);
    for (std::int64_t i = 0; i < n && rule == GroupRule::range; i++) {
        numbers.z[i] = std::clamp(-numbers.least[i] / s[i], -finite, finite);
    }
    constexpr bool of_largest = reciprocal == Reciprocal::of_largest;
    const float a = of_largest ? groups.greatest : 1.0f, *const of = of_largest ? most : s;
    for (std::int64_t i = 0; i < n; i++) {
        const float quotient = a / of[i];
        r[i] = quotient - quotient == 0.0f ? quotient : 0.0f;
    }
    for (std::int64_t i = 0; i < n && of_largest; i++) {
        r[i] = s[i] == most[i] / groups.greatest ? r[i] : 1.0f / s[i];  // 1 / s where s has overflowed
    }
}

// ---- Elements ------------------------------------------------------------------------------------------------------

/// Workspace for a block's elements as records have them, for quantised elements of one byte each, and for raw ones.
unsigned char *packed_elements_of(const Block &block) { return reinterpret_cast<unsigned char *>(block.work->spare); }
unsigned char *elements_of(const GroupsDesc &groups, const Block &block) {
    return packed_elements_of(block) + groups.unpacked;
}
char *raw_elements_of(const Block &block) { return reinterpret_cast<char *>(block.work->spare) + 2 * block_floats; }

/// Calls function(byte, low, high) for each byte of a block's groups of 4-bit elements, with the indices of the
/// elements in its low and high nibble.
template <Packing packing, typename Function>
void for_each_packed_byte(const GroupsDesc &groups, const Block &block, const Function &function) {
    const std::int64_t half = groups.group / 2;
    for (std::int64_t g = 0; g < block.n_tokens * block.n_heads * groups.n_groups; g++) {
        for (std::int64_t i = 0, byte = g * half, element = 2 * byte; i < half; i++) {
            packing == Packing::halves ? function(byte + i, element + i, element + half + i)
                                       : function(byte + i, element + 2 * i + 1, element + 2 * i);
        }
    }
}

// ---- Steps between floats and the workspace's parts of records ------------------------------------------------------

/// Quantises the elements of groups, to one byte each.
template <GroupRule rule, GroupScale scale, Reciprocal reciprocal = Reciprocal::of_scale>
void quantise_groups(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).groups;
    const GroupNumbers numbers(block);
    const Extents extents = {groups.group, groups.n_groups, block.n_tokens * block.n_heads};
    const Elements<float> heads = {block.work->floats, {1, groups.group, groups.head_dim}};
    make_numbers<rule, scale, reciprocal>(call.kernels(), groups, extents, heads, numbers);
    const float low = rule == GroupRule::largest ? -128.0f : 0.0f;
    const float high = rule == GroupRule::signed_largest ? 15.0f : groups.greatest;
    const auto kernel = call.kernels().quantise[index_of(groups.element)];
    StageCall(extents, heads, one_number_per_head(numbers.r, groups.n_groups),
              one_number_per_head(numbers.z, groups.n_groups),
              Elements<unsigned char>{elements_of(groups, block), {1, groups.group, groups.n_grouped}})
        .join(1, 2)
        .for_each_part(
            [&](auto *...buffers) { kernel(static_cast<std::int32_t>(groups.rounding), low, high, buffers...); });
}

template <Packing packing>
void pack_groups(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).groups;
    unsigned char *__restrict const packed = packed_elements_of(block);
    const unsigned char *__restrict const elements = elements_of(groups, block);
    for_each_packed_byte<packing>(groups, block, [=](std::int64_t byte, std::int64_t low, std::int64_t high) {
        packed[byte] = static_cast<unsigned char>(elements[low] | elements[high] << 4);
    });
}

template <Packing packing>
void unpack_groups(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).from_groups;
    const unsigned char *__restrict const packed = packed_elements_of(block);
    unsigned char *__restrict const elements = elements_of(groups, block);
    for_each_packed_byte<packing>(groups, block, [=](std::int64_t byte, std::int64_t low, std::int64_t high) {
        elements[low] = static_cast<unsigned char>(packed[byte] & 0x0fu);
        elements[high] = static_cast<unsigned char>(packed[byte] >> 4);
    });
}

/// Converts the quantised elements q of groups to floats: q s, or (q - z) s.
template <bool is_unsigned, GroupScale scale>
void dequantise_groups(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).from_groups;
    const GroupNumbers numbers(block);
    const unsigned char *const elements = elements_of(groups, block);
    const std::int64_t n_heads = block.n_tokens * block.n_heads;
    if constexpr (!is_unsigned) {
        widen(call.kernels(), groups.element, {groups.group, groups.n_groups, n_heads},
              {reinterpret_cast<const char *>(elements), {1, groups.group, groups.n_grouped}},
              {block.work->floats, {1, groups.group, groups.head_dim}});
    }
    for (std::int64_t i = 0; i < n_heads * groups.n_groups; i++) {
        float *const to =
            block.work->floats + i / groups.n_groups * groups.head_dim + i % groups.n_groups * groups.group;
        const unsigned char *const from = elements + i * groups.group;
        const float s = load_scale<scale>(numbers.words + i * bytes_of(scale)), z = numbers.z[i];
        for (std::int64_t e = 0; e < groups.group; e++) {
            to[e] = (is_unsigned ? static_cast<float>(from[e]) - z : to[e]) * s;
        }
    }
}

void narrow_raw(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).groups;
    narrow(call.kernels(), Dtype::bf16, block.extents(groups.n_raw),
           {block.work->floats + groups.n_grouped, block.strides}, one,
           {raw_elements_of(block), {1, groups.n_raw, groups.n_raw * block.n_heads}});
}

void widen_raw(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).from_groups;
    widen(call.kernels(), Dtype::bf16, block.extents(groups.n_raw),
          {raw_elements_of(block), {1, groups.n_raw, groups.n_raw * block.n_heads}},
          {block.work->floats + groups.n_grouped, block.strides});
}

// ---- Records -------------------------------------------------------------------------------------------------------

/// Calls function(i, record, scales) for head i of a block, counted through its tokens. record is NULL without a slot.
/// `of_scales` is the array of scales that lie apart from the records.
template <Where where, bool scales_apart, typename Function>
void for_each_record(const KvCall &call, const Block &block, bool are_written, Array of_scales,
                     const Function &function) {
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        std::int64_t batch = block.batch, at = block.token + token;  // in a cache: its block, and the slot in the block
        std::int64_t stride = 0, stride_of_scales = 0;               // from head to head
        char *record = nullptr, *scales = nullptr;
        if constexpr (where == Where::cache) {
            const CacheDesc &cache = *call.stages(block).cache;
            if (const std::int64_t slot = call.slot_of(block, token); slot >= 0) {
                batch = slot / cache.block_size;
                at = slot % cache.block_size;
                stride = cache.stride_head;
                record = call.cache_of(block) + cache.offset_of(slot);
            }
        } else {
            const Side &side = are_written ? call.tensor(block).y : call.tensor(block).x;
            stride = side.head;
            record = (are_written ? call.y(block) : const_cast<char *>(call.x(block))) + token * side.token;
        }
        if (scales_apart && record != nullptr) {
            scales = call.place_of(block.index, of_scales, batch, at, block.head);
            stride_of_scales = call.bound(block.index, of_scales).elements.strides[2];
        }
        for (std::int64_t head = 0; head < block.n_heads; head++) {
            function(token * block.n_heads + head, record + head * stride,
                     scales_apart ? scales + head * stride_of_scales : record + head * stride);
        }
    }
}

/// Calls function(field, dense, there) for each field of each record: its words in the workspace, and in the record,
/// NULL without a slot.
template <Where where, bool scales_apart, typename Function>
void for_each_field(const KvCall &call, const Block &block, bool are_written, const GroupsDesc &groups, Array of_scales,
                    const Function &function) {
    const GroupNumbers numbers(block);
    char *const arrays[] = {reinterpret_cast<char *>(packed_elements_of(block)), numbers.words,
                            reinterpret_cast<char *>(numbers.z), raw_elements_of(block)};  // by RecordPart
    for_each_record<where, scales_apart>(
        call, block, are_written, of_scales, [&](std::int64_t i, char *record, char *scales) {
            char *const begins[] = {record, scales, record, record};
            for (int f = 0; f < groups.n_fields; f++) {
                const RecordField &field = groups.fields[f];
                function(field, arrays[static_cast<int>(field.part)] + i * field.n * field.bytes,
                         record == nullptr ? nullptr : begins[static_cast<int>(field.part)] + field.offset);
            }
        });
}

template <Where where, bool scales_apart>
void store_records(const KvCall &call, Block &block) noexcept {
    const auto store = [](const RecordField &field, const char *dense, char *there) {
        if (there != nullptr) {
            field.copy(field, dense, field.bytes, there, field.stride);
        }
    };
    const GroupsDesc &groups = *call.stages(block).groups;
    for_each_field<where, scales_apart>(call, block, true, groups, Array::group_scales, store);
}

template <Where where, bool scales_apart>
void load_records(const KvCall &call, Block &block) noexcept {
    const auto load = [](const RecordField &field, char *dense, const char *there) {
        if (there == nullptr) {
            std::memset(dense, 0, static_cast<std::size_t>(field.n * field.bytes));
        } else {
            field.copy(field, there, field.stride, dense, field.bytes);
        }
    };
    const KvTensorPlan &stages = call.stages(block);
    std::fill_n(GroupNumbers(block).z, block_groups, 8.0f);  // for elements of 4 bits without a zero point
    for_each_field<where, scales_apart>(call, block, false, *stages.from_groups, stages.from_scales, load);
}

// ---- Records of ggml's q8_0, llama.cpp's most common: kernels store to and load from the records directly ----------

/// Calls function(elements, scales, floats) for the records of a block's tokens, except for tokens without a slot.
/// Records that are evenly spaced share a call. Strides are even, since kernels count scales in units of 2 bytes.
template <Where where, typename Function>
void for_each_q8(const KvCall &call, const Block &block, bool are_written, const GroupsDesc &groups,
                 const Function &function) {
    for_each_part<where>(call, block, are_written, [&](const PlacedPart &part) {
        const std::int64_t n_heads = part.extents.n_heads, n_tokens = part.extents.n_tokens;
        const ElementStrides &there = part.there.strides;
        const std::int64_t stride = n_heads == 1 ? there.token : there.head;
        const std::int64_t at_once = n_heads == 1 || there.token == n_heads * there.head ? n_tokens : 1;
        for (std::int64_t token = 0; token < n_tokens; token += at_once) {
            char *const record = part.there.data + token * there.token;
            StageCall({groups.group, groups.n_groups, n_heads * at_once},
                      Elements<char>{record + groups.data_offset, {1, groups.data_stride, stride}},
                      Elements<char>{record + groups.scale_offset, {0, groups.scale_stride / 2, stride / 2}, 2, 1},
                      Elements<float>{block.work->floats + part.offset + token * block.strides.token,
                                      {1, groups.group, block.strides.head}})
                .for_each_part(function);
        }
    });
}

/// Stores a block's groups by kernels. If a group has a NaN, an infinity or a scale that overflows, the whole block is
/// written again by the other steps. Otherwise the bits are those that they would write.
template <Where where, Reciprocal reciprocal>
void store_q8(const KvCall &call, Block &block) noexcept {
    constexpr float overflow = 127.0f * 65504.0f;  // from this magnitude on, the scale of a group overflows
    const GroupsDesc &groups = *call.stages(block).groups;
    bool is_finite = true;
    for_each_q8<where>(
        call, block, true, groups, [&](halyard_buffer *elements, halyard_buffer *scales, halyard_buffer *floats) {
            std::int32_t largest = 0;
            halyard_buffer found;
            set_buffer(found, &largest, nullptr);
            floats->dim[1].extent *= floats->dim[2].extent;  // joins the groups of all heads, which are dense
            call.kernels().store_groups[index_of(Dtype::int8)](static_cast<std::int32_t>(reciprocal),
                                                               static_cast<std::int32_t>(groups.rounding), floats,
                                                               elements, scales, &found);
            is_finite = is_finite && std::bit_cast<float>(largest) < overflow;  // false for a NaN
        });
    if (!is_finite) {
        quantise_groups<GroupRule::largest, GroupScale::f16, reciprocal>(call, block);
        store_records<where, false>(call, block);
    }
}

template <Where where>
void load_q8(const KvCall &call, Block &block) noexcept {
    for_each_q8<where>(call, block, false, *call.stages(block).from_groups,
                       [&](halyard_buffer *elements, halyard_buffer *scales, halyard_buffer *floats) {
                           call.kernels().load_groups[index_of(Dtype::int8)](elements, scales, floats);
                       });
}

// ---- Keys that are re-rotated --------------------------------------------------------------------------------------

/// The first of a record's groups whose scale or zero point is not finite; n_groups if all are.
template <GroupScale scale>
std::int64_t find_infinite(const GroupsDesc &groups, const char *record, const char *scales) {
    const auto first_of = [&](const char *at, auto exponent) {
        std::int64_t g = 0;
        while (g < groups.n_groups &&
               (read_word<decltype(exponent)>(at + g * groups.scale_stride) & exponent) != exponent) {
            g++;
        }
        return g;
    };
    if constexpr (constexpr std::uint32_t exponent = 0x7f800000; scale == GroupScale::f32) {
        const std::int64_t first = first_of(scales, exponent);
        return groups.has_zero() ? std::min(first, first_of(record + groups.zero_offset, exponent)) : first;
    }
    return scale == GroupScale::f16 ? first_of(scales, std::uint16_t{0x7c00}) : first_of(scales, std::uint8_t{0xff});
}

/// Checks that the records have finite scales and zero points.
template <Where where, bool scales_apart, GroupScale scale>
halyard_status check_records(const KvCall &call, int index, halyard_error *error) noexcept {
    constexpr bool in_cache = where == Where::cache;
    const GroupsDesc &groups = *call.kv_plan().tensors[index].groups;
    const TokenNumbers &tokens = call.program.positions;
    Block row = {};
    row.index = index;
    row.n_tokens = tokens.n_tokens;
    row.n_heads = call.program.tensors[index].n_heads;
    halyard_status status = HALYARD_OK;
    for (; row.batch < tokens.n_batch && status == HALYARD_OK; row.batch++) {
        for_each_record<where, scales_apart>(
            call, row, false, Array::group_scales, [&](std::int64_t i, const char *record, const char *scales) {
                if (record == nullptr || status != HALYARD_OK) {
                    return;
                }
                // Memory latency dominates, and a page's records are contiguous: prefetching cuts a shift's time to
                // .85.
                constexpr std::int64_t ahead = 4096, line = 64;
                for (std::int64_t at = ahead; at < ahead + groups.n_groups * groups.scale_stride; at += line) {
                    const auto from = reinterpret_cast<std::uintptr_t>(scales) + static_cast<std::uintptr_t>(at);
                    __builtin_prefetch(reinterpret_cast<const void *>(from));
                }
                scales += groups.scale_offset;
                const std::int64_t g = find_infinite<scale>(groups, record, scales), token = i / row.n_heads;
                if (g == groups.n_groups) {
                    return;
                }
                const float s = load_scale<scale>(scales + g * groups.scale_stride);
                const bool is_scale = s - s != 0.0f;
                status = fail(error, HALYARD_ERROR_SCALE, "the record of ", in_cache ? "slot " : "token ",
                              in_cache ? call.slot_of(row, token) : tokens.name_of(row.batch, token).token, ", head ",
                              i % row.n_heads, ", of tensor ", index, " has ",
                              double(is_scale ? s : read_word<float>(record + groups.zero_offset)), " as the ",
                              is_scale ? "scale" : "zero point", " of group ", g,
                              ", but it must be finite: no key was stored there");
            });
    }
    return status;
}

template <GroupScale scale>
CheckKeys *check_of(bool in_cache, bool scales_apart) {
    constexpr CheckKeys *checks[2][2] = {
        {check_records<Where::view, false, scale>, check_records<Where::view, true, scale>},
        {check_records<Where::cache, false, scale>, check_records<Where::cache, true, scale>}};
    return checks[in_cache][scales_apart];
}

}  // namespace

void list_load_of_records(const Listing &of) noexcept {
    constexpr RunStep *loads[2][2] = {{load_records<Where::view, false>, load_records<Where::view, true>},
                                      {load_records<Where::cache, false>, load_records<Where::cache, true>}};
    using enum GroupScale;
    constexpr RunStep *steps[2][4] = {{dequantise_groups<false, f32>, dequantise_groups<false, f16>,
                                       dequantise_groups<false, power_up>, dequantise_groups<false, power_ocp>},
                                      {dequantise_groups<true, f32>, dequantise_groups<true, f16>}};
    constexpr decltype(&check_of<f32>) checks[] = {check_of<f32>, check_of<f16>, check_of<power_up>,
                                                   check_of<power_ocp>};
    const GroupsDesc &groups = *of.stages.from_groups;
    if (of.rerotates) {
        of.steps.check_keys = checks[static_cast<int>(groups.scale)](of.from_cache(), groups.scales_apart);
    }
    if (groups.is_q8() && (of.from_cache() ? of.stages.cache->are_strides_even() : !of.x_is_scattered)) {
        of.add_if(of.from_cache(), "clear", clear_tokens_without_slots);
        of.add("load records", of.from_cache() ? load_q8<Where::cache> : load_q8<Where::view>);
        return;
    }
    of.add("load records", loads[of.from_cache()][groups.scales_apart]);
    of.add_if(groups.packing == Packing::halves, "unpack", unpack_groups<Packing::halves>);
    of.add_if(groups.packing == Packing::high_first, "unpack", unpack_groups<Packing::high_first>);
    of.add("dequantise", steps[groups.element == Dtype::uint8][static_cast<int>(groups.scale)]);
    of.add_if(groups.n_raw != 0, "widen", widen_raw);
}

void list_store_of_records(const Listing &of) noexcept {
    constexpr RunStep *stores[2][2] = {{store_records<Where::view, false>, store_records<Where::view, true>},
                                       {store_records<Where::cache, false>, store_records<Where::cache, true>}};
    using enum GroupScale;
    using enum GroupRule;
    constexpr RunStep *steps[3][4] = {{quantise_groups<largest, f32>, quantise_groups<largest, f16>,
                                       quantise_groups<largest, power_up>, quantise_groups<largest, power_ocp>},
                                      {quantise_groups<signed_largest, f32>, quantise_groups<signed_largest, f16>},
                                      {quantise_groups<range, f32>}};  // of all presets
    using enum Reciprocal;
    constexpr RunStep *q8_stores[2][2] = {{store_q8<Where::view, of_scale>, store_q8<Where::view, of_largest>},
                                          {store_q8<Where::cache, of_scale>, store_q8<Where::cache, of_largest>}};
    const GroupsDesc &groups = *of.stages.groups;
    const bool is_of_largest = groups.reciprocal == of_largest;  // of q8_0 alone
    if (groups.is_q8() && (of.to_cache() ? of.stages.cache->are_strides_even() : !of.steps.scatters)) {
        of.add("store records", q8_stores[of.to_cache()][is_of_largest]);
        return;
    }
    of.add("quantise", is_of_largest ? quantise_groups<largest, f16, of_largest>
                                     : steps[static_cast<int>(groups.rule)][static_cast<int>(groups.scale)]);
    of.add_if(groups.packing == Packing::halves, "pack", pack_groups<Packing::halves>);
    of.add_if(groups.packing == Packing::high_first, "pack", pack_groups<Packing::high_first>);
    of.add_if(groups.n_raw != 0, "narrow", narrow_raw);
    of.add("store records", stores[of.to_cache()][groups.scales_apart]);
}

}  // namespace halyard
