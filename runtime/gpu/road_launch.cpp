#include "gpu/road_launch.h"

#include "gpu/gpu_kernels.h"
#include "gpu/launch_arguments.h"

#include <algorithm>

namespace halyard::gpu {

namespace {

constexpr std::int64_t quad = FlatMemory::quad_bytes;

/// All inputs, outputs or weights of a launch as one array: with OpenCL a buffer, with CUDA all memory from the first
/// of them on.
class Flat {
public:
    explicit Flat(const Launch &launch) : launch_(launch) {}

    /// `begin` is counted as addresses are.
    void include(void *memory, std::uintptr_t begin) {
        memory_ = memory;
        base_ = is_opencl() ? 0 : std::min(base_, begin / quad * quad);
    }
    bool is_empty() const { return memory_ == nullptr; }

    Location begin() const {
        return is_opencl() ? Location{memory_, 0} : Location{nullptr, static_cast<std::int64_t>(base_)};
    }
    /// The bytes to a place.
    std::int64_t to(const Location &place) const {
        const auto address = is_opencl() ? 0 : reinterpret_cast<std::uintptr_t>(place.memory) - base_;
        return static_cast<std::int64_t>(address) + place.offset;
    }
    static View &add_dimensions(View &view, std::int64_t element_bytes) {
        const std::int64_t in_quad = quad / element_bytes;
        return view.add(in_quad, 1)
            .add(FlatMemory::most, in_quad)
            .add(FlatMemory::most, FlatMemory::quads_in_row * in_quad);
    }

private:
    const Launch &launch_;
    void *memory_ = nullptr;
    std::uintptr_t base_ = UINTPTR_MAX;

    bool is_opencl() const { return launch_.queue->device == HALYARD_OPENCL; }
};

/// Sets the scalars of a tensor.
void set_tensor(Fields::Road &to, int i, const RoadTensor &tensor, const Flat &x, const Flat &y, const Flat &weights) {
    const TensorDesc &desc = *tensor.desc;
    const std::int64_t in_bytes = element_bytes(desc.dtype), out_bytes = element_bytes(desc.out_dtype);
    to.end[i] = (i == 0 ? 0 : to.end[i - 1]) + static_cast<std::int32_t>(tensor.n_heads);
    to.x_at[i] = x.to(tensor.x) / quad;
    to.x_head[i] = tensor.in.head * in_bytes / quad;
    to.x_token[i] = tensor.in.token * in_bytes / quad;
    to.y_at[i] = y.to(tensor.y) / quad;
    to.y_head[i] = (desc.cache ? desc.cache->stride_head : tensor.out.head) * out_bytes / quad;
    to.y_token[i] = (desc.cache ? desc.cache->stride_token : tensor.out.token) * out_bytes / quad;
    to.y_block[i] = desc.cache ? desc.cache->stride_block * out_bytes / quad : 0;
    to.block_size[i] = desc.cache ? static_cast<std::int32_t>(desc.cache->block_size) : 0;
    to.out[i] = number_of(desc.out_dtype);
    to.reciprocal[i] = tensor.reciprocal;
    to.rotary_offset[i] = desc.rotates ? static_cast<std::int32_t>(desc.rotary_offset) : -1;
    to.interleaves[i] = (desc.pairing == Pairing::interleaved ? Fields::Road::input_interleaves : 0) |
                        (desc.out_pairing == Pairing::interleaved ? Fields::Road::output_interleaves : 0);
    if (desc.norm) {
        to.norm_offset[i] = static_cast<std::int32_t>(desc.norm->offset);
        to.norm_size[i] = static_cast<std::int32_t>(desc.norm->size);
        to.eps[i] = desc.norm->eps;
        to.rounding[i] = desc.norm->rounding;
    }
    if (desc.norm && desc.norm->weight) {
        to.weight_kind[i] =
            Fields::Road::kind_of(*desc.norm->weight) | (desc.norm->unit_offset ? Fields::Road::adds_one : 0);
        to.weight_at[i] = weights.to(tensor.weight) / 2;
    }
}

/// Sets the slots of some tokens. Without slots the kernel loads other memory and ignores it.
void set_slots(Fields::Road &to, const Launch &launch, const RoadPiece &piece) {
    const LaunchPositions &given = piece.slots.place.memory != nullptr ? piece.slots : piece.positions;
    View &view = to.slots.begin_at(launch, given.place);
    view.add(view.offset() + given.n_words, 1).add(piece.n_tokens, given.stride_token * given.n_words);
    to.slots_offset = view.offset();
    to.n_slot_words = given.n_words;
    to.n_slots = static_cast<std::int32_t>(piece.n_slots);
}

int launch_road(const Launch &launch, const RoadPiece &piece, Call &call) {
    Flat x(launch), y(launch), weights(launch);
    bool has_norms = false, has_roundings = false;
    for (int i = 0; i < piece.n_tensors; i++) {
        const RoadTensor &tensor = piece.tensors[i];
        x.include(tensor.x.memory, tensor.x_begin);
        y.include(tensor.y.memory, tensor.y_begin);
        if (tensor.weight.memory != nullptr) {
            weights.include(tensor.weight.memory, address_bits(launch, tensor.weight));
        }
        has_norms = has_norms || tensor.desc->norm;
        has_roundings = has_roundings || (tensor.desc->norm && tensor.desc->norm->rounding != 0);
    }
    if (weights.is_empty()) {
        // A norm without weights loads weights all the same, by ld.global.nc: so from memory that no kernel writes.
        const Location any = {launch.angles->axis_of_pair, 0};
        weights.include(any.memory, address_bits(launch, any));
    }
    const TensorDesc &desc = *piece.tensors[0].desc;
    Arguments all;
    Fields::Road fields{all};
    set_angles(fields.angles, launch, piece.positions, piece.n_tokens, {0, launch.angles->source.rotary_dim / 2});
    fields.sin_sign = launch.sin_sign;
    fields.n_pairs = static_cast<std::int32_t>(piece.rotary_dim / 2);
    fields.stores_bad = piece.stores_bad;
    fields.dtype = number_of(desc.dtype);
    fields.has_norms = has_norms;
    fields.has_roundings = has_roundings;
    fields.head_dim = static_cast<std::int32_t>(desc.head_dim);
    fields.n_tokens = static_cast<std::int32_t>(piece.n_tokens);
    set_slots(fields, launch, piece);
    for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
        set_tensor(fields, i, piece.tensors[std::min(i, piece.n_tensors - 1)], x, y, weights);
    }
    fields.n_heads = fields.end[piece.n_tensors - 1];
    Flat::add_dimensions(fields.weights.begin_at(launch, weights.begin()), 2);
    Flat::add_dimensions(fields.x.begin_at(launch, x.begin()), 4);
    View out(launch, y.begin(), halide_type<std::uint32_t>);
    all.add(Flat::add_dimensions(out, 4));
    return gpu_helpers(target_of(launch.queue->device)).road(all.get(call));
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
    for (std::int64_t token = 0; token < whole.n_tokens; token += at_once) {
        piece.n_tokens = std::min(at_once, whole.n_tokens - token);
        if (const int status = launch_road(launch, piece, call)) {
            return status;
        }
        piece.positions = from_token(piece.n_tokens, piece.positions);
        piece.slots = from_token(piece.n_tokens, piece.slots);
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

const char *why_not(const Launch &launch, const RoadTensor &tensor) noexcept {
    constexpr std::int64_t most_heads = most_blocks * road_heads_in_block / HALYARD_MAX_TENSORS;  // of all tensors
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
