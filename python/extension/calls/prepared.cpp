// halyard._core.Prepared: repeated calls of rotate, as bound runs of the C ABI that get new pointers at each call.
#include "calls/call.h"
#include "module.h"

namespace halyard::python {
namespace {

/// The argument of a call that a pointer of a bound run points into: an array, or `start`, the first token's position
/// as an int. The role of a NULL pointer is `nowhere`. halyard.torch passes the arrays in this order, without slots.
enum Role : std::size_t { q, k, out, k_out, positions, slots, n_arrays, start = n_arrays, nowhere, n_roles };
constexpr const char *names[n_arrays] = {"q", "k", "out", "k_out", "positions", "slots"};
using Memory = std::array<void *, n_roles>;  // the first address of each argument

/// The arrays of one call.
struct Given {
    void read(Role role, nb::handle object, const char *name, bool checks_torch_state) {
        if (!object.is_none()) {
            memory[role] = arrays[role].emplace(object, name, Array::on_cpu, checks_torch_state).data();
        }
    }

    /// The key of the call's bound run. Valid until this thread calls key() again.
    const CallKey &key() const {
        thread_local CallKey key;
        key = {count_openmp_threads()};
        for (const auto &array : arrays) {
            if (array) {
                array->append_to(key);
            } else {
                key.push_back(-1);
            }
        }
        return key;
    }

    std::array<std::optional<Array>, n_arrays> arrays;
    std::int64_t first_position = 0;
    Memory memory{};
};

/// A bound run of one kind of call. Make and destroy it with the GIL held.
class Bound {
public:
    /// `described` is a tuple of _core.rotate's arguments, made for the arrays in `given`. Keeps none of these arrays.
    Bound(nb::handle described, const Given &given) {
        auto &angles = nb::cast<AngleSource &>(at(described, 0));
        angles_ = angles.angles;
        call_ = std::make_unique<Call>(angles, at(described, 1), at(described, 2), at(described, 3),
                                       Options(at(described, 4)));
        auto &[tensors, read_positions, read_slots, desc, args, device] = *call_;
        if (args.positions == nullptr) {
            require_positions(angles, tensors);
        }
        bound_ = tensors.rethrow_with_tensor_names([&] {
            plan_ = angles.find_plan(desc);
            return bound_run(detail::create<halyard_bound_run>(halyard_bind_run, plan_->get(), &args));
        });
        const auto choose = [&](Role role, Role otherwise) { return given.arrays[role] ? role : otherwise; };
        const Role from[max_tensors] = {q, choose(k, q), q},
                   to[max_tensors] = {choose(out, q), choose(k_out, from[1]), q};
        for (std::size_t i = 0; i < tensors.n; ++i) {
            x_[i] = Place(from[i], tensors.x[i].data, given.memory);
            y_[i] = tensors.stages[i].cache != nullptr ? Place() : Place(to[i], tensors.y[i].data, given.memory);
            tensors.operands[i].forget_tensors();
        }
        positions_.role = args.positions != nullptr ? choose(positions, start) : nowhere;
        if (const auto *const bound_slots = tensors.kv.slots) {
            slots_.role = slots;
            scratch_bytes_ = static_cast<std::size_t>(bound_slots->scratch_bytes);
        }
        read_positions.reset();  // releases the caller's arrays
        read_slots.reset();
    }

    /// Runs with the pointers of a call. Needs no GIL.
    void run(const Memory &memory) const {
        const auto &tensors = call_->tensors;
        std::array<const void *, max_tensors> x{};
        std::array<void *, max_tensors> y{};
        for (std::size_t i = 0; i < tensors.n; ++i) {
            x[i] = x_[i].in(memory);
            y[i] = y_[i].in(memory);
        }
        thread_local std::vector<char> scratch;
        scratch.resize(std::max(scratch.size(), scratch_bytes_));
        auto args = make_struct<halyard_bound_run_args>();
        args.n_tensors = static_cast<std::int32_t>(tensors.n);
        args.positions = positions_.in(memory);
        args.x = x.data();
        args.y = y.data();
        auto slot_args = make_struct<halyard_slots>();
        slot_args.data = slots_.in(memory);
        slot_args.scratch = scratch_bytes_ != 0 ? scratch.data() : nullptr;
        const auto kv = kv_args(tensors.stages.data(), &slot_args);
        args.kv = call_->args.kv != nullptr ? &kv : nullptr;
        tensors.rethrow_with_tensor_names([&] { detail::call(halyard_run_bound, bound_.get(), &args); });
    }

    /// Whether an output points into the argument of this role.
    bool writes(std::size_t role) const {
        return std::any_of(y_.begin(), y_.end(), [&](const Place &place) { return place.role == role; });
    }

private:
    /// A pointer of the bound run: an offset in bytes from an argument's first address.
    struct Place {
        Role role = nowhere;
        std::ptrdiff_t offset = 0;

        Place() = default;
        Place(Role in, const void *pointer, const Memory &memory) : role(pointer != nullptr ? in : nowhere) {
            offset = static_cast<const char *>(pointer) - static_cast<const char *>(memory[role]);
        }
        void *in(const Memory &memory) const { return static_cast<char *>(memory[role]) + offset; }
    };

    std::shared_ptr<const Angles> angles_;
    std::unique_ptr<Call> call_;
    std::shared_ptr<const plan> plan_;
    bound_run bound_{static_cast<halyard_bound_run *>(nullptr)};
    std::array<Place, max_tensors> x_, y_;
    Place positions_, slots_;
    std::size_t scratch_bytes_ = 0;
};

/// The bound runs of a prepared function, by the shapes, strides and dtypes of its arrays. To bind a new one,
/// it calls the Python function `describe` with the call's arguments, which returns the arguments of _core.rotate.
class Prepared {
public:
    explicit Prepared(nb::callable describe) : describe_(std::move(describe)) {}

    /// A call of the function that halyard.prepare returns: q, k and v are in one array.
    void run_packed(nb::handle packed, nb::handle at_positions, nb::handle in_slots, nb::handle output) {
        Given given;
        given.read(q, packed, "packed", true);
        given.read(out, output, "out", true);
        given.read(positions, at_positions, "positions", true);
        given.read(slots, in_slots, "slots", true);
        run(given, [&] {
            const auto &array = *given.arrays[q];
            if (array.n_dims() != 2 || (array.n_elements() > 1 && array.size(1) > 1 && array.stride(1) != 1)) {
                array.refuse_shape("[tokens, columns], of which the last dimension is dense");
            }
            return describe_(packed, at_positions, in_slots, output);
        });
    }

    /// A call of halyard.torch's operators, which have already checked gradients, tangents and negative bits.
    void run_tensors(std::int64_t first_position, nb::handle at_q, nb::handle at_k, nb::handle at_out,
                     nb::handle at_k_out, nb::handle at_positions) {
        const nb::handle objects[] = {at_q, at_k, at_out, at_k_out, at_positions};
        Given given;
        given.memory[start] = &(given.first_position = first_position);
        for (std::size_t role = 0; role < std::size(objects); ++role) {
            given.read(static_cast<Role>(role), objects[role], names[role], false);
        }
        run(given, [&] { return describe_(first_position, at_q, at_k, at_out, at_k_out, at_positions); });
    }

private:
    template <typename Describe>
    void run(const Given &given, Describe &&describe) {
        const auto bound = calls_.find(given.key(), [&] { return Bound(describe(), given); });
        for (std::size_t role = 0; role < n_arrays; ++role) {
            if (given.arrays[role] && bound->writes(role)) {
                given.arrays[role]->require_writable();
            }
        }
        const nb::gil_scoped_release release;
        bound->run(given.memory);
    }

    nb::callable describe_;
    run_cache<CallKey, Bound> calls_{64};
};

}  // namespace

void add_prepared(nb::module_ &module) {
    nb::class_<Prepared>(module, "Prepared").def(nb::init<nb::callable>(), nb::arg("describe"));
    module.def("run_packed", &Prepared::run_packed, nb::arg("prepared"), nb::arg("packed"),
               nb::arg("positions").none() = nb::none(), nb::arg("slots").none() = nb::none(),
               nb::arg("out").none() = nb::none());
    module.def("run_tensors", &Prepared::run_tensors, nb::arg("prepared"), nb::arg("start"), nb::arg("q"),
               nb::arg("k").none(), nb::arg("out").none(), nb::arg("k_out").none(), nb::arg("positions").none());
}

}  // namespace halyard::python
