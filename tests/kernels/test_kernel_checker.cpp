// The kernel checker must catch broken kernels: here each is the model with one bug.
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

/// The arguments of a call, which a bug changes before or after the model runs. A rotation's operands have names.
struct Call : Arguments {
    Buffer rows = nullptr, cos = nullptr, sin = nullptr, x = nullptr, y = nullptr;

    explicit Call(const Arguments &of) : Arguments(of) {
        if (buffers.size() == 5) {
            std::tie(rows, cos, sin, x, y) = std::tie(buffers[0], buffers[1], buffers[2], buffers[3], buffers[4]);
        }
    }
    /// The address of the element after the last head of y or x.
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
    /// Replaces each float v of y by change(v).
    template <typename Change>
    void change_outputs(Change change) const {
        for_each_element([&](auto... at) {
            auto *const value = reinterpret_cast<float *>(element(y, 4, at...));
            *value = change(*value);
        });
    }
};

/// Rotates x again and rounds the results by `narrow`. If `fuses`, only one of the two products is rounded, else both.
template <std::int32_t dtype, auto narrow, bool fuses = true>
void rotate_by(Call &r) {
    r.for_each_element([&](std::int64_t k, std::int64_t member, std::int64_t head, std::int64_t token) {
        const std::int64_t bytes = oracle::element_bytes(dtype),
                           row = reinterpret_cast<std::int32_t *>(r.rows->host)[token];
        const auto read = [&](int of_pair) {
            return cases::read_real(dtype, element(r.x, bytes, k, of_pair, head, token));
        };
        const auto of_row = [&](Buffer all) { return halyard::read_word<float>(element(all, 4, k, row)); };
        const float sin = (r.numbers[0] != 0) == (member == 0) ? of_row(r.sin) : -of_row(r.sin);
        const float self = member == 0 ? read(0) : read(1), cross = (member == 0 ? read(1) : read(0)) * sin;
        oracle::write_word(dtype, element(r.y, bytes, k, member, head, token),
                           narrow(fuses ? std::fma(self, of_row(r.cos), cross) : self * of_row(r.cos) + cross));
    });
}

template <std::int32_t dtype>
constexpr auto to_nearest = [](float value) { return oracle::narrow(dtype, value); };
/// Truncates a float to the dtype in place of rounding it.
template <std::int32_t dtype>
constexpr auto cut_off = [](float value) {
    const std::uint32_t word = oracle::narrow(dtype, value);
    return std::fabs(oracle::widen(dtype, word)) > std::fabs(value) ? word - 1 : word;
};
/// Rounds ties up, not to even.
constexpr auto ties_up = [](float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return std::isnan(value) ? 0x7fffu : (bits + 0x8000u) >> 16;
};
/// Flushes f16 denormals to zero.
constexpr auto without_denormals = [](float value) {
    const std::uint32_t word = oracle::narrow(HALYARD_F16, value);
    return (word & 0x7c00u) == 0 ? word & 0x8000u : word;
};

const char crashes[] = ": crashes with signal 11", hangs[] = ": takes more than 1 seconds";
void read(const void *at) { *static_cast<const volatile char *>(at); }
/// Writes into the gap after the first head's elements, if there is one.
void write_behind_first(Buffer of) {
    if (of->dim[1].extent > 1 && of->dim[1].stride > of->dim[0].extent &&
        std::abs(of->dim[2].stride) >= of->dim[1].stride) {
        value(of, of->dim[0].extent) = 1;
    }
}

/// The tests break these two kernels on purpose, to see that the checker notices: one for any strides, one for
/// contiguous elements.
const char rotate[] = "rotate_strided_f32", neighbours[] = "rotate_interleaved_f32";

using Bug = void (*)(Call &);
const struct Broken {
    const char *name, *kernel;  // the bug's name; the broken kernel's name without halyard_ and the target
    Bug before, after = nullptr;
    const char *fault = "";
} all_broken[] = {
    {"swaps the sign of sin", rotate, [](Call &c) { c.numbers[0] = c.numbers[0] == 0 ? 0x80000000u : 0; }},
    {"knows forward only", "rotate_strided_f32_in_place", [](Call &c) { c.numbers[0] = 0; }},
    {"takes the angle of the next pair", rotate, [](Call &c) { c.cos->host += c.y->dim[0].extent != 1 ? 4 : 0; }},
    {"pairs neighbours, not halves", rotate, [](Call &c) { std::swap(c.x->dim[0].stride, c.x->dim[1].stride); }},
    {"is wrong where x is misaligned", rotate, nullptr,
     [](Call &c) {
         const bool is_wrong = reinterpret_cast<std::uintptr_t>(c.x->host) % 4 == 3;
         c.for_each_element([&](auto... at) { element(c.y, 4, at...)[3] ^= is_wrong ? '\x80' : '\0'; });
     }},
    {"drops a tail of one", rotate, [](Call &c) { c.y->dim[0].extent -= c.y->dim[0].extent % 8 == 1 ? 1 : 0; }},
    {"skips the last head", rotate, [](Call &c) { c.y->dim[2].extent -= c.y->dim[2].extent != 1 ? 1 : 0; }},
    {"takes tokens for dense", rotate, [](Call &c) { c.x->dim[3].stride = c.x->dim[2].stride * c.x->dim[2].extent; }},
    {"reads row 0 for every token", rotate, [](Call &c) { c.cos->dim[1].stride = c.sin->dim[1].stride = 0; }},
    {"writes beside its outputs", neighbours, nullptr, [](Call &c) { *c.past(c.y) = 0; }},
    {"writes beside its outputs in place", "rotate_interleaved_f32_in_place", nullptr,
     [](Call &c) { *c.past(c.y) = 0; }},
    {"writes to its input", rotate, nullptr, [](Call &c) { c.x->host[0] ^= 1; }},
    {"loses NaN", rotate, nullptr,
     [](Call &c) { c.change_outputs([](float y) { return std::isnan(y) ? INFINITY : y; }); }},
    {"loses -0", rotate, nullptr, [](Call &c) { c.change_outputs([](float y) { return y == 0 ? 0.0f : y; }); }},
    {"flushes denormals", rotate, nullptr,
     [](Call &c) { c.change_outputs([](float y) { return std::isnormal(y) ? y : y * 0.0f; }); }},
    {"is an ulp off in one output", "rotate_strided_f32_in_place", nullptr,
     [](Call &c) { value(c.y, 0) = std::nextafter(value(c.y, 0), 2 * value(c.y, 0)); }},
    {"does nothing", rotate, [](Call &c) { c.y->dim[0].extent = 0; }},
    {"rounds twice", rotate, nullptr, rotate_by<HALYARD_F32, to_nearest<HALYARD_F32>, false>},
    {"cuts f16 off", "rotate_strided_f16", nullptr, rotate_by<HALYARD_F16, cut_off<HALYARD_F16>>},
    {"cuts bf16 off", "rotate_strided_bf16", nullptr, rotate_by<HALYARD_BF16, cut_off<HALYARD_BF16>>},
    {"rounds ties of bf16 up", "rotate_strided_bf16", nullptr, rotate_by<HALYARD_BF16, ties_up>},
    {"flushes denormals of f16", "rotate_strided_f16", nullptr, rotate_by<HALYARD_F16, without_denormals>},
    {"takes f16 for bf16", "rotate_strided_f16", nullptr, rotate_by<HALYARD_BF16, to_nearest<HALYARD_BF16>>},
    {"reads one past the end", neighbours, nullptr, [](Call &c) { read(c.past(c.x)); }, crashes},
    {"reads one before the start", neighbours, nullptr, [](Call &c) { read(c.x->host - 1); }, crashes},
    {"reads a row past the last", neighbours, nullptr,
     [](Call &c) { read(element(c.cos, 4, 0, c.cos->dim[1].extent)); }, crashes},
    {"hangs", rotate,
     [](Call &) {
         for (volatile bool forever = true; forever;) {
         }
     },
     nullptr, hangs},
    {"does nothing to heads", "widen_f32", [](Call &c) { c.buffers[1]->dim[0].extent = 0; }},
    {"writes behind its first head", "widen_f32", nullptr, [](Call &c) { write_behind_first(c.buffers[1]); }},
    {"reads whole vectors", "widen_f32",
     [](Call &c) {
         const halyard_dimension *const dim = c.buffers[0]->dim;
         read(element(c.buffers[0], 4, (dim[0].extent + 15) / 16 * 16, dim[1].extent - 1, dim[2].extent - 1));
     },
     nullptr, crashes},
    {"rounds ties up", "narrow_bf16", nullptr,
     [](Call &c) {
         for (std::int32_t e = 0; e < c.buffers[2]->dim[0].extent; e++) {
             const float exact = value(c.buffers[0], e) * value(c.buffers[1], e * c.buffers[1]->dim[0].stride);
             auto &word = reinterpret_cast<std::uint16_t *>(c.buffers[2]->host)[e];
             word = std::isnan(exact) ? word : static_cast<std::uint16_t>(ties_up(exact));
         }
     }},
    {"drops the last pair", "rows_phase", [](Call &c) { c.buffers[3]->dim[0].extent--; }},
    {"writes behind its first row", "rows_phase", nullptr, [](Call &c) { write_behind_first(c.buffers[3]); }},
    {"reads a pair too many", "rows_phase",
     [](Call &c) { read(element(c.buffers[1], 4, c.buffers[1]->dim[0].extent)); }, nullptr, crashes},
};

}  // namespace

TEST_CASE("the kernel checker catches broken kernels, and names the case", "[checker]") {
    const std::vector<KernelRow> rows = all_built_kernels();
    for (const Broken &broken : all_broken) {
        const auto found = std::find_if(rows.begin(), rows.end(), [&](const KernelRow &row) {
            return row.name == std::string("halyard_") + broken.kernel + "_" + halyard::name_of(row.target);
        });
        CAPTURE(broken.name);
        REQUIRE(found != rows.end());
        KernelRow row = *found;
        row.kernel = [&](const Arguments &of) {
            Call call(of);
            broken.before != nullptr ? broken.before(call) : void();
            row.model(call);
            broken.after != nullptr ? broken.after(call) : void();
        };
        const std::string fault = fault_of(row, Catch::getSeed(), 400, broken.fault == hangs ? 1 : 0);
        CAPTURE(fault);
        CHECK(fault.starts_with(row.name + ": "));
        CHECK(fault.find(broken.fault) != std::string::npos);
    }
}
