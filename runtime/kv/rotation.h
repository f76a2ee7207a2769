// The rotation as a step: of a block of floats, or from x to y, to a cache or to words without a block.
#pragma once

#include "kv/block.h"
#include "kv/cache.h"

namespace halyard {

/// Calls function(stretch) for the tokens of a block, from x to y: for all of them, or with a cache for those that are
/// stored and lie evenly apart there.
template <typename Function>
void for_each_stretch(const KvCall &call, const Block &block, const Function &function) {
    const TensorPlan &desc = call.desc(block);
    const auto &cache = call.stages(block).cache;
    if (!cache) {
        const ProgramTensor &tensor = call.tensor(block);
        function(Stretch{call.x(block), call.y(block), block.row_of_token, block.n_heads, block.n_tokens,
                         tensor.in().token, tensor.y.token});
        return;
    }
    const bool moves = call.kv.rerotates;  // keys are read where they are written
    const char *const x = moves ? nullptr : call.x(block);
    const std::int64_t in_token = moves ? 0 : call.tensor(block).x.token;
    for_each_stored(call, block, [&](const Stored &stored) {
        char *const to = call.cache_of(block) + stored.offset * desc.out_bytes;
        function(Stretch{moves ? to : x + stored.first * in_token * desc.bytes, to,
                         block.row_of_token == nullptr ? nullptr : block.row_of_token + stored.first, block.n_heads,
                         stored.n_tokens, moves ? stored.stride_token : in_token, stored.stride_token});
    });
}

/// A block whose words are made dense in the workspace, as the output of a stretch.
inline Stretch stretch_of_words(const KvCall &call, const Block &block) {
    return {call.x(block),
            reinterpret_cast<char *>(block.work->spare),
            block.row_of_token,
            block.n_heads,
            block.n_tokens,
            call.tensor(block).x.token,
            block.n_heads * call.desc(block).head_dim};
}

/// Fills in how a tensor is rotated without blocks, for the steps below: from x to y, or to a cache, or to dense words.
void bind_direct(const Program &program, int index, bool to_words, ProgramTensor *out) noexcept;

}  // namespace halyard
