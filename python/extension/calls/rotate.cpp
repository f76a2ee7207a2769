// halyard._core.rotate and rerotate.
#include "calls/call.h"
#include "gpu.h"
#include "module.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <optional>

namespace nb = nanobind;

namespace halyard::python {
namespace {

/// Runs, and lets the interpreter go on meanwhile.
void run_released(const plan &made, const halyard_run_args &args) {
    const nb::gil_scoped_release release;
    detail::call(halyard_run, made.get(), &args);
}

/// What tensors and positions that do not fit each other may mean instead.
const char *guess_layout(const Options &options, const Tensors &tensors, const halyard_positions *positions) {
    const auto n_tokens = tensors.x[0].shape[1], n_heads = tensors.x[0].shape[2];
    bool fits = !options.layout.heads_first && n_tokens != n_heads;
    bool differs = positions != nullptr && positions->consecutive == 0 && positions->shape[1] != n_tokens;
    for (std::size_t i = 0; i < tensors.n; ++i) {
        fits = fits && tensors.x[i].shape[2] == n_heads;
        differs = differs || tensors.x[i].shape[1] != n_tokens;
    }
    fits = fits && (positions == nullptr || positions->consecutive != 0 || positions->shape[1] == n_heads);
    return fits && differs ? "; if heads come before tokens, say layout=\"bhsd\"" : "";
}

void rotate(AngleSource &angles, nb::tuple x, nb::tuple y, nb::handle positions, nb::tuple offsets, nb::handle stages,
            nb::tuple how) {
    const Options options(how);
    const Call call(angles, x, y, positions, offsets, stages, options);
    try {
        const auto made = call.device == Array::on_cpu ? angles.find_plan(call.desc) : nullptr;
        if (positions.is_none()) {
            require_positions(angles, call.tensors);
        }
        if (made == nullptr) {
            run_on_gpu(angles, call.desc, call.device, call.tensors.roads[0].input().stream(), call.args);
        } else {
            run_released(*made, call.args);
        }
    } catch (const error &refusal) {
        if (refusal.status() != HALYARD_ERROR_SHAPE) {
            throw;
        }
        refuse(refusal.status(),
               refusal.what() + std::string(guess_layout(options, call.tensors, call.args.positions)));
    }
}

/// Moves keys from positions to others. `told` is (keys, out, slots, offset, n_heads, head_dim, scale, dtype,
/// cache_layout, hadamard, groups, group_scales): keys are an array or with slots a cache, and go to where they lie, or
/// to `out`.
void rerotate(AngleSource &angles, AngleSource &from_angles, nb::tuple told, nb::handle from_positions,
              nb::handle positions, nb::tuple how) {
    const Options options(how);
    const auto pairing = options.pairings(angles).second;
    KeyArguments keys{at(told, 0), at(told, 1), at(told, 2)};
    keys.n_heads = read<std::optional<std::int64_t>>(told, 4, "n_heads");
    keys.head_dim = read<std::optional<std::int64_t>>(told, 5, "head_dim");
    keys.stages.scale = at(told, 6);
    keys.stages.dtype = at(told, 7);
    keys.stages.cache_layout = at(told, 8);
    keys.stages.hadamard = at(told, 9);
    keys.stages.groups = at(told, 10);
    keys.stages.group_scales = at(told, 11);
    Tensors tensors;
    auto &road = tensors.roads[0];
    road.read_keys(keys, options.layout);
    road.desc.pairing = road.desc.out_pairing = pairing;
    road.desc.rotary_offset = read<std::int64_t>(told, 3, "rotary_offset");
    tensors.take();
    auto desc = tensors.describe(angles, options);
    desc.rerotates = 1;
    const auto made = angles.find_plan(desc);

    Positions read_positions, read_from;
    Slots read_slots;
    auto args = tensors.make_args(options);
    args.angles = angles.source.get();
    args.positions = read_positions.read("positions", positions, angles.n_axes);
    tensors.kv.from_positions = read_from.read("from_positions", from_positions, from_angles.n_axes);
    tensors.kv.slots = read_slots.read(keys.slots, "error", tensors.n_slots());
    tensors.kv.from_angles = from_angles.source.get();
    args.kv = tensors.kv_args();
    run_released(*made, args);
}

}  // namespace

void add_rotate(nb::module_ &module) {
    module.def("rerotate", rerotate, nb::arg("angles"), nb::arg("from_angles"), nb::arg("keys"),
               nb::arg("from_positions"), nb::arg("positions").none(), nb::arg("how"));
    module.def("rotate", rotate, nb::arg("angles"), nb::arg("x"), nb::arg("y"), nb::arg("positions").none(),
               nb::arg("offsets"), nb::arg("stages").none(), nb::arg("how"));
}

}  // namespace halyard::python
