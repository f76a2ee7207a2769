#include "gpu/read_gpu_run.h"

#include "base/error.h"
#include "base/versioned.h"
#include "gpu/driver.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace halyard {

template <>
inline constexpr std::array released_sizes<halyard_gpu_run_args> = {96u, 120u};

}  // namespace halyard

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
    std::array<void *, 4 *HALYARD_MAX_TENSORS + 3> buffers_ = {};
    std::ptrdiff_t n_buffers_ = 0;

    static std::uint64_t start_of(std::ptrdiff_t buffer) { return (static_cast<std::uint64_t>(buffer) + 1) << 59; }
};

/// Tensors that have comparable addresses instead of handles.
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
halyard_status check_memory(MemoryQueries &queries, const Location &place, const MemoryRange &range,
                            const void *first_element, const char *name, int index, halyard_error *error) {
    const MemoryInfo info = queries.describe(place.memory);
    const halyard_gpu_queue &queue = queries.queue();
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

halyard_status check_tensor_memory(MemoryQueries &queries, const Location &place, const halyard_tensor &tensor,
                                   const char *name, int index, halyard_error *error) {
    MemoryRange range = {0, 0};
    find_memory_range(tensor.data, tensor.shape, tensor.strides, element_bytes(Dtype(tensor.dtype)),
                      &range);  // checked before
    return check_memory(queries, place, range, tensor.data, name, index, error);
}

/// Reads where weights and caches lie, and has stages name them as the checks do.
halyard_status place_stages(const halyard_gpu_run_args &given, const PlanDesc &plan, Addresses &addresses, bool is_cuda,
                            GpuRun &out, halyard_stages *stages, halyard_error *error) {
    for (std::int32_t i = 0; i < plan.n_tensors; i++) {
        const halyard_stages *const element = element_of(given.stages, i);
        if (const halyard_status status = read_struct(element, "a stage", &stages[i], error)) {
            return status;
        }
        stages[i].size = sizeof(stages[i]);  // of the array that the checks go through
        const TensorDesc &desc = plan.tensors[i];
        const std::int64_t weight_bytes = desc.norm && desc.norm->weight ? element_bytes(*desc.norm->weight) : 1;
        const std::int64_t weight_at = given.weight_offsets != nullptr ? given.weight_offsets[i] : 0;
        const std::int64_t cache_at = given.cache_offsets != nullptr ? given.cache_offsets[i] : 0;
        out.weights[i].memory = const_cast<void *>(stages[i].weight);
        if (!read_offset(weight_at, weight_bytes, is_cuda, &out.weights[i].offset)) {
            return fail_offset("an offset of weights", weight_at, is_cuda, error);
        }
        if (stages[i].weight != nullptr) {
            stages[i].weight = addresses.of(out.weights[i]);
        }
        if (desc.cache) {
            out.y[i].memory = stages[i].cache;
            if (!read_offset(cache_at, element_bytes(desc.out_dtype), is_cuda, &out.y[i].offset)) {
                return fail_offset("an offset of caches", cache_at, is_cuda, error);
            }
            stages[i].cache = stages[i].cache != nullptr ? addresses.of(out.y[i]) : nullptr;
        }
    }
    return HALYARD_OK;
}

}  // namespace

halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept {
    out->given = {};
    halyard_gpu_run_args &given = out->given;
    if (const halyard_status status = read_struct(args, "args", &given, error)) {
        return status;
    }
    if (given.x == nullptr || given.y == nullptr) {
        return fail_null(error, given.x == nullptr ? "args.x" : "args.y");
    }
    const bool is_cuda = plan.queue.device == HALYARD_CUDA;
    if (!is_cuda && given.stream == nullptr) {
        return fail_null(error, "args.stream");
    }
    if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr && given.slots == nullptr) {
        return fail(error, HALYARD_ERROR_MISMATCH, "error_word is given, but policy ", given.bad_position,
                    " tells of nothing");
    }
    out->queue = plan.queue;
    out->queue.stream = given.stream;
    Addresses addresses(is_cuda);
    Tensors tensors;
    const std::int32_t n_tensors = plan.checks.n_tensors;
    for (std::int32_t i = 0; i < n_tensors; i++) {
        halyard_status status = read_struct(&given.x[i], "an x", &tensors.x[i], error);
        if (status == HALYARD_OK) {
            status = read_struct(&given.y[i], "a y", &tensors.y[i], error);
        }
        if (status != HALYARD_OK) {
            return status;
        }
        for (const bool is_x : {true, false}) {
            halyard_tensor &tensor = is_x ? tensors.x[i] : tensors.y[i];
            Location &place = is_x ? out->x[i] : out->y[i];
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
        if (const halyard_status status = read_struct(given.positions, "positions", &positions, error)) {
            return status;
        }
        out->positions.memory = const_cast<void *>(positions.data);
        const std::int64_t bytes = positions.type == HALYARD_INT64 ? 8 : 4;
        if (!read_offset(given.positions_offset, bytes, is_cuda, &out->positions.offset)) {
            return fail_offset("positions_offset", given.positions_offset, is_cuda, error);
        }
        positions.data = addresses.of(out->positions);
    }
    halyard_stages stages[HALYARD_MAX_TENSORS];
    if (given.stages != nullptr) {
        if (const halyard_status status = place_stages(given, plan.checks, addresses, is_cuda, *out, stages, error)) {
            return status;
        }
    }
    halyard_slots slots = {};
    if (given.slots != nullptr) {
        if (const halyard_status status = read_struct(given.slots, "slots", &slots, error)) {
            return status;
        }
        if (slots.policy == HALYARD_SLOTS_CHECK) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED,
                        "args.slots->policy is HALYARD_SLOTS_CHECK (0), but a device "
                        "does not look for doubled slots: it must be HALYARD_SLOTS_RANGE_ONLY (1)");
        }
        if (slots.consecutive != 0) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "args.slots->consecutive is ", slots.consecutive,
                        ", but a device reads every token's slot: it must be 0");
        }
        slots.size = sizeof(slots);
        out->slots.memory = const_cast<void *>(slots.data);
        if (!read_offset(given.slots_offset, slots.type == HALYARD_INT64 ? 8 : 4, is_cuda, &out->slots.offset)) {
            return fail_offset("slots_offset", given.slots_offset, is_cuda, error);
        }
        slots.data = addresses.of(out->slots);
    }
    const DeviceAngles &angles = plan.angles->device;
    halyard_run_args checked = {};
    Spans &spans = out->spans;
    checked.size = sizeof(checked);
    checked.bad_position = given.bad_position;
    checked.angles = &angles.source;
    checked.positions = given.positions != nullptr ? &positions : nullptr;
    checked.x = tensors.x;
    checked.y = tensors.y;
    checked.slots = given.slots != nullptr ? &slots : nullptr;
    checked.stages = given.stages != nullptr ? stages : nullptr;
    if (const halyard_status status = read_run(&plan.checks, &checked, plan.queue.device, &out->run, &spans, error)) {
        return status;
    }
    MemoryQueries queries(plan.queue);
    for (std::int32_t i = 0; i < n_tensors; i++) {
        if (out->run.tensors[i].n_heads == 0) {
            continue;
        }
        const bool has_cache = plan.checks.tensors[i].cache.has_value();
        const MemoryRange &weight = out->run.stages[i].weight_memory;
        halyard_status status = check_tensor_memory(queries, out->x[i], tensors.x[i], "x", i, error);
        if (status == HALYARD_OK && has_cache) {
            status = check_memory(queries, out->y[i], spans.y[i], stages[i].cache, "stages.cache", i, error);
        } else if (status == HALYARD_OK && !out->run.tensors[i].in_place) {
            status = check_tensor_memory(queries, out->y[i], tensors.y[i], "y", i, error);
        }
        if (status == HALYARD_OK && !plan.checks.only_rotates && weight.begin != weight.end) {
            status = check_memory(queries, out->weights[i], weight, stages[i].weight, "stages.weight", i, error);
        }
        if (status != HALYARD_OK) {
            return status;
        }
    }
    if (given.positions != nullptr && plan.checks.rotates && !out->run.is_empty) {
        if (const halyard_status status = check_memory(queries, out->positions, out->run.positions.memory,
                                                       positions.data, "positions", 0, error)) {
            return status;
        }
    }
    if (given.slots != nullptr && out->run.slots.data != nullptr) {
        if (const halyard_status status =
                check_memory(queries, out->slots, out->run.slots.memory, slots.data, "slots", 0, error)) {
            return status;
        }
    }
    if (given.error_word != nullptr) {
        out->error_word.memory = given.error_word;
        if (!read_offset(given.error_word_offset, 4, is_cuda, &out->error_word.offset)) {
            return fail_offset("error_word_offset", given.error_word_offset, is_cuda, error);
        }
        const void *const word = addresses.of(out->error_word);
        const auto begin = reinterpret_cast<std::uintptr_t>(word);
        if (const halyard_status status =
                check_memory(queries, out->error_word, {begin, begin + 4}, word, "error_word", 0, error)) {
            return status;
        }
        if (begin % 4 != 0) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
        }
    }
    out->launch = {&out->queue, &angles, plan.part_alignment, plan.checks.sin_sign,
                   given.bad_position == HALYARD_BAD_POSITION_CLAMP};
    return HALYARD_OK;
}

}  // namespace halyard::gpu
