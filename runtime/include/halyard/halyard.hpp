/// Halyard's C++ interface: the C ABI of halyard.h with owning classes, exceptions, and a few helpers that fill in its
/// structs. Header-only, C++17. Only run_cache adds logic of its own; halyard.h documents everything else.
///
///     const auto frequencies = halyard::frequencies::from_base(10000.0, 128);
///     const auto angles = halyard::angle_source::table(frequencies, 0, 4096);
///     const auto head = halyard::describe_tensor(halyard::dtype::f32, 128, halyard::pairing::half);
///     const halyard::plan plan(halyard::plan_desc(128, {head}));
///     const auto x = halyard::tensor(data, halyard::dtype::f32, {batch, tokens, heads, 128});
///     halyard::run(plan, angles, x, x);  // in place
///
/// Errors. Whatever can fail throws halyard::error, with the status that halyard.h names. No output tensor has been
/// written then, unless the status is HALYARD_ERROR_EXECUTOR or HALYARD_ERROR_DEVICE, which come after the work began
/// and leave outputs incomplete. Without exceptions, define HALYARD_THROW(error) before including this header: it
/// replaces `throw error` and must not return. Or use halyard.h, which never throws.
///
/// Ownership. frequencies, angle_source, plan, bound_run and pool each own one object of the C ABI: they move,
/// they don't copy, and they destroy it. A moved-from one is empty (get() is NULL), and using it throws
/// HALYARD_ERROR_NULL_POINTER.
///
/// Threads. Objects are immutable: any number of threads may use one at once. Destroy or move it when none uses it.
#pragma once

#include "halyard/halyard.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if !defined(HALYARD_THROW)
#if !defined(__cpp_exceptions)
#error "halyard.hpp tells errors by exceptions: allow them, define HALYARD_THROW(error), or include halyard.h"
#endif
#define HALYARD_THROW(error) throw error
#endif

namespace halyard {

/// A status of the C ABI other than HALYARD_OK, with the library's error message.
class error : public std::runtime_error {
public:
    error(halyard_status status, const std::string &message) : std::runtime_error(message), status_(status) {}

    halyard_status status() const noexcept { return status_; }

private:
    halyard_status status_;
};

/// No dtype is 0: a struct's field of 0 means its default.
enum class dtype : std::int32_t {
    f32 = HALYARD_F32,
    f16 = HALYARD_F16,
    bf16 = HALYARD_BF16,
    e4m3 = HALYARD_E4M3,
    e5m2 = HALYARD_E5M2,
    int8 = HALYARD_INT8,
    uint8 = HALYARD_UINT8  ///< the bytes of records
};
enum class pairing : std::int32_t { half = HALYARD_PAIRING_HALF, interleaved = HALYARD_PAIRING_INTERLEAVED };
enum class direction : std::int32_t { forward = HALYARD_FORWARD, inverse = HALYARD_INVERSE };
enum class bad_position : std::int32_t {
    error = HALYARD_BAD_POSITION_ERROR,
    clamp = HALYARD_BAD_POSITION_CLAMP,
    identity = HALYARD_BAD_POSITION_IDENTITY
};

/// Returns a struct of the C ABI whose `size` is set and whose other fields are 0, their defaults.
template <typename Struct>
Struct make_struct() noexcept {
    Struct value{};
    value.size = static_cast<std::uint32_t>(sizeof(Struct));
    return value;
}

namespace detail {

/// Calls a function of the C ABI, adding its last argument, the halyard_error; throws if the function fails.
template <typename Function, typename... Arguments>
void call(Function *function, Arguments... arguments) {
    auto details = make_struct<halyard_error>();
    if (const halyard_status status = function(arguments..., &details); status != HALYARD_OK) {
        HALYARD_THROW(error(status, details.message));
    }
}

/// Calls a function of the C ABI that makes an object, and returns the object. The caller owns it.
template <typename Object, typename Function, typename... Arguments>
Object *create(Function *function, Arguments... arguments) {
    Object *made = nullptr;
    call(function, arguments..., &made);
    return made;
}

/// Calls a function of the C ABI that fills in a struct about an object, and returns the struct.
template <typename Struct, typename Function, typename Object>
Struct get_info(Function *function, Object object) {
    auto info = make_struct<Struct>();
    call(function, object, &info);
    return info;
}

/// Calls a function of the C ABI that writes a text, first for the text's length, then for the text, and returns it.
template <typename Function, typename... Arguments>
std::string read_text(Function *function, Arguments... arguments) {
    std::int64_t n_needed = 0;
    call(function, arguments..., static_cast<char *>(nullptr), std::int64_t{0}, &n_needed);
    std::string text(static_cast<std::size_t>(n_needed) + 1, '\0');
    call(function, arguments..., &text[0], n_needed + 1, static_cast<std::int64_t *>(nullptr));
    text.resize(static_cast<std::size_t>(n_needed));
    return text;
}

/// The one owner of an object of the C ABI.
template <typename Object, void (*destroy)(Object *)>
class handle {
public:
    /// Takes ownership; NULL makes an empty handle.
    explicit handle(Object *object = nullptr) noexcept : object_(object) {}

    /// The object, still owned by the handle.
    Object *get() const noexcept { return object_.get(); }
    /// The object, owned by the caller from now on.
    Object *release() noexcept { return object_.release(); }
    explicit operator bool() const noexcept { return object_ != nullptr; }

private:
    struct destroyer {
        void operator()(Object *object) const noexcept { destroy(object); }
    };
    std::unique_ptr<Object, destroyer> object_;
};

/// a * b, saturated at the largest int64, which the library refuses as HALYARD_ERROR_OVERFLOW. 0 for a negative size.
inline std::int64_t multiply(std::int64_t a, std::int64_t b) noexcept {
    constexpr auto greatest = std::numeric_limits<std::int64_t>::max();
    if (a <= 0 || b <= 0) {
        return 0;
    }
    return a > greatest / b ? greatest : a * b;
}

/// Fills in halyard_positions or halyard_slots for a dense array.
template <typename Struct, typename Index>
Struct dense_numbers(const Index *data, std::array<std::int64_t, 2> shape) noexcept {
    static_assert(std::is_same<Index, std::int32_t>::value || std::is_same<Index, std::int64_t>::value,
                  "positions and slots are std::int32_t or std::int64_t");
    auto numbers = make_struct<Struct>();
    numbers.type = std::is_same<Index, std::int32_t>::value ? HALYARD_INT32 : HALYARD_INT64;
    numbers.data = data;
    numbers.shape[0] = shape[0];
    numbers.shape[1] = shape[1];
    numbers.strides[0] = shape[1];
    numbers.strides[1] = 1;
    return numbers;
}

}  // namespace detail

/// Dense positions [1 or batch, tokens], of int32 or int64. The memory stays the caller's.
template <typename Index>
halyard_positions positions(const Index *data, std::array<std::int64_t, 2> shape) noexcept {
    return detail::dense_numbers<halyard_positions>(data, shape);
}

/// Positions given by the first one of each batch row (n_rows is 1 or batch): token t has position starts[row] + t. The
/// memory stays the caller's.
template <typename Index>
halyard_positions consecutive_positions(const Index *starts, std::int64_t n_rows) noexcept {
    auto result = positions(starts, {n_rows, 1});
    result.consecutive = 1;
    return result;
}

/// A tensor [batch, tokens, heads, head_dim] with a stride, in elements, for each dimension. The memory stays the
/// caller's.
inline halyard_tensor tensor(void *data, dtype type, std::array<std::int64_t, 4> shape,
                             std::array<std::int64_t, 4> strides) noexcept {
    auto result = make_struct<halyard_tensor>();
    result.data = data;
    result.dtype = static_cast<std::int32_t>(type);
    result.device = HALYARD_CPU;
    for (std::size_t i = 0; i < 4; ++i) {
        result.shape[i] = shape[i];
        result.strides[i] = strides[i];
    }
    return result;
}

/// A dense tensor [batch, tokens, heads, head_dim], in row-major order.
inline halyard_tensor tensor(void *data, dtype type, std::array<std::int64_t, 4> shape) noexcept {
    const auto stride_heads = shape[3];
    const auto stride_tokens = detail::multiply(shape[2], stride_heads);
    const auto stride_batch = detail::multiply(shape[1], stride_tokens);
    return tensor(data, type, shape, {stride_batch, stride_tokens, stride_heads, 1});
}

/// A tensor of memory that is only read: pass the result as an input, never as an output.
inline halyard_tensor input_tensor(const void *data, dtype type, std::array<std::int64_t, 4> shape,
                                   std::array<std::int64_t, 4> strides) noexcept {
    return tensor(const_cast<void *>(data), type, shape, strides);
}
inline halyard_tensor input_tensor(const void *data, dtype type, std::array<std::int64_t, 4> shape) noexcept {
    return tensor(const_cast<void *>(data), type, shape);
}

/// Inverse frequencies and attention_factor.
class frequencies : public detail::handle<halyard_frequencies, halyard_destroy_frequencies> {
public:
    using handle::handle;

    /// inv_freq[k] = base^(-2k / rotary_dim).
    static frequencies from_base(double base, std::int64_t rotary_dim) {
        return frequencies(detail::create<halyard_frequencies>(halyard_create_frequencies_from_base, base, rotary_dim));
    }

    /// The n_pairs inverse frequencies as given, in radians per position; they are copied.
    static frequencies from_list(const double *inv_freq, std::int64_t n_pairs, double attention_factor = 1.0) {
        return frequencies(detail::create<halyard_frequencies>(halyard_create_frequencies_from_list, inv_freq, n_pairs,
                                                               attention_factor));
    }

    /// The frequencies of a scaling method; scaling.size must be set.
    static frequencies from_scaling(const halyard_scaling &scaling) {
        return frequencies(detail::create<halyard_frequencies>(halyard_create_frequencies_from_scaling, &scaling));
    }

    /// The frequencies of a model, from the text of its Hugging Face config.json. seq_len 0: a short context;
    /// layer_type and layer may be NULL if all layers with RoPE have the same frequencies.
    static frequencies from_config(const char *text, std::int64_t n_bytes, std::int64_t seq_len = 0,
                                   const char *layer_type = nullptr, const std::int64_t *layer = nullptr) {
        auto options = make_struct<halyard_config_options>();
        options.seq_len = seq_len;
        options.layer_type = layer_type;
        options.layer = layer;
        return frequencies(
            detail::create<halyard_frequencies>(halyard_create_frequencies_from_config, text, n_bytes, &options));
    }

    /// The frequencies of the same model for another context length, in tokens.
    frequencies for_length(std::int64_t seq_len) const {
        return frequencies(detail::create<halyard_frequencies>(halyard_create_frequencies_for_length, get(), seq_len));
    }

    /// Whether the frequencies are valid for a context of seq_len tokens. If not, make others by
    /// for_length(), and re-rotate cached keys.
    bool are_for_length(std::int64_t seq_len) const {
        const auto about = info();
        return seq_len >= about.first_seq_len && seq_len <= about.last_seq_len;
    }

    /// rotary_dim, attention_factor, inv_freq (which points into this object), and what a config says beside these.
    halyard_frequencies_info info() const {
        return detail::get_info<halyard_frequencies_info>(halyard_get_frequencies_info, get());
    }
};

/// Which axis of its positions each pair reads: see HALYARD_AXIS_MAP_….
struct axis_map {
    std::int32_t kind = HALYARD_AXIS_MAP_NONE;
    std::vector<std::int64_t> counts;        ///< number of pairs of each axis
    std::vector<std::int32_t> axis_of_pair;  ///< for HALYARD_AXIS_MAP_LIST only

    /// Consecutive bands of pairs, axis 0 first (Qwen2-VL).
    static axis_map sections(std::vector<std::int64_t> counts) {
        return {HALYARD_AXIS_MAP_SECTIONS, std::move(counts), {}};
    }
    /// Axis a >= 1 owns the pairs k with k mod n_axes = a and k < n_axes * counts[a], axis 0 the others (Qwen3-VL).
    static axis_map interleaved(std::vector<std::int64_t> counts) {
        return {HALYARD_AXIS_MAP_INTERLEAVED, std::move(counts), {}};
    }
    /// Pair k reads axis_of_pair[k], below n_axes.
    static axis_map list(std::vector<std::int32_t> axis_of_pair, std::size_t n_axes) {
        return {HALYARD_AXIS_MAP_LIST, std::vector<std::int64_t>(n_axes), std::move(axis_of_pair)};
    }
};

/// The number of int32 positions.
inline constexpr std::int64_t all_positions = std::int64_t{1} << 32;

/// Describes an angle source for n_positions positions from `first` on; by default, every int32 position. Its axis map
/// is that of the frequencies' config.
inline halyard_angle_source_desc describe_angles(std::int32_t kind,
                                                 std::int32_t first = std::numeric_limits<std::int32_t>::min(),
                                                 std::int64_t n_positions = all_positions) noexcept {
    auto desc = make_struct<halyard_angle_source_desc>();
    desc.kind = kind;
    desc.first = first;
    desc.n_positions = n_positions;
    return desc;
}

/// The same with an axis map that replaces the one of the frequencies' config. The map must outlive the description.
inline halyard_angle_source_desc describe_angles(std::int32_t kind, const axis_map &map,
                                                 std::int32_t first = std::numeric_limits<std::int32_t>::min(),
                                                 std::int64_t n_positions = all_positions) noexcept {
    auto desc = describe_angles(kind, first, n_positions);
    desc.axis_map = map.kind;
    desc.axis_of_pair = map.axis_of_pair.data();
    for (const auto count : map.counts) {
        if (desc.n_axes < HALYARD_MAX_AXES) {
            desc.axis_counts[desc.n_axes] = count;
        }
        ++desc.n_axes;  // halyard_create_angle_source refuses too many
    }
    return desc;
}

/// Where cos and sin come from. Made once, shared by all layers and threads; its frequencies may be destroyed.
class angle_source : public detail::handle<halyard_angle_source, halyard_destroy_angle_source> {
public:
    using handle::handle;

    explicit angle_source(const frequencies &frequencies, const halyard_angle_source_desc &desc)
        : angle_source(frequencies.get(), desc) {}

    /// HALYARD_ANGLES_AUTO for every int32 position, which is PHASE. For fewer positions describe_angles(kind, first,
    /// n_positions) may give a table.
    explicit angle_source(const frequencies &frequencies)
        : angle_source(frequencies, describe_angles(HALYARD_ANGLES_AUTO)) {}

    /// A table: a row of cos and sin for each of n_positions positions from `first` on.
    static angle_source table(const frequencies &frequencies, std::int32_t first, std::int64_t n_positions) {
        return angle_source(frequencies, describe_angles(HALYARD_ANGLES_TABLE, first, n_positions));
    }

    /// No table: cos and sin by polynomials, by default at every int32 position.
    static angle_source phase(const frequencies &frequencies,
                              std::int32_t first = std::numeric_limits<std::int32_t>::min(),
                              std::int64_t n_positions = all_positions) {
        return angle_source(frequencies, describe_angles(HALYARD_ANGLES_PHASE, first, n_positions));
    }

    /// Describes rows of the caller's for given(): position p reads rotary_dim / 2 values at row p of cos_rows and
    /// sin_rows. The memory stays the caller's, must outlive the source, and may be rewritten between runs.
    static halyard_angle_source_desc describe_rows(const void *cos_rows, const void *sin_rows, dtype type,
                                                   std::int64_t n_rows, std::int64_t stride_row,
                                                   std::int64_t rotary_dim) noexcept {
        auto desc = make_struct<halyard_angle_source_desc>();
        desc.kind = HALYARD_ANGLES_GIVEN;
        desc.cos_rows = cos_rows;
        desc.sin_rows = sin_rows;
        desc.rows_dtype = static_cast<std::int32_t>(type);
        desc.n_rows = n_rows;
        desc.stride_row = stride_row;
        desc.rotary_dim = rotary_dim;
        return desc;
    }
    static angle_source given(const halyard_angle_source_desc &rows) { return angle_source(nullptr, rows); }
    static angle_source given(const float *cos_rows, const float *sin_rows, std::int64_t n_rows,
                              std::int64_t stride_row, std::int64_t rotary_dim) {
        return given(describe_rows(cos_rows, sin_rows, dtype::f32, n_rows, stride_row, rotary_dim));
    }

    /// Rows as make_rows writes them: [batch, tokens, 2, rotary_dim / 2]. n_rows = batch * tokens. With are_shared all
    /// batch rows read the same rows, and n_rows = tokens. Runs with such a source take no positions. The memory stays
    /// the caller's, must outlive the source, and may be rewritten between runs.
    static angle_source given_by_token(const float *rows, std::int64_t n_rows, std::int64_t rotary_dim,
                                       bool are_shared = false) {
        auto desc = describe_rows(rows, rows == nullptr ? nullptr : rows + rotary_dim / 2, dtype::f32, n_rows,
                                  rotary_dim, rotary_dim);
        desc.by_token = are_shared ? 2 : 1;
        return given(desc);
    }

    halyard_angle_source_info info() const {
        return detail::get_info<halyard_angle_source_info>(halyard_get_angle_source_info, get());
    }

private:
    angle_source(const halyard_frequencies *frequencies, const halyard_angle_source_desc &desc)
        : handle(detail::create<halyard_angle_source>(halyard_create_angle_source, frequencies, &desc)) {}
};

/// Describes one tensor that a plan rotates. A head_dim of 0 and a pairing of {} take the values of the plan's
/// frequencies, if these come from a config.
inline halyard_tensor_desc describe_tensor(dtype type, std::int64_t head_dim = 0, pairing in_and_out = {},
                                           std::int64_t rotary_offset = 0) noexcept {
    auto desc = make_struct<halyard_tensor_desc>();
    desc.dtype = static_cast<std::int32_t>(type);
    desc.pairing = static_cast<std::int32_t>(in_and_out);
    desc.head_dim = head_dim;
    desc.rotary_offset = rotary_offset;
    return desc;
}

/// A halyard_plan_desc that owns the array of its tensors (q and k, say).
struct plan_desc {
    std::int64_t rotary_dim = 0;
    const halyard_frequencies *frequencies = nullptr;  ///< must live until the plan is made
    std::vector<halyard_tensor_desc> tensors;          ///< 1 … HALYARD_MAX_TENSORS
    std::int32_t direction = HALYARD_FORWARD;
    const char *target = nullptr;
    const char *max_target = nullptr;
    bool rerotates = false;  ///< runs re-rotate keys from some positions to others

    plan_desc(std::int64_t dim, std::vector<halyard_tensor_desc> list,
              halyard::direction towards = halyard::direction::forward)
        : rotary_dim(dim), tensors(std::move(list)), direction(static_cast<std::int32_t>(towards)) {}

    /// Takes rotary_dim, and what the tensors leave out, from the frequencies.
    plan_desc(const halyard::frequencies &source, std::vector<halyard_tensor_desc> list,
              halyard::direction towards = halyard::direction::forward)
        : frequencies(source.get()), tensors(std::move(list)), direction(static_cast<std::int32_t>(towards)) {}

    /// The C ABI's description, which points into this one.
    halyard_plan_desc get() const noexcept {
        auto desc = make_struct<halyard_plan_desc>();
        desc.direction = direction;
        desc.rotary_dim = rotary_dim;
        desc.frequencies = frequencies;
        desc.n_tensors = static_cast<std::int32_t>(tensors.size());
        desc.tensors = tensors.data();
        desc.rerotates = rerotates ? 1 : 0;
        desc.target = target;
        desc.max_target = max_target;
        return desc;
    }
};

/// A description that has been checked and resolved to kernels.
class plan : public detail::handle<halyard_plan, halyard_destroy_plan> {
public:
    using handle::handle;

    explicit plan(const plan_desc &desc) : plan(desc.get()) {}
    explicit plan(const halyard_plan_desc &desc) : handle(detail::create<halyard_plan>(halyard_create_plan, &desc)) {}

    /// The name of the kernels' target; a static string.
    const char *target() const noexcept { return halyard_get_plan_target(get()); }
};

/// Threads that wait for work. executor() stays valid until the pool is destroyed, also when the pool moves.
class pool : public detail::handle<halyard_pool, halyard_destroy_pool> {
public:
    using handle::handle;

    /// n_threads counts the calling thread: 1 … 1024.
    explicit pool(std::int32_t n_threads) : handle(detail::create<halyard_pool>(halyard_create_pool, n_threads)) {}

    const halyard_executor *executor() const noexcept { return halyard_get_pool_executor(get()); }
};

/// The part of a run that a call does: 0 … n_parts - 1 of 1 … 1024. All parts together are the whole run.
struct part_of_run {
    std::int32_t part = 0;
    std::int32_t n_parts = 1;
};

/// A view of a run's tensors in the plan's order: of one tensor, an array of any kind, a list, or a pointer with its
/// count. The tensors are not copied and must outlive the view.
class tensors {
public:
    tensors(const halyard_tensor &one) noexcept : data_(&one), size_(1) {}
    tensors(const halyard_tensor *data, std::size_t size) noexcept : data_(data), size_(size) {}
    template <typename Array, typename = decltype(std::data(std::declval<const Array &>()))>
    tensors(const Array &array) noexcept : data_(std::data(array)), size_(std::size(array)) {}
    tensors(std::initializer_list<halyard_tensor> list) noexcept : size_(list.size()) {
        data_ = list.begin();  // a view that is a parameter lives no longer than the list
    }

    const halyard_tensor *data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }

private:
    const halyard_tensor *data_;
    std::size_t size_;
};

/// The arguments of a run beside its plan, angles and tensors. What they point to must live until the run
/// has returned.
struct run_options {
    std::optional<halyard_positions> positions;  ///< none: 0, 1, 2, … in every batch row
    const halyard_executor *executor = nullptr;  ///< NULL: the calling thread does everything
    bad_position policy = bad_position::error;
    part_of_run part = {};
    const halyard_kv_args *kv = nullptr;  ///< arguments of KV stages: see halyard_kv.hpp

    run_options &at(const halyard_positions &where) noexcept {
        positions = where;
        return *this;
    }
    run_options &with(const halyard_kv_args &args) noexcept {
        kv = &args;
        return *this;
    }
    run_options &with(const halyard_kv_args &&) = delete;  // a temporary would not live until the run
};

namespace detail {

/// The number of tensors in x and y; throws if these differ.
inline std::int32_t count_tensors(std::size_t n_x, std::size_t n_y) {
    if (n_x == 0 || n_x != n_y) {
        HALYARD_THROW(error(HALYARD_ERROR_SHAPE, "x has " + std::to_string(n_x) + " tensors, y " + std::to_string(n_y) +
                                                     ", but both must have as many, and at least 1"));
    }
    return static_cast<std::int32_t>(std::min<std::size_t>(n_x, std::numeric_limits<std::int32_t>::max()));
}

inline halyard_run_args make_args(const angle_source &angles, const tensors &x, const tensors &y,
                                  const run_options &options) {
    auto args = make_struct<halyard_run_args>();
    args.bad_position = static_cast<std::int32_t>(options.policy);
    args.angles = angles.get();
    args.positions = options.positions ? &*options.positions : nullptr;
    args.n_tensors = count_tensors(x.size(), y.size());
    args.x = x.data();
    args.y = y.data();
    args.executor = options.executor;
    args.part = options.part.part;
    args.n_parts = options.part.n_parts;
    args.kv = options.kv;
    return args;
}

}  // namespace detail

/// Rotates the plan's tensors x into y, or in place where both describe the same memory: run(plan, angles, {q, k},
/// {q_out, k_out}), say.
inline void run(const plan &made, const angle_source &angles, const tensors &x, const tensors &y,
                const run_options &options = {}) {
    const auto args = detail::make_args(angles, x, y, options);
    detail::call(halyard_run, made.get(), &args);
}

/// A run whose arguments have been checked, except its pointers, for calls that differ only in these. The plan, the
/// angles and what the executor calls must outlive it.
class bound_run : public detail::handle<halyard_bound_run, halyard_destroy_bound_run> {
public:
    using handle::handle;

    /// The pointers in x, y and options.positions are examples: each call passes its own. options.part is ignored.
    bound_run(const plan &made, const angle_source &angles, const tensors &x, const tensors &y,
              const run_options &options = {})
        : handle(make(made, angles, x, y, options)) {}
    bound_run(plan &&, const angle_source &, const tensors &, const tensors &, const run_options & = {}) = delete;
    bound_run(const plan &, angle_source &&, const tensors &, const tensors &, const run_options & = {}) = delete;

    /// Rotates x into y, which hold the data pointers of the plan's tensors in order. positions points to positions of
    /// the shape and type that the run was bound with, kv has the pointers of stages, and angles, if not NULL, is
    /// another GIVEN source in place of the bound one.
    void operator()(std::initializer_list<const void *> x, std::initializer_list<void *> y,
                    const void *positions = nullptr, part_of_run part = {}, const halyard_kv_args *kv = nullptr,
                    const halyard_angle_source *angles = nullptr) const {
        auto args = make_struct<halyard_bound_run_args>();
        args.part = part.part;
        args.n_parts = part.n_parts;
        args.n_tensors = detail::count_tensors(x.size(), y.size());
        args.angles = angles;
        args.positions = positions;
        args.x = x.begin();
        args.y = y.begin();
        args.kv = kv;
        detail::call(halyard_run_bound, get(), &args);
    }

private:
    static halyard_bound_run *make(const plan &made, const angle_source &angles, const tensors &x, const tensors &y,
                                   const run_options &options) {
        auto args = detail::make_args(angles, x, y, options);
        args.part = args.n_parts = 0;
        return detail::create<halyard_bound_run>(halyard_bind_run, made.get(), &args);
    }
};

/// An LRU cache of objects that callers with a few kinds of calls need again and again: a plan and a bound run, say.
/// The key holds all that the objects depend on, except pointers. Keys are compared by ==. The n_most (>= 1) most
/// recently used keys are kept.
///
/// Ownership: find() shares the object, so an evicted object lives on while a caller holds it.
/// Threads: any number may use one cache. The lock is not held while an object is made or destroyed, so this may take
/// locks of the caller's; threads that miss one key at the same time each make an object, and one of these is kept.
template <typename Key, typename Made>
class run_cache {
public:
    explicit run_cache(std::size_t n_most) : n_most_(n_most) {}

    /// The object of a key. If the key is new, make() makes the object; if make() throws, nothing is kept and the
    /// exception is passed on. Nothing is allocated for a known key.
    template <typename Make>
    std::shared_ptr<const Made> find(const Key &key, Make &&make) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (auto known = latest(key)) {
                return known;
            }
        }
        auto made = std::make_shared<const std::pair<Key, Made>>(key, make());
        entry forgotten;  // destroyed after the lock is released, as `made` is if another thread was faster
        const std::lock_guard<std::mutex> lock(mutex_);
        if (auto known = latest(key)) {
            return known;
        }
        if (known_.size() == n_most_) {
            forgotten = std::move(known_.front());
            known_.erase(known_.begin());
        }
        known_.push_back(made);
        return {made, &made->second};
    }

private:
    using entry = std::shared_ptr<const std::pair<Key, Made>>;

    /// Moves a known key to the end of known_, the place of the most recently used, and returns its object; NULL for an
    /// unknown key. The caller holds the lock.
    std::shared_ptr<const Made> latest(const Key &key) {
        const auto found =
            std::find_if(known_.rbegin(), known_.rend(), [&](const entry &each) { return each->first == key; });
        if (found == known_.rend()) {
            return nullptr;
        }
        std::rotate(found.base() - 1, found.base(), known_.end());
        return {known_.back(), &known_.back()->second};
    }

    std::size_t n_most_;
    std::mutex mutex_;
    std::vector<entry> known_;
};

namespace detail {

/// Completes args, whose source of angles is set, and makes the rows.
inline void make_rows(const plan &made, halyard_rows_args args, std::array<std::int64_t, 2> shape, float *rows,
                      std::int64_t n_floats) {
    args.n_batch = shape[0];
    args.n_tokens = shape[1];
    args.rows = rows;
    args.n_floats = n_floats;
    call(halyard_make_rows, made.get(), &args);
}

}  // namespace detail

/// Writes the rows of tokens of the shape [batch, tokens], [batch, tokens, 2, rotary_dim / 2], to rows, which has room
/// for n_floats floats. A source of angle_source::given_by_token then reads them. positions may be NULL.
inline void make_rows(const plan &made, const angle_source &angles, const halyard_positions *positions,
                      std::array<std::int64_t, 2> shape, float *rows, std::int64_t n_floats,
                      bad_position policy = bad_position::error) {
    auto args = make_struct<halyard_rows_args>();
    args.bad_position = static_cast<std::int32_t>(policy);
    args.angles = angles.get();
    args.positions = positions;
    detail::make_rows(made, args, shape, rows, n_floats);
}

/// Angles that are linear in positions which need not be integers: see halyard_linear_angles. `positions` is dense,
/// [n_axes, batch, tokens], shape is [batch, tokens], and `matrix` is [n_axes, rotary_dim / 2].
template <typename Real>
halyard_linear_angles linear_angles(const Real *positions, std::array<std::int64_t, 2> shape, const double *matrix,
                                    std::int32_t n_axes) {
    static_assert(std::is_same_v<Real, float> || std::is_same_v<Real, double>);
    auto linear = make_struct<halyard_linear_angles>();
    linear.type = std::is_same_v<Real, float> ? HALYARD_REAL32 : HALYARD_REAL64;
    linear.n_axes = n_axes;
    linear.positions = positions;
    linear.stride_axis = shape[0] * shape[1];
    linear.stride_batch = shape[1];
    linear.stride_token = 1;
    linear.matrix = matrix;
    return linear;
}

/// Writes the rows of linear angles, as the function above does for an angle source.
inline void make_rows(const plan &made, const halyard_linear_angles &linear, std::array<std::int64_t, 2> shape,
                      float *rows, std::int64_t n_floats) {
    auto args = make_struct<halyard_rows_args>();
    args.linear = &linear;
    detail::make_rows(made, args, shape, rows, n_floats);
}

/// Every target, best first; the last is the portable reference.
inline std::vector<halyard_target_info> targets() {
    const std::int32_t n = halyard_get_target_count();
    std::vector<halyard_target_info> result;
    result.reserve(static_cast<std::size_t>(n));
    for (std::int32_t i = 0; i < n; ++i) {
        result.push_back(detail::get_info<halyard_target_info>(halyard_get_target_info, i));
    }
    return result;
}

/// A text with a line for each kernel that could serve a description, and why it was chosen or refused.
inline std::string explain(const plan_desc &description) {
    const auto desc = description.get();
    return detail::read_text(halyard_explain_plan, &desc);
}

}  // namespace halyard
