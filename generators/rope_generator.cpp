#include "angles.h"
#include "rotation.h"
#include "schedule_arm.h"
#include "schedule_gpu.h"
#include "schedule_x86.h"

namespace halyard {

/// How the members of a pair lie in a head: see halyard.h. Strided is any layout at all.
enum class Pairing { half, interleaved, strided };

const std::map<std::string, Pairing> pairings = {
    {"half", Pairing::half}, {"interleaved", Pairing::interleaved}, {"strided", Pairing::strided}};

/// Rotary position embedding: y is x with pair k of every head turned by its token's angle.
class Rope : public Halide::Generator<Rope> {
public:
    GeneratorParam<Storage> dtype{"dtype", Storage::f32, storages};
    GeneratorParam<bool> packed{"packed", false};  // 16-bit elements as words of two neighbours
    GeneratorParam<Pairing> pairing{"pairing", Pairing::half, pairings};
    GeneratorParam<Pairing> out_pairing{"out_pairing", Pairing::half, pairings};
    GeneratorParam<bool> in_place{"in_place", false};  // x is y, and the buffer x is not read
    GeneratorParam<AngleSource> angles{"angles", AngleSource::rows, angle_sources};
    // The numbers of a CPU's schedule: see Steps in schedule.h.
    GeneratorParam<int> elements_per_step{"elements_per_step", 16, 4, 128};
    GeneratorParam<int> elements_per_step_any{"elements_per_step_any", 16, 4, 128};
    GeneratorParam<int> elements_per_vector{"elements_per_vector", 16, 4, 128};
    GeneratorParam<int> heads_per_step{"heads_per_step", 1, 1, 4};
    GeneratorParam<int> hoist_rows{"hoist_rows", 1, 0, 1};
    GeneratorParam<int> swap_members{"swap_members", 0, 0, 1};  // interleaved, not packed: else they are scattered
    GeneratorParam<bool> round_by_test{"round_by_test", false};
    // And of a GPU's: see GpuSteps in schedule_gpu.h.
    GeneratorParam<int> element_threads{"element_threads", 8, 1, 32};
    GeneratorParam<int> head_threads{"head_threads", 16, 1, 32};
    GeneratorParam<int> heads_per_thread{"heads_per_thread", 4, 1, 16};
    GeneratorParam<int> few_tokens{"few_tokens", 64, 0, 4096};

    AngleInputs angle_inputs;     // row_of_token, cos_rows and sin_rows; a GPU's others: see angles.h
    Input<uint32_t> *sin_sign;    // 0; the inverse 0x80000000
    Input<int32_t> *x_offset;     // elements from the start of x's and y's memory to the first pair: GPU only, where
    Input<int32_t> *y_offset;     // memory may have a handle (OpenCL) instead of an address
    Input<Buffer<void>> *x;       // [pair, member, head, token]; packed: two pairs or two members in an element;
    Output<Buffer<void>> y{"y"};  // GPU: [..., offset], with a stride of 1

    void configure() {
        const bool on_gpu = get_target().has_gpu_feature();
        angle_inputs.add_to(*this, angles);
        sin_sign = add_input<uint32_t>("sin_sign");
        if (on_gpu) {
            x_offset = add_input<int32_t>("x_offset");
            y_offset = add_input<int32_t>("y_offset");
        }
        const Halide::Type element = element_type(target, dtype, packed);
        x = add_input<Buffer<void>>("x", element, on_gpu ? 5 : 4);
        y.set_type(element);
        y.set_dimensions(on_gpu ? 5 : 4);
    }

    void generate() {
        const bool on_gpu = get_target().has_gpu_feature();
        const bool interleaved = pairing == Pairing::interleaved && out_pairing == Pairing::interleaved;
        const bool by_member = interleaved && !packed && (on_gpu || swap_members != 0);
        const bool pair_in_word = packed && interleaved;
        const int lanes = packed && !interleaved ? 2 : 1;  // pairs in an element
        // Where y is written is a reduction over one value: on the left, an expression is only free to be that.
        Halide::Region over;
        if (by_member) {
            over.emplace_back(0, 2);
        }
        if (on_gpu) {
            over.emplace_back(aligned(*y_offset), 1);
        }
        const Halide::RDom domain = over.empty() ? Halide::RDom() : Halide::RDom(over, "over");
        const Halide::RVar member = by_member ? domain[0] : Halide::RVar();
        const Expr start = on_gpu ? Expr(domain[domain.dimensions() - 1]) : Expr();
        const Expr x_start = on_gpu ? aligned(*x_offset) : Expr();
        const auto place = [&](const Expr &which, const Expr &offset) {
            return on_gpu ? std::vector<Expr>{k, which, h, t, offset} : std::vector<Expr>{k, which, h, t};
        };
        const auto read = [&](const Expr &which) {
            return unpack(target, dtype, in_place ? Expr(y(place(which, start))) : Expr((*x)(place(which, x_start))));
        };
        const Expr zero = *sin_sign & 0x7fffffff;  // which LLVM does not know
        const Rounding rounding = rounding_of(target, round_by_test, zero);
        const auto write = [&](const std::vector<Expr> &floats) {
            return pack(target, dtype, y.type(), rounding, floats);
        };
        const Angle row = angle_inputs.at(target, lanes == 1 ? Expr(k) : k * lanes + lane, t);
        // Turning no sign of cos keeps LLVM from making a call to memcpy of its copy.
        const Expr cos = flip_sign(row_value(row.cos), zero);
        const Expr sin = row_value(row.sin);

        y(on_gpu ? std::vector<Var>{k, r, h, t, offset} : std::vector<Var>{k, r, h, t}) = Halide::undef(y.type());
        if (by_member) {
            // Member by member: one shuffle within a vector swaps self and cross, where two would split the pairs.
            angle(lane, k, t) = Tuple(cos, flip_sign(sin, *sin_sign ^ select(lane == 0, sign_bit, Expr(0u))));
            y(place(member, start)) = write({rotate_member(target, read(member)[0], read(1 - member)[0],
                                                           angle(member, k, t)[0], angle(member, k, t)[1])});
        } else if (pair_in_word) {
            angle(lane, k, t) = Tuple(cos, flip_sign(sin, *sin_sign));
            const std::vector<Expr> word = read(0);
            const Pair turned = rotate(target, {word[0], word[1]}, angle(0, k, t)[0], angle(0, k, t)[1]);
            y(place(0, start)) = write({turned.x0, turned.x1});
        } else {
            angle(lane, k, t) = Tuple(cos, flip_sign(sin, *sin_sign));
            const std::vector<Expr> x0 = read(0), x1 = read(1);
            std::vector<Expr> y0, y1;
            for (int i = 0; i < lanes; i++) {
                const Pair turned = rotate(target, {x0[i], x1[i]}, angle(i, k, t)[0], angle(i, k, t)[1]);
                y0.push_back(turned.x0);
                y1.push_back(turned.x1);
            }
            // Both members at once: all loads come before the stores, so that y may be x.
            y(place(Halide::scatter(0, 1), start)) = Halide::gather(write(y0), write(y1));
        }

        const int members = pair_in_word ? 1 : 2;
        constrain(*x, pairing, members);
        constrain(y, out_pairing, members);
        angle_inputs.constrain();
        angle.bound(lane, 0, by_member ? 2 : lanes);
        std::vector<int> known_extents;
        for (const int pairs : pairing == Pairing::strided ? std::vector<int>() : known_pairs) {
            // AVX-512 has masks for all lanes, so that vectors of four would be no gain.
            if (pairs / lanes % 8 == 0 || !get_target().has_feature(Target::AVX512)) {
                known_extents.push_back(pairs / lanes);
            }
        }
        schedule({k, h, t, lane, member, by_member, pairing == Pairing::strided, known_extents});
    }

private:
    Var k{"k"}, r{"r"}, h{"h"}, t{"t"}, offset{"offset"}, lane{"lane"};
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

    /// Elements that one thread of a GPU takes in a step: 128 bits of each member, but of any layout one.
    int per_thread() const {
        const bool by_member = pairing == Pairing::interleaved && !packed;
        return pairing == Pairing::strided ? 1 : by_member ? 2 : 4;
    }

    /// A stride or an offset of words, rounded so that Halide knows it to be a multiple of 128 bits where that counts.
    Expr aligned(const Expr &words) const { return pairing == Pairing::strided ? words : words / 4 * 4; }

    void schedule(const Loops &loops) {
        if (!get_target().has_gpu_feature()) {
            const auto schedule_cpu = get_target().arch == Target::ARM ? schedule_arm : schedule_x86;
            schedule_cpu(
                y, angle, loops,
                {elements_per_step, elements_per_step_any, elements_per_vector, heads_per_step, hoist_rows != 0});
            return;
        }
        constrain_on_gpu(y);
        constrain_on_gpu(*x);
        schedule_gpu(y, angle, loops, {per_thread(), element_threads, head_threads, heads_per_thread, few_tokens},
                     angle_inputs.has_one_axis());
    }

    /// What 128-bit accesses need. Halide checks it when a kernel is called.
    template <typename AnyBuffer>
    void constrain_on_gpu(AnyBuffer &buffer) {
        buffer.dim(4).set_min(0);
        buffer.dim(4).set_stride(1);
        buffer.dim(0).set_extent(buffer.dim(0).extent() / per_thread() * per_thread());
        for (int i = 1; i < 4; i++) {
            if (i > 1 || packed || pairing == Pairing::half) {
                buffer.dim(i).set_stride(aligned(buffer.dim(i).stride()));
            }
        }
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Rope, rope)
