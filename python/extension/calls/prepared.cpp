// halyard._core.Prepared: calls of rotate that come again with other memory, as bound runs of the C ABI.
#include "calls/call.h"
#include "module.h"

namespace halyard::python {
namespace {

/// Where the memory of a call lies: in its arrays, of which halyard.torch gives all but the slots, in this order; where
/// positions are left out, in the first one; or nowhere.
enum Role : std::size_t { q, k, out, k_out, positions, slots, n_arrays, start = n_arrays, nowhere, n_roles };
constexpr const char *names[n_arrays] = {"q", "k", "out", "k_out", "positions", "slots"};
using Memory = std::array<void *, n_roles>;

/// The arrays of a call, and what tells it apart from others.
struct Given {
    void read(Role role, nb::handle object, const char *name, bool checks_marks) {
        if (!object.is_none()) {
            memory[role] = arrays[role].emplace(object, name, Array::on_cpu, checks_marks).data();
        }
    }

    /// It stays until the next call of this thread asks.
    const Form &form() const {
        thread_local Form form;
        form = {count_openmp_threads()};
        for (const auto &array : arrays) {
            if (array) {
                array->add_to(form);
            } else {
                form.push_back(-1);
            }
        }
        return form;
    }

    std::array<std::optional<Array>, n_arrays> arrays;
    std::int64_t first_position = 0;
    Memory memory{};
};

/// A call that is bound. Make and destroy it with the GIL held.
class Bound {
public:
    /// `described` are the arguments of rotate, in a tuple. Nothing is kept of arrays that each call brings.
    Bound(nb::handle described, const Given &given) {
        auto &angles = nb::cast<AngleSource &>(at(described, 0));
        angles_ = angles.angles;
        call_ = std::make_unique<Call>(angles, at(described, 1), at(described, 2), at(described, 3),
                                       Options(at(described, 4)));
        auto &[tensors, read_positions, read_slots, desc, args, device] = *call_;
        if (args.positions == nullptr) {
            require_positions(angles, tensors);
        }
        bound_ = tensors.named([&] {
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
        if (const auto *const told = tensors.kv.slots) {
            slots_.role = slots;
            scratch_bytes_ = static_cast<std::size_t>(told->scratch_bytes);
        }
        read_positions.reset();  // memory of a call, which its caller may want back
        read_slots.reset();
    }

    /// Takes no GIL.
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
        auto told = make_struct<halyard_slots>();
        told.data = slots_.in(memory);
        told.scratch = scratch_bytes_ != 0 ? scratch.data() : nullptr;
        const auto kv = kv_args(tensors.stages.data(), &told);
        args.kv = call_->args.kv != nullptr ? &kv : nullptr;
        tensors.named([&] { detail::call(halyard_run_bound, bound_.get(), &args); });
    }

    bool writes(std::size_t role) const {
        return std::any_of(y_.begin(), y_.end(), [&](const Place &place) { return place.role == role; });
    }

private:
    /// So many bytes behind the begin of an array.
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

/// Calls of rotate, bound for each form that they come in. Python describes a form when it is met first: describe, with
/// what the call was given, gives the arguments of rotate.
class Prepared {
public:
    explicit Prepared(nb::callable describe) : describe_(std::move(describe)) {}

    /// Of one array that holds q, k and v.
    void run_packed(nb::handle packed, nb::handle where, nb::handle in_slots, nb::handle to) {
        if (packed.is_none()) {
            throw nb::type_error("packed is None");
        }
        Given given;
        given.read(q, packed, "packed", true);
        given.read(out, to, "out", true);
        given.read(positions, where, "positions", true);
        given.read(slots, in_slots, "slots", true);
        run(given, [&] {
            const auto &array = *given.arrays[q];
            if (array.n_dims() != 2 || (array.n_elements() > 1 && array.size(1) > 1 && array.stride(1) != 1)) {
                array.refuse_shape("[tokens, columns], of which the last dimension is dense");
            }
            return describe_(packed, where, in_slots, to);
        });
    }

    /// Of an operator's tensors, whose derivatives and bits it has seen to.
    void run_tensors(std::int64_t first_position, nb::args tensors) {
        Given given;
        given.memory[start] = &(given.first_position = first_position);
        for (std::size_t role = 0; role < std::min(tensors.size(), std::size_t{n_arrays}); ++role) {
            given.read(static_cast<Role>(role), at(tensors, role), names[role], false);
        }
        run(given, [&] { return describe_(first_position, *tensors); });
    }

private:
    template <typename Describe>
    void run(const Given &given, Describe &&describe) {
        const auto bound = calls_.find(given.form(), [&] { return Bound(describe(), given); });
        for (std::size_t role = 0; role < n_arrays; ++role) {
            if (given.arrays[role] && bound->writes(role)) {
                given.arrays[role]->require_writable();
            }
        }
        const nb::gil_scoped_release release;
        bound->run(given.memory);
    }

    nb::callable describe_;
    run_cache<Form, Bound> calls_{64};
};

}  // namespace

void add_prepared(nb::module_ &module) {
    nb::class_<Prepared>(module, "Prepared")
        .def(nb::init<nb::callable>(), nb::arg("describe"))
        .def("__call__", &Prepared::run_packed, nb::arg("packed"), nb::arg("positions").none() = nb::none(),
             nb::arg("slots").none() = nb::none(), nb::arg("out").none() = nb::none());
    module.def("run_prepared", &Prepared::run_tensors, nb::arg("prepared"), nb::arg("start"), nb::arg("tensors"));
}

}  // namespace halyard::python
