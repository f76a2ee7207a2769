"""check_ptx.py [--sass] FOLDER: what the PTX of every CUDA kernel must hold.

1. Every element that a rotation stores comes from fma.rn.f32 whose addend is a rounded product, mul.rn.f32: the
   canonical form. The fused product is of the element itself: f32, of the same place in the vector that was loaded,
   unless the pairing changes; in place, of what was loaded from the address that is stored to.
2. Loads and stores of x and y are of 128 bits, or of as many as the kernel's name says, but in kernels for any layout.
   Those of the KV path load and store four elements at once; there the rotation is one fused sum with a rounded
   product, root and quotients are the nearest floats, and no vector's load is .nc, for x may be y.
3. Nothing flushes denormals (.ftz), calls, uses local memory, or traps: Halide asserts that way. No product or sum is
   without .rn, for NVIDIA's assembler may fuse those.

With --sass also what NVIDIA's assembler, ptxas, makes of it: no more than 64 registers, or what the kernel says by
.maxnreg; no spills, no stack. It has fused nothing: there are as many FFMA as fma.rn.f32, and no fewer FMUL and FADD
than mul.rn.f32 and add.rn.f32. (It makes FADD of other things too, and some code twice. Roots and quotients become
such instructions, so they are taken out before the count.) Since sm_90 the first KiB of shared memory is the system's: the kernel adds the address of what it
declares, 0x400, and no access has a lower one as a constant. ptxas and nvdisasm are those that ./run test fetches, or
those on the PATH; without them this prints SKIP.
"""

import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "sm_120"]
MOST_REGISTERS = 64
FETCHED = pathlib.Path(__file__).parents[2] / ".deps/cuda/nvidia/cu13/bin"

Instruction = collections.namedtuple("Instruction", "op sources address lane")


def definitions(body):
    """What each register may have been set by, and the stores: (address, operands)."""
    sets, stores = collections.defaultdict(list), []
    for line in body.splitlines():
        line = re.sub(r"\s*//.*", "", line).strip()
        line = re.sub(r"^\{ \.reg \.b\d+ tmp; (.*;) \}$", r"\1", line)
        match = re.match(r"(?:@!?%p\d+ )?([a-z][\w.]*)\s+(.*?);?$", line)
        if not match:
            continue
        op, operands = match.groups()
        address = re.search(r"\[(.*?)\]", operands)
        if op.startswith("st."):
            if op.startswith("st.global"):
                stores.append((address.group(1), re.findall(r"%\w+", operands.split("]")[1])))
        elif address:
            for lane, register in enumerate(re.findall(r"%\w+", operands.split("[")[0])):
                sets[register].append(Instruction(op, [], address.group(1), lane))
        else:
            targets = re.match(r"\{([^}]*)\}|%\w+", operands)
            if targets:
                sources = re.findall(r"%[a-z]+\d+", operands[targets.end():])
                for register in re.findall(r"%\w+", targets.group(0)):
                    sets[register].append(Instruction(op, sources, None, None))
    return sets, stores


def trace(sets, register, stop):
    """The instructions for which stop() is true, or that have no sources, that a value comes from."""
    found, seen, pending = [], set(), [register]
    while pending:
        name = pending.pop()
        if name in seen:
            continue
        seen.add(name)
        for instruction in sets.get(name, []):
            if stop(instruction) or instruction.address:
                found.append(instruction)
            elif not instruction.op.startswith("setp"):  # a NaN's selection
                pending.extend(instruction.sources)
    return found


def is_fma(instruction):
    return instruction.op == "fma.rn.f32"


def loads_of_x(sets, register):
    """Loads from global memory; cos and sin come through shared memory."""
    return [i for i in trace(sets, register, lambda _: False) if i.op.startswith("ld.global")]


def bits_of(op):
    """The bits of a load or a store."""
    vector, element = re.search(r"(?:\.v(\d))?\.[a-z](\d+)$", op).groups()
    return int(vector or 1) * int(element)


def faults_of_rotation(body, in_place, is_f32, is_strided, changes, bits):
    sets, stores = definitions(body)
    if not stores:
        yield "stores nothing"
    widths = {bits_of(op) for op in re.findall(r"\b(st\.global[.\w]*)", body)}
    if not is_strided and widths != {bits}:
        yield f"stores {sorted(widths)} bits at once"
    if not is_strided and bits not in map(bits_of, re.findall(r"\b(ld\.global[.\w]*)", body)):
        yield f"loads no {bits} bits at once"
    for address, elements in stores:
        for lane, element in enumerate(elements):
            n_in = 2 if element.startswith("%rd") else 1  # floats in a register
            values = [i for i in trace(sets, element, is_fma) if i.op != "ld.param.b32"]  # the canonical NaN
            if not values or not all(map(is_fma, values)) or (is_f32 and len(values) != n_in):
                yield f"stores at {address} other things than one fused sum"
            for fused in filter(is_fma, values):
                addend = trace(sets, fused.sources[2], lambda i: i.op == "mul.rn.f32")
                if not addend or not all(i.op.startswith("mul.") for i in addend):
                    yield f"adds no rounded product at {address}"
                own = [load for source in fused.sources[:2] for load in loads_of_x(sets, source)]
                has_place = is_f32 and not changes
                places = {(load.address if in_place else "", load.lane if has_place else 0) for load in own}
                if places != {(address if in_place else "", lane if has_place else 0)}:
                    yield f"fuses the product of {sorted(places)} at {address}, place {lane}"
    if in_place and not is_strided:
        narrow = [i.op for all_of in sets.values() for i in all_of
                  if i.op.startswith("ld.global.") and ".nc" not in i.op and bits_of(i.op) != bits]
        if narrow:
            yield f"loads x by {sorted(set(narrow))}"


def faults_of_kv(body, in_bits, out_bits, n_accesses):
    """An access is of four elements of a head."""
    sets, stores = definitions(body)
    instructions = [i for all_of in sets.values() for i in all_of]
    ops = [i.op for i in instructions]
    widths = [bits_of(op) for op in re.findall(r"\b(st\.global[.\w]*)", body)]
    if widths != [out_bits] * n_accesses:
        yield f"stores {widths} bits at once"
    loaded = {i.address for i in instructions if i.op.startswith("ld.global.") and bits_of(i.op) >= in_bits}
    if len(loaded) != 2 * n_accesses or any(".nc.v" in op for op in ops):
        yield f"loads x and weights by {len(loaded)} loads, or by .nc"
    if ops.count("sqrt.rn.f32") != 1 or ops.count("div.rn.f32") != 2:
        yield f"has {ops.count('sqrt.rn.f32')} roots and {ops.count('div.rn.f32')} quotients that are rounded"
    yield from (f"has {op}" for op in set(ops) if op.startswith(("div.", "sqrt.", "rsqrt.", "rcp.")) and
                op not in ("sqrt.rn.f32", "div.rn.f32") and ".f32" in op)
    addends = [i.sources[2] for i in instructions if is_fma(i) and len(i.sources) == 3]
    if not any(j.op == "mul.rn.f32" for addend in addends for j in sets.get(addend, [])):
        yield "adds no rounded product"


def faults(path):
    text = path.read_text()
    for pattern in [r"\.ftz", r"\bcall", r"\.local\b", r"\btrap\b", r"\b(add|mul|sub|mad)\.f32"]:
        if re.search(pattern, text):
            yield f"has {pattern}"
    bodies = re.split(r"\.visible \.entry ", text)[1:]
    if not bodies:
        yield "has no entry"
    name = path.stem
    if "_copy_128_" in name and ".v2.b64" not in text and ".v4.b32" not in text:
        yield "copies by less than 128 bits"
    if kv := re.match(r"halyard_kv_(f32|f16|bf16)(_e4m3)?_(\d+)_", name):
        in_bits = 128 if kv[1] == "f32" else 64
        for body in bodies:
            yield from faults_of_kv(body, in_bits, 32 if kv[2] else in_bits, int(kv[3]) // 16)
    if "_rotate_" in name:
        for body in bodies:
            bits = re.search(r"_by_(\d+)_", name)
            yield from faults_of_rotation(body, "_in_place_" in name, "_f32_" in name, "_strided_" in name,
                                          "_to_" in name, int(bits[1]) if bits else 128)


def program(name):
    return shutil.which(name, path=FETCHED) or shutil.which(name)


def without_roots(ptx):
    """PTX in which something else stands in the place of roots and quotients."""
    return ptx.replace("div.rn.f32", "xor.b32").replace("sqrt.rn.f32", "not.b32")


def joined(kernels):
    """All kernels as one module, for nvdisasm is slow to start: one for the newest device that any of them is for. Each
    entry has the name that its PTX has here."""
    heads, externs, bodies = set(), set(), []
    for name, ptx in kernels.items():
        head, size, body = ptx.partition(".address_size 64\n")
        heads.add(head + size)
        externs.update(re.findall(r"\n(\.extern .*)", body))
        entry, = re.findall(r"\.entry (\w+)", body)
        bodies.append(re.sub(r"\n\.extern .*", "", body).replace(entry, name))
    return "\n".join([max(heads), *externs, *bodies])


def assemble(ptx, architecture):
    """What ptxas says of each entry of PTX, and its instructions."""
    with tempfile.TemporaryDirectory() as folder:
        source, cubin = pathlib.Path(folder, "ptx"), pathlib.Path(folder, "cubin")
        source.write_text(ptx)
        said = subprocess.run([program("ptxas"), "-v", f"-arch={architecture}", "-o", cubin, source],
                              capture_output=True, text=True)
        if said.returncode != 0:
            sys.exit(f"ptxas refuses the kernels for {architecture}: {said.stderr.strip()[:1000]}")
        sass = subprocess.run([program("nvdisasm"), "-c", cubin], check=True, capture_output=True, text=True).stdout
    of_entry = re.split(r"Compiling entry function '(\w+)'", said.stderr)[1:]
    code = re.split(r"\n\.text\.(\w+):", sass)[1:]
    instructions = dict(zip(code[::2], code[1::2]))
    return {name: (text, instructions[name]) for name, text in zip(of_entry[::2], of_entry[1::2])}


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


def registers_of(said):
    return int(re.search(r"Used (\d+) registers", said)[1])


def faults_of_sass(ptx, said, sass, to_count, architecture):
    """What is wrong with a kernel; without roots and quotients it is to_count."""
    may_have = re.search(r"\.maxnreg (\d+)", ptx)
    if registers_of(said) > (int(may_have[1]) if may_have else MOST_REGISTERS):
        yield f"takes {registers_of(said)} registers"
    for count, what in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", said):
        if int(count) > 0:
            yield f"has {count} bytes of {what}"
    if architecture != "sm_80":
        yield from faults_of_base(sass)
        if ".shared" in ptx and not re.search(r"\b(LDS|STS)\b", sass):
            yield "uses no shared memory"
    yield from faults_of_sums(without_roots(ptx), to_count)


def check_sass(kernels):
    """Prints the registers of all kernels. Returns what is wrong."""
    counted = {name + "_to_count": without_roots(ptx) for name, ptx in kernels.items()}
    all_kernels = {**kernels, **{name: ptx for name, ptx in counted.items() if ptx not in kernels.values()}}
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        serves = lambda ptx, architecture: ".target sm_80" in ptx or architecture != "sm_80"
        assembled = list(pool.map(
            lambda a: assemble(joined({name: ptx for name, ptx in all_kernels.items() if serves(ptx, a)}), a),
            ARCHITECTURES))
    found = []
    print(f"{'registers':56}" + "".join(f"{architecture:>8}" for architecture in ARCHITECTURES))
    for name, ptx in kernels.items():
        print(f"{name:56}" + "".join(f"{registers_of(of[name][0]) if name in of else '-':>8}" for of in assembled))
        for architecture, of in zip(ARCHITECTURES, assembled):
            if name not in of:
                continue
            _, to_count = of.get(name + "_to_count", of[name])
            found += [f"{name} {fault} on {architecture}"
                      for fault in faults_of_sass(ptx, *of[name], to_count, architecture)]
    return found


def main(arguments):
    by_sass = arguments[:1] == ["--sass"]
    paths = sorted(pathlib.Path(arguments[by_sass]).glob("*.ptx"))
    missing = [name for name in ("ptxas", "nvdisasm") if program(name) is None]
    if not by_sass:
        found = [f"{path.stem} {fault}" for path in paths for fault in faults(path)]
    elif missing:
        print(f"SKIP: there is no {' and no '.join(missing)}, which ./run test fetches")
        return 0
    else:
        found = check_sass({path.stem: path.read_text() for path in paths})
    print("\n".join(found) or f"{len(paths)} kernels are as they should be")
    return 1 if found or not paths else 0


sys.exit(main(sys.argv[1:]))
