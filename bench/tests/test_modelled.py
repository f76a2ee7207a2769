"""Tests bench/modelled.py: how it reads assembly, and, given a folder of kernels, that none of the NEON kernels
is modelled slower than a compiled C loop.

    test_modelled.py [KERNEL_FOLDER]
"""

import pathlib
import shutil
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import modelled  # noqa: E402

# An in-order CPU and one that runs out of order.
CPUS = ["cortex-a55", "neoverse-n1"]
# Even in the steady state, llvm-mca's result varies by a cycle in a hundred iterations.
MARGIN = 0.01

# An outer loop, a vector loop with products of three kinds, and a scalar tail.
ASSEMBLY = """
halyard_loop_half_f32:                  // @halyard_loop_half_f32
// %bb.0:
	stp	x29, x30, [sp, #-16]!           // 16-byte Folded Spill
.LBB0_1:                                // =>This Loop Header: Depth=1
	mov	x9, x8
	.p2align	5, , 16
.LBB0_2:                                //   Parent Loop BB0_1 Depth=1
	ldp	q0, q1, [x0]                    // data
	fmul	v2.4s, v0.4s, v4.4s
	fmul	v3.4s, v1.4s, v4.4s
	fmla	v3.4s, v0.4s, v5.4s
	fmls	v2.4s, v1.4s, v5.4s
	fmul	v6.2s, v0.2s, v5.s[1]
	subs	x9, x9, #1
	st2	{ v2.4s, v3.4s }, [x1], x2
	b.ne	.LBB0_2
// %bb.3:
	cbnz	x7, .LBB0_1
.LBB0_4:
	fmul	s0, s1, s2
	str	s0, [x3, x4, lsl #2]
	cbnz	x4, .LBB0_4
	ret
.Lfunc_end0:
"""

PRODUCTS = {
    "fmul v0.4s, v1.4s, v2.4s": 4, "fmla v0.2s, v1.2s, v2.s[1]": 2, "fmls v0.4s, v1.4s, v2.4s": 4,
    "fnmul s0, s1, s2": 1, "fmadd s0, s1, s2, s3": 1, "fnmsub s0, s1, s2, s3": 1, "fmul z0.s, p0/m, z0.s, z1.s": 8,
    "fnmls z0.s, p0/m, z1.s, z2.s": 8, "fmad z0.s, p0/m, z1.s, z2.s": 8, "fadd v0.4s, v1.4s, v2.4s": 0,
    "fmov s0, w0": 0, "fmax v0.4s, v1.4s, v2.4s": 0, "fneg v0.4s, v1.4s": 0, "mul x0, x1, x2": 0,
    "madd x0, x1, x2, x3": 0, "str q0, [x1]": 0,
    "vmulps %zmm0, %zmm1, %zmm2": 16, "vmulps (%rax,%rcx,4), %ymm1, %ymm2": 8, "mulps %xmm0, %xmm1": 4,
    "mulss (%rax), %xmm1": 1, "vfmadd231ps %zmm0, %zmm1, %zmm2 {%k1}": 16, "vfmsub213ps 32(%rdi), %ymm1, %ymm2": 8,
    "vfmaddsub132ps %xmm0, %xmm1, %xmm2": 4, "vfnmadd231ss %xmm0, %xmm1, %xmm2": 1,
    "vfmadd231ps (%rax){1to16}, %zmm0, %zmm1": 16,
    "vaddps %ymm0, %ymm1, %ymm2": 0, "imulq %rax, %rcx": 0, "vpmulld %ymm0, %ymm1, %ymm2": 0,
    "vmovups %zmm0, (%rax)": 0,
}


class ReadsAssembly(unittest.TestCase):
    def test_products(self):
        for line, n in PRODUCTS.items():
            self.assertEqual(modelled.products(line, 32), n, line)

    def test_steady_loop(self):
        text = modelled.functions(ASSEMBLY)["halyard_loop_half_f32"]
        body, n_pairs = modelled.steady_loop(text, 16)
        self.assertEqual(n_pairs, (4 * 4 + 2) / 4)
        self.assertEqual([line.split()[0] for line in body],
                         ["ldp", "fmul", "fmul", "fmla", "fmls", "fmul", "subs", "st2", "b.ne"])

    def test_write_back(self):
        self.assertEqual(modelled.without_write_back(["st2 { v0.4s, v1.4s }, [x1], x2", "str q0, [x3], #16",
                                                      "ldr q0, [x3], #16", "str q0, [x3, #16]"]),
                         ["st2 { v0.4s, v1.4s }, [x1]", "add x1, x1, x2", "str q0, [x3]", "add x3, x3, #16",
                          "ldr q0, [x3], #16", "str q0, [x3, #16]"])

    def test_no_loop(self):
        with self.assertRaises(modelled.ModelError):
            modelled.steady_loop("\tret\n", 16)


class NeonKernels(unittest.TestCase):
    folder = None

    def test_none_is_slower_than_the_loop(self):
        if not self.folder:
            self.skipTest("no folder of kernels was given")
        rows = modelled.model_folders([self.folder], CPUS, "*")
        self.assertEqual({row.cpu for row in rows}, set(CPUS))
        for row in rows:
            with self.subTest(kernel=row.kernel, cpu=row.cpu):
                self.assertLessEqual(row.cycles / row.loop_cycles, 1 + MARGIN)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        NeonKernels.folder = pathlib.Path(sys.argv.pop())
        for tool in (modelled.CLANG, modelled.MCA):
            if not shutil.which(tool):
                sys.exit(f"SKIP: {tool} is missing")
    unittest.main()
