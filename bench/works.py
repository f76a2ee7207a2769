"""What the bench's table times: the models of shapes.txt, each with several counts of tokens, dtypes and so on."""

import dataclasses
import fnmatch
import typing

PAIRINGS = {"half": ("half", "half"), "interleaved": ("interleaved", "interleaved"),
            "half_to_interleaved": ("half", "interleaved"), "interleaved_to_half": ("interleaved", "half")}
ELEMENT_BYTES = {"f32": 4, "f16": 2, "bf16": 2}
# This model's rows show more than its shape: a quick run has it in every dtype, a full run with every source of angles.
THOROUGH_MODEL = "llama-3-8b"
# A quick run has what engines do most, 16 bits and few tokens, in the other pairing too.
INTERLEAVED_TWIN = "llama-3-8b-meta"


def part(heads, head_dim, offset, stride_head, rotates=True, is_cached=False, rotary_offset=0, norm_size=0):
    """What the server is told of a tensor of a run: where its heads lie in a token's row, in elements, and what becomes
    of them. It has no norm, or one of so many elements from the head's first."""
    return dict(locals())


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


def read_model(words):
    """None where the words are no model's."""
    try:
        name, numbers, (pairing, out_pairing) = words[0], [int(word) for word in words[1:5]], PAIRINGS[words[5]]
        model = Model(name, *numbers, pairing, out_pairing)
    except (IndexError, KeyError, TypeError, ValueError):
        return None
    sane = (len(words) > 6 and model.q_heads >= 1 and model.k_heads >= 0 and model.heads <= 4096 and
            2 <= model.rotary_dim <= model.head_dim <= 4096 and model.rotary_dim % 2 == 0)
    return model if sane else None


def read_models(lines):
    """Raises ValueError, naming the line, where the text is not as shapes.txt says."""
    models = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("#"):
            continue
        model = read_model(line.split())
        if model is None:
            raise ValueError(f"line {number} of the shapes is not a name, q heads, k heads, head_dim, rotary_dim, "
                             f"a pairing and a source: {line.rstrip()}")
        if model.name in models:
            raise ValueError(f"line {number} of the shapes names {model.name} a second time")
        models[model.name] = model
    return list(models.values())


@dataclasses.dataclass(frozen=True)
class Work:
    """A row of the table. Hot: every call uses the same memory; cold: other memory, none of it in a cache."""
    model: Model
    tokens: int
    dtype: str
    in_place: bool = True
    cold: bool = False
    angles: str = "table"
    threads: int = 1
    read_back: bool = False  # the output is read after each call, as a model's next step would
    apart: bool = False  # q and k are two tensors of a run, one behind the other in memory
    cold_table: bool = False  # each call has other positions, scattered over a table that fills no cache
    strided: bool = False  # in memory, element i of all heads of a token comes before element i + 1
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
        parts += [name for name, is_so in (("read", self.read_back), (self.angles, self.angles != "table"),
                                           ("q-and-k", self.apart), ("cold-table", self.cold_table),
                                           (f"{self.threads}-threads", self.threads != 1), ("strided", self.strided))
                  if is_so]
        return "/".join(parts)

    @property
    def for_peers(self):
        """Whether other libraries have such a work."""
        return self.model.pairing == self.model.out_pairing and not self.cold_table

    @property
    def n_bytes(self):
        """Bytes that have to be read and written, without angles. In place, columns outside the window stay."""
        width = self.model.rotary_dim if self.in_place else self.model.head_dim
        return 2 * self.tokens * self.model.heads * width * ELEMENT_BYTES[self.dtype]

    def described(self):
        """What the server is told, and peers."""
        fields = {field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name != "model"}
        model, (q, k) = self.model, self.model[1:3]
        stride = 1 if self.strided else model.head_dim
        parts = [part(q, model.head_dim, 0, stride), part(k, model.head_dim, q * stride, stride)]
        if not self.apart:
            parts = [part(q + k, model.head_dim, 0, stride)]
        return {"kind": "rotation", **model._asdict(), "name": self.name, **fields, "heads": q + k,
                "row_elements": (q + k) * model.head_dim, "stride_element": q + k if self.strided else 1,
                "parts": parts}


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


def special_works(model, threads):
    """Works that ask other questions than how fast a model is: what a call costs that has one head or two tensors to
    turn, and which source of angles is the best where a table's rows are in no cache."""
    one_head = part_of(model, "-one-head", 1)
    for dtype in ELEMENT_BYTES:
        yield Work(one_head, 1, dtype, threads=threads)
        yield Work(model, 1, dtype, threads=threads, apart=True)
    for part in one_head, part_of(model, "-k", model.k_heads), model:
        yield Work(part, 64, "bf16", threads=threads, cold_table=True)


def list_works(models, quick=False, pattern="*", n_threads=(1,)):
    """All works for the models, or those that a quick run does, whose names match as in a shell; * matches / too."""
    works = []
    for threads in n_threads:
        for model in models:
            some = [Work(model, tokens, dtype, in_place, cold, angles, threads) for tokens in (1, 64, 512, 4096)
                    for dtype in ELEMENT_BYTES for in_place in (True, False) for cold in (False, True)
                    for angles in ("table", "phase")]
            works += [work for work in some if exists(work) and (not quick or is_quick(work))]
            works += special_works(model, threads) if model.name == THOROUGH_MODEL else []
    return [work for work in works if fnmatch.fnmatchcase(work.name, pattern)]
