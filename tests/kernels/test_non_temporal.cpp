// Which runs store non-temporally, past the caches, and that this changes no bit.
#include "checks/sized.h"
#include "core/plan.h"
#include "halyard/halyard_kv.hpp"

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <random>
#include <string>
#include <vector>

namespace {

using halyard::Kernel;
using halyard::Layout;
using halyard::Place;

constexpr std::int64_t head_dim = 64, n_heads = 16, head_bytes = head_dim * 4;
constexpr std::int64_t n_large_tokens = (std::int64_t(32) << 20) / (n_heads * head_bytes);

/// Counts the calls of each kind of kernel. They write nothing, so outputs need not be memory.
struct Calls {
    static inline std::atomic<int> ordinary = 0, in_place = 0, non_temporal = 0;

    template <std::atomic<int> *count>
    static int call(halyard_buffer *, halyard_buffer *, halyard_buffer *, std::uint32_t, halyard_buffer *,
                    halyard_buffer *) {
        ++*count;
        return 0;
    }
};

/// A run whose output is described but never written. Its input is the same head for every head.
struct Request {
    std::int32_t pairing = HALYARD_PAIRING_HALF;
    std::int64_t n_tokens = n_large_tokens;
    std::int64_t rotary_dim = head_dim, offset = 0, n_tensors = 1;
    std::int64_t stride_head = head_dim, stride_token = n_heads * head_dim;
    std::int64_t misaligned_by = 0;  // bytes
    std::int64_t n_in_place = 0;     // how many of the first tensors are in place
    int n_threads = 1;
    std::int32_t non_temporal_mib = 32;

    /// The target whose kernel for large outputs a plan takes here; empty when it takes none.
    std::string target() const {
        for (const Kernel &kernel : halyard::kernels()) {
            if (kernel.place == Place::non_temporal && kernel.dtype == halyard::Dtype::f32 &&
                kernel.pairing == halyard::Pairing(pairing) && kernel.pairing == kernel.out_pairing &&
                (halyard::supported_targets() & halyard::bit(kernel.target)) != 0) {
                return halyard::name_of(kernel.target);
            }
        }
        return "";
    }

    halyard::plan_desc describe() const {
        halyard_tensor_desc tensor =
            halyard::describe_tensor(halyard::dtype::f32, head_dim, halyard::pairing(pairing), offset);
        return {rotary_dim, std::vector<halyard_tensor_desc>(static_cast<std::size_t>(n_tensors), tensor)};
    }

    /// Whether the run is stored non-temporally. All its calls for outputs out of place must be of one kind.
    bool is_non_temporal() const {
        const std::string name = target();
        auto desc = describe();
        desc.target = name.c_str();
        halyard_plan plan = *halyard::plan(desc).get();
        Kernel ordinary = plan.tensors[0].kernel(Place::out_of_place, Layout::even);
        Kernel non_temporal = plan.tensors[0].kernel(Place::non_temporal, Layout::even);
        REQUIRE(ordinary.place == Place::out_of_place);
        REQUIRE(non_temporal.place == Place::non_temporal);
        Kernel in_place = ordinary;
        ordinary.function = Calls::call<&Calls::ordinary>;
        in_place.function = Calls::call<&Calls::in_place>;
        non_temporal.function = Calls::call<&Calls::non_temporal>;
        non_temporal.non_temporal_mib = non_temporal_mib;
        const Kernel *const counted[] = {&ordinary, &in_place, &non_temporal};
        for (halyard::TensorPlan &tensor : plan.tensors) {
            for (int place = 0; place < halyard::n_places; place++) {
                std::fill_n(tensor.kernels[place], halyard::n_layouts, counted[place]);
            }
        }
        // Nothing is read or written at these addresses, but for the columns outside the window.
        std::vector<float> memory(
            offset == 0 && rotary_dim == head_dim ? 0 : static_cast<std::size_t>(n_tokens * stride_token) + 64);
        char *const base = memory.empty() ? reinterpret_cast<char *>(std::uintptr_t(1) << 32)
                                          : reinterpret_cast<char *>(memory.data()) +
                                                (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64) % 64;
        const std::vector<float> head(head_dim);
        std::vector<halyard_tensor> x, y;
        for (std::int64_t i = 0; i < n_tensors; i++) {
            y.push_back(halyard::tensor(base + misaligned_by + i * (std::int64_t(1) << 32), halyard::dtype::f32,
                                        {1, n_tokens, n_heads, head_dim}));
            y.back().strides[1] = stride_token;
            y.back().strides[2] = stride_head;
            x.push_back(y.back());
            if (i >= n_in_place) {
                x.back().data = const_cast<float *>(head.data());
                x.back().strides[0] = x.back().strides[1] = x.back().strides[2] = 0;
            }
        }
        const auto angles =
            halyard::angle_source::table(halyard::frequencies::from_base(10000.0, rotary_dim), 0, n_tokens + 1);
        halyard::pool threads(n_threads);
        auto args = sized<halyard_run_args>();
        args.angles = angles.get();
        args.x = x.data();
        args.y = y.data();
        args.executor = threads.executor();
        Calls::ordinary = Calls::in_place = Calls::non_temporal = 0;
        REQUIRE(halyard_run(&plan, &args, nullptr) == HALYARD_OK);
        REQUIRE((Calls::in_place > 0) == (n_in_place > 0));
        REQUIRE((Calls::ordinary > 0) + (Calls::non_temporal > 0) == (n_in_place < n_tensors ? 1 : 0));
        return Calls::non_temporal > 0;
    }
};

}  // namespace

TEST_CASE("non-temporal: large outputs on whole cache lines, and no others", "[non-temporal]") {
    if (Request{}.target().empty()) {
        SKIP("this machine runs no non-temporal kernel");
    }
    CHECK(Request{}.is_non_temporal());
    CHECK(Request{.n_threads = 2}.is_non_temporal());
    CHECK(Request{.pairing = HALYARD_PAIRING_INTERLEAVED}.is_non_temporal());
    CHECK_FALSE(Request{.n_tokens = n_large_tokens - 1}.is_non_temporal());
    CHECK(Request{.n_tokens = n_large_tokens / 2, .n_tensors = 2}.is_non_temporal());
    CHECK_FALSE(Request{.n_tokens = n_large_tokens / 2 - 1, .n_tensors = 2}.is_non_temporal());
    CHECK_FALSE(Request{.n_in_place = 1}.is_non_temporal());
    CHECK(Request{.n_tensors = 2, .n_in_place = 1}.is_non_temporal());
    // Gaps do not count as output, and may be of any length.
    CHECK_FALSE(Request{.n_tokens = n_large_tokens / 2, .stride_token = 4 * n_heads * head_dim}.is_non_temporal());
    CHECK(Request{.stride_head = head_dim + 16, .stride_token = 2 * n_heads * head_dim}.is_non_temporal());

    CHECK_FALSE(Request{.misaligned_by = 4}.is_non_temporal());
    CHECK_FALSE(Request{.misaligned_by = 32}.is_non_temporal());
    CHECK_FALSE(Request{.stride_head = head_dim + 8, .stride_token = 2 * n_heads * head_dim}.is_non_temporal());
    CHECK_FALSE(Request{.stride_token = n_heads * head_dim + 8}.is_non_temporal());
    // The window, and the second half of one in half pairing, must begin on a cache line.
    CHECK(Request{.rotary_dim = 32, .offset = 16}.is_non_temporal());
    CHECK_FALSE(Request{.rotary_dim = 32, .offset = 8}.is_non_temporal());
    CHECK_FALSE(Request{.rotary_dim = 48}.is_non_temporal());
    CHECK(Request{.pairing = HALYARD_PAIRING_INTERLEAVED, .rotary_dim = 48}.is_non_temporal());
    // A kernel says from how much output on.
    for (const std::int32_t mib : {8, 64}) {
        CHECK(Request{.n_tokens = mib * n_large_tokens / 32, .non_temporal_mib = mib}.is_non_temporal());
        CHECK_FALSE(Request{.n_tokens = mib * n_large_tokens / 32 - 1, .non_temporal_mib = mib}.is_non_temporal());
    }
}

TEST_CASE("non-temporal: the same bits as by way of the caches, by a bound run at both addresses", "[non-temporal]") {
    struct Free {
        void operator()(float *data) const { ::operator delete(data, std::align_val_t(64)); }
    };
    constexpr std::int64_t n_tokens = n_large_tokens + 3;
    constexpr auto n_floats = static_cast<std::size_t>(n_tokens * n_heads * head_dim);
    std::unique_ptr<float, Free> x, y[2];
    for (std::unique_ptr<float, Free> *memory : {&x, &y[0], &y[1]}) {
        memory->reset(static_cast<float *>(::operator new((n_floats + 1) * sizeof(float), std::align_val_t(64))));
    }
    std::minstd_rand random(3);
    std::generate_n(x.get(), n_floats, [&] { return static_cast<float>(random()) * 0x1p-31f - 0.5f; });
    const auto view = [](float *data) {
        return halyard::tensor(data, halyard::dtype::f32, {1, n_tokens, n_heads, head_dim});
    };
    halyard::pool threads(3);
    halyard::run_options options;
    options.executor = threads.executor();
    // "reference" has no non-temporal kernel, but copies the columns outside the window.
    for (const std::string &target : {Request{}.target(), std::string("reference")}) {
        for (const auto pairing : {halyard::pairing::half, halyard::pairing::interleaved}) {
            for (const auto &[dim, offset] : {std::array<std::int64_t, 2>{head_dim, 0}, {32, 0}, {32, 16}}) {
                const auto source =
                    halyard::angle_source::table(halyard::frequencies::from_base(10000.0, dim), 0, n_tokens + 1);
                halyard::plan_desc desc(dim,
                                        {halyard::describe_tensor(halyard::dtype::f32, head_dim, pairing, offset)});
                desc.target = target.empty() ? nullptr : target.c_str();
                const halyard::plan plan(desc);
                const halyard::bound_run bound(plan, source, view(x.get()), view(y[0].get()), options);
                for (const int misaligned_by : {0, 1}) {  // the second output stays in the caches
                    std::memset(y[misaligned_by].get(), 0x5a, (n_floats + 1) * sizeof(float));
                    bound({x.get()}, {y[misaligned_by].get() + misaligned_by});
                }
                CAPTURE(target, static_cast<int>(pairing), dim, offset);
                CHECK(std::memcmp(y[0].get(), y[1].get() + 1, n_floats * sizeof(float)) == 0);
            }
        }
    }
    // KV stages beside it store by way of the caches.
    auto desc = Request{.n_tensors = 2}.describe();
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.no_rotation = 1;
    desc.tensors[1].kv = &kv;
    const halyard_tensor from[] = {view(x.get()), view(x.get())}, to[] = {view(y[0].get()), view(y[1].get() + 1)};
    halyard::run(halyard::plan(desc),
                 halyard::angle_source::table(halyard::frequencies::from_base(10000.0, head_dim), 0, n_tokens + 1),
                 from, to, options);
    CHECK(std::memcmp(x.get(), y[1].get() + 1, n_floats * sizeof(float)) == 0);
}
