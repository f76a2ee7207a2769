// Tests which runs use non-temporal stores, and that these change no bit. Such stores bypass the CPU's cache.
#include "checks/sized.h"
#include "core/plan.h"
#include "halyard/halyard_kv.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <random>
#include <utility>
#include <vector>

namespace {

using halyard::Kernel;
using halyard::Place;

constexpr std::int64_t most_elements = 64, n_heads = 16, row = n_heads * most_elements, mib = 1 << 20;
constexpr std::int64_t n_large_tokens = 8 * mib / (row * 4);

/// A bound run of f32 that is called with other pointers than those it was bound with.
struct Request {
    halyard::pairing pairing = halyard::pairing::half;
    std::int64_t n_tokens = n_large_tokens, head_dim = most_elements, rotary_dim = head_dim, n_tensors = 1;
    std::int64_t stride_head = most_elements, stride_token = row;
    std::int64_t n_in_place = 0;        // how many tensors are in place: the first ones
    std::int64_t misaligned_by = 0;     // in floats: how far the output is from the start of a cache line
    std::int32_t non_temporal_mib = 8;  // the output size at which non-temporal kernels start
    bool is_last_plain = false;         // the last tensor is stored without a rotation
};

/// Counts the heads that a plan's non-temporal kernel writes.
std::atomic<std::int64_t> n_large;
halyard_rotate_kernel *counted = nullptr;
int count_call(halyard_buffer *rows, halyard_buffer *cos, halyard_buffer *sin, std::uint32_t sign, halyard_buffer *x,
               halyard_buffer *y) {
    n_large += y->dim[2].extent * y->dim[3].extent;
    return counted(rows, cos, sin, sign, x, y);
}

/// Makes the run on three threads. Returns the memory of its outputs, which held random numbers before.
std::vector<float> run(const Request &request) {
    static const std::vector<float> random = [] {
        std::vector<float> floats(static_cast<std::size_t>(20 * mib / 4));
        std::minstd_rand next(3);
        std::generate(floats.begin(), floats.end(), [&] { return static_cast<float>(next()) * 0x1p-31f - 0.5f; });
        return floats;
    }();
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.no_rotation = 1;
    std::vector tensors(static_cast<std::size_t>(request.n_tensors),
                        halyard::describe_tensor(halyard::dtype::f32, request.head_dim, request.pairing));
    tensors.back().kv = request.is_last_plain ? &kv : nullptr;
    const halyard::plan plan(halyard::plan_desc(request.rotary_dim, tensors));
    Kernel large = plan.get()->tensors[0].kernel(Place::non_temporal, halyard::Layout::even);
    if (large.place != Place::non_temporal && request.rotary_dim == request.head_dim) {
        SKIP("this machine runs no non-temporal kernel");
    }
    large.non_temporal_mib = request.non_temporal_mib;
    counted = std::exchange(large.function, count_call);
    for (auto &tensor : const_cast<halyard_plan &>(*plan.get()).tensors) {
        std::fill_n(tensor.kernels[static_cast<int>(Place::non_temporal)], halyard::n_layouts, &large);
    }
    std::vector<float> memory(random.size() + 16);
    float *const line = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / 4;
    std::copy(random.begin(), random.end(), line);
    std::vector<halyard_tensor> x, y;
    std::vector<const void *> from;
    std::vector<void *> to;
    for (std::int64_t i = 0; i < request.n_tensors; i++) {
        float *const first = line + i * (request.n_tokens * request.stride_token);
        y.push_back(halyard::tensor(first, halyard::dtype::f32, {1, request.n_tokens, n_heads, request.head_dim}));
        y.back().strides[1] = request.stride_token;
        y.back().strides[2] = request.stride_head;
        x.push_back(y.back());
        to.push_back(first + request.misaligned_by);
        from.push_back(i < request.n_in_place ? to.back() : random.data());
        x.back().data = i < request.n_in_place ? first : const_cast<float *>(random.data());
    }
    const auto angles = halyard::angle_source::table(halyard::frequencies::from_base(10000.0, request.rotary_dim), 0,
                                                     request.n_tokens + 1);
    halyard::pool threads(3);
    halyard::run_options options;
    options.executor = threads.executor();
    const halyard::bound_run bound(plan, angles, x, y, options);
    auto args = sized<halyard_bound_run_args>();
    args.n_tensors = static_cast<std::int32_t>(request.n_tensors);
    args.x = from.data();
    args.y = to.data();
    n_large = 0;
    REQUIRE(halyard_run_bound(bound.get(), &args, nullptr) == HALYARD_OK);
    return {line, line + random.size()};
}

}  // namespace

TEST_CASE("non-temporal: large outputs on whole cache lines and no others, with the bits of others", "[non-temporal]") {
    constexpr auto interleaved = halyard::pairing::interleaved;
    constexpr std::int64_t half = n_large_tokens / 2;
    const std::pair<Request, int> rows[] = {
        // A request, and how many of its tensors must be stored non-temporally.
        {{}, 1},
        {{.pairing = interleaved}, 1},
        {{.n_tokens = n_large_tokens - 1}, 0},
        {{.n_tokens = half, .n_tensors = 2}, 2},
        {{.n_tokens = half - 1, .n_tensors = 2}, 0},
        {{.n_in_place = 1}, 0},
        {{.n_tensors = 2, .n_in_place = 1}, 1},
        {{.n_tensors = 2, .is_last_plain = true}, 1},
        // Gaps between heads or tokens do not count as output, whatever their length.
        {{.n_tokens = half, .stride_token = 4 * row}, 0},
        {{.stride_head = most_elements + 16, .stride_token = 2 * row}, 1},
        {{.stride_head = most_elements + 8, .stride_token = 2 * row}, 0},
        {{.stride_token = row + 8}, 0},
        // Only whole heads are stored non-temporally. In half pairing the second half must begin on a cache line, too.
        {{.rotary_dim = 32}, 0},
        {{.n_tokens = 2 * n_large_tokens, .head_dim = 48}, 0},
        {{.pairing = interleaved, .n_tokens = 2 * n_large_tokens, .head_dim = 48}, 1},
        {{.misaligned_by = 1}, 0},
        {{.pairing = interleaved, .misaligned_by = 8}, 0},
        // The kernel's non_temporal_mib is the smallest output size.
        {{.n_tokens = 2 * n_large_tokens, .non_temporal_mib = 16}, 1},
        {{.n_tokens = 2 * n_large_tokens - 1, .non_temporal_mib = 16}, 0},
    };
    for (const auto &each : rows) {
        CAPTURE(&each - rows);
        Request request = each.first;
        const std::vector<float> result = run(request);
        CHECK(n_large == each.second * request.n_tokens * n_heads);
        request.non_temporal_mib = 1 << 20;
        CHECK((result == run(request)));
        CHECK(n_large == 0);
    }
}
