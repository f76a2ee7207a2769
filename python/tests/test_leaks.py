"""References and memory stay where they were after many calls, good and bad."""

import gc
import pathlib
import sys

import ml_dtypes
import numpy as np
import pytest

import halyard

DIM = 64
N = 3000
LENGTHS = halyard.Frequencies.from_base(1e4, DIM)


def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096


def check_leaks(call, held, n=N, more_blocks=0, more_memory=0):
    """Of n calls, after as many: what is held has no more references, and little is allocated."""
    for _ in range(n):
        call()
    gc.collect()
    before, memory, blocks = [sys.getrefcount(item) for item in held], resident(), sys.getallocatedblocks()
    for _ in range(n):
        call()
    gc.collect()
    assert [sys.getrefcount(item) for item in held] == before
    assert sys.getallocatedblocks() - blocks < n // 10 + more_blocks
    assert resident() - memory < n * 64 + more_memory


def calls(angles, x, k, cache, slots, positions):
    """The kinds of calls there are; each is made often."""
    bf16 = x.astype(ml_dtypes.bfloat16)
    prepared = angles is not None and isinstance(angles, halyard.AngleSource) and halyard.prepare(
        1, 1, head_dim=DIM, angles=angles)

    def refused():
        with pytest.raises(halyard.Error):
            halyard.rotate(x, angles=angles, positions=zero_d)

    zero_d = np.array(3)
    return {
        "new outputs": lambda: halyard.rotate(x, k, angles=angles, positions=positions),
        "in place": lambda: halyard.rotate(x, k, angles=angles, positions=positions, in_place=True),
        "bf16": lambda: halyard.rotate(bf16, angles=angles),
        "capsule": lambda: halyard.rotate(halyard.Tensor(x.__dlpack__(), out=x.__dlpack__(max_version=(1, 0))), angles=angles),
        "cache": lambda: halyard.rotate(halyard.Tensor(x, norm=halyard.Norm(np.ones(DIM, np.float32)), out=x),
                                        halyard.Tensor(k, cache=cache), halyard.Tensor(k, cache=cache.copy()),
                                        angles=angles, positions=0, slots=slots),
        "prepared": lambda: prepared(x.reshape(4, 2 * DIM), positions),
        "records": lambda: halyard.convert(halyard.convert(x, groups="ggml_q8_0"), from_groups="ggml_q8_0"),
        "scales apart": lambda: halyard.convert(x, groups="vllm_int8"),
        "rerotate": lambda: halyard.rerotate(cache, angles=angles, from_positions=3, positions=positions, slots=slots),
        "refused": refused,
        "frequencies": lambda: halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM), first=0, n_positions=10),
        "given": lambda: halyard.AngleSource.given(x[:, 0, :32], x[:, 0, 32:]),
        "linear": lambda: halyard.AngleSource.linear(x[:2, 0], np.ones((2, 32))),
        "length": lambda: LENGTHS.for_length(99),
        "config": lambda: halyard.Frequencies.from_config({"model_type": "llama", "hidden_size": 64,
                                                           "num_attention_heads": 1, "rope_theta": 1e4}),
    }


@pytest.mark.parametrize("name", list(calls(*[np.zeros((1, 1, 1))] * 6)))
def test_nothing_leaks(name):
    angles = halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM))
    x, k = np.zeros((4, 2, DIM), np.float32), np.zeros((4, 1, DIM), np.float32)
    cache, slots, positions = np.zeros((99, 1, DIM), np.float32), np.arange(4), np.arange(4)
    held = [angles, x, k, cache, slots, positions]
    check_leaks(calls(*held)[name], held)


def test_plans_do_not_pile_up():
    """A stream of shapes that are all different keeps no more than a bound of plans."""
    angles = halyard.AngleSource(halyard.Frequencies.from_base(1e4, 2))
    for head_dim in range(2, 6000):
        halyard.rotate(np.zeros((1, 1, head_dim), np.float32), angles=angles, positions=0)
        if head_dim == 2000:
            memory = resident()
    assert resident() - memory < 2_000_000


@pytest.mark.parametrize("kind", ["new", "in place", "road", "refused"])
def test_no_torch_operator_leaks(kind):
    torch = pytest.importorskip("torch")
    import halyard.torch
    angles = halyard.AngleSource(halyard.Frequencies.from_base(1e4, DIM), first=0, n_positions=10)
    q, k, positions = torch.zeros(4, 2, DIM), torch.zeros(4, 1, DIM), torch.arange(4)
    cache, weight, ops = torch.zeros(99, 1, DIM), torch.ones(DIM), torch.ops.halyard
    normed = halyard.Tensor(norm=halyard.Norm())
    how, road = halyard.torch.describe(angles), halyard.torch.Road(normed, normed, angles=angles, duplicate_slots="last")

    def refused():
        with pytest.raises(RuntimeError, match="position"):
            ops.rotate_qk(q, k, how, None, 20)
        with pytest.raises(RuntimeError, match="weight"):
            ops.road(q, road.how, k, k, positions, positions, cache, cache.clone(), k_weight=cache)

    call = {"new": lambda: ops.rotate_qk_no_grad(q, k, how, positions),
            "in place": lambda: ops.rotate_(q, how, None, 3),
            "road": lambda: road(q, k, k, positions=positions, slots=positions, k_cache=cache, v_cache=cache.clone(),
                                 q_weight=weight, k_weight=weight), "refused": refused}[kind]
    n = N // 30 if kind == "refused" else N  # pytest's own part of it takes long
    check_leaks(torch.no_grad()(call), [angles, q, k, positions, cache, weight, how, road], n, 50, 100_000)
