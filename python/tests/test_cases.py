"""Random calls that the C++ checks drew and judged: Python's functions leave the same bytes, or refuse the call alike.
checks/cases/write_cases.cpp describes the file. Arrays are views of its regions, so writes beside them are noticed."""

import contextlib
import dataclasses
import json
import pathlib
import subprocess

import ml_dtypes
import numpy as np
import pytest

import halyard
from halyard import AngleSource, Cache, CacheLayout, DynamicScale, Frequencies, Groups, Norm, Tensor

WRITER = pathlib.Path(__file__).parents[2] / "build" / "host" / "bin" / "halyard_write_cases"
# What the numbers of halyard.h mean.
DTYPES = (None, np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2, np.int8,
          np.uint8)
DTYPE_NAMES, PAIRINGS = ("f32", "f16", "bf16", "e4m3", "e5m2", "int8"), (None, "half", "interleaved")
PRESETS = (None, "ggml_q8_0", "ggml_q8_0_neon", "ggml_q8_0_reference", "ggml_q4_0", "vllm_int8", "vllm_fp8",
           "openvino_u8", "openvino_u4", "mla_v32", "mla_v4", "mla_v41", "mx")
WITH_POWERS = ("mla_v4", "mla_v41")  # their scales are bytes; all others outside of records are float32


class Case:
    """A line of the file. Its number decides what it does not say: which form arguments have, and whether outputs are
    new arrays."""

    def __init__(self, number, line):
        vars(self).update(json.loads(line))
        self.number, self.heads_first, self.makes_arrays = number, number % 2 != 0, number % 8 > 3
        self.before, self.after = ([np.frombuffer(bytearray.fromhex(region), np.uint8) for region in regions]
                                   for regions in (self.before, self.after))
        self.n_batch, self.n_tokens, _ = self.tensors[0][1]
        self.has_batch = self.n_batch != 1 or number % 3 != 0

    def array(self, arrays, name, dtype, n_dims):
        """An array as it lies in its region; None if there is none."""
        if name not in arrays:
            return None
        region, offset, shape, strides = arrays[name]
        return np.ndarray(shape[:n_dims], dtype, self.before[region], offset, strides[:n_dims])

    def lay_out(self, array):
        """[batch, tokens, heads, ...] as this case passes it."""
        array = array.swapaxes(1, 2) if array is not None and self.heads_first else array
        return array if array is None or self.has_batch else array[0]

    def dtype(self, number):
        """The NumPy dtype of a tensor; half of the cases pass 8-bit floats as uint8."""
        return np.uint8 if number in (4, 5) and self.number % 4 > 1 else DTYPES[number]

    def numbers(self, name, n_axes=1):
        """Positions with their axes, or slots."""
        is_long, is_start, own_axes = (self.run.get(f"{name}.{of}", 0) for of in ("type", "consecutive", "n_axes"))
        arrays, has_axes = self.tensors[0][4], own_axes > 0
        found = self.array(arrays, name.rpartition(".")[2], np.int64 if is_long else np.int32, 3 if has_axes else 2)
        if found is None:
            return None
        found = np.moveaxis(found, 2, 0) if has_axes else found[None]
        found = found[0] if n_axes == 1 else np.broadcast_to(found, (n_axes, *found.shape[1:]))
        if not is_start:
            return found if self.has_batch else found[..., 0, :]
        return found if self.has_batch or n_axes > 1 else (int(found[0, 0]), found[0, 0])[self.heads_first]

    def source(self, i):
        base, factor, inv_freq = self.frequencies[i]
        of = (Frequencies.from_base(base, 2 * len(inv_freq)) if base
              else Frequencies.from_list(inv_freq, attention_factor=factor))
        kind, axis_map = (self.angles[name] for name in ("kind", "axis_map"))
        counts = [self.angles[f"axis_counts[{axis}]"] for axis in range(self.angles["n_axes"])]
        axes = (("sections", "interleaved")[axis_map - 2], counts) if axis_map > 1 else None
        if kind != 2:
            return AngleSource(of, (None, "table", None, "phase")[kind], first=self.angles["first"],
                               n_positions=self.angles["n_positions"], axis_map=axes)
        dtype = DTYPES[self.angles["rows_dtype"]]
        rows = [self.array(self.tensors[0][4], name, dtype, 2) for name in ("cos", "sin")]
        if self.angles["by_token"] == 2:  # rows that batch rows share; Python's have a row for each token
            rows = [np.tile(each, (self.n_batch, 1)) for each in rows]
        return AngleSource.given(*rows, by_token=self.angles["by_token"] != 0, axis_map=axes)

    def norm(self, of, arrays):
        def word(name, *words):
            return words[of[f"kv.norm.{name}"]]

        if "kv.norm.kind" not in of:
            return None
        weight, bias = (self.array(arrays, name, DTYPES[of["kv.norm.weight_dtype"]], 2) for name in ("weight", "bias"))
        if weight is not None and not of["kv.norm.weight_per_head"]:
            weight, bias = weight[0], None if bias is None else bias[0]
        eps = 0.0 if of["kv.norm.no_eps"] else of["kv.norm.eps"] or 1e-6
        return Norm(weight, eps, word("unit_offset", False, True), word("width", "head", "row"),
                    word("order", "before", "after"), word("rounding", "none", "before_weight", "after_weight", "both"),
                    of["kv.norm.window_offset"], of["kv.norm.window_size"], word("kind", "rms", "layer"), bias)

    def scale(self, of, arrays, in_cache):
        if of.get("kv.scale.kind") == 1:
            scales = self.array(arrays, "scales_out", np.float32, 3)
            return DynamicScale(scales[0] if in_cache else self.lay_out(scales))
        if "scales" not in arrays:
            return None
        (scale,) = self.array(arrays, "scales", np.float32, 2)
        return float(scale[0]) if of["kv.scale.per"] == 0 and self.heads_first else scale

    def groups(self, of, arrays, which, in_cache):
        preset = PRESETS[of.get(f"kv.{which}.preset", 0)]
        scales = self.array(arrays, which.replace("groups", "group_scales"), np.uint8, 5)
        if scales is None or preset is None:
            return preset
        scales = scales[..., 0] if preset in WITH_POWERS else scales.view(np.float32)[..., 0]
        scales = scales if scales.shape[3] > 1 else scales[..., 0]
        if not in_cache:
            return Groups(preset, self.lay_out(scales))
        n_pages, page, *of_slot = scales.shape
        counts_slots = scales.strides[0] == page * scales.strides[1]  # through all pages
        return Groups(preset, scales.reshape(n_pages * page, *of_slot) if counts_slots else scales)

    def cache(self, of, arrays, dtype, heads):
        """A Cache with pages if its layout has no tiles, else with all that follows the first element."""
        if "cache" not in arrays:
            return None
        fields = {field.name: of.get(f"kv.cache.{field.name}") for field in dataclasses.fields(CacheLayout)[:-2]}
        if fields["tile_tokens"] or fields["tile_elements"]:
            region, offset, *_ = arrays["cache"]
            n = (len(self.before[region]) - offset) // np.dtype(dtype).itemsize
            return Cache(np.ndarray(n, dtype, self.before[region], offset),
                         CacheLayout(**fields, n_heads=heads, head_dim=of["head_dim"]))
        array = self.array(arrays, "cache", dtype, 6)[:, :, 0, :, 0]
        return Cache(array, "hnd") if self.heads_first else Cache(array.swapaxes(1, 2))

    def tensor(self, of, shape, read, written, arrays):
        cache = self.cache(of, arrays, self.dtype(written), shape[2])
        x, out = (self.lay_out(self.array(arrays, name, self.dtype(dtype), 4))
                  for name, dtype in (("x", read), ("y", written)))
        needs_dtype = written != 7 and (cache.array if cache else out).dtype == np.uint8
        return Tensor(
            x, from_groups=self.groups(of, arrays, "from_groups", False), norm=self.norm(of, arrays),
            rotary_offset=of["rotary_offset"], hadamard=of["kv.hadamard"],
            position_scales=self.lay_out(self.array(arrays, "position_scales", np.float32, 3)),
            scale=self.scale(of, arrays, bool(cache)), groups=self.groups(of, arrays, "groups", bool(cache)),
            dtype=DTYPE_NAMES[written - 1] if needs_dtype else None, out=None if cache else out, cache=cache)

    def call(self):
        tensors, angles = [self.tensor(*each) for each in self.tensors], self.source(0)
        of, n_axes, slots = self.tensors[0][0], angles.n_axes, self.numbers("kv.slots")
        positions, duplicates = self.numbers("positions", n_axes), ("error", "last")[self.run.get("kv.slots.policy", 0)]
        how = dict(slots=slots, layout=("bshd", "bhsd")[self.heads_first], threads=self.number % 3)
        rotation = dict(angles=angles, inverse=self.plan["direction"] != 0, pairing=PAIRINGS[of["pairing"]])
        if self.plan["rerotates"]:
            if self.run.get("kv.slots.consecutive"):  # rerotate takes the slot of each token
                how["slots"] = np.where(slots < 0, slots, slots + np.arange(self.n_tokens))
            moved = halyard.rerotate(tensors[0], positions=positions,
                                     from_angles=self.source(1) if len(self.frequencies) > 1 else None,
                                     from_positions=self.numbers("kv.from_positions", n_axes), **how, **rotation)
            assert moved is destination(tensors[0])
            return
        given = [without_out(tensor) if self.makes_arrays else tensor for tensor in tensors]
        if of["kv.no_rotation"]:
            fields = [name for name in Tensor.__dataclass_fields__ if name not in ("array", "rotary_offset")]
            made = halyard.convert(given[0].array, duplicate_slots=duplicates, **how,
                                   **{name: getattr(given[0], name) for name in fields})
        else:
            needs_start = self.has_batch or slots is not None or self.n_tokens == 1
            if positions is None and not self.angles["by_token"] and needs_start:
                positions = 0
            made = halyard.rotate(*given, positions=positions, duplicate_slots=duplicates, **how, **rotation,
                                  out_pairing=PAIRINGS[of["out_pairing"]],
                                  bad_position=("error", "clamp", "identity")[self.run["bad_position"]])
        for one, tensor, result in zip(given, tensors, made if len(tensors) > 1 else (made,)):
            if one is not tensor:
                put(tensor, result)
            else:
                assert result is destination(tensor)


def destination(tensor):
    return tensor.cache.array if tensor.cache else tensor.out


def without_out(tensor):
    """The tensor with new arrays for its output and for the scales that lie outside the output's records."""
    if tensor.cache is not None:
        return tensor
    default = np.uint8 if tensor.groups else np.float32 if tensor.from_groups else tensor.array.dtype
    dtype = tensor.out.dtype if tensor.dtype is None and tensor.out.dtype != default else tensor.dtype
    return dataclasses.replace(tensor, out=None, groups=tensor.groups and tensor.groups.preset, dtype=dtype)


def put(tensor, result):
    """Puts new arrays where the case has its output and the scales outside its records."""
    if isinstance(result, tuple):
        result, scales = result
        assert scales.dtype == tensor.groups.scales.dtype and scales.shape == tensor.groups.scales.shape
        tensor.groups.scales[...] = scales
    assert tensor.out.dtype in (result.dtype, np.uint8) and result.shape == tensor.out.shape
    assert type(result) is np.ndarray
    tensor.out[...] = result.view(tensor.out.dtype)


@pytest.mark.skipif(not WRITER.exists(), reason="./run test python builds the program that writes the cases")
@pytest.mark.parametrize("seed", range(5))
def test_bytes(seed):
    # No environment: LD_LIBRARY_PATH and LD_PRELOAD are for this Python, which may be emulated or use sanitizers.
    written = subprocess.run([WRITER, "60", str(seed)], env={}, capture_output=True, check=True).stdout
    for number, line in enumerate(written.splitlines()):
        case = Case(number, line)
        with pytest.raises(halyard.Error) if case.status != "HALYARD_OK" else contextlib.nullcontext() as refusal:
            case.call()
        assert refusal is None or refusal.value.status == case.status
        assert all(map(np.array_equal, case.before, case.after)), (number, case.tensors, case.run, case.angles)
