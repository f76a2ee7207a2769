// Which runs store non-temporally, past the caches, and that this changes no bit.
#include "checks/sized.h"
#include "core/plan.h"
#include "halyard/halyard_kv.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

namespace {

using halyard::Kernel;
using halyard::Place;

constexpr std::int64_t head_dim = 64, n_heads = 16, head_bytes = head_dim * 4;
constexpr std::int64_t n_large_tokens = (std::int64_t(32) << 20) / (n_heads * head_bytes);

/// Counts calls of the kernels for each place. They write nothing, so outputs need not be memory.
std::atomic<int> n_calls[halyard::n_places];
template <int place>
int count_call(halyard_buffer *, halyard_buffer *, halyard_buffer *, std::uint32_t, halyard_buffer *,
               halyard_buffer *) {
    n_calls[place]++;
    return 0;
}
halyard_rotate_kernel *const counting[] = {count_call<0>, count_call<1>, count_call<2>};

/// Where cache lines begin, at or behind an address.
char *next_line(float *data) {
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    return reinterpret_cast<char *>(data) + (64 - address % 64) % 64;
}

/// A run of f32 whose tensors are described but never touched. Its input is the same head for every head.
struct Request {
    halyard::pairing pairing = halyard::pairing::half;
    std::int64_t n_tokens = n_large_tokens, rotary_dim = head_dim, offset = 0, n_tensors = 1;
    std::int64_t stride_head = head_dim, stride_token = n_heads * head_dim;
    std::int64_t n_in_place = 0;     // how many of the first tensors are in place
    std::int64_t misaligned_by = 0;  // bytes
    std::int32_t non_temporal_mib = 32;

    halyard::plan_desc describe() const {
        const auto tensor = halyard::describe_tensor(halyard::dtype::f32, head_dim, pairing, offset);
        return {rotary_dim, std::vector<halyard_tensor_desc>(static_cast<std::size_t>(n_tensors), tensor)};
    }

    /// The kernel for large outputs that a plan takes here, or another one where there is none.
    Kernel large() const {
        return halyard::plan(describe()).get()->tensors[0].kernel(Place::non_temporal, halyard::Layout::even);
    }

    /// Whether all outputs that are not in place are stored non-temporally; else none is.
    bool is_non_temporal() const {
        const halyard::plan plan(describe());
        auto &tensors = const_cast<halyard_plan &>(*plan.get()).tensors;
        Kernel kernels[halyard::n_places];
        // Only the columns outside the window are written.
        std::vector<float> memory(rotary_dim == head_dim ? 0 : static_cast<std::size_t>(n_tokens * stride_token) + 64);
        const float head[head_dim] = {};
        std::vector<halyard_tensor> x, y;
        for (std::int64_t i = 0; i < n_tensors; i++) {
            for (int place = 0; place < halyard::n_places; place++) {
                kernels[place] = large();
                kernels[place].function = counting[place];
                kernels[place].non_temporal_mib = non_temporal_mib;
                std::fill_n(tensors[i].kernels[place], halyard::n_layouts, &kernels[place]);
                n_calls[place] = 0;
            }
            char *const begin = memory.empty() ? reinterpret_cast<char *>((i + 1) << 32) : next_line(memory.data());
            y.push_back(halyard::tensor(begin + misaligned_by, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim}));
            y.back().strides[1] = stride_token;
            y.back().strides[2] = stride_head;
            x.push_back(y.back());
            if (i >= n_in_place) {
                x.back().data = const_cast<float *>(head);
                x.back().strides[0] = x.back().strides[1] = x.back().strides[2] = 0;
            }
        }
        const auto angles =
            halyard::angle_source::table(halyard::frequencies::from_base(10000.0, rotary_dim), 0, n_tokens + 1);
        halyard::run(plan, angles, x, y);
        const bool is_ordinary = n_calls[static_cast<int>(Place::out_of_place)] > 0;
        const bool is_large = n_calls[static_cast<int>(Place::non_temporal)] > 0;
        REQUIRE((n_calls[static_cast<int>(Place::in_place)] > 0) == (n_in_place > 0));
        REQUIRE(is_ordinary + is_large == (n_in_place < n_tensors ? 1 : 0));
        return is_large;
    }
};

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
        {{.misaligned_by = 4}, false},
        {{.misaligned_by = 32}, false},
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

TEST_CASE("non-temporal: the same bits as by way of the caches, by a bound run at both addresses", "[non-temporal]") {
    constexpr std::int64_t n_tokens = n_large_tokens + 3;
    constexpr auto n_floats = static_cast<std::size_t>(n_tokens * n_heads * head_dim);
    std::vector<float> x(n_floats), memory[2] = {std::vector<float>(n_floats + 17), std::vector<float>(n_floats + 17)};
    std::minstd_rand random(3);
    std::generate(x.begin(), x.end(), [&] { return static_cast<float>(random()) * 0x1p-31f - 0.5f; });
    float *y[2] = {};  // on a cache line, and one behind it, so that the second output stays in the caches
    for (int i = 0; i < 2; i++) {
        y[i] = reinterpret_cast<float *>(next_line(memory[i].data())) + i;
    }
    const auto view = [](float *data) {
        return halyard::tensor(data, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
    };
    halyard::pool threads(3);
    halyard::run_options options;
    options.executor = threads.executor();
    const auto check = [&](const Request &request, const char *target) {
        const auto source =
            halyard::angle_source::table(halyard::frequencies::from_base(10000.0, request.rotary_dim), 0, n_tokens + 1);
        auto desc = request.describe();
        desc.target = target;
        const halyard::plan plan(desc);
        const halyard::bound_run bound(plan, source, view(x.data()), view(y[0]), options);
        for (float *const to : y) {
            std::fill_n(to, n_floats, NAN);
            bound({x.data()}, {to});
        }
        CAPTURE(target, static_cast<int>(request.pairing), request.rotary_dim, request.offset);
        CHECK(std::memcmp(y[0], y[1], n_floats * sizeof(float)) == 0);
    };
    for (const auto pairing : {halyard::pairing::half, halyard::pairing::interleaved}) {
        for (const Request &request : {Request{.pairing = pairing}, Request{.pairing = pairing, .rotary_dim = 32},
                                       Request{.pairing = pairing, .rotary_dim = 32, .offset = 16}}) {
            check(request, halyard::name_of(request.large().target));
        }
    }
    // It has no non-temporal kernel, but copies the columns outside the window.
    check({.rotary_dim = 32, .offset = 16}, "reference");
    // KV stages beside it store by way of the caches.
    auto desc = Request{.n_tensors = 2}.describe();
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.no_rotation = 1;
    desc.tensors[1].kv = &kv;
    const halyard_tensor from[] = {view(x.data()), view(x.data())}, to[] = {view(y[0]), view(y[1])};
    halyard::run(halyard::plan(desc),
                 halyard::angle_source::table(halyard::frequencies::from_base(10000.0, head_dim), 0, n_tokens + 1),
                 from, to, options);
    CHECK(std::memcmp(x.data(), y[1], n_floats * sizeof(float)) == 0);
}
