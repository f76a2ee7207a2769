"""Tests of the bench from end to end: rows, roads, comparisons, floors, and that a peer that misbehaves does no harm.

    test_bench.py BUILD_FOLDER [NAMES]
"""

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))
import measure  # noqa: E402
import roads  # noqa: E402
import tables  # noqa: E402
from files import Failed, load_json, save_json  # noqa: E402
from hosts import Peers, Server  # noqa: E402
from turns import Effort  # noqa: E402
from works import Model, Work  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else HERE.parents[1] / "build/host").resolve()
HARDLY_ANY = Effort(3, 1e-6)
SMALL = Model("small", 2, 1, 16, 16)
KEYS = {"name", "kernel", "target", "model", "tokens", "q_heads", "k_heads", "head_dim", "rotary_dim", "pairing",
        "out_pairing", "dtype", "in_place", "cold", "tensors", "angles", "threads", "bytes", "gigabytes_per_second",
        "max_error", "wrong", "ratio", "judged_by", "memory", "ceiling_loops", "rivals", "median_seconds",
        "spread_seconds", "fastest_seconds"}


class WithServer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server([str(BUILD / "bin/halyard_bench_server")])

    @classmethod
    def tearDownClass(cls):
        cls.server.close()

    def measure(self, work):
        self.server.reserve([work.described()])
        return measure.measure_row(work, measure.Setting(self.server, HARDLY_ANY))

    def kinds(self, row):
        return {rival["kind"] for rival in row["rivals"]}


class Rows(WithServer):
    def test_results_are_checked_and_a_row_has_all_its_fields(self):
        models = [SMALL, Model("m", 2, 1, 20, 8, "interleaved", "interleaved"),
                  SMALL._replace(out_pairing="interleaved"), SMALL._replace(pairing="interleaved")]
        for dtype, in_place, model in itertools.product(("f32", "f16", "bf16"), (False, True), models):
            work = Work(model, 70, dtype, in_place)
            if in_place and model.pairing != model.out_pairing:
                continue
            with self.subTest(work.name):
                row = self.measure(work)
                self.assertFalse(row["wrong"])
                self.assertGreater(row["max_error"], 0.0)
                self.assertEqual(set(row) - {"conversion"}, KEYS)
                self.assertEqual(row["kernel"], f"halyard_rotate_{work.kernel}_{row['target']}")
                self.assertGreater(row["ratio"], 0.0)
                if dtype == "f32":
                    self.assertNotIn("conversion", row)
                elif "conversion" in row:
                    self.assertTrue(row["conversion"]["name"].startswith(f"convert_{dtype}"))
                for rival in row["rivals"]:
                    self.assertFalse(rival["wrong"], rival)
                    self.assertLess(rival["max_error"], 0.01, rival)

    def test_threads_share_the_work_the_loops_and_the_ceilings_too(self):
        row = self.measure(Work(SMALL, 70, "f32", False, threads=3))
        self.assertFalse(row["wrong"] or any(rival["wrong"] for rival in row["rivals"]))
        self.assertIn("one_thread", self.kinds(row))

    def test_a_bound_run_is_timed_beside_a_run_of_one_token(self):
        for tokens, apart in (1, False), (1, True), (2, False):
            row = self.measure(Work(SMALL, tokens, "bf16", apart=apart))
            self.assertEqual({"bound", "kernels"} & self.kinds(row), {"bound", "kernels"} if tokens == 1 else set())
            self.assertEqual(row["tensors"], 2 if apart else 1)
            self.assertEqual({r["max_error"] for r in row["rivals"] if r["kind"] in ("bound", "kernels")} -
                             {row["max_error"]}, set())
            self.assertEqual("ns over kernels" in tables.format_rows([row]), tokens == 1)

    def test_a_cold_table_is_timed_with_other_sources_of_angles(self):
        row = self.measure(Work(SMALL, 64, "bf16", cold_table=True))
        self.assertEqual((row["wrong"], row["cold"]), (False, True))
        self.assertIn("angles", self.kinds(row))
        self.assertNotIn("loop", self.kinds(row))
        self.assertRegex(tables.format_rows([row]), "x phase")

    def test_what_the_server_cannot_do_is_a_sentence(self):
        for what, request, words in (("dance", {}, "can't dance"), ("load", {}, "no kernel is open"),
                                     ("prepare", {"dtype": "f32", "pairing": "x"}, 'no pairing "x"'),
                                     ("round", {"calls": [[99, 1]]}, "")):
            with self.assertRaisesRegex(Failed, words):
                self.server.ask(what, **request)


class Roads(WithServer):
    def measure(self, work, **more):
        self.server.reserve([work])
        return roads.measure_ways(work, measure.Setting(self.server, HARDLY_ANY, **more))

    def test_all_ways_of_all_roads_are_right(self):
        works = [(model, tokens, cache) for model in roads.MODELS for tokens in (1, 5)
                 for cache in roads.caches_of(model)]
        for model, tokens, cache in [*works, ("llama-3-8b", 80, "bf16-columns")]:
            row = self.measure(roads.road(model, tokens, cache))
            with self.subTest(row["name"]):
                kinds = [way["kind"] for way in row["ways"]]
                self.assertEqual(kinds[0], "fused")
                self.assertEqual("unbound" in kinds, tokens == 1)
                self.assertEqual("without_norm" in kinds, "llama" not in model)
                self.assertIn("separate", kinds)
                self.assertFalse(roads.is_wrong(row))
                for way in row["ways"]:
                    self.assertFalse(way["wrong"], way)
                    self.assertGreater(way["median_seconds"], 0.0)
                text = roads.format_roads([row])
                self.assertTrue(row["name"] in text and "wrong" not in text)

    def test_all_ways_to_shift_a_cache_are_right(self):
        for dtype in "bf16", "e4m3", "q8_0", "q8_0-hadamard":
            row = self.measure(roads.shift(2, 3, 32, 64, dtype))
            self.assertEqual(row["name"], f"shift/2x3x32x64/{dtype}")
            self.assertGreaterEqual(len(row["ways"]), 3)
            self.assertFalse(any(way["wrong"] for way in row["ways"]))
            self.assertNotIn("wrong", roads.format_shifts([row]))

    def test_a_peer_that_takes_no_road_is_seen(self):
        work = roads.road("qwen3-8b", 2, "bf16")
        self.server.reserve([work])
        peers = Peers(fake_peers("good"), self.server, 2.0, "road")
        row = roads.measure_ways(work, measure.Setting(self.server, HARDLY_ANY, peers=peers))
        peers.close()
        self.assertTrue(next(way for way in row["ways"] if way["name"] == "right")["wrong"])
        self.assertFalse(roads.is_wrong(row))
        self.assertIn("(right is wrong", roads.format_roads([row]))


def fake_peers(mode):
    return [sys.executable, str(HERE / "fake_peers.py"), mode]


class PeersTest(WithServer):
    work = Work(SMALL, 3, "f32", in_place=False)

    def setUp(self):
        self.server.reserve([self.work.described()])

    def why_absent(self, peers, name):
        return next((peer["why"] for peer in peers.list["absent"] if peer["name"] == name), "")

    def test_peers_are_checked_and_timed_and_those_that_fail_become_absent(self):
        peers = Peers(fake_peers("good"), self.server, 2.0)
        for _ in range(2):
            row = measure.measure_row(self.work, measure.Setting(self.server, HARDLY_ANY, peers=peers))
            found = {rival["name"]: rival for rival in row["rivals"] if rival["kind"] == "peer"}
            self.assertEqual({name: rival["wrong"] for name, rival in found.items()}, {"right": False, "wrong": True})
            self.assertLess(found["right"]["max_error"], 1e-6)
            self.assertAlmostEqual(found["right"]["median_seconds"], 1e-5)
            self.assertAlmostEqual(found["right"]["overhead_seconds"], 1e-5)
            self.assertEqual(found["right"]["form"], "slowly")
            self.assertIn("right", tables.best_peer(row))
        for name, why in (("missing", "is not installed"), ("crash", "ended"), ("hang", "in time"),
                          ("nonsense", "without seconds"), ("unready", "ended (no luck today)"),
                          ("broken", "does not load")):
            self.assertIn(why, self.why_absent(peers, name))
        self.assertEqual([self.why_absent(peers, name) for name in ("decline", "right")], ["", ""])
        self.assertEqual(peers.list["refused"], [{"name": "fussy", "why": "not this"}])
        self.assertIn("Not in every row: fussy: not this", tables.format_peers(peers.list))
        peers.pin(True)  # starts them anew
        self.assertTrue(peers.check(self.work.described(), self.server.ask(
            "prepare", with_peers=True, **self.work.described())["places"]))
        peers.close()

    def test_a_process_that_is_no_process_of_peers_is_refused(self):
        for command, limit, words in ((fake_peers("nonsense"), 1.0, r'nonsense: \["what\?"\]'),
                                      (["/no/such/program"], 1.0, "can't be started"),
                                      ([sys.executable, "/no/such/script.py"], 1.0, "No such file"),
                                      (["sleep", "9", "--"], 0.02, "of no use")):
            with self.assertRaisesRegex(Failed, words):
                Peers(command, self.server, limit)


class Program(unittest.TestCase):
    NAME = "half_f32_in_place/llama-3-8b/1/hot"
    ROW = ["--quick", "--filter", NAME]

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="with a space ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def bench(self, *arguments):
        return subprocess.run([sys.executable, "-EsB", HERE.parent / "bench.py", *arguments, "--build", BUILD],
                              capture_output=True, text=True)

    def test_a_row_is_written_compared_and_held_to_its_floor(self):
        run, floors_path = self.folder / "run.json", self.folder / "floors.json"
        self.assertEqual(self.bench(*self.ROW, "--json", run).returncode, 0)
        record = load_json(run)
        self.assertEqual([row["name"] for row in record["rows"]], [self.NAME])
        self.assertTrue(all(record["machine"][key] for key in
                            ("cpu", "caches", "governor", "compiler", "halide", "commit", "date")))
        self.assertTrue(record["budget"] or not (BUILD / "kernels").exists())
        self.assertEqual(record["command"], f"./run bench --quick --filter '{self.NAME}'")
        self.assertEqual(self.bench("compare", run, run).returncode, 0)

        with_floors = [*self.ROW, "--floors", floors_path]
        self.assertEqual(self.bench(*with_floors, "--write-floors").returncode, 0)
        floors = load_json(floors_path)
        recorded = floors[record["machine"]["family"]][record["rows"][0]["target"]]["rows"]
        for floor, status in (1e-3, 0), (1e3, 1):
            recorded[self.NAME] = floor
            save_json(floors_path, floors)
            done = self.bench(*with_floors, "--check-floors")
            self.assertEqual(done.returncode, status)
            self.assertIn("1 of 1 ratios have a floor", done.stdout)
            self.assertEqual(f"below its floor: {self.NAME}" in done.stdout, status == 1)

    def test_roads_are_written(self):
        path = self.folder / "roads.json"
        self.assertEqual(self.bench("road", "--quick", "--filter", "llama-3-8b/1/????", "--json", path).returncode, 0)
        record = json.loads(path.read_text())
        self.assertEqual([row["name"] for row in record["roads"]],
                         [f"llama-3-8b/1/{kind}" for kind in ("bf16", "e4m3", "q8_0")])
        self.assertNotIn("shifts", record)

    def test_what_it_cannot_do_is_one_line(self):
        for arguments in (["--filter", "nothing*", "--json", self.folder / "new.json"],
                          [*self.ROW, "--target", "no_such_target"], [*self.ROW, "--json", "/no/such/folder/file"],
                          ["--shapes", "/no/such/file"], ["compare", "/no/such/file", "/no/such/file"],
                          ["road", "--filter", "nothing*"]):
            done = self.bench(*arguments)
            self.assertEqual((done.returncode, done.stdout), (1, ""), arguments)
            self.assertRegex(done.stderr, r"^bench: .*\n$")
        for arguments in ["--no-such-flag"], ["--threads", "0"], ["compare", "a"]:
            self.assertEqual(self.bench(*arguments).returncode, 2)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
