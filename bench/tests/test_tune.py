"""Tests of the tuner from end to end: variants that crash, hang or are wrong are named and never win. fake_generator.py
stands before the generator and breaks some variants.

    test_tune.py BUILD_FOLDER [NAMES]
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))
from files import load_json, save_json  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1) if len(sys.argv) > 1 else ROOT / "build/host").resolve()
FAKE_GENERATOR = str(HERE / "fake_generator.py")
FEW_VALUES = {"elements_per_step": [4, 8, 16, 32, 64, 128], "elements_per_vector": [4],
              "elements_per_step_any": [8, 32], "element_threads": [4, 8, 16, 32], "head_threads": [16],
              "heads_per_thread": [4], "few_tokens": [64], "pairs_per_step": [4, 8, 16]}


def few_recipes():
    recipes = load_json(BUILD / "generated/tuning.json")
    real = recipes["generator"]
    os.environ["HALYARD_REAL_GENERATOR"] = real
    fake = lambda command: [FAKE_GENERATOR if word == real else word for word in command]
    for parameter in recipes["parameters"]:
        parameter["values"] = FEW_VALUES.get(parameter["name"], [1])
    for kernel in recipes["kernels"]:
        kernel["check"] = ["true"]  # the real check would refuse the broken variants first
        kernel["emit"] = fake(kernel["emit"])
    return recipes | {"seal": fake(recipes["seal"])}


class WithRecipes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="with a space ")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.recipes = few_recipes()

    def command(self, kernel="halyard_rotate_half_f32", target="x86_avx2", patience=60, output=None):
        save_json(self.folder / "recipes.json", self.recipes)
        return [sys.executable, "-EsB", HERE.parent / "tune/tune.py", "--build", BUILD, "--kernels",
                f"{kernel}_{target}", "--target", target, "--shapes", "llama-3-8b", "--patience",
                str(patience), "--recipes", self.folder / "recipes.json", "--state", self.folder / "state", "--output",
                output or self.folder / "schedules"]

    def tune(self, *arguments, environment=None, **more):
        done = subprocess.run(self.command(*arguments, **more), text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=os.environ | (environment or {}))
        return done.returncode, done.stdout

    def says(self, text, *sentences):
        for sentence in sentences:
            self.assertIn(sentence, text)


class Tuner(WithRecipes):
    def test_variants_that_crash_hang_or_are_wrong_are_named_and_the_best_right_one_is_chosen(self):
        status, text = self.tune(patience=6)
        self.assertEqual(status, 0, text)
        refused = "refused elements_per_step {}, elements_per_vector 4: halyard_rotate_half_f32_x86_avx2: f32, half -> half"
        self.says(text, "x86_avx2: 128/16/8/1/1 -> elements_per_step 64, elements_per_vector 4, ",
                  *map(refused.format, (32, 16, 8, 4)),
                  ": takes more than 6 seconds", ": crashes with signal 4", ", but should be 0x",
                  "refused elements_per_step 64, elements_per_step_any 32, elements_per_vector 4: making it failed: "
                  "halyard_rotate_half_f32_x86_avx2: this generator cannot")
        path, = (self.folder / "schedules").iterdir()
        schedule = load_json(path)
        self.assertEqual(schedule["parameters"]["elements_per_step"], 64)
        self.assertGreater(schedule["gain"], 1.1)
        self.assertEqual(len(schedule["variants"]["refused"]), 5)

        # The next build takes it.
        kernels = self.folder / "kernels"
        said = subprocess.run(
            [sys.executable, "-B", ROOT / "generators/emit/emit.py", "--generator", FAKE_GENERATOR, "--halide",
             schedule["halide"], "--triple", "x86-64-linux", "--target", "x86_avx2", "--kernels",
             "^halyard_rotate_half_f32_x86", "--schedules", "auto", "--schedule-folder", path.parent, "-o", kernels],
            capture_output=True, text=True, check=True)
        self.assertEqual(said.stdout + said.stderr, "")
        kernel = load_json(kernels / "kernels_x86_avx2.json")["kernels"][0]
        self.assertEqual((kernel["schedule"], kernel["parameters"]),
                         (schedule["device"]["name"], schedule["parameters"]))

    def test_makers_of_rows_and_strided_kernels_are_checked_and_timed_too(self):
        for kernel, refused, work in (
                ("halyard_rows_phase", "pairs_per_step 16: halyard_rows_phase_x86_avx2: ", "512/hot/phase"),
                ("halyard_rotate_strided_f32", "elements_per_step_any 32: making it", "512/cold/strided")):
            with self.subTest(kernel):
                status, text = self.tune(kernel)
                self.assertEqual(status, 0, text)
                self.says(text, "2 variants tried, 1 refused", f"refused {refused}", work)

    def test_an_interrupted_run_says_so_and_leaves_nothing_running(self):
        with subprocess.Popen(self.command(), text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
            while not (self.folder / "state/variants/0").exists():
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            text = process.communicate()[0]
        self.assertEqual((process.returncode, text.count("\n")), (130, 1), text)
        self.says(text, "tune: interrupted; what is finished is kept")
        until = time.monotonic() + 10
        while self.processes():
            self.assertLess(time.monotonic(), until, "what was begun still runs")
            time.sleep(0.01)

    def processes(self):
        return [path for path in pathlib.Path("/proc").glob("[0-9]*/cmdline")
                if str(self.folder).encode() in read_bytes(path)]

    def test_what_is_missing_is_one_sentence(self):
        def fails(sentence, **more):
            status, text = self.tune(**more)
            self.assertEqual((status, text.count("\n")), (1, 1), text)
            self.says(text, sentence)

        fails("tune: can't make the folder /dev/null/schedules", output="/dev/null/schedules")
        gpu_program = self.recipes["gpu_program"]
        self.recipes["gpu_program"] = "/no/program"
        fails("tune: no device for cuda_sm80: failed: ", target="cuda_sm80")
        self.recipes["gpu_program"] = ""
        fails("tune: this build has no kernels for GPUs", target="cuda_sm80")
        self.recipes["gpu_program"] = gpu_program
        for what in "compiler", "generator":
            self.recipes[what] = f"/no/{what}"
            fails(f"tune: there is no {what} at /no/{what}")


def read_bytes(path):
    try:
        return path.read_bytes()
    except OSError:
        return b""


@unittest.skipUnless(load_json(BUILD / "generated/tuning.json")["gpu_program"], "this build has no kernels for GPUs")
class GpuTuner(WithRecipes):
    """What a program of its own checks and times."""

    EMULATED = {"LD_LIBRARY_PATH": str(BUILD / "emulated_cuda")}

    def test_variants_for_CUDA_that_are_wrong_are_named_on_an_emulated_device(self):
        for kernel in self.recipes["kernels"]:
            if kernel["isa"] == "cuda_sm80":
                kernel["link"] = [sys.executable, str(HERE / "fake_linker.py"), *kernel["link"]]
        status, text = self.tune(target="cuda_sm80", environment=self.EMULATED)
        self.assertEqual(status, 0, text)  # whichever is the fastest: its times mean nothing
        self.says(text, "halyard_rotate_half_f32_cuda_sm80: ", "3 variants tried, 2 refused",
                  "refused element_threads 4: checking it failed: an output is ",
                  "refused element_threads 32: making it failed: halyard_rotate_half_f32_cuda_sm80: this generator cannot")

    def test_a_driver_that_computes_nothing_is_not_tuned_for(self):
        status, text = self.tune(target="cuda_sm80", environment=self.EMULATED | {"HALYARD_EMULATED_CUDA": "records"})
        self.assertEqual(status, 1, text)
        self.says(text, "tune: the default schedule can't be taken: checking it failed")


if __name__ == "__main__":
    unittest.main()
