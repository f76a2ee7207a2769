"""test_emit.py GENERATOR COMPILER: the list of kernels, tuned schedules, and the kernels that emit.py makes from them.

A malformed row or schedule is refused with a message. A tuned schedule is used only while its kernel's default schedule
still emits the same code as when the schedule was measured.
"""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

GENERATORS = pathlib.Path(__file__).resolve().parents[2] / "generators"
sys.path.insert(0, str(GENERATORS / "emit"))

import emit  # noqa: E402
import read_kernels  # noqa: E402
import tuned_schedules  # noqa: E402

GENERATOR, COMPILER = sys.argv[1:3]
KERNEL = "halyard_rotate_half_f32_x86_avx2"
CPU = "amd_1_2"
NUMBERS = {"elements_per_step": 64, "elements_per_step_any": 8, "elements_per_vector": 16, "heads_per_step": 2,
           "hoist_rows": 0}
LISTED = read_kernels.read()


def entry(**changed):
    """A kernel's entry as ./run tune writes it."""
    return {"default_sha256": "0123", "halide": "1.2.3", "parameters": dict(NUMBERS)} | changed


def copy_lists(folder):
    for name in "kernels.inc", "targets.inc":
        shutil.copy(GENERATORS / name, folder)


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class List(Scratch):
    def refuse(self, old, new, why, file="kernels.inc"):
        copy_lists(self.folder)
        text = (self.folder / file).read_text()
        self.assertIn(old, text)
        (self.folder / file).write_text(text.replace(old, new, 1))
        with self.assertRaises(read_kernels.BadList) as refused:
            read_kernels.read(self.folder / "kernels.inc")
        self.assertRegex(str(refused.exception), rf"{file}:\d+: {why}")

    def test_malformed_rows_are_refused(self):
        row = "HALYARD_ROWS(x86_avx2,   8)"
        for old, new, why in [
                (")", "", "this is no row: HALYARD_ROWS"),
                ("8", "8, 8", "HALYARD_ROWS: too many positional arguments"),
                ("   8", "", "'' is no word, number or text"),
                ("ROWS", "ROW", "there is no row HALYARD_ROW"),
                ("x86_avx2", "cuda_sm80", "target is 'cuda_sm80', which is none of x86_avx512, "),
                ("8)", "9)", "pairs_per_step is '9', which is none of 4, 8, 16, 32"),
                ("x86_avx2", "x86_avx512", "halyard_rows_phase_x86_avx512 is there already")]:
            self.refuse(row, row.replace(old, new, 1), why)
        row = "HALYARD_STAGE(widen_norm,   halves, cpus)"
        self.refuse(row, row.replace("halves", "f64"), "dtype is 'f64', which is none of f32, f16, ")
        row = "HALYARD_DTYPES(halves, f16, bf16)"
        self.refuse(row, "HALYARD_DTYPES(halves)", "halves names no dtype")
        self.refuse(row.replace("halves", "floats").replace("f16", "f32, f16", 1), "", "a set of dtypes is 'floats'")
        row = "HALYARD_CUDA_ROTATE(strided,             floats, both,         _,   cuda_sm80)"
        self.refuse(row, row.replace(" _, ", " 32, "), "bits is what a kernel has that is not strided")

    def test_targets_are_best_first(self):
        text = (GENERATORS / "targets.inc").read_text()
        better, worse = (re.search(rf"HALYARD_TARGET\({name},(.|\n)*?\)\n", text)[0] for name in ("x86_avx512", "x86_avx2"))
        self.refuse(better + worse, worse + better, "x86_avx512 has features that x86_avx2, which comes before it",
                    "targets.inc")
        ranks = [list(LISTED.targets).index(kernel.target.name) for kernel in LISTED.kernels.values()]
        self.assertEqual(ranks, sorted(ranks), "the library takes the first kernel that fits")


class Entries(Scratch):
    """Entries of a file of tuned schedules are checked."""

    def refuse(self, why, default="0123", **changed):
        with self.assertRaises(tuned_schedules.Unusable) as refused:
            tuned_schedules.read_entry(entry(**changed), LISTED.kernels[KERNEL], "1.2.3", LISTED, lambda: default)
        self.assertEqual(str(refused.exception), why)

    def test_what_is_no_file_of_schedules_is_refused(self):
        path = self.folder / "cpu.json"
        for text in "", "[1", "null", "[]", "{}", '{"kernels": 1}', '{"kernels": {"one": 1}}', "[" * 100000:
            path.write_text(text)
            with self.assertRaisesRegex(tuned_schedules.Unusable, "cpu.json is not what ./run tune writes"):
                tuned_schedules.load(path)

    def test_each_field_is_checked(self):
        self.refuse("it was measured with another Halide than 1.2.3", halide="1.2.4")
        self.refuse("it was measured against another default than the one that is emitted now", default="4567")
        for numbers in None, [3], NUMBERS | {"other": 4}, {"elements_per_step": 64}:
            self.refuse(f"its parameters are not {', '.join(LISTED.kernels[KERNEL].parameters)}", parameters=numbers)
        for value in 24, "64", 64.0, -64, True, {"64": 64}, None:
            self.refuse("its elements_per_step is none of 4, 8, 16, 32, 64, 128",
                        parameters=NUMBERS | {"elements_per_step": value})
        self.refuse("its elements_per_vector exceeds its elements_per_step",
                    parameters=NUMBERS | {"elements_per_step": 8})

    def test_cpus_have_names(self):
        path = self.folder / "cpuinfo"
        for text, name in [("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: A CPU\n", "amd_25_17"),
                           ("vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n", "intel_6_143"),
                           ("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n", "arm_41_d0c"), ("vendor_id\t: Other\n", "")]:
            path.write_text(text)
            self.assertEqual(tuned_schedules.cpu_name(path), name)
        self.assertEqual(tuned_schedules.cpu_name(self.folder / "none"), "")


class Emission(Scratch):
    """emit.py, run on a copy of the generators' scripts and lists, which tests may edit."""

    def setUp(self):
        super().setUp()
        self.generators, self.out = self.folder / "generators", self.folder / "out"
        (self.generators / "emit").mkdir(parents=True)
        for path in (GENERATORS / "emit").glob("*.py"):
            shutil.copy(path, self.generators / "emit")
        copy_lists(self.generators)

    def edit_list(self, pattern, replacement):
        path = self.generators / "kernels.inc"
        text, n = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.MULTILINE)
        self.assertEqual(n, 1)
        path.write_text(text)

    def add_schedule(self, cpu=CPU):
        default = emit.Emitter(GENERATOR, COMPILER).default_sha256(LISTED.kernels[KERNEL])
        (self.generators / "schedules").mkdir(exist_ok=True)
        text = json.dumps({"kernels": {KERNEL: entry(default_sha256=default)}})
        (self.generators / "schedules" / f"{cpu}.json").write_text(text)

    def emit(self, cpu="none", *more, generator=GENERATOR, kernels=f"^{KERNEL}$", target="x86_avx2", status=0):
        """Runs emit.py. Returns the manifest's kernels and the messages."""
        done = subprocess.run(
            [sys.executable, "-B", self.generators / "emit/emit.py", "--generator", generator, "--halide", "1.2.3",
             "--triple", "x86-64-linux", "--target", target, "--kernels", kernels, "--compiler", COMPILER,
             "--schedules", cpu, *more, "-o", self.out], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, status, done.stderr)
        manifest = self.out / f"kernels_{target}.json"
        return json.loads(manifest.read_text())["kernels"] if status == 0 else [], done.stderr

    def test_a_schedule_holds_as_long_as_the_default_is_the_same(self):
        def expect_tuned(**how):
            kernels, log = self.emit(CPU, **how)
            self.assertEqual(([(k["schedule"], k["parameters"]) for k in kernels], log), ([(CPU, NUMBERS)], ""))

        self.add_schedule()
        expect_tuned()
        row = (self.out / "kernel_rows_x86_avx2.inc").read_text()
        self.assertEqual(row, f"HALYARD_KERNEL({KERNEL}, x86_avx2, half, half, f32, out_of_place, false, "
                              f'usual_non_temporal_mib, "{CPU}")\n')
        # Another generator file that emits the same code, as after a change of comments.
        other = self.folder / "halyard_generator"
        shutil.copy(GENERATOR, other)
        with other.open("ab") as end:
            end.write(b"another comment")
        expect_tuned(generator=other)
        # The list has another kernel and another comment.
        self.edit_list("^(HALYARD_ROTATE.half, +f32, +)both(, +x86_avx2, )", r"\1out_of_place\2")
        self.edit_list("^// ---- ", "// ------ ")
        expect_tuned()
        # The kernel has another default schedule.
        self.edit_list(r"^(HALYARD_ROTATE.half, +f32, +out_of_place, +x86_avx2, .*)128, 16, ", r"\g<1>64, 16, ")
        kernels, log = self.emit(CPU)
        self.assertEqual([(k["schedule"], k["parameters"]["elements_per_step"]) for k in kernels], [("default", 64)])
        self.assertEqual(log, f"warning: the schedule of {KERNEL} in {CPU}.json is not used, and the kernel has its "
                              "default: it was measured against another default than the one that is emitted now. "
                              "./run tune makes it anew.\n")

    def test_which_cpu_is_taken(self):
        self.assertRegex(self.emit("intel_3_4", status=1)[1], "HALYARD_SCHEDULES names intel_3_4, and there is no ")
        cpu = tuned_schedules.cpu_name()
        self.assertEqual([k["schedule"] for k in self.emit("none")[0] + self.emit("auto")[0]], 2 * ["default"])
        self.add_schedule(cpu or CPU)
        for arguments, schedule in (["auto"], cpu or "default"), (["auto", "--no-auto"], "default"), (["none"], "default"):
            self.assertEqual([k["schedule"] for k in self.emit(*arguments)[0]], [schedule])

    def test_only_what_changed_is_emitted_again(self):
        pattern = "^halyard_rotate_half_f32(_in_place)?_x86_avx2$"
        self.emit(kernels=pattern)
        before = {path.name: path.stat().st_mtime_ns for path in self.out.glob("*.s")}
        self.edit_list(r"^(HALYARD_ROTATE.half, +f32, +)both(, +x86_avx2, .*)128, 16, (.*)32\)$",
                       r"\1out_of_place\g<2>128, 16, \g<3>32)\n\1in_place\g<2>64, 16, \3_)")
        self.emit(kernels=pattern)
        changed = {path.name for path in self.out.glob("*.s") if path.stat().st_mtime_ns != before[path.name]}
        self.assertEqual(changed, {"halyard_rotate_half_f32_in_place_x86_avx2.s"})
        self.emit()  # deletes kernels that are no longer selected
        self.assertEqual({path.stem for path in self.out.glob("*.s")}, {KERNEL})

    def test_a_run_that_fails_leaves_no_manifest(self):
        self.emit()
        self.edit_list(r"^(HALYARD_ROTATE.half, +f32, +both, +x86_avx2, .*)128, 16, ", r"\g<1>64, 16, ")
        self.emit(generator="/bin/false", status=1)
        self.assertFalse((self.out / "kernels_x86_avx2.json").exists())


unittest.main(argv=sys.argv[:1])
