// Fuzzes the API with descriptions, sizes, strides, positions and policies, sensible or not. A call writes what the
// formula says to the elements that it describes, or fails, and touches nothing else.
#include "checks/element_at.h"
#include "checks/guarded_memory.h"
#include "checks/oracle.h"
#include "draw.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

namespace {

// ---- Memory --------------------------------------------------------------------------------------------------------

constexpr std::size_t n_pages = 16;

struct Arena {
    GuardedMemory memory{n_pages};
    std::vector<char> noise = std::vector<char>(n_pages * GuardedMemory::page), before = noise, expected = noise;
    std::vector<bool> is_output = std::vector<bool>(noise.size());

    Arena() {
        oracle::Random random(1);
        std::generate(noise.begin(), noise.end(), [&] { return static_cast<char>(random.bits()); });
    }
    std::int64_t size() const { return static_cast<std::int64_t>(noise.size()); }
};

struct Extent {
    __int128 low, high;  // in bytes, from the first element
};

constexpr __int128 far_away = __int128{1} << 80;

Extent extent_of(const halyard_tensor &tensor) {
    const std::int64_t bytes = tensor.dtype == HALYARD_F32 ? 4 : 2;
    Extent extent = {0, bytes};
    for (int d = 0; d < 4; d++) {
        const __int128 steps = __int128{std::max<std::int64_t>(tensor.shape[d], 1) - 1} * tensor.strides[d];
        const __int128 reach = std::clamp(steps, -far_away, far_away) * bytes;
        (reach < 0 ? extent.low : extent.high) += reach;
    }
    return extent;
}

bool is_empty(const halyard_tensor &tensor) { return std::count(tensor.shape, tensor.shape + 4, 0) > 0; }

// ---- One input -----------------------------------------------------------------------------------------------------

struct Source {
    halyard_frequencies *frequencies = nullptr;
    halyard_angle_source *angles = nullptr;
    halyard_angle_source *joined_of = nullptr;  // what angles are made of, where they are joined
    inline static const GuardedMemory rows{5}, index{1};
    std::vector<std::int32_t> list_of_axes;
    std::int64_t rotary_dim = 0, first = 0, last = 0;
    std::int32_t n_axes = 1;
    bool is_listed = false;
    bool is_given = false;  // the rows are

    ~Source() {
        halyard_destroy_angle_source(angles);
        halyard_destroy_angle_source(joined_of);
        halyard_destroy_frequencies(frequencies);
    }

    bool make(Draw &draw) {
        const std::int64_t n_pairs = draw.in(1, 24);
        std::array<double, 24> inv_freq;
        for (double &value : inv_freq) {
            value = static_cast<double>(draw.byte()) / 200;
        }
        WatchedError error;
        if (call(error, halyard_create_frequencies_from_list(inv_freq.data(), draw.maybe_wild(n_pairs) % 25, 1.0,
                                                             &frequencies, &error.error)) != HALYARD_OK) {
            require(frequencies == nullptr, "no half-made frequencies");
            return false;
        }
        halyard_frequencies_info info = {};
        info.size = sizeof(info);
        require(call(error, halyard_get_frequencies_info(frequencies, &info, &error.error)) == HALYARD_OK, "info");
        rotary_dim = info.rotary_dim;
        return make_angles(draw);
    }

    bool make_angles(Draw &draw) {
        halyard_angle_source_desc desc = {};
        desc.size = draw.maybe_wild<std::uint32_t>(sizeof(desc));
        desc.kind = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 4)));
        const std::int32_t base = draw.one_in(4) ? static_cast<std::int32_t>(draw.word()) : 0;
        desc.first = std::min(base, std::numeric_limits<std::int32_t>::max() - 300);
        desc.last = desc.first + static_cast<std::int32_t>(draw.in(0, 255));
        if (draw.wild && draw.one_in(16)) {
            desc.last = desc.first - 1;
        }
        if (draw.one_in(6)) {
            desc.axis_map = draw.maybe_wild(static_cast<std::int32_t>(draw.in(2, 4)));
            desc.n_axes = draw.maybe_wild(static_cast<std::int32_t>(draw.in(1, 4)));
            const std::int32_t n = std::clamp(desc.n_axes, 1, 4);
            const std::int64_t n_pairs = rotary_dim / 2;
            std::fill(desc.axis_counts + 1, desc.axis_counts + n, draw.maybe_wild(n_pairs / n));
            desc.axis_counts[0] = n_pairs - (n - 1) * (n_pairs / n);
            for (std::int64_t k = 0; k < n_pairs; k++) {
                list_of_axes.push_back(draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, n - 1))));
            }
            desc.axis_of_pair = list_of_axes.data();
        }
        if (draw.one_in(8) && desc.kind <= HALYARD_ANGLES_TABLE) {  // ggml has no list of frequencies
            desc.reference = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, HALYARD_REFERENCE_GGML - 1)));
        }
        std::int32_t listed[4];
        halyard_positions list = {};
        if (draw.one_in(8) && desc.kind <= HALYARD_ANGLES_TABLE) {
            for (std::int32_t &position : listed) {
                position = desc.first + static_cast<std::int32_t>(draw.in(0, 255));
            }
            list = {sizeof(list), HALYARD_INT32, 0, listed, {1, 4}, {4, 1}, 0, 0};
            desc.listed = &list;
            is_listed = true;
        }
        if (desc.kind == HALYARD_ANGLES_GIVEN) {
            give_rows(draw, desc);
        }
        WatchedError error;
        const halyard_status status =
            call(error, halyard_create_angle_source(frequencies, &desc, &angles, &error.error));
        require((status == HALYARD_OK) == (angles != nullptr), "an angle source, or an error");
        require(status == HALYARD_OK || draw.wild, "a sensible angle source can be made", error.error.message);
        if (status != HALYARD_OK) {
            return false;
        }
        halyard_angle_source_info info = {};
        info.size = sizeof(info);
        require(call(error, halyard_get_angle_source_info(angles, &info, &error.error)) == HALYARD_OK, "info");
        rotary_dim = info.rotary_dim;
        first = info.first;
        last = info.last;
        n_axes = desc.n_axes > 1 ? desc.n_axes : 1;
        return is_given || !draw.one_in(6) || join(draw);
    }

    /// Joins the source with itself, so that the formula stays the same.
    bool join(Draw &draw) {
        const std::int64_t n_index = draw.wild ? draw.in(1, 64) : 64;
        char *const begin = index.end() - n_index * std::int64_t{sizeof(std::int32_t)};
        for (std::int64_t i = 0; i < n_index; i++) {
            const std::int32_t chosen = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 1)));
            std::memcpy(begin + i * std::int64_t{sizeof(chosen)}, &chosen, sizeof(chosen));
        }
        const halyard_angle_source *const sources[] = {angles, angles};
        halyard_angle_source *joined = nullptr;
        WatchedError error;
        const halyard_status status =
            call(error, halyard_create_joined_angle_source(
                            sources, draw.wild ? static_cast<std::int32_t>(draw.in(0, 2)) : 2,
                            reinterpret_cast<const std::int32_t *>(begin), n_index,
                            draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 1))), &joined, &error.error));
        require((status == HALYARD_OK) == (joined != nullptr), "a joined source, or an error");
        require(status == HALYARD_OK || draw.wild, "sensible sources can be joined", error.error.message);
        if (joined != nullptr) {
            joined_of = std::exchange(angles, joined);
        }
        return joined != nullptr;
    }

    void give_rows(Draw &draw, halyard_angle_source_desc &desc) {
        is_given = true;
        desc.by_token = draw.maybe_wild(0);
        desc.rows_dtype = static_cast<std::int32_t>(draw.in(1, 3));
        const std::int64_t bytes = oracle::element_bytes(desc.rows_dtype);
        desc.rotary_dim = draw.maybe_wild(rotary_dim);
        desc.n_rows = draw.in(1, 16);
        desc.stride_row = rotary_dim;
        char *const end = rows.end() - draw.in(0, bytes - 1);  // any alignment
        desc.cos_rows = end - desc.n_rows * rotary_dim * bytes;
        desc.sin_rows = static_cast<const char *>(desc.cos_rows) + rotary_dim / 2 * bytes;
        for (std::int64_t i = 0; i < desc.n_rows * rotary_dim; i++) {
            const auto value = static_cast<float>(draw.byte()) / 100 - 1;
            oracle::write_word(desc.rows_dtype, end - (i + 1) * bytes, oracle::narrow(desc.rows_dtype, value));
        }
        if (draw.wild && draw.one_in(8)) {  // a false length must be refused, or else no memory may be touched
            desc.stride_row = draw.one_in(2) ? std::numeric_limits<std::int64_t>::max() / 2 : rotary_dim / 2 - 1;
        }
        if (desc.rotary_dim != rotary_dim) {
            desc.rotary_dim |= 1;  // the rows are not that wide, so an odd number makes sure that it is refused
        }
    }
};

struct Request {
    halyard_plan_desc plan = {};
    halyard_tensor_desc tensors[HALYARD_MAX_TENSORS] = {};
    halyard_tensor x[HALYARD_MAX_TENSORS] = {}, y[HALYARD_MAX_TENSORS] = {};
    halyard_positions positions = {};
    halyard_run_args args = {};
    std::int64_t n_batch = 0, n_tokens = 0;  // as drawn; the shape of x[0] may differ
    inline static const GuardedMemory position_memory{1};
    bool positions_fit = true;  // whether their memory is as large as they say

    void draw_plan(Draw &draw, std::int64_t rotary_dim) {
        plan.size = draw.maybe_wild<std::uint32_t>(sizeof(plan));
        plan.direction = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 1)));
        plan.rotary_dim = draw.maybe_wild(rotary_dim);
        plan.n_tensors = draw.maybe_wild(static_cast<std::int32_t>(draw.in(1, 3)));
        static const char *const targets[] = {nullptr, nullptr, "reference", "x86_avx2", "x86_avx512", "no_such"};
        plan.target = targets[draw.wild ? draw.in(0, 5) : draw.in(0, 2)];
        plan.tensors = draw.wild && draw.one_in(64) ? nullptr : tensors;
        for (halyard_tensor_desc &tensor : tensors) {
            tensor.size = draw.maybe_wild<std::uint32_t>(sizeof(tensor));
            tensor.dtype = draw.maybe_wild(static_cast<std::int32_t>(draw.in(1, 3)));
            // Another dtype, or no rotation, is a road's, of which the formula here knows nothing.
            const auto out_dtype = draw.one_in(3) ? tensor.dtype : draw.maybe_wild(0);
            tensor.out_dtype = out_dtype >= HALYARD_F32 && out_dtype <= HALYARD_INT8 ? tensor.dtype : out_dtype;
            tensor.pairing = draw.maybe_wild(static_cast<std::int32_t>(draw.in(1, 2)));
            tensor.out_pairing = draw.one_in(3) ? static_cast<std::int32_t>(draw.in(0, 2)) : tensor.pairing;
            const auto no_rotation = draw.maybe_wild(0);
            tensor.no_rotation = no_rotation == 1 ? 2 : no_rotation;
            tensor.rotary_offset = draw.maybe_wild(draw.one_in(2) ? draw.in(0, 5) : 0);
            tensor.head_dim = draw.maybe_wild(rotary_dim + (draw.wild ? 0 : tensor.rotary_offset) + draw.in(0, 5));
        }
    }

    void draw_tensors(Draw &draw, Arena &arena) {
        n_batch = draw.one_in(4) ? draw.in(0, 3) : 1;
        n_tokens = draw.in(0, 9);
        std::int64_t next = draw.in(0, 63);  // in bytes, where the next tensor may begin
        for (int i = 0; i < std::clamp(plan.n_tensors, 0, 3); i++) {
            const halyard_tensor_desc &desc = tensors[i];
            const std::int64_t shape[] = {n_batch, n_tokens, draw.in(0, 4), desc.head_dim};
            const bool in_place = draw.one_in(2) && (desc.out_pairing == 0 || desc.pairing == desc.out_pairing);
            for (halyard_tensor *tensor : {&x[i], &y[i]}) {
                if (tensor == &y[i] && in_place) {
                    y[i] = x[i];
                    continue;
                }
                tensor->size = draw.maybe_wild<std::uint32_t>(sizeof(*tensor));
                tensor->reserved = draw.maybe_wild(0);
                tensor->dtype = draw.maybe_wild(desc.dtype);
                tensor->device = draw.maybe_wild(HALYARD_CPU);
                for (int d = 0; d < 4; d++) {
                    tensor->shape[d] = draw.maybe_wild(shape[d]);
                }
                draw_strides(draw, *tensor, tensor == &x[i] && (draw.wild || !in_place));
                place(draw, *tensor, arena, next);
            }
        }
    }

    void draw_strides(Draw &draw, halyard_tensor &tensor, bool can_broadcast) {
        int order[4] = {3, 2, 1, 0};
        const int n_swaps = static_cast<int>(draw.in(0, 2));
        for (int i = 0; i < n_swaps; i++) {
            std::swap(order[draw.in(0, 3)], order[draw.in(1, 3)]);
        }
        std::uint64_t reach = 1;
        for (const int d : order) {
            const std::uint64_t stride = reach + (draw.one_in(4) ? static_cast<std::uint64_t>(draw.in(0, 3)) : 0);
            tensor.strides[d] = draw.maybe_wild(static_cast<std::int64_t>(draw.one_in(6) ? 0 - stride : stride));
            reach += stride * static_cast<std::uint64_t>(std::max<std::int64_t>(tensor.shape[d], 1) - 1);
        }
        if (can_broadcast && draw.one_in(8)) {
            tensor.strides[draw.in(0, 3)] = 0;
        }
    }

    /// Puts tensors one behind the other. Where nonsense is allowed they may overlap, or end at a guard page.
    static void place(Draw &draw, halyard_tensor &tensor, const Arena &arena, std::int64_t &next) {
        const Extent extent = extent_of(tensor);
        __int128 at = next;
        if (draw.wild && draw.one_in(3)) {
            at = draw.one_in(2) ? arena.size() - (extent.high - extent.low) : draw.in(0, 255);
        }
        const __int128 offset = std::clamp<__int128>(at - extent.low, -(__int128{1} << 40), __int128{1} << 40);
        tensor.data = reinterpret_cast<void *>(reinterpret_cast<std::uintptr_t>(arena.memory.begin()) +
                                               static_cast<std::uintptr_t>(static_cast<std::int64_t>(offset)));
        if (draw.wild && draw.one_in(64)) {
            tensor.data = nullptr;
        }
        next =
            static_cast<std::int64_t>(std::min<__int128>(at + extent.high - extent.low, arena.size())) + draw.in(0, 3);
    }

    void draw_args(Draw &draw, const Source &source) {
        args.size = draw.maybe_wild<std::uint32_t>(sizeof(args));
        args.bad_position = draw.maybe_wild(static_cast<std::int32_t>(draw.in(0, 2)));
        args.angles = draw.wild && draw.one_in(64) ? nullptr : source.angles;
        args.x = draw.wild && draw.one_in(64) ? nullptr : x;
        args.y = draw.wild && draw.one_in(64) ? nullptr : y;
        if (!draw.one_in(4)) {
            draw_positions(draw, source);
            args.positions = &positions;
        }
    }

    void draw_positions(Draw &draw, const Source &source) {
        const std::int64_t bytes = draw.one_in(2) ? 8 : 4;
        const bool consecutive = source.n_axes == 1 && draw.one_in(4);
        const std::int64_t rows = draw.one_in(2) ? 1 : n_batch, columns = consecutive ? 1 : n_tokens;
        const std::int64_t n = rows * columns * source.n_axes;
        positions = {draw.maybe_wild<std::uint32_t>(sizeof(positions)),  bytes == 8 ? HALYARD_INT64 : HALYARD_INT32,
                     draw.maybe_wild<std::int32_t>(consecutive ? 1 : 0), position_memory.end() - n * bytes,
                     {draw.maybe_wild(rows), draw.maybe_wild(columns)},  {draw.maybe_wild(columns), 1},
                     draw.maybe_wild<std::int64_t>(source.n_axes),       rows * columns};
        for (std::int64_t i = 0; i < n; i++) {
            std::int64_t position = source.first + draw.in(0, 255) % (source.last - source.first + 1);
            if (draw.one_in(12)) {
                position = bytes == 8 && draw.one_in(2) ? draw.word() : static_cast<std::int32_t>(draw.word());
            }
            std::memcpy(position_memory.end() - (n - i) * bytes, &position, static_cast<std::size_t>(bytes));
        }
        // A shape that is larger than the memory can only be refused where it differs from that of the tensors.
        positions_fit = positions.strides[0] == columns || (positions.shape[0] <= 1 && positions.stride_axis >= 0);
    }
};

/// Where the tensors lie: all in the arena, so that a run may touch what they describe; some elsewhere, in memory that
/// the library cannot know not to be the caller's; or one where there is no memory.
enum class Reach { arena, elsewhere, nowhere };

Reach reach_of(const Arena &arena, const Request &request) {
    auto reach = request.positions_fit ? Reach::arena : Reach::elsewhere;
    for (int i = 0; i < request.plan.n_tensors; i++) {
        for (const halyard_tensor *tensor : {&request.x[i], &request.y[i]}) {
            if (tensor->data == nullptr || is_empty(*tensor)) {
                continue;
            }
            const Extent extent = extent_of(*tensor);
            const __int128 at = static_cast<__int128>(reinterpret_cast<std::uintptr_t>(tensor->data)) -
                                static_cast<__int128>(reinterpret_cast<std::uintptr_t>(arena.memory.begin()));
            if (extent.high - extent.low > __int128{1} << 60) {
                return Reach::nowhere;
            }
            if (at + extent.low < 0 || at + extent.high > arena.size()) {
                reach = Reach::elsewhere;
            }
        }
    }
    return reach;
}

/// The rows that halyard_make_rows makes for all tokens.
halyard_status make_rows(const halyard_plan *plan, const Source &source, const Request &request,
                         std::int32_t bad_position, std::vector<float> &rows) {
    const std::int64_t n_batch = request.x[0].shape[0], n_tokens = request.x[0].shape[1];
    rows.resize(static_cast<std::size_t>(n_batch * n_tokens * source.rotary_dim));
    WatchedError error;
    halyard_rows_args args = {};
    args.size = sizeof(args);
    args.bad_position = bad_position;
    args.angles = source.angles;
    args.positions = request.args.positions;
    args.n_batch = n_batch;
    args.n_tokens = n_tokens;
    args.rows = rows.data();
    args.n_floats = static_cast<std::int64_t>(rows.size());
    args.n_parts = 2;
    halyard_status first = HALYARD_OK;
    for (; args.part < args.n_parts; args.part++) {
        const halyard_status status = call(error, halyard_make_rows(plan, &args, &error.error));
        first = args.part == 0 ? status : first;
        require(status == first, "all parts return the same status");
    }
    return first;
}

/// What the arena ought to hold after a run that succeeds.
void expect(Arena &arena, const halyard_plan *plan, const Source &source, const Request &request) {
    arena.expected = arena.before;
    arena.is_output.assign(arena.is_output.size(), false);
    std::vector<float> rows;
    require(make_rows(plan, source, request, request.args.bad_position, rows) == HALYARD_OK,
            "what a run takes, make_rows takes");
    const std::int64_t n_pairs = source.rotary_dim / 2;
    for (int i = 0; i < request.plan.n_tensors; i++) {
        const halyard_tensor_desc &desc = request.tensors[i];
        const halyard_tensor &x = request.x[i], &y = request.y[i];
        const std::int64_t bytes = oracle::element_bytes(desc.dtype);
        const auto offset = [&](const halyard_tensor &tensor, std::int64_t head_at, std::int64_t element) {
            return static_cast<const char *>(tensor.data) - arena.memory.begin() +
                   (head_at + element * tensor.strides[3]) * bytes;
        };
        for (std::int64_t n = 0; n < x.shape[0] * x.shape[1] * x.shape[2]; n++) {
            const std::int64_t head = n % x.shape[2], token = n / x.shape[2] % x.shape[1];
            const std::int64_t batch = n / x.shape[2] / x.shape[1];
            const auto head_at = [&](const halyard_tensor &tensor) {
                return batch * tensor.strides[0] + token * tensor.strides[1] + head * tensor.strides[2];
            };
            const std::int64_t from = head_at(x), to = head_at(y);
            const auto read = [&](std::int64_t element) {
                return oracle::read_word(desc.dtype, arena.before.data() + offset(x, from, element));
            };
            const auto write = [&](std::int64_t element, std::uint32_t word) {
                const std::int64_t at = offset(y, to, element);
                require(!arena.is_output[static_cast<std::size_t>(at)], "no output is written twice");
                arena.is_output[static_cast<std::size_t>(at)] = true;
                oracle::write_word(desc.dtype, arena.expected.data() + at, word);
            };
            const std::int64_t window = desc.rotary_offset;
            for (std::int64_t e = 0; e < desc.head_dim; e++) {
                if (e < window || e >= window + source.rotary_dim) {
                    write(e, read(e));
                }
            }
            const float *const row = rows.data() + (batch * x.shape[1] + token) * source.rotary_dim;
            for (std::int64_t k = 0; k < n_pairs; k++) {
                const auto index = [&](std::int32_t pairing, int member) {
                    return window + (pairing == HALYARD_PAIRING_HALF ? k + member * n_pairs : 2 * k + member);
                };
                const float sin = request.plan.direction == HALYARD_INVERSE ? -row[n_pairs + k] : row[n_pairs + k];
                const auto turned = oracle::rotate(oracle::Arithmetic::fused,
                                                   {oracle::widen(desc.dtype, read(index(desc.pairing, 0))),
                                                    oracle::widen(desc.dtype, read(index(desc.pairing, 1)))},
                                                   row[k], sin);
                write(index(desc.out_pairing != 0 ? desc.out_pairing : desc.pairing, 0),
                      oracle::narrow(desc.dtype, turned.x0));
                write(index(desc.out_pairing != 0 ? desc.out_pairing : desc.pairing, 1),
                      oracle::narrow(desc.dtype, turned.x1));
            }
        }
    }
}

/// Any NaN is as good as another, so the outputs' NaNs become the expected ones.
void accept_nans(Arena &arena, const Request &request) {
    for (int k = 0; k < request.plan.n_tensors; k++) {
        const halyard_tensor &y = request.y[k];
        for (std::int64_t i = 0; i < count_elements(y); i++) {
            const char *const at = element_at(y, i);
            char *const expected = arena.expected.data() + (at - arena.memory.begin());
            const std::uint32_t got = oracle::read_word(y.dtype, at), want = oracle::read_word(y.dtype, expected);
            if (oracle::is_nan(y.dtype, got) && oracle::is_nan(y.dtype, want)) {
                oracle::write_word(y.dtype, expected, got);
            }
        }
    }
}

/// Runs as a whole, in parts, or bound, which ought to be the same.
halyard_status run_in_some_way(Draw &draw, halyard_plan *plan, const Request &request, WatchedError &error) {
    const std::int64_t way = draw.in(0, 3);
    if (way == 2) {
        halyard_run_args part = request.args;
        part.n_parts = static_cast<std::int32_t>(draw.in(1, 5));
        halyard_status first = HALYARD_OK;
        for (part.part = 0; part.part < part.n_parts; part.part++) {
            const halyard_status status = call(error, halyard_run(plan, &part, &error.error));
            first = part.part == 0 ? status : first;
            require(status == first, "all parts return the same status");
        }
        return first;
    }
    if (way == 3) {
        halyard_bound_run *bound = nullptr;
        halyard_status status = call(error, halyard_bind_run(plan, &request.args, &bound, &error.error));
        require((status == HALYARD_OK) == (bound != nullptr), "a bound run, or an error");
        if (status == HALYARD_OK) {
            const void *x[HALYARD_MAX_TENSORS];
            void *y[HALYARD_MAX_TENSORS];
            for (int i = 0; i < request.plan.n_tensors; i++) {
                x[i] = request.x[i].data;
                y[i] = request.y[i].data;
            }
            halyard_bound_run_args args = {};
            args.size = sizeof(args);
            args.n_tensors = request.plan.n_tensors;
            args.positions = request.args.positions != nullptr ? request.args.positions->data : nullptr;
            args.x = x;
            args.y = y;
            status = call(error, halyard_run_bound(bound, &args, &error.error));
        }
        halyard_destroy_bound_run(bound);
        return status;
    }
    return call(error, halyard_run(plan, &request.args, &error.error));
}

void run(Draw &draw, Arena &arena, const Source &source, halyard_plan *plan, Request &request) {
    const Reach reach = reach_of(arena, request);
    if (reach == Reach::elsewhere) {
        return;
    }
    std::memcpy(arena.memory.begin(), arena.noise.data(), arena.noise.size());
    arena.before = arena.noise;
    WatchedError error;
    const halyard_status status = run_in_some_way(draw, plan, request, error);
    if (status == HALYARD_OK) {
        require(reach == Reach::arena, "tensors without memory are refused");
        bool is_something = false;
        for (int i = 0; i < request.plan.n_tensors; i++) {
            is_something = is_something || !is_empty(request.x[i]);
        }
        if (is_something) {
            expect(arena, plan, source, request);
            accept_nans(arena, request);
        }
        require(std::memcmp(arena.memory.begin(), is_something ? arena.expected.data() : arena.before.data(),
                            arena.before.size()) == 0,
                "outputs are what the formula says, and nothing else is written");
        return;
    }
    require(std::memcmp(arena.memory.begin(), arena.before.data(), arena.before.size()) == 0,
            "a run that fails has written nothing");
    std::vector<float> rows;
    const bool lacks_positions = source.is_given && request.args.positions == nullptr && request.n_batch > 1;
    require(draw.wild || (status == HALYARD_ERROR_MISMATCH && lacks_positions) ||
                (status == HALYARD_ERROR_POSITION &&
                 make_rows(plan, source, request, HALYARD_BAD_POSITION_ERROR, rows) == HALYARD_ERROR_POSITION),
            "a sensible run succeeds", error.error.message);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    static Arena arena;
    static const int printed = std::atexit(print_calls);
    (void)printed;
    Draw draw(data, size);
    draw.wild = draw.one_in(2);
    Source source;
    if (!source.make(draw)) {
        return 0;
    }
    Request request;
    request.draw_plan(draw, source.rotary_dim);
    halyard_plan *plan = nullptr;
    WatchedError error;
    const halyard_status status = call(error, halyard_create_plan(&request.plan, &plan, &error.error));
    require((status == HALYARD_OK) == (plan != nullptr), "a plan, or an error");
    require(status == HALYARD_OK || draw.wild, "a sensible plan can be made", error.error.message);
    if (status == HALYARD_OK) {
        request.draw_tensors(draw, arena);
        request.draw_args(draw, source);
        run(draw, arena, source, plan, request);
    }
    halyard_destroy_plan(plan);
    return 0;
}
