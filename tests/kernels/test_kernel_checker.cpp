// The check of kernels must catch broken ones: these are the model, with one thing wrong.
#include "kernels/kernel_checker.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

namespace {

using Buffer = halyard_buffer *;

template <typename... Indices>
char *element(Buffer of, std::int64_t bytes, Indices... indices) {
    std::int64_t offset = 0;
    const halyard_dimension *dim = of->dim;
    ((offset += std::int64_t{indices} * dim++->stride), ...);
    return reinterpret_cast<char *>(of->host) + bytes * offset;
}
float &value(Buffer of, std::int64_t i) { return reinterpret_cast<float *>(of->host)[i]; }

/// A rotation's arguments, which bugs can change.
struct Rotation {
    Buffer rows, cos, sin, x, y;
    explicit Rotation(const Arguments &of)
        : rows(of.buffers[0]), cos(of.buffers[1]), sin(of.buffers[2]), x(of.buffers[3]), y(of.buffers[4]) {}

    /// The element behind y's or x's last head.
    char *past(Buffer of) const {
        return element(of, 4, y->dim[0].extent, 0, y->dim[2].extent - 1, y->dim[3].extent - 1);
    }
    /// Calls function(pair, member, head, token) for each element of y.
    template <typename Function>
    void for_each_element(Function function) const {
        for (std::int64_t i = 0, n = y->dim[0].extent; i < 2 * n * y->dim[2].extent * y->dim[3].extent; i++) {
            function(i / 2 % n, i % 2, i / 2 / n % y->dim[2].extent, i / 2 / n / y->dim[2].extent);
        }
    }
};

/// A bug before a rotation, or after it.
template <auto bug>
constexpr auto in_rotation = [](Arguments &of) { bug(Rotation(of)); };
/// After it, in each float of y.
template <auto change>
constexpr auto in_outputs = in_rotation<[](const Rotation &r) {
    r.for_each_element([&](auto... at) {
        auto *const y = reinterpret_cast<float *>(element(r.y, 4, at...));
        *y = change(*y);
    });
}>;

/// Rotates once more, by `turn`, and rounds as `narrow` likes.
template <std::int32_t dtype, auto turn, auto narrow>
void rotate_by(Arguments &of) {
    const Rotation r(of);
    r.for_each_element([&](std::int64_t k, std::int64_t member, std::int64_t head, std::int64_t token) {
        const std::int64_t bytes = oracle::element_bytes(dtype),
                           row = reinterpret_cast<std::int32_t *>(r.rows->host)[token];
        const auto read = [&](int of_pair) {
            return oracle::widen(dtype, oracle::read_word(dtype, element(r.x, bytes, k, of_pair, head, token)));
        };
        const auto of_row = [&](Buffer all) { return halyard::read_word<float>(element(all, 4, k, row)); };
        const auto turned =
            turn({read(0), read(1)}, of_row(r.cos), of.numbers[0] != 0 ? -of_row(r.sin) : of_row(r.sin));
        oracle::write_word(dtype, element(r.y, bytes, k, member, head, token),
                           narrow(member == 0 ? turned.x0 : turned.x1));
    });
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

const char crashes[] = ": crashes with signal 11", hangs[] = ": takes more than 1 seconds";
void read(const void *at) { *static_cast<const volatile char *>(at); }
/// Writes into a gap behind the first elements, where there is one.
void write_behind_first(Buffer of) {
    if (of->dim[1].extent > 1 && of->dim[1].stride > of->dim[0].extent &&
        std::abs(of->dim[2].stride) >= of->dim[1].stride) {
        value(of, of->dim[0].extent) = 1;
    }
}

using Bug = void (*)(Arguments &);
const struct Broken {
    const char *name, *kernel;  // that it stands for, without halyard_ and the target
    Bug before, after = nullptr;
    const char *fault = "";
} all_broken[] = {
    {"swaps the sign of sin", "rotate_strided_f32",
     [](Arguments &of) { of.numbers[0] = of.numbers[0] == 0 ? 0x80000000u : 0; }},
    {"knows forward only", "rotate_strided_f32_in_place", [](Arguments &of) { of.numbers[0] = 0; }},
    {"takes the angle of the next pair", "rotate_strided_f32",
     in_rotation<[](const Rotation &r) { r.cos->host += r.y->dim[0].extent != 1 ? 4 : 0; }>},
    {"pairs neighbours, not halves", "rotate_strided_f32",
     in_rotation<[](const Rotation &r) { std::swap(r.x->dim[0].stride, r.x->dim[1].stride); }>},
    {"is wrong where x is misaligned", "rotate_strided_f32", nullptr, in_rotation<[](const Rotation &r) {
         const bool is_wrong = reinterpret_cast<std::uintptr_t>(r.x->host) % 4 == 3;
         r.for_each_element([&](auto... at) { element(r.y, 4, at...)[3] ^= is_wrong ? '\x80' : '\0'; });
     }>},
    {"drops a tail of one", "rotate_strided_f32",
     in_rotation<[](const Rotation &r) { r.y->dim[0].extent -= r.y->dim[0].extent % 8 == 1 ? 1 : 0; }>},
    {"skips the last head", "rotate_strided_f32",
     in_rotation<[](const Rotation &r) { r.y->dim[2].extent -= r.y->dim[2].extent != 1 ? 1 : 0; }>},
    {"takes tokens for dense", "rotate_strided_f32",
     in_rotation<[](const Rotation &r) { r.x->dim[3].stride = r.x->dim[2].stride * r.x->dim[2].extent; }>},
    {"reads row 0 for every token", "rotate_strided_f32",
     in_rotation<[](const Rotation &r) { r.cos->dim[1].stride = r.sin->dim[1].stride = 0; }>},
    {"writes beside its outputs", "rotate_interleaved_f32", nullptr,
     in_rotation<[](const Rotation &r) { *r.past(r.y) = 0; }>},
    {"writes beside its outputs in place", "rotate_interleaved_f32_in_place", nullptr,
     in_rotation<[](const Rotation &r) { *r.past(r.y) = 0; }>},
    {"writes to its input", "rotate_strided_f32", nullptr, in_rotation<[](const Rotation &r) { r.x->host[0] ^= 1; }>},
    {"loses NaN", "rotate_strided_f32", nullptr, in_outputs<[](float y) { return std::isnan(y) ? INFINITY : y; }>},
    {"loses -0", "rotate_strided_f32", nullptr, in_outputs<[](float y) { return y == 0 ? 0.0f : y; }>},
    {"flushes denormals", "rotate_strided_f32", nullptr,
     in_outputs<[](float y) { return std::isnormal(y) ? y : y * 0.0f; }>},
    {"is an ulp off in one output", "rotate_strided_f32_in_place", nullptr,
     in_rotation<[](const Rotation &r) { value(r.y, 0) = std::nextafter(value(r.y, 0), 2 * value(r.y, 0)); }>},
    {"does nothing", "rotate_strided_f32", in_rotation<[](const Rotation &r) { r.y->dim[0].extent = 0; }>},
    {"rounds twice", "rotate_strided_f32", nullptr, rotate_by<HALYARD_F32, by_products, to_nearest<HALYARD_F32>>},
    {"cuts f16 off", "rotate_strided_f16", nullptr, rotate_by<HALYARD_F16, oracle::rotate, cut_off<HALYARD_F16>>},
    {"cuts bf16 off", "rotate_strided_bf16", nullptr, rotate_by<HALYARD_BF16, oracle::rotate, cut_off<HALYARD_BF16>>},
    {"rounds ties of bf16 up", "rotate_strided_bf16", nullptr, rotate_by<HALYARD_BF16, oracle::rotate, ties_up>},
    {"flushes denormals of f16", "rotate_strided_f16", nullptr,
     rotate_by<HALYARD_F16, oracle::rotate, without_denormals>},
    {"takes f16 for bf16", "rotate_strided_f16", nullptr,
     rotate_by<HALYARD_BF16, oracle::rotate, to_nearest<HALYARD_BF16>>},
    {"reads one past the end", "rotate_interleaved_f32", nullptr,
     in_rotation<[](const Rotation &r) { read(r.past(r.x)); }>, crashes},
    {"reads one before the start", "rotate_interleaved_f32", nullptr,
     in_rotation<[](const Rotation &r) { read(r.x->host - 1); }>, crashes},
    {"reads a row past the last", "rotate_interleaved_f32", nullptr,
     in_rotation<[](const Rotation &r) { read(element(r.cos, 4, 0, r.cos->dim[1].extent)); }>, crashes},
    {"hangs", "rotate_strided_f32",
     [](Arguments &) {
         for (volatile bool forever = true; forever;) {
         }
     },
     nullptr, hangs},
    {"does nothing to heads", "widen_f32", [](Arguments &of) { of.buffers[1]->dim[0].extent = 0; }},
    {"writes behind its first head", "widen_f32", nullptr, [](Arguments &of) { write_behind_first(of.buffers[1]); }},
    {"reads whole vectors", "widen_f32",
     [](Arguments &of) {
         const halyard_dimension *const dim = of.buffers[0]->dim;
         read(element(of.buffers[0], 4, (dim[0].extent + 15) / 16 * 16, dim[1].extent - 1, dim[2].extent - 1));
     },
     nullptr, crashes},
    {"rounds ties up", "narrow_bf16", nullptr,
     [](Arguments &of) {
         for (std::int32_t e = 0; e < of.buffers[2]->dim[0].extent; e++) {
             const float exact = value(of.buffers[0], e) * value(of.buffers[1], e * of.buffers[1]->dim[0].stride);
             auto &word = reinterpret_cast<std::uint16_t *>(of.buffers[2]->host)[e];
             word = std::isnan(exact) ? word : static_cast<std::uint16_t>(ties_up(exact));
         }
     }},
    {"drops the last pair", "rows_phase", [](Arguments &of) { of.buffers[3]->dim[0].extent--; }},
    {"writes behind its first row", "rows_phase", nullptr, [](Arguments &of) { write_behind_first(of.buffers[3]); }},
    {"reads a pair too many", "rows_phase",
     [](Arguments &of) { read(element(of.buffers[1], 4, of.buffers[1]->dim[0].extent)); }, nullptr, crashes},
};

}  // namespace

TEST_CASE("the kernel checker catches broken kernels, and names the case", "[checker]") {
    const std::vector<KernelRow> rows = kernel_rows();
    for (const Broken &broken : all_broken) {
        const auto found = std::find_if(rows.begin(), rows.end(), [&](const KernelRow &row) {
            return row.name == std::string("halyard_") + broken.kernel + "_" + halyard::name_of(row.target);
        });
        CAPTURE(broken.name);
        REQUIRE(found != rows.end());
        KernelRow row = *found;
        row.kernel = [&](Arguments of) {
            broken.before != nullptr ? broken.before(of) : void();
            row.model(of);
            broken.after != nullptr ? broken.after(of) : void();
        };
        const std::string fault = fault_of(row, Catch::getSeed(), 400, broken.fault == hangs ? 1 : 0);
        CAPTURE(fault);
        CHECK(fault.starts_with(row.name + ": "));
        CHECK(fault.find(broken.fault) != std::string::npos);
    }
}
