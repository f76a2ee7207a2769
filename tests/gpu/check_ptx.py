"""check_ptx.py [--ptxas] FOLDER: what the PTX of every CUDA kernel must hold.

1. Every element that a rotation stores comes from fma.rn.f32 whose addend is a rounded product, mul.f32: the canonical
   form. The fused product is of the element itself: f32, of the same place in the vector that was loaded, unless the
   pairing changes; in place, of what was loaded from the address that is stored to.
2. Loads and stores of x and y are of 128 bits, or of as many as the kernel's name says, but in kernels for any layout.
   So it is in the kernel of the road, whose floats lie in shared memory in between: there the rotation is one fused sum
   with a rounded product, and root and quotients are the nearest floats. Its loads of x, which may be y, are no .nc.
3. Nothing flushes denormals (.ftz), calls, uses local memory, or traps: Halide asserts that way.

With --ptxas also what NVIDIA's assembler makes of it: no more than 64 registers, no spills, no stack. Without ptxas on
the PATH this prints SKIP.
"""

import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

ARCHITECTURES = ["sm_80", "sm_90", "sm_100", "sm_120"]
MOST_REGISTERS = 64

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
                addend = trace(sets, fused.sources[2], lambda i: i.op in ("mul.f32", "mul.rn.f32"))
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


def faults_of_road(body):
    sets, stores = definitions(body)
    # A zero that is never stored lets LLVM believe that x is written: see MayWriteInput in road_generator.cpp.
    if sorted(len(elements) for _, elements in stores) != [0, 4]:
        yield f"stores {[len(elements) for _, elements in stores]} elements at once"
    instructions = [i for all_of in sets.values() for i in all_of]
    wide = {i.op for i in instructions if i.op.startswith("ld.global.") and bits_of(i.op) == 128}
    if not wide:
        yield "loads no 128 bits at once"
    yield from (f"loads x, which it may write, by {op}" for op in wide if ".nc" in op)
    ops = [i.op for i in instructions]
    if ops.count("sqrt.rn.f32") != 1 or ops.count("div.rn.f32") != 2:
        yield f"has {ops.count('sqrt.rn.f32')} roots and {ops.count('div.rn.f32')} quotients that are rounded"
    yield from (f"has {op}" for op in set(ops) if op.startswith(("div.", "sqrt.", "rsqrt.", "rcp.")) and
                op not in ("sqrt.rn.f32", "div.rn.f32") and ".f32" in op)
    addends = [i.sources[2] for i in instructions if is_fma(i) and len(i.sources) == 3]
    if not any(j.op in ("mul.f32", "mul.rn.f32") for addend in addends for j in sets.get(addend, [])):
        yield "adds no rounded product"


def faults(path):
    text = path.read_text()
    for pattern in [r"\.ftz", r"\bcall", r"\.local\b", r"\btrap\b"]:
        if re.search(pattern, text):
            yield f"has {pattern}"
    bodies = re.split(r"\.visible \.entry ", text)[1:]
    if not bodies:
        yield "has no entry"
    name = path.stem
    if "_copy_128_" in name and ".v2.b64" not in text and ".v4.b32" not in text:
        yield "copies by less than 128 bits"
    if "_road_" in name:
        for body in bodies:
            yield from faults_of_road(body)
    if "_rotate_" in name:
        for body in bodies:
            bits = re.search(r"_by_(\d+)_", name)
            yield from faults_of_rotation(body, "_in_place_" in name, "_f32_" in name, "_strided_" in name,
                                          "_to_" in name, int(bits[1]) if bits else 128)


def assemble(path, architecture):
    """Registers, and what is wrong."""
    run = subprocess.run(["ptxas", "-v", f"-arch={architecture}", "-o", "/dev/null", path], capture_output=True,
                         text=True)
    found = []
    registers = [int(n) for n in re.findall(r"Used (\d+) registers", run.stderr)]
    if run.returncode != 0 or not registers:
        found.append(f"is refused by ptxas for {architecture}: {run.stderr.strip()[:300]}")
    elif max(registers) > MOST_REGISTERS:
        found.append(f"takes {max(registers)} registers on {architecture}")
    for count, what in re.findall(r"(\d+) bytes (stack frame|spill stores|spill loads)", run.stderr):
        if int(count) != 0:
            found.append(f"has {count} bytes of {what} on {architecture}")
    return max(registers, default=0), found


def main(arguments):
    by_ptxas = arguments[:1] == ["--ptxas"]
    paths = sorted(pathlib.Path(arguments[by_ptxas]).glob("*.ptx"))
    found = []
    if not by_ptxas:
        for path in paths:
            found += [f"{path.stem} {fault}" for fault in faults(path)]
    elif shutil.which("ptxas") is None:
        print("SKIP: there is no ptxas on the PATH (it comes with the CUDA toolkit)")
        return 0
    else:
        print(f"{'registers':48}" + "".join(f"{name:>8}" for name in ARCHITECTURES))
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            jobs = {(path, a): pool.submit(assemble, path, a) for path in paths for a in ARCHITECTURES}
            for path in paths:
                results = [jobs[path, a].result() for a in ARCHITECTURES]
                print(f"{path.stem:48}" + "".join(f"{registers:8}" for registers, _ in results))
                found += [f"{path.stem} {fault}" for _, faults_of in results for fault in faults_of]
    print("\n".join(found) or f"{len(paths)} kernels are as they should be")
    return 1 if found or not paths else 0


sys.exit(main(sys.argv[1:]))
