#include "calls/call.h"

#include <numeric>

namespace halyard::python {
namespace {

constexpr const char *tensor_names[] = {"q", "k", "v"};

/// Reads x, three tensors or None, and where they go. `stages` is None, or (norms, scales, caches, dtypes,
/// cache_layouts, slots, duplicate_slots, position_scales, hadamard, groups, from_groups, group_scales,
/// from_group_scales), all but slots and duplicate_slots with one for each tensor, as y and offsets have.
void read_tensors(nb::handle x, nb::handle y, nb::handle offsets, nb::handle stages, const Options &options,
                  Tensors &tensors) {
    Part part{0, 0, std::accumulate(options.heads.begin(), options.heads.end(), std::int64_t{0}), options.head_dim};
    for (std::size_t i = 0; i < max_tensors; ++i) {
        const bool is_part = i < options.heads.size();
        if (!is_part && at(x, i).is_none() && (i > 0 || !at(x, 2).is_none())) {  // q is left out where v comes alone
            continue;
        }
        StageArguments arguments;
        if (!stages.is_none()) {
            const auto of = [&](std::size_t stage) { return at(at(stages, stage), i); };
            arguments = {of(0), of(1), of(2), of(3), of(4), of(7), of(8), of(9), of(10), of(11), of(12)};
        }
        auto &road = tensors.roads[tensors.n];
        part.first += part.n;
        part.n = is_part ? options.heads[i] : 0;
        road.read(tensor_names[i], at(x, is_part ? 0 : i), at(y, i), options.layout, arguments,
                  tensors.n == 0 ? Array::anywhere : tensors.roads[0].input().device(), is_part ? &part : nullptr);
        road.desc.rotary_offset = nb::cast<std::int64_t>(at(offsets, i));
        road.kv.no_rotation = i == 2 ? 1 : 0;
        tensors.take();
    }
}

}  // namespace

/// Positions that are left out are 0, 1, 2, …, which is meant where one sequence is read from its start. A step of
/// decoding would be turned by nothing, and of a batch or a cache it is the rows' own positions that matter.
void require_positions(const AngleSource &angles, const Tensors &tensors) {
    const char *const why = tensors.roads[0].has_batch() ? "q has a batch"
                            : tensors.n_slots() != 0     ? "tokens go into a cache"
                            : tensors.x[0].shape[1] == 1 ? "q has one token"
                                                         : nullptr;
    const bool is_empty = tensors.x[0].shape[0] == 0 || tensors.x[0].shape[1] == 0;
    const bool rotates =
        std::any_of(tensors.descs.begin(), tensors.descs.begin() + static_cast<std::ptrdiff_t>(tensors.n),
                    [](const halyard_tensor_desc &desc) { return desc.kv->no_rotation == 0; });
    if (why != nullptr && rotates && !angles.by_token && !is_empty) {
        refuse(HALYARD_ERROR_MISMATCH, std::string("positions is left out, but ") + why +
                                           ": say where the tokens are (0, if they start at position 0)");
    }
}

Call::Call(AngleSource &angles, nb::handle x, nb::handle y, nb::handle positions, nb::handle offsets, nb::handle stages,
           const Options &options) {
    const auto [from, to] = options.pairings(angles);
    read_tensors(x, y, offsets, stages, options, tensors);
    for (auto &each : tensors.descs) {
        each.pairing = from;
        each.out_pairing = to;
    }
    desc = tensors.describe(angles, options);
    device = tensors.roads[0].input().device();
    args = tensors.make_args(options);
    args.angles = angles.source.get();
    args.positions = read_positions.emplace().read("positions", positions, angles.n_axes, device);
    if (!stages.is_none()) {
        tensors.kv.slots = read_slots.emplace().read(at(stages, 5), read<std::string>(stages, 6, "duplicate_slots"),
                                               tensors.n_slots(), device);
    }
    args.kv = tensors.kv_args();
}

}  // namespace halyard::python
