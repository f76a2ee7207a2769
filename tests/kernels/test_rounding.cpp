// Every float is rounded to the nearest number of 16 bits, by every target. A pair (1, 0) that is turned by a row whose
// sin is 0 becomes (cos, 0): so a kernel rounds what the caller's rows hold.
#include "checks/rotate.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t n_floats = 49152;  // at once: whole tokens of 64 and of 12 pairs

/// A kernel, by what it is asked for; its input is all pairs (1, 0).
struct Case {
    std::string name;
    Rotation rotation;
    halyard::plan plan;
    Elements x, y;

    Case(const char *target, std::int32_t dtype, std::int32_t in, std::int32_t out, std::int64_t pairs)
        : name(std::string(target) + ", pairings " + std::to_string(in) + " to " + std::to_string(out) + ", " +
               std::to_string(pairs) + " pairs"),
          rotation{2 * pairs, 0, 0, dtype, in, out, false, target}, plan(rotation.plan()),
          x(dtype, {1, n_floats / pairs, 1, 2 * pairs}), y(x) {
        for (std::int64_t token = 0; token < x.shape[1]; token++) {
            for (std::int64_t k = 0; k < pairs; k++) {
                x.set_word(token * 2 * pairs + rotation.index(in, k, 0), oracle::narrow(dtype, 1.0f));
            }
        }
    }

    /// Rounds the floats by rotating with rows of them; false where a word is not the expected one.
    bool rounds(const std::vector<float> &floats, const std::vector<float> &zeros,
                const std::vector<std::uint32_t> &expected) {
        const std::int64_t pairs = rotation.rotary_dim / 2;
        const auto angles =
            halyard::angle_source::given(floats.data(), zeros.data(), n_floats / pairs, pairs, 2 * pairs);
        halyard::run(plan, angles, x.tensor(), y.tensor());
        const std::int32_t pairing = rotation.pairing_of_output();
        for (std::int64_t i = 0; i < n_floats; i++) {
            const std::int64_t at = i / pairs * 2 * pairs + rotation.index(pairing, i % pairs, 0);
            const std::uint32_t word = y.word(at), wanted = expected[static_cast<std::size_t>(i)];
            if (word != wanted && !(oracle::is_nan(y.dtype, word) && oracle::is_nan(y.dtype, wanted))) {
                UNSCOPED_INFO(name << ": " << std::hexfloat << floats[static_cast<std::size_t>(i)] << " becomes 0x"
                                   << std::hex << word << ", not 0x" << wanted);
                return false;
            }
        }
        return true;
    }
};

/// Rounds the floats whose bits are multiples of a stride.
void check_every(std::uint64_t stride) {
    constexpr std::int32_t half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED;
    const std::vector<float> zeros(n_floats);
    std::vector<float> floats(n_floats);
    std::vector<std::uint32_t> expected(n_floats);
    for (const std::int32_t dtype : {HALYARD_F16, HALYARD_BF16}) {
        std::vector<Case> cases;
        for (const char *target : targets_here()) {
            for (const std::int64_t pairs : {64, 12}) {  // a size that kernels know, and another
                cases.emplace_back(target, dtype, half, half, pairs);
                cases.emplace_back(target, dtype, interleaved, interleaved, pairs);
            }
            cases.emplace_back(target, dtype, half, interleaved, 64);
            cases.emplace_back(target, dtype, interleaved, half, 64);
        }
        for (std::uint64_t bits = 0; bits >> 32 == 0;) {
            for (std::size_t i = 0; i < floats.size(); i++, bits += stride) {
                floats[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits));
                expected[i] = oracle::narrow(dtype, floats[i]);
            }
            for (Case &each : cases) {
                REQUIRE(each.rounds(floats, zeros, expected));
            }
        }
    }
}

}  // namespace

TEST_CASE("rounding: a sample of all floats, and all ties") {
    check_every(4099);
    check_every(0x1000);
}

TEST_CASE("rounding: every float", "[.exhaustive]") { check_every(1); }
