"""Compares a run of the bench with an earlier one, or with the floors of its CPU. It compares ratios to the memory
ceiling of the same run, never times."""

import math
import statistics
import typing

LEAST_FALL, SPREADS = 0.05, 3.0  # a row got slower if its ratio fell by more than these, see compare()
CACHE_BYTES = 32 << 20  # a row that touches more memory than this exceeds the CPU's caches
LEAST_MARGIN = 0.15  # rows pass if they fall below the floor by no more than this, or than 3 times the recorded noise


class Ratio(typing.NamedTuple):
    """The fields of a row that are compared."""
    value: float  # the memory ceiling's time divided by Halyard's, by medians
    relative_spread: float  # of value
    fastest: float  # the same ratio by the fastest rounds, which other programs disturb less
    beyond_caches: bool


def positive(value, key):
    if not value[key] > 0.0:
        raise ValueError(f"{key} is not positive")
    return value[key]


def read_ratio(row):
    memory = row["memory"]
    spreads = [one["spread_seconds"] / positive(one, "median_seconds") for one in (row, memory)]
    return Ratio(positive(memory, "ratio"), math.hypot(*spreads),
                 positive(memory, "fastest_seconds") / positive(row, "fastest_seconds"),
                 row["cold"] or row["bytes"] > CACHE_BYTES)


def read_ratios(run):
    """{(name, target): Ratio} of a run's rotations. Raises ValueError if the run is not what --json writes."""
    try:
        return {(row["name"], row["target"]): read_ratio(row) for row in run["rows"] if "memory" in row}
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"that is not what --json writes: {error!r}") from None


def say_fall(key, was, now, words, least):
    return f"{' '.join(key)}: {now:.3f} of memory's speed, {words} {was:.3f} (at least {least:.3f} passes)"


def compare(before, after):
    """Prints the rows that got slower: whose ratio fell by more than 5 % and by more than three times the relative
    spread of both ratios. Returns the number of these rows."""
    old, new = read_ratios(before), read_ratios(after)
    both, n_slower, n_faster = [key for key in old if key in new], 0, 0
    for key in both:
        was, now = old[key], new[key]
        tolerance = max(LEAST_FALL, SPREADS * math.hypot(was.relative_spread, now.relative_spread))
        if now.value < was.value * (1.0 - tolerance):
            n_slower += 1
            print("slower:", say_fall(key, was.value, now.value, "was", was.value * (1.0 - tolerance)))
        n_faster += now.value > was.value * (1.0 + tolerance)
    print(f"{len(both)} rows compared: {n_slower} slower, {n_faster} faster beyond noise; "
          f"{len(old) + len(new) - 2 * len(both)} are in one run only")
    return n_slower


def record_floors(recorded, runs):
    """Replaces the floors of this CPU and target in `recorded`, and returns it: {"<CPU family>": {"<target>": {"cpu",
    "commit", "date", "rows": {"<name>": [ratio, noise]}}}}. ratio is the median over the runs, noise the largest
    deviation from it. Rows that exceed the CPU's caches get no floor: other programs that use memory slow them down."""
    found = {}
    for run in runs:
        for (name, target), ratio in read_ratios(run).items():
            if not ratio.beyond_caches:
                found.setdefault(target, {}).setdefault(name, []).append(ratio.fastest)
    machine = runs[0]["machine"]
    for target, rows in found.items():
        medians = {name: statistics.median(ratios) for name, ratios in rows.items()}
        recorded.setdefault(machine["family"], {})[target] = {
            **{key: machine[key] for key in ("cpu", "commit", "date")},
            "rows": {name: [round(medians[name], 3), round(max(abs(r / medians[name] - 1) for r in ratios), 3)]
                     for name, ratios in rows.items()}}
    return recorded


def check_floors(recorded, run):
    """(how many rows of the run have a floor, {name: message} of the rows that are below their floor)."""
    floors, n_checked, below = recorded.get(run["machine"]["family"], {}), 0, {}
    for key, ratio in read_ratios(run).items():
        name, target = key
        floor, noise = floors.get(target, {}).get("rows", {}).get(name, (None, 0.0))
        if floor is not None:
            n_checked += 1
            least = floor * (1.0 - max(LEAST_MARGIN, 3.0 * noise))
            if ratio.fastest < least:
                below[name] = say_fall(key, floor, ratio.fastest, "recorded", least)
    return n_checked, below
