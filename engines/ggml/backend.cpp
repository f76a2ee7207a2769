// The backend that ggml loads. It has no devices; it replaces functions of ggml's CPU backend, so that graphs are
// computed with Halyard. A device of its own would split the graph at each rotation: see README.md.
#include "graph.h"

#include <ggml-backend-impl.h>
#include <ggml-backend.h>
#include <ggml.h>
#include <halyard/halyard_kv.hpp>

#include <cstring>
#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>

namespace halyard_ggml {

namespace {

using SetUseRef = void (*)(ggml_backend_t, bool);

/// The original functions of ggml's CPU device, and the backends that it has made since they were replaced.
struct Hooks {
    ggml_backend_t (*init_backend)(ggml_backend_dev_t, const char *) = nullptr;
    void *(*get_proc_address)(ggml_backend_reg_t, const char *) = nullptr;
    SetUseRef set_use_ref = nullptr;
    std::mutex mutex;
    std::unordered_map<ggml_backend_t, std::unique_ptr<GraphComputer>> computers;
};

/// The hooks are never destroyed, because a program may free its backends while it ends.
Hooks &hooks() {
    static auto *const instance = new Hooks;
    return *instance;
}

GraphComputer *computer_of(ggml_backend_t backend) {
    const std::lock_guard lock(hooks().mutex);
    const auto found = hooks().computers.find(backend);
    return found == hooks().computers.end() ? nullptr : found->second.get();
}

ggml_status compute_graph(ggml_backend_t backend, ggml_cgraph *graph) {
    return computer_of(backend)->compute(backend, graph);
}

void free_backend(ggml_backend_t backend) {
    std::unique_ptr<GraphComputer> computer;
    {
        const std::lock_guard lock(hooks().mutex);
        computer = std::move(hooks().computers.extract(backend).mapped());
    }
    computer->log_counts();
    computer->original().free(backend);
}

ggml_backend_t init_backend(ggml_backend_dev_t device, const char *parameters) {
    const ggml_backend_t backend = hooks().init_backend(device, parameters);
    if (backend == nullptr) {
        return nullptr;
    }
    try {
        auto computer = std::make_unique<GraphComputer>(backend->iface);
        const std::lock_guard lock(hooks().mutex);
        hooks().computers[backend] = std::move(computer);
    } catch (const std::exception &error) {
        log_line(GGML_LOG_LEVEL_WARN, error.what());
        return backend;
    }
    backend->iface.graph_compute = compute_graph;
    backend->iface.free = free_backend;
    return backend;
}

void set_use_ref(ggml_backend_t backend, bool use_ref) {
    if (GraphComputer *computer = computer_of(backend)) {
        computer->set_reference(use_ref);
    }
    hooks().set_use_ref(backend, use_ref);
}

void *get_proc_address(ggml_backend_reg_t reg, const char *name) {
    void *const found = hooks().get_proc_address(reg, name);
    if (found == nullptr || std::strcmp(name, "ggml_backend_cpu_set_use_ref") != 0) {
        return found;
    }
    hooks().set_use_ref = reinterpret_cast<SetUseRef>(found);
    return reinterpret_cast<void *>(set_use_ref);
}

/// Throws halyard::error if the CPU or HALYARD_TARGET leaves only Halyard's portable reference, because the reference
/// has no KV path and is slower than ggml.
void require_kernels() {
    auto tensor = halyard::describe_tensor(halyard::dtype::f32, 2, halyard::pairing::half);
    auto kv = halyard::make_struct<halyard_kv_desc>();
    kv.hadamard = 2;
    tensor.kv = &kv;
    const halyard::plan plan(halyard::plan_desc(2, {tensor}));
}

/// Replaces functions of ggml's CPU device. Returns an empty string, or why it replaced nothing. May throw.
std::string install_hooks() {
    ggml_backend_dev_t device = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
    if (device == nullptr) {
        return "ggml has no CPU backend";
    }
    ggml_backend_reg_t reg = ggml_backend_dev_backend_reg(device);
    if (hooks().init_backend != nullptr) {
        return {};
    }
    require_kernels();
    // ggml's function tables have a version, but its structs of graphs and tensors have none. So find_incompatibility()
    // has ggml make such structs, and checks what it reads in them.
    const std::string differs =
        reg->api_version == GGML_BACKEND_API_VERSION ? find_incompatibility(device) : "the tables of backends";
    if (!differs.empty()) {
        return std::string("ggml ") + ggml_version() + " differs from the one that this library was built for in " +
               differs;
    }
    hooks().init_backend = device->iface.init_backend;
    hooks().get_proc_address = reg->iface.get_proc_address;
    device->iface.init_backend = init_backend;
    if (reg->iface.get_proc_address != nullptr) {
        reg->iface.get_proc_address = get_proc_address;
    }
    return {};
}

const char *get_name(ggml_backend_reg_t /*reg*/) { return "Halyard"; }
size_t get_device_count(ggml_backend_reg_t /*reg*/) { return 0; }
ggml_backend_dev_t get_device(ggml_backend_reg_t /*reg*/, size_t /*index*/) { return nullptr; }

ggml_backend_reg registration = {GGML_BACKEND_API_VERSION, {get_name, get_device_count, get_device, nullptr}, nullptr};

}  // namespace

}  // namespace halyard_ggml

extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t ggml_backend_init() {
    std::string why_not;
    try {
        why_not = halyard_ggml::install_hooks();
    } catch (const std::exception &error) {
        why_not = error.what();
    }
    if (why_not.empty()) {
        return &halyard_ggml::registration;
    }
    halyard_ggml::log_line(GGML_LOG_LEVEL_WARN, why_not + ", so nothing is replaced");
    return nullptr;
}
