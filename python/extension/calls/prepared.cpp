// halyard._core.Prepared.
#include "calls/bound.h"
#include "module.h"

namespace halyard::python {
namespace {

/// Calls of rotate for one array that holds q, k and v, bound for each form that they come in. Python describes a form
/// when it is met first: describe(packed, positions, slots, out) gives the arguments of rotate.
class Prepared {
public:
    explicit Prepared(nb::callable describe) : describe_(std::move(describe)) {}

    void operator()(nb::handle packed, nb::handle positions, nb::handle slots, nb::handle out) {
        std::array<std::optional<Array>, 4> arrays;  // optional: they can't be moved
        std::array<void *, 4> data{};
        thread_local Form form;
        form.clear();
        const std::pair<nb::handle, const char *> given[] = {
            {packed, "packed"}, {out, "out"}, {positions, "positions"}, {slots, "slots"}};
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            if (given[i].first.is_none()) {
                form.push_back(-1);
                continue;
            }
            data[i] = arrays[i].emplace(given[i].first, given[i].second).data();
            arrays[i]->add_to(form);
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
        Origins origins;
        origins.y[0] = arrays[1] ? 1 : 0;
        origins.positions = 2;
        origins.slots = 3;
        const auto bound =
            calls_.find(form, origins, data.data(), [&] { return describe_(packed, positions, slots, out); });
        if (bound->writes(0)) {
            arrays[0]->require_writable();
        }
        const nb::gil_scoped_release release;
        bound->run(data.data());
    }

private:
    nb::callable describe_;
    BoundCalls calls_;
};

}  // namespace

void add_prepared(nb::module_ &module) {
    nb::class_<Prepared>(module, "Prepared")
        .def(nb::init<nb::callable>(), nb::arg("describe"))
        .def("__call__", &Prepared::operator(), nb::arg("packed"), nb::arg("positions").none() = nb::none(),
             nb::arg("slots").none() = nb::none(), nb::arg("out").none() = nb::none());
}

}  // namespace halyard::python
