"""test_emit.py GENERATOR COMPILER: the list of kernels, tuned schedules, and what emit.py makes of them.

A row or a schedule that is not understood is refused with a sentence. A schedule holds as long as what is emitted for
its kernel's default is the same.
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

import read_kernels  # noqa: E402
import tuned_schedules  # noqa: E402

GENERATOR, COMPILER = sys.argv[1:3]
KERNEL = "halyard_rotate_half_f32_x86_avx2"
DEVICE = "amd_1_2"
NUMBERS = {"elements_per_step": 64, "elements_per_step_any": 8, "elements_per_vector": 16, "heads_per_step": 2,
           "hoist_rows": 0}
LISTED = read_kernels.read()


def draft(kernel=KERNEL, device=DEVICE, numbers=None):
    """A schedule as ./run tune leaves it to variants.py, which seals it."""
    return json.dumps({"checksum": "", "default_sha256": "", "device": {"name": device}, "halide": "1.2.3",
                       "kernel": kernel, "parameters": numbers or NUMBERS, "schema": 4,
                       "target": tuned_schedules.linux_target(LISTED.kernels[kernel])}, indent=1)


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)


class List(Scratch):
    def refuse(self, old, new, why):
        text = read_kernels.LIST.read_text()
        self.assertIn(old, text)
        path = self.folder / "kernels.inc"
        path.write_text(text.replace(old, new, 1))
        with self.assertRaises(read_kernels.BadList) as refused:
            read_kernels.read(path)
        self.assertRegex(str(refused.exception), rf"kernels\.inc:\d+: {why}")

    def test_malformed_rows_are_refused(self):
        row = "HALYARD_ROWS(x86_avx2,   8)"
        for new, why in [
                (row[:-1], "this is no row: HALYARD_ROWS"),
                (row + ";", "this is no row: HALYARD_ROWS"),
                (row.replace("8", "8, 8"), "HALYARD_ROWS: too many positional arguments"),
                (row.replace("   8", ""), "'' is no word, number or text"),
                (row.replace(",   8", ""), "HALYARD_ROWS: missing a required argument"),
                (row.replace("ROWS", "ROW"), "there is no row HALYARD_ROW"),
                (row.replace("x86_avx2", "x86_avx"), "target is 'x86_avx', which is none of x86_avx512, "),
                (row.replace("x86_avx2", "cuda_sm80"), "target is 'cuda_sm80', which is none of x86_avx512, "),
                (row.replace("8)", "9)"), "pairs_per_step is '9', which is none of 4, 8, 16, 32"),
                (row.replace("x86_avx2", "x86_avx512"), "halyard_rows_phase_x86_avx512 is there already")]:
            self.refuse(row, new, why)
        row = "HALYARD_ROTATE(half,                f32,  both,         x86_avx2,   false, false, _,   128, 16, 8,     1,    1,    32)"
        for old, new, why in [("f32", "f64", "dtype is 'f64'"), ("half,", "halve,", "pairing is 'halve'"),
                              ("both", "non_temporal", "place is 'non_temporal'"),
                              ("both", "in_place", "non_temporal_mib is of no kernel that is in place"),
                              ("128", "4", "elements_per_vector exceeds elements_per_step"),
                              ("false", "no", "packed is 'no'")]:
            self.refuse(row, row.replace(old, new, 1), why)
        row = "HALYARD_GPU_ROTATE(strided,             f32,  both,         _,   cuda_sm80, false, _,   32,    4,   4,    64)"
        for old, new, why in [(" _, ", " 32, ", "bits is what a kernel has that is not strided"),
                              ("strided", "half", "bits is what a kernel has that is not strided"),
                              (" _, ", " 16, ", "bits is what a kernel has")]:
            self.refuse(row, row.replace(old, new, 1), why)
        self.refuse(row, row.replace("strided", "half", 1).replace(" _, ", " 16, ", 1), "bits is '16', which is none of")
        row = "HALYARD_STAGE(widen_norm,   f16,  cpus)"
        for old, new, why in [("widen_norm", "widen_twice", "stage is 'widen_twice', which is none of widen, norm, "),
                              ("f16", "f64", "dtype is 'f64', which is none of f32, f16, "),
                              ("cpus", "gpus", "target is 'gpus', which is none of x86_avx512, "),
                              ("widen_norm", "norm", "halyard_norm_f16_x86_avx512 is there already")]:
            self.refuse(row, row.replace(old, new, 1), why)

    def test_targets_are_best_first(self):
        text = read_kernels.LIST.read_text()
        better, worse = (re.search(rf"HALYARD_TARGET\({name},(.|\n)*?\)\n", text)[0] for name in ("x86_avx512", "x86_avx2"))
        self.refuse(better + worse, worse + better, "x86_avx512 has features that x86_avx2, which comes before it")
        of = [list(LISTED.targets).index(kernel.target.name) for kernel in LISTED.kernels.values()]
        self.assertEqual(of, sorted(of), "the library takes the first kernel that fits")


class Files(Scratch):
    """What is taken of good and bad schedules, where the default is as it was."""

    def setUp(self):
        super().setUp()
        self.path = self.folder / "schedule.json"
        self.good = tuned_schedules.seal(draft(), "0123")

    def read(self, text, kernel=KERNEL, device=DEVICE, default="0123"):
        self.path.write_bytes(text.encode())
        return tuned_schedules.read(self.path, LISTED.kernels[kernel], device, "1.2.3", LISTED, lambda: default)

    def refuse(self, text, why):
        with self.assertRaises(tuned_schedules.Unusable) as refused:
            self.read(text)
        self.assertRegex(str(refused.exception), f"^({why})$")

    def refuse_sealed(self, old, new, why):
        """A draft that is edited before it is sealed."""
        self.assertIn(old, draft())
        self.refuse(tuned_schedules.seal(draft().replace(old, new, 1), "0123"), why)

    def test_a_good_file_is_taken(self):
        self.assertEqual(self.read(self.good), NUMBERS)
        self.assertEqual(self.read(self.good.replace("\n", "\r\n")), NUMBERS)  # a checkout may have CRLF

    def test_a_gpu_has_schedules_too(self):
        kernel, device = "halyard_rotate_half_f32_cuda_sm80", "nvidia_h100_pcie"
        numbers = {"element_threads": 16, "few_tokens": 256, "head_threads": 8, "heads_per_thread": 1}
        text = tuned_schedules.seal(draft(kernel, device, numbers), "0123")
        self.assertEqual(self.read(text, kernel, device), numbers)

    def test_what_is_no_schedule_is_refused(self):
        for text in "", "\x7fELF;[;]]", f"[{self.good}]", "null", "[" * 100000:
            self.refuse(text, "it is not a JSON object")
        for length in 1, 20, 200:
            self.refuse(self.good[:-length], "it is not a JSON object")
        self.refuse("{}", "its schema is not 4")
        self.refuse_sealed('"schema": 4', '"schema": 3', "its schema is not 4")

    def test_an_edit_is_noticed(self):
        for i, letter in enumerate(self.good):  # every digit, the checksum's too
            if letter.isdecimal():
                edited = self.good[:i] + str((int(letter) + 1) % 10) + self.good[i + 1:]
                self.refuse(edited, f"its schema is not 4|{tuned_schedules.CHANGED}")
        for old, new in [("half", "interleaved"), ("\n", ""), ('"checksum"', '"sum"'),
                         ('"kernel"', '"note": "",\n "kernel"')]:
            self.assertIn(old, self.good)
            self.refuse(self.good.replace(old, new, 1), tuned_schedules.CHANGED)
        self.refuse(draft(), tuned_schedules.CHANGED)

    def test_each_field_is_checked(self):
        self.refuse_sealed("_half_", "_interleaved_", f'its kernel is not "{KERNEL}"')
        self.refuse_sealed(DEVICE, "amd_1_3", f'its device is not "{DEVICE}"')
        self.refuse_sealed('"device"', '"cpu"', f'its device is not "{DEVICE}"')
        self.refuse_sealed("1.2.3", "1.2.4", 'its halide is not "1.2.3"')
        self.refuse_sealed("-avx2-", "-avx512-", 'its target is not ".*"')

    def test_each_number_is_checked(self):
        steps = "its elements_per_step is none of 4, 8, 16, 32, 64, 128"
        for value in "24", '"64"', "6.4e1", "-64", "true", '{"64": 64}', "null":
            self.refuse_sealed('"elements_per_step": 64', f'"elements_per_step": {value}', steps)
        self.refuse_sealed('"parameters": {', '"parameters": {\n  "other": 4,', "its parameters are not 5")
        self.refuse_sealed('"parameters": {', '"parameters": [3], "elsewhere": {', "its parameters are not 5")
        self.refuse_sealed('"heads_per_step"', '"swap_members"', "its heads_per_step is none of 1, 2, 4")
        self.refuse_sealed('"elements_per_step": 64', '"elements_per_step": 8',
                           "its elements_per_vector exceeds its elements_per_step")

    def test_cpus_have_names(self):
        amd = "vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: A CPU\n"
        intel = "vendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 143\n"
        arm = "CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"
        for text, name in (amd, "amd_25_17"), (intel, "intel_6_143"), (arm, "arm_41_d0c"), ("vendor_id\t: Other\n", ""):
            self.path.write_text(text)
            self.assertEqual(tuned_schedules.cpu_name(self.path), name)
        self.assertEqual(tuned_schedules.cpu_name(self.folder / "none"), "")

    def test_another_default_is_noticed(self):
        with self.assertRaises(tuned_schedules.Unusable) as refused:
            self.read(self.good, default="4567")
        self.assertIn("measured against another default", str(refused.exception))


class Emission(Scratch):
    """What emit.py does, with a copy of the generators' programs and of the list that a test may change."""

    def setUp(self):
        super().setUp()
        self.generators, self.out = self.folder / "generators", self.folder / "out"
        (self.generators / "emit").mkdir(parents=True)
        for path in (GENERATORS / "emit").glob("*.py"):
            shutil.copy(path, self.generators / "emit")
        shutil.copy(read_kernels.LIST, self.generators)

    def edit_list(self, pattern, replacement):
        path = self.generators / "kernels.inc"
        text, n = re.subn(pattern, replacement, path.read_text(), count=1, flags=re.MULTILINE)
        self.assertEqual(n, 1)
        path.write_text(text)

    def add_schedule(self, device=DEVICE, kernel=KERNEL):
        path = self.folder / "draft.json"
        path.write_text(draft(kernel, device))
        (self.generators / "schedules").mkdir(exist_ok=True)
        subprocess.run([sys.executable, "-B", self.generators / "emit/variants.py", "seal", "--generator", GENERATOR,
                        "--compiler", COMPILER, path, self.generators / "schedules" / f"{kernel}.{device}.json"],
                       check=True)

    def emit(self, devices=(DEVICE,), generator=GENERATOR, kernels=f"^{KERNEL}$", target="x86_avx2"):
        """The manifest's kernels, and what was said."""
        done = subprocess.run(
            [sys.executable, "-B", self.generators / "emit/emit.py", "--generator", generator, "--halide", "1.2.3",
             "--triple", "x86-64-linux", "--target", target, "--kernels", kernels, "--compiler", COMPILER,
             "--schedules", *devices, "-o", self.out], stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads((self.out / f"kernels_{target}.json").read_text())["kernels"], done.stderr

    def expect_tuned(self, kernels, said):
        self.assertEqual([(k["schedule"], k["parameters"]) for k in kernels], [(DEVICE, NUMBERS)])
        self.assertEqual(said, "")

    def test_a_schedule_holds_as_long_as_the_default_is_the_same(self):
        self.add_schedule()
        self.expect_tuned(*self.emit())
        row = (self.out / "kernel_rows_x86_avx2.inc").read_text()
        self.assertEqual(row, f"HALYARD_KERNEL({KERNEL}, x86_avx2, half, half, f32, out_of_place, false, "
                              f'usual_non_temporal_mib, "{DEVICE}")\n')
        # A generator whose comments were changed is another file that emits the same.
        other = self.folder / "halyard_generator"
        shutil.copy(GENERATOR, other)
        with other.open("ab") as end:
            end.write(b"another comment")
        self.expect_tuned(*self.emit(generator=other))
        # A new kernel, and another comment in the list.
        self.edit_list("^(HALYARD_ROTATE.half, +f32, +)both(, +x86_avx2, )", r"\1out_of_place\2")
        self.edit_list("^// ---- ", "// ------ ")
        self.expect_tuned(*self.emit())
        # Another default.
        self.edit_list(r"^(HALYARD_ROTATE.half, +f32, +out_of_place, +x86_avx2, .*)128, 16, ", r"\g<1>64, 16, ")
        kernels, said = self.emit()
        self.assertEqual([(k["schedule"], k["parameters"]["elements_per_step"]) for k in kernels], [("default", 64)])
        self.assertEqual(said, f"warning: {KERNEL}.{DEVICE}.json is not used, and the kernel has its default schedule: "
                               "it was measured against another default than the one that is emitted now. "
                               "./run tune makes it anew.\n")

    def test_a_bad_file_leaves_the_default(self):
        self.add_schedule()
        path = self.generators / "schedules" / f"{KERNEL}.{DEVICE}.json"
        path.write_text(path.read_text().replace("1.2.3", "1.2.4"))
        kernels, said = self.emit()
        self.assertEqual([k["schedule"] for k in kernels], ["default"])
        self.assertEqual(said, f"warning: {path.name} is not used, and the kernel has its default schedule: "
                               f"{tuned_schedules.CHANGED}. ./run tune makes it anew.\n")

    def test_files_and_devices_that_do_not_belong_are_named(self):
        (self.generators / "schedules").mkdir()
        for name in "halyard_spin", "halyard_copy_16_cuda_sm80":
            (self.generators / "schedules" / f"{name}.{DEVICE}.json").write_text("{}")
        _, said = self.emit([DEVICE, "intel_3_4"], target="x86_avx512", kernels="^halyard_rows_phase")
        self.assertEqual(said, f"warning: halyard_copy_16_cuda_sm80.{DEVICE}.json is not used: no kernel of that name can "
                               f"be tuned.\nwarning: halyard_spin.{DEVICE}.json is not used: no kernel of that name can "
                               "be tuned.\nwarning: HALYARD_SCHEDULES names intel_3_4, for which generators/schedules "
                               "has no file.\n")

    def test_two_devices_are_refused_where_a_kernel_has_a_schedule_for_each(self):
        for device in DEVICE, "intel_3_4":
            self.add_schedule(device)
        with self.assertRaisesRegex(AssertionError, f"names intel_3_4 and {DEVICE}, which both have a schedule for "
                                    f"{KERNEL}"):
            self.emit(["intel_3_4", DEVICE])
        # A GPU may stand beside a CPU.
        (self.generators / f"schedules/{KERNEL}.intel_3_4.json").unlink()
        gpu = "halyard_rotate_half_f32_cuda_sm80"
        (self.generators / f"schedules/{gpu}.a_gpu.json").write_text("{}")
        self.expect_tuned(*self.emit([DEVICE, "a_gpu"]))
        _, said = self.emit([DEVICE, "a_gpu"], target="cuda_sm80", kernels=f"^{gpu}$")
        self.assertIn(f"{gpu}.a_gpu.json is not used", said)

    def test_auto_is_this_cpu(self):
        cpu = tuned_schedules.cpu_name()
        if not cpu:
            self.skipTest("this CPU has no name")
        self.add_schedule(cpu)
        self.assertEqual([k["schedule"] for k in self.emit(["auto"])[0]], [cpu])
        self.assertEqual([k["schedule"] for k in self.emit(["auto", "--no-auto"])[0]], ["default"])
        self.assertEqual([k["schedule"] for k in self.emit(["none"])[0]], ["default"])

    def test_only_what_changed_is_emitted_again(self):
        pattern = "^halyard_rotate_half_f32(_in_place)?_x86_avx2$"
        self.emit(kernels=pattern)
        before = {path.name: path.stat().st_mtime_ns for path in self.out.glob("*.s")}
        self.edit_list(r"^(HALYARD_ROTATE.half, +f32, +)both(, +x86_avx2, .*)128, 16, (.*)32\)$",
                       r"\1out_of_place\g<2>128, 16, \g<3>32)\n\1in_place\g<2>64, 16, \3_)")
        self.emit(kernels=pattern)
        changed = {path.name for path in self.out.glob("*.s") if path.stat().st_mtime_ns != before[path.name]}
        self.assertEqual(changed, {"halyard_rotate_half_f32_in_place_x86_avx2.s"})
        self.emit()  # what is needed no more goes
        self.assertEqual({path.stem for path in self.out.glob("*.s")}, {KERNEL})

    def test_a_run_that_fails_leaves_no_manifest(self):
        self.emit()
        self.edit_list(r"^(HALYARD_ROTATE.half, +f32, +both, +x86_avx2, .*)128, 16, ", r"\g<1>64, 16, ")
        with self.assertRaises(AssertionError):
            self.emit(generator="/bin/false")
        self.assertFalse((self.out / "kernels_x86_avx2.json").exists())


unittest.main(argv=sys.argv[:1])
