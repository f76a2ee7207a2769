"""Compares a run with another, or with recorded ratios. It compares ratios to memory's speed in the same run, never
times."""

import math
import typing

LEAST_FALL, SPREADS = 0.05, 3.0
CACHE_BYTES = 32 << 20
FLOOR_MARGIN = 0.6  # the lowest part of a recorded ratio that still passes


class Ratio(typing.NamedTuple):
    """The part of a row that is compared."""
    name: str
    target: str
    value: float
    relative_spread: float  # of medians
    fastest: float
    beyond_caches: bool


def positive(value, key):
    if not value[key] > 0.0:
        raise ValueError(f"{key} is not positive")
    return value[key]


def read_ratio(row):
    memory = row["memory"]
    spreads = [one["spread_seconds"] / positive(one, "median_seconds") for one in (row, memory)]
    return Ratio(row["name"], row["target"], positive(memory, "ratio"), math.hypot(*spreads),
                 positive(memory, "fastest_seconds") / positive(row, "fastest_seconds"),
                 row["cold"] or row["bytes"] > CACHE_BYTES)


def read_ratios(run):
    """The ratios of a run, by name and target, in their order. Raises ValueError where it is no run."""
    try:
        return dict(sorted((f"{row['name']} {row['target']}", read_ratio(row)) for row in run["rows"]))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"that is not what --json writes: {error!r}") from None


def say_fall(name, was, now, words, least):
    return f"{name}: {now:.3f} of memory's speed, {words} {was:.3f} (at least {least:.3f} passes)"


class Comparison(typing.NamedTuple):
    n_compared: int
    n_faster: int
    n_only_in_one: int
    slower: list  # a sentence for each row

    def text(self):
        return "".join(f"slower: {sentence}\n" for sentence in self.slower) + (
            f"{self.n_compared} rows compared: {len(self.slower)} slower, {self.n_faster} faster beyond noise; "
            f"{self.n_only_in_one} are in one run only")


def compare(before, after):
    """A row is slower when its ratio fell by more than 5 % and by more than three times the spread of the times that it
    comes from."""
    old, new = read_ratios(before), read_ratios(after)
    slower, n_faster = [], 0
    in_both = [key for key in old if key in new]
    for key in in_both:
        was, is_now = old[key], new[key]
        tolerance = max(LEAST_FALL, SPREADS * math.hypot(was.relative_spread, is_now.relative_spread))
        if is_now.value < was.value * (1.0 - tolerance):
            slower.append(say_fall(key, was.value, is_now.value, "was", was.value * (1.0 - tolerance)))
        n_faster += is_now.value > was.value * (1.0 + tolerance)
    return Comparison(len(in_both), n_faster, len(old) + len(new) - 2 * len(in_both), slower)


def record_floors(recorded, runs):
    """The least ratio that some runs measured for each row. Returns `recorded` with what it held for this CPU and
    target replaced, as {"<CPU family>": {"<target>": {"cpu", "commit", "date", "rows": {"<name>": ratio}}}}.

    These are ratios of the fastest rounds, which other programs disturb less than the medians. Rows beyond the caches
    get no floor, because other programs that use the memory slow them down."""
    rows = {}
    for run in runs:
        for ratio in read_ratios(run).values():
            if not ratio.beyond_caches:
                floors = rows.setdefault(ratio.target, {})
                floors[ratio.name] = min(round(ratio.fastest, 3), floors.get(ratio.name, math.inf))
    machine = runs[0]["machine"]
    for target, floors in rows.items():
        recorded.setdefault(machine["family"], {})[target] = {
            **{key: machine[key] for key in ("cpu", "commit", "date")}, "rows": floors}
    return recorded


def check_floors(recorded, run):
    """How many rows have a floor on this CPU and target, and {name: a sentence} of those that are below it."""
    floors, n_checked, below = recorded.get(run["machine"]["family"], {}), 0, {}
    for key, ratio in read_ratios(run).items():
        floor = floors.get(ratio.target, {}).get("rows", {}).get(ratio.name)
        if floor is not None:
            n_checked += 1
            if ratio.fastest < FLOOR_MARGIN * floor:
                below[ratio.name] = say_fall(key, floor, ratio.fastest, "recorded", FLOOR_MARGIN * floor)
    return n_checked, below
