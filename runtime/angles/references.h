// Whose cos and sin a table holds.
#pragma once

#include "angles/angle_source.h"
#include "angles/frequencies.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>

namespace halyard {

/// The name of its constant.
const char *name_of(Reference reference) noexcept;

/// What writes the rows of a table. Refers to its frequencies.
class TableRows {
public:
    TableRows() = default;
    TableRows(const TableRows &) = delete;
    TableRows &operator=(const TableRows &) = delete;
    virtual ~TableRows() = default;

    /// Writes cos and sin of every pair at a position.
    virtual void make(std::int32_t position, float *cos_row, float *sin_row) const noexcept = 0;
};

/// Makes what writes a table's rows, or says why the engine has no such frequencies.
halyard_status make_table_rows(const halyard_frequencies &frequencies, Reference reference,
                               std::unique_ptr<TableRows> *out, halyard_error *error) noexcept;

}  // namespace halyard
