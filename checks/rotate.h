// Helpers that rotate dense arrays through the library and find the elements of tensors in memory.
#pragma once

#include "checks/oracle.h"
#include "core/kernels.h"
#include "halyard/halyard.hpp"

#include <array>
#include <cstring>
#include <vector>

/// The names of the targets that this machine can run, the reference included.
inline std::vector<const char *> targets_here() {
    std::vector<const char *> names;
    for (const halyard_target_info &target : halyard::targets()) {
        if (target.built != 0 && target.supported != 0) {
            names.push_back(target.name);
        }
    }
    return names;
}

/// The targets of this machine that have KV stages: all but the reference, which is the last one.
inline std::vector<const char *> stage_targets_here() {
    std::vector<const char *> names = targets_here();
    names.pop_back();
    return names;
}

/// The description of one tensor's rotation. By default it is f32 in half pairing, and the whole head is rotated.
struct Rotation {
    std::int64_t rotary_dim = 0;
    std::int64_t head_dim = 0;  // 0 means rotary_dim
    std::int64_t offset = 0;
    std::int32_t dtype = HALYARD_F32;
    std::int32_t pairing = HALYARD_PAIRING_HALF;
    std::int32_t out_pairing = 0;  // 0: the pairing of the input
    bool inverse = false;
    const char *target = nullptr;

    std::int64_t full_head() const { return head_dim != 0 ? head_dim : rotary_dim; }
    std::int32_t pairing_of_output() const { return out_pairing != 0 ? out_pairing : pairing; }

    halyard::plan plan() const {
        auto tensor = halyard::make_struct<halyard_tensor_desc>();
        tensor.dtype = dtype;
        tensor.pairing = pairing;
        tensor.out_pairing = out_pairing;
        tensor.head_dim = full_head();
        tensor.rotary_offset = offset;
        halyard::plan_desc desc(rotary_dim, {tensor});
        desc.direction = inverse ? HALYARD_INVERSE : HALYARD_FORWARD;
        desc.target = target;
        return halyard::plan(desc);
    }

    /// The index that member 0 or 1 of pair k has in a head with this pairing.
    std::int64_t index(std::int32_t pairing_there, std::int64_t k, int member) const {
        return offset + (pairing_there == HALYARD_PAIRING_HALF ? k + member * rotary_dim / 2 : 2 * k + member);
    }
};

/// A dense array of elements of one dtype, [batch, tokens, heads, head_dim].
struct Elements {
    std::int32_t dtype = HALYARD_F32;
    std::array<std::int64_t, 4> shape = {};
    std::vector<char> bytes;

    Elements(std::int32_t type, std::array<std::int64_t, 4> sizes)
        : dtype(type), shape(sizes), bytes(static_cast<std::size_t>(count() * oracle::element_bytes(type))) {}
    /// Rounds the values to the dtype.
    Elements(std::int32_t type, std::array<std::int64_t, 4> sizes, const std::vector<float> &values)
        : Elements(type, sizes) {
        for (std::int64_t i = 0; i < count(); i++) {
            set_word(i, oracle::narrow(type, values.at(static_cast<std::size_t>(i))));
        }
    }

    std::int64_t count() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
    std::uint32_t word(std::int64_t i) const { return oracle::read_word(dtype, at(i)); }
    void set_word(std::int64_t i, std::uint32_t word) { oracle::write_word(dtype, at(i), word); }
    float operator[](std::int64_t i) const { return oracle::widen(dtype, word(i)); }
    bool operator==(const Elements &other) const { return bytes == other.bytes; }
    char *at(std::int64_t i) { return bytes.data() + i * oracle::element_bytes(dtype); }
    const char *at(std::int64_t i) const { return bytes.data() + i * oracle::element_bytes(dtype); }

    halyard_tensor tensor() { return halyard::tensor(bytes.data(), static_cast<halyard::dtype>(dtype), shape); }

    /// Random numbers as large as activations are.
    static Elements random(std::int32_t type, std::array<std::int64_t, 4> sizes, oracle::Random &random) {
        Elements result(type, sizes);
        for (std::int64_t i = 0; i < result.count(); i++) {
            result.set_word(i, oracle::narrow(type, static_cast<float>(4 * random.unit())));
        }
        return result;
    }
};

/// Makes a plan and rotates x with it, in place or into poisoned memory. Returns the result.
inline Elements rotate(const Rotation &rotation, const halyard::angle_source &angles,
                       const halyard_positions *positions, Elements x, bool in_place = false,
                       const halyard_executor *executor = nullptr) {
    halyard::run_options options;
    if (positions != nullptr) {
        options.positions = *positions;
    }
    options.executor = executor;
    const halyard::plan plan = rotation.plan();
    if (in_place) {
        halyard::run(plan, angles, x.tensor(), x.tensor(), options);
        return x;
    }
    Elements y(x.dtype, x.shape);
    std::memset(y.bytes.data(), 0xa5, y.bytes.size());
    halyard::run(plan, angles, x.tensor(), y.tensor(), options);
    return y;
}

inline std::int64_t count_elements(const halyard_tensor &tensor) {
    return tensor.shape[0] * tensor.shape[1] * tensor.shape[2] * tensor.shape[3];
}

/// The address of element i of a strided tensor, where i counts elements with the last dimension fastest.
inline char *element_at(const halyard_tensor &tensor, std::int64_t i) {
    std::int64_t offset = 0;
    for (int d = 3; d >= 0; d--) {
        offset += i % tensor.shape[d] * tensor.strides[d];
        i /= tensor.shape[d];
    }
    return static_cast<char *>(tensor.data) + offset * oracle::element_bytes(tensor.dtype);
}
