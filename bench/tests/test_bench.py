"""Tests of the bench. They cover the check of results before calls are timed, rows, and comparisons with another
build, another run and floors.

    test_bench.py BUILD_FOLDER [NAMES]
"""

import contextlib
import io
import itertools
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(BENCH))
import compare  # noqa: E402
import measure  # noqa: E402
import rounds  # noqa: E402
import tables  # noqa: E402
from files import Failed, load_json, save_json  # noqa: E402
from native import Library  # noqa: E402
from prepared import Prepared  # noqa: E402
from cases import KvCase, Model, RotationCase, ShiftCase, list_cases, list_kv_cases, read_models  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else BENCH.parent / "build/host").resolve()
LITTLE_EFFORT = rounds.Effort(3, 1e-6)
SMALL = Model("small", 2, 1, 16, 16)


class Rounds(unittest.TestCase):
    def test_statistics(self):
        self.assertEqual(rounds.Subject("", None, [5.0, 1.0, 2.0, 4.0, 3.0]).timing(), (3.0, 1.0, 1.0))
        self.assertEqual(rounds.interval_of_median(range(41)), (9, 20, 31))

    def test_each_subject_is_timed_in_every_round_in_an_order_that_changes(self):
        asked = []
        seconds = lambda name, one: lambda n: asked.append((name, n)) or n * one
        subjects = [rounds.Subject(name, seconds(name, one)) for name, one in
                    (("a", 1e-6), ("b", 2e-6), ("slow", 1.0))]
        rounds.measure(subjects, rounds.Effort(7, 1e-3))
        self.assertEqual([len(subject.seconds) for subject in subjects], [7, 7, 3])
        self.assertAlmostEqual(subjects[1].timing().median, 2e-6)
        in_rounds = [name for name, n in asked if n == 1024][-14:] + [name for name, n in asked if n == 512][-7:]
        self.assertEqual(in_rounds.count("a"), 10)  # 3 of these calls found n_calls
        self.assertGreater(len(set(zip(in_rounds, in_rounds[1:]))), 2)


class Cases(unittest.TestCase):
    def test_every_case_has_a_name_of_its_own_and_filters_select_by_it(self):
        models = read_models()
        names = [case.name for case in list_cases(models) + list_kv_cases()]
        self.assertEqual(len(set(names)), len(names))
        self.assertLessEqual({"half_f32_in_place/llama-3-8b/64/cold", "half_bf16_in_place/llama-3-8b/512/hot/phase",
                              "llama-3-8b-kv/64/q8_0-hadamard", "shift/32x8x128x8192/q8_0"}, set(names))
        self.assertEqual(len(list_cases(models, pattern="half_f32*/llama-3-8b/*/hot")), 8)
        self.assertLess(len(list_cases(models, quick=True)), len(names) / 5)


class Rows(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.library = Library(BUILD / "lib/libhalyard.so")
        cls.setting = measure.Setting(cls.library, LITTLE_EFFORT)

    def measure(self, case):
        row = measure.measure_row(case, self.setting)
        for one in [row, *row["rivals"]]:
            self.assertFalse(one["wrong"], one)
            self.assertGreater(one["median_seconds"], 0.0)
        return row, {rival["kind"] for rival in row["rivals"]}

    def test_rotations(self):
        models = [SMALL, Model("m", 2, 1, 20, 8, "interleaved", "interleaved"),
                  SMALL._replace(out_pairing="interleaved"), SMALL._replace(pairing="interleaved")]
        for dtype, in_place, model in itertools.product(("f32", "f16", "bf16"), (False, True), models):
            if in_place and model.pairing != model.out_pairing:
                continue
            with self.subTest(dtype=dtype, in_place=in_place, model=model):
                row, kinds = self.measure(RotationCase(model, 70, dtype, in_place))
                self.assertLess(max(one["max_error"] for one in [row, *row["rivals"]]), 0.01)
                self.assertLessEqual({"reference", "loop"}, kinds)
                self.assertEqual("conversion" in row, dtype != "f32")
                self.assertEqual(row["ratio"], row[row["judged_by"]]["ratio"])

    def test_other_rotations(self):
        for case, kind in ((RotationCase(SMALL, 1, "bf16", two_tensors=True), "bound"),
                           (RotationCase(SMALL, 5, "f16", angles="phase"), "loop")):
            with self.subTest(case.name):
                row, kinds = self.measure(case)
                self.assertIn(kind, kinds)
                self.assertIn(row["name"], tables.format_rows([row]))

    def test_the_KV_path_and_shifts(self):
        cases = [KvCase(case.model, 5 if case.tokens > 1 else 1, case.cache) for case in list_kv_cases(True)[:-4]]
        cases += [ShiftCase(2, 3, 32, 64, cache) for cache in ("bf16", "e4m3", "q8_0", "q8_0-hadamard")]
        for case in cases:
            with self.subTest(case.name):
                row, kinds = self.measure(case)
                self.assertEqual("unbound" in kinds, isinstance(case, KvCase) and case.tokens == 1)
                self.assertIn(row["name"], tables.format_rows([row]))

    def test_a_wrong_result_exceeds_the_tolerance(self):
        for case, what in (RotationCase(SMALL, 3, "bf16", False), "y"), (KvCase("qwen3-8b", 3, "q8_0"), "y"):
            with Prepared(case.described()) as prepared:
                call = prepared.call("bound", self.library)
                prepared.set_expected(call)
                self.assertEqual(prepared.error_of(call), 0)
                memory = prepared.memory(what, 64)
                memory[1] ^= 0x41
                self.assertGreater(prepared.difference(), case.tolerance)
                prepared.reset()
                self.assertEqual(prepared.difference(), math.inf)  # the poison

    def test_what_cannot_be_done_raises_Failed_with_the_reason(self):
        for path, words in ("/no/such/file.so", "no/such"), (BUILD / "lib/libhalyard_bench.so", "other headers"):
            with self.assertRaisesRegex(Failed, words):
                Library(path)
        with Prepared(RotationCase(SMALL, 3, "bf16").described()) as prepared:
            self.assertIsNone(prepared.call("no such call", self.library))
            with self.assertRaisesRegex(Failed, "no_such_target"):
                prepared.call("run", self.library, "no_such_target")

    def test_another_build_differs_only_if_three_measurements_agree(self):
        def compared(*medians):
            fake = iter(medians)
            found = lambda case, *_: [(None, measure.Difference(case.name, "run", m - 0.01, m, m + 0.01))
                                      for m in [next(fake)]]
            with mock.patch.object(measure, "compare_builds", found):
                return len(measure.find_differences([RotationCase(SMALL, 3, "bf16")], self.setting, self.library)[1])
        self.assertEqual([compared(*medians) for medians in (
            (1.05, 1.05, 1.05), (0.95, 0.95, 0.95), (1.005,), (1.05, 1.0), (1.05, 1.05, 0.95))], [1, 1, 0, 0, 0])
        found = measure.compare_builds(RotationCase(SMALL, 1, "bf16"), self.setting, self.library)
        self.assertEqual([difference.contender for _, difference in found], ["run", "bound"])


def make_run(spread=0.01, **ratios):
    """A run of rows with these names and ratios. All times have the same relative spread."""
    timing = lambda seconds: rounds.Timing(seconds, spread * seconds, seconds).json()
    return {"machine": {"family": "some CPU", "cpu": "c", "commit": "k", "date": "d"}, "command": "",
            "rows": [{"name": name, "target": "x86_avx2", **timing(1.0 / ratio), "cold": name == "cold",
                      "bytes": 1e9 if name == "large" else 1e3, "memory": {**timing(1.0), "ratio": ratio}}
                     for name, ratio in ratios.items()]}


class Compare(unittest.TestCase):
    def compare(self, before, after):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            return compare.compare(before, after), printed.getvalue()

    def test_what_fell_beyond_noise_is_reported_by_ratio_alone(self):
        before, after = make_run(a=0.8, b=0.8, c=0.8, gone=0.5), make_run(a=0.7, b=0.77, c=0.95, new=0.5)
        for _ in range(2):
            n_slower, printed = self.compare(before, after)
            self.assertEqual(n_slower, 1)
            self.assertIn("slower: a x86_avx2", printed)
            self.assertIn("3 rows compared: 1 slower, 1 faster beyond noise; 2 are in one run only", printed)
            for row in after["rows"]:  # a machine of half the speed has the same ratios
                row["median_seconds"] *= 2
                row["spread_seconds"] *= 2
        self.assertEqual(self.compare(before, make_run(0.1, a=0.7))[0], 0)  # within the noise of 10 %
        for no_run in ([], {"rows": [{"name": "a", "target": "t", "memory": {}}]}):
            with self.assertRaisesRegex(ValueError, "--json"):
                compare.compare(before, no_run)

    def test_floors_are_recorded_with_their_noise_and_checked(self):
        runs = [make_run(a=0.8, b=0.7, cold=0.5, large=0.5), make_run(a=0.9, b=0.7), make_run(a=1.0, b=0.7)]
        recorded = compare.record_floors({}, runs)
        self.assertEqual(recorded["some CPU"]["x86_avx2"]["rows"], {"a": [0.9, 0.111], "b": [0.7, 0.0]})
        n_checked, below = compare.check_floors(recorded, make_run(a=0.61, b=0.59, other=0.1))
        self.assertEqual((n_checked, list(below)), (2, ["b"]))
        self.assertRegex(below["b"], "0.590.*0.700.*0.595")
        elsewhere = make_run(a=0.01)
        elsewhere["machine"]["family"] = "another CPU"
        self.assertEqual(compare.check_floors(recorded, elsewhere), (0, {}))


class Program(unittest.TestCase):
    NAME = "half_f32_in_place/llama-3-8b/1/hot"
    ROW = ["--quick", "--filter", NAME]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="with a space ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, *arguments):
        return subprocess.run([sys.executable, "-EsB", BENCH / "bench.py", *arguments, "--build", BUILD],
                              capture_output=True, text=True)

    def test_a_row_is_written_compared_and_held_to_its_floor(self):
        run, floors_path = self.folder / "run.json", self.folder / "floors.json"
        self.assertEqual(self.bench(*self.ROW, "--json", run).returncode, 0)
        record = load_json(run)
        self.assertEqual([row["name"] for row in record["rows"]], [self.NAME])
        self.assertTrue(all(record["machine"][key] for key in
                            ("cpu", "caches", "governor", "compiler", "loops", "halide", "commit", "date")))
        self.assertTrue(record["command"].startswith(f"./run bench --quick --filter {self.NAME}"))
        self.assertEqual(self.bench("compare", run, run).returncode, 0)

        with_floors = [*self.ROW, "--floors", floors_path]
        save_json(floors_path, {})
        done = self.bench(*with_floors, "--check-floors")
        self.assertEqual(done.returncode, 0)
        self.assertIn("no baseline: nothing to compare with", done.stdout)
        self.assertEqual(self.bench(*with_floors, "--write-floors").returncode, 0)
        floors = load_json(floors_path)
        recorded = floors[record["machine"]["family"]][record["rows"][0]["target"]]["rows"]
        for floor, status in (1e-3, 0), (1e3, 1):
            recorded[self.NAME] = [floor, 0.01]
            save_json(floors_path, floors)
            done = self.bench(*with_floors, "--check-floors")
            self.assertEqual(done.returncode, status)
            self.assertIn("1 of 1 ratios have a floor", done.stdout)
            self.assertEqual(f"below its floor: {self.NAME}" in done.stdout, status == 1)

    def test_the_KV_path_is_written(self):
        path = self.folder / "kv.json"
        self.assertEqual(self.bench("road", "--quick", "--filter", "llama-3-8b/1/????", "--json", path).returncode, 0)
        self.assertEqual([row["name"] for row in json.loads(path.read_text())["rows"]],
                         [f"llama-3-8b/1/{kind}" for kind in ("bf16", "e4m3", "q8_0")])

    def test_another_build_is_in_the_same_rounds(self):
        done = self.bench(*self.ROW, "--against", BUILD / "lib/libhalyard.so")
        self.assertIn("times differ beyond noise", done.stdout)
        done = self.bench(*self.ROW, "--against", BUILD / "lib/libhalyard_bench.so")
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, "^bench: .* was built from other headers than this bench: it has no .*\n$")

    def test_what_it_cannot_do_is_one_line(self):
        for arguments in (["--filter", "nothing*", "--json", self.folder / "new.json"],
                          [*self.ROW, "--target", "no_such_target"], [*self.ROW, "--json", "/no/such/folder/file"],
                          ["compare", "/no/such/file", "/no/such/file"],
                          ["road", "--filter", "nothing*"]):
            done = self.bench(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
            self.assertRegex(done.stderr, r"^bench: .*\n$")
        for arguments in ["--no-such-flag"], ["compare", "a"]:
            self.assertEqual(self.bench(*arguments).returncode, 2)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
