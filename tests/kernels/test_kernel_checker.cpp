// Tests what the other tests rely on: the kernel checker must catch broken kernels, and the oracle must round right.
#include "checks/kernel_checker.h"
#include "checks/oracle.h"
#include "walk/piece.h"
#include "walk/reference.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using halyard::Kernel;
using halyard::Pairing;
using halyard::Piece;

// ---- Kernels made of the reference ---------------------------------------------------------------------------------

/// A kernel's arguments as a piece of work, which bugs can change.
struct Call {
    Piece piece;
    std::vector<std::int32_t> rows;

    Call(halyard::Dtype dtype, const halyard_buffer *row_of_token, const halyard_buffer *cos, const halyard_buffer *sin,
         std::uint32_t sin_sign, const halyard_buffer *x, const halyard_buffer *y) {
        const auto *first = reinterpret_cast<const std::int32_t *>(row_of_token->host);
        rows.assign(first, first + row_of_token->dim[0].extent);
        piece.dtype = dtype;
        piece.x = reinterpret_cast<const char *>(x->host);
        piece.y = reinterpret_cast<char *>(y->host);
        piece.in = {x->dim[0].stride, x->dim[1].stride, x->dim[2].stride, x->dim[3].stride};
        piece.out = {y->dim[0].stride, y->dim[1].stride, y->dim[2].stride, y->dim[3].stride};
        piece.n_pairs = y->dim[0].extent;
        piece.n_heads = y->dim[2].extent;
        piece.n_tokens = y->dim[3].extent;
        piece.cos_rows = reinterpret_cast<const char *>(cos->host);
        piece.sin_rows = reinterpret_cast<const char *>(sin->host);
        piece.n_rows = cos->dim[1].extent;
        piece.stride_row = cos->dim[1].stride;
        piece.row_of_token = rows.data();
        piece.sin_sign = sin_sign;
    }

    /// Rows may lie at any address.
    float cos(std::int64_t token, std::int64_t k) const { return read_row(piece.cos_rows, token, k); }
    float sin(std::int64_t token, std::int64_t k) const {
        const float value = read_row(piece.sin_rows, token, k);
        return piece.sin_sign != 0 ? -value : value;
    }

    char *output(std::int64_t token, std::int64_t head, std::int64_t k, int member) const {
        const halyard::PairStrides &s = piece.out;
        return piece.y + 4 * (token * s.token + head * s.head + k * s.pair + member * s.member);
    }

    template <typename Function>
    void for_each_output(Function function) const {
        const std::int64_t n = 2 * piece.n_pairs;
        for (std::int64_t i = 0; i < piece.n_tokens * piece.n_heads * n; i++) {
            char *const at = output(i / n / piece.n_heads, i / n % piece.n_heads, i % n / 2, i % 2);
            const float value = function(halyard::read_word<float>(at));
            std::memcpy(at, &value, sizeof(value));
        }
    }

private:
    float read_row(const char *values, std::int64_t token, std::int64_t k) const {
        return halyard::read_word<float>(values + 4 * (piece.row_of_token[token] * piece.stride_row + k));
    }
};

/// A bug changes something before the rotation, or after it.
struct NoBug {
    static void before(Call &) {}
    static void after(const Call &) {}
};
struct SwappedSign : NoBug {
    static void before(Call &call) { call.piece.sin_sign ^= 0x80000000u; }
};
struct ForwardOnly : NoBug {
    static void before(Call &call) { call.piece.sin_sign = 0; }
};
struct ShortTail : NoBug {
    static void before(Call &call) { call.piece.n_pairs -= call.piece.n_pairs % 8 == 1 ? 1 : 0; }
};
struct SkipsLastHead : NoBug {
    static void before(Call &call) { call.piece.n_heads -= call.piece.n_heads > 1 ? 1 : 0; }
};
struct IgnoresTokenStride : NoBug {
    static void before(Call &call) { call.piece.in.token = call.piece.in.head * call.piece.n_heads; }
};
struct IgnoresRows : NoBug {
    static void before(Call &call) {
        for (std::int64_t i = 0; i < call.piece.n_tokens; i++) {
            call.rows[static_cast<std::size_t>(i)] = 0;
        }
    }
};
struct WritesOnePast : NoBug {
    static void after(const Call &call) {
        char *const past = call.output(call.piece.n_tokens - 1, call.piece.n_heads - 1, call.piece.n_pairs, 0);
        if (call.piece.out.pair == 2) {  // in interleaved heads this is no output of this head
            std::memset(past, 0, 1);
        }
    }
};
struct WritesItsInput : NoBug {
    static void after(const Call &call) {
        char *const input = const_cast<char *>(call.piece.x);
        input[0] = static_cast<char>(input[0] ^ 1);
    }
};
struct LosesNaN : NoBug {
    static void after(const Call &call) {
        call.for_each_output([](float y) { return std::isnan(y) ? std::numeric_limits<float>::infinity() : y; });
    }
};
struct LosesNegativeZero : NoBug {
    static void after(const Call &call) {
        call.for_each_output([](float y) { return y == 0 ? 0.0f : y; });
    }
};
struct FlushesDenormals : NoBug {
    static void after(const Call &call) {
        call.for_each_output([](float y) { return std::fpclassify(y) == FP_SUBNORMAL ? std::copysign(0.0f, y) : y; });
    }
};
struct OffByOneUlp : NoBug {
    static void after(const Call &call) {
        bool first = true;
        call.for_each_output([&](float y) { return std::exchange(first, false) ? std::nextafter(y, 2 * y) : y; });
    }
};
/// Reads beyond its last pair, as a vector without a mask does; the result isn't used.
struct ReadsOnePast : NoBug {
    static void after(const Call &call) {
        const Piece &p = call.piece;
        for (std::int64_t token = 0; token < p.n_tokens; token++) {
            volatile const char *const past =
                p.x + (token * p.in.token + (p.n_heads - 1) * p.in.head + p.n_pairs * p.in.pair) * 4;
            (void)*past;
        }
    }
};

struct ReadsOneBefore : NoBug {
    static void after(const Call &call) { (void)*static_cast<volatile const char *>(call.piece.x - 1); }
};
struct ReadsOneRowMore : NoBug {
    static void after(const Call &call) {
        (void)*static_cast<volatile const char *>(call.piece.cos_rows + 4 * call.piece.n_rows * call.piece.stride_row);
    }
};
struct WrongPair : NoBug {
    static void before(Call &call) {
        for (halyard::PairStrides *strides : {&call.piece.in, &call.piece.out}) {
            std::swap(strides->pair, strides->member);
        }
    }
};
struct WrongAngle : NoBug {
    static void before(Call &call) { call.piece.cos_rows += call.piece.n_pairs > 1 ? 4 : 0; }
};
struct WrongOnMisaligned : NoBug {
    static void after(const Call &call) {
        if (reinterpret_cast<std::uintptr_t>(call.piece.x) % 4 == 3) {
            call.for_each_output([](float y) { return -y; });
        }
    }
};

template <halyard::Dtype dtype, typename Bug>
int broken(halyard_buffer *row_of_token, halyard_buffer *cos, halyard_buffer *sin, std::uint32_t sin_sign,
           halyard_buffer *x, halyard_buffer *y) {
    Call call(dtype, row_of_token, cos, sin, sin_sign, x, y);
    if (call.piece.n_tokens == 0 || call.piece.n_heads == 0) {
        return 0;
    }
    Bug::before(call);
    halyard::rotate_reference(call.piece);
    Bug::after(call);
    return 0;
}

/// Rounds to nearest.
template <std::int32_t dtype>
std::uint32_t rounded(float value) {
    return oracle::narrow(dtype, value);
}
/// Cuts what no element holds off.
template <std::int32_t dtype>
std::uint32_t cut_off(float value) {
    const std::uint32_t word = oracle::narrow(dtype, value);
    return std::fabs(oracle::widen(dtype, word)) > std::fabs(value) ? word - 1 : word;
}

/// Rounds both products of each output.
oracle::Pair<float> rotate_by_products(oracle::Pair<float> x, float cos, float sin) {
    const float self0 = x.x0 * cos, self1 = x.x1 * cos;
    return {self0 - x.x1 * sin, self1 + x.x0 * sin};
}

/// A kernel of the oracle's: in any arithmetic, and rounding as it likes.
template <std::int32_t dtype, oracle::Pair<float> (*rotate)(oracle::Pair<float>, float, float),
          std::uint32_t (*narrow)(float)>
int rotate_by_oracle(halyard_buffer *row_of_token, halyard_buffer *cos, halyard_buffer *sin, std::uint32_t sin_sign,
                     halyard_buffer *x, halyard_buffer *y) {
    const Call call(static_cast<halyard::Dtype>(dtype), row_of_token, cos, sin, sin_sign, x, y);
    const Piece &p = call.piece;
    const std::int64_t bytes = oracle::element_bytes(dtype);
    for (std::int64_t n = 0; n < p.n_tokens * p.n_heads * p.n_pairs; n++) {
        const std::int64_t k = n % p.n_pairs, head = n / p.n_pairs % p.n_heads, token = n / p.n_pairs / p.n_heads;
        const char *from = p.x + bytes * (token * p.in.token + head * p.in.head + k * p.in.pair);
        char *to = p.y + bytes * (token * p.out.token + head * p.out.head + k * p.out.pair);
        const auto read = [&](const char *at) { return oracle::widen(dtype, oracle::read_word(dtype, at)); };
        const auto turned =
            rotate({read(from), read(from + bytes * p.in.member)}, call.cos(token, k), call.sin(token, k));
        oracle::write_word(dtype, to, narrow(turned.x0));
        oracle::write_word(dtype, to + bytes * p.out.member, narrow(turned.x1));
    }
    return 0;
}

constexpr auto rounding_twice = rotate_by_oracle<HALYARD_F32, rotate_by_products, rounded<HALYARD_F32>>;
template <std::int32_t dtype>
constexpr auto truncating = rotate_by_oracle<dtype, oracle::rotate, cut_off<dtype>>;

using enum halyard::Dtype;

Kernel kernel(const char *name, halyard::Dtype dtype, bool in_place, halyard_rotate_kernel *function,
              std::optional<Pairing> pairing = std::nullopt) {
    return {.name = name,
            .target = halyard::Target::reference,
            .pairing = pairing,
            .out_pairing = pairing,
            .dtype = dtype,
            .place = in_place ? halyard::Place::in_place : halyard::Place::out_of_place,
            .packed = false,
            .function = function};
}

std::string fault_of(const Kernel &bad) { return check_kernel(bad, Catch::getSeed(), 4).fault; }

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the kernel checker passes sound kernels", "[checker]") {
    const Kernel sound = GENERATE(kernel("sound f32", f32, false, broken<f32, NoBug>),
                                  kernel("sound f16", f16, false, broken<f16, NoBug>),
                                  kernel("sound bf16", bf16, false, broken<bf16, NoBug>),
                                  kernel("sound f32 in place", f32, true, broken<f32, NoBug>),
                                  kernel("sound bf16 in place", bf16, true, broken<bf16, NoBug>),
                                  kernel("sound f32 half", f32, false, broken<f32, NoBug>, Pairing::half));
    const KernelReport report = check_kernel(sound, Catch::getSeed(), 4);
    CHECK(report.fault == "");
    CHECK(report.n_outputs > 100'000);
}

TEST_CASE("the kernel checker catches broken kernels", "[checker]") {
    const Kernel bad = GENERATE(
        kernel("swaps the sign of sin", f32, false, broken<f32, SwappedSign>),
        kernel("knows forward only", f32, true, broken<f32, ForwardOnly>),
        kernel("pairs neighbours, not halves", f32, false, broken<f32, WrongPair>),
        kernel("takes the angle of the next pair", f32, false, broken<f32, WrongAngle>),
        kernel("rounds twice", f32, false, rounding_twice), kernel("rounds twice in place", f32, true, rounding_twice),
        kernel("is wrong where x is misaligned", f32, false, broken<f32, WrongOnMisaligned>),
        kernel("drops a tail of one", f32, false, broken<f32, ShortTail>),
        kernel("skips the last head", f32, false, broken<f32, SkipsLastHead>),
        kernel("takes tokens for dense", f32, false, broken<f32, IgnoresTokenStride>),
        kernel("reads row 0 for every token", f32, false, broken<f32, IgnoresRows>),
        kernel("writes one past the end", f32, false, broken<f32, WritesOnePast>, Pairing::interleaved),
        kernel("writes one past the end in place", f32, true, broken<f32, WritesOnePast>, Pairing::interleaved),
        kernel("writes to its input", f32, false, broken<f32, WritesItsInput>),
        kernel("loses NaN", f32, false, broken<f32, LosesNaN>),
        kernel("loses -0", f32, false, broken<f32, LosesNegativeZero>),
        kernel("flushes denormals", f32, false, broken<f32, FlushesDenormals>),
        kernel("is an ulp off in one output", f32, true, broken<f32, OffByOneUlp>),
        kernel("cuts f16 off", f16, false, truncating<HALYARD_F16>),
        kernel("cuts bf16 off", bf16, false, truncating<HALYARD_BF16>),
        kernel("does nothing", f32, false,
               [](halyard_buffer *, halyard_buffer *, halyard_buffer *, std::uint32_t, halyard_buffer *,
                  halyard_buffer *) { return 0; }),
        kernel("takes f16 for bf16", f16, false, broken<bf16, NoBug>));
    // The fault is reported in the kernel's name. A write past the end may meet a guard page instead.
    CHECK(contains(fault_of(bad), bad.name));
}

TEST_CASE("the kernel checker's guard pages catch reads out of bounds, and it names the case", "[checker]") {
    const Kernel bad =
        GENERATE(kernel("reads one past the end", f32, false, broken<f32, ReadsOnePast>, Pairing::interleaved),
                 kernel("reads one before the start", f32, false, broken<f32, ReadsOneBefore>, Pairing::interleaved),
                 kernel("reads a row past the last", f32, false, broken<f32, ReadsOneRowMore>, Pairing::interleaved));
    const std::string fault = fault_of(bad);
    CHECK(contains(fault, std::string(bad.name) + ": f32, interleaved -> interleaved, out of place"));
    CHECK(contains(fault, ": crashes with signal 11"));
}

TEST_CASE("the kernel checker ends a kernel that does not end by itself", "[checker]") {
    const Kernel bad = kernel(
        "hangs", f32, false,
        [](halyard_buffer *, halyard_buffer *, halyard_buffer *, std::uint32_t, halyard_buffer *, halyard_buffer *) {
            for (volatile bool forever = true; forever;) {
            }
            return 0;
        });
    CHECK(contains(check_kernel(bad, Catch::getSeed(), 4, 1).fault, ": takes more than 1 seconds"));
}

// ---- The oracle ----------------------------------------------------------------------------------------------------

TEST_CASE("the oracle widens and narrows every 16-bit word back to itself", "[checker]") {
    const auto dtype = GENERATE(as<std::int32_t>(), HALYARD_F16, HALYARD_BF16);
    int n_wrong = 0;
    for (std::uint32_t word = 0; word < 0x10000; word++) {
        const float value = oracle::widen(dtype, word);
        const std::uint32_t back = oracle::narrow(dtype, value);
        const bool same = oracle::is_nan(dtype, word) ? std::isnan(value) && oracle::is_nan(dtype, back) : back == word;
        n_wrong += same ? 0 : 1;
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("the oracle rounds to nearest, ties to even, between any two neighbours", "[checker]") {
    const auto dtype = GENERATE(as<std::int32_t>(), HALYARD_F16, HALYARD_BF16);
    const std::uint32_t infinity = dtype == HALYARD_F16 ? 0x7c00 : 0x7f80;
    int n_wrong = 0;
    for (std::uint32_t word = 0; word + 1 < infinity; word++) {
        const double low = oracle::widen(dtype, word), high = oracle::widen(dtype, word + 1);
        const auto middle = static_cast<float>((low + high) / 2);  // exact, since it needs just one more bit
        const std::uint32_t even = word % 2 == 0 ? word : word + 1;
        n_wrong += oracle::narrow(dtype, middle) == even ? 0 : 1;
        n_wrong += oracle::narrow(dtype, std::nextafter(middle, 0.0f)) == word ? 0 : 1;
        n_wrong += oracle::narrow(dtype, std::nextafter(middle, INFINITY)) == word + 1 ? 0 : 1;
        n_wrong += oracle::narrow(dtype, -middle) == (even | 0x8000) ? 0 : 1;
    }
    CHECK(n_wrong == 0);
}

TEST_CASE("the oracle's conversions have the values of the standards", "[checker]") {
    CHECK(oracle::widen(HALYARD_F16, 0x3c00) == 1.0f);
    CHECK(oracle::widen(HALYARD_F16, 0x7bff) == 65504.0f);
    CHECK(oracle::widen(HALYARD_F16, 0x0001) == 0x1p-24f);
    CHECK(oracle::widen(HALYARD_F16, 0xc248) == -3.140625f);
    CHECK(oracle::widen(HALYARD_BF16, 0x4049) == 3.140625f);
    CHECK(oracle::widen(HALYARD_BF16, 0x0001) == 0x1p-133f);
    CHECK(oracle::narrow(HALYARD_F16, 65519.996f) == 0x7bff);
    CHECK(oracle::narrow(HALYARD_F16, 65520.0f) == 0x7c00);
    CHECK(oracle::narrow(HALYARD_F16, 0x1p-25f) == 0);
    CHECK(oracle::narrow(HALYARD_F16, 0x1.000002p-25f) == 1);
    CHECK(oracle::narrow(HALYARD_BF16, std::numeric_limits<float>::max()) == 0x7f80);
    CHECK(oracle::overflow_threshold(HALYARD_F16) == 65520.0L);
    CHECK(oracle::half_ulp(HALYARD_F16, 1.0L) == 0x1p-11L);
    CHECK(oracle::half_ulp(HALYARD_F32, 1.5L) == 0x1p-24L);
    CHECK(oracle::half_ulp(HALYARD_BF16, 0.0L) == 0x1p-134L);
}
