// Checks a kernel against the model: both get the same random calls, with operands in guarded memory, in a child
// process, until their results differ or the kernel crashes.
#pragma once

#include "checks/cases/memory.h"
#include "checks/kernel_model.h"
#include "checks/make_sources.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <bit>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <deque>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

using halyard::Dtype;
using halyard::Pairing;
using halyard::Place;
using oracle::Random;
using oracle::Values;

/// The arguments of a kernel: its arrays and its numbers, each in the order of the parameters (core/kernel_abi.h).
struct Arguments {
    std::vector<halyard_buffer *> buffers;
    std::vector<double> numbers;
};
using Caller = std::function<void(const Arguments &)>;

template <typename... Parameters>
Caller caller_of(int (*kernel)(Parameters...)) {
    return [kernel](const Arguments &arguments) {
        auto buffer = arguments.buffers.begin();
        auto number = arguments.numbers.begin();
        const auto next = [&]<typename T>(std::type_identity<T>) {
            if constexpr (std::is_pointer_v<T>) {
                return *buffer++;
            } else {
                return static_cast<T>(*number++);
            }
        };
        std::apply(kernel, std::tuple<Parameters...>{next(std::type_identity<Parameters>())...});
    };
}

/// A kernel of this build, and the model's function for its stage and dtype.
struct KernelRow {
    std::string name, stage;
    Dtype dtype;
    halyard::Target target;
    Caller kernel, model;
    halyard::Kernel rotation = {};

    bool is_here() const { return (halyard::supported_targets() & halyard::bit(target)) != 0; }
};

extern "C" {
#define HALYARD_ROW_KERNEL(name, target) halyard_rows_phase_kernel name;
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target) halyard_##stage##_kernel name;
#include "built_kernels.inc"
}

/// All kernels of this build.
inline std::vector<KernelRow> all_built_kernels() {
    std::vector<KernelRow> rows = {
#define HALYARD_ROW_KERNEL(name, target)                                                                               \
    {#name, "rows_phase", Dtype::f32, halyard::Target::target, caller_of(name), caller_of(model::rows_phase)},
#define HALYARD_STAGE_KERNEL(name, stage, dtype, target)                                                               \
    {#name,           #stage,                                                                                          \
     Dtype::dtype,    halyard::Target::target,                                                                         \
     caller_of(name), caller_of(model::stage_kernels.stage[halyard::index_of(Dtype::dtype)])},
#include "built_kernels.inc"
    };
    for (const halyard::Kernel &rotation : halyard::kernels()) {
        if (rotation.function != nullptr) {
            rows.push_back({rotation.name, "rotate", rotation.dtype, rotation.target, caller_of(rotation.function),
                            caller_of(model::rotations[halyard::index_of(rotation.dtype)]), rotation});
        }
    }
    return rows;
}

/// The sizes and strides of an operand, in elements. Strides may be negative.
using Dimensions = std::vector<cases::Array::Dimension>;

/// An operand of a call. words(i) gives the initial word at index i. Indices begin at the lowest address and include
/// gaps.
struct Operand : cases::Array {
    using Words = std::function<std::uint32_t(std::int64_t)>;

    const char *name;
    std::int32_t dtype;
    Words words;

    const void *lowest() const { return static_cast<const char *>(first) + static_cast<std::int64_t>(extent().low); }
    /// Calls function(i, at) for each word of the operand's extent, gaps included. `begin` is the extent's first word,
    /// in memory or in a copy.
    template <typename Function>
    void for_each_word(char *begin, Function function) const {
        const auto n = static_cast<std::int64_t>((extent().high - extent().low) / bytes);
        for (std::int64_t i = 0; i < n; i++) {
            function(i, begin + i * bytes);
        }
    }
};

/// The n-th random call of a kernel. It must be the same on all machines. So draw no two random numbers in one list of
/// C++ arguments, which compilers evaluate in any order.
class Trial {
public:
    Trial(const KernelRow &row, Random &random, std::int64_t n) : row_(row), random_(random), n_(n) {
        static const std::map<std::string, void (Trial::*)()> draws = {
            {"rotate", &Trial::draw_rotation_arguments},       {"norm_rotate", &Trial::draw_rotation_arguments},
            {"rows_phase", &Trial::draw_rows_phase_arguments}, {"hadamard", &Trial::draw_transform_arguments},
            {"butterfly", &Trial::draw_transform_arguments},   {"quantise", &Trial::draw_quantise_arguments},
            {"store_groups", &Trial::draw_groups_arguments},   {"load_groups", &Trial::draw_groups_arguments}};
        const auto draw = draws.find(row.stage);
        (this->*(draw == draws.end() ? &Trial::draw_heads_arguments : draw->second))();
        memory_.allocate_and_fill(random);
        before_ = memory_.image();
        for (const Operand &operand : operands_) {
            operand.for_each_word(memory_.address_in(before_, operand.lowest()), [&](std::int64_t i, char *at) {
                oracle::write_word(operand.dtype, at, operand.words(i));
            });
        }
    }
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;

    /// Restores the operands and runs a kernel or the model. Returns a copy of all memory, in which all NaN are equal.
    /// If a scale overflows, the output of store_groups is undefined, so the copy leaves that output out.
    cases::Images run(const Caller &kernel, bool is_packed) {
        halyard_buffer buffers[6] = {};
        halyard_dimension dims[6][4] = {};
        Arguments arguments = {{}, numbers_};
        for (std::size_t i = 0; i < parameters_.size(); i++) {
            for (std::size_t d = 0; d < 4; d++) {
                dims[i][d].extent = static_cast<std::int32_t>(parameters_[i]->dimensions[d].count);
                dims[i][d].stride = static_cast<std::int32_t>(parameters_[i]->dimensions[d].stride);
            }
            buffers[i].host = static_cast<std::uint8_t *>(const_cast<void *>(parameters_[i]->first));
            buffers[i].dim = dims[i];
            arguments.buffers.push_back(&buffers[i]);
        }
        if (is_packed) {
            pack(buffers[3], row_.rotation.pairing);
            pack(buffers[4], row_.rotation.out_pairing);
        }
        memory_.restore(before_);
        kernel(arguments);
        cases::Images after = memory_.image();
        for (const Operand &operand : operands_) {
            operand.for_each_word(memory_.address_in(after, operand.lowest()), [&](std::int64_t, char *at) {
                if (oracle::is_nan(operand.dtype, oracle::read_word(operand.dtype, at))) {
                    oracle::write_word(operand.dtype, at, 0xffffffffu);
                }
            });
        }
        if (row_.stage == "store_groups" && !(cases::read_real(HALYARD_F32, operands_[3].first) < 127.0f * 65504.0f)) {
            after[1] = after[2] = {};
        }
        return after;
    }

    /// Names the first difference between the results of two runs. Returns an empty string if there is none.
    std::string difference(cases::Images got, cases::Images want) const {
        for (std::size_t region = 0; region < got.size(); region++) {
            if (got[region] == want[region]) {
                continue;
            }
            const Operand &operand = operands_[region];
            const char *const should_be = memory_.address_in(want, operand.lowest());
            std::ostringstream what;
            operand.for_each_word(memory_.address_in(got, operand.lowest()), [&](std::int64_t i, const char *at) {
                const std::uint32_t is = oracle::read_word(operand.dtype, at),
                                    wanted = oracle::read_word(operand.dtype, should_be + i * operand.bytes);
                if (is != wanted && what.str().empty()) {
                    what << "element " << i << std::hex << " is " << is << ", but should be " << wanted;
                }
            });
            return operand.name + (": " + (what.str().empty() ? "memory around it is written" : what.str()));
        }
        return "";
    }

    std::string text() const {
        std::string all;
        for (const Operand &operand : operands_) {
            all += operand.name;
            for (const auto &dim : operand.dimensions) {
                all += dim.count != 0 ? ' ' + std::to_string(dim.count) + " by " + std::to_string(dim.stride) : "";
            }
            all += "; ";
        }
        for (const double number : numbers_) {
            all += std::to_string(number) + ' ';
        }
        return all;
    }

private:
    const KernelRow &row_;
    Random &random_;
    const std::int64_t n_;
    std::deque<Operand> operands_;  // each in a region of its own
    cases::Memory memory_;
    cases::Images before_;
    std::vector<const Operand *> parameters_;  // in the kernel's order; in place, x stands for y too
    std::vector<double> numbers_;

    /// Adds an operand in a region of its own, at a multiple of `step` bytes. If step is 1, the region may have up to 63
    /// more bytes on each side.
    void add(const char *name, Dtype dtype, const Dimensions &dims, Operand::Words words, std::int64_t step = 1) {
        Operand &operand = operands_.emplace_back(cases::Array{nullptr, halyard::element_bytes(dtype), {}}, name,
                                                  static_cast<std::int32_t>(dtype), words);
        std::copy(dims.begin(), dims.end(), operand.dimensions.begin());
        cases::Extent extent = operand.extent();
        const std::int64_t shift = step == 1 && random_.one_in(2) ? random_.in(0, 63) : 0;
        extent.low -= shift;
        memory_.add(operand.first, memory_.new_region(), extent, step, shift);
        parameters_.push_back(&operand);
    }
    void add(const char *name, Dtype dtype, const Dimensions &dims, Values values, std::int64_t step = 1) {
        const Values of_dtype = halyard::is_8_bit(dtype) ? Values::any_bits : values;
        const auto words = [this, dtype, of_dtype](std::int64_t) {
            return oracle::random_word(random_, static_cast<std::int32_t>(dtype), of_dtype);
        };
        add(name, dtype, dims, words, step);
    }
    /// Adds the output y. In place, that is the operand added last: x.
    void add_output(bool in_place, Dtype dtype, const Dimensions &dims, std::int64_t step = 1) {
        if (in_place) {
            parameters_.push_back(parameters_.back());
        } else {
            add("y", dtype, dims, Values::any_bits, step);
        }
    }
    static std::uint32_t word(double value) { return std::bit_cast<std::uint32_t>(static_cast<float>(value)); }
    double number(std::int64_t first, std::int64_t last) { return static_cast<double>(random_.in(first, last)); }
    Values any_values() {
        static constexpr Values all[] = {Values::ordinary, Values::any_bits, Values::special, Values::short_mantissa};
        return random_.one_of(all);
    }
    static std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
        return (n + multiple - 1) / multiple * multiple;
    }

    /// Random strides for dimensions of these sizes (elements, heads, tokens): dimensions in any order, with gaps and
    /// either sign. Dimension 0 has stride 1 if is_dense. Other strides are a multiple of `multiple`.
    Dimensions lay_out(const std::vector<std::int64_t> &extents, bool is_dense = true, std::int64_t multiple = 1) {
        Dimensions dims;
        std::vector<std::size_t> order;  // innermost first
        for (const std::int64_t extent : extents) {
            order.push_back(dims.size());
            dims.push_back({extent, 1});
        }
        for (std::size_t i = dims.size() - 1; i > 0; i--) {
            const std::int64_t with = random_.in(is_dense ? 1 : 0, static_cast<std::int64_t>(i));
            std::swap(order[i], order[static_cast<std::size_t>(with)]);
        }
        std::int64_t reach = 1;
        for (const std::size_t d : order) {
            const std::int64_t gap = random_.one_in(2) ? 0 : random_.in(1, 5);
            const bool is_free = d != 0 || !is_dense;
            const std::int64_t stride = is_free ? round_up(reach + gap, multiple) : 1;
            reach += stride * (dims[d].count - 1);
            dims[d].stride = is_free && random_.one_in(4) ? -stride : stride;
        }
        return dims;
    }
    /// Sets some strides of an input to 0 from dimension `first` on, so that elements, heads or tokens are shared.
    Dimensions zero_some_strides(Dimensions dims, std::size_t first) {
        for (std::size_t d = random_.one_in(3) ? first : dims.size(); d < dims.size(); d++) {
            dims[d].stride = random_.one_in(2) ? 0 : dims[d].stride;
        }
        return dims;
    }

    std::vector<std::int64_t> draw_shape() {
        static constexpr std::int64_t usual[] = {64, 80, 96, 128, 192, 256, 512};
        const std::int64_t n_elements =
            random_.one_in(3) ? random_.one_of(usual) : random_.in(1, random_.one_in(4) ? 3 : 70);
        const std::int64_t n_heads = random_.one_in(8) ? random_.in(30, 70) : random_.in(1, 10);
        const std::int64_t n_tokens = random_.in(1, n_heads > 10 ? 2 : 5);
        return random_.one_in(40) ? std::vector<std::int64_t>{random_.in(2000, 2200), 2, 1}
                                  : std::vector<std::int64_t>{n_elements, n_heads, n_tokens};
    }

    /// Draws norms, conversions (x to y) and reductions over the heads of x.
    void draw_heads_arguments() {
        const std::string &stage = row_.stage;
        const bool is_norm = stage.ends_with("norm"), widens = stage.starts_with("widen");
        const std::vector<std::int64_t> shape = draw_shape(), of_heads = {shape[1], shape[2]};
        if (is_norm) {
            numbers_ = {random_.one_in(2) ? 1e-6 : 0.0, number(0, 3)};  // eps, rounding
            const std::int64_t stride = random_.one_in(2) ? 0 : shape[0] + random_.in(0, 3);
            add("weight", Dtype::f32, {{shape[0], 1}, {shape[1], stride}}, Values::ordinary);
            if (stage == "layer_norm") {
                add("bias", Dtype::f32, {{shape[0], 1}, {shape[1], stride}}, Values::ordinary);
            }
        }
        const Dimensions of_x = lay_out(shape);
        const bool in_place = is_norm && !widens && random_.one_in(2);
        const Values values = any_values();
        add("x", widens ? row_.dtype : Dtype::f32, in_place ? of_x : zero_some_strides(of_x, 1), values);
        if (stage == "range") {
            add("least", Dtype::f32, lay_out(of_heads), Values::any_bits, 4);
        }
        if (stage == "range" || stage == "largest") {
            add("greatest", Dtype::f32, lay_out(of_heads), Values::any_bits, 4);
            return;
        }
        if (stage == "narrow") {
            const Values of_r = random_.one_in(2) ? Values::ordinary : any_values();
            const Dimensions dims = lay_out(shape, random_.one_in(3));
            add("r", Dtype::f32, zero_some_strides(dims, 0), of_r);
        }
        add_output(in_place, widens || is_norm ? Dtype::f32 : row_.dtype, lay_out(shape));
    }

    /// Draws a rotation of 1 to 97, 128 or 256 pairs: kernels are specialised for the last two. With a norm the number
    /// of pairs is a multiple of 16.
    void draw_rotation_arguments() {
        const halyard::Kernel &kernel = row_.rotation;
        const bool norms = row_.stage == "norm_rotate", on_lines = kernel.place == Place::non_temporal;
        const std::optional<Pairing> pairing = norms ? Pairing::half : kernel.pairing,
                                     out_pairing = norms ? Pairing::half : kernel.out_pairing;
        const std::int64_t of_line = 64 / halyard::element_bytes(row_.dtype), multiple = kernel.packed ? 2 : 1;
        std::int64_t n_pairs = n_ % 99 == 97 ? 128 : n_ % 99 == 98 ? 256 : n_ % 99 + 1;
        if (norms) {
            n_pairs = round_up(n_pairs, 16);
        } else if (out_pairing == Pairing::half && (on_lines || kernel.packed)) {
            n_pairs = round_up(n_pairs, on_lines ? of_line : 2);  // alignment of the pairs' second members
        }
        const std::int64_t n_heads = random_.in(1, norms ? 20 : 5), n_tokens = random_.in(1, 9);
        const bool in_place = norms ? random_.one_in(2) : kernel.place == Place::in_place;
        if (norms) {
            add("weight", Dtype::f32, {{n_pairs, 1}, {2, n_pairs}}, Values::ordinary);
            numbers_.push_back(random_.one_in(2) ? 1e-6 : 0.0);  // eps
        }
        add_rows(n_pairs, n_tokens);
        numbers_.push_back(random_.one_in(2) ? 0x80000000u : 0);  // sin_sign
        const Dimensions of_x = lay_out({2 * n_pairs, n_heads, n_tokens}, pairing.has_value(), multiple),
                         of_y = lay_out({2 * n_pairs, n_heads, n_tokens}, out_pairing.has_value(),
                                        on_lines ? of_line : multiple);
        const Values values = any_values();
        add("x", row_.dtype, split_pairs(pairing, in_place ? of_x : zero_some_strides(of_x, 1)), values);
        add_output(in_place, row_.dtype, split_pairs(out_pairing, of_y), on_lines ? 64 : 1);
    }

    /// Adds rows of cos and sin, and the index of each token's row.
    void add_rows(std::int64_t n_pairs, std::int64_t n_tokens) {
        const std::int64_t n_rows = random_.in(1, 12);
        const auto any_row = [this, n_rows](std::int64_t) {
            return static_cast<std::uint32_t>(random_.in(0, n_rows - 1));
        };
        add("row_of_token", Dtype::f32, {{n_tokens, 1}}, any_row, 4);
        const Dimensions of_rows = {{n_pairs, 1}, {n_rows, n_pairs + random_.in(0, 3)}};
        const Values values = random_.one_in(2) ? Values::ordinary : any_values();
        add("cos", Dtype::f32, of_rows, values);
        add("sin", Dtype::f32, of_rows, values);
    }

    /// Splits the dimension of elements into two, pairs and members, as rotation kernels take it.
    Dimensions split_pairs(std::optional<Pairing> pairing, const Dimensions &dims) {
        const bool is_half = pairing ? pairing == Pairing::half : random_.one_in(2);
        const std::int64_t n_pairs = dims[0].count / 2, element = dims[0].stride;
        return {
            {n_pairs, is_half ? element : 2 * element}, {2, is_half ? n_pairs * element : element}, dims[1], dims[2]};
    }

    /// Halves the sizes and strides of x or y: a packed kernel takes two 16-bit elements as one word.
    static void pack(halyard_buffer &side, std::optional<Pairing> pairing) {
        if (pairing == Pairing::half) {
            side.dim[0].extent /= 2;
            side.dim[1].stride /= 2;
        } else {
            side.dim[0].stride = side.dim[1].extent = 1;
        }
        side.dim[2].stride /= 2;
        side.dim[3].stride /= 2;
    }

    void draw_rows_phase_arguments() {
        static constexpr std::int64_t long_rows[] = {128, 288, 1000, 2048, 5000};
        const std::int64_t n_pairs = random_.one_in(8) ? random_.one_of(long_rows) : random_.in(1, 97);
        const std::int64_t n_tokens = random_.in(1, n_pairs > 500 ? 3 : 7);
        const double factor = random_.one_of(attention_factors), high = static_cast<float>(factor);
        numbers_ = {high, factor - high};
        const auto position = [this](std::int64_t) { return static_cast<std::uint32_t>(random_position(random_)); };
        add("position", Dtype::f32, {{n_tokens, 1}}, position, 4);
        std::vector<std::uint64_t> turns;
        while (std::ssize(turns) < n_pairs) {  // half of the angles of position 1 or -1 lie near a multiple of pi / 4
            const std::uint64_t octant = random_.bits() << 61;
            const auto off = static_cast<std::uint64_t>(static_cast<std::int64_t>(random_.bits()) >> random_.in(3, 40));
            turns.push_back(random_.one_in(2) ? random_.bits() : octant + off);
        }
        for (const int shift : {32, 0}) {  // the high and the low 32 bits
            const auto half = [turns, shift](std::int64_t k) {
                return static_cast<std::uint32_t>(turns[static_cast<std::size_t>(k)] >> shift);
            };
            add("turns", Dtype::f32, {{n_pairs, 1}}, half, 4);
        }
        add("rows", Dtype::f32, lay_out({n_pairs, 2, n_tokens}), Values::any_bits, 4);
    }

    void draw_transform_arguments() {
        Dimensions dims = {{64, 1}, {random_.in(1, 40), 64}};
        if (row_.stage == "butterfly") {
            const std::int64_t distance = std::int64_t{1} << random_.in(0, 10);
            dims = {{distance, 1}, {2, distance}, {random_.in(1, 3), 2 * distance}};
        } else {
            numbers_ = {random_.one_in(2) ? 0.125 : 0.01 + std::fabs(random_.unit())};  // scale
        }
        add("x", Dtype::f32, dims, any_values());
        add_output(random_.one_in(2), Dtype::f32, dims);
    }

    // ---- Groups ----------------------------------------------------------------------------------------------------

    void draw_quantise_arguments() {
        static constexpr std::int64_t groups[] = {16, 32, 64, 128};
        static constexpr std::pair<double, double> ends[] = {{-127, 127}, {-128, 127}, {-7, 7},
                                                             {0, 15},     {0, 255},    {-32768, 65536}};
        std::vector<std::int64_t> shape = draw_shape();
        shape[0] = random_.one_in(2) ? random_.one_of(groups) : shape[0];
        const auto [low, high] = random_.one_of(ends);
        numbers_ = {number(0, 2), low, high};
        // In half of the calls r and z are constant, and for most x the number to be rounded is a tie or a
        // neighbour of a tie. Where results are truncated, it is an integer or a neighbour of an integer.
        const bool has_ties = random_.one_in(2);
        const float half = numbers_[0] == 2 ? 0.0f : 0.5f;
        const float one_r = random_.one_in(2) ? 1.0f : static_cast<float>(random_.unit()) * 127.0f;
        const float one_z = static_cast<float>(random_.one_in(2) ? number(-128, 255) : random_.unit() * high);
        const Values values = any_values();
        const auto x = [=, this](std::int64_t) {
            const float tie = (static_cast<float>(number(-140, 270)) + half - one_z) / one_r;
            const float beyond = random_.one_in(2) ? INFINITY : -INFINITY;
            return !has_ties || random_.one_in(4) ? oracle::random_word(random_, HALYARD_F32, values)
                                                  : word(random_.one_in(2) ? tie : std::nextafter(tie, beyond));
        };
        const auto r = [=, this](std::int64_t) { return word(has_ties ? one_r : draw_finite(127)); };
        const auto z = [=, this, most = high](std::int64_t) { return word(has_ties ? one_z : draw_finite(most)); };
        const Dimensions of_groups = {{shape[1], 1}, {shape[2], shape[1]}}, of_one = {{shape[1], 0}, {shape[2], 0}};
        add("x", Dtype::f32, lay_out(shape), x);
        add("r", Dtype::f32, of_groups, r);
        add("z", Dtype::f32, random_.one_in(3) ? of_one : of_groups, z, 4);
        add("y", Dtype::int8, lay_out(shape), Values::any_bits);
    }

    /// A finite reciprocal or zero point: mostly at most `usual`, so that results stay in range, else zero or extreme.
    double draw_finite(double usual) {
        static constexpr double hard[] = {0.0, -0.0, 0x1p-149, 0x1.fffffep127, -0x1.fffffep127, 8.5, 0.5, 1.0};
        return random_.one_in(8) ? random_.one_of(hard) : random_.unit() * (random_.one_in(2) ? usual : 1);
    }

    static constexpr std::int64_t q8_group = 32;

    void draw_groups_arguments() {
        const std::int64_t n_groups = random_.in(1, 8), n_heads = random_.in(1, 256 / n_groups);
        const std::vector<std::int64_t> shape = {q8_group, n_groups, n_heads}, of_scales = {n_groups, n_heads};
        if (row_.stage == "load_groups") {
            add("x", Dtype::int8, lay_out(shape), Values::any_bits);
            const Dimensions scales = lay_out(of_scales, false);
            add("scales", Dtype::f16, scales, any_values(), 2);
            add("y", Dtype::f32, lay_out(shape), Values::any_bits);
            return;
        }
        numbers_ = {number(0, 2), number(0, 1)};  // reciprocal, away (halfway cases are rounded away from zero)
        add("x", Dtype::f32, {{q8_group, 1}, {n_groups * n_heads, q8_group}}, group_values());
        add("y", Dtype::int8, lay_out(shape), Values::any_bits);
        add("scales", Dtype::f16, lay_out(of_scales, false), Values::any_bits, 2);
        add("largest", Dtype::f32, {}, Values::any_bits, 4);
    }

    /// The contents of groups: any values, or else groups of zeros, subnormal numbers or rounding ties, and rarely one
    /// whose scale just overflows.
    Operand::Words group_values() {
        const Values values = any_values();
        const bool is_any = random_.one_in(8);
        return [=, this, size = 0.0, has_ties = false](std::int64_t i) mutable {
            static constexpr double sizes[] = {0.0, 0x1p-149, 0x1p-130, 0x1p-20, 1.0, 8319007.5};
            if (i % q8_group == 0) {
                size = random_.one_in(500) ? 8319008.0 : random_.one_of(sizes);
                has_ties = random_.one_in(2);
            }
            const double part = i % q8_group == 3 ? -1 : has_ties ? number(-254, 254) / 254 : random_.unit();
            return is_any ? oracle::random_word(random_, HALYARD_F32, values) : word(part * size);
        };
    }
};

/// Compares a kernel with the model in up to `n_calls` random calls, in a child process. Returns a message about the
/// first difference, crash or timeout, with the call's arguments, or an empty string.
inline std::string fault_of(const KernelRow &row, std::uint64_t seed, int n_calls, unsigned limit_seconds = 0) {
    using Text = char[1000];
    void *const shared = mmap(nullptr, sizeof(Text), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        throw std::bad_alloc();
    }
    auto &text = *static_cast<Text *>(shared);
    const pid_t child = fork();
    if (child == 0) {
        for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) {
            std::signal(signal, SIG_DFL);  // not Catch2's handlers
        }
        alarm(limit_seconds);
        Random random(seed);
        for (int n = 0; n < n_calls; n++) {
            Trial trial(row, random, n);
            const std::string told = row.name + ": " + trial.text();
            std::snprintf(text, sizeof(text), "%s", told.c_str());
            const auto got = trial.run(row.kernel, row.rotation.packed), want = trial.run(row.model, false);
            if (const std::string what = trial.difference(got, want); !what.empty()) {
                std::snprintf(text, sizeof(text), "%s: %s", told.c_str(), what.c_str());
                _exit(1);
            }
        }
        _exit(0);
    }
    int status = 0;
    const bool ended = child > 0 && waitpid(child, &status, 0) == child;
    const std::string fault = text;
    munmap(shared, sizeof(Text));
    if (!ended) {
        return "no process could be started";
    }
    if (WIFSIGNALED(status)) {
        return fault + (limit_seconds > 0 && WTERMSIG(status) == SIGALRM
                            ? ": takes more than " + std::to_string(limit_seconds) + " seconds"
                            : ": crashes with signal " + std::to_string(WTERMSIG(status)));
    }
    return WEXITSTATUS(status) == 0 ? "" : fault;
}
