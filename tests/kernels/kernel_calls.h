// The list of kernels, and random calls of any: their operands in guarded memory, and images of these.
#pragma once

#include "checks/guarded_memory.h"
#include "checks/make_sources.h"
#include "checks/model.h"
#include "checks/oracle.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

using halyard::Dtype;
using halyard::Pairing;
using halyard::Place;
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
    butterfly,
    rows_phase,
    rotate
};

/// A row of kernels.inc for one target.
struct KernelRow {
    std::string name;  // without the target
    Stage stage;
    Dtype dtype;
    halyard::Target target;
    bool (*is_in)(const halyard::StageKernels &kernels) = nullptr;  // of stages
    halyard::Kernel rotation = {};

    bool is_one_of(std::initializer_list<Stage> stages) const {
        return std::find(stages.begin(), stages.end(), stage) != stages.end();
    }
};

inline const KernelRow stage_rows[] = {
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target)                                                               \
    {"halyard_" #stage "_" #dtype, Stage::stage, Dtype::dtype, halyard::Target::target,                                \
     [](const halyard::StageKernels &kernels) { return kernels.stage[halyard::index_of(Dtype::dtype)] != nullptr; }},
#include "built_kernels.inc"
};

inline KernelRow row_of(const halyard::Kernel &rotation) {
    const std::string name = rotation.name, target = halyard::name_of(rotation.target);
    return {name.substr(0, name.size() - target.size() - 1), Stage::rotate, rotation.dtype, rotation.target, nullptr,
            rotation};
}

/// All kernels that were built.
inline std::vector<KernelRow> kernel_rows() {
    std::vector<KernelRow> rows(std::begin(stage_rows), std::end(stage_rows));
    for (const halyard::Kernel &rotation : halyard::kernels()) {
        if (rotation.function != nullptr) {
            rows.push_back(row_of(rotation));
        }
    }
    for (std::int32_t i = 0; i < halyard::n_targets; i++) {
        if (halyard::select_row_kernels(halyard::bit(halyard::Target(i))).phase != nullptr) {
            rows.push_back({"halyard_rows_phase", Stage::rows_phase, Dtype::f32, halyard::Target(i)});
        }
    }
    return rows;
}

/// Where calls go: to the model, or to what replaces a part of it.
struct Called {
    halyard::StageKernels stages = model::stage_kernels;
    halyard_rows_phase_kernel *rows_phase = model::rows_phase;
    halyard_rotate_kernel *rotate = nullptr;  // NULL: the model's
    bool packed = false;

    Called() = default;
    /// To a kernel of this machine.
    explicit Called(const KernelRow &row) : rotate(row.rotation.function), packed(row.rotation.packed) {
        const halyard::StageKernels *const found = halyard::find_stage_kernels(halyard::bit(row.target));
        stages = found == nullptr ? stages : *found;
        rows_phase = row.stage == Stage::rows_phase ? halyard::select_row_kernels(halyard::bit(row.target)).phase
                                                    : rows_phase;
    }
};

/// A dimension of an operand, whose strides are in its elements.
struct Dimension {
    std::int64_t extent, stride;
};
using Dimensions = std::vector<Dimension>;

/// Where an operand lies: at either end of its memory, or also a few bytes from there, or at a multiple of 64.
enum class Alignment { element, byte, line };

/// An operand in guarded memory, and an image of what that memory ought to hold: what it held, until somebody writes
/// there. Strides may be negative.
class Operand {
public:
    Operand(Random &random, const char *with_name, Dtype type, const Dimensions &dimensions, Values values,
            Alignment alignment = Alignment::element)
        : name(with_name), dtype(type), dims(dimensions), bytes_(halyard::element_bytes(type)) {
        std::int64_t below = 0, above = 1;
        for (const Dimension &dim : dims) {
            const std::int64_t reach = (dim.extent - 1) * dim.stride;
            (reach < 0 ? below : above) += std::abs(reach);
        }
        n_bytes_ = static_cast<std::size_t>((below + above) * bytes_);
        memory_ = std::make_unique<GuardedMemory>((n_bytes_ + 63) / GuardedMemory::page + 1);
        first_ = random.one_in(4) ? memory_->begin() : memory_->end() - n_bytes_;
        if (alignment == Alignment::byte && random.one_in(2)) {
            const std::int64_t shift = random.in(0, 63);
            first_ += first_ == memory_->begin() ? shift : -shift;
        }
        first_element_ = first_ + below * bytes_;
        if (alignment == Alignment::line) {
            const auto above_a_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(first_element_) % 64);
            const std::int64_t shift = first_ == memory_->begin() ? (64 - above_a_line) % 64 : -above_a_line;
            first_ += shift;
            first_element_ += shift;
        }
        const std::vector<char> filled =
            oracle::random_elements(random, static_cast<std::int32_t>(std::min(type, Dtype::bf16)), values,
                                    static_cast<std::int64_t>(n_bytes_) / std::min<std::int64_t>(bytes_, 2) + 1);
        std::memcpy(first_, filled.data(), n_bytes_);
        image_.assign(memory_->begin(), memory_->end());
    }

    const char *const name;
    const Dtype dtype;
    const Dimensions dims;

    /// The first of its elements, all of whose indices are 0.
    float *floats() { return reinterpret_cast<float *>(first_element_); }
    void set(std::int64_t i, float value) {
        for (char *const at : {first_element_, image_of(first_element_)}) {
            std::memcpy(at + i * bytes_, &value, sizeof(value));
        }
    }
    void set_integer(std::int64_t i, std::uint32_t integer) { set(i, std::bit_cast<float>(integer)); }
    std::int64_t n_elements() const { return static_cast<std::int64_t>(n_bytes_) / bytes_; }

    /// What a kernel reads of it, or of the image.
    halyard_buffer *buffer(bool is_image) {
        header_.host = reinterpret_cast<std::uint8_t *>(is_image ? image_of(first_element_) : first_element_);
        header_.dim = dimensions_;
        for (std::size_t i = 0; i < dims.size(); i++) {
            dimensions_[i] = {0, static_cast<std::int32_t>(dims[i].extent), static_cast<std::int32_t>(dims[i].stride),
                              0};
        }
        return &header_;
    }

    /// Calls see(word, what it ought to be) for each element, and for gaps between them.
    template <typename See>
    void for_each_element(See see) {
        const auto type = static_cast<std::int32_t>(dtype);
        for (char *at = first_; at < first_ + n_bytes_; at += bytes_) {
            see(oracle::read_word(type, at), oracle::read_word(type, image_of(at)));
        }
    }
    /// Whether the memory around it is as it was.
    bool is_alone() {
        char *const begin = memory_->begin(), *const last = first_ + n_bytes_;
        return std::memcmp(begin, image_of(begin), static_cast<std::size_t>(first_ - begin)) == 0 &&
               std::memcmp(last, image_of(last), static_cast<std::size_t>(memory_->end() - last)) == 0;
    }

private:
    std::int64_t bytes_;
    std::unique_ptr<GuardedMemory> memory_;
    std::size_t n_bytes_ = 0;
    char *first_, *first_element_;
    std::vector<char> image_;
    halyard_buffer header_ = {};
    halyard_dimension dimensions_[4] = {};

    char *image_of(const char *at) { return image_.data() + (at - memory_->begin()); }
};

/// A position of any size, often an end of the range.
inline std::int32_t random_position(Random &random) {
    static constexpr std::int32_t special[] = {0, 1, -1, 2, least_position, least_position + 1, greatest_position};
    return random.one_in(3) ? random.one_of(special)
                            : static_cast<std::int32_t>(static_cast<std::int64_t>(random.bits()) >> random.in(32, 62));
}

/// A random call of a kernel, the n-th of it. (Numbers that are drawn are no arguments of one call together: compilers
/// take these in any order, and calls are to be the same on all machines.)
class Trial {
public:
    std::vector<std::unique_ptr<Operand>> operands;

    Trial(const KernelRow &row, Random &random, std::int64_t n) : row_(row), random_(random) {
        switch (row.stage) {
        case Stage::quantise: draw_quantise(); break;
        case Stage::store_groups:
        case Stage::load_groups: draw_groups(); break;
        case Stage::hadamard:
        case Stage::butterfly: draw_transform(); break;
        case Stage::norm_rotate: draw_norm_rotate(); break;
        case Stage::rows_phase: draw_rows_phase(); break;
        case Stage::rotate: draw_rotation(n); break;
        default: draw();
        }
    }
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;

    /// Calls a kernel on the operands, or on their images.
    void run_by(const Called &called, bool on_images) {
        const halyard::StageKernels &kernels = called.stages;
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
        case Stage::rows_phase: called.rows_phase(b[0], b[1], b[2], high_, low_, b[3]); break;
        case Stage::rotate:
            if (called.packed) {
                pack(b[0], row_.rotation.pairing);
                if (last_ != 0) {
                    pack(b[last_], row_.rotation.out_pairing);
                }
            }
            (called.rotate == nullptr ? model::rotations[i] : called.rotate)(b[1], b[2], b[3], sign_, b[0], b[last_]);
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
    const KernelRow row_;
    Random &random_;
    std::size_t last_ = 0;   // the operand that is y; 0 where that is x
    std::int32_t mode_ = 0;  // or rounding, or reciprocal
    std::int32_t away_ = 0;
    std::uint32_t sign_ = 0;
    float eps_ = 0, low_ = 0, high_ = 0, scale_ = 1;

    Operand &add(const char *name, Dtype dtype, const Dimensions &dims, Values values,
                 Alignment alignment = Alignment::element) {
        operands.push_back(std::make_unique<Operand>(random_, name, dtype, dims, values, alignment));
        return *operands.back();
    }
    /// y, or x in its place.
    void add_output(bool in_place, Dtype dtype, const Dimensions &dims, Alignment alignment = Alignment::element) {
        if (!in_place) {
            last_ = operands.size();
            add("y", dtype, dims, Values::any_bits, alignment);
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
        add_rows(pairs, n_rows, extents.tokens, Alignment::element);
        const bool in_place = random_.one_in(2);
        add_output(in_place, row_.dtype, spread_pairs());
    }

    /// Rows of cos and sin, and which of them each token has.
    void add_rows(std::int64_t n_pairs, std::int64_t n_rows, std::int64_t n_tokens, Alignment alignment) {
        Operand &row_of_token = add("row_of_token", Dtype::f32, {{n_tokens, 1}}, Values::ordinary);
        for (std::int64_t token = 0; token < n_tokens; token++) {
            row_of_token.set_integer(token, static_cast<std::uint32_t>(random_.in(0, n_rows - 1)));
        }
        const Dimensions of_rows = {{n_pairs, 1}, {n_rows, n_pairs + random_.in(0, 3)}};
        const Values values = random_.one_in(2) ? Values::ordinary : any_values();
        add("cos", Dtype::f32, of_rows, values, alignment);
        add("sin", Dtype::f32, of_rows, values, alignment);
    }

    /// Of up to 97 pairs, and two more counts for which kernels are specialised.
    void draw_rotation(std::int64_t n) {
        const halyard::Kernel &kernel = row_.rotation;
        const bool in_place = kernel.place == Place::in_place, on_lines = kernel.place == Place::non_temporal;
        const std::int64_t of_line = 64 / halyard::element_bytes(row_.dtype);
        std::int64_t n_pairs = n % 99 == 97 ? 128 : n % 99 == 98 ? 256 : n % 99 + 1;
        if (kernel.out_pairing == Pairing::half && (on_lines || kernel.packed)) {
            n_pairs = round_up(n_pairs, on_lines ? of_line : 2);  // where the second members begin
        }
        const std::int64_t n_heads = random_.in(1, 5), n_tokens = random_.in(1, 9), n_rows = random_.in(1, 12);
        sign_ = random_.one_in(2) ? 0x80000000u : 0;
        const std::int64_t multiple = kernel.packed ? 2 : 1;
        Dimensions of_x = draw_side(kernel.pairing, n_pairs, n_heads, n_tokens, multiple);
        if (!in_place && random_.one_in(12)) {
            of_x[static_cast<std::size_t>(random_.in(2, 3))].stride = 0;  // an input may be broadcast
        }
        add("x", row_.dtype, of_x, any_values(), Alignment::byte);
        add_rows(n_pairs, n_rows, n_tokens, Alignment::byte);
        const Dimensions of_y =
            draw_side(kernel.out_pairing, n_pairs, n_heads, n_tokens, on_lines ? of_line : multiple);
        add_output(in_place, row_.dtype, of_y, on_lines ? Alignment::line : Alignment::byte);
    }

    static std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
        return (n + multiple - 1) / multiple * multiple;
    }
    /// Pairs, members, heads and tokens: the last two in any order, with gaps and either sign, and the elements of a
    /// head too where they need not be neighbours.
    Dimensions draw_side(std::optional<Pairing> pairing, std::int64_t n_pairs, std::int64_t n_heads,
                         std::int64_t n_tokens, std::int64_t multiple) {
        const std::int64_t extents[] = {2 * n_pairs, n_heads, n_tokens};
        std::int64_t strides[3] = {}, reach = 1;
        int order[] = {0, 1, 2};  // innermost first
        for (int i = 2; i > 0; i--) {
            std::swap(order[i], order[random_.in(pairing ? 1 : 0, i)]);
        }
        for (const int d : order) {
            const std::int64_t between = gap();
            strides[d] = d == 0 && pairing ? 1 : round_up(reach + between, multiple);
            reach += strides[d] * (extents[d] - 1);
            strides[d] *= (d != 0 || !pairing) && random_.one_in(4) ? -1 : 1;
        }
        const bool is_half = pairing ? pairing == Pairing::half : random_.one_in(2);
        const std::int64_t element = strides[0];
        return {{n_pairs, is_half ? element : 2 * element},
                {2, is_half ? n_pairs * element : element},
                {n_heads, strides[1]},
                {n_tokens, strides[2]}};
    }

    /// To a packed kernel an element is two.
    static void pack(halyard_buffer *side, std::optional<Pairing> pairing) {
        if (pairing == Pairing::half) {
            side->dim[0].extent /= 2;
            side->dim[1].stride /= 2;
        } else {
            side->dim[0].stride = side->dim[1].extent = 1;
        }
        side->dim[2].stride /= 2;
        side->dim[3].stride /= 2;
    }

    void draw_rows_phase() {
        static constexpr std::int64_t long_rows[] = {128, 288, 1000, 2048, 5000};
        const std::int64_t n_pairs = random_.one_in(8) ? random_.one_of(long_rows) : random_.in(1, 97);
        const std::int64_t n_tokens = random_.in(1, n_pairs > 500 ? 3 : 7);
        const double factor = random_.one_of(attention_factors);
        high_ = static_cast<float>(factor);
        low_ = static_cast<float>(factor - high_);
        Operand &position = add("position", Dtype::f32, {{n_tokens, 1}}, Values::ordinary);
        for (std::int64_t token = 0; token < n_tokens; token++) {
            position.set_integer(token, static_cast<std::uint32_t>(random_position(random_)));
        }
        Operand &turns_high = add("turns_high", Dtype::f32, {{n_pairs, 1}}, Values::ordinary);
        Operand &turns_low = add("turns_low", Dtype::f32, {{n_pairs, 1}}, Values::ordinary);
        for (std::int64_t k = 0; k < n_pairs; k++) {
            // For half of them position 1 or -1 comes near a border of octants.
            std::uint64_t turns = random_.bits();
            if (random_.one_in(2)) {
                const auto off = static_cast<std::int64_t>(random_.bits()) >> random_.in(3, 40);
                turns = (turns << 61) + static_cast<std::uint64_t>(off);
            }
            turns_high.set_integer(k, static_cast<std::uint32_t>(turns >> 32));
            turns_low.set_integer(k, static_cast<std::uint32_t>(turns));
        }
        const std::int64_t row = n_pairs + gap();
        Dimensions of_rows = {{n_pairs, 1}, {2, row}, {n_tokens, 2 * row + gap()}};
        if (random_.one_in(4)) {  // all cos, then all sin
            of_rows = {{n_pairs, 1}, {2, n_tokens * row + gap()}, {n_tokens, row}};
        }
        add("rows", Dtype::f32, of_rows, Values::any_bits);
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
