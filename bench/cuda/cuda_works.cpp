#include "cuda/cuda_works.h"

#include "cuda/cuda_timing.h"

#include <numeric>
#include <random>

namespace halyard::bench {

namespace {

constexpr std::int64_t n_all_heads = n_q_heads + 2 * n_kv_heads, page = 16;

/// Scattered, as a batch of requests has them.
std::vector<std::int32_t> draw_positions(std::int64_t n_tokens) {
    std::vector<std::int32_t> positions(static_cast<std::size_t>(n_tokens));
    std::mt19937 random(20261121);
    for (auto &position : positions) {
        position = static_cast<std::int32_t>(random() % n_positions);
    }
    return positions;
}

}  // namespace

Work::Work(const halyard_gpu_queue &queue, const Case &test)
    : queue_(queue), norm_(describe_norm(test.type)), scale_desc_(describe_static_scales()) {
    const bool is_road = test.job != Job::rotate;
    const std::int64_t bytes = test.type == dtype::f32 ? 4 : 2,
                       cached_bytes = test.job == Job::road_to_e4m3 ? 1 : bytes;
    const std::int64_t n = test.n_tokens, row = n_all_heads * head_dim, n_pages = (n + page - 1) / page;
    cache_ = describe_nhd_cache(n_pages, page, n_kv_heads, head_dim);
    auto q = describe_tensor(test.type, head_dim, test.order), k = q, v = q;
    if (is_road) {
        q.norm = k.norm = &norm_;
        k.cache = v.cache = &cache_;
        v.no_rotation = 1;
    }
    if (test.job == Job::road_to_e4m3) {
        k.scale = v.scale = &scale_desc_;
        k.out_dtype = v.out_dtype = HALYARD_E4M3;
    }
    plan_ = gpu_plan(queue, is_road ? plan_desc(head_dim, {q, k, v}) : plan_desc(head_dim, {q, k}), *test.angles);

    // Numbers near 1, whatever their dtype.
    const std::vector<char> ordinary(static_cast<std::size_t>(n * row * bytes), 0x3f);
    char *const x = static_cast<char *>(allocate(n * row * bytes, ordinary.data()));
    char *const y = is_road || test.in_place ? x : static_cast<char *>(allocate(n * row * bytes));
    const auto part = [&](char *data, std::int64_t first, std::int64_t n_heads) {
        auto tensor = halyard::tensor(data + first * head_dim * bytes, test.type, {1, n, n_heads, head_dim},
                                      {n * row, row, head_dim, 1});
        tensor.device = HALYARD_CUDA;
        return tensor;
    };
    const std::int64_t first[] = {0, n_q_heads, n_q_heads + n_kv_heads}, counts[] = {n_q_heads, n_kv_heads, n_kv_heads};
    for (std::size_t i = 0; i < (is_road ? 3u : 2u); i++) {
        x_.push_back(part(x, first[i], counts[i]));
        y_.push_back(part(y, first[i], counts[i]));
        stages_[i] = make_struct<halyard_stages>();
        const bool is_cached = is_road && i > 0;
        n_bytes_ += n * counts[i] * head_dim * (bytes + (is_cached ? cached_bytes : bytes));
        if (is_road && i < 2) {
            stages_[i].weight = allocate(head_dim * bytes, ordinary.data());
            stages_[i].n_weights = head_dim;
        }
        if (is_cached) {
            stages_[i].cache = allocate(n_pages * page * n_kv_heads * head_dim * cached_bytes);
            stages_[i].scales = test.job == Job::road_to_e4m3 ? &scale_ : nullptr;
            stages_[i].n_scales = test.job == Job::road_to_e4m3 ? 1 : 0;
        }
    }
    positions_ =
        halyard::positions(static_cast<const std::int32_t *>(allocate(n * 4, draw_positions(n).data())), {1, n});
    place_slots(n);
    how_.stream = queue.stream;
    how_.positions = &positions_;
    how_.policy = bad_position::identity;
    how_.slots = is_road ? &slots_ : nullptr;
    how_.stages = is_road ? stages_.data() : nullptr;
}

/// Each token has the slot of its number.
void Work::place_slots(std::int64_t n) {
    std::vector<std::int32_t> each_one(static_cast<std::size_t>(n));
    std::iota(each_one.begin(), each_one.end(), 0);
    slots_ = make_struct<halyard_slots>();
    slots_.type = HALYARD_INT32;
    slots_.policy = HALYARD_SLOTS_RANGE_ONLY;
    slots_.data = allocate(n * 4, each_one.data());
    slots_.shape[0] = slots_.strides[1] = 1;
    slots_.shape[1] = slots_.strides[0] = n;
}

void Work::enqueue() const { run(plan_, x_.data(), y_.data(), how_); }

void *Work::allocate(std::int64_t n_bytes, const void *data) {
    memories_.push_back(std::make_unique<device::DeviceMemory>(queue_, data, static_cast<std::size_t>(n_bytes)));
    return memories_.back()->data();
}

EmptyKernel::EmptyKernel(void *stream) : stream_(stream) {
    static const char code[] =
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry empty()\n{\n    ret;\n}\n";
    call_cuda("cuModuleLoadData", &module_, static_cast<const void *>(code));
    call_cuda("cuModuleGetFunction", &function_, module_, "empty");
}

EmptyKernel::~EmptyKernel() { device::call_driver(HALYARD_CUDA, "cuModuleUnload", module_); }

void EmptyKernel::enqueue() const {
    void **const none = nullptr;
    call_cuda("cuLaunchKernel", function_, 1u, 1u, 1u, 32u, 1u, 1u, 0u, stream_, none, none);
}

}  // namespace halyard::bench
