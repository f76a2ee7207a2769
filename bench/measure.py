"""Rows: works, each timed in the same rounds as its peers, C loops and the loops that set its ceilings. A row is what
--json writes of it."""

import contextlib
import dataclasses
import math
import pathlib
import shutil
import tempfile
import typing

import rounds
from files import show_progress
from native import Library
from prepared import Prepared
from rounds import Subject, Timing

CEILINGS = "memory", "conversion"


@dataclasses.dataclass
class Setting:
    """How works are timed."""
    library: Library
    effort: rounds.Effort = rounds.THOROUGH
    target: str = ""  # empty: the best one
    peers: typing.Any = None


def find(row, kind, name=None):
    return next((rival for rival in row["rivals"] if rival["kind"] == kind and name in (None, rival["name"])), None)


def judge(error, slack):
    return {"max_error": error if math.isfinite(error) else None, "wrong": not error <= slack}


def keep_right(work, prepared, library):
    """Has the work's first way that there is say what is right."""
    ways = (prepared.way(name, library, target) for name, target in work.right)
    prepared.keep(next(way for way in ways if way))


def subject_of(way, prepared, setting):
    """None where the work has no such way. What sets a ceiling has no result."""
    made = prepared.way(way.name, setting.library, way.target or setting.target)
    if made is None:
        return None
    name = way.target or (Library.native.compilers.get(way.name) if way.kind == "loop" else way.name)
    about = {"kind": way.kind, "target": made.target}
    if way.kind not in CEILINGS:
        about |= judge(prepared.try_way(made), way.slack)
    return Subject(name, made.seconds, about=about)


def prepare(work, prepared, setting):
    """What is timed of a work; Halyard comes first."""
    keep_right(work, prepared, setting.library)
    made = (subject_of(way, prepared, setting) for way in work.ways())
    subjects = [subject for subject in made if subject]
    if setting.peers and work.for_peers:
        subjects += setting.peers.subjects(work, prepared, judge)
    prepared.reset()
    return subjects


def best_ceiling(subjects, own):
    """The fastest of the loops that set a ceiling; None where there is none."""
    timed = [(subject.timing(), subject.name) for subject in subjects]
    if not timed:
        return None
    timing, name = min(timed, key=lambda one: one[0].median)
    return {"name": name, "ratio": timing.median / own.median, **timing.json()}


def make_row(work, subjects):
    first, own = subjects[0], subjects[0].timing()
    row = {**work.about(), **first.about, **own.json(), "rivals": [
        {"name": subject.name, **subject.about, **subject.timing().json()} for subject in subjects[1:]
        if subject.about["kind"] not in CEILINGS]}
    if "bytes" in row:
        row["gigabytes_per_second"] = row["bytes"] / own.median * 1e-9
    ceilings = {kind: best_ceiling([s for s in subjects if s.about["kind"] == kind], own) for kind in CEILINGS}
    row |= {kind: ceiling for kind, ceiling in ceilings.items() if ceiling}
    if "memory" in row:
        row["judged_by"] = max((kind for kind in CEILINGS if kind in row), key=lambda kind: row[kind]["ratio"])
        row["ratio"] = row[row["judged_by"]]["ratio"]
    return row


def measure_row(work, setting):
    with Prepared(work.described()) as prepared:
        subjects = prepare(work, prepared, setting)
        rounds.measure(subjects, setting.effort)
        return make_row(work, subjects)


def with_progress(works):
    """The works, one after the other; the one at hand is shown."""
    for i, work in enumerate(works, 1):
        show_progress(f"{i} of {len(works)}: {work.name}")
        yield work
    show_progress()


def measure_rows(works, setting):
    return [measure_row(work, setting) for work in with_progress(works)]


def timing_of(recorded):
    return Timing(*(recorded[f"{name}_seconds"] for name in Timing._fields))


def loses(row):
    """Whether a loop or a peer is faster by more than both spreads."""
    return any(rival["kind"] in ("loop", "peer") and not rival["wrong"] and
               rival["median_seconds"] + rival["spread_seconds"] < row["median_seconds"] - row["spread_seconds"]
               for rival in row["rivals"])


# ---- Another build in the same rounds --------------------------------------------------------------------------------

LEAST_DIFFERENCE = 0.02
OWN = "halyard", "bound", "unbound"


class Difference(typing.NamedTuple):
    name: str
    way: str
    low: float  # by what another build's time is multiplied: the median over the rounds, in its interval
    median: float
    high: float

    @property
    def is_one(self):
        return (self.low > 1.0 or self.high < 1.0) and abs(self.median - 1.0) > LEAST_DIFFERENCE


def compare_builds(work, setting, other):
    """How the ways that call the library differ from the same by `other`: (Timing, Difference) of each."""
    with Prepared(work.described()) as prepared:
        keep_right(work, prepared, setting.library)
        pairs = []
        for way in work.ways():
            if way.kind in OWN:
                both = [subject_of(way, prepared, dataclasses.replace(setting, library=library))
                        for library in (setting.library, other)]
                if any(subject.about["wrong"] for subject in both):
                    raise ValueError(f"{work.name}: {way.name} is wrong")
                pairs.append((way, both))
        prepared.reset()
        rounds.measure_pairs([both for _, both in pairs], setting.effort)
    return [(own.timing(), Difference(work.name, way.name, *rounds.interval_of_median(
        rounds.ratios(others.seconds, own.seconds)))) for way, (own, others) in pairs]


@contextlib.contextmanager
def copies_of(*libraries):
    """Where a file's pages lie in the machine's memory can make some calls a tenth slower: so each measurement has
    files of its own."""
    with tempfile.TemporaryDirectory() as folder:
        copies = [Library(shutil.copy(library.path, pathlib.Path(folder, f"{i}.so")))
                  for i, library in enumerate(libraries)]
        yield copies
        for library in copies:
            library.close()


def find_differences(works, setting, other):
    """All that compare_builds finds, and of it what differs beyond noise: in the same direction three times."""
    found, differ = [], {}
    for attempt in range(3):
        with copies_of(setting.library, other) as (own, others):
            again = [one for work in with_progress(works)
                     for one in compare_builds(work, dataclasses.replace(setting, library=own), others)]
        ones = {(d.name, d.way): d for _, d in again if d.is_one}
        if attempt == 0:
            found, differ = again, ones
        differ = {key: min(d, ones[key], key=lambda one: abs(one.median - 1.0)) for key, d in differ.items()
                  if key in ones and (d.median > 1.0) == (ones[key].median > 1.0)}
        works = [work for work in works if any(name == work.name for name, _ in differ)]
    return found, list(differ.values())
