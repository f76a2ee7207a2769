"""The bench's native part by ctypes: libraries, works in memory, and what is timed. native/native.h says more."""

import ctypes
import pathlib

from files import Failed

DTYPES = {"f32": 1, "f16": 2, "bf16": 3, "e4m3": 4, "q8_0": 7}
PAIRINGS = {"half": 1, "interleaved": 2}
ANGLES = {"table": 1, "phase": 3}
PART = ("heads", "head_dim", "offset", "stride_head", "rotates", "is_cached", "rotary_offset", "norm_size")
DESC = ("size", "dtype", "cache", "pairing", "out_pairing", "angles", "tokens", "rotary_dim", "row_elements",
        "in_place", "cold", "first_position", "n_slots", "moved_by", "layers", "unit_offset", "hadamard", "n_parts")
DEFAULTS = {"angles": "table", "first_position": -1, "layers": 1}


class Part(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in PART]


class Desc(ctypes.Structure):
    _fields_ = [*((name, ctypes.c_int64) for name in DESC), ("parts", Part * 3)]


def describe(work):
    """The description of a work, from a dict in which what is not said is DEFAULTS' or 0."""
    work = {"cache": work["dtype"], "out_pairing": work["pairing"], **DEFAULTS, **work}
    work |= {"size": ctypes.sizeof(Desc), "n_parts": len(work["parts"]), "angles": ANGLES[work["angles"]],
             **{key: DTYPES[work[key]] for key in ("dtype", "cache")},
             **{key: PAIRINGS[work[key]] for key in ("pairing", "out_pairing")}}
    parts = [Part(*(part[name] for name in PART)) for part in work["parts"]]
    return Desc(*(work.get(name, 0) for name in DESC), (Part * 3)(*parts))


class Native:
    """The shared library of a build, whose functions take and give pointers."""

    def __init__(self, path):
        try:
            library = ctypes.CDLL(path)
        except OSError as error:
            raise Failed(f"can't load the bench's native part: {error}") from None
        pointer, text, whole, real = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_double
        for name, result, *arguments in (
                ("error", text), ("compilers", text), ("open", pointer, text),
                ("close", None, pointer),
                ("targets", text, pointer), ("prepare", pointer, ctypes.POINTER(Desc)), ("release", None, pointer),
                ("reset", None, pointer), ("place", pointer, pointer, text, whole, whole), ("copies", whole, pointer),
                ("keep", None, pointer), ("difference", real, pointer),
                ("subject_of", pointer, pointer, text, pointer, text), ("target", text, pointer),
                ("seconds", real, pointer, whole)):
            function = getattr(library, f"bench_{name}")
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def need(self, pointer):
        return pointer or self.fail()

    def fail(self):
        raise Failed(self.error().decode())


class Library:
    """A .so of Halyard. Only one native part may be in use, so that it comes first."""

    native = None

    def __init__(self, path, bench=None):
        """`bench` is the native part; without it that beside the library, or the one that is in use."""
        path = pathlib.Path(path).resolve()
        if Library.native is None:
            Library.native = Native(bench or path.parent / "libhalyard_bench.so")
        self.path, self.pointer = path, self.native.need(self.native.open(str(path).encode()))
        rows = [line.split() for line in self.native.targets(self.pointer).decode().splitlines()]
        self.targets = {name: set(words) for name, *words in rows}  # with "supported" and "active"

    @property
    def about(self):
        """Who compiled this, and the C loops."""
        compiler, halide, *loops = self.native.compilers().decode().splitlines()
        return {"compiler": compiler, "halide": halide.split()[1], "loops": ", ".join(loops) or "no compiler"}

    @property
    def compilers(self):
        """"gcc" -> "gcc 12.2.0"."""
        return {name.split()[0]: name for name in self.about["loops"].split(", ")}

    def close(self):
        self.native.close(self.pointer)


class Way:
    """One way to do a work, which is timed: native.h's subject."""

    def __init__(self, native, pointer):
        self.native, self.pointer, self.target = native, pointer, native.target(pointer).decode()

    def seconds(self, n):
        taken = self.native.seconds(self.pointer, n)
        return taken if taken >= 0 else self.native.fail()


class Prepared:
    """A work in memory, until it is closed: `with Prepared(described) as work`."""

    def __init__(self, described):
        self.native = Library.native
        self.pointer = self.native.need(self.native.prepare(describe(described)))

    def way(self, name, library, target=""):
        """None where this work has no such way."""
        pointer = self.native.subject_of(self.pointer, name.encode(), library.pointer, target.encode())
        if pointer is None and self.native.error():
            self.native.fail()
        return pointer and Way(self.native, pointer)

    def reset(self):
        self.native.reset(self.pointer)

    def keep(self, way):
        """This way's result is right, and others are compared with it."""
        self.reset()
        way.seconds(1)
        self.native.keep(self.pointer)

    def difference(self):
        """Of the outputs from what is right, in parts of a head's root mean square."""
        return self.native.difference(self.pointer)

    def try_way(self, way):
        """The same of one call on poisoned outputs."""
        self.reset()
        way.seconds(1)
        return self.difference()

    def memory(self, what, n_bytes, copy=0, part=0):
        """What lies there, as a ctypes array of bytes."""
        return (ctypes.c_uint8 * n_bytes).from_address(self.native.place(self.pointer, what.encode(), copy, part))

    @property
    def n_copies(self):
        return self.native.copies(self.pointer)

    def close(self):
        if self.pointer:
            self.native.release(self.pointer)
            self.pointer = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
