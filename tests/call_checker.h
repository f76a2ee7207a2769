// Tests of refused calls: a row changes some fields of a valid call, checks the status and error message, and undoes
// the changes. So one valid call serves many rows.
#pragma once

#include "refused.h"

#include <algorithm>
#include <array>
#include <functional>
#include <type_traits>
#include <utility>

/// A field of a valid call, and the value to change it to.
class Change {
public:
    template <typename Field, typename Value>
    Change(Field &field, const Value &value) : Change(&field, sizeof(Field)) {
        static_assert(std::is_trivially_copyable_v<Field>);
        const auto given = static_cast<Field>(value);
        std::memcpy(bytes_.data(), &given, sizeof(given));
    }
    template <typename Element, std::size_t count>
    Change(Element (&field)[count], const std::array<Element, count> &value) : Change(&field, sizeof(field)) {
        std::memcpy(bytes_.data(), value.data(), sizeof(field));
    }

    Change(void *field, const void *value, std::size_t n_bytes) : Change(field, n_bytes) {
        std::memcpy(bytes_.data(), value, n_bytes);
    }

    const void *field() const { return field_; }
    /// Swaps the field with the other value: the first call changes the field, the second restores it.
    void swap() { std::swap_ranges(bytes_.begin(), bytes_.end(), field_); }

private:
    Change(void *field, std::size_t n_bytes) : field_(static_cast<char *>(field)), bytes_(n_bytes) {}

    char *field_;
    std::vector<char> bytes_;
};

/// An integer field of a valid call, and its name in error messages. The name is empty if the CallChecker looks it up.
struct NamedInteger {
    std::string name;
    std::function<Change(std::int64_t)> set;

    template <typename Integer>
    NamedInteger(Integer &integer) : NamedInteger("", integer) {}
    template <typename Integer>
    NamedInteger(std::string its_name, Integer &integer)
        : name(std::move(its_name)), set([&integer](std::int64_t value) { return Change(integer, value); }) {}
};

/// An address after which the address space has only n_bytes left.
template <typename Pointer = void *>
Pointer before_the_end_of_memory(std::uintptr_t n_bytes) {
    return reinterpret_cast<Pointer>(UINTPTR_MAX - n_bytes);
}

struct BadCall {
    halyard_status status;
    Words words;
    std::vector<Change> changes;
};

/// Checks changed calls by two functions: one checks that a call fails with a status and words, one that it succeeds.
class CallChecker {
public:
    using Refused = std::function<void(halyard_status, const Words &)>;
    using Accepted = std::function<void()>;

    /// Returns the words of an error message about the field at an address.
    using Names = std::function<Words(const void *)>;

    explicit CallChecker(Refused refused, Accepted accepted = nullptr, Names names = nullptr)
        : refused_(std::move(refused)), accepted_(std::move(accepted)), names_(std::move(names)) {}

    void refuse(std::initializer_list<BadCall> rows) const {
        for (const BadCall &row : rows) {
            refuse(row.status, row.words, row.changes);
        }
    }
    /// The error message must hold these words or, if there are none, the last changed field's name and value.
    void refuse(halyard_status status, const Words &words, const std::vector<Change> &changes) const {
        with(changes, [&] {
            const Words said = words.empty() && names_ ? names_(changes.back().field()) : words;
            CAPTURE(said);
            refused_(status, said);
        });
    }
    /// Tries each value in each field. The error message must hold the field's name, the value and the words `more`.
    template <typename Values = Numbers>
    void refuse_each(halyard_status status, const Values &values, std::initializer_list<NamedInteger> fields,
                     const Words &more = {}) const {
        for (const NamedInteger &field : fields) {
            for (const std::int64_t value : values) {
                Words words = field.name.empty() ? Words() : Words{field.name + " is " + text(value)};
                words.insert(words.end(), more.begin(), more.end());
                refuse(status, words, {field.set(value)});
            }
        }
    }
    void accept(const std::vector<Change> &changes) const { with(changes, accepted_); }
    void accept_each(std::initializer_list<std::vector<Change>> rows) const {
        std::for_each(rows.begin(), rows.end(), [&](const auto &changes) { accept(changes); });
    }

    /// Applies the changes, calls check(), and undoes the changes.
    static void with(std::vector<Change> changes, const std::function<void()> &check) {
        std::for_each(changes.begin(), changes.end(), [](Change &set) { set.swap(); });
        check();
        std::for_each(changes.rbegin(), changes.rend(), [](Change &set) { set.swap(); });
    }

private:
    Refused refused_;
    Accepted accepted_;
    Names names_;
};
