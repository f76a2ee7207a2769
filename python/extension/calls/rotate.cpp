// The functions halyard._core.rotate and halyard._core.rerotate.
#include "calls/call.h"
#include "cuda.h"
#include "module.h"

#include <nanobind/stl/string.h>

namespace halyard::python {
namespace {

/// Runs a call without the GIL, so that other Python threads continue.
void run_without_gil(const plan &made, const halyard_run_args &args) {
    const nb::gil_scoped_release release;
    detail::call(halyard_run, made.get(), &args);
}

/// An addition to the error message when shapes do not agree: a hint if they would agree as layout "bhsd", else "".
const char *layout_hint(const Options &options, const Tensors &tensors, const halyard_positions *positions) {
    const auto n_tokens = tensors.x[0].shape[1], n_heads = tensors.x[0].shape[2];
    const auto n_positions = positions != nullptr && positions->consecutive == 0 ? positions->shape[1] : -1;
    bool fits = !options.heads_first && n_tokens != n_heads && (n_positions < 0 || n_positions == n_heads);
    bool differs = n_positions >= 0 && n_positions != n_tokens;
    for (std::size_t i = 0; i < tensors.n; ++i) {
        fits = fits && tensors.x[i].shape[2] == n_heads;
        differs = differs || tensors.x[i].shape[1] != n_tokens;
    }
    return fits && differs ? "; if heads come before tokens, say layout=\"bhsd\"" : "";
}

/// Returns the result of each tensor. given: the tuples of _tensor.complete; how: the options.
nb::tuple rotate(AngleSource &angles, nb::handle given, nb::handle positions, nb::handle slots, nb::handle how) {
    const Options options(how);
    const Call call(angles, given, positions, slots, options);
    try {
        call.tensors.rethrow_with_tensor_names([&] {
            const auto made = call.device == Array::on_cpu ? angles.find_plan(call.desc) : nullptr;
            if (positions.is_none()) {
                require_positions(angles, call.tensors);
            }
            if (made != nullptr) {
                run_without_gil(*made, call.args);
            } else if constexpr (has_cuda) {
                run_on_cuda(angles, call.desc, call.device, call.tensors.operands[0].input().stream(), call.args);
            }
        });
    } catch (const error &refusal) {
        if (refusal.status() != HALYARD_ERROR_SHAPE) {
            throw;
        }
        refuse(refusal.status(), refusal.what(), layout_hint(options, call.tensors, call.args.positions));
    }
    nb::list results;
    for (std::size_t i = 0; i < call.tensors.n; ++i) {
        results.append(call.tensors.operands[i].result());
    }
    return nb::tuple(results);
}

/// Re-rotates keys in place or into another array. completed: a tuple like those of _tensor.complete.
void rerotate(AngleSource &angles, AngleSource &from_angles, nb::handle completed, nb::handle from_positions,
              nb::handle positions, nb::handle slots, nb::handle how) {
    const Options options(how);
    Positions read_positions, read_from;
    Slots read_slots;
    Tensors tensors;
    auto &keys = tensors.operands[0];
    tensors.kv.slots = read_slots.read(slots, options.duplicate_slots, 0);
    keys.read_keys(completed, tensors.kv.slots, options.heads_first);
    keys.desc.pairing = keys.desc.out_pairing = options.pairings(angles).second;
    tensors.append_operand();
    read_slots.make_scratch(tensors.n_slots_of_smallest_cache());
    auto desc = tensors.describe(angles, options);
    desc.rerotates = 1;
    auto args = tensors.make_args(options);
    args.angles = angles.source().get();
    args.positions = read_positions.read("positions", positions, angles.n_axes);
    tensors.kv.from_positions = read_from.read("from_positions", from_positions, from_angles.n_axes);
    tensors.kv.from_angles = from_angles.source().get();
    args.kv = tensors.kv_args();
    tensors.rethrow_with_tensor_names([&] { run_without_gil(*angles.find_plan(desc), args); });
}

}  // namespace

void add_rotate(nb::module_ &module) {
    module.def("rerotate", rerotate, nb::arg("angles"), nb::arg("from_angles"), nb::arg("keys"),
               nb::arg("from_positions").none(), nb::arg("positions").none(), nb::arg("slots").none(),
               nb::arg("options"));
    module.def("rotate", rotate, nb::arg("angles"), nb::arg("tensors"), nb::arg("positions").none(),
               nb::arg("slots").none(), nb::arg("options"));
}

}  // namespace halyard::python
