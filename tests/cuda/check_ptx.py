"""check_ptx.py [--sass] FOLDER: how wide the accesses of every CUDA kernel are, which no result shows.

Loads and stores of x and y are of 128 bits, or of as many as the kernel's name says, but in kernels for any layout. Those
of the KV path load and store four elements at once; there, loads of x, which may be y, are no .nc. What else PTX must and
must not hold shows where the machine of checks/cuda executes it.

With --sass what NVIDIA's assembler, ptxas, makes of it: no more than 64 registers, or what the kernel says by .maxnreg;
no spills, no stack. It has fused nothing: there are as many FFMA as fma.rn.f32, and no fewer FMUL and FADD than mul.rn.f32
and add.rn.f32. (It makes FADD of other things too, and some code twice. Roots and quotients become such instructions, so
they are taken out before the count.) Since sm_90 the first KiB of shared memory is the system's: the kernel adds the
address of what it declares, 0x400, and no access has a lower one as a constant. ptxas and nvdisasm are those that ./run
test fetches, or those on the PATH; without them this prints SKIP.
"""

import concurrent.futures
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

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


def program(name):
    return shutil.which(name, path=FETCHED) or shutil.which(name)


def assemble(ptx, architecture):
    """What ptxas says of a kernel, and its instructions."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = pathlib.Path(folder, "ptx"), pathlib.Path(folder, "cubin")
        source.write_text(ptx)
        said = subprocess.run([program("ptxas"), "-v", f"-arch={architecture}", "-o", cubin, source],
                              capture_output=True, text=True)
        if said.returncode != 0:
            sys.exit(f"ptxas refuses a kernel for {architecture}: {said.stderr.strip()[:1000]}")
        sass = subprocess.run([program("nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
    return said.stderr, sass


def faults_of_sums(ptx, sass):
    """Whether products and sums are fused that should not be. There are no roots and quotients."""
    def count(op):  # FFMA2 is two
        return sum(2 if pair else 1 for pair in re.findall(rf"\b{op}(2?)\b", sass))

    for op, rounded in ("FFMA", "fma"), ("FMUL", "mul"), ("FADD", "add"):
        asked = len(re.findall(rf"\b{rounded}\.rn\.f32\b", ptx))
        if count(op) < asked or (op == "FFMA" and count(op) > asked):
            yield f"has {count(op)} {op} for {asked} {rounded}.rn.f32"


def faults_of_base(sass):
    """Whether shared memory is where it should be since sm_90."""
    accesses = re.findall(r"\b(?:LDS|STS)\b.*", sass)
    if accesses and not re.search(r"\bU?MOV U?R\d+, 0x400 ;", sass):
        yield "does not add the address of its shared memory"
    for access in accesses:
        constant = re.search(r"\[(0x[0-9a-f]+)?\]", access.replace("RZ", ""))
        if constant and int(constant[1] or "0", 16) < 0x400:
            yield f"reaches the system's shared memory: {access}"


def faults_of_sass(ptx, architecture):
    """What is wrong with what ptxas makes of a kernel for a device."""
    said, sass = assemble(ptx, architecture)
    registers, may_have = int(re.search(r"Used (\d+) registers", said)[1]), re.search(r"\.maxnreg (\d+)", ptx)
    if registers > (int(may_have[1]) if may_have else MOST_REGISTERS):
        yield f"takes {registers} registers"
    for count, what in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", said):
        if int(count) > 0:
            yield f"has {count} bytes of {what}"
    if architecture != "sm_80":
        yield from faults_of_base(sass)
        if ".shared" in ptx and not re.search(r"\b(LDS|STS)\b", sass):
            yield "uses no shared memory"
    # Something else stands in the place of roots and quotients.
    without_roots = ptx.replace("div.rn.f32", "xor.b32").replace("sqrt.rn.f32", "not.b32")
    yield from faults_of_sums(without_roots, sass if without_roots == ptx else assemble(without_roots, architecture)[1])


def main(arguments):
    by_sass = arguments[:1] == ["--sass"]
    paths = sorted(pathlib.Path(arguments[by_sass]).glob("*.ptx"))
    missing = [name for name in ("ptxas", "nvdisasm") if program(name) is None]
    if not by_sass:
        found = [f"{path.stem} {fault}" for path in paths for fault in faults(path.stem, path.read_text())]
    elif missing:
        print(f"SKIP: there is no {' and no '.join(missing)}, which ./run test fetches")
        return 0
    else:
        jobs = [(path, ptx, architecture) for path in paths for ptx in [path.read_text()] for architecture in ARCHITECTURES
                if architecture != "sm_80" or ".target sm_80" in ptx]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            found = [f"{path.stem} {fault} on {architecture}" for (path, _, architecture), faults_there in
                     zip(jobs, pool.map(lambda job: list(faults_of_sass(*job[1:])), jobs)) for fault in faults_there]
    print("\n".join(found) or f"{len(paths)} kernels are as they should be")
    return 1 if found or not paths else 0


sys.exit(main(sys.argv[1:]))
