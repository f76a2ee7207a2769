// halyard._core.Prepared.
#include "calls/bound.h"
#include "module.h"

#include <nanobind/stl/string.h>

namespace halyard::python {
namespace {

/// What the arrays of a call are. halyard.torch gives all but the last one, in this order.
enum Role : std::size_t { q, k, out, k_out, positions, slots, n_roles };
constexpr const char *names[n_roles] = {"q", "k", "out", "k_out", "positions", "slots"};

/// The arrays of a call, and what tells it apart from others. Where positions are left out, `start` is the first one.
struct Given {
    void read(Role role, nb::handle object, const char *name, bool checks_marks) {
        if (!object.is_none()) {
            data[role] = arrays[role].emplace(object, name, Array::on_cpu, checks_marks).data();
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

    /// Where the pointers of a run come from.
    Origins origins() const {
        const auto choose = [&](Role role, std::size_t otherwise) { return arrays[role] ? role : otherwise; };
        Origins origins;
        origins.x = {q, choose(k, q), q};
        origins.y = {choose(out, q), choose(k_out, origins.x[1]), origins.x[2]};
        origins.positions = choose(positions, n_roles);
        origins.slots = slots;
        return origins;
    }

    std::array<std::optional<Array>, n_roles> arrays;  // optional: they can't be moved
    std::int64_t start = 0;
    std::array<void *, n_roles + 1> data{};  // the last one is the start's
};

/// Calls of rotate, bound for each form that they come in. Python describes a form when it is met first: describe, with
/// what the call was given, gives the arguments of rotate.
class Prepared {
public:
    explicit Prepared(nb::callable describe) : describe_(std::move(describe)) {}

    /// Of one array that holds q, k and v.
    void turn_packed(nb::handle packed, nb::handle where, nb::handle in_slots, nb::handle to) {
        if (packed.is_none()) {
            throw nb::type_error("packed is None");
        }
        Given given;
        given.read(q, packed, "packed", true);
        given.read(out, to, "out", true);
        given.read(positions, where, "positions", true);
        given.read(slots, in_slots, "slots", true);
        turn(given, [&] {
            const auto &array = *given.arrays[q];
            if (array.n_dims() != 2 || (array.n_elements() > 1 && array.size(1) > 1 && array.stride(1) != 1)) {
                array.refuse_shape("[tokens, columns], of which the last dimension is dense");
            }
            return describe_(packed, where, in_slots, to);
        });
    }

    /// Of an operator's tensors, whose derivatives and bits it has seen to.
    void turn_tensors(std::int64_t start, nb::args tensors) {
        Given given;
        given.data[n_roles] = &(given.start = start);
        for (std::size_t role = 0; role < std::min(tensors.size(), std::size_t{n_roles}); ++role) {
            given.read(static_cast<Role>(role), at(tensors, role), names[role], false);
        }
        turn(given, [&] { return describe_(start, *tensors); });
    }

private:
    template <typename Describe>
    void turn(const Given &given, Describe &&describe) {
        const auto bound = calls_.find(given.form(), given.origins(), given.data.data(), describe);
        for (std::size_t role = 0; role < n_roles; ++role) {
            if (given.arrays[role] && bound->writes(role)) {
                given.arrays[role]->require_writable();
            }
        }
        const nb::gil_scoped_release release;
        bound->run(given.data.data());
    }

    nb::callable describe_;
    BoundCalls calls_;
};

}  // namespace

void add_prepared(nb::module_ &module) {
    nb::class_<Prepared>(module, "Prepared")
        .def(nb::init<nb::callable>(), nb::arg("describe"))
        .def("__call__", &Prepared::turn_packed, nb::arg("packed"), nb::arg("positions").none() = nb::none(),
             nb::arg("slots").none() = nb::none(), nb::arg("out").none() = nb::none());
    module.def("turn", &Prepared::turn_tensors, nb::arg("prepared"), nb::arg("start"), nb::arg("tensors"));
}

}  // namespace halyard::python
