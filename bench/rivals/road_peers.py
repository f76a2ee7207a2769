"""The peers of the bench's roads: RMSNorm, RoPE and the copy into a cache, as PyTorch does them eagerly and compiled.

The forms are those of Hugging Face's models: the norm in f32, rounded before the weight (Gemma: after 1 + w), rows of
cos and sin in bf16. peers.py, which serves them, says how they are asked.
"""

import numpy as np


class Road:
    """Ready for one road: calls[0]() takes it."""

    name = "torch"
    package = "transformers"
    what = "eager"

    @staticmethod
    def load():
        import torch
        torch.set_num_threads(1)
        torch.set_grad_enabled(False)
        return torch.__version__

    def __init__(self, request, memory):
        import torch
        self.torch = torch

        def words(at, count, dtype):
            return torch.from_numpy(memory[at : at + count * dtype.itemsize]).view(dtype)

        tokens, row, bf16 = request["tokens"], request["row_elements"], torch.bfloat16
        self.parts = request["parts"]
        x = words(request["copies"][0][0], tokens * row, bf16).view(tokens, row)
        slots = words(request["slots"], tokens, torch.int64)
        cached = torch.uint8 if request["cache"] == "e4m3" else bf16
        weights = [words(at, part["norm_size"], bf16) for at, part in zip(request["weights"], self.parts)]
        self.outputs = []
        for at, part in zip(request["outputs"], self.parts):
            shape = (request["n_slots"] if part["is_cached"] else tokens, part["heads"], part["head_dim"])
            self.outputs.append(words(at, int(np.prod(shape)), cached if part["is_cached"] else bf16).view(shape))
        pairs = request["rotary_dim"] // 2
        inv_freq = 1.0 / request["base"] ** (torch.arange(0, 2 * pairs, 2, dtype=torch.float32) / (2 * pairs))
        angles = words(request["positions"], tokens, torch.int64).float()[:, None, None] * inv_freq
        take = self.ready_to_call(make_road(request))
        inputs = (x, slots, angles.cos().to(bf16), angles.sin().to(bf16), weights, self.outputs)
        self.calls = [lambda: take(*inputs)]
        self.calls[0]()
        self.form = (f"torch {torch.__version__}, {self.what}: RMSNorm, RoPE and index_copy_ as in Hugging Face's "
                     "models, rows of cos and sin made beforehand")

    def ready_to_call(self, take):
        return take

    def leave_result(self):
        kept = [output for output, part in zip(self.outputs, self.parts) if not part["is_cached"]]
        for output, made in zip(kept, self.calls[0]()):
            output.copy_(made)


class CompiledRoad(Road):
    name = "torch-compiled"
    what = "compiled"

    def ready_to_call(self, take):
        self.torch._dynamo.config.recompile_limit = self.torch._dynamo.config.accumulated_recompile_limit = 100_000
        return self.torch.compile(take, dynamic=False)


def make_road(request):
    import torch
    parts, unit_offset, eps = request["parts"], request["unit_offset"], request["eps"]
    is_half, pairs, r = request["pairing"] == "half", request["rotary_dim"] // 2, 1.0 / request["scale"]
    is_e4m3 = request["cache"] == "e4m3"

    def norm(x, weight):
        wide = x.float()
        normed = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)
        return (normed * (1.0 + weight.float())).to(x.dtype) if unit_offset else weight * normed.to(x.dtype)

    def rotate(x, cos, sin):
        x0, x1 = (x[..., :pairs], x[..., pairs:]) if is_half else (x[..., 0::2], x[..., 1::2])
        y = x0 * cos - x1 * sin, x1 * cos + x0 * sin
        return torch.cat(y, -1) if is_half else torch.stack(y, -1).flatten(-2)

    def take(x, slots, cos, sin, weights, outputs):
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

    return take


ROADS = (Road, CompiledRoad)
