"""emit.py --generator PROGRAM --halide VERSION --triple T --target NAME -o FOLDER [...]: emits a target's kernels.

CMake runs this once for each target of targets.inc, and once more for each other triple that is asked for. Into the
folder it writes

  <kernel>.o .s .stmt          for each kernel its object, assembly (CPUs), and the loops as Halide has lowered them
  <kernel>.ptx                 for each GPU kernel the PTX, which the driver compiles
  kernel_rows_<target>.inc     a row for each kernel, which the library's table and the tests include
  kernels_<target>.json        the manifest: each kernel's name and place, the schedule that it was made with, and its
                               files. It is written last.
  joined/<target>.o            with --linker: all objects linked to one

build/host/kernels holds this machine's kernels, build/host/emit/<triple> those of packages. A source archive of
./run dist holds kernels/<triple>/<kernel>.s (GPUs: .o) and kernels/<triple>/kernel_rows_<target>.inc beside them; a
package of ./run emit has its library in place of the .s files, and rows for the kernels in the library. Building from
such an archive or package does not need this program.

A kernel is not emitted again if the folder's manifest shows that the same generator made it with the same arguments.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

import read_kernels
import tuned_schedules


class Failed(Exception):
    """Why a kernel was not emitted."""


@dataclasses.dataclass
class Product:
    """A kernel with the schedule that it is emitted with: its default, or one tuned for a CPU."""

    kernel: read_kernels.Kernel
    parameters: dict[str, int]
    schedule: str = "default"

    def row(self):
        k = self.kernel
        if k.op == "rows_phase":
            return f"HALYARD_ROW_KERNEL({k.name}, {k.target.name})"
        if k.op == "kv_path":
            cells = [k.arguments[name] for name in read_kernels.KV_ARGUMENTS]
            return f"HALYARD_CUDA_KV_KERNEL({', '.join([k.name, k.target.name, *cells])})"
        if k.op in ("check_positions", "copy"):
            return None
        if k.op != "rotate":
            return f"HALYARD_STAGE_KERNEL({k.name}, {k.op}, {k.dtype}, {k.target.name})"
        if k.target.is_cuda:
            in_place = str(k.place == "in_place").lower()
            cells = [k.name, k.target.name, k.pairing, k.out_pairing, str(k.bits), k.dtype, in_place,
                     f'"{self.schedule}"']
            return f"HALYARD_CUDA_KERNEL({', '.join(cells)})"
        non_temporal_mib = self.parameters.get("non_temporal_mib", "usual_non_temporal_mib")
        cells = [k.name, k.target.name, k.pairing, k.out_pairing, k.dtype, k.place, str(k.packed).lower(),
                 str(non_temporal_mib), f'"{self.schedule}"']
        return f"HALYARD_KERNEL({', '.join(cells)})"


class Emitter:
    """Runs the generator. The compiler assembles non-temporal kernels, which the generator cannot emit as objects."""

    def __init__(self, generator, compiler=None):
        self.generator, self.compiler = generator, compiler
        self.digest = tuned_schedules.sha256(pathlib.Path(generator).read_bytes() + pathlib.Path(__file__).read_bytes())

    def key(self, kernel, triple, parameters):
        """A hash of all inputs of an emission: the same key means the same files."""
        made_of = [self.digest, self.compiler, kernel.target.halide(triple), kernel.name, kernel.generator,
                   kernel.generator_arguments(parameters), kernel.is_non_temporal]
        return tuned_schedules.sha256(json.dumps(made_of))

    def emit(self, kernel, triple, suffix, folder, parameters=None, outputs=None):
        """Emits one kernel. Returns the paths of its files."""
        name = kernel.name
        path = pathlib.Path(folder, name)
        files = {"assembly": ".s", "object": suffix, "stmt": ".stmt"}
        if kernel.target.is_cuda:
            files = {"object": suffix, "stmt": ".stmt", "device_code": ".ptx"}
        files = {output: path.with_name(name + files[output]) for output in outputs or files}
        wanted = [output for output in files if not (output == "object" and kernel.is_non_temporal)]
        command = [self.generator, "-f", name, "-n", name, "-o", folder, "-e", ",".join(wanted),
                   f"target={kernel.target.halide(triple)}", "-g", kernel.generator,
                   *kernel.generator_arguments(parameters)]
        said = _run(name, command)
        if "type operation is emulated" in said:
            raise Failed(f"{name}: a conversion is emulated that the target has instructions for:\n{said}")
        if "device_code" in files:
            raw = path.with_name(name + ".device_code")
            files["device_code"].write_bytes(raw.read_bytes().replace(b"\0", b""))  # Halide ends the text with one
            raw.unlink()
        if kernel.is_non_temporal:
            files["assembly"].write_text(store_non_temporally(name, files["assembly"].read_text()))
            if "object" in files:
                _run(name, [self.compiler, "-c", files["assembly"], "-o", files["object"]])
        return list(files.values())

    def default_sha256(self, kernel):
        """The hash of the assembly that is emitted on Linux with the default schedule."""
        with tempfile.TemporaryDirectory() as folder:
            file, = self.emit(kernel, f"{kernel.target.processor}-linux", ".o", folder, outputs=["assembly"])
            return tuned_schedules.sha256(file.read_bytes())


def _run(name, command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Failed(f"{name}: {done.stdout}")
    return done.stdout


def store_non_temporally(name, assembly):
    """Makes a kernel's stores of whole vectors non-temporal, which Halide 21 cannot emit. Returns the new assembly.

    Stores to the stack and masked stores do not change. VCVTPS2PH and VPMOVDW, which convert and store, are split into
    a conversion and a store. (The conversion overwrites its operand, which nothing reads again.) A fence before
    the return orders the kernel's stores before later stores of its caller, such as one that signals another thread.
    """
    text = re.sub(r"\((%r[sb]p)", r"{\1", assembly)  # keeps the stack out of the next two patterns
    text = re.sub(r"\tvmov(?:up[sd]|ap[sd]|dq[ua]\d*)\t(%[yz]mm\d+, [^\n{]*\))([ \t]*[\n#])", r"\tvmovntps\t\1\2", text)
    for wide, narrow in ("y", "x"), ("z", "y"):
        text = re.sub(rf"\t(vcvtps2ph\t[^,\n]*, |vpmovdw\t)%{wide}mm(\d+), ([-\d]*\([^\n{{]*\))([ \t]*[\n#])",
                      rf"\t\1%{wide}mm\2, %{narrow}mm\2\n\tvmovntps\t%{narrow}mm\2, \3\4", text)
    text = re.sub(r"{(%r[sb]p)", r"(\1", text)
    if text == assembly:
        raise Failed(f"{name} stores no whole vectors")
    return text.replace("\tretq", "\tsfence\n\tretq")


def read_tuned_schedules(cpu_option, is_for_other_machines):
    """The CPU that --schedules selects, "" for none, and its tuned schedules by kernel name."""
    cpu = {"none": "", "auto": "" if is_for_other_machines else tuned_schedules.cpu_name()}.get(cpu_option, cpu_option)
    path = tuned_schedules.FOLDER / f"{cpu}.json"
    if cpu and path.exists():
        return cpu, tuned_schedules.load(path)
    if cpu and cpu_option != "auto":
        raise Failed(f"HALYARD_SCHEDULES names {cpu}, and there is no {path}")
    return "", {}


def rows_of(products):
    """The rows of a target's kernels as the text of kernel_rows_<target>.inc."""
    return "".join(product.row() + "\n" for product in products if product.row())


def read_manifest(path):
    """The kernels of a manifest by name; empty if there is no manifest."""
    try:
        return {kernel["name"]: kernel for kernel in json.loads(path.read_text())["kernels"]}
    except (OSError, ValueError, KeyError):
        return {}


def emit_target(options):
    """Emits the kernels of a target into a folder, and writes the manifest."""
    list_of_kernels = read_kernels.read()
    target = list_of_kernels.targets[options.target]
    suffix = list_of_kernels.triples[options.triple].suffix
    folder = options.o
    folder.mkdir(parents=True, exist_ok=True)
    emitter = Emitter(options.generator, options.compiler)
    cpu, schedules = read_tuned_schedules(options.schedules, options.no_auto)

    kernels = [kernel for kernel in list_of_kernels.kernels_of(options.target, options.triple)
               if re.search(options.kernels, kernel.name) and (options.compiler or not kernel.is_non_temporal)]

    def find_product(kernel):
        """The kernel with the CPU's tuned schedule, if that is usable, else with its default."""
        if kernel.parameters and kernel.name in schedules:
            try:
                return Product(kernel, tuned_schedules.read_entry(
                    schedules[kernel.name], kernel, options.halide, list_of_kernels,
                    lambda: emitter.default_sha256(kernel)), cpu)
            except tuned_schedules.Unusable as why:
                print(f"warning: the schedule of {kernel.name} in {cpu}.json is not used, and the kernel has its "
                      f"default: {why}. ./run tune makes it anew.", file=sys.stderr)
        return Product(kernel, kernel.parameters)

    products = [find_product(kernel) for kernel in kernels]
    manifest = folder / f"kernels_{target.name}.json"
    earlier = read_manifest(manifest)
    manifest.unlink(missing_ok=True)  # until all is emitted, so that a partial folder is not taken for complete

    def emit_product(product):
        k = product.kernel
        key, known = emitter.key(k, options.triple, product.parameters), earlier.get(k.name)
        if known and known["key"] == key and all((folder / file).exists() for file in known["files"]):
            files = known["files"]
        else:
            files = [file.name for file in emitter.emit(k, options.triple, suffix, folder, product.parameters)]
        return {"name": k.name, "place": k.place, "schedule": product.schedule, "parameters": product.parameters,
                "files": files, "key": key}

    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        made = list(pool.map(emit_product, products))
    files = {file for one in made for file in one["files"]}
    for path in folder.glob(f"halyard_*_{target.name}.*"):
        if path.name not in files:
            path.unlink()  # of a kernel that no longer exists

    if options.linker:
        joined = folder / "joined" / f"{target.name}.o"
        joined.parent.mkdir(exist_ok=True)
        _run(joined, [options.linker, "-r", "-o", joined, *(folder / (kernel.name + suffix) for kernel in kernels)])
    rows, text = folder / f"kernel_rows_{target.name}.inc", rows_of(products)
    if not rows.exists() or rows.read_text() != text:
        rows.write_text(text)
    text = json.dumps({"triple": options.triple, "target": target.name, "halide": options.halide,
                       "kernels": made}, indent=1)
    manifest.write_text(text + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--generator", required=True)
    parser.add_argument("--halide", required=True, help="Halide's version, which a schedule must have been made with")
    parser.add_argument("--triple", required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("-o", required=True, type=pathlib.Path)
    parser.add_argument("--schedules", default="none", help="none, auto (this CPU's), or a CPU's name [none]")
    parser.add_argument("--no-auto", action="store_true", help="auto is none: this is for other machines, and the same "
                        "wherever it is made")
    parser.add_argument("--compiler", help="assembles kernels that store past the caches; without it there are none")
    parser.add_argument("--linker")
    parser.add_argument("--kernels", default="", help="only kernels whose name this regular expression finds")
    options = parser.parse_args()
    try:
        emit_target(options)
    except (Failed, read_kernels.BadList, tuned_schedules.Unusable, OSError) as error:
        sys.exit(f"emit.py: {error}")


if __name__ == "__main__":
    main()
