// halyard_run_gpu: a run's arguments, checked as the CPU's are, and its launches.
#include "gpu/gpu_run.h"

#include "base/error.h"

#include <algorithm>
#include <array>

namespace halyard::gpu {

namespace {

/// Arrays in an order in which the checks can compare them. CUDA: their addresses. OpenCL: cl_mem are handles, so each
/// buffer gets a range of numbers to itself, wider than any buffer.
class Addresses {
public:
    explicit Addresses(bool is_cuda) : is_cuda_(is_cuda) {}

    void *of(const Location &place) {
        if (is_cuda_ || place.memory == nullptr) {
            return reinterpret_cast<void *>(reinterpret_cast<std::uintptr_t>(place.memory) +
                                            static_cast<std::uintptr_t>(place.offset));
        }
        const auto known = std::find(buffers_.begin(), buffers_.begin() + n_buffers_, place.memory);
        if (known == buffers_.begin() + n_buffers_) {
            buffers_[static_cast<std::size_t>(n_buffers_++)] = place.memory;
        }
        return reinterpret_cast<void *>(start_of(known - buffers_.begin()) + static_cast<std::uint64_t>(place.offset));
    }

private:
    bool is_cuda_;
    std::array<void *, 2 *HALYARD_MAX_TENSORS + 2> buffers_ = {};
    std::ptrdiff_t n_buffers_ = 0;

    static std::uint64_t start_of(std::ptrdiff_t buffer) { return (static_cast<std::uint64_t>(buffer) + 1) << 59; }
};

/// Tensors with comparable addresses in the place of handles.
struct Tensors {
    halyard_tensor x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
};

halyard_status fail_offset(const char *name, std::int64_t offset, bool is_cuda, halyard_error *error) {
    return fail(error, HALYARD_ERROR_OVERFLOW, name, " is ", offset, ", but must be ",
                is_cuda ? "0 with CUDA" : "0 to 2^40");
}

/// An offset in elements, as bytes; false where it is out of range.
bool read_offset(std::int64_t offset, std::int64_t element_bytes, bool is_cuda, std::int64_t *bytes) {
    *bytes = offset * (offset >= 0 && offset <= std::int64_t{1} << 40 ? element_bytes : 0);
    return is_cuda ? offset == 0 : offset >= 0 && offset <= std::int64_t{1} << 40;
}

/// Whether a tensor's memory is the plan's device's and, OpenCL, large enough.
halyard_status check_memory(const halyard_gpu_queue &queue, const Location &place, const MemoryRange &range,
                            const void *first_element, const char *name, int index, halyard_error *error) {
    const MemoryInfo info = describe_memory(queue, place.memory);
    if (!info.is_known) {
        return fail(error, HALYARD_ERROR_UNSUPPORTED, name, "[", index, "] is memory that the driver of device ",
                    queue.device, " does not know");
    }
    if (!info.is_of_context) {
        return fail(error, HALYARD_ERROR_MISMATCH, name, "[", index,
                    "] lies in another device or context than the plan's");
    }
    const auto first = reinterpret_cast<std::uintptr_t>(first_element);
    const auto offset = static_cast<std::uint64_t>(place.offset);
    if (queue.device == HALYARD_OPENCL && (first - range.begin > offset || range.end - first > info.n_bytes ||
                                           offset > info.n_bytes - (range.end - first))) {
        return fail(error, HALYARD_ERROR_SHAPE, name, "[", index, "] reaches beyond its buffer of ", info.n_bytes,
                    " bytes");
    }
    return HALYARD_OK;
}

halyard_status check_tensor_memory(const halyard_gpu_queue &queue, const Location &place, const halyard_tensor &tensor,
                                   const char *name, int index, halyard_error *error) {
    MemoryRange range = {0, 0};
    find_memory_range(tensor.data, tensor.shape, tensor.strides, element_bytes(Dtype(tensor.dtype)),
                      &range);  // checked before
    return check_memory(queue, place, range, tensor.data, name, index, error);
}

/// A run's arguments once they are checked.
struct Arguments {
    halyard_gpu_run_args given;
    Run run;
    Launch launch;
    halyard_gpu_queue queue;
    Location positions;
    Location error_word;
    Location x[HALYARD_MAX_TENSORS], y[HALYARD_MAX_TENSORS];
};

halyard_status read_arguments(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, Arguments &out,
                              halyard_error *error) {
    out.given = {};
    halyard_gpu_run_args &given = out.given;
    if (const halyard_status status = read_struct(args, sizeof(given), "args", &given, error)) {
        return status;
    }
    if (given.x == nullptr || given.y == nullptr) {
        return fail_null(error, given.x == nullptr ? "args.x" : "args.y");
    }
    const bool is_cuda = plan.queue.device == HALYARD_CUDA;
    if (!is_cuda && given.stream == nullptr) {
        return fail_null(error, "args.stream");
    }
    if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "error_word is given, but policy ", given.bad_position,
                    " tells of nothing");
    }
    out.queue = plan.queue;
    out.queue.stream = given.stream;
    Addresses addresses(is_cuda);
    Tensors tensors;
    const std::int32_t n_tensors = plan.checks->n_tensors;
    for (std::int32_t i = 0; i < n_tensors; i++) {
        tensors.x[i] = given.x[i];
        tensors.y[i] = given.y[i];
        for (const bool is_x : {true, false}) {
            halyard_tensor &tensor = is_x ? tensors.x[i] : tensors.y[i];
            Location &place = is_x ? out.x[i] : out.y[i];
            const std::int64_t *const offsets = is_x ? given.x_offsets : given.y_offsets;
            const std::int64_t offset = offsets != nullptr ? offsets[i] : 0;
            place.memory = tensor.data;
            if (!read_offset(offset, element_bytes(Dtype(tensor.dtype)), is_cuda, &place.offset)) {
                return fail_offset(is_x ? "an offset of x" : "an offset of y", offset, is_cuda, error);
            }
            tensor.data = addresses.of(place);
        }
    }
    halyard_positions positions = {};
    if (given.positions != nullptr) {
        if (const halyard_status status =
                read_struct(given.positions, sizeof(positions), "positions", &positions, error)) {
            return status;
        }
        out.positions.memory = const_cast<void *>(positions.data);
        const std::int64_t bytes = positions.type == HALYARD_INT64 ? 8 : 4;
        if (!read_offset(given.positions_offset, bytes, is_cuda, &out.positions.offset)) {
            return fail_offset("positions_offset", given.positions_offset, is_cuda, error);
        }
        positions.data = addresses.of(out.positions);
    }
    const DeviceAngles &angles = plan.angles->device;
    halyard_run_args checked = {};
    checked.size = sizeof(checked);
    checked.bad_position = given.bad_position;
    checked.angles = &angles.source;
    checked.positions = given.positions != nullptr ? &positions : nullptr;
    checked.x = tensors.x;
    checked.y = tensors.y;
    if (const halyard_status status = read_run(plan.checks, &checked, plan.queue.device, &out.run, error)) {
        return status;
    }
    for (std::int32_t i = 0; i < n_tensors; i++) {
        if (out.run.tensors[i].n_heads == 0) {
            continue;
        }
        halyard_status status = check_tensor_memory(plan.queue, out.x[i], tensors.x[i], "x", i, error);
        if (status == HALYARD_OK && !out.run.tensors[i].in_place) {
            status = check_tensor_memory(plan.queue, out.y[i], tensors.y[i], "y", i, error);
        }
        if (status != HALYARD_OK) {
            return status;
        }
    }
    if (given.positions != nullptr && !out.run.is_empty) {
        if (const halyard_status status = check_memory(plan.queue, out.positions, out.run.positions.memory,
                                                       positions.data, "positions", 0, error)) {
            return status;
        }
    }
    if (given.error_word != nullptr) {
        out.error_word.memory = given.error_word;
        if (!read_offset(given.error_word_offset, 4, is_cuda, &out.error_word.offset)) {
            return fail_offset("error_word_offset", given.error_word_offset, is_cuda, error);
        }
        const void *const word = addresses.of(out.error_word);
        const auto begin = reinterpret_cast<std::uintptr_t>(word);
        if (const halyard_status status =
                check_memory(plan.queue, out.error_word, {begin, begin + 4}, word, "error_word", 0, error)) {
            return status;
        }
        if (begin % 4 != 0) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
        }
    }
    out.launch = {&out.queue, &angles, plan.part_alignment, plan.checks->sin_sign,
                  given.bad_position == HALYARD_BAD_POSITION_CLAMP};
    return HALYARD_OK;
}

/// Tokens that one launch can take: batch rows follow each other like tokens where all strides allow it.
struct Block {
    std::int64_t n_batch;  // launches
    std::int64_t n_tokens;
    bool is_joined;
};

Block split(const Run &run, const RunTensor &tensor) {
    const CheckedPositions &positions = run.positions;
    if (run.n_batch == 1) {
        return {1, run.n_tokens, false};
    }
    const bool is_dense =
        tensor.in.batch == run.n_tokens * tensor.in.token && tensor.out.batch == run.n_tokens * tensor.out.token;
    const bool has_dense_positions =
        !positions.consecutive && positions.stride_batch == run.n_tokens * positions.stride_token;
    return run.n_tokens == 1 || (is_dense && has_dense_positions) ? Block{1, run.n_batch * run.n_tokens, true}
                                                                  : Block{run.n_batch, run.n_tokens, false};
}

DevicePositions positions_of(const Arguments &arguments, const Block &block, std::int64_t batch) {
    const CheckedPositions &positions = arguments.run.positions;
    const bool one_each = arguments.run.n_tokens == 1 && block.is_joined;
    const std::int32_t n_words = positions.data != nullptr && positions.is_int64 ? 2 : 1;
    const std::int64_t stride_token = one_each                ? positions.stride_batch
                                      : positions.consecutive ? 0
                                                              : positions.stride_token;
    const std::int32_t step = positions.consecutive && !one_each ? 1 : 0;
    if (positions.data == nullptr) {
        return {counted_positions(*arguments.launch.angles), 1, 0, step, 0, 0};
    }
    return {moved(arguments.positions, batch * positions.stride_batch * n_words * 4),
            n_words,
            0,
            step,
            stride_token,
            positions.stride_axis};
}

/// A tensor with as many of its followers as lie beside it: one buffer's adjacent heads, as q and k of a packed QKV.
int count_adjacent(const Arguments &arguments, int index) {
    const halyard_plan &plan = *arguments.run.plan;  // NOLINT(*NullDereference): read_run has set it
    int n = 1;
    for (; index + n < plan.n_tensors; n++) {
        const RunTensor &last = arguments.run.tensors[index + n - 1], &next = arguments.run.tensors[index + n];
        const TensorDesc &a = plan.tensors[index + n - 1].desc, &b = plan.tensors[index + n].desc;
        const auto same = [](const RunTensor::Strides &s, const RunTensor::Strides &t, std::int64_t heads_s,
                             std::int64_t heads_t) {
            const bool heads_alike = heads_s == 1 || heads_t == 1 || s.head == t.head;
            return s.batch == t.batch && s.token == t.token && s.element == t.element && heads_alike;
        };
        const bool alike = a.dtype == b.dtype && a.pairing == b.pairing && a.out_pairing == b.out_pairing &&
                           a.rotary_offset == b.rotary_offset && a.head_dim == b.head_dim &&
                           last.in_place == next.in_place && last.n_heads != 0 && next.n_heads != 0 &&
                           same(last.in, next.in, last.n_heads, next.n_heads) &&
                           same(last.out, next.out, last.n_heads, next.n_heads);
        if (!alike) {
            break;
        }
        // Where a tensor has a single head, the distance to its neighbour is the stride.
        const std::int64_t bytes = element_bytes(a.dtype);
        const auto follows = [&](const char *data, const char *next_data, std::int64_t stride,
                                 std::int64_t next_stride) {
            const std::int64_t step = last.n_heads > 1 ? stride : next.n_heads > 1 ? next_stride : a.head_dim;
            return step > 0 && next_data == data + last.n_heads * step * bytes;
        };
        if (!follows(last.x, next.x, last.in.head, next.in.head) ||
            !follows(last.y, next.y, last.out.head, next.out.head)) {
            break;
        }
    }
    return n;
}

/// Fills in a piece for tensors index … index + n - 1; its places are still to be set.
DevicePiece piece_of(const Arguments &arguments, int index, int n, const Block &block) {
    const RunTensor &tensor = arguments.run.tensors[index];
    const TensorDesc &desc = arguments.run.plan->tensors[index].desc;
    DevicePiece piece = {};
    piece.dtype = desc.dtype;
    piece.pairing = desc.pairing;
    piece.out_pairing = desc.out_pairing;
    piece.in_place = tensor.in_place;
    piece.in = tensor.in;
    piece.out = tensor.out;
    if (arguments.run.n_tokens == 1) {
        piece.in.token = tensor.in.batch;
        piece.out.token = tensor.out.batch;
    }
    piece.rotary_dim = arguments.run.plan->rotary_dim;
    piece.n_tokens = block.n_tokens;
    for (int i = index; i < index + n; i++) {
        piece.n_heads += arguments.run.tensors[i].n_heads;
    }
    if (n > 1 && tensor.n_heads == 1) {
        const RunTensor &next = arguments.run.tensors[index + 1];
        piece.in.head = next.n_heads > 1 ? next.in.head : desc.head_dim;
        piece.out.head = next.n_heads > 1 ? next.out.head : desc.head_dim;
    }
    return piece;
}

/// One launch for each batch row that needs its own, and the columns beside the window.
int enqueue(const Arguments &arguments, int index, int n, Call &call) {
    const RunTensor &tensor = arguments.run.tensors[index];
    const TensorDesc &desc = arguments.run.plan->tensors[index].desc;
    const Block block = split(arguments.run, tensor);
    const std::int64_t bytes = element_bytes(desc.dtype), window = desc.rotary_offset;
    DevicePiece piece = piece_of(arguments, index, n, block);
    for (std::int64_t batch = 0; batch < block.n_batch; batch++) {
        const Location x = moved(arguments.x[index], batch * tensor.in.batch * bytes);
        const Location y = moved(arguments.y[index], batch * tensor.out.batch * bytes);
        piece.positions = positions_of(arguments, block, batch);
        piece.x = moved(x, window * piece.in.element * bytes);
        piece.y = moved(y, window * piece.out.element * bytes);
        int status = rotate_on_device(arguments.launch, piece, call);
        if (status == 0 && !tensor.in_place) {
            const std::int64_t after = window + piece.rotary_dim;
            piece.x = x;
            piece.y = y;
            status = copy_on_device(arguments.launch, piece, window, call);
            piece.x = moved(x, after * piece.in.element * bytes);
            piece.y = moved(y, after * piece.out.element * bytes);
            status = status != 0 ? status : copy_on_device(arguments.launch, piece, desc.head_dim - after, call);
        }
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

int enqueue_check(const Arguments &arguments, Call &call) {
    // Positions do not depend on tensors: rows that are joined by one that is as dense as can be.
    RunTensor dense = {};
    dense.in.token = dense.out.token = 1;
    dense.in.batch = dense.out.batch = arguments.run.n_tokens;
    const Block block = split(arguments.run, dense);
    const bool is_shared = arguments.run.positions.stride_batch == 0 && !block.is_joined;
    for (std::int64_t batch = 0; batch < (is_shared ? 1 : block.n_batch); batch++) {
        const int status = check_on_device(arguments.launch, positions_of(arguments, block, batch), block.n_tokens,
                                           arguments.error_word, call);
        if (status != 0) {
            return status;
        }
    }
    return 0;
}

}  // namespace

}  // namespace halyard::gpu

using namespace halyard;
using namespace halyard::gpu;

extern "C" halyard_status halyard_run_gpu(const halyard_gpu_plan *plan, const halyard_gpu_run_args *args,
                                          halyard_error *error) {
    if (plan == nullptr) {
        return fail_null(error, "plan");
    }
    Arguments arguments = {};
    if (const halyard_status status = read_arguments(*plan, args, arguments, error)) {
        return status;
    }
    if (arguments.run.is_empty) {
        return HALYARD_OK;
    }
    for (int i = 0; i < plan->checks->n_tensors; i++) {
        if (arguments.run.tensors[i].n_heads == 0) {
            continue;
        }
        const Block block = split(arguments.run, arguments.run.tensors[i]);
        DevicePiece piece = piece_of(arguments, i, 1, block);
        piece.x = arguments.x[i];
        piece.y = arguments.y[i];
        piece.positions = positions_of(arguments, block, 0);
        const char *const reason = obstacle(arguments.launch, piece);
        if (reason[0] != '\0') {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "tensor ", i, " ", reason);
        }
    }
    Call call = {plan->queue.context, arguments.queue.stream, ""};
    int status = 0;
    if (arguments.given.error_word != nullptr) {
        status = enqueue_check(arguments, call);
    }
    for (int i = 0; i < plan->checks->n_tensors && status == 0;) {
        const int n = count_adjacent(arguments, i);
        if (arguments.run.tensors[i].n_heads != 0) {
            status = enqueue(arguments, i, n, call);
        }
        i += n;
    }
    return status == 0
               ? HALYARD_OK
               : fail(error, HALYARD_ERROR_DEVICE,
                      "the device refused: ", call.message[0] != '\0' ? call.message : "the driver does not say why",
                      " (", status, ")");
}
