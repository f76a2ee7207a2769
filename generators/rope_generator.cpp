#include "rotation.h"
#include "schedule_arm.h"
#include "schedule_x86.h"

namespace halyard {

/// How the members of a pair lie in a head: see halyard.h. Strided is any layout at all.
enum class Pairing { half, interleaved, strided };

const std::map<std::string, Pairing> pairings = {
    {"half", Pairing::half}, {"interleaved", Pairing::interleaved}, {"strided", Pairing::strided}};

/// Rotary position embedding: y is x with pair k of every head turned by the angle in its token's row.
class Rope : public Halide::Generator<Rope> {
public:
    GeneratorParam<Storage> dtype{"dtype", Storage::f32, storages};
    GeneratorParam<bool> packed{"packed", false};  // bf16 as words of two neighbours
    GeneratorParam<Pairing> pairing{"pairing", Pairing::half, pairings};
    GeneratorParam<Pairing> out_pairing{"out_pairing", Pairing::half, pairings};
    GeneratorParam<bool> in_place{"in_place", false};  // x is y, and the buffer x is not read
    // The numbers of the schedule: see Steps in schedule.h.
    GeneratorParam<int> elements_per_step{"elements_per_step", 16, 4, 128};
    GeneratorParam<int> elements_per_step_any{"elements_per_step_any", 16, 4, 128};
    GeneratorParam<int> elements_per_vector{"elements_per_vector", 16, 4, 128};
    GeneratorParam<bool> round_by_test{"round_by_test", false};

    Input<Buffer<int32_t, 1>> row_of_token{"row_of_token"};  // [token]
    Input<Buffer<float, 2>> cos_rows{"cos_rows"};            // [pair, row]
    Input<Buffer<float, 2>> sin_rows{"sin_rows"};            // [pair, row]
    Input<uint32_t> sin_sign{"sin_sign"};                    // 0; the inverse 0x80000000
    Input<Buffer<void, 4>> x{"x"};                           // [pair, member, head, token]; packed: two pairs or
    Output<Buffer<void, 4>> y{"y"};                          // two members in an element

    void configure() {
        x.set_type(element_type(dtype, packed));
        y.set_type(element_type(dtype, packed));
    }

    void generate() {
        const bool arm = get_target().arch == Target::ARM;
        const bool interleaved = pairing == Pairing::interleaved && out_pairing == Pairing::interleaved;
        // Swapping members within a vector would convert each f16 twice, which costs NEON more than taking them apart.
        const bool by_member = interleaved && !packed && !(arm && dtype == Storage::f16);
        const bool pair_in_word = packed && interleaved;
        const int lanes = packed && !interleaved ? 2 : 1;  // pairs in an element
        const auto read = [&](const Expr &member) {
            return unpack(dtype, packed, in_place ? Expr(y(k, member, h, t)) : Expr(x(k, member, h, t)));
        };
        const Expr zero = sin_sign & 0x7fffffff;  // which LLVM does not know
        const Rounding rounding = rounding_of(target, round_by_test, zero);
        const auto write = [&](const std::vector<Expr> &floats) { return pack(target, dtype, rounding, floats); };
        const Expr row = unsafe_promise_clamped(row_of_token(t), 0, cos_rows.dim(1).extent() - 1);
        const Expr pair = lanes == 1 ? Expr(k) : k * lanes + lane;
        // Turning no sign of cos keeps LLVM from making a call to memcpy of its copy.
        const Expr cos = flip_sign(row_value(cos_rows(pair, row)), zero);
        const Expr sin = row_value(sin_rows(pair, row));

        y(k, r, h, t) = Halide::undef(y.type());
        if (by_member) {
            // Member by member: one shuffle within a vector swaps self and cross, where two would split the pairs.
            angle(lane, k, t) = Tuple(cos, flip_sign(sin, sin_sign ^ select(lane == 0, sign_bit, Expr(0u))));
            y(k, member, h, t) = write({rotate_member(target, read(member)[0], read(1 - member)[0],
                                                      angle(member, k, t)[0], angle(member, k, t)[1])});
        } else if (pair_in_word) {
            angle(lane, k, t) = Tuple(cos, flip_sign(sin, sin_sign));
            const std::vector<Expr> word = read(0);
            const Pair turned = rotate(target, {word[0], word[1]}, angle(0, k, t)[0], angle(0, k, t)[1]);
            y(k, 0, h, t) = write({turned.x0, turned.x1});
        } else {
            angle(lane, k, t) = Tuple(cos, flip_sign(sin, sin_sign));
            const std::vector<Expr> x0 = read(0), x1 = read(1);
            std::vector<Expr> y0, y1;
            for (int i = 0; i < lanes; i++) {
                const Pair turned = rotate(target, {x0[i], x1[i]}, angle(i, k, t)[0], angle(i, k, t)[1]);
                y0.push_back(turned.x0);
                y1.push_back(turned.x1);
            }
            // Both members at once: all loads come before the stores, so that y may be x.
            y(k, Halide::scatter(0, 1), h, t) = Halide::gather(write(y0), write(y1));
        }

        const int members = pair_in_word ? 1 : 2;
        constrain(x, pairing, members);
        constrain(y, out_pairing, members);
        row_of_token.dim(0).set_min(0);
        for (auto *rows : {&cos_rows, &sin_rows}) {
            rows->dim(0).set_min(0);
            rows->dim(1).set_min(0);
        }
        angle.bound(lane, 0, by_member ? 2 : lanes);
        const auto schedule = arm ? schedule_arm : schedule_x86;
        schedule(y, angle, {k, h, t, lane, member, by_member, pairing == Pairing::strided},
                 {elements_per_step, elements_per_step_any, elements_per_vector});
    }

private:
    Var k{"k"}, r{"r"}, h{"h"}, t{"t"}, lane{"lane"};
    Halide::RDom member{0, 2, "member"};
    Func angle{"angle"};  // [lane, element, token] -> (cos, sin) of each lane's pair; interleaved: of each member

    /// A NaN of the caller's own rows, made one that survives the rounding of bf16.
    Expr row_value(const Expr &value) const { return dtype == Storage::bf16 ? canonical_nan(value) : value; }

    /// The pairing as a constraint on strides.
    template <typename AnyBuffer>
    void constrain(AnyBuffer &buffer, Pairing strides, int members) {
        for (int i = 0; i < 4; i++) {
            buffer.dim(i).set_min(0);
        }
        buffer.dim(1).set_extent(members);
        if (strides == Pairing::interleaved && !packed) {
            buffer.dim(0).set_stride(2);
            buffer.dim(1).set_stride(1);
        } else if (strides == Pairing::strided) {
            buffer.dim(0).set_stride(Expr());
        }  // half: Halide takes 1 for the stride of dimension 0
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Rope, rope)
