#include "walk/records.h"

#include "read/token_records.h"
#include "walk/choose.h"
#include "walk/stages.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace halyard {

namespace {

/// The numbers of some groups, and how they are stored.
struct Numbers {
    float *least, *most;  // of elements; most is the largest magnitude where that decides
    float *s, *r, *z;
    char *words;  // scales as they are stored

    explicit Numbers(float *memory)
        : least(memory), most(memory + max_groups), s(memory + 2 * max_groups), r(memory + 3 * max_groups),
          z(memory + 4 * max_groups), words(reinterpret_cast<char *>(memory + 5 * max_groups)) {}
};

/// Some heads of tokens that follow each other without a gap.
struct Heads {
    std::int64_t token, n_tokens, head, n_heads;  // counted from the block's first
    const float *data;

    std::int64_t count() const { return n_tokens * n_heads; }
};

/// Calls function(heads) for all heads of a block, as many as there is memory for at once.
template <typename Function>
void for_each_heads(const GroupsDesc &groups, const Block &block, std::int64_t head_dim, const float *data,
                    const Function &function) {
    const std::int64_t room = std::min(max_groups / groups.n_groups, record_room / groups.n_grouped);
    const bool is_dense = block.strides.token == block.n_heads * head_dim && block.n_heads <= room;
    const std::int64_t n_tokens = is_dense ? std::max<std::int64_t>(room / block.n_heads, 1) : 1;
    const std::int64_t n_heads = std::min(block.n_heads, room);
    for (std::int64_t token = 0; token < block.n_tokens; token += n_tokens) {
        for (std::int64_t head = 0; head < block.n_heads; head += n_heads) {
            function(Heads{token, std::min(n_tokens, block.n_tokens - token), head,
                           std::min(n_heads, block.n_heads - head),
                           data + token * block.strides.token + head * block.strides.head});
        }
    }
}

// ---- Scales --------------------------------------------------------------------------------------------------------

/// The first element that is as large as the largest, of which the sign alone is not known. 0 is +0.
float first_of_equals(const float *group, std::int64_t n, float magnitude) {
    const float *const found = std::find_if(group, group + n, [&](float v) { return std::fabs(v) == magnitude; });
    return magnitude == 0.0f || found == group + n ? 0.0f : *found;
}

/// Finds s of each group, unrounded but finite.
void find_scales(const StageKernels &kernels, const GroupsDesc &groups, const Extents &extents,
                 const Elements<const float> &heads, const Numbers &numbers) {
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
                  const Elements<const float> &heads, const Numbers &numbers) {
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

Quantisation quantisation_of(const GroupsDesc &groups) {
    using Mode = Quantisation::Mode;
    if (groups.element == Dtype::e4m3) {
        return {Dtype::e4m3, Mode::even, 0.0f, 0.0f};
    }
    if (groups.rule == GroupRule::signed_largest) {
        return {Dtype::int8, Mode::offset, 0.0f, 15.0f};
    }
    return {Dtype::int8, groups.rounds_away ? Mode::away : Mode::even, groups.has_zero() ? 0.0f : -128.0f,
            groups.greatest()};
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

// ---- Records -------------------------------------------------------------------------------------------------------

/// Whether store_q8 and load_q8 know such records.
bool is_q8(const GroupsDesc &groups) { return groups.element == Dtype::int8 && groups.scale == GroupScale::f16; }

/// The heads' records of one token, from the first head on.
TokenRecords from_head(const TokenRecords &records, std::int64_t head) {
    if (records.bytes == nullptr) {
        return records;
    }
    return {records.bytes + head * records.stride_head, records.stride_head,
            records.scales + head * records.scales_stride_head, records.scales_stride_head};
}

/// Where the elements of a token's heads lie, and where their scales do, in units of 2 bytes.
template <typename T>
struct Q8Places {
    Elements<T> elements, scales;
    bool fits;  // whether all scales lie whole units apart

    Q8Places(const GroupsDesc &groups, const TokenRecords &records)
        : elements{records.bytes + groups.data_offset, {1, groups.data_stride, records.stride_head}},
          scales{records.scales + groups.scale_offset, {0, groups.scale_stride / 2, records.scales_stride_head / 2}},
          fits(records.scales_stride_head % 2 == 0) {}
};

/// One of the tokens of some heads.
Heads of_token(const Heads &part, std::int64_t token, std::int64_t head_dim) {
    return {part.token + token, 1, part.head, part.n_heads, part.data + token * part.n_heads * head_dim};
}

/// Makes groups of some heads and stores them; those of tokens without a slot are not stored.
void store_heads(const Run &run, int index, const Heads &part, std::int64_t first_token, std::int64_t first_head,
                 const RecordMemory &memory) {
    const TensorDesc &desc = run.plan->tensors[index];
    const GroupsDesc &groups = *desc.groups;
    const StageKernels &kernels = plan_of(run).stage_kernels;
    const Numbers numbers(memory.numbers);
    const Extents extents = {groups.group, groups.n_groups, part.count()};
    const Elements<const float> elements = {part.data, {1, groups.group, desc.head_dim}};
    make_numbers(kernels, groups, extents, elements, numbers);
    quantise(kernels, quantisation_of(groups), extents, elements, numbers.r, numbers.z, memory.elements);
    for (std::int64_t token = 0; token < part.n_tokens; token++) {
        const TokenRecords records = from_head(written_records(run, index, first_token + token), first_head);
        for (std::int64_t head = 0; records.bytes != nullptr && head < part.n_heads; head++) {
            const std::int64_t at = token * part.n_heads + head;
            char *const record = records.bytes + head * records.stride_head;
            store_head(groups, at * groups.n_groups, memory.elements, numbers, record,
                       records.scales + head * records.scales_stride_head);
            if (groups.n_raw != 0) {
                static constexpr float one = 1.0f;
                narrow(kernels, Dtype::bf16, {groups.n_raw, 1, 1},
                       {part.data + at * desc.head_dim + groups.n_grouped, {1, 0, 0}}, {&one, {0, 0, 0}},
                       {record + groups.raw_offset, {1, 0, 0}});
            }
        }
    }
}

/// The same for groups of q8_0, token by token. Those that hold what is not finite are stored as any others.
void store_q8_heads(const Run &run, int index, const Heads &part, std::int64_t first_token, std::int64_t first_head,
                    const RecordMemory &memory) {
    const TensorDesc &desc = run.plan->tensors[index];
    const GroupsDesc &groups = *desc.groups;
    const Q8 q8 = {groups.by_largest ? Q8::of_largest : Q8::of_scale, groups.rounds_away};
    for (std::int64_t token = 0; token < part.n_tokens; token++) {
        const Heads heads = of_token(part, token, desc.head_dim);
        const TokenRecords records = from_head(written_records(run, index, first_token + token), first_head);
        if (records.bytes == nullptr) {
            continue;
        }
        const Q8Places<char> places(groups, records);
        if (!places.fits || !store_q8(plan_of(run).stage_kernels, q8, {groups.group, groups.n_groups, part.n_heads},
                                      heads.data, places.elements, places.scales)) {
            store_heads(run, index, heads, first_token + token, first_head, memory);
        }
    }
}

/// Makes floats of the records of some heads; zeros of tokens without a slot.
void load_heads(const Run &run, int index, const Heads &part, std::int64_t first_token, std::int64_t first_head,
                float *floats, const RecordMemory &memory) {
    const TensorDesc &desc = run.plan->tensors[index];
    const GroupsDesc &groups = *desc.from_groups;
    const StageKernels &kernels = plan_of(run).stage_kernels;
    const Numbers numbers(memory.numbers);
    for (std::int64_t token = 0; token < part.n_tokens; token++) {
        const TokenRecords records = from_head(read_records(run, index, first_token + token), first_head);
        for (std::int64_t head = 0; head < part.n_heads; head++) {
            const std::int64_t at = token * part.n_heads + head, first = at * groups.n_groups;
            if (records.bytes == nullptr) {
                std::fill_n(memory.elements + first * groups.group, groups.n_grouped, 0);
                std::fill_n(numbers.s + first, groups.n_groups, 0.0f);
                std::fill_n(numbers.z + first, groups.n_groups, 0.0f);
                std::fill_n(floats + at * desc.head_dim + groups.n_grouped, groups.n_raw, 0.0f);
                continue;
            }
            const char *const record = records.bytes + head * records.stride_head;
            load_head(groups, first, record, records.scales + head * records.scales_stride_head, memory.elements,
                      numbers);
            if (groups.n_raw != 0) {
                widen(kernels, Dtype::bf16, {groups.n_raw, 1, 1}, {record + groups.raw_offset, {1, 0, 0}},
                      {floats + at * desc.head_dim + groups.n_grouped, {1, 0, 0}});
            }
        }
    }
    dequantise(kernels, groups, memory.elements, numbers, part.count(), desc.head_dim, floats);
}

/// The same for groups of q8_0, token by token.
void load_q8_heads(const Run &run, int index, const Heads &part, std::int64_t first_token, std::int64_t first_head,
                   float *floats, const RecordMemory &memory) {
    const TensorDesc &desc = run.plan->tensors[index];
    const GroupsDesc &groups = *desc.from_groups;
    for (std::int64_t token = 0; token < part.n_tokens; token++) {
        float *const to = floats + token * part.n_heads * desc.head_dim;
        const TokenRecords records = from_head(read_records(run, index, first_token + token), first_head);
        if (records.bytes == nullptr) {
            std::fill_n(to, part.n_heads * desc.head_dim, 0.0f);
            continue;
        }
        const Q8Places<const char> places(groups, records);
        if (places.fits) {
            load_q8(plan_of(run).stage_kernels, {groups.group, groups.n_groups, part.n_heads}, places.elements,
                    places.scales, to);
        } else {
            load_heads(run, index, of_token(part, token, desc.head_dim), first_token + token, first_head, to, memory);
        }
    }
}

}  // namespace

void store_records(const Run &run, int index, const Stretch &stretch, const Block &block, const float *heads,
                   const RecordMemory &memory) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const auto store = is_q8(*desc.groups) ? store_q8_heads : store_heads;
    for_each_heads(*desc.groups, block, desc.head_dim, heads, [&](const Heads &part) {
        store(run, index, part, stretch.first + block.token + part.token, stretch.first_head + block.head + part.head,
              memory);
    });
}

void load_records(const Run &run, int index, const Stretch &stretch, const Block &block, float *heads,
                  const RecordMemory &memory) noexcept {
    const TensorDesc &desc = run.plan->tensors[index];
    const auto load = is_q8(*desc.from_groups) ? load_q8_heads : load_heads;
    for_each_heads(*desc.from_groups, block, desc.head_dim, heads, [&](const Heads &part) {
        load(run, index, part, stretch.first + block.token + part.token, stretch.first_head + block.head + part.head,
             heads + (part.data - heads), memory);
    });
}

}  // namespace halyard
