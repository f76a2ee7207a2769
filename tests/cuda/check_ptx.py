"""check_ptx.py [--sass] FOLDER: how wide the accesses of every CUDA kernel are, which no result shows.

Loads and stores of x and y are of 128 bits, or of as many as the kernel's name says, but in kernels for any layout.
Those of the KV path load and store four elements at once; there, loads of x, which may be y, are no .nc. What else
PTX must and must not hold shows where the machine of checks/cuda executes it: it knows no sum or product without .rn,
which ptxas fuses, and has nothing in the first KiB of shared memory, which is the system's since sm_90.

With --sass what NVIDIA's assembler, ptxas, makes of it: no more than 64 registers, or what the kernel says by .maxnreg;
no spills, no stack. ptxas is the one that ./run test fetches, or that on the PATH; without it this prints SKIP.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys

ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "sm_120"]
MOST_REGISTERS = 64
FETCHED = pathlib.Path(__file__).parents[2] / ".deps/cuda/nvidia/cu13/bin"


def widths(access, ptx):
    """The bits of each load or store."""
    return [int(vector or 1) * int(bits) for vector, bits in re.findall(rf"\b{access}(?:\.v(\d))?\.b(\d+)\s", ptx)]


def faults(name, ptx):
    stores, loads = widths(r"st\.global", ptx), widths(r"ld\.global(?:\.nc)?", ptx)
    see_stores = widths(r"ld\.global", ptx)
    if kv := re.match(r"halyard_kv_(f32|f16|bf16)(_e4m3)?_(\d+)_", name):
        bits, n_accesses = 128 if kv[1] == "f32" else 64, int(kv[3]) // 16
        if stores != [32 if kv[2] else bits] * n_accesses:
            yield f"stores {stores} bits at once"
        of_weights = n_accesses * (2 if kv[1] == "f32" or "_w_f32_" in name else 1)
        if sorted(see_stores) != sorted([bits] * n_accesses + [64] * of_weights) or ".nc.v" in ptx:
            yield f"loads x and weights by {see_stores} bits where it sees what was written, or by .nc"
    elif ("_rotate_" in name and "_strided_" not in name) or "_copy_128_" in name:
        by = re.search(r"_by_(\d+)_", name)
        bits = int(by[1]) if by else 128
        if set(stores) != {bits} or bits not in loads or ("_in_place_" in name and set(see_stores) != {bits}):
            yield f"loads {loads} bits at once, and stores {stores}"


def faults_of_sass(ptxas, path, architecture):
    """What is wrong with what ptxas makes of a kernel for a device."""
    ptx = path.read_text()
    if architecture == "sm_80" and ".target sm_89" in ptx:
        return
    command = [ptxas, "-v", f"-arch={architecture}", "-o", os.devnull, path]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"ptxas refuses a kernel for {architecture}: {done.stderr.strip()[:1000]}")
    registers, may_have = int(re.search(r"Used (\d+) registers", done.stderr)[1]), re.search(r"\.maxnreg (\d+)", ptx)
    if registers > (int(may_have[1]) if may_have else MOST_REGISTERS):
        yield f"takes {registers} registers"
    for count, what in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", done.stderr):
        if int(count) > 0:
            yield f"has {count} bytes of {what}"


def main(arguments):
    by_sass = arguments[:1] == ["--sass"]
    paths = sorted(pathlib.Path(arguments[by_sass]).glob("*.ptx"))
    ptxas = shutil.which("ptxas", path=FETCHED) or shutil.which("ptxas")
    if not by_sass:
        found = [f"{path.stem} {fault}" for path in paths for fault in faults(path.stem, path.read_text())]
    elif ptxas is None:
        print("SKIP: there is no ptxas, which ./run test fetches")
        return 0
    else:
        jobs = [(ptxas, path, architecture) for path in paths for architecture in ARCHITECTURES]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [f"{path.stem} {fault} on {architecture}" for (_, path, architecture), faults_there in
                     zip(jobs, pool.map(lambda job: list(faults_of_sass(*job)), jobs)) for fault in faults_there]
    print("\n".join(found) or f"{len(paths)} kernels are as they should be")
    return 1 if found or not paths else 0


sys.exit(main(sys.argv[1:]))
