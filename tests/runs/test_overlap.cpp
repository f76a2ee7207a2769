// Whether two tensors share bytes, and whether a tensor's own elements overlap: compared with brute force over all
// addresses. No memory is read.
#include "base/overlap.h"
#include "checks/rotate.h"
#include "halyard/halyard.hpp"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

namespace {

using oracle::Random;
using Strides = std::array<std::int64_t, 4>;

constexpr std::uintptr_t nowhere = 0x10000000;

halyard_tensor at_address(std::uintptr_t address, std::int32_t dtype, const Strides &shape, const Strides &strides) {
    return halyard::tensor(reinterpret_cast<void *>(address), static_cast<halyard::dtype>(dtype), shape, strides);
}

std::vector<std::int64_t> addresses_of(const halyard_tensor &tensor) {
    std::vector<std::int64_t> addresses;
    for (std::int64_t i = 0; i < count_elements(tensor); i++) {
        addresses.push_back(static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(element_at(tensor, i))));
    }
    std::sort(addresses.begin(), addresses.end());
    return addresses;
}

bool really_share(const halyard_tensor &a, const halyard_tensor &b) {
    const std::int64_t bytes_a = oracle::element_bytes(a.dtype), bytes_b = oracle::element_bytes(b.dtype);
    const auto of_a = addresses_of(a), of_b = addresses_of(b);
    return std::any_of(of_b.begin(), of_b.end(), [&](std::int64_t address) {
        // The first element of a that ends after this element begins.
        const auto near = std::upper_bound(of_a.begin(), of_a.end(), address - bytes_a);
        return near != of_a.end() && *near < address + bytes_b;
    });
}

bool really_apart(const halyard_tensor &tensor) {
    const auto addresses = addresses_of(tensor);
    return std::adjacent_find(addresses.begin(), addresses.end()) == addresses.end();
}

bool may_share_bytes(const halyard_tensor &a, const halyard_tensor &b) {
    return halyard::may_share_bytes(halyard::lattice_of(a), halyard::lattice_of(b));
}

bool elements_are_disjoint(const halyard_tensor &tensor) {
    return halyard::elements_are_disjoint(halyard::lattice_of(tensor));
}

halyard_tensor random_tensor(Random &random, std::int64_t largest_stride) {
    Strides shape, strides;
    for (int d = 0; d < 4; d++) {
        shape[d] = random.in(1, 4);
        strides[d] = random.in(-largest_stride, largest_stride);
    }
    return at_address(nowhere + static_cast<std::uintptr_t>(random.in(0, 120)),
                      static_cast<std::int32_t>(random.in(1, 3)), shape, strides);
}

}  // namespace

TEST_CASE("overlap: the checks agree with brute force on small tensors", "[errors]") {
    Random random(Catch::getSeed());
    int n_sharing = 0, n_disjoint = 0, n_apart = 0, n_refused_though_apart = 0;
    for (int i = 0; i < 20000; i++) {
        const std::int64_t largest_stride = random.in(1, 40);
        const halyard_tensor a = random_tensor(random, largest_stride), b = random_tensor(random, largest_stride);
        const bool share = really_share(a, b), may_share = may_share_bytes(a, b);
        CAPTURE(i, std::vector(a.strides, a.strides + 4), std::vector(a.shape, a.shape + 4));
        // may_share_bytes is exact if both tensors' elements have the same size; else it may only err towards sharing.
        const bool is_exact = oracle::element_bytes(a.dtype) == oracle::element_bytes(b.dtype);
        REQUIRE((may_share == share || (may_share && !is_exact)));
        REQUIRE(may_share_bytes(b, a) == may_share);
        (share ? n_sharing : n_disjoint)++;

        const bool apart = really_apart(a);
        REQUIRE((apart || !elements_are_disjoint(a)));
        n_refused_though_apart += apart && !elements_are_disjoint(a) ? 1 : 0;
        n_apart += apart ? 1 : 0;
    }
    // Both answers must be common, or the comparison above proves nothing.
    CHECK(n_sharing > 2000);
    CHECK(n_disjoint > 2000);
    CHECK(n_apart > 2000);
    CHECK(n_refused_though_apart > 0);
}

TEST_CASE("overlap: strides that are never walked may be of 2^64 bytes", "[errors]") {
    const std::int64_t stride = std::int64_t{1} << 62;
    const auto a = at_address(nowhere, HALYARD_F32, {1, 1, 1, 4}, {stride, stride, stride, 1});
    CHECK(may_share_bytes(a, a));
    CHECK_FALSE(may_share_bytes(a, at_address(nowhere + 16, HALYARD_F32, {1, 1, 1, 4}, {0, 0, 0, 1})));
}

TEST_CASE("overlap: slices of one buffer are told apart exactly, at the sizes of real models", "[errors]") {
    const std::int64_t sizes[] = {3, 1000, 32, 3}, dim = 128;  // batch, tokens, heads, and the 3 slices q, k and v
    std::array<int, 4> order = {0, 1, 2, 3};                   // slowest dimension first; engines use every order
    do {
        std::int64_t strides[4], stride = dim;
        for (int i = 3; i >= 0; i--) {
            strides[order[i]] = stride;
            stride *= sizes[order[i]];
        }
        const auto view = [&](std::int32_t dtype, std::int64_t slot, std::int64_t first_head, std::int64_t n,
                              std::int64_t skip = 0) {
            const std::int64_t first = slot * strides[3] + first_head * strides[2] + skip;
            return at_address(nowhere + static_cast<std::uintptr_t>(first * oracle::element_bytes(dtype)), dtype,
                              {sizes[0], sizes[1], n, dim - skip}, {strides[0], strides[1], strides[2], 1});
        };
        for (int i = 0; i < 2 * 3 * 3; i++) {
            const std::int32_t dtype = i < 9 ? HALYARD_F32 : HALYARD_F16;
            const std::int64_t slot = i / 3 % 3, other = i % 3;
            CAPTURE(order, slot, other);
            const auto whole = view(dtype, slot, 0, 32);
            CHECK(may_share_bytes(whole, view(dtype, other, 0, 32)) == (slot == other));
            CHECK(may_share_bytes(whole, view(dtype, other, 0, 32, 64)) == (slot == other));
            // The first 24 (or 25) heads of a slot against the last 8.
            CHECK_FALSE(may_share_bytes(view(dtype, slot, 0, 24), view(dtype, other, 24, 8)));
            CHECK(may_share_bytes(view(dtype, slot, 0, 25), view(dtype, other, 24, 8)) == (slot == other));
            CHECK(elements_are_disjoint(whole));
        }
    } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("overlap: strides that defy the search count as sharing, soon", "[errors]") {
    // The strides of a are odd and coprime, so that it takes a long search to rule out that b's elements meet a's.
    const Strides shape = {1000003, 1000033, 1000037, 1000039};
    const auto a = at_address(nowhere, HALYARD_F16, shape, {15485863, 32452843, 49979687, 67867967});
    const auto b = at_address(nowhere + 1234567, HALYARD_F16, shape, {86028121, 104395301, 122949823, 141650939});
    const auto start = std::chrono::steady_clock::now();
    CHECK(may_share_bytes(a, b));
    // All steps are multiples of 16 bytes, and d is 8 bytes off: no elements meet, but the search cannot know.
    const auto c = at_address(nowhere, HALYARD_F16, {99, 99, 99, 99}, {8 * 1009, 8 * 1013, 8 * 1019, 8 * 1021});
    const auto d = at_address(nowhere + 8, HALYARD_F16, {99, 99, 99, 99}, {8 * 1031, 8 * 1033, 8 * 1039, 8 * 1049});
    CHECK(may_share_bytes(c, d));
    CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(1));  // usually microseconds
}
