"""test_plot.py TOOL: the picture of ./run plot shows the right numbers and words, and its files are right."""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

ROOT = pathlib.Path(__file__).parents[2]
sys.path.append(str(ROOT / "checks"))
import need_matplotlib  # noqa: E402, F401

import numpy as np  # noqa: E402

sys.path.append(str(ROOT / "python/halyard"))
import plot  # noqa: E402

TOOL = os.path.abspath(sys.argv.pop(1))
CONFIGS = ROOT / "tests/data/configs"


def config(name, *options):
    return ["--config", str(CONFIGS / f"{name}.json"), *options]


def describe(*options):
    return json.loads(subprocess.run([TOOL, "frequencies", *options], check=True, stdout=subprocess.PIPE).stdout)


def powers(base, n_pairs):
    return base ** (-np.arange(n_pairs) / n_pairs)


def texts_of(figure):
    return [each for each in figure.findobj(plot.matplotlib.text.Text) if each.get_text()]


def words_of(*options, reference="exact"):
    return "\n".join(each.get_text() for each in texts_of(plot.draw(describe(*options), reference)))


class Numbers(unittest.TestCase):
    def test_decay_is_the_golden_one(self):
        folder = ROOT / "tests/data/golden/decay"
        manifest = json.loads((folder / "manifest.json").read_text())
        case = manifest["cases"][0]
        entry, base, n_pairs = manifest["arrays"][case["dot_f64"]], case["base"], case["d"] // 2
        want = np.fromfile(folder / entry["file"], np.float64, case["n"], offset=entry["offset"])
        inv_freq = np.array(describe("--rotary-dim", str(2 * n_pairs), "--base", str(base))["inv_freq"])
        ratio = plot.find_ratio(inv_freq)
        self.assertAlmostEqual(ratio, base ** (1 / n_pairs))
        points = plot.find_decay(inv_freq, 4096, ratio).T
        n_compared = 0
        for at, first, last, mean, low, high in points[points[:, 2] < len(want)]:
            scores = np.sort(want[int(first):int(last) + 1] / want[0])
            n_out = len(scores) // 20
            np.testing.assert_allclose([mean, low, high], [scores.mean(), scores[n_out], scores[-1 - n_out]], atol=1e-9)
            # Around the point, from one wave to the next.
            self.assertTrue(at / ratio**0.5 <= first <= last <= at * ratio**0.5)
            self.assertGreater(last - first + 2, at * (ratio**0.5 - ratio**-0.5))
            n_compared += 1
        self.assertGreater(n_compared, 60)
        self.assertEqual(points[5, :3].tolist(), [6, 6, 6])  # near ones are not lumped together
        # No sawtooth: the mean goes down from one point to the next, but for little.
        self.assertLess(np.diff(points[10:, 3]).max(), 2 / 224)

    def test_wavelengths_before_and_after_scaling(self):
        (used, _), (unscaled, _) = plot.Subject(describe(*config("llama-3.1-8b")), "exact").series
        before = 2 * np.pi / powers(500000.0, 64)
        part = np.clip((8192 / before - 1) / 3, 0, 1)
        np.testing.assert_allclose(plot.find_wavelengths(unscaled), before)
        np.testing.assert_allclose(plot.find_wavelengths(used), before / ((1 - part) / 8 + part))
        self.assertEqual(len(plot.Subject(describe(*config("llama-2-7b")), "exact").series), 1)

    def test_every_cell_has_the_colour_of_its_angle(self):
        cells = plot.find_cells(powers(10000.0, 32), 4096)
        edges = 4096 ** (np.arange(145) / 144)
        speeds = np.multiply.outer(powers(10000.0, 32), np.diff(edges)) / (2 * np.pi)
        np.testing.assert_array_equal(cells.mask, speeds > 1 / 3)
        turns = np.multiply.outer(powers(10000.0, 32), np.sqrt(edges[1:] * edges[:-1])) / (2 * np.pi)
        difference = (turns - cells).compressed()
        self.assertGreater(len(difference), 1000)
        np.testing.assert_allclose(difference, difference.round(), atol=1e-9)

    def test_pairs_that_stand_still_or_turn_back(self):
        inv_freq = np.array([1.0, 0.0, -0.5, 5e-324, 1e-3, 0.0])
        np.testing.assert_allclose(plot.find_wavelengths(inv_freq) / (2 * np.pi), [1, np.inf, 2, np.inf, 1000, np.inf])
        still = np.zeros(4)
        np.testing.assert_array_equal(plot.find_decay(still, 4096, plot.find_ratio(still))[3:], 1)

    def test_float32_angles(self):
        drawn = plot.Subject({"method": "list", "inv_freq": [0.3]}, "hf_f32").drawn
        self.assertEqual(plot.find_angles(drawn, [4095])[0, 0], np.float32(4095) * np.float32(0.3))


class Words(unittest.TestCase):
    def test_what_a_context_length_is(self):
        for options, words in (
                (["--rotary-dim", "64"], "context 4,096 (assumed)"),
                (config("llama-2-7b"), "context 4,096\n"),
                (config("llama-3.1-8b"), "RoPE llama3, base 500,000, rotary_dim 128, attention_factor 1\n"),
                (config("llama-3.1-8b"), "Trained on 8,192 tokens, meant for 131,072."),
                (config("llama-3.1-8b"), "less than one turn in 8,192 tokens: 32 of 64 pairs"),
                # max_position_embeddings states what it was trained with; YaRN's factor stretches it.
                (config("qwen2.5-7b-yarn"), "meant for 131,072."),
                (config("phi-3.5-mini"), "for sequences up to 4,096;"),
                (config("phi-3.5-mini", "--seq-len", "5000"), "for a sequence of 5,000."),
                (config("internlm2.5-7b", "--seq-len", "50000"), "drawn up to 50,000."),
                (config("llama-2-7b", "--seq-len", "10000"), "10,000 tokens, as given."),
                (config("gemma-4", "--layer-type", "full_attention"), "192 of 256 pairs do not turn.")):
            with self.subTest(options):
                self.assertIn(words, words_of(*options))
        error = abs(float(np.float32(4095) * np.float32(0.3)) - 4095 * 0.3)
        text = plot.make_subtitle(plot.Subject({"method": "list", "inv_freq": [0.3]}, "hf_f32"))
        self.assertIn(f"up to {error:.2g} rad from exact ones at position 4,095.", text)

    def test_they_are_on_the_page(self):
        far = ["--seq-len", "9007199254740992"]
        for options in (["--rotary-dim", "2"], ["--rotary-dim", "6", "--base", "0.5"], ["--rotary-dim", "1048576"],
                        ["--rotary-dim", "2048", "--base", "1e300"], config("llama-3.1-8b"), config("qwen2.5-7b-yarn"),
                        config("phi-3.5-mini"), config("phi-3.5-mini", *far),
                        config("internlm2.5-7b", "--seq-len", "1"),
                        config("gemma-4", "--layer-type", "full_attention"),
                        config("qwen2-vl-7b", "--layer-type", "vision")):
            with self.subTest(options):
                figure = plot.draw(describe(*options), "hf_f32")
                figure.draw_without_rendering()
                box, size = figure.get_tightbbox(), figure.get_size_inches()
                self.assertTrue(box.x0 >= 0 and box.y0 >= 0 and box.x1 <= size[0] and box.y1 <= size[1], box)


class Command(unittest.TestCase):
    def run_in(self, folder, *options, status=0):
        done = subprocess.run([sys.executable, "-IB", ROOT / "python/halyard/plot.py", TOOL, *options], cwd=folder,
                              capture_output=True)
        errors = done.stderr.decode()
        self.assertEqual(done.returncode, status, errors)
        self.assertEqual(errors.startswith("halyard: "), status != 0, errors)
        return done.stdout

    def test_formats_are_written_twice_alike(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, begin in ("a.svg", b"<?xml"), ("b.PNG", b"\x89PNG"), ("c.d.pdf", b"%PDF"):
                options = *config("llama-3.1-8b"), "-o", name
                self.run_in(folder, *options)
                data = pathlib.Path(folder, name).read_bytes()
                self.assertTrue(data.startswith(begin))
                self.assertEqual(self.run_in(folder, *options), b"")
                self.assertEqual(pathlib.Path(folder, name).read_bytes(), data)
            svg = pathlib.Path(folder, "a.svg").read_text()
            self.assertEqual(self.run_in(folder, *config("llama-3.1-8b"), "--output", "-").decode(), svg)
            ElementTree.fromstring(svg)
            self.assertEqual(len(os.listdir(folder)), 3)

    def test_what_cannot_be_drawn_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            path, out = pathlib.Path(folder, "out.svg"), ["-o", "out.svg"]
            path.write_text("precious")
            rope = ["--rotary-dim", "8"]
            for status, options in ((2, rope), (2, [*rope, "-o", "out.jpg"]), (2, [*rope, "-o", "out"]), (2, out),
                                    (2, [*rope, *out, "--seq-len", "9"]), (2, [*rope, *out, "--reference", "ggml"]),
                                    (1, ["--rotary-dim", "7", *out]), (1, [*config("gemma-4"), *out]),
                                    (1, [*rope, "-o", "missing/out.svg"])):
                with self.subTest(options):
                    self.assertEqual(self.run_in(folder, *options, status=status), b"")
                    self.assertEqual((path.read_text(), os.listdir(folder)), ("precious", ["out.svg"]))


if __name__ == "__main__":
    unittest.main()
