"""Measures cases: Halyard, peers, C loops and ceilings of a case are timed in the same rounds. The result is a row, the
dict that --json writes."""

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
    """How to time cases."""
    library: Library
    effort: rounds.Effort = rounds.THOROUGH
    target: str = ""  # of Halyard; empty: the best
    peers: typing.Any = None  # a peers.Peers, if other libraries are timed too


def find_rival(row, kind, name=None):
    return next((rival for rival in row["rivals"] if rival["kind"] == kind and name in (None, rival["name"])), None)


def judge(error, tolerance):
    """A row's fields about the error of a result. An infinite error is None, because JSON has no infinity."""
    return {"max_error": error if math.isfinite(error) else None, "wrong": not error <= tolerance}


def set_expected(case, prepared, library):
    """Calls the case's first available reference; other results are compared with its result."""
    calls = (prepared.call(name, library, target) for name, target in case.references)
    prepared.set_expected(next(call for call in calls if call))


def subject_of(contender, prepared, setting):
    """The Subject that times a contender; None if the contender is not available. The contender's result is compared
    first; ceilings have no result."""
    call = prepared.call(contender.name, setting.library, contender.target or setting.target)
    if call is None:
        return None
    compilers = Library.native.compilers
    name = contender.target or (compilers.get(contender.name) if contender.kind == "loop" else contender.name)
    about = {"kind": contender.kind, "target": call.target}
    if contender.kind not in CEILINGS:
        about |= judge(prepared.error_of(call), contender.tolerance)
    return Subject(name, call.seconds, about=about)


def make_subjects(case, prepared, setting):
    """The Subjects of a case. The first is Halyard."""
    set_expected(case, prepared, setting.library)
    made = (subject_of(contender, prepared, setting) for contender in case.contenders())
    subjects = [subject for subject in made if subject]
    if setting.peers and case.for_peers:
        subjects += setting.peers.subjects(case, prepared, judge)
    prepared.reset()
    return subjects


def fastest_ceiling(subjects, own):
    """A row's entry for the fastest of these ceilings; None if there are none. `own` is Halyard's Timing."""
    timed = [(subject.timing(), subject.name) for subject in subjects]
    if not timed:
        return None
    timing, name = min(timed, key=lambda one: one[0].median)
    return {"name": name, "ratio": timing.median / own.median, **timing.json()}


def make_row(case, subjects):
    first, own = subjects[0], subjects[0].timing()
    row = {**case.about(), **first.about, **own.json(), "rivals": [
        {"name": subject.name, **subject.about, **subject.timing().json()} for subject in subjects[1:]
        if subject.about["kind"] not in CEILINGS]}
    if "bytes" in row:
        row["gigabytes_per_second"] = row["bytes"] / own.median * 1e-9
    ceilings = {kind: fastest_ceiling([s for s in subjects if s.about["kind"] == kind], own) for kind in CEILINGS}
    row |= {kind: ceiling for kind, ceiling in ceilings.items() if ceiling}
    if "memory" in row:
        row["judged_by"] = max((kind for kind in CEILINGS if kind in row), key=lambda kind: row[kind]["ratio"])
        row["ratio"] = row[row["judged_by"]]["ratio"]
    return row


def measure_row(case, setting):
    with Prepared(case.described()) as prepared:
        subjects = make_subjects(case, prepared, setting)
        rounds.measure(subjects, setting.effort)
        return make_row(case, subjects)


def with_progress(cases):
    """Yields the cases one by one, and shows the current one on the terminal."""
    for i, case in enumerate(cases, 1):
        show_progress(f"{i} of {len(cases)}: {case.name}")
        yield case
    show_progress()


def measure_rows(cases, setting):
    return [measure_row(case, setting) for case in with_progress(cases)]


def timing_of(recorded):
    return Timing(*(recorded[f"{name}_seconds"] for name in Timing._fields))


def loses(row):
    """Whether a C loop or a peer is faster by more than both spreads."""
    return any(rival["kind"] in ("loop", "peer") and not rival["wrong"] and
               rival["median_seconds"] + rival["spread_seconds"] < row["median_seconds"] - row["spread_seconds"]
               for rival in row["rivals"])


# ---- Another build in the same rounds --------------------------------------------------------------------------------

LEAST_DIFFERENCE = 0.02
KINDS_OF_HALYARD = "halyard", "bound", "unbound"


class Difference(typing.NamedTuple):
    name: str
    contender: str
    low: float  # low and high: the ends of the median's interval
    median: float  # over the rounds: the other build's time divided by this build's
    high: float

    @property
    def exceeds_noise(self):
        return (self.low > 1.0 or self.high < 1.0) and abs(self.median - 1.0) > LEAST_DIFFERENCE


def compare_builds(case, setting, other):
    """(Timing, Difference) of each contender that calls the library, beside the same call of the library `other`."""
    with Prepared(case.described()) as prepared:
        set_expected(case, prepared, setting.library)
        pairs = []
        for contender in case.contenders():
            if contender.kind in KINDS_OF_HALYARD:
                both = [subject_of(contender, prepared, dataclasses.replace(setting, library=library))
                        for library in (setting.library, other)]
                if any(subject.about["wrong"] for subject in both):
                    raise ValueError(f"{case.name}: {contender.name} is wrong")
                pairs.append((contender, both))
        prepared.reset()
        rounds.measure_side_by_side([both for _, both in pairs], setting.effort)
    return [(own.timing(), Difference(case.name, contender.name, *rounds.interval_of_median(
        rounds.ratios(others.seconds, own.seconds)))) for contender, (own, others) in pairs]


@contextlib.contextmanager
def copies_of(*libraries):
    """Yields copies of the libraries, in new files. Some calls are a tenth slower at certain physical addresses of a
    file's pages, so each measurement has its own files."""
    with tempfile.TemporaryDirectory() as folder:
        copies = [Library(shutil.copy(library.path, pathlib.Path(folder, f"{i}.so")))
                  for i, library in enumerate(libraries)]
        yield copies
        for library in copies:
            library.close()


def find_differences(cases, setting, other):
    """Returns compare_builds' first results for all cases, and the Differences that exceed the noise in the same
    direction in all of three measurements."""
    found, differ = [], {}
    for attempt in range(3):
        with copies_of(setting.library, other) as (own, others):
            again = [one for case in with_progress(cases)
                     for one in compare_builds(case, dataclasses.replace(setting, library=own), others)]
        ones = {(d.name, d.contender): d for _, d in again if d.exceeds_noise}
        if attempt == 0:
            found, differ = again, ones
        differ = {key: min(d, ones[key], key=lambda one: abs(one.median - 1.0)) for key, d in differ.items()
                  if key in ones and (d.median > 1.0) == (ones[key].median > 1.0)}
        cases = [case for case in cases if any(name == case.name for name, _ in differ)]
    return found, list(differ.values())
