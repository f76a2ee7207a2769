#include "gpu/road_launch.h"

#include "gpu/argument_addresses.h"

#include <algorithm>

namespace halyard::gpu {

namespace {

constexpr std::int64_t quad = FlatMemory::quad_bytes;

/// All inputs, outputs or weights of a launch as one array: all memory from the first of them on.
class Flat {
public:
    void include(Address begin) { begin_ = std::min(begin_, begin / quad * quad); }
    bool is_empty() const { return begin_ == UINTPTR_MAX; }

    Address begin() const { return begin_; }
    /// The bytes to a place.
    std::int64_t to(Address place) const { return static_cast<std::int64_t>(place - begin_); }
    static View &add_dimensions(View &view, int element_bytes, bool as_lines) {
        for (const auto &[extent, stride] : FlatMemory::dimensions(FlatMemory::quad_bytes / element_bytes, as_lines)) {
            view.add(extent, stride);
        }
        return view;
    }

private:
    Address begin_ = UINTPTR_MAX;
};

/// The bytes that the kernel counts a tensor's places in y by.
std::int64_t unit_of(const RoadTensor &tensor) {
    const auto &groups = tensor.stages->groups;
    return groups && place_of(*groups) == GroupPlace::by_bytes ? 1 : quad;
}

/// Where the kernel begins to count a tensor's places in y.
std::int64_t y_at_of(const RoadTensor &tensor, const Flat &y) { return y.to(tensor.y) / unit_of(tensor); }

/// Sets the scalars of a tensor's records, of which `bytes` is the memory of what is stored by bytes. Places in y are
/// set.
void set_records(Fields::Records &to, int i, const RoadTensor &tensor, std::int64_t y_at, const Flat &bytes) {
    const GroupsDesc &groups = *tensor.stages->groups;
    const GroupPlace place = place_of(groups);
    const bool by_bytes = place == GroupPlace::by_bytes;
    const ScaleForm form = groups.scale == GroupScale::f32        ? ScaleForm::f32
                           : groups.scale == GroupScale::power_up ? ScaleForm::power_up
                                                                  : ScaleForm::power_ocp;
    const std::int64_t bits = groups.n_groups << GroupBits::n_groups | groups.group / quad << GroupBits::group |
                              static_cast<std::int64_t>(form) << GroupBits::scale |
                              std::int64_t{groups.element == Dtype::int8} << GroupBits::is_int8 |
                              static_cast<std::int64_t>(place) << GroupBits::place;
    to.groups[i] = static_cast<std::int32_t>(bits);
    to.floor[i] = groups.floor;
    to.rest_at[i] = static_cast<std::int32_t>(by_bytes ? groups.data_offset - groups.scale_offset
                                                       : (groups.raw_offset - groups.data_offset) / quad);
    if (place == GroupPlace::scales_apart) {
        to.scale_at[i] = bytes.to(tensor.scales);
        to.scale_head[i] = static_cast<std::int32_t>(tensor.scale_head);
        to.scale_token[i] = static_cast<std::int32_t>(tensor.scale_token);
        to.scale_block[i] = static_cast<std::int32_t>(tensor.scale_block);
    } else {
        to.scale_at[i] = bytes.to(tensor.y) + groups.scale_offset - y_at * unit_of(tensor);
    }
    const std::int64_t strides = (groups.n_groups > 1 ? groups.scale_stride : 0) |
                                 (by_bytes && groups.n_groups > 1 ? groups.data_stride : 0) << GroupBits::stride_bits;
    to.group_strides[i] = static_cast<std::int32_t>(strides);
}

/// Sets the scalars of a tensor.
void set_tensor(Fields::Road &to, int i, const RoadTensor &tensor, const Flat &x, const Flat &y, const Flat &weights) {
    const TensorPlan &desc = *tensor.desc;
    const auto &norm = tensor.stages->norm;
    const auto &cache = tensor.stages->cache;
    to.end[i] = (i == 0 ? 0 : to.end[i - 1]) + static_cast<std::int32_t>(tensor.n_heads);
    to.x_at[i] = x.to(tensor.x) / quad;
    to.x_head[i] = tensor.in.head * desc.bytes / quad;
    to.x_token[i] = tensor.in.token * desc.bytes / quad;
    const std::int64_t unit = unit_of(tensor);
    to.y_at[i] = y_at_of(tensor, y);
    to.y_head[i] = (cache ? cache->stride_head : tensor.out.head) * desc.out_bytes / unit;
    to.y_token[i] = (cache ? cache->stride_token : tensor.out.token) * desc.out_bytes / unit;
    to.y_block[i] = cache ? cache->stride_block * desc.out_bytes / unit : 0;
    to.block_size[i] = cache ? static_cast<std::int32_t>(cache->block_size) : 0;
    to.out[i] = number_of(tensor.stages->groups ? Dtype::bf16 : desc.out_dtype);
    to.reciprocal[i] = tensor.reciprocal;
    to.rotary_offset[i] = desc.rotates ? static_cast<std::int32_t>(desc.rotary_offset) : -1;
    to.interleaves[i] = (desc.pairing == Pairing::interleaved ? Fields::Road::input_interleaves : 0) |
                        (desc.out_pairing == Pairing::interleaved ? Fields::Road::output_interleaves : 0);
    if (norm) {
        to.norm_offset[i] = static_cast<std::int32_t>(norm->offset);
        to.norm_size[i] = static_cast<std::int32_t>(norm->size);
        to.eps[i] = norm->eps;
        to.rounding[i] = norm->rounding;
    }
    if (norm && norm->weight) {
        to.weight_kind[i] = Fields::Road::kind_of(*norm->weight) | (norm->unit_offset ? Fields::Road::adds_one : 0);
        to.weight_at[i] = weights.to(tensor.weight) / 2;
    }
}

/// The kernel of a launch that is plain as a whole; NULL where there is none.
const PlainRoadKernel *plain_kernel(const RoadPiece &piece) {
    const PlainRoadKernel *kernel = nullptr;
    for (int i = 0; i < piece.n_tensors; i++) {
        const RoadTensor &tensor = piece.tensors[i];
        kernel = plain_road_of(*tensor.desc, *tensor.stages, piece.rotary_dim);
        if (kernel == nullptr || tensor.weight % quad != 0) {
            return nullptr;
        }
    }
    return kernel;
}

/// Sets what a launch has besides for records. What is no record has no groups.
void set_all_records(Fields::Records &to, const RoadPiece &piece, const Flat &y, const Flat &bytes) {
    std::int64_t most_groups = 0, most_bytes = 0;
    for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
        const RoadTensor &tensor = piece.tensors[std::min(i, piece.n_tensors - 1)];
        if (const std::optional<GroupsDesc> &groups = tensor.stages->groups) {
            set_records(to, i, tensor, y_at_of(tensor, y), bytes);
            const std::int64_t by_bytes = place_of(*groups) == GroupPlace::by_bytes ? groups->n_grouped : 0;
            most_groups = std::max(most_groups, groups->n_groups);
            most_bytes = std::max(most_bytes, groups->n_groups * groups->scale_bytes() + by_bytes);
        }
    }
    to.most_groups = static_cast<std::int32_t>(most_groups);
    to.most_bytes = static_cast<std::int32_t>(most_bytes);
}

int launch_road(const Launch &launch, const RoadPiece &piece, Call &call) {
    Flat x, y, weights, bytes;
    bool has_norms = false, has_roundings = false;
    for (int i = 0; i < piece.n_tensors; i++) {
        const RoadTensor &tensor = piece.tensors[i];
        x.include(tensor.x_begin);
        y.include(tensor.y_begin);
        if (tensor.weight != 0) {
            weights.include(tensor.weight);
        }
        const auto &norm = tensor.stages->norm;
        const auto &groups = tensor.stages->groups;
        if (groups) {
            bytes.include(groups->scales_apart ? tensor.scales_begin : tensor.y_begin);
        }
        has_norms = has_norms || norm;
        has_roundings = has_roundings || (norm && norm->rounding != 0);
    }
    if (weights.is_empty()) {
        // A norm without weights loads weights all the same, by ld.global.nc: so from memory that no kernel writes.
        weights.include(address_of(launch.angles->axis_of_pair));
    }
    const TensorPlan &desc = *piece.tensors[0].desc;
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
    // Without slots the kernel loads other memory and ignores it.
    set_slots(fields, piece.slots.place != 0 ? piece.slots : piece.positions, piece.n_tokens);
    fields.n_slots = static_cast<std::int32_t>(piece.n_slots);
    for (int i = 0; i < HALYARD_MAX_TENSORS; i++) {
        set_tensor(fields, i, piece.tensors[std::min(i, piece.n_tensors - 1)], x, y, weights);
    }
    fields.n_heads = fields.end[piece.n_tensors - 1];
    const PlainRoadKernel *const plain = plain_kernel(piece);
    Flat::add_dimensions(fields.weights.begin_at(weights.begin()), 2, plain != nullptr);
    Flat::add_dimensions(fields.x.begin_at(x.begin()), 4, plain != nullptr);
    const GpuHelpers &kernels = gpu_helpers();
    std::optional<Fields::Records> records;
    if (!bytes.is_empty()) {
        set_all_records(records.emplace(all), piece, y, bytes);
    }
    View out(y.begin(), halide_type<std::uint32_t>);
    all.add(Flat::add_dimensions(out, 4, plain != nullptr));
    if (!records) {
        return (plain != nullptr ? plain->function : kernels.road)(all.get(call));
    }
    View out_bytes(bytes.begin(), halide_type<std::uint8_t>);
    all.add(Flat::add_dimensions(out_bytes, 1, false));
    return kernels.road_records(all.get(call));
}

}  // namespace

GroupPlace place_of(const GroupsDesc &groups) noexcept {
    return groups.scales_apart ? GroupPlace::scales_apart
           : groups.n_raw != 0 ? GroupPlace::by_quads
                               : GroupPlace::by_bytes;
}

const PlainRoadKernel *plain_road_of(const TensorPlan &desc, const KvTensor &stages, std::int64_t rotary_dim) noexcept {
    const bool by_halves = desc.pairing == Pairing::half && desc.out_pairing == Pairing::half;
    const auto is_plain = [&](const auto &norm) {
        return norm.size == desc.head_dim && norm.rounding == 0 && !norm.unit_offset &&
               (!norm.weight || *norm.weight == desc.dtype);
    };
    const bool can_be = rotary_dim == desc.head_dim && !stages.scale && desc.out_dtype == desc.dtype &&
                        (!desc.rotates || by_halves) && (!stages.norm || is_plain(*stages.norm));
    return can_be ? select_plain_road(desc.dtype, desc.head_dim) : nullptr;
}

int take_road_on_device(const Launch &launch, const RoadPiece &whole, Call &call) noexcept {
    const std::int64_t at_once = std::min(most_positions(whole.positions),
                                          whole.slots.place != 0 ? most_positions(whole.slots) : whole.n_tokens);
    return in_steps(whole.n_tokens, at_once, [&](std::int64_t token, std::int64_t n_tokens) {
        RoadPiece piece = whole;
        piece.n_tokens = n_tokens;
        piece.positions = from_token(token, whole.positions);
        piece.slots = from_token(token, whole.slots);
        for (int i = 0; i < piece.n_tensors; i++) {
            RoadTensor &tensor = piece.tensors[i];
            tensor.x = moved(tensor.x, token * tensor.in.token * tensor.desc->bytes);
            if (!tensor.stages->cache) {
                tensor.y = moved(tensor.y, token * tensor.out.token * tensor.desc->out_bytes);
                tensor.scales = moved(tensor.scales, token * tensor.scale_token);
            }
        }
        return launch_road(launch, piece, call);
    });
}

const char *why_not(const RoadTensor &tensor) noexcept {
    constexpr std::int64_t most_heads = most_blocks * road_heads_in_block / HALYARD_MAX_TENSORS;  // of all tensors
    const TensorPlan &desc = *tensor.desc;
    const auto &cache = tensor.stages->cache;
    const bool by_bytes = unit_of(tensor) == 1;
    std::int64_t steps = (tensor.in.token | tensor.in.head) * desc.bytes;
    if (!by_bytes) {
        steps |= (cache ? cache->stride_block | cache->stride_head | cache->stride_token
                        : tensor.out.token | tensor.out.head) *
                 desc.out_bytes;
    }
    const auto bits = tensor.x | (by_bytes ? 0 : tensor.y) | static_cast<std::uint64_t>(steps);
    if (tensor.in.element != 1 || (!cache && tensor.out.element != 1) || bits % wide_bytes != 0) {
        return "has heads that are not dense or do not begin on 16 bytes, in x or where they go: a device does no more "
               "than rotate those";
    }
    if (tensor.weight != 0 &&
        tensor.weight % static_cast<std::uint64_t>(element_bytes(*tensor.stages->norm->weight)) != 0) {
        return "has a weight that is not aligned to its elements";
    }
    for (const std::int64_t stride : {tensor.scale_block, tensor.scale_token, tensor.scale_head}) {
        if (stride < INT32_MIN || stride > INT32_MAX) {
            return "has scales of groups that lie more than 2^31 bytes apart from block, token or head to the next";
        }
    }
    return tensor.n_heads > most_heads ? "has more than 65,535 heads" : "";
}

}  // namespace halyard::gpu
