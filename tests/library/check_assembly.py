"""check_assembly.py ASSEMBLER KERNEL.s|FOLDER ...: checks the assembly of every kernel.

1. It assembles for a machine that has only the target's instruction sets.
2. It has no calls, gathers and scatters.
3. It has fused multiply-adds of its target's full vectors, and kernels of f16 have the instructions that convert f16.
   Norms have exact square roots and divisions; no kernel has approximate ones (rsqrt, rcp).
4. No innermost loop spills: it stores nothing at a fixed address of the stack. (It may load from there, because rows
   of cos and sin need more registers than there are.)
"""

import collections
import pathlib
import re
import subprocess
import sys

Target = collections.namedtuple("Target", "march fused_vectors fused f16 roots")
avx2 = "generic64+avx2+f16c+fma+bmi+bmi2+lzcnt+movbe+popcnt"  # the features that runtime/core/cpu.cpp requires
avx512 = avx2 + "+avx512f+avx512cd+avx512dq+avx512bw+avx512vl"
targets = {
    "x86_avx2": Target(avx2, "vfn?m(add|sub).*%ymm", "vfn?m(add|sub)", ["vcvtph2ps", "vcvtps2ph"],
                       ["vsqrtps", "vdivps"]),
    "x86_avx512": Target(avx512, "vfn?m(add|sub).*%zmm", "vfn?m(add|sub)", ["vcvtph2ps", "vcvtps2ph"],
                       ["vsqrtps", "vdivps"]),
    "arm_neon": Target("armv8-a", r"fml[as]\tv\d+\.4s", r"fml[as]|fn?m(add|sub)", ["fcvtl", "fcvtn"],
                       [r"fsqrt\tv", r"fdiv\tv"]),
}

# Kernels whose innermost loops may spill: (kernel, most spills in a loop without branches, most spills in a loop with
# branches). A loop with branches assembles the vectors of a tail element by element. The first match counts.
known_spills = [
    # The vectors of a block take half of the registers, and their sums need more than the other half.
    (r"hadamard_f32_x86_avx2", 4, 0),
    # Sixteen groups are transposed through the stack, because they do not all fit into registers.
    (r"store_groups_int8_x86_avx512", 16, 2),
    (r"store_groups_int8_x86_avx2", 24, 2),
    (r"store_groups_int8_arm_neon", 18, 2),
    # LLVM shuffles the vectors of NEON's sums on the stack.
    (r"hadamard_f32_arm_neon", 80, 0),
    # Rows and weights of a step need more registers than there are.
    (r"norm_rotate_bf16_x86_avx2", 2, 0),
    (r"norm_rotate_bf16_arm_neon", 1, 0),
    # Each step unpacks two vectors of 16-bit elements at once, or three for head_dim 80. One vector per step is slower.
    (r"rotate_half_bf16(_in_place)?_x86_avx2", 15, 0),
    # In tails, rows and elements are loaded and stored one by one.
    (r"rotate_interleaved_to_half_.*_x86_avx(2|512)", 0, 80),
]


def innermost_loops(assembly):
    """The instructions of each innermost loop by its label. LLVM's comments name the loop of each block."""
    headers = re.findall(r"^\.L(BB\w+):(?:\s*[#/].*\n)*?.*This Inner Loop Header", assembly, re.MULTILINE)
    loops = {header: [] for header in headers}
    loop = None
    for line in assembly.splitlines():
        label = re.match(r"\.L(BB\w+):|(?:#|//) %bb", line)
        if label:
            loop = label.group(1)
        inside = re.search(r"in Loop: Header=(BB\w+) ", line)
        if inside:
            loop = inside.group(1)
        if loop in loops and re.match(r"\t[a-z]", line):
            loops[loop].append(line.strip())
    return loops


def faults(assembler, path):
    kernel, assembly = path.stem, path.read_text()
    name = next(name for name in targets if kernel.endswith("_" + name))
    target = targets[name]
    run = subprocess.run([assembler, f"-march={target.march}", "-o", "/dev/null", path], capture_output=True, text=True)
    if run.returncode != 0:
        yield f"has instructions that {name} lacks:\n{run.stderr}"

    # A call of the kernel itself is allowed: Halide adds a function ..._argv that makes it.
    for line in re.findall(r"^\t(?:callq?|blr?|jmp|b)\t.*", assembly, re.MULTILINE):
        if not re.search(rf"\t(\.L\w+|{kernel}(@PLT)?)\s*([#/].*)?$", line):
            yield f"calls something: {line.strip()}"
    for line in re.findall(r"^\t(?:v?rsqrt|v?rcp|frsqrt|frecp).*", assembly, re.MULTILINE):
        yield f"takes an estimate for a root or a quotient: {line.strip()}"
    for line in re.findall(r"^\tv?p?(?:gather|scatter).*", assembly, re.MULTILINE):
        yield f"gathers or scatters: {line.strip()}"

    if "_strided_" in kernel:  # these kernels work element by element
        needed = [target.fused]
    else:
        needed = [target.fused_vectors] if re.match("halyard_(rotate|rows|(widen_|layer_)?norm)_", kernel) else []
        needed += target.roots if "norm_" in kernel else []
        if "_f16_" in kernel:
            is_widen, is_narrow = (kernel.startswith(f"halyard_{op}_f16") for op in ("widen", "narrow"))
            needed += target.f16[:1] if is_widen else target.f16[1:] if is_narrow else target.f16
    if "_non_temporal_" in kernel:  # non-temporal stores need a fence before the kernel returns
        needed += ["vmovntps", r"sfence\n\tretq"]
    for pattern in needed:
        if not re.search(pattern, assembly):
            yield f"has no {pattern}"

    loops = innermost_loops(assembly)
    if not any(loops.values()):
        yield "has no loop that LLVM marks as innermost"
    known = next((known for known in known_spills if re.fullmatch("halyard_" + known[0], kernel)), ("", 0, 0))
    for label, instructions in loops.items():
        branches = [line for line in instructions if re.match(r"j|b\.|cbn?z|tbn?z", line)]
        spills = [line for line in instructions
                  if re.search(r"^(?!cmp|test).*, -?\d*\(%rsp\)(\s|$)|^st.*\[sp(, #-?\d+)?\]", line)]
        most = known[2] if len(branches) > 1 else known[1]
        if len(spills) > most:
            yield f"spills {len(spills)} times, not {most}, in the loop .L{label}, first in: {spills[0]}"


def main(assembler, *paths):
    paths = sorted(file for path in map(pathlib.Path, paths) for file in (path.glob("*.s") if path.is_dir() else [path]))
    found = [f"{path.stem} {fault}" for path in paths for fault in faults(assembler, path)]
    print("\n".join(found) or f"{len(paths)} kernels are as they should be")
    return 1 if found or not paths else 0


sys.exit(main(*sys.argv[1:]))
