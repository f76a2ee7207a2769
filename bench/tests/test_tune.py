"""Tests of the tuner: what is judged better, and that variants which crash, hang or are wrong are named and never win.

    test_tune.py                 what is judged
    test_tune.py BUILD_FOLDER    variants
"""

import contextlib
import dataclasses
import io
import pathlib
import random
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import tune  # noqa: E402

BUILD = pathlib.Path(sys.argv.pop(1)).resolve() if len(sys.argv) > 1 else None
KERNEL = "halyard_rotate_half_f32_x86_avx2"


class Judged(unittest.TestCase):
    def gain(self, of_hot, of_cold=1.0, of_control=1.0, seed=1):
        """The Gain of a variant with these gains on three hot shapes, noisy by 2 %, and a cold one, noisy by 30 %."""
        draw = random.Random(seed).gauss

        def times(gains):
            return [[draw(1.0, noise) / gain for _ in range(41)] for gain, noise in zip(gains, (0.02, 0.02, 0.02, 0.3))]
        return tune.find_gain(times([1] * 4), times([*of_hot, of_cold]), times(4 * [of_control]), [0, 1, 2])

    def test_a_cold_shape_hides_no_gain(self):
        gain = self.gain([1.05, 1.05, 1.05])
        self.assertTrue(gain.is_better())
        self.assertAlmostEqual(gain.hot, 1.05, delta=0.02)
        self.assertLess(gain.noise, 0.02)

    def test_noise_is_no_gain(self):
        self.assertEqual([seed for seed in range(100) if self.gain([1, 1, 1], seed=seed).is_better()], [])
        self.assertFalse(self.gain([1.05, 1.05, 1.05], of_control=1.1).is_better())

    def test_a_shape_that_loses_forbids(self):
        self.assertFalse(self.gain([1.2, 1.2, 0.9]).is_better())
        self.assertFalse(self.gain([1.2, 1.2, 1.2], of_cold=0.5).is_better())

    def test_variants_are_legal_and_the_nearest_come_first(self):
        listed = tune.read_kernels.read()
        base = listed.kernels[KERNEL].parameters
        variants = tune.list_variants(listed, base, "known_sizes")
        self.assertEqual(tune.label(variants[0], base).count(","), 0)
        self.assertTrue(all(v["elements_per_vector"] <= v["elements_per_step"] for v in variants))
        self.assertEqual(len(variants), 19)


# Assembly that is inserted at a kernel's entry, by its elements_per_step. It makes the default, 128, slow.
BAD = {128: "\tmovl\t$60000, %eax\n.Lslow:\tdecl\t%eax\n\tjnz\t.Lslow", 32: ".Lhang:\tjmp\t.Lhang", 16: "\tud2",
       8: "\txorl\t%eax, %eax\n\tretq"}  # wrong, but fast


def emit_broken(emitter, kernel, triple, suffix, folder, parameters=None, outputs=None):
    """Stands in for Emitter.emit, and breaks some of the emitted kernels."""
    step = (parameters or kernel.parameters)["elements_per_step"]
    if step == 64 and parameters["elements_per_step_any"] == 32:
        raise tune.emit.Failed("this generator cannot")
    path, = EMIT(emitter, kernel, triple, suffix, folder, parameters, outputs)
    path.write_text(path.read_text().replace(f"\n{kernel.name}:", f"\n{kernel.name}:\n{BAD.get(step, '')}\n", 1))
    return [path]


EMIT = tune.emit.Emitter.emit


@unittest.skipUnless(BUILD, "no build was given")
class Variants(unittest.TestCase):
    def test_those_that_crash_hang_or_are_wrong_are_named_and_the_best_right_one_is_kept(self):
        listed, few = tune.read_kernels.read(), {"elements_per_step": (8, 16, 32, 64, 128),
                                                 "elements_per_vector": (8,), "elements_per_step_any": (8, 16, 32)}
        for name, parameter in listed.parameters.items():
            listed.parameters[name] = dataclasses.replace(parameter, values=few.get(name, (1,)))
        with tempfile.TemporaryDirectory(prefix="with a space ") as folder, io.StringIO() as said:
            options = tune.parse(["--kernels", KERNEL, "--target", "x86_avx2", "--shapes", "llama-3-8b", "--output",
                                  folder, "--build", str(BUILD)])
            with (mock.patch.object(tune, "PATIENCE", 3), contextlib.redirect_stdout(said),
                  mock.patch.object(tune.emit.Emitter, "emit", emit_broken),
                  mock.patch.object(tune.read_kernels, "read", lambda: listed)):
                tune.run(options)
                text = said.getvalue()
                self.assertIn("1 of 1 kernels", text, text)
                path, = pathlib.Path(folder).iterdir()
                entry = tune.tuned_schedules.load(path)[KERNEL]
                emitter = tune.emit.Emitter(BUILD / "bin/halyard_generator", "c++")
                numbers = tune.tuned_schedules.read_entry(
                    entry, listed.kernels[KERNEL], entry["halide"], listed,
                    lambda: emitter.default_sha256(listed.kernels[KERNEL]))  # as the build does
        self.assertEqual(numbers["elements_per_step"], 64)
        self.assertGreater(entry["gain"], 1.1)
        self.assertEqual(path.name, tune.tuned_schedules.cpu_name() + ".json")
        for sentence in ("% by elements_per_step 64", "6 variants tried, 4 refused",
                         "crashes with signal 9", "crashes with signal 4", "but should be ", "this generator cannot"):
            self.assertIn(sentence, text)

    def test_kernels_that_compute_cos_and_sin_are_checked_and_timed_too(self):
        listed, recipe = tune.read_kernels.read(), tune.load_json(BUILD / "generated/tuning.json")
        library, models = tune.Library(BUILD / "lib/libhalyard.so"), tune.find_models(["llama-3-8b"])
        kernel = listed.kernels["halyard_rows_phase_x86_avx2"]
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(tune.Maker(recipe, kernel, folder).make(dict(kernel.parameters)).fault, "")
        effort = 2 * (tune.Effort(1, 1e-4),)
        seconds, = tune.time_variants(tune.list_tuning_cases(kernel, models), "x86_avx2", [library], effort)
        self.assertEqual(list(map(len, seconds)), 3 * [1])


if __name__ == "__main__":
    unittest.main()
