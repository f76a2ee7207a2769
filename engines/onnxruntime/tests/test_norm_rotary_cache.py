"""halyard::NormRotaryCache: q, k and v against exact numbers, and caches in place."""

import ml_dtypes
import numpy as np
import onnxruntime
import pytest
from nodes import DTYPES, check, feeds_of, make_model, make_session, rotate_exactly, run_node

HEADS, KV_HEADS, SLOTS = 4, 2, 12
ATTRIBUTES = {"num_heads": HEADS, "kv_num_heads": KV_HEADS, "epsilon": 1e-3}


def inputs_for(rng, dtype, batch=2, tokens=3, head_dim=32, rotary_dim=32, norms=True, is_split=False):
    def tensor(n_heads):
        x = rng.standard_normal((batch, tokens, n_heads, head_dim)).astype(dtype)
        return x if is_split else x.reshape(batch, tokens, n_heads * head_dim)

    angles = rng.uniform(-np.pi, np.pi, (64, rotary_dim // 2))
    caches = rng.standard_normal((2, batch, KV_HEADS, SLOTS, head_dim)).astype(dtype)
    weights = rng.uniform(0.5, 1.5, (2, head_dim)).astype(dtype) if norms else [None, None]
    return {"q": tensor(HEADS), "k": tensor(KV_HEADS), "v": tensor(KV_HEADS), "cos": np.cos(angles).astype(dtype),
            "sin": np.sin(angles).astype(dtype), "ids": rng.integers(0, 64, (batch, tokens)), "past_k": caches[0],
            "past_v": caches[1], "write": rng.integers(0, SLOTS - tokens + 1, batch), "q_weight": weights[0],
            "k_weight": weights[1]}


def check_all(inputs, outputs, dtype, head_dim=32, interleaved=0):
    y, present_k, present_v = outputs
    batch, tokens = inputs["q"].shape[:2]
    rows = [inputs[name][inputs["ids"]][:, :, None, :] for name in ("cos", "sin")]

    def expected(name):
        x = inputs[name].reshape(batch, tokens, -1, head_dim).astype(np.float64)
        weight = inputs[name + "_weight"]
        if weight is not None:
            x = x / np.sqrt((x**2).mean(-1, keepdims=True) + np.float64(np.float32(1e-3))) * weight.astype(np.float64)
        return [a.transpose(0, 2, 1, 3) for a in rotate_exactly(x, *rows, interleaved)]

    n_eps = 2 + 4 + (head_dim / 16 + 5) / 2
    beside = np.s_[..., 2 * inputs["cos"].shape[1]:]

    def check_tensor(result, name):
        exact, length = expected(name)
        if inputs[name + "_weight"] is not None:  # what passes beside the window is normed as well
            length[beside] = np.abs(exact[beside])
        check(result, exact, length, dtype, n_eps)

    check_tensor(y, "q")
    want_k, want_v = inputs["past_k"].astype(y.dtype), inputs["past_v"].astype(y.dtype)
    for b, start in enumerate(inputs["write"]):
        stored = np.s_[b, :, start : start + tokens]
        want_k[stored] = present_k[stored]
        want_v[stored] = inputs["v"].reshape(batch, tokens, -1, head_dim)[b].transpose(1, 0, 2).astype(y.dtype)
    assert (present_k == want_k).all() and (present_v == want_v).all()  # nothing else was written, and v is v
    check_tensor(np.stack([present_k[b, :, s : s + tokens] for b, s in enumerate(inputs["write"])]), "k")


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda d: np.dtype(d).name)
@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("shape", [(1, 1), (2, 3), (3, 12), (5, 1)])
def test_exact(rng, dtype, norms, interleaved, shape):
    for is_split, rotary_dim in (False, 32), (True, 16):
        inputs = inputs_for(rng, dtype, *shape, rotary_dim=rotary_dim, norms=norms, is_split=is_split)
        outputs = run_node("NormRotaryCache", inputs, 3, interleaved=interleaved, rotary_embedding_dim=rotary_dim,
                           **ATTRIBUTES)
        check_all(inputs, outputs, dtype, interleaved=interleaved)


def test_starts_are_zero_without_write_indices(rng):
    inputs = inputs_for(rng, np.float32)
    outputs = run_node("NormRotaryCache", {**inputs, "write": None}, 3, **ATTRIBUTES)
    check_all({**inputs, "write": np.zeros(2, np.int64)}, outputs, np.float32)


def run_in_place(session, inputs, caches):
    """The output for q. Past and present are bound to the same memory, as decoding does it."""
    binding = session.io_binding()
    for name, array in inputs.items():
        if not name.startswith("past"):
            binding.bind_cpu_input(name, array)
    binding.bind_output("out0")
    for name, out, cache in ("past_k", "out1", caches[0]), ("past_v", "out2", caches[1]):
        binding.bind_ortvalue_input(name, cache)
        binding.bind_ortvalue_output(out, cache)
    session.run_with_iobinding(binding)
    return binding.copy_outputs_to_cpu()[0]


def test_in_place(rng):
    """Nothing is copied, step after step."""
    inputs = inputs_for(rng, np.float32, 1, 1)
    session = make_session(make_model("NormRotaryCache", inputs, 3, **ATTRIBUTES))
    caches = [onnxruntime.OrtValue.ortvalue_from_numpy(inputs[name].copy()) for name in ("past_k", "past_v")]
    addresses = [cache.data_ptr() for cache in caches]
    for step in range(SLOTS):
        inputs.update({name: fresh for name, fresh in inputs_for(rng, np.float32, 1, 1).items() if name in "qkv"})
        inputs["write"] = np.array([step])
        inputs["ids"] = np.array([[step + 40]])
        inputs.update(past_k=caches[0].numpy().copy(), past_v=caches[1].numpy().copy())
        y = run_in_place(session, inputs, caches)
        assert [cache.data_ptr() for cache in caches] == addresses
        check_all(inputs, [y, caches[0].numpy(), caches[1].numpy()], np.float32)


def test_a_position_out_of_range_writes_nothing(rng):
    inputs = inputs_for(rng, np.float32)
    inputs["ids"][1, 2] = 64
    session = make_session(make_model("NormRotaryCache", inputs, 3, **ATTRIBUTES))
    caches = [onnxruntime.OrtValue.ortvalue_from_numpy(inputs[name].copy()) for name in ("past_k", "past_v")]
    with pytest.raises(Exception, match="64"):
        run_in_place(session, inputs, caches)
    assert (caches[0].numpy() == inputs["past_k"]).all() and (caches[1].numpy() == inputs["past_v"]).all()


@pytest.mark.parametrize("empty", ["batch", "tokens"])
def test_empty(rng, empty):
    inputs = inputs_for(rng, np.float32, **{empty: 0})
    y, present_k, _ = run_node("NormRotaryCache", inputs, 3, **ATTRIBUTES)
    assert y.size == 0 and (present_k == inputs["past_k"]).all()


F32 = np.float32
BAD = {
    "q of two dimensions": ({"q": np.zeros((2, 128), F32)}, {}, "q is|query is"),
    "heads that do not divide": ({}, {"num_heads": 3}, "num_heads = 3"),
    "kv heads that do not divide": ({}, {"kv_num_heads": 3}, "kv_num_heads = 3"),
    "negative kv heads": ({}, {"kv_num_heads": -1}, "kv_num_heads is -1"),
    "k of other tokens": ({"k": np.zeros((2, 4, 64), F32)}, {}, "key is"),
    "v of another batch": ({"v": np.zeros((1, 3, 64), F32)}, {}, "value is"),
    "k of another head_dim": ({"k": np.zeros((2, 3, 32), F32)}, {}, "key is"),
    "a cache of other heads": ({"past_k": np.zeros((2, 3, SLOTS, 32), F32)}, {}, "past_key is"),
    "a cache of three dimensions": ({"past_v": np.zeros((2, 2, 32), F32)}, {}, "past_value is"),
    "caches of unlike sizes": ({"past_v": np.zeros((2, 2, 11, 32), F32)}, {}, "past_value is"),
    "a start beyond the cache": ({"write": np.array([0, 10])}, {}, "write_indices\\[1\\] is 10"),
    "a negative start": ({"write": np.array([-1, 0])}, {}, "write_indices\\[0\\] is -1"),
    "a huge start": ({"write": np.array([0, 2**63 - 1])}, {}, "write_indices\\[1\\]"),
    "starts of one row": ({"write": np.array([0])}, {}, "write_indices is"),
    "no tables": ({"cos": None, "sin": None}, {}, "cos_cache is missing"),
    "a weight of another size": ({"k_weight": np.zeros(31, F32)}, {}, "k_norm_weight is"),
    "positions of too few tokens": ({"ids": np.zeros((2, 2), np.int64)}, {}, "position_ids is"),
}


@pytest.mark.parametrize("what", BAD)
def test_bad_input_is_a_sentence(rng, what):
    different, attributes, sentence = BAD[what]
    with pytest.raises(Exception, match=sentence):
        run_node("NormRotaryCache", {**inputs_for(rng, np.float32), **different}, 3, **{**ATTRIBUTES, **attributes})


def test_threads_give_the_same_bits(rng):
    inputs = inputs_for(rng, ml_dtypes.bfloat16, 2, 12, 512, 128)
    inputs = {**inputs, "cos": inputs["cos"][:, :64], "sin": inputs["sin"][:, :64]}
    results = [run_node("NormRotaryCache", inputs, 3, n_threads=n, rotary_embedding_dim=128, **ATTRIBUTES)
               for n in (1, 3)]
    assert all((a == b).all() for a, b in zip(*results))
    assert feeds_of(inputs)["q_f32"].shape == (2, 12, HEADS * 512)
