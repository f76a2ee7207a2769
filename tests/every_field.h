// Refuses what may stand in no field, whatever else a valid call says: numbers that are no choice, sizes that no struct
// has, numbers behind reserved, negative counts, strides and addresses beyond all memory, and NULL.
#pragma once

#include "changes.h"
#include "checks/fields.h"

#include <algorithm>
#include <limits>

namespace every_field {

using fields::Kind;
using fields::Place;
using Real = std::numeric_limits<double>;

/// How a sentence names a field and what it holds.
inline Words words_of(const Place &place) {
    const std::string name =
        place.path.substr(0, place.path.ends_with(']') ? place.path.rfind('[') : std::string::npos);
    return place.field->is_pointer()           ? Words{name + (place.is_null() ? " is NULL" : " is set")}
           : place.field->kind == Kind::choice ? Words{name + " is "}
           : place.field->n_elements > 1       ? Words{name, text(place.number())}
           : place.field->is_real              ? Words{name + " is "}
                                               : Words{name + " is " + text(place.number())};
}

inline Set set(const Place &place, const auto &value) { return Set(place.at, &value, place.field->bytes); }

inline void refuse(const Table &table, const std::vector<Place> &places) {
    for (const Place &place : places) {
        const fields::Field &field = *place.field;
        const auto refuse = [&](halyard_status status, const Words &words, const Set &change) {
            table.refuse(status, words, {change});
        };
        const auto numbers = [&](halyard_status status, const auto &values) {
            const std::string name = field.n_elements > 1 ? place.path.substr(0, place.path.rfind('[')) : place.path;
            for (const auto value : values) {
                refuse(status,
                       field.n_elements > 1 ? Words{name, std::to_string(value)}
                                            : Words{name + " is " + std::to_string(value)},
                       set(place, value));
            }
        };
        const bool is_of_stages = place.in == &fields::of<halyard_stages>();  // just what the plan asks for is set
        const std::int64_t far[] = {INT64_MIN, INT64_MAX, INT64_MAX / 2, INT64_MIN / 4, 1LL << 60, -(1LL << 60)};
        const std::int64_t least = field.bytes == 8 ? INT64_MIN : INT32_MIN;
        switch (field.kind) {
        case Kind::size: {
            const auto own = static_cast<std::uint32_t>(place.in->size);
            numbers(HALYARD_ERROR_STRUCT_SIZE,
                    std::vector<std::uint32_t>{0, 1, 4, own - 1, own + 1, own + 8, UINT32_MAX});
            break;
        }
        case Kind::choice:
            numbers(HALYARD_ERROR_UNKNOWN_VALUE, Numbers{field.value - 1, field.last + 1, INT32_MAX, INT32_MIN});
            break;
        case Kind::reserved: numbers(HALYARD_ERROR_UNKNOWN_VALUE, Numbers{-1, 1, INT32_MAX, INT32_MIN}); break;
        case Kind::count:
        case Kind::shape: numbers(static_cast<halyard_status>(field.value), Numbers{-1, least}); break;
        case Kind::stride:
            if (is_of_stages && place.number() == 0) {
                refuse(HALYARD_ERROR_MISMATCH, {place.path + " is 7"}, set(place, std::int64_t{7}));
                break;
            }
            for (const std::int64_t stride : far) {
                refuse(HALYARD_ERROR_OVERFLOW, {place.owner, "address space"}, set(place, stride));
            }
            break;
        case Kind::real:
            for (const double value : {-1e-6, Real::quiet_NaN(), Real::infinity(), -Real::infinity()}) {
                refuse(static_cast<halyard_status>(field.value), {place.path + " is "}, set(place, value));
            }
            break;
        case Kind::data:
            if (is_of_stages && place.is_null()) {
                refuse(HALYARD_ERROR_MISMATCH, {place.path + " is set"}, set(place, place.at));
            } else if (!place.is_null()) {
                refuse(HALYARD_ERROR_OVERFLOW, {place.owner, "address space"},
                       set(place, UINTPTR_MAX / static_cast<std::uintptr_t>(field.value) *
                                      static_cast<std::uintptr_t>(field.value)));
            }
            [[fallthrough]];
        case Kind::object:
        case Kind::link:
        case Kind::links:
            if (!place.is_null()) {
                refuse(HALYARD_ERROR_NULL_POINTER, {place.path + " is NULL"}, set(place, std::uintptr_t{0}));
            }
            break;
        default: break;
        }
    }
}

}  // namespace every_field
