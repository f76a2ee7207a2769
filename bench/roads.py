"""Rows of roads, a layer's way from a projection to q and a cache, and of shifts, a whole cache whose keys move. What
is one call of Halyard's is timed in the same rounds as other ways to the same result."""

import fnmatch
import sys

import turns
from rows import is_beaten, show_progress, timing_of
from tables import show_error, warn_of_noise
from turns import Subject

KIND_NAMES = {"fused": "this", "unbound": "unbound", "without_norm": "without norm", "separate": "separate"}


def name_of(work):
    if work["kind"] == "road":
        return f"{work['model']}/{work['tokens']}/{work['cache']}"
    return f"shift/{work['layers']}x{work['heads']}x{work['head_dim']}x{work['tokens']}/{work['dtype']}"


def list_works(models, quick, pattern):
    """The roads, then the shifts. A quick run leaves out 512 tokens and has two layers."""
    works = [{"kind": "road", "model": model, "tokens": tokens, "cache": cache} for model in models
             for tokens in ((1, 64) if quick else (1, 64, 512)) for cache in ("bf16", "e4m3")]
    works += [{"kind": "shift", "layers": 2 if quick else 32, "heads": 8, "head_dim": 128, "tokens": 8192,
               "dtype": dtype} for dtype in ("bf16", "e4m3")]
    return [work for work in works if fnmatch.fnmatchcase(name_of(work), pattern)]


def measure_way_rows(works, setting):
    return [measure_ways(work, setting) for work in show_progress(works, name_of)]


def measure_ways(work, setting):
    peers = setting.peers if work["kind"] == "road" else None
    ready, subjects = setting.server.prepare(work, target=setting.target, with_peers=peers is not None)
    for name, form, found in peers.check(setting.server, ready["peers"]) if peers else ():
        subjects.append(Subject(name, peers, ("run", name)))
        subjects[-1].about = {"kind": "peer", "form": form, **found}
    turns.measure(subjects, setting.effort)
    ways = [{"name": subject.name, **subject.timing().json(), "wrong": subject.about["wrong"],
             **({"kind": subject.about["kind"], "form": subject.about.get("form", ""),
                 "max_error": subject.about["max_error"]} if work["kind"] == "road" else {})} for subject in subjects]
    row = {"name": name_of(work), "target": ready["target"], "ways": ways, "loses": loses(ways)}
    return row | ({"model": work["model"], "tokens": work["tokens"]} if work["kind"] == "road" else
                  {"bytes": ready["bytes"]})


def loses(ways):
    return is_beaten(timing_of(ways[0]), ways[1:])


def is_wrong(row):
    """Whether anything of Halyard's own is wrong."""
    return any(way["wrong"] for i, way in enumerate(row["ways"])
               if i == 0 or way.get("kind", "loop") not in ("loop", "peer"))


def say_missing_peers(listed):
    for peer in listed["absent"] + listed["refused"]:
        if peer["name"].startswith("torch") or peer["name"] == "every peer":
            print(f"{peer['name']}: {peer['why']}", file=sys.stderr)


def format_road(row, rivals):
    ways = {(way["kind"], way["name"]): way for way in row["ways"]}
    own = timing_of(row["ways"][0])

    def times(way):
        return f"{way['median_seconds'] / own.median:.2f}" if way and way["median_seconds"] else "-"

    plain = ways.get(("without_norm", ""))
    adds = f"{100 * (own.median / plain['median_seconds'] - 1):.0f} %" if plain else "-"
    line = (f"{row['name']:<24}{own.median * 1e6:10.3f} +- {own.spread * 1e6:7.3f}"
            f"  {times(ways.get(('unbound', ''))):>7}  {adds:>9}  {times(ways.get(('separate', ''))):>8}")
    for rival in rivals:
        line += f"  {times(ways.get(('loop', rival)) or ways.get(('peer', rival))):>{max(7, len(rival) + 2)}}"
    wrong = [f"  ({way['name'] or KIND_NAMES[way['kind']]} is wrong: error {show_error(way['max_error'])})"
             for way in row["ways"] if way["wrong"]]
    return line + ("  loses" if row["loses"] else "") + "".join(wrong)


def format_roads(rows):
    rivals = list(dict.fromkeys(way["name"] for row in rows for way in row["ways"] if way["kind"] in ("loop", "peer")))
    forms = {way["name"]: way["form"] for row in reversed(rows) for way in row["ways"] if way["kind"] == "peer"}
    lines = ["road                            us              unbound  norm adds  separate" +
             "".join(f"  {f'x {rival}':>7}" for rival in rivals)]
    lines += [format_road(row, rivals) for row in rows]
    lines += [f"{name}: {forms[name]}" for name in rivals if name in forms]
    n_noisy = sum(any(timing_of(way).relative_spread > 0.1 for way in row["ways"]) for row in rows)
    return "\n".join(lines + warn_of_noise(n_noisy, len(rows), "a median"))


def format_shift(row):
    own, *others = row["ways"]
    line = (f"{row['name']:<28}{own['median_seconds'] * 1e3:10.2f} +- {own['spread_seconds'] * 1e3:6.2f}  "
            f"{row['bytes'] / own['median_seconds'] * 1e-9:8.1f}")
    line += "".join(f"  {way['median_seconds'] / own['median_seconds']:{len(way['name']) + 2}.2f}" for way in others)
    wrong = [f"  ({way['name'] or 'this'} is wrong)" for way in row["ways"] if way["wrong"]]
    return line + ("  loses" if row["loses"] else "") + "".join(wrong)


def format_shifts(rows):
    head = "cached keys moved                   ms              GB/s" + "".join(
        f"  x {way['name']}" for way in rows[0]["ways"][1:])
    return "\n".join([head, *map(format_shift, rows)])
