// Checks that a call refuses the values that are always bad in a field of its kind: unknown choices, bad struct sizes,
// nonzero reserved fields, negative counts, strides and addresses beyond the address space, and NULL.
#pragma once

#include "call_checker.h"
#include "checks/fields.h"

#include <algorithm>
#include <limits>

namespace every_field {

using fields::Kind;
using fields::Place;
using Real = std::numeric_limits<double>;

/// The path of the field, without the index of its element.
inline std::string name_of(const Place &place) {
    return place.path.substr(0, place.path.ends_with(']') ? place.path.rfind('[') : std::string::npos);
}

/// The words of an error message about a number in a field.
inline Words words_of(const Place &place, std::int64_t number) {
    return place.field->n_elements > 1 ? Words{name_of(place), text(number)}
                                       : Words{name_of(place) + " is " + text(number)};
}

/// The words of an error message about a field of any kind with its current value.
inline Words words_of(const Place &place) {
    return place.field->is_pointer() ? Words{name_of(place) + (place.is_null() ? " is NULL" : " is set")}
           : place.field->kind == Kind::choice || place.field->is_real ? Words{name_of(place) + " is "}
                                                                       : words_of(place, place.number());
}

inline Change set(const Place &place, const auto &value) { return Change(place.at, &value, place.field->bytes); }

/// Checks that each of the numbers is refused in a field.
inline void refuse_numbers(const CallChecker &table, const Place &place, halyard_status status, const auto &numbers) {
    for (const auto number : numbers) {
        table.refuse(status, words_of(place, number), {set(place, number)});
    }
}

/// Checks that a call refuses NULL, the last address of the address space and, in halyard_stages, pointers that the
/// plan does not use.
inline void refuse_pointers(const CallChecker &table, const Place &place, bool is_of_stages) {
    if (place.field->kind == Kind::data && is_of_stages && place.is_null()) {
        table.refuse(HALYARD_ERROR_MISMATCH, {place.path + " is set"}, {set(place, place.at)});
    }
    if (place.is_null()) {
        return;
    }
    if (place.field->kind == Kind::data) {
        const auto step = static_cast<std::uintptr_t>(place.field->value);
        table.refuse(HALYARD_ERROR_OVERFLOW, {place.owner, "address space"}, {set(place, UINTPTR_MAX / step * step)});
    }
    table.refuse(HALYARD_ERROR_NULL_POINTER, {place.path + " is NULL"}, {set(place, std::uintptr_t{0})});
}

inline void refuse(const CallChecker &table, const Place &place) {
    const fields::Field &field = *place.field;
    const bool is_of_stages = place.in == &fields::of<halyard_stages>();  // only fields that the plan uses may be set
    const auto status = static_cast<halyard_status>(field.value);
    switch (field.kind) {
    case Kind::size: {
        const auto own = static_cast<std::uint32_t>(place.in->size);
        return refuse_numbers(table, place, HALYARD_ERROR_STRUCT_SIZE,
                              std::vector<std::uint32_t>{0, 1, 4, own - 1, own + 1, own + 8, UINT32_MAX});
    }
    case Kind::choice:
        return refuse_numbers(table, place, HALYARD_ERROR_UNKNOWN_VALUE,
                              Numbers{field.value - 1, field.last + 1, INT32_MAX, INT32_MIN});
    case Kind::reserved:
        return refuse_numbers(table, place, HALYARD_ERROR_UNKNOWN_VALUE, Numbers{-1, 1, INT32_MAX, INT32_MIN});
    case Kind::count:
    case Kind::shape:
        return refuse_numbers(table, place, status, Numbers{-1, field.bytes == 8 ? INT64_MIN : INT32_MIN});
    case Kind::stride:
        if (is_of_stages && place.number() == 0) {
            return table.refuse(HALYARD_ERROR_MISMATCH, {place.path + " is 7"}, {set(place, std::int64_t{7})});
        }
        for (const std::int64_t stride : {INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 4, 1L << 60, -(1L << 60)}) {
            table.refuse(HALYARD_ERROR_OVERFLOW, {place.owner, "address space"}, {set(place, stride)});
        }
        return;
    case Kind::real:
        for (const double value : {-1e-6, Real::quiet_NaN(), Real::infinity(), -Real::infinity()}) {
            table.refuse(status, {place.path + " is "}, {set(place, value)});
        }
        return;
    case Kind::data:
    case Kind::object:
    case Kind::link:
    case Kind::links: return refuse_pointers(table, place, is_of_stages);
    default: return;
    }
}

/// Checks all fields but those in `but`, where "x*" stands for all paths that begin with x.
inline void refuse(const CallChecker &table, const std::vector<Place> &places, const Words &but = {}) {
    for (const Place &place : places) {
        if (std::none_of(but.begin(), but.end(), [&](const std::string &name) {
                return place.path == name ||
                       (name.ends_with('*') && place.path.starts_with(name.substr(0, name.size() - 1)));
            })) {
            refuse(table, place);
        }
    }
}

}  // namespace every_field
