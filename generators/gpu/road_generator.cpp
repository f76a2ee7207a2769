// The whole road of a call's tensors on a GPU, in one launch: load, norm, rotate, scale, convert, store by slot.
#include "arithmetic/norm.h"
#include "gpu/road.h"

#include <array>
#include <memory>

namespace halyard {

/// A block takes some heads of one token through shared memory, as floats: loaded, normed, rotated and scaled. All that
/// a launch does to its tensors is scalars, not kernels. In place a block has read its heads before it writes them, and
/// no other block reads those.
class Road : public RoadGenerator<Road> {
    using Func = Halide::Func;
    using Var = Halide::Var;
    using RDom = Halide::RDom;
    using RVar = Halide::RVar;
    using Stage = Halide::Stage;

public:
    /// Whether heads may become records: elements in groups that have scales. Others may be there as well.
    GeneratorParam<bool> records{"records", false};
    std::unique_ptr<Fields::Records> groups_in;
    Output<Buffer<uint32_t, 3>> y{"y"};
    Output<Buffer<uint8_t, 3>> *bytes = nullptr;  // scales, and what else is stored byte by byte

    void configure() {
        add_fields();
        if (records) {
            groups_in.reset(new Fields::Records{*this});
            bytes = add_output<Buffer<uint8_t, 3>>("bytes");
        }
    }

    void generate() {
        define_load();
        define_norm();
        define_rotation();
        if (records) {
            define_groups();
        }
        define_store();
        constrain_inputs();
        constrain_flat(*in->weights, 8);
        constrain_flat(*in->x, 4);
        constrain_flat(y, 4);
        schedule_road();
        if (records) {
            constrain_flat(*bytes, 16);
            schedule_records();
        }
        // What LLVM cannot know to be false. With records it knows that there are tokens where something is stored.
        const Expr never = records ? *in->has_norms < 0 : *in->n_tokens < 0;
        get_pipeline().add_custom_lowering_pass(new MayWriteInput(never));
        complete_device_code(get_pipeline(), target);
    }

private:
    static constexpr int heads_in_block = road_heads_in_block;  // each of as many threads as lanes

    Var e{"e"}, w{"w"}, c{"c"};
    Func loaded{"loaded"}, sum{"sum"}, root{"root"}, normed{"normed"}, angle{"angle"}, value{"value"}, row{"row"},
        window{"window"}, packed{"packed"};
    RDom words, halves, steps, all;
    std::array<RDom, n_dtypes> stores;

    Var g{"g"};  // a group: of records alone, as what follows
    Func partial{"partial"}, scaled{"scaled"}, byte_row{"byte_row"};
    RDom group_steps, grouped, all_bytes;

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
        const std::vector<Expr> f16 = unpack(Dtype::f16, two), bf16 = unpack(Dtype::bf16, two);
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
                                  f16_bits_to_f32(low), reinterpret<float>(low << 16));
        return select((of_head(in->weight_kind) & Fields::Road::adds_one) != 0, Halide::strict_float(given + 1.0f),
                      given);
    }

    /// v rounded to the dtype of x.
    Expr rounded(const Expr &v) const {
        const Rounding usual = rounding_of(target, Halide::Internal::const_false(), Expr(0u));
        const Expr f16 = f16_bits_to_f32(f32_to_f16_bits(v));
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
        sum(e, h, t) = add_square(sum(e, h, t), element);
        std::vector<Expr> sums;
        for (int lane = 0; lane < lanes; lane++) {
            sums.push_back(sum(lane, h, t));
        }
        root(h, t) = scale_of_norm(target, sum_of_lanes(sums), cast<float>(Halide::max(size, 1)), of_head(in->eps));

        const Expr within = *in->has_norms != 0 && e >= offset && e < offset + size;
        const Expr x_e = loaded(e, h, t);
        const auto round = [&](const Expr &v, int flag) {
            return select(*in->has_roundings != 0 && (of_head(in->rounding) & flag) != 0, rounded(v), v);
        };
        normed(e, h, t) = select(within, norm_element(x_e, root(h, t), weight(e - offset), round), x_e);
    }

    void define_rotation() {
        const Angle turned = device_angles->at(k, t);
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
        const Expr rotated = rotate_member(at(member), at(1 - member), angle(safe, t)[0], signed_sin);
        const Expr turned_or_not = select(offset >= 0 && i >= 0 && i < 2 * pairs, rotated, normed(e, h, t));
        value(e, h, t) = Halide::strict_float(turned_or_not * of_head(in->reciprocal));
    }

    // ---- Records: elements in groups -------------------------------------------------------------------------------

    /// What GroupBits say of a tensor.
    struct Groups {
        Expr bits;

        Expr field(int at, int n_bits) const { return (bits >> at) & ((1 << n_bits) - 1); }
        Expr n_groups() const { return field(GroupBits::n_groups, 8); }
        Expr quads_in_group() const { return field(GroupBits::group, 8); }
        Expr group() const { return quads_in_group() * FlatMemory::quad_bytes; }
        Expr n_grouped() const { return n_groups() * group(); }
        Expr is_int8() const { return field(GroupBits::is_int8, 1) != 0; }
        Expr is(ScaleForm form) const { return field(GroupBits::scale, 2) == static_cast<int>(form); }
        Expr is(GroupPlace place) const { return field(GroupBits::place, 2) == static_cast<int>(place); }
        Expr n_scale_bytes() const { return select(is(ScaleForm::f32), 4 * n_groups(), n_groups()); }
        /// Quads of y that hold groups; those behind them hold other elements.
        Expr n_quads() const { return select(is(GroupPlace::by_bytes), 0, n_groups() * quads_in_group()); }
        /// Bytes that are stored by themselves.
        Expr n_bytes() const { return n_scale_bytes() + select(is(GroupPlace::by_bytes), n_grouped(), 0); }
    };

    /// As many as the groups of a head of any tensor, rounded up to whole rounds of threads.
    Expr room_for_groups() const { return (Halide::max(*groups_in->most_groups, 1) + lanes - 1) / lanes * lanes; }

    /// A group that is accessed, and so is one of the head's: see in_head.
    Expr in_groups(const Expr &group) const {
        return unsafe_promise_clamped(cast<int32_t>(cast<uint32_t>(group)), 0, room_for_groups() - 1);
    }

    Groups groups_of(const Expr &head) const { return {of(groups_in->groups, head)}; }

    /// The largest finite magnitude of each group, as an integer of its bits, and from it the scale: as it is stored,
    /// and what elements are multiplied by.
    void define_groups() {
        const Groups groups = groups_of(h);
        group_steps = RDom(0, (*in->head_dim + lanes - 1) / lanes, "group_steps");
        group_steps.where(group_steps.x * lanes < groups.group());
        group_steps.where(g < groups.n_groups());
        const Expr place = g * groups.group() + group_steps.x * lanes + e;
        const Expr magnitude = reinterpret<uint32_t>(value(in_head(place), h, t)) & 0x7fffffff;
        partial(e, g, h, t) = Expr(0u);
        partial(e, g, h, t) =
            Halide::max(partial(e, g, h, t), select(magnitude < Expr(0x7f800000u), magnitude, Expr(0u)));

        Expr largest = partial(0, in_groups(g), h, t);
        for (int lane = 1; lane < lanes; lane++) {
            largest = Halide::max(largest, partial(lane, in_groups(g), h, t));
        }
        const RootMath math = {target};
        const Expr greatest = select(groups.is_int8(), 127.0f, 448.0f);
        // Numbers that are not negative have the order of their bits. The floor keeps all of this far from denormals.
        const Expr quotient = reinterpret<uint32_t>(math.quotient(reinterpret<float>(largest), greatest));
        const Expr scale = Halide::max(quotient, reinterpret<uint32_t>(of_head(groups_in->floor)));
        const Expr from_1_to_2 = reinterpret<float>((scale & 0x7fffff) | 0x3f800000);
        const Expr inverse =
            reinterpret<uint32_t>(math.quotient(1.0f, from_1_to_2)) + Expr(127u << 23) - (scale & 0x7f800000);

        // E8M0: the exponent of s, which is rounded up where s is no power of two; half of the least normal number is
        // one.
        const Expr exponent = scale >> 23, fraction = scale & 0x7fffff;
        const Expr is_above = fraction > select(exponent == 0, Expr(0x400000u), Expr(0u));
        const Expr up = Halide::min(exponent + cast<uint32_t>(is_above), 254);
        const Expr of_greatest(8u);  // the exponent of e4m3's 448
        const Expr ocp = Halide::max(largest >> 23, of_greatest) - of_greatest;
        const Expr power = select(groups.is(ScaleForm::power_up), up, ocp);
        const Expr inverse_power = select(power == 254, Expr(0x400000u), (254 - power) << 23);
        const Expr is_f32 = groups.is(ScaleForm::f32);
        scaled(g, h, t) =
            Tuple(select(is_f32, scale, power), reinterpret<float>(select(is_f32, inverse, inverse_power)));
    }

    /// An element of a group as a byte. A NaN counts as 0.
    Expr quantised(const Expr &element, const Expr &group, const Expr &head, const Expr &token) const {
        const Expr v = value(in_head(element), head, token);
        const Expr by = scaled(in_groups(group), head, token)[1];
        const Expr x = Halide::strict_float(select(is_nan_bits(reinterpret<uint32_t>(v)), 0.0f, v) * by);
        return select(groups_of(head).is_int8(), reinterpret<uint8_t>(to_int8_away(x)), narrow(target, Dtype::e4m3, x));
    }

    /// The same of four elements of a quad in y, as a word.
    Expr quantised_word(const Expr &quad, const Expr &word) const {
        const Expr group = quad / Halide::max(groups_of(h).quads_in_group(), 1);
        Expr bytes_of_word(0u);
        for (int i = 0; i < 4; i++) {
            const Expr byte = quantised(quad * FlatMemory::quad_bytes + word * 4 + i, group, h, t);
            bytes_of_word = bytes_of_word | (cast<uint32_t>(byte) << (8 * i));
        }
        return bytes_of_word;
    }

    /// Stores scales, and elements of groups that do not begin on 16 bytes.
    void define_bytes() {
        const Groups of_row = groups_of(h);
        const Lies apart =
            lies(groups_in->scale_at, groups_in->scale_head, groups_in->scale_token, groups_in->scale_block);
        const Expr at = select(of_head(in->block_size) == 0, apart.in_view, apart.in_cache);
        const Expr unit = select(of_row.is(GroupPlace::by_quads), FlatMemory::quad_bytes,
                                 select(of_row.is(GroupPlace::by_bytes), 1, 0));
        const Expr from = of_head(groups_in->scale_at) + row(h, t) * cast<int64_t>(unit);
        byte_row(h, t) = select(row(h, t) < 0, cast<int64_t>(-1), of_row.is(GroupPlace::scales_apart), at, from);

        const Expr n_blocks = (*in->n_heads + heads_in_block - 1) / heads_in_block;
        const Expr n_rounds = (*groups_in->most_bytes + lanes - 1) / lanes;
        all_bytes =
            RDom({{0, 1}, {0, n_rounds}, {0, lanes}, {0, heads_in_block}, {0, *in->n_tokens}, {0, n_blocks}}, "all");
        const Expr head = all_bytes[5] * heads_in_block + all_bytes[3], token = all_bytes[4];
        const Expr i = all_bytes[1] * lanes + all_bytes[2] + all_bytes[0];
        const Groups groups = groups_of(head);
        const Expr scale_bytes = select(groups.is(ScaleForm::f32), 4, 1);
        // Both a scale and an element are loaded, so that both have to be there.
        const Expr is_scale = i < groups.n_scale_bytes(), in_scales = select(is_scale, i, 0);
        const Expr of_scale = in_scales / scale_bytes, within = in_scales % scale_bytes;
        const Expr element = select(is_scale, 0, i - groups.n_scale_bytes());
        const Expr of_element = element / Halide::max(groups.group(), 1);
        const Expr strides = of(groups_in->group_strides, head);
        const Expr stride_scale = strides & ((1 << GroupBits::stride_bits) - 1);
        const Expr stride_data = strides >> GroupBits::stride_bits;
        const Expr scale_at = of_scale * stride_scale + within;
        const Expr data_at =
            of(groups_in->rest_at, head) + of_element * stride_data + element - of_element * groups.group();
        const Expr scale_byte =
            cast<uint8_t>(scaled(in_groups(of_scale), head, token)[0] >> cast<uint32_t>(8 * within));
        const Expr first = byte_row(head, token);
        all_bytes.where(head < *in->n_heads && first >= 0);
        all_bytes.where(i < groups.n_bytes());
        const Expr to = first + cast<int64_t>(select(is_scale, scale_at, data_at));
        (*bytes)(w, c, h) = Halide::undef<uint8_t>();
        constexpr int in_quad = FlatMemory::quad_bytes;
        const Expr in_word = unsafe_promise_clamped(cast<int32_t>(to & (in_quad - 1)), 0, in_quad - 1);
        (*bytes)(flat_at(to / in_quad, 0, in_word)) =
            select(is_scale, scale_byte, quantised(element, of_element, head, token));
    }

    void define_store() {
        row(h, t) = stored_at();
        const Rounding usual = rounding_of(target, Halide::Internal::const_false(), Expr(0u));
        packed(w, c, h, t) = Halide::undef<uint32_t>();
        // Of a record the first quads hold groups.
        const Expr n_grouped_quads = records ? groups_of(h).n_quads() : Expr(0);
        const Expr n_grouped = records ? groups_of(h).n_grouped() : Expr(0);
        for (const Dtype dtype : {Dtype::f32, Dtype::f16, Dtype::bf16, Dtype::e4m3, Dtype::e5m2, Dtype::int8}) {
            const int n = FlatMemory::quad_bytes / static_cast<int>(element_bytes(dtype));
            RDom &store = stores[index_of(dtype)];
            Expr first = c * n, is_here = of_head(in->out) == number_of(dtype);
            if (records) {
                first = (c - n_grouped_quads) * n + n_grouped;
                is_here = is_here && c >= n_grouped_quads;
            }
            store = once(is_here && first < *in->head_dim);
            const auto element = [&](int i) {
                const Expr place = first + w * (n / 4) + i + store.x;
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
        if (records) {
            grouped = once(c < n_grouped_quads);
            packed(w, c, h, t) = quantised_word(c + grouped.x, w);
        }

        const Expr n_blocks = (*in->n_heads + heads_in_block - 1) / heads_in_block;
        const Expr n_rounds = ((*in->head_dim + 3) / 4 + lanes - 1) / lanes;
        all = RDom({{0, 4}, {0, n_rounds}, {0, lanes}, {0, heads_in_block}, {0, *in->n_tokens}, {0, n_blocks}}, "all");
        const Expr head = all[5] * heads_in_block + all[3], token = all[4], place = all[1] * lanes + all[2];
        const Expr quad = row(head, token);
        const Expr kind = of(in->out, head);
        const auto n_quads_of = [&](const Expr &n) {
            return select(kind == number_of(Dtype::f32), n / 4, kind < number_of(Dtype::e4m3), n / 8, n / 16);
        };
        Expr n_quads = n_quads_of(*in->head_dim), to = quad;
        if (records) {
            const Groups groups = groups_of(head);
            const Expr n_groups = groups.n_quads(), rest_at = of(groups_in->rest_at, head) - n_groups;
            n_quads = n_groups + n_quads_of(*in->head_dim - groups.n_grouped());
            to = quad + cast<int64_t>(select(groups.n_groups() == 0 || place < n_groups, 0, rest_at));
        }
        all.where(head < *in->n_heads && quad >= 0);
        all.where(place < n_quads);
        y(w, c, h) = Halide::undef<uint32_t>();
        y(flat_at(to, place, all[0])) = packed(all[0], place, head, token);
        if (records) {
            define_bytes();
        }
    }

    /// Slow: on an H200 8 to 14 times a copy where there are many tokens, so plain tensors have kernels of their own.
    /// ptxas 13.5 gives this one at most 43 registers on sm_80 to sm_120, with records 61, no stack and no spills
    /// (2026-11-23, tests/gpu/check_ptx.py). A thread has 16 bytes in each load and store.
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
        const Var down("down"), k_round("k_round");
        angle.compute_at(y, all[4]).store_in(MemoryType::GPUShared).bound(k, 0, Halide::max(*in->n_pairs, 1));
        // Halide 21 counts shared memory in its widest elements, here of 8 bytes. It asks for too little where an array
        // takes half of one.
        angle.align_storage(k, 2);
        angle.split(k, k_round, across, lanes, tail).split(k_round, k_round, down, heads_in_block, tail);
        angle.reorder(k_round, across, down).gpu_threads(across, down);
        device_angles->branch(angle);
    }

    /// Stores what goes by bytes in the same loops over blocks as y, which makes one kernel of both.
    void schedule_records() {
        using namespace Halide;
        Func by_bytes = *bytes;
        const Var block("block"), thread("thread"), across("across"), round("round");
        by_bytes.gpu_tile(by_bytes.args()[0], block, thread, 1);
        Stage store = by_bytes.update().allow_race_conditions();
        store.gpu_threads(all_bytes[2], all_bytes[3]).gpu_blocks(all_bytes[4], all_bytes[5]);
        store.compute_with(y.update(), all_bytes[4]);
        packed.update(static_cast<int>(stores.size())).vectorize(w);
        packed.bound_extent(c, 1).bound_extent(h, 1).bound_extent(t, 1);
        partial.compute_at(y, all[4]).store_in(MemoryType::GPUShared).gpu_threads(e, h);
        partial.bound(e, 0, lanes).bound(g, 0, room_for_groups()).bound_extent(h, heads_in_block);
        partial.update().reorder(group_steps.x, g, e, h).gpu_threads(e, h);
        scaled.compute_at(y, all[4]).store_in(MemoryType::GPUShared).align_storage(g, 2);
        scaled.bound(g, 0, room_for_groups()).bound_extent(h, heads_in_block);
        scaled.split(g, round, across, lanes, TailStrategy::RoundUp).reorder(round, across, h);
        scaled.gpu_threads(across, h);
        byte_row.compute_at(y, all[4]).store_in(MemoryType::GPUShared).gpu_threads(h).bound_extent(h, heads_in_block);
    }
};

}  // namespace halyard

HALIDE_REGISTER_GENERATOR(halyard::Road, road)
