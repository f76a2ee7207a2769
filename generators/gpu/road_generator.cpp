// The whole road of a call's tensors on a GPU, in one launch: load, norm, rotate, scale, convert, store by slot.
#include "arithmetic/norm.h"
#include "gpu/device_angles.h"
#include "gpu/lowered.h"
#include "gpu/ptx.h"

#include <array>
#include <memory>
#include <optional>

namespace halyard {

/// Sets that buffers are FlatMemory, whose quads have so many elements.
template <typename AnyBuffer>
void constrain_flat(AnyBuffer &buffer, int in_quad) {
    const int strides[] = {1, in_quad, FlatMemory::quads_in_row * in_quad};
    for (int i = 0; i < 3; i++) {
        buffer.dim(i).set_bounds(0, i == 0 ? in_quad : FlatMemory::most);
        buffer.dim(i).set_stride(strides[i]);
    }
}

/// The place of a word in FlatMemory, in the quad that comes so many after another.
std::vector<Expr> flat_at(const Expr &quad, const Expr &after, const Expr &word) {
    constexpr int in_row = FlatMemory::quads_in_row, most = FlatMemory::most;
    const Expr low = cast<int32_t>(quad & (in_row - 1)), high = cast<int32_t>(quad / in_row);
    return {word, unsafe_promise_clamped(unsafe_promise_clamped(low, 0, in_row - 1) + after, 0, most - 1),
            unsafe_promise_clamped(high, 0, most - 1)};
}

/// A block takes some heads of one token through shared memory, as floats: loaded, normed, rotated and scaled. All that
/// a launch does to its tensors is scalars, not kernels. In place a block has read its heads before it writes them, and
/// no other block reads those.
class Road : public Halide::Generator<Road> {
    using Func = Halide::Func;
    using Var = Halide::Var;
    using RDom = Halide::RDom;
    using RVar = Halide::RVar;
    using Stage = Halide::Stage;

public:
    std::unique_ptr<Fields::Road> in;
    std::optional<DeviceAngles> device_angles;
    Output<Buffer<uint32_t, 3>> y{"y"};

    void configure() {
        in.reset(new Fields::Road{*this});
        device_angles.emplace(in->angles);
    }

    void generate() {
        define_load();
        define_norm();
        define_rotation();
        define_store();
        device_angles->constrain();
        begin_at_zero(*in->slots);
        constrain_flat(*in->weights, 8);
        constrain_flat(*in->x, 4);
        constrain_flat(y, 4);
        schedule_road();
        get_pipeline().add_custom_lowering_pass(new MayWriteInput(*in->n_tokens < 0));
        complete_device_code(get_pipeline(), target);
    }

private:
    static constexpr int heads_in_block = road_heads_in_block;  // each of as many threads as lanes

    Var e{"e"}, h{"h"}, t{"t"}, k{"k"}, w{"w"}, c{"c"};
    Func loaded{"loaded"}, sum{"sum"}, root{"root"}, normed{"normed"}, angle{"angle"}, value{"value"}, row{"row"},
        window{"window"}, packed{"packed"};
    RDom words, halves, steps, all;
    std::array<RDom, n_dtypes> stores;

    /// A scalar of the tensor that a head belongs to.
    static_assert(HALYARD_MAX_TENSORS == 4);
    template <typename T>
    Expr of(const InputSide::OfTensors<T> &each, const Expr &head) const {
        return select(head < in->end[0], each[0], head < in->end[1], each[1], head < in->end[2], each[2], each[3]);
    }
    template <typename T>
    Expr of_head(const InputSide::OfTensors<T> &each) const {
        return of(each, h);
    }

    /// The number of a head within its tensor.
    Expr place_of(const Expr &head) const {
        return head -
               select(head < in->end[0], 0, head < in->end[1], in->end[0], head < in->end[2], in->end[1], in->end[2]);
    }

    RDom once(const Expr &condition) const {
        RDom domain(0, 1, "once");
        domain.where(condition);
        return domain;
    }

    /// The words of so many quads: [word, round, thread].
    static RDom quads_of(const Expr &n_quads, const Expr &condition) {
        RDom domain({{0, 4}, {0, (n_quads + lanes - 1) / lanes}, {0, lanes}}, "quads");
        domain.where(condition);
        domain.where(domain.y * lanes + domain.z < n_quads);
        return domain;
    }
    static Expr quad_in(const RDom &domain) { return domain.y * lanes + domain.z; }

    /// An element that is accessed, and so lies in the head. Bounds inference does not look through casts that may
    /// wrap, so it takes the element for any of the head, which is what the schedule declares. Of a round of threads it
    /// would infer more, and Halide 21 would trap inside the kernel where that is more than head_dim.
    Expr in_head(const Expr &element) const {
        return unsafe_promise_clamped(cast<int32_t>(cast<uint32_t>(element)), 0, *in->head_dim - 1);
    }

    /// x as floats. Heads beyond the last one repeat it.
    void define_load() {
        const Expr head = Halide::min(h, *in->n_heads - 1);
        const Expr quad = of(in->x_at, head) + cast<int64_t>(place_of(head)) * of(in->x_head, head) +
                          cast<int64_t>(t) * of(in->x_token, head);
        const auto word = [&](const RDom &i) { return (*in->x)(flat_at(quad, quad_in(i), i.x)); };
        loaded(e, h, t) = Halide::undef<float>();
        words = quads_of(*in->head_dim / 4, *in->dtype == number_of(Dtype::f32));
        halves = quads_of(*in->head_dim / 8, *in->dtype != number_of(Dtype::f32));
        loaded(in_head(quad_in(words) * 4 + words.x), h, t) = reinterpret<float>(word(words));
        const Expr two = word(halves);
        const std::vector<Expr> f16 = unpack(target, Dtype::f16, two), bf16 = unpack(target, Dtype::bf16, two);
        const auto either = [&](size_t i) { return select(*in->dtype == number_of(Dtype::f16), f16[i], bf16[i]); };
        const Expr place = in_head(quad_in(halves) * 8 + halves.x * 2 + Halide::scatter(0, 1));
        loaded(place, h, t) = Halide::gather(either(0), either(1));
    }

    /// The weight of an element of the norm's window; of any other element, some weight.
    Expr weight(const Expr &element) const {
        const Expr kind = of_head(in->weight_kind) & (Fields::Road::adds_one - 1);
        const Expr i = select(kind == 0, 0, clamp(element, 0, Halide::max(of_head(in->norm_size), 1) - 1));
        const Expr is_f32 = kind == Fields::Road::kind_of(Dtype::f32),
                   is_f16 = kind == Fields::Road::kind_of(Dtype::f16);
        const Expr step = select(is_f32, 2, 1);
        const Expr at = of_head(in->weight_at), first = cast<int32_t>(at & 7);
        const auto half = [&](const Expr &j) {
            return cast<uint32_t>((*in->weights)(flat_at(at / 8, (first + j) / 8, (first + j) & 7)));
        };
        const Expr low = half(i * step), high = half(i * step + step - 1);
        const Expr given = select(kind == 0, 1.0f, is_f32, reinterpret<float>((high << 16) | low), is_f16,
                                  f16_bits_to_f32(target, low), reinterpret<float>(low << 16));
        return select((of_head(in->weight_kind) & Fields::Road::adds_one) != 0, Halide::strict_float(given + 1.0f),
                      given);
    }

    /// v rounded to the dtype of x.
    Expr rounded(const Expr &v) const {
        const Rounding usual = rounding_of(target, Halide::Internal::const_false(), Expr(0u));
        const Expr f16 = f16_bits_to_f32(target, f32_to_f16_bits(target, v));
        const Expr bf16 = reinterpret<float>(round_to_bf16(target, v, usual) & Expr(0xffff0000u));
        return select(*in->dtype == number_of(Dtype::f32), v, *in->dtype == number_of(Dtype::f16), f16, bf16);
    }

    void define_norm() {
        const Expr size = of_head(in->norm_size), offset = of_head(in->norm_offset);
        steps = RDom(0, (*in->head_dim + lanes - 1) / lanes, "steps");
        steps.where(steps.x * lanes < size);
        const Expr i = e + steps.x * lanes;
        const Expr element = select(i < size, loaded(in_head(Halide::min(i, size - 1) + offset), h, t), 0.0f);
        sum(e, h, t) = 0.0f;
        sum(e, h, t) = add_square(target, sum(e, h, t), element);
        std::vector<Expr> sums;
        for (int lane = 0; lane < lanes; lane++) {
            sums.push_back(sum(lane, h, t));
        }
        for (const int half : halves_of_lanes) {
            for (int lane = 0; lane < half; lane++) {
                sums[lane] = Halide::strict_float(sums[lane] + sums[lane + half]);
            }
        }
        root(h, t) = scale_of_norm(target, sums[0], cast<float>(Halide::max(size, 1)), of_head(in->eps));

        const Expr within = *in->has_norms != 0 && e >= offset && e < offset + size;
        const Expr x_e = loaded(e, h, t);
        const auto round = [&](const Expr &v, int flag) {
            return select(*in->has_roundings != 0 && (of_head(in->rounding) & flag) != 0, rounded(v), v);
        };
        normed(e, h, t) = select(within, norm_element(x_e, root(h, t), weight(e - offset), round), x_e);
    }

    void define_rotation() {
        const Angle turned = device_angles->at(target, k, t, {k, t});
        angle(k, t) = Tuple(turned.cos, flip_sign(turned.sin, *in->sin_sign));

        // Stored as unsigned, because bounds inference then knows nothing of it, and takes what the clamps below say.
        window(h, t) = cast<uint32_t>(of_head(in->rotary_offset));
        const Expr offset = cast<int32_t>(window(h, t)), pairs = *in->n_pairs, i = e - offset;
        const Expr is_in_interleaved = (of_head(in->interleaves) & Fields::Road::input_interleaves) != 0,
                   is_out_interleaved = (of_head(in->interleaves) & Fields::Road::output_interleaves) != 0;
        const Expr member = select(is_out_interleaved, i & 1, select(i < pairs, 0, 1));
        const Expr pair = select(is_out_interleaved, i / 2, i - member * pairs);
        const auto at = [&](const Expr &of_pair) {
            const Expr place = select(is_in_interleaved, 2 * pair + of_pair, of_pair * pairs + pair) + offset;
            return normed(in_head(clamp(place, 0, *in->head_dim - 1)), h, t);
        };
        const Expr safe = clamp(pair, 0, Halide::max(pairs, 1) - 1);
        const Expr signed_sin = flip_sign(angle(safe, t)[1], select(member == 0, sign_bit, Expr(0u)));
        const Expr rotated = rotate_member(target, at(member), at(1 - member), angle(safe, t)[0], signed_sin);
        const Expr turned_or_not = select(offset >= 0 && i >= 0 && i < 2 * pairs, rotated, normed(e, h, t));
        value(e, h, t) = Halide::strict_float(turned_or_not * of_head(in->reciprocal));
    }

    /// The quad that a head of a token begins with in y; -1: it is not stored.
    Expr stored_at() {
        const Expr slot =
            number_at(*in->slots_offset, *in->n_slot_words, [&](const Expr &at) { return (*in->slots)(at, t); });
        const Expr is_slot =
            slot >= 0 && slot < cast<int64_t>(*in->n_slots) && (*in->stores_bad != 0 || device_angles->cover(t));
        const Expr near = cast<int32_t>(clamp(slot, 0, cast<int64_t>(*in->n_slots) - 1));
        const Expr size = of_head(in->block_size), block = near / Halide::max(size, 1);
        const Expr in_block = near - block * size;
        const Expr head_at = of_head(in->y_at) + cast<int64_t>(place_of(h)) * of_head(in->y_head);
        const Expr in_view = head_at + cast<int64_t>(t) * of_head(in->y_token);
        const Expr in_cache =
            head_at + cast<int64_t>(block) * of_head(in->y_block) + cast<int64_t>(in_block) * of_head(in->y_token);
        return select(size == 0, in_view, is_slot, in_cache, cast<int64_t>(-1));
    }

    void define_store() {
        row(h, t) = stored_at();
        const Rounding usual = rounding_of(target, Halide::Internal::const_false(), Expr(0u));
        packed(w, c, h, t) = Halide::undef<uint32_t>();
        for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::e4m3, Dtype::e5m2, Dtype::int8}) {
            const int n = FlatMemory::quad_bytes / static_cast<int>(element_bytes(dtype));
            RDom &store = stores[index_of(dtype)];
            store = once(of_head(in->out) == number_of(dtype) && c * n < *in->head_dim);
            const auto element = [&](int i) {
                const Expr place = c * n + w * (n / 4) + i + store.x;
                return value(in_head(place), h, t);
            };
            Expr word;
            if (n == 4) {
                word = reinterpret<uint32_t>(element(0));
            } else if (n == 8) {
                word = pack(target, dtype, Halide::UInt(32), usual, {element(0), element(1)});
            } else {
                word = Expr(0u);
                for (int i = 0; i < 4; i++) {
                    word = word | (cast<uint32_t>(cast<uint8_t>(narrow(target, dtype, element(i)))) << (8 * i));
                }
            }
            packed(w, c, h, t) = word;
        }

        const Expr n_blocks = (*in->n_heads + heads_in_block - 1) / heads_in_block;
        const Expr n_rounds = ((*in->head_dim + 3) / 4 + lanes - 1) / lanes;
        all = RDom({{0, 4}, {0, n_rounds}, {0, lanes}, {0, heads_in_block}, {0, *in->n_tokens}, {0, n_blocks}}, "all");
        const Expr head = all[5] * heads_in_block + all[3], token = all[4], place = all[1] * lanes + all[2];
        const Expr quad = row(head, token);
        const Expr kind = of(in->out, head);
        const Expr n_quads = select(kind == number_of(Dtype::f32), *in->head_dim / 4, kind < number_of(Dtype::e4m3),
                                    *in->head_dim / 8, *in->head_dim / 16);
        all.where(head < *in->n_heads && quad >= 0);
        all.where(place < n_quads);
        y(w, c, h) = Halide::undef<uint32_t>();
        y(flat_at(quad, place, all[0])) = packed(all[0], place, head, token);
    }

    /// Not measured: no GPU was at hand. ptxas 13.5 gives the kernel at most 43 registers on sm_80 to sm_120, no stack
    /// and no spills (2026-11-23, tests/gpu/check_ptx.py). A thread has 16 bytes in each load and store.
    void schedule_road() {
        using namespace Halide;
        const auto tail = TailStrategy::GuardWithIf;
        const Var block("block"), thread("thread");
        y.gpu_tile(y.args()[0], block, thread, 1);
        Stage store = y.update().allow_race_conditions();
        store.vectorize(all[0]).gpu_threads(all[2], all[3]).gpu_blocks(all[4], all[5]);

        packed.compute_at(y, all[1]).store_in(MemoryType::Register).bound_extent(w, 4);
        for (size_t i = 0; i < stores.size(); i++) {
            packed.update(static_cast<int>(i)).vectorize(w);
        }

        // Declared extents: what Halide infers of them depends on all scalars of all tensors.
        for (Func in_shared : {loaded, normed, value}) {
            in_shared.compute_at(y, all[4]).store_in(MemoryType::GPUShared).align_storage(e, 4);
            in_shared.bound(e, 0, *in->head_dim).bound_extent(h, heads_in_block);
        }
        const Var across("across"), round("round");
        const auto by_element = [&](Stage stage) {
            stage.split(e, round, across, lanes, tail).reorder(round, across, h).gpu_threads(across, h);
        };
        for (int i : {0, 1}) {
            const RDom &domain = i == 0 ? words : halves;
            loaded.update(i).allow_race_conditions().vectorize(domain.x).gpu_threads(domain.z, h);
        }
        loaded.gpu_threads(e, h);
        by_element(normed);
        by_element(value);
        normed.specialize(*in->has_norms == 0);
        normed.specialize(*in->has_roundings == 0);
        sum.compute_at(y, all[4]).store_in(MemoryType::GPUShared).gpu_threads(e, h);
        sum.bound(e, 0, lanes).bound_extent(h, heads_in_block);
        sum.update().reorder(steps.x, e, h).gpu_threads(e, h);
        for (Func of_head : {root, row, window}) {
            of_head.compute_at(y, all[4]).store_in(MemoryType::GPUShared).gpu_threads(h);
            of_head.bound_extent(h, heads_in_block);
        }
        device_angles->branch_if_listed(row, h);
        const Var down("down"), k_round("k_round");
        angle.compute_at(y, all[4]).store_in(MemoryType::GPUShared).bound(k, 0, Halide::max(*in->n_pairs, 1));
        // Halide 21 counts shared memory in its widest elements, here of 8 bytes. It asks for too little where an array
        // takes half of one.
        angle.align_storage(k, 2);
        angle.split(k, k_round, across, lanes, tail).split(k_round, k_round, down, heads_in_block, tail);
        angle.reorder(k_round, across, down).gpu_threads(across, down);
        device_angles->branch(angle, k_round);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Road, road)
