"""Rows of roads, a layer's way from a projection to q and a cache, and of shifts, a whole cache whose keys move. What
is one call of Halyard's is timed in the same rounds as other ways to the same result."""

import fnmatch
import sys

import turns
from measure import is_beaten, prepare, rival_of, timing_of, with_progress
from tables import show_error, warn_of_noise
from works import Part, list_parts

KIND_NAMES = {"fused": "this", "unbound": "unbound", "without_norm": "without norm", "separate": "separate"}


def packed(heads, kv_heads, head_dim, has_norm=False, unit_offset=False):
    """A model with q, k and v one after the other; without heads only k and v."""
    norm_size, k, v = head_dim * has_norm, heads * head_dim, (heads + kv_heads) * head_dim
    parts = list_parts(*[Part(heads, head_dim, 0, head_dim, norm_size=norm_size)] * (heads > 0),
                       Part(kv_heads, head_dim, k, head_dim, is_cached=True, norm_size=norm_size),
                       Part(kv_heads, head_dim, v, head_dim, rotates=False, is_cached=True))
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
                    "parts": list_parts(Part(128, 64, 128, 192),
                                        Part(1, 576, 128 * 192, 576, True, True, 512, 512))},
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
            "parts": list_parts(Part(heads, head_dim, 0, size, is_cached=True))}


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
    if not is_road:
        ways = [{key: way[key] for key in way if key not in ("kind", "form", "max_error")} for way in ways]
    row = {"name": name_of(work), "target": ready["target"], "ways": ways, "loses": loses(ways)}
    return row | ({"model": work["model"], "tokens": work["tokens"]} if is_road else {"bytes": ready["bytes"]})


def loses(ways):
    return is_beaten(timing_of(ways[0]), ways[1:])


def is_wrong(row):
    """Whether anything of Halyard's own is wrong."""
    return any(way["wrong"] for i, way in enumerate(row["ways"])
               if i == 0 or way.get("kind", "loop") not in ("loop", "peer"))


def say_missing_peers(listed):
    for peer in listed["absent"] + listed["refused"]:
        print(f"{peer['name']}: {peer['why']}", file=sys.stderr)


def format_road(row, rivals):
    ways = {(way["kind"], way["name"]): way for way in row["ways"]}
    own = timing_of(row["ways"][0])

    def times(way):
        return f"{way['median_seconds'] / own.median:.2f}" if way and way["median_seconds"] else "-"

    plain = ways.get(("without_norm", ""))
    adds = f"{100 * (own.median / plain['median_seconds'] - 1):.0f} %" if plain else "-"
    line = (f"{row['name']:<32}{own.median * 1e6:10.3f} +- {own.spread * 1e6:7.3f}"
            f"  {times(ways.get(('unbound', ''))):>7}  {adds:>9}  {times(ways.get(('separate', ''))):>8}")
    for rival in rivals:
        line += f"  {times(ways.get(('loop', rival)) or ways.get(('peer', rival))):>{max(7, len(rival) + 2)}}"
    wrong = [f"  ({way['name'] or KIND_NAMES[way['kind']]} is wrong: error {show_error(way['max_error'])})"
             for way in row["ways"] if way["wrong"]]
    return line + ("  loses" if row["loses"] else "") + "".join(wrong)


def format_roads(rows):
    rivals = list(dict.fromkeys(way["name"] for row in rows for way in row["ways"] if way["kind"] in ("loop", "peer")))
    forms = {way["name"]: way["form"] for row in reversed(rows) for way in row["ways"] if way["kind"] == "peer"}
    lines = ["road                                    us              unbound  norm adds  separate" +
             "".join(f"  {f'x {rival}':>7}" for rival in rivals)]
    lines += [format_road(row, rivals) for row in rows]
    lines += [f"{name}: {forms[name]}" for name in rivals if name in forms]
    n_noisy = sum(any(timing_of(way).relative_spread > 0.1 for way in row["ways"]) for row in rows)
    return "\n".join(lines + warn_of_noise(n_noisy, len(rows), "a median"))


def format_shift(row):
    own, *others = row["ways"]
    line = (f"{row['name']:<34}{own['median_seconds'] * 1e3:10.2f} +- {own['spread_seconds'] * 1e3:6.2f}  "
            f"{row['bytes'] / own['median_seconds'] * 1e-9:8.1f}")
    line += "".join(f"  {way['median_seconds'] / own['median_seconds']:{len(way['name']) + 2}.2f}" for way in others)
    wrong = [f"  ({way['name'] or 'this'} is wrong)" for way in row["ways"] if way["wrong"]]
    return line + ("  loses" if row["loses"] else "") + "".join(wrong)


def format_shifts(rows):
    head = "cached keys moved                         ms              GB/s" + "".join(
        f"  x {way['name']}" for way in rows[0]["ways"][1:])
    return "\n".join([head, *map(format_shift, rows)])
