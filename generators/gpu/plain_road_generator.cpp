// The road of plain tensors on CUDA: heads of 16-bit floats that are normed, rotated and stored whole, or left as they
// are.
#include "arithmetic/norm.h"
#include "gpu/road.h"

namespace halyard {

/// Takes tensors from load to store whose heads have this many elements, of one dtype from x to y. Pairs are halves, a
/// norm and a rotation take the whole head, and weights are of the same dtype and begin on 16 bytes. A thread has words
/// i, i + 8 and so on of a head: with them both members of a pair, and all elements of two of a norm's partial sums. So
/// those sums alone go through shared memory, beside angles and what is said once of a head. A thread loads x a second
/// time for what it stores, then mostly from the cache, and has loaded all of it before it stores any.
class PlainRoad : public RoadGenerator<PlainRoad> {
    using Func = Halide::Func;
    using Var = Halide::Var;
    using RDom = Halide::RDom;

public:
    GeneratorParam<Dtype> dtype{"element", Dtype::bf16, dtypes};  // the fields have the names dtype and head_dim
    GeneratorParam<int> head_dim{"n_elements", 128, 32, 256};
    Output<Buffer<uint32_t, 3>> y{"y"};

    void configure() { add_fields(); }

    void generate() {
        token = Halide::min(t, *in->n_tokens - 1);
        define_places();
        define_norm();
        define_rotation();
        define_store();
        constrain_inputs();
        constrain_flat(*in->weights, 8, true);
        in->weights->set_host_alignment(FlatMemory::quad_bytes);
        constrain_flat(*in->x, 4, true);
        constrain_flat(y, 4, true);
        schedule_road();
        get_pipeline().add_custom_lowering_pass(new MayWriteInput(*in->n_tokens < 0));
        get_pipeline().add_custom_lowering_pass(new DropBarriers({"angle", "goal"}));
        get_pipeline().add_custom_lowering_pass(new AlignPairs("weights"));
        complete_device_code(get_pipeline(), target, {dtype == Dtype::bf16, head_dim > 128 ? 48 : 32});
    }

private:
    // Blocks of 128 threads, and all that an SM can have of them: of 32 registers each. An H100 takes 247 us for 28,520
    // tokens of 32 + 8 heads, with 40 registers 264, with 56 296; with twice the tokens 282, with twice the heads or
    // half of them more. A copy takes 194.
    static constexpr int heads_in_block = 8, tokens_in_block = 2, threads = lanes / 2;  // threads of a head
    static constexpr int has_weight = 1, is_rotated = 2;                                // bits of a kind

    Var j{"j"}, m{"m"}, i{"i"};  // a word of a thread, a thread of a head, an element of a word
    Func goal{"goal"}, angle{"angle"}, places{"places"}, kinds{"kinds"}, summed{"summed"}, sums{"sums"}, root{"root"},
        loaded{"loaded"}, weights{"weights_of"}, normed{"normed"}, rounded{"rounded"}, packed{"packed"};
    RDom all;

    int n_words() const { return head_dim / lanes; }  // of a thread

    /// Where a head begins in x, in words, and its weight, in elements: if it has none, the runtime names some other.
    /// Heads beyond the last one repeat it. Unsigned, because bounds inference then knows nothing of them.
    void define_places() {
        const Expr head = Halide::min(h, *in->n_heads - 1);
        const Expr quad = of(in->x_at, head) + cast<int64_t>(place_of(head)) * of(in->x_head, head) +
                          cast<int64_t>(token) * of(in->x_token, head);
        places(h, t) = Tuple(cast<uint64_t>(quad * 4), cast<uint64_t>(of(in->weight_at, head)));
        kinds(h, t) = select(of_head(in->weight_kind) != 0, has_weight, 0) |
                      select(of_head(in->rotary_offset) >= 0, is_rotated, 0);
    }
    Expr place(int which) const { return cast<int64_t>(Expr(places(h, t)[which])); }
    Expr is(int kind) const { return (kinds(h, t) & kind) != 0; }

    Expr x_word() const { return (*in->x)(line_at(place(0) + m, threads * j, 4)); }

    /// An element of a word as a float.
    Expr element(const Expr &word) const {
        const Expr up = word << cast<uint32_t>(16 - 16 * i), down = word >> cast<uint32_t>(16 * i);
        return dtype == Dtype::bf16 ? reinterpret<float>(up & Expr(0xffff0000u)) : f16_bits_to_f32(down);
    }
    /// Two halves as a word. Of floats Halide 21 would make a sum of the first and a difference: these are integers.
    Expr word_of(Func halves) const {
        return reinterpret<uint32_t>(
            Halide::Internal::Shuffle::make_concat({halves(0, j, m, h, t), halves(1, j, m, h, t)}));
    }

    void define_norm() {
        summed(j, m, h, t) = x_word();
        Expr sum = 0.0f;
        for (int word = 0; word < n_words(); word++) {
            sum = add_square(sum, element(summed(word, m, h, t)));
        }
        sums(i, m, h, t) = select(*in->has_norms != 0, sum, 0.0f);
        std::vector<Expr> of_lanes;
        for (int lane = 0; lane < lanes; lane++) {
            of_lanes.push_back(sums(lane % 2, lane / 2, h, t));
        }
        const Expr scale = scale_of_norm(target, sum_of_lanes(of_lanes), cast<float>(Expr(static_cast<int>(head_dim))),
                                         of_head(in->eps));
        root(h, t) = select(*in->has_norms != 0 && of_head(in->norm_size) != 0, scale, 1.0f);

        loaded(j, m, h, t) = x_word();
        weights(i, j, m, h, t) = (*in->weights)(line_at(place(1) + 2 * m, lanes * j + i, 8));
        const auto as_it_is = [](const Expr &v, int) { return v; };
        const Expr x = element(loaded(j, m, h, t)), weight = select(is(has_weight), element(word_of(weights)), 1.0f);
        normed(i, j, m, h, t) = select(*in->has_norms != 0, norm_element(x, root(h, t), weight, as_it_is), x);
    }

    void define_rotation() {
        const Angle turned = device_angles->at(k, token);
        angle(k, t) = Tuple(turned.cos, flip_sign(turned.sin, *in->sin_sign));
        const int in_half = n_words() / 2;
        const Expr pair = (j % in_half) * lanes + 2 * m + i, is_second = j >= in_half;
        const Expr here = normed(i, j, m, h, t), other = normed(i, (j + in_half) % n_words(), m, h, t);
        const Expr sin = flip_sign(angle(pair, t)[1], select(is_second, Expr(0u), sign_bit));
        const Expr rotated = rotate_member(here, other, angle(pair, t)[0], sin);
        // complete_ptx makes bf16 of it.
        rounded(i, j, m, h, t) = reinterpret<uint16_t>(cast(Halide::Float(16), select(is(is_rotated), rotated, here)));
        packed(j, m, h, t) = word_of(rounded);
    }

    void define_store() {
        goal(h, t) = stored_at();
        // Unsigned as above.
        const auto is_below = [](const Expr &n, const Expr &end) { return cast<uint32_t>(n) < cast<uint32_t>(end); };
        const auto n_blocks = [](const Expr &n, int in_block) { return (n + in_block - 1) / in_block; };
        all = RDom({{0, n_words()},
                    {0, threads},
                    {0, heads_in_block},
                    {0, tokens_in_block},
                    {0, n_blocks(*in->n_tokens, tokens_in_block)},
                    {0, n_blocks(*in->n_heads, heads_in_block)}},
                   "all");
        const Expr head = all[5] * heads_in_block + all[2], of_token = all[4] * tokens_in_block + all[3];
        const Expr quad = goal(head, of_token);
        all.where(is_below(head, *in->n_heads) && is_below(of_token, *in->n_tokens) && quad >= 0);
        y(k, j, m) = Halide::undef<uint32_t>();
        y(line_at(quad * 4 + all[1], threads * all[0], 4)) = packed(all[0], all[1], head, of_token);
    }

    void schedule_road() {
        using namespace Halide;
        const auto tail = TailStrategy::GuardWithIf;
        const Var block("block"), thread("thread"), across("across"), down("down"), round("round");
        y.gpu_tile(y.args()[0], block, thread, 1);
        Stage store = y.update().allow_race_conditions();
        store.unroll(all[0]).gpu_threads(all[1], all[2], all[3]).gpu_blocks(all[4], all[5]);

        // Halide makes these in the order of their names, as far as they need each other: goal and angle come first.
        for (Func of_block : {goal, angle, places, kinds, sums, root}) {
            of_block.compute_at(y, all[4]).store_in(MemoryType::GPUShared).bound_extent(t, tokens_in_block);
        }
        for (Func of_head : {goal, places, kinds, root}) {
            of_head.bound_extent(h, heads_in_block).gpu_threads(h, t);
        }
        kinds.compute_with(places, h);
        device_angles->branch_if_one_axis(goal);
        angle.bound(k, 0, head_dim / 2);
        angle.split(k, k, across, threads, tail).split(k, round, down, heads_in_block, tail);
        angle.reorder(round, across, down, t).gpu_threads(across, down, t);
        device_angles->branch(angle);
        sums.bound(i, 0, 2).bound(m, 0, threads).bound_extent(h, heads_in_block).vectorize(i).gpu_threads(m, h, t);
        sums.specialize(*in->has_norms != 0);
        summed.compute_at(sums, m).store_in(MemoryType::Register).bound(j, 0, n_words()).unroll(j);

        for (Func of_thread : {loaded, weights, normed, rounded, packed}) {
            of_thread.compute_at(y, all[1]).store_in(MemoryType::Register).bound(j, 0, n_words()).unroll(j);
        }
        for (Func by_elements : {weights, normed, rounded}) {
            by_elements.bound(i, 0, 2).vectorize(i);
        }
        normed.specialize(*in->has_norms != 0);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::PlainRoad, plain_road)
