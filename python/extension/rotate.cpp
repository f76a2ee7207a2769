#include "rotate.h"

#include "angles.h"
#include "gpu.h"
#include "names.h"
#include "road.h"
#include "tokens.h"

#include <nanobind/stl/optional.h>

#include <array>
#include <optional>

namespace nb = nanobind;

namespace halyard::python {
namespace {

constexpr const char *tensor_names[] = {"q", "k", "v"};
constexpr std::size_t max_tensors = std::size(tensor_names);

using Word = std::optional<const char *>;  // or None

/// The member i of a tuple that has one for each tensor.
nb::handle at(nb::handle tuple, std::size_t i) { return PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i)); }

/// A pairing by its name; by default the model's, and half where that is not known.
std::int32_t read_pairing(const char *argument, Word name, std::int32_t otherwise) {
    return name ? value_of(pairings, argument, *name) : otherwise;
}

/// Runs, and lets the interpreter go on meanwhile.
void run_released(const plan &made, const halyard_run_args &args) {
    auto details = make_struct<halyard_error>();
    halyard_status status = HALYARD_OK;
    {
        nb::gil_scoped_release release;
        status = halyard_run(made.get(), &args, &details);
    }
    detail::check(status, details);
}

/// Rotates x, three tensors or None, into y or caches. `stages` is None, or (norms, scales, caches, dtypes,
/// cache_layout, slots, duplicate_slots), the first four with one for each tensor.
void rotate(AngleSource &angles, nb::tuple x, nb::tuple y, nb::handle positions, nb::tuple offsets, Word pairing,
            Word out_pairing, bool inverse, bool heads_first, const char *bad_position, std::int32_t threads,
            Word target, nb::handle stages) {
    std::array<Road, max_tensors> roads;
    std::array<halyard_tensor_desc, max_tensors> descs{};
    std::array<halyard_tensor, max_tensors> inputs{}, outputs{};
    std::array<halyard_stages, max_tensors> brought{};
    const auto own = angles.pairing != 0 ? angles.pairing : std::int32_t{HALYARD_PAIRING_HALF};
    const auto own_out = angles.out_pairing != 0 ? angles.out_pairing : own;
    const auto from = read_pairing("pairing", pairing, own);
    const auto to = read_pairing("out_pairing", out_pairing, pairing ? from : own_out);
    std::size_t n = 0;
    bool has_stages = false, rotates = false;
    std::int64_t n_slots = 0;
    for (std::size_t i = 0; i < max_tensors; ++i) {
        if (i > 0 && at(x, i).is_none()) {
            continue;
        }
        StageArguments arguments{};
        if (!stages.is_none()) {
            arguments = {at(at(stages, 0), i), at(at(stages, 1), i), at(at(stages, 2), i), at(at(stages, 3), i),
                         at(stages, 4)};
        }
        auto &road = roads[n];
        road.read(tensor_names[i], at(x, i), at(y, i), Layout{heads_first}, stages.is_none() ? nullptr : &arguments,
                  n == 0 ? Array::anywhere : roads[0].input().device());
        road.desc.pairing = from;
        road.desc.out_pairing = to;
        road.desc.rotary_offset = nb::cast<std::int64_t>(at(offsets, i));
        road.desc.no_rotation = i == 2 ? 1 : 0;
        rotates = rotates || i != 2;
        descs[n] = road.desc;
        inputs[n] = road.x;
        outputs[n] = road.y;
        brought[n] = road.stages;
        has_stages = has_stages || road.has_stages;
        if (road.desc.cache != nullptr) {
            n_slots = n_slots == 0 ? road.desc.cache->n_slots : std::min(n_slots, road.desc.cache->n_slots);
        }
        ++n;
    }
    auto desc = make_struct<halyard_plan_desc>();
    desc.direction = inverse ? HALYARD_INVERSE : HALYARD_FORWARD;
    desc.rotary_dim = angles.rotary_dim;
    desc.n_tensors = static_cast<std::int32_t>(n);
    desc.tensors = descs.data();
    desc.target = target.value_or(nullptr);
    const auto device = roads[0].input().device();

    Positions read_positions;
    Slots read_slots;
    auto args = make_struct<halyard_run_args>();
    args.bad_position = value_of(bad_positions, "bad_position", bad_position);
    args.angles = rotates ? angles.source.get() : nullptr;
    args.positions = rotates ? read_positions.read("positions", positions, angles.n_axes, device) : nullptr;
    args.x = inputs.data();
    args.y = outputs.data();
    args.executor = find_executor(threads);
    args.stages = has_stages ? brought.data() : nullptr;
    if (!stages.is_none()) {
        args.slots = read_slots.read(at(stages, 5), nb::cast<const char *>(at(stages, 6)), n_slots, device);
    }
    if (device != Array::on_cpu) {
        run_on_gpu(angles, desc, device, roads[0].input().stream(), args);
    } else {
        run_released(*angles.find_plan(desc), args);
    }
}

/// Moves keys, an array or with slots a cache, from positions to others. They are written where they lie, or to `out`.
void rerotate(AngleSource &angles, AngleSource &from_angles, nb::handle keys, nb::handle out, nb::handle from_positions,
              nb::handle positions, std::int64_t offset, Word pairing, bool inverse, bool heads_first, nb::handle scale,
              nb::handle dtype, nb::handle cache_layout, std::optional<std::int64_t> n_heads,
              std::optional<std::int64_t> head_dim, nb::handle slots, std::int32_t threads, Word target) {
    const auto own = angles.out_pairing != 0 ? angles.out_pairing
                     : angles.pairing != 0   ? angles.pairing
                                             : std::int32_t{HALYARD_PAIRING_HALF};
    StageArguments arguments{};
    arguments.scale = scale;
    arguments.dtype = dtype;
    arguments.cache_layout = cache_layout;
    Slots read_slots;
    Road road;
    const auto n_slots = road.read_keys(keys, out, slots, Layout{heads_first}, n_heads, head_dim, arguments);
    road.desc.pairing = road.desc.out_pairing = read_pairing("pairing", pairing, own);
    road.desc.rotary_offset = offset;
    auto desc = make_struct<halyard_plan_desc>();
    desc.direction = inverse ? HALYARD_INVERSE : HALYARD_FORWARD;
    desc.rotary_dim = angles.rotary_dim;
    desc.rerotates = 1;
    desc.n_tensors = 1;
    desc.tensors = &road.desc;
    desc.target = target.value_or(nullptr);
    const auto made = angles.find_plan(desc);

    Positions read_positions, read_from;
    auto args = make_struct<halyard_run_args>();
    args.angles = angles.source.get();
    args.from_angles = from_angles.source.get();
    args.positions = read_positions.read("positions", positions, angles.n_axes);
    args.from_positions = read_from.read("from_positions", from_positions, from_angles.n_axes);
    args.x = &road.x;
    args.y = &road.y;
    args.executor = find_executor(threads);
    args.slots = read_slots.read(slots, "error", n_slots);
    args.stages = road.has_stages ? &road.stages : nullptr;
    run_released(*made, args);
}

}  // namespace

void add_rotate(nb::module_ &module) {
    module.def("rerotate", rerotate, nb::arg("angles"), nb::arg("from_angles"), nb::arg("keys"), nb::arg("out").none(),
               nb::arg("from_positions"), nb::arg("positions").none(), nb::arg("offset"), nb::arg("pairing").none(),
               nb::arg("inverse"), nb::arg("heads_first"), nb::arg("scale").none(), nb::arg("dtype").none(),
               nb::arg("cache_layout"), nb::arg("n_heads").none(), nb::arg("head_dim").none(), nb::arg("slots").none(),
               nb::arg("threads"), nb::arg("target").none());
    module.def("rotate", rotate, nb::arg("angles"), nb::arg("x"), nb::arg("y"), nb::arg("positions").none(),
               nb::arg("offsets"), nb::arg("pairing").none(), nb::arg("out_pairing").none(), nb::arg("inverse"),
               nb::arg("heads_first"), nb::arg("bad_position"), nb::arg("threads"), nb::arg("target").none(),
               nb::arg("stages").none());
}

}  // namespace halyard::python
