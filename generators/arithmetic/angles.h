// Where cos and sin come from, as small pure functions of Expr.
#pragma once

#include "arithmetic/rotation.h"

#include "angles/phase.h"
#include "halyard/halyard.h"

namespace halyard {

using Angle = CosAndSin<Expr>;

/// The operations of phase.h on Halide expressions.
struct ExprMath {
    using Float = Expr;
    using Word = Expr;
    using Int = Expr;

    static Expr fma(const Expr &a, const Expr &b, const Expr &c) { return halyard::fma(a, b, c); }
    static Expr times(const Expr &a, const Expr &b) { return Halide::strict_float(a * b); }
    static Expr plus(const Expr &a, const Expr &b) { return Halide::strict_float(a + b); }
    static Expr flip_sign(const Expr &x, const Expr &sign) { return halyard::flip_sign(x, sign); }
    static Expr select(const Expr &condition, const Expr &a, const Expr &b) { return Halide::select(condition, a, b); }
    static Expr upper_product(const Expr &a, const Expr &b) {
        return cast<uint32_t>((cast<uint64_t>(a) * cast<uint64_t>(b)) >> 32);
    }
    static Expr to_word(const Expr &i) { return cast<uint32_t>(i); }
    static Expr to_int(const Expr &word) { return cast<int32_t>(word); }
    static Expr to_float(const Expr &i) { return cast<float>(i); }
};

template <typename T>
using Input = Halide::GeneratorInput<T>;

/// Sets the first index of all buffers' dimensions to 0. (The stride of dimension 0 is 1 by Halide's default.)
template <typename... AnyBuffer>
void begin_at_zero(AnyBuffer &...buffers) {
    const auto begin = [](auto &buffer) {
        for (int i = 0; i < buffer.dimensions(); i++) {
            buffer.dim(i).set_min(0);
        }
    };
    (begin(buffers), ...);
}

/// The rows of cos and sin that a CPU's kernel reads; the runtime has made or found them.
class RowInputs {
public:
    void add_to(Halide::Internal::GeneratorBase &generator) {
        row_of_token = generator.add_input<Halide::Buffer<int32_t, 1>>("row_of_token");
        cos_rows = generator.add_input<Halide::Buffer<float, 2>>("cos_rows");
        sin_rows = generator.add_input<Halide::Buffer<float, 2>>("sin_rows");
    }

    Angle at(const Expr &pair, const Expr &token) const {
        const Expr row = unsafe_promise_clamped((*row_of_token)(token), 0, cos_rows->dim(1).extent() - 1);
        return {(*cos_rows)(pair, row), (*sin_rows)(pair, row)};
    }

    void constrain() { begin_at_zero(*row_of_token, *cos_rows, *sin_rows); }

private:
    Input<Halide::Buffer<int32_t, 1>> *row_of_token = nullptr;  // [token]
    Input<Halide::Buffer<float, 2>> *cos_rows = nullptr;        // [pair, row]
    Input<Halide::Buffer<float, 2>> *sin_rows = nullptr;        // likewise
};

}  // namespace halyard
