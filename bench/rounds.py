"""Times several things on a noisy machine in interleaved rounds: each of them in every round, in an order that changes.
Medians over the rounds are compared."""

import dataclasses
import itertools
import math
import random
import statistics
import time
import typing


class Effort(typing.NamedTuple):
    n_rounds: int
    seconds_each: float  # the least that one subject is given in one round


QUICK, THOROUGH, PAIRED = Effort(9, 1e-3), Effort(11, 4e-3), Effort(41, 2e-3)


class Timing(typing.NamedTuple):
    """In seconds; the spread is half the range between the quartiles."""
    median: float
    spread: float
    fastest: float

    @property
    def relative_spread(self):
        return self.spread / self.median

    def json(self):
        return {f"{name}_seconds": value for name, value in self._asdict().items()}


def ratios(some, others):
    """Of times in the same rounds, so that what disturbs a whole round cancels out."""
    return [a / b for a, b in zip(some, others)]


def interval_of_median(values):
    """(low, median, high): the median of what the values were drawn from is outside in one of a thousand cases,
    whatever their distribution is (order statistics)."""
    values, n = sorted(values), len(values)
    rank = max(0, math.floor(n / 2 - 1.65 * math.sqrt(n)))
    return values[rank], statistics.median(values), values[n - 1 - rank]


@dataclasses.dataclass
class Subject:
    """Something to time."""
    name: str
    time: typing.Callable  # of a number of calls: the seconds that they took
    seconds: list = dataclasses.field(default_factory=list)  # of one call, in each round
    about: dict = dataclasses.field(default_factory=dict)  # what else is known of it
    n_calls: int = 1  # in each round
    n_rounds: float = math.inf  # from then on it sits out

    def timing(self):
        first, median, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return Timing(median, (third - first) / 2, min(self.seconds))


def timer_of(*functions, clock=time.perf_counter):
    """The `time` of calls of Python functions, in turn."""
    calls = itertools.cycle(functions)

    def seconds(n):
        some = itertools.islice(calls, n)
        start = clock()
        for call in some:
            call()
        return clock() - start
    return seconds


def find_n_calls(subject, seconds_each):
    """How many calls take at least that long, and how long they take. One interruption must not make too few calls look
    enough: a single call after another subject's is not a hot one."""
    n_calls, n_long_enough = 1, 0
    while True:
        seconds = subject.time(n_calls)
        if seconds < seconds_each:
            n_calls, n_long_enough = 2 * n_calls, 0
        else:
            n_long_enough += 1
            if n_long_enough == 3:
                return n_calls, seconds


def measure(subjects, effort):
    """Times every subject in each round. One whose single call takes more than twenty times its share sits out all
    rounds but three."""
    for subject in subjects:
        subject.n_calls, seconds = find_n_calls(subject, effort.seconds_each)
        subject.n_rounds = 3 if seconds > 20 * effort.seconds_each else effort.n_rounds
    take_rounds(subjects, effort.n_rounds)


def take_rounds(subjects, n_rounds):
    """Has each subject make its calls in each of n_rounds."""
    order, shuffle = list(subjects), random.Random(1).shuffle
    for subject in subjects:
        subject.seconds = []
    for i in range(n_rounds):
        shuffle(order)
        for subject in [subject for subject in order if i < subject.n_rounds]:
            # The subject before has cooled caches and clocks down: a quarter of the time warms them up again.
            if subject.n_calls >= 4:
                subject.time(subject.n_calls // 4)
            subject.seconds.append(subject.time(subject.n_calls) / subject.n_calls)


def measure_pairs(pairs, effort):
    """Times pairs of subjects that are to be compared with each other: one right after the other, each of them first in
    half of the rounds."""
    for a, b in pairs:
        a.n_calls = b.n_calls = max(find_n_calls(subject, effort.seconds_each)[0] for subject in (a, b))
        a.seconds, b.seconds = [], []
    for i in range(effort.n_rounds):
        for a, b in pairs:
            for subject in (a, b) if i % 2 == 0 else (b, a):
                subject.time(max(1, subject.n_calls // 4))
                subject.seconds.append(subject.time(subject.n_calls) / subject.n_calls)
