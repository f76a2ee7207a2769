"""Times several subjects on a noisy machine in interleaved rounds: each subject in every round, in changing order.
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
    seconds_each: float  # a subject's calls in one round take at least this time


QUICK, THOROUGH, PAIRED = Effort(9, 1e-3), Effort(11, 4e-3), Effort(41, 2e-3)


class Timing(typing.NamedTuple):
    """Seconds of a call; the spread is half the distance between the quartiles."""
    median: float
    spread: float
    fastest: float

    @property
    def relative_spread(self):
        return self.spread / self.median

    def json(self):
        return {f"{name}_seconds": value for name, value in self._asdict().items()}


def ratios(some, others):
    """The ratios of times in the same round, in which a disturbance of the whole round cancels out."""
    return [a / b for a, b in zip(some, others)]


def interval_of_median(values):
    """(low, median, high) of values: a 99.9 % confidence interval of the median of their distribution. It holds for any
    distribution, because it uses order statistics."""
    values, n = sorted(values), len(values)
    rank = max(0, math.floor(n / 2 - 1.65 * math.sqrt(n)))
    return values[rank], statistics.median(values), values[n - 1 - rank]


@dataclasses.dataclass
class Subject:
    """Something to time."""
    name: str
    time: typing.Callable  # makes n calls and returns the seconds that they took
    seconds: list = dataclasses.field(default_factory=list)  # of one call, in each round
    about: dict = dataclasses.field(default_factory=dict)  # the row's fields about it, such as its kind and error
    n_calls: int = 1  # in each round
    n_rounds: float = math.inf  # it is timed in the first n_rounds only

    def timing(self):
        first, median, third = statistics.quantiles(self.seconds, n=4, method="inclusive")
        return Timing(median, (third - first) / 2, min(self.seconds))


def make_timer(*functions, clock=time.perf_counter):
    """Returns a Subject's `time`: seconds(n) makes n calls of these Python functions, one after the other in a cycle,
    and returns the seconds that the calls take."""
    calls = itertools.cycle(functions)

    def seconds(n):
        some = itertools.islice(calls, n)
        start = clock()
        for call in some:
            call()
        return clock() - start
    return seconds


def find_n_calls(subject, seconds_each):
    """(n_calls, seconds): how many calls take at least seconds_each, and how long they take. Three attempts must agree,
    because an interruption can make too few calls last long enough."""
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
    """Times every subject in each round. A subject whose calls take more than 20 * seconds_each is timed in just three
    rounds."""
    for subject in subjects:
        subject.n_calls, seconds = find_n_calls(subject, effort.seconds_each)
        subject.n_rounds = 3 if seconds > 20 * effort.seconds_each else effort.n_rounds
    take_rounds(subjects, effort.n_rounds)


def take_rounds(subjects, n_rounds):
    """Times the subjects in n_rounds rounds; each has n_calls set."""
    order, shuffle = list(subjects), random.Random(1).shuffle
    for subject in subjects:
        subject.seconds = []
    for i in range(n_rounds):
        shuffle(order)
        for subject in [subject for subject in order if i < subject.n_rounds]:
            # Warm up: the previous subject has replaced the contents of the CPU's caches.
            if subject.n_calls >= 4:
                subject.time(subject.n_calls // 4)
            subject.seconds.append(subject.time(subject.n_calls) / subject.n_calls)


def measure_side_by_side(pairs, effort):
    """Times each pair of subjects one right after the other. Each of the two goes first in half of the rounds."""
    for a, b in pairs:
        a.n_calls = b.n_calls = max(find_n_calls(subject, effort.seconds_each)[0] for subject in (a, b))
        a.seconds, b.seconds = [], []
    for i in range(effort.n_rounds):
        for a, b in pairs:
            for subject in (a, b) if i % 2 == 0 else (b, a):
                subject.time(max(1, subject.n_calls // 4))
                subject.seconds.append(subject.time(subject.n_calls) / subject.n_calls)
