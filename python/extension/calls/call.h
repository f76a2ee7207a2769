// A call of rotate or rerotate: Python's arguments, read into the C ABI's structs.
#pragma once

#include "angles.h"
#include "call_tensor.h"
#include "enum_names.h"
#include "positions.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <cstring>

namespace halyard::python {

constexpr std::size_t max_tensors = 3;  // q, k and v

/// _tensor.Options, or a tuple like it.
struct Options {
    explicit Options(nb::handle tuple)
        : is_inverse(cast<bool>(at(tuple, 0), "inverse")), pairing(cast<Word>(at(tuple, 1), "pairing")),
          out_pairing(cast<Word>(at(tuple, 2), "out_pairing")),
          heads_first(value_of(layouts, "layout", cast<std::string>(at(tuple, 3), "layout")) != 0),
          bad_position(cast<std::string>(at(tuple, 4), "bad_position")),
          duplicate_slots(cast<std::string>(at(tuple, 5), "duplicate_slots")),
          n_threads(cast<std::int32_t>(at(tuple, 6), "threads")), target(cast<Word>(at(tuple, 7), "target")) {}

    /// The pairings of input and output: as the options state, else as the model has them, else half.
    std::pair<std::int32_t, std::int32_t> pairings(const AngleSource &angles) const {
        const auto own = angles.pairing != 0 ? angles.pairing : std::int32_t{HALYARD_PAIRING_HALF};
        const auto own_out = angles.out_pairing != 0 ? angles.out_pairing : own;
        const auto from = pairing ? value_of(python::pairings, "pairing", *pairing) : own;
        const auto otherwise = pairing ? from : own_out;
        return {from, out_pairing ? value_of(python::pairings, "out_pairing", *out_pairing) : otherwise};
    }

    using Word = std::optional<const char *>;  // or None
    bool is_inverse;
    Word pairing, out_pairing;
    bool heads_first;
    std::string bad_position, duplicate_slots;
    std::int32_t n_threads;
    Word target;
};

/// The tensors of a call as the C ABI's arrays of structs, and the operands that these point into.
struct Tensors {
    std::array<Operand, max_tensors> operands;
    std::array<halyard_tensor_desc, max_tensors> descs{};
    std::array<halyard_tensor, max_tensors> x{}, y{};
    std::array<halyard_stages, max_tensors> stages{};
    halyard_kv_args kv = make_struct<halyard_kv_args>();
    std::size_t n = 0;

    /// Adds operands[n], which must have been read, to the arrays of structs.
    void append_operand() {
        const auto &operand = operands[n];
        descs[n] = operand.desc;
        x[n] = operand.x;
        y[n] = operand.y;
        stages[n] = operand.stages;
        ++n;
    }

    /// Calls `function`. In its error messages, replaces the C ABI's indices of tensors ("x[1]") by their names ("k").
    template <typename Function>
    auto rethrow_with_tensor_names(Function &&function) const {
        try {
            return function();
        } catch (const error &refusal) {
            throw error(refusal.status(), with_tensor_names(refusal.what()));
        }
    }
    std::string with_tensor_names(std::string message) const;

    /// The slots of the smallest cache; 0 if there is no cache.
    std::int64_t n_slots_of_smallest_cache() const {
        std::int64_t min = 0;
        for (std::size_t i = 0; i < n; ++i) {
            const auto *const cache = descs[i].kv->cache;
            min = cache != nullptr && (min == 0 || cache->n_slots < min) ? cache->n_slots : min;
        }
        return min;
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

    /// The KV path's arguments of a run; NULL if it has none.
    const halyard_kv_args *kv_args() {
        const auto none = make_struct<halyard_stages>();
        const bool have_stages = std::any_of(stages.data(), stages.data() + n, [&](const halyard_stages &each) {
            return std::memcmp(&each, &none, sizeof none) != 0;
        });
        kv.stages = have_stages ? stages.data() : nullptr;
        return have_stages || kv.slots != nullptr || kv.from_positions != nullptr ? &kv : nullptr;
    }
};

/// The arguments of a call of rotate. Its structs point into each other, so it must not be moved or copied.
struct Call {
    /// given: the tuples of _tensor.complete.
    Call(AngleSource &angles, nb::handle given, nb::handle positions, nb::handle slots, const Options &options);

    Tensors tensors;
    std::optional<Positions> read_positions;
    std::optional<Slots> read_slots;
    halyard_plan_desc desc{};
    halyard_run_args args{};
    std::int32_t device;
};

/// Throws if a call without positions must have them: a batch, a single token, or tensors that go into a cache.
void require_positions(const AngleSource &angles, const Tensors &tensors);

}  // namespace halyard::python
