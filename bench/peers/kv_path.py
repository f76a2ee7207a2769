"""The peers of the bench's KV path: RMSNorm, RoPE and the copy into a cache, as PyTorch does them eagerly and compiled.

The formulas are those of Hugging Face's models: the norm is computed in f32 and rounded before the weight is applied
(Gemma: after 1 + w is applied); rows of cos and sin are bf16.
"""

import functools

import numpy as np

from prepared import EPS, SCALE

BASE = 10000.0


def ready_kv_path(compile_or_not, case, prepared, done):
    """Peer.ready for the KV path: ([its call], a function that copies the returned outputs to memory). `compile_or_not`
    compiles a function, or returns it as it is."""
    import torch

    def operand(what, count, dtype, part=0):
        """The memory of an operand of the case, such as "weight", of tensor number `part`."""
        n_bytes = int(count) * dtype.itemsize
        return torch.from_numpy(np.frombuffer(prepared.memory(what, n_bytes, 0, part), np.uint8)).view(dtype)

    desc, bf16 = case.described(), torch.bfloat16
    tokens, row, parts, n = desc["tokens"], desc["row_elements"], desc["parts"], desc["rotary_dim"]
    cached = torch.uint8 if desc["cache"] == "e4m3" else bf16
    weights = [operand("weight", part["norm_size"], bf16, i) if part["norm_size"] else None
               for i, part in enumerate(parts)]
    outputs = []
    for i, part in enumerate(parts):
        shape = (desc["n_slots"] if part["is_cached"] else tokens, part["heads"], part["head_dim"])
        outputs.append(operand("y", np.prod(shape), cached if part["is_cached"] else bf16, i).view(shape))
    inv_freq = 1.0 / BASE ** (torch.arange(0, n, 2, dtype=torch.float32) / n)
    angles = operand("positions", tokens, torch.int64).float()[:, None, None] * inv_freq
    call = functools.partial(compile_or_not(make_kv_path(desc)), operand("rows", tokens * row, bf16).view(tokens, row),
                             operand("slots", tokens, torch.int64), angles.cos().to(bf16), angles.sin().to(bf16),
                             weights, outputs)
    call()

    def copy_results(results):
        kept = [output for output, part in zip(outputs, parts) if not part["is_cached"]]
        for output, made in zip(kept, results):
            output.copy_(made)
    return [call], copy_results


def make_kv_path(desc):
    """A function that stores k and v into the cached outputs, and returns the other results, here q."""
    import torch
    parts, unit_offset, eps = desc["parts"], desc.get("unit_offset", False), EPS
    is_half, pairs, r = desc["pairing"] == "half", desc["rotary_dim"] // 2, 1.0 / SCALE
    is_e4m3 = desc["cache"] == "e4m3"

    def norm(x, weight):
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return (normed * (1.0 + weight.float())).to(x.dtype) if unit_offset else weight * normed.to(x.dtype)

    def rotate(x, cos, sin):
        x0, x1 = (x[..., :pairs], x[..., pairs:]) if is_half else (x[..., 0::2], x[..., 1::2])
        y = x0 * cos - x1 * sin, x1 * cos + x0 * sin
        return torch.cat(y, -1) if is_half else torch.stack(y, -1).flatten(-2)

    def kv_path(x, slots, cos, sin, weights, outputs):
        made = []
        for part, weight, output in zip(parts, weights, outputs):
            heads, dim, normed, first = part["heads"], part["head_dim"], part["norm_size"], part["rotary_offset"]
            y = x.as_strided((x.shape[0], heads, dim), (x.stride(0), part["stride_head"], 1),
                             x.storage_offset() + part["offset"])
            if normed == dim:
                y = norm(y, weight)
            elif normed:
                y = torch.cat((norm(y[..., :normed], weight), y[..., normed:]), -1)
            if part["rotates"]:
                window = rotate(y[..., first : first + 2 * pairs], cos, sin)
                end = first + 2 * pairs
                y = window if 2 * pairs == dim else torch.cat((y[..., :first], window, y[..., end:]), -1)
            if part["is_cached"]:
                if is_e4m3:  # PyTorch's own conversion does not saturate
                    y = (y.float() * r).clamp(-448.0, 448.0).to(torch.float8_e4m3fn).view(torch.uint8)
                output.index_copy_(0, slots, y)
            made.append(y)
        return [y for part, y in zip(parts, made) if not part["is_cached"]]

    return kv_path

