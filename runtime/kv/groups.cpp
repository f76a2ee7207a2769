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

namespace halyard {

namespace {

/// A row of the table: HALYARD_GROUPS_….
GroupsDesc preset_of(std::int32_t preset) {
    using enum GroupScale;
    using enum GroupRule;
    using enum Packing;
    constexpr Dtype int8 = Dtype::int8, uint8 = Dtype::uint8, e4m3 = Dtype::e4m3;
    constexpr bool in_record = false, apart = true, even = false, away = true, by_largest = true;
    constexpr float mla_floor = 1e-4f / 448.0f;  // of the largest magnitude 1e-4
    // Fields are in the order of GroupsDesc, and the last ones are left out where they have its defaults: element,
    // scale, group, floor, data and its stride, scales and their stride, …
    static constexpr GroupsDesc presets[] = {
        {int8, f16, 32, 0, 2, 34, 0, 34, in_record, even, by_largest},                      // GGML_Q8_0
        {int8, f16, 32, 0, 2, 34, 0, 34},                                                   // …_NEON
        {int8, f16, 32, 0, 2, 34, 0, 34, in_record, away},                                  // …_REFERENCE
        {uint8, f16, 32, 0, 2, 18, 0, 18, in_record, even, false, signed_largest, halves},  // GGML_Q4_0
        {int8, f32, 0, 1e-6f, 0, 0, 0, 4, apart, away},                                     // VLLM_INT8
        {e4m3, f32, 0, 1e-6f, 0, 0, 0, 4, apart},                                           // VLLM_FP8
        {uint8, f32, 0, 1e-4f, 8, 0, 0, 0, in_record, even, false, range, none, 4},         // OPENVINO_U8
        {uint8, f32, 0, 1e-4f, 8, 0, 0, 0, in_record, even, false, range, high_first, 4},   // OPENVINO_U4
        {e4m3, f32, 128, mla_floor, 0, 128, 512, 4, in_record, even, false, largest, none, 0, 64, 528, 576},  // MLA_V32
        {e4m3, power_up, 64, mla_floor, 0, 64, 0, 1, apart, even, false, largest, none, 0, 64, 448, 512},     // MLA_V4
        {e4m3, power_up, 32, mla_floor, 0, 32, 0, 1, apart, even, false, largest, none, 0, 0, 0, 512},        // MLA_V41
        {e4m3, power_ocp, 32, 0, 1, 33, 0, 33},                                                               // MX
    };
    return presets[preset - 1];
}

}  // namespace

halyard_status read_preset(std::int32_t preset, const char *prefix, std::int64_t head_dim, GroupsDesc *out,
                           halyard_error *error) noexcept {
    if (preset < HALYARD_GROUPS_GGML_Q8_0 || preset > HALYARD_GROUPS_MX) {
        return fail(error, HALYARD_ERROR_UNKNOWN_VALUE, prefix, "preset is ", preset,
                    preset == 0 ? ", not set, but must be " : ", but must be ", HALYARD_GROUPS_GGML_Q8_0, " to ",
                    HALYARD_GROUPS_MX);
    }
    GroupsDesc &groups = *out = preset_of(preset);
    if (groups.head_dim != 0 && groups.head_dim != head_dim) {
        return fail(error, HALYARD_ERROR_SHAPE, prefix, "preset is ", preset, ", whose heads have ", groups.head_dim,
                    " elements, but head_dim is ", head_dim);
    }
    const std::int64_t divisor = groups.group != 0 ? groups.group : groups.is_4_bit() ? 2 : 1;
    if (groups.head_dim == 0 && head_dim % divisor != 0) {
        return fail(error, HALYARD_ERROR_SHAPE, prefix, "preset is ", preset, ", whose heads have a multiple of ",
                    divisor, " elements, but head_dim is ", head_dim);
    }
    groups.head_dim = head_dim;
    groups.n_grouped = head_dim - groups.n_raw;
    groups.group = groups.group != 0 ? groups.group : groups.n_grouped;
    groups.n_groups = groups.n_grouped / groups.group;
    groups.record_bytes = groups.n_raw != 0
                              ? groups.raw_offset + groups.n_raw * element_bytes(Dtype::bf16)
                              : groups.data_offset + (groups.n_groups - 1) * groups.data_stride + groups.data_bytes();
    return HALYARD_OK;
}

float GroupsDesc::greatest() const noexcept {
    switch (rule) {
    case GroupRule::signed_largest: return -8.0f;
    case GroupRule::range: return is_4_bit() ? 15.0f : 255.0f;
    case GroupRule::largest: break;
    }
    return greatest_of(element);
}

halyard_status read_groups(const halyard_groups_desc *groups, int index, const char *field, std::int64_t head_dim,
                           GroupsDesc *out, halyard_error *error) noexcept {
    const StageName name(index, field);
    char prefix[40];
    std::snprintf(prefix, sizeof(prefix), "%s.", name.text);
    halyard_groups_desc desc = {};
    HALYARD_TRY(read_struct(groups, name.text, &desc, error));
    HALYARD_TRY(read_preset(desc.preset, prefix, head_dim, out, error));
    out->strides[0] = desc.scales_stride_block;
    out->strides[1] = desc.scales_stride_token;
    out->strides[2] = desc.scales_stride_head;
    if (!out->scales_apart && !out->are_dense()) {
        return fail(error, HALYARD_ERROR_MISMATCH, prefix, "scales_stride_… is set, but preset is ", desc.preset,
                    ", whose scales lie in the record");
    }
    return HALYARD_OK;
}

namespace {

// ---- Where records lie ---------------------------------------------------------------------------------------------

/// The records of some heads of one token: that of head h is `bytes` + h * stride_head.
struct TokenRecords {
    char *bytes;  // NULL where the token has no slot
    std::int64_t stride_head;
    char *scales;  // of head 0, in the record or apart from it
    std::int64_t scales_stride_head;
};

/// The records of a token from a head on: those that are written, or those that are read. Keys that move are read where
/// they are written. at: the token, counted through all batch rows.
TokenRecords records_of(const KvCall &call, int index, bool are_written, std::int64_t at, std::int64_t head) {
    const ProgramTensor &tensor = call.program.tensors[index];
    const auto &cache = call.kv_plan().tensors[index].cache;
    const auto &arrays = call.arrays.of_tensor[index];
    const bool are_kept = are_written || call.kv.rerotates;
    const std::int64_t n_tokens = call.program.positions.n_tokens;
    std::int64_t block = at / n_tokens, token = at % n_tokens;
    TokenRecords records = {};
    if (cache && are_kept) {
        const std::int64_t slot = call.kv.slots.of_token(call.arrays.slots, at);
        if (slot < 0) {
            return records;
        }
        block = slot / cache->block_size;
        token = slot % cache->block_size;
        records.stride_head = cache->stride_head;
        records.bytes = arrays[static_cast<int>(Array::cache)] + cache->offset_of(slot);
    } else {
        const Side &side = are_written ? tensor.y : tensor.in();
        const void *const data = are_written || tensor.in_place ? call.given.y[index] : call.given.x[index];
        records.stride_head = side.head;
        records.bytes = static_cast<char *>(const_cast<void *>(data)) + block * side.batch + token * side.token;
    }
    records.bytes += head * records.stride_head;
    const auto scales = static_cast<int>(are_kept ? Array::group_scales : Array::from_group_scales);
    if (arrays[scales] == nullptr) {
        records.scales = records.bytes;
        records.scales_stride_head = records.stride_head;
    } else {
        const std::int64_t *const strides = call.kv.tensors[index].arrays[scales].elements.strides;
        records.scales = arrays[scales] + block * strides[0] + token * strides[1] + head * strides[2];
        records.scales_stride_head = strides[2];
    }
    return records;
}

constexpr std::int64_t numbers_of_groups = 6;
static_assert(block_heads >= numbers_of_groups * block_groups && sizeof(Workspace::spare) >= block_floats);

/// The scale of a group, as stored.
float load_group_scale(const GroupsDesc &groups, const char *at) {
    if (!groups.is_power()) {
        return groups.scale == GroupScale::f32 ? read_word<float>(at) : F16::widen(read_word<std::uint16_t>(at));
    }
    const auto byte = static_cast<std::uint32_t>(read_word<std::uint8_t>(at));
    constexpr std::uint32_t tiniest = 0x00400000, nan = 0x7fc00000;  // 2^-127 is no normal number; 255 is E8M0's NaN
    return std::bit_cast<float>(byte == 0 ? tiniest : byte == 255 ? nan : byte << 23);
}

/// The numbers of some groups, and how they are stored.
struct Numbers {
    float *least, *most;  // of elements; most is the largest magnitude where that decides
    float *s, *r, *z;
    char *words;  // scales as they are stored

    explicit Numbers(float *memory)
        : least(memory), most(memory + block_groups), s(memory + 2 * block_groups), r(memory + 3 * block_groups),
          z(memory + 4 * block_groups), words(reinterpret_cast<char *>(memory + 5 * block_groups)) {}
};

// ---- Scales --------------------------------------------------------------------------------------------------------

/// The first element that is as large as the largest, of which the sign alone is not known. 0 is +0.
float first_of_equals(const float *group, std::int64_t n, float magnitude) {
    const float *const found = std::find_if(group, group + n, [&](float v) { return std::fabs(v) == magnitude; });
    return magnitude == 0.0f || found == group + n ? 0.0f : *found;
}

/// Finds s of each group, unrounded but finite.
void find_scales(const StageKernels &kernels, const GroupsDesc &groups, const Extents &extents,
                 const Elements<float> &heads, const Numbers &numbers) {
    const std::int64_t n = extents.n_heads * extents.n_tokens;
    const float greatest = groups.greatest();
    if (groups.rule == GroupRule::largest) {
        find_largest(kernels, extents, heads, numbers.most);
        const float floor = groups.floor, *const most = numbers.most;
        float *const s = numbers.s;
        for (std::int64_t i = 0; i < n; i++) {
            s[i] = std::max(most[i] / greatest, floor);
        }
        return;
    }
    find_range(kernels, extents, heads, numbers.least, numbers.most);
    for (std::int64_t i = 0; i < n; i++) {
        const float least = numbers.least[i], most = numbers.most[i];
        if (groups.rule == GroupRule::range) {
            const float s = (most - least) / greatest;
            numbers.s[i] = std::min(s == 0.0f ? groups.floor : s, std::numeric_limits<float>::max());
            continue;
        }
        const std::int64_t head = i / extents.n_heads, group = i - head * extents.n_heads;
        const float *const elements = heads.data + head * heads.strides.token + group * heads.strides.head;
        const float signed_most = -least == most  ? first_of_equals(elements, extents.n_elements, most)
                                  : -least > most ? least
                                                  : most;
        numbers.s[i] = signed_most / greatest;
    }
}

/// The exponents of powers of two as E8M0: from s on, or as OCP says.
void round_to_powers(const GroupsDesc &groups, std::int64_t n, const Numbers &numbers) {
    const bool up = groups.scale == GroupScale::power_up;
    constexpr int of_greatest = 8;  // the exponent of e4m3's 448
    for (std::int64_t i = 0; i < n; i++) {
        const auto bits = std::bit_cast<std::uint32_t>(up ? numbers.s[i] : numbers.most[i]);
        const auto exponent = static_cast<int>(bits >> 23), fraction = static_cast<int>(bits & 0x7fffffu);
        constexpr int half = 0x400000;  // of the smallest normal number: 2^-127, E8M0's smallest
        const int above = exponent == 0 ? fraction > half : fraction != 0;
        const int byte = std::clamp(up ? exponent + above : exponent - of_greatest, 0, 254);
        numbers.words[i] = static_cast<char>(byte);
        numbers.s[i] = load_group_scale(groups, numbers.words + i);
    }
}

/// Rounds numbers to f16. What overflows becomes the largest finite number, and `number` that too; true where that was
/// so.
bool round_to_f16(const StageKernels &kernels, std::int64_t n, float *numbers, char *words) {
    narrow(kernels, Dtype::f16, n, numbers, words);
    constexpr std::uint32_t infinity = 0x7c00;
    std::uint32_t overflows = 0;  // no branch, for the cost of a head
    for (std::int64_t i = 0; i < n; i++) {
        const std::uint32_t word = read_word<std::uint16_t>(words + 2 * i);
        overflows |= (word & 0x7fffu) == infinity ? 1u : 0u;
    }
    for (std::int64_t i = 0; i < n && overflows != 0; i++) {
        char *const at = words + 2 * i;
        const auto word = read_word<std::uint16_t>(at);
        if ((word & 0x7fffu) == infinity) {
            const auto finite = static_cast<std::uint16_t>(word - 1u);
            std::memcpy(at, &finite, sizeof(finite));
            numbers[i] = F16::widen(finite);
        }
    }
    return overflows != 0;
}

/// r of each group: a / of, 0 where that is not finite. Loops like this one are vectors of the compiler's.
void find_reciprocals(std::int64_t n, float a, const float *__restrict of, float *__restrict r) {
    for (std::int64_t i = 0; i < n; i++) {
        const float quotient = a / of[i];
        r[i] = quotient - quotient == 0.0f ? quotient : 0.0f;
    }
}

/// Makes scales, as they are stored too, reciprocals and zero points of groups.
void make_numbers(const StageKernels &kernels, const GroupsDesc &groups, const Extents &extents,
                  const Elements<float> &heads, const Numbers &numbers) {
    const std::int64_t n = extents.n_heads * extents.n_tokens;
    find_scales(kernels, groups, extents, heads, numbers);
    bool overflows = false;
    if (groups.is_power()) {
        round_to_powers(groups, n, numbers);
    } else if (groups.scale == GroupScale::f16) {
        overflows = round_to_f16(kernels, n, numbers.s, numbers.words);
    } else {
        std::memcpy(numbers.words, numbers.s, static_cast<std::size_t>(n) * sizeof(float));
    }
    std::fill_n(numbers.z, n, groups.rule == GroupRule::signed_largest ? 8.5f : 0.0f);
    for (std::int64_t i = 0; i < n && groups.has_zero(); i++) {
        constexpr float finite = std::numeric_limits<float>::max();
        numbers.z[i] = std::clamp(-numbers.least[i] / numbers.s[i], -finite, finite);
    }
    if (!groups.by_largest) {
        find_reciprocals(n, 1.0f, numbers.s, numbers.r);
        return;
    }
    const float greatest = groups.greatest();
    find_reciprocals(n, greatest, numbers.most, numbers.r);
    for (std::int64_t i = 0; i < n && overflows; i++) {
        if (numbers.s[i] != numbers.most[i] / greatest) {
            find_reciprocals(1, 1.0f, numbers.s + i, numbers.r + i);
        }
    }
}

// ---- Elements ------------------------------------------------------------------------------------------------------

/// How integers are made of numbers, as halyard_quantise_kernel counts: fma(v, r, z), to nearest even; v r, halves away
/// from zero; v r + z, each rounded to float, and then towards zero.
enum Mode : std::int32_t { even = 0, away = 1, offset = 2 };

/// Makes the elements of groups, one byte each, dense.
void quantise(const StageKernels &kernels, const GroupsDesc &groups, const Extents &extents,
              const Elements<float> &heads, const Numbers &numbers, unsigned char *elements) {
    const bool is_signed_largest = groups.rule == GroupRule::signed_largest;
    const Mode mode = is_signed_largest ? offset : groups.rounds_away ? away : even;
    const float low = is_signed_largest || groups.has_zero() ? 0.0f : -128.0f;
    const float high = is_signed_largest ? 15.0f : groups.greatest();
    const Dtype dtype = groups.element == Dtype::e4m3 ? Dtype::e4m3 : Dtype::int8;
    StageOperand x(heads, sizeof(float)), r(numbers.r, extents.n_heads), z(numbers.z, extents.n_heads),
        y(Elements<unsigned char>{elements, {1, extents.n_elements, extents.n_elements * extents.n_heads}}, 1);
    StageCall call(extents, x, r, z, y);
    call.join(1, 2);
    call.for_each_part(
        [&](auto *...buffers) { kernels.quantise[index_of(dtype)](mode, low, high, buffers...); });
}

/// Calls function(byte, low, high) for each byte of a group: the elements whose nibbles it holds.
template <typename Function>
void for_each_byte(const GroupsDesc &groups, const Function &function) {
    const std::int64_t n = groups.group / 2;
    if (groups.packing == Packing::halves) {  // loops of their own, so that the compiler makes vectors of them
        for (std::int64_t i = 0; i < n; i++) {
            function(i, i, i + n);
        }
    } else {
        for (std::int64_t i = 0; i < n; i++) {
            function(i, 2 * i + 1, 2 * i);
        }
    }
}

/// Stores the elements of a group, a byte each, two in a byte.
void pack(const GroupsDesc &groups, const unsigned char *__restrict elements, char *__restrict out) {
    for_each_byte(groups, [=](std::int64_t i, std::int64_t low, std::int64_t high) {
        out[i] = static_cast<char>((elements[low] & 0x0fu) | (elements[high] & 0x0fu) << 4);
    });
}

void unpack(const GroupsDesc &groups, const char *__restrict in, unsigned char *__restrict elements) {
    for_each_byte(groups, [=](std::int64_t i, std::int64_t low, std::int64_t high) {
        const auto byte = static_cast<unsigned char>(in[i]);
        elements[low] = static_cast<unsigned char>(byte & 0x0fu);
        elements[high] = static_cast<unsigned char>(unsigned{byte} >> 4);
    });
}

/// Copies groups to or from their places in a record, whose strides may leave gaps. Most have a size that is known.
void copy_groups(std::int64_t n_groups, std::int64_t bytes, const char *from, std::int64_t from_stride, char *to,
                 std::int64_t to_stride) {
    const auto copy = [=](auto n) {
        for (std::int64_t g = 0; g < n_groups; g++) {
            std::memcpy(to + g * to_stride, from + g * from_stride, n);
        }
    };
    switch (bytes) {
    case 1: copy(std::integral_constant<std::size_t, 1>()); break;
    case 2: copy(std::integral_constant<std::size_t, 2>()); break;
    case 4: copy(std::integral_constant<std::size_t, 4>()); break;
    case 32: copy(std::integral_constant<std::size_t, 32>()); break;
    case 64: copy(std::integral_constant<std::size_t, 64>()); break;
    default: copy(static_cast<std::size_t>(bytes));
    }
}

/// Stores a head's groups, the first of which is group `first` of those that were worked on.
void store_head(const GroupsDesc &groups, std::int64_t first, const unsigned char *elements, const Numbers &numbers,
                char *record, char *scales) {
    const std::int64_t bytes = groups.scale_bytes(), n = groups.n_groups;
    copy_groups(n, bytes, numbers.words + first * bytes, bytes, scales + groups.scale_offset, groups.scale_stride);
    if (groups.has_zero()) {
        std::memcpy(record + groups.zero_offset, numbers.z + first, sizeof(float));
    }
    const unsigned char *const from = elements + first * groups.group;
    char *const to = record + groups.data_offset;
    if (!groups.is_4_bit()) {
        copy_groups(n, groups.group, reinterpret_cast<const char *>(from), groups.group, to, groups.data_stride);
        return;
    }
    for (std::int64_t g = 0; g < n; g++) {
        pack(groups, from + g * groups.group, to + g * groups.data_stride);
    }
}

/// Makes floats of the dense elements of some heads: q s, or (q - z) s.
void dequantise(const StageKernels &kernels, const GroupsDesc &groups, const unsigned char *elements,
                const Numbers &numbers, std::int64_t n_heads, std::int64_t head_dim, float *heads) {
    const bool is_unsigned = groups.element == Dtype::uint8;
    const Elements<float> floats = {heads, {1, groups.group, head_dim}};
    if (!is_unsigned) {
        widen(kernels, groups.element, {groups.group, groups.n_groups, n_heads},
              {reinterpret_cast<const char *>(elements), {1, groups.group, groups.n_grouped}}, floats);
    }
    for (std::int64_t i = 0; i < n_heads * groups.n_groups; i++) {
        const std::int64_t head = i / groups.n_groups, group = i - head * groups.n_groups;
        float *const to = heads + head * head_dim + group * groups.group;
        const unsigned char *const from = elements + i * groups.group;
        const float scale = numbers.s[i], zero = is_unsigned ? numbers.z[i] : 0.0f;
        if (is_unsigned) {
            for (std::int64_t e = 0; e < groups.group; e++) {
                to[e] = (static_cast<float>(from[e]) - zero) * scale;
            }
        } else {
            for (std::int64_t e = 0; e < groups.group; e++) {
                to[e] *= scale;
            }
        }
    }
}

/// Loads a head's groups, as store_head stores them. s and z become floats.
void load_head(const GroupsDesc &groups, std::int64_t first, const char *record, const char *scales,
               unsigned char *elements, const Numbers &numbers) {
    unsigned char *const to = elements + first * groups.group;
    const char *const from = record + groups.data_offset;
    if (groups.is_4_bit()) {
        for (std::int64_t g = 0; g < groups.n_groups; g++) {
            unpack(groups, from + g * groups.data_stride, to + g * groups.group);
        }
    } else {
        copy_groups(groups.n_groups, groups.group, from, groups.data_stride, reinterpret_cast<char *>(to),
                    groups.group);
    }
    for (std::int64_t g = 0; g < groups.n_groups; g++) {
        numbers.s[first + g] = load_group_scale(groups, scales + groups.scale_offset + g * groups.scale_stride);
        numbers.z[first + g] = groups.has_zero() ? read_word<float>(record + groups.zero_offset) : 8.0f;
    }
}

// ---- Steps ---------------------------------------------------------------------------------------------------------

unsigned char *elements_of(const Block &block) { return reinterpret_cast<unsigned char *>(block.work->spare); }

/// Calls function(i, record, scales) for head i of a block. A record is NULL where its token has no slot.
template <typename Function>
void for_each_record(const KvCall &call, const Block &block, bool are_written, const Function &function) {
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        const TokenRecords records =
            records_of(call, block.index, are_written, block.first(call) + token, block.head);
        for (std::int64_t head = 0; head < block.n_heads; head++) {
            function(token * block.n_heads + head, records.bytes + head * records.stride_head,
                     records.scales + head * records.scales_stride_head);
        }
    }
}

/// Makes the groups of a block and stores them, but for tokens without a slot.
void store_groups(const KvCall &call, const Block &block) {
    const std::int64_t head_dim = call.desc(block).head_dim;
    const GroupsDesc &groups = *call.stages(block).groups;
    const StageKernels &kernels = call.kernels();
    const Numbers numbers(block.work->numbers);
    const Extents extents = {groups.group, groups.n_groups, block.n_tokens * block.n_heads};
    const Elements<float> floats = {block.work->floats, {1, groups.group, head_dim}};
    make_numbers(kernels, groups, extents, floats, numbers);
    quantise(kernels, groups, extents, floats, numbers, elements_of(block));
    for_each_record(call, block, true, [&](std::int64_t i, char *record, char *scales) {
        if (record == nullptr) {
            return;
        }
        store_head(groups, i * groups.n_groups, elements_of(block), numbers, record, scales);
        if (groups.n_raw != 0) {
            const float *const raw = block.work->floats + i * head_dim + groups.n_grouped;
            narrow(kernels, Dtype::bf16, groups.n_raw, raw, record + groups.raw_offset);
        }
    });
}

/// Makes floats of a block's records; zeros of tokens without a slot.
void load_groups(const KvCall &call, const Block &block) {
    const std::int64_t head_dim = call.desc(block).head_dim;
    const GroupsDesc &groups = *call.stages(block).from_groups;
    const Numbers numbers(block.work->numbers);
    unsigned char *const elements = elements_of(block);
    for_each_record(call, block, false, [&](std::int64_t i, const char *record, const char *scales) {
        const std::int64_t first = i * groups.n_groups;
        float *const raw = block.work->floats + i * head_dim + groups.n_grouped;
        if (record == nullptr) {
            std::fill_n(elements + first * groups.group, groups.n_grouped, 0);
            std::fill_n(numbers.s + first, groups.n_groups, 0.0f);
            std::fill_n(numbers.z + first, groups.n_groups, 0.0f);
            std::fill_n(raw, groups.n_raw, 0.0f);
            return;
        }
        load_head(groups, first, record, scales, elements, numbers);
        if (groups.n_raw != 0) {
            widen(call.kernels(), Dtype::bf16, groups.n_raw, record + groups.raw_offset, raw);
        }
    });
    dequantise(call.kernels(), groups, elements, numbers, block.n_tokens * block.n_heads, head_dim, block.work->floats);
}

/// Whether records are those of ggml's q8_0, which most caches of llama.cpp have: groups of 32 integers with an f16
/// scale each. Kernels store and load such groups where they lie.
bool is_q8(const GroupsDesc &groups) { return groups.element == Dtype::int8 && groups.scale == GroupScale::f16; }

/// What elements of q8_0 are multiplied by, as halyard_store_groups_kernel counts.
enum Reciprocal : std::int32_t { of_scale = 1, of_largest = 2 };

/// The elements of a token's heads, which stand in the place of tokens, and their scales in units of 2 bytes.
struct Q8Places {
    StageOperand elements, scales;
    bool fits;  // whether all scales lie whole units apart

    Q8Places(const GroupsDesc &groups, const TokenRecords &records)
        : elements(Elements<const char>{records.bytes + groups.data_offset,
                                        {1, groups.data_stride, records.stride_head}},
                   1),
          scales(Elements<const char>{records.scales + groups.scale_offset,
                                      {0, groups.scale_stride / 2, records.scales_stride_head / 2}},
                 2, 1),
          fits(records.scales_stride_head % 2 == 0) {}
};

/// False where scales do not fit, or where a NaN, an infinity or a scale that overflows is among the groups of a block:
/// then store_groups has to write all of it again. Both give the same bits where this says true.
bool store_q8(const KvCall &call, const Block &block) {
    constexpr float overflow = 127.0f * 65504.0f;  // of the largest magnitude: from here on its scale overflows
    const GroupsDesc &groups = *call.stages(block).groups;
    bool is_finite = true;
    for (std::int64_t token = 0; token < block.n_tokens && is_finite; token++) {
        const TokenRecords records = records_of(call, block.index, true, block.first(call) + token, block.head);
        if (records.bytes == nullptr) {
            continue;
        }
        Q8Places places(groups, records);
        if (!places.fits) {
            return false;
        }
        const float *floats = block.work->floats + token * block.strides.token;
        StageCall parts({groups.group, groups.n_groups, block.n_heads}, places.elements, places.scales);
        parts.for_each_part([&](auto *elements, auto *scales) {
            const std::int64_t n_groups = groups.n_groups * parts.extents[2];
            std::int32_t largest = 0;
            halyard_buffer from, found;
            halyard_dimension dims[2];
            set_buffer(found, &largest, nullptr);
            set_buffer(from, floats, dims);
            set_dimension(dims[0], groups.group, 1);
            set_dimension(dims[1], n_groups, groups.group);
            call.kernels().store_groups[index_of(Dtype::int8)](groups.by_largest ? of_largest : of_scale,
                                                               groups.rounds_away ? 1 : 0, &from, elements, scales,
                                                               &found);
            is_finite = is_finite && std::bit_cast<float>(largest) < overflow;  // not of a NaN
            floats += n_groups * groups.group;
        });
    }
    return is_finite;
}

/// False where scales do not fit.
bool load_q8(const KvCall &call, const Block &block) {
    const GroupsDesc &groups = *call.stages(block).from_groups;
    for (std::int64_t token = 0; token < block.n_tokens; token++) {
        const TokenRecords records = records_of(call, block.index, false, block.first(call) + token, block.head);
        float *const floats = block.work->floats + token * block.strides.token;
        if (records.bytes == nullptr) {
            std::fill_n(floats, block.strides.token, 0.0f);
            continue;
        }
        Q8Places places(groups, records);
        if (!places.fits) {
            return false;
        }
        StageOperand to(Elements<float>{floats, {1, groups.group, block.strides.head}}, sizeof(float));
        StageCall({groups.group, groups.n_groups, block.n_heads}, places.elements, places.scales, to)
            .for_each_part(call.kernels().load_groups[index_of(Dtype::int8)]);
    }
    return true;
}

}  // namespace

void store_records(const KvCall &call, Block &block) noexcept {
    if (!is_q8(*call.stages(block).groups) || !store_q8(call, block)) {
        store_groups(call, block);
    }
}

void load_records(const KvCall &call, Block &block) noexcept {
    if (!is_q8(*call.stages(block).from_groups) || !load_q8(call, block)) {
        load_groups(call, block);
    }
}

// ---- Keys that move ------------------------------------------------------------------------------------------------

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
    return groups.is_power()                    ? all_finite(std::uint8_t{0xff})
           : groups.scale == GroupScale::f16 ? all_finite(std::uint16_t{0x7c00})
                                             : all_finite(std::uint32_t{0x7f800000});
}

}  // namespace

halyard_status check_moved_records(const KvCall &call, int index, halyard_error *error) noexcept {
    const KvTensor &stages = call.kv_plan().tensors[index];
    const GroupsDesc &groups = *stages.groups;
    const TokenNumbers &tokens = call.program.positions;
    Block all = {};
    all.index = index;
    all.n_tokens = tokens.count();
    all.n_heads = call.program.tensors[index].n_heads;
    halyard_status status = HALYARD_OK;
    for_each_record(call, all, false, [&](std::int64_t i, const char *record, const char *scales) {
        if (record == nullptr || status != HALYARD_OK) {
            return;
        }
        const char *const zero = record + groups.zero_offset;
        scales += groups.scale_offset;
        if (are_finite(groups, scales) && !(groups.has_zero() && !are_finite(groups, zero))) {
            return;
        }
        std::int64_t g = 0;
        float s = load_group_scale(groups, scales);
        const float z = groups.has_zero() ? read_word<float>(zero) : 0.0f;
        while (s - s == 0.0f && z - z == 0.0f && g < groups.n_groups - 1) {
            s = load_group_scale(groups, scales + ++g * groups.scale_stride);
        }
        const bool is_scale = s - s != 0.0f;
        const std::int64_t at = i / all.n_heads;
        const std::int64_t token = tokens.name_of(at / tokens.n_tokens, at % tokens.n_tokens).token;
        status = fail(error, HALYARD_ERROR_SCALE, "the record of ", stages.cache ? "slot " : "token ",
                      stages.cache ? call.kv.slots.of_token(call.arrays.slots, at) : token, ", head ",
                      i % all.n_heads, ", of tensor ", index, " has ", double(is_scale ? s : z), " as the ",
                      is_scale ? "scale" : "zero point", " of group ", g,
                      ", but it must be finite: no key was stored there");
    });
    return status;
}

}  // namespace halyard
