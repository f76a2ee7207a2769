"""Tests bench/rivals/modelled.py: how it reads assembly, and, given a folder of kernels, that none of the NEON kernels is
modelled slower than a compiled C loop.

    test_modelled.py [KERNEL_FOLDER]
"""

import pathlib
import shutil
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "rivals"))
import modelled  # noqa: E402

# An in-order CPU and one that runs out of order.
CPUS = ["cortex-a55", "neoverse-n1"]
# The steady state of llvm-mca still wavers by a cycle in a hundred turns.
MARGIN = 0.01

# Outer loop, a vector loop with stores of three kinds, and a scalar tail.
ASSEMBLY = """
halyard_loop_half_f32:                  // @halyard_loop_half_f32
// %bb.0:
	stp	x29, x30, [sp, #-16]!           // 16-byte Folded Spill
.LBB0_1:                                // =>This Loop Header: Depth=1
	mov	x9, x8
	.p2align	5, , 16
.LBB0_2:                                //   Parent Loop BB0_1 Depth=1
	ldp	q0, q1, [x0]                    // data
	subs	x9, x9, #1
	stp	q0, q1, [x0], #32
	str	q2, [sp, #16]                   // 16-byte Folded Spill
	st2	{ v0.4s, v1.4s }, [x1], x2
	b.ne	.LBB0_2
// %bb.3:
	cbnz	x7, .LBB0_1
.LBB0_4:
	str	s0, [x3, x4, lsl #2]
	cbnz	x4, .LBB0_4
	ret
.Lfunc_end0:
"""

STORES_ARM = {
    "str q0, [x1, #16]": 16, "stur d0, [x1]": 8, "stp s0, s1, [x2]": 8, "str h0, [x1], #2": 2, "strh w0, [x1]": 2,
    "st1 { v0.8h }, [x0]": 16, "st1 { v0.s }[1], [x0]": 4, "st2 { v0.4h, v1.4h }, [x0], #16": 16,
    "st1w { z0.s }, p0, [x0, x1, lsl #2]": 32, "st1h { z0.s }, p0, [x0]": 16, "st2w { z0.s, z1.s }, p0, [x0]": 64,
    "str z0, [x0]": 32, "ldp q0, q1, [x0]": 0, "str q0, [sp, #32]": 0, "sub x0, x0, #1": 0,
}
STORES_X86 = {
    "vmovups %zmm0, (%rax,%rcx,4)": 64, "vmovups %ymm1, 32(%rdi)": 32, "vmovlps %xmm0, (%rax)": 8,
    "vcvtps2ph $4, %zmm0, (%rax)": 32, "vpmovdw %zmm0, (%rax)": 32, "vextractf128 $1, %ymm0, 16(%rax)": 16,
    "vextracti64x4 $1, %zmm0, (%rax)": 32, "vpextrw $0, %xmm0, (%rax)": 2, "vmovss %xmm0, (%rax,%r8)": 4,
    "vmovups (%rax), %ymm0": 0, "vmovaps %ymm0, 64(%rsp)": 0, "addq $1, (%rax)": 0,
}


class ReadsAssembly(unittest.TestCase):
    def test_stores(self):
        for line, n_bytes in STORES_ARM.items():
            self.assertEqual(modelled.stored_bytes_arm(line, 32), n_bytes, line)
        for line, n_bytes in STORES_X86.items():
            self.assertEqual(modelled.stored_bytes_x86(line, 0), n_bytes, line)

    def test_steady_loop(self):
        text = modelled.functions(ASSEMBLY)["halyard_loop_half_f32"]
        body, n_pairs = modelled.steady_loop(text, "aarch64", 8, 16)
        self.assertEqual(n_pairs, 8)  # 64 bytes: the pair of registers and the two of ST2, not the spill
        self.assertEqual([line.split()[0] for line in body], ["ldp", "subs", "stp", "str", "st2", "b.ne"])

    def test_write_back(self):
        self.assertEqual(modelled.without_write_back(["st2 { v0.4s, v1.4s }, [x1], x2", "str q0, [x3], #16",
                                                      "ldr q0, [x3], #16", "str q0, [x3, #16]"]),
                         ["st2 { v0.4s, v1.4s }, [x1]", "add x1, x1, x2", "str q0, [x3]", "add x3, x3, #16",
                          "ldr q0, [x3], #16", "str q0, [x3, #16]"])

    def test_no_loop(self):
        with self.assertRaises(modelled.ModelError):
            modelled.steady_loop("\tret\n", "aarch64", 8, 16)


class NeonKernels(unittest.TestCase):
    folder = None

    def test_none_is_slower_than_the_loop(self):
        if not self.folder:
            self.skipTest("no folder of kernels was given")
        rows = modelled.model_folders([self.folder], CPUS, "*")
        self.assertEqual({row["cpu"] for row in rows}, set(CPUS))
        for row in rows:
            with self.subTest(kernel=row["kernel"], cpu=row["cpu"]):
                self.assertLessEqual(row["ratio"], 1 + MARGIN)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        NeonKernels.folder = pathlib.Path(sys.argv.pop())
        for tool in (modelled.CLANG, modelled.MCA):
            if not shutil.which(tool):
                sys.exit(f"SKIP: {tool} is missing")
    unittest.main()
