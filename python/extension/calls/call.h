// A call of rotate or rerotate: what Python says, read into what the C ABI takes.
#pragma once

#include "angles.h"
#include "names.h"
#include "road.h"
#include "tokens.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace halyard::python {

namespace nb = nanobind;

constexpr std::size_t max_tensors = 3;  // q, k and v

/// The member i of a tuple. Those that come here have as many as are asked for.
inline nb::handle at(nb::handle tuple, std::size_t i) {
    return PyTuple_GetItem(tuple.ptr(), static_cast<Py_ssize_t>(i));
}

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
          target(read<Word>(tuple, 6, "target")) {
        if (!at(tuple, 7).is_none()) {
            heads = read<std::vector<std::int64_t>>(tuple, 7, "heads");
            head_dim = read<std::int64_t>(tuple, 8, "head_dim");
        }
    }

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
    std::vector<std::int64_t> heads;  ///< of q, k and v, where these lie in one array
    std::int64_t head_dim = 0;        ///< where the heads of a token share a dimension of it; else 0
};

/// The tensors of a call side by side, as the C ABI takes them, and what they point into.
struct Tensors {
    std::array<Road, max_tensors> roads;
    std::array<halyard_tensor_desc, max_tensors> descs{};
    std::array<halyard_tensor, max_tensors> x{}, y{};
    std::array<halyard_stages, max_tensors> stages{};
    halyard_kv_args kv = make_struct<halyard_kv_args>();
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
            if (descs[i].kv->cache != nullptr) {
                least = least == 0 ? descs[i].kv->cache->n_slots : std::min(least, descs[i].kv->cache->n_slots);
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
        return args;
    }

    /// What a run brings; NULL where it brings nothing.
    const halyard_kv_args *kv_args() {
        kv.stages = have_stages ? stages.data() : nullptr;
        return have_stages || kv.slots != nullptr || kv.from_positions != nullptr ? &kv : nullptr;
    }
};

/// A call of rotate, read: x into y or caches, see read_tensors. It must stay where it is.
struct Call {
    Call(AngleSource &angles, nb::handle x, nb::handle y, nb::handle positions, nb::handle offsets, nb::handle stages,
         const Options &options);

    Tensors tensors;
    std::optional<Positions> read_positions;
    std::optional<Slots> read_slots;
    halyard_plan_desc desc{};
    halyard_run_args args{};
    std::int32_t device;
};

/// Throws where positions are left out that a call should have.
void require_positions(const AngleSource &angles, const Tensors &tensors);

}  // namespace halyard::python
