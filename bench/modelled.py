"""Models how many cycles a kernel takes for a pair on CPUs that are not at hand. llvm-mca models the innermost loop of
each kernel, and of the same rotation in rope.c, which clang -O3 compiles for the same CPU. Nothing is run or measured:
llvm-mca assumes that data are in the L1 cache and branches are predicted, and it is only as good as LLVM's models of
CPUs."""

import argparse
import fnmatch
import json
import pathlib
import re
import subprocess
import sys
import typing

# Older versions of LLVM use another CPU's model for most of these CPUs.
LLVM = "19"
CLANG, MCA = f"clang-{LLVM}", f"llvm-mca-{LLVM}"

# CPUs with a model of their own, by the target that dispatch takes there. LLVM models cortex-a72, -a76, -a78 and -x1 as
# cortex-a57, cortex-a710 and -x2 as neoverse-n2, and apple-m1 to -m4 as their ancestor Cyclone.
CPUS = {
    "arm_neon": ["cortex-a53", "cortex-a55", "cortex-a57", "cortex-a510", "neoverse-n1", "neoverse-n2", "neoverse-v1",
                 "neoverse-v2", "ampere1"],
    "x86_avx2": ["haswell", "znver3"],
    "x86_avx512": ["skylake-avx512", "icelake-server", "sapphirerapids", "znver4"],
}
SVE_BYTES = {"neoverse-v1": 32}  # of an SVE vector, which only C loops use; vectors of other CPUs have 16
ITERATIONS = 100  # of each loop that llvm-mca models


class ModelError(Exception):
    pass


class Row(typing.NamedTuple):
    kernel: str
    cpu: str
    cycles: float  # of the kernel, for a pair
    loop_cycles: float  # of the C loop, for a pair


def output_of(command, **options):
    try:
        done = subprocess.run(command, capture_output=True, text=True, **options)
    except FileNotFoundError:
        raise ModelError(f"{command[0]} is missing: install clang-{LLVM} and llvm-{LLVM}") from None
    if done.returncode:
        raise ModelError(f"{command[0]} failed: {done.stderr.strip()[:400]}")
    return done.stdout


# ---- Assembly --------------------------------------------------------------------------------------------------------


def functions(assembly):
    """The lines of each function, by its name."""
    return dict(re.findall(r"^(halyard_\w+):(.*?)^\.Lfunc_end", assembly, re.MULTILINE | re.DOTALL))


def loops_of_one_block(assembly):
    """The lines of each loop: from a label to a branch back to it, with no other label in between."""
    loops, label, body = [], None, []
    for line in assembly.splitlines():
        line = re.split(r"//|(?:^|\s)#\s", line)[0].strip()
        if line.endswith(":"):
            label, body = line[:-1], []
        elif line and not line.startswith("."):
            body.append(line)
            if re.split(r"[\s,]+", line)[-1] == label:
                loops.append(body)
                label, body = None, []
    return loops


def products(line, sve_bytes):
    """How many products of f32 an instruction makes."""
    found = re.match(r"fn?m(?:ul|la|ls|ad|sb|add|sub)\s+([vzs])\d+(?:\.(\d*)s)?,", line)
    if found:  # fmla v0.4s, ...; fmad z0.s, ...; fnmsub s0, ...
        return {"v": int(found[2] or 0), "z": sve_bytes // 4, "s": 1}[found[1]]
    found = re.match(r"v?(?:mul|fn?m(?:add|sub|addsub|subadd)(?:132|213|231))([ps])s\s.*%([xyz])mm\d+(?:\s*{.*})?$", line)
    if found:  # vfmadd231ps (%rax), %ymm0, %ymm1 {%k1}
        return 1 if found[1] == "s" else {"x": 4, "y": 8, "z": 16}[found[2]]
    return 0


def steady_loop(assembly, sve_bytes):
    """(the lines of a loop, how many pairs an iteration handles). A pair takes four products. The loop is the first of
    the innermost loops with the most products: a kernel's loop for known numbers of pairs, which has no tail."""
    loops = [(sum(products(line, sve_bytes) for line in body), body) for body in loops_of_one_block(assembly)]
    n_products, body = max(loops, key=lambda loop: loop[0], default=(0, []))
    if not n_products:
        raise ModelError("no loop with products was found")
    return body, n_products / 4


def without_write_back(body):
    """The loop with each store that also increments its address split into a store and an addition. llvm-mca lets the
    new address wait for the stored data, which chains the iterations of an in-place loop. Out-of-order CPUs do not."""
    split = []
    for line in body:
        post_index = re.fullmatch(r"(st\w+\s.*\[(x\d+)\]), (x\d+|#\d+)", line)
        split += [post_index[1], f"add {post_index[2]}, {post_index[2]}, {post_index[3]}"] if post_index else [line]
    return split


# ---- Models ----------------------------------------------------------------------------------------------------------


def model_loops(bodies, architecture, cpu):
    """How many cycles an iteration of each loop takes in the steady state."""
    text = "".join(f"# LLVM-MCA-BEGIN\n{chr(10).join(body)}\n# LLVM-MCA-END\n" for body in bodies)
    # The difference between N and 2 N iterations leaves out filling and draining the pipeline.
    cycles = [[region["SummaryView"]["TotalCycles"] for region in json.loads(output_of(
        [MCA, f"-mtriple={architecture}-linux-gnu", f"-mcpu={cpu}", "-json", f"-iterations={n}"],
        input=text))["CodeRegions"]] for n in (ITERATIONS, 2 * ITERATIONS)]
    return [(second - first) / ITERATIONS for first, second in zip(*cycles)]


def compiled_loops(cpu, architecture):
    """The functions of rope.c as assembly, by name. rope.c includes only the compiler's own headers."""
    which = "mcpu" if architecture == "aarch64" else "march"
    return functions(output_of([CLANG, f"--target={architecture}-linux-gnu", f"-{which}={cpu}", "-std=c11", "-O3",
                                "-ffp-contract=fast", "-ffreestanding", "-S", "-o", "-",
                                str(pathlib.Path(__file__).with_name("loops") / "rope.c")]))


def model_kernels(kernels, target, cpu):
    """A row for each kernel. `kernels` are pairs of a name and its assembly."""
    architecture = "aarch64" if target.startswith("arm") else "x86_64"
    loops = compiled_loops(cpu, architecture)
    bodies, pairs = [], []
    for name, assembly in kernels:
        rotation = re.fullmatch(rf"halyard_rotate_(\w+?)(?:_non_temporal)?_{target}", name)[1]
        for text in (functions(assembly)[name], loops[f"halyard_loop_{rotation}"]):
            try:
                body, n_pairs = steady_loop(text, SVE_BYTES.get(cpu, 16))
            except ModelError as error:
                raise ModelError(f"{name}: {error}") from None
            bodies.append(body)
            pairs.append(n_pairs)
    modelled = (model_loops(some, architecture, cpu) for some in (bodies, list(map(without_write_back, bodies))))
    costs = [min(both) / n_pairs for *both, n_pairs in zip(*modelled, pairs)]
    return [Row(name, cpu, ours, loop) for (name, _), ours, loop in zip(kernels, costs[::2], costs[1::2])]


def model_folders(folders, cpus, pattern):
    rows = []
    for target, known in CPUS.items():
        files = [file for folder in folders for file in sorted(folder.glob(f"halyard_rotate_*_{target}.s"))
                 if "_strided_" not in file.name]  # strided kernels serve any layout, and no C loop does
        kernels = [(file.stem, file.read_text()) for file in files if fnmatch.fnmatch(
            file.stem.removeprefix("halyard_rotate_").removesuffix(f"_{target}"), pattern)]
        for cpu in known if kernels else []:
            if not cpus or cpu in cpus:
                rows += model_kernels(kernels, target, cpu)
    if not rows:
        raise ModelError(f"no kernel for such a CPU matches \"{pattern}\"")
    return rows


def main():
    parser = argparse.ArgumentParser(prog="bench modelled", description=__doc__)
    parser.add_argument("folders", nargs="+", type=pathlib.Path, help="with the kernels' .s (./run names them)")
    parser.add_argument("--cpu", nargs="+", choices=[cpu for known in CPUS.values() for cpu in known], metavar="NAME",
                        help="only for these CPUs: %(choices)s")
    parser.add_argument("--filter", default="*", help="only kernels that match this glob, as in half_f32*")
    options = parser.parse_args()
    rows = model_folders(options.folders, options.cpu, options.filter)
    llvm = re.search(r"version (\S+)", output_of([MCA, "--version"]))[1]
    print(f"Modelled, not measured: llvm-mca {llvm}; C loop: bench/loops/rope.c by {CLANG} -O3 -ffp-contract=fast for "
          f"each CPU.\nCycles per pair in the steady state, and the ratio, below 1 where Halyard is faster.\n")
    print(f"{'kernel':46} {'CPU':15} {'Halyard':>7} {'C loop':>7} {'ratio':>6}")
    for kernel, cpu, ours, loop in rows:
        print(f"{kernel.removeprefix('halyard_rotate_'):46} {cpu:15} {ours:7.3f} {loop:7.3f} {ours / loop:6.2f}")


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:
        sys.exit(f"bench modelled: {error}")
