// The list of stage kernels, and random calls of any: their operands in guarded memory, and images of these.
#pragma once

#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "read/stage_desc.h"
#include "walk/dispatch.h"
#include "walk/stages.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using halyard::Dtype;
using halyard::ElementStrides;
using halyard::Extents;
using halyard::Quantisation;
using oracle::Random;
using oracle::Values;

enum class Stage {
    widen,
    norm,
    widen_norm,
    layer_norm,
    norm_rotate,
    narrow,
    quantise,
    store_groups,
    load_groups,
    largest,
    range,
    hadamard,
    butterfly
};

/// A row of kernels.inc for one target. The name is without it.
struct StageRow {
    const char *name;
    Stage stage;
    Dtype dtype;
    halyard::Target target;
    bool (*is_in)(const halyard::StageKernels &kernels);

    bool is_one_of(std::initializer_list<Stage> stages) const {
        return std::find(stages.begin(), stages.end(), stage) != stages.end();
    }
    bool rotates() const { return stage == Stage::norm_rotate; }
    bool has_weights() const { return is_one_of({Stage::norm, Stage::widen_norm, Stage::layer_norm, Stage::norm_rotate}); }
    bool knows_groups() const { return is_one_of({Stage::store_groups, Stage::load_groups}); }
    bool transforms() const { return is_one_of({Stage::hadamard, Stage::butterfly}); }
    /// Other stages read f32, or write it.
    Dtype dtype_in() const {
        return is_one_of({Stage::widen, Stage::widen_norm, Stage::norm_rotate, Stage::load_groups}) ? dtype
                                                                                                    : Dtype::f32;
    }
    Dtype dtype_out() const {
        return is_one_of({Stage::narrow, Stage::quantise, Stage::norm_rotate, Stage::store_groups}) ? dtype
                                                                                                    : Dtype::f32;
    }
};

inline constexpr StageRow stage_rows[] = {
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target)                                                               \
    {"halyard_" #stage "_" #dtype, Stage::stage, Dtype::dtype, halyard::Target::target,                                \
     [](const halyard::StageKernels &kernels) { return kernels.stage[halyard::index_of(Dtype::dtype)] != nullptr; }},
#include "built_kernels.inc"
};

/// What stages read and write. Each takes what it needs.
struct StageCall {
    StageRow row;
    Extents extents;
    halyard::Elements<char> x, y;           // the same, for a norm
    halyard::Elements<const float> r = {};  // what narrow and quantise multiply by
    const float *z = nullptr;               // zero points
    float *greatest = nullptr;              // y takes the least
    halyard::Norm norm = {};                // a bias is for layer_norm, a rounding not for norm_rotate
    Quantisation how = {};
    halyard::Piece rows = {};  // with rows of cos and sin, and nothing else
    std::int64_t n_transformed = 0;
    halyard::Q8 q8 = {};
    halyard::Elements<char> scales = {};  // of q8

    /// False where store_groups says so.
    bool run_by(const halyard::StageKernels &kernels) const {
        if (row.stage == Stage::store_groups) {
            const auto *const heads = reinterpret_cast<const float *>(x.data);
            return store_q8(kernels, q8, extents, heads, y, scales);
        }
        run_others_by(kernels);
        return true;
    }

private:
    void run_others_by(const halyard::StageKernels &kernels) const {
        const auto floats_of = [](const halyard::Elements<char> &bytes) {
            return halyard::Elements<float>{reinterpret_cast<float *>(bytes.data), bytes.strides};
        };
        const halyard::Elements<const char> from = {x.data, x.strides};
        const halyard::Elements<float> floats = floats_of(y);
        const halyard::Elements<const float> block = {floats_of(x).data, x.strides};
        switch (row.stage) {
        case Stage::widen: return widen(kernels, row.dtype, extents, from, floats);
        case Stage::widen_norm: return widen_and_normalise(kernels, row.dtype, norm, extents, from, floats);
        case Stage::norm:
        case Stage::layer_norm:
            return x.data == y.data ? normalise(kernels, norm, extents, floats)
                                    : widen_and_normalise(kernels, Dtype::f32, norm, extents, from, floats);
        case Stage::norm_rotate: return norm_and_rotate(kernels, norm, piece());
        case Stage::narrow: return narrow(kernels, row.dtype, extents, block, r, y);
        case Stage::quantise:
            return quantise(kernels, how, extents, block, r.data, z, reinterpret_cast<unsigned char *>(y.data));
        case Stage::store_groups: return;
        case Stage::load_groups: return load_q8(kernels, extents, from, {scales.data, scales.strides}, floats.data);
        case Stage::largest: return find_largest(kernels, extents, block, floats.data);
        case Stage::range: return find_range(kernels, extents, block, floats.data, greatest);
        case Stage::hadamard:
        case Stage::butterfly: return transform(kernels, n_transformed, extents.n_elements, floats.data);
        }
    }

    halyard::Piece piece() const {
        halyard::Piece piece = rows;
        piece.dtype = row.dtype;
        piece.x = x.data;
        piece.y = y.data;
        piece.n_pairs = extents.n_elements / 2;
        piece.n_heads = extents.n_heads;
        piece.n_tokens = extents.n_tokens;
        const auto pairs_of = [&](const ElementStrides &s) {
            return halyard::PairStrides{s.element, piece.n_pairs * s.element, s.head, s.token};
        };
        piece.in = pairs_of(x.strides);
        piece.out = pairs_of(y.strides);
        piece.within_int32 = true;
        return piece;
    }
};

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

    void set(std::ptrdiff_t i, float value) { floats()[i] = float_image()[i] = value; }

    /// Calls see(word, what it ought to be) for each element.
    template <typename See>
    void for_each_element(See see) const {
        const auto type = static_cast<std::int32_t>(dtype);
        for (std::size_t i = 0; i < image_.size(); i += static_cast<std::size_t>(bytes_)) {
            see(oracle::read_word(type, first_ + i), oracle::read_word(type, &image_[i]));
        }
    }

private:
    std::int64_t bytes_;
    std::unique_ptr<GuardedMemory> memory_;
    char *first_;
    std::vector<char> image_;

    std::int64_t n_elements(std::size_t n_bytes) const {
        return static_cast<std::int64_t>(n_bytes) / std::min<std::int64_t>(bytes_, 2) + 1;
    }
};

inline Extents random_extents(Random &random) {
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
inline ElementStrides random_strides(Random &random, const Extents &extents) {
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

inline Values random_values(Random &random) {
    static constexpr Values all[] = {Values::ordinary, Values::any_bits, Values::special, Values::short_mantissa};
    return random.one_of(all);
}

/// Dense, strided, or the same for some.
inline ElementStrides random_scale_strides(Random &random, const Extents &extents) {
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

inline Quantisation random_quantisation(Random &random, Dtype dtype) {
    static constexpr float ends[][2] = {{-127, 127}, {-128, 127}, {-7, 7}, {0, 15}, {0, 255}, {-32768, 65536}};
    const auto &end = ends[random.in(0, 5)];
    return {dtype, static_cast<Quantisation::Mode>(random.in(0, 2)), end[0], end[1]};
}

/// Reciprocals or zero points: finite ones of any size, and zeros. Most are such that results are within the ends.
inline void fill_with_finite(Random &random, Operand &operand, std::int64_t n, float usual) {
    static constexpr float hard[] = {0.0f, -0.0f, 0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f, 8.5f, 0.5f, 1.0f};
    for (std::int64_t i = 0; i < n; i++) {
        const float any = random.one_in(8) ? random.one_of(hard) : static_cast<float>(random.unit()) * usual;
        operand.set(i, any);
    }
}

/// Puts halves between integers, and their neighbours, where an operand has elements of some heads.
inline void put_ties(Random &random, const Extents &extents, const float *r, const float *z, Operand &x) {
    for (std::int64_t i = 0; i < extents.n_tokens * extents.n_heads * extents.n_elements; i++) {
        const std::int64_t e = i % extents.n_elements, group = i / extents.n_elements;
        const std::int64_t h = group % extents.n_heads, t = group / extents.n_heads;
        const auto at = static_cast<std::ptrdiff_t>(e * x.strides.element + h * x.strides.head + t * x.strides.token);
        const auto half = static_cast<float>(random.in(-140, 270)) + 0.5f;
        const float tie = (half - (z == nullptr ? 0.0f : z[group])) / r[group];
        if (random.one_in(4) && std::isfinite(tie)) {
            const float near = random.one_in(2) ? tie : std::nextafter(tie, random.one_in(2) ? INFINITY : -INFINITY);
            x.set(at, near);
        }
    }
}

/// Groups of zeros, subnormal numbers, halves between integers, and now and then a scale that just overflows.
inline void fill_with_groups(Random &random, Operand &floats, std::int64_t n_groups) {
    for (std::int64_t i = 0; i < n_groups; i++) {
        static constexpr float sizes[] = {0.0f, 0x1p-149f, 0x1p-130f, 0x1p-20f, 1.0f, 8319007.5f};
        const float size = random.one_in(500) ? 8319008.0f : random.one_of(sizes);
        const bool has_ties = random.one_in(2);
        for (std::int64_t e = 0; e < halyard::q8_group; e++) {
            const double part = has_ties ? static_cast<double>(random.in(-254, 254)) / 254 : 2 * random.unit() - 1;
            floats.set(i * halyard::q8_group + e, e == 3 ? -size : static_cast<float>(part * double{size}));
        }
    }
}

/// A random call of a stage on operands in memory, and the same call on what these ought to hold.
struct StageTrial {
    std::string text;
    std::vector<std::pair<const char *, std::unique_ptr<Operand>>> operands;
    StageCall call, on_images;

    StageTrial(const StageRow &row, Random &random) : call{row, {}, {}, {}}, on_images(call) {
        row.stage == Stage::quantise ? draw_quantise(random) : row.knows_groups() ? draw_groups(random) : draw(random);
    }

private:
    std::unique_ptr<RandomRows> rows_;

    template <typename... Arguments>
    Operand &add(const char *name, Arguments &&...arguments) {
        operands.emplace_back(name, std::make_unique<Operand>(std::forward<Arguments>(arguments)...));
        return *operands.back().second;
    }
    std::string describe() const {
        std::string all = std::to_string(call.extents.n_elements) + " elements, " +
                          std::to_string(call.extents.n_heads) + " heads, " + std::to_string(call.extents.n_tokens) +
                          " tokens";
        for (const auto &[name, operand] : operands) {
            all += std::string("; ") + name + " " + std::to_string(operand->strides.element) + " " +
                   std::to_string(operand->strides.head) + " " + std::to_string(operand->strides.token);
        }
        return all;
    }

    /// Of any stage but those of groups. Draws come one after the other, so that all compilers make the same call.
    void draw(Random &random) {
        const StageRow &row = call.row;
        Extents extents = random_extents(random);
        if (row.rotates()) {
            extents.n_elements = std::min<std::int64_t>((extents.n_elements + 1) / 2 * 2, halyard::max_staged_head);
        }
        call.n_transformed = std::int64_t{1} << (row.stage == Stage::hadamard ? 6 : random.in(1, 11));
        if (row.transforms()) {
            const std::int64_t most = std::max<std::int64_t>(2048 / call.n_transformed, 1);
            extents = {call.n_transformed * random.in(1, most), 1, 1};
        }
        const Extents of_heads = {extents.n_heads * extents.n_tokens, 1, 1};
        const bool makes_heads = row.is_one_of({Stage::largest, Stage::range});
        const bool in_place = row.stage == Stage::norm || row.transforms() ||
                              (row.is_one_of({Stage::layer_norm, Stage::norm_rotate}) && random.one_in(2));
        const Values values = random_values(random);
        const auto strides = [&] { return random_strides(random, extents); };
        const auto if_read = [&](bool is_read, const Extents &all) { return is_read ? all : Extents{2, 1, 1}; };
        const ElementStrides dense = {1, 0, 0};
        Operand &x = add("x", random, row.dtype_in(), extents, strides(), values);
        Operand &y = add("y", random, row.dtype_out(), makes_heads ? of_heads : extents,
                         makes_heads || row.transforms() ? dense : strides(), in_place ? values : Values::any_bits);
        Operand &greatest = add("greatest", random, Dtype::f32, of_heads, dense, Values::any_bits);
        const ElementStrides of_scales = random_scale_strides(random, extents);
        Operand &r =
            add("scales", random, Dtype::f32, if_read(row.stage == Stage::narrow, extents), of_scales,
                random.one_in(2) ? Values::ordinary : values);
        const Extents of_weight = if_read(row.has_weights(), {extents.n_elements, extents.n_heads, 1});
        const ElementStrides by_head = {1, random.one_in(2) ? 0 : extents.n_elements + random.in(0, 3), 0};
        Operand &weight = add("weights", random, Dtype::f32, of_weight, by_head, Values::ordinary);
        Operand &bias = add("biases", random, Dtype::f32, of_weight, by_head, Values::ordinary);
        rows_ = std::make_unique<RandomRows>(random, if_read(row.rotates(), extents),
                                             random.one_in(2) ? Values::ordinary : values);
        call.extents = extents;
        call.norm = {random.one_in(2) ? 1e-6f : 0.0f, weight.floats(), by_head.head,
                     row.rotates() ? 0 : static_cast<std::int32_t>(random.in(0, 3)), row.dtype};
        call.norm.bias = row.stage == Stage::layer_norm ? bias.floats() : nullptr;
        call.y = {y.data(), y.strides};
        call.x = in_place ? call.y : halyard::Elements<char>{x.data(), x.strides};
        call.r = {r.floats(), r.strides};
        call.greatest = greatest.floats();
        call.rows = rows_->piece;
        on_images = call;
        on_images.y.data = y.image();
        on_images.x = in_place ? on_images.y : call.x;
        on_images.greatest = greatest.float_image();
        text = describe() + (in_place ? "; in place, eps " : "; eps ") + std::to_string(call.norm.eps) + ", rounding " +
               std::to_string(call.norm.rounding) + ", values " + std::to_string(static_cast<int>(values));
    }

    void draw_quantise(Random &random) {
        static constexpr std::int64_t groups[] = {16, 32, 64, 128};
        Extents extents = random_extents(random);
        extents.n_elements = random.one_in(2) ? random.one_of(groups) : extents.n_elements;
        const std::int64_t n_groups = extents.n_heads * extents.n_tokens;
        const ElementStrides dense = {1, 0, 0};
        call.extents = extents;
        call.how = random_quantisation(random, call.row.dtype);
        const ElementStrides of_x = random_strides(random, extents);
        Operand &x = add("x", random, Dtype::f32, extents, of_x, random_values(random));
        Operand &r = add("r", random, Dtype::f32, Extents{n_groups, 1, 1}, dense, Values::ordinary);
        Operand &z = add("z", random, Dtype::f32, Extents{n_groups, 1, 1}, dense, Values::ordinary);
        Operand &y =
            add("y", random, Dtype::int8, Extents{n_groups * extents.n_elements, 1, 1}, dense, Values::any_bits);
        fill_with_finite(random, r, n_groups, random.one_in(2) ? 127.0f : 1.0f);
        fill_with_finite(random, z, n_groups, call.how.high);
        call.z = random.one_in(3) ? nullptr : z.floats();
        put_ties(random, extents, r.floats(), call.z, x);
        call.x = {x.data(), x.strides};
        call.y = {y.data(), y.strides};
        call.r.data = r.floats();
        on_images = call;
        on_images.y.data = y.image();
        text = "mode " + std::to_string(static_cast<int>(call.how.mode)) + ", " + std::to_string(call.how.low) +
               " to " + std::to_string(call.how.high) + ", " + describe() +
               (call.z == nullptr ? ", no zero points" : "");
    }

    void draw_groups(Random &random) {
        const bool stores = call.row.stage == Stage::store_groups;
        const std::int64_t n = halyard::q8_group, n_groups = random.in(1, 8), n_heads = random.in(1, 256 / n_groups);
        const auto strides_of = [&](std::int64_t least) {
            const std::int64_t group = least + (random.one_in(2) ? 0 : random.in(1, 5));
            return ElementStrides{1, group, n_groups * group + (random.one_in(2) ? 0 : random.in(1, 5))};
        };
        const bool any = random.one_in(8);
        call.extents = {n, n_groups, n_heads};
        Operand &floats = add("floats", random, Dtype::f32, call.extents, ElementStrides{1, n, n * n_groups},
                              any ? random_values(random) : Values::short_mantissa);
        Operand &integers = add("integers", random, Dtype::int8, call.extents, strides_of(n), Values::any_bits);
        const ElementStrides of_scales = strides_of(1);
        Operand &scales = add("scales", random, Dtype::f16, Extents{1, n_groups, n_heads}, of_scales,
                              stores ? Values::any_bits : random_values(random));
        call.q8 = {static_cast<halyard::Q8::Reciprocal>(random.in(0, 2)), random.one_in(2)};
        if (stores && !any) {
            fill_with_groups(random, floats, n_groups * n_heads);
        }
        Operand &x = stores ? floats : integers, &y = stores ? integers : floats;
        call.x = {x.data(), x.strides};
        call.y = {y.data(), y.strides};
        call.scales = {scales.data(), scales.strides};
        on_images = call;
        on_images.y.data = y.image();
        on_images.scales.data = scales.image();
        text = "reciprocal " + std::to_string(call.q8.reciprocal) + (call.q8.away ? ", away" : ", even") + ", " +
               describe();
    }
};
