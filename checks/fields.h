// One table of the fields of all public structs that calls read: the kind of each field and its offset. Fuzzers, tests
// of refused calls and the printing of random calls iterate over it.
#pragma once

#include "halyard/halyard_kv.h"

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace fields {

enum class Kind {
    size,         // the struct's size field
    choice,       // a number from `value` to `last`
    reserved,     // must be 0
    count,        // a number; if it is negative, the call fails with the status `value`
    shape,        // an array of counts
    stride,       // a number; a call fails if it leads out of the address space
    number,       // any other number
    real,         // a double; if it is negative or not finite, the call fails with the status `value`
    data,         // a pointer to data, aligned to `value` bytes
    object,       // a pointer to an object or function
    link,         // a pointer to a struct
    links,        // a pointer to an array of structs, one for each tensor
    option,       // like object, but may always be NULL
    link_option,  // like link, but may always be NULL
};

struct Struct;

struct Field {
    const char *name;
    std::size_t offset, bytes, n_elements;  // `bytes` is the size of one element; array fields have several elements
    bool is_real;
    Kind kind;
    std::int64_t value, last;
    const Struct *to;  // the struct that a link points to

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

/// One element of a field in the structs of a call.
struct Place {
    std::string owner, path;  // as error messages name them: "tensors[1].kv.norm" and "tensors[1].kv.norm.kind"
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
    /// Writes the first bytes of a value, as many as the element has.
    template <typename T>
    void write(const T &value) const {
        std::memcpy(at, &value, field->bytes);
    }
};

/// All fields of a struct and of the structs that it points to. Structs whose size field is 0 are left out.
std::vector<Place> places(const Struct &type, const void *address, std::int32_t n_tensors,
                          const std::string &path = "");

/// Lists the values of these fields for a message. Sizes, addresses and zeros are left out.
std::string text(const std::vector<Place> &places);

}  // namespace fields
