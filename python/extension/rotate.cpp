#include "rotate.h"

#include "angles.h"
#include "names.h"
#include "road.h"

#include <nanobind/stl/optional.h>

#include <array>
#include <map>
#include <optional>
#include <vector>

namespace nb = nanobind;

namespace halyard::python {
namespace {

constexpr const char *tensor_names[] = {"q", "k", "v"};
constexpr std::size_t max_tensors = std::size(tensor_names);

using Word = std::optional<const char *>;  // or None

/// The pool of so many threads, which is kept for the next call; NULL for one thread.
const halyard_executor *find_executor(std::int32_t n_threads) {
    if (n_threads == 1) {
        return nullptr;
    }
    static auto *const pools = new std::map<std::int32_t, pool>;  // threads are not joined where the process ends
    auto found = pools->find(n_threads);
    if (found == pools->end()) {
        found = pools->emplace(n_threads, pool(n_threads)).first;
    }
    return found->second.executor();
}

/// Positions as the C ABI has them, and what they point into.
class Positions {
public:
    /// NULL where the argument is None.
    const halyard_positions *read(nb::handle argument, std::int64_t n_axes) {
        if (argument.is_none()) {
            return nullptr;
        }
        positions_ = make_struct<halyard_positions>();
        positions_.n_axes = n_axes;
        if (PyLong_Check(argument.ptr()) || (PyIndex_Check(argument.ptr()) && !nb::hasattr(argument, "__dlpack__"))) {
            read_start(argument);
            return &positions_;
        }
        array_.emplace(argument, "positions");
        const auto &array = *array_;
        positions_.type = array.index_type();
        positions_.data = array.data();
        const int own = n_axes > 1 ? 1 : 0, n = array.n_dims() - own;
        if ((n != 1 && n != 2) || (own == 1 && array.size(0) != n_axes)) {
            const auto axes = own == 1 ? std::to_string(n_axes) + ", " : "";
            refuse(HALYARD_ERROR_SHAPE, "positions has the shape " + array.shape_text() + ", but has to be [" + axes +
                                            "tokens] or [" + axes + "batch, tokens]");
        }
        positions_.stride_axis = own == 1 ? array.stride(0) : 0;
        positions_.shape[0] = n == 2 ? array.size(own) : 1;
        positions_.strides[0] = n == 2 ? array.stride(own) : 0;
        positions_.shape[1] = array.size(own + n - 1);
        positions_.strides[1] = array.stride(own + n - 1);
        return &positions_;
    }

private:
    void read_start(nb::handle argument) {
        const auto index = nb::steal(PyNumber_Index(argument.ptr()));
        int overflow = 0;
        start_ = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
        if (overflow != 0) {
            refuse(HALYARD_ERROR_POSITION, "positions is a start that is not an int32");
        }
        positions_.type = HALYARD_INT64;
        positions_.consecutive = 1;
        positions_.data = &start_;
        positions_.shape[0] = positions_.shape[1] = 1;
    }

    halyard_positions positions_{};
    std::optional<Array> array_;
    std::int64_t start_ = 0;
};

/// Slots as the C ABI has them, what they point into, and the scratch in which doubled ones are found.
class Slots {
public:
    /// NULL where the argument is None.
    const halyard_slots *read(nb::handle argument, const char *duplicates, std::int64_t n_slots) {
        if (argument.is_none()) {
            return nullptr;
        }
        array_.emplace(argument, "slots");
        const auto &array = *array_;
        slots_ = make_struct<halyard_slots>();
        slots_.type = array.index_type();
        slots_.policy = value_of(slot_policies, "duplicate_slots", duplicates);
        slots_.data = array.data();
        const int n = array.n_dims();
        if (n != 1 && n != 2) {
            refuse(HALYARD_ERROR_SHAPE,
                   "slots has the shape " + array.shape_text() + ", but has to be [tokens] or [batch, tokens]");
        }
        slots_.shape[0] = n == 2 ? array.size(0) : 1;
        slots_.strides[0] = n == 2 ? array.stride(0) : 0;
        slots_.shape[1] = array.size(n - 1);
        slots_.strides[1] = array.stride(n - 1);
        if (slots_.policy == HALYARD_SLOTS_CHECK) {
            scratch_.resize(static_cast<std::size_t>(n_slots / 8 + 1));
            slots_.scratch = scratch_.data();
            slots_.scratch_bytes = static_cast<std::int64_t>(scratch_.size());
        }
        return &slots_;
    }

private:
    halyard_slots slots_{};
    std::optional<Array> array_;
    std::vector<unsigned char> scratch_;
};

/// The member i of a tuple that has one for each tensor.
nb::handle at(nb::handle tuple, std::size_t i) { return PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i)); }

/// A pairing by its name; by default the model's, and half where that is not known.
std::int32_t read_pairing(const char *argument, Word name, std::int32_t otherwise) {
    return name ? value_of(pairings, argument, *name) : otherwise;
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
        road.read(tensor_names[i], at(x, i), at(y, i), Layout{heads_first}, stages.is_none() ? nullptr : &arguments);
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
    const auto made = angles.find_plan(desc);

    Positions read_positions;
    Slots read_slots;
    auto args = make_struct<halyard_run_args>();
    args.bad_position = value_of(bad_positions, "bad_position", bad_position);
    args.angles = rotates ? angles.source.get() : nullptr;
    args.positions = rotates ? read_positions.read(positions, angles.n_axes) : nullptr;
    args.x = inputs.data();
    args.y = outputs.data();
    args.executor = find_executor(threads);
    args.stages = has_stages ? brought.data() : nullptr;
    if (!stages.is_none()) {
        args.slots = read_slots.read(at(stages, 5), nb::cast<const char *>(at(stages, 6)), n_slots);
    }
    auto details = make_struct<halyard_error>();
    halyard_status status = HALYARD_OK;
    {
        nb::gil_scoped_release release;
        status = halyard_run(made->get(), &args, &details);
    }
    detail::check(status, details);
}

}  // namespace

void add_rotate(nb::module_ &module) {
    module.def("rotate", rotate, nb::arg("angles"), nb::arg("x"), nb::arg("y"), nb::arg("positions").none(),
               nb::arg("offsets"), nb::arg("pairing").none(), nb::arg("out_pairing").none(), nb::arg("inverse"),
               nb::arg("heads_first"), nb::arg("bad_position"), nb::arg("threads"), nb::arg("target").none(),
               nb::arg("stages").none());
}

}  // namespace halyard::python
