// The source of a random case's choices: the random numbers of a seed, or a fuzzer's bytes.
#pragma once

#include "checks/oracle.h"

namespace cases {

class Draw {
public:
    explicit Draw(oracle::Random &random) : random_(&random) {}
    /// Draws from a fuzzer's bytes, and zeros after the last byte.
    Draw(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}

    bool is_fuzzed() const { return random_ == nullptr; }
    std::uint64_t bits() {
        std::uint64_t value = random_ != nullptr ? random_->bits() : 0;
        for (int i = 0; random_ == nullptr && i < 8; i++) {
            value = value << 8 | byte();
        }
        return value;
    }
    /// One of the integers from first to last. A fuzzer spends one byte on it if there are at most 256, else eight.
    std::int64_t in(std::int64_t first, std::int64_t last) {
        const std::uint64_t n = static_cast<std::uint64_t>(last) - static_cast<std::uint64_t>(first) + 1;
        const std::uint64_t value = random_ == nullptr && n <= 256 ? byte() : bits();
        return first + static_cast<std::int64_t>(value % n);
    }
    bool one_in(std::int64_t n) { return in(1, n) == n; }
    template <typename T, std::size_t n>
    T one_of(const T (&choices)[n]) {
        return choices[in(0, n - 1)];
    }

    bool wild = false;  // whether callers may replace drawn fields by nonsense

private:
    oracle::Random *random_ = nullptr;
    const std::uint8_t *at_ = nullptr, *end_ = nullptr;

    std::uint8_t byte() { return at_ == end_ ? 0 : *at_++; }
};

}  // namespace cases
