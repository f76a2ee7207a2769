#include "arithmetic/angles.h"
#include "arithmetic/storage.h"
#include "cuda/device_angles.h"
#include "cuda/ptx.h"
#include "pair_layout.h"
#include "schedule_cpu.h"

#include <array>
#include <memory>
#include <optional>

namespace halyard {

/// Makes interleaved f16 kernels convert to f32 before they shuffle. These kernels use each vector twice: as it is, and
/// with the members of its pairs swapped. Halide would convert both forms, but on x86 a conversion costs more than a
/// shuffle.
class ConvertFirst : public Halide::Internal::IRMutator {
    using IRMutator::visit;

    Expr visit(const Halide::Internal::Cast *op) override {
        const auto *shuffle = op->value.as<Halide::Internal::Shuffle>();
        if (shuffle == nullptr || shuffle->vectors.size() != 1 ||
            shuffle->vectors[0].type().lanes() != op->type.lanes()) {
            return IRMutator::visit(op);
        }
        const Expr converted = Halide::Internal::Cast::make(op->type, shuffle->vectors[0]);
        return Halide::Internal::Shuffle::make({converted}, shuffle->indices);
    }
};

/// Rotary position embedding: y is x with pair k of every head rotated by its token's angle.
class Rope : public Halide::Generator<Rope> {
public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::f32, dtypes};
    GeneratorParam<bool> packed{"packed", false};  // a buffer's element is a word of two neighbouring 16-bit elements
    GeneratorParam<Pairing> pairing{"pairing", Pairing::half, pairings};
    GeneratorParam<Pairing> out_pairing{"out_pairing", Pairing::half, pairings};
    GeneratorParam<bool> in_place{"in_place", false};  // x is y, and the buffer x is not read
    // Parameters of a CPU's schedule: see Steps in schedule.h.
    GeneratorParam<int> elements_per_step{"elements_per_step", 16, 4, 128};
    GeneratorParam<int> elements_per_step_any{"elements_per_step_any", 16, 4, 128};
    GeneratorParam<int> elements_per_vector{"elements_per_vector", 16, 4, 128};
    GeneratorParam<int> heads_per_step{"heads_per_step", 1, 1, 4};
    GeneratorParam<int> hoist_rows{"hoist_rows", 1, 0, 1};
    GeneratorParam<int> swap_members{"swap_members", 0, 0, 1};  // interleaved, not packed: write member by member
    GeneratorParam<bool> round_by_test{"round_by_test", false};
    GeneratorParam<int> width{"width", 4, 1, 4};  // GPU: elements in an access

    RowInputs rows;                          // CPU: row_of_token, cos_rows and sin_rows
    std::unique_ptr<Fields::Angles> device;  // GPU: positions, an angle source and sin_sign
    Input<uint32_t> *sin_sign;               // 0; the inverse 0x80000000
    Input<Buffer<void>> *x;       // [pair, member, head, token]; packed: two pairs or two members in an element
    Output<Buffer<void>> y{"y"};  // likewise

    void configure() {
        if (is_on_cuda()) {
            device.reset(new Fields::Angles{*this});
            device_angles.emplace(*device);
            sin_sign = &*device->sin_sign;
        } else {
            rows.add_to(*this);
            sin_sign = add_input<uint32_t>("sin_sign");
        }
        const Halide::Type element = element_type(target, dtype, packed);
        x = add_input<Buffer<void>>("x", element, 4);
        y.set_type(element);
        y.set_dimensions(4);
    }

    void generate() {
        const Expr zero = *sin_sign & 0x7fffffff;  // always 0, but LLVM does not know that
        const bool by_member =
            write_order() == WriteOrder::member_by_member || write_order() == WriteOrder::as_neighbours;
        const Halide::RDom over = by_member ? Halide::RDom(0, 2, "over") : Halide::RDom();
        const Loops loops = loops_over(over, by_member);
        const Format format = {target, dtype, packed, rounding_of(target, rounds_by_test(loops), zero)};
        const auto write = [&](const Expr &member) { return y(k, member, h, t); };
        loaded(k, r, h, t) = (*x)(k, r, h, t);
        const auto read = [&](const Expr &member) {
            return format.floats(in_place     ? Expr(write(member))
                                 : converts() ? loaded(k, member, h, t)
                                              : Expr((*x)(k, member, h, t)));
        };
        const auto cos_of = [&](const Expr &which) { return angle(which, k, t)[0]; };
        const auto sin_of = [&](const Expr &which) { return angle(which, k, t)[1]; };

        define_cos_sin(format, zero);
        y(k, r, h, t) = Halide::undef(format.type());
        if (write_order() == WriteOrder::member_by_member) {  // one shuffle within a vector swaps self and cross
            const Halide::RVar m = over[0];
            write(m) = format.element({rotate_member(read(m)[0], read(1 - m)[0], cos_of(m), sin_of(m))});
        } else if (write_order() == WriteOrder::both_in_word) {
            const Pair rotated = rotate(target, {read(0)[0], read(0)[1]}, cos_of(0), sin_of(0));
            write(0) = format.element({rotated.x0, rotated.x1});
        } else {  // all loads come before the stores, so that y may be x
            Members x = transpose_if_word_is_pair(pairing, {read(0), read(1)});
            for (size_t i = 0; i < x[0].size(); i++) {
                const int lane = static_cast<int>(i);
                const Pair rotated = rotate(target, {x[0][i], x[1][i]}, cos_of(lane), sin_of(lane));
                x[0][i] = rotated.x0;
                x[1][i] = rotated.x1;
            }
            const Members rotated = transpose_if_word_is_pair(out_pairing, x);
            const Expr first = format.element(rotated[0]), second = format.element(rotated[1]);
            if (write_order() == WriteOrder::as_neighbours) {
                write(over[0]) = select(over[0] == 0, first, second);
            } else {
                write(Halide::scatter(0, 1)) = Halide::gather(first, second);
            }
        }
        constrain();
        schedule_rotation(target, y, angle, loops, steps(), layout_of(pairing).per_thread, device_angles);
        if (converts()) {
            load_words_by_128_bits(y, loaded, pairing == Pairing::half);
        }
    }

    void schedule() {
        if (write_order() == WriteOrder::member_by_member && dtype == Dtype::f16) {
            get_pipeline().add_custom_lowering_pass(new ConvertFirst);
        }
        // Without a limit ptxas uses 40 registers on some devices, but 32 are enough on sm_80 to sm_120.
        complete_device_code(get_pipeline(), get_target(),
                             {false, false, false, converts() && dtype == Dtype::f32 ? 32 : 0});
    }

private:
    Var k{"k"}, r{"r"}, h{"h"}, t{"t"}, lane{"lane"};
    std::optional<DeviceAngles> device_angles;
    Func loaded{"loaded"};  // [element, member, head, token]: a thread's elements of x, if pairings differ on CUDA
    Func angle{"angle"};    // [lane, element, token] -> (cos, sin) of each lane's pair; or of each member

    bool is_on_cuda() const { return get_target().has_gpu_feature(); }
    bool converts() const { return is_on_cuda() && Pairing(pairing) != Pairing(out_pairing); }

    WriteOrder write_order() const {
        if (pairing != Pairing::interleaved || out_pairing != Pairing::interleaved) {
            const bool becomes_neighbours = is_on_cuda() && out_pairing == Pairing::interleaved;
            return becomes_neighbours ? WriteOrder::as_neighbours : WriteOrder::both_members;
        }
        return packed                              ? WriteOrder::both_in_word
               : swap_members != 0 || is_on_cuda() ? WriteOrder::member_by_member
                                                   : WriteOrder::both_members;
    }

    /// Defines the Func of cos and sin. zero is 0 at run time, but not a constant.
    void define_cos_sin(const Format &format, const Expr &zero) {
        const Expr pair = n_lanes() == 1 ? Expr(k) : k * n_lanes() + lane;
        const Angle row = is_on_cuda() ? device_angles->at(pair, device_angles->place(device_angles->axis(pair), t).at)
                                       : rows.at(pair, t);
        const Expr cos = flip_sign(format.row_value(row.cos), zero);  // keeps LLVM from calling memcpy for cos
        angle(lane, k, t) = Tuple(cos, flip_sign(format.row_value(row.sin), sin_sign_of(lane)));
    }

    /// Both members of some pairs: [member][lane].
    using Members = std::array<std::vector<Expr>, 2>;

    /// Converts the floats of two elements to members, or back. (A word of an interleaved tensor is a pair.)
    Members transpose_if_word_is_pair(Pairing tensor_pairing, const Members &floats) const {
        if (!packed || tensor_pairing != Pairing::interleaved) {
            return floats;
        }
        return {{{floats[0][0], floats[1][0]}, {floats[0][1], floats[1][1]}}};
    }

    Layout layout_of(Pairing tensor_pairing) const {
        if (tensor_pairing == Pairing::strided) {
            return {tensor_pairing};
        }
        const bool takes_neighbours = write_order() == WriteOrder::member_by_member;
        return {tensor_pairing, width, takes_neighbours ? width / 2 : width};
    }

    /// An element of a buffer holds members of this many pairs.
    int n_lanes() const { return packed && write_order() != WriteOrder::both_in_word ? 2 : 1; }

    /// The sign bit to flip in sin: set for the inverse, and flipped for first members if WriteOrder is
    /// member_by_member.
    Expr sin_sign_of(const Expr &member) const {
        const Expr sign = *sin_sign;
        return write_order() == WriteOrder::member_by_member ? sign ^ select(member == 0, sign_bit, Expr(0u)) : sign;
    }

    void constrain() {
        layout_of(pairing).constrain(*x, write_order(), is_on_cuda());
        layout_of(out_pairing).constrain(y, write_order(), is_on_cuda());
        is_on_cuda() ? device_angles->constrain() : rows.constrain();
        angle.bound(lane, 0, write_order() == WriteOrder::member_by_member ? 2 : n_lanes());
    }

    Loops loops_over(const Halide::RDom &over, bool by_member) const {
        const bool strided = pairing == Pairing::strided;
        const bool lanes_at_once = by_member && takes_lanes_at_once(get_target());
        return {k, h, t, lane, by_member ? over[0] : Halide::RVar(), by_member, strided, n_lanes(), lanes_at_once};
    }

    /// Whether bf16 rounds by_test, which is faster if vectors fill registers.
    Expr rounds_by_test(const Loops &loops) {
        Expr by_test = cast<bool>(steps().any >= steps().in_register);
        for (const int extent : known_extents(loops)) {
            by_test = by_test || y.dim(0).extent() == extent;
        }
        return cast<bool>(Expr(round_by_test)) && by_test;
    }

    Steps steps() const {
        const int members = write_order() == WriteOrder::member_by_member ? 2 : 1;
        return {elements_per_step, elements_per_step_any, elements_per_vector,
                heads_per_step,    hoist_rows != 0,       get_target().natural_vector_size<float>() / members};
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Rope, rope)
