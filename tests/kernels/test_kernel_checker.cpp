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

/// Replaces each output by change(output).
template <typename Change>
int change_outputs(Buffer y, Change change) {
    for_each_element(y, [&](auto... at) {
        char *const place = element(y, 4, at...);
        const float value = change(halyard::read_word<float>(place));
        std::memcpy(place, &value, sizeof(value));
    });
    return 0;
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

struct Broken {
    const char *name;
    halyard_rotate_kernel *kernel;
    const char *fault = "";
    Dtype dtype = Dtype::f32;
    Place place = Place::out_of_place;
    std::optional<Pairing> pairing = std::nullopt;
};

constexpr std::optional<Pairing> interleaved = Pairing::interleaved;

/// A kernel's arguments, which bugs can change.
struct Call {
    Buffer rows, cos, sin;
    std::uint32_t sign;
    Buffer x, y;

    int rotate() const { return model::rotations[0](rows, cos, sin, sign, x, y); }
    /// The element behind y's or x's last head.
    static char *past(Buffer of, Buffer y) {
        return element(of, 4, y->dim[0].extent, 0, y->dim[2].extent - 1, y->dim[3].extent - 1);
    }
};

template <auto call>
int broken(Buffer rows, Buffer cos, Buffer sin, std::uint32_t sign, Buffer x, Buffer y) {
    return call(Call{rows, cos, sin, sign, x, y});
}

const Broken broken_rotations[] = {
    {"swaps the sign of sin",
     broken<[](Call c) {
         c.sign ^= 0x80000000u;
         return c.rotate();
     }>},
    {"knows forward only",
     broken<[](Call c) {
         c.sign = 0;
         return c.rotate();
     }>,
     "", Dtype::f32, Place::in_place},
    {"takes the angle of the next pair",
     broken<[](Call c) {
         c.cos->host += c.y->dim[0].extent != 1 ? 4 : 0;
         return c.rotate();
     }>},
    {"pairs neighbours, not halves",
     broken<[](Call c) {
         std::swap(c.x->dim[0].stride, c.x->dim[1].stride);
         return c.rotate();
     }>},
    {"is wrong where x is misaligned",
     broken<[](Call c) {
         c.rotate();
         const bool is_wrong = reinterpret_cast<std::uintptr_t>(c.x->host) % 4 == 3;
         return change_outputs(c.y, [=](float value) { return is_wrong ? -value : value; });
     }>},
    {"drops a tail of one",
     broken<[](Call c) {
         c.y->dim[0].extent -= c.y->dim[0].extent % 8 == 1 ? 1 : 0;
         return c.rotate();
     }>},
    {"skips the last head",
     broken<[](Call c) {
         c.y->dim[2].extent -= c.y->dim[2].extent != 1 ? 1 : 0;
         return c.rotate();
     }>},
    {"takes tokens for dense",
     broken<[](Call c) {
         c.x->dim[3].stride = c.x->dim[2].stride * c.x->dim[2].extent;
         return c.rotate();
     }>},
    {"reads row 0 for every token",
     broken<[](Call c) {
         c.cos->dim[1].stride = c.sin->dim[1].stride = 0;
         return c.rotate();
     }>},
    {"writes beside its outputs",
     broken<[](Call c) {
         c.rotate();
         std::memset(Call::past(c.y, c.y), 0, 1);
         return 0;
     }>,
     "", Dtype::f32, Place::out_of_place, interleaved},
    {"writes beside its outputs in place",
     broken<[](Call c) {
         c.rotate();
         std::memset(Call::past(c.y, c.y), 0, 1);
         return 0;
     }>,
     "", Dtype::f32, Place::in_place, interleaved},
    {"writes to its input",
     broken<[](Call c) {
         c.rotate();
         c.x->host[0] = static_cast<std::uint8_t>(c.x->host[0] ^ 1);
         return 0;
     }>},
    {"loses NaN",
     broken<[](Call c) {
         c.rotate();
         return change_outputs(
             c.y, [](float value) { return std::isnan(value) ? std::numeric_limits<float>::infinity() : value; });
     }>},
    {"loses -0",
     broken<[](Call c) {
         c.rotate();
         return change_outputs(c.y, [](float value) { return value == 0 ? 0.0f : value; });
     }>},
    {"flushes denormals",
     broken<[](Call c) {
         c.rotate();
         return change_outputs(c.y, [](float value) { return std::isnormal(value) ? value : value * 0.0f; });
     }>},
    {"is an ulp off in one output",
     broken<[](Call c) {
         c.rotate();
         bool first = true;
         return change_outputs(c.y, [&](float value) {
             return std::exchange(first, false) ? std::nextafter(value, 2 * value) : value;
         });
     }>,
     "", Dtype::f32, Place::in_place},
    {"does nothing", broken<[](Call) { return 0; }>},
    {"rounds twice", rotate_by<HALYARD_F32, by_products, to_nearest<HALYARD_F32>>},
    {"cuts f16 off", rotate_by<HALYARD_F16, oracle::rotate, cut_off<HALYARD_F16>>, "", Dtype::f16},
    {"cuts bf16 off", rotate_by<HALYARD_BF16, oracle::rotate, cut_off<HALYARD_BF16>>, "", Dtype::bf16},
    {"rounds ties of bf16 up", rotate_by<HALYARD_BF16, oracle::rotate, ties_up>, "", Dtype::bf16},
    {"flushes denormals of f16", rotate_by<HALYARD_F16, oracle::rotate, without_denormals>, "", Dtype::f16},
    {"takes f16 for bf16", rotate_by<HALYARD_BF16, oracle::rotate, to_nearest<HALYARD_BF16>>, "", Dtype::f16},
    {"reads one past the end",
     broken<[](Call c) {
         c.rotate();
         return *static_cast<volatile const char *>(Call::past(c.x, c.y));
     }>,
     ": crashes with signal 11", Dtype::f32, Place::out_of_place, interleaved},
    {"reads one before the start",
     broken<[](Call c) {
         c.rotate();
         return *static_cast<volatile const std::uint8_t *>(c.x->host - 1);
     }>,
     ": crashes with signal 11", Dtype::f32, Place::out_of_place, interleaved},
    {"reads a row past the last",
     broken<[](Call c) {
         c.rotate();
         return *static_cast<volatile const std::uint8_t *>(
             c.cos->host + 4 * (c.cos->dim[1].extent * c.cos->dim[1].stride));
     }>,
     ": crashes with signal 11", Dtype::f32, Place::out_of_place, interleaved},
    {"hangs",
     broken<[](Call) {
         for (volatile bool forever = true; forever;) {
         }
         return 0;
     }>,
     ": takes more than 1 seconds"},
};

bool contains(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

std::string fault_of(const Broken &broken) {
    halyard::Kernel kernel = halyard::kernels().back();
    kernel.pairing = kernel.out_pairing = broken.pairing;
    kernel.dtype = broken.dtype;
    kernel.place = broken.place;
    kernel.function = broken.kernel;
    const KernelRow row = {broken.name, Stage::rotate, broken.dtype, halyard::Target::reference, nullptr, kernel};
    Called called;
    called.rotate = broken.kernel;
    return fault_of(row, called, Catch::getSeed(), 400, contains(broken.fault, "seconds") ? 1 : 0);
}

}  // namespace

TEST_CASE("the kernel checker catches broken rotations, and names the case", "[checker]") {
    for (const Broken &broken : broken_rotations) {
        const std::string fault = fault_of(broken);
        CAPTURE(broken.name, fault);
        CHECK(contains(fault, std::string(broken.name) + "_reference: x "));
        CHECK(contains(fault, broken.fault));
    }
}

TEST_CASE("the kernel checker passes the model", "[checker]") {
    for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16}) {
        for (const Place place : {Place::out_of_place, Place::in_place}) {
            CHECK(fault_of({"sound", model::rotations[halyard::index_of(dtype)], "", dtype, place}) == "");
        }
    }
}

TEST_CASE("the kernel checker catches broken stages and rows", "[checker]") {
    const auto fault = [](Stage stage, const auto &change) {
        Called called;
        change(called);
        return fault_of({"broken", stage, Dtype::f32, halyard::Target::reference}, called, Catch::getSeed(), 400);
    };
    const auto of_widen = [&](halyard_widen_kernel *kernel) {
        return fault(Stage::widen, [&](Called &called) { called.stages.widen[0] = kernel; });
    };
    const auto of_rows = [&](halyard_rows_phase_kernel *kernel) {
        return fault(Stage::rows_phase, [&](Called &called) { called.rows_phase = kernel; });
    };
    CHECK(contains(of_widen([](Buffer, Buffer) { return 0; }), "but should be"));
    CHECK(contains(of_widen([](Buffer x, Buffer y) {
                       model::stage_kernels.widen[0](x, y);
                       if (y->dim[1].stride > y->dim[0].extent && y->dim[1].extent > 1) {
                           reinterpret_cast<float *>(y->host)[y->dim[0].extent] = 1;
                       }
                       return 0;
                   }),
                   "but should be"));
    CHECK(contains(of_widen([](Buffer x, Buffer y) {
                       model::stage_kernels.widen[0](x, y);
                       const volatile auto *const data = reinterpret_cast<const volatile float *>(x->host);
                       return data[(x->dim[0].extent + 15) / 16 * 16 + (x->dim[1].extent - 1) * x->dim[1].stride +
                                   (x->dim[2].extent - 1) * x->dim[2].stride] == 0.5f
                                  ? 1
                                  : 0;
                   }),
                   "crashes with signal"));
    CHECK(contains(of_rows([](Buffer position, Buffer high, Buffer low, float factor, float rest, Buffer rows) {
                       rows->dim[0].extent--;
                       return model::rows_phase(position, high, low, factor, rest, rows);
                   }),
                   "but should be"));
    CHECK(contains(of_rows([](Buffer position, Buffer high, Buffer low, float factor, float rest, Buffer rows) {
                       if (rows->dim[1].stride > rows->dim[0].extent) {
                           reinterpret_cast<float *>(rows->host)[rows->dim[0].extent] = 0.0f;
                       }
                       return model::rows_phase(position, high, low, factor, rest, rows);
                   }),
                   "but should be"));
    CHECK(contains(of_rows([](Buffer position, Buffer high, Buffer low, float factor, float rest, Buffer rows) {
                       const volatile auto *const turns = reinterpret_cast<const std::uint32_t *>(high->host);
                       [[maybe_unused]] const std::uint32_t beyond = turns[high->dim[0].extent];
                       return model::rows_phase(position, high, low, factor, rest, rows);
                   }),
                   "crashes with signal"));
}
