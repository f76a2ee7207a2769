// Does a run whose arguments were checked.
#pragma once

#include "read/read_run.h"
#include "walk/piece.h"

namespace halyard {

/// Checks the positions, and rotates: the whole run, or its part.
halyard_status do_run(const Run &run, halyard_error *error) noexcept;

/// How many tasks a run's executor is given; 1: it is not called.
std::int64_t count_tasks(const Run &run) noexcept;

/// Whether all tokens, also those of different batch rows, follow each other with one stride.
inline bool tokens_are_evenly_apart(const Run &run, const RunTensor &tensor) noexcept {
    return run.n_tokens == 1 || run.n_batch == 1 ||
           (tensor.in.batch == run.n_tokens * tensor.in.token && tensor.out.batch == run.n_tokens * tensor.out.token);
}

inline void set_pair_strides(const RunTensor::Strides &strides, Pairing pairing, std::int64_t n_pairs,
                             std::int64_t stride_token, PairStrides &out) noexcept {
    const bool half = pairing == Pairing::half;
    out.pair = half ? strides.element : 2 * strides.element;
    out.member = half ? n_pairs * strides.element : strides.element;
    out.head = strides.head;
    out.token = stride_token;
}

/// Looks up the rows of n tokens, counted through all batch rows; false when one has none under the policy.
bool find_rows(const Run &run, const CheckedPositions &positions, std::int64_t first, std::int64_t n,
               std::int32_t *rows) noexcept;

}  // namespace halyard
