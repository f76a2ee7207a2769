"""Tests of the bench's driver, without a server: how turns are taken, what is listed, and what is made of the times."""

import contextlib
import copy
import io
import math
import pathlib
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
BENCH = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(BENCH), str(BENCH / "cuda")]
import compare  # noqa: E402
import cuda_rounds  # noqa: E402
import files  # noqa: E402
import measure  # noqa: E402
import roads  # noqa: E402
import tables  # noqa: E402
import turns  # noqa: E402
from works import Model, Work, list_works, read_models  # noqa: E402


class Host:
    """Calls that take a known time. `rounds` is what was asked for at once."""

    def __init__(self, **seconds):
        self.seconds, self.rounds, self.n_interruptions = seconds, [], 0

    def round(self, calls):
        self.rounds.append(list(calls))
        return [self.time(key, n) for key, n in calls]

    def time(self, key, n):
        if self.n_interruptions > 0:
            self.n_interruptions -= 1
            return 1.0
        return None if self.seconds[key] is None else self.seconds[key] * n

    def subjects(self):
        return [turns.Subject(key, self, key) for key in self.seconds]


class Turns(unittest.TestCase):
    def test_statistics(self):
        self.assertEqual(turns.summarise([5.0, 1.0, 2.0, 4.0, 3.0]), (3.0, 1.0, 1.0))
        self.assertEqual(turns.summarise([2.0]), (2.0, 0.0, 2.0))
        self.assertEqual(turns.summarise([]), (0.0, 0.0, 0.0))

    def test_an_interruption_does_not_make_few_calls_look_enough(self):
        for n_interruptions in range(3):
            host = Host(short=1e-6)
            host.n_interruptions = n_interruptions
            subject, = host.subjects()
            turns.measure([subject], turns.Effort(5, 1e-3))
            self.assertEqual(len(subject.seconds), 5)
            self.assertAlmostEqual(subject.timing().median, 1e-6)
            self.assertGreaterEqual(host.rounds[-1][-1][1], 1000)

    def test_one_request_is_a_round(self):
        host = Host(a=1e-6, b=2e-6, slow=1.0)
        subjects = host.subjects()
        turns.measure(subjects, turns.Effort(7, 1e-3))
        self.assertEqual([len(subject.seconds) for subject in subjects], [7, 7, 3])
        orders = [tuple(key for key, _ in calls) for calls in host.rounds[-7:]]
        self.assertGreater(len(set(orders[3:])), 1)  # who comes first changes
        for calls in host.rounds[-7:]:  # each warms up for a quarter
            of_a = [n for key, n in calls if key == "a"]
            self.assertEqual(of_a, [of_a[1] // 4, of_a[1]])

    def test_what_can_be_called_no_more_drops_out(self):
        here, there = Host(a=1e-6), Host(b=1e-6, never=None)
        subjects = here.subjects() + there.subjects()
        there.time = lambda key, n, once=there.time: once(key, n) if len(there.rounds) < 30 else None
        turns.measure(subjects, turns.Effort(99, 1e-3))
        self.assertEqual([len(subject.seconds) for subject in subjects], [99, 0, 0])

    def test_calls_of_functions(self):
        counts, calls = [0], turns.Calls()
        subject = turns.Subject("one more", calls, lambda: counts.__setitem__(0, counts[0] + 1), n_calls=8)
        turns.take_turns([subject], 3)
        self.assertEqual(counts[0], 3 * (2 + 8))
        self.assertTrue(all(seconds > 0 for seconds in subject.seconds))


class Works(unittest.TestCase):
    def setUp(self):
        self.models = read_models(io.StringIO((BENCH / "shapes.txt").read_text()))

    def test_shapes_are_read_or_refused_with_the_line(self):
        text = "# a comment\n\nphi 32 4 80 32 half some/phi, and more\nback 1 0 8 8 interleaved_to_half x\n"
        self.assertEqual(read_models(io.StringIO(text)), [
            Model("phi", 32, 4, 80, 32), Model("back", 1, 0, 8, 8, "interleaved", "half")])
        for bad in ("phi 32 4 80 32 half", "phi 32 4 80 32 quarter x", "phi 32 4 80 82 half x", "phi 32 4 80 31 half x",
                    "phi 0 4 80 32 half x", "phi 32 -1 80 32 half x", "phi 32 4 eighty 32 half x",
                    "phi 32 4 99999999 32 half x"):
            with self.assertRaisesRegex(ValueError, "line 2 "):
                read_models(io.StringIO(f"# first\n{bad}\n"))
        with self.assertRaisesRegex(ValueError, "second time"):
            read_models(io.StringIO("a 1 1 8 8 half x\na 2 1 8 8 half x\n"))

    def test_every_work_has_a_name_of_its_own_and_filters_select_by_it(self):
        all_works = list_works(self.models)
        names = {work.name for work in all_works}
        self.assertEqual(len(names), len(all_works))
        self.assertLessEqual({"half_f32_in_place/llama-3-8b/64/cold", "half_bf16_in_place/llama-3-8b/512/hot/phase",
                              "interleaved_to_half_bf16/llama-3-8b-from-meta/4096/hot"}, names)
        self.assertNotIn("interleaved_to_half_bf16_in_place/llama-3-8b-from-meta/64/hot", names)
        some = list_works(self.models, pattern="half_f32*/llama-3-8b/*/hot")
        self.assertEqual(len(some), 8)
        self.assertEqual({(work.dtype, work.model.name, work.cold, work.angles) for work in some},
                         {("f32", "llama-3-8b", False, "table")})
        self.assertEqual(list_works(self.models, pattern="no such thing"), [])

    def test_quick_works_are_few_and_ask_what_matters(self):
        names = {work.name for work in list_works(self.models)}
        quick = list_works(self.models, quick=True)
        self.assertLess(len(quick), len(names) / 5)
        self.assertLessEqual({work.name for work in quick}, names)
        for name in ("half_f32_in_place/llama-3-8b-one-head/1/hot", "half_f16_in_place/llama-3-8b/1/hot/q-and-k",
                     "half_bf16_in_place/llama-3-8b-k/64/hot/cold-table", "half_f16_in_place/llama-3-8b/4096/hot",
                     "interleaved_f16_in_place/llama-3-8b-meta/1/hot"):
            self.assertEqual(len(list_works(self.models, True, name)), 1, name)
        threaded = list_works(self.models, True, n_threads=(1, 2))
        self.assertEqual(len(threaded), 2 * len(quick))
        self.assertTrue(threaded[-1].name.endswith("/2-threads"))

    def test_bytes_are_those_that_a_work_has_to_touch(self):
        model = Model("phi-2", 2, 2, 80, 32)
        self.assertEqual(Work(model, 10, "bf16").n_bytes, 2 * 10 * 4 * 32 * 2)
        self.assertEqual(Work(model, 10, "bf16", in_place=False).n_bytes, 2 * 10 * 4 * 80 * 2)


def subject(name, kind, seconds, **about):
    return turns.Subject(name, None, None, [seconds] * 3,
                         {"kind": kind, "max_error": 1e-8, "wrong": False, **about})


class Rows(unittest.TestCase):
    work = Work(Model("m", 2, 1, 16, 16), 3, "bf16")

    def row(self, own, *others):
        return measure.make_row(self.work, "x86_avx2", [subject("halyard", "halyard", own), *others])

    def test_the_best_loop_of_each_kind_counts_and_the_slower_kind_is_the_ceiling(self):
        def row(own, conversion):
            return self.row(own, subject("memcpy", "memory", 2.0), subject("copy_256", "memory", 1.0),
                            subject("copy_256", "memory", 5.0), subject("convert", "conversion", conversion))
        self.assertEqual(row(4.0, 3.0)["memory"]["name"], "copy_256")
        self.assertEqual(row(4.0, 3.0)["ceiling_loops"], {"memcpy": 2.0, "copy_256": 1.0, "convert": 3.0})
        for own, conversion, ratio, judge in ((4.0, 3.0, 0.75, "conversion"), (4.0, 3.5, 0.875, "conversion"),
                                              (4.0, 0.5, 0.25, "memory"), (8.0, 0.5, 0.125, "memory")):
            self.assertEqual((row(own, conversion)["ratio"], row(own, conversion)["judged_by"]), (ratio, judge))
        without = self.row(4.0, subject("memcpy", "memory", 1.0))
        self.assertEqual(without["judged_by"], "memory")
        self.assertNotIn("conversion", without)

    def test_a_faster_rival_counts_only_where_it_is_right_and_does_the_same(self):
        memory = subject("memcpy", "memory", 0.5)
        for rival, lost in ((subject("gcc 12", "loop", 0.5), True), (subject("gcc 12", "loop", 0.5, wrong=True), False),
                            (subject("gcc 12", "loop", 2.0), False), (subject("bound", "bound", 0.5), False),
                            (subject("lib", "peer", 0.5, form="", overhead_seconds=0.0), True)):
            self.assertEqual(measure.loses(self.row(1.0, memory, rival)), lost)

    def test_tables(self):
        memory = subject("memcpy", "memory", 0.5)
        peer = subject("lib", "peer", 3.0, form="f", overhead_seconds=1.0)
        first = self.row(1.0, memory, subject("gcc 12.2", "loop", 0.5), subject("bound", "bound", 0.75),
                         subject("kernels", "kernels", 0.5), peer)
        second = self.row(1.0, memory, subject("phase", "angles", 2.0, wrong=True))
        text = tables.format_rows([second, first])
        for words in ("x gcc loop", "x bound", "ns over kernels", "x phase", "250000000.0",
                      "3.00 lib (2.00 without its call)", "Slower than a C loop or a peer (1 of 2):",
                      "(phase is wrong: error 1.0e-08)"):
            self.assertIn(words, text)
        self.assertLess(text.index("0.50"), text.index("The others:"))
        self.assertNotIn("noisy", text)
        accuracy = tables.format_accuracy([{"name": "a", "max_error": {"half": None, "interleaved": 1e-7}}])
        self.assertIn("not a number      1.0e-07", accuracy)


class Roads(unittest.TestCase):
    def row(self, *ways):
        made = [{"name": name, "kind": kind, "form": "", "max_error": 0.0, "wrong": wrong,
                 **turns.Timing(s, 0, s).json()} for name, kind, s, wrong in (("", "fused", 1.0, False), *ways)]
        return {"name": "road", "ways": made, "loses": roads.loses(roads.as_row(made))}

    def test_a_faster_rival_counts_only_where_it_is_right(self):
        for way, lost, wrong in (
                (("", "separate", 0.5, False), False, False), (("gcc", "loop", 0.5, False), True, False),
                (("gcc", "loop", 0.5, True), False, False), (("", "separate", 0.5, True), False, True)):
            row = self.row(way)
            self.assertEqual((row["loses"], roads.is_wrong(row)), (lost, wrong))
            self.assertEqual("is wrong" in roads.format_roads([row]), way[3])

    def test_names(self):
        names = [roads.name_of(work) for work in roads.list_works(False, "*")]
        self.assertEqual(len(names), 5 * 6 + 2 * (3 * 3 + 1) + 4)
        self.assertLessEqual({"llama-3-8b/512/e4m3", "deepseek-v3/1/bf16", "llama-3-8b-kv/64/q8_0-hadamard",
                              "llama-3-8b/512/bf16-pages", "shift/32x8x128x8192/q8_0"}, set(names))
        self.assertEqual(len(roads.list_works(True, "llama-3-8b/*")), 10)


def make_run(spread=0.01, **ratios):
    """A run of rows with these names and ratios. All times have the same relative spread."""
    timing = lambda seconds: turns.Timing(seconds, spread * seconds, seconds).json()
    return {"machine": {"family": "some CPU", "cpu": "c", "commit": "k", "date": "d"}, "command": "",
            "rows": [{"name": name, "target": "x86_avx2", **timing(1.0 / ratio), "cold": name == "cold",
                      "bytes": 1e9 if name == "large" else 1e3, "memory": {**timing(1.0), "ratio": ratio}}
                     for name, ratio in ratios.items()]}


class Cuda(unittest.TestCase):
    def test_what_was_asked_without_Python_there_makes_the_same_table(self):
        case = next(cuda_rounds.list_cases(True))
        answers = []
        for request in cuda_rounds.list_requests([case], 3):
            answers.append({"describe": {"device": "a device", "compiler": "c", "halide": "h"},
                            "prepare": {"bytes": 2000, "subjects": []},
                            "round": {"seconds": [1e-6 * (key + 1) * n for key, n in request.get("calls", ())]}
                            }[request["do"]])
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            cuda_rounds.print_answers(iter(answers), [case], 3)
        self.assertIn("a device", said.getvalue())
        row = "in place bf16 half table 1 1.00 2.00 3.00 2.00 4.00 5.00 6.00 1.25 2 7.00 8.00 0 %"
        self.assertEqual(said.getvalue().split("\n")[-2].split(), row.split())


class Compare(unittest.TestCase):
    def test_what_fell_beyond_noise_is_reported_by_ratio_alone(self):
        before, after = make_run(a=0.8, b=0.8, c=0.8, gone=0.5), make_run(a=0.7, b=0.77, c=0.95, new=0.5)
        result = compare.compare(before, after)
        self.assertEqual((len(result.slower), *result[:3]), (1, 3, 1, 2))
        self.assertIn("a x86_avx2", result.slower[0])
        self.assertEqual(compare.compare(before, before).slower, [])
        self.assertEqual(compare.compare(before, make_run(0.1, a=0.7)).slower, [])  # within the noise of 10 %
        for row in after["rows"]:  # a machine of half the speed has the same ratios
            row["median_seconds"] *= 2
            row["spread_seconds"] *= 2
        self.assertEqual(len(compare.compare(before, after).slower), 1)
        for no_run in ([], {"rows": [{"name": "a", "target": "t"}]}):
            with self.assertRaisesRegex(ValueError, "--json"):
                compare.compare(before, no_run)

    def test_floors_are_recorded_for_a_CPU_and_checked_with_a_margin(self):
        recorded = compare.record_floors({}, [make_run(a=0.8, b=0.5, old=0.9)])
        self.assertEqual(len(recorded["some CPU"]["x86_avx2"]["rows"]), 3)
        runs = [make_run(a=0.8, b=0.7, cold=0.5, large=0.5), make_run(a=0.9, b=0.5)]
        recorded = compare.record_floors(recorded, runs)
        self.assertEqual(recorded["some CPU"]["x86_avx2"]["rows"], {"a": 0.8, "b": 0.5})
        n_checked, below = compare.check_floors(recorded, make_run(a=0.49, b=0.29, other=0.1))
        self.assertEqual((n_checked, list(below)), (2, ["b"]))
        self.assertRegex(below["b"], "0.290.*0.500")
        wider = make_run(a=0.01)
        wider["rows"][0]["target"] = "x86_avx512"
        self.assertEqual(compare.check_floors(recorded, wider)[0], 0)
        recorded = compare.record_floors(recorded, [wider])
        self.assertEqual(len(recorded["some CPU"]["x86_avx2"]["rows"]), 2)
        self.assertEqual(compare.check_floors(recorded, wider)[0], 1)
        elsewhere = copy.deepcopy(wider)
        elsewhere["machine"]["family"] = "another CPU"
        self.assertEqual(compare.check_floors(recorded, elsewhere)[0], 0)

    def test_the_shipped_floors_stay_as_they_are_written(self):
        text = (BENCH / "floors.json").read_text()
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "floors.json"
            files.save_json(path, files.load_json(BENCH / "floors.json"))
            self.assertEqual(path.read_text(), text)

    def test_files_are_JSON_or_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            files.save_json(folder / "run.json", {"a": math.pi})
            self.assertEqual(files.load_json(folder / "run.json"), {"a": math.pi})
            self.assertEqual(len(list(folder.iterdir())), 1)
            (folder / "bad").write_text("{")
            for path, words in (folder / "absent", "can't read"), (folder / "bad", "is not JSON"):
                with self.assertRaisesRegex(files.Failed, words):
                    files.load_json(path)
            with self.assertRaises(OSError):
                files.save_json(folder / "no/such/folder.json", {})


if __name__ == "__main__":
    unittest.main()
