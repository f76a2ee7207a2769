"""What the bench times: rotations with the shapes of shapes.txt, the KV path of some models, and shifts of a cache."""

import dataclasses
import fnmatch
import pathlib
import typing

PAIRINGS = {"half": ("half", "half"), "interleaved": ("interleaved", "interleaved"),
            "half_to_interleaved": ("half", "interleaved"), "interleaved_to_half": ("interleaved", "half")}
ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# This model's rows show more than its shape: a quick run has it in every dtype, a full run with every source of angles.
THOROUGH_MODEL = "llama-3-8b"
# A quick run has what engines do most, 16 bits and few tokens, in the other pairing too.
INTERLEAVED_TWIN = "llama-3-8b-meta"


def part(heads, head_dim, offset, stride_head, rotates=True, is_cached=False, rotary_offset=0, norm_size=0):
    """A tensor of a run, as prepared.py takes it."""
    return dict(locals())


class Way(typing.NamedTuple):
    """A way to do a work, which a row times."""
    kind: str
    name: str  # prepared.py's; of the library's ways with the target after it
    slack: float = 0.0  # by how much it may be off what is right, in parts of a head's root mean square
    target: str = ""


# What others' results may be off by, as they are stored: somewhat more than a rounding to the other side, and what
# comes of angles and stages that are rounded to bf16. A wrong angle or element is off by more than all of these.
SLACK = {"f32": 0.05, "f16": 0.05, "bf16": 0.05, "e4m3": 0.3, "q8_0": 0.1}
COMPILERS = "gcc", "clang"
CEILINGS = {"memory": ("memcpy", "copy", "stream", "multiply"), "conversion": ("convert", "convert and stream")}


class Model(typing.NamedTuple):
    """A line of shapes.txt."""
    name: str
    q_heads: int
    k_heads: int
    head_dim: int
    rotary_dim: int
    pairing: str = "half"
    out_pairing: str = "half"

    @property
    def heads(self):
        return self.q_heads + self.k_heads


def read_models():
    """Those of shapes.txt."""
    lines = (pathlib.Path(__file__).parent / "shapes.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [Model(name, *map(int, numbers), *PAIRINGS[pairing]) for name, *numbers, pairing in (w[:6] for w in words)]


@dataclasses.dataclass(frozen=True)
class Work:
    """A row of the table. Hot: every call uses the same memory; cold: other memory, none of it in a cache."""
    model: Model
    tokens: int
    dtype: str
    in_place: bool = True
    cold: bool = False
    angles: str = "table"
    apart: bool = False  # q and k are two tensors of a run, one behind the other in memory
    first_position: int = -1  # of consecutive ones; negative: those that are usual for so many tokens

    @property
    def kernel(self):
        """A part of a kernel's name, without its target: "half_f32_in_place"."""
        model = self.model
        pairing = model.pairing if model.pairing == model.out_pairing else f"{model.pairing}_to_{model.out_pairing}"
        return f"{pairing}_{self.dtype}{'_in_place' if self.in_place else ''}"

    @property
    def name(self):
        """"half_f32_in_place/llama-3-8b/64/hot", and behind it what is not as usual."""
        parts = [self.kernel, self.model.name, str(self.tokens), "cold" if self.cold else "hot"]
        parts += [self.angles] * (self.angles != "table") + ["q-and-k"] * self.apart
        return "/".join(parts)

    @property
    def for_peers(self):
        """Whether other libraries have such a work."""
        return self.model.pairing == self.model.out_pairing

    @property
    def n_bytes(self):
        """Bytes that have to be read and written, without angles. In place, columns outside the window stay."""
        width = self.model.rotary_dim if self.in_place else self.model.head_dim
        return 2 * self.tokens * self.model.heads * width * ELEMENT_BYTES[self.dtype]

    def described(self):
        """For native.py and peers."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        model, (q, k) = self.model, self.model[1:3]
        parts = [part(heads, model.head_dim, first * model.head_dim, model.head_dim)
                 for heads, first in (((q, 0), (k, q)) if self.apart else ((q + k, 0),))]
        return {**fields, "rotary_dim": model.rotary_dim, "pairing": model.pairing, "out_pairing": model.out_pairing,
                "row_elements": (q + k) * model.head_dim, "parts": parts}

    right = (("run", "reference"),)  # of which all targets have the bits

    @property
    def slack(self):
        return SLACK[self.dtype]

    def ways(self):
        """The first is the row's own."""
        yield Way("halyard", "run")
        if self.tokens == 1:
            yield Way("bound", "bound")
        yield Way("reference", "run", target="reference")
        yield from (Way("loop", compiler, self.slack) for compiler in COMPILERS)
        for kind, names in CEILINGS.items():
            yield from (Way(kind, name) for name in names)

    def about(self):
        """What --json says of it."""
        return {**self.model._asdict(), "name": self.name, "kernel": self.kernel, "model": self.model.name,
                "tokens": self.tokens, "dtype": self.dtype, "in_place": self.in_place, "cold": self.cold,
                "angles": self.angles, "bytes": self.n_bytes}


def is_quick(work):
    if work.angles != "table" or work.tokens == 512:
        return False
    if work.model.name == INTERLEAVED_TWIN and work.in_place and not work.cold and work.tokens <= 64:
        return True
    if work.model.name != THOROUGH_MODEL:
        return (work.tokens == 64 and not work.cold and work.dtype != "f16" and
                (work.in_place or work.model.pairing != work.model.out_pairing))
    return not work.cold or (work.tokens == 64 and work.in_place)


def exists(work):
    """Whether anybody does this work, and whether it shows something that other works do not."""
    if work.in_place and work.model.pairing != work.model.out_pairing:
        return False
    if work.tokens == 4096 and work.cold:
        return False  # beyond the caches anyway
    return work.angles == "table" or (work.model.name == THOROUGH_MODEL and work.in_place and not work.cold and
                                      work.tokens < 4096)


def part_of(model, which, heads):
    return model._replace(name=model.name + which, q_heads=heads, k_heads=0)


def special_works(model):
    """Works that ask what a call costs that has one head or two tensors to turn."""
    one_head = part_of(model, "-one-head", 1)
    for dtype in ELEMENT_BYTES:
        yield Work(one_head, 1, dtype)
        yield Work(model, 1, dtype, apart=True)


def list_works(models, quick=False, pattern="*"):
    """All works for the models, or those that a quick run does, whose names match as in a shell; * matches / too."""
    works = []
    for model in models:
        some = [Work(model, tokens, dtype, in_place, cold, angles) for tokens in (1, 64, 512, 4096)
                for dtype in ELEMENT_BYTES for in_place in (True, False) for cold in (False, True)
                for angles in ("table", "phase")]
        works += [work for work in some if exists(work) and (not quick or is_quick(work))]
        works += special_works(model) if model.name == THOROUGH_MODEL else []
    return [work for work in works if fnmatch.fnmatchcase(work.name, pattern)]


# ---- The KV path: from a projection to q, and to k and v in a cache --------------------------------------------------


def packed(heads, kv_heads, head_dim, has_norm=False, unit_offset=False):
    """A model with q, k and v one after the other; without heads only k and v."""
    norm_size, k, v = head_dim * has_norm, heads * head_dim, (heads + kv_heads) * head_dim
    parts = [*[part(heads, head_dim, 0, head_dim, norm_size=norm_size)] * (heads > 0),
             part(kv_heads, head_dim, k, head_dim, is_cached=True, norm_size=norm_size),
             part(kv_heads, head_dim, v, head_dim, rotates=False, is_cached=True)]
    return {"row_elements": v + kv_heads * head_dim, "rotary_dim": head_dim, "pairing": "half",
            "unit_offset": unit_offset, "parts": parts}


KV_MODELS = {
    "llama-3-8b": packed(32, 8, 128),
    "llama-3-8b-kv": packed(0, 8, 128),
    "qwen3-8b": packed(32, 8, 128, has_norm=True),
    "gemma-3-4b": packed(8, 4, 256, has_norm=True, unit_offset=True),
    # Of MLA: the part of q that is rotated, [tokens, 128, 64] out of heads of 192, and the one row that is cached, of
    # which the latent is normed and the rest rotated.
    "deepseek-v3": {"row_elements": 128 * 192 + 576, "rotary_dim": 64, "pairing": "interleaved",
                    "parts": [part(128, 64, 128, 192), part(1, 576, 128 * 192, 576, True, True, 512, 512)]},
}
RECORDS = ("q8_0", "q8_0-hadamard")


class CachedWork:
    # There is no reference of the KV path, so that the loops and Halyard are compared with each other.
    right = *((compiler, "") for compiler in COMPILERS), ("bound", "")

    @property
    def slack(self):
        return SLACK[self.cache.partition("-")[0]]


@dataclasses.dataclass(frozen=True)
class KvWork(CachedWork):
    """A row of the KV path, whose cache has 128 pages of 16 tokens."""
    model: str
    tokens: int
    cache: str  # dtype, and behind a hyphen hadamard

    @property
    def name(self):
        return f"{self.model}/{self.tokens}/{self.cache}"

    @property
    def for_peers(self):
        """Others know no records."""
        return self.cache not in RECORDS

    def described(self):
        dtype, _, how = self.cache.partition("-")
        return {"tokens": self.tokens, "dtype": "bf16", "cache": dtype, "n_slots": 2048, "hadamard": how == "hadamard",
                **KV_MODELS[self.model]}

    def ways(self):
        yield Way("halyard", "bound", self.slack)
        if self.tokens == 1:
            yield Way("unbound", "run", self.slack)
        yield from (Way("loop", compiler, self.slack) for compiler in COMPILERS)

    def about(self):
        return {"name": self.name, "model": self.model, "tokens": self.tokens}


@dataclasses.dataclass(frozen=True)
class Shift(CachedWork):
    """All keys of a paged cache move by -2048 positions, layer after layer."""
    layers: int
    heads: int
    head_dim: int
    tokens: int
    cache: str
    for_peers = False

    @property
    def name(self):
        return f"shift/{self.layers}x{self.heads}x{self.head_dim}x{self.tokens}/{self.cache}"

    def described(self):
        dtype, _, how = self.cache.partition("-")
        size = self.head_dim // 32 * 34 if dtype == "q8_0" else self.head_dim  # elements, or bytes of a record
        return {"layers": self.layers, "tokens": self.tokens, "dtype": dtype, "moved_by": -2048, "n_slots": self.tokens,
                "pairing": "half", "rotary_dim": self.head_dim, "in_place": True, "angles": "phase",
                "row_elements": self.heads * size, "hadamard": how == "hadamard",
                "parts": [part(self.heads, self.head_dim, 0, size, is_cached=True)]}

    def ways(self):
        yield Way("halyard", "bound", self.slack)
        yield from (Way("loop", compiler, self.slack) for compiler in COMPILERS)

    def about(self):
        described = self.described()
        element = 2 if described["dtype"] == "bf16" else 1
        return {"name": self.name, "model": "shift", "tokens": self.tokens,
                "bytes": 2 * self.layers * self.tokens * described["row_elements"] * element}


def list_kv_works(quick=False, pattern="*"):
    works = [KvWork(model, tokens, cache) for model in KV_MODELS for tokens in ((1, 64) if quick else (1, 64, 512))
             for cache in ("bf16", "e4m3", *(RECORDS if "llama" in model else ()))]
    works += [Shift(2 if quick else 32, 8, 128, 8192, cache) for cache in ("bf16", "e4m3", *RECORDS)]
    return [work for work in works if fnmatch.fnmatchcase(work.name, pattern)]
