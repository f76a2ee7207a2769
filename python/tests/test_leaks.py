"""Many calls, good and bad, leak neither references nor memory."""

import gc
import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import AngleSource, Frequencies, Tensor

DIM, N = 64, 3000
PLAIN = Frequencies.from_base(1e4, DIM)
ANGLES, SHORT = AngleSource(PLAIN), AngleSource(PLAIN, first=0, n_positions=10)
X, K, CACHE = (np.zeros((n, heads, DIM), np.float32) for n, heads in ((4, 2), (4, 1), (99, 1)))
HELD = [ANGLES, X, K, CACHE, np.arange(4)]
AT = dict(angles=ANGLES, positions=HELD[-1])


def resident_bytes():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def check_leaks(call, held, n=N, more_blocks=0, more_memory=0):
    """After n warm-up calls, three rounds of n calls each must add no references to the objects in `held`, and at least
    one of the rounds must allocate almost nothing. (One, because threads of other libraries allocate too.)"""
    def run():
        memory, blocks = resident_bytes(), sys.getallocatedblocks()
        for _ in range(n):
            call()
        gc.collect()
        return resident_bytes() - memory, sys.getallocatedblocks() - blocks

    run()
    before = [sys.getrefcount(item) for item in held]
    memory, blocks = map(min, zip(*(run() for _ in range(3))))
    assert [sys.getrefcount(item) for item in held] == before
    assert blocks < n // 10 + more_blocks and memory < n * 64 + more_memory


def refused():
    with pytest.raises(halyard.Error):
        halyard.rotate(X, angles=ANGLES, positions=np.array(3))


CALLS = {
    "new outputs": lambda: halyard.rotate(X, K, **AT),
    "in place": lambda: halyard.rotate(X, K, **AT, in_place=True),
    "bf16": lambda: halyard.rotate(X.astype(ml_dtypes.bfloat16), **AT),
    "capsule": lambda: halyard.rotate(Tensor(X.__dlpack__(), out=X.__dlpack__(max_version=(1, 0))), **AT),
    "cache": lambda: halyard.rotate(Tensor(X, norm=halyard.Norm(np.ones(DIM, np.float32)), out=X),
                                    Tensor(K, cache=CACHE), Tensor(K, cache=CACHE.copy()), **AT, slots=HELD[-1]),
    "prepared": lambda: halyard.prepare(1, 1, head_dim=DIM, angles=ANGLES)(X.reshape(4, 2 * DIM), HELD[-1]),
    "records": lambda: halyard.convert(halyard.convert(X, groups="ggml_q8_0"), from_groups="ggml_q8_0"),
    "scales apart": lambda: halyard.convert(X, groups="vllm_int8"),
    "rerotate": lambda: halyard.rerotate(CACHE, **AT, from_positions=3, slots=HELD[-1]),
    "refused": refused,
    "frequencies": lambda: AngleSource(Frequencies.from_base(1e4, DIM), first=0, n_positions=10),
    "given": lambda: AngleSource.given(X[:, 0, :32], X[:, 0, 32:]),
    "linear": lambda: AngleSource.linear(X[:2, 0], np.ones((2, 32))),
    "length": lambda: PLAIN.for_length(99),
    "config": lambda: Frequencies.from_config({"model_type": "llama", "head_dim": 64, "rope_theta": 1e4}),
}


@pytest.mark.parametrize("name", CALLS)
def test_nothing_leaks(name):
    check_leaks(CALLS[name], HELD)


def test_plans_do_not_pile_up():
    """However many shapes a program uses, a source keeps a limited number of plans."""
    angles = AngleSource(Frequencies.from_base(1e4, 2))
    for head_dim in range(2, 6000):
        halyard.rotate(np.zeros((1, 1, head_dim), np.float32), angles=angles, positions=0)
        if head_dim == 2000:
            memory = resident_bytes()
    assert resident_bytes() - memory < 2_000_000


@pytest.mark.parametrize("kind", ["new", "in place", "refused"])
def test_no_torch_operator_leaks(kind):
    torch = pytest.importorskip("torch")
    import halyard.torch
    q, k, positions = *map(torch.from_numpy, (X, K)), torch.arange(4)
    ops, how = torch.ops.halyard, halyard.torch.describe(SHORT)

    def refused():
        with pytest.raises(halyard.Error, match="position"):
            ops.rotate_qk(q, k, how, None, 20)

    call = {"new": lambda: ops.rotate_qk(q, k, how, positions), "in place": lambda: ops.rotate_(q, how, None, 3),
            "refused": refused}[kind]
    n = N // 30 if kind == "refused" else N  # pytest.raises itself is slow
    check_leaks(torch.no_grad()(call), [SHORT, q, k, positions, how], n, 50, 100_000)
