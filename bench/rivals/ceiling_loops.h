// The loops of the ceilings for one width of vectors: the source that includes this is compiled for it, and says in a
// type Width what has no operator. Nothing here, or inline in the standard library, may be seen from outside it.
#pragma once

#include "rivals/ceiling.h"

#include <immintrin.h>

#include <cstdint>
#include <cstring>

namespace halyard::bench {
namespace {

/// Loads and stores a vector at any address.
template <typename Vector>
Vector load(const char *from) {
    Vector value;
    std::memcpy(&value, from, sizeof(value));
    return value;
}
template <bool non_temporal, typename Change>
void store(char *to, typename Change::Vector value) {
    if constexpr (non_temporal) {
        Change::stream(to, value);
    } else {
        std::memcpy(to, &value, sizeof(value));
    }
}

/// Does the same as pass where each row is so many vectors. A loop over few costs more than they do.
template <bool non_temporal, std::size_t n_vectors, typename Change>
bool pass_short(const Rows &rows, const Change &change) {
    constexpr std::size_t step = sizeof(typename Change::Vector);
    if (rows.row_bytes != n_vectors * step) {
        return false;
    }
    const char *from = rows.from;
    char *to = rows.to;
    for (std::size_t row = 0; row < rows.n_rows; row++, from += rows.stride_bytes, to += rows.stride_bytes) {
        for (std::size_t i = 0; i < n_vectors * step; i += step) {
            store<non_temporal, Change>(to + i, change(load<typename Change::Vector>(from + i)));
        }
    }
    return true;
}

/// Applies a change to every vector of every row. The change leaves elements as they are: so the last vector of a row
/// may overlap the one before.
template <bool non_temporal, typename Change>
void pass(const Rows &rows, const Change change) {
    using Vector = typename Change::Vector;
    constexpr std::size_t step = sizeof(Vector), n_unrolled = 4;
    if (pass_short<non_temporal, 1>(rows, change) || pass_short<non_temporal, 2>(rows, change) ||
        pass_short<non_temporal, 4>(rows, change) || pass_short<non_temporal, 8>(rows, change)) {
        return;
    }
    for (std::size_t row = 0; row < rows.n_rows; row++) {
        const char *const from = rows.from + row * rows.stride_bytes;
        char *const to = rows.to + row * rows.stride_bytes;
        const std::size_t n = rows.row_bytes, n_last = n % step;
        // Loaded first: a load from bytes that two stores have just written would wait for them.
        Vector last = {};
        if (n_last != 0) {
            std::memcpy(&last, from + (n < step ? 0 : n - step), n < step ? n : step);
        }
        std::size_t i = 0;
        for (; i + n_unrolled * step <= n; i += n_unrolled * step) {
            for (std::size_t j = 0; j < n_unrolled * step; j += step) {
                store<non_temporal, Change>(to + i + j, change(load<Vector>(from + i + j)));
            }
        }
        for (; i + step <= n; i += step) {
            store<non_temporal, Change>(to + i, change(load<Vector>(from + i)));
        }
        if (n_last != 0) {
            last = change(last);
            std::memcpy(to + (n < step ? 0 : n - step), &last, n < step ? n : step);
        }
    }
    if constexpr (non_temporal) {
        _mm_sfence();
    }
}

template <typename Width>
struct Copy {
    using Vector = typename Width::Words;
    static void stream(char *to, Vector value) { Width::stream(to, value); }
    Vector operator()(Vector value) const { return value; }
};

/// Volatile, so that the compiler does not leave the multiplication out.
volatile float one = 1.0f;

template <typename Width>
struct Multiply : Copy<Width> {
    using Floats = typename Width::Floats;
    Floats factor = Floats{} + one;
    auto operator()(typename Width::Words value) const { return typename Width::Words(Floats(value) * factor); }
};

/// What happens between widening and rounding: nothing that the compiler could see through, or a product.
template <typename Floats>
struct Keep {
    Floats operator()(Floats value) const {
        asm("" : "+v"(value));
        return value;
    }
};
template <typename Floats>
struct Scale {
    float factor;
    Floats operator()(Floats value) const { return value * factor; }
};

template <typename Width, template <typename> typename Between>
struct ConvertF16 {
    using Vector = typename Width::Halves;
    Between<typename Width::Floats> between;
    static void stream(char *to, Vector value) { Width::stream(to, value); }
    Vector operator()(Vector value) const { return Width::round_f16(between(Width::widen_f16(value))); }
};

/// In words of two elements, so that none has to change its lane.
template <typename Width, template <typename> typename Between>
struct ConvertBf16 {
    using Vector = typename Width::Words;
    Between<typename Width::Floats> between;
    static void stream(char *to, Vector value) { Width::stream(to, value); }
    Vector round(Vector widened) const {
        return Width::add_half_an_ulp(Vector(between(typename Width::Floats(widened))));
    }
    Vector operator()(Vector words) const {
        return Width::join_upper_halves(round(words << 16), round(words & 0xffff0000));
    }
};

template <bool non_temporal, typename Change>
void run(const Rows &rows) {
    pass<non_temporal>(rows, Change{});
}

template <typename Change>
void scale(const Rows &rows, float factor) {
    Change change;
    change.between.factor = factor;
    pass<false>(rows, change);
}

}  // namespace
}  // namespace halyard::bench
