"""The search for a better schedule: which variants are tried, how they are compared, and what is kept for a run that
goes on after an interruption.

A variant is the sorted pairs of a schedule's numbers, (("elements_per_step", 64), ...). A workshop makes variants and
times them:
    shapes       names of the works
    make(variants, until)      why each can't be taken: it could not be made, or computes something wrong; "" where it
                               can; NOT_TRIED for those that were not begun before the time `until`
    prove(variant)             the same for one that was made, checked more thoroughly
    measure(variants, effort)  [the seconds of each round, for each shape], for each variant; one may be named twice
    now()                      seconds
"""

import contextlib
import dataclasses
import math
import statistics

from files import Failed, load_json, save_json
from turns import Effort, ratios, summarise

NOT_TRIED = "not tried"
GLANCE, LOOK, DUEL = Effort(3, 2e-4), Effort(5, 1e-3), Effort(11, 2e-3)
FINALISTS = 3
LEAST_GAIN = 0.01  # for less than this, a schedule is not worth its file
LEAST_GAIN_OF_A_SHAPE = 0.95
MAKING_SHARE = 0.6  # of the time; the rest is for timing


@dataclasses.dataclass(frozen=True)
class Parameter:
    """A number of a schedule: see HALYARD_PARAMETER in generators/kernels.inc."""
    name: str
    loops: str
    limit: str
    values: tuple


def variant_of(numbers):
    return tuple(sorted(numbers.items()))


def label(variant):
    """"128/16/8"."""
    return "/".join(str(value) for _, value in variant)


def list_changes(from_, to):
    """"elements_per_vector 8, hoist_rows 0"."""
    return ", ".join(f"{name} {value}" for (name, value), (_, before) in zip(to, from_) if value != before)


def distance(a, b):
    log = lambda value: math.log2(max(value, 0.5))  # some may be 0
    return sum(abs(log(x) - log(y)) for (_, x), (_, y) in zip(a, b))


def list_variants(space, from_, loops):
    """Every variant that differs from this one in numbers of these loops, the most alike first."""
    variants = [dict(from_)]
    for parameter in space:
        if parameter.loops == loops:
            variants = [variant | {parameter.name: value} for variant in variants for value in parameter.values]
    fitting = [variant_of(variant) for variant in variants
               if all(p.limit == "none" or variant[p.name] <= variant[p.limit] for p in space)]
    return sorted((variant for variant in fitting if variant != from_), key=lambda variant: distance(variant, from_))


@dataclasses.dataclass(frozen=True)
class Gain:
    """How many times as fast one variant is as another."""
    gain: float = 0.0  # geometric mean over the shapes of the median over the rounds
    noise: float = 0.0  # what such a mean may be off by
    shapes: tuple = ()  # gain of each

    def is_better(self):
        """Better beyond noise, and on no shape more than a little slower."""
        return self.gain > 1.0 + max(self.noise, LEAST_GAIN) and min(self.shapes) > LEAST_GAIN_OF_A_SHAPE


def compare_samples(base, other, control):
    """Compares times that were taken in the same rounds. `control` are further times of `base`: what differs there is
    noise."""
    shapes, log_control, variance = [], 0.0, 0.0
    for of_base, of_other, of_control in zip(base, other, control):
        in_rounds = ratios(of_base, of_other)
        ratio = summarise(in_rounds)
        shapes.append(ratio.median)
        log_control += math.log(statistics.median(ratios(of_base, of_control)))
        # The standard error of a median is half the distance of the quartiles times 1.25 / 0.67, over the root of n.
        # Student's t of 95 % widens it, for 3 rounds and for 11.
        error = 1.86 * ratio.relative_spread / math.sqrt(len(in_rounds))
        variance += ((4.3 if len(in_rounds) <= 3 else 2.2) * error) ** 2
    n = len(shapes)
    gain = math.exp(sum(math.log(shape) if shape else -math.inf for shape in shapes) / n)
    return Gain(gain, max(math.sqrt(variance) / n, abs(math.expm1(log_control / n))), tuple(shapes))


class Search:
    """For the best variant of a kernel. It varies the numbers of the space that the kernel has, one group of loops
    after the other, by successive halving."""

    def __init__(self, space, defaults, workshop):
        self.defaults = self.best = self.candidate = variant_of(defaults)
        self.space = [parameter for parameter in space if parameter.name in defaults]
        self.workshop = workshop
        self.refused, self.n_tried, self.is_complete = [], 0, True

    def refuse(self, variant, why):
        self.refused.append({"variant": list_changes(self.defaults, variant), "why": why})

    def make(self, variants, until):
        """Those that were made and seem right."""
        alive = []
        for variant, fault in zip(variants, self.workshop.make(variants, until)):
            if fault == NOT_TRIED:
                self.is_complete = False
                continue
            self.n_tried += 1
            if fault:
                self.refuse(variant, fault)
            else:
                alive.append(variant)
        return alive

    def keep_fastest(self, variants, n, effort):
        """The fastest n of the variants, each compared with the best so far."""
        base, *samples = self.workshop.measure([self.best, *variants], effort)
        gains = [compare_samples(base, one, base).gain for one in samples]
        order = sorted(range(len(variants)), key=lambda i: -gains[i])
        return [variants[i] for i in order[:n]]

    def halve(self, alive):
        """Successive halving, here by thirds: the faster a variant looks, the more time it is given."""
        for n, effort in (max(FINALISTS, (len(alive) + 2) // 3), GLANCE), (FINALISTS, LOOK):
            if len(alive) > n:
                alive = self.keep_fastest(alive, n, effort)
        proven = []
        for variant in alive:
            fault = self.workshop.prove(variant)
            if fault:
                self.refuse(variant, fault)
            else:
                proven.append(variant)
        return proven

    def fight(self, finalists):
        base, *samples, control = self.workshop.measure([self.best, *finalists, self.best], DUEL)
        gains = [compare_samples(base, one, control) for one in samples]
        most, winner = max(zip(gains, finalists), key=lambda one: (one[0].is_better(), one[0].gain))
        if most.is_better():
            self.best = self.candidate = winner
        elif self.candidate == self.defaults:
            self.candidate = winner  # to show by how much it does not win

    def vary(self, loops, later, until):
        """Tries all numbers of some loops; `later` are the loops that come after them."""
        variants = list_variants(self.space, self.best, loops)
        n_later = sum(len(list_variants(self.space, self.best, other)) for other in later)
        share = MAKING_SHARE * len(variants) / max(len(variants) + n_later, 1)
        now = self.workshop.now()
        finalists = self.halve(self.make(variants, now + share * (until - now) if until < math.inf else until))
        if finalists:
            self.fight(finalists)

    def result(self):
        """What a schedule file holds, and `improved`. The fastest of many was also lucky, so it is compared with the
        default once more."""
        result = {"gain": 1.0, "noise": 0.0, "shapes": [], "improved": False}
        if self.candidate != self.defaults:
            base, other, control = self.workshop.measure([self.defaults, self.candidate, self.defaults], DUEL)
            found = compare_samples(base, other, control)
            result = {"gain": found.gain, "noise": found.noise,
                      "improved": self.best != self.defaults and found.is_better(),
                      "shapes": [describe_shape(*one) for one in zip(self.workshop.shapes, base, other, found.shapes)]}
        return result | {"default": dict(self.defaults), "parameters": dict(self.candidate), "variants": {
            "tried": self.n_tried, "refused": self.refused, "complete": self.is_complete}}


def describe_shape(name, base, other, gain):
    timings = {key: summarise(seconds) for key, seconds in (("default", base), ("tuned", other))}
    return {"name": name, "gain": gain,
            **{key: {"median": timing.median, "spread": timing.spread} for key, timing in timings.items()}}


def tune_kernel(space, defaults, workshop, until):
    search = Search(space, defaults, workshop)
    if why := workshop.make([search.defaults], math.inf)[0]:
        raise Failed(f"the default schedule can't be taken: {why}")
    loops = list(dict.fromkeys(parameter.loops for parameter in search.space))
    for i, some in enumerate(loops):
        search.vary(some, loops[i + 1:], until)
    return search.result()


def read_journal(run):
    """The seconds that an interrupted run has taken, and its results by kernel."""
    try:
        found = load_json(run.journal)
        if found["key"] == run.key:
            return found["seconds"], found["kernels"]
    except (Failed, KeyError, TypeError):
        pass  # there is none, or it is no journal of ours, so the run begins anew
    return 0.0, {}


def tune_kernels(run):
    """Tunes all kernels of a run, one after the other. Returns the results by kernel, with those of kernels that had been
    finished before. A run has
        kernels, space        the defaults of each, and the Parameters
        seconds               for all of them, with those that an interrupted run has finished
        journal, key          a file that says what is finished, and what a run that goes on must have in common with the
                              one that was interrupted; the file is removed in the end
        open(kernel)          makes a workshop, which is closed by its close()
        finish(kernel, result)    what is done with each that is finished here
        now()                 seconds
    """
    seconds, done = read_journal(run)
    start = run.now() - seconds
    left = [kernel for kernel in run.kernels if kernel not in done]
    for i, kernel in enumerate(left):
        share = (start + run.seconds - run.now()) / (len(left) - i)
        if share <= 0.0:
            continue
        with contextlib.closing(run.open(kernel)) as workshop:
            result = tune_kernel(run.space, run.kernels[kernel], workshop, run.now() + share)
        run.finish(kernel, result)
        done[kernel] = result
        save_json(run.journal, {"key": run.key, "seconds": run.now() - start, "kernels": done})
    run.journal.unlink(missing_ok=True)
    return done


def format_results(results):
    """What was before and what is now, for readers."""
    lines = []
    for kernel, result in sorted(results.items()):
        before, after, variants = variant_of(result["default"]), variant_of(result["parameters"]), result["variants"]
        verdict = "stays"
        if before != after:
            words = "-> {}, {}" if result["improved"] else "stays; {} is {}"
            verdict = words.format(list_changes(before, after),
                                   f"{result['gain']:.3f} +- {result['noise']:.3f} times as fast")
        lines.append(f"{kernel}: {label(before)} {verdict} ({variants['tried']} variants tried, "
                     f"{len(variants['refused'])} refused{'' if variants['complete'] else ', out of time'})")
        for shape in result["shapes"]:
            us = [f"{1e6 * shape[which]['median']:10.3f} +- {1e6 * shape[which]['spread']:6.3f}"
                  for which in ("default", "tuned")]
            lines.append(f"    {shape['name']:<48} {us[0]} -> {us[1]} us {shape['gain']:7.3f}")
        lines += [f"    refused {refusal['variant']}: {refusal['why'][:300]}" for refusal in variants["refused"]]
    return "\n".join(lines)
