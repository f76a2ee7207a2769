"""Rows of roads, a layer's way from a projection to q and a cache, and of shifts, a whole cache whose keys move. What
is one call of Halyard's is timed in the same rounds as other ways to the same result."""

import fnmatch
import sys

import turns
from measure import loses, prepare, rival_of, timing_of, with_progress
from tables import NOISY, align, find, say_wrong, show_timing, times, warn_of_noise
from works import part


def packed(heads, kv_heads, head_dim, has_norm=False, unit_offset=False):
    """A model with q, k and v one after the other; without heads only k and v."""
    norm_size, k, v = head_dim * has_norm, heads * head_dim, (heads + kv_heads) * head_dim
    parts = [*[part(heads, head_dim, 0, head_dim, norm_size=norm_size)] * (heads > 0),
             part(kv_heads, head_dim, k, head_dim, is_cached=True, norm_size=norm_size),
             part(kv_heads, head_dim, v, head_dim, rotates=False, is_cached=True)]
    return {"row_elements": v + kv_heads * head_dim, "rotary_dim": head_dim, "pairing": "half",
            "unit_offset": unit_offset, "parts": parts}


MODELS = {
    "llama-3-8b": packed(32, 8, 128),
    "llama-3-8b-kv": packed(0, 8, 128),
    "qwen3-8b": packed(32, 8, 128, has_norm=True),
    "gemma-3-4b": packed(8, 4, 256, has_norm=True, unit_offset=True),
    # Of MLA: the part of q that is rotated, [tokens, 128, 64] out of heads of 192, and the one row that is cached, of
    # which the latent is normed and the rest rotated.
    "deepseek-v3": {"row_elements": 128 * 192 + 576, "rotary_dim": 64, "pairing": "interleaved", "unit_offset": False,
                    "parts": [part(128, 64, 128, 192), part(1, 576, 128 * 192, 576, True, True, 512, 512)]},
}


RECORDS = ("q8_0", "q8_0-hadamard")


def caches_of(model):
    """The kinds. By column is k as vLLM has it on CPUs, and in pages are rows in the same slots beside a prompt's."""
    return ("bf16", "e4m3", *((*RECORDS, "bf16-columns", "bf16-pages") if model.startswith("llama") else ()))


def road(model, tokens, kind):
    """What the server is told; a cache has 128 pages of 16 tokens."""
    cache, _, how = kind.partition("-")
    return {"kind": "road", "model": model, "tokens": tokens, "dtype": "bf16", "cache": cache, "in_place": False,
            "n_slots": 2048, "cache_kind": kind, "hadamard": how == "hadamard", "by_column": how == "columns",
            "in_pages": how in ("columns", "pages") and tokens > 64, **MODELS[model]}


def shift(layers, heads, head_dim, tokens, kind):
    dtype, _, how = kind.partition("-")
    size = head_dim // 32 * 34 if dtype == "q8_0" else head_dim  # elements, or bytes of a record
    return {"kind": "shift", "layers": layers, "heads": heads, "head_dim": head_dim, "tokens": tokens, "dtype": dtype,
            "moved_by": -2048, "n_slots": tokens, "pairing": "half", "rotary_dim": head_dim, "in_place": True,
            "angles": "phase", "row_elements": heads * size, "cache_kind": kind, "hadamard": how == "hadamard",
            "parts": [part(heads, head_dim, 0, size, is_cached=True)]}


def name_of(work):
    if work["kind"] == "road":
        return f"{work['model']}/{work['tokens']}/{work['cache_kind']}"
    return f"shift/{work['layers']}x{work['heads']}x{work['head_dim']}x{work['tokens']}/{work['cache_kind']}"


def list_works(quick, pattern):
    """The roads, then the shifts. A quick run leaves out 512 tokens and has two layers. Up to 64 tokens have slots of
    their own anyway, so that rows in pages would be the same."""
    works = [road(model, tokens, kind) for model in MODELS for tokens in ((1, 64) if quick else (1, 64, 512))
             for kind in caches_of(model) if kind != "bf16-pages" or tokens > 64]
    works += [shift(2 if quick else 32, 8, 128, 8192, kind) for kind in ("bf16", "e4m3", *RECORDS)]
    return [work for work in works if fnmatch.fnmatchcase(name_of(work), pattern)]


def measure_way_rows(works, setting):
    return [measure_ways(work, setting) for work in with_progress(works, name_of)]


def measure_ways(work, setting):
    is_road = work["kind"] == "road"
    # Peers know neither records nor columns.
    ready, subjects = prepare(work, setting, for_peers=is_road and work["cache_kind"] in ("bf16", "e4m3"))
    turns.measure(subjects, setting.effort)
    ways = [{"form": "", **rival_of(subject)} for subject in subjects]
    row = {"name": name_of(work), "target": ready["target"], "ways": ways, "loses": loses(as_row(ways))}
    return row | ({"model": work["model"], "tokens": work["tokens"]} if is_road else {"bytes": ready["bytes"]})


def as_row(ways, **more):
    """As a row of the table is: Halyard, and the others as its rivals."""
    return {**ways[0], "rivals": ways[1:], **more}


def is_wrong(row):
    """Whether anything of Halyard's own is wrong."""
    return any(way["wrong"] for way in row["ways"] if way["kind"] not in ("loop", "peer"))


def say_missing_peers(listed):
    for peer in listed["absent"] + listed["refused"]:
        print(f"{peer['name']}: {peer['why']}", file=sys.stderr)


def norm_adds(row):
    plain = find(row, "without_norm")
    return f"{100 * (row['median_seconds'] / plain['median_seconds'] - 1):.0f} %" if plain else "-"


def format_ways(what, rows, columns):
    """Names and some columns, then others' times over ours."""
    rows = [as_row(**row) for row in rows]
    names = dict.fromkeys(rival["name"] for row in rows for rival in row["rivals"] if rival["kind"] in ("loop", "peer"))
    of = lambda name: lambda row: times(row, find(row, "loop", name) or find(row, "peer", name))
    head, *lines = align(rows, {what: lambda row: row["name"], **columns, **{f"x {name}": of(name) for name in names}})
    return "\n".join([head, *(line + "  loses" * row["loses"] + say_wrong(row) for line, row in zip(lines, rows))])


def format_roads(rows):
    text = format_ways("road", rows, {
        "us": show_timing, "unbound": lambda row: times(row, find(row, "unbound")), "norm adds": norm_adds,
        "separate": lambda row: times(row, find(row, "separate"))})
    forms = {way["name"]: way["form"] for row in reversed(rows) for way in row["ways"] if way["kind"] == "peer"}
    n_noisy = sum(any(timing_of(way).relative_spread > NOISY for way in row["ways"]) for row in rows)
    return "\n".join([text, *(f"{name}: {form}" for name, form in forms.items()),
                      *warn_of_noise(n_noisy, len(rows), "a median")])


def format_shifts(rows):
    return format_ways("cached keys moved", rows, {
        "ms": lambda row: show_timing(row, 1e3),
        "GB/s": lambda row: f"{row['bytes'] / row['median_seconds'] * 1e-9:.1f}"})
