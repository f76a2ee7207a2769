// Draws the run of a case: tensors, stages, slots and positions, and the contents of their memory.
#include "checks/cases/case.h"

#include <cmath>
#include <numeric>

namespace cases {

namespace {

class RunDrawer {
public:
    explicit RunDrawer(Case &drawn)
        : drawn_(drawn), draw_(drawn.draw), choice_(drawn.choice), call_(drawn.call), angles_(drawn.angles),
          memory_(drawn.memory) {}

    void draw() {
        contents_ = oracle::Random(static_cast<std::uint64_t>(draw_.in(0, draw_.is_fuzzed() ? 255 : INT32_MAX)));
        strides_ = drawn_.level(of_strides);
        positions_ = drawn_.level(of_positions);
        drawn_.are_inputs_finite = drawn_.level(of_values) == 0;
        const oracle::Values kinds[] = {oracle::Values::ordinary, oracle::Values::any_bits, oracle::Values::special,
                                        oracle::Values::short_mantissa};
        values_ = draw_.one_of(kinds);
        for (int i = 0; i < call_.n(); i++) {
            draw_input_and_output(i);
        }
        pack_inputs();
        place_tensors();
        if (call_.has_cache()) {
            draw_slots();
        }
        const auto kind = static_cast<Angles::Kind>(drawn_.level(of_source));
        const bool is_by_token = kind == Angles::by_token && call_.n_batch() * n_tokens_ > 0;
        angles_.draw(draw_, choice_, call_, kind == Angles::by_token && !is_by_token ? Angles::table : kind,
                     drawn_.level(of_axes), memory_);
        angles_.from = static_cast<Angles::From>(rerotates_ ? drawn_.level(of_from) : 0);
        if (!is_by_token) {
            draw_positions();
        }
        memory_.allocate_and_fill(contents_);
        fill_slots();
        fill_positions();
        angles_.fill(contents_);
        for (int i = 0; i < call_.n(); i++) {
            fill_stages(i);
            fill_input(i);
        }
        const halyard_kv_args &kv_args = call_.kv_args;
        const bool is_used = kv_args.stages != nullptr || kv_args.slots != nullptr || kv_args.from_positions != nullptr;
        call_.args.kv = is_used ? &kv_args : nullptr;
        drawn_.before = memory_.image();
    }

private:
    Case &drawn_;
    Draw &draw_;
    const Choice &choice_;
    Call &call_;
    Angles &angles_;
    Memory &memory_;
    const bool rerotates_ = call_.plan.rerotates != 0;
    const std::int64_t n_tokens_ = call_.n_tokens();
    oracle::Random contents_{0};  // for the contents of memory
    int strides_ = 0, positions_ = 0;
    bool are_packed_ = false;
    oracle::Values values_ = oracle::Values::ordinary;

    // ---- Tensors ----

    void draw_input_and_output(int i) {
        const halyard_kv_desc &kv = call_.kv[i];
        halyard_tensor &x = call_.x[i], &y = call_.y[i];
        std::copy(x.shape, x.shape + 3, y.shape);
        x.shape[3] = call_.elements_per_head(i, true);
        y.shape[3] = call_.elements_per_head(i, false);
        x.dtype = call_.in_dtype(i);
        y.dtype = call_.out_dtype(i);
        const bool can_be_in_place = kv.cache == nullptr && x.dtype == y.dtype && x.shape[3] == y.shape[3] &&
                                     (kv.no_rotation != 0 || call_.out_pairing(i) == call_.tensors[i].pairing);
        drawn_.in_place[i] = can_be_in_place && (choice_.in_place && i == 0 ? *choice_.in_place : draw_.one_in(2));
        draw_strides(x, !drawn_.in_place[i]);
        draw_strides(y, false);
    }

    /// Draws a tensor's strides, from the innermost dimension outwards.
    void draw_strides(halyard_tensor &tensor, bool is_input) {
        enum { dense, packed, by_head, gaps, any };
        const std::int64_t unit = std::max<std::int64_t>(choice_.step / bytes_of(tensor.dtype), 1);
        const bool is_record = tensor.dtype == HALYARD_UINT8;  // a record's bytes are contiguous
        const bool ends_dense = choice_.on_device || is_record;
        int order[] = {3, 2, 1, 0};
        constexpr std::int64_t page_elements = 4096;  // heads so far apart are rotated eight at a time
        if (strides_ == by_head || (strides_ >= gaps && draw_.one_in(2))) {
            std::swap(order[1], order[2]);
        }
        for (int i = 3; i > 0 && strides_ == any && draw_.one_in(2); i--) {
            std::swap(order[i], order[draw_.in(ends_dense ? 1 : 0, i)]);
        }
        std::int64_t reach = strides_ == any && !is_record && draw_.one_in(4) ? 2 : 1;
        for (const int d : order) {
            const bool is_backward = strides_ == any && draw_.one_in(6) && !(ends_dense && d == 3);
            tensor.strides[d] = is_backward ? -reach : reach;
            const __int128 all = __int128{reach} * std::max<std::int64_t>(tensor.shape[d], 1);
            reach = static_cast<std::int64_t>(std::min<__int128>(all, std::int64_t{1} << 60));
            if (strides_ >= gaps && draw_.one_in(3)) {
                reach += (strides_ == gaps ? unit : 1) * draw_.in(0, 3);
            } else if (strides_ == packed && d == 2) {
                reach += 2 * unit;
            }
            const bool has_few_heads = tensor.shape[2] < 10;  // else the array would take too much memory
            const std::int64_t whole =
                strides_ == by_head && d == 1 && has_few_heads && draw_.one_in(2) ? page_elements : unit;
            reach = (reach + whole - 1) / whole * whole;
        }
        if (is_input && strides_ == any && !choice_.on_device && draw_.one_in(6)) {
            tensor.strides[draw_.in(0, 2)] = 0;
        }
    }

    /// Packs all inputs into one array, like a fused QKV projection, if their dtypes and head sizes are equal.
    void pack_inputs() {
        halyard_tensor &first = call_.x[0];
        const auto is_alike = [&](const auto &x) { return x.dtype == first.dtype && x.shape[3] == first.shape[3]; };
        are_packed_ = strides_ == 1 && call_.n() > 1 && std::all_of(call_.x, call_.x + call_.n(), is_alike) &&
                      !rerotates_ && first.shape[3] <= 1024;
        const std::int64_t heads = std::accumulate(call_.x, call_.x + call_.n(), std::int64_t{0},
                                                   [](std::int64_t n, const auto &x) { return n + x.shape[2]; });
        for (int i = 0; i < call_.n() && are_packed_; i++) {
            const std::int64_t row = std::max<std::int64_t>(heads, 1) * first.shape[3];
            const std::int64_t strides[] = {n_tokens_ * row, row, first.shape[3], 1};
            std::copy(strides, strides + 4, call_.x[i].strides);
        }
    }

    void place_tensors() {
        const bool is_separate = draw_.one_in(2), is_mixed = !choice_.on_device && draw_.one_in(2);
        const std::size_t inputs = memory_.new_region(), outputs = is_mixed ? inputs : memory_.new_region();
        const std::size_t weights = memory_.new_region();
        std::int64_t heads = 0;
        const auto step_of = [&](const halyard_tensor &view) {
            return std::max<std::int64_t>(choice_.step, choice_.on_device ? bytes_of(view.dtype) : 1);
        };
        const auto gap = [&] { return choice_.step * draw_.in(0, choice_.step > 1 ? 2 : 9); };
        for (int i = 0; i < call_.n(); i++) {
            halyard_tensor &x = call_.x[i], &y = call_.y[i];
            const bool is_cached = call_.kv[i].cache != nullptr;
            if (are_packed_ && i > 0) {
                memory_.add_beside(x.data, call_.x[0].data, heads * x.shape[3] * bytes_of(x.dtype));
            } else if (are_packed_) {
                halyard_tensor all = x;
                all.shape[2] = x.strides[1] / x.shape[3];
                memory_.add(x.data, inputs, extent_of(all), step_of(x), gap());
            } else if (!rerotates_ || !is_cached) {
                memory_.add(x.data, drawn_.in_place[i] ? outputs : inputs, extent_of(x), step_of(x), gap());
            }
            heads += x.shape[2];
            if (drawn_.in_place[i]) {
                std::copy(x.strides, x.strides + 4, y.strides);
                memory_.add_beside(y.data, x.data, 0);
            } else if (!is_cached) {
                memory_.add(y.data, is_separate ? memory_.new_region() : outputs, extent_of(y), step_of(y), gap());
            }
            add_stages(i, is_separate ? memory_.new_region() : outputs, is_separate ? memory_.new_region() : weights);
        }
    }

    // ---- Stages ----

    void add_stages(int i, std::size_t cache_region, std::size_t weight_region) {
        const halyard_kv_desc &kv = call_.kv[i];
        halyard_stages &stages = call_.stages[i];
        const std::int64_t heads = call_.x[i].shape[2], head_dim = call_.tensors[i].head_dim;
        if (kv.norm != nullptr && kv.norm->weight_dtype != 0) {
            const halyard_norm_desc &norm = *kv.norm;
            stages.n_weights = call_.norm_size(i) * (norm.weight_per_head != 0 ? heads : 1);
            const auto add = [&](const void *&array) {
                const std::int64_t bytes = bytes_of(norm.weight_dtype);
                Extent extent(bytes, stages.n_weights);
                const std::int64_t step = choice_.on_device ? choice_.step
                                          : draw_.one_in(2) ? bytes  // aligned f32 weights are not copied
                                                            : 1;
                extent.low -= std::max(step, bytes) * draw_.in(0, 3);  // unused elements in front
                memory_.add(array, weight_region, extent, step, step == 1 ? draw_.in(0, 3) : 0);
            };
            add(stages.weight);
            if (norm.has_bias != 0) {
                add(stages.bias);
            }
        }
        const std::int64_t row = halyard::detail::multiply(head_dim, bytes_of(call_.out_dtype(i)));  // may overflow
        if (drawn_.is_packed[i]) {
            memory_.add_beside(stages.cache, call_.stages[i - 1].cache, row);
        } else if (kv.cache != nullptr) {
            Extent extent = extent_of_cache(call_, i);  // plus what follows the last slot's elements
            extent.high += drawn_.page_scales[i] != 0                     ? kv.cache->stride_block
                           : i + 1 < call_.n() && drawn_.is_packed[i + 1] ? row
                           : has_scales_in_gaps(i)                        ? 8
                                                                          : 0;
            const std::int64_t step = std::max<std::int64_t>(choice_.step, has_scales_in_gaps(i) ? 4 : 1);
            memory_.add(stages.cache, cache_region, extent, step, step * draw_.in(0, 3));
        }
        if (call_.is_dynamic(i)) {
            add_dynamic_scales(i);
        } else if (kv.scale != nullptr) {
            stages.n_scales = kv.scale->per == HALYARD_SCALE_PER_HEAD ? heads : 1;
            memory_.add(stages.scales, memory_.new_region(), Extent(4, stages.n_scales), 4);
        }
        if (kv.position_scales != 0) {
            add_position_scales(i);
        }
        const bool has_group_scales = add_group_scales(i);
        if (kv.norm != nullptr || kv.scale != nullptr || kv.cache != nullptr || kv.position_scales != 0 ||
            has_group_scales || draw_.one_in(4)) {
            call_.kv_args.stages = call_.stages;
        }
    }

    /// Adds the arrays of group scales that tensor i's formats keep outside their records. Returns whether it has any.
    bool add_group_scales(int i) {
        halyard_stages &stages = call_.stages[i];
        bool has_group_scales = false;
        for (const bool is_input : {false, true}) {
            if ((is_input && rerotates_) || call_.groups_of(i, is_input) == nullptr ||
                !call_.record_of(i, is_input).scales_apart) {
                continue;
            }
            has_group_scales = true;
            const Extent extent = extent_of_group_scales(call_, i, is_input);
            if (is_input) {
                memory_.add(stages.from_group_scales, memory_.new_region(), extent, 1, draw_.in(0, 3));
            } else if (drawn_.page_scales[i] != 0) {
                memory_.add_beside(stages.group_scales, stages.cache, drawn_.page_scales[i]);
            } else {
                memory_.add(stages.group_scales, memory_.new_region(), extent, 1, draw_.in(0, 3));
            }
        }
        return has_group_scales;
    }

    /// Whether each head's dynamic scale lies in the cache, after the head's elements.
    bool has_scales_in_gaps(int i) const {
        return call_.is_dynamic(i) && call_.kv[i].cache != nullptr && call_.caches[i].block_size == 0 &&
               call_.caches[i].stride_head > 0;
    }

    /// Adds dynamic scales with gaps. In a cache the innermost dimension is heads or slots.
    void add_dynamic_scales(int i) {
        halyard_stages &stages = call_.stages[i];
        const std::int64_t heads = call_.x[i].shape[2];
        const bool has_cache = call_.kv[i].cache != nullptr, by_head = has_cache && draw_.one_in(2);
        stages.stride_scales[2] = by_head ? drawn_.n_slots : 1;
        stages.stride_scales[1] = by_head ? 1 : heads + draw_.in(0, 2);
        stages.stride_scales[0] = has_cache ? 0 : n_tokens_ * stages.stride_scales[1];
        if (has_scales_in_gaps(i)) {
            stages.stride_scales[2] = call_.caches[i].stride_head / 4;
            stages.stride_scales[1] = call_.caches[i].stride_token / 4;
            memory_.add_beside(stages.scales_out, stages.cache, (call_.tensors[i].head_dim + 3) / 4 * 4);
            return;
        }
        // Scales that several threads may read and write are aligned: the library's accesses are atomic only then.
        const std::int64_t step = has_cache || choice_.rerotates ? sizeof(float) : 1;
        memory_.add(stages.scales_out, memory_.new_region(), extent_of_scales_out(call_, i), step,
                    step * draw_.in(0, 3));
    }

    /// Adds scales by position: one scale, one per token, or one per token and head. Strides have gaps and either sign.
    void add_position_scales(int i) {
        std::int64_t(&strides)[3] = call_.stages[i].stride_position_scales;
        if (drawn_.position_scales[i] > 1) {
            const bool by_head = drawn_.position_scales[i] == 3;
            strides[2] = by_head ? draw_.in(1, 2) : 0;
            strides[1] = (by_head ? call_.x[i].shape[2] * strides[2] : 1) + draw_.in(0, 1);
            strides[0] = draw_.one_in(3) ? 0 : n_tokens_ * strides[1] + draw_.in(0, 1);
            strides[1] *= draw_.one_in(4) ? -1 : 1;
        }
        memory_.add(call_.stages[i].position_scales, memory_.new_region(), extent_of_position_scales(call_, i), 1,
                    draw_.in(0, 3));
    }

    // ---- Contents ----

    void fill_stages(int i) {
        halyard_stages &stages = call_.stages[i];
        for (const void *const array : {stages.weight, stages.bias}) {
            for (std::int64_t k = 0; array != nullptr && k < stages.n_weights; k++) {
                const std::int32_t dtype = call_.norms[i].weight_dtype;
                write_real(dtype, static_cast<const char *>(array) + k * bytes_of(dtype),
                           (array == stages.weight ? 1.0f : 0.0f) + half_a_unit());
            }
        }
        for (std::int64_t k = 0; stages.scales != nullptr && k < stages.n_scales; k++) {
            write_real(HALYARD_F32, stages.scales + k, scale());
        }
        if (stages.position_scales == nullptr ||
            !memory_.holds(stages.position_scales, extent_of_position_scales(call_, i))) {
            return;  // a fuzzer has replaced the pointer or the shape
        }
        for_each_head(call_, i, [&](const Head &at) {
            static constexpr float special[] = {0.0f, -1.5f, 0x1p-20f};
            write_real(HALYARD_F32, place_of_position_scale(call_, i, at),
                       contents_.one_in(8) ? contents_.one_of(special) : 1.0f + half_a_unit());
        });
    }
    float half_a_unit() { return 0.5f * static_cast<float>(contents_.unit()); }
    float scale() { return 0.03f + 0.02f * static_cast<float>(contents_.unit()); }

    /// Fills tensor i's input: with finite numbers as large as activations, or with any values if the case allows them.
    void fill_input(int i) {
        const std::int32_t dtype = call_.in_dtype(i);
        const bool is_cached = rerotates_ && call_.kv[i].cache != nullptr;
        const halyard_stages &stages = call_.stages[i];
        const bool has_scales_apart = call_.groups_of(i, true) != nullptr && call_.record_of(i, true).scales_apart;
        if (call_.tensors[i].head_dim > 1 << 20 ||
            !memory_.holds(is_cached ? stages.cache : call_.x[i].data,
                           is_cached ? extent_of_cache(call_, i) : extent_of(call_.x[i])) ||
            (has_scales_apart && !memory_.holds(rerotates_ ? stages.group_scales : stages.from_group_scales,
                                                extent_of_group_scales(call_, i, true)))) {
            return;  // a fuzzer has replaced the pointer or the shape
        }
        // Norms must work for inputs around 0 and for inputs with a large mean.
        const float size = std::ldexp(4.0f, static_cast<int>(contents_.one_in(3) ? contents_.in(-12, 8) : 0));
        const float around = contents_.one_in(3) ? contents_.one_of({1.0f, -100.0f, 1000.0f}) : 0.0f;
        for_each_head(call_, i, [&](const Head &at) {
            if (place_of_input(call_, i, at, 0) == nullptr || drawn_.has_bad_slot(at.batch, at.token)) {
                return;
            }
            if (dtype == HALYARD_UINT8) {
                fill_quantised_head(i, at);
                return;
            }
            if (!drawn_.are_inputs_finite && call_.groups_of(i, false) != nullptr) {
                fill_edge_values(i, at);
                return;
            }
            for (std::int64_t d = 0; d < call_.tensors[i].head_dim; d++) {
                char *const element = place_of_input(call_, i, at, d);
                if (dtype <= HALYARD_BF16 && drawn_.are_inputs_finite) {
                    write_real(dtype, element, around + size * static_cast<float>(contents_.unit()));
                } else if (dtype <= HALYARD_BF16) {
                    oracle::write_word(dtype, element, oracle::random_word(contents_, dtype, values_));
                } else {
                    do {
                        *element = static_cast<char>(contents_.bits());
                    } while (drawn_.are_inputs_finite && !std::isfinite(read_real(dtype, element)));
                }
            }
            if (rerotates_ && call_.is_dynamic(i)) {  // a re-rotation reads the old scale
                write_real(HALYARD_F32, place_of_scale(call_, i, at), scale());
            }
        });
    }

    /// Fills a head of tensor i's quantised input. If inputs are finite, it gets encoded numbers; else it keeps the
    /// random bytes of its memory. But a re-rotated head must have finite scales and zero points, so it always gets
    /// encoded numbers first, and then, if inputs need not be finite, random bytes as elements.
    void fill_quantised_head(int i, const Head &at) {
        const oracle::Record record = call_.record_of(i, true);
        if (!drawn_.are_inputs_finite && !rerotates_) {
            return;
        }
        std::vector<float> head;
        const auto size = static_cast<float>(contents_.one_in(16) ? 0 : contents_.in(1, 4));
        for (std::int64_t d = 0; d < record.head_dim; d++) {
            head.push_back(size * static_cast<float>(contents_.unit()));
        }
        char *const bytes = place_of_input(call_, i, at, 0);
        char *const scales = record.scales_apart ? place_of_group_scales(call_, i, at, true) : nullptr;
        oracle::encode(record, head.data(), bytes, scales);
        for (std::int64_t g = 0; !drawn_.are_inputs_finite && g < record.n_groups(); g++) {
            char *const data = bytes + record.data_offset + g * record.data_stride;
            std::generate(data, data + record.data_bytes(), [&] { return static_cast<char>(contents_.bits()); });
        }
    }

    /// Fills a head with values that are hard to quantise. A group may have: only zeros; a single nonzero element; ties
    /// (n + 0.5) and the maximum 127, so that the scale is 1; subnormal, huge or non-finite numbers; random bits.
    void fill_edge_values(int i, const Head &at) {
        static constexpr float specials[] = {NAN,   INFINITY,  -INFINITY,  0.0f,
                                             -0.0f, 0x1p-149f, -0x1p-126f, 127 * 65504.0f};
        const std::int64_t n = call_.record_of(i, false).group, head_dim = call_.tensors[i].head_dim;
        std::int64_t kind = 0, lone = 0;
        int exponent = 0;
        for (std::int64_t d = 0; d < head_dim; d++) {
            if (d % n == 0) {
                kind = contents_.in(0, 9);
                lone = contents_.in(0, n - 1);
                exponent = static_cast<int>(kind < 5 ? 0 : contents_.in(-150, 127));
            }
            const double unit = contents_.unit();
            const double value = kind == 0   ? (d % n == lone && contents_.one_in(2) ? unit : 0)
                                 : kind == 1 ? (d % n == lone ? 127 : std::nearbyint(254 * unit) / 2)
                                 : kind == 2 ? std::nearbyint(32 * unit) / 4
                                 : kind == 8 && contents_.one_in(6) ? contents_.one_of(specials)
                                 : kind == 9 ? oracle::widen(HALYARD_F32, static_cast<std::uint32_t>(contents_.bits()))
                                             : std::ldexp(unit, exponent);
            write_real(call_.tensors[i].dtype, place_of_input(call_, i, at, d), static_cast<float>(value));
        }
    }

    // ---- Slots ----

    void draw_slots() {
        halyard_slots &slots = call_.slots;
        const int kind = drawn_.level(of_slots);
        slots.type = kind < 2 ? kind : static_cast<std::int32_t>(draw_.in(HALYARD_INT32, HALYARD_INT64));
        slots.consecutive = kind == 2 ? 1 : 0;
        slots.policy = choice_.on_device ? HALYARD_SLOTS_RANGE_ONLY : drawn_.level(of_policy);
        slots.shape[0] = call_.n_batch();
        slots.shape[1] = kind == 2 ? 1 : n_tokens_;
        slots.strides[0] = slots.shape[1] + (draw_.one_in(2) ? 0 : draw_.in(1, 3));
        slots.strides[1] = 1;
        memory_.add(slots.data, memory_.new_region(), extent_of(slots), choice_.on_device ? 4 : 1,
                    choice_.on_device ? 0 : draw_.in(0, 1));
        if (slots.policy == HALYARD_SLOTS_CHECK) {
            slots.scratch_bytes = (drawn_.n_slots + 7) / 8;
            memory_.add(slots.scratch, memory_.new_region(), Extent(1, slots.scratch_bytes), 1);
        }
        call_.kv_args.slots = &slots;
    }

    /// Writes the slots: ascending or not, some -1, duplicates if the policy allows them, some bad ones if has_bad.
    void fill_slots() {
        const halyard_slots &slots = call_.slots;
        if (call_.kv_args.slots == nullptr) {
            return;
        }
        const bool are_ranges = slots.consecutive != 0;
        const std::int64_t n = call_.n_batch() * n_tokens_, n_slots = drawn_.n_slots;
        const std::int64_t skip = draw_.in(0, std::max<std::int64_t>(n_slots - n, 0));
        const bool are_in_order = draw_.one_in(2);
        const bool may_be_doubled = slots.policy == HALYARD_SLOTS_RANGE_ONLY && !choice_.on_device;
        std::vector<std::int64_t> used;
        for (std::int64_t i = 0; i < n; i += are_ranges ? n_tokens_ : 1) {
            std::int64_t slot = are_ranges || (are_in_order && !draw_.one_in(12)) ? skip + i : draw_.in(0, n_slots - 1);
            const bool is_doubled =  // not on a device, which may keep either of two tokens in one slot
                draw_.one_in(may_be_doubled ? 3 : 40) && (may_be_doubled || (choice_.has_bad && !choice_.on_device));
            while (!are_ranges && !is_doubled && std::count(used.begin(), used.end(), slot) != 0) {
                slot = (slot + 1) % n_slots;
            }
            slot = draw_.one_in(are_ranges ? 4 : 9) ? -1 : slot;
            if (choice_.has_bad && draw_.one_in(choice_.on_device ? 4 : 40)) {
                slot = draw_.one_in(2) ? -2 - draw_.in(0, 9) : n_slots + (draw_.one_in(2) ? 0 : draw_.in(1, 99));
            }
            used.push_back(slot);
            write_number(slots.type, place_of_number(slots, i / n_tokens_, i % n_tokens_), slot);
        }
    }

    // ---- Positions ----

    /// Draws the run's positions and, for a re-rotation, the positions that keys were stored with.
    void draw_positions() {
        halyard_run_args &args = call_.args;
        args.n_tensors = draw_.one_in(2) ? call_.plan.n_tensors : 0;
        args.bad_position = rerotates_ ? 0 : static_cast<std::int32_t>(draw_.in(0, 2));
        const bool may_be_absent = !rerotates_ && angles_.first <= 0 && angles_.last >= n_tokens_ &&
                                   (call_.n_batch() == 1 || (n_tokens_ != 1 && !angles_.is_given()));
        if (!may_be_absent || !draw_.one_in(6)) {
            draw_form(call_.positions);
            args.positions = &call_.positions;
        }
        if (rerotates_) {
            draw_form(call_.from_positions);
            call_.kv_args.from_positions = &call_.from_positions;
        }
    }

    /// Draws the form of positions: int32 or int64, per token or consecutive, batch rows' own or shared, strides, axes.
    void draw_form(halyard_positions &view) {
        const bool are_far_apart = angles_.last - std::int64_t{angles_.first} > n_tokens_;
        const std::int64_t bytes = draw_.one_in(2) ? 8 : 4;
        view.type = bytes == 8 ? HALYARD_INT64 : HALYARD_INT32;
        view.consecutive = (rerotates_ ? positions_ < 2 : are_far_apart) && draw_.one_in(4) ? 1 : 0;
        view.shape[0] = draw_.one_in(2) ? call_.n_batch() : 1;
        view.shape[1] = view.consecutive != 0 ? 1 : n_tokens_;
        view.strides[1] = draw_.in(1, 2);
        view.strides[0] = view.shape[1] * view.strides[1] + draw_.in(0, 2);
        const bool are_equal = angles_.n_axes() > 1 && draw_.one_in(4);  // all axes share the positions
        view.n_axes = are_equal ? draw_.in(0, 1) : angles_.n_axes();
        view.stride_axis = view.shape[0] * view.strides[0] + draw_.in(0, 2);
        if (view.consecutive == 0 && draw_.one_in(4)) {
            view.strides[1] *= -1;
        }
        if (rerotates_ && positions_ == 0 && &view == &call_.from_positions) {  // fixed differences need equal forms
            view = call_.positions;
        }
        memory_.add(view.data, memory_.new_region(), extent_of(view), choice_.on_device ? bytes : 1,
                    choice_.on_device ? 0 : draw_.in(0, 3));
    }

    void fill_positions() {
        for (const halyard_positions *view : {call_.args.positions, call_.kv_args.from_positions}) {
            const std::int64_t n_axes = view != nullptr ? std::max<std::int64_t>(view->n_axes, 1) : 0;
            const std::int64_t n = n_axes == 0 ? 0 : n_axes * view->shape[0] * view->shape[1];
            const std::int64_t how = choice_.has_bad ? draw_.in(0, 2) : 0;  // 0: none is bad, 1: one is, 2: many are
            const std::int64_t lone = how == 1 && n > 0 ? draw_.in(0, n - 1) : -1;
            for (std::int64_t i = 0; i < n; i++) {
                const std::int64_t t = i % view->shape[1], b = i / view->shape[1] % view->shape[0];
                const std::int64_t axis = i / view->shape[1] / view->shape[0];
                const bool is_bad =
                    i == lone || (how == 2 && draw_.one_in(5)) || (draw_.one_in(2) && is_padding(*view, b, t));
                const std::int64_t position = is_bad        ? bad_position(view->type)
                                              : !rerotates_ ? good_position()
                                                            : draw_rerotated_position(view, axis, b, t);
                write_number(view->type, place_of_number(*view, axis, b, t), position);
            }
        }
    }

    /// Whether the position of token t of batch row b is not used, because no tensor writes a token that has it.
    bool is_padding(const halyard_positions &view, std::int64_t b, std::int64_t t) const {
        const char *const place = place_of_number(view, 0, b, t);
        return !any_token(call_, [&](std::int64_t batch, std::int64_t token) {
            return place_of_number(view, 0, batch, token) == place && drawn_.is_written(batch, token);
        });
    }

    /// A new or old position of re-rotated keys. Levels of of_positions: new and old positions have fixed differences
    /// (0), or positions are small (1), special (2) or any (3).
    std::int64_t draw_rerotated_position(const halyard_positions *view, std::int64_t axis, std::int64_t b,
                                         std::int64_t t) {
        static constexpr std::int64_t differences[HALYARD_MAX_AXES] = {-1000, 7, 123456, -8};
        static constexpr std::int64_t ends[] = {INT32_MIN, INT32_MIN + 1, -1, 0, 1, INT32_MAX};
        if (positions_ == 0 && view == &call_.from_positions) {
            const std::int64_t to = read_number(call_.positions.type, place_of_number(call_.positions, axis, b, t));
            return std::clamp<std::int64_t>(to, -(std::int64_t{1} << 40), std::int64_t{1} << 40) - differences[axis];
        }
        return positions_ <= 1   ? draw_.in(0, 8191)
               : positions_ == 2 ? draw_.one_of(ends)
                                 : static_cast<std::int32_t>(draw_.bits());
    }

    /// A position that the angle source covers, often near an end of its range.
    std::int64_t good_position() {
        const bool is_one = call_.positions.consecutive == 0;
        const std::int64_t first = angles_.first, last = angles_.last - (is_one ? 0 : n_tokens_);
        return !draw_.one_in(3)  ? draw_.in(first, last)
               : draw_.one_in(2) ? draw_.in(first, std::min(first + 1, last))
                                 : draw_.in(std::max(first, last - 1), last);
    }

    /// A position that the angle source does not cover.
    std::int64_t bad_position(std::int32_t type) {
        const std::int64_t first = angles_.first, last = angles_.last;
        const std::int64_t narrow[] = {first - 1, last + 1, INT32_MIN, INT32_MAX};
        const std::int64_t far[] = {INT64_MIN, INT64_MAX, std::int64_t{1} << 32, -(std::int64_t{1} << 40)};
        if (type == HALYARD_INT64 && draw_.one_in(2)) {
            return draw_.one_of(far);
        }
        return std::clamp<std::int64_t>(draw_.one_of(narrow), INT32_MIN, INT32_MAX);
    }
};

}  // namespace

void Case::draw_run() { RunDrawer(*this).draw(); }

// ---- What is refused -----------------------------------------------------------------------------------------------

bool Case::has_bad_slot(std::int64_t batch, std::int64_t token) const {
    const std::int64_t slot = call.kv_args.slots != nullptr ? slot_of(call, batch, token) : -1;
    return slot < -1 || slot >= n_slots;
}

bool Case::is_kept(std::int64_t batch, std::int64_t token) const {
    const std::int64_t slot = slot_of(call, batch, token);
    return slot >= 0 && !any_token(call, [&](std::int64_t b, std::int64_t t) {
               return (b > batch || (b == batch && t > token)) && slot_of(call, b, t) == slot;
           });
}

bool Case::is_written(std::int64_t batch, std::int64_t token) const {
    for (int i = 0; i < call.n(); i++) {
        if (call.x[i].shape[2] != 0 && (call.kv[i].cache == nullptr || slot_of(call, batch, token) != -1)) {
            return true;
        }
    }
    return false;
}

/// Whether a written token has a position that the angle source does not cover. Re-rotations accept every int32.
bool Case::has_bad_position(std::int64_t batch, std::int64_t token) const {
    const bool rerotates = call.plan.rerotates != 0,
               are_read = call.rotates() && angles.desc.by_token == 0 && is_written(batch, token);
    for (std::int64_t axis = 0; axis < angles.n_axes() && are_read; axis++) {
        const std::int64_t to = position_of(call.args.positions, axis, batch, token);
        const std::int64_t from = rerotates ? position_of(call.kv_args.from_positions, axis, batch, token) : 0;
        if (rerotates ? to != static_cast<std::int32_t>(to) || from != static_cast<std::int32_t>(from)
                      : !angles.is_covered(to)) {
            return true;
        }
    }
    return false;
}

bool Case::is_refused() const {
    return any_token(call, [&](std::int64_t b, std::int64_t t) {
        const bool is_doubled = call.kv_args.slots != nullptr && call.slots.policy == HALYARD_SLOTS_CHECK &&
                                slot_of(call, b, t) >= 0 && !is_kept(b, t);
        return is_doubled || has_bad_slot(b, t) ||
               (call.args.bad_position == HALYARD_BAD_POSITION_ERROR && has_bad_position(b, t));
    });
}

}  // namespace cases
