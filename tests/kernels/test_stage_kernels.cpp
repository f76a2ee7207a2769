// The kernels of stages: every target against the portable loops, bit by bit and within the memory that they are given.
// test_conversions.cpp has the roundings of each dtype, test_norms.cpp how far norms are off.
#include "checks/guarded_memory.h"
#include "checks/kernel_checker.h"
#include "checks/oracle.h"
#include "halyard/halyard.hpp"
#include "kernels/stage_calls.h"
#include "kernels/stage_kernels_here.h"
#include "read/stage_desc.h"

#include <catch2/catch_get_random_seed.hpp>
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

using halyard::Dtype;
using halyard::ElementStrides;
using halyard::Extents;
using halyard::Norm;
using halyard::Quantisation;
using halyard::StageKernels;
using halyard::Target;
using oracle::Random;
using oracle::Values;

namespace {

/// With the target.
std::string name_of(const StageRow &row) { return std::string(row.name) + "_" + halyard::name_of(row.target); }

const StageKernels portable = halyard::select_stage_kernels(0);

// ---- Stages on random bits in random layouts -----------------------------------------------------------------------

/// An operand in guarded memory: from its first byte to its last.
class Operand {
public:
    Operand(Random &random, Dtype type, const Extents &extents, const ElementStrides &s, Values values)
        : dtype(type), strides(s), bytes_(halyard::element_bytes(type)) {
        const std::int64_t last =
            (extents.n_elements - 1) * s.element + (extents.n_heads - 1) * s.head + (extents.n_tokens - 1) * s.token;
        const auto n_bytes = static_cast<std::size_t>((last + 1) * bytes_);
        memory_ = std::make_unique<GuardedMemory>(n_bytes / GuardedMemory::page + 1);
        first_ = random.one_in(4) ? memory_->begin() : memory_->end() - n_bytes;
        const std::vector<char> filled = oracle::random_elements(
            random, static_cast<std::int32_t>(std::min(type, Dtype::bf16)), values, n_elements(n_bytes));
        std::memcpy(first_, filled.data(), n_bytes);
        image_.assign(first_, first_ + n_bytes);
    }

    const Dtype dtype;
    const ElementStrides strides;

    char *data() { return first_; }
    float *floats() { return reinterpret_cast<float *>(first_); }
    /// What it ought to hold: what it held, until somebody writes there.
    char *image() { return image_.data(); }
    float *float_image() { return reinterpret_cast<float *>(image_.data()); }

    /// The first element that is not as it ought to be, in words.
    std::string difference() const {
        for (std::size_t i = 0; i < image_.size(); i += static_cast<std::size_t>(bytes_)) {
            const auto size = static_cast<std::size_t>(bytes_);
            if (std::memcmp(first_ + i, image_.data() + i, size) != 0 && !(is_nan(first_ + i) && is_nan(&image_[i]))) {
                std::uint32_t got = 0, want = 0;
                std::memcpy(&got, first_ + i, size);
                std::memcpy(&want, &image_[i], size);
                char text[100];
                std::snprintf(text, sizeof(text), "element %zu is %x, but should be %x", i / size, got, want);
                return text;
            }
        }
        return "";
    }

private:
    std::int64_t bytes_;
    std::unique_ptr<GuardedMemory> memory_;
    char *first_;
    std::vector<char> image_;

    std::int64_t n_elements(std::size_t n_bytes) const {
        return static_cast<std::int64_t>(n_bytes) / std::min<std::int64_t>(bytes_, 2) + 1;
    }
    bool is_nan(const char *at) const {
        const auto type = static_cast<std::int32_t>(dtype);
        switch (dtype) {
        case Dtype::e4m3: return (*at & 0x7f) == 0x7f;
        case Dtype::e5m2: return (*at & 0x7f) > 0x7c;
        case Dtype::int8: return false;
        default: return oracle::is_nan(type, oracle::read_word(type, at));
        }
    }
};

Extents random_extents(Random &random) {
    static constexpr std::int64_t usual[] = {64, 80, 96, 128, 192, 256, 512};
    Extents extents = {};
    extents.n_elements = random.one_in(3) ? random.one_of(usual) : random.in(1, 70);
    extents.n_heads = random.one_in(8) ? random.in(30, 70) : random.in(1, 10);
    extents.n_tokens = random.in(1, extents.n_heads > 10 ? 2 : 5);
    if (random.one_in(40)) {
        extents = {random.in(2000, 2200), 2, 1};
    }
    return extents;
}

/// Heads one after the other with gaps or without, or tokens inside of heads. Seldom elements lie apart.
ElementStrides random_strides(Random &random, const Extents &extents) {
    const std::int64_t gap = random.one_in(2) ? 0 : random.in(1, 5);
    ElementStrides strides = {random.one_in(12) ? random.in(2, 3) : 1, 0, 0};
    const std::int64_t head = (extents.n_elements - 1) * strides.element + 1 + gap;
    if (random.one_in(4)) {
        strides.token = head;
        strides.head = extents.n_tokens * head + gap;
    } else {
        strides.head = head;
        strides.token = extents.n_heads * head + gap;
    }
    return strides;
}

Values random_values(Random &random) {
    static constexpr Values all[] = {Values::ordinary, Values::any_bits, Values::special, Values::short_mantissa};
    return random.one_of(all);
}

std::string text(const Extents &extents) {
    return std::to_string(extents.n_elements) + " elements, " + std::to_string(extents.n_heads) + " heads, " +
           std::to_string(extents.n_tokens) + " tokens";
}
std::string text(const char *name, const Operand &operand) {
    return std::string("; ") + name + " " + std::to_string(operand.strides.element) + " " +
           std::to_string(operand.strides.head) + " " + std::to_string(operand.strides.token);
}
void say(TrialText &text, const std::string &what) { std::snprintf(text, sizeof(text), "%s", what.c_str()); }

/// The first of these operands that is not as it ought to be, in words, or nothing.
std::string fault_in(const char *text, std::initializer_list<std::pair<const char *, const Operand &>> operands) {
    for (const auto &[name, operand] : operands) {
        if (const std::string difference = operand.difference(); !difference.empty()) {
            return std::string(text) + ": " + name + ": " + difference;
        }
    }
    return "";
}

/// Dense, strided, or the same for some.
ElementStrides random_scale_strides(Random &random, const Extents &extents) {
    const ElementStrides strides = random_strides(random, extents);
    const auto some = [&](std::int64_t stride) { return random.one_in(2) ? stride : 0; };
    return random.one_in(2) ? ElementStrides{some(strides.element), some(strides.head), some(strides.token)}
                            : ElementStrides{0, 0, 0};
}

/// Rows of cos and sin, more of them than tokens.
struct RandomRows {
    const std::int64_t n_pairs, n_rows;
    Operand cos_and_sin;
    std::vector<std::int32_t> row_of_token;
    halyard::Piece piece = {};

    RandomRows(Random &random, const Extents &extents, Values values)
        : n_pairs(extents.n_elements / 2), n_rows(extents.n_tokens + 2),
          cos_and_sin(random, Dtype::f32, {2 * n_pairs, n_rows, 1}, {1, 2 * n_pairs + random.in(0, 3), 0}, values) {
        for (std::int64_t token = 0; token < extents.n_tokens; token++) {
            row_of_token.push_back(static_cast<std::int32_t>(random.in(0, n_rows - 1)));
        }
        piece.cos_rows = cos_and_sin.data();
        piece.sin_rows = cos_and_sin.data() + n_pairs * std::int64_t{sizeof(float)};
        piece.n_rows = n_rows;
        piece.stride_row = cos_and_sin.strides.head;
        piece.row_of_token = row_of_token.data();
        piece.sin_sign = extents.n_heads % 2 == 0 ? 0 : 0x80000000;
    }
    RandomRows(const RandomRows &) = delete;
};

/// One call of a stage, but for those of groups, and the same call by the portable loops on images. The first fault in
/// words, or nothing.
std::string fault_of_call(const StageRow &row, const StageKernels &kernels, bool fused, Random &random,
                          TrialText &told) {
    Extents extents = random_extents(random);
    if (row.rotates()) {
        extents.n_elements = std::min<std::int64_t>((extents.n_elements + 1) / 2 * 2, halyard::max_staged_head);
    }
    const std::int64_t n_transformed = std::int64_t{1} << (row.stage == Stage::hadamard ? 6 : random.in(1, 11));
    if (row.transforms()) {
        extents = {n_transformed * random.in(1, std::max<std::int64_t>(2048 / n_transformed, 1)), 1, 1};
    }
    const Extents of_heads = {extents.n_heads * extents.n_tokens, 1, 1};
    const bool makes_heads = row.is_one_of({Stage::largest, Stage::range});
    const bool in_place = row.stage == Stage::norm || row.transforms() ||
                          (row.is_one_of({Stage::layer_norm, Stage::norm_rotate}) && random.one_in(2));
    const Values values = random_values(random);
    const auto strides = [&] { return random_strides(random, extents); };
    const ElementStrides dense = {1, 0, 0};
    Operand x(random, row.dtype_in(), extents, strides(), values);
    Operand y(random, row.dtype_out(), makes_heads ? of_heads : extents,
              makes_heads || row.transforms() ? dense : strides(), in_place ? values : Values::any_bits);
    Operand greatest(random, Dtype::f32, of_heads, dense, Values::any_bits);
    Operand r(random, Dtype::f32, extents, random_scale_strides(random, extents),
              random.one_in(2) ? Values::ordinary : values);
    const ElementStrides of_weight = {1, random.one_in(2) ? 0 : extents.n_elements + random.in(0, 3), 0};
    Operand weight(random, Dtype::f32, {extents.n_elements, extents.n_heads, 1}, of_weight, Values::ordinary);
    Operand bias(random, Dtype::f32, {extents.n_elements, extents.n_heads, 1}, of_weight, Values::ordinary);
    Norm norm = {random.one_in(2) ? 1e-6f : 0.0f, weight.floats(), of_weight.head,
                 row.rotates() ? 0 : static_cast<std::int32_t>(random.in(0, 3)), row.dtype};
    norm.bias = row.stage == Stage::layer_norm ? bias.floats() : nullptr;

    const RandomRows rows(random, extents, random.one_in(2) ? Values::ordinary : values);
    say(told, name_of(row) + ": " + text(extents) + text("x", x) + text("y", y) + text("scales", r) +
                  text("weights", weight) + (in_place ? "; in place, eps " : "; eps ") + std::to_string(norm.eps) +
                  ", rounding " + std::to_string(norm.rounding) + ", values " +
                  std::to_string(static_cast<int>(values)));
    StageCall call = {row,
                      extents,
                      {x.data(), x.strides},
                      {y.data(), y.strides},
                      {r.floats(), r.strides},
                      nullptr,
                      greatest.floats(),
                      norm,
                      {},
                      rows.piece,
                      n_transformed};
    call.x = in_place ? call.y : call.x;
    call.run_by(kernels);
    if (!fused && row.sums()) {
        return "";  // other bits; the guards have been there, and the accuracy is tested below
    }
    call.y.data = y.image();
    call.x = in_place ? call.y : call.x;
    call.greatest = greatest.float_image();
    call.run_by(portable);
    return fault_in(told,
                    {{"x", x}, {"y", y}, {"greatest", greatest}, {"scales", r}, {"weights", weight}, {"biases", bias}});
}

Quantisation random_quantisation(Random &random, Dtype dtype) {
    static constexpr float ends[][2] = {{-127, 127}, {-128, 127}, {-7, 7}, {0, 15}, {0, 255}, {-32768, 65536}};
    const auto &end = ends[random.in(0, 5)];
    return {dtype, static_cast<Quantisation::Mode>(random.in(0, 2)), end[0], end[1]};
}

/// Reciprocals or zero points: finite ones of any size, and zeros. Most are such that results are within the ends.
void fill_with_finite(Random &random, Operand &operand, std::int64_t n, float usual) {
    static constexpr float hard[] = {0.0f, -0.0f, 0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f, 8.5f, 0.5f, 1.0f};
    for (std::int64_t i = 0; i < n; i++) {
        const float any = random.one_in(8) ? random.one_of(hard) : static_cast<float>(random.unit()) * usual;
        operand.floats()[i] = operand.float_image()[i] = any;
    }
}

/// Puts halves between integers, and their neighbours, where an operand has elements of some heads.
void put_ties(Random &random, const Extents &extents, const float *r, const float *z, Operand &x) {
    for (std::int64_t i = 0; i < extents.n_tokens * extents.n_heads * extents.n_elements; i++) {
        const std::int64_t e = i % extents.n_elements, group = i / extents.n_elements;
        const std::int64_t h = group % extents.n_heads, t = group / extents.n_heads;
        const auto at = static_cast<std::ptrdiff_t>(e * x.strides.element + h * x.strides.head + t * x.strides.token);
        const auto half = static_cast<float>(random.in(-140, 270)) + 0.5f;
        const float tie = (half - (z == nullptr ? 0.0f : z[group])) / r[group];
        if (random.one_in(4) && std::isfinite(tie)) {
            const float near = random.one_in(2) ? tie : std::nextafter(tie, random.one_in(2) ? INFINITY : -INFINITY);
            x.floats()[at] = x.float_image()[at] = near;
        }
    }
}

/// What a target without fused multiply-add makes of a number by Mode::even: two roundings, then that to an integer.
void quantise_by_two_roundings(const Quantisation &how, const Extents &extents, Operand &x, const float *r,
                               const float *z, char *y) {
    std::vector<float> products(static_cast<std::size_t>(extents.n_elements));
    for (std::int64_t group = 0; group < extents.n_tokens * extents.n_heads; group++) {
        const std::int64_t h = group % extents.n_heads, t = group / extents.n_heads;
        for (std::int64_t e = 0; e < extents.n_elements; e++) {
            const float v = x.float_image()[e * x.strides.element + h * x.strides.head + t * x.strides.token];
            volatile const float product = std::isnan(v) || r[group] == 0.0f ? 0.0f : v * r[group];
            const float q = std::clamp(std::nearbyint(product + z[group]), how.low, how.high);
            y[group * extents.n_elements + e] = static_cast<char>(static_cast<std::int32_t>(q));
        }
    }
}

/// The same of quantise.
std::string fault_of_quantise(const StageRow &row, const StageKernels &kernels, bool fused, Random &random,
                              TrialText &told) {
    static constexpr std::int64_t groups[] = {16, 32, 64, 128};
    Extents extents = random_extents(random);
    extents.n_elements = random.one_in(2) ? random.one_of(groups) : extents.n_elements;
    const std::int64_t n_groups = extents.n_heads * extents.n_tokens;
    const Quantisation how = random_quantisation(random, row.dtype);
    Operand x(random, Dtype::f32, extents, random_strides(random, extents), random_values(random));
    Operand r(random, Dtype::f32, {n_groups, 1, 1}, {1, 0, 0}, Values::ordinary);
    Operand z(random, Dtype::f32, {n_groups, 1, 1}, {1, 0, 0}, Values::ordinary);
    Operand y(random, Dtype::int8, {n_groups * extents.n_elements, 1, 1}, {1, 0, 0}, Values::any_bits);
    fill_with_finite(random, r, n_groups, random.one_in(2) ? 127.0f : 1.0f);
    fill_with_finite(random, z, n_groups, how.high);
    const float *const zeros = random.one_in(3) ? nullptr : z.floats();
    put_ties(random, extents, r.floats(), zeros, x);
    say(told, name_of(row) + ": mode " + std::to_string(static_cast<int>(how.mode)) + ", " + std::to_string(how.low) +
                  " to " + std::to_string(how.high) + ", " + text(extents) + text("x", x) +
                  (zeros == nullptr ? ", no zero points" : ""));

    const auto bytes_of = [](char *bytes) { return reinterpret_cast<unsigned char *>(bytes); };
    quantise(kernels, how, extents, {x.floats(), x.strides}, r.floats(), zeros, bytes_of(y.data()));
    const bool by_kernel = x.strides.element == 1 && extents.n_elements >= 16;
    if (!fused && by_kernel && how.dtype == Dtype::int8 && how.mode == Quantisation::Mode::even && zeros != nullptr) {
        quantise_by_two_roundings(how, extents, x, r.floats(), zeros, y.image());
    } else {
        quantise(portable, how, extents, {x.float_image(), x.strides}, r.floats(), zeros, bytes_of(y.image()));
    }
    return fault_in(told, {{"x", x}, {"y", y}, {"r", r}, {"z", z}});
}

/// The same of store_groups and load_groups.
std::string fault_of_groups(const StageRow &row, const StageKernels &kernels, bool, Random &random, TrialText &told) {
    const bool stores = row.stage == Stage::store_groups;
    const std::int64_t n = halyard::q8_group, n_groups = random.in(1, 8), n_heads = random.in(1, 256 / n_groups);
    const Extents extents = {n, n_groups, n_heads}, of_scales = {1, n_groups, n_heads};
    const auto strides_of = [&](std::int64_t least) {
        const std::int64_t group = least + (random.one_in(2) ? 0 : random.in(1, 5));
        return ElementStrides{1, group, n_groups * group + (random.one_in(2) ? 0 : random.in(1, 5))};
    };
    const bool any = random.one_in(8);
    Operand floats(random, Dtype::f32, extents, {1, n, n * n_groups},
                   any ? random_values(random) : Values::short_mantissa);
    Operand integers(random, Dtype::int8, extents, strides_of(n), Values::any_bits);
    Operand scales(random, Dtype::f16, of_scales, strides_of(1), stores ? Values::any_bits : random_values(random));
    const halyard::Q8 q8 = {static_cast<std::int32_t>(random.in(0, 2)), random.one_in(2)};
    for (std::int64_t i = 0; i < n_groups * n_heads && stores && !any; i++) {
        // Zeros, subnormal numbers, halves between integers, and now and then a scale that just overflows.
        static constexpr float sizes[] = {0.0f, 0x1p-149f, 0x1p-130f, 0x1p-20f, 1.0f, 8319007.5f};
        const float size = random.one_in(500) ? 8319008.0f : random.one_of(sizes);
        const bool has_ties = random.one_in(2);
        for (std::int64_t e = 0; e < n; e++) {
            const double part = has_ties ? static_cast<double>(random.in(-254, 254)) / 254 : 2 * random.unit() - 1;
            const auto element = e == 3 ? -size : static_cast<float>(part * double{size});
            floats.floats()[i * n + e] = floats.float_image()[i * n + e] = element;
        }
    }
    Operand &x = stores ? floats : integers, &y = stores ? integers : floats;
    say(told, name_of(row) + ": reciprocal " + std::to_string(q8.reciprocal) + (q8.away ? ", away" : ", even") + ", " +
                  text(extents) + text("integers", integers) + text("scales", scales));
    StageCall call = {row, extents, {x.data(), x.strides}, {y.data(), y.strides}};
    call.q8 = q8;
    call.scales = {scales.data(), scales.strides};
    const bool is_done = call.run_by(kernels);
    call.y.data = y.image();
    call.scales.data = scales.image();
    if (is_done != call.run_by(portable)) {
        return std::string(told) + ": one says that all is finite, the other does not";
    }
    return is_done ? fault_in(told, {{"x", x}, {"y", y}, {"scales", scales}}) : fault_in(told, {{"x", x}});
}

/// Calls a stage until something is wrong, in a process of its own.
KernelReport check_stage(const StageRow &row, const StageKernels &kernels, int n_calls) {
    return check_apart(name_of(row), 0, [&](TrialText &text) {
        Random random(Catch::getSeed());
        KernelReport report;
        while (report.n_runs < n_calls && report.fault.empty()) {
            const auto fault_of = row.stage == Stage::quantise ? fault_of_quantise
                                  : row.knows_groups()         ? fault_of_groups
                                                               : fault_of_call;
            report.fault = fault_of(row, kernels, row.target != Target::x86_sse41, random, text);
            report.n_runs++;
        }
        return report;
    });
}

bool is_here(Target target) {
    return (halyard::supported_targets() & halyard::bit(target)) != 0 &&
           halyard::select_stage_kernels(halyard::bit(target)).target == target;
}

}  // namespace

TEST_CASE("stage kernels: every target of kernels has all that are listed", "[stages]") {
    int index = 0;
    for (const halyard_target_info &info : halyard::targets()) {
        const auto target = static_cast<Target>(index++);
        const StageKernels kernels = halyard::select_stage_kernels(halyard::bit(target));
        const bool is_gpu = target == Target::cuda_sm80 || target == Target::opencl;
        const bool has_kernels = info.built != 0 && target != Target::reference && !is_gpu;
        INFO(info.name);
        CHECK(kernels.target == (has_kernels ? target : Target::reference));
        for (const StageRow &row : stage_rows) {
            if (row.target == target) {
                CHECK(row.is_in(kernels) == has_kernels);
            }
        }
    }
}

TEST_CASE("stage kernels: the portable loops' bits within the memory that they are given", "[stages]") {
    for (const StageRow &row : stage_rows) {
        if (is_here(row.target)) {
            const KernelReport report = check_stage(row, halyard::select_stage_kernels(halyard::bit(row.target)), 400);
            CHECK(report.fault == "");
            CHECK(report.n_runs == 400);
        }
    }
}

namespace {

void widen_rightly(halyard_buffer *x, halyard_buffer *y) {
    const ElementStrides in = {1, x->dim[1].stride, x->dim[2].stride}, out = {1, y->dim[1].stride, y->dim[2].stride};
    const Extents extents = {x->dim[0].extent, x->dim[1].extent, x->dim[2].extent};
    widen(portable, Dtype::f32, extents, {reinterpret_cast<char *>(x->host), in},
          {reinterpret_cast<float *>(y->host), out});
}

}  // namespace

TEST_CASE("stage kernels: the check catches what is wrong, what writes elsewhere and what reads too far", "[stages]") {
    const auto fault_of = [](halyard_widen_kernel *kernel) {
        StageKernels kernels = portable;
        kernels.widen[halyard::index_of(Dtype::f32)] = kernel;
        return check_stage({"widen", Stage::widen, Dtype::f32, Target::reference, nullptr}, kernels, 400).fault;
    };
    const auto wrong = fault_of([](halyard_buffer *, halyard_buffer *) { return 0; });
    CHECK(wrong.find("but should be") != std::string::npos);
    const auto elsewhere = fault_of([](halyard_buffer *x, halyard_buffer *y) {
        widen_rightly(x, y);
        if (y->dim[1].stride > y->dim[0].extent && y->dim[1].extent > 1) {
            reinterpret_cast<float *>(y->host)[y->dim[0].extent] = 1;
        }
        return 0;
    });
    CHECK(elsewhere.find("but should be") != std::string::npos);
    const auto beyond = fault_of([](halyard_buffer *x, halyard_buffer *y) {
        widen_rightly(x, y);
        const volatile auto *const data = reinterpret_cast<const volatile float *>(x->host);
        return data[(x->dim[0].extent + 15) / 16 * 16 + (x->dim[1].extent - 1) * x->dim[1].stride +
                    (x->dim[2].extent - 1) * x->dim[2].stride] == 0.5f
                   ? 1
                   : 0;
    });
    CHECK(beyond.find("crashes with signal") != std::string::npos);
}

// ---- The largest magnitude -----------------------------------------------------------------------------------------

TEST_CASE("stage kernels: the largest magnitude passes over NaN and infinities", "[stages]") {
    for (const StageRow &row : stage_rows) {
        if (row.stage != Stage::largest || !is_here(row.target)) {
            continue;
        }
        const StageKernels kernels = halyard::select_stage_kernels(halyard::bit(row.target));
        for (const StageKernels &by : {kernels, portable}) {
            std::vector<float> heads(4 * 64, NAN);
            heads[5] = -7.5f;
            heads[40] = 7.0f;
            std::fill_n(heads.begin() + 64, 64, -INFINITY);
            heads[128 + 63] = -0x1p-149f;
            heads[192] = -0x1.fffffep127f;
            std::vector<float> largest(4, -1.0f);
            find_largest(by, {64, 4, 1}, {heads.data(), {1, 64, 0}}, largest.data());
            CHECK(largest == std::vector<float>{7.5f, 0.0f, 0x1p-149f, 0x1.fffffep127f});
        }
    }
}

TEST_CASE("stage kernels: the range passes over NaN and infinities, and its zeros have no sign", "[stages]") {
    for (const StageKernels &by : stage_kernels_here()) {
        for (const std::int64_t n : {64, 33}) {
            std::vector<float> heads(static_cast<std::size_t>(5 * n), NAN);
            const auto head = [&](std::int64_t i) { return heads.begin() + i * n; };
            *(head(0) + 5) = -7.5f;
            *(head(0) + 30) = -7.0f;
            std::fill_n(head(1), n, -INFINITY);
            *(head(2) + n - 1) = -0x1p-149f;
            *(head(2) + 1) = INFINITY;
            std::fill_n(head(3), n, -0.0f);
            *head(4) = 0x1.fffffep127f;
            *(head(4) + 2) = -0.0f;
            std::vector<float> least(5, -1.0f), greatest(5, -1.0f);
            find_range(by, {n, 5, 1}, {heads.data(), {1, n, 0}}, least.data(), greatest.data());
            CHECK(least == std::vector<float>{-7.5f, 0.0f, -0x1p-149f, 0.0f, 0.0f});
            CHECK(greatest == std::vector<float>{-7.0f, 0.0f, -0x1p-149f, 0.0f, 0x1.fffffep127f});
            const auto has_sign = [](float end) { return end == 0.0f && std::signbit(end); };
            CHECK(std::none_of(least.begin(), least.end(), has_sign));
            CHECK(std::none_of(greatest.begin(), greatest.end(), has_sign));
        }
    }
}
