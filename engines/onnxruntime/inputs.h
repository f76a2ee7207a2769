// What a node's attributes and inputs say, read into a run.
#pragma once

#include "runs.h"

#include <halyard/halyard.hpp>

#include <cstdint>
#include <string>
#include <vector>

namespace halyard_onnxruntime {

/// Throws halyard::error with a sentence of these parts.
template <typename... Parts>
[[noreturn]] void refuse(halyard_status status, const Parts &...parts) {
    const auto text = [](const auto &part) {
        if constexpr (std::is_arithmetic_v<std::decay_t<decltype(part)>>) {
            return std::to_string(part);
        } else {
            return std::string(part);
        }
    };
    throw halyard::error(status, (text(parts) + ...));
}

/// Calls f, and turns what it throws into a status, which ONNX Runtime prefixes with the node's name.
OrtStatusPtr as_status(const Ort::Exception &error) noexcept;
OrtStatusPtr as_status(const halyard::error &error) noexcept;
template <typename Function>
OrtStatusPtr guard(const Function &f) noexcept {
    try {
        f();
        return nullptr;
    } catch (const halyard::error &error) {
        return as_status(error);
    } catch (const Ort::Exception &error) {
        return as_status(error);
    } catch (const std::exception &error) {
        return Ort::GetApi().CreateStatus(ORT_FAIL, error.what());
    } catch (...) {
        return Ort::GetApi().CreateStatus(ORT_FAIL, "an unknown exception");
    }
}

/// The dtype of a tensor that an operator takes.
halyard::dtype dtype_of(ONNXTensorElementDataType type);

/// An attribute that may be left out.
template <typename T>
T attribute(const Ort::ConstKernelInfo &info, const char *name, T otherwise) {
    try {
        return info.GetAttribute<T>(name);
    } catch (const Ort::Exception &) {
        return otherwise;
    }
}

/// A list of them; empty if it is left out.
template <typename T>
std::vector<T> attributes(const Ort::ConstKernelInfo &info, const char *name) {
    try {
        return info.GetAttributes<T>(name);
    } catch (const Ort::Exception &) {
        return {};
    }
}

/// The attributes that all operators have.
struct RotationAttributes {
    explicit RotationAttributes(const Ort::ConstKernelInfo &info);

    /// A key of runs that has what they say, and no shapes yet.
    RunKey start_key(halyard::dtype dtype) const;

    std::int64_t num_heads, rotary_dim;  // 0: left out
    bool is_interleaved;
    float epsilon;
    Axes axes;
};

/// What an operator says of an input. Its elements are of the operator's dtype, or int64.
struct InputKind {
    const char *name;
    bool is_required = false, is_int64 = false;
};

/// An input; empty where it is left out.
struct Input {
    explicit Input(const char *called) : name(called) {}
    Input(const Ort::KernelContext &context, std::size_t index, const char *name);
    Input(const Ort::KernelContext &context, const InputKind *kinds, std::size_t index)
        : Input(context, index, kinds[index].name) {}

    explicit operator bool() const { return is_given; }
    std::int64_t rank() const { return static_cast<std::int64_t>(shape.size()); }
    std::string shape_text() const;

    void set(const Ort::ConstValue &value);

    const char *name;
    bool is_given = false;
    const void *data = nullptr;
    std::vector<std::int64_t> shape;
};

/// A table of cos or sin. As a rule it is a constant of the model, which is read once.
class Table {
public:
    Table(const Ort::ConstKernelInfo &info, std::size_t index, const char *name);

    Input read(const Ort::KernelContext &context) const {
        return constant_ ? constant_ : Input(context, index_, constant_.name);
    }

private:
    std::size_t index_;
    Input constant_;  // empty where it is none
};

/// Reads cos_cache, sin_cache and position_ids for a run of key.n_batch x key.n_tokens; a rotary_dim of 0 is taken to
/// be head_dim. has_own_angles: the node needs no caches.
void read_angles(const Input &cos, const Input &sin, const Input &positions, bool has_own_angles, RunKey *key,
                 Pointers *pointers);

/// Reads a norm's weight [head_dim] for tensor i.
void read_weight(const Input &weight, std::size_t i, RunKey *key, Pointers *pointers);

}  // namespace halyard_onnxruntime
