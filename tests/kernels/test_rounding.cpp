// Every float is rounded to the nearest number of 16 bits, by every target. A pair (1, 0) that is turned by a row whose
// sin is 0 becomes (cos, 0): so a kernel rounds what the caller's rows hold.
#include "checks/rotate.h"

#include <catch2/catch_test_macros.hpp>

#include <bit>
#include <cstdint>
#include <cstring>
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
        const std::int64_t step = rotation.index(rotation.pairing_of_output(), 1, 0);
        const char *head = y.bytes.data();
        for (std::size_t i = 0; i < floats.size(); head += y.shape[3] * std::int64_t{sizeof(std::uint16_t)}) {
            for (std::int64_t k = 0; k < pairs; k++, i++) {
                std::uint16_t word = 0;
                std::memcpy(&word, head + k * step * std::int64_t{sizeof(word)}, sizeof(word));
                if (word != expected[i] && !(oracle::is_nan(y.dtype, word) && oracle::is_nan(y.dtype, expected[i]))) {
                    UNSCOPED_INFO(name << ": " << std::hexfloat << floats[i] << " becomes 0x" << std::hex << word
                                       << ", not 0x" << expected[i]);
                    return false;
                }
            }
        }
        return true;
    }
};

/// Rounds the floats whose bits are multiples of a stride.
void check_every(std::uint64_t stride, const std::vector<const char *> &targets) {
    constexpr std::int32_t half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED;
    const std::vector<float> zeros(n_floats);
    std::vector<float> floats(n_floats);
    std::vector<std::uint32_t> expected(n_floats);
    for (const std::int32_t dtype : {HALYARD_F16, HALYARD_BF16}) {
        std::vector<Case> cases;
        for (const char *target : targets) {
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
    check_every(4099, targets_here());
    check_every(0x1000, targets_here());
}

TEST_CASE("rounding: every float", "[.exhaustive]") {
    std::vector<const char *> targets = targets_here();
    targets.pop_back();  // the reference, which the tests of conversions have seen round every float
    check_every(1, targets);
}
