"""RoPE where a sequence is spread over processes: context parallelism in zig-zag, tensor parallelism, ragged batches.

    context_parallel.py [N_PROCESSES]        2 by default; needs the packages halyard and torch

Under context parallelism each rank holds some tokens of every sequence. Attention is causal, so ranks take a chunk
from the front and one from the back, in zig-zag, to have equal work. A rank needs the positions of its own tokens and
nothing else: no rows of cos and sin are cut up or sent around, and at ten million tokens it still holds 512 bytes of
angles. Each rank's rows are, to the bit, those of one process; that is checked at the end.
"""

import os
import sys

import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing

import halyard

LENGTHS = [5000, 130, 1, 2877]  # of the sequences of a ragged batch
N_HEADS, N_KV_HEADS, HEAD_DIM = 8, 4, 128
FAR = 10_000_000  # where the last sequence begins, as the end of a long context would


def zig_zag(length, rank, n_ranks):
    """The tokens of a sequence that a rank holds: chunks rank and 2 n_ranks - 1 - rank of 2 n_ranks."""
    bounds = [length * i // (2 * n_ranks) for i in range(2 * n_ranks + 1)]
    mirrored = 2 * n_ranks - 1 - rank
    return torch.cat([torch.arange(bounds[i], bounds[i + 1]) for i in (rank, mirrored)])


def make_batch():
    """q and k of all sequences, packed, and the position of each token."""
    random = torch.Generator().manual_seed(1)
    q, k = (torch.randn(sum(LENGTHS), heads, HEAD_DIM, generator=random).bfloat16() for heads in (N_HEADS, N_KV_HEADS))
    positions = torch.cat([torch.arange(length) for length in LENGTHS])
    positions[-LENGTHS[-1]:] += FAR
    return q, k, positions


def tokens_of(rank, n_ranks):
    """Where a rank's tokens lie in the packed batch."""
    starts = [sum(LENGTHS[:i]) for i in range(len(LENGTHS))]
    return torch.cat([start + zig_zag(length, rank, n_ranks) for start, length in zip(starts, LENGTHS)])


def gather(mine, n_ranks):
    """Everyone's tensors on rank 0, which may differ in size."""
    everyone = [None] * n_ranks if distributed.get_rank() == 0 else None
    distributed.gather_object(mine, everyone)
    return everyone


def run_rank(rank, n_ranks):
    distributed.init_process_group("gloo", rank=rank, world_size=n_ranks)
    torch.set_num_threads(1)
    q, k, positions = make_batch()  # in earnest a rank has its own tokens alone
    angles = halyard.AngleSource(halyard.Frequencies.from_base(500_000.0, HEAD_DIM))

    # Context parallelism: the rank's tokens, in place.
    tokens = tokens_of(rank, n_ranks)
    own_q, own_k = q[tokens], k[tokens]
    halyard.rotate(own_q, own_k, angles=angles, positions=positions[tokens], out=(own_q, own_k))
    shards = gather((tokens, own_q, own_k), n_ranks)

    # Tensor parallelism: all tokens, but only the rank's heads, where they lie.
    own_heads = q[:, rank * N_HEADS // n_ranks:(rank + 1) * N_HEADS // n_ranks]
    slices = gather(halyard.rotate(own_heads, angles=angles, positions=positions), n_ranks)

    if rank == 0:
        whole_q, whole_k = halyard.rotate(q, k, angles=angles, positions=positions)
        assert sum(len(tokens) for tokens, _, _ in shards) == len(positions)
        equal = all(torch.equal(whole_q[tokens], some_q) and torch.equal(whole_k[tokens], some_k)
                    for tokens, some_q, some_k in shards)
        equal = equal and torch.equal(torch.cat(slices, 1), whole_q)
        print(f"{n_ranks} processes, {len(positions)} tokens of {len(LENGTHS)} sequences, up to position "
              f"{int(positions.max())}: bitwise equal to one process: {equal}; angles: {angles.kind}, a rank holds "
              f"{angles.n_bytes} bytes")
        assert equal
    distributed.barrier()
    distributed.destroy_process_group()


if __name__ == "__main__":
    n_ranks = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29571")
    multiprocessing.spawn(run_rank, args=(n_ranks,), nprocs=n_ranks)
