"""Prepares a bench case: lays out its positions, rows of cos and sin, slots and tensors in memory, and makes the calls
(Halyard's, C loops, ceilings) that work on this memory and are timed."""

import contextlib
import ctypes
import functools
import itertools
import math
import mmap
import operator
import random
import struct
import typing

from machine import read_line
from native import CONSTANTS, Failed, Library, Moving, address_of, c_array, make

PAGE, SCALE, EPS = 16, 0.015625, 1e-6  # tokens in a page of a cache; the scale of e4m3; eps of norms
GROUP, GROUP_BYTES = 32, 34  # of q8_0: 32 int8 elements and an f16 scale in 34 bytes
MEMORY_PAGE, N_POSITIONS = 4096, 32768  # bytes; positions in the table, for a context of 32k
BYTES = {"f32": 4, "f16": 2, "bf16": 2, "e4m3": 1, "q8_0": 1}
DTYPES = {name: CONSTANTS[name.upper()] for name in ("f32", "f16", "bf16", "e4m3")} | {"q8_0": CONSTANTS["UINT8"]}
DEFAULTS = {"angles": "table", "first_position": -1, "in_place": False, "cold": False, "n_slots": 0, "moved_by": 0,
            "layers": 1, "unit_offset": False, "hadamard": False}
MOST_TOKENS = 64  # results are compared for at most this many tokens
CEILINGS = {"memcpy": "memcpy", "copy": "copy", "stream": "stream", "multiply": "multiply",
            "convert": "convert_{dtype}", "convert and stream": "convert_and_stream_{dtype}"}  # names of C functions


class View(typing.NamedTuple):
    """A tensor in memory. Strides are in elements; for records of q8_0 in bytes."""
    at: int  # offset in the memory, in bytes
    stride_token: int
    stride_head: int


def head_size(dtype, head_dim):
    """The number of elements of a head; in q8_0 the number of its bytes."""
    return head_dim // GROUP * GROUP_BYTES if dtype == "q8_0" else head_dim


@functools.cache
def tile_of(dtype):
    """Bytes that, repeated, fill the inputs: f32, f16 and bf16 of either sign between 0.5 and 2; any finite e4m3; q8_0
    groups with scales from 2^-8 to 2^-7 and any int8."""
    draw, n = random.Random(1), 1 << 14
    if dtype == "q8_0":
        return b"".join(struct.pack("<H", 7 << 10 | draw.getrandbits(10)) + draw.randbytes(GROUP)
                        for _ in range(n // GROUP))
    if dtype == "e4m3":
        return bytes(draw.randrange(0x70) | draw.getrandbits(1) << 7 for _ in range(n))
    numbers = [draw.choice((-1, 1)) * draw.uniform(0.5, 2) for _ in range(n)]
    made = struct.pack(f"<{n}{'e' if dtype == 'f16' else 'f'}", *numbers)
    return b"".join(made[i + 2:i + 4] for i in range(0, len(made), 4)) if dtype == "bf16" else made


E4M3 = [(1 - (i >> 6 & 2)) * (math.nan if i & 0x7f == 0x7f else math.ldexp((i & 7) + 8 * (i & 0x78 > 0),
                                                                           max(i >> 3 & 15, 1) - 10))
        for i in range(256)]


def decode(dtype, data):
    """The elements in these bytes, as floats."""
    if dtype == "f32":
        return memoryview(data).cast("f")
    if dtype == "f16":
        return struct.unpack(f"<{len(data) // 2}e", data)
    if dtype == "bf16":  # the upper half of f32
        wide = bytearray(2 * len(data))
        wide[2::4], wide[3::4] = data[::2], data[1::2]
        return memoryview(wide).cast("f")
    if dtype == "e4m3":
        return [E4M3[byte] for byte in data]
    return [scale * value for scale, *group in struct.iter_unpack("<e32b", data) for value in group]


def difference(dtype, head_dim, expected, actual):
    """The largest difference of an element, divided by the root mean square of its expected head; inf if an element is
    not finite."""
    if expected == actual:
        return 0.0
    expected, actual, largest = decode(dtype, expected), decode(dtype, actual), 0.0
    for first in range(0, len(expected), head_dim):
        head, other = expected[first:first + head_dim], actual[first:first + head_dim]
        if not math.isfinite(sum(other)):
            return math.inf
        largest = max(largest, max(map(abs, map(operator.sub, head, other))) * head_dim**0.5 / math.hypot(*head))
    return largest


@functools.lru_cache(4)
def rows_of(positions, rotary_dim):
    """[cos, sin], each as f32 bytes for all positions and pairs."""
    frequencies = [10000.0 ** (-2 * k / rotary_dim) for k in range(rotary_dim // 2)]
    angles = [position * frequency for position in positions for frequency in frequencies]
    return [struct.pack(f"<{len(angles)}f", *map(function, angles)) for function in (math.cos, math.sin)]


class Call:
    """A call that can be timed. Its steps are C calls: (function, first argument, struct of arguments or None)."""

    def __init__(self, prepared, steps, target=""):
        self.prepared, self.target = prepared, target
        made = []
        for function, first_argument, args in steps:
            made.append(make("bench_step", function=address_of(function), self=first_argument))
            if args:
                ctypes.memmove(made[-1].args, ctypes.byref(args), ctypes.sizeof(args))
                made[-1].kept["args"], made[-1].moving = args, args.moving
        steps = c_array(made)
        self.struct = make("bench_call", steps=steps, n_steps=len(steps), places=c_array(steps.moving),
                           stride=prepared.step, n_places=len(steps.moving), n_copies=prepared.n_copies)

    def seconds(self, n):
        """Makes n calls, and returns this thread's CPU time. One call of a shift re-rotates all layers."""
        taken = Library.native.seconds(ctypes.byref(self.struct), ctypes.byref(self.prepared.next_copy),
                                       ctypes.c_int64(n * self.prepared.layers))
        if taken < 0:
            raise Failed(f"a run of the bench failed with status {-1 - int(taken)}")
        return taken


class Prepared:
    """A case in memory, until it is closed: `with Prepared(case.described()) as prepared`."""

    def __init__(self, described):
        for name, value in ({"cache": described["dtype"], "out_pairing": described["pairing"]} | DEFAULTS |
                            described).items():
            setattr(self, name, value)
        self.is_shift, self.next_copy, self.expected, self.places = self.moved_by != 0, ctypes.c_int64(0), [], {}
        self.is_kv = self.n_slots > 0 and not self.is_shift
        self.dtypes = [self.cache if part["is_cached"] else self.dtype for part in self.parts]
        self.tensor_bytes = self.tokens * self.row_elements * BYTES[self.dtype]
        self.choose_positions()
        n_bytes = self.lay_out()
        # Shared memory, so that the system does not use huge pages for some cases only.
        self.memory_map = mmap.mmap(-1, n_bytes, flags=mmap.MAP_SHARED | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE)
        self.begin = ctypes.addressof(ctypes.c_char.from_buffer(self.memory_map))
        self.stack = contextlib.ExitStack()
        self.fill()

    def choose_positions(self):
        """Positions are consecutive from first_position on if that is not negative. Else they are random in calls of up
        to 64 tokens, as in decoding, and consecutive from 0 on in longer ones, as in a prompt. A context shift moves
        all tokens by the same distance. Slots are random; for a shift, pages are in random order and full."""
        first, draw = max(self.first_position, 0), random.Random(2)
        if self.is_shift:
            self.positions = self.tokens * (self.moved_by,)
        elif self.first_position < 0 and self.tokens <= 64:
            self.positions = tuple(draw.randrange(N_POSITIONS) for _ in range(self.tokens))
        else:
            self.positions = tuple(range(first, first + self.tokens))
        size = PAGE if self.is_shift else 1
        pages = draw.sample(range(self.n_slots // size), self.n_slots // size)
        self.slots = [page * size + i for page in pages for i in range(size)][:self.tokens]

    def lay_out(self):
        """Sets `places` (name -> offset), and returns the size of the memory. A hot case has one copy of its tensors, a
        cold case so many that they far exceed the CPU's caches, a shift one copy for each layer."""
        end = gap = 0

        def place(name, n_bytes):
            nonlocal end
            self.places[name] = end
            end += -(-n_bytes // MEMORY_PAGE) * MEMORY_PAGE + gap
            return self.places[name]

        place("positions", 8 * self.tokens)
        place("run's positions", 4 * self.tokens)
        for name in "cos", "sin":
            place(name, 4 * self.tokens * self.rotary_dim // 2)
        for name, n_bytes in ("slots", 8 * self.tokens), ("scale", 4), ("scratch", self.n_slots // 8 + 1):
            place(name, n_bytes)
        # Offset tensors by half a memory page: if a load and an earlier store differ only in the page of their address,
        # the CPU delays the load (4K aliasing). The KV path has more tensors, and offsets each by 64 bytes. A shift
        # needs no offset: its only tensor is the cache.
        gap = 64 if self.is_kv else 0 if self.is_shift else MEMORY_PAGE // 2
        rows = outputs = self.places["outputs"] = place("rows", self.tensor_bytes)
        if not self.is_kv and not self.in_place:
            outputs = place("outputs", self.tensor_bytes)
        for p, part in enumerate(self.parts):
            if part["norm_size"]:
                place(("weight", p), 2 * part["norm_size"])
        in_row = lambda at, part: View(at + part["offset"] * BYTES[self.dtype], self.row_elements, part["stride_head"])
        self.x, self.y = [in_row(rows, part) for part in self.parts], []
        for p, (part, dtype) in enumerate(zip(self.parts, self.dtypes)):
            head = head_size(dtype, part["head_dim"])
            n_rows, size = self.n_slots if part["is_cached"] else self.tokens, part["heads"] * head
            self.y.append(View(place(("y", p), n_rows * size * BYTES[dtype]), size, head) if self.is_kv else
                          in_row(outputs, part))
        self.n_copies, self.step = self.layers, end - rows
        if self.cold:
            kib = read_line("/sys/devices/system/cpu/cpu0/cache/index3/size").rstrip("K")
            ring = max(256 << 20, 4 * int(kib or 0) << 10)
            self.n_copies = ring // (self.tensor_bytes * (1 if self.in_place else 2)) + 1
        self.places |= {("x", p): view.at for p, view in enumerate(self.x)}
        self.places |= {("y", p): view.at for p, view in enumerate(self.y)}
        return end + (self.n_copies - 1) * self.step

    def write(self, at, data):
        self.memory_map[at:at + len(data)] = data

    def fill(self):
        self.write(self.places["positions"], struct.pack(f"<{self.tokens}q", *self.positions))
        self.write(self.places["run's positions"], struct.pack(f"<{self.tokens}i", *self.positions))
        self.write(self.places["slots"], struct.pack(f"<{len(self.slots)}q", *self.slots))
        self.write(self.places["scale"], struct.pack("<f", SCALE))
        for name, rows in zip(("cos", "sin"), rows_of(self.positions, self.rotary_dim)):
            self.write(self.places[name], rows)
        draw = random.Random(4)
        for p, part in enumerate(self.parts):
            for j in range(part["norm_size"]):
                weight = struct.pack("<f", (not self.unit_offset) + draw.uniform(-0.25, 0.25))
                self.write(self.places["weight", p] + 2 * j, weight[2:])
        self.fill_x(self.n_copies)

    def fill_x(self, n_copies):
        tile = tile_of(self.dtype)
        rows = (tile * (self.tensor_bytes // len(tile) + 1))[:self.tensor_bytes]
        for copy in range(n_copies):
            self.write(self.places["rows"] + copy * self.step, rows)

    def address(self, what):
        """The address of a place. If every copy of the tensors has it: its address in the first copy, as a Moving."""
        at = self.places[what]
        return (Moving if at >= self.places["rows"] and what[0] != "weight" else int)(self.begin + at)

    def memory(self, what, n_bytes, copy=0, part=0):
        """The bytes at a place, as a ctypes array."""
        at = self.address((what, part) if what in ("x", "y", "weight") else what)
        return (ctypes.c_uint8 * n_bytes).from_address(at + copy * self.step)

    # ---- Results -----------------------------------------------------------------------------------------------------

    def reset(self):
        """Restores the inputs and poisons the outputs. The next call uses the first copy."""
        self.next_copy.value = 0
        if self.is_kv:
            first = self.y[0].at  # all outputs follow
            ctypes.memset(self.begin + first, 0xff, len(self.memory_map) - first)
        elif not self.in_place:
            ctypes.memset(self.begin + self.places["outputs"], 0xff, self.tensor_bytes)  # NaN in every dtype
        self.fill_x(self.n_copies if self.is_shift else 1)

    def outputs(self):
        """The result: bytes of each tensor in the first copy (a shift: in the last layer), of at most 64 tokens."""
        n, last = min(self.tokens, MOST_TOKENS), self.tokens - 1
        tokens = [i * last // max(n - 1, 1) for i in range(n)]
        begin, found = (self.n_copies - 1) * self.step * self.is_shift, []
        for part, view, dtype in zip(self.parts, self.y, self.dtypes):
            size = part["heads"] * head_size(dtype, part["head_dim"]) * BYTES[dtype]
            rows = [self.slots[t] for t in tokens] if part["is_cached"] else tokens
            starts = [begin + view.at + row * view.stride_token * BYTES[dtype] for row in rows]
            found.append(b"".join(self.memory_map[start:start + size] for start in starts))
        return found

    def set_expected(self, call):
        """Makes this call; other results are compared with its result."""
        self.reset()
        call.seconds(1)
        self.expected = self.outputs()

    def difference(self):
        """The largest difference of the outputs from the expected ones, in parts of a head's root mean square."""
        return max(difference(dtype, part["head_dim"], expected, actual) for part, dtype, expected, actual
                   in zip(self.parts, self.dtypes, self.expected, self.outputs()))

    def error_of(self, call):
        """Poisons the outputs, makes this call, and returns the difference."""
        self.reset()
        call.seconds(1)
        return self.difference()

    # ---- Calls -------------------------------------------------------------------------------------------------------

    def call(self, name, library, target=""):
        """A Call by its name, or None if this case has none: "run" or "bound" of a library of Halyard (a shift has only
        "bound"); "gcc" or "clang", a C loop; a name of CEILINGS."""
        if name == "bound" or name == "run" and not self.is_shift:
            return self.library_call(name, library, target)
        if name in Library.native.loops:
            return self.loop_call(Library.native.loops[name])
        if name in CEILINGS:
            in_c = "bench_" + CEILINGS[name].format(dtype=self.dtype) + "_in_place" * bool(self.in_place)
            found = [getattr(loops, in_c) for loops in Library.native.loops.values() if hasattr(loops, in_c)]
            return self.ceiling_call(found[0]) if found else None
        return None

    def loop_call(self, loops):
        """The C loop: one step that rotates all heads, or in the KV path a step for each tensor."""
        common = {"tokens": self.tokens, "cos": self.address("cos"), "sin": self.address("sin")}
        pairing = self.pairing if self.pairing == self.out_pairing else f"{self.pairing}_to_{self.out_pairing}"
        if self.n_slots == 0:
            head_dim, function = self.parts[0]["head_dim"], f"bench_rotate_{pairing}_{self.dtype}"
            made = make("bench_loop", x=self.address("rows"), y=self.address("outputs"), head_dim=head_dim,
                        heads=self.row_elements // head_dim, rotary_dim=self.rotary_dim, **common)
            return Call(self, [(getattr(loops, function + "_in_place" * self.in_place), made, None)])
        steps, same = [], ("stride_head", "heads", "head_dim", "rotary_offset", "norm_size")
        for p, (part, dtype) in enumerate(zip(self.parts, self.dtypes)):
            function = f"bench_{'shift' if self.is_shift else f'kv_{pairing}'}_{dtype}"
            function += "_hadamard" * (self.hadamard and part["is_cached"])
            steps.append((getattr(loops, function), make(
                "bench_loop", x=self.address(("x", p)), y=self.address(("y", p)), stride_token=self.row_elements,
                weight=self.address(("weight", p)) if part["norm_size"] else None, weight_offset=self.unit_offset,
                rotary_dim=self.rotary_dim * part["rotates"], eps=EPS, inverse_scale=1 / SCALE,
                slots=self.address("slots") if part["is_cached"] else None, **common,
                **{key: part[key] for key in same}), None))
        return Call(self, steps)

    def ceiling_call(self, function):
        """A ceiling's loop over all bytes of x and y, or in place over the rotary columns of each head."""
        head, columns = (n * BYTES[self.dtype] for n in (self.parts[0]["head_dim"], self.rotary_dim))
        if not self.in_place or columns == head:
            head = columns = self.tensor_bytes
        return Call(self, [(function, make(
            "bench_ceiling", x=self.address("rows"), y=self.address("outputs"), n_rows=self.tensor_bytes // head,
            row_bytes=columns, stride=head), None)])

    def library_call(self, name, library, target):
        """A Call of a run or a bound run ("run" or "bound") of a library."""
        kind, first = self.angles, max(self.first_position, 0)
        last = max(*self.positions, N_POSITIONS - 1)
        angles = (library.angles(kind, self.rotary_dim, -1 << 31, 1 << 32) if self.is_shift else
                  library.angles(kind, self.rotary_dim, first, last - first + 1))
        plan = library.create("create_plan", make(
            "halyard_plan_desc", rotary_dim=self.rotary_dim, n_tensors=len(self.parts), rerotates=self.is_shift,
            tensors=c_array(map(self.describe, self.parts)),
            target=ctypes.create_string_buffer(target.encode()) if target else None))
        self.stack.callback(library.destroy, "plan", plan)
        args = self.run_args(angles)
        function, first_argument = library.function("run"), plan
        if name == "bound":
            function, first_argument = library.function("run_bound"), library.create("bind_run", plan, args)
            self.stack.callback(library.destroy, "bound_run", first_argument)
            args = self.bound_args(args)
        return Call(self, [(function, first_argument.value, args)], library.function("get_plan_target")(plan).decode())

    def describe(self, part):
        """The plan's description of a tensor. Its cache has pages of [16, heads, head_dim]."""
        kv, head = {"no_rotation": not part["rotates"]}, head_size(self.cache, part["head_dim"])
        if part["norm_size"]:
            kv["norm"] = make("halyard_norm_desc", weight_dtype=DTYPES["bf16"], eps=EPS, unit_offset=self.unit_offset,
                              window_size=part["norm_size"])
        if part["is_cached"]:
            kv["cache"] = make("halyard_cache_desc", n_slots=self.n_slots, block_size=PAGE, stride_head=head,
                               stride_block=PAGE * part["heads"] * head, stride_token=part["heads"] * head,
                               stride_element=1)
            kv["hadamard"] = part["head_dim"] * self.hadamard
            if self.cache == "q8_0":
                kv["groups"] = make("halyard_groups_desc", preset=CONSTANTS["GROUPS_GGML_Q8_0"])
            if self.cache == "e4m3":
                kv |= {"out_dtype": DTYPES["e4m3"], "scale": make("halyard_scale_desc")}
        pairing, out_pairing = (CONSTANTS[f"PAIRING_{name.upper()}"] for name in (self.pairing, self.out_pairing))
        return make("halyard_tensor_desc", dtype=DTYPES[self.dtype], pairing=pairing, out_pairing=out_pairing,
                    head_dim=part["head_dim"], rotary_offset=part["rotary_offset"], kv=make("halyard_kv_desc", **kv))

    def tensor(self, name, p):
        """x[p] or y[p] of the run. In a shift, keys are only in the cache, so the tensor has no data."""
        part, view = self.parts[p], (self.x if name == "x" else self.y)[p]
        return make("halyard_tensor", dtype=DTYPES[self.dtype], data=None if self.is_shift else self.address((name, p)),
                    shape=(1, self.tokens, part["heads"], head_size(self.dtype, part["head_dim"])),
                    strides=(self.tokens * view.stride_token, view.stride_token, view.stride_head, 1))

    def run_args(self, angles):
        # Halyard does not read the y of a tensor with a cache, so its x stands there.
        names = [("x", "x" if part["is_cached"] else "y") for part in self.parts]
        x, y = (c_array(self.tensor(name, p) for p, name in enumerate(some)) for some in zip(*names))
        positions = self.consecutive_from(0) if self.is_shift else make(
            "halyard_positions", type=CONSTANTS["INT32"], data=self.address("run's positions"), shape=(1, self.tokens),
            strides=(self.tokens, 1))
        return make("halyard_run_args", angles=angles.value, positions=positions, n_tensors=len(x), x=x, y=y,
                    kv=self.kv_args() if self.n_slots else None)

    def bound_args(self, args):
        pointers = lambda tensors: c_array(tensor.kept["data"] for tensor in tensors.kept)
        made = make("halyard_bound_run_args", positions=args.kept["positions"].data, n_tensors=args.n_tensors,
                    x=pointers(args.kept["x"]), y=pointers(args.kept["y"]), kv=args.kept["kv"])
        made.kept["positions"] = args.kept["positions"]  # keeps the memory of its data alive
        return made

    def consecutive_from(self, position):
        """Consecutive positions of which this is the first."""
        return make("halyard_positions", type=CONSTANTS["INT64"], consecutive=1, shape=(1, 1), strides=(1, 1),
                    data=c_array([position]))

    def kv_args(self):
        stages = []
        for p, part in enumerate(self.parts):
            arrays = {}
            if part["norm_size"]:
                arrays |= {"weight": self.address(("weight", p)), "n_weights": part["norm_size"]}
            if part["is_cached"]:
                arrays["cache"] = self.address(("y", p))
                if self.cache == "e4m3":
                    arrays |= {"scales": self.address("scale"), "n_scales": 1}
            stages.append(make("halyard_stages", **arrays))
        slots = make("halyard_slots", type=CONSTANTS["INT64"], data=self.address("slots"), shape=(1, self.tokens),
                     strides=(self.tokens, 1), scratch=self.address("scratch"), scratch_bytes=self.n_slots // 8 + 1)
        return make("halyard_kv_args", stages=c_array(stages), slots=slots,
                    from_positions=self.consecutive_from(-self.moved_by) if self.is_shift else None)

    def close(self):
        self.stack.close()
        self.memory_map.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
