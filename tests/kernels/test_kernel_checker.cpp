// Tests what the other tests rely on: the kernel checker must catch broken kernels, and the oracle must round right.
#include "checks/kernel_checker.h"
#include "checks/model.h"
#include "checks/oracle.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators_all.hpp>

#include <algorithm>
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

// ---- Kernels made of the model -------------------------------------------------------------------------------------

/// A kernel's arguments, which bugs can change.
struct Call {
    std::vector<std::int32_t> rows;
    halyard_dimension of_rows[2], in[4], out[4];  // pairs, members, heads and tokens of x and y
    halyard_buffer row_of_token, cos_rows, sin_rows, x, y;
    std::uint32_t sin_sign;

    Call(const halyard_buffer *tokens, const halyard_buffer *cos, const halyard_buffer *sin, std::uint32_t sign,
         const halyard_buffer *from, const halyard_buffer *to)
        : row_of_token(*tokens), cos_rows(*cos), sin_rows(*sin), x(*from), y(*to), sin_sign(sign) {
        const auto *first = reinterpret_cast<const std::int32_t *>(tokens->host);
        rows.assign(first, first + tokens->dim[0].extent);
        row_of_token.host = reinterpret_cast<std::uint8_t *>(rows.data());
        std::copy_n(cos->dim, 2, of_rows);
        std::copy_n(from->dim, 4, in);
        std::copy_n(to->dim, 4, out);
        cos_rows.dim = sin_rows.dim = of_rows;
        x.dim = in;
        y.dim = out;
    }
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    std::int64_t n_pairs() const { return out[0].extent; }
    std::int64_t n_heads() const { return out[2].extent; }
    std::int64_t n_tokens() const { return out[3].extent; }

    /// Rows may lie at any address.
    float cos(std::int64_t token, std::int64_t k) const { return read_row(cos_rows, token, k); }
    float sin(std::int64_t token, std::int64_t k) const {
        const float value = read_row(sin_rows, token, k);
        return sin_sign != 0 ? -value : value;
    }

    static char *element(const halyard_buffer &of, std::int64_t bytes, std::int64_t token, std::int64_t head,
                         std::int64_t k, int member) {
        return reinterpret_cast<char *>(of.host) + bytes * (token * of.dim[3].stride + head * of.dim[2].stride +
                                                            k * of.dim[0].stride + member * of.dim[1].stride);
    }

    template <typename Function>
    void for_each_output(Function function) const {
        const std::int64_t n = 2 * n_pairs();
        for (std::int64_t i = 0; i < n_tokens() * n_heads() * n; i++) {
            char *const at =
                element(y, 4, i / n / n_heads(), i / n % n_heads(), i % n / 2, static_cast<int>(i % 2));
            const float value = function(halyard::read_word<float>(at));
            std::memcpy(at, &value, sizeof(value));
        }
    }

private:
    float read_row(const halyard_buffer &of, std::int64_t token, std::int64_t k) const {
        const std::int64_t row = rows[static_cast<std::size_t>(token)];
        return halyard::read_word<float>(reinterpret_cast<const char *>(of.host) + 4 * (row * of_rows[1].stride + k));
    }
};

/// A bug changes something before the rotation, or after it.
struct NoBug {
    static void before(Call &) {}
    static void after(const Call &) {}
};
struct SwappedSign : NoBug {
    static void before(Call &call) { call.sin_sign ^= 0x80000000u; }
};
struct ForwardOnly : NoBug {
    static void before(Call &call) { call.sin_sign = 0; }
};
struct ShortTail : NoBug {
    static void before(Call &call) { call.out[0].extent -= call.n_pairs() % 8 == 1 ? 1 : 0; }
};
struct SkipsLastHead : NoBug {
    static void before(Call &call) { call.out[2].extent -= call.n_heads() > 1 ? 1 : 0; }
};
struct IgnoresTokenStride : NoBug {
    static void before(Call &call) { call.in[3].stride = call.in[2].stride * call.out[2].extent; }
};
struct IgnoresRows : NoBug {
    static void before(Call &call) {
        std::fill(call.rows.begin(), call.rows.end(), 0);
    }
};
struct WritesOnePast : NoBug {
    static void after(const Call &call) {
        char *const past = Call::element(call.y, 4, call.n_tokens() - 1, call.n_heads() - 1, call.n_pairs(), 0);
        if (call.out[0].stride == 2) {  // in interleaved heads this is no output of this head
            std::memset(past, 0, 1);
        }
    }
};
struct WritesItsInput : NoBug {
    static void after(const Call &call) {
        call.x.host[0] = static_cast<std::uint8_t>(call.x.host[0] ^ 1);
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
        for (std::int64_t token = 0; token < call.n_tokens(); token++) {
            (void)*static_cast<volatile const char *>(
                Call::element(call.x, 4, token, call.n_heads() - 1, call.n_pairs(), 0));
        }
    }
};

struct ReadsOneBefore : NoBug {
    static void after(const Call &call) { (void)*static_cast<volatile const std::uint8_t *>(call.x.host - 1); }
};
struct ReadsOneRowMore : NoBug {
    static void after(const Call &call) {
        const std::int64_t n = std::int64_t{call.of_rows[1].extent} * call.of_rows[1].stride;
        (void)*static_cast<volatile const std::uint8_t *>(call.cos_rows.host + 4 * n);
    }
};
struct WrongPair : NoBug {
    static void before(Call &call) {
        for (halyard_dimension *const dims : {call.in, call.out}) {
            std::swap(dims[0].stride, dims[1].stride);
        }
    }
};
struct WrongAngle : NoBug {
    static void before(Call &call) { call.cos_rows.host += call.n_pairs() > 1 ? 4 : 0; }
};
struct WrongOnMisaligned : NoBug {
    static void after(const Call &call) {
        if (reinterpret_cast<std::uintptr_t>(call.x.host) % 4 == 3) {
            call.for_each_output([](float y) { return -y; });
        }
    }
};

template <halyard::Dtype dtype, typename Bug>
int broken(halyard_buffer *row_of_token, halyard_buffer *cos, halyard_buffer *sin, std::uint32_t sin_sign,
           halyard_buffer *x, halyard_buffer *y) {
    Call call(row_of_token, cos, sin, sin_sign, x, y);
    if (call.n_tokens() == 0 || call.n_heads() == 0) {
        return 0;
    }
    Bug::before(call);
    model::rotations[halyard::index_of(dtype)](&call.row_of_token, &call.cos_rows, &call.sin_rows, call.sin_sign,
                                               &call.x, &call.y);
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
    const Call call(row_of_token, cos, sin, sin_sign, x, y);
    const std::int64_t bytes = oracle::element_bytes(dtype), n_pairs = call.n_pairs(), n_heads = call.n_heads();
    for (std::int64_t n = 0; n < call.n_tokens() * n_heads * n_pairs; n++) {
        const std::int64_t k = n % n_pairs, head = n / n_pairs % n_heads, token = n / n_pairs / n_heads;
        const char *from = Call::element(call.x, bytes, token, head, k, 0);
        char *to = Call::element(call.y, bytes, token, head, k, 0);
        const auto read = [&](const char *at) { return oracle::widen(dtype, oracle::read_word(dtype, at)); };
        const auto turned =
            rotate({read(from), read(from + bytes * call.in[1].stride)}, call.cos(token, k), call.sin(token, k));
        oracle::write_word(dtype, to, narrow(turned.x0));
        oracle::write_word(dtype, to + bytes * call.out[1].stride, narrow(turned.x1));
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
