// Which runs store non-temporally, past the caches, and that this changes no bit.
#include "checks/sized.h"
#include "core/program.h"
#include "halyard/halyard_kv.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace {

using halyard::Kernel;
using halyard::Place;

constexpr std::int64_t head_dim = 64, n_heads = 16, head_bytes = head_dim * 4;
constexpr std::int64_t n_large_tokens = (std::int64_t(32) << 20) / (n_heads * head_bytes);

/// A run of f32 that is described and bound, but not made.
struct Request {
    halyard::pairing pairing = halyard::pairing::half;
    std::int64_t n_tokens = n_large_tokens, rotary_dim = head_dim, offset = 0, n_tensors = 1;
    std::int64_t stride_head = head_dim, stride_token = n_heads * head_dim;
    std::int64_t n_in_place = 0;  // how many of the first tensors are in place
    std::int32_t non_temporal_mib = 32;

    halyard::plan_desc describe() const {
        const auto tensor = halyard::describe_tensor(halyard::dtype::f32, head_dim, pairing, offset);
        return {rotary_dim, std::vector<halyard_tensor_desc>(static_cast<std::size_t>(n_tensors), tensor)};
    }

    /// The kernel for large outputs that a plan takes here, or another one where there is none.
    Kernel large() const {
        return halyard::plan(describe()).get()->tensors[0].kernel(Place::non_temporal, halyard::Layout::even);
    }

    /// Whether all outputs that are not in place will be stored non-temporally, on cache lines; else none will.
    bool is_non_temporal() const {
        const halyard::plan plan(describe());
        Kernel kernel = large();
        kernel.non_temporal_mib = non_temporal_mib;
        std::vector<halyard_tensor> x, y;
        for (std::int64_t i = 0; i < n_tensors; i++) {
            auto &kernels = const_cast<halyard_plan &>(*plan.get()).tensors[i].kernels;
            std::fill_n(kernels[static_cast<int>(Place::non_temporal)], halyard::n_layouts, &kernel);
            static char places[2];  // whose addresses tell which tensors are in place
            y.push_back(halyard::tensor(places, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim}));
            y.back().strides[1] = stride_token;
            y.back().strides[2] = stride_head;
            x.push_back(y.back());
            x.back().data = places + (i < n_in_place ? 0 : 1);
        }
        const auto angles =
            halyard::angle_source::table(halyard::frequencies::from_base(10000.0, rotary_dim), 0, n_tokens + 1);
        auto args = sized<halyard_run_args>();
        args.angles = angles.get();
        args.x = x.data();
        args.y = y.data();
        halyard::Program program;
        REQUIRE(halyard::bind(plan.get(), &args, HALYARD_CPU, &program, nullptr) == HALYARD_OK);
        const auto n = std::count_if(program.tensors, program.tensors + n_tensors,
                                     [](const auto &tensor) { return tensor.large != nullptr; });
        REQUIRE((n == 0 || n == n_tensors - n_in_place));
        return n > 0;
    }
};

/// Counts the calls of a plan's kernel for large outputs.
std::atomic<int> n_large;
halyard_rotate_kernel *counted = nullptr;
int count_call(halyard_buffer *rows, halyard_buffer *cos, halyard_buffer *sin, std::uint32_t sign, halyard_buffer *x,
               halyard_buffer *y) {
    n_large++;
    return counted(rows, cos, sin, sign, x, y);
}

}  // namespace

TEST_CASE("non-temporal: large outputs on whole cache lines, and no others", "[non-temporal]") {
    if (Request{}.large().place != Place::non_temporal) {
        SKIP("this machine runs no non-temporal kernel");
    }
    constexpr auto interleaved = halyard::pairing::interleaved;
    constexpr std::int64_t half = n_large_tokens / 2, row = n_heads * head_dim;
    const struct {
        Request request;
        bool is_non_temporal;
    } rows[] = {
        {{}, true},
        {{.pairing = interleaved}, true},
        {{.n_tokens = n_large_tokens - 1}, false},
        {{.n_tokens = half, .n_tensors = 2}, true},
        {{.n_tokens = half - 1, .n_tensors = 2}, false},
        {{.n_in_place = 1}, false},
        {{.n_tensors = 2, .n_in_place = 1}, true},
        // Gaps do not count as output, and may be of any length.
        {{.n_tokens = half, .stride_token = 4 * row}, false},
        {{.stride_head = head_dim + 16, .stride_token = 2 * row}, true},
        {{.stride_head = head_dim + 8, .stride_token = 2 * row}, false},
        {{.stride_token = row + 8}, false},
        // The window, and the second half of one in half pairing, must begin on a cache line.
        {{.rotary_dim = 32, .offset = 16}, true},
        {{.rotary_dim = 32, .offset = 8}, false},
        {{.rotary_dim = 48}, false},
        {{.pairing = interleaved, .rotary_dim = 48}, true},
        // A kernel says from how much output on.
        {{.n_tokens = half / 2, .non_temporal_mib = 8}, true},
        {{.n_tokens = half / 2 - 1, .non_temporal_mib = 8}, false},
        {{.n_tokens = 2 * n_large_tokens, .non_temporal_mib = 64}, true},
        {{.n_tokens = 2 * n_large_tokens - 1, .non_temporal_mib = 64}, false},
    };
    for (const auto &row_of_table : rows) {
        CAPTURE(&row_of_table - rows);
        CHECK(row_of_table.request.is_non_temporal() == row_of_table.is_non_temporal);
    }
}

TEST_CASE("non-temporal: the same bits as by way of the caches, by a bound run at any address", "[non-temporal]") {
    constexpr std::int64_t n_tokens = n_large_tokens + 3;
    constexpr auto n_floats = static_cast<std::size_t>(n_tokens * n_heads * head_dim);
    std::vector<float> x(n_floats), memory(n_floats + 32), expected(n_floats);
    std::minstd_rand random(3);
    std::generate(x.begin(), x.end(), [&] { return static_cast<float>(random()) * 0x1p-31f - 0.5f; });
    const auto view = [](float *data) {
        return halyard::tensor(data, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
    };
    float *const line = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64 / 4;
    halyard::pool threads(3);
    halyard::run_options options;
    options.executor = threads.executor();
    for (const auto pairing : {halyard::pairing::half, halyard::pairing::interleaved}) {
        for (const auto &[rotary_dim, offset] : {std::pair(head_dim, 0L), {32L, 0L}, {32L, 16L}}) {
            const Request request = {.pairing = pairing, .rotary_dim = rotary_dim, .offset = offset};
            const auto source =
                halyard::angle_source::table(halyard::frequencies::from_base(10000.0, rotary_dim), 0, n_tokens + 1);
            auto desc = request.describe();
            desc.target = "reference";
            halyard::run(halyard::plan(desc), source, view(x.data()), view(expected.data()), options);
            const halyard::plan plan(request.describe());
            Kernel large = request.large();
            const bool has_large = large.place == Place::non_temporal;
            counted = std::exchange(large.function, count_call);
            auto &kernels = const_cast<halyard_plan &>(*plan.get()).tensors[0].kernels;
            std::fill_n(kernels[static_cast<int>(Place::non_temporal)], halyard::n_layouts, &large);
            const halyard::bound_run bound(plan, source, view(x.data()), view(line), options);
            for (const int misaligned_by : {0, 1, 8}) {  // floats; only on a cache line it bypasses the caches
                std::fill(memory.begin(), memory.end(), NAN);
                n_large = 0;
                bound({x.data()}, {line + misaligned_by});
                CAPTURE(static_cast<int>(pairing), rotary_dim, offset, misaligned_by);
                CHECK((n_large > 0) == (has_large && misaligned_by == 0));
                CHECK(std::memcmp(expected.data(), line + misaligned_by, n_floats * sizeof(float)) == 0);
            }
        }
    }
    // KV stages beside it store by way of the caches.
    auto desc = Request{.n_tensors = 2}.describe();
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.no_rotation = 1;
    desc.tensors[1].kv = &kv;
    const halyard_tensor from[] = {view(x.data()), view(x.data())}, to[] = {view(expected.data()), view(line)};
    halyard::run(halyard::plan(desc),
                 halyard::angle_source::table(halyard::frequencies::from_base(10000.0, head_dim), 0, n_tokens + 1),
                 from, to, options);
    CHECK(std::memcmp(x.data(), line, n_floats * sizeof(float)) == 0);
}
