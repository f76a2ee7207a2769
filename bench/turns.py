"""Times several things on a noisy machine: they take turns in every round, in an order that changes, and medians over
the rounds are compared."""

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


QUICK, THOROUGH = Effort(9, 1e-3), Effort(11, 4e-3)


class Timing(typing.NamedTuple):
    """In seconds; the spread is half the range between the quartiles."""
    median: float = 0.0
    spread: float = 0.0
    fastest: float = 0.0

    @property
    def relative_spread(self):
        return self.spread / self.median if self.median > 0.0 else 0.0

    def json(self):
        return {f"{name}_seconds": value for name, value in self._asdict().items()}


def summarise(seconds):
    if not seconds:
        return Timing()
    if len(seconds) == 1:
        return Timing(seconds[0], 0.0, seconds[0])
    first, median, third = statistics.quantiles(seconds, n=4, method="inclusive")
    return Timing(median, (third - first) / 2, min(seconds))


def ratios(some, others):
    """Of times in the same rounds, so that what disturbs a whole round cancels out."""
    return [a / b for a, b in zip(some, others)]


@dataclasses.dataclass
class Subject:
    """Something to time. Its host makes the calls: round([(key, n_calls), ...]) returns the seconds that each took, or
    None for what can't be called any more."""
    name: str
    host: typing.Any
    key: typing.Any
    seconds: list = dataclasses.field(default_factory=list)  # for one call, of each round; empty: it can't be called
    about: dict = dataclasses.field(default_factory=dict)  # what else is known of it
    n_calls: int = 1  # in each round
    n_rounds: float = math.inf  # from then on it sits out

    def timing(self):
        return summarise(self.seconds)


class Calls:
    """The host of functions in this process, which are their own keys."""

    def round(self, calls):
        return [self.time(*call) for call in calls]

    def time(self, function, n_calls):
        start = time.perf_counter()
        for _ in itertools.repeat(None, n_calls):
            function()
        return time.perf_counter() - start


def time_calls(calls, n_rounds, n_times):
    """Functions by their names -> subjects, which made n_times calls in each round."""
    host = Calls()
    subjects = {name: Subject(name, host, call, n_calls=n_times) for name, call in calls.items()}
    take_turns(list(subjects.values()), n_rounds)
    return subjects


def time_in_order(calls):
    """The seconds of each (subject, n_calls). What lies in one process is asked for at once."""
    seconds = []
    for _, group in itertools.groupby(calls, lambda call: id(call[0].host)):
        group = list(group)
        seconds += group[0][0].host.round([(subject.key, n) for subject, n in group])
    return seconds


def find_n_calls(subject, seconds_each):
    """How many calls take at least that long, and how long they take (None: they can't be made). One interruption must
    not make too few calls look enough: a single call after another subject's is not a hot one."""
    n_calls, n_long_enough = 1, 0
    while True:
        seconds, = time_in_order([(subject, n_calls)])
        if seconds is None:
            return n_calls, None
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
        subject.n_rounds = 0 if seconds is None else 3 if seconds > 20 * effort.seconds_each else effort.n_rounds
    take_turns(subjects, effort.n_rounds)


def take_turns(subjects, n_rounds):
    """Has each subject make its calls in each of n_rounds."""
    order, shuffle = list(subjects), random.Random(1).shuffle
    for subject in subjects:
        subject.seconds = []
    for i in range(n_rounds):
        shuffle(order)
        # The subject before has cooled caches and clocks down: a quarter of the time warms them up again.
        calls = [(subject, n) for subject in order if i < subject.n_rounds
                 for n in (subject.n_calls // 4, subject.n_calls) if n > 0]
        seconds = time_in_order(calls)
        for (subject, n), taken, (later, _) in zip(calls, seconds, calls[1:] + [(None, 0)]):
            if taken is None:
                subject.seconds = []
                order = [other for other in order if other is not subject]
            elif later is not subject and subject in order:
                subject.seconds.append(taken / n)
