// halyard._core.rotate and rerotate.
#include "angles.h"
#include "gpu.h"
#include "module.h"
#include "names.h"
#include "road.h"
#include "tokens.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

namespace nb = nanobind;

namespace halyard::python {
namespace {

constexpr const char *tensor_names[] = {"q", "k", "v"};
constexpr std::size_t max_tensors = std::size(tensor_names);

/// The member i of a tuple. Those that come here have as many as are asked for.
nb::handle at(nb::handle tuple, std::size_t i) { return PyTuple_GET_ITEM(tuple.ptr(), static_cast<Py_ssize_t>(i)); }

/// The same as a number or a word; throws TypeError for what is none.
template <typename T>
T read(nb::handle tuple, std::size_t i, const char *name) {
    T value{};
    if (!nb::try_cast(at(tuple, i), value)) {
        throw nb::type_error((std::string(name) + " is a " + Py_TYPE(at(tuple, i).ptr())->tp_name).c_str());
    }
    return value;
}

/// How tensors are turned, which Python says in a tuple of these.
struct Options {
    explicit Options(nb::handle tuple)
        : pairing(read<Word>(tuple, 0, "pairing")), out_pairing(read<Word>(tuple, 1, "out_pairing")),
          is_inverse(read<bool>(tuple, 2, "inverse")), layout{value_of(layouts, "layout",
                                                                       read<std::string>(tuple, 3, "layout")) != 0},
          bad_position(read<std::string>(tuple, 4, "bad_position")), n_threads(read<std::int32_t>(tuple, 5, "threads")),
          target(read<Word>(tuple, 6, "target")) {}

    /// As tensors are read and written: by default as the model does, and by halves where that is not known.
    std::pair<std::int32_t, std::int32_t> pairings(const AngleSource &angles) const {
        const auto own = angles.pairing != 0 ? angles.pairing : std::int32_t{HALYARD_PAIRING_HALF};
        const auto own_out = angles.out_pairing != 0 ? angles.out_pairing : own;
        const auto from = pairing ? value_of(python::pairings, "pairing", *pairing) : own;
        const auto otherwise = pairing ? from : own_out;
        return {from, out_pairing ? value_of(python::pairings, "out_pairing", *out_pairing) : otherwise};
    }

    using Word = std::optional<const char *>;  // or None
    Word pairing, out_pairing;
    bool is_inverse;
    HeadOrder layout;
    std::string bad_position;
    std::int32_t n_threads;
    Word target;
};

/// The tensors of a call side by side, as the C ABI takes them, and what they point into.
struct Tensors {
    std::array<Road, max_tensors> roads;
    std::array<halyard_tensor_desc, max_tensors> descs{};
    std::array<halyard_tensor, max_tensors> x{}, y{};
    std::array<halyard_stages, max_tensors> stages{};
    std::size_t n = 0;
    bool have_stages = false;

    /// Takes what the next of the roads has read.
    void take() {
        const Road &road = roads[n];
        descs[n] = road.desc;
        x[n] = road.x;
        y[n] = road.y;
        stages[n] = road.stages;
        have_stages = have_stages || road.has_stages;
        ++n;
    }

    /// Of the smallest cache; 0 where there is none.
    std::int64_t n_slots() const {
        std::int64_t least = 0;
        for (std::size_t i = 0; i < n; ++i) {
            if (descs[i].cache != nullptr) {
                least = least == 0 ? descs[i].cache->n_slots : std::min(least, descs[i].cache->n_slots);
            }
        }
        return least;
    }

    halyard_plan_desc describe(const AngleSource &angles, const Options &options) const {
        auto desc = make_struct<halyard_plan_desc>();
        desc.direction = options.is_inverse ? HALYARD_INVERSE : HALYARD_FORWARD;
        desc.rotary_dim = angles.rotary_dim;
        desc.n_tensors = static_cast<std::int32_t>(n);
        desc.tensors = descs.data();
        desc.target = options.target.value_or(nullptr);
        return desc;
    }

    halyard_run_args make_args(const Options &options) const {
        auto args = make_struct<halyard_run_args>();
        args.bad_position = value_of(bad_positions, "bad_position", options.bad_position);
        args.n_tensors = static_cast<std::int32_t>(n);
        args.x = x.data();
        args.y = y.data();
        args.executor = find_executor(options.n_threads);
        args.stages = have_stages ? stages.data() : nullptr;
        return args;
    }
};

/// Runs, and lets the interpreter go on meanwhile.
void run_released(const plan &made, const halyard_run_args &args) {
    const nb::gil_scoped_release release;
    detail::call(halyard_run, made.get(), &args);
}

/// Reads x, three tensors or None, and where they go. `stages` is None, or (norms, scales, caches, dtypes,
/// cache_layout, slots, duplicate_slots, position_scales, hadamard, groups, from_groups, group_scales,
/// from_group_scales), all but the three from cache_layout on with one for each tensor, as y and offsets have.
void read_tensors(nb::handle x, nb::handle y, nb::handle offsets, nb::handle stages, const Options &options,
                  Tensors &tensors) {
    for (std::size_t i = 0; i < max_tensors; ++i) {
        if (at(x, i).is_none() && (i > 0 || !at(x, 2).is_none())) {  // q is left out where v comes alone
            continue;
        }
        StageArguments arguments{};
        if (!stages.is_none()) {
            const auto of = [&](std::size_t stage) { return at(at(stages, stage), i); };
            arguments = {of(0), of(1), of(2), of(3), at(stages, 4), of(7), of(8), of(9), of(10), of(11), of(12)};
        }
        auto &road = tensors.roads[tensors.n];
        road.read(tensor_names[i], at(x, i), at(y, i), options.layout, stages.is_none() ? nullptr : &arguments,
                  tensors.n == 0 ? Array::anywhere : tensors.roads[0].input().device());
        road.desc.rotary_offset = nb::cast<std::int64_t>(at(offsets, i));
        road.desc.no_rotation = i == 2 ? 1 : 0;
        tensors.take();
    }
}

/// Positions that are left out are 0, 1, 2, …, which is meant where one sequence is read from its start. A step of
/// decoding would be turned by nothing, and of a batch or a cache it is the rows' own positions that matter.
void require_positions(const AngleSource &angles, const Tensors &tensors) {
    const char *const why = tensors.roads[0].input().n_dims() == 4 ? "q has a batch"
                            : tensors.n_slots() != 0               ? "tokens go into a cache"
                            : tensors.x[0].shape[1] == 1           ? "q has one token"
                                                                   : nullptr;
    const bool is_empty = tensors.x[0].shape[0] == 0 || tensors.x[0].shape[1] == 0;
    if (why != nullptr && !angles.by_token && !is_empty) {
        refuse(HALYARD_ERROR_MISMATCH, std::string("positions is left out, but ") + why +
                                           ": say where the tokens are (0, if they start at position 0)");
    }
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

/// Rotates x into y or caches: see read_tensors.
void rotate(AngleSource &angles, nb::tuple x, nb::tuple y, nb::handle positions, nb::tuple offsets, nb::handle stages,
            nb::tuple how) {
    const Options options(how);
    const auto [from, to] = options.pairings(angles);
    Tensors tensors;
    read_tensors(x, y, offsets, stages, options, tensors);
    for (auto &desc : tensors.descs) {
        desc.pairing = from;
        desc.out_pairing = to;
    }
    const auto desc = tensors.describe(angles, options);
    const auto device = tensors.roads[0].input().device();

    Positions read_positions;
    Slots read_slots;
    auto args = tensors.make_args(options);
    args.angles = angles.source.get();
    args.positions = read_positions.read("positions", positions, angles.n_axes, device);
    if (!stages.is_none()) {
        args.slots =
            read_slots.read(at(stages, 5), read<std::string>(stages, 6, "duplicate_slots"), tensors.n_slots(), device);
    }
    try {
        const auto made = device == Array::on_cpu ? angles.find_plan(desc) : nullptr;
        if (positions.is_none()) {
            require_positions(angles, tensors);
        }
        if (made == nullptr) {
            run_on_gpu(angles, desc, device, tensors.roads[0].input().stream(), args);
        } else {
            run_released(*made, args);
        }
    } catch (const error &refusal) {
        if (refusal.status() != HALYARD_ERROR_SHAPE) {
            throw;
        }
        refuse(refusal.status(), refusal.what() + std::string(guess_layout(options, tensors, args.positions)));
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
    args.from_angles = from_angles.source.get();
    args.positions = read_positions.read("positions", positions, angles.n_axes);
    args.from_positions = read_from.read("from_positions", from_positions, from_angles.n_axes);
    args.slots = read_slots.read(keys.slots, "error", tensors.n_slots());
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
