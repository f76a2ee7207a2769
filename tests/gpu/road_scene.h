// A call of q, k and v with stages drawn at random, on the CPU's reference and on a device.
#pragma once

#include "checks/gpu_angles.h"
#include "checks/gpu_device.h"
#include "checks/road_oracle.h"
#include "checks/sized.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

/// What a scene is drawn from; a fixed one stands for the drawn.
struct RoadChoice {
    std::int32_t dtype = 0, out_dtype = 0;  // 0: drawn
    std::int64_t head_dim = 0;
    bool has_bad = false;  // positions without angles, and slots out of range
};

class GpuRoadScene {
public:
    GpuRoadScene(const halyard_gpu_queue &queue, oracle::Random &random, const RoadChoice &choice = {})
        : queue_(queue), random_(random) {
        static constexpr std::int64_t head_dims[] = {16, 32, 64, 80, 96, 128, 192, 256, 576, 640};
        static constexpr std::int64_t shapes[][2] = {{1, 1}, {1, 3}, {3, 1}, {2, 5}, {1, 19}};
        dtype_ = choice.dtype != 0 ? choice.dtype : static_cast<std::int32_t>(random.in(1, 3));
        head_dim_ = choice.head_dim != 0 ? choice.head_dim : random.one_of(head_dims);
        rotary_dim_ = random.one_in(2) ? head_dim_ : head_dim_ / 2;
        const auto &shape = shapes[random.in(0, 4)];
        n_batch_ = shape[0];
        n_tokens_ = shape[1];
        has_bad_ = choice.has_bad;
        n_tensors_ = static_cast<int>(random.in(1, 4));
        is_packed_ = random.one_in(2);
        for (int i = 0; i < n_tensors_; i++) {
            draw_tensor(i, choice.out_dtype);
        }
        if (n_slots_ == 0 && plain()) {  // then it would not be a road
            tensors_[0].desc.no_rotation = 1;
        }
        n_axes_ = rotary_dim_ >= 6 && random.one_in(3) ? 3 : 1;
        angles_ = std::make_unique<gpu_test::RandomAngles>(queue, random, rotary_dim_, n_axes_, 200);
        draw_tokens();
        draw_memory();
    }
    GpuRoadScene(const GpuRoadScene &) = delete;
    GpuRoadScene &operator=(const GpuRoadScene &) = delete;

    /// What is wrong, in words, or nothing.
    std::string fault() {
        run_on_host();
        const std::string refused = run_on_device();
        if (!refused.empty()) {
            return refused + text();
        }
        for (int i = 0; i < n_tensors_; i++) {
            const OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            const std::vector<char> &expected = t.in_place ? x_ : t.y;
            std::vector<char> result = t.in_place ? x_memory_->read() : t.y_memory->read();
            if (!t.in_place) {
                result = {result.begin() + t.y_begin,
                          result.begin() + t.y_begin + static_cast<std::int64_t>(t.y.size())};
            }
            const std::int32_t dtype = t.in_place ? dtype_ : t.desc.out_dtype;
            if (const std::string what = gpu_test::difference(dtype, expected, result); !what.empty()) {
                return "tensor " + std::to_string(i) + ", " + what + text();
            }
        }
        std::int32_t word = 0;
        std::memcpy(&word, word_memory_->read().data(), sizeof(word));
        const bool is_right = word == 0 ? !has_bad_position_ && !has_bad_slot_
                                        : (word == HALYARD_ERROR_POSITION && has_bad_position_) ||
                                              (word == HALYARD_ERROR_SLOT && has_bad_slot_);
        return is_right ? "" : "the error word is " + std::to_string(word) + text();
    }

private:
    struct OnDevice {
        halyard_tensor_desc desc = sized<halyard_tensor_desc>();
        halyard_norm_desc norm = sized<halyard_norm_desc>();
        halyard_scale_desc scale = sized<halyard_scale_desc>();
        halyard_cache_desc cache = sized<halyard_cache_desc>();
        std::int64_t n_heads = 0, x_at = 0, y_at = 0, weight_at = 0;  // in elements
        std::int64_t y_begin = 0, weight_begin = 0;                   // of y and weight in their memory, in bytes
        std::array<std::int64_t, 4> in = {}, out = {};
        bool in_place = false, has_cache = false;
        float scale_value = 0;
        std::vector<char> y, weight;
        std::shared_ptr<gpu_test::Memory> y_memory, weight_memory;  // may be the other tensors', too
    };

    const halyard_gpu_queue &queue_;
    oracle::Random &random_;
    std::int32_t dtype_ = 0;
    std::int64_t head_dim_ = 0, rotary_dim_ = 0, n_axes_ = 0, n_batch_ = 0, n_tokens_ = 0, n_slots_ = 0, slot_row_ = 0;
    bool is_packed_ = false, has_bad_ = false, is_int64_ = false;
    bool has_int32_positions_ = false, clamps_ = false;
    bool has_bad_position_ = false, has_bad_slot_ = false;
    int n_tensors_ = 0;
    std::array<OnDevice, 4> tensors_;
    std::vector<char> x_;
    std::vector<std::int64_t> positions_;  // [axes, batch, tokens]
    std::vector<std::int64_t> slots_, host_slots_;
    std::unique_ptr<gpu_test::Memory> x_memory_, word_memory_;
    std::unique_ptr<gpu_test::RandomAngles> angles_;

    bool plain() const {
        for (int i = 0; i < n_tensors_; i++) {
            const halyard_tensor_desc &desc = tensors_[static_cast<std::size_t>(i)].desc;
            if (desc.norm != nullptr || desc.scale != nullptr || desc.no_rotation != 0 || desc.out_dtype != dtype_) {
                return false;
            }
        }
        return true;
    }

    void draw_tensor(int i, std::int32_t out_dtype) {
        OnDevice &t = tensors_[static_cast<std::size_t>(i)];
        t.n_heads = random_.in(1, random_.one_in(3) ? 17 : 4);
        t.desc.dtype = dtype_;
        t.desc.out_dtype = out_dtype != 0      ? out_dtype
                           : random_.one_in(2) ? dtype_
                                               : static_cast<std::int32_t>(random_.in(1, 6));
        if (head_dim_ * oracle::stored_bytes(t.desc.out_dtype) % 16 != 0) {
            t.desc.out_dtype = dtype_;
        }
        t.desc.head_dim = head_dim_;
        t.desc.pairing = static_cast<std::int32_t>(random_.in(1, 2));
        t.desc.out_pairing = random_.one_in(2) ? t.desc.pairing : static_cast<std::int32_t>(random_.in(1, 2));
        t.desc.rotary_offset = random_.in(0, head_dim_ - rotary_dim_);
        t.desc.no_rotation = random_.one_in(4) ? 1 : 0;
        if (!random_.one_in(3)) {
            t.desc.norm = &t.norm;
            t.norm.weight_dtype = static_cast<std::int32_t>(random_.in(0, 3));
            t.norm.unit_offset = t.norm.weight_dtype != 0 && random_.one_in(2) ? 1 : 0;
            t.norm.rounding = random_.one_in(2) ? 0 : static_cast<std::int32_t>(random_.in(0, 3));
            t.norm.eps = random_.one_in(2) ? 0 : 0.25;
            t.norm.no_eps = t.norm.eps == 0 && random_.one_in(3) ? 1 : 0;
            t.norm.window_offset = random_.one_in(2) ? 0 : random_.in(0, head_dim_ - 1);
            t.norm.window_size = random_.one_in(2) ? 0 : random_.in(1, head_dim_ - t.norm.window_offset);
        }
        if (random_.one_in(2)) {
            t.desc.scale = &t.scale;
            t.scale_value = 0.02f + 0.01f * static_cast<float>(random_.unit());
        }
        t.has_cache = random_.one_in(2);
        if (t.has_cache) {
            draw_cache(t);
        }
    }

    /// Rows, NHD, HND, or rows of another cache's tokens with this one's heads in between.
    void draw_cache(OnDevice &t) {
        t.desc.cache = &t.cache;
        n_slots_ = 24;
        t.cache.n_slots = n_slots_;
        const std::int64_t unit = 16 / oracle::stored_bytes(t.desc.out_dtype),
                           row = head_dim_ + random_.in(0, 2) * unit;
        switch (random_.in(0, 2)) {
        case 0:
            t.cache.stride_head = row;
            t.cache.stride_token = t.n_heads * row;
            break;
        case 1:
            t.cache.block_size = 8;
            t.cache.stride_head = row;
            t.cache.stride_token = t.n_heads * row + unit;
            t.cache.stride_block = 2 * 8 * t.cache.stride_token;
            break;
        default:
            t.cache.block_size = 4;
            t.cache.stride_token = row;
            t.cache.stride_head = 4 * row;
            t.cache.stride_block = t.n_heads * 4 * row;
        }
        const std::int64_t n_blocks = t.cache.block_size == 0 ? 1 : n_slots_ / t.cache.block_size;
        t.y_at = unit;
        t.y.resize(static_cast<std::size_t>(
            (2 * unit + n_blocks * std::max(t.cache.stride_block, n_slots_ * t.cache.stride_token + head_dim_)) *
            oracle::stored_bytes(t.desc.out_dtype)));
    }

    void draw_tokens() {
        is_int64_ = random_.one_in(2);
        clamps_ = random_.one_in(3);
        slot_row_ = n_tokens_ + (random_.one_in(2) ? 0 : random_.in(1, 3));
        std::vector<std::int64_t> order;
        for (std::int64_t i = 0; i < n_slots_; i++) {
            order.insert(order.begin() + random_.in(0, i), i);
        }
        const std::int64_t n = n_batch_ * n_tokens_;
        for (std::int64_t i = 0; i < n_axes_ * n; i++) {
            positions_.push_back(random_.in(angles_->first(), angles_->last()));
        }
        for (std::int64_t i = 0; i < n; i++) {
            const bool is_bad = has_bad_ && random_.one_in(4);
            const bool is_told = is_bad && rotates() && !clamps_;  // and not stored
            has_bad_position_ = has_bad_position_ || is_told;
            if (is_bad) {
                const std::int64_t distance = random_.one_in(3) ? 50 : random_.in(1, 10);  // 50: between two listed
                positions_[static_cast<std::size_t>(random_.in(0, n_axes_ - 1) * n + i)] =
                    random_.one_in(2) ? angles_->first() - distance : angles_->last() + distance;
            }
            if (n_slots_ == 0) {
                continue;
            }
            const std::int64_t slot = random_.one_in(5) ? -1 : order[static_cast<std::size_t>(i)];
            const bool is_outside = has_bad_ && random_.one_in(4);
            has_bad_slot_ = has_bad_slot_ || (is_outside && !clamps_);
            slots_.push_back(is_outside ? (random_.one_in(2) ? -2 - random_.in(0, 9) : n_slots_ + random_.in(0, 99))
                                        : slot);
            host_slots_.push_back(is_outside || is_told ? -1 : slot);
        }
        has_int32_positions_ = random_.one_in(2) && std::ranges::all_of(positions_, [](std::int64_t position) {
                                   return position == static_cast<std::int32_t>(position);
                               });
    }
    bool rotates() const {
        for (int i = 0; i < n_tensors_; i++) {
            if (tensors_[static_cast<std::size_t>(i)].desc.no_rotation == 0) {
                return true;
            }
        }
        return false;
    }

    void draw_memory() {
        const std::int64_t unit = 16 / oracle::element_bytes(dtype_);
        std::int64_t all_heads = 0;
        for (int i = 0; i < n_tensors_; i++) {
            all_heads += tensors_[static_cast<std::size_t>(i)].n_heads;
        }
        const std::int64_t row = all_heads * head_dim_ + random_.in(0, 1) * unit;
        const std::int64_t gap = n_batch_ > 1 && random_.one_in(2) ? unit : 0;  // then batch rows take a launch each
        std::int64_t x_at = unit;
        for (int i = 0; i < n_tensors_; i++) {
            OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            const std::int64_t token = is_packed_ ? row : t.n_heads * head_dim_;
            t.x_at = x_at;
            t.in = {n_tokens_ * token + gap, token, head_dim_, 1};
            x_at += is_packed_ ? t.n_heads * head_dim_ : n_batch_ * t.in[0];
            if (!t.has_cache && dtype_ == t.desc.out_dtype && t.desc.pairing == t.desc.out_pairing &&
                random_.one_in(2)) {
                t.in_place = true;
            } else if (!t.has_cache) {
                const std::int64_t out_unit = 16 / oracle::stored_bytes(t.desc.out_dtype);
                const std::int64_t head = head_dim_ + random_.in(0, 1) * out_unit;
                t.out = {n_tokens_ * t.n_heads * head + gap * out_unit, t.n_heads * head, head, 1};
                t.y_at = 2 * out_unit;
                t.y.resize(static_cast<std::size_t>((n_batch_ * t.out[0] + 3 * out_unit) *
                                                    oracle::stored_bytes(t.desc.out_dtype)));
            }
            std::fill(t.y.begin(), t.y.end(), 0x5a);
            if (t.desc.norm != nullptr && t.norm.weight_dtype != 0) {
                t.weight_at = random_.in(0, 3);
                t.weight = oracle::random_elements(random_, t.norm.weight_dtype, oracle::Values::ordinary,
                                                   t.weight_at + window_size(t));
            }
        }
        place(&OnDevice::y, &OnDevice::y_begin, &OnDevice::y_memory);
        place(&OnDevice::weight, &OnDevice::weight_begin, &OnDevice::weight_memory);
        const std::int64_t n = x_at + (is_packed_ ? n_batch_ * (n_tokens_ * row + gap) : 0) + unit;
        const oracle::Values kinds[] = {oracle::Values::ordinary, oracle::Values::ordinary, oracle::Values::any_bits,
                                        oracle::Values::special};
        x_ = oracle::random_elements(random_, dtype_, random_.one_of(kinds), n);
        x_memory_ = std::make_unique<gpu_test::Memory>(queue_, x_);
        word_memory_ = std::make_unique<gpu_test::Memory>(queue_, std::vector<char>(4));
    }

    /// Puts arrays of all tensors on the device: into one piece of memory, or one each. OpenCL launches depend on that.
    void place(std::vector<char> OnDevice::*array, std::int64_t OnDevice::*begin,
               std::shared_ptr<gpu_test::Memory> OnDevice::*memory) {
        const bool is_shared = random_.one_in(2);
        std::vector<char> all;
        for (int i = 0; i < n_tensors_; i++) {
            OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            t.*begin = is_shared ? static_cast<std::int64_t>(all.size()) : 0;
            all.insert(all.end(), (t.*array).begin(), (t.*array).end());
            all.resize((all.size() + 15) / 16 * 16);
        }
        const auto together = is_shared && !all.empty() ? std::make_shared<gpu_test::Memory>(queue_, all) : nullptr;
        for (int i = 0; i < n_tensors_; i++) {
            OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            if (!(t.*array).empty()) {
                t.*memory = is_shared ? together : std::make_shared<gpu_test::Memory>(queue_, t.*array);
            }
        }
    }

    std::int64_t window_size(const OnDevice &t) const {
        return t.norm.window_size != 0 ? t.norm.window_size : head_dim_ - t.norm.window_offset;
    }

    halyard::plan_desc plan_desc() {
        std::vector<halyard_tensor_desc> descs;
        for (int i = 0; i < n_tensors_; i++) {
            descs.push_back(tensors_[static_cast<std::size_t>(i)].desc);
        }
        return {rotary_dim_, descs};
    }
    halyard_tensor tensor(const OnDevice &t, void *data, std::int32_t dtype,
                          const std::array<std::int64_t, 4> &strides) {
        return halyard::tensor(data, static_cast<halyard::dtype>(dtype), {n_batch_, n_tokens_, t.n_heads, head_dim_},
                               strides);
    }
    halyard_stages stages_of(const OnDevice &t, const void *weight, void *cache) const {
        auto stages = sized<halyard_stages>();
        stages.weight = weight;
        stages.n_weights = weight != nullptr ? window_size(t) : 0;
        stages.scales = t.desc.scale != nullptr ? &t.scale_value : nullptr;
        stages.n_scales = t.desc.scale != nullptr ? 1 : 0;
        stages.cache = cache;
        return stages;
    }
    halyard_positions positions_at(const void *data, bool is_int64) const {
        auto positions = halyard::positions(static_cast<const std::int64_t *>(data), {n_batch_, n_tokens_});
        positions.type = is_int64 ? HALYARD_INT64 : HALYARD_INT32;
        positions.n_axes = n_axes_;
        positions.stride_axis = n_batch_ * n_tokens_;
        return positions;
    }
    halyard_slots slots_at(const void *data) const {
        auto slots = sized<halyard_slots>();
        slots.type = is_int64_ ? HALYARD_INT64 : HALYARD_INT32;
        slots.policy = HALYARD_SLOTS_RANGE_ONLY;
        slots.data = data;
        slots.shape[0] = n_batch_;
        slots.shape[1] = n_tokens_;
        slots.strides[0] = slot_row_;
        slots.strides[1] = 1;
        return slots;
    }
    /// Slots with the gaps between batch rows, which hold slots that no cache has.
    std::vector<std::int64_t> in_rows(const std::vector<std::int64_t> &slots) const {
        std::vector<std::int64_t> rows(static_cast<std::size_t>(n_batch_ * slot_row_), 9999);
        for (std::size_t i = 0; i < slots.size(); i++) {
            const auto n = static_cast<std::size_t>(n_tokens_);
            rows[i / n * static_cast<std::size_t>(slot_row_) + i % n] = slots[i];
        }
        return rows;
    }
    static std::vector<char> as_bytes(const std::vector<std::int64_t> &numbers, bool is_int64) {
        std::vector<char> bytes(numbers.size() * (is_int64 ? 8 : 4));
        for (std::size_t i = 0; i < numbers.size(); i++) {
            const auto narrow = static_cast<std::int32_t>(numbers[i]);
            if (is_int64) {
                std::memcpy(bytes.data() + i * 8, &numbers[i], 8);
            } else {
                std::memcpy(bytes.data() + i * 4, &narrow, 4);
            }
        }
        return bytes;
    }

    void run_on_host() {
        halyard::plan_desc desc = plan_desc();
        desc.target = "reference";
        const halyard::plan plan(desc);
        std::vector<halyard_tensor> x, y;
        std::vector<halyard_stages> stages;
        for (int i = 0; i < n_tensors_; i++) {
            OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            const std::int64_t bytes = oracle::element_bytes(dtype_),
                               out_bytes = oracle::stored_bytes(t.desc.out_dtype);
            x.push_back(tensor(t, x_.data() + t.x_at * bytes, dtype_, t.in));
            y.push_back(t.in_place ? x.back() : tensor(t, t.y.data() + t.y_at * out_bytes, t.desc.out_dtype, t.out));
            stages.push_back(stages_of(
                t,
                t.weight.empty() ? nullptr : t.weight.data() + t.weight_at * oracle::element_bytes(t.norm.weight_dtype),
                t.has_cache ? t.y.data() + t.y_at * out_bytes : nullptr));
        }
        const std::vector<char> slot_bytes = as_bytes(in_rows(host_slots_), is_int64_);
        const halyard_slots slots = slots_at(slot_bytes.data());
        const halyard_positions positions = positions_at(positions_.data(), true);
        halyard::run_options options;
        options.positions = &positions;
        options.policy = clamps_ ? halyard::bad_position::clamp : halyard::bad_position::identity;
        options.slots = n_slots_ != 0 ? &slots : nullptr;
        options.stages = stages.data();
        halyard::run(plan, angles_->on_host(), x.data(), y.data(), options);
    }

    std::string run_on_device() {
        const halyard::gpu_plan plan(queue_, plan_desc(), angles_->on_device());
        const gpu_test::Memory places(queue_, as_bytes(positions_, !has_int32_positions_)),
            slot_memory(queue_, as_bytes(in_rows(slots_.empty() ? std::vector<std::int64_t>(1) : slots_), is_int64_));
        std::vector<halyard_tensor> x, y;
        std::vector<halyard_stages> stages;
        std::vector<std::int64_t> x_offsets, y_offsets, weight_offsets;
        for (int i = 0; i < n_tensors_; i++) {
            OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            const std::int64_t bytes = oracle::element_bytes(dtype_),
                               out_bytes = oracle::stored_bytes(t.desc.out_dtype);
            const std::int64_t weight_bytes = t.weight.empty() ? 0 : oracle::element_bytes(t.norm.weight_dtype);
            const std::int64_t y_at = t.y_begin / out_bytes + t.y_at;
            const std::int64_t weight_at = t.weight.empty() ? 0 : t.weight_begin / weight_bytes + t.weight_at;
            x.push_back(tensor(t, x_memory_->data(t.x_at * bytes), dtype_, t.in));
            x.back().device = queue_.device;
            x_offsets.push_back(x_memory_->offset(t.x_at));
            y.push_back(x.back());
            if (!t.in_place) {
                y.back() = tensor(t, t.y_memory->data(y_at * out_bytes), t.desc.out_dtype, t.out);
                y.back().device = queue_.device;
            }
            y_offsets.push_back(t.in_place ? x_offsets.back() : t.y_memory->offset(y_at));
            weight_offsets.push_back(t.weight_memory ? t.weight_memory->offset(weight_at) : 0);
            stages.push_back(stages_of(t, t.weight_memory ? t.weight_memory->data(weight_at * weight_bytes) : nullptr,
                                       t.has_cache ? t.y_memory->data(y_at * out_bytes) : nullptr));
        }
        const halyard_slots slots = slots_at(slot_memory.data());
        const halyard_positions positions = positions_at(places.data(), !has_int32_positions_);
        auto args = sized<halyard_gpu_run_args>();
        args.stream = queue_.stream;
        args.positions = &positions;
        args.x = x.data();
        args.y = y.data();
        args.x_offsets = x_offsets.data();
        args.y_offsets = args.cache_offsets = y_offsets.data();
        args.weight_offsets = weight_offsets.data();
        args.slots = n_slots_ != 0 ? &slots : nullptr;
        args.stages = stages.data();
        args.bad_position = clamps_ ? HALYARD_BAD_POSITION_CLAMP : HALYARD_BAD_POSITION_ERROR;
        args.error_word = clamps_ ? nullptr : static_cast<std::int32_t *>(word_memory_->data());
        auto error = sized<halyard_error>();
        const std::vector<char> x_before = x_memory_->read();
        const halyard_status status = halyard_run_gpu(plan.get(), &args, &error);
        return status == HALYARD_OK ? "" : error.message;
    }

    std::string text() const {
        std::ostringstream out;
        out << "; " << n_batch_ << " x " << n_tokens_ << " tokens, head_dim " << head_dim_ << ", dtype " << dtype_
            << ", " << angles_->name() << ", axes " << n_axes_ << (is_packed_ ? ", packed" : "") << ", rotary_dim "
            << rotary_dim_;
        for (int i = 0; i < n_tensors_; i++) {
            const OnDevice &t = tensors_[static_cast<std::size_t>(i)];
            out << "; " << i << ": " << t.n_heads << " heads to " << t.desc.out_dtype << " pairing " << t.desc.pairing
                << " to " << t.desc.out_pairing << " at " << t.desc.rotary_offset
                << (t.desc.no_rotation != 0 ? " not rotated" : "") << (t.in_place ? " in place" : "");
            if (t.has_cache) {
                out << " cache of blocks of " << t.cache.block_size;
            }
            if (t.desc.norm != nullptr) {
                out << " norm weight " << t.norm.weight_dtype << " unit " << t.norm.unit_offset << " rounding "
                    << t.norm.rounding << " eps " << t.norm.eps << " no_eps " << t.norm.no_eps << " window "
                    << t.norm.window_offset << ' ' << t.norm.window_size;
            }
            out << (t.desc.scale != nullptr ? " scaled" : "");
        }
        return out.str();
    }
};
