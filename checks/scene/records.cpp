// Records of groups: which a scene has, and what is right of those that its run has left.
#include "checks/require.h"
#include "checks/scene/scene.h"

#include <cmath>
#include <cstring>
#include <sstream>

namespace scenes {

namespace {

constexpr std::int64_t quad = 16;  // elements that a device stores at once

std::int64_t round_up(std::int64_t n, std::int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

// ---- What is drawn -------------------------------------------------------------------------------------------------

void Scene::draw_records(int i) {
    halyard_tensor_desc &tensor = call.tensors[i];
    const int kind = level(of_groups, i == 0), from = level(of_from_groups, i == 0);
    if (kind != 0) {
        draw_groups(call.groups[i], tensor.head_dim, kind, i == 0 ? choice_.preset : 0);
        tensor.groups = &call.groups[i];
        tensor.out_dtype = draw_.one_of({0, static_cast<int>(HALYARD_UINT8)});
        if (call.plan.rerotates != 0) {
            tensor.dtype = draw_.one_of({0, static_cast<int>(HALYARD_UINT8)});
        }
    }
    if (from != 0) {
        draw_groups(call.from_groups[i], tensor.head_dim, static_cast<int>(draw_.in(1, 4)));
        tensor.from_groups = &call.from_groups[i];
        tensor.dtype = draw_.one_of({0, static_cast<int>(HALYARD_UINT8)});
        if (kind == 0 && tensor.out_dtype == 0) {
            tensor.out_dtype = static_cast<std::int32_t>(draw_.in(HALYARD_F32, HALYARD_INT8));
        }
    }
}

/// A preset that has such heads, any or this one, or fields for a rule. On a device: such as its kernel stores.
void Scene::draw_groups(halyard_groups_desc &groups, std::int64_t head_dim, int kind, std::int32_t given) {
    const bool there = choice_.on_device;
    if (kind == 1) {
        std::vector<std::int32_t> fitting;
        for (std::int32_t preset = HALYARD_GROUPS_GGML_Q8_0; preset <= HALYARD_GROUPS_MX; preset++) {
            const bool is_stored = preset >= HALYARD_GROUPS_MLA_V32 || preset == HALYARD_GROUPS_VLLM_INT8 ||
                                   preset == HALYARD_GROUPS_VLLM_FP8;
            const std::int64_t divisor = preset <= HALYARD_GROUPS_GGML_Q4_0 || preset == HALYARD_GROUPS_MX ? 32
                                         : preset == HALYARD_GROUPS_OPENVINO_U4                            ? 2
                                                                                                           : 1;
            const std::int64_t only = preset == HALYARD_GROUPS_MLA_V32   ? 576
                                      : preset == HALYARD_GROUPS_MLA_V4  ? 512
                                      : preset == HALYARD_GROUPS_MLA_V41 ? 512
                                                                         : head_dim;
            if (head_dim % divisor == 0 && head_dim == only && (!there || is_stored) &&
                (given == 0 || preset == given)) {
                fitting.push_back(preset);
            }
        }
        groups.preset = fitting[static_cast<std::size_t>(draw_.in(0, static_cast<std::int64_t>(fitting.size()) - 1))];
        return;
    }
    static constexpr std::int32_t of_largest[] = {HALYARD_ELEMENT_INT8, HALYARD_ELEMENT_INT4, HALYARD_ELEMENT_E4M3,
                                                  HALYARD_ELEMENT_E5M2};
    static constexpr std::int32_t of_range[] = {HALYARD_ELEMENT_UINT8, HALYARD_ELEMENT_UINT4};
    groups.rule = kind - 1;
    const bool is_largest = groups.rule == HALYARD_RULE_LARGEST, is_range = groups.rule == HALYARD_RULE_RANGE;
    groups.element = there        ? of_largest[2 * draw_.in(0, 1)]
                     : is_largest ? draw_.one_of(of_largest)
                     : is_range   ? draw_.one_of(of_range)
                                  : HALYARD_ELEMENT_UINT4;
    const bool is_float = groups.element >= HALYARD_ELEMENT_E4M3;
    const bool is_4_bit = groups.element == HALYARD_ELEMENT_INT4 || groups.element == HALYARD_ELEMENT_UINT4;
    groups.packing =
        is_4_bit ? static_cast<std::int32_t>(draw_.in(HALYARD_PACKING_LOW_FIRST, HALYARD_PACKING_HALVES)) : 0;
    groups.scale_dtype =
        static_cast<std::int32_t>(draw_.in(HALYARD_GROUP_SCALE_F32, !is_largest ? HALYARD_GROUP_SCALE_BF16
                                                                    : is_float  ? HALYARD_GROUP_SCALE_E8M0_OCP
                                                                                : HALYARD_GROUP_SCALE_E8M0_UP));
    if (there && groups.scale_dtype < HALYARD_GROUP_SCALE_E8M0_UP) {
        groups.scale_dtype = HALYARD_GROUP_SCALE_F32;
    }
    const bool is_e8m0 = groups.scale_dtype >= HALYARD_GROUP_SCALE_E8M0_UP;
    static constexpr float floors[] = {0.0f, 0x1p-126f, 0x1p-64f, 1e-4f, 0.05f, 1.0f};
    const bool has_floor = is_range || (is_largest && groups.scale_dtype != HALYARD_GROUP_SCALE_E8M0_OCP);
    groups.floor = has_floor ? floors[draw_.in(there ? 2 : is_range ? 1 : 0, 5)] : 0.0f;
    groups.reciprocal =
        is_e8m0 ? 0
                : static_cast<std::int32_t>(draw_.in(HALYARD_RECIPROCAL_OF_STORED, is_largest && groups.floor == 0
                                                                                       ? HALYARD_RECIPROCAL_OF_LARGEST
                                                                                       : HALYARD_RECIPROCAL_OF_SCALE));
    groups.rounding = is_largest && !is_float ? static_cast<std::int32_t>(draw_.in(there ? 1 : 0, 1)) : 0;
    draw_shape(groups, head_dim, there ? quad : is_4_bit ? 2 : 1);
    draw_places(groups, head_dim);
}

/// How many elements are in groups, and in each: a multiple of `least`.
void Scene::draw_shape(halyard_groups_desc &groups, std::int64_t head_dim, std::int64_t least) {
    const std::int64_t size = std::int64_t{16} << draw_.in(0, 3);
    const bool is_of_size = size <= head_dim && !draw_.one_in(3);
    const std::int64_t unit = is_of_size ? size : least, most = head_dim / unit;
    groups.n_grouped = unit * (draw_.one_in(2) ? most : draw_.in(1, most));
    groups.group = is_of_size ? size : groups.n_grouped;
    groups.raw_dtype = groups.n_grouped < head_dim ? static_cast<std::int32_t>(draw_.in(HALYARD_F32, HALYARD_BF16)) : 0;
}

/// Places in any order, groups together or apart, with gaps or without. What may be left out is, sometimes. A device
/// stores groups at any byte, or quads of groups that follow each other, with scales apart or raw elements then.
void Scene::draw_places(halyard_groups_desc &groups, std::int64_t head_dim) {
    struct Array {
        std::int64_t *offset, *stride, bytes;
    };
    const oracle::Record record = oracle::record_of(groups, head_dim);
    const std::int64_t n_groups = record.n_groups(), n_scale = record.scale_bytes();
    const bool has_gaps = draw_.one_in(2), has_zero = groups.rule == HALYARD_RULE_RANGE;
    const auto gap = [&] { return has_gaps && draw_.one_in(3) ? draw_.in(1, 5) : 0; };
    groups.scales_apart = !has_zero && draw_.one_in(3) ? 1 : 0;
    const bool by_quads = choice_.on_device && (groups.scales_apart != 0 || groups.raw_dtype != 0 || draw_.one_in(2));
    const std::int64_t step = by_quads ? quad : 1;
    std::vector<Array> beside, alone;
    (by_quads ? alone : beside).push_back({&groups.data_offset, &groups.data_stride, record.data_bytes()});
    if (groups.scales_apart != 0) {
        groups.scale_offset = gap();
        groups.scale_stride = n_scale + gap();
    } else {
        (!by_quads && draw_.one_in(2) ? beside : alone)
            .push_back({&groups.scale_offset, &groups.scale_stride, n_scale});
    }
    if (has_zero) {
        (draw_.one_in(2) ? beside : alone).push_back({&groups.zero_offset, &groups.zero_stride, n_scale});
    }
    std::int64_t end = gap();
    const auto put_beside = [&] {
        const std::int64_t first = end;
        for (std::size_t n = beside.size(), at = static_cast<std::size_t>(draw_.in(0, 2)), k = 0; k < n; k++) {
            *beside[(at + k) % n].offset = end;
            end += beside[(at + k) % n].bytes + gap();
        }
        for (const Array &array : beside) {
            *array.stride = end - first;
        }
        end = first + n_groups * (end - first);
    };
    const std::int64_t raw_bytes =
        groups.raw_dtype != 0 ? (head_dim - groups.n_grouped) * bytes_of(groups.raw_dtype) : 0;
    const std::int64_t n = static_cast<std::int64_t>(alone.size()) + 2, first = draw_.in(0, n - 1);
    for (std::int64_t k = 0; k < n; k++) {
        const std::int64_t which = (first + k) % n;
        if (which == 0) {
            put_beside();
        } else if (which == 1) {
            end = round_up(end, step);
            groups.raw_offset = raw_bytes != 0 ? end : 0;
            end += raw_bytes;
        } else {
            const Array &array = alone[static_cast<std::size_t>(which - 2)];
            const bool is_data = array.offset == &groups.data_offset;
            end = is_data ? round_up(end, step) : end;
            *array.offset = end;
            *array.stride = array.bytes + (is_data ? 0 : gap());
            end += n_groups * *array.stride;
        }
        end += gap();
    }
    groups.record_bytes = draw_.one_in(2) ? 0 : end;
    for (std::int64_t *const stride : {&groups.data_stride, &groups.zero_stride}) {
        *stride = n_groups == 1 && draw_.one_in(2) ? 0 : *stride;
    }
    groups.n_grouped = groups.n_grouped == head_dim && draw_.one_in(2) ? 0 : groups.n_grouped;
    groups.group = n_groups == 1 && draw_.one_in(2) ? 0 : groups.group;
}

/// Strides of scales that lie apart: dense without any, by token or by head, or behind each block's records.
void Scene::draw_group_scales(int i, bool is_input) {
    if (call.groups_of(i, is_input) == nullptr || (is_input && call.plan.rerotates != 0) || draw_.one_in(3)) {
        return;
    }
    halyard_groups_desc &groups = is_input ? call.from_groups[i] : call.groups[i];
    const oracle::Record record = call.record_of(i, is_input);
    if (!record.scales_apart) {
        return;
    }
    halyard_cache_desc *const cache = is_input || call.tensors[i].cache == nullptr ? nullptr : &call.caches[i];
    const std::int64_t bs = cache == nullptr         ? std::max<std::int64_t>(n_tokens_, 1)
                            : cache->block_size != 0 ? cache->block_size
                                                     : cache->n_slots;
    const std::int64_t heads = std::max<std::int64_t>(n_heads_[i], 1);
    const std::int64_t head =
        record.scale_offset + (record.n_groups() - 1) * record.scale_stride + record.scale_bytes() + draw_.in(0, 3);
    const bool by_head = draw_.one_in(2);
    groups.scales_stride_token = by_head ? head : heads * head + draw_.in(0, 3);
    groups.scales_stride_head = by_head ? bs * head + draw_.in(0, 3) : head;
    const std::int64_t block = by_head ? heads * groups.scales_stride_head : bs * groups.scales_stride_token;
    groups.scales_stride_block = block + draw_.in(0, 3);
    if (cache != nullptr && cache->block_size != 0 && cache->stride_block > 0 && draw_.one_in(2)) {
        page_scales_[i] = cache->stride_block + draw_.in(0, 3);
        cache->stride_block = groups.scales_stride_block =
            round_up(page_scales_[i] + block, choice_.on_device ? step_of_output(i) : 1);
    }
}

/// In bytes, what places and strides of an output are multiples of. A device stores records at any byte that it does
/// not store by quads.
std::int64_t Scene::step_of_output(int i) const {
    if (!choice_.on_device || call.groups_of(i, false) == nullptr) {
        return choice_.step;
    }
    const oracle::Record record = call.record_of(i, false);
    const bool follow = record.n_groups() == 1 || record.data_stride == record.group;
    const std::int64_t places = record.data_offset | (record.raw_dtype != 0 ? record.raw_offset : 0);
    return follow && places % quad == 0 ? choice_.step : 1;
}

/// Returns whether there are any.
bool Scene::add_group_scales(int i) {
    halyard_stages &stages = call.stages[i];
    const bool has_own = call.groups_of(i, false) != nullptr && call.record_of(i, false).scales_apart;
    const bool has_from =
        call.plan.rerotates == 0 && call.groups_of(i, true) != nullptr && call.record_of(i, true).scales_apart;
    if (page_scales_[i] != 0) {
        memory.add_beside(stages.group_scales, stages.cache, page_scales_[i]);
    } else if (has_own) {
        Extent extent = extent_of_group_scales(call, i, false);
        extent.low = choice_.on_device ? std::min<__int128>(extent.low, 0) : extent.low;  // drivers know no other place
        memory.add(stages.group_scales, memory.new_region(), extent, 1, draw_.in(0, 3));
    }
    if (has_from) {
        memory.add(stages.from_group_scales, memory.new_region(), extent_of_group_scales(call, i, true), 1,
                   draw_.in(0, 3));
    }
    return has_own || has_from;
}

/// What stands for ordinary numbers, or any bytes: those that memory is filled with. Of keys that move, scales and zero
/// points have to be finite.
void Scene::fill_record(int i, const Head &at) {
    const oracle::Record record = call.record_of(i, true);
    if (!are_numbers_ && call.plan.rerotates == 0) {
        return;
    }
    std::vector<float> head;
    const auto size = static_cast<float>(contents_.one_in(16) ? 0 : contents_.in(1, 4));
    for (std::int64_t d = 0; d < record.head_dim; d++) {
        head.push_back(size * static_cast<float>(contents_.unit()));
    }
    char *const scales = record.scales_apart ? place_of_group_scales(call, i, at, true) : nullptr;
    oracle::encode(record, head.data(), reinterpret_cast<unsigned char *>(place_of_input(call, i, at, 0)),
                   reinterpret_cast<unsigned char *>(scales));
    for (std::int64_t g = 0; !are_numbers_ && g < record.n_groups(); g++) {
        char *const data = place_of_input(call, i, at, 0) + record.data_offset + g * record.data_stride;
        std::generate(data, data + record.data_bytes(), [&] { return static_cast<char>(contents_.bits()); });
    }
}

/// Makes some groups of a head hard: zeros, one value alone, halves between integers, those of e4m3, and subnormals.
void Scene::fill_hard_groups(int i, const Head &at) {
    const halyard_tensor_desc &desc = call.tensors[i];
    for (std::int64_t first = 0; first < desc.head_dim; first += 32) {
        const std::int64_t how = contents_.in(0, 11);
        const double power = std::ldexp(1.0, static_cast<int>(contents_.in(-14, 5)));
        for (std::int64_t d = first; how < 5 && d < std::min(first + 32, desc.head_dim); d++) {
            const double half = static_cast<double>(contents_.in(-254, 254)) / 2;
            const double of_e4m3 =
                std::ldexp(static_cast<double>(contents_.in(-31, 31)), static_cast<int>(contents_.in(-12, 4)));
            const double values[] = {0.0, d == first + 16 ? power : 0.0, d == first ? 127 * power : half * power,
                                     d == first ? -448 * power : of_e4m3 * power,
                                     std::ldexp(half, desc.dtype == HALYARD_F16 ? -24 : -133)};
            oracle::write_word(desc.dtype, place_of_input(call, i, at, d),
                               oracle::narrow(desc.dtype, static_cast<float>(values[how])));
        }
    }
}

// ---- What is right -------------------------------------------------------------------------------------------------

/// What a tensor's records are made from, [batch, tokens, heads, head_dim]: a run of its own leaves it in f32. Those of
/// a target without fused multiply-add have other bits.
std::vector<float> Scene::floats_of(int i, bool is_fused) const {
    memory.restore(before);
    halyard_tensor_desc desc = call.tensors[i];
    desc.groups = desc.from_groups = nullptr;
    desc.cache = nullptr;
    desc.dtype = call.dtype_of_stages(i);
    desc.out_dtype = HALYARD_F32;
    halyard_tensor x = call.x[i], y = x;
    y.dtype = HALYARD_F32;
    y.shape[3] = desc.head_dim;
    for (std::int64_t d = 3, reach = 1; d >= 0; d--) {
        y.strides[d] = reach;
        reach *= std::max<std::int64_t>(y.shape[d], 1);
    }
    std::vector<float> floats(static_cast<std::size_t>(y.shape[0] * y.shape[1] * y.shape[2] * y.shape[3])), inputs;
    y.data = floats.data();
    if (call.groups_of(i, true) != nullptr) {
        for_each_head(call, i, [&](const Head &at) {
            const bool is_nowhere = place_of_input(call, i, at, 0) == nullptr;
            const auto head =
                is_nowhere ? std::vector<long double>(static_cast<std::size_t>(desc.head_dim)) : read_head(i, at);
            inputs.insert(inputs.end(), head.begin(), head.end());
        });
        x = y;
        x.data = inputs.data();
    }
    halyard_stages stages = call.args.stages != nullptr ? call.stages[i] : sized<halyard_stages>();
    stages.cache = stages.group_scales = nullptr;
    stages.from_group_scales = nullptr;
    halyard_plan_desc plan_desc = call.plan;
    plan_desc.n_tensors = 1;
    plan_desc.tensors = &desc;
    plan_desc.target = is_fused ? "reference" : "x86_sse41";
    halyard_run_args args = call.args;
    args.n_tensors = 1;
    args.x = &x;
    args.y = &y;
    args.stages = &stages;
    args.slots = nullptr;
    args.executor = nullptr;
    WatchedError error;
    if (halyard_run(halyard::plan(plan_desc).get(), &args, &error.error) != HALYARD_OK) {
        throw std::runtime_error(
            "what a run takes for records, it does not for floats: " + std::string(error.error.message) + text());
    }
    return floats;
}

std::string Scene::check_records(int i, bool is_fused, const Images &after) const {
    const oracle::Record record = call.record_of(i, false);
    const std::vector<oracle::Place> places = places_of(record);
    const std::vector<float> floats = floats_of(i, is_fused);
    std::int64_t reach = 0, reach_apart = 0;  // a record of a wild description may have any number of bytes beyond
    for (const oracle::Place &place : places) {
        std::int64_t &its = place.is_apart ? reach_apart : reach;
        its = std::max(its, place.offset + place.bytes);
    }
    std::vector<unsigned char> bytes(static_cast<std::size_t>(reach)), scales(static_cast<std::size_t>(reach_apart));
    std::string what;
    std::size_t head = 0;
    for_each_head(call, i, [&](const Head &at) {
        const float *const from = floats.data() + head++ * static_cast<std::size_t>(record.head_dim);
        if (!what.empty() || (call.tensors[i].cache != nullptr && !is_kept(at.batch, at.token))) {
            return;
        }
        // Groups that fill no vector are made by a loop, which fuses on every target.
        oracle::encode(record, from, bytes.data(), scales.data(), is_fused || record.group < 16);
        for (const oracle::Place &place : places) {
            char *const base =
                place.is_apart ? place_of_group_scales(call, i, at, false) : place_of_output(call, i, at, 0);
            const char *const first = memory.in(after, base + place.offset);
            const unsigned char *const expected = (place.is_apart ? scales : bytes).data() + place.offset;
            for (std::int64_t byte = 0; byte < place.bytes && what.empty(); byte += bytes_of(place.dtype)) {
                const std::uint32_t is = oracle::read_word(place.dtype, first + byte);
                const std::uint32_t should_be =
                    oracle::read_word(place.dtype, reinterpret_cast<const char *>(expected + byte));
                if (is != should_be && !are_equal(place.dtype, is, should_be)) {
                    std::ostringstream text;
                    text << "tensor " << i << " [" << at.batch << ", " << at.token << ", " << at.head << "]: byte "
                         << place.offset + byte << (place.is_apart ? " of its scales is " : " of its record is ")
                         << std::hex << is << ", not " << should_be;
                    what = text.str();
                }
            }
        }
    });
    return what;
}

}  // namespace scenes
