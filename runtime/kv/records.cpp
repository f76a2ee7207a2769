#include "kv/groups.h"

#include "kv/block.h"
#include "kv/convert.h"
#include "kv/reduce.h"
#include "kv/scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace halyard {

namespace {

// ---- Where records lie ---------------------------------------------------------------------------------------------

/// The records of some heads of one token: that of head h is `bytes` + h * stride_head.
struct TokenRecords {
    char *bytes;  // NULL where the token has no slot
    std::int64_t stride_head;
    char *scales;  // of head 0, in the record or apart from it
    std::int64_t scales_stride_head;
};

TokenRecords records_at(const KvCall &call, int index, Array scales_array, char *bytes, std::int64_t stride_head,
                        std::int64_t block, std::int64_t token, std::int64_t head) {
    bytes += head * stride_head;
    char *const apart = call.arrays.of_tensor[index][static_cast<int>(scales_array)];
    if (apart == nullptr) {
        return {bytes, stride_head, bytes, stride_head};
    }
    const std::int64_t *const strides = call.kv.tensors[index].arrays[static_cast<int>(scales_array)].elements.strides;
    return {bytes, stride_head, apart + block * strides[0] + token * strides[1] + head * strides[2], strides[2]};
}

/// Those of x or y, which is no cache.
TokenRecords records_of_view(const KvCall &call, int index, Array scales_array, const Side &side, const void *data,
                             std::int64_t batch, std::int64_t token, std::int64_t head) {
    char *const bytes =
        static_cast<char *>(const_cast<void *>(data)) + batch * side.batch + token * side.token;
    return records_at(call, index, scales_array, bytes, side.head, batch, token, head);
}

/// The records that are written of a token, from a head on. at: the token, counted through all batch rows.
TokenRecords written_records(const KvCall &call, int index, std::int64_t at, std::int64_t head) {
    const auto &cache = call.kv_plan().tensors[index].cache;
    if (!cache) {
        const std::int64_t n = call.program.positions.n_tokens;
        return records_of_view(call, index, Array::group_scales, call.program.tensors[index].y, call.given.y[index],
                               at / n, at % n, head);
    }
    const std::int64_t slot = call.kv.slots.of_token(call.arrays.slots, at);
    if (slot < 0) {
        return {nullptr, 0, nullptr, 0};
    }
    char *const bytes = call.arrays.of_tensor[index][static_cast<int>(Array::cache)] + cache->offset_of(slot);
    return records_at(call, index, Array::group_scales, bytes, cache->stride_head, slot / cache->block_size,
                      slot % cache->block_size, head);
}

/// Those that are read.
TokenRecords read_records(const KvCall &call, int index, std::int64_t at, std::int64_t head) {
    if (call.kv.rerotates && call.kv_plan().tensors[index].cache) {
        return written_records(call, index, at, head);
    }
    const std::int64_t n = call.program.positions.n_tokens;
    const ProgramTensor &tensor = call.program.tensors[index];
    return records_of_view(call, index, call.kv.rerotates ? Array::group_scales : Array::from_group_scales, tensor.in(),
                           tensor.in_place ? call.given.y[index] : call.given.x[index], at / n, at % n, head);
}

/// How many groups are worked on at once. Their elements have room in a block, and a head has at most 64 groups.
constexpr std::int64_t max_groups = 256, numbers_of_groups = 6;
static_assert(block_heads >= numbers_of_groups * max_groups);

/// The scale of a group, as stored.
float load_group_scale(const GroupsDesc &groups, const char *at) {
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

/// The numbers of some groups, and how they are stored.
struct Numbers {
    float *least, *most;  // of elements; most is the largest magnitude where that decides
    float *s, *r, *z;
    char *words;  // scales as they are stored

    explicit Numbers(float *memory)
        : least(memory), most(memory + max_groups), s(memory + 2 * max_groups), r(memory + 3 * max_groups),
          z(memory + 4 * max_groups), words(reinterpret_cast<char *>(memory + 5 * max_groups)) {}
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
    static constexpr float one = 1.0f;
    narrow(kernels, Dtype::f16, {n, 1, 1}, {numbers, {1, 0, 0}}, {&one, {0, 0, 0}}, {words, {1, 0, 0}});
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
    StageCall<4> call(extents, x, r, z, y);
    call.join(1, 2);
    call.for_each_part([&](halyard_buffer *(&buffers)[4]) {
        kernels.quantise[index_of(dtype)](mode, low, high, buffers[0], buffers[1], buffers[2], buffers[3]);
    });
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
template <std::int64_t n>
void copy_groups_of(std::int64_t n_groups, const char *from, std::int64_t from_stride, char *to,
                    std::int64_t to_stride) {
    for (std::int64_t g = 0; g < n_groups; g++) {
        std::memcpy(to + g * to_stride, from + g * from_stride, n);
    }
}
void copy_groups(std::int64_t n_groups, std::int64_t bytes, const char *from, std::int64_t from_stride, char *to,
                 std::int64_t to_stride) {
    switch (bytes) {
    case 1: copy_groups_of<1>(n_groups, from, from_stride, to, to_stride); return;
    case 2: copy_groups_of<2>(n_groups, from, from_stride, to, to_stride); return;
    case 4: copy_groups_of<4>(n_groups, from, from_stride, to, to_stride); return;
    case 32: copy_groups_of<32>(n_groups, from, from_stride, to, to_stride); return;
    case 64: copy_groups_of<64>(n_groups, from, from_stride, to, to_stride); return;
    default:
        for (std::int64_t g = 0; g < n_groups; g++) {
            std::memcpy(to + g * to_stride, from + g * from_stride, static_cast<std::size_t>(bytes));
        }
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

/// Some heads of tokens that follow each other without a gap.
struct Heads {
    std::int64_t first, n_tokens;  // counted through all batch rows
    std::int64_t head, n_heads;    // counted through the tensor
    float *floats;

    std::int64_t count() const { return n_tokens * n_heads; }
    /// One of the tokens.
    Heads of_token(std::int64_t token, std::int64_t head_dim) const {
        return {first + token, 1, head, n_heads, floats + token * n_heads * head_dim};
    }
};

/// Calls function(heads) for all heads of a block, as many as there is memory for at once.
template <typename Function>
void for_each_heads(const KvCall &call, const Block &block, const GroupsDesc &groups, const Function &function) {
    const std::int64_t room = std::min(max_groups / groups.n_groups, block_floats / groups.n_grouped);
    const std::int64_t n_heads = std::min(block.n_heads, room);
    const std::int64_t n_tokens = block.n_heads <= room ? std::max<std::int64_t>(room / block.n_heads, 1) : 1;
    for (std::int64_t token = 0; token < block.n_tokens; token += n_tokens) {
        for (std::int64_t head = 0; head < block.n_heads; head += n_heads) {
            function(Heads{block.first(call) + token, std::min(n_tokens, block.n_tokens - token), block.head + head,
                           std::min(n_heads, block.n_heads - head),
                           block.work->floats + token * block.strides.token + head * block.strides.head});
        }
    }
}

unsigned char *elements_of(Block &block) { return reinterpret_cast<unsigned char *>(block.work->spare); }

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

/// Makes groups of some heads and stores them; those of tokens without a slot are not stored.
void store_heads(const KvCall &call, Block &block, const Heads &heads) {
    const TensorPlan &desc = call.desc(block);
    const GroupsDesc &groups = *call.stages(block).groups;
    const StageKernels &kernels = call.kernels();
    const Numbers numbers(block.work->numbers);
    const Extents extents = {groups.group, groups.n_groups, heads.count()};
    const Elements<float> floats = {heads.floats, {1, groups.group, desc.head_dim}};
    make_numbers(kernels, groups, extents, floats, numbers);
    quantise(kernels, groups, extents, floats, numbers, elements_of(block));
    for (std::int64_t token = 0; token < heads.n_tokens; token++) {
        const TokenRecords records = written_records(call, block.index, heads.first + token, heads.head);
        for (std::int64_t head = 0; records.bytes != nullptr && head < heads.n_heads; head++) {
            const std::int64_t at = token * heads.n_heads + head;
            char *const record = records.bytes + head * records.stride_head;
            store_head(groups, at * groups.n_groups, elements_of(block), numbers, record,
                       records.scales + head * records.scales_stride_head);
            if (groups.n_raw != 0) {
                static constexpr float one = 1.0f;
                narrow(kernels, Dtype::bf16, {groups.n_raw, 1, 1},
                       {heads.floats + at * desc.head_dim + groups.n_grouped, {1, 0, 0}}, {&one, {0, 0, 0}},
                       {record + groups.raw_offset, {1, 0, 0}});
            }
        }
    }
}

/// Stores the groups of some heads of one token by the kernel of q8_0. False where a NaN, an infinity or a scale that
/// overflows is among them: then everything has to be written again, by store_heads. Both give the same bits where this
/// says true.
bool store_q8(const KvCall &call, const GroupsDesc &groups, const Heads &heads, Q8Places &places) {
    constexpr float overflow = 127.0f * 65504.0f;  // of the largest magnitude: from here on its scale overflows
    StageOperand from(Elements<const float>{heads.floats, {1, groups.group, 0}}, sizeof(float));
    StageCall<2> parts({groups.group, groups.n_groups, heads.n_heads}, places.elements, places.scales);
    float most = 0.0f;
    bool is_finite = true;
    parts.for_each_part([&](halyard_buffer *(&buffers)[2]) {
        std::int32_t largest = 0;
        halyard_buffer found;
        set_buffer(found, &largest, nullptr);
        set_buffer(from.buffer, from.data, from.dims);
        set_dimension(from.dims[0], groups.group, 1);
        set_dimension(from.dims[1], groups.n_groups * parts.extents[2], groups.group);
        call.kernels().store_groups[index_of(Dtype::int8)](groups.by_largest ? of_largest : of_scale,
                                                           groups.rounds_away ? 1 : 0, &from.buffer, buffers[0],
                                                           buffers[1], &found);
        most = std::bit_cast<float>(largest);
        is_finite = is_finite && most < overflow;  // not of a NaN
        from.data = static_cast<const float *>(from.data) + groups.n_groups * groups.group * parts.extents[2];
    });
    return is_finite;
}

/// Makes floats of the records of some heads; zeros of tokens without a slot.
void load_heads(const KvCall &call, Block &block, const Heads &heads) {
    const TensorPlan &desc = call.desc(block);
    const GroupsDesc &groups = *call.stages(block).from_groups;
    const StageKernels &kernels = call.kernels();
    const Numbers numbers(block.work->numbers);
    unsigned char *const elements = elements_of(block);
    for (std::int64_t token = 0; token < heads.n_tokens; token++) {
        const TokenRecords records = read_records(call, block.index, heads.first + token, heads.head);
        for (std::int64_t head = 0; head < heads.n_heads; head++) {
            const std::int64_t at = token * heads.n_heads + head, first = at * groups.n_groups;
            float *const raw = heads.floats + at * desc.head_dim + groups.n_grouped;
            if (records.bytes == nullptr) {
                std::fill_n(elements + first * groups.group, groups.n_grouped, 0);
                std::fill_n(numbers.s + first, groups.n_groups, 0.0f);
                std::fill_n(numbers.z + first, groups.n_groups, 0.0f);
                std::fill_n(raw, groups.n_raw, 0.0f);
                continue;
            }
            const char *const record = records.bytes + head * records.stride_head;
            load_head(groups, first, record, records.scales + head * records.scales_stride_head, elements, numbers);
            if (groups.n_raw != 0) {
                widen(kernels, Dtype::bf16, {groups.n_raw, 1, 1}, {record + groups.raw_offset, {1, 0, 0}},
                      {raw, {1, 0, 0}});
            }
        }
    }
    dequantise(kernels, groups, elements, numbers, heads.count(), desc.head_dim, heads.floats);
}

void load_q8(const KvCall &call, const GroupsDesc &groups, const Heads &heads, Q8Places &places) {
    StageOperand to(Elements<float>{heads.floats, {1, groups.group, groups.group * groups.n_groups}}, sizeof(float));
    StageCall<3> parts({groups.group, groups.n_groups, heads.n_heads}, places.elements, places.scales, to);
    parts.for_each_part([&](halyard_buffer *(&buffers)[3]) {
        call.kernels().load_groups[index_of(Dtype::int8)](buffers[0], buffers[1], buffers[2]);
    });
}

}  // namespace

void store_records(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).groups;
    const std::int64_t head_dim = call.desc(block).head_dim;
    for_each_heads(call, block, groups, [&](const Heads &heads) {
        if (!is_q8(groups)) {
            store_heads(call, block, heads);
            return;
        }
        for (std::int64_t token = 0; token < heads.n_tokens; token++) {
            const Heads its = heads.of_token(token, head_dim);
            const TokenRecords records = written_records(call, block.index, its.first, its.head);
            if (records.bytes == nullptr) {
                continue;
            }
            Q8Places places(groups, records);
            if (!places.fits || !store_q8(call, groups, its, places)) {
                store_heads(call, block, its);
            }
        }
    });
}

void load_records(const KvCall &call, Block &block) noexcept {
    const GroupsDesc &groups = *call.stages(block).from_groups;
    const std::int64_t head_dim = call.desc(block).head_dim;
    for_each_heads(call, block, groups, [&](const Heads &heads) {
        if (!is_q8(groups)) {
            load_heads(call, block, heads);
            return;
        }
        for (std::int64_t token = 0; token < heads.n_tokens; token++) {
            const Heads its = heads.of_token(token, head_dim);
            const TokenRecords records = read_records(call, block.index, its.first, its.head);
            if (records.bytes == nullptr) {
                std::fill_n(its.floats, its.n_heads * head_dim, 0.0f);
                continue;
            }
            Q8Places places(groups, records);
            if (places.fits) {
                load_q8(call, groups, its, places);
            } else {
                load_heads(call, block, its);
            }
        }
    });
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
    switch (groups.scale) {
    case GroupScale::f32: return all_finite(std::uint32_t{0x7f800000});
    case GroupScale::f16: return all_finite(std::uint16_t{0x7c00});
    case GroupScale::power_up:
    case GroupScale::power_ocp: break;
    }
    return all_finite(std::uint8_t{0xff});
}

}  // namespace

halyard_status check_moved_records(const KvCall &call, int index, halyard_error *error) noexcept {
    const KvTensor &stages = call.kv_plan().tensors[index];
    const GroupsDesc &groups = *stages.groups;
    const TokenNumbers &tokens = call.program.positions;
    for (std::int64_t at = 0; at < tokens.count(); at++) {
        const TokenRecords records = read_records(call, index, at, 0);
        for (std::int64_t head = 0; records.bytes != nullptr && head < call.program.tensors[index].n_heads; head++) {
            const char *const scales = records.scales + head * records.scales_stride_head + groups.scale_offset;
            const char *const zero = records.bytes + head * records.stride_head + groups.zero_offset;
            if (are_finite(groups, scales) && !(groups.has_zero() && !are_finite(groups, zero))) {
                continue;
            }
            std::int64_t g = 0;
            float s = load_group_scale(groups, scales);
            const float z = groups.has_zero() ? read_word<float>(zero) : 0.0f;
            while (s - s == 0.0f && z - z == 0.0f && g < groups.n_groups - 1) {
                s = load_group_scale(groups, scales + ++g * groups.scale_stride);
            }
            const bool is_scale = s - s != 0.0f;
            const std::int64_t token = tokens.name_of(at / tokens.n_tokens, at % tokens.n_tokens).token;
            return fail(error, HALYARD_ERROR_SCALE, "the record of ", stages.cache ? "slot " : "token ",
                        stages.cache ? call.kv.slots.of_token(call.arrays.slots, at) : token, ", head ", head,
                        ", of tensor ", index, " has ", double(is_scale ? s : z), " as the ",
                        is_scale ? "scale" : "zero point", " of group ", g,
                        ", but it must be finite: no key was stored there");
        }
    }
    return HALYARD_OK;
}

}  // namespace halyard
