// The list of stage kernels, and random calls of any: their operands in guarded memory, and images of these.
#pragma once

#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "kv/stage_kernels.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using halyard::Dtype;
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
};

inline constexpr StageRow stage_rows[] = {
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target)                                                               \
    {"halyard_" #stage "_" #dtype, Stage::stage, Dtype::dtype, halyard::Target::target,                                \
     [](const halyard::StageKernels &kernels) { return kernels.stage[halyard::index_of(Dtype::dtype)] != nullptr; }},
#include "built_kernels.inc"
};

/// A dimension of an operand, whose strides are in its elements.
struct Dimension {
    std::int64_t extent, stride;
};
using Dimensions = std::vector<Dimension>;

/// An operand in guarded memory, from its first byte to its last; and an image of what it ought to hold: what it held,
/// until somebody writes there.
class Operand {
public:
    Operand(Random &random, const char *with_name, Dtype type, const Dimensions &dimensions, Values values)
        : name(with_name), dtype(type), dims(dimensions), bytes_(halyard::element_bytes(type)) {
        std::int64_t n_elements = 1;
        for (const Dimension &dim : dims) {
            n_elements += (dim.extent - 1) * dim.stride;
        }
        const auto n_bytes = static_cast<std::size_t>(n_elements * bytes_);
        memory_ = std::make_unique<GuardedMemory>(n_bytes / GuardedMemory::page + 1);
        first_ = random.one_in(4) ? memory_->begin() : memory_->end() - n_bytes;
        const std::vector<char> filled =
            oracle::random_elements(random, static_cast<std::int32_t>(std::min(type, Dtype::bf16)), values,
                                    static_cast<std::int64_t>(n_bytes) / std::min<std::int64_t>(bytes_, 2) + 1);
        std::memcpy(first_, filled.data(), n_bytes);
        image_.assign(first_, first_ + n_bytes);
    }

    const char *const name;
    const Dtype dtype;
    const Dimensions dims;

    float *floats() { return reinterpret_cast<float *>(first_); }
    void set(std::int64_t i, float value) {
        for (char *const at : {first_, image_.data()}) {
            std::memcpy(at + i * bytes_, &value, sizeof(value));
        }
    }
    void set_row(std::int64_t i, std::int32_t row) { set(i, std::bit_cast<float>(row)); }
    std::int64_t n_elements() const { return static_cast<std::int64_t>(image_.size()) / bytes_; }

    /// What a kernel reads of it, or of the image.
    halyard_buffer *buffer(bool is_image) {
        header_.host = reinterpret_cast<std::uint8_t *>(is_image ? image_.data() : first_);
        header_.dim = dimensions_;
        for (std::size_t i = 0; i < dims.size(); i++) {
            dimensions_[i] = {0, static_cast<std::int32_t>(dims[i].extent), static_cast<std::int32_t>(dims[i].stride),
                              0};
        }
        return &header_;
    }

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
    halyard_buffer header_ = {};
    halyard_dimension dimensions_[4] = {};
};

/// A random call of a stage. (Numbers that are drawn are no arguments of one call together: compilers take these in any
/// order, and calls are to be the same on all machines.)
class StageTrial {
public:
    std::vector<std::unique_ptr<Operand>> operands;

    StageTrial(const StageRow &row, Random &random) : row_(row), random_(random) {
        switch (row.stage) {
        case Stage::quantise: draw_quantise(); break;
        case Stage::store_groups:
        case Stage::load_groups: draw_groups(); break;
        case Stage::hadamard:
        case Stage::butterfly: draw_transform(); break;
        case Stage::norm_rotate: draw_norm_rotate(); break;
        default: draw();
        }
    }
    StageTrial(const StageTrial &) = delete;
    StageTrial &operator=(const StageTrial &) = delete;

    /// Calls a kernel on the operands, or on their images.
    void run_by(const halyard::StageKernels &kernels, bool on_images) {
        const std::size_t i = halyard::index_of(row_.dtype);
        halyard_buffer *b[7] = {};
        std::transform(operands.begin(), operands.end(), b, [&](const auto &operand) {
            return operand->buffer(on_images);
        });
        switch (row_.stage) {
        case Stage::widen: kernels.widen[i](b[0], b[last_]); break;
        case Stage::norm: kernels.norm[i](b[1], eps_, mode_, b[0], b[last_]); break;
        case Stage::widen_norm: kernels.widen_norm[i](b[1], eps_, mode_, b[0], b[last_]); break;
        case Stage::layer_norm: kernels.layer_norm[i](b[1], eps_, mode_, b[2], b[0], b[last_]); break;
        case Stage::norm_rotate: kernels.norm_rotate[i](b[1], eps_, b[2], b[3], b[4], sign_, b[0], b[last_]); break;
        case Stage::narrow: kernels.narrow[i](b[0], b[1], b[last_]); break;
        case Stage::quantise: kernels.quantise[i](mode_, low_, high_, b[0], b[1], b[2], b[3]); break;
        case Stage::store_groups: kernels.store_groups[i](mode_, away_, b[0], b[1], b[2], b[3]); break;
        case Stage::load_groups: kernels.load_groups[i](b[0], b[1], b[2]); break;
        case Stage::largest: kernels.largest[i](b[0], b[1]); break;
        case Stage::range: kernels.range[i](b[0], b[1], b[2]); break;
        case Stage::hadamard: kernels.hadamard[i](scale_, b[0], b[last_]); break;
        case Stage::butterfly: kernels.butterfly[i](b[0], b[last_]); break;
        }
    }

    /// Whether an operand holds anything of use after a call: groups do not where a scale overflows.
    bool is_of_use(const Operand &operand) const {
        constexpr float overflow = 127.0f * 65504.0f;
        if (row_.stage != Stage::store_groups) {
            return true;
        }
        const bool is_output = &operand == operands[1].get() || &operand == operands[2].get();
        return !is_output || *operands[3]->floats() < overflow;
    }

    std::string text() const {
        std::string all;
        for (const auto &operand : operands) {
            all += operand->name;
            for (const Dimension &dim : operand->dims) {
                all += ' ' + std::to_string(dim.extent) + " by " + std::to_string(dim.stride);
            }
            all += "; ";
        }
        return all + "mode " + std::to_string(mode_) + ", eps " + std::to_string(eps_) +
               ", " + std::to_string(low_) + " to " + std::to_string(high_) + (away_ != 0 ? ", away" : "");
    }

private:
    const StageRow row_;
    Random &random_;
    std::size_t last_ = 0;   // the operand that is y; 0 where that is x
    std::int32_t mode_ = 0;  // or rounding, or reciprocal
    std::int32_t away_ = 0;
    std::uint32_t sign_ = 0;
    float eps_ = 0, low_ = 0, high_ = 0, scale_ = 1;

    Operand &add(const char *name, Dtype dtype, const Dimensions &dims, Values values) {
        operands.push_back(std::make_unique<Operand>(random_, name, dtype, dims, values));
        return *operands.back();
    }
    /// y, or x in its place.
    void add_output(bool in_place, Dtype dtype, const Dimensions &dims) {
        if (!in_place) {
            last_ = operands.size();
            add("y", dtype, dims, Values::any_bits);
        }
    }
    Values any_values() {
        static constexpr Values all[] = {Values::ordinary, Values::any_bits, Values::special, Values::short_mantissa};
        return random_.one_of(all);
    }
    std::int64_t gap() { return random_.one_in(2) ? 0 : random_.in(1, 5); }

    struct Extents {
        std::int64_t elements, heads, tokens;
    };
    Extents draw_extents() {
        static constexpr std::int64_t usual[] = {64, 80, 96, 128, 192, 256, 512};
        Extents extents = {};
        extents.elements = random_.one_in(3) ? random_.one_of(usual) : random_.in(1, 70);
        extents.heads = random_.one_in(8) ? random_.in(30, 70) : random_.in(1, 10);
        extents.tokens = random_.in(1, extents.heads > 10 ? 2 : 5);
        return random_.one_in(40) ? Extents{random_.in(2000, 2200), 2, 1} : extents;
    }
    /// Heads one after the other with gaps or without, or tokens inside of heads.
    Dimensions spread(const Extents &extents) {
        const std::int64_t between = gap(), head = extents.elements + between;
        return random_.one_in(4) ? Dimensions{{extents.elements, 1},
                                              {extents.heads, extents.tokens * head + between},
                                              {extents.tokens, head}}
                                 : Dimensions{{extents.elements, 1},
                                              {extents.heads, head},
                                              {extents.tokens, extents.heads * head + between}};
    }
    /// Numbers of which some are one: of all elements, heads or tokens.
    Dimensions spread_numbers(const Extents &extents) {
        Dimensions dims = spread(extents);
        const bool is_one = random_.one_in(2), is_apart = random_.one_in(6);
        for (Dimension &dim : dims) {
            dim.stride = is_one || random_.one_in(2) ? 0 : is_apart ? 3 * dim.stride : dim.stride;
        }
        return dims;
    }

    void draw() {
        const bool is_norm = row_.is_one_of({Stage::norm, Stage::widen_norm, Stage::layer_norm});
        const bool reduces = row_.is_one_of({Stage::largest, Stage::range});
        const bool widens = row_.is_one_of({Stage::widen, Stage::widen_norm});
        const Extents extents = draw_extents();
        const Dimensions of_x = spread(extents);
        add("x", widens ? row_.dtype : Dtype::f32, of_x, any_values());
        if (is_norm) {
            draw_norm(extents);
            const bool in_place = row_.stage != Stage::widen_norm && random_.one_in(2);
            add_output(in_place, Dtype::f32, spread(extents));
        } else if (reduces) {
            for (const char *const name : {"least", "greatest"}) {
                add(name, Dtype::f32, {{extents.heads, 1}, {extents.tokens, extents.heads}}, Values::any_bits);
            }
        } else {
            if (row_.stage == Stage::narrow) {
                const Dimensions of_r = spread_numbers(extents);
                add("r", Dtype::f32, of_r, random_.one_in(2) ? Values::ordinary : any_values());
            }
            add_output(false, widens ? Dtype::f32 : row_.dtype, spread(extents));
        }
    }

    void draw_norm(const Extents &extents) {
        eps_ = random_.one_in(2) ? 1e-6f : 0.0f;
        mode_ = static_cast<std::int32_t>(random_.in(0, 3));
        const Dimensions of_weights = {{extents.elements, 1},
                                       {extents.heads, random_.one_in(2) ? 0 : extents.elements + random_.in(0, 3)}};
        add("weight", Dtype::f32, of_weights, Values::ordinary);
        if (row_.stage == Stage::layer_norm) {
            add("bias", Dtype::f32, of_weights, Values::ordinary);
        }
    }

    void draw_norm_rotate() {
        const Extents extents = draw_extents();
        const std::int64_t pairs = (extents.elements + 31) / 32 * 16, n_rows = extents.tokens + 2;
        const auto spread_pairs = [&] {
            const Dimensions heads = spread({2 * pairs, extents.heads, extents.tokens});
            return Dimensions{{pairs, 1}, {2, pairs}, heads[1], heads[2]};
        };
        eps_ = random_.one_in(2) ? 1e-6f : 0.0f;
        sign_ = random_.one_in(2) ? 0x80000000u : 0;
        const Dimensions of_x = spread_pairs();
        add("x", row_.dtype, of_x, any_values());
        add("weight", Dtype::f32, {{pairs, 1}, {2, pairs}}, Values::ordinary);
        Operand &row_of_token = add("row_of_token", Dtype::f32, {{extents.tokens, 1}}, Values::ordinary);
        for (std::int64_t token = 0; token < extents.tokens; token++) {
            row_of_token.set_row(token, static_cast<std::int32_t>(random_.in(0, n_rows - 1)));
        }
        const Dimensions of_rows = {{pairs, 1}, {n_rows, pairs + random_.in(0, 3)}};
        const Values values = random_.one_in(2) ? Values::ordinary : any_values();
        add("cos", Dtype::f32, of_rows, values);
        add("sin", Dtype::f32, of_rows, values);
        const bool in_place = random_.one_in(2);
        add_output(in_place, row_.dtype, spread_pairs());
    }

    void draw_transform() {
        const bool in_place = random_.one_in(2);
        Dimensions dims = {{64, 1}, {random_.in(1, 40), 64}};
        if (row_.stage == Stage::butterfly) {
            const std::int64_t distance = std::int64_t{1} << random_.in(0, 10);
            dims = {{distance, 1}, {2, distance}, {random_.in(1, 3), 2 * distance}};
        } else {
            scale_ = random_.one_in(2) ? 0.125f : 0.01f + static_cast<float>(std::fabs(random_.unit()));
        }
        add("x", Dtype::f32, dims, any_values());
        add_output(in_place, Dtype::f32, dims);
    }

    void draw_quantise() {
        static constexpr std::int64_t groups[] = {16, 32, 64, 128};
        static constexpr float ends[][2] = {{-127, 127}, {-128, 127}, {-7, 7}, {0, 15}, {0, 255}, {-32768, 65536}};
        Extents extents = draw_extents();
        extents.elements = random_.one_in(2) ? random_.one_of(groups) : extents.elements;
        mode_ = static_cast<std::int32_t>(random_.in(0, 2));
        const auto &end = ends[random_.in(0, 5)];
        low_ = end[0];
        high_ = end[1];
        const Dimensions of_groups = {{extents.heads, 1}, {extents.tokens, extents.heads}};
        const Dimensions of_x = spread(extents);
        Operand &x = add("x", Dtype::f32, of_x, any_values());
        Operand &r = add("r", Dtype::f32, of_groups, Values::ordinary);
        const bool has_zeros = !random_.one_in(3);
        Operand &z = add("z", Dtype::f32, has_zeros ? of_groups : Dimensions{{extents.heads, 0}, {extents.tokens, 0}},
                         Values::ordinary);
        fill_with_finite(r, random_.one_in(2) ? 127.0f : 1.0f);
        fill_with_finite(z, high_);
        put_ties(extents, r.floats(), has_zeros ? z.floats() : nullptr, x);
        const std::int64_t of_token = extents.elements * extents.heads;
        add("y", Dtype::int8, {{extents.elements, 1}, {extents.heads, extents.elements}, {extents.tokens, of_token}},
            Values::any_bits);
    }

    /// Reciprocals or zero points: finite ones of any size, and zeros. Most are such that results are within the ends.
    void fill_with_finite(Operand &operand, float usual) {
        static constexpr float hard[] = {0.0f, -0.0f, 0x1p-149f, 0x1.fffffep127f, -0x1.fffffep127f, 8.5f, 0.5f, 1.0f};
        for (std::int64_t i = 0; i < operand.n_elements(); i++) {
            operand.set(i, random_.one_in(8) ? random_.one_of(hard) : static_cast<float>(random_.unit()) * usual);
        }
    }

    /// Puts halves between integers, and their neighbours, where an operand has elements of some heads.
    void put_ties(const Extents &extents, const float *r, const float *z, Operand &x) {
        for (std::int64_t i = 0; i < extents.tokens * extents.heads * extents.elements; i++) {
            const std::int64_t e = i % extents.elements, group = i / extents.elements;
            const std::int64_t h = group % extents.heads, t = group / extents.heads;
            const auto half = static_cast<float>(random_.in(-140, 270)) + 0.5f;
            const float tie = (half - (z == nullptr ? 0.0f : z[group])) / r[group];
            if (random_.one_in(4) && std::isfinite(tie)) {
                const float infinity = random_.one_in(2) ? INFINITY : -INFINITY;
                x.set(e + h * x.dims[1].stride + t * x.dims[2].stride,
                      random_.one_in(2) ? tie : std::nextafter(tie, infinity));
            }
        }
    }

    void draw_groups() {
        const bool stores = row_.stage == Stage::store_groups, any = random_.one_in(8);
        const std::int64_t n_groups = random_.in(1, 8), n_heads = random_.in(1, 256 / n_groups);
        const auto spread_groups = [&](std::int64_t least) {
            const std::int64_t group = least + gap(), head = n_groups * group + gap();
            return Dimensions{{n_groups, group}, {n_heads, head}};
        };
        const auto of_elements = [&] {
            const Dimensions groups = spread_groups(q8_group);
            return Dimensions{{q8_group, 1}, groups[0], groups[1]};
        };
        mode_ = static_cast<std::int32_t>(random_.in(0, 2));
        away_ = random_.one_in(2) ? 1 : 0;
        if (stores) {
            Operand &floats = add("x", Dtype::f32, {{q8_group, 1}, {n_groups * n_heads, q8_group}},
                                  any ? any_values() : Values::short_mantissa);
            if (!any) {
                fill_with_groups(floats, n_groups * n_heads);
            }
            add("y", Dtype::int8, of_elements(), Values::any_bits);
            add("scales", Dtype::f16, spread_groups(1), Values::any_bits);
            add("largest", Dtype::f32, {}, Values::any_bits);
        } else {
            add("x", Dtype::int8, of_elements(), Values::any_bits);
            const Dimensions of_scales = spread_groups(1);
            add("scales", Dtype::f16, of_scales, any_values());
            add("y", Dtype::f32, {{q8_group, 1}, {n_groups, q8_group}, {n_heads, q8_group * n_groups}},
                Values::any_bits);
        }
    }

    /// Groups of zeros, subnormal numbers, halves between integers, and now and then a scale that just overflows.
    void fill_with_groups(Operand &floats, std::int64_t n_groups) {
        for (std::int64_t i = 0; i < n_groups; i++) {
            static constexpr float sizes[] = {0.0f, 0x1p-149f, 0x1p-130f, 0x1p-20f, 1.0f, 8319007.5f};
            const float size = random_.one_in(500) ? 8319008.0f : random_.one_of(sizes);
            const bool has_ties = random_.one_in(2);
            for (std::int64_t e = 0; e < q8_group; e++) {
                const double part =
                    has_ties ? static_cast<double>(random_.in(-254, 254)) / 254 : 2 * random_.unit() - 1;
                floats.set(i * q8_group + e, e == 3 ? -size : static_cast<float>(part * double{size}));
            }
        }
    }

    static constexpr std::int64_t q8_group = 32;
};
