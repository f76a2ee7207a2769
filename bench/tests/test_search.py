"""Tests of the tuner's search, on made-up costs with noise, and that an interrupted run ends with the same result."""

import math
import pathlib
import random
import sys
import tempfile
import types
import unittest

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH / "tune"), str(BENCH)]
from files import Failed  # noqa: E402
from search import (  # noqa: E402
    NOT_TRIED, Parameter, format_results, label, list_variants, tune_kernel, tune_kernels, variant_of)

SPACE = [Parameter("step", "known", "none", (4, 8, 16, 32, 64, 128)),
         Parameter("vector", "known", "step", (4, 8, 16, 32)), Parameter("any", "any", "none", (4, 8, 16, 32))]
DEFAULTS = {"step": 128, "vector": 8, "any": 16}
OPTIMUM = {"step": 32, "vector": 16, "any": 8}


def default_but(**numbers):
    return variant_of(DEFAULTS | numbers)


class FakeWorkshop:
    """Costs grow with the distance from the best variant. Each time is off by some percent, now and then by far more.
    The clock, a list of one number, goes on as if variants were really made and timed."""

    shapes = ("a", "b", "c")

    def __init__(self, clock, seed=1, best=OPTIMUM, slope=0.1, noise=0.02):
        self.clock, self.best, self.slope, self.noise, self.random = clock, best, slope, noise, random.Random(seed)
        self.bad = self.treacherous = ()  # wrong, but faster than all others; the latter only prove() notices
        self.uneven = None  # half as fast on the last shape, and faster on the others
        self.makes_left = None  # [how often make() works before the user interrupts it]
        self.measured = set()

    def cost(self, variant, shape):
        if variant in self.bad or variant in self.treacherous:
            return 0.1
        if variant == self.uneven:
            return 2.0 if shape == "c" else 0.3
        return 1.0 + self.slope * sum(abs(math.log2(value / self.best[name])) for name, value in variant)

    def make(self, variants, until):
        if self.makes_left is not None:
            self.makes_left[0] -= 1
            if self.makes_left[0] == -1:
                self.clock[0] += 0.3
                raise KeyboardInterrupt
        faults = []
        for variant in variants:
            has_time = self.clock[0] < until
            self.clock[0] += 0.5 * has_time
            faults.append(NOT_TRIED if not has_time else "is wrong" if variant in self.bad else "")
        return faults

    def prove(self, variant):
        return "is wrong" if variant in self.treacherous else ""

    def time(self, variant, shape, effort):
        self.clock[0] += effort.seconds_each
        outlier = 1.5 if self.random.random() < 0.05 else 1.0
        return 1e-6 * self.cost(variant, shape) * (1.0 + self.noise * abs(self.random.gauss(0, 1))) * outlier

    def measure(self, variants, effort):
        self.measured.update(variants)
        return [[[self.time(variant, shape, effort) for _ in range(effort.n_rounds)] for shape in self.shapes]
                for variant in variants]

    def now(self):
        return self.clock[0]

    def close(self):
        pass


def tune(workshop):
    return tune_kernel(SPACE, DEFAULTS, workshop, math.inf)


class Search(unittest.TestCase):
    def test_variants_keep_to_the_limits_and_the_nearest_come_first(self):
        known = list_variants(SPACE, variant_of(DEFAULTS), "known")
        self.assertEqual(len(known), 1 + 2 + 3 + 4 + 4 + 4 - 1)
        self.assertEqual(len(list_variants(SPACE, variant_of(DEFAULTS), "any")), 3)
        self.assertEqual(len(set(known)), len(known))
        self.assertNotIn(variant_of(DEFAULTS), known)
        for variant in map(dict, known):
            self.assertLessEqual(variant["vector"], variant["step"])
            self.assertEqual(variant["any"], 16)
        self.assertEqual(label(known[0]), "16/64/8")

    def test_the_search_finds_the_best_variant_in_noise(self):
        for seed in range(1, 11):
            result = tune(FakeWorkshop([0.0], seed))
            self.assertTrue(result["improved"], seed)
            self.assertEqual(result["parameters"], OPTIMUM, seed)
            self.assertGreater(result["gain"], 1.3)
            self.assertEqual(result["variants"], {"tried": 17 + 3, "refused": [], "complete": True})

    def test_the_default_stays_where_nothing_is_better_beyond_noise(self):
        results = [tune(FakeWorkshop([0.0], seed, slope=0.0, noise=0.05)) for seed in range(1, 41)]
        self.assertLessEqual(sum(result["improved"] for result in results), 2)
        self.assertFalse(tune(FakeWorkshop([0.0], best=DEFAULTS))["improved"])

    def test_a_wrong_variant_is_named_never_timed_where_that_shows_at_once_and_never_chosen(self):
        workshop = FakeWorkshop([0.0])
        workshop.bad, workshop.treacherous = [default_but(step=64)], [default_but(step=16)]
        result = tune(workshop)
        self.assertEqual(result["parameters"], OPTIMUM)
        self.assertNotIn(workshop.bad[0], workshop.measured)
        self.assertEqual(result["variants"]["refused"], [{"variant": "step 64", "why": "is wrong"},
                                                         {"variant": "step 16", "why": "is wrong"}])
        workshop.bad = [default_but()]
        with self.assertRaisesRegex(Failed, "^the default schedule can't be taken: is wrong$"):
            tune(workshop)

    def test_what_is_much_slower_on_one_shape_does_not_win_by_the_others(self):
        workshop = FakeWorkshop([0.0], best=DEFAULTS)
        workshop.uneven = default_but(step=64)
        result = tune(workshop)
        self.assertEqual(result["parameters"], dict(workshop.uneven))
        self.assertGreater(result["gain"], 1.2)
        self.assertFalse(result["improved"])
        self.assertIn("k: 16/128/8 stays; step 64 is 1.", format_results({"k": result}))


class Interrupted(unittest.TestCase):
    def run_with(self, folder, n_makes, seconds):
        clock, finished, makes_left = [1000.0], {}, [n_makes]

        def open_workshop(kernel):
            workshop = FakeWorkshop(clock, kernel)
            workshop.makes_left = makes_left
            return workshop

        run = types.SimpleNamespace(kernels={kernel: DEFAULTS for kernel in "abcd"}, space=SPACE, seconds=seconds,
                  journal=folder / "journal.json", key="key", open=open_workshop, now=lambda: clock[0],
                  finish=finished.__setitem__)
        while True:
            try:
                results = tune_kernels(run)
                self.assertEqual(results, finished)
                return results
            except KeyboardInterrupt:
                makes_left[0] = 1000
                clock[0] += 500.0

    def test_a_run_goes_on_to_the_same_end_as_another(self):
        for seconds in math.inf, 30.0:
            with tempfile.TemporaryDirectory() as folder:
                folder = pathlib.Path(folder)
                whole = self.run_with(folder, 1000, seconds)
                self.assertEqual(len(whole), 4)
                self.assertEqual(whole["a"]["variants"]["complete"], seconds == math.inf)
                self.assertEqual(list(folder.iterdir()), [])
                for n_makes in range(12):
                    self.assertEqual(self.run_with(folder, n_makes, seconds), whole)
                for no_journal in ('{"key": "key", "seco', '{"key": "another", "seconds": 1, "kernels": {"a": 1}}'):
                    (folder / "journal.json").write_text(no_journal)
                    self.assertEqual(self.run_with(folder, 1000, seconds), whole)


if __name__ == "__main__":
    unittest.main()
