"""Models what a pair costs on CPUs that are not at hand. llvm-mca compares the innermost loop of each kernel with that
of loop.c, which clang -O3 compiles for the same CPU. Nothing is run or measured: the model assumes that data are in the
first cache and branches are predicted, and it is only as good as LLVM's models."""

import argparse
import fnmatch
import json
import os
import pathlib
import re
import subprocess
import sys

# Older versions use another CPU's model for most of these CPUs.
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
SVE_BYTES = {"neoverse-v1": 32}  # of a scalable vector, which only the C loop uses; other CPUs have 16
TURNS = 100


class ModelError(Exception):
    pass


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
    """The lines between a label and a branch back to it, where no other label is between."""
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
    """The first of the innermost loops that multiply most, which is a kernel's loop for the head sizes that it knows,
    without tails; and how many pairs, of four products each, one turn of it handles."""
    loops = [(sum(products(line, sve_bytes) for line in body), body) for body in loops_of_one_block(assembly)]
    n_products, body = max(loops, key=lambda loop: loop[0], default=(0, []))
    if not n_products:
        raise ModelError("no loop with products was found")
    return body, n_products / 4


def without_write_back(body):
    """A loop whose stores do not add to their addresses; additions follow instead. llvm-mca lets the new address wait
    for the data, which makes one long chain of a loop in place; a CPU that runs out of order does not wait."""
    split = []
    for line in body:
        post_index = re.fullmatch(r"(st\w+\s.*\[(x\d+)\]), (x\d+|#\d+)", line)
        split += [post_index[1], f"add {post_index[2]}, {post_index[2]}, {post_index[3]}"] if post_index else [line]
    return split


# ---- Models ----------------------------------------------------------------------------------------------------------


def model_loops(bodies, architecture, cpu):
    """For each loop, how many cycles a turn takes in the steady state and what limits it; and the name of the model."""
    text = "".join(f"# LLVM-MCA-BEGIN\n{chr(10).join(body)}\n# LLVM-MCA-END\n" for body in bodies)
    # The difference between N turns and 2 N leaves out filling and draining the pipeline.
    first, second = (json.loads(output_of([MCA, f"-mtriple={architecture}-linux-gnu", f"-mcpu={cpu}", "-json",
                                           f"-iterations={turns}"], input=text)) for turns in (TURNS, 2 * TURNS))
    resources = [name.split(".")[0] for name in first["TargetInfo"]["Resources"]]
    costs = []
    for before, after in zip(first["CodeRegions"], second["CodeRegions"]):
        summary = after["SummaryView"]
        cycles = (summary["TotalCycles"] - before["SummaryView"]["TotalCycles"]) / TURNS
        limits = [(summary["TotaluOps"] / summary["Iterations"] / summary["DispatchWidth"], "dispatch")]
        # The row behind the last instruction is for the whole turn.
        limits += [(row["ResourceUsage"], resources[row["ResourceIndex"]])
                   for row in after["ResourcePressureView"]["ResourcePressureInfo"]
                   if row["InstructionIndex"] == len(after["Instructions"])]
        busiest, name = max(limits)
        costs.append((cycles, name if busiest >= 0.9 * cycles else "latency"))
    # The names of resources say which model this is: N1UnitV0, SKXPort5.
    return costs, re.sub("(Unit|Port).*", "", os.path.commonprefix(resources))


def compiled_loops(cpu, architecture):
    """The functions of loop.c in assembly. They need only the compiler's own headers."""
    which = "mcpu" if architecture == "aarch64" else "march"
    return functions(output_of([CLANG, f"--target={architecture}-linux-gnu", f"-{which}={cpu}", "-std=c11", "-O3",
                                "-ffp-contract=fast", "-ffreestanding", "-S", "-o", "-",
                                str(pathlib.Path(__file__).with_name("loop.c"))]))


def model_kernels(kernels, target, cpu):
    """A row for each kernel; kernels are names with their assembly."""
    architecture = "aarch64" if target.startswith("arm") else "x86_64"
    loops = compiled_loops(cpu, architecture)
    bodies, pairs = [], []
    for name, assembly in kernels:
        work = re.fullmatch(rf"halyard_rotate_(\w+?)(?:_non_temporal)?_{target}", name)[1]
        for text in (functions(assembly)[name], loops[f"halyard_loop_{work}"]):
            try:
                body, n_pairs = steady_loop(text, SVE_BYTES.get(cpu, 16))
            except ModelError as error:
                raise ModelError(f"{name}: {error}") from None
            bodies.append(body)
            pairs.append(n_pairs)
    costs, model = model_loops(bodies, architecture, cpu)
    costs = [min(both) for both in
             zip(costs, model_loops([without_write_back(body) for body in bodies], architecture, cpu)[0])]
    rows = []
    for i, (name, _) in enumerate(kernels):
        (cycles, bound), (loop_cycles, loop_bound) = costs[2 * i:2 * i + 2]
        ours, loop = cycles / pairs[2 * i], loop_cycles / pairs[2 * i + 1]
        rows.append({"kernel": name, "cpu": cpu, "model": model, "modelled": True, "cycles_per_pair": round(ours, 4),
                     "bound": bound, "loop_cycles_per_pair": round(loop, 4), "loop_bound": loop_bound,
                     "ratio": round(ours / loop, 4)})
    return rows


def model_folders(folders, cpus, pattern):
    rows = []
    for target, known in CPUS.items():
        files = [file for folder in folders for file in sorted(folder.glob(f"halyard_rotate_*_{target}.s"))
                 if "_strided_" not in file.name]  # these serve any layout, so there is no C loop to compare with
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
    parser.add_argument("--json", help="also write the rows to this file")
    options = parser.parse_args()
    rows = model_folders(options.folders, options.cpu, options.filter)
    llvm = re.search(r"version (\S+)", output_of([MCA, "--version"]))[1]
    print(f"Modelled, not measured: llvm-mca {llvm}; C loop: bench/rivals/loop.c by {CLANG} -O3 -ffp-contract=fast for each "
          f"CPU.\nCycles per pair in the steady state, and the ratio, below 1 where Halyard is faster.\n")
    print(f"{'kernel':46} {'CPU':15} {'model':10} {'Halyard':>7} {'C loop':>7} {'ratio':>6}  bound by (C loop by)")
    for row in rows:
        print(f"{row['kernel'].removeprefix('halyard_rotate_'):46} {row['cpu']:15} {row['model']:10} "
              f"{row['cycles_per_pair']:7.3f} {row['loop_cycles_per_pair']:7.3f} {row['ratio']:6.2f}  "
              f"{row['bound']} ({row['loop_bound']})")
    if options.json:
        try:
            pathlib.Path(options.json).write_text(json.dumps({"modelled": True, "llvm": llvm, "rows": rows}, indent=1) +
                                                  "\n")
        except OSError as error:
            raise ModelError(f"{options.json} could not be written: {error.strerror}") from None


if __name__ == "__main__":
    try:
        main()
    except ModelError as error:
        sys.exit(f"bench modelled: {error}")
