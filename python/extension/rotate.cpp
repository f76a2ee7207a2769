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
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace nb = nanobind;

namespace halyard::python {
namespace {

constexpr const char *tensor_names[] = {"q", "k", "v"};
constexpr std::size_t max_tensors = std::size(tensor_names);

/// The member i of a tuple. Those that come here have as many as are asked for.
nb::handle at(nb::handle tuple, std::size_t i) { return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i)); }

/// The same as a number or a word; throws TypeError for what is none.
template <typename T>
T read(nb::handle tuple, std::size_t i, const char *name) {
    T value{};
    if (!nb::try_cast(at(tuple, i), value)) {
        throw nb::type_error((std::string(name) + " is a " + type_of(at(tuple, i))).c_str());
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
/// cache_layouts, slots, duplicate_slots, position_scales, hadamard, groups, from_groups, group_scales,
/// from_group_scales), all but slots and duplicate_slots with one for each tensor, as y and offsets have.
void read_tensors(nb::handle x, nb::handle y, nb::handle offsets, nb::handle stages, const Options &options,
                  Tensors &tensors) {
    for (std::size_t i = 0; i < max_tensors; ++i) {
        if (at(x, i).is_none() && (i > 0 || !at(x, 2).is_none())) {  // q is left out where v comes alone
            continue;
        }
        StageArguments arguments{};
        if (!stages.is_none()) {
            const auto of = [&](std::size_t stage) { return at(at(stages, stage), i); };
            arguments = {of(0), of(1), of(2), of(3), of(4), of(7), of(8), of(9), of(10), of(11), of(12)};
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
    const bool rotates =
        std::any_of(tensors.descs.begin(), tensors.descs.begin() + static_cast<std::ptrdiff_t>(tensors.n),
                    [](const halyard_tensor_desc &desc) { return desc.no_rotation == 0; });
    if (why != nullptr && rotates && !angles.by_token && !is_empty) {
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

/// A call of rotate, read: x into y or caches, see read_tensors. It must stay where it is.
struct Call {
    Call(AngleSource &angles, nb::handle x, nb::handle y, nb::handle positions, nb::handle offsets, nb::handle stages,
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
            args.slots = read_slots.emplace().read(at(stages, 5), read<std::string>(stages, 6, "duplicate_slots"),
                                                   tensors.n_slots(), device);
        }
    }

    Tensors tensors;
    std::optional<Positions> read_positions;
    std::optional<Slots> read_slots;
    halyard_plan_desc desc{};
    halyard_run_args args{};
    std::int32_t device;
};

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

/// What tells apart the calls of a prepared run: all of their arrays but where they lie.
using Form = std::array<std::int64_t, 32>;

void add_to_form(Form &form, std::size_t &n, const std::optional<Array> &array, bool is_index) {
    if (!array) {
        ++n;
        return;
    }
    form[n++] = array->n_dims() + 8 * (is_index ? array->index_type() : array->dtype());
    for (int dim = 0; dim < std::min(array->n_dims(), 3); ++dim) {
        form[n++] = array->size(dim);
        form[n++] = array->stride(dim);
    }
}

/// Calls of rotate for one array that holds q, k and v, bound for each form that they come in. Python describes a form
/// when it is met first: describe(packed, positions, slots, out) gives the arguments of rotate, of which x are views of
/// packed, and y of it or of out.
class Prepared {
public:
    explicit Prepared(nb::callable describe) : describe_(std::move(describe)) {}

    void operator()(nb::handle packed, nb::handle positions, nb::handle slots, nb::handle out) {
        std::array<std::optional<Array>, 4> arrays;  // optional: they can't be moved
        Form form{};
        std::size_t n = 0;
        const std::pair<nb::handle, const char *> given[] = {
            {packed, "packed"}, {out, "out"}, {positions, "positions"}, {slots, "slots"}};
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            if (!given[i].first.is_none()) {
                arrays[i].emplace(given[i].first, given[i].second);
            }
            add_to_form(form, n, arrays[i], i >= 2);
        }
        if (!arrays[0]) {
            throw nb::type_error("packed is None");
        }
        if (arrays[0]->n_dims() != 2 ||
            (arrays[0]->n_elements() > 1 && arrays[0]->size(1) > 1 && arrays[0]->stride(1) != 1)) {
            arrays[0]->refuse_shape("[tokens, columns], of which the last dimension is dense");
        }
        if (arrays[1]) {
            arrays[1]->require_writable();
        }
        const auto found =
            std::find_if(known_.rbegin(), known_.rend(), [&](const auto &each) { return each->form == form; });
        auto bound =
            found != known_.rend() ? *found : bind(form, arrays, nb::make_tuple(packed, positions, slots, out));
        bound->run(arrays);
    }

private:
    struct Bound {
        Form form;
        nb::object source;  // of angles
        std::unique_ptr<Call> call;
        std::shared_ptr<const plan> made;
        bound_run bound{static_cast<halyard_bound_run *>(nullptr)};
        std::array<std::ptrdiff_t, max_tensors> x{}, y{};  // in bytes, from where packed and out begin
        std::array<const void *, max_tensors> weights{}, biases{};
        std::array<const float *, max_tensors> scales{};
        std::array<float *, max_tensors> scales_out{};
        std::array<void *, max_tensors> caches{};
        std::size_t scratch_bytes = 0;
        bool writes_packed = false;

        void run(const std::array<std::optional<Array>, 4> &arrays) const {
            if (writes_packed) {
                arrays[0]->require_writable();
            }
            auto *const packed = static_cast<char *>(arrays[0]->data());
            auto *const out = arrays[1] ? static_cast<char *>(arrays[1]->data()) : packed;
            std::array<const void *, max_tensors> from{};
            std::array<void *, max_tensors> to{};
            for (std::size_t i = 0; i < call->tensors.n; ++i) {
                from[i] = packed + x[i];
                to[i] = (i == 0 ? out : packed) + y[i];
            }
            thread_local std::vector<char> scratch;
            scratch.resize(std::max(scratch.size(), scratch_bytes));
            auto args = make_struct<halyard_bound_run_args>();
            args.n_tensors = static_cast<std::int32_t>(call->tensors.n);
            args.positions = arrays[2] ? arrays[2]->data() : nullptr;
            args.x = from.data();
            args.y = to.data();
            args.slots = arrays[3] ? arrays[3]->data() : nullptr;
            args.slots_scratch = scratch_bytes != 0 ? scratch.data() : nullptr;
            args.weights = weights.data();
            args.biases = biases.data();
            args.scales = scales.data();
            args.scales_out = scales_out.data();
            args.caches = caches.data();
            const nb::gil_scoped_release release;
            detail::call(halyard_run_bound, bound.get(), &args);
        }
    };

    std::shared_ptr<const Bound> bind(const Form &form, const std::array<std::optional<Array>, 4> &arrays,
                                      const nb::tuple &given) {
        const nb::object described = describe_(*given);
        auto made = std::make_shared<Bound>();
        made->form = form;
        made->source = nb::borrow(at(described, 0));
        auto &angles = nb::cast<AngleSource &>(made->source);
        Options options(at(described, 6));
        const bool by_openmp = options.n_threads == 0;
        options.n_threads = by_openmp ? 1 : options.n_threads;
        made->call = std::make_unique<Call>(angles, at(described, 1), at(described, 2), at(described, 3),
                                            at(described, 4), at(described, 5), options);
        auto &call = *made->call;
        if (call.args.positions == nullptr) {
            require_positions(angles, call.tensors);
        }
        call.args.executor = by_openmp ? find_openmp_executor() : call.args.executor;
        made->made = angles.find_plan(call.desc);
        made->bound = bound_run(detail::create<halyard_bound_run>(halyard_bind_run, made->made->get(), &call.args));
        const auto *const packed = static_cast<const char *>(arrays[0]->data());
        const auto *const out = arrays[1] ? static_cast<const char *>(arrays[1]->data()) : packed;
        for (std::size_t i = 0; i < call.tensors.n; ++i) {
            const auto &stages = call.tensors.stages[i];
            if (arrays[0]->size(0) > 0 && !is_inside(call.tensors.x[i].data, *arrays[0])) {
                refuse(HALYARD_ERROR_UNSUPPORTED, "packed is an array of which no part can be had without a copy");
            }
            made->x[i] = static_cast<const char *>(call.tensors.x[i].data) - packed;
            made->y[i] = static_cast<const char *>(call.tensors.y[i].data) - (i == 0 ? out : packed);
            made->weights[i] = stages.weight;
            made->biases[i] = stages.bias;
            made->scales[i] = stages.scales;
            made->scales_out[i] = stages.scales_out;
            made->caches[i] = stages.cache;
            made->writes_packed = made->writes_packed || (stages.cache == nullptr && (i > 0 || !arrays[1]));
        }
        made->scratch_bytes =
            call.args.slots != nullptr ? static_cast<std::size_t>(call.args.slots->scratch_bytes) : std::size_t{0};
        call.read_positions.reset();  // memory of a call, which its caller may want back
        call.read_slots.reset();
        for (std::size_t i = 0; i < call.tensors.n; ++i) {
            call.tensors.roads[i].forget_tensors();
        }
        if (known_.size() >= max_forms) {
            known_.erase(known_.begin());
        }
        known_.push_back(made);
        return made;
    }

    static bool is_inside(const void *data, const Array &row) {
        const auto begin = reinterpret_cast<std::uintptr_t>(row.data()), at = reinterpret_cast<std::uintptr_t>(data);
        return at >= begin && at - begin < static_cast<std::uintptr_t>(row.size(1)) * sizeof(float);
    }

    static constexpr std::size_t max_forms = 64;
    nb::callable describe_;
    std::vector<std::shared_ptr<const Bound>> known_;  // only looked at with the GIL held
};

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
    nb::class_<Prepared>(module, "Prepared")
        .def(nb::init<nb::callable>(), nb::arg("describe"))
        .def("__call__", &Prepared::operator(), nb::arg("packed"), nb::arg("positions").none() = nb::none(),
             nb::arg("slots").none() = nb::none(), nb::arg("out").none() = nb::none());
    module.def("rotate", rotate, nb::arg("angles"), nb::arg("x"), nb::arg("y"), nb::arg("positions").none(),
               nb::arg("offsets"), nb::arg("stages").none(), nb::arg("how"));
}

}  // namespace halyard::python
