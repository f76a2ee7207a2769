#include "gpu/road_launch.h"

#include "gpu/gpu_kernels.h"
#include "gpu/kernel_arguments.h"

#include <algorithm>

namespace halyard::gpu {

namespace {

constexpr std::int64_t wide = std::int64_t{wide_bytes};  // of a quad: four words, by which memory is counted

/// The memory of all inputs, outputs or weights of a launch, as FlatMemory in road_generator.cpp sees it. With OpenCL
/// it is a buffer, else all that lies behind the first of them.
class Flat {
public:
    Flat(const Launch &launch, std::uint32_t type, std::int64_t element_bytes, void *memory, std::uintptr_t begin)
        : is_opencl_(launch.queue->device == HALYARD_OPENCL), base_(is_opencl_ ? 0 : begin / wide_bytes * wide_bytes),
          view_(launch, is_opencl_ ? Location{memory, 0} : Location{nullptr, static_cast<std::int64_t>(base_)}, type,
                element_bytes) {
        constexpr std::int64_t most = std::int64_t{1} << 28, quads_in_row = std::int64_t{1} << 22;
        const std::int64_t in_quad = wide / element_bytes;
        view_.add(in_quad, 1);
        view_.add(most, in_quad);
        view_.add(most, quads_in_row * in_quad);
    }

    /// The bytes to a place.
    std::int64_t to(const Location &place) const {
        const auto address = is_opencl_ ? 0 : reinterpret_cast<std::uintptr_t>(place.memory) - base_;
        return static_cast<std::int64_t>(address) + place.offset;
    }
    View &view() { return view_; }

private:
    bool is_opencl_;
    std::uintptr_t base_;
    View view_;
};

/// Scalars of all tensors, which a kernel takes one after the other.
template <typename T>
struct OfTensors {
    T each[HALYARD_MAX_TENSORS] = {};
};

/// As road_generator.cpp takes a tensor's numbers.
struct Numbers {
    OfTensors<std::int32_t> end;
    OfTensors<std::int64_t> x_at, x_head, x_token, y_at, y_head, y_token, y_block;
    OfTensors<std::int32_t> block_size, out;
    OfTensors<float> reciprocal;
    OfTensors<std::int32_t> rotary_offset, interleaves, norm_offset, norm_size;
    OfTensors<float> eps;
    OfTensors<std::int32_t> rounding, weight_kind;
    OfTensors<std::int64_t> weight_at;
};

/// 0, 1 and so on, as Storage in generators/storage.h.
std::int32_t storage_of(Dtype dtype) { return static_cast<std::int32_t>(index_of(dtype)); }

void set_numbers(const RoadTensor &tensor, int i, const Flat &x, const Flat &y, const Flat &weights, Numbers &to) {
    const TensorDesc &desc = *tensor.desc;
    const std::int64_t in_bytes = element_bytes(desc.dtype), out_bytes = element_bytes(desc.out_dtype);
    to.end.each[i] = (i == 0 ? 0 : to.end.each[i - 1]) + static_cast<std::int32_t>(tensor.n_heads);
    to.x_at.each[i] = x.to(tensor.x) / wide;
    to.x_head.each[i] = tensor.in.head * in_bytes / wide;
    to.x_token.each[i] = tensor.in.token * in_bytes / wide;
    to.y_at.each[i] = y.to(tensor.y) / wide;
    to.y_head.each[i] = (desc.cache ? desc.cache->stride_head : tensor.out.head) * out_bytes / wide;
    to.y_token.each[i] = (desc.cache ? desc.cache->stride_token : tensor.out.token) * out_bytes / wide;
    to.y_block.each[i] = desc.cache ? desc.cache->stride_block * out_bytes / wide : 0;
    to.block_size.each[i] = desc.cache ? static_cast<std::int32_t>(desc.cache->block_size) : 0;
    to.out.each[i] = storage_of(desc.out_dtype);
    to.reciprocal.each[i] = tensor.reciprocal;
    to.rotary_offset.each[i] = desc.rotates ? static_cast<std::int32_t>(desc.rotary_offset) : -1;
    to.interleaves.each[i] =
        (desc.pairing == Pairing::interleaved ? 1 : 0) | (desc.out_pairing == Pairing::interleaved ? 2 : 0);
    if (desc.norm) {
        to.norm_offset.each[i] = static_cast<std::int32_t>(desc.norm->offset);
        to.norm_size.each[i] = static_cast<std::int32_t>(desc.norm->size);
        to.eps.each[i] = desc.norm->eps;
        to.rounding.each[i] = desc.norm->rounding;
    }
    if (desc.norm && desc.norm->weight) {
        to.weight_kind.each[i] = (storage_of(*desc.norm->weight) + 1) | (desc.norm->unit_offset ? 4 : 0);
        to.weight_at.each[i] = weights.to(tensor.weight) / 2;
    }
}

/// Where inputs, outputs or weights begin, and with OpenCL in which buffer.
struct Begin {
    void *memory = nullptr;
    std::uintptr_t address = UINTPTR_MAX;

    void include(void *other, std::uintptr_t begin) {
        memory = other;
        address = std::min(address, begin);
    }
};

int launch_road(const Launch &launch, const RoadPiece &piece, Call &call) {
    Begin x_begin, y_begin, weights_begin;
    for (int i = 0; i < piece.n_tensors; i++) {
        const RoadTensor &tensor = piece.tensors[i];
        x_begin.include(tensor.x.memory, tensor.x_begin);
        y_begin.include(tensor.y.memory, tensor.y_begin);
        if (tensor.weight.memory != nullptr) {
            weights_begin.include(tensor.weight.memory, address_bits(launch, tensor.weight));
        }
    }
    if (weights_begin.memory == nullptr) {
        // A norm without weights loads some all the same, by ld.global.nc: from memory that no kernel writes.
        const Location any = {launch.angles->axis_of_pair, 0};
        weights_begin.include(any.memory, address_bits(launch, any));
    }
    Flat x(launch, type_uint32, 4, x_begin.memory, x_begin.address);
    Flat y(launch, type_uint32, 4, y_begin.memory, y_begin.address);
    Flat weights(launch, type_uint16, 2, weights_begin.memory, weights_begin.address);
    Numbers numbers;
    for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
        set_numbers(piece.tensors[std::min(i, piece.n_tensors - 1)], i, x, y, weights, numbers);
    }
    const auto n_heads = numbers.end.each[piece.n_tensors - 1];

    PositionArguments positions(launch, piece.positions, piece.n_tokens, positions_of_source(*launch.angles));
    AngleArguments angles(launch, {0, launch.angles->source.rotary_dim / 2});
    const LaunchPositions &given = piece.slots.place.memory != nullptr ? piece.slots : piece.positions;
    View slots(launch, given.place, type_int32, 4);
    slots.add(slots.offset() + given.n_words, 1);
    slots.add(piece.n_tokens, given.stride_token * given.n_words);

    const void *const context = &call;
    const auto n_pairs = static_cast<std::int32_t>(piece.rotary_dim / 2);
    const auto n_tokens = static_cast<std::int32_t>(piece.n_tokens), n_slots = static_cast<std::int32_t>(piece.n_slots);
    const TensorDesc &desc = *piece.tensors[0].desc;
    const std::int32_t dtype = storage_of(desc.dtype), stores_bad = piece.stores_bad, slots_offset = slots.offset();
    const auto head_dim = static_cast<std::int32_t>(desc.head_dim);
    const std::int32_t has_norms = std::ranges::any_of(numbers.norm_size.each, [](auto size) { return size != 0; });
    const std::int32_t has_roundings =
        std::ranges::any_of(numbers.rounding.each, [](auto flags) { return flags != 0; });
    Arguments all;
    all.add(context);
    positions.add_to(all);
    angles.add_to(all);
    all.add_all(launch.sin_sign, n_pairs, stores_bad, dtype, has_norms, has_roundings, head_dim, n_heads, n_tokens,
                slots, slots_offset, given.n_words, n_slots);
    const auto add_tensors = [&](const auto &...scalars) {
        const auto add_each = [&](const auto &of_tensors) {
            for (const auto &scalar : of_tensors.each) {
                all.add(scalar);
            }
        };
        (add_each(scalars), ...);
    };
    add_tensors(numbers.end, numbers.x_at, numbers.x_head, numbers.x_token, numbers.y_at, numbers.y_head,
                numbers.y_token, numbers.y_block, numbers.block_size, numbers.out, numbers.reciprocal,
                numbers.rotary_offset, numbers.interleaves, numbers.norm_offset, numbers.norm_size, numbers.eps,
                numbers.rounding, numbers.weight_kind, numbers.weight_at);
    all.add_all(weights.view(), x.view(), y.view());
    return gpu_helpers(target_of(launch.queue->device)).road(all.get());
}

}  // namespace

bool can_share_launch(const Launch &launch, const RoadTensor &a, const RoadTensor &b) noexcept {
    const bool is_opencl = launch.queue->device == HALYARD_OPENCL;
    const bool has_weights = a.weight.memory != nullptr && b.weight.memory != nullptr;
    const bool in_one_place =
        a.x.memory == b.x.memory && a.y.memory == b.y.memory && (!has_weights || a.weight.memory == b.weight.memory);
    return a.desc->dtype == b.desc->dtype && a.desc->head_dim == b.desc->head_dim && (!is_opencl || in_one_place);
}

int take_road_on_device(const Launch &launch, const RoadPiece &whole, Call &call) noexcept {
    const bool has_slots = whole.slots.place.memory != nullptr;
    const std::int64_t at_once = std::min(most_positions(launch, whole.positions),
                                          has_slots ? most_positions(launch, whole.slots) : whole.n_tokens);
    RoadPiece piece = whole;
    const auto advance = [](LaunchPositions &positions, std::int64_t n) {
        positions.place = moved(positions.place, n * positions.stride_token * positions.n_words * 4);
        positions.start += n * positions.step;
    };
    for (std::int64_t token = 0; token < whole.n_tokens; token += at_once) {
        piece.n_tokens = std::min(at_once, whole.n_tokens - token);
        if (const int status = launch_road(launch, piece, call)) {
            return status;
        }
        advance(piece.positions, piece.n_tokens);
        advance(piece.slots, piece.n_tokens);
        for (int i = 0; i < piece.n_tensors; i++) {
            RoadTensor &tensor = piece.tensors[i];
            const std::int64_t in_bytes = element_bytes(tensor.desc->dtype);
            tensor.x = moved(tensor.x, piece.n_tokens * tensor.in.token * in_bytes);
            if (!tensor.desc->cache) {
                tensor.y = moved(tensor.y, piece.n_tokens * tensor.out.token * element_bytes(tensor.desc->out_dtype));
            }
        }
    }
    return 0;
}

const char *road_obstacle(const Launch &launch, const RoadTensor &tensor) noexcept {
    constexpr std::int64_t most_heads = 65535 * 4 / HALYARD_MAX_TENSORS;  // in blocks of 4, shared by all tensors
    const TensorDesc &desc = *tensor.desc;
    const std::int64_t in_bytes = element_bytes(desc.dtype), out_bytes = element_bytes(desc.out_dtype);
    std::int64_t steps = (tensor.in.token | tensor.in.head) * in_bytes;
    steps |= desc.cache ? (desc.cache->stride_block | desc.cache->stride_head | desc.cache->stride_token) * out_bytes
                        : (tensor.out.token | tensor.out.head) * out_bytes;
    const auto bits =
        address_bits(launch, tensor.x) | address_bits(launch, tensor.y) | static_cast<std::uint64_t>(steps);
    if ((desc.head_dim > 1 && (tensor.in.element != 1 || (!desc.cache && tensor.out.element != 1))) ||
        bits % wide_bytes != 0) {
        return "has heads that are not dense or do not begin on 16 bytes, in x or where they go: a device does no more "
               "than rotate those";
    }
    if (tensor.weight.memory != nullptr &&
        address_bits(launch, tensor.weight) % static_cast<std::uint64_t>(element_bytes(*desc.norm->weight)) != 0) {
        return "has a weight that is not aligned to its elements";
    }
    return tensor.n_heads > most_heads ? "has more than 65,535 heads" : "";
}

}  // namespace halyard::gpu
