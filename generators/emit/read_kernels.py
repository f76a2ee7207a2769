"""Reads targets.inc and kernels.inc, the list of kernels, and refuses a row that it does not understand."""

import dataclasses
import inspect
import itertools
import pathlib
import re

PAIRINGS = ["half", "interleaved", "strided"]
PLACES = {"out_of_place": ["out_of_place"], "in_place": ["in_place"], "both": ["out_of_place", "in_place"]}
USUAL_HEADS = ["64", "80", "96", "128", "192", "256"]
KV_ARGUMENTS = ("dtype", "stored", "head_dim", "pairing", "rotary_dim", "rotary_offset", "weight", "unit_offset")
FLAGS = {"true": True, "false": False}
LIST = pathlib.Path(__file__).parents[1] / "kernels.inc"

CPU_OPTIONS = "no_runtime-no_asserts-no_bounds_query-strict_float"
# GPU kernels keep their asserts: without them Halide returns success when there is no driver.
CUDA_OPTIONS = "no_runtime-no_bounds_query-strict_float-user_context"


class BadList(Exception):
    """An error in the list; the message names the line."""


@dataclasses.dataclass(frozen=True)
class Target:
    name: str
    processor: str  # Halide's name; for a GPU, the host's, which launches its kernels
    features: str
    isa: str  # what a machine must have
    is_cuda: bool = False

    def halide(self, triple):
        """Halide's target string, which a generator takes."""
        return f"{triple}-{self.features}-{CUDA_OPTIONS if self.is_cuda else CPU_OPTIONS}"


@dataclasses.dataclass(frozen=True)
class Triple:
    name: str
    format: str  # of object files, as llvm-readobj prints it
    suffix: str  # of object files
    library: str
    non_temporal: bool  # whether there are kernels with non-temporal stores


@dataclasses.dataclass(frozen=True)
class Parameter:
    name: str
    loops: str  # parameters of the same loops are tuned together
    limit: str | None  # another parameter, which this one must not exceed
    values: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class Kernel:
    name: str
    target: Target
    op: str  # rotate, rows_phase, a stage, kv_path, check_positions or copy
    generator: str
    arguments: dict[str, str]  # the generator's arguments besides the parameters
    parameters: dict[str, int]  # the default schedule; a kernel without parameters cannot be tuned
    place: str = "out_of_place"
    pairing: str | None = None
    out_pairing: str | None = None
    dtype: str | None = None
    packed: bool = False
    bits: int = 0  # GPU: bits of an access; 0: any layout

    @property
    def is_non_temporal(self):
        return self.place == "non_temporal"

    def generator_arguments(self, parameters=None):
        """The arguments of the generator, for these parameters or the default ones. non_temporal_mib is the runtime's."""
        numbers = self.parameters if parameters is None else parameters
        numbers = {name: value for name, value in numbers.items() if name != "non_temporal_mib"}
        return [f"{name}={value}" for name, value in (self.arguments | numbers).items()]


@dataclasses.dataclass(frozen=True)
class KernelList:
    targets: dict[str, Target]  # best first, GPUs after CPUs
    triples: dict[str, Triple]
    parameters: dict[str, Parameter]
    kernels: dict[str, Kernel]  # in the order in which the library tries them

    def targets_of(self, triple):
        """The CPU targets of a triple's processor, best first."""
        return [t for t in self.targets.values() if not t.is_cuda and triple.startswith(t.processor + "-")]

    def cuda_targets(self):
        return [t for t in self.targets.values() if t.is_cuda]

    def kernels_of(self, target, triple=None):
        """A target's kernels; with a triple, only those that exist for it."""
        past_caches = triple is None or self.triples[triple].non_temporal
        return [k for k in self.kernels.values() if k.target.name == target and (past_caches or not k.is_non_temporal)]


def read(path=LIST):
    """Reads the list, and targets.inc beside it. Raises BadList."""
    rows = [(file, *row) for file in (path.with_name("targets.inc"), path) for row in _rows(file)]
    reader = _Reader([cells for _, macro, _, cells in rows if macro == "HALYARD_STAGE"])
    for path, macro, line, cells in rows:
        reader.path, reader.line = path, line
        row = getattr(reader, macro.removeprefix("HALYARD_").lower(), None) if macro.startswith("HALYARD_") else None
        if row is None:
            raise BadList(f"{path}:{line}: there is no row {macro}")
        try:
            inspect.signature(row).bind(*cells)
        except TypeError as error:
            raise BadList(f"{path}:{line}: {macro}: {error}") from None
        row(*cells)
    order = list(reader.targets)
    kernels = sorted(reader.kernels.values(),  # keeps the rows' order
                     key=lambda kernel: (order.index(kernel.target.name), not kernel.is_non_temporal))
    return KernelList(reader.targets, reader.triples, reader.parameters, {kernel.name: kernel for kernel in kernels})


def _rows(path):
    """The macro, the line and the cells of each row. Comments and preprocessor lines are blanked."""
    text = re.sub(r"^[ \t]*(//|#).*$", "", path.read_text(), flags=re.MULTILINE)
    at = re.compile(r"\s*").match(text).end()
    while at < len(text):
        line = text.count("\n", 0, at) + 1
        row = re.compile(r'(\w+)\(((?:[^()"\n]|\n[ \t]|"[^"\n]*")*)\)[ \t]*(?:\n\s*|$)').match(text, at)
        if row is None:
            raise BadList(f"{path}:{line}: this is no row: {text[at:].splitlines()[0]}")
        cells = []
        for cell in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', row[2]):
            if not re.fullmatch(r'\w+|"[^"]*"', cell.strip()):
                raise BadList(f"{path}:{line}: {cell.strip()!r} is no word, number or text")
            cells.append(cell.strip().strip('"'))
        yield row[1], line, cells
        at = row.end()


class _Reader:
    """Collects the rows. Each method is named as a row's macro, in lower case, and takes the cells of such a row."""

    def __init__(self, stage_rows):
        self.stage_rows = stage_rows
        self.path = self.line = None
        self.targets, self.triples, self.parameters, self.dtype_sets, self.kernels = {}, {}, {}, {}, {}

    def _refuse(self, why):
        raise BadList(f"{self.path}:{self.line}: {why}")

    def _add(self, entries, entry):
        if entry.name in entries:
            self._refuse(f"{entry.name} is there already")
        entries[entry.name] = entry

    def _one_of(self, what, found, known):
        if found not in known:
            self._refuse(f"{what} is {found!r}, which is none of {', '.join(known)}")
        return known[found] if isinstance(known, dict) else found

    def _read_numbers(self, **cells):
        """A row's parameters, without those that are `_`. Each must have a legal value."""
        numbers = {name: int(cell) for name, cell in cells.items() if cell != "_" and cell.isdecimal()}
        for name, cell in cells.items():
            parameter = self._one_of("a parameter", name, self.parameters)
            if cell != "_":
                self._one_of(name, cell, [str(value) for value in parameter.values])
                if parameter.limit and numbers[name] > numbers.get(parameter.limit, numbers[name]):
                    self._refuse(f"{name} exceeds {parameter.limit}")
        return numbers

    def _targets(self, cell, is_cuda):
        """The targets that a cell names."""
        known = {n: t for n, t in self.targets.items() if t.is_cuda == is_cuda}
        every = ["gpus" if is_cuda else "cpus"]
        return list(known.values()) if cell in every else [self._one_of("target", cell, known | dict.fromkeys(every))]

    def _dtypes(self, cell, known="floats"):
        """The dtypes that a cell names."""
        known = self._one_of("a set of dtypes", known, self.dtype_sets)
        return [self._one_of("dtype", dtype, known) for dtype in self.dtype_sets.get(cell, [cell])]

    def _add_kernels(self, name, targets, **fields):
        for target in targets:
            self._add(self.kernels, Kernel(name + "_" + target.name, target, **fields))

    def target(self, name, processor, features, isa):
        for better in self.targets.values():
            if better.processor == processor and not set(features.split("-")) < set(better.features.split("-")):
                self._refuse(f"{name} has features that {better.name}, which comes before it, has not")
        self._add(self.targets, Target(name, processor, features, isa))

    def cuda_target(self, name, processor, features, isa):
        self._add(self.targets, Target(name, processor, features, isa, is_cuda=True))

    def triple(self, name, format, suffix, library, non_temporal):
        past_caches = self._one_of("non_temporal", non_temporal, FLAGS)
        self._add(self.triples, Triple(name, format, suffix, library, past_caches))

    def parameter(self, name, loops, limit, *values):
        limit = None if limit == "none" else limit
        if not values or any(not value.isdecimal() for value in values):
            self._refuse(f"{name} needs values, which are numbers")
        self._add(self.parameters, Parameter(name, loops, limit, tuple(map(int, values))))

    def dtypes(self, name, *dtypes):
        if not dtypes:
            self._refuse(f"{name} names no dtype")
        self.dtype_sets[name] = dtypes

    def rotate(self, pairing, dtype, place, target, packed, round_by_test, swap_members, elements_per_step,
               elements_per_step_any, elements_per_vector, heads_per_step, hoist_rows, non_temporal_mib):
        numbers = self._read_numbers(
            elements_per_step=elements_per_step, elements_per_step_any=elements_per_step_any,
            elements_per_vector=elements_per_vector, heads_per_step=heads_per_step, hoist_rows=hoist_rows,
            swap_members=swap_members)
        past_caches = self._read_numbers(non_temporal_mib=non_temporal_mib)
        places = self._one_of("place", place, PLACES)
        if past_caches and place == "in_place":
            self._refuse("non_temporal_mib is of no kernel that is in place")
        self._one_of("round_by_test", round_by_test, FLAGS)
        arguments = {"round_by_test": round_by_test}
        for of_these, parameters in (["non_temporal"] if past_caches else [], numbers | past_caches), (places, numbers):
            self._add_rotation(pairing, dtype, of_these, self._targets(target, False), packed, arguments, parameters)

    def cuda_rotate(self, pairing, dtype, place, bits, target):
        if (pairing == "strided") != (bits == "_"):
            self._refuse("bits is what a kernel has that is not strided, and no other")
        self._one_of("bits", bits, ["128", "32", "_"])
        width = {} if bits == "_" else {"width": str(int(bits) // 32)}
        for each in self._dtypes(dtype):
            packed = str(each != "f32" and pairing != "strided").lower()
            self._add_rotation(pairing, each, self._one_of("place", place, PLACES), self._targets(target, True), packed,
                               width, {}, bits=0 if bits == "_" else int(bits))

    def _add_rotation(self, pairing, dtypes, places, targets, packed, arguments, numbers, bits=0):
        pairing_in, _, pairing_out = pairing.partition("_to_")
        pairing_out = pairing_out or pairing_in
        for one in (pairing_in, pairing_out):
            self._one_of("pairing", one, PAIRINGS)
        for dtype, place in itertools.product(self._dtypes(dtypes), places):
            differs = ([] if place == "out_of_place" else [place]) + (["by_32"] if bits == 32 else [])
            self._add_kernels(
                "_".join(["halyard_rotate", pairing, dtype, *differs]), targets, op="rotate", generator="rope",
                arguments={"dtype": dtype, "packed": packed, "pairing": pairing_in, "out_pairing": pairing_out,
                           "in_place": str(place == "in_place").lower()} | arguments,
                parameters=numbers, place=place, pairing=pairing_in, out_pairing=pairing_out, dtype=dtype,
                packed=self._one_of("packed", packed, FLAGS), bits=bits)

    def rows(self, target, pairs_per_step):
        self._add_kernels("halyard_rows_phase", self._targets(target, False), op="rows_phase", generator="rows_phase",
                         arguments={}, parameters=self._read_numbers(pairs_per_step=pairs_per_step), dtype="f32")

    def stage(self, stage, dtypes, target):
        has_several = dtypes in self.dtype_sets or [row[0] for row in self.stage_rows].count(stage) > 1
        norms = {"widens": str(stage == "widen_norm").lower(), "centres": str(stage == "layer_norm").lower()}
        for dtype in self._dtypes(dtypes, "caches"):
            arguments = {"dtype": dtype} if has_several else {}
            arguments |= norms if stage in ("norm", "widen_norm", "layer_norm") else {}
            self._add_kernels(f"halyard_{stage}_{dtype}", self._targets(target, False), op=stage,
                              generator=stage.removeprefix("widen_").removeprefix("layer_"), arguments=arguments,
                              parameters={}, dtype=dtype)

    def cuda_kv(self, dtypes, out_dtype, head_dim, pairing, rotary_dim, rotary_offset, weight, unit_offset, target):
        self._one_of("pairing", pairing, ["half", "interleaved"])
        plus_one = self._one_of("unit_offset", unit_offset, FLAGS)
        for head, dtype in itertools.product(USUAL_HEADS if head_dim == "usual" else [head_dim], self._dtypes(dtypes)):
            out = self._one_of("out_dtype", dtype if out_dtype == "same" else out_dtype, [dtype, "e4m3"])
            of_weight = self._one_of("weight", dtype if weight == "same" else weight, self.dtype_sets["floats"])
            window = head if rotary_dim == "whole" else rotary_dim
            name = "_".join(["halyard_kv", dtype, *([out] if out != dtype else []), head,
                             *(["interleaved"] if pairing != "half" else []),
                             *([f"{window}_at_{rotary_offset}"] if window != head else []),
                             *([f"w_{of_weight}"] if of_weight != dtype else []), *(["plus_one"] if plus_one else [])])
            cells = (dtype, out, head, pairing, window, rotary_offset, of_weight, unit_offset)
            for each in self._targets(target, True):
                by_sm89 = str(each.name == "cuda_sm89").lower()
                self._add_kernels(name, [each], op="kv_path", generator="kv_path", dtype=dtype, parameters={},
                                  arguments=dict(zip(KV_ARGUMENTS, cells)) | {"by_sm89": by_sm89})

    def cuda_check_positions(self, target):
        self._add_kernels("halyard_check_positions", self._targets(target, True), op="check_positions",
                         generator="check_positions", arguments={}, parameters={})

    def cuda_copy(self, bits, target):
        self._one_of("bits", bits, ["16", "32", "128"])
        self._add_kernels(f"halyard_copy_{bits}", self._targets(target, True), op="copy", generator="copy_columns",
                         arguments={"bits": bits}, parameters={})
