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
        const auto offset = static_cast<std::uint64_t>(place.offset);
        if (is_cuda_) {
            return reinterpret_cast<void *>(reinterpret_cast<std::uintptr_t>(place.memory) + offset);
        }
        const auto known = std::find(buffers_.begin(), buffers_.begin() + n_buffers_, place.memory);
        if (known == buffers_.begin() + n_buffers_) {
            buffers_[static_cast<std::size_t>(n_buffers_++)] = place.memory;
        }
        const auto number = static_cast<std::uint64_t>(known - buffers_.begin()) + 1;
        return reinterpret_cast<void *>((number << 59) + offset);
    }

private:
    bool is_cuda_;
    std::array<void *, 5 *HALYARD_MAX_TENSORS + 3> buffers_ = {};
    std::ptrdiff_t n_buffers_ = 0;
};

/// An array that a run touches: where it is, its address for the checks, and the addresses that are touched.
struct Touched {
    const char *name;
    const Location &place;
    const void *first;
    MemoryRange range;
};

/// A run's arguments with comparable addresses instead of handles, so that the checks of CPU runs apply.
class Reader {
public:
    Reader(const halyard_gpu_plan &plan, GpuRun &out)
        : plan_(plan), out_(out), is_cuda_(plan.queue.device == HALYARD_CUDA), addresses_(is_cuda_),
          queries_(plan.queue) {}

    halyard_status read(const halyard_gpu_run_args *args, halyard_error *error) {
        HALYARD_TRY(read_struct(args, "args", &out_.given, error));
        HALYARD_TRY(check_given(error));
        HALYARD_TRY(read_arrays(error));
        HALYARD_TRY(read_tokens(error));
        HALYARD_TRY(read_error_word(error));
        HALYARD_TRY(read_as_on_cpu(error));
        return check_memory(error);
    }

private:
    const halyard_gpu_plan &plan_;
    GpuRun &out_;
    bool is_cuda_;
    Addresses addresses_;
    MemoryQueries queries_;
    halyard_tensor x_[HALYARD_MAX_TENSORS], y_[HALYARD_MAX_TENSORS];
    halyard_positions positions_ = {};
    halyard_stages stages_[HALYARD_MAX_TENSORS] = {};
    halyard_slots slots_ = {};
    const void *error_word_ = nullptr;

    static std::int64_t offset_of(const std::int64_t *offsets, std::int32_t i) {
        return offsets != nullptr ? offsets[i] : 0;
    }

    /// Sets where an array is, and replaces its pointer by an address for the checks. The offset, which has that name,
    /// is in elements.
    template <typename Data>
    halyard_status locate(const char *name, Data *&memory, std::int64_t offset, std::int64_t bytes, Location *out,
                          halyard_error *error) {
        constexpr std::int64_t most = std::int64_t{1} << 40;
        if (offset < 0 || offset > (is_cuda_ ? 0 : most)) {
            return fail(error, HALYARD_ERROR_OVERFLOW, name, " is ", offset, ", but must be ",
                        is_cuda_ ? "0 with CUDA" : "0 to 2^40");
        }
        *out = {const_cast<void *>(static_cast<const void *>(memory)), offset * bytes};
        memory = memory != nullptr ? addresses_.of(*out) : nullptr;
        return HALYARD_OK;
    }

    halyard_status check_given(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        if (given.x == nullptr || given.y == nullptr) {
            return fail_null(error, given.x == nullptr ? "args.x" : "args.y");
        }
        HALYARD_TRY(check_n_tensors(plan_.checks, given.n_tensors, given.reserved, error));
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

    halyard_status read_arrays(halyard_error *error) {
        for (std::int32_t i = 0; i < plan_.checks.n_tensors; i++) {
            HALYARD_TRY(read_tensor(true, i, error));
            HALYARD_TRY(read_tensor(false, i, error));
            if (out_.given.stages != nullptr) {
                HALYARD_TRY(read_stages(i, error));
            }
        }
        return HALYARD_OK;
    }

    halyard_status read_tensor(bool is_x, std::int32_t i, halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        halyard_tensor &tensor = is_x ? x_[i] : y_[i];
        HALYARD_TRY(read_struct(is_x ? &given.x[i] : &given.y[i], is_x ? "an x" : "a y", &tensor, error));
        return locate(is_x ? "an offset of x" : "an offset of y", tensor.data,
                      offset_of(is_x ? given.x_offsets : given.y_offsets, i), element_bytes(Dtype(tensor.dtype)),
                      is_x ? &out_.x[i] : &out_.y[i], error);
    }

    /// Reads where weights, caches and scales of groups lie.
    halyard_status read_stages(std::int32_t i, halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        const TensorDesc &desc = plan_.checks.tensors[i];
        const std::int64_t weight_bytes = desc.norm && desc.norm->weight ? element_bytes(*desc.norm->weight) : 1;
        halyard_stages &stages = stages_[i];
        HALYARD_TRY(read_struct(element_of(given.stages, i), "a stage", &stages, error));
        stages.size = sizeof(stages);  // of the array that the checks go through
        HALYARD_TRY(locate("an offset of weights", stages.weight, offset_of(given.weight_offsets, i), weight_bytes,
                           &out_.weights[i], error));
        if (desc.cache) {
            HALYARD_TRY(locate("an offset of caches", stages.cache, offset_of(given.cache_offsets, i),
                               element_bytes(desc.out_dtype), &out_.y[i], error));
        }
        return locate("an offset of group_scales", stages.group_scales, offset_of(given.group_scale_offsets, i), 1,
                      &out_.group_scales[i], error);
    }

    halyard_status read_tokens(halyard_error *error) {
        const halyard_gpu_run_args &given = out_.given;
        if (given.positions != nullptr) {
            HALYARD_TRY(read_struct(given.positions, "positions", &positions_, error));
            HALYARD_TRY(locate("positions_offset", positions_.data, given.positions_offset,
                               positions_.type == HALYARD_INT64 ? 8 : 4, &out_.positions, error));
        }
        return given.slots != nullptr ? read_slots(error) : HALYARD_OK;
    }

    halyard_status read_slots(halyard_error *error) {
        HALYARD_TRY(read_struct(out_.given.slots, "slots", &slots_, error));
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
        return locate("slots_offset", slots_.data, out_.given.slots_offset, slots_.type == HALYARD_INT64 ? 8 : 4,
                      &out_.slots, error);
    }

    halyard_status read_error_word(halyard_error *error) {
        error_word_ = out_.given.error_word;
        HALYARD_TRY(locate("error_word_offset", error_word_, error_word_ != nullptr ? out_.given.error_word_offset : 0,
                           4, &out_.error_word, error));
        return reinterpret_cast<std::uintptr_t>(error_word_) % 4 == 0
                   ? HALYARD_OK
                   : fail(error, HALYARD_ERROR_UNSUPPORTED, "error_word is not aligned to 4 bytes");
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

    /// Whether all memory is the plan's device's and, OpenCL, large enough. What is not touched has an empty range.
    halyard_status check_memory(halyard_error *error) {
        const Run &run = out_.run;
        for (std::int32_t i = 0; i < plan_.checks.n_tensors; i++) {
            const bool has_cache = plan_.checks.tensors[i].cache.has_value();
            const Touched all[] = {
                {"x", out_.x[i], x_[i].data, out_.spans.x[i]},
                {has_cache ? "stages.cache" : "y", out_.y[i], has_cache ? stages_[i].cache : y_[i].data,
                 run.tensors[i].in_place ? MemoryRange{} : out_.spans.y[i]},
                {"stages.weight", out_.weights[i], stages_[i].weight, run.stages[i].memory(weight_array)},
                {"stages.group_scales", out_.group_scales[i], stages_[i].group_scales,
                 run.stages[i].memory(group_scales_array)}};
            for (const Touched &array : all) {
                HALYARD_TRY(check(array, i, error));
            }
        }
        const Touched of_run[] = {
            {"positions", out_.positions, positions_.data, run.is_empty ? MemoryRange{} : run.positions.memory},
            {"slots", out_.slots, slots_.data, run.slots.memory},
            {"error_word", out_.error_word, error_word_, word_at(error_word_)}};
        for (const Touched &array : of_run) {
            HALYARD_TRY(check(array, 0, error));
        }
        return HALYARD_OK;
    }

    static MemoryRange word_at(const void *word) {
        const auto begin = reinterpret_cast<std::uintptr_t>(word);
        return {begin, word != nullptr ? begin + 4 : begin};
    }

    halyard_status check(const Touched &array, int index, halyard_error *error) {
        if (array.range.begin == array.range.end) {
            return HALYARD_OK;
        }
        const MemoryInfo info = queries_.describe(array.place.memory);
        if (!info.is_known) {
            return fail(error, HALYARD_ERROR_UNSUPPORTED, array.name, "[", index,
                        "] is memory that the driver of device ", plan_.queue.device, " does not know");
        }
        if (!info.is_of_context) {
            return fail(error, HALYARD_ERROR_MISMATCH, array.name, "[", index,
                        "] lies in another device or context than the plan's");
        }
        const auto first = reinterpret_cast<std::uintptr_t>(array.first);
        const std::uintptr_t begin = std::min(first, array.range.begin);
        const auto offset = static_cast<std::uint64_t>(array.place.offset);
        if (!is_cuda_ && (first - begin > offset || array.range.end - first > info.n_bytes ||
                          offset > info.n_bytes - (array.range.end - first))) {
            return fail(error, HALYARD_ERROR_SHAPE, array.name, "[", index, "] reaches beyond its buffer of ",
                        info.n_bytes, " bytes");
        }
        return HALYARD_OK;
    }
};

}  // namespace

halyard_status read_gpu_run(const halyard_gpu_plan &plan, const halyard_gpu_run_args *args, GpuRun *out,
                            halyard_error *error) noexcept {
    return Reader(plan, *out).read(args, error);
}

}  // namespace halyard::gpu
