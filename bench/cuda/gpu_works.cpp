#include "cuda/gpu_works.h"

#include <algorithm>
#include <numeric>
#include <random>

namespace halyard::bench {

namespace {

constexpr std::int64_t page = 16;

std::int64_t n_pages(const Case &test) { return (test.n_tokens + page - 1) / page; }
bool has_norm(const Case &test) { return test.job != Job::rotate; }
bool is_road(const Case &test) { return test.job == Job::road || test.job == Job::road_to_e4m3; }

/// Numbers near 1, whatever their dtype. They are not all alike, because a device may move equal ones faster.
std::vector<char> ordinary_bytes(std::int64_t n, std::int64_t element_bytes) {
    std::mt19937 random(20261126);
    std::vector<char> block(1 << 16), bytes(static_cast<std::size_t>(n));
    std::ranges::generate(block, [&] { return static_cast<char>(random()); });
    const auto step = static_cast<std::size_t>(element_bytes);
    for (std::size_t highest = step - 1; highest < block.size(); highest += step) {
        block[highest] = '\x3f';
    }
    for (std::size_t at = 0; at < bytes.size(); at += block.size()) {
        std::copy_n(block.data(), std::min(block.size(), bytes.size() - at), bytes.data() + at);
    }
    return bytes;
}

}  // namespace

Work::Work(const halyard_gpu_queue &queue, const Case &test, const gpu_angles &angles)
    : queue_(queue), norm_(describe_norm(test.type)) {
    make_plan(test, angles);
    place_tensors(test);
    place_positions(test.n_tokens);
    how_.stream = queue.stream;
    how_.positions = &positions_;
    how_.policy = bad_position::identity;
    how_.slots = is_road(test) ? &slots_ : nullptr;
    how_.stages = has_norm(test) ? stages_.data() : nullptr;
}

void Work::make_plan(const Case &test, const gpu_angles &angles) {
    cache_ = describe_nhd_cache(n_pages(test), page, test.n_kv_heads, test.head_dim);
    auto q = describe_tensor(test.type, test.head_dim, test.in, test.out), k = q, v = q;
    if (has_norm(test)) {
        q.norm = k.norm = &norm_;
    }
    if (is_road(test)) {
        k.cache = v.cache = &cache_;
        v.no_rotation = 1;
    }
    if (test.job == Job::road_to_e4m3) {
        k.scale = v.scale = &scale_desc_;
        k.out_dtype = v.out_dtype = HALYARD_E4M3;
    }
    std::vector<halyard_tensor_desc> tensors = {q};
    if (test.n_kv_heads > 0) {
        tensors.push_back(k);
    }
    if (is_road(test)) {
        tensors.push_back(v);
    }
    plan_ = gpu_plan(queue_, plan_desc(test.rotary_dim, tensors), angles);
}

void Work::place_tensors(const Case &test) {
    const bool to_e4m3 = test.job == Job::road_to_e4m3;
    const std::int64_t bytes = test.type == dtype::f32 ? 4 : 2, cached_bytes = to_e4m3 ? 1 : bytes;
    const std::int64_t n = test.n_tokens, dim = test.head_dim, row = (test.n_q_heads + 2 * test.n_kv_heads) * dim;
    const std::int64_t n_bytes = (n * row + test.offset) * bytes;
    const std::vector<char> ordinary = ordinary_bytes(n_bytes, bytes);
    const device::DeviceMemory &x = allocate(n_bytes, ordinary.data());
    const device::DeviceMemory &y = is_road(test) || test.in_place ? x : allocate(n_bytes);
    const std::int64_t counts[] = {test.n_q_heads, test.n_kv_heads, is_road(test) ? test.n_kv_heads : 0};
    std::int64_t first = test.offset;
    for (std::size_t i = 0; i < 3 && counts[i] > 0; i++) {
        const auto view = [&](const device::DeviceMemory &memory) {
            auto tensor =
                halyard::tensor(memory.data(first * bytes), test.type, {1, n, counts[i], dim}, {n * row, row, dim, 1});
            tensor.device = queue_.device;
            return tensor;
        };
        x_.push_back(view(x));
        y_.push_back(view(y));
        first += counts[i] * dim;
        stages_[i] = make_struct<halyard_stages>();
        const bool is_cached = is_road(test) && i > 0;
        n_bytes_ += n * counts[i] * dim * (bytes + (is_cached ? cached_bytes : bytes));
        if (has_norm(test) && i < 2) {
            stages_[i].weight = allocate(dim * bytes, ordinary.data()).data();
            stages_[i].n_weights = dim;
        }
        if (is_cached) {
            stages_[i].cache = allocate(n_pages(test) * page * test.n_kv_heads * dim * cached_bytes).data();
            stages_[i].scales = to_e4m3 ? &scale_ : nullptr;
            stages_[i].n_scales = to_e4m3 ? 1 : 0;
        }
    }
}

/// Scattered positions, as a batch of requests has them; each token has the slot of its number.
void Work::place_positions(std::int64_t n) {
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(n));
    std::iota(numbers.begin(), numbers.end(), 0);
    slots_ = make_struct<halyard_slots>();
    slots_.type = HALYARD_INT32;
    slots_.policy = HALYARD_SLOTS_RANGE_ONLY;
    slots_.data = allocate(n * 4, numbers.data()).data();
    slots_.shape[0] = slots_.strides[1] = 1;
    slots_.shape[1] = slots_.strides[0] = n;
    std::mt19937 random(20261121);
    for (auto &position : numbers) {
        position = static_cast<std::int32_t>(random() % n_positions);
    }
    positions_ = halyard::positions(static_cast<const std::int32_t *>(allocate(n * 4, numbers.data()).data()), {1, n});
}

void Work::finish() const {
    char byte = 0;
    memories_.back()->read(&byte, 1);
}

const device::DeviceMemory &Work::allocate(std::int64_t n_bytes, const void *data) {
    memories_.push_back(std::make_unique<device::DeviceMemory>(queue_, data, static_cast<std::size_t>(n_bytes)));
    return *memories_.back();
}

}  // namespace halyard::bench
