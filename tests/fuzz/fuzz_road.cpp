// Fuzzes roads: norms, scales, conversions, slots, caches and keys that move there, sensible or not. A call does what
// the unfused reference does, to the bit, or fails; and it touches nothing but what it describes.
#include "checks/element_at.h"
#include "checks/guarded_memory.h"
#include "checks/road_oracle.h"
#include "draw.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace {

// ---- Memory --------------------------------------------------------------------------------------------------------

constexpr __int128 far_away = __int128{1} << 80;

/// Some bytes between pages that nothing may touch.
struct Region {
    GuardedMemory memory;
    char *first = nullptr;  // so that the last byte is followed by such a page

    explicit Region(std::size_t n_pages = 3) : memory(n_pages) {}
    char *place(std::int64_t n_bytes) { return first = memory.end() - n_bytes; }
};

/// What an array reaches, in bytes from its first element on.
struct Extent {
    __int128 low = 0, high = 0;
    bool is_absurd = false;  // no machine has such memory, so it has to be refused

    void add(std::int64_t count, std::int64_t stride, std::int64_t bytes) {
        const __int128 reach = std::clamp(__int128{std::max<std::int64_t>(count, 1) - 1} * stride, -far_away, far_away);
        (reach < 0 ? low : high) += reach * bytes;
        is_absurd = high - low > __int128{1} << 61;
    }
    bool is_in(const Region &region, const void *data) const {
        const __int128 at = static_cast<__int128>(reinterpret_cast<std::uintptr_t>(data)) -
                            static_cast<__int128>(reinterpret_cast<std::uintptr_t>(region.memory.begin()));
        return at + low >= 0 && at + high <= region.memory.end() - region.memory.begin();
    }
};

/// All memory that runs use. Runs write outputs and scratch; the rest holds what they read.
struct Memory {
    Region outputs{48}, inputs{16}, slots{1}, positions{1}, from_positions{1}, scratch{1};
    Region weights[HALYARD_MAX_TENSORS], scales[HALYARD_MAX_TENSORS];
    std::vector<char> noise, after;  // noise: what outputs hold before a run
    std::vector<char> any_noise, calm_noise;

    Memory() {
        oracle::Random random(1);
        any_noise.resize(static_cast<std::size_t>(outputs.memory.end() - outputs.memory.begin()));
        calm_noise.resize(any_noise.size());
        std::generate(any_noise.begin(), any_noise.end(), [&] { return static_cast<char>(random.bits()); });
        // Any four of these bytes are a scale that can be.
        std::generate(calm_noise.begin(), calm_noise.end(), [&] { return static_cast<char>(random.in(0x30, 0x4f)); });
        noise = any_noise;
        std::generate(inputs.memory.begin(), inputs.memory.end(), [&] { return static_cast<char>(random.bits()); });
    }
    std::vector<char> image() const { return {outputs.memory.begin(), outputs.memory.end()}; }
    void restore() { std::memcpy(outputs.memory.begin(), noise.data(), noise.size()); }
};

// ---- One input -----------------------------------------------------------------------------------------------------

struct Request {
    halyard_plan_desc plan = {};
    halyard_tensor_desc tensors[HALYARD_MAX_TENSORS] = {};
    halyard_norm_desc norms[HALYARD_MAX_TENSORS] = {};
    halyard_scale_desc scale_descs[HALYARD_MAX_TENSORS] = {};
    halyard_cache_desc caches[HALYARD_MAX_TENSORS] = {};
    halyard_tensor x[HALYARD_MAX_TENSORS] = {}, y[HALYARD_MAX_TENSORS] = {};
    halyard_stages stages[HALYARD_MAX_TENSORS] = {};
    halyard_slots slots = {};
    halyard_positions positions = {}, from_positions = {};
    halyard_run_args args = {};
    std::int64_t n_batch = 1, n_tokens = 0, n_slots = 0, n_heads[HALYARD_MAX_TENSORS] = {};
    bool is_doubled = false;  // some slots are, so that CHECK refuses
    bool is_bad_position = false;
    bool fits = true;  // all that is described lies in the memory that is there, or is absurd
    std::int64_t next = 0;

    void check_reach(const Region &region, const void *data, const Extent &extent) {
        fits = fits && (extent.is_absurd || extent.is_in(region, data));
    }

    // ---- The plan ----

    void draw_plan(Draw &draw) {
        const std::int64_t rotary_dim = draw.one_in(3) ? 32 * draw.in(1, 3) : 2 * draw.in(1, 20);
        n_batch = draw.one_in(3) ? draw.in(1, 3) : 1;
        n_tokens = draw.in(0, 8) == 0 ? 0 : draw.in(1, 40);
        n_slots = 16 * draw.in(4, 9);
        plan.size = sizeof(plan);
        plan.direction = static_cast<std::int32_t>(draw.in(0, 1));
        plan.rotary_dim = draw.maybe_wild(rotary_dim);
        plan.n_tensors = static_cast<std::int32_t>(draw.in(1, 3));
        plan.tensors = tensors;
        plan.rerotates = draw.maybe_wild(draw.one_in(3) ? 1 : 0);
        const bool moves = plan.rerotates != 0;
        for (int i = 0; i < plan.n_tensors; i++) {
            halyard_tensor_desc &tensor = tensors[i];
            tensor.size = draw.maybe_wild<std::uint32_t>(sizeof(tensor));
            tensor.dtype = draw.maybe_wild(static_cast<std::int32_t>(draw.in(1, moves ? 6 : 3)));
            tensor.out_dtype =
                moves ? draw.maybe_wild(tensor.dtype) : draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 6)));
            tensor.pairing = draw.maybe_wild(static_cast<std::int32_t>(draw.in(1, 2)));
            tensor.out_pairing = draw.maybe_wild(moves ? 0 : static_cast<std::int32_t>(draw.in(0, 2)));
            tensor.no_rotation = draw.maybe_wild(!moves && draw.one_in(3) ? 1 : 0);
            tensor.rotary_offset = draw.maybe_wild(draw.one_in(3) ? draw.in(0, 9) : 0);
            const std::int64_t least = rotary_dim + std::clamp<std::int64_t>(tensor.rotary_offset, 0, 9);
            tensor.head_dim = draw.one_in(2) ? (least + 15) / 16 * 16 : least + draw.in(0, 20);
            tensor.head_dim = draw.maybe_wild(tensor.head_dim);
            n_heads[i] = draw.in(0, 5);
            if (moves ? draw.wild && draw.one_in(24) : draw.one_in(2)) {
                draw_norm(draw, tensor, norms[i]);
            }
            if (draw.one_in(2)) {
                draw_scale(draw, tensor, scale_descs[i]);
            }
            if (!draw.one_in(3)) {
                draw_cache(draw, tensor, n_heads[i], caches[i]);
            }
        }
    }

    static void draw_norm(Draw &draw, halyard_tensor_desc &tensor, halyard_norm_desc &norm) {
        tensor.norm = &norm;
        norm.size = draw.maybe_wild<std::uint32_t>(sizeof(norm));
        norm.kind = draw.maybe_wild(0);
        norm.width = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 1)));
        norm.order = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 1)));
        norm.weight_dtype = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 3)));
        norm.unit_offset = draw.maybe_wild(norm.weight_dtype != 0 && draw.one_in(2) ? 1 : 0);
        norm.rounding = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 3)));
        norm.no_eps = draw.maybe_wild(draw.one_in(8) ? 1 : 0);
        static constexpr double wild_eps[] = {-1, -0.0, 1e39, 1e-60, INFINITY, NAN};
        norm.eps = draw.wild && draw.one_in(16) ? wild_eps[draw.in(0, 5)]
                   : norm.no_eps != 0           ? 0
                                                : static_cast<double>(draw.in(0, 9)) / 8;
        const std::int64_t head_dim = std::clamp<std::int64_t>(tensor.head_dim, 2, 250);
        if (norm.width == HALYARD_NORM_HEAD && draw.one_in(3)) {
            const std::int64_t offset = draw.in(0, head_dim - 1);
            norm.window_offset = draw.maybe_wild(offset);
            norm.window_size = draw.maybe_wild(draw.in(0, head_dim - offset));
        }
    }

    static void draw_scale(Draw &draw, halyard_tensor_desc &tensor, halyard_scale_desc &scale) {
        tensor.scale = &scale;
        scale.size = draw.maybe_wild<std::uint32_t>(sizeof(scale));
        scale.kind = draw.maybe_wild(tensor.out_dtype >= HALYARD_E4M3 && draw.one_in(2) ? 1 : 0);
        scale.per = draw.maybe_wild(scale.kind == 1 ? 0 : static_cast<std::int32_t>(draw.in(0, 3)));
        scale.reserved = draw.maybe_wild(0);
    }

    /// Row-major, with blocks or not, transposed, or in tiles.
    void draw_cache(Draw &draw, halyard_tensor_desc &tensor, std::int64_t H, halyard_cache_desc &cache) {
        tensor.cache = &cache;
        const std::int64_t D = tensor.head_dim, bs = draw.one_in(3) ? 16 : 32;
        n_slots = n_slots / 32 * 32;
        cache.n_slots = n_slots;
        cache.block_size = bs;
        H = std::max<std::int64_t>(H, 1);
        const auto times = [](std::int64_t a, std::int64_t b) {
            return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
        };
        const std::int64_t of_head = times(bs, D), of_block = times(of_head, H);
        cache.stride_block = of_block;
        cache.stride_head = of_head;
        cache.stride_token = D;
        cache.extent = draw.one_in(2) ? of_head : 0;
        switch (draw.in(0, 6)) {
        case 0:  // [slots, H, D]
            cache.block_size = 0;
            cache.stride_block = draw.word();
            cache.stride_head = D;
            cache.stride_token = times(H, D);
            cache.extent = 0;
            break;
        case 1:  // [blocks, bs, H, D]
            cache.stride_head = D;
            cache.stride_token = times(H, D);
            cache.extent = 0;
            break;
        case 2: break;  // [blocks, H, bs, D]
        case 3:         // [blocks, H, D, bs]
            cache.stride_token = 1;
            cache.stride_element = bs;
            break;
        case 4:  // [blocks, H, D / x, bs, x]
            if (D % 8 == 0) {
                cache.stride_token = 8;
                cache.tile_elements = 8;
                cache.stride_tile_elements = 8 * bs;
            }
            break;
        case 5:  // backwards, with the cache's first element at the end
            cache.stride_block = times(of_block, -1);
            cache.stride_head = times(of_head, -1);
            break;
        default:  // of the 16 x 2 tiles of matrix units
            if (D % 2 == 0) {
                cache.tile_tokens = 16;
                cache.stride_tile_tokens = times(16, D);
                cache.stride_token = 2;
                cache.tile_elements = 2;
                cache.stride_tile_elements = 32;
            }
        }
        if (draw.wild && draw.one_in(2)) {
            cache.size = draw.maybe_wild<std::uint32_t>(sizeof(cache));
            for (std::int64_t *field :
                 {&cache.n_slots, &cache.block_size, &cache.stride_block, &cache.stride_head, &cache.tile_tokens,
                  &cache.stride_tile_tokens, &cache.stride_token, &cache.tile_elements, &cache.stride_tile_elements,
                  &cache.stride_element, &cache.extent}) {
                *field = draw.maybe_wild(*field);
            }
        }
        cache.size = cache.size == 0 ? sizeof(cache) : cache.size;
    }

    // ---- The run ----

    /// Takes a place of the outputs for what reaches that far.
    void *take(Draw &draw, const Region &region, const Extent &extent, bool is_output) {
        __int128 at = is_output ? next : draw.in(0, 63);
        if (draw.wild && draw.one_in(24)) {
            at = draw.in(0, 255);
        }
        const __int128 offset = std::clamp<__int128>(at - extent.low, -(__int128{1} << 40), __int128{1} << 40);
        void *data = reinterpret_cast<void *>(reinterpret_cast<std::uintptr_t>(region.memory.begin()) +
                                              static_cast<std::uintptr_t>(static_cast<std::int64_t>(offset)));
        if (is_output) {
            next =
                static_cast<std::int64_t>(std::min<__int128>(at + extent.high - extent.low, 1 << 20)) + draw.in(0, 5);
        }
        check_reach(region, data, extent);
        return draw.wild && draw.one_in(64) ? nullptr : data;
    }

    static Extent extent_of(const halyard_tensor &tensor) {
        Extent extent;
        const std::int64_t bytes = tensor.dtype >= 1 && tensor.dtype <= 6 ? oracle::stored_bytes(tensor.dtype) : 4;
        extent.high = bytes;
        for (int d = 0; d < 4; d++) {
            extent.add(tensor.shape[d], tensor.strides[d], bytes);
        }
        return extent;
    }

    void draw_tensor(Draw &draw, halyard_tensor &tensor, int i, std::int32_t dtype, bool is_input) {
        tensor.size = draw.maybe_wild<std::uint32_t>(sizeof(tensor));
        tensor.dtype = draw.maybe_wild(dtype);
        const std::int64_t shape[] = {n_batch, n_tokens, n_heads[i], tensors[i].head_dim};
        std::int64_t stride = 1;
        const bool by_head = draw.one_in(2);  // [batch, heads, tokens, head_dim] in memory
        for (const int d : {3, by_head ? 1 : 2, by_head ? 2 : 1, 0}) {
            tensor.shape[d] = draw.maybe_wild(shape[d]);
            tensor.strides[d] = draw.maybe_wild(stride);
            const auto gap = static_cast<std::uint64_t>(d != 0 && draw.one_in(4) ? draw.in(0, 5) : 0);
            stride = static_cast<std::int64_t>(static_cast<std::uint64_t>(stride) *
                                                   static_cast<std::uint64_t>(std::max<std::int64_t>(shape[d], 1)) +
                                               gap);
        }
        if (is_input && draw.one_in(8)) {
            tensor.strides[draw.in(0, 2)] = 0;
        }
    }

    void draw_run(Draw &draw, Memory &memory, const halyard_angle_source *angles, const halyard_angle_source *other) {
        args.size = sizeof(args);
        const bool moves = plan.rerotates != 0;
        args.bad_position = draw.maybe_wild(moves ? 0 : static_cast<std::int32_t>(draw.in(0, 2)));
        args.angles = draw.wild && draw.one_in(64) ? nullptr : angles;
        args.x = x;
        args.y = y;
        args.stages = draw.wild && draw.one_in(32) ? nullptr : stages;
        bool has_cache = false;
        for (int i = 0; i < plan.n_tensors; i++) {
            has_cache = has_cache || tensors[i].cache != nullptr;
            draw_views(draw, memory, i);
            draw_stages(draw, memory, i);
        }
        if (has_cache != (draw.wild && draw.one_in(32))) {
            draw_slots(draw, memory);
            args.slots = &slots;
        }
        if (!draw.one_in(4)) {
            draw_positions(draw, memory.positions, positions);
            args.positions = &positions;
        }
        if (moves != (draw.wild && draw.one_in(32))) {
            draw_positions(draw, memory.from_positions, from_positions);
            args.from_positions = &from_positions;
            args.from_angles = draw.one_in(3) ? other : nullptr;
        }
        memory.noise = moves && !(draw.wild && draw.one_in(8)) ? memory.calm_noise : memory.any_noise;
    }

    std::int32_t out_dtype(int i) const { return tensors[i].out_dtype != 0 ? tensors[i].out_dtype : tensors[i].dtype; }

    void draw_views(Draw &draw, Memory &memory, int i) {
        const halyard_tensor_desc &desc = tensors[i];
        const bool same = out_dtype(i) == desc.dtype &&
                          (desc.no_rotation != 0 || desc.out_pairing == 0 || desc.out_pairing == desc.pairing);
        const bool in_place = same && desc.cache == nullptr && draw.one_in(2);
        draw_tensor(draw, x[i], i, desc.dtype, !in_place);
        x[i].data = take(draw, in_place ? memory.outputs : memory.inputs, extent_of(x[i]), in_place);
        if (plan.rerotates != 0 && desc.cache != nullptr && draw.one_in(2)) {
            x[i].data = nullptr;  // it is not read
        }
        if (in_place) {
            y[i] = x[i];
        } else if (desc.cache == nullptr) {
            draw_tensor(draw, y[i], i, out_dtype(i), false);
            y[i].data = take(draw, memory.outputs, extent_of(y[i]), true);
        }
    }

    /// How many there are, now and then fewer than needed: then there is no memory behind them.
    static std::int64_t too_few(Draw &draw, std::int64_t needed) {
        return draw.wild && draw.one_in(16) ? draw.in(0, 200) % (needed + 1) : needed;
    }

    void draw_stages(Draw &draw, Memory &memory, int i) {
        const halyard_tensor_desc &desc = tensors[i];
        halyard_stages &stage = stages[i];
        stage.size = draw.maybe_wild<std::uint32_t>(sizeof(stage));
        const std::int64_t head_dim = std::clamp<std::int64_t>(desc.head_dim, 1, 256), heads = n_heads[i];
        const std::int64_t *shape = x[i].shape;
        if (desc.norm != nullptr && desc.norm->weight_dtype != 0) {
            const halyard_norm_desc &norm = *desc.norm;
            const std::int64_t rest =
                std::max<std::int64_t>(desc.head_dim, 0) - std::clamp<std::int64_t>(norm.window_offset, 0, 256);
            const std::int64_t window = norm.window_size != 0 ? norm.window_size : rest;
            const std::int64_t needed =
                std::clamp<std::int64_t>(norm.width == HALYARD_NORM_ROW ? heads * head_dim : window, 0, 2000);
            const std::int64_t n = too_few(draw, needed);
            const std::int32_t dtype = std::clamp(norm.weight_dtype, 1, 3);
            const std::int64_t bytes = oracle::element_bytes(dtype);
            char *at = memory.weights[i].place(n * bytes);
            for (std::int64_t k = 0; k < n; k++) {
                oracle::write_word(dtype, at + k * bytes,
                                   oracle::narrow(dtype, static_cast<float>(draw.byte()) / 64 - 2));
            }
            stage.weight = draw.wild && draw.one_in(64) ? nullptr : at;
            stage.n_weights = draw.maybe_wild(n);
            fits = fits && (stage.n_weights <= n || stage.n_weights > 1 << 20);
        }
        if (desc.scale != nullptr && desc.scale->kind == HALYARD_SCALE_STATIC) {
            const std::int64_t n =
                too_few(draw, ((desc.scale->per & 1) != 0 ? heads : 1) * ((desc.scale->per & 2) != 0 ? head_dim : 1));
            char *at = memory.scales[i].place(n * 4);
            for (std::int64_t k = 0; k < n; k++) {
                float scale = static_cast<float>(draw.byte() + 1) / 64;
                static constexpr float wild_scales[] = {0.0f, -1.0f, INFINITY, NAN, 0x1p-140f, 0x1p-126f};
                scale = draw.wild && draw.one_in(200) ? wild_scales[draw.in(0, 5)] : scale;
                std::memcpy(at + k * 4, &scale, 4);
            }
            stage.scales = draw.wild && draw.one_in(64) ? nullptr : reinterpret_cast<float *>(at);
            stage.n_scales = draw.maybe_wild(n);
            fits = fits && (stage.n_scales <= n || stage.n_scales > 1 << 20);
        } else if (desc.scale != nullptr) {
            const bool by_slot = desc.cache != nullptr;
            stage.stride_scales[2] = draw.maybe_wild<std::int64_t>(1);
            const std::int64_t row = std::max<std::int64_t>(heads, 1) + draw.in(0, 2);
            stage.stride_scales[1] = draw.maybe_wild(row);
            stage.stride_scales[0] = draw.maybe_wild(row * std::max<std::int64_t>(n_tokens, 1));
            Extent extent;
            extent.high = 4;
            extent.add(by_slot ? 1 : shape[0], stage.stride_scales[0], 4);
            extent.add(by_slot ? desc.cache->n_slots : shape[1], stage.stride_scales[1], 4);
            extent.add(shape[2], stage.stride_scales[2], 4);
            stage.scales_out = static_cast<float *>(take(draw, memory.outputs, extent, true));
        }
        if (desc.cache != nullptr) {
            const halyard_cache_desc &cache = *desc.cache;
            const auto or_else = [](std::int64_t value, std::int64_t other) { return value != 0 ? value : other; };
            const std::int64_t bs = or_else(cache.block_size, cache.n_slots);
            const std::int64_t tile_t = std::max<std::int64_t>(or_else(cache.tile_tokens, bs), 1);
            const std::int64_t tile_d = std::max<std::int64_t>(or_else(cache.tile_elements, desc.head_dim), 1);
            const std::int64_t bytes = out_dtype(i) >= 1 && out_dtype(i) <= 6 ? oracle::stored_bytes(out_dtype(i)) : 4;
            Extent extent;
            extent.high = bytes;
            extent.add(cache.n_slots / std::max<std::int64_t>(bs, 1), cache.stride_block, bytes);
            extent.add(shape[2], cache.stride_head, bytes);
            extent.add((std::max<std::int64_t>(bs, 1) - 1) / tile_t + 1, cache.stride_tile_tokens, bytes);
            extent.add(std::min(tile_t, bs), cache.stride_token, bytes);
            extent.add((std::max<std::int64_t>(desc.head_dim, 1) - 1) / tile_d + 1, cache.stride_tile_elements, bytes);
            extent.add(std::min(tile_d, desc.head_dim), or_else(cache.stride_element, 1), bytes);
            stage.cache = take(draw, memory.outputs, extent, true);
        }
    }

    void draw_slots(Draw &draw, Memory &memory) {
        const std::int64_t bytes = draw.one_in(2) ? 8 : 4;
        slots.size = draw.maybe_wild<std::uint32_t>(sizeof(slots));
        slots.type = draw.maybe_wild(bytes == 8 ? HALYARD_INT64 : HALYARD_INT32);
        slots.policy = draw.maybe_wild(plan.rerotates != 0 ? 0 : static_cast<std::int32_t>(draw.in(0, 1)));
        slots.consecutive = draw.maybe_wild(draw.one_in(5) ? 1 : 0);
        const std::int64_t n = n_batch * (slots.consecutive == 1 ? 1 : n_tokens);
        slots.shape[0] = draw.maybe_wild(n_batch);
        slots.shape[1] = draw.maybe_wild(slots.consecutive == 1 ? 1 : n_tokens);
        slots.strides[0] = draw.maybe_wild(slots.consecutive == 1 ? 1 : n_tokens);
        slots.strides[1] = draw.maybe_wild<std::int64_t>(1);
        char *at = memory.slots.place(n * bytes);
        std::vector<bool> used(static_cast<std::size_t>(n_slots));
        const bool in_order = draw.one_in(2);
        std::int64_t slot = draw.in(0, n_slots - 1);
        for (std::int64_t i = 0; i < n; i++) {
            slot = (in_order && !draw.one_in(12) ? slot + 1 : draw.byte()) % n_slots;
            const bool is_doubled_here = used[static_cast<std::size_t>(slot)];
            std::int64_t value =
                draw.one_in(10) || (slots.policy == 0 && is_doubled_here && !draw.one_in(16)) ? -1 : slot;
            is_doubled = is_doubled || (value >= 0 && is_doubled_here);
            if (value >= 0) {
                used[static_cast<std::size_t>(slot)] = true;
            }
            if (draw.wild && draw.one_in(100)) {
                value = draw.one_in(2) ? draw.word() : draw.in(-2, 255);
            }
            std::memcpy(at + i * bytes, &value, static_cast<std::size_t>(bytes));
        }
        is_doubled = is_doubled || slots.consecutive != 0;  // or they leave the cache
        slots.data = draw.wild && draw.one_in(64) ? nullptr : at;
        Extent extent;
        extent.high = slots.type == HALYARD_INT64 ? 8 : 4;
        extent.add(slots.shape[0], slots.strides[0], slots.type == HALYARD_INT64 ? 8 : 4);
        extent.add(slots.shape[1], slots.strides[1], slots.type == HALYARD_INT64 ? 8 : 4);
        if (n > 0) {
            check_reach(memory.slots, at, extent);
        }
        const std::int64_t n_bytes = too_few(draw, (n_slots + 7) / 8);
        slots.scratch = draw.wild && draw.one_in(64) ? nullptr : memory.scratch.place(n_bytes);
        slots.scratch_bytes = draw.maybe_wild(n_bytes);
        fits = fits && (slots.scratch_bytes <= n_bytes);
    }

    void draw_positions(Draw &draw, Region &region, halyard_positions &drawn) {
        const std::int64_t n = n_batch * n_tokens, bytes = draw.one_in(2) ? 8 : 4;
        char *at = region.place(n * bytes);
        for (std::int64_t i = 0; i < n; i++) {
            std::int64_t position = draw.byte();
            if (draw.one_in(40)) {
                position = draw.one_in(2) ? 256 : draw.word();
                is_bad_position = true;
            }
            std::memcpy(at + i * bytes, &position, static_cast<std::size_t>(bytes));
        }
        drawn = {
            sizeof(drawn), bytes == 8 ? HALYARD_INT64 : HALYARD_INT32, 0, at, {n_batch, n_tokens}, {n_tokens, 1}, 1, 0};
    }

    /// The shapes that it takes to walk through a run that was accepted, are small.
    bool is_small() const {
        for (int i = 0; i < plan.n_tensors; i++) {
            __int128 n = 1;
            for (const std::int64_t extent : x[i].shape) {
                n = std::clamp<__int128>(n, -1 << 30, 1 << 30) * extent;
            }
            if (n > 1 << 20 || n < -(1 << 20)) {
                return false;
            }
        }
        return true;
    }
};

long n_compared = 0;

void print_counts() {
    print_calls();
    std::fprintf(stderr, "%ld roads of them compared with the reference\n", n_compared);
}

// ---- Runs ----------------------------------------------------------------------------------------------------------

enum class Way { whole, parts, bound, bound_parts };

halyard_status run(const halyard_plan *plan, const Request &request, Way way, std::int32_t n_parts,
                   WatchedError &error) {
    if (way == Way::whole) {
        return call(error, halyard_run(plan, &request.args, &error.error));
    }
    halyard_status first = HALYARD_OK;
    const auto for_each_part = [&](auto run_part) {
        for (std::int32_t i = 0; i < n_parts; i++) {
            const halyard_status status = run_part(n_parts - 1 - i);
            first = i == 0 ? status : first;
            require(status == first, "all parts return the same status", error.error.message);
        }
        return first;
    };
    if (way == Way::parts) {
        halyard_run_args part = request.args;
        part.n_parts = n_parts;
        return for_each_part([&](std::int32_t i) {
            part.part = i;
            return call(error, halyard_run(plan, &part, &error.error));
        });
    }
    halyard_bound_run *bound = nullptr;
    halyard_status status = call(error, halyard_bind_run(plan, &request.args, &bound, &error.error));
    require((status == HALYARD_OK) == (bound != nullptr), "a bound run, or an error");
    if (status == HALYARD_OK) {
        const void *x[HALYARD_MAX_TENSORS], *weights[HALYARD_MAX_TENSORS];
        void *y[HALYARD_MAX_TENSORS], *caches[HALYARD_MAX_TENSORS];
        const float *scales[HALYARD_MAX_TENSORS];
        float *scales_out[HALYARD_MAX_TENSORS];
        for (int i = 0; i < request.plan.n_tensors; i++) {
            const halyard_stages none = {};
            const halyard_stages &stage = request.args.stages != nullptr ? request.stages[i] : none;
            x[i] = request.x[i].data;
            y[i] = request.y[i].data;
            weights[i] = stage.weight;
            scales[i] = stage.scales;
            scales_out[i] = stage.scales_out;
            caches[i] = stage.cache;
        }
        halyard_bound_run_args args = {};
        args.size = sizeof(args);
        args.n_tensors = request.plan.n_tensors;
        args.positions = request.args.positions != nullptr ? request.args.positions->data : nullptr;
        args.x = x;
        args.y = y;
        args.slots = request.slots.data;
        args.slots_scratch = request.slots.scratch;
        args.weights = weights;
        args.scales = scales;
        args.scales_out = scales_out;
        args.caches = caches;
        args.from_positions = request.args.from_positions != nullptr ? request.args.from_positions->data : nullptr;
        args.n_parts = way == Way::bound_parts ? n_parts : 0;
        const auto run_part = [&](std::int32_t i) {
            args.part = i;
            return call(error, halyard_run_bound(bound, &args, &error.error));
        };
        status = way == Way::bound ? run_part(0) : for_each_part(run_part);
    }
    halyard_destroy_bound_run(bound);
    return status;
}

/// The slot of a token; -1 where it has none.
std::int64_t slot_of(const Request &request, std::int64_t batch, std::int64_t token) {
    const halyard_slots &slots = request.slots;
    const std::int64_t at =
        batch * (slots.shape[0] > 1 ? slots.strides[0] : 0) + token * (slots.shape[1] > 1 ? slots.strides[1] : 0);
    std::int64_t slot = 0;
    std::int32_t narrow = 0;
    if (slots.type == HALYARD_INT64) {
        std::memcpy(&slot, static_cast<const char *>(slots.data) + at * 8, 8);
    } else {
        std::memcpy(&narrow, static_cast<const char *>(slots.data) + at * 4, 4);
        slot = narrow;
    }
    return slots.consecutive == 0 || slot == -1 ? slot : slot + token;
}

/// Calls function(at, dtype) with the address of each element that a run that succeeded was to write.
template <typename Function>
void for_each_output(const Request &request, Function function) {
    for (int i = 0; i < request.plan.n_tensors; i++) {
        const halyard_tensor_desc &desc = request.tensors[i];
        const halyard_stages &stage = request.stages[i];
        const halyard_tensor &x = request.x[i];
        const std::int32_t dtype = request.out_dtype(i);
        const std::int64_t bytes = oracle::stored_bytes(dtype);
        const bool is_empty = std::count(x.shape, x.shape + 3, 0) > 0;
        for (std::int64_t n = 0; !is_empty && n < x.shape[0] * x.shape[1] * x.shape[2]; n++) {
            const std::int64_t head = n % x.shape[2], token = n / x.shape[2] % x.shape[1];
            const std::int64_t batch = n / x.shape[2] / x.shape[1];
            const std::int64_t slot = desc.cache != nullptr ? slot_of(request, batch, token) : 0;
            if (slot < 0) {
                continue;
            }
            if (desc.scale != nullptr && desc.scale->kind == HALYARD_SCALE_DYNAMIC) {
                const std::int64_t *strides = stage.stride_scales;
                const auto step = [](std::int64_t index, std::int64_t stride) {
                    return index == 0 ? 0 : index * stride;
                };
                const std::int64_t row =
                    desc.cache != nullptr ? step(slot, strides[1]) : step(batch, strides[0]) + step(token, strides[1]);
                function(reinterpret_cast<char *>(stage.scales_out) + (row + step(head, strides[2])) * 4, HALYARD_F32);
            }
            for (std::int64_t d = 0; d < desc.head_dim; d++) {
                const auto step = [](std::int64_t index, std::int64_t stride) {
                    return index == 0 ? 0 : index * stride;
                };
                std::int64_t at = 0;
                if (desc.cache == nullptr) {
                    const std::int64_t *strides = request.y[i].strides;
                    at = step(batch, strides[0]) + step(token, strides[1]) + step(head, strides[2]) +
                         step(d, strides[3]);
                    function(static_cast<char *>(request.y[i].data) + at * bytes, dtype);
                    continue;
                }
                const halyard_cache_desc &cache = *desc.cache;
                const std::int64_t bs = cache.block_size != 0 ? cache.block_size : cache.n_slots, t = slot % bs;
                const std::int64_t tile_t = cache.tile_tokens != 0 ? cache.tile_tokens : bs;
                const std::int64_t tile_d = cache.tile_elements != 0 ? cache.tile_elements : desc.head_dim;
                at = step(slot / bs, cache.stride_block) + step(head, cache.stride_head) +
                     step(t / tile_t, cache.stride_tile_tokens) + step(t % tile_t, cache.stride_token) +
                     step(d / tile_d, cache.stride_tile_elements) +
                     step(d % tile_d, cache.stride_element != 0 ? cache.stride_element : 1);
                function(static_cast<char *>(stage.cache) + at * bytes, dtype);
            }
        }
    }
}

bool is_nan(std::int32_t dtype, const char *at) {
    std::uint32_t word = 0;
    std::memcpy(&word, at, static_cast<std::size_t>(oracle::stored_bytes(dtype)));
    return std::isnan(oracle::decode(dtype, word));
}

/// Runs on the best target in some way, and as a whole on the reference.
void compare(Draw &draw, Memory &memory, const halyard_plan *plan, const halyard_plan *reference, Request &request) {
    const Way way = Way(draw.in(0, 3));
    const auto n_parts = static_cast<std::int32_t>(draw.in(1, 6));
    memory.restore();
    WatchedError error;
    const halyard_status status = run(plan, request, way, n_parts, error);
    memory.after = memory.image();
    memory.restore();
    WatchedError other;
    require(run(reference, request, Way::whole, 1, other) == status, "all targets return the same status",
            status != HALYARD_OK ? error.error.message : other.error.message);
    const std::vector<char> expected = memory.image();
    if (status != HALYARD_OK) {
        require(memory.after == memory.noise && expected == memory.noise, "a run that fails has written nothing");
        const bool may_fail = (status == HALYARD_ERROR_SLOT && request.is_doubled) ||
                              (status == HALYARD_ERROR_POSITION && request.is_bad_position);
        require(draw.wild || may_fail, "a sensible run succeeds", error.error.message);
        return;
    }
    // What may be written is taken from what was; then nothing may differ.
    std::vector<char> unfused = memory.noise, fused = memory.noise;
    for_each_output(request, [&](const char *at, std::int32_t dtype) {
        const std::int64_t offset = at - memory.outputs.memory.begin(), bytes = oracle::stored_bytes(dtype);
        require(offset >= 0 && offset + bytes <= static_cast<std::int64_t>(memory.noise.size()),
                "outputs without memory are refused");
        const char *of_fused = memory.after.data() + offset, *of_unfused = expected.data() + offset;
        require(std::memcmp(of_fused, of_unfused, static_cast<std::size_t>(bytes)) == 0 ||
                    (is_nan(dtype, of_fused) && is_nan(dtype, of_unfused)),
                "outputs are the reference's");
        std::memcpy(fused.data() + offset, of_fused, static_cast<std::size_t>(bytes));
        std::memcpy(unfused.data() + offset, of_unfused, static_cast<std::size_t>(bytes));
    });
    require(fused == memory.after && unfused == expected, "nothing else is written");
    n_compared++;
}

halyard_plan *make_plan(Draw &draw, const Request &request, const char *target) {
    halyard_plan_desc desc = request.plan;
    desc.target = target;
    halyard_plan *plan = nullptr;
    WatchedError error;
    const halyard_status status = call(error, halyard_create_plan(&desc, &plan, &error.error));
    require((status == HALYARD_OK) == (plan != nullptr), "a plan, or an error");
    require(status == HALYARD_OK || draw.wild, "a sensible plan can be made", error.error.message);
    return plan;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static Memory memory;
    static const int printed = std::atexit(print_counts);
    (void)printed;
    Draw draw(data, size);
    draw.wild = draw.one_in(2);
    draw.rarity = draw.one_in(2) ? 24 : 200;  // of few wild values, one that is dangerous is not refused for another
    Request request;
    request.draw_plan(draw);
    halyard_plan *plan = make_plan(draw, request, nullptr);
    halyard_plan *reference = make_plan(draw, request, "reference");
    require((plan == nullptr) == (reference == nullptr), "a plan does not depend on the target");
    if (plan != nullptr) {
        halyard_frequencies *frequencies = nullptr, *other_frequencies = nullptr;
        halyard_angle_source *angles = nullptr, *other = nullptr;
        const std::int64_t rotary_dim = request.plan.rotary_dim >= 2 && request.plan.rotary_dim <= 4096
                                            ? request.plan.rotary_dim
                                            : 2;  // another one is refused, or not looked at
        WatchedError error;
        call(error, halyard_create_frequencies_from_base(100.0, rotary_dim, &frequencies, &error.error));
        halyard_angle_source_desc desc = {};
        desc.size = sizeof(desc);
        static constexpr std::int32_t kinds[] = {HALYARD_ANGLES_TABLE, HALYARD_ANGLES_FACTORED, HALYARD_ANGLES_PHASE};
        desc.kind = kinds[draw.in(0, 2)];
        desc.last = 255;
        call(error, halyard_create_angle_source(frequencies, &desc, &angles, &error.error));
        if (request.plan.rerotates != 0) {
            call(error, halyard_create_frequencies_from_base(1000.0, rotary_dim, &other_frequencies, &error.error));
            call(error, halyard_create_angle_source(other_frequencies, &desc, &other, &error.error));
        }
        request.draw_run(draw, memory, angles, other);
        if (request.fits && request.is_small()) {
            compare(draw, memory, plan, reference, request);
        }
        halyard_destroy_angle_source(angles);
        halyard_destroy_angle_source(other);
        halyard_destroy_frequencies(frequencies);
        halyard_destroy_frequencies(other_frequencies);
    }
    halyard_destroy_plan(plan);
    halyard_destroy_plan(reference);
    return 0;
}
