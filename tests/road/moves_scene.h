// Cached keys of one tensor that move, with everything drawn from lists; and the check of all that was written.
#pragma once

#include "checks/guarded_memory.h"
#include "checks/make_sources.h"
#include "checks/road_oracle.h"
#include "checks/rotate.h"
#include "layouts.h"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

/// What a move is put together from; each number chooses from a list.
enum MoveFactor {
    of_dtype,
    of_scale,
    of_layout,  // one more than caches have: no_cache is in place, the last out of place
    of_pairing,
    of_window,
    of_head_dim,
    of_shape,
    of_heads,
    of_axes,
    of_sources,
    of_positions,
    of_slots,
    of_direction,
    n_move_factors
};
using MoveChoice = std::array<int, n_move_factors>;
inline constexpr MoveChoice n_move_levels = {6, 6, n_layouts_of_caches + 1, 2, 2, 5, 4, 3, 3, 4, 4, 3, 2};

class MovesScene {
public:
    enum class Mode { whole, parts, pool, bound, bound_parts };

    MovesScene(const MoveChoice &choice, std::uint64_t seed)
        : random_(seed), choice_(choice), layout_(choice[of_layout] % n_layouts_of_caches) {
        static constexpr std::int64_t head_dims[] = {64, 80, 96, 128, 192};
        static constexpr std::int64_t shapes[][2] = {{1, 1}, {3, 1}, {2, 19}, {1, 70}};
        static constexpr std::int64_t head_counts[] = {1, 3, 8};
        desc_ = sized<halyard_tensor_desc>();
        desc_.dtype = choice[of_dtype] + 1;
        desc_.head_dim = head_dims[choice[of_head_dim]];
        desc_.pairing = choice[of_pairing] + 1;
        rotary_dim_ = choice[of_window] == 0 ? desc_.head_dim : desc_.head_dim / 2;
        desc_.rotary_offset = choice[of_window] == 0 ? 0 : desc_.head_dim / 4 + 1;
        n_batch = shapes[choice[of_shape]][0];
        n_tokens = shapes[choice[of_shape]][1];
        n_heads = head_counts[choice[of_heads]];
        draw_sources();
        draw_positions();
        draw_scale();
        draw_slots();
        draw_memory();
    }
    MovesScene(const MovesScene &) = delete;
    MovesScene &operator=(const MovesScene &) = delete;

    std::int64_t n_batch, n_tokens, n_heads;

    /// What a run leaves in memory: the keys' region with all around it, then dynamic scales.
    std::vector<char> run(const char *target, Mode mode) {
        restore();
        halyard::plan_desc plan_desc(rotary_dim_, {desc_});
        plan_desc.rerotates = true;
        plan_desc.direction = choice_[of_direction];
        plan_desc.target = target;
        const halyard::plan plan(plan_desc);
        const halyard_positions to = positions(to_), from = positions(from_);
        const std::array<std::int64_t, 4> shape = {n_batch, n_tokens, n_heads, desc_.head_dim};
        const auto type = static_cast<halyard::dtype>(desc_.dtype);
        const bool is_copied = choice_[of_layout] == n_layouts_of_caches;
        const halyard_tensor y = halyard::tensor(has_cache() ? nullptr : memory_->begin() + first_, type, shape);
        const halyard_tensor x = is_copied ? halyard::tensor(x_.data(), type, shape) : y;
        halyard::run_options options;
        options.at(to).moved_from(from, angles_[1].get());
        options.slots = has_cache() ? &slots_ : nullptr;
        options.stages = desc_.scale != nullptr || has_cache() ? &stages_ : nullptr;
        const halyard::pool pool(4);
        if (mode == Mode::pool) {
            options.executor = pool.executor();
        }
        if (mode == Mode::whole || mode == Mode::pool) {
            halyard::run(plan, angles_[0], x, y, options);
        } else if (mode == Mode::parts) {
            for (const std::int32_t part : {2, 0, 1}) {
                options.part = {part, 3};
                halyard::run(plan, angles_[0], x, y, options);
            }
        } else {
            const halyard::bound_run bound(plan, angles_[0], x, y, options);
            halyard::bound_stages pointers;
            pointers.slots = has_cache() ? slots_.data : nullptr;
            pointers.slots_scratch = slots_.scratch;
            pointers.caches = &stages_.cache;
            pointers.scales = &stages_.scales;
            pointers.scales_out = &stages_.scales_out;
            pointers.from_positions = from.data;
            const auto call = [&](halyard::part_of_run part) { bound({x.data}, {y.data}, to.data, pointers, part); };
            if (mode == Mode::bound) {
                call({});
            } else {
                for (const std::int32_t part : {4, 2, 0, 1, 3}) {
                    call({part, 5});
                }
            }
        }
        std::vector<char> result(memory_->begin(), memory_->end());
        const auto *const scales = reinterpret_cast<const char *>(dynamic_.data());
        result.insert(result.end(), scales, scales + dynamic_.size() * sizeof(float));
        return result;
    }

    /// Checks what a run left: each key that moved, and that nothing else was written.
    void check(const std::vector<char> &result) const {
        std::vector<bool> may_change(result.size());
        const std::int64_t bytes = oracle::stored_bytes(desc_.dtype), n_pairs = rotary_dim_ / 2;
        long n_wrong = 0;
        for (std::int64_t token = 0; token < n_batch * n_tokens; token++) {
            const std::int64_t slot = has_cache() ? slot_of_token_[static_cast<std::size_t>(token)] : token;
            for (std::int64_t head = 0; head < n_heads && slot >= 0; head++) {
                const auto at = [&](std::int64_t d) { return first_ + place_of(slot, token, head, d) * bytes; };
                const float *const scale_before = dynamic_scale(dynamic_before_.data(), slot, token, head);
                std::vector<long double> value, bound(static_cast<std::size_t>(desc_.head_dim));
                for (std::int64_t d = 0; d < desc_.head_dim; d++) {
                    const long double scale = scale_before != nullptr ? *scale_before : static_scale(head, d);
                    value.push_back(oracle::decode(desc_.dtype, word_at(before_.data() + at(d))) * scale);
                }
                for (std::int64_t k = 0; k < n_pairs; k++) {
                    const bool is_half = desc_.pairing == HALYARD_PAIRING_HALF;
                    const auto i0 = static_cast<std::size_t>(desc_.rotary_offset + (is_half ? k : 2 * k));
                    const auto i1 = i0 + static_cast<std::size_t>(is_half ? n_pairs : 1);
                    const long double f = factors_[0] / factors_[1], theta = angle(token, k);
                    const long double c = f * std::cos(theta), s = f * std::sin(theta);
                    const long double v0 = value[i0], v1 = value[i1];
                    value[i0] = v0 * c - v1 * s;
                    value[i1] = v0 * s + v1 * c;
                    bound[i0] = bound[i1] = (by_channel() ? 2.5L : 2.0L) * 0x1p-23L * f * std::hypot(v0, v1);
                }
                const float *const scale_after =
                    dynamic_scale(reinterpret_cast<const float *>(result.data() + (memory_->end() - memory_->begin())),
                                  slot, token, head);
                if (scale_after != nullptr) {
                    const auto index = reinterpret_cast<const char *>(scale_after) - result.data();
                    std::fill_n(may_change.begin() + index, sizeof(float), true);
                    n_wrong += is_scale_right(*scale_after, value, bound) ? 0 : 1;
                }
                for (std::int64_t d = 0; d < desc_.head_dim; d++) {
                    const auto i = static_cast<std::size_t>(d);
                    const long double scale = scale_after != nullptr ? *scale_after : static_scale(head, d);
                    const std::uint32_t word = word_at(result.data() + at(d));
                    const bool is_right = oracle::may_be_stored(desc_.dtype, word, value[i], bound[i],
                                                                has_scale() ? std::optional(scale) : std::nullopt);
                    if (!is_right && n_wrong++ == 0) {
                        CAPTURE(token, head, d, static_cast<double>(value[i]), static_cast<double>(bound[i]),
                                static_cast<double>(scale), static_cast<double>(oracle::decode(desc_.dtype, word)));
                        CHECK(is_right);
                    }
                    std::fill_n(may_change.begin() + at(d), bytes, true);
                }
            }
        }
        CHECK(n_wrong == 0);
        long n_touched = 0;
        for (std::size_t i = 0; i < result.size(); i++) {
            n_touched += !may_change[i] && result[i] != before_[i] ? 1 : 0;
        }
        CHECK(n_touched == 0);
    }

private:
    oracle::Random random_;
    MoveChoice choice_;
    int layout_;
    halyard_tensor_desc desc_ = {};
    halyard_scale_desc scale_ = sized<halyard_scale_desc>();
    halyard_cache_desc cache_ = sized<halyard_cache_desc>();
    halyard_stages stages_ = sized<halyard_stages>();
    halyard_slots slots_ = sized<halyard_slots>();
    std::int64_t rotary_dim_ = 0;
    std::array<halyard::angle_source, 2> angles_;  // to, from; the latter empty where there is one
    std::array<std::vector<long double>, 2> inv_freq_;
    std::array<long double, 2> factors_ = {1, 1};
    std::int32_t n_axes_ = 1;
    std::array<std::int64_t, 3> counts_ = {};
    std::vector<std::int32_t> to_, from_;  // [axis, batch, token]
    std::vector<char> x_, before_;
    std::vector<float> scales_, dynamic_, dynamic_before_;
    std::vector<std::int64_t> slot_of_token_, slots64_;
    std::vector<std::int32_t> slots32_;
    std::vector<unsigned char> scratch_;
    std::unique_ptr<GuardedMemory> memory_;
    std::int64_t first_ = 0;  // where the keys' element 0 lies in memory_, in bytes
    static constexpr std::int64_t n_pages = 4, page_size = 32, n_slots = n_pages * page_size;

    bool has_cache() const { return layout_ != no_cache; }
    bool by_channel() const { return has_scale() && (scale_.per & 2) != 0; }
    bool has_scale() const { return desc_.scale != nullptr; }

    /// One source that keys come from and go to, or two with frequencies and factors of their own, as LongRoPE's are.
    void draw_sources() {
        const std::int64_t n_pairs = rotary_dim_ / 2;
        const int kind = choice_[of_sources];
        auto desc = sized<halyard_angle_source_desc>();
        desc.kind = kind == 0 ? HALYARD_ANGLES_TABLE : kind == 1 ? HALYARD_ANGLES_FACTORED : HALYARD_ANGLES_PHASE;
        desc.last = 40;  // ranges do not matter
        if (choice_[of_axes] != 0) {
            n_axes_ = desc.n_axes = 3;
            desc.axis_map = choice_[of_axes] == 1 ? HALYARD_AXIS_MAP_SECTIONS : HALYARD_AXIS_MAP_INTERLEAVED;
            counts_[1] = desc.axis_counts[1] = n_pairs / 3;
            counts_[2] = desc.axis_counts[2] = n_pairs / 3 - 1;
            counts_[0] = desc.axis_counts[0] = n_pairs - 2 * (n_pairs / 3) + 1;
        }
        for (std::size_t i = 0; i < (kind == 3 ? 2u : 1u); i++) {
            std::vector<double> list;
            for (const long double f : oracle::inv_freq_of(i == 0 ? 10000.0L : 500000.0L, rotary_dim_)) {
                list.push_back(static_cast<double>(f / (i == 0 ? 1 : 1.25L)));
                inv_freq_[i].push_back(list.back());
            }
            const double factor = kind == 0 ? 1.0 : i == 0 ? 1.19 : 0.7;
            factors_[i] = factor;
            angles_[i] = halyard::angle_source(make_frequencies(list, factor), desc);
        }
        if (kind != 3) {
            inv_freq_[1] = inv_freq_[0];
            factors_[1] = factors_[0];
        }
    }

    void draw_positions() {
        std::array<std::int64_t, 3> delta = {-1000, 7, 123456};
        const std::int64_t ends[] = {least_position, least_position + 1, -1, 0, 1, greatest_position};
        for (std::int64_t axis = 0; axis < n_axes_; axis++) {
            for (std::int64_t token = 0; token < n_batch * n_tokens; token++) {
                std::int64_t from = random_.in(0, 8191), to = from + delta[static_cast<std::size_t>(axis)];
                if (choice_[of_positions] == 1) {
                    to = random_.in(0, 8191);
                } else if (choice_[of_positions] == 2) {
                    to = random_.one_of(ends);
                    from = random_.one_of(ends);
                } else if (choice_[of_positions] == 3) {
                    to = static_cast<std::int32_t>(random_.bits());
                    from = static_cast<std::int32_t>(random_.bits());
                }
                to_.push_back(static_cast<std::int32_t>(to));
                from_.push_back(static_cast<std::int32_t>(from));
            }
        }
    }

    halyard_positions positions(const std::vector<std::int32_t> &values) const {
        auto result = halyard::positions(values.data(), {n_batch, n_tokens});
        result.n_axes = n_axes_;
        result.stride_axis = n_batch * n_tokens;
        return result;
    }

    std::size_t axis_of(std::int64_t pair) const {
        if (choice_[of_axes] == 1) {
            return pair < counts_[0] ? 0 : pair < counts_[0] + counts_[1] ? 1 : 2;
        }
        const auto axis = static_cast<std::size_t>(choice_[of_axes] == 0 ? 0 : pair % 3);
        return axis != 0 && pair < 3 * counts_[axis] ? axis : 0;
    }

    /// By how much a pair turns; exact to 2^-31.
    long double angle(std::int64_t token, std::int64_t pair) const {
        const std::size_t at =
            axis_of(pair) * static_cast<std::size_t>(n_batch * n_tokens) + static_cast<std::size_t>(token);
        const auto k = static_cast<std::size_t>(pair);
        const bool is_one = choice_[of_sources] != 3;
        const long double theta = is_one ? inv_freq_[0][k] * static_cast<long double>(std::int64_t{to_[at]} - from_[at])
                                         : inv_freq_[0][k] * to_[at] - inv_freq_[1][k] * from_[at];
        return choice_[of_direction] == HALYARD_INVERSE ? -theta : theta;
    }

    void draw_scale() {
        const int kind = choice_[of_scale];
        if (kind == 0 || (kind == 5 && desc_.dtype < HALYARD_E4M3)) {
            return;  // dynamic scales are for 8 bits
        }
        desc_.scale = &scale_;
        scale_.kind = kind == 5 ? HALYARD_SCALE_DYNAMIC : HALYARD_SCALE_STATIC;
        scale_.per = kind == 5 ? 0 : kind - 1;
        const std::int64_t n = ((scale_.per & 1) != 0 ? n_heads : 1) * ((scale_.per & 2) != 0 ? desc_.head_dim : 1);
        for (std::int64_t i = 0; i < n && kind != 5; i++) {
            scales_.push_back(0.03f + 0.02f * static_cast<float>(random_.unit()));
        }
        stages_.scales = kind != 5 ? scales_.data() : nullptr;
        stages_.n_scales = kind != 5 ? n : 0;
        if (kind == 5) {  // by slot, heads first; by token with a gap
            const std::int64_t n_rows = has_cache() ? n_slots : n_batch * n_tokens;
            for (std::int64_t i = 0; i < n_rows * (n_heads + 1); i++) {
                dynamic_before_.push_back(0.03f + 0.02f * static_cast<float>(random_.unit()));
            }
            dynamic_ = dynamic_before_;
            stages_.scales_out = dynamic_.data();
            stages_.stride_scales[0] = has_cache() ? 0 : n_tokens * (n_heads + 1);
            stages_.stride_scales[1] = has_cache() ? 1 : n_heads + 1;
            stages_.stride_scales[2] = has_cache() ? n_slots : 1;
        }
    }

    long double static_scale(std::int64_t head, std::int64_t d) const {
        if (scales_.empty()) {
            return 1;
        }
        const std::int64_t channel = (scale_.per & 2) != 0 ? d : 0;
        const std::int64_t row = (scale_.per & 1) != 0 ? head * ((scale_.per & 2) != 0 ? desc_.head_dim : 1) : 0;
        return scales_[static_cast<std::size_t>(row + channel)];
    }

    const float *dynamic_scale(const float *scales, std::int64_t slot, std::int64_t token, std::int64_t head) const {
        const std::int64_t index = has_cache() ? head * n_slots + slot : token * (n_heads + 1) + head;
        return dynamic_.empty() ? nullptr : scales + index;
    }

    bool is_scale_right(float scale, const std::vector<long double> &value,
                        const std::vector<long double> &bound) const {
        long double greatest = 0, most = 0;
        for (std::size_t i = 0; i < value.size(); i++) {
            greatest = std::max(greatest, std::fabs(value[i]));
            most = std::max(most, bound[i]);
        }
        const long double exact = greatest / oracle::greatest(desc_.dtype);
        return std::fabs(scale - exact) <= most / oracle::greatest(desc_.dtype) + exact * 0x1p-23L;
    }

    /// Slots in random order, some tokens without one; or ranges, of which one batch row's is nothing.
    void draw_slots() {
        const std::int64_t n = n_batch * n_tokens;
        std::vector<std::int64_t> order(n_slots);
        std::iota(order.begin(), order.end(), std::int64_t{0});
        const bool is_range = choice_[of_slots] == 2;
        for (std::size_t i = order.size() - 1; i > 0 && !is_range; i--) {
            std::swap(order[i], order[static_cast<std::size_t>(random_.in(0, static_cast<std::int64_t>(i)))]);
        }
        const std::int64_t skip = random_.in(0, n_slots - n);
        for (std::int64_t i = 0; i < n; i++) {
            const bool is_out = is_range ? i / n_tokens == 1 : random_.one_in(9);
            slot_of_token_.push_back(is_out ? -1 : order[static_cast<std::size_t>(i + skip)]);
            if (!is_range || i % n_tokens == 0) {
                slots64_.push_back(slot_of_token_.back());
                slots32_.push_back(static_cast<std::int32_t>(slot_of_token_.back()));
            }
        }
        scratch_.assign(static_cast<std::size_t>(n_slots / 8), 0xff);
        slots_.type = choice_[of_slots] != 0 ? HALYARD_INT64 : HALYARD_INT32;
        slots_.data = choice_[of_slots] != 0 ? static_cast<const void *>(slots64_.data()) : slots32_.data();
        slots_.consecutive = is_range ? 1 : 0;
        slots_.shape[0] = n_batch;
        slots_.shape[1] = slots_.strides[0] = is_range ? 1 : n_tokens;
        slots_.strides[1] = 1;
        slots_.scratch = scratch_.data();
        slots_.scratch_bytes = static_cast<std::int64_t>(scratch_.size());
    }

    void draw_memory() {
        const std::int64_t bytes = oracle::stored_bytes(desc_.dtype);
        std::int64_t n = n_batch * n_tokens * n_heads * desc_.head_dim;
        if (has_cache()) {
            n = describe_layout(layout_, n_pages, page_size, n_heads, desc_.head_dim, cache_);
            desc_.cache = &cache_;
        }
        const auto n_bytes = static_cast<std::size_t>(n * bytes);
        memory_ = std::make_unique<GuardedMemory>(n_bytes / GuardedMemory::page + 1);
        first_ = memory_->end() - memory_->begin() - static_cast<std::int64_t>(n_bytes);
        stages_.cache = has_cache() ? memory_->begin() + first_ : nullptr;
        before_.assign(static_cast<std::size_t>(memory_->end() - memory_->begin()), '\x5a');
        for (std::int64_t i = 0; i < n; i++) {
            char *const at = before_.data() + first_ + i * bytes;
            if (bytes == 1) {
                do {
                    *at = static_cast<char>(random_.bits());
                } while (!std::isfinite(oracle::decode(desc_.dtype, word_at(at))));
            } else {
                oracle::write_word(desc_.dtype, at,
                                   oracle::narrow(desc_.dtype, 4 * static_cast<float>(random_.unit())));
            }
        }
        x_.assign(before_.begin() + first_, before_.end());
        const auto *const scales = reinterpret_cast<const char *>(dynamic_before_.data());
        before_.insert(before_.end(), scales, scales + dynamic_before_.size() * sizeof(float));
    }

    void restore() {
        std::memcpy(memory_->begin(), before_.data(), static_cast<std::size_t>(memory_->end() - memory_->begin()));
        std::copy(dynamic_before_.begin(), dynamic_before_.end(), dynamic_.begin());
    }

    std::uint32_t word_at(const char *at) const {
        std::uint32_t word = 0;
        std::memcpy(&word, at, static_cast<std::size_t>(oracle::stored_bytes(desc_.dtype)));
        return word;
    }

    std::int64_t place_of(std::int64_t slot, std::int64_t token, std::int64_t head, std::int64_t d) const {
        return has_cache() ? index_in_layout(layout_, page_size, n_heads, desc_.head_dim, slot, head, d)
                           : (token * n_heads + head) * desc_.head_dim + d;
    }
};
