// halyard._core.Prepared.
#include "calls/bound.h"
#include "module.h"

namespace halyard::python {
namespace {

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
/// when it is met first: describe(packed, positions, slots, out) gives the arguments of rotate.
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
        void *data[std::size(given)] = {};
        for (std::size_t i = 0; i < arrays.size(); ++i) {
            data[i] = arrays[i] ? arrays[i]->data() : nullptr;
        }
        const auto found =
            std::find_if(known_.rbegin(), known_.rend(), [&](const auto &each) { return each.first == form; });
        const auto bound = found != known_.rend()
                               ? found->second
                               : bind(form, data, describe_(packed, positions, slots, out), arrays[1].has_value());
        if (bound->writes(0)) {
            arrays[0]->require_writable();
        }
        const nb::gil_scoped_release release;
        bound->run(data);
    }

private:
    std::shared_ptr<const Bound> bind(const Form &form, void *const *data, nb::object described, bool has_out) {
        Origins origins;
        origins.y[0] = has_out ? 1 : 0;
        origins.positions = 2;
        origins.slots = 3;
        auto made = std::make_shared<Bound>(described, origins, data);
        if (known_.size() >= max_forms) {
            known_.erase(known_.begin());
        }
        known_.emplace_back(form, made);
        return made;
    }

    static constexpr std::size_t max_forms = 64;
    nb::callable describe_;
    std::vector<std::pair<Form, std::shared_ptr<const Bound>>> known_;  // only looked at with the GIL held
};

}  // namespace

void add_prepared(nb::module_ &module) {
    nb::class_<Prepared>(module, "Prepared")
        .def(nb::init<nb::callable>(), nb::arg("describe"))
        .def("__call__", &Prepared::operator(), nb::arg("packed"), nb::arg("positions").none() = nb::none(),
             nb::arg("slots").none() = nb::none(), nb::arg("out").none() = nb::none());
}

}  // namespace halyard::python
