"""The cases that the bench times: rotations with the shapes of shapes.txt, the KV path of some models, and context
shifts. Each becomes a row of the table. A case's contenders are what it times: Halyard, C loops and ceilings."""

import dataclasses
import fnmatch
import pathlib
import typing

PAIRINGS = {"half": ("half", "half"), "interleaved": ("interleaved", "interleaved"),
            "half_to_interleaved": ("half", "interleaved"), "interleaved_to_half": ("interleaved", "half")}
ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# A quick run has this model in every dtype, and a full run has it with every angle source.
THOROUGH_MODEL = "llama-3-8b"
# The same shapes in interleaved pairing. A quick run has this model hot, in place and with few tokens, in every dtype.
INTERLEAVED_TWIN = "llama-3-8b-meta"


def part(heads, head_dim, offset, stride_head, rotates=True, is_cached=False, rotary_offset=0, norm_size=0):
    """Describes a tensor of a run for prepared.py: q, k or v. In each token's row of elements, the tensor's first head
    begins at `offset`."""
    return dict(locals())


class Contender(typing.NamedTuple):
    """A function that a case times."""
    kind: str  # "halyard", "bound", "unbound", "reference", "loop" (a C loop), or a ceiling: "memory", "conversion"
    name: str  # as Prepared.call takes it
    tolerance: float = 0.0  # the largest allowed error, in parts of a head's root mean square
    target: str = ""  # of Halyard; empty: the best


# Allowed errors of results by stored dtype. They are somewhat larger than a rounding step, and than the errors of peers
# that round angles and stages to bf16. A wrong angle or element causes a larger error than any of these.
TOLERANCE = {"f32": 0.05, "f16": 0.05, "bf16": 0.05, "e4m3": 0.3, "q8_0": 0.1}
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
    """The models of shapes.txt."""
    lines = (pathlib.Path(__file__).parent / "shapes.txt").read_text().splitlines()
    words = [line.split() for line in lines if line and not line.startswith("#")]
    return [Model(name, *map(int, numbers), *PAIRINGS[pairing]) for name, *numbers, pairing in (w[:6] for w in words)]


@dataclasses.dataclass(frozen=True)
class RotationCase:
    """A rotation. Hot: every call uses the same memory; cold: each call uses memory that is in no CPU cache."""
    model: Model
    tokens: int
    dtype: str
    in_place: bool = True
    cold: bool = False
    angles: str = "table"
    two_tensors: bool = False  # q and k are separate tensors of the run, adjacent in memory; else one tensor
    first_position: int = -1  # positions are consecutive from here; negative: see Prepared.choose_positions

    @property
    def kernel(self):
        """A part of a kernel's name, without its target: "half_f32_in_place"."""
        model = self.model
        pairing = model.pairing if model.pairing == model.out_pairing else f"{model.pairing}_to_{model.out_pairing}"
        return f"{pairing}_{self.dtype}{'_in_place' if self.in_place else ''}"

    @property
    def name(self):
        """"half_f32_in_place/llama-3-8b/64/hot", with "/phase" or "/q-and-k" where these differ from the default."""
        parts = [self.kernel, self.model.name, str(self.tokens), "cold" if self.cold else "hot"]
        parts += [self.angles] * (self.angles != "table") + ["q-and-k"] * self.two_tensors
        return "/".join(parts)

    @property
    def for_peers(self):
        """Whether other libraries can do this case."""
        return self.model.pairing == self.model.out_pairing

    @property
    def n_bytes(self):
        """Bytes that must be read and written, without cos and sin. In place, unrotated columns are not touched."""
        width = self.model.rotary_dim if self.in_place else self.model.head_dim
        return 2 * self.tokens * self.model.heads * width * ELEMENT_BYTES[self.dtype]

    def described(self):
        """The dict that Prepared and peers take."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        model, (q, k) = self.model, self.model[1:3]
        parts = [part(heads, model.head_dim, first * model.head_dim, model.head_dim)
                 for heads, first in (((q, 0), (k, q)) if self.two_tensors else ((q + k, 0),))]
        return {**fields, "rotary_dim": model.rotary_dim, "pairing": model.pairing, "out_pairing": model.out_pairing,
                "row_elements": (q + k) * model.head_dim, "parts": parts}

    # (call, target): the result of the first call that exists is the expected one, whose bits all targets must give.
    references = (("run", "reference"),)

    @property
    def tolerance(self):
        return TOLERANCE[self.dtype]

    def contenders(self):
        """All functions that the row compares. The first is Halyard, whose time the row shows."""
        yield Contender("halyard", "run")
        if self.tokens == 1:
            yield Contender("bound", "bound")
        yield Contender("reference", "run", target="reference")
        yield from (Contender("loop", compiler, self.tolerance) for compiler in COMPILERS)
        for kind, names in CEILINGS.items():
            yield from (Contender(kind, name) for name in names)

    def about(self):
        """The fields that --json writes."""
        return {**self.model._asdict(), "name": self.name, "kernel": self.kernel, "model": self.model.name,
                "tokens": self.tokens, "dtype": self.dtype, "in_place": self.in_place, "cold": self.cold,
                "angles": self.angles, "bytes": self.n_bytes}


def is_quick(case):
    if case.angles != "table" or case.tokens == 512:
        return False
    if case.model.name == INTERLEAVED_TWIN and case.in_place and not case.cold and case.tokens <= 64:
        return True
    if case.model.name != THOROUGH_MODEL:
        shows_copy = case.model.rotary_dim < case.model.head_dim  # shows how unrotated elements are copied
        return (case.tokens == 64 and not case.cold and case.dtype != "f16" and
                (case.in_place or shows_copy or case.model.pairing != case.model.out_pairing))
    return not case.cold or (case.tokens == 64 and case.in_place)


def is_worth_timing(case):
    """Whether engines have this case, and whether it shows something that other cases do not."""
    if case.in_place and case.model.pairing != case.model.out_pairing:
        return False
    if case.tokens == 4096 and case.cold:
        return False  # 4096 tokens exceed the CPU's caches anyway
    return case.angles == "table" or (case.model.name == THOROUGH_MODEL and case.in_place and not case.cold and
                                      case.tokens < 4096)


def with_heads(model, suffix, heads):
    return model._replace(name=model.name + suffix, q_heads=heads, k_heads=0)


def special_cases(model):
    """Cases that show what a call costs: of a single head, and of q and k as two tensors."""
    one_head = with_heads(model, "-one-head", 1)
    for dtype in ELEMENT_BYTES:
        yield RotationCase(one_head, 1, dtype)
        yield RotationCase(model, 1, dtype, two_tensors=True)


def list_cases(models, quick=False, pattern="*"):
    """The cases of these models whose names match the glob, in which * matches / too; if quick, only a quick run's."""
    cases = []
    for model in models:
        some = [RotationCase(model, tokens, dtype, in_place, cold, angles) for tokens in (1, 64, 512, 4096)
                for dtype in ELEMENT_BYTES for in_place in (True, False) for cold in (False, True)
                for angles in ("table", "phase")]
        cases += [case for case in some if is_worth_timing(case) and (not quick or is_quick(case))]
        cases += special_cases(model) if model.name == THOROUGH_MODEL else []
    return [case for case in cases if fnmatch.fnmatchcase(case.name, pattern)]


# ---- The KV path: from a projection to q, and to k and v in a cache --------------------------------------------------


def packed(heads, kv_heads, head_dim, has_norm=False, unit_offset=False):
    """A model whose projection holds q, k and v side by side; with 0 heads it holds only k and v."""
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
    # MLA: 64 of the 192 columns of each of q's 128 heads are rotated. One row of 576 columns is cached: 512 (the
    # latent) are normed, the other 64 rotated.
    "deepseek-v3": {"row_elements": 128 * 192 + 576, "rotary_dim": 64, "pairing": "interleaved",
                    "parts": [part(128, 64, 128, 192), part(1, 576, 128 * 192, 576, True, True, 512, 512)]},
}
RECORDS = ("q8_0", "q8_0-hadamard")


class CacheCase:
    # The portable reference has no KV path, so results are compared with a C loop's, or else with a bound run's.
    references = *((compiler, "") for compiler in COMPILERS), ("bound", "")

    @property
    def tolerance(self):
        return TOLERANCE[self.cache.partition("-")[0]]


@dataclasses.dataclass(frozen=True)
class KvCase(CacheCase):
    """The KV path of a model. The cache has 128 pages of 16 tokens."""
    model: str
    tokens: int
    cache: str  # the dtype, or "q8_0-hadamard": q8_0 after a Hadamard transform

    @property
    def name(self):
        return f"{self.model}/{self.tokens}/{self.cache}"

    @property
    def for_peers(self):
        """Peers cannot write records of q8_0."""
        return self.cache not in RECORDS

    def described(self):
        dtype, _, transform = self.cache.partition("-")
        return {"tokens": self.tokens, "dtype": "bf16", "cache": dtype, "n_slots": 2048,
                "hadamard": transform == "hadamard", **KV_MODELS[self.model]}

    def contenders(self):
        yield Contender("halyard", "bound", self.tolerance)
        if self.tokens == 1:
            yield Contender("unbound", "run", self.tolerance)
        yield from (Contender("loop", compiler, self.tolerance) for compiler in COMPILERS)

    def about(self):
        return {"name": self.name, "model": self.model, "tokens": self.tokens}


@dataclasses.dataclass(frozen=True)
class ShiftCase(CacheCase):
    """A context shift: all keys of a paged cache are re-rotated by -2048 positions, one layer after the other."""
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
        dtype, _, transform = self.cache.partition("-")
        size = self.head_dim // 32 * 34 if dtype == "q8_0" else self.head_dim  # elements of a head; in q8_0 its bytes
        return {"layers": self.layers, "tokens": self.tokens, "dtype": dtype, "moved_by": -2048, "n_slots": self.tokens,
                "pairing": "half", "rotary_dim": self.head_dim, "in_place": True, "angles": "phase",
                "row_elements": self.heads * size, "hadamard": transform == "hadamard",
                "parts": [part(self.heads, self.head_dim, 0, size, is_cached=True)]}

    def contenders(self):
        yield Contender("halyard", "bound", self.tolerance)
        yield from (Contender("loop", compiler, self.tolerance) for compiler in COMPILERS)

    def about(self):
        described = self.described()
        element = 2 if described["dtype"] == "bf16" else 1
        return {"name": self.name, "model": "shift", "tokens": self.tokens,
                "bytes": 2 * self.layers * self.tokens * described["row_elements"] * element}


def list_kv_cases(quick=False, pattern="*"):
    cases = [KvCase(model, tokens, cache) for model in KV_MODELS for tokens in ((1, 64) if quick else (1, 64, 512))
             for cache in ("bf16", "e4m3", *(RECORDS if "llama" in model else ()))]
    cases += [ShiftCase(2 if quick else 32, 8, 128, 8192, cache) for cache in ("bf16", "e4m3", *RECORDS)]
    return [case for case in cases if fnmatch.fnmatchcase(case.name, pattern)]
