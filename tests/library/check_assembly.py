"""check_assembly.py ASSEMBLER KERNEL.s|FOLDER ...: what the assembly of every kernel must hold, and what it must not.

1. The assembler takes it for a machine that has what the target's name says, and nothing newer.
2. It calls nothing, gathers nothing and scatters nothing.
3. It has fused multiply-adds of its target's vectors, and the instructions that convert f16. A norm has those for
   square roots and quotients, and nothing has estimates of them.
4. No innermost loop spills: it writes to no fixed place on the stack. (It may read there: rows of cos and sin are more
   than the registers hold.)
"""

import collections
import pathlib
import re
import subprocess
import sys

Target = collections.namedtuple("Target", "march fused_vectors fused f16 roots")
avx2 = "generic64+avx2+f16c+fma+bmi+bmi2+lzcnt+movbe+popcnt"  # what runtime/core/cpu.cpp asks for
avx512 = avx2 + "+avx512f+avx512cd+avx512dq+avx512bw+avx512vl"
targets = {
    "x86_avx2": Target(avx2, "vfn?m(add|sub).*%ymm", "vfn?m(add|sub)", ["vcvtph2ps", "vcvtps2ph"],
                       ["vsqrtps", "vdivps"]),
    "x86_avx512": Target(avx512, "vfn?m(add|sub).*%zmm", "vfn?m(add|sub)", ["vcvtph2ps", "vcvtps2ph"],
                       ["vsqrtps", "vdivps"]),
    "arm_neon": Target("armv8-a", r"fml[as]\tv\d+\.4s", r"fml[as]|fn?m(add|sub)", ["fcvtl", "fcvtn"],
                       [r"fsqrt\tv", r"fdiv\tv"]),
}

# Kernels whose innermost loops spill, and how often at most: in a loop without branches, and in one with branches,
# where a tail's vectors are put together element by element. The first line that matches a kernel counts.
known_spills = [
    # A block has half as many vectors as there are registers, and sums need others.
    (r"hadamard_f32_x86_avx2", 4, 0),
    # The halves of sixteen groups are stored there, since they are read across groups, and not all stay in registers.
    (r"store_groups_int8_x86_avx512", 16, 2),
    (r"store_groups_int8_x86_avx2", 24, 2),
    (r"store_groups_int8_arm_neon", 18, 2),
    # LLVM puts the neighbours of NEON's sums together on the stack.
    (r"hadamard_f32_arm_neon", 80, 0),
    # Rows and weights of a step are more than their registers.
    (r"norm_rotate_bf16_x86_avx2", 2, 0),
    (r"norm_rotate_bf16_arm_neon", 1, 0),
    # Two or, at head_dim 80, three vectors of words in a row, each taken apart. One by one they take longer.
    (r"rotate_half_bf16(_in_place)?_x86_avx2", 15, 0),
    # Tails, and the fetching of their rows.
    (r"rotate_interleaved_to_half_.*_x86_avx(2|512)", 0, 80),
]


def innermost_loops(assembly):
    """The instructions of each innermost loop by its label. LLVM says which block belongs to which loop."""
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

    # ..._argv, which Halide adds, calls the kernel itself.
    for line in re.findall(r"^\t(?:callq?|blr?|jmp|b)\t.*", assembly, re.MULTILINE):
        if not re.search(rf"\t(\.L\w+|{kernel}(@PLT)?)\s*([#/].*)?$", line):
            yield f"calls something: {line.strip()}"
    for line in re.findall(r"^\t(?:v?rsqrt|v?rcp|frsqrt|frecp).*", assembly, re.MULTILINE):
        yield f"takes an estimate for a root or a quotient: {line.strip()}"
    for line in re.findall(r"^\tv?p?(?:gather|scatter).*", assembly, re.MULTILINE):
        yield f"gathers or scatters: {line.strip()}"

    stage = re.match("halyard_(widen_norm|layer_norm|norm_rotate|widen|norm|narrow|quantise|store_groups|load_groups|"
                     "largest|range|hadamard|butterfly)_", kernel)
    needed = [target.fused]
    if stage:
        needed = {"norm": [target.fused_vectors, *target.roots]}.get(
            stage[1].removeprefix("widen_").removeprefix("layer_").removesuffix("_rotate"), [])
        if "_f16_" in kernel:
            needed += [target.f16[0]] * (stage[1] != "narrow") + [target.f16[1]] * (stage[1] != "widen")
    elif "_strided_" not in kernel:  # which go element by element
        needed = [target.fused_vectors] + (target.f16 if "_f16_" in kernel else [])
    if "_non_temporal_" in kernel:  # whose stores have to be waited for
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
