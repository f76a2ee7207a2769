"""Records of the ggml presets have the bytes that ggml's own functions write. HALYARD_TEST_GROUPS is the number of
groups for each preset, such as 1,000,000."""

import ctypes
import os
import pathlib

import numpy as np
import pytest

import halyard

N_GROUPS = int(os.environ.get("HALYARD_TEST_GROUPS", 20_000))
F32, MOST = np.float32, np.finfo(np.float32).max


def rounds(n_max):
    """Splits N_GROUPS into rounds of at most n_max groups, to limit memory. Returns their numbers of groups."""
    return [min(N_GROUPS, n_max)] * max(N_GROUPS // n_max, 1)


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


def near_ties(rng, groups, steps, offset):
    """Moves the groups' elements to within two ulp of ties, where rounding changes. Such elements show if a reciprocal
    is an ulp off. steps: how many quanta the range has; offset: 1 if the range begins at the minimum, else 0."""
    low = offset * groups.min(-1, keepdims=True)
    reach = groups.max(-1, keepdims=True) - low if offset else np.abs(groups).max(-1, keepdims=True)
    step = (reach / F32(steps)).astype(F32)
    ties = low + (np.floor((groups - low) / step) + F32(0.5)) * step
    ties = (ties.view(np.int32) + rng.integers(-2, 3, groups.shape, np.int32)).view(F32)
    ties[:, :2] = np.stack([groups.min(-1), groups.max(-1)], -1)  # keeps the scale as it was
    return ties


def draw(rng, n, size):
    """Random groups [n, size] of any magnitude, some of them hard: ties, extreme scales, zeros, infinities, NaN."""
    groups = rng.standard_normal((n, size)).astype(F32) * np.exp2(rng.uniform(-12, 12, (n, 1))).astype(F32)
    for i, (steps, offset) in enumerate(((127, 0), (8, 0), (255, 1), (15, 1), (448, 0))):
        groups[i::12] = near_ties(rng, groups[i::12], steps, offset)
    wide, powers, few, same, special = (groups[i::120].copy() for i in range(5, 10))
    wide *= np.exp2(rng.integers(-145, 120, (len(wide), 1))).astype(F32)  # scales out of float16's or float32's range
    ulps = 2.0**-23 * rng.integers(-1, 2, len(powers))
    powers[:, 0] = rng.choice(F32([8, 128, 1016, 3584]), len(powers)) * (1 + ulps)
    powers = np.ldexp(near_ties(rng, np.clip(powers, -powers[:, :1], powers[:, :1]), 127, 0),
                      rng.integers(-130, 100, (len(powers), 1)))
    few[:, 2:] = rng.choice(F32([0.0, -0.0]), (len(few), 1))
    same[:] = same[:, :1] * rng.choice(F32([0.0, 1.0]), (len(same), 1))
    special[:, rng.integers(size)] = rng.choice(F32([np.inf, -np.inf, np.nan, MOST, -MOST, 1e-45, 1e-38]), len(special))
    for i, hard in enumerate((wide, powers, few, same, special), 5):
        groups[i::120] = hard
    return groups


def check_equal(got, want, v, size):
    """Fails with the first group whose records differ."""
    wrong = np.flatnonzero((got != want).any(-1))
    if len(wrong):
        group, ours, theirs = (each[wrong[0]].tolist() for each in (v[:, :size], got, want))
        pytest.fail(f"{len(wrong)} of {len(got)} heads differ; head {wrong[0]} is {group}: {ours} for {theirs}")


@pytest.fixture(scope="module")
def ggml():
    root = pathlib.Path(__file__).parents[3] / ".deps"
    places = [os.environ.get("HALYARD_GGML_LIBRARIES"), root / "peers" / "ggml",
              root / "engines" / "llama.cpp" / "build" / "bin"]
    for place in places:
        if place and (pathlib.Path(place) / "libggml-cpu.so").exists():
            base, cpu = (ctypes.CDLL(str(pathlib.Path(place) / f"libggml-{name}.so"), mode=ctypes.RTLD_GLOBAL)
                         for name in ("base", "cpu"))
            cpu.ggml_cpu_init()
            return base, cpu
    pytest.skip("there is no libggml-cpu.so in .deps/peers/ggml: ./run bench --peers fetches and builds it")


@pytest.mark.parametrize("preset, library, function", [
    ("ggml_q8_0", 1, "quantize_row_q8_0"), ("ggml_q8_0_reference", 0, "quantize_row_q8_0_ref"),
    ("ggml_q8_0_reference", 1, "quantize_row_q8_0_generic"), ("ggml_q4_0", 0, "quantize_row_q4_0_ref"),
    ("ggml_q4_0", 1, "quantize_row_q4_0")])
def test_against_ggml(rng, ggml, preset, library, function):
    """Compares only groups whose elements, float16 scale and reciprocal are finite: ggml's bytes differ for others."""
    n_compared = 0
    for n in rounds(250_000):
        v = draw(rng, n, 32)
        amax = np.abs(v).max(-1)
        d = amax / F32(8 if preset == "ggml_q4_0" else 127)
        r = F32(127) / amax if preset == "ggml_q8_0" else F32(1) / d
        v = v[np.isfinite(v).all(-1) & np.isfinite(d.astype(np.float16)) & (np.isfinite(r) | (amax == 0))]
        want = np.empty((len(v), 18 if preset == "ggml_q4_0" else 34), np.uint8)
        pointers = (ctypes.c_void_p(each.ctypes.data) for each in (v, want))
        getattr(ggml[library], function)(*pointers, ctypes.c_int64(v.size))
        check_equal(halyard.convert(v[:, None], groups=preset, threads=2)[:, 0], want, v, 32)
        n_compared += len(v)
    assert n_compared > 0.98 * N_GROUPS
