// A run of one tensor with stages drawn from lists, and q beside it; and the check of all that it wrote.
#pragma once

#include "checks/guarded_memory.h"
#include "checks/make_sources.h"
#include "checks/road_oracle.h"
#include "checks/rotate.h"
#include "layouts.h"

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

/// What a road is put together from; each number chooses from a list.
enum Factor {
    of_dtype,
    of_out_dtype,
    of_pairing,
    of_norm,
    of_order,
    of_rounding,
    of_scale,
    of_layout,
    of_slots,
    of_policy,
    of_window,
    of_head_dim,
    of_shape,
    of_heads,
    of_source,
    of_strides,
    n_factors
};
using Choice = std::array<int, n_factors>;
inline constexpr Choice n_levels = {3, 6, 5, 7, 2, 4, 6, n_layouts_of_caches, 2, 2, 2, 7, 5, 3, 2, 2};

class RoadScene {
public:
    enum class Mode { whole, parts, pool, bound, bound_parts };

    RoadScene(const Choice &choice, std::uint64_t seed) : random_(seed), layout_(choice[of_layout]) {
        static constexpr std::int64_t head_dims[] = {64, 80, 96, 128, 192, 256, 512};
        static constexpr std::int64_t shapes[][2] = {{1, 1}, {3, 1}, {1, 37}, {2, 19}, {1, 70}};
        static constexpr std::int64_t head_counts[] = {1, 3, 8};
        desc_ = sized<halyard_tensor_desc>();
        desc_.dtype = choice[of_dtype] + 1;
        desc_.out_dtype = choice[of_out_dtype] + 1;
        if (choice[of_scale] == 5 && desc_.out_dtype < HALYARD_E4M3) {
            desc_.out_dtype += 3;  // dynamic scales are for 8 bits
        }
        desc_.head_dim = head_dims[choice[of_head_dim]];
        desc_.no_rotation = choice[of_pairing] == 0 ? 1 : 0;
        road_.half_in = choice[of_pairing] % 2 == 1;
        road_.half_out = choice[of_pairing] == 1 || choice[of_pairing] == 4;
        desc_.pairing = road_.half_in ? HALYARD_PAIRING_HALF : HALYARD_PAIRING_INTERLEAVED;
        desc_.out_pairing = road_.half_out ? HALYARD_PAIRING_HALF : HALYARD_PAIRING_INTERLEAVED;
        rotary_dim_ = choice[of_window] == 0 ? desc_.head_dim : desc_.head_dim / 2;
        desc_.rotary_offset = choice[of_window] == 0 ? 0 : desc_.head_dim / 4 + 1;
        n_batch = shapes[choice[of_shape]][0];
        n_tokens = shapes[choice[of_shape]][1];
        n_heads = head_counts[choice[of_heads]];
        is_phase_ = choice[of_source] == 1;
        is_packed_ = choice[of_strides] == 1;
        road_.dtype = desc_.dtype;
        road_.n_heads = n_heads;
        road_.head_dim = desc_.head_dim;
        road_.rotary_dim = desc_.no_rotation != 0 ? 0 : rotary_dim_;
        road_.rotary_offset = desc_.rotary_offset;
        draw_norm(choice);
        draw_scale(choice[of_scale]);
        draw_slots(choice[of_slots] == 1, choice[of_policy] == 1);
        draw_memory();
    }
    RoadScene(const RoadScene &) = delete;
    RoadScene &operator=(const RoadScene &) = delete;

    std::int64_t n_batch, n_tokens, n_heads;
    bool has_cache() const { return layout_ != 0; }

    /// What a run leaves in memory: the output's region with all around it, dynamic scales, and q.
    std::vector<char> run(const char *target, Mode mode) {
        restore();
        auto q = sized<halyard_tensor_desc>();
        q.dtype = HALYARD_BF16;
        q.pairing = HALYARD_PAIRING_HALF;
        q.head_dim = rotary_dim_;
        halyard::plan_desc plan_desc(rotary_dim_, {q, desc_});
        plan_desc.target = target;
        const halyard::plan plan(plan_desc);
        const auto frequencies = halyard::frequencies::from_base(10000.0, rotary_dim_);
        const auto angles =
            is_phase_ ? halyard::angle_source::phase(frequencies) : halyard::angle_source::table(frequencies, 0, 199);
        const auto positions = halyard::positions(positions_.data(), {n_batch, n_tokens});
        const halyard_tensor x[] = {q_tensor(), x_tensor()}, y[] = {q_tensor(), y_tensor()};
        halyard::run_options options;
        options.positions = &positions;
        options.slots = has_cache() ? &slots_ : nullptr;
        options.stages = stages_;
        const halyard::pool pool(4);
        if (mode == Mode::pool) {
            options.executor = pool.executor();
        }
        if (mode == Mode::whole || mode == Mode::pool) {
            halyard::run(plan, angles, x, y, options);
        } else if (mode == Mode::parts) {
            for (const std::int32_t part : {2, 0, 1}) {
                options.part = {part, 3};
                halyard::run(plan, angles, x, y, options);
            }
        } else {
            const halyard::bound_run bound(plan, angles, x, y, options);
            const halyard_stages &s = stages_[1];
            halyard::bound_stages pointers;
            pointers.slots = has_cache() ? slots_.data : nullptr;
            pointers.slots_scratch = slots_.scratch;
            const void *const weights[] = {nullptr, s.weight};
            void *const caches[] = {nullptr, s.cache};
            const float *const scales[] = {nullptr, s.scales};
            float *const scales_out[] = {nullptr, s.scales_out};
            pointers.weights = weights;
            pointers.caches = caches;
            pointers.scales = scales;
            pointers.scales_out = scales_out;
            const auto call = [&](halyard::part_of_run part) {
                bound({x[0].data, x[1].data}, {y[0].data, has_cache() ? nullptr : y[1].data}, positions.data, pointers,
                      part);
            };
            if (mode == Mode::bound) {
                call({});
            } else {
                for (const std::int32_t part : {4, 2, 0, 1, 3}) {
                    call({part, 5});
                }
            }
        }
        std::vector<char> result(memory_->begin(), memory_->end());
        result.insert(result.end(), reinterpret_cast<const char *>(scales_out_.data()),
                      reinterpret_cast<const char *>(scales_out_.data() + scales_out_.size()));
        result.insert(result.end(), q_.begin(), q_.end());
        return result;
    }

    /// Checks what a run left: each stored element, and that nothing else was written.
    void check(const std::vector<char> &result) const {
        std::vector<bool> written(result.size());
        const std::int64_t bytes = oracle::stored_bytes(desc_.out_dtype);
        const auto inv_freq = oracle::inv_freq_of(10000.0L, rotary_dim_);
        long n_wrong = 0;
        for (std::int64_t token = 0; token < n_batch * n_tokens; token++) {
            const std::int64_t slot = has_cache() ? slot_values_[static_cast<std::size_t>(token)] : token;
            if (slot < 0 || (has_cache() && is_overwritten(token))) {
                continue;
            }
            std::vector<long double> cos, sin;
            for (const long double f : inv_freq) {
                const auto exact = exact_cos_sin(f, positions_[static_cast<std::size_t>(token)]);
                cos.push_back(exact.cos);
                sin.push_back(exact.sin);
            }
            const oracle::RoadValues values = oracle::road_of(road_, x_of_token(token), cos, sin);
            for (std::int64_t head = 0; head < n_heads; head++) {
                const auto dynamic = dynamic_scale(result, written, values, slot, token, head);
                for (std::int64_t d = 0; d < desc_.head_dim; d++) {
                    const auto i = static_cast<std::size_t>(head * desc_.head_dim + d);
                    const std::int64_t at = first_ + place_of(slot, token, head, d) * bytes;
                    std::uint32_t word = 0;
                    std::memcpy(&word, result.data() + at, static_cast<std::size_t>(bytes));
                    const auto scale = dynamic ? dynamic : static_scale(head, d);
                    const bool is_right =
                        oracle::may_be_stored(desc_.out_dtype, word, values.value[i], values.bound[i], scale);
                    if (!is_right && n_wrong++ == 0) {
                        CAPTURE(token, head, d, static_cast<double>(values.value[i]),
                                static_cast<double>(values.bound[i]), static_cast<double>(scale.value_or(1)),
                                static_cast<double>(oracle::decode(desc_.out_dtype, word)));
                        CHECK(is_right);
                    }
                    std::fill_n(written.begin() + at, bytes, true);
                }
            }
        }
        CHECK(n_wrong == 0);
        const std::size_t n_checked = result.size() - q_.size();
        long n_touched = 0;
        for (std::size_t i = 0; i < n_checked; i++) {
            n_touched += !written[i] && result[i] != before_[i] ? 1 : 0;
        }
        CHECK(n_touched == 0);
    }

private:
    oracle::Random random_;
    int layout_;
    halyard_tensor_desc desc_ = {};
    halyard_norm_desc norm_ = sized<halyard_norm_desc>();
    halyard_scale_desc scale_ = sized<halyard_scale_desc>();
    halyard_cache_desc cache_ = sized<halyard_cache_desc>();
    halyard_stages stages_[2] = {sized<halyard_stages>(), sized<halyard_stages>()};
    halyard_slots slots_ = sized<halyard_slots>();
    oracle::Road road_;
    std::int64_t rotary_dim_ = 0;
    bool is_phase_ = false, is_packed_ = false, in_place_ = false;
    std::vector<char> weight_, x_, q_, q_before_, x_before_, before_;
    std::vector<float> scales_, scales_out_;
    std::vector<std::int64_t> slot_values_;
    std::vector<std::int32_t> slots32_, positions_;
    std::vector<unsigned char> scratch_;
    std::unique_ptr<GuardedMemory> memory_;
    std::int64_t first_ = 0;  // where the output's element 0 lies in memory_, in bytes
    static constexpr std::int64_t n_pages = 4, page_size = 32;

    void draw_norm(const Choice &choice) {
        const int kind = choice[of_norm];
        if (kind == 0) {
            return;
        }
        oracle::RoadNorm norm;
        norm.row = kind == 5;
        norm.after = choice[of_order] == 1;
        norm.rounds_before = (choice[of_rounding] & 1) != 0 && desc_.dtype != HALYARD_F32;
        norm.rounds_after = (choice[of_rounding] & 2) != 0 && desc_.dtype != HALYARD_F32;
        norm.offset = kind == 4 ? 9 : 0;
        norm.size = kind == 4 ? desc_.head_dim - 24 : desc_.head_dim;
        norm.eps = kind == 6 ? 0.25L : static_cast<long double>(1e-6f);
        norm_.width = norm.row ? HALYARD_NORM_ROW : HALYARD_NORM_HEAD;
        norm_.order = norm.after ? HALYARD_NORM_AFTER : HALYARD_NORM_BEFORE;
        norm_.rounding = choice[of_rounding];
        norm_.window_offset = norm.offset;
        norm_.window_size = kind == 4 ? norm.size : 0;
        norm_.eps = kind == 6 ? 0.25 : 0.0;
        norm_.unit_offset = kind == 2 ? 1 : 0;
        const std::int32_t of_offset = random_.one_in(2) ? HALYARD_BF16 : HALYARD_F32;
        norm_.weight_dtype = kind == 3 ? 0 : kind == 2 ? of_offset : kind == 4 ? HALYARD_F16 : HALYARD_F32;
        if (kind != 3) {
            const std::int64_t n = norm.row ? n_heads * desc_.head_dim : norm.size;
            const std::int64_t bytes = oracle::element_bytes(norm_.weight_dtype);
            const std::int64_t first = random_.in(0, 1);  // aligned floats are read where they lie
            weight_.resize(static_cast<std::size_t>(n * bytes + first));
            for (std::int64_t i = 0; i < n; i++) {
                const auto word = oracle::narrow(norm_.weight_dtype, 1.0f + 0.5f * static_cast<float>(random_.unit()));
                oracle::write_word(norm_.weight_dtype, weight_.data() + first + i * bytes, word);
                const float w = oracle::widen(norm_.weight_dtype, word);
                norm.weight.push_back(norm_.unit_offset != 0 ? 1.0f + w : w);
            }
            stages_[1].weight = weight_.data() + first;
            stages_[1].n_weights = n;
        }
        desc_.norm = &norm_;
        road_.norm = norm;
    }

    void draw_scale(int kind) {
        if (kind == 0) {
            return;
        }
        desc_.scale = &scale_;
        scale_.kind = kind == 5 ? HALYARD_SCALE_DYNAMIC : HALYARD_SCALE_STATIC;
        scale_.per = kind == 5 ? 0 : kind - 1;
        if (kind != 5) {
            const std::int64_t n = ((scale_.per & 1) != 0 ? n_heads : 1) * ((scale_.per & 2) != 0 ? desc_.head_dim : 1);
            for (std::int64_t i = 0; i < n; i++) {
                scales_.push_back(0.03f + 0.02f * static_cast<float>(random_.unit()));
            }
            stages_[1].scales = scales_.data();
            stages_[1].n_scales = n;
        }
    }

    /// Slots in random order; with gaps, some tokens without one, and some doubled where that is allowed.
    void draw_slots(bool is_int64, bool may_be_doubled) {
        const std::int64_t n = n_batch * n_tokens, n_slots = n_pages * page_size;
        std::vector<std::int64_t> order;
        for (std::int64_t i = 0; i < n_slots; i++) {
            order.push_back(i);
        }
        if (random_.one_in(2)) {
            for (std::size_t i = order.size() - 1; i > 0; i--) {
                std::swap(order[i], order[static_cast<std::size_t>(random_.in(0, static_cast<std::int64_t>(i)))]);
            }
        }
        const std::int64_t skip = random_.in(0, n_slots - n);
        for (std::int64_t i = 0; i < n; i++) {
            std::int64_t slot = order[static_cast<std::size_t>(i + skip)];
            if (random_.one_in(9)) {
                slot = -1;
            } else if (may_be_doubled && i > 0 && random_.one_in(3)) {
                slot = slot_values_[static_cast<std::size_t>(random_.in(0, i - 1))];
            }
            slot_values_.push_back(slot);
            slots32_.push_back(static_cast<std::int32_t>(slot));
        }
        scratch_.assign(static_cast<std::size_t>(n_slots / 8), 0xff);
        slots_.type = is_int64 ? HALYARD_INT64 : HALYARD_INT32;
        slots_.policy = may_be_doubled ? HALYARD_SLOTS_RANGE_ONLY : HALYARD_SLOTS_CHECK;
        slots_.data = is_int64 ? static_cast<const void *>(slot_values_.data()) : slots32_.data();
        slots_.shape[0] = n_batch;
        slots_.shape[1] = slots_.strides[0] = n_tokens;
        slots_.strides[1] = 1;
        slots_.scratch = may_be_doubled ? nullptr : scratch_.data();
        slots_.scratch_bytes = static_cast<std::int64_t>(scratch_.size());
    }

    std::int64_t stride_x_token() const { return (is_packed_ ? n_heads + 2 : n_heads) * desc_.head_dim; }

    void draw_memory() {
        const std::int64_t n = n_batch * n_tokens, bytes = oracle::stored_bytes(desc_.out_dtype);
        for (std::int64_t i = 0; i < n; i++) {
            positions_.push_back(static_cast<std::int32_t>(random_.in(0, 199)));
        }
        const std::int64_t n_x = n * stride_x_token();
        x_before_ = oracle::random_elements(random_, desc_.dtype, oracle::Values::short_mantissa, 0);
        for (std::int64_t i = 0; i < n_x; i++) {
            const std::size_t at = x_before_.size();
            x_before_.resize(at + static_cast<std::size_t>(oracle::element_bytes(desc_.dtype)));
            oracle::write_word(desc_.dtype, x_before_.data() + at,
                               oracle::narrow(desc_.dtype, 4 * static_cast<float>(random_.unit())));
        }
        in_place_ = !has_cache() && desc_.dtype == desc_.out_dtype && random_.one_in(2) &&
                    (desc_.no_rotation != 0 || road_.half_in == road_.half_out);
        std::int64_t n_out = n * stride_x_token();
        if (has_cache()) {
            n_out = describe_layout(layout_, n_pages, page_size, n_heads, desc_.head_dim, cache_);
            desc_.cache = &cache_;
        }
        const auto n_bytes = static_cast<std::size_t>(n_out * bytes);
        memory_ = std::make_unique<GuardedMemory>(n_bytes / GuardedMemory::page + 1);
        first_ = memory_->end() - memory_->begin() - static_cast<std::int64_t>(n_bytes);
        stages_[1].cache = has_cache() ? memory_->begin() + first_ : nullptr;
        if (scale_.kind == HALYARD_SCALE_DYNAMIC) {
            // By slot, heads first; by token with a gap.
            const std::int64_t rows = has_cache() ? n_pages * page_size : n;
            scales_out_.assign(static_cast<std::size_t>(rows * (n_heads + 1)), -1.0f);
            stages_[1].scales_out = scales_out_.data();
            stages_[1].stride_scales[0] = has_cache() ? 0 : n_tokens * (n_heads + 1);
            stages_[1].stride_scales[1] = has_cache() ? 1 : n_heads + 1;
            stages_[1].stride_scales[2] = has_cache() ? rows : 1;
        }
        q_before_ = oracle::random_elements(random_, HALYARD_BF16, oracle::Values::short_mantissa, 2 * n * rotary_dim_);
        restore();
        before_.assign(memory_->begin(), memory_->end());
        before_.insert(before_.end(), reinterpret_cast<const char *>(scales_out_.data()),
                       reinterpret_cast<const char *>(scales_out_.data() + scales_out_.size()));
    }

    void restore() {
        x_ = x_before_;
        q_ = q_before_;
        std::memset(memory_->begin(), 0x5a, static_cast<std::size_t>(memory_->end() - memory_->begin()));
        if (in_place_) {
            std::memcpy(memory_->begin() + first_, x_before_.data(), x_before_.size());
        }
        std::fill(scales_out_.begin(), scales_out_.end(), -1.0f);
    }

    halyard_tensor tensor(void *data, std::int32_t dtype) const {
        return halyard::tensor(data, static_cast<halyard::dtype>(dtype), {n_batch, n_tokens, n_heads, desc_.head_dim},
                               {n_tokens * stride_x_token(), stride_x_token(), desc_.head_dim, 1});
    }
    halyard_tensor q_tensor() {
        return halyard::tensor(q_.data(), halyard::dtype::bf16, {n_batch, n_tokens, 2, rotary_dim_});
    }
    halyard_tensor x_tensor() { return tensor(in_place_ ? memory_->begin() + first_ : x_.data(), desc_.dtype); }
    halyard_tensor y_tensor() { return tensor(memory_->begin() + first_, desc_.out_dtype); }

    bool is_overwritten(std::int64_t token) const {
        for (auto i = static_cast<std::size_t>(token) + 1; i < slot_values_.size(); i++) {
            if (slot_values_[i] == slot_values_[static_cast<std::size_t>(token)]) {
                return true;
            }
        }
        return false;
    }

    std::vector<float> x_of_token(std::int64_t token) const {
        std::vector<float> x;
        const std::int64_t bytes = oracle::element_bytes(desc_.dtype);
        for (std::int64_t i = 0; i < n_heads * desc_.head_dim; i++) {
            x.push_back(oracle::widen(
                desc_.dtype,
                oracle::read_word(desc_.dtype, x_before_.data() + (token * stride_x_token() + i) * bytes)));
        }
        return x;
    }

    std::int64_t place_of(std::int64_t slot, std::int64_t token, std::int64_t head, std::int64_t d) const {
        return has_cache() ? index_in_layout(layout_, page_size, n_heads, desc_.head_dim, slot, head, d)
                           : token * stride_x_token() + head * desc_.head_dim + d;
    }

    std::optional<long double> static_scale(std::int64_t head, std::int64_t d) const {
        if (scales_.empty()) {
            return std::nullopt;
        }
        const std::int64_t channel = (scale_.per & 2) != 0 ? d : 0;
        const std::int64_t row = (scale_.per & 1) != 0 ? head * ((scale_.per & 2) != 0 ? desc_.head_dim : 1) : 0;
        return scales_[static_cast<std::size_t>(row + channel)];
    }

    /// The scale that was written, if it is right.
    std::optional<long double> dynamic_scale(const std::vector<char> &result, std::vector<bool> &written,
                                             const oracle::RoadValues &values, std::int64_t slot, std::int64_t token,
                                             std::int64_t head) const {
        if (scales_out_.empty()) {
            return std::nullopt;
        }
        long double greatest = 0, bound = 0;
        for (std::int64_t d = 0; d < desc_.head_dim; d++) {
            const auto i = static_cast<std::size_t>(head * desc_.head_dim + d);
            greatest = std::max(greatest, std::fabs(values.value[i]));
            bound = std::max(bound, values.bound[i]);
        }
        const std::int64_t index = has_cache() ? head * n_pages * page_size + slot : token * (n_heads + 1) + head;
        const std::int64_t at = memory_->end() - memory_->begin() + index * 4;
        float scale = 0;
        std::memcpy(&scale, result.data() + at, 4);
        const long double exact = greatest / oracle::greatest(desc_.out_dtype);
        CHECK(std::fabs(scale - exact) <= bound / oracle::greatest(desc_.out_dtype) + exact * 0x1p-23L);
        std::fill_n(written.begin() + at, 4, true);
        return scale;
    }
};
