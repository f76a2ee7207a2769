// Whose cos and sin a table holds.
#pragma once

#include "base/error.h"
#include "frequencies/frequencies.h"
#include "halyard/halyard.h"

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace halyard {

/// HALYARD_REFERENCE_…: whose cos and sin a table holds.
enum class Reference : std::int32_t {
    exact = HALYARD_REFERENCE_EXACT,
    hf_f32 = HALYARD_REFERENCE_HF_F32,
    vllm_f16 = HALYARD_REFERENCE_VLLM_F16,
    vllm_bf16 = HALYARD_REFERENCE_VLLM_BF16,
    ggml = HALYARD_REFERENCE_GGML
};

/// The name of its constant.
const char *name_of(Reference reference) noexcept;

/// Says what of the frequencies the engine of a reference does not have.
halyard_status refuse_frequencies(Reference reference, const Part &has, const Part &value, const Part &why,
                                  halyard_error *error) noexcept;

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

/// Makes TableRows of a kind.
template <typename Rows, typename... Of>
halyard_status make_rows_of(std::unique_ptr<TableRows> *out, halyard_error *error, Of &&...of) noexcept {
    out->reset(new (std::nothrow) Rows(std::forward<Of>(of)...));
    return *out != nullptr ? HALYARD_OK : fail(error, HALYARD_ERROR_OUT_OF_MEMORY, "no memory for a table's rows");
}

/// Makes what writes a table's rows, or says why the engine has no such frequencies.
halyard_status make_table_rows(const halyard_frequencies &frequencies, Reference reference,
                               std::unique_ptr<TableRows> *out, halyard_error *error) noexcept;

}  // namespace halyard
