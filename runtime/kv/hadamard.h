// The orthonormal Hadamard transform (Sylvester's) of each n = 2^i elements of a head: all are multiplied by 1 /
// sqrt(n), and then u and v that lie 1, 2, 4, … apart become u + v and u - v. It is its own inverse.
#pragma once

namespace halyard {

struct Block;
struct KvCall;

/// A step. Each of the log2(n) sums and the product round; together they are off by at most (log2(n) + 2) / 2 eps_f32
/// of the length of the n elements, since a transform keeps the length of what an earlier one has rounded.
void hadamard(const KvCall &call, Block &block) noexcept;

}  // namespace halyard
