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
#include <functional>
#include <map>
#include <memory>
#include <optional>
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

/// What a kernel is called with: its arrays and its numbers, each in the order of the parameters (core/kernel_abi.h).
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

/// A kernel that was built, and the model's function of its stage and dtype.
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

/// All kernels that were built.
inline std::vector<KernelRow> kernel_rows() {
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

/// A dimension of an operand, whose strides are in its elements.
struct Dimension {
    std::int64_t extent, stride;
};
using Dimensions = std::vector<Dimension>;

/// Where an operand lies: at either end of its memory, or also a few bytes from there, or at a multiple of 64.
enum class Alignment { element, byte, line };

/// An operand in guarded memory. Strides may be negative.
class Operand {
public:
    Operand(Random &random, const char *with_name, Dtype type, const Dimensions &dimensions, Values values,
            Alignment alignment)
        : name(with_name), dtype(type), dims(dimensions), bytes_(halyard::element_bytes(type)) {
        std::int64_t below = 0, above = 1;
        for (const Dimension &dim : dims) {
            const std::int64_t reach = (dim.extent - 1) * dim.stride;
            (reach < 0 ? below : above) += std::abs(reach);
        }
        n_bytes_ = (below + above) * bytes_;
        memory_ = std::make_unique<GuardedMemory>(static_cast<std::size_t>(n_bytes_ + 63) / GuardedMemory::page + 1);
        const bool is_low = random.one_in(4);
        first_ = is_low ? memory_->begin() : memory_->end() - n_bytes_;
        std::int64_t shift = alignment == Alignment::byte && random.one_in(2) ? random.in(0, 63) : 0;
        if (alignment == Alignment::line) {
            const auto place = reinterpret_cast<std::intptr_t>(first_ + below * bytes_);
            shift = (is_low ? -place : place) & 63;
        }
        first_ += is_low ? shift : -shift;
        const std::vector<char> filled =
            oracle::random_elements(random, static_cast<std::int32_t>(std::min(type, Dtype::bf16)), values,
                                    n_bytes_ / std::min<std::int64_t>(bytes_, 2) + 1);
        std::copy_n(filled.begin(), n_bytes_, first_);
        header_.host = reinterpret_cast<std::uint8_t *>(first_ + below * bytes_);
    }

    const char *const name;
    const Dtype dtype;
    const Dimensions dims;

    /// Element i in memory.
    float at(std::int64_t i) const { return halyard::read_word<float>(first_ + i * bytes_); }
    void set(std::int64_t i, float value) { std::memcpy(first_ + i * bytes_, &value, sizeof(value)); }
    void set_integer(std::int64_t i, std::uint32_t integer) { set(i, std::bit_cast<float>(integer)); }
    /// Sets each element to what a function makes of it.
    template <typename Function>
    void replace(Function function) {
        for (std::int64_t i = 0; i < n_bytes_ / bytes_; i++) {
            set(i, static_cast<float>(function(at(i))));
        }
    }

    /// What a kernel reads of it.
    halyard_buffer *buffer() {
        header_.dim = dimensions_;
        std::transform(dims.begin(), dims.end(), dimensions_, [](const Dimension &dim) -> halyard_dimension {
            return {0, static_cast<std::int32_t>(dim.extent), static_cast<std::int32_t>(dim.stride), 0};
        });
        return &header_;
    }

    /// What its memory holds, between the guards.
    using Image = std::vector<char>;
    Image image() const { return {memory_->begin(), memory_->end()}; }
    void restore(const Image &image) { std::copy(image.begin(), image.end(), memory_->begin()); }
    /// Calls see(word) with each element of an image, and with gaps between them. Words may be changed.
    template <typename See>
    void for_each_element(Image &image, See see) const {
        char *const begin = image.data() + (first_ - memory_->begin());
        for (char *at = begin; at < begin + n_bytes_; at += bytes_) {
            std::uint32_t word = oracle::read_word(static_cast<std::int32_t>(dtype), at);
            see(word);
            oracle::write_word(static_cast<std::int32_t>(dtype), at, word);
        }
    }

private:
    std::int64_t bytes_, n_bytes_ = 0;
    std::unique_ptr<GuardedMemory> memory_;
    char *first_;
    halyard_buffer header_ = {};
    halyard_dimension dimensions_[4] = {};
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

    Trial(const KernelRow &row, Random &random, std::int64_t n) : row_(row), random_(random), n_(n) {
        static const std::map<std::string, void (Trial::*)()> draws = {
            {"rotate", &Trial::draw_rotation},       {"norm_rotate", &Trial::draw_rotation},
            {"rows_phase", &Trial::draw_rows_phase}, {"hadamard", &Trial::draw_transform},
            {"butterfly", &Trial::draw_transform},   {"quantise", &Trial::draw_quantise},
            {"store_groups", &Trial::draw_groups},   {"load_groups", &Trial::draw_groups}};
        const auto draw = draws.find(row.stage);
        (this->*(draw == draws.end() ? &Trial::draw_heads : draw->second))();
    }
    Trial(const Trial &) = delete;
    Trial &operator=(const Trial &) = delete;

    /// What a kernel, or the model, makes of the operands, which stay as they are. All NaN are one. Groups hold nothing
    /// of use where a scale overflows.
    std::vector<Operand::Image> run(const Caller &kernel, bool is_packed) {
        Arguments arguments = {{}, numbers_};
        for (const std::size_t of : parameters_) {
            arguments.buffers.push_back(operands[of]->buffer());
        }
        if (is_packed) {
            pack(*arguments.buffers[3], row_.rotation.pairing);
            if (parameters_[3] != parameters_[4]) {
                pack(*arguments.buffers[4], row_.rotation.out_pairing);
            }
        }
        std::vector<Operand::Image> before, after;
        for (const auto &operand : operands) {
            before.push_back(operand->image());
        }
        kernel(arguments);
        const bool overflows = row_.stage == "store_groups" && !(operands[3]->at(0) < 127.0f * 65504.0f);
        for (std::size_t i = 0; i < operands.size(); i++) {
            after.push_back(operands[i]->image());
            operands[i]->for_each_element(after[i], [&](std::uint32_t &word) {
                word = oracle::is_nan(static_cast<std::int32_t>(operands[i]->dtype), word) ? 0xffffffffu : word;
            });
            operands[i]->restore(before[i]);
        }
        if (overflows) {
            after[1] = after[2] = {};
        }
        return after;
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
        for (const double number : numbers_) {
            all += std::to_string(number) + ' ';
        }
        return all;
    }

private:
    const KernelRow &row_;
    Random &random_;
    const std::int64_t n_;
    std::vector<std::size_t> parameters_;  // the operands, in the order of the kernel's: in place, y's is x
    std::vector<double> numbers_;

    Operand &add(const char *name, Dtype dtype, const Dimensions &dims, Values values,
                 Alignment alignment = Alignment::byte) {
        parameters_.push_back(operands.size());
        operands.push_back(std::make_unique<Operand>(random_, name, dtype, dims, values, alignment));
        return *operands.back();
    }
    /// y, or x in its place, which was the last.
    void add_output(bool in_place, Dtype dtype, const Dimensions &dims, Alignment alignment = Alignment::byte) {
        if (in_place) {
            parameters_.push_back(operands.size() - 1);
        } else {
            add("y", dtype, dims, Values::any_bits, alignment);
        }
    }
    double number(std::int64_t first, std::int64_t last) { return static_cast<double>(random_.in(first, last)); }
    Values any_values() {
        static constexpr Values all[] = {Values::ordinary, Values::any_bits, Values::special, Values::short_mantissa};
        return random_.one_of(all);
    }
    static std::int64_t round_up(std::int64_t n, std::int64_t multiple) {
        return (n + multiple - 1) / multiple * multiple;
    }

    /// Elements, heads and tokens, or heads and tokens: in any order, with gaps and either sign; but the first are
    /// neighbours unless a kernel takes them anywhere.
    Dimensions spread(const std::vector<std::int64_t> &extents, bool are_neighbours = true, std::int64_t multiple = 1) {
        Dimensions dims;
        std::vector<std::size_t> order;  // innermost first
        for (const std::int64_t extent : extents) {
            order.push_back(dims.size());
            dims.push_back({extent, 1});
        }
        for (std::size_t i = dims.size() - 1; i > 0; i--) {
            const std::int64_t with = random_.in(are_neighbours ? 1 : 0, static_cast<std::int64_t>(i));
            std::swap(order[i], order[static_cast<std::size_t>(with)]);
        }
        std::int64_t reach = 1;
        for (const std::size_t d : order) {
            const std::int64_t gap = random_.one_in(2) ? 0 : random_.in(1, 5);
            const bool is_free = d != 0 || !are_neighbours;
            const std::int64_t stride = is_free ? round_up(reach + gap, multiple) : 1;
            reach += stride * (dims[d].extent - 1);
            dims[d].stride = is_free && random_.one_in(4) ? -stride : stride;
        }
        return dims;
    }
    /// The same of what is only read: some have one for all elements, heads or tokens.
    Dimensions share(Dimensions dims, std::size_t first) {
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

    /// x and y, or what is found of the heads of x.
    void draw_heads() {
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
        const Dimensions of_x = spread(shape);
        const bool in_place = is_norm && !widens && random_.one_in(2);
        const Values values = any_values();
        add("x", widens ? row_.dtype : Dtype::f32, in_place ? of_x : share(of_x, 1), values);
        if (stage == "range") {
            add("least", Dtype::f32, spread(of_heads), Values::any_bits, Alignment::element);
        }
        if (stage == "range" || stage == "largest") {
            add("greatest", Dtype::f32, spread(of_heads), Values::any_bits, Alignment::element);
            return;
        }
        if (stage == "narrow") {
            const Values of_r = random_.one_in(2) ? Values::ordinary : any_values();
            const Dimensions dims = spread(shape, random_.one_in(3));
            add("r", Dtype::f32, share(dims, 0), of_r);
        }
        add_output(in_place, widens || is_norm ? Dtype::f32 : row_.dtype, spread(shape));
    }

    /// Of up to 97 pairs, and two more counts for which kernels are specialised; with a norm, of 16 pairs or a
    /// multiple.
    void draw_rotation() {
        const halyard::Kernel &kernel = row_.rotation;
        const bool norms = row_.stage == "norm_rotate", on_lines = kernel.place == Place::non_temporal;
        const std::optional<Pairing> pairing = norms ? Pairing::half : kernel.pairing,
                                     out_pairing = norms ? Pairing::half : kernel.out_pairing;
        const std::int64_t of_line = 64 / halyard::element_bytes(row_.dtype), multiple = kernel.packed ? 2 : 1;
        std::int64_t n_pairs = n_ % 99 == 97 ? 128 : n_ % 99 == 98 ? 256 : n_ % 99 + 1;
        if (norms) {
            n_pairs = round_up(n_pairs, 16);
        } else if (out_pairing == Pairing::half && (on_lines || kernel.packed)) {
            n_pairs = round_up(n_pairs, on_lines ? of_line : 2);  // where the second members begin
        }
        const std::int64_t n_heads = random_.in(1, norms ? 20 : 5), n_tokens = random_.in(1, 9);
        const bool in_place = norms ? random_.one_in(2) : kernel.place == Place::in_place;
        if (norms) {
            add("weight", Dtype::f32, {{n_pairs, 1}, {2, n_pairs}}, Values::ordinary);
            numbers_.push_back(random_.one_in(2) ? 1e-6 : 0.0);  // eps
        }
        add_rows(n_pairs, n_tokens);
        numbers_.push_back(random_.one_in(2) ? 0x80000000u : 0);  // sin_sign
        const Dimensions of_x = spread({2 * n_pairs, n_heads, n_tokens}, pairing.has_value(), multiple),
                         of_y = spread({2 * n_pairs, n_heads, n_tokens}, out_pairing.has_value(),
                                       on_lines ? of_line : multiple);
        const Values values = any_values();
        add("x", row_.dtype, pair_up(pairing, in_place ? of_x : share(of_x, 1)), values);
        add_output(in_place, row_.dtype, pair_up(out_pairing, of_y), on_lines ? Alignment::line : Alignment::byte);
    }

    /// Rows of cos and sin, and which of them each token has.
    void add_rows(std::int64_t n_pairs, std::int64_t n_tokens) {
        const std::int64_t n_rows = random_.in(1, 12);
        Operand &row_of_token = add("row_of_token", Dtype::f32, {{n_tokens, 1}}, Values::ordinary, Alignment::element);
        for (std::int64_t token = 0; token < n_tokens; token++) {
            row_of_token.set_integer(token, static_cast<std::uint32_t>(random_.in(0, n_rows - 1)));
        }
        const Dimensions of_rows = {{n_pairs, 1}, {n_rows, n_pairs + random_.in(0, 3)}};
        const Values values = random_.one_in(2) ? Values::ordinary : any_values();
        add("cos", Dtype::f32, of_rows, values);
        add("sin", Dtype::f32, of_rows, values);
    }

    /// Pairs and their members instead of elements.
    Dimensions pair_up(std::optional<Pairing> pairing, const Dimensions &dims) {
        const bool is_half = pairing ? pairing == Pairing::half : random_.one_in(2);
        const std::int64_t n_pairs = dims[0].extent / 2, element = dims[0].stride;
        return {
            {n_pairs, is_half ? element : 2 * element}, {2, is_half ? n_pairs * element : element}, dims[1], dims[2]};
    }

    /// To a packed kernel an element is two.
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

    void draw_rows_phase() {
        static constexpr std::int64_t long_rows[] = {128, 288, 1000, 2048, 5000};
        const std::int64_t n_pairs = random_.one_in(8) ? random_.one_of(long_rows) : random_.in(1, 97);
        const std::int64_t n_tokens = random_.in(1, n_pairs > 500 ? 3 : 7);
        const double factor = random_.one_of(attention_factors), high = static_cast<float>(factor);
        numbers_ = {high, factor - high};
        Operand &position = add("position", Dtype::f32, {{n_tokens, 1}}, Values::ordinary, Alignment::element);
        for (std::int64_t token = 0; token < n_tokens; token++) {
            position.set_integer(token, static_cast<std::uint32_t>(random_position(random_)));
        }
        Operand *turns[2] = {};  // high and low
        for (Operand *&half : turns) {
            half = &add("turns", Dtype::f32, {{n_pairs, 1}}, Values::ordinary, Alignment::element);
        }
        for (std::int64_t k = 0; k < n_pairs; k++) {
            // For half of them position 1 or -1 comes near a border of octants.
            std::uint64_t of_pair = random_.bits();
            if (random_.one_in(2)) {
                const auto off = static_cast<std::int64_t>(random_.bits()) >> random_.in(3, 40);
                of_pair = (of_pair << 61) + static_cast<std::uint64_t>(off);
            }
            turns[0]->set_integer(k, static_cast<std::uint32_t>(of_pair >> 32));
            turns[1]->set_integer(k, static_cast<std::uint32_t>(of_pair));
        }
        add("rows", Dtype::f32, spread({n_pairs, 2, n_tokens}), Values::any_bits, Alignment::element);
    }

    void draw_transform() {
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

    void draw_quantise() {
        static constexpr std::int64_t groups[] = {16, 32, 64, 128};
        static constexpr double ends[][2] = {{-127, 127}, {-128, 127}, {-7, 7}, {0, 15}, {0, 255}, {-32768, 65536}};
        std::vector<std::int64_t> shape = draw_shape();
        shape[0] = random_.one_in(2) ? random_.one_of(groups) : shape[0];
        const auto &[low, high] = ends[random_.in(0, 5)];
        numbers_ = {number(0, 2), low, high};
        // Some calls have halves between integers, or integers to be cut off, and their neighbours, with one r and one
        // z.
        const bool has_ties = random_.one_in(2);
        const float half = numbers_[0] == 2 ? 0.0f : 0.5f;
        const float one_r = random_.one_in(2) ? 1.0f : static_cast<float>(random_.unit()) * 127.0f;
        const float one_z = static_cast<float>(random_.one_in(2) ? number(-128, 255) : random_.unit() * high);
        const Values values = any_values();
        add("x", Dtype::f32, spread(shape), values).replace([&](float value) {
            const float beyond = random_.one_in(2) ? INFINITY : -INFINITY;
            const float tie = (static_cast<float>(number(-140, 270)) + half - one_z) / one_r;
            return !has_ties || random_.one_in(4) ? value : random_.one_in(2) ? tie : std::nextafter(tie, beyond);
        });
        const Dimensions of_groups = {{shape[1], 1}, {shape[2], shape[1]}}, of_one = {{shape[1], 0}, {shape[2], 0}};
        add("r", Dtype::f32, of_groups, Values::ordinary).replace([&](float) {
            return has_ties ? one_r : finite(127);
        });
        add("z", Dtype::f32, random_.one_in(3) ? of_one : of_groups, Values::ordinary, Alignment::element)
            .replace([&](float) { return has_ties ? one_z : finite(high); });
        add("y", Dtype::int8, spread(shape), Values::any_bits);
    }

    /// A reciprocal or a zero point: a finite one of any size, or zero. Most are such that results are within the ends.
    double finite(double usual) {
        static constexpr double hard[] = {0.0, -0.0, 0x1p-149, 0x1.fffffep127, -0x1.fffffep127, 8.5, 0.5, 1.0};
        return random_.one_in(8) ? random_.one_of(hard) : random_.unit() * (random_.one_in(2) ? usual : 1);
    }

    static constexpr std::int64_t q8_group = 32;

    void draw_groups() {
        const std::int64_t n_groups = random_.in(1, 8), n_heads = random_.in(1, 256 / n_groups);
        const std::vector<std::int64_t> shape = {q8_group, n_groups, n_heads}, of_scales = {n_groups, n_heads};
        if (row_.stage == "load_groups") {
            add("x", Dtype::int8, spread(shape), Values::any_bits);
            const Dimensions scales = spread(of_scales, false);
            add("scales", Dtype::f16, scales, any_values(), Alignment::element);
            add("y", Dtype::f32, spread(shape), Values::any_bits);
            return;
        }
        numbers_ = {number(0, 2), number(0, 1)};  // reciprocal, away
        const Values values = random_.one_in(8) ? any_values() : Values::short_mantissa;
        Operand &x = add("x", Dtype::f32, {{q8_group, 1}, {n_groups * n_heads, q8_group}}, values);
        fill_groups(x, n_groups * n_heads);
        add("y", Dtype::int8, spread(shape), Values::any_bits);
        add("scales", Dtype::f16, spread(of_scales, false), Values::any_bits, Alignment::element);
        add("largest", Dtype::f32, {}, Values::any_bits, Alignment::element);
    }

    /// Most of them with zeros, subnormal numbers, halves between integers, and now and then a scale that just
    /// overflows.
    void fill_groups(Operand &x, std::int64_t n_groups) {
        for (std::int64_t i = 0; i < n_groups && !random_.one_in(8); i++) {
            static constexpr float sizes[] = {0.0f, 0x1p-149f, 0x1p-130f, 0x1p-20f, 1.0f, 8319007.5f};
            const float size = random_.one_in(500) ? 8319008.0f : random_.one_of(sizes);
            const bool has_ties = random_.one_in(2);
            for (std::int64_t e = 0; e < q8_group; e++) {
                const double part = e == 3 ? -1 : has_ties ? number(-254, 254) / 254 : random_.unit();
                x.set(i * q8_group + e, static_cast<float>(part * double{size}));
            }
        }
    }
};
