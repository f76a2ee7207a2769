"""Calls C through ctypes: libraries of Halyard, opened by path, and the bench's own C in loops/. The layout of structs
is parsed from the headers."""

import _ctypes
import ctypes
import functools
import pathlib
import re

from files import Failed

HERE = pathlib.Path(__file__).resolve().parent
HEADERS = re.sub(r"/\*.*?\*/", "", "".join(path.read_text() for path in (
    HERE.parent / "runtime/include/halyard/halyard.h", HERE.parent / "runtime/include/halyard/halyard_kv.h",
    HERE / "loops/loops.h")), flags=re.DOTALL)
CONSTANTS = {name: int(value) for name, value in re.findall(r"\bHALYARD_(\w+) = (-?\d+)", HEADERS)}
VERSION = ".".join(re.search(rf"define HALYARD_VERSION_{part} (\d+)", HEADERS)[1]
                   for part in ("MAJOR", "MINOR", "PATCH"))
TYPES = {"int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "float": ctypes.c_float,
         "double": ctypes.c_double, "char": ctypes.c_char, "uint8_t": ctypes.c_uint8,
         "halyard_status": ctypes.c_int32}


@functools.cache
def struct(name):
    """The ctypes class of a C struct; its pointers are addresses (void *)."""
    fields = []
    body = re.search(rf"struct {name} {{(.*?)}}", HEADERS, re.DOTALL)[1]
    for kind, names in re.findall(r"(?:const )?(?:struct )?(\w+) ([^;]*);", body):
        for stars, field, count in re.findall(r"((?:\*|const|\s)*)\b(\w+)(?:\[(\w+)\])?", names):
            one = ctypes.c_void_p if "*" in stars else TYPES[kind]
            fields.append((field, one * int(CONSTANTS.get(count.removeprefix("HALYARD_"), count)) if count else one))
    return type(name, (ctypes.Structure,), {"_fields_": fields})


class Moving(int):
    """An address inside a copy of a case's tensors. Calls advance it to the next copy."""


def make(name, **values):
    """Makes a C struct. For a value that is an array or a struct the field gets its address, and `kept` keeps the value
    alive. `moving` lists the addresses of all Moving fields, in the struct and in what it points to."""
    made, kind = struct(name)(), struct(name)
    made.kept, made.moving, types = values, [], dict(kind._fields_)
    if "size" in types:
        made.size = ctypes.sizeof(made)
    for field, value in values.items():
        if isinstance(value, Moving):
            made.moving.append(ctypes.addressof(made) + getattr(kind, field).offset)
        elif isinstance(value, (ctypes.Array, ctypes.Structure)):
            made.moving += getattr(value, "moving", [])
            value = ctypes.addressof(value)
        setattr(made, field, tuple(value) if issubclass(types[field], ctypes.Array) else value)
    return made


def c_array(items):
    """A C array of structs or addresses, with `kept` and `moving` as in make."""
    items = list(items)
    made = ((type(items[0]) if isinstance(items[0], ctypes.Structure) else ctypes.c_void_p) * len(items))(*items)
    made.kept, made.moving, size = items, [], ctypes.sizeof(made) // len(items)
    for at, item in zip(range(ctypes.addressof(made), 1 << 63, size), items):
        if isinstance(item, Moving):
            made.moving.append(at)
        for place in getattr(item, "moving", []):
            inside = place - ctypes.addressof(item)  # if the field is in the item, it was copied into the array
            made.moving.append(at + inside if 0 <= inside < size else place)
    return made


def address_of(function):
    return ctypes.cast(function, ctypes.c_void_p).value


def load(path):
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise Failed(str(error)) from None


class Native:
    """The bench's own C libraries in a build's folder: the timer (loops/native.c), and the C loops by gcc and clang."""

    def __init__(self, folder):
        library = load(folder / "libhalyard_bench.so")
        text = lambda library, name: ctypes.c_char_p.in_dll(library, name).value.decode()
        self.loops = {name: load(folder / f"libhalyard_loops_{name}.so") for name in ("gcc", "clang")
                      if (folder / f"libhalyard_loops_{name}.so").exists()}
        self.compilers = {name: text(library, "bench_compiler") for name, library in self.loops.items()}
        self.about = {"compiler": text(library, "bench_compiler"), "halide": text(library, "bench_halide"),
                      "loops": ", ".join(self.compilers.values()) or "no compiler"}
        self.seconds = library.bench_seconds
        self.seconds.restype = ctypes.c_double


class Library:
    """A libhalyard.so."""

    native = None  # the Native of the first library's build

    def __init__(self, path):
        self.path, self.sources = pathlib.Path(path).resolve(), {}
        if Library.native is None:
            Library.native = Native(self.path.parent)
        self.object = load(self.path)
        for name in "version", "get_target_count", "get_target_info", "create_plan", "get_plan_target", "run_bound":
            if not hasattr(self.object, f"halyard_{name}"):
                self.refuse(f"it has no halyard_{name}")
        for name in "version", "get_plan_target":
            self.function(name).restype = ctypes.c_char_p
        version = self.function("version")().decode()
        if version != VERSION:
            self.refuse(f"its version is {version}, and this is for {VERSION}")
        self.targets = {}  # {name: those of the words "supported" and "active" that hold}
        for i in range(self.function("get_target_count")()):
            info = make("halyard_target_info")
            self.check_status(self.function("get_target_info")(i, ctypes.byref(info), None))
            self.targets[ctypes.string_at(info.name).decode()] = {word for word in ("supported", "active")
                                                                  if getattr(info, word)}

    def refuse(self, why):
        raise Failed(f"{self.path} was built from other headers than this bench: {why}")

    def function(self, name):
        return getattr(self.object, f"halyard_{name}")

    def check_status(self, status, why=""):
        if status == CONSTANTS["ERROR_STRUCT_SIZE"]:
            self.refuse(why or "a struct has another size")
        if status:
            raise Failed(why)

    def create(self, function, *arguments):
        """Calls a function whose last two parameters receive the object that it creates and an error."""
        made, error = ctypes.c_void_p(), make("halyard_error")
        arguments = [ctypes.byref(one) if isinstance(one, ctypes.Structure) else one for one in arguments]
        status = self.function(function)(*arguments, ctypes.byref(made), ctypes.byref(error))
        self.check_status(status, error.message.decode())
        return made

    def destroy(self, kind, made):
        self.function(f"destroy_{kind}")(made)

    def angles(self, kind, rotary_dim, first, n_positions):
        """An angle source of base 10000. The last source of each kind is cached, as a model's layers would share it."""
        key, source = self.sources.get(kind, (None, None))
        if key != (rotary_dim, first, n_positions):
            self.destroy("angle_source", source)
            base, rotary_dim_of_c = ctypes.c_double(10000), ctypes.c_int64(rotary_dim)
            frequencies = self.create("create_frequencies_from_base", base, rotary_dim_of_c)
            source = self.create("create_angle_source", frequencies, make(
                "halyard_angle_source_desc", kind=CONSTANTS[f"ANGLES_{kind.upper()}"], first=first,
                n_positions=n_positions))
            self.destroy("frequencies", frequencies)
            self.sources[kind] = (rotary_dim, first, n_positions), source
        return source

    def close(self):
        for _, source in self.sources.values():
            self.destroy("angle_source", source)
        _ctypes.dlclose(self.object._handle)
