// The check of kernels must catch broken ones: these are the model, with one thing wrong.
#include "kernels/kernel_checker.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <limits>

namespace {

using Buffer = halyard_buffer *;

char *element(Buffer of, std::int64_t bytes, std::int64_t k, std::int64_t member, std::int64_t head,
              std::int64_t token) {
    return reinterpret_cast<char *>(of->host) + bytes * (k * of->dim[0].stride + member * of->dim[1].stride +
                                                         head * of->dim[2].stride + token * of->dim[3].stride);
}

/// Calls function(pair, member, head, token) for each element of y.
template <typename Function>
void for_each_element(Buffer y, Function function) {
    for (std::int64_t i = 0, n = y->dim[0].extent; i < 2 * n * y->dim[2].extent * y->dim[3].extent; i++) {
        function(i / 2 % n, i % 2, i / 2 / n % y->dim[2].extent, i / 2 / n / y->dim[2].extent);
    }
}

/// Rotates by `turn`, and rounds as `narrow` likes.
template <std::int32_t dtype, auto turn, auto narrow>
int rotate_by(Buffer rows, Buffer cos, Buffer sin, std::uint32_t sign, Buffer x, Buffer y) {
    for_each_element(y, [&](std::int64_t k, std::int64_t member, std::int64_t head, std::int64_t token) {
        if (member != 0) {
            return;
        }
        const std::int64_t bytes = oracle::element_bytes(dtype);
        const std::int64_t row = reinterpret_cast<const std::int32_t *>(rows->host)[token];
        const auto of_row = [&](Buffer all) {
            return halyard::read_word<float>(reinterpret_cast<const char *>(all->host) +
                                             4 * (row * all->dim[1].stride + k));
        };
        const auto read = [&](int at) {
            return oracle::widen(dtype, oracle::read_word(dtype, element(x, bytes, k, at, head, token)));
        };
        const auto turned = turn({read(0), read(1)}, of_row(cos), sign != 0 ? -of_row(sin) : of_row(sin));
        oracle::write_word(dtype, element(y, bytes, k, 0, head, token), narrow(turned.x0));
        oracle::write_word(dtype, element(y, bytes, k, 1, head, token), narrow(turned.x1));
    });
    return 0;
}

/// Rounds both products of each output.
constexpr auto by_products = [](oracle::Pair<float> x, float cos, float sin) {
    const float self0 = x.x0 * cos, self1 = x.x1 * cos, cross0 = x.x1 * sin, cross1 = x.x0 * sin;
    return oracle::Pair<float>{self0 - cross0, self1 + cross1};
};

template <std::int32_t dtype>
constexpr auto to_nearest = [](float value) { return oracle::narrow(dtype, value); };
/// Cuts what no element holds off.
template <std::int32_t dtype>
constexpr auto cut_off = [](float value) {
    const std::uint32_t word = oracle::narrow(dtype, value);
    return std::fabs(oracle::widen(dtype, word)) > std::fabs(value) ? word - 1 : word;
};
/// Rounds ties up.
constexpr auto ties_up = [](float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return std::isnan(value) ? 0x7fffu : (bits + 0x8000u) >> 16;
};
/// Knows no elements of f16 below the normal ones.
constexpr auto without_denormals = [](float value) {
    const std::uint32_t word = oracle::narrow(HALYARD_F16, value);
    return (word & 0x7c00u) == 0 ? word & 0x8000u : word;
};

constexpr std::optional<Pairing> interleaved = Pairing::interleaved;

/// A kernel's arguments, which bugs can change.
struct Call {
    Buffer rows, cos, sin;
    std::uint32_t sign;
    Buffer x, y;

    /// The element behind y's or x's last head.
    char *past(Buffer of) const {
        return element(of, 4, y->dim[0].extent, 0, y->dim[2].extent - 1, y->dim[3].extent - 1);
    }
};

/// The model with something done before it, or after it.
template <auto change>
int before(Buffer rows, Buffer cos, Buffer sin, std::uint32_t sign, Buffer x, Buffer y) {
    Call call = {rows, cos, sin, sign, x, y};
    change(call);
    return model::rotations[0](call.rows, call.cos, call.sin, call.sign, call.x, call.y);
}
template <auto change>
int after(Buffer rows, Buffer cos, Buffer sin, std::uint32_t sign, Buffer x, Buffer y) {
    model::rotations[0](rows, cos, sin, sign, x, y);
    change(Call{rows, cos, sin, sign, x, y});
    return 0;
}
template <auto change>
constexpr auto change_outputs = after<[](const Call &c) {
    for_each_element(c.y, [&](auto... at) {
        char *const place = element(c.y, 4, at...);
        const float value = change(halyard::read_word<float>(place));
        std::memcpy(place, &value, sizeof(value));
    });
}>;

const volatile char *read_at(const void *at) { return static_cast<const volatile char *>(at); }

struct Broken {
    const char *name;
    halyard_rotate_kernel *kernel;
    const char *fault = "";
    Dtype dtype = Dtype::f32;
    Place place = Place::out_of_place;
    std::optional<Pairing> pairing = std::nullopt;
};

const Broken broken_rotations[] = {
    {"swaps the sign of sin", before<[](Call &c) { c.sign ^= 0x80000000u; }>},
    {"knows forward only", before<[](Call &c) { c.sign = 0; }>, "", Dtype::f32, Place::in_place},
    {"takes the angle of the next pair", before<[](Call &c) { c.cos->host += c.y->dim[0].extent != 1 ? 4 : 0; }>},
    {"pairs neighbours, not halves", before<[](Call &c) { std::swap(c.x->dim[0].stride, c.x->dim[1].stride); }>},
    {"is wrong where x is misaligned", after<[](const Call &c) {
         const bool is_wrong = reinterpret_cast<std::uintptr_t>(c.x->host) % 4 == 3;
         for_each_element(c.y, [&](auto... at) { element(c.y, 4, at...)[3] ^= is_wrong ? '\x80' : '\0'; });
     }>},
    {"drops a tail of one", before<[](Call &c) { c.y->dim[0].extent -= c.y->dim[0].extent % 8 == 1 ? 1 : 0; }>},
    {"skips the last head", before<[](Call &c) { c.y->dim[2].extent -= c.y->dim[2].extent != 1 ? 1 : 0; }>},
    {"takes tokens for dense", before<[](Call &c) { c.x->dim[3].stride = c.x->dim[2].stride * c.x->dim[2].extent; }>},
    {"reads row 0 for every token", before<[](Call &c) { c.cos->dim[1].stride = c.sin->dim[1].stride = 0; }>},
    {"writes beside its outputs", after<[](const Call &c) { *c.past(c.y) = 0; }>, "", Dtype::f32, Place::out_of_place,
     interleaved},
    {"writes beside its outputs in place", after<[](const Call &c) { *c.past(c.y) = 0; }>, "", Dtype::f32,
     Place::in_place, interleaved},
    {"writes to its input", after<[](const Call &c) { c.x->host[0] ^= 1; }>},
    {"loses NaN", change_outputs<[](float value) { return std::isnan(value) ? INFINITY : value; }>},
    {"loses -0", change_outputs<[](float value) { return value == 0 ? 0.0f : value; }>},
    {"flushes denormals", change_outputs<[](float value) { return std::isnormal(value) ? value : value * 0.0f; }>},
    {"is an ulp off in one output", after<[](const Call &c) {
         auto *const first = reinterpret_cast<float *>(c.y->host);
         *first = std::nextafter(*first, 2 * *first);
     }>,
     "", Dtype::f32, Place::in_place},
    {"does nothing", [](Buffer, Buffer, Buffer, std::uint32_t, Buffer, Buffer) { return 0; }},
    {"rounds twice", rotate_by<HALYARD_F32, by_products, to_nearest<HALYARD_F32>>},
    {"cuts f16 off", rotate_by<HALYARD_F16, oracle::rotate, cut_off<HALYARD_F16>>, "", Dtype::f16},
    {"cuts bf16 off", rotate_by<HALYARD_BF16, oracle::rotate, cut_off<HALYARD_BF16>>, "", Dtype::bf16},
    {"rounds ties of bf16 up", rotate_by<HALYARD_BF16, oracle::rotate, ties_up>, "", Dtype::bf16},
    {"flushes denormals of f16", rotate_by<HALYARD_F16, oracle::rotate, without_denormals>, "", Dtype::f16},
    {"takes f16 for bf16", rotate_by<HALYARD_BF16, oracle::rotate, to_nearest<HALYARD_BF16>>, "", Dtype::f16},
    {"reads one past the end", after<[](const Call &c) { *read_at(c.past(c.x)); }>, ": crashes with signal 11",
     Dtype::f32, Place::out_of_place, interleaved},
    {"reads one before the start", after<[](const Call &c) { *read_at(c.x->host - 1); }>, ": crashes with signal 11",
     Dtype::f32, Place::out_of_place, interleaved},
    {"reads a row past the last",
     after<[](const Call &c) { *read_at(c.cos->host + 4 * (c.cos->dim[1].extent * c.cos->dim[1].stride)); }>,
     ": crashes with signal 11", Dtype::f32, Place::out_of_place, interleaved},
    {"hangs", before<[](Call &) {
         for (volatile bool forever = true; forever;) {
         }
     }>,
     ": takes more than 1 seconds"},
};

/// Stages and rows, put where they are called.
const struct {
    const char *name;
    Stage stage;
    void (*put)(Called &called);
    const char *fault = "but should be";
    Dtype dtype = Dtype::f32;
} broken_stages[] = {
    {"does nothing", Stage::widen, [](Called &c) { c.stages.widen[0] = [](Buffer, Buffer) { return 0; }; }},
    {"writes behind its first head", Stage::widen,
     [](Called &c) {
         c.stages.widen[0] = [](Buffer x, Buffer y) {
             model::stage_kernels.widen[0](x, y);
             if (y->dim[1].stride > y->dim[0].extent && y->dim[1].extent > 1) {
                 reinterpret_cast<float *>(y->host)[y->dim[0].extent] = 1;
             }
             return 0;
         };
     }},
    {"reads whole vectors", Stage::widen,
     [](Called &c) {
         c.stages.widen[0] = [](Buffer x, Buffer y) {
             *read_at(x->host + 4 * ((x->dim[0].extent + 15) / 16 * 16 + (x->dim[1].extent - 1) * x->dim[1].stride +
                                     (x->dim[2].extent - 1) * x->dim[2].stride));
             return model::stage_kernels.widen[0](x, y);
         };
     },
     "crashes with signal"},
    {"rounds ties up", Stage::narrow,
     [](Called &c) {
         c.stages.narrow[2] = [](Buffer x, Buffer r, Buffer y) {
             model::stage_kernels.narrow[2](x, r, y);
             for (std::int32_t e = 0; e < y->dim[0].extent; e++) {
                 const float value = reinterpret_cast<const float *>(x->host)[e] *
                                     reinterpret_cast<const float *>(r->host)[e * r->dim[0].stride];
                 auto &word = reinterpret_cast<std::uint16_t *>(y->host)[e];
                 word = static_cast<std::uint16_t>(std::isnan(value) ? word : ties_up(value));
             }
             return 0;
         };
     },
     "but should be", Dtype::bf16},
    {"drops the last pair", Stage::rows_phase,
     [](Called &c) {
         c.rows_phase = [](Buffer position, Buffer high, Buffer low, float factor, float rest, Buffer rows) {
             rows->dim[0].extent--;
             return model::rows_phase(position, high, low, factor, rest, rows);
         };
     }},
    {"writes behind its first row", Stage::rows_phase,
     [](Called &c) {
         c.rows_phase = [](Buffer position, Buffer high, Buffer low, float factor, float rest, Buffer rows) {
             if (rows->dim[1].stride > rows->dim[0].extent) {
                 reinterpret_cast<float *>(rows->host)[rows->dim[0].extent] = 0.0f;
             }
             return model::rows_phase(position, high, low, factor, rest, rows);
         };
     }},
    {"reads a pair too many", Stage::rows_phase,
     [](Called &c) {
         c.rows_phase = [](Buffer position, Buffer high, Buffer low, float factor, float rest, Buffer rows) {
             *read_at(high->host + 4 * high->dim[0].extent);
             return model::rows_phase(position, high, low, factor, rest, rows);
         };
     },
     "crashes with signal"},
};

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("the kernel checker catches broken rotations, and names the case", "[checker]") {
    for (const Broken &broken : broken_rotations) {
        halyard::Kernel kernel = halyard::kernels().back();
        kernel.pairing = kernel.out_pairing = broken.pairing;
        kernel.dtype = broken.dtype;
        kernel.place = broken.place;
        kernel.function = broken.kernel;
        const KernelRow row = {broken.name, Stage::rotate, broken.dtype, halyard::Target::reference, nullptr, kernel};
        Called called;
        called.rotate = broken.kernel;
        const std::string fault =
            fault_of(row, called, Catch::getSeed(), 400, contains(broken.fault, "seconds") ? 1 : 0);
        CAPTURE(broken.name, fault);
        CHECK(contains(fault, std::string(broken.name) + "_reference: x "));
        CHECK(contains(fault, broken.fault));
    }
}

TEST_CASE("the kernel checker catches broken stages and rows", "[checker]") {
    for (const auto &broken : broken_stages) {
        Called called;
        broken.put(called);
        const KernelRow row = {broken.name, broken.stage, broken.dtype, halyard::Target::reference};
        CAPTURE(broken.name);
        CHECK(contains(fault_of(row, called, Catch::getSeed(), 400), broken.fault));
    }
}
