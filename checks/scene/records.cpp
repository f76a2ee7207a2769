// Records of groups: which a scene has, and what is right of those that its run has left.
#include "checks/model.h"
#include "checks/require.h"
#include "checks/scene/scene.h"

#include <cmath>
#include <cstring>
#include <sstream>

namespace scenes {

// ---- What is drawn -------------------------------------------------------------------------------------------------

void Scene::draw_records(int i) {
    halyard_tensor_desc &tensor = call.tensors[i];
    halyard_kv_desc &kv = call.kv[i];
    const bool goes_to = level(of_groups, i == 0) != 0, comes_from = level(of_from_groups, i == 0) != 0;
    if (goes_to) {
        call.groups[i].preset = draw_preset(tensor.head_dim, i == 0 ? choice_.preset : 0);
        kv.groups = &call.groups[i];
        kv.out_dtype = draw_.one_of({0, static_cast<int>(HALYARD_UINT8)});
        if (call.plan.rerotates != 0) {
            tensor.dtype = draw_.one_of({0, static_cast<int>(HALYARD_UINT8)});
        }
    }
    if (comes_from) {
        call.from_groups[i].preset = draw_preset(tensor.head_dim);
        kv.from_groups = &call.from_groups[i];
        tensor.dtype = draw_.one_of({0, static_cast<int>(HALYARD_UINT8)});
        if (!goes_to && kv.out_dtype == 0) {
            kv.out_dtype = static_cast<std::int32_t>(draw_.in(HALYARD_F32, HALYARD_INT8));
        }
    }
}

/// A preset that has such heads, any or this one.
std::int32_t Scene::draw_preset(std::int64_t head_dim, std::int32_t given) {
    std::vector<std::int32_t> fitting;
    for (std::int32_t preset = HALYARD_GROUPS_GGML_Q8_0; preset <= HALYARD_GROUPS_MX; preset++) {
        auto info = sized<halyard_groups_info>();
        if (halyard_get_groups_info(preset, head_dim, &info, nullptr) == HALYARD_OK &&
            (given == 0 || preset == given)) {
            fitting.push_back(preset);
        }
    }
    return fitting[static_cast<std::size_t>(draw_.in(0, static_cast<std::int64_t>(fitting.size()) - 1))];
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
    halyard_cache_desc *const cache = is_input || call.kv[i].cache == nullptr ? nullptr : &call.caches[i];
    const std::int64_t bs = cache == nullptr         ? std::max<std::int64_t>(n_tokens_, 1)
                            : cache->block_size != 0 ? cache->block_size
                                                     : cache->n_slots;
    const std::int64_t heads = std::max<std::int64_t>(n_heads_[i], 1);
    const std::int64_t head = record.dense_scales() + draw_.in(0, 3);
    const bool by_head = draw_.one_in(2);
    groups.scales_stride_token = by_head ? head : heads * head + draw_.in(0, 3);
    groups.scales_stride_head = by_head ? bs * head + draw_.in(0, 3) : head;
    const std::int64_t block = by_head ? heads * groups.scales_stride_head : bs * groups.scales_stride_token;
    groups.scales_stride_block = block + draw_.in(0, 3);
    if (cache != nullptr && cache->block_size != 0 && cache->stride_block > 0 && draw_.one_in(2)) {
        page_scales_[i] = cache->stride_block + draw_.in(0, 3);
        cache->stride_block = groups.scales_stride_block = page_scales_[i] + block;
    }
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
        memory.add(stages.group_scales, memory.new_region(), extent_of_group_scales(call, i, false), 1, draw_.in(0, 3));
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

// ---- What is right -------------------------------------------------------------------------------------------------

/// The positions of keys that moved: those of keys that are stored nowhere may be any.
halyard_positions Scene::accepted(const halyard_positions *given, std::vector<std::int32_t> &numbers) const {
    const std::int64_t n_batch = call.n_batch(), n_tokens = call.n_tokens(), n_axes = angles.n_axes();
    for (std::int64_t at = 0; at < n_axes * n_batch * n_tokens; at++) {
        const std::int64_t row = at / n_tokens;
        numbers.push_back(static_cast<std::int32_t>(position_of(given, row / n_batch, row % n_batch, at % n_tokens)));
    }
    halyard_positions positions = halyard::positions(numbers.data(), {n_batch, n_tokens});
    positions.n_axes = static_cast<std::int32_t>(n_axes);
    positions.stride_axis = n_batch * n_tokens;
    return positions;
}

/// What a tensor's records are made from, [batch, tokens, heads, head_dim]: a run of its own leaves it in f32.
std::vector<float> Scene::floats_of(int i) const {
    memory.restore(before);
    halyard_tensor_desc desc = call.tensors[i];
    halyard_kv_desc kv = call.kv[i];
    kv.groups = kv.from_groups = nullptr;
    kv.cache = nullptr;
    kv.out_dtype = HALYARD_F32;
    desc.kv = &kv;
    desc.dtype = call.dtype_of_stages(i);
    halyard_plan_desc plan_desc = call.plan;
    plan_desc.n_tensors = 1;
    plan_desc.tensors = &desc;
    RunStructs run(call);
    halyard_tensor &x = run.x[0], &y = run.y[0];
    const std::int64_t *const shape = call.x[i].shape;
    std::vector<float> floats(static_cast<std::size_t>(shape[0] * shape[1] * shape[2] * desc.head_dim)), inputs;
    x = call.x[i];
    y = halyard::tensor(floats.data(), halyard::dtype::f32, {shape[0], shape[1], shape[2], desc.head_dim});
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
    run.stages[0] = call.stages[i];
    run.stages[0].cache = run.stages[0].group_scales = nullptr;
    run.stages[0].from_group_scales = nullptr;
    run.brought.stages = run.stages;
    run.brought.slots = nullptr;
    run.args.kv = &run.brought;
    run.args.n_tensors = 1;
    run.args.executor = nullptr;
    std::vector<std::int32_t> to, from;
    if (call.plan.rerotates != 0) {
        run.positions = accepted(call.args.positions, to);
        run.from_positions = accepted(call.brought.from_positions, from);
        run.args.positions = &run.positions;
    } else {
        run.args.bad_position = accepting_policy();
    }
    WatchedError error;
    if (halyard_run(model::make_plan(plan_desc).get(), &run.args, &error.error) != HALYARD_OK) {
        throw std::runtime_error(
            "what a run takes for records, it does not for floats: " + std::string(error.error.message) + text());
    }
    return floats;
}

std::string Scene::check_records(int i, const Images &after) const {
    const oracle::Record record = call.record_of(i, false);
    const std::vector<oracle::Place> places = places_of(record);
    const std::vector<float> floats = floats_of(i);
    std::vector<unsigned char> bytes(static_cast<std::size_t>(record.bytes)),
        scales(static_cast<std::size_t>(record.dense_scales()));
    std::string what;
    std::size_t head = 0;
    for_each_head(call, i, [&](const Head &at) {
        const float *const from = floats.data() + head++ * static_cast<std::size_t>(record.head_dim);
        if (!what.empty() || (call.kv[i].cache != nullptr && !is_kept(at.batch, at.token))) {
            return;
        }
        oracle::encode(record, from, bytes.data(), scales.data());
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
