// A call of a program, from top to bottom: all of it, a share, its tensors, one tensor.
#include "core/call.h"

namespace halyard {

namespace {

halyard_status check_positions_and_rotate(const Program &program, const Pointers &given, const Share &share,
                                          halyard_error *error);
void rotate_share(const Program &program, const Pointers &given, const Share &share);
inline void rotate_tensors(const Program &program, const Pointers &given, const TokenBlock &tokens, Rows &rows,
                           const Share &heads);

}  // namespace

halyard_status call(const Program &program, const Pointers &given, const Share &share, halyard_error *error) noexcept {
    if (program.is_empty) {
        return HALYARD_OK;
    }
    HALYARD_TRY(check_memory(program, given, error));
    const std::int64_t n = program.positions.count();
    std::int32_t row_of_token[max_block_tokens];
    if (program.reads_rows && n <= max_block_tokens && program.n_tasks == 1 && share.count == 1 &&
        find_rows(row_input(program, given), 0, 0, n, row_of_token)) {
        Rows rows = rows_in_memory(*given.angles);  // find_rows has also checked all positions
        rotate_tensors(program, given, {0, n, row_of_token}, rows, all_heads);
        return HALYARD_OK;
    }
    return check_positions_and_rotate(program, given, share, error);
}

namespace {

/// Checks the positions of a call whose memory was checked, and rotates everything or a share. (Not inlined, since most
/// small calls do not need it.)
[[gnu::noinline]] halyard_status check_positions_and_rotate(const Program &program, const Pointers &given,
                                                            const Share &share, halyard_error *error) {
    HALYARD_TRY(check_positions(row_input(program, given), nullptr, error));
    return run_shares(program, share, [&](const Share &part) { rotate_share(program, given, part); }, error);
}

/// Rotates a share of the tokens of a call that was checked.
[[gnu::noinline]] void rotate_share(const Program &program, const Pointers &given, const Share &share) {
    const TokenShare own = share_of_tokens(program.positions.count(), share);
    for_each_token_block(program, given, own.first, own.last, [&](const TokenBlock &tokens, Rows &rows) {
        rotate_tensors(program, given, tokens, rows, own.heads);
    });
}

/// Rotates a share of the heads of all tensors. (Inline for the cost of a call.)
[[gnu::always_inline]] inline void rotate_tensors(const Program &program, const Pointers &given,
                                                  const TokenBlock &tokens, Rows &rows, const Share &heads) {
    const bool is_all = tokens.n_tokens == program.positions.count() && heads.count == 1 &&
                        rows.n_pairs * 2 == program.plan->rotary_dim;
    for (int i = 0; i < program.plan->n_tensors; i++) {
        const TensorProgram &tensor = program.tensors[i];
        if (tensor.n_heads == 0) {
            continue;
        }
        if (is_all && tensor.is_one_call) {
            call_kernel(*tensor.kernel, program.plan->sin_sign, rows, tokens, tensor.in_place,
                        {static_cast<const char *>(given.x[i]) + tensor.x.window, tensor.x.dims},
                        {static_cast<char *>(given.y[i]) + tensor.y.window, tensor.y.dims});
        } else {
            rotate_heads(program, given, i, tokens, rows, heads);
        }
    }
}

}  // namespace

void rotate_heads(const Program &program, const Pointers &given, int index, const TokenBlock &tokens, Rows &rows,
                  const Share &heads) noexcept {
    const TensorPlan &tensor_plan = program.plan->tensors[index];
    const TensorProgram &tensor = program.tensors[index];
    const Side &in = tensor.in(), &out = tensor.y;
    const std::int64_t head = first_of_share(tensor.n_heads, heads);
    const std::int64_t n_heads = end_of_share(tensor.n_heads, heads) - head;
    if (n_heads == 0) {
        return;
    }
    const char *const x = static_cast<const char *>(given.x[index]) + head * in.head * tensor_plan.bytes;
    char *const y = static_cast<char *>(given.y[index]) + head * out.head * tensor_plan.bytes;
    const bool past_caches = tensor.large != nullptr && reinterpret_cast<std::uintptr_t>(given.y[index]) % 64 == 0;
    const TensorCall call = {*program.plan, tensor_plan, tensor, past_caches ? *tensor.large : *tensor.kernel, rows};
    for_each_batch_row(tokens, tensor.n_together, [&](std::int64_t batch, std::int64_t token, const TokenBlock &of_row) {
        tensor.rotate(call, {x + (batch * in.batch + token * in.token) * tensor_plan.bytes,
                             y + (batch * out.batch + token * out.token) * tensor_plan.bytes, of_row.row_of_token,
                             n_heads, of_row.n_tokens, in.token, out.token});
    });
}

}  // namespace halyard
