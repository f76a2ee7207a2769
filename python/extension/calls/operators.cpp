// PyTorch's operators torch.ops.halyard, on CPUs.
#include "calls/bound.h"
#include "calls/torch_functions.h"
#include "module.h"

#include <memory>
#include <unordered_map>

namespace halyard::python {
namespace {

// What tensors of a call are. Their letters stand for them in the inputs of an operator.
enum Role : std::size_t { q, k, v, positions, slots, k_cache, v_cache, q_weight, k_weight, out, k_out, n_roles };
constexpr std::string_view letters = "qkvpsKVwxoy";

/// Inputs are letters of tensors, with ? behind those that may be None, # for the first position, and $ for the text
/// that says all else. Outputs are new tensors like q and k.
struct Operator {
    const char *name;
    const char *inputs;
    std::size_t n_outputs;
};

const torch::Functions *functions = nullptr;
PyObject *describe = nullptr;  // owned, as the interpreter's

void require(torch::Status status) {
    if (status != 0) {
        refuse(HALYARD_ERROR_UNSUPPORTED, "PyTorch's C ABI failed, and has printed why");
    }
}

/// A tensor or a text that PyTorch hands over.
template <typename Handle, torch::Status (*torch::Functions::*destroy)(Handle *)>
struct Destroy {
    void operator()(Handle *handle) const { (functions->*destroy)(handle); }
};
using Tensor = std::unique_ptr<torch::Tensor, Destroy<torch::Tensor, &torch::Functions::delete_tensor>>;
using Text = std::unique_ptr<torch::Text, Destroy<torch::Text, &torch::Functions::delete_text>>;

/// The arguments of a call. What PyTorch handed over is given back with them.
class Arguments {
public:
    Arguments(const Operator &op, torch::Value *stack) : op_(op) {
        std::size_t i = 0;
        for (const char *input = op.inputs; *input != '\0'; ++input, ++i) {
            const auto role = letters.find(*input);
            if (*input == '#') {
                start = static_cast<std::int64_t>(stack[i]);
            } else if (*input == '$') {
                text_.reset(reinterpret_cast<torch::Text *>(stack[i]));
            } else if (input[1] != '?') {
                tensors_[role].reset(reinterpret_cast<torch::Tensor *>(stack[i]));
            } else if (++input; stack[i] != 0) {
                auto *const value = reinterpret_cast<torch::Value *>(stack[i]);
                tensors_[role].reset(reinterpret_cast<torch::Tensor *>(*value));
                functions->delete_value(value);
            }
        }
        for (std::size_t role = 0; role < n_roles; ++role) {
            read(role);
        }
        const char *characters = nullptr;
        std::size_t n = 0;
        require(functions->get_length(text_.get(), &n));
        require(functions->get_characters(text_.get(), &characters));
        text = {characters, n};
        for (std::size_t i_out = 0; i_out < op.n_outputs; ++i_out) {
            make_like(i_out, out + i_out);
        }
    }

    /// Hands the outputs over.
    void give(torch::Value *stack) {
        for (std::size_t i = 0; i < op_.n_outputs; ++i) {
            stack[i] = reinterpret_cast<torch::Value>(tensors_[out + i].release());
        }
    }

    /// What tells the call apart from others of this thread. It stays until the next call asks.
    const Form &form() const {
        thread_local Form form;
        form = {reinterpret_cast<std::intptr_t>(&op_), count_openmp_threads(), static_cast<std::int64_t>(text.size())};
        for (const auto &view : views) {
            add_to(form, view.n_dims, view.dtype, view.shape.data(), view.strides.data());
        }
        const auto n = form.size();
        form.resize(n + (text.size() + sizeof form[0] - 1) / sizeof form[0]);
        std::copy(text.begin(), text.end(), reinterpret_cast<char *>(&form[n]));
        return form;
    }

    bool has(std::size_t role) const { return tensors_[role] != nullptr; }
    const char *name() const { return op_.name; }

    std::array<View, n_roles> views{};
    std::array<void *, n_roles + 1> data{};  // the last one is the first position's
    std::string_view text;
    std::int64_t start = 0;

private:
    void read(std::size_t role) {
        auto &view = views[role];
        auto *const handle = tensors_[role].get();
        if (handle == nullptr) {
            view.n_dims = -1;
            return;
        }
        std::int64_t n_dims = 0, *shape = nullptr, *strides = nullptr;
        require(functions->get_n_dims(handle, &n_dims));
        require(functions->get_shape(handle, &shape));
        require(functions->get_strides(handle, &strides));
        require(functions->get_dtype(handle, &dtypes_[role]));
        require(functions->get_data(handle, &data[role]));
        view.data = data[role];
        view.n_dims = static_cast<int>(n_dims);
        view.dtype = functions->dtype_of(dtypes_[role]);
        const auto n = std::min(n_dims, std::int64_t{max_dims});  // arrays of more are refused
        std::copy_n(shape, n, view.shape.begin());
        std::copy_n(strides, n, view.strides.begin());
    }

    /// As torch.empty_like: with the same strides where they leave no gaps, else in their order.
    void make_like(std::size_t role, std::size_t made) {
        const auto &like = views[role];
        const auto n = static_cast<std::size_t>(std::clamp(like.n_dims, 0, max_dims));
        std::array<std::size_t, max_dims> order{};
        for (std::size_t i = 0; i < n; ++i) {
            order[i] = n - 1 - i;
            for (std::size_t at = i, j = i; j-- > 0;) {  // a dimension whose stride is 0 is left where it is
                const auto a = like.strides[order[j]], b = like.strides[order[at]];
                const bool is_after = a > b || (a == b && like.shape[order[j]] > like.shape[order[at]]);
                if (a != 0 && b != 0 && is_after) {
                    std::swap(order[j], order[at]);
                    at = j;
                } else if (a != 0 && b != 0 && a < b) {
                    break;
                }
            }
        }
        std::array<std::int64_t, max_dims> strides{};
        std::int64_t stride = 1;
        bool has_gaps = false;
        for (std::size_t i = 0; i < n; ++i) {
            const auto dim = order[i];
            strides[dim] = stride;
            has_gaps = has_gaps || (like.shape[dim] != 1 && like.strides[dim] != stride);
            stride *= like.shape[dim];
        }
        torch::Tensor *handle = nullptr;
        require(functions->make_tensor(static_cast<std::int64_t>(n), like.shape.data(),
                                       (has_gaps && stride != 0 ? strides : like.strides).data(), dtypes_[role],
                                       functions->cpu, 0, &handle));
        tensors_[made].reset(handle);
        read(made);
    }

    const Operator &op_;
    std::array<Tensor, n_roles> tensors_;
    std::array<std::int32_t, n_roles> dtypes_{};
    Text text_;
};

/// Where the pointers of a run come from.
Origins origins_of(const Arguments &given) {
    const auto choose = [&](std::size_t role, std::size_t otherwise) { return given.has(role) ? role : otherwise; };
    Origins origins;
    origins.x = {q, choose(k, q), choose(v, q)};
    origins.y = {choose(out, q), choose(k_out, origins.x[1]), origins.x[2]};
    origins.weights = {q_weight, k_weight, Origins::fixed};
    origins.caches = {Origins::fixed, k_cache, v_cache};
    origins.positions = choose(positions, n_roles);
    origins.slots = slots;
    return origins;
}

/// What Python makes of a call: the arguments of rotate. Call it with the GIL held.
nb::object describe_call(const Arguments &given) {
    try {
        nb::list tensors;
        for (std::size_t role = 0; role < n_roles; ++role) {
            tensors.append(given.has(role) ? nb::cast(given.views[role]) : nb::none());
        }
        return nb::handle(describe)(given.name(), tensors, given.start, nb::str(given.text.data(), given.text.size()));
    } catch (const nb::python_error &refusal) {
        throw error(HALYARD_ERROR_MISMATCH, nb::str(refusal.value()).c_str());
    }
}

/// Forgets what was bound to angles that nobody else holds. Call it with the GIL held.
void forget_dead(BoundCalls &calls) {
    std::unordered_map<PyObject *, Py_ssize_t> holders;
    calls.forget_if([&](const auto &bound) { return ++holders[bound->source().ptr()] == 0; });
    calls.forget_if([&](const auto &bound) {
        auto *const source = bound->source().ptr();
        return Py_REFCNT(source) <= holders[source];
    });
}

void call(const Operator &op, torch::Value *stack) {
    static auto *const calls = new BoundCalls;  // the interpreter may end before the process
    std::string refusal = std::string("halyard::") + op.name + ": ";
    try {
        Arguments given(op, stack);
        given.data[n_roles] = &given.start;
        if (op.n_outputs == 0 && functions->follows_gradients()) {
            refuse(HALYARD_ERROR_UNSUPPORTED, "what is done in place has no gradients: call it in torch.no_grad()");
        }
        const auto bound = calls->find(given.form(), origins_of(given), given.data.data(), [&] {
            forget_dead(*calls);
            return describe_call(given);
        });
        bound->run(given.data.data());
        given.give(stack);
        return;
    } catch (const std::exception &thrown) {
        refusal += thrown.what();
    }
    functions->check(false, op.name, __FILE__, __LINE__, refusal.c_str());  // throws as PyTorch does
}

constexpr Operator operators[] = {{"rotate", "q$p?#", 1},
                                  {"rotate_qk", "qk$p?#", 2},
                                  {"rotate_no_grad", "q$p?#", 1},
                                  {"rotate_qk_no_grad", "qk$p?#", 2},
                                  {"rotate_", "q$p?#", 0},
                                  {"rotate_qk_", "qk$p?#", 0},
                                  {"road", "q$k?v?p?s?K?V?w?x?o?", 0}};

template <std::size_t i>
void kernel(torch::Value *stack, std::uint64_t, std::uint64_t) {
    call(operators[i], stack);
}

template <std::size_t... i>
void implement(torch::Library *library, std::index_sequence<i...>) {
    constexpr std::uint64_t version =
        (std::uint64_t{2} << 56) | (std::uint64_t{13} << 48);  // whose functions these are
    (require(functions->implement(library, operators[i].name, kernel<i>, version)), ...);
}

/// Implements the operators for tensors on CPUs. describe(name, tensors, start, text) gives the arguments of rotate;
/// its tensors are views by their roles, or None.
void implement_operators(const std::string &path, nb::callable description) {
    const auto found = torch::find_functions(path.c_str());
    if (functions != nullptr) {
        return;
    }
    functions = new torch::Functions(found);
    describe = description.release().ptr();
    torch::Library *library = nullptr;
    require(functions->init_library("halyard", "CPU", __FILE__, __LINE__, &library));
    implement(library, std::make_index_sequence<std::size(operators)>());
}

}  // namespace

void add_operators(nb::module_ &module) {
    nb::class_<View>(module, "View")
        .def_prop_ro("shape",
                     [](const View &self) {
                         nb::list shape;
                         for (int i = 0; i < self.n_dims; ++i) {
                             shape.append(self.shape[static_cast<std::size_t>(i)]);
                         }
                         return nb::tuple(shape);
                     })
        .def("heads", &View::heads, nb::arg("first"), nb::arg("n"), nb::arg("head_dim"));
    module.def("implement_operators", implement_operators, nb::arg("path"), nb::arg("describe"));
}

}  // namespace halyard::python
