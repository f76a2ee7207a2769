// What a scene's run brings: views, stages, slots and positions, and what all of these hold.
#include "checks/scene/scene.h"

#include <cmath>
#include <cstring>
#include <numeric>

namespace scenes {

// ---- Views ---------------------------------------------------------------------------------------------------------

void Scene::draw_run() {
    contents_ = oracle::Random(static_cast<std::uint64_t>(draw_.in(0, draw_.is_fuzzed() ? 255 : INT32_MAX)));
    strides_ = level(of_strides);
    positions_ = level(of_positions);
    are_numbers_ = level(of_values) == 0;
    const oracle::Values kinds[] = {oracle::Values::ordinary, oracle::Values::any_bits, oracle::Values::special,
                                    oracle::Values::short_mantissa};
    values_ = draw_.one_of(kinds);
    for (int i = 0; i < call.n(); i++) {
        draw_view(i);
    }
    pack_inputs();
    place_tensors();
    if (call.has_cache()) {
        draw_slots();
    }
    const auto kind = static_cast<Angles::Kind>(level(of_source));
    const bool is_by_token = kind == Angles::by_token && n_batch_ * n_tokens_ > 0;
    angles.draw(draw_, choice_, call, kind == Angles::by_token && !is_by_token ? Angles::table : kind, level(of_axes));
    if (call.plan.rerotates != 0) {
        angles.from = static_cast<Angles::From>(level(of_from));
    }
    angles.add_to(draw_, memory);
    if (!is_by_token) {
        draw_positions();
    }
    memory.place(contents_);
    fill_slots();
    fill_positions();
    angles.fill(contents_);
    for (int i = 0; i < call.n(); i++) {
        fill_stages(i);
        fill_input(i);
    }
    const halyard_kv_args &brought = call.brought;
    const bool brings = brought.stages != nullptr || brought.slots != nullptr || brought.from_positions != nullptr;
    call.args.kv = brings ? &brought : nullptr;
    before = memory.image();
}

void Scene::draw_view(int i) {
    const halyard_tensor_desc &desc = call.tensors[i];
    const halyard_kv_desc &kv = call.kv[i];
    halyard_tensor &x = call.x[i], &y = call.y[i];
    const std::int64_t shape[] = {n_batch_, n_tokens_, n_heads_[i]};
    for (halyard_tensor *tensor : {&x, &y}) {
        std::copy(shape, shape + 3, tensor->shape);
        tensor->shape[3] = call.width_of(i, tensor == &x);
        tensor->dtype = tensor == &x ? call.in_dtype(i) : call.out_dtype(i);
    }
    const bool could_be = kv.cache == nullptr && x.dtype == y.dtype && x.shape[3] == y.shape[3] &&
                          (kv.no_rotation != 0 || call.out_pairing(i) == desc.pairing);
    in_place_[i] = could_be && (choice_.in_place && i == 0 ? *choice_.in_place : draw_.one_in(2));
    draw_strides(x, choice_.step, !in_place_[i]);
    draw_strides(y, choice_.step, false);
}

/// From the innermost dimension outwards.
void Scene::draw_strides(halyard_tensor &tensor, std::int64_t step, bool is_input) {
    enum { dense, packed, by_head, gaps, any };
    const std::int64_t unit = std::max<std::int64_t>(step / bytes_of(tensor.dtype), 1);
    const bool is_record = tensor.dtype == HALYARD_UINT8;  // whose bytes lie one behind the other
    int order[] = {3, 2, 1, 0};
    if (strides_ == by_head || (strides_ >= gaps && draw_.one_in(2))) {
        std::swap(order[1], order[2]);
    }
    for (int i = 3; i > 0 && strides_ == any && draw_.one_in(2); i--) {
        std::swap(order[i], order[draw_.in(choice_.on_device || is_record ? 1 : 0, i)]);
    }
    std::int64_t reach = strides_ == any && !is_record && draw_.one_in(4) ? 2 : 1;
    for (const int d : order) {
        const bool is_backward = strides_ == any && draw_.one_in(6) && !((choice_.on_device || is_record) && d == 3);
        tensor.strides[d] = is_backward ? -reach : reach;
        const __int128 all = __int128{reach} * std::max<std::int64_t>(tensor.shape[d], 1);
        reach = static_cast<std::int64_t>(std::min<__int128>(all, std::int64_t{1} << 60));
        if (strides_ >= gaps && draw_.one_in(3)) {
            reach += (strides_ == gaps ? unit : 1) * draw_.in(0, 3);
        } else if (strides_ == packed && d == 2) {
            reach += 2 * unit;
        }
        reach = (reach + unit - 1) / unit * unit;
    }
    if (is_input && strides_ == any && !choice_.on_device && draw_.one_in(6)) {
        tensor.strides[draw_.in(0, 2)] = 0;
    }
}

/// Lays all inputs into one array, token by token, where they are alike.
void Scene::pack_inputs() {
    halyard_tensor *const x = call.x;
    const std::int64_t head_dim = x[0].shape[3];
    const bool are_alike = std::all_of(x, x + call.n(), [&](const halyard_tensor &each) {
        return each.dtype == x[0].dtype && each.shape[3] == head_dim;
    });
    are_packed_ = strides_ == 1 && call.n() > 1 && are_alike && call.plan.rerotates == 0 && head_dim <= 1024;
    const std::int64_t all_heads = std::accumulate(n_heads_, n_heads_ + call.n(), std::int64_t{0});
    for (int i = 0; i < call.n() && are_packed_; i++) {
        const std::int64_t row = std::max<std::int64_t>(all_heads, 1) * head_dim;
        const std::int64_t strides[] = {n_tokens_ * row, row, head_dim, 1};
        std::copy(strides, strides + 4, x[i].strides);
    }
}

void Scene::place_tensors() {
    const bool is_apart = draw_.one_in(2), is_mixed = !choice_.on_device && draw_.one_in(2);
    const std::size_t inputs = memory.new_region(), outputs = is_mixed ? inputs : memory.new_region();
    const std::size_t weights = memory.new_region();
    std::int64_t heads = 0;
    const auto gap_of = [&](std::int64_t step) { return step * draw_.in(0, step > 1 ? 2 : 9); };
    const auto gap = [&] { return gap_of(choice_.step); };
    for (int i = 0; i < call.n(); i++) {
        halyard_tensor &x = call.x[i], &y = call.y[i];
        const bool is_cached = call.kv[i].cache != nullptr;
        const std::int64_t step = std::max<std::int64_t>(choice_.step, choice_.on_device ? bytes_of(x.dtype) : 1);
        if (are_packed_ && i > 0) {
            memory.add_beside(x.data, call.x[0].data, heads * x.shape[3] * bytes_of(x.dtype));
        } else if (are_packed_) {
            halyard_tensor all = x;
            all.shape[2] = x.strides[1] / x.shape[3];
            memory.add(x.data, inputs, extent_of(all), step, gap());
        } else if (call.plan.rerotates == 0 || !is_cached) {
            memory.add(x.data, in_place_[i] ? outputs : inputs, extent_of(x), step, gap());
        }
        heads += n_heads_[i];
        if (in_place_[i]) {
            std::copy(x.strides, x.strides + 4, y.strides);
            memory.add_beside(y.data, x.data, 0);
        } else if (!is_cached) {
            const std::int64_t own = choice_.step;
            memory.add(y.data, is_apart ? memory.new_region() : outputs, extent_of(y),
                       std::max<std::int64_t>(own, choice_.on_device ? bytes_of(y.dtype) : 1), gap_of(own));
        }
        add_stages(i, is_apart ? memory.new_region() : outputs, is_apart ? memory.new_region() : weights);
    }
}

// ---- Stages --------------------------------------------------------------------------------------------------------

void Scene::add_stages(int i, std::size_t caches, std::size_t weights) {
    const halyard_tensor_desc &desc = call.tensors[i];
    const halyard_kv_desc &kv = call.kv[i];
    halyard_stages &stages = call.stages[i];
    const std::int64_t heads = n_heads_[i];
    if (kv.norm != nullptr && kv.norm->weight_dtype != 0) {
        const halyard_norm_desc &norm = *kv.norm;
        const std::int64_t window = norm.window_size != 0 ? norm.window_size : desc.head_dim - norm.window_offset;
        stages.n_weights = norm.width == HALYARD_NORM_ROW ? heads * desc.head_dim
                           : norm.weight_per_head != 0    ? heads * window
                                                          : window;
        const auto add = [&](const void *&array) {
            const std::int64_t bytes = bytes_of(norm.weight_dtype);
            Extent extent(bytes, stages.n_weights);
            const std::int64_t step = choice_.on_device     ? choice_.step
                                      : draw_.one_in(2) ? bytes  // then floats are read where they lie
                                                        : 1;
            extent.low -= std::max(step, bytes) * draw_.in(0, 3);  // what lies in front
            memory.add(array, weights, extent, step, step == 1 ? draw_.in(0, 3) : 0);
        };
        add(stages.weight);
        if (norm.has_bias != 0) {
            add(stages.bias);
        }
    }
    if (call.is_dynamic(i)) {  // with gaps; by slot heads first
        const std::int64_t n_rows = kv.cache != nullptr ? n_slots_ : n_batch_ * n_tokens_;
        const bool by_head = kv.cache != nullptr && draw_.one_in(2);
        stages.stride_scales[2] = by_head ? n_rows : 1;
        stages.stride_scales[1] = by_head ? 1 : heads + draw_.in(0, 2);
        stages.stride_scales[0] = kv.cache != nullptr ? 0 : n_tokens_ * stages.stride_scales[1];
        memory.add(stages.scales_out, memory.new_region(), extent_of_scales_out(call, i), 4, 4 * draw_.in(0, 2));
    } else if (kv.scale != nullptr) {
        stages.n_scales = kv.scale->per == HALYARD_SCALE_PER_HEAD ? heads : 1;
        memory.add(stages.scales, memory.new_region(), Extent(4, stages.n_scales), 4);
    }
    if (kv.cache != nullptr) {
        Extent extent = extent_of_cache(call, i);
        extent.high += page_scales_[i] != 0 ? kv.cache->stride_block : 0;  // of the last page, those behind records
        const std::int64_t step = choice_.step;
        memory.add(stages.cache, caches, extent, step, step * draw_.in(0, 3));
    }
    if (kv.position_scales != 0) {
        add_position_scales(i);
    }
    const bool has_group_scales = add_group_scales(i);
    if (kv.norm != nullptr || kv.scale != nullptr || kv.cache != nullptr || kv.position_scales != 0 ||
        has_group_scales || draw_.one_in(4)) {
        call.brought.stages = call.stages;
    }
}

/// With gaps, forwards or backwards; shared by heads, or by everything.
void Scene::add_position_scales(int i) {
    std::int64_t(&strides)[3] = call.stages[i].stride_position_scales;
    if (position_scales_[i] > 1) {
        const bool by_head = position_scales_[i] == 3;
        strides[2] = by_head ? draw_.in(1, 2) : 0;
        strides[1] = (by_head ? n_heads_[i] * strides[2] : 1) + draw_.in(0, 1);
        strides[0] = draw_.one_in(3) ? 0 : n_tokens_ * strides[1] + draw_.in(0, 1);
        strides[1] *= draw_.one_in(4) ? -1 : 1;
    }
    memory.add(call.stages[i].position_scales, memory.new_region(), extent_of_position_scales(call, i), 1,
               draw_.in(0, 3));
}

void Scene::fill_stages(int i) {
    halyard_stages &stages = call.stages[i];
    for (const void *const array : {stages.weight, stages.bias}) {
        for (std::int64_t k = 0; array != nullptr && k < stages.n_weights; k++) {
            const std::int32_t dtype = call.norms[i].weight_dtype;
            const float around = array == stages.weight ? 1.0f : 0.0f;
            oracle::write_word(dtype, static_cast<char *>(const_cast<void *>(array)) + k * bytes_of(dtype),
                               oracle::narrow(dtype, around + 0.5f * static_cast<float>(contents_.unit())));
        }
    }
    for (std::int64_t k = 0; stages.scales != nullptr && k < stages.n_scales; k++) {
        const_cast<float *>(stages.scales)[k] = 0.03f + 0.02f * static_cast<float>(contents_.unit());
    }
    if (stages.position_scales == nullptr ||
        !memory.holds(stages.position_scales, extent_of_position_scales(call, i))) {
        return;  // a fuzzer has it, with no memory behind it
    }
    for_each_head(call, i, [&](const Head &at) {
        static constexpr float special[] = {0.0f, -1.5f, 0x1p-20f};
        const float scale =
            contents_.one_in(8) ? contents_.one_of(special) : 1.0f + 0.5f * static_cast<float>(contents_.unit());
        std::memcpy(place_of_position_scale(call, i, at), &scale, sizeof(scale));
    });
}

/// Finite numbers as activations are, but where any values will do.
void Scene::fill_input(int i) {
    const std::int32_t dtype = call.in_dtype(i);
    const bool moves = call.plan.rerotates != 0, is_cached = moves && call.kv[i].cache != nullptr;
    const bool has_scales_apart = call.groups_of(i, true) != nullptr && call.record_of(i, true).scales_apart;
    if (call.tensors[i].head_dim > 1 << 20 ||
        !memory.holds(is_cached ? call.stages[i].cache : call.x[i].data,
                      is_cached ? extent_of_cache(call, i) : extent_of(call.x[i])) ||
        (has_scales_apart && !memory.holds(moves ? call.stages[i].group_scales : call.stages[i].from_group_scales,
                                           extent_of_group_scales(call, i, true)))) {
        return;  // a fuzzer has it, with no memory behind it
    }
    for_each_head(call, i, [&](const Head &at) {
        if (place_of_input(call, i, at, 0) == nullptr || has_bad_slot(at.batch, at.token)) {
            return;
        }
        if (dtype == HALYARD_UINT8) {
            fill_record(i, at);
            return;
        }
        for (std::int64_t d = 0; d < call.tensors[i].head_dim; d++) {
            char *const element = place_of_input(call, i, at, d);
            if (dtype <= HALYARD_BF16) {
                oracle::write_word(dtype, element,
                                   are_numbers_ ? oracle::narrow(dtype, 4 * static_cast<float>(contents_.unit()))
                                                : oracle::random_word(contents_, dtype, values_));
                continue;
            }
            do {
                *element = static_cast<char>(contents_.bits());
            } while (are_numbers_ && !std::isfinite(oracle::widen(dtype, oracle::read_word(dtype, element))));
        }
        if (call.plan.rerotates != 0 && call.is_dynamic(i)) {  // is read first
            const float scale = 0.03f + 0.02f * static_cast<float>(contents_.unit());
            std::memcpy(place_of_scale(call, i, at), &scale, sizeof(scale));
        }
    });
}

// ---- Slots ---------------------------------------------------------------------------------------------------------

void Scene::draw_slots() {
    halyard_slots &slots = call.slots;
    const int kind = level(of_slots);
    slots.type = kind < 2 ? kind : static_cast<std::int32_t>(draw_.in(HALYARD_INT32, HALYARD_INT64));
    slots.consecutive = kind == 2 ? 1 : 0;
    slots.policy = choice_.on_device ? HALYARD_SLOTS_RANGE_ONLY : level(of_policy);
    slots.shape[0] = n_batch_;
    slots.shape[1] = kind == 2 ? 1 : n_tokens_;
    slots.strides[0] = slots.shape[1] + (draw_.one_in(2) ? 0 : draw_.in(1, 3));
    slots.strides[1] = 1;
    memory.add(slots.data, memory.new_region(), extent_of(slots), choice_.on_device ? 4 : 1,
               choice_.on_device ? 0 : draw_.in(0, 1));
    if (slots.policy == HALYARD_SLOTS_CHECK) {
        slots.scratch_bytes = (n_slots_ + 7) / 8;
        memory.add(slots.scratch, memory.new_region(), Extent(1, slots.scratch_bytes), 1);
    }
    call.brought.slots = &slots;
}

/// In order or not, with gaps, some tokens without one, and some doubled where that is allowed.
void Scene::fill_slots() {
    const halyard_slots &slots = call.slots;
    if (call.brought.slots == nullptr) {
        return;
    }
    const std::int64_t n = n_batch_ * n_tokens_, skip = draw_.in(0, std::max<std::int64_t>(n_slots_ - n, 0));
    const bool are_in_order = draw_.one_in(2);
    const bool may_be_doubled = slots.policy == HALYARD_SLOTS_RANGE_ONLY && !choice_.on_device;
    std::vector<std::int64_t> used;
    for (std::int64_t i = 0; i < n; i += slots.consecutive != 0 ? n_tokens_ : 1) {
        std::int64_t slot =
            slots.consecutive != 0 || (are_in_order && !draw_.one_in(12)) ? skip + i : draw_.in(0, n_slots_ - 1);
        const bool is_doubled =  // a device keeps any of two
            draw_.one_in(may_be_doubled ? 3 : 40) && (may_be_doubled || (choice_.has_bad && !choice_.on_device));
        while (slots.consecutive == 0 && !is_doubled && std::count(used.begin(), used.end(), slot) != 0) {
            slot = (slot + 1) % n_slots_;
        }
        slot = draw_.one_in(slots.consecutive != 0 ? 4 : 9) ? -1 : slot;
        if (choice_.has_bad && draw_.one_in(choice_.on_device ? 4 : 40)) {
            slot = draw_.one_in(2) ? -2 - draw_.in(0, 9) : n_slots_ + draw_.in(0, 99);
        }
        used.push_back(slot);
        write_number(slots.type, place_of_number(slots, i / n_tokens_, i % n_tokens_), slot);
    }
}

bool Scene::has_bad_slot(std::int64_t batch, std::int64_t token) const {
    const std::int64_t slot = call.brought.slots != nullptr ? slot_of(call, batch, token) : -1;
    return slot < -1 || slot >= n_slots_;
}

/// Whether a token has a slot, and no later token has the same one.
bool Scene::is_kept(std::int64_t batch, std::int64_t token) const {
    const std::int64_t slot = slot_of(call, batch, token);
    for (std::int64_t i = batch * call.n_tokens() + token + 1; i < call.n_batch() * call.n_tokens(); i++) {
        if (slot_of(call, i / call.n_tokens(), i % call.n_tokens()) == slot) {
            return false;
        }
    }
    return slot >= 0;
}

// ---- Positions -----------------------------------------------------------------------------------------------------

/// Of keys that move, where they go and where they come from.
void Scene::draw_positions() {
    halyard_run_args &args = call.args;
    const bool moves = call.plan.rerotates != 0;
    args.n_tensors = draw_.one_in(2) ? call.plan.n_tensors : 0;
    args.bad_position = moves ? 0 : static_cast<std::int32_t>(draw_.in(0, 2));
    const bool may_be_absent = !moves && angles.first <= 0 && angles.last >= n_tokens_ &&
                               (n_batch_ == 1 || (n_tokens_ != 1 && !angles.is_given()));
    if (!may_be_absent || !draw_.one_in(6)) {
        draw_form(call.positions);
        args.positions = &call.positions;
    }
    if (moves) {
        draw_form(call.from_positions);
        call.brought.from_positions = &call.from_positions;
    }
}

/// int32 or int64, of each token or starts, of each batch row or shared, strided, on as many axes as angles have.
void Scene::draw_form(halyard_positions &view) {
    const bool are_far_apart = angles.last - std::int64_t{angles.first} > n_tokens_;
    const bool moves = call.plan.rerotates != 0;
    const std::int64_t bytes = draw_.one_in(2) ? 8 : 4;
    view.type = bytes == 8 ? HALYARD_INT64 : HALYARD_INT32;
    view.consecutive = (moves ? positions_ < 2 : are_far_apart) && draw_.one_in(4) ? 1 : 0;
    view.shape[0] = draw_.one_in(2) ? n_batch_ : 1;
    view.shape[1] = view.consecutive != 0 ? 1 : n_tokens_;
    view.strides[1] = draw_.in(1, 2);
    view.strides[0] = view.shape[1] * view.strides[1] + draw_.in(0, 2);
    const bool are_equal = angles.n_axes() > 1 && draw_.one_in(4);  // on all axes
    view.n_axes = are_equal ? draw_.in(0, 1) : angles.n_axes();
    view.stride_axis = view.shape[0] * view.strides[0] + draw_.in(0, 2);
    if (view.consecutive == 0 && draw_.one_in(4)) {
        view.strides[1] *= -1;
    }
    if (moves && positions_ == 0 && &view == &call.from_positions) {  // so that differences can be alike
        view = call.positions;
    }
    memory.add(view.data, memory.new_region(), extent_of(view), choice_.on_device ? bytes : 1,
               choice_.on_device ? 0 : draw_.in(0, 3));
}

void Scene::fill_positions() {
    for (const halyard_positions *view : {call.args.positions, call.brought.from_positions}) {
        const std::int64_t n_axes = view != nullptr ? std::max<std::int64_t>(view->n_axes, 1) : 0;
        const std::int64_t n = n_axes == 0 ? 0 : n_axes * view->shape[0] * view->shape[1];
        const std::int64_t how = choice_.has_bad ? draw_.in(0, 2) : 0;  // none is bad, a single one, or many are
        const std::int64_t lone = how == 1 && n > 0 ? draw_.in(0, n - 1) : -1;
        for (std::int64_t i = 0; i < n; i++) {
            const std::int64_t t = i % view->shape[1], b = i / view->shape[1] % view->shape[0];
            const std::int64_t axis = i / view->shape[1] / view->shape[0];
            const bool is_bad =
                i == lone || (how == 2 && draw_.one_in(5)) || (is_padding(*view, b, t) && draw_.one_in(2));
            const std::int64_t position = is_bad                     ? bad_position(view->type)
                                          : call.plan.rerotates == 0 ? good_position()
                                                                     : moved_position(view, axis, b, t);
            write_number(view->type, place_of_number(*view, axis, b, t), position);
        }
    }
}

/// Whether no tensor writes any token that has this position.
bool Scene::is_padding(const halyard_positions &view, std::int64_t b, std::int64_t t) const {
    const bool one_batch = view.shape[0] != 1, one_token = view.consecutive == 0;
    for (std::int64_t batch = one_batch ? b : 0; batch < (one_batch ? b + 1 : n_batch_); batch++) {
        for (std::int64_t token = one_token ? t : 0; token < (one_token ? t + 1 : n_tokens_); token++) {
            if (is_written(batch, token)) {
                return false;
            }
        }
    }
    return true;
}

/// Whether a token has a slot, even a bad one, or an output that is a view.
bool Scene::is_written(std::int64_t batch, std::int64_t token) const {
    for (int i = 0; i < call.n(); i++) {
        if (n_heads_[i] != 0 && (call.kv[i].cache == nullptr || slot_of(call, batch, token) != -1)) {
            return true;
        }
    }
    return false;
}

/// One that keys go to or come from: near, so that differences can be alike, or anywhere.
std::int64_t Scene::moved_position(const halyard_positions *view, std::int64_t axis, std::int64_t b, std::int64_t t) {
    static constexpr std::int64_t differences[] = {-1000, 7, 123456};
    static constexpr std::int64_t ends[] = {INT32_MIN, INT32_MIN + 1, -1, 0, 1, INT32_MAX};
    if (positions_ == 0 && view == &call.from_positions) {
        const std::int64_t to = read_number(call.positions.type, place_of_number(call.positions, axis, b, t));
        return std::clamp<std::int64_t>(to, -(std::int64_t{1} << 40), std::int64_t{1} << 40) - differences[axis];
    }
    return positions_ <= 1   ? draw_.in(0, 8191)
           : positions_ == 2 ? draw_.one_of(ends)
                             : static_cast<std::int32_t>(draw_.bits());
}

/// One that is covered, often at an end.
std::int64_t Scene::good_position() {
    const bool is_one = call.positions.consecutive == 0;
    const std::int64_t first = angles.first, last = angles.last - (is_one ? 0 : n_tokens_);
    return !draw_.one_in(3)  ? draw_.in(first, last)
           : draw_.one_in(2) ? draw_.in(first, std::min(first + 1, last))
                             : draw_.in(std::max(first, last - 1), last);
}

/// One that is not covered.
std::int64_t Scene::bad_position(std::int32_t type) {
    const std::int64_t first = angles.first, last = angles.last;
    const std::int64_t narrow[] = {first - 1, last + 1, INT32_MIN, INT32_MAX};
    const std::int64_t far[] = {INT64_MIN, INT64_MAX, std::int64_t{1} << 32, -(std::int64_t{1} << 40)};
    if (type == HALYARD_INT64 && draw_.one_in(2)) {
        return draw_.one_of(far);
    }
    return std::clamp<std::int64_t>(draw_.one_of(narrow), INT32_MIN, INT32_MAX);
}

/// One of a token that is written, and that angles do not cover; keys may move between all positions of 32 bits.
bool Scene::has_bad_position(std::int64_t batch, std::int64_t token) const {
    const bool moves = call.plan.rerotates != 0,
               are_read = call.rotates() && angles.desc.by_token == 0 && is_written(batch, token);
    for (std::int64_t axis = 0; axis < angles.n_axes() && are_read; axis++) {
        const std::int64_t to = position_of(call.args.positions, axis, batch, token);
        const std::int64_t from = moves ? position_of(call.brought.from_positions, axis, batch, token) : 0;
        if (moves ? to != static_cast<std::int32_t>(to) || from != static_cast<std::int32_t>(from)
                  : !angles.is_covered(to)) {
            return true;
        }
    }
    return false;
}

bool Scene::is_refused() const {
    bool refused = false;
    for (std::int64_t b = 0; b < call.n_batch(); b++) {
        for (std::int64_t t = 0; t < call.n_tokens(); t++) {
            const bool is_doubled = call.brought.slots != nullptr && call.slots.policy == HALYARD_SLOTS_CHECK &&
                                    slot_of(call, b, t) >= 0 && !is_kept(b, t);
            refused = refused || is_doubled || has_bad_slot(b, t) ||
                      (call.args.bad_position == HALYARD_BAD_POSITION_ERROR && has_bad_position(b, t));
        }
    }
    return refused;
}

}  // namespace scenes
