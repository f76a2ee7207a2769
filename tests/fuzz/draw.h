// How fuzzers draw the arguments of calls, and make those.
#pragma once

#include "require.h"

#include <cstdint>
#include <limits>

/// Values from the fuzzer's bytes; zeros when they run out.
class Draw {
public:
    Draw(const std::uint8_t *data, std::size_t size) : at_(data), end_(data + size) {}

    std::uint8_t byte() { return at_ == end_ ? 0 : *at_++; }
    bool one_in(int n) { return byte() % n == n - 1; }
    std::int64_t in(std::int64_t first, std::int64_t last) { return first + byte() % (last - first + 1); }
    std::int64_t word() {
        std::uint64_t value = 0;
        for (int i = 0; i < 8; i++) {
            value = value << 8 | byte();
        }
        return static_cast<std::int64_t>(value);
    }
    /// Mostly the value that it is given; where nonsense is allowed, now and then another number, often an extreme one.
    template <typename T>
    T maybe_wild(T sensible) {
        if (!wild || !one_in(rarity)) {
            return sensible;
        }
        switch (byte() % 6) {
        case 0: return std::numeric_limits<T>::min();
        case 1: return std::numeric_limits<T>::max();
        case 2: return static_cast<T>(-1);
        case 3: return static_cast<T>(static_cast<std::uint64_t>(sensible) + 1);
        case 4: return static_cast<T>(std::int64_t{1} << in(0, 62));
        default: return static_cast<T>(word());
        }
    }

    bool wild = false;  // whether anything may be nonsense,
    int rarity = 24;    // and that once in so many values, at most 256

private:
    const std::uint8_t *at_, *end_;
};

inline long n_calls = 0;

inline halyard_status call(const WatchedError &error, halyard_status status) {
    n_calls++;
    return error.check(status);
}

inline void print_calls() { std::fprintf(stderr, "%ld calls of the API\n", n_calls); }
