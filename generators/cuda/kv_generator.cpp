// The KV path on CUDA: loads heads, norms and rotates them where asked to, and stores them to a view or a cache.
#include "arithmetic/norm.h"
#include "cuda/device_angles.h"
#include "cuda/lowered.h"
#include "cuda/ptx.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace halyard {

/// Processes all heads of all tensors of a launch. From load to store, a head is in the registers of four lanes of a
/// warp: lane m has elements 4 m to 4 m + 3 of each 16, and so whole partial sums of a norm. (Of small heads, two lanes
/// have eight of each 16.) The lanes join these sums by warp shuffles, in the order of halves_of_lanes. Angles,
/// addresses and kinds go through shared memory.
///
/// A kernel has one rotary window and one pairing. The input `kind` says if a tensor is normed, weighted and rotated.
class KvPath : public Halide::Generator<KvPath> {
    using Func = Halide::Func;
    using Var = Halide::Var;
    using RDom = Halide::RDom;

public:
    GeneratorParam<Dtype> dtype{"dtype", Dtype::bf16, dtypes};
    GeneratorParam<Dtype> stored{"stored", Dtype::bf16, dtypes_of_caches};
    GeneratorParam<int> head_dim{"head_dim", 128, 32, 256};
    GeneratorParam<std::string> pairing{"pairing", "half"};  // or interleaved
    GeneratorParam<int> rotary_dim{"rotary_dim", 128, 16, 256};
    GeneratorParam<int> rotary_offset{"rotary_offset", 0, 0, 256};
    GeneratorParam<Dtype> weight{"weight", Dtype::bf16, dtypes};
    GeneratorParam<bool> unit_offset{"unit_offset", false};
    GeneratorParam<bool> by_sm89{"by_sm89", false};  // e4m3 by an instruction of sm_89
    std::unique_ptr<Fields::Kv> in;
    Output<Buffer<uint32_t, 1>> y{"y"};

    void configure() {
        in.reset(new Fields::Kv{*this});
        device_angles.emplace(in->angles);
    }

    void generate() {
        token = Halide::min(t, device_angles->n_tokens() - 1);
        define_rows();
        define_places();
        define_norm();
        define_rotation();
        define_packing();
        define_store();
        device_angles->constrain();
        begin_at_zero(*in->slots);
        constrain_line(*in->weights);
        constrain_line(*in->x);
        constrain_line(y);
        schedule_block();
        schedule_warp();
        // Of the Funcs that schedule_block() computes, the others read only rows. So they need a barrier after rows and
        // one after the last of them, but none in between.
        get_pipeline().add_custom_lowering_pass(new lowered::DropSecondBarrier);
        get_pipeline().add_custom_lowering_pass(new lowered::WideIndices({"weights", "x", "y"}));
        get_pipeline().add_custom_lowering_pass(new lowered::KeepWarpsTogether(*in->has_norms != 0));
        complete_device_code(get_pipeline(), target,
                             {true, stored == Dtype::bf16, stored == Dtype::e4m3 && by_sm89, most_registers()});
    }

private:
    static constexpr int heads_in_block = kv_heads_in_block, tokens_in_block = 2;

    /// Elements in an access. With more of them, fewer lanes repeat what is done once for a head, but need more
    /// registers.
    int wide() const { return dtype != Dtype::f32 && head_dim <= 80 ? 8 : 4; }
    /// Lanes of a warp for each head. A warp has one token, since n_lanes() * heads_in_block is a multiple of 32.
    int n_lanes() const { return lanes / wide(); }

    /// A limit with which ptxas spills nothing (sm_80 to sm_120). By default Halide's runtime limits registers to 64,
    /// and lanes with more than 24 elements would spill. Heads of 80 need many, because their halves cross lanes.
    int most_registers() const {
        const int elements = head_dim / n_lanes();
        return elements <= 24 ? 64 : elements == 32 ? 80 : elements == 48 ? 128 : 160;
    }

    static int elements_in_word(Dtype of) { return of == Dtype::f32 ? 1 : of == Dtype::e4m3 ? 4 : 2; }
    int words_of(Dtype of) const { return wide() / elements_in_word(of); }  // in an access
    int n_accesses() const { return head_dim / lanes; }
    bool has_halves() const { return pairing.value() == "half"; }
    /// Whether halves are paired and half a rotary window is not a multiple of `lanes` elements, so that lanes exchange
    /// members of pairs. Each kernel of the list for which this is true rotates the whole head.
    bool crosses() const { return has_halves() && rotary_dim / 2 % lanes != 0; }

    // Axis, head, token and pair; access of a lane, lane, word of an access, half of a word, element of an access.
    Var a{"a"}, h{"h"}, t{"t"}, k{"k"}, j{"j"}, m{"m"}, w{"w"}, i{"i"}, e{"e"};
    Expr token = t;  // t, clamped to existing tokens
    std::optional<DeviceAngles> device_angles;
    Func rows{"rows"}, row{"row"}, angle{"angle"}, places{"places"}, kinds{"kinds"}, reciprocals{"scales"},
        stored_at{"stored_at"}, loaded{"loaded"}, elements{"elements"}, sums{"sums"}, root{"root"},
        weights{"weights_of"}, normed{"normed"}, offered{"offered"}, crossed{"crossed"}, rotated{"rotated"},
        rounded{"rounded"}, packed{"packed"};
    std::vector<Func> joined;
    RDom all, over, weighed, copied, turned;

    // ---- Rows of tokens --------------------------------------------------------------------------------------------

    /// rows: a token's place on each axis, and whether the angle source covers its position there. (Axes that do not
    /// exist repeat the last one.) It is no Tuple, because its two halves must be kept as long as each other.
    void define_rows() {
        const DeviceAngles::Place place = device_angles->place(Halide::min(a, device_angles->n_axes() - 1), token);
        rows(i, a, t) = Halide::mux(i, {place.at, cast<int32_t>(place.is_covered)});
    }

    // ---- Addresses of heads ----------------------------------------------------------------------------------------

    /// The value of a per-tensor scalar for the tensor that a head belongs to.
    static_assert(HALYARD_MAX_TENSORS == 4);
    template <typename Scalar>
    Expr scalar_of_head(const InputSide::OfTensors<Scalar> &each, const Expr &head) const {
        return select(head < in->end[0], each[0], head < in->end[1], each[1], head < in->end[2], each[2], each[3]);
    }

    /// The number of a head within its tensor.
    Expr index_in_tensor(const Expr &head) const {
        return head -
               select(head < in->end[0], 0, head < in->end[1], in->end[0], head < in->end[2], in->end[1], in->end[2]);
    }

    /// places: the offsets of a head in x and of its weight, in words. (For a head without weights, the runtime gives
    /// another readable address.) Heads beyond the last repeat the last head. Offsets are unsigned, so that Halide's
    /// bounds inference draws no conclusion from them.
    void define_places() {
        const Expr head = Halide::min(h, *in->n_heads - 1);
        const Expr quad = scalar_of_head(in->x_at, head) +
                          cast<int64_t>(index_in_tensor(head)) * scalar_of_head(in->x_head, head) +
                          cast<int64_t>(token) * scalar_of_head(in->x_token, head);
        places(h, t) = Tuple(cast<uint64_t>(quad * 4), cast<uint64_t>(scalar_of_head(in->weight_at, head) * 4));
        kinds(h, t) = scalar_of_head(in->kind, head);
        reciprocals(h, t) = scalar_of_head(in->reciprocal, head);
        stored_at(h, t) = offset_in_y(head);
    }
    Expr place(int which) const { return Expr(places(h, t)[which]); }
    Expr is(int kind) const { return (kinds(h, t) & kind) != 0; }

    /// The offset of a head that is not stored. (Other offsets may be negative, too.)
    const Expr nowhere = Halide::Internal::make_const(Halide::Int(64), INT64_MIN);

    /// The offset of a head of a token in y, in quads; nowhere if it is not stored.
    Expr offset_in_y(const Expr &head) const {
        const Expr slot = read_as_int64(*in->slots, token);
        static_assert(HALYARD_MAX_AXES == 4);
        const Expr is_covered = (rows(1, 0, t) & rows(1, 1, t) & rows(1, 2, t) & rows(1, 3, t)) != 0;
        const Expr is_stored = slot >= 0 && slot < cast<int64_t>(*in->n_slots) && (*in->stores_bad != 0 || is_covered);
        const Expr near = cast<uint32_t>(clamp(slot, 0, cast<int64_t>(*in->n_slots) - 1));
        const Expr size = cast<uint32_t>(scalar_of_head(in->block_size, head)), is_view = size == 0;
        const Expr block = near / Halide::max(size, 1), in_block = cast<int32_t>(near - block * size);
        const Expr at = scalar_of_head(in->y_at, head) +
                        cast<int64_t>(index_in_tensor(head)) * scalar_of_head(in->y_head, head) +
                        cast<int64_t>(cast<int32_t>(block)) * scalar_of_head(in->y_block, head) +
                        cast<int64_t>(select(is_view, token, in_block)) * scalar_of_head(in->y_token, head);
        return select(is_view || is_stored, at, nowhere);
    }

    /// An index into x, y or weights: a 64-bit offset (cast to 32 bits here; WideIndices restores it) plus a small one.
    static Expr make_index(const Expr &base, const Expr &offset) {
        return unsafe_promise_clamped(cast<int32_t>(base), 0, line_extent / 2) +
               unsafe_promise_clamped(offset, 0, 1 << 20);
    }
    template <typename AnyBuffer>
    static void constrain_line(AnyBuffer &buffer) {
        buffer.dim(0).set_bounds(0, line_extent);
        buffer.dim(0).set_stride(1);
        buffer.set_host_alignment(quad_bytes);
    }

    // ---- From load to store ----------------------------------------------------------------------------------------

    /// The words of access j of lane m, in an array whose elements have dtype `of`; a head begins at `begin`.
    template <typename Array>
    Expr load(const Array &array, Dtype of, const Expr &begin) const {
        return array(make_index(begin, words_of(of) * m + lanes / elements_in_word(of) * j + w));
    }
    /// Element e of access j of lane m as a float, from such words.
    Expr element(const Func &words, Dtype of, const Expr &e, const Expr &j) const {
        const Expr word = words(e / elements_in_word(of), j, m, h, t), half = e % 2;
        if (of == Dtype::f32) {
            return reinterpret<float>(word);
        }
        const Expr up = word << cast<uint32_t>(16 - 16 * half), down = word >> cast<uint32_t>(16 * half);
        return of == Dtype::bf16 ? reinterpret<float>(up & Expr(0xffff0000u)) : f16_bits_to_f32(down);
    }

    /// Lane m ^ bit of a head, written so that Halide finds bounds and makes one shuffle. (% n would make two.)
    Expr neighbour(const Expr &lane, int bit) const {
        return Halide::clamp(lane + bit - lane / bit % 2 * (2 * bit), 0, n_lanes() - 1);
    }

    void define_norm() {
        loaded(w, j, m, h, t) = load(*in->x, dtype, place(0));
        elements(e, j, m, h, t) = element(loaded, dtype, e, j);
        Expr sum = 0.0f;
        for (int access = 0; access < n_accesses(); access++) {
            sum = add_square(sum, elements(e, access, m, h, t));
        }
        sums(e, m, h, t) = sum;
        Func last = sums;
        std::vector<Expr> of_lane(wide());
        for (const int half : halves_of_lanes) {
            if (half >= wide()) {  // the sums to be added are in another lane
                Func next("joined_" + std::to_string(half));
                next(e, m, h, t) = Halide::strict_float(last(e, m, h, t) + last(e, neighbour(m, half / wide()), h, t));
                joined.push_back(last = next);
            }
            for (int at = 0; at < std::min(half, wide()); at++) {
                of_lane[at] =
                    half >= wide() ? last(at, m, h, t) : Halide::strict_float(of_lane[at] + of_lane[at + half]);
            }
        }
        root(m, h, t) = scale_of_norm(target, of_lane[0], cast<float>(Expr(static_cast<int>(head_dim))),
                                      scalar_of_head(in->eps, h));

        weights(w, j, m, h, t) = load(*in->weights, weight, place(1));
        // Update stages instead of selects, so that a tensor without a norm branches around them.
        normed(e, j, m, h, t) = elements(e, j, m, h, t);
        over = RDom(0, wide(), 0, n_accesses(), "over");
        over.where(is(Fields::Kv::is_normed));
        normed(over.x, over.y, m, h, t) = Halide::strict_float(elements(over.x, over.y, m, h, t) * root(m, h, t));
        weighed = RDom(0, wide(), 0, n_accesses(), "weighed");
        weighed.where(is(Fields::Kv::has_weight));
        normed(weighed.x, weighed.y, m, h, t) =
            Halide::strict_float(normed(weighed.x, weighed.y, m, h, t) * weight_at(weighed.x, weighed.y));
    }

    Expr weight_at(const Expr &e, const Expr &j) const {
        const Expr its = element(weights, weight, e, j);
        return unit_offset ? Halide::strict_float(its + 1.0f) : its;
    }

    void define_rotation() {
        const Expr axis = unsafe_promise_clamped(device_angles->axis(k), 0, HALYARD_MAX_AXES - 1);
        row(k, t) = rows(0, axis, t);  // a Func, so that cos and sin do not each read it
        const Angle of_pair = device_angles->at(k, row(k, t));
        const Expr is_there = !device_angles->is(AngleForm::none);
        angle(k, t) = Tuple(select(is_there, of_pair.cos, 1.0f),
                            select(is_there, flip_sign(of_pair.sin, *in->angles.sin_sign), 0.0f));
        // A stage for heads that are rotated and one for the others, so that only these copy elements of the window.
        rotated(e, j, m, h, t) = Halide::undef<float>();
        copied = RDom(0, wide(), 0, n_accesses(), "copied");
        const int first = rotary_offset / lanes, end = first + rotary_dim / lanes;
        copied.where(!is(Fields::Kv::is_rotated) || copied.y < first || copied.y >= end);
        rotated(copied.x, copied.y, m, h, t) = normed(copied.x, copied.y, m, h, t);
        turned = RDom(0, wide(), rotary_offset / lanes, rotary_dim / lanes, "turned");
        turned.where(is(Fields::Kv::is_rotated));
        const Member member = crosses()      ? member_across_lanes()
                              : has_halves() ? member_of_half_pairing()
                                             : member_of_interleaved();
        const Expr sin = flip_sign(angle(member.pair, t)[1], select(member.is_second, Expr(0u), sign_bit));
        const Expr of_element = rotate_member(normed(e, j, m, h, t), member.other, angle(member.pair, t)[0], sin);
        rotated(turned.x, turned.y, m, h, t) =
            Halide::Internal::substitute({{e.name(), Expr(turned.x)}, {j.name(), Expr(turned.y)}}, of_element);
    }

    /// Of element e of access j of lane m: its pair, whether it is the second member, and the pair's other member.
    struct Member {
        Expr pair, is_second, other;
    };
    /// Half pairing: the other member is in the same lane.
    Member member_of_half_pairing() const {
        const int first = rotary_offset / lanes, n = rotary_dim / lanes;
        return {((j - first) % (n / 2)) * lanes + wide() * m + e, j - first >= n / 2,
                normed(e, first + (j - first + n / 2) % n, m, h, t)};
    }
    /// Interleaved: the other member is in the same access.
    Member member_of_interleaved() const {
        const int first = rotary_offset / lanes, n = rotary_dim / lanes;
        return {(Halide::clamp(j - first, 0, n - 1) * lanes + wide() * m) / 2 + e / 2, e % 2 == 1,
                normed(Halide::clamp(e + 1 - 2 * (e % 2), 0, wide() - 1), j, m, h, t)};
    }
    /// Half pairing with halves of 16 n + 8 elements: another lane, whose elements begin 8 later or earlier, has the
    /// other member, in one of two accesses. That lane passes on the access that this lane needs.
    Member member_across_lanes() {
        const int n = n_accesses(), in_half = head_dim / 2 / lanes;
        offered(e, j, m, h, t) =
            select(m < n_lanes() / 2, normed(e, (j + in_half + 1) % n, m, h, t), normed(e, (j + in_half) % n, m, h, t));
        crossed(e, j, m, h, t) = offered(e, j, neighbour(m, n_lanes() / 2), h, t);
        const Expr element = j * lanes + wide() * m, is_second = element >= head_dim / 2;
        return {Halide::clamp(element - select(is_second, head_dim / 2, 0), 0, head_dim / 2 - wide()) + e, is_second,
                crossed(e, j, m, h, t)};
    }

    /// Two 16-bit numbers as a word. They are integers: Halide 21 would add and subtract floats instead.
    Expr word_from_halves(const Expr &index) const {
        return reinterpret<uint32_t>(
            Halide::Internal::Shuffle::make_concat({rounded(0, index, j, m, h, t), rounded(1, index, j, m, h, t)}));
    }

    void define_packing() {
        const auto scaled = [&](const Expr &e) {
            return Halide::strict_float(rotated(e, j, m, h, t) * reciprocals(h, t));
        };
        const auto as_half = [](const Expr &v) { return reinterpret<uint16_t>(cast(Halide::Float(16), v)); };
        if (stored == Dtype::f32) {
            packed(w, j, m, h, t) = reinterpret<uint32_t>(rotated(w, j, m, h, t));
        } else if (stored != Dtype::e4m3) {  // if stored is bf16, complete_ptx makes this round to bf16
            rounded(i, w, j, m, h, t) = as_half(rotated(2 * w + i, j, m, h, t));
            packed(w, j, m, h, t) = word_from_halves(w);
        } else if (by_sm89) {
            // complete_ptx changes each conversion to a pair of f16 into a conversion to two e4m3 in the lower half of
            // a word. LLVM takes these words for pairs of f16, so an intrinsic must join their lower halves.
            rounded(i, w, j, m, h, t) = as_half(scaled(2 * w + i));
            packed(w, j, m, h, t) =
                Halide::Internal::Call::make(Halide::UInt(32), "llvm.nvvm.prmt",
                                             {word_from_halves(2 * w), word_from_halves(2 * w + 1), Expr(0x5410u)},
                                             Halide::Internal::Call::PureExtern);
        } else {
            Expr word = cast<uint32_t>(0);
            for (int byte = 0; byte < 4; byte++) {
                word = word | cast<uint32_t>(narrow(target, Dtype::e4m3, scaled(4 * w + byte))) << (8 * byte);
            }
            packed(w, j, m, h, t) = word;
        }
    }

    void define_store() {
        // Compares unsigned numbers for the same reason as define_places.
        const auto is_below = [](const Expr &n, const Expr &end) { return cast<uint32_t>(n) < cast<uint32_t>(end); };
        const auto n_blocks = [](const Expr &n, int in_block) { return (n + in_block - 1) / in_block; };
        all = RDom({{0, words_of(stored)},
                    {0, n_accesses()},
                    {0, n_lanes()},
                    {0, heads_in_block},
                    {0, tokens_in_block},
                    {0, n_blocks(device_angles->n_tokens(), tokens_in_block)},
                    {0, n_blocks(*in->n_heads, heads_in_block)}},
                   "all");
        const Expr head = all[6] * heads_in_block + all[3], of_token = all[5] * tokens_in_block + all[4];
        const Expr quad = stored_at(head, of_token);
        all.where(is_below(head, *in->n_heads) && is_below(of_token, device_angles->n_tokens()) && quad != nowhere);
        y(k) = Halide::undef<uint32_t>();
        y(make_index(quad * 4, words_of(stored) * all[2] + lanes / elements_in_word(stored) * all[1] + all[0])) =
            packed(all[0], all[1], all[2], head, of_token);
    }

    // ---- Schedule --------------------------------------------------------------------------------------------------

    /// Schedules the Funcs that a thread block computes together, in shared memory.
    void schedule_block() {
        using namespace Halide;
        const auto tail = TailStrategy::GuardWithIf;
        const Var block("block"), thread("thread"), across("across"), down("down"), round("round"), hx("hx"), hy("hy"),
            ht("ht");
        y.gpu_tile(y.args()[0], block, thread, 1);
        Stage store = y.update().allow_race_conditions();
        store.vectorize(all[0]).unroll(all[1]).gpu_lanes(all[2]).gpu_threads(all[3], all[4]).gpu_blocks(all[5], all[6]);

        rows.compute_at(y, all[5]).store_in(MemoryType::GPUShared);
        rows.bound(i, 0, 2).bound(a, 0, HALYARD_MAX_AXES).bound_extent(t, tokens_in_block);
        rows.fuse(a, t, ht).split(ht, hy, hx, n_lanes(), tail).reorder(i, hx, hy).unroll(i).gpu_threads(hx, hy);
        std::vector<Func> of_heads = {stored_at, places, kinds};
        if (stored == Dtype::e4m3) {
            of_heads.push_back(reciprocals);
        }
        for (Func &each : of_heads) {
            each.compute_at(y, all[5]).store_in(MemoryType::GPUShared);
            each.bound_extent(t, tokens_in_block).bound_extent(h, heads_in_block);
            each.fuse(h, t, ht).split(ht, hy, hx, n_lanes(), tail).gpu_threads(hx, hy);  // one warp
            if (&each != of_heads.data()) {
                each.compute_with(stored_at, hx);
            }
        }
        angle.compute_at(y, all[5]).store_in(MemoryType::GPUShared);
        angle.bound_extent(t, tokens_in_block).bound(k, 0, rotary_dim / 2);
        angle.split(k, k, across, n_lanes(), tail).split(k, round, down, heads_in_block, tail);
        angle.reorder(round, across, down, t).gpu_threads(across, down, t);
        row.compute_at(angle, round).store_in(MemoryType::Register);
        angle.specialize(device_angles->is(AngleForm::none));
        device_angles->specialize_by_form(angle);
    }

    /// Schedules the Funcs that a warp or a thread holds in registers. All loops are unrolled, except those over the
    /// words of a load and over the halves of a word, which are vectorised.
    void schedule_warp() {
        const auto of_warp = [&](Func f) {
            f.compute_at(y, all[3]).store_in(Halide::MemoryType::Register).bound(m, 0, n_lanes()).gpu_lanes(m);
        };
        const auto of_thread = [&](Func f) { f.compute_at(y, all[2]).store_in(Halide::MemoryType::Register); };
        std::vector<Func> of_warps = {loaded, elements, sums}, of_threads = {rotated, packed};
        std::vector<Func> by_elements = {elements, sums, normed, rotated};
        std::vector<Func> by_accesses = {loaded, elements, normed, weights, rotated, packed};
        of_warps.insert(of_warps.end(), joined.begin(), joined.end());
        by_elements.insert(by_elements.end(), joined.begin(), joined.end());
        if (rounded.defined()) {
            of_threads.push_back(rounded);
            by_accesses.push_back(rounded);
            rounded.bound(i, 0, 2).vectorize(i).bound(w, 0, wide() / 2).unroll(w);
        }
        std::vector<Func> &of_normed = crosses() ? of_warps : of_threads;  // lanes then read each other's
        of_normed.insert(of_normed.end(), {normed, root, weights});
        if (crosses()) {
            for (std::vector<Func> *const list : {&of_warps, &by_elements, &by_accesses}) {
                list->insert(list->end(), {offered, crossed});
            }
            normed.update(0).gpu_lanes(m);
            normed.update(1).gpu_lanes(m);
        }
        std::for_each(of_warps.begin(), of_warps.end(), of_warp);
        std::for_each(of_threads.begin(), of_threads.end(), of_thread);
        for (Func each : by_accesses) {
            each.bound(j, 0, n_accesses()).unroll(j);
        }
        for (Func each : by_elements) {
            each.bound(e, 0, wide()).unroll(e);
        }
        loaded.bound(w, 0, words_of(dtype)).vectorize(w);
        weights.bound(w, 0, words_of(weight)).vectorize(w);
        packed.bound(w, 0, words_of(stored)).unroll(w);
        normed.update(0).unroll(over.x).unroll(over.y);
        normed.update(1).unroll(weighed.x).unroll(weighed.y);
        rotated.update(0).unroll(copied.x).unroll(copied.y);
        rotated.update(1).unroll(turned.x).unroll(turned.y);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::KvPath, kv_path)
