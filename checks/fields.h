// One table of the fields of all public structs that a call reads: what each is, and where it lies. Fuzzers, refusals
// and the printing of random calls go by it.
#pragma once

#include "halyard/halyard_kv.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace fields {

enum class Kind {
    size,         // of the struct
    choice,       // a number from `value` to `last`
    reserved,     // 0
    count,        // a number that is refused with the status `value` where it is negative
    shape,        // likewise, of an array
    stride,       // a number that is refused where it leads out of the address space
    number,       // any other
    real,         // a double that is refused with the status `value` where it is negative or not finite
    data,         // an address of memory, a multiple of `value` bytes
    object,       // another pointer that a call goes by
    link,         // a pointer to a struct
    links,        // likewise, to one for each tensor
    option,       // like object, and
    link_option,  // like link, which may be NULL whatever else the call says
};

struct Struct;

struct Field {
    const char *name;
    std::size_t offset, bytes, n_elements;  // bytes of an element, of which a shape has several
    bool is_real;
    Kind kind;
    std::int64_t value, last;
    const Struct *to;  // what a link leads to

    bool is_pointer() const { return kind >= Kind::data; }
};

struct Struct {
    const char *name;
    std::size_t size;
    std::vector<Field> fields;
};

/// The fields of one struct of the C ABI.
template <typename S>
const Struct &of();
/// The fields of each struct that a call reads.
std::vector<const Struct *> all();

/// An element of a field of a call.
struct Place {
    std::string owner, path;  // the struct and the field, as sentences name them: "tensors[1].kv.norm" and its ".kind"
    const Field *field;
    const Struct *in;
    char *at;

    bool is_null() const { return pointer() == nullptr; }
    char *pointer() const { return read<char *>(); }
    template <typename T>
    T read() const {
        T value;
        std::memcpy(&value, at, sizeof(value));
        return value;
    }
    std::int64_t number() const { return field->bytes == 8 ? read<std::int64_t>() : read<std::int32_t>(); }
    /// As much of a value as there is room for.
    template <typename T>
    void write(const T &value) const {
        std::memcpy(at, &value, field->bytes);
    }
};

/// All fields of a struct and of those that it leads to. A struct whose size is not set is not there.
std::vector<Place> places(const Struct &of, const void *at, std::int32_t n_tensors, const std::string &path = "");

/// The values of these fields, without sizes, addresses and zeros.
std::string text(const std::vector<Place> &places);

}  // namespace fields
