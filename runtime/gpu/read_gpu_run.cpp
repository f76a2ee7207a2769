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
inline constexpr std::array released_sizes<halyard_gpu_run_args> = {136u};

}  // namespace halyard

namespace halyard::gpu {

namespace {

/// Gives arrays addresses that the overlap checks can compare. CUDA: their own. OpenCL: a cl_mem is a handle, so each
/// buffer gets a range of numbers that is wider than any buffer.
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
    std::array<void *, 5 *HALYARD_MAX_TENSORS + 3> buffers_ = {};
    std::ptrdiff_t n_buffers_ = 0;

    static std::uint64_t start_of(std::ptrdiff_t buffer) { return (static_cast<std::uint64_t>(buffer) + 1) << 59; }
};

/// A run's arguments with comparable addresses instead of handles, so that the checks of CPU runs apply.
class Reader {
public:
    Reader(const halyard_gpu_plan &plan, GpuRun &out)
        : plan_(plan), out_(out), is_cuda_(plan.queue.device == HALYARD_CUDA), addresses_(is_cuda_),
          queries_(plan.queue) {}

    halyard_status read(const halyard_gpu_run_args *args, halyard_error *error) {
        out_.given = {};
        halyard_status status = read_struct(args, "args", &out_.given, error);
        if (status == HALYARD_OK) {
            status = check_given(error);
        }
        for (const auto step :
             {&Reader::read_tensors, &Reader::read_positions, &Reader::read_stages, &Reader::read_slots,
              &Reader::read_as_on_cpu, &Reader::check_tensors, &Reader::check_tokens, &Reader::read_error_word}) {
            status = status == HALYARD_OK ? (this->*step)(error) : status;
        }
        return status;
    }

private:
    const halyard_gpu_plan &plan_;
    GpuRun &out_;
    bool is_cuda_;
    Addresses addresses_;
    MemoryQueries queries_;
    halyard_tensor x_[HALYARD_MAX_TENSORS], y_[HALYARD_MAX_TENSORS];
    halyard_positions positions_ = {};
    halyard_stages stages_[HALYARD_MAX_TENSORS];
    halyard_slots slots_ = {};

    static std::int64_t offset_of(const std::int64_t *offsets, std::int32_t i) {
        return offsets != nullptr ? offsets[i] : 0;
    }

    /// Sets where an array is. The offset, which has that name, is in elements.
    halyard_status read_place(const char *name, const void *memory, std::int64_t offset, std::int64_t bytes,
                              Location *out, halyard_error *error) const {
        constexpr std::int64_t most = std::int64_t{1} << 40;
        if (offset < 0 || offset > (is_cuda_ ? 0 : most)) {
            return fail(error, HALYARD_ERROR_OVERFLOW, name, " is ", offset, ", but must be ",
                        is_cuda_ ? "0 with CUDA" : "0 to 2^40");
        }
        *out = {const_cast<void *>(memory), offset * bytes};
        return HALYARD_OK;
    }

    /// Whether memory is the plan's device's and, OpenCL, large enough.
    halyard_status check_memory(const Location &place, const MemoryRange &range, const void *first_element,
                                const char *name, int index, halyard_error *error) {
        const MemoryInfo info = queries_.describe(place.memory);
        if (!info.is_known) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, name, "[", index, "] is memory that the driver of device ",
                        plan_.queue.device, " does not know");
        }
        if (!info.is_of_context) {
            return fail(error, HALYARD_ERROR_MISMATCH, name, "[", index,
                        "] lies in another device or context than the plan's");
        }
        const auto first = reinterpret_cast<std::uintptr_t>(first_element);
        const auto offset = static_cast<std::uint64_t>(place.offset);
        if (!is_cuda_ && (first - range.begin > offset || range.end - first > info.n_bytes ||
                          offset > info.n_bytes - (range.end - first))) {
            return fail(error, HALYARD_ERROR_SHAPE, name, "[", index, "] reaches beyond its buffer of ", info.n_bytes,
                        " bytes");
        }
        return HALYARD_OK;
    }

    halyard_status check_tensor_memory(const Location &place, const halyard_tensor &tensor, const char *name, int index,
                                       halyard_error *error) {
        MemoryRange range = {0, 0};
        find_memory_range(tensor.data, tensor.shape, tensor.strides, element_bytes(Dtype(tensor.dtype)),
                          &range);  // checked before
        return check_memory(place, range, tensor.data, name, index, error);
    }

    halyard_status check_given(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        if (given.x == nullptr || given.y == nullptr) {
            return fail_null(error, given.x == nullptr ? "args.x" : "args.y");
        }
        if (const halyard_status status = check_n_tensors(plan_.checks, given.n_tensors, given.reserved, error)) {
            return status;
        }
        if (!is_cuda_ && given.stream == nullptr) {
            return fail_null(error, "args.stream");
        }
        if (given.bad_position != HALYARD_BAD_POSITION_ERROR && given.error_word != nullptr && given.slots == nullptr) {
            return fail(error, HALYARD_ERROR_MISMATCH, "error_word is given, but policy ", given.bad_position,
                        " tells of nothing");
        }
        out_.queue = plan_.queue;
        out_.queue.stream = given.stream;
        return HALYARD_OK;
    }

    halyard_status read_tensors(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        halyard_status status = HALYARD_OK;
        for (std::int32_t i = 0; i < plan_.checks.n_tensors && status == HALYARD_OK; i++) {
            status = read_struct(&given.x[i], "an x", &x_[i], error);
            if (status == HALYARD_OK) {
                status = read_struct(&given.y[i], "a y", &y_[i], error);
            }
            for (const bool is_x : {true, false}) {
                halyard_tensor &tensor = is_x ? x_[i] : y_[i];
                Location &place = is_x ? out_.x[i] : out_.y[i];
                if (status == HALYARD_OK) {
                    const std::int64_t offset = offset_of(is_x ? given.x_offsets : given.y_offsets, i);
                    status = read_place(is_x ? "an offset of x" : "an offset of y", tensor.data, offset,
                                        element_bytes(Dtype(tensor.dtype)), &place, error);
                    tensor.data = addresses_.of(place);
                }
            }
        }
        return status;
    }

    halyard_status read_positions(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        if (given.positions == nullptr) {
            return HALYARD_OK;
        }
        if (const halyard_status status = read_struct(given.positions, "positions", &positions_, error)) {
            return status;
        }
        const halyard_status status = read_place("positions_offset", positions_.data, given.positions_offset,
                                                 positions_.type == HALYARD_INT64 ? 8 : 4, &out_.positions, error);
        positions_.data = addresses_.of(out_.positions);
        return status;
    }

    /// Reads where weights, caches and scales of groups lie.
    halyard_status read_stages(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        halyard_status status = HALYARD_OK;
        for (std::int32_t i = 0; given.stages != nullptr && i < plan_.checks.n_tensors && status == HALYARD_OK; i++) {
            halyard_stages &stages = stages_[i];
            status = read_struct(element_of(given.stages, i), "a stage", &stages, error);
            stages.size = sizeof(stages);  // of the array that the checks go through
            const TensorDesc &desc = plan_.checks.tensors[i];
            if (status == HALYARD_OK) {
                const std::int64_t bytes = desc.norm && desc.norm->weight ? element_bytes(*desc.norm->weight) : 1;
                status = read_place("an offset of weights", stages.weight, offset_of(given.weight_offsets, i), bytes,
                                    &out_.weights[i], error);
                stages.weight = stages.weight != nullptr ? addresses_.of(out_.weights[i]) : nullptr;
            }
            if (status == HALYARD_OK && desc.cache) {
                status = read_place("an offset of caches", stages.cache, offset_of(given.cache_offsets, i),
                                    element_bytes(desc.out_dtype), &out_.y[i], error);
                stages.cache = stages.cache != nullptr ? addresses_.of(out_.y[i]) : nullptr;
            }
            if (status == HALYARD_OK) {
                status = read_place("an offset of group_scales", stages.group_scales,
                                    offset_of(given.group_scale_offsets, i), 1, &out_.group_scales[i], error);
                stages.group_scales = stages.group_scales != nullptr ? addresses_.of(out_.group_scales[i]) : nullptr;
            }
        }
        return status;
    }

    halyard_status read_slots(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        if (given.slots == nullptr) {
            return HALYARD_OK;
        }
        if (const halyard_status status = read_struct(given.slots, "slots", &slots_, error)) {
            return status;
        }
        if (slots_.policy == HALYARD_SLOTS_CHECK) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED,
                        "args.slots->policy is HALYARD_SLOTS_CHECK (0), but a device "
                        "does not look for doubled slots: it must be HALYARD_SLOTS_RANGE_ONLY (1)");
        }
        if (slots_.consecutive != 0) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, "args.slots->consecutive is ", slots_.consecutive,
                        ", but a device reads every token's slot: it must be 0");
        }
        slots_.size = sizeof(slots_);
        const halyard_status status = read_place("slots_offset", slots_.data, given.slots_offset,
                                                 slots_.type == HALYARD_INT64 ? 8 : 4, &out_.slots, error);
        slots_.data = addresses_.of(out_.slots);
        return status;
    }

    halyard_status read_as_on_cpu(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        halyard_run_args checked = {};
        checked.size = sizeof(checked);
        checked.bad_position = given.bad_position;
        checked.angles = &plan_.angles->device.source;
        checked.positions = given.positions != nullptr ? &positions_ : nullptr;
        checked.x = x_;
        checked.y = y_;
        checked.slots = given.slots != nullptr ? &slots_ : nullptr;
        checked.stages = given.stages != nullptr ? stages_ : nullptr;
        out_.launch = {&out_.queue, &plan_.angles->device, plan_.part_alignment, plan_.checks.sin_sign,
                       given.bad_position == HALYARD_BAD_POSITION_CLAMP};
        return read_run(&plan_.checks, &checked, plan_.queue.device, &out_.run, &out_.spans, error);
    }

    halyard_status check_tensors(halyard_error *error) {
        for (std::int32_t i = 0; i < plan_.checks.n_tensors; i++) {
            if (out_.run.tensors[i].n_heads == 0) {
                continue;
            }
            const bool has_cache = plan_.checks.tensors[i].cache.has_value();
            const MemoryRange &weight = out_.run.stages[i].memory(weight_array);
            const MemoryRange &scales = out_.run.stages[i].memory(group_scales_array);
            halyard_status status = check_tensor_memory(out_.x[i], x_[i], "x", i, error);
            if (status == HALYARD_OK && has_cache) {
                status = check_memory(out_.y[i], out_.spans.y[i], stages_[i].cache, "stages.cache", i, error);
            } else if (status == HALYARD_OK && !out_.run.tensors[i].in_place) {
                status = check_tensor_memory(out_.y[i], y_[i], "y", i, error);
            }
            if (status == HALYARD_OK && !plan_.checks.only_rotates && weight.begin != weight.end) {
                status = check_memory(out_.weights[i], weight, stages_[i].weight, "stages.weight", i, error);
            }
            if (status == HALYARD_OK && !plan_.checks.only_rotates && scales.begin != scales.end) {
                const auto first = reinterpret_cast<std::uintptr_t>(stages_[i].group_scales);
                const MemoryRange with_offset = {std::min(first, scales.begin), scales.end};
                status = check_memory(out_.group_scales[i], with_offset, stages_[i].group_scales, "stages.group_scales",
                                      i, error);
            }
            if (status != HALYARD_OK) {
                return status;
            }
        }
        return HALYARD_OK;
    }

    halyard_status check_tokens(halyard_error *error) {
        const Run &run = out_.run;
        if (out_.given.positions != nullptr && plan_.checks.rotates && !run.is_empty) {
            if (const halyard_status status =
                    check_memory(out_.positions, run.positions.memory, positions_.data, "positions", 0, error)) {
                return status;
            }
        }
        return out_.given.slots != nullptr && run.slots.data != nullptr
                   ? check_memory(out_.slots, run.slots.memory, slots_.data, "slots", 0, error)
                   : HALYARD_OK;
    }

    halyard_status read_error_word(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        if (given.error_word == nullptr) {
            return HALYARD_OK;
        }
        halyard_status status =
            read_place("error_word_offset", given.error_word, given.error_word_offset, 4, &out_.error_word, error);
        const void *const word = addresses_.of(out_.error_word);
        const auto begin = reinterpret_cast<std::uintptr_t>(word);
        if (status == HALYARD_OK) {
            status = check_memory(out_.error_word, {begin, begin + 4}, word, "error_word", 0, error);
        }
        return status != HALYARD_OK || begin % 4 == 0
                   ? status
                   : fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
    }
};

}  // namespace

halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept {
    return Reader(plan, *out).read(args, error);
}

}  // namespace halyard::gpu
