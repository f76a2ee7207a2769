"""check_ptx.py [--sass] FOLDER: checks the width of each CUDA kernel's memory accesses and the number of instructions
of the KV path, which no test of results sees.

Kernels of a rotation load and store 128 bits of x and y at a time, or the number of bits in the kernel's name; strided
kernels are not checked. Kernels of the KV path load and store four elements at a time, or eight of heads of up to 80
16-bit elements. They must not load x by .nc, because y may be the same memory. Behind the last barrier, a lane takes at
most 16.5 instructions for an element, or 32 if it converts to e4m3 and its target has no instruction for that.

The emulated CUDA device of checks/cuda checks the rest when it executes PTX: it refuses sums and products without .rn,
which ptxas would fuse, and the first KiB of shared memory, which the system reserves since sm_90.

With --sass, checks the code that NVIDIA's assembler ptxas makes: at most 64 registers, or as many as .maxnreg in the
kernel allows; no spills and no stack. Uses the ptxas that ./run test fetches, or the one on the PATH; else prints SKIP.
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
    """The bits of each load or store whose instruction matches `access`."""
    return [int(vector or 1) * int(bits) for vector, bits in re.findall(rf"\b{access}(?:\.v(\d))?\.b(\d+)\s", ptx)]


def instructions_behind_barrier(ptx):
    """The number of instructions behind the last barrier, without those that ptxas removes."""
    behind = ptx[ptx.rindex("bar.sync"):]
    removed = r"\n\t(mov\.b|ld\.param|cvt\.u\d\d\.u|add\.s64 \t%shared1).*"
    return re.sub(removed, "", behind[:behind.index("\tret;")]).count(";")


def faults(name, ptx):
    stores, loads = widths(r"st\.global", ptx), widths(r"ld\.global(?:\.nc)?", ptx)
    coherent_loads = widths(r"ld\.global", ptx)  # without .nc: they see earlier stores of the kernel
    if kv := re.match(r"halyard_kv_(f32|f16|bf16)(_e4m3)?_(\d+)_", name):
        bits, n_accesses = 32 if kv[1] == "f32" else 16, int(kv[3]) // 16
        elements = 8 if bits == 16 and n_accesses <= 5 else 4
        if stores != [(8 if kv[2] else bits) * elements] * n_accesses:
            yield f"stores {stores} bits at once"
        per_element = instructions_behind_barrier(ptx) / (n_accesses * elements)
        if per_element > (32 if kv[2] and "_sm80" in name else 16.5):
            yield f"takes {per_element:.1f} instructions for an element"
        x_and_weights = [each * elements for each in (bits, 32 if "_w_f32_" in name else bits)] * n_accesses
        if sorted(coherent_loads) != sorted(x_and_weights) or ".nc.v" in ptx:
            yield f"loads x and weights by {coherent_loads} bits without .nc, or by .nc"
    elif ("_rotate_" in name and "_strided_" not in name) or "_copy_128_" in name:
        by = re.search(r"_by_(\d+)_", name)
        bits = int(by[1]) if by else 128
        if set(stores) != {bits} or bits not in loads or ("_in_place_" in name and set(coherent_loads) != {bits}):
            yield f"loads {loads} bits at once, and stores {stores}"


def faults_of_sass(ptxas, path, architecture):
    """Yields the faults of the code that ptxas makes from a kernel for an architecture."""
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
