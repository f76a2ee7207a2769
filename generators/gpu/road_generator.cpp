// The whole road of a call's tensors on a GPU, in one launch: load, norm, rotate, scale, convert, store by slot.
#include "gpu/device_angles.h"
#include "gpu/lowered.h"
#include "gpu/ptx.h"

#include "base/nearest.h"

#include <array>
#include <string>

namespace halyard {

/// Memory of which a kernel reaches all that 64 bits can: [word, quad, row], rows of 2^22 quads of 16 bytes each. What
/// a tensor has begins with a quad, and is named by its number.
struct FlatMemory {
    static constexpr int quads_in_row = 1 << 22, most = 1 << 28;

    template <typename AnyBuffer>
    static void constrain(AnyBuffer &buffer, int words_in_quad) {
        const int strides[] = {1, words_in_quad, quads_in_row * words_in_quad};
        for (int i = 0; i < 3; i++) {
            buffer.dim(i).set_bounds(0, i == 0 ? words_in_quad : most);
            buffer.dim(i).set_stride(strides[i]);
        }
    }

    /// The place of a word, in the quad that comes so many after another.
    static std::vector<Expr> at(const Expr &quad, const Expr &after, const Expr &word) {
        const Expr low = cast<int32_t>(quad & (quads_in_row - 1)), high = cast<int32_t>(quad / quads_in_row);
        return {word, unsafe_promise_clamped(unsafe_promise_clamped(low, 0, quads_in_row - 1) + after, 0, most - 1),
                unsafe_promise_clamped(high, 0, most - 1)};
    }
};

/// What differs between the tensors of a launch: a scalar for each, found by the head.
template <typename T>
class OfTensor {
public:
    static constexpr int n_tensors = 4;

    void add_to(Halide::Internal::GeneratorBase &generator, const std::string &name) {
        for (int i = 0; i < n_tensors; i++) {
            inputs_[static_cast<size_t>(i)] = generator.add_input<T>(name + "_" + std::to_string(i));
        }
    }

    Expr operator[](int i) const { return *inputs_[static_cast<size_t>(i)]; }

private:
    std::array<Halide::GeneratorInput<T> *, n_tensors> inputs_ = {};
};

/// Roots and quotients, correctly rounded: see nearest.h.
struct RootMath {
    using Float = Expr;

    Target target;

    Expr root(const Expr &x) const { return is_cuda() ? nvvm("llvm.nvvm.sqrt.rn.f", {x}) : nearest_root(*this, x); }
    Expr quotient(const Expr &a, const Expr &b) const {
        return is_cuda() ? nvvm("llvm.nvvm.div.rn.f", {a, b}) : nearest_quotient(*this, a, b);
    }

    Expr fma(const Expr &a, const Expr &b, const Expr &c) const { return halyard::fma(target, a, b, c); }
    static Expr times(const Expr &a, const Expr &b) { return Halide::strict_float(a * b); }
    static Expr plus(const Expr &a, const Expr &b) { return Halide::strict_float(a + b); }
    static Expr negate(const Expr &x) { return flip_sign(x, sign_bit); }
    static Expr moved(const Expr &x, int n) { return reinterpret<float>(reinterpret<int32_t>(x) + n); }
    static Expr select(const Expr &condition, const Expr &a, const Expr &b) { return Halide::select(condition, a, b); }
    /// Halide takes an expression that is used often for as many, and its time for that grows by powers.
    template <typename Body>
    static Expr let(const Expr &value, const Body &body) {
        const std::string name = Halide::Internal::unique_name("value");
        return Halide::Internal::Let::make(name, value, body(Halide::Internal::Variable::make(value.type(), name)));
    }
    static Expr root_estimate(const Expr &x) { return Halide::strict_float(Halide::sqrt(x)); }
    static Expr quotient_estimate(const Expr &a, const Expr &b) { return Halide::strict_float(a / b); }

private:
    bool is_cuda() const { return target.has_feature(Target::CUDA); }
    static Expr nvvm(const char *name, const std::vector<Expr> &of) {
        return Halide::Internal::Call::make(Halide::Float(32), name, of, Halide::Internal::Call::PureExtern);
    }
};

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
    DeviceAngles device_angles;
    Input<uint32_t> *sin_sign;                  // 0; the inverse 0x80000000
    Input<int32_t> *n_pairs;                    // that are rotated
    Input<int32_t> *stores_bad;                 // 1: tokens whose positions have no angles are stored like others
    Input<int32_t> *dtype;                      // of x: 0 f32, 1 f16, 2 bf16
    Input<int32_t> *has_norms, *has_roundings;  // of any tensor
    Input<int32_t> *head_dim, *n_heads, *n_tokens;
    Input<Buffer<int32_t>> *slots;  // [offset + word, token]
    Input<int32_t> *slots_offset, *n_slot_words, *n_slots;
    OfTensor<int32_t> end;                    // the first head that is none of this tensor's and those before it
    OfTensor<int64_t> x_at, x_head, x_token;  // the first head of the first token, and strides, in quads
    OfTensor<int64_t> y_at, y_head, y_token, y_block;
    OfTensor<int32_t> block_size;              // of a cache; 0: y is a view
    OfTensor<int32_t> out;                     // a Storage
    OfTensor<float> reciprocal;                // of the scale
    OfTensor<int32_t> rotary_offset;           // -1: it is not rotated
    OfTensor<int32_t> interleaves;             // 1: the input's pairs, 2: the output's
    OfTensor<int32_t> norm_offset, norm_size;  // 0: it is not normed
    OfTensor<float> eps;
    OfTensor<int32_t> rounding;     // of the normed: 1 before the weight, 2 after it
    OfTensor<int32_t> weight_kind;  // 0: none; 1 f32, 2 f16, 3 bf16; and 4: it is 1 + w
    OfTensor<int64_t> weight_at;    // in halves of a word
    Input<Buffer<uint16_t>> *weights;
    Input<Buffer<uint32_t>> *x;  // flat, as y is; and may be it
    Output<Buffer<uint32_t, 3>> y{"y"};

    void configure() {
        device_angles.add_to(*this);
        sin_sign = add_input<uint32_t>("sin_sign");
        for (const auto &[input, name] : {std::pair{&n_pairs, "n_pairs"},
                                          {&stores_bad, "stores_bad"},
                                          {&dtype, "dtype"},
                                          {&has_norms, "has_norms"},
                                          {&has_roundings, "has_roundings"},
                                          {&head_dim, "head_dim"},
                                          {&n_heads, "n_heads"},
                                          {&n_tokens, "n_tokens"}}) {
            *input = add_input<int32_t>(name);
        }
        slots = add_input<Buffer<int32_t>>("slots", 2);
        slots_offset = add_input<int32_t>("slots_offset");
        n_slot_words = add_input<int32_t>("n_slot_words");
        n_slots = add_input<int32_t>("n_slots");
        end.add_to(*this, "end");
        x_at.add_to(*this, "x_at");
        x_head.add_to(*this, "x_head");
        x_token.add_to(*this, "x_token");
        y_at.add_to(*this, "y_at");
        y_head.add_to(*this, "y_head");
        y_token.add_to(*this, "y_token");
        y_block.add_to(*this, "y_block");
        block_size.add_to(*this, "block_size");
        out.add_to(*this, "out");
        reciprocal.add_to(*this, "reciprocal");
        rotary_offset.add_to(*this, "rotary_offset");
        interleaves.add_to(*this, "interleaves");
        norm_offset.add_to(*this, "norm_offset");
        norm_size.add_to(*this, "norm_size");
        eps.add_to(*this, "eps");
        rounding.add_to(*this, "rounding");
        weight_kind.add_to(*this, "weight_kind");
        weight_at.add_to(*this, "weight_at");
        weights = add_input<Buffer<uint16_t>>("weights", 3);
        x = add_input<Buffer<uint32_t>>("x", 3);
    }

    void generate() {
        define_load();
        define_norm();
        define_rotation();
        define_store();
        device_angles.constrain();
        for (int i = 0; i < 2; i++) {
            slots->dim(i).set_min(0);
        }
        FlatMemory::constrain(*weights, 8);
        FlatMemory::constrain(*x, 4);
        FlatMemory::constrain(y, 4);
        schedule_road();
        get_pipeline().add_custom_lowering_pass(new MayWriteInput(*n_tokens < 0));
        complete_device_code(get_pipeline(), target);
    }

private:
    static constexpr int lanes = 16;  // the partial sums of a norm, and the threads of a head
    static constexpr int heads_in_block = 4;

    Var e{"e"}, h{"h"}, t{"t"}, k{"k"}, w{"w"}, c{"c"};
    Func loaded{"loaded"}, sum{"sum"}, root{"root"}, normed{"normed"}, angle{"angle"}, value{"value"}, row{"row"},
        window{"window"}, packed{"packed"};
    RDom words, halves, steps, all;
    std::array<RDom, 6> stores;

    /// A scalar of the tensor that a head belongs to.
    template <typename T>
    static Expr of(const OfTensor<T> &each, const OfTensor<int32_t> &end, const Expr &head) {
        return select(head < end[0], each[0], head < end[1], each[1], head < end[2], each[2], each[3]);
    }
    template <typename T>
    Expr of_head(const OfTensor<T> &each) const {
        return of(each, end, h);
    }

    /// The number of a head within its tensor.
    static Expr number_of(const OfTensor<int32_t> &end, const Expr &head) {
        return head - select(head < end[0], 0, head < end[1], end[0], head < end[2], end[1], end[2]);
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
        return unsafe_promise_clamped(cast<int32_t>(cast<uint32_t>(element)), 0, *head_dim - 1);
    }

    /// x as floats. Heads beyond the last one repeat it.
    void define_load() {
        const Expr head = Halide::min(h, *n_heads - 1);
        const Expr quad = of(x_at, end, head) + cast<int64_t>(number_of(end, head)) * of(x_head, end, head) +
                          cast<int64_t>(t) * of(x_token, end, head);
        const auto word = [&](const RDom &i) { return (*x)(FlatMemory::at(quad, quad_in(i), i.x)); };
        loaded(e, h, t) = Halide::undef<float>();
        words = quads_of(*head_dim / 4, *dtype == 0);
        halves = quads_of(*head_dim / 8, *dtype != 0);
        loaded(in_head(quad_in(words) * 4 + words.x), h, t) = reinterpret<float>(word(words));
        const Expr two = word(halves);
        const std::vector<Expr> f16 = unpack(target, Storage::f16, two), bf16 = unpack(target, Storage::bf16, two);
        const auto either = [&](size_t i) { return select(*dtype == 1, f16[i], bf16[i]); };
        const Expr place = in_head(quad_in(halves) * 8 + halves.x * 2 + Halide::scatter(0, 1));
        loaded(place, h, t) = Halide::gather(either(0), either(1));
    }

    /// The weight of an element of the norm's window; of any other element, some weight.
    Expr weight(const Expr &element) const {
        const Expr kind = of_head(weight_kind) & 3;
        const Expr i = select(kind == 0, 0, clamp(element, 0, Halide::max(of_head(norm_size), 1) - 1));
        const Expr step = select(kind == 1, 2, 1);
        const Expr at = of_head(weight_at), first = cast<int32_t>(at & 7);
        const auto half = [&](const Expr &j) {
            return cast<uint32_t>((*weights)(FlatMemory::at(at / 8, (first + j) / 8, (first + j) & 7)));
        };
        const Expr low = half(i * step), high = half(i * step + step - 1);
        const Expr given = select(kind == 0, 1.0f, kind == 1, reinterpret<float>((high << 16) | low), kind == 2,
                                  f16_bits_to_f32(target, low), reinterpret<float>(low << 16));
        return select((of_head(weight_kind) & 4) != 0, Halide::strict_float(given + 1.0f), given);
    }

    /// v rounded to the dtype of x.
    Expr rounded(const Expr &v) const {
        const Rounding usual = rounding_of(target, Halide::Internal::const_false(), Expr(0u));
        const Expr f16 = f16_bits_to_f32(target, f32_to_f16_bits(target, v));
        const Expr bf16 = reinterpret<float>(round_to_bf16(target, v, usual) & Expr(0xffff0000u));
        return select(*dtype == 0, v, *dtype == 1, f16, bf16);
    }

    void define_norm() {
        const Expr size = of_head(norm_size), offset = of_head(norm_offset);
        steps = RDom(0, (*head_dim + lanes - 1) / lanes, "steps");
        steps.where(steps.x * lanes < size);
        const Expr i = e + steps.x * lanes;
        const Expr element = select(i < size, loaded(in_head(Halide::min(i, size - 1) + offset), h, t), 0.0f);
        sum(e, h, t) = 0.0f;
        sum(e, h, t) = fma(target, element, element, sum(e, h, t));
        std::vector<Expr> sums;
        for (int lane = 0; lane < lanes; lane++) {
            sums.push_back(sum(lane, h, t));
        }
        for (size_t half = lanes / 2; half >= 1; half /= 2) {
            for (size_t lane = 0; lane < half; lane++) {
                sums[lane] = Halide::strict_float(sums[lane] + sums[lane + half]);
            }
        }
        const RootMath math = {target};
        const Expr mean = math.quotient(sums[0], cast<float>(Halide::max(size, 1)));
        root(h, t) = math.quotient(1.0f, math.root(Halide::strict_float(mean + of_head(eps))));

        const Expr within = *has_norms != 0 && e >= offset && e < offset + size;
        const Expr x_e = loaded(e, h, t), scaled = Halide::strict_float(x_e * root(h, t));
        const auto rounded_if = [&](int flag, const Expr &v) {
            return select(*has_roundings != 0 && (of_head(rounding) & flag) != 0, rounded(v), v);
        };
        const Expr weighted = Halide::strict_float(rounded_if(1, scaled) * weight(e - offset));
        normed(e, h, t) = select(within, rounded_if(2, weighted), x_e);
    }

    void define_rotation() {
        const Angle turned = device_angles.at(target, k, t, {k, t});
        angle(k, t) = Tuple(turned.cos, flip_sign(turned.sin, *sin_sign));

        // Stored as unsigned, because bounds inference then knows nothing of it, and takes what the clamps below say.
        window(h, t) = cast<uint32_t>(of_head(rotary_offset));
        const Expr offset = cast<int32_t>(window(h, t)), pairs = *n_pairs, i = e - offset;
        const Expr is_in_interleaved = (of_head(interleaves) & 1) != 0,
                   is_out_interleaved = (of_head(interleaves) & 2) != 0;
        const Expr member = select(is_out_interleaved, i & 1, select(i < pairs, 0, 1));
        const Expr pair = select(is_out_interleaved, i / 2, i - member * pairs);
        const auto at = [&](const Expr &of_pair) {
            const Expr place = select(is_in_interleaved, 2 * pair + of_pair, of_pair * pairs + pair) + offset;
            return normed(in_head(clamp(place, 0, *head_dim - 1)), h, t);
        };
        const Expr safe = clamp(pair, 0, Halide::max(pairs, 1) - 1);
        const Expr signed_sin = flip_sign(angle(safe, t)[1], select(member == 0, sign_bit, Expr(0u)));
        const Expr rotated = rotate_member(target, at(member), at(1 - member), angle(safe, t)[0], signed_sin);
        const Expr turned_or_not = select(offset >= 0 && i >= 0 && i < 2 * pairs, rotated, normed(e, h, t));
        value(e, h, t) = Halide::strict_float(turned_or_not * of_head(reciprocal));
    }

    /// The quad that a head of a token begins with in y; -1: it is not stored.
    Expr stored_at() {
        const Expr low = (*slots)(*slots_offset, t);
        const Expr high = (*slots)(*slots_offset + unsafe_promise_clamped(*n_slot_words, 1, 2) - 1, t);
        const Expr wide = (cast<int64_t>(high) << 32) | cast<int64_t>(cast<uint32_t>(low));
        const Expr slot = select(*n_slot_words == 2, wide, cast<int64_t>(low));
        const Expr is_slot =
            slot >= 0 && slot < cast<int64_t>(*n_slots) && (*stores_bad != 0 || device_angles.cover(t));
        const Expr near = cast<int32_t>(clamp(slot, 0, cast<int64_t>(*n_slots) - 1));
        const Expr size = of_head(block_size), block = near / Halide::max(size, 1);
        const Expr in_block = near - block * size;
        const Expr head_at = of_head(y_at) + cast<int64_t>(number_of(end, h)) * of_head(y_head);
        const Expr in_view = head_at + cast<int64_t>(t) * of_head(y_token);
        const Expr in_cache =
            head_at + cast<int64_t>(block) * of_head(y_block) + cast<int64_t>(in_block) * of_head(y_token);
        return select(size == 0, in_view, is_slot, in_cache, cast<int64_t>(-1));
    }

    static int elements_in_quad(Storage storage) {
        return storage == Storage::f32 ? 4 : storage == Storage::f16 || storage == Storage::bf16 ? 8 : 16;
    }

    void define_store() {
        row(h, t) = stored_at();
        const Rounding usual = rounding_of(target, Halide::Internal::const_false(), Expr(0u));
        packed(w, c, h, t) = Halide::undef<uint32_t>();
        for (const Storage storage :
             {Storage::f32, Storage::f16, Storage::bf16, Storage::e4m3, Storage::e5m2, Storage::int8}) {
            const int n = elements_in_quad(storage);
            RDom &store = stores[static_cast<size_t>(storage)];
            store = once(of_head(out) == static_cast<int>(storage) && c * n < *head_dim);
            const auto element = [&](int i) {
                const Expr place = c * n + w * (n / 4) + i + store.x;
                return value(in_head(place), h, t);
            };
            Expr word;
            if (n == 4) {
                word = reinterpret<uint32_t>(element(0));
            } else if (n == 8) {
                word = pack(target, storage, Halide::UInt(32), usual, {element(0), element(1)});
            } else {
                word = Expr(0u);
                for (int i = 0; i < 4; i++) {
                    word = word | (cast<uint32_t>(cast<uint8_t>(narrow(target, storage, element(i)))) << (8 * i));
                }
            }
            packed(w, c, h, t) = word;
        }

        const Expr n_blocks = (*n_heads + heads_in_block - 1) / heads_in_block;
        const Expr n_rounds = ((*head_dim + 3) / 4 + lanes - 1) / lanes;
        all = RDom({{0, 4}, {0, n_rounds}, {0, lanes}, {0, heads_in_block}, {0, *n_tokens}, {0, n_blocks}}, "all");
        const Expr head = all[5] * heads_in_block + all[3], token = all[4], place = all[1] * lanes + all[2];
        const Expr quad = row(head, token);
        const Expr kind = of(out, end, head);
        const Expr n_quads = select(kind == 0, *head_dim / 4, kind < 3, *head_dim / 8, *head_dim / 16);
        all.where(head < *n_heads && quad >= 0);
        all.where(place < n_quads);
        y(w, c, h) = Halide::undef<uint32_t>();
        y(FlatMemory::at(quad, place, all[0])) = packed(all[0], place, head, token);
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
            in_shared.bound(e, 0, *head_dim).bound_extent(h, heads_in_block);
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
        normed.specialize(*has_norms == 0);
        normed.specialize(*has_roundings == 0);
        sum.compute_at(y, all[4]).store_in(MemoryType::GPUShared).gpu_threads(e, h);
        sum.bound(e, 0, lanes).bound_extent(h, heads_in_block);
        sum.update().reorder(steps.x, e, h).gpu_threads(e, h);
        for (Func of_head : {root, row, window}) {
            of_head.compute_at(y, all[4]).store_in(MemoryType::GPUShared).gpu_threads(h);
            of_head.bound_extent(h, heads_in_block);
        }
        device_angles.branch_if_listed(row, h);
        const Var down("down"), k_round("k_round");
        angle.compute_at(y, all[4]).store_in(MemoryType::GPUShared).bound(k, 0, Halide::max(*n_pairs, 1));
        // Halide 21 counts shared memory in its widest elements, here of 8 bytes. It asks for too little where an array
        // takes half of one.
        angle.align_storage(k, 2);
        angle.split(k, k_round, across, lanes, tail).split(k_round, k_round, down, heads_in_block, tail);
        angle.reorder(k_round, across, down).gpu_threads(across, down);
        device_angles.branch(angle, k_round);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Road, road)
