"""pack.py TRIPLE --objects FOLDER --destination FOLDER --version V: packs kernels that emit.py wrote, for ./run emit.

Checks formats, sections and symbols of the object files, and writes their library, header and manifest. If it fails,
the destination is unchanged.
"""

import argparse
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

import read_kernels

ABI = pathlib.Path(__file__).parents[2] / "runtime/core/kernel_abi.h"
HEADER = """\
/* The kernels of {library} for {triple}, Halyard {version}.{fallback} */
#ifndef HALYARD_KERNELS_H
#define HALYARD_KERNELS_H

{abi}
#ifdef __cplusplus
extern "C" {{
#endif
{declarations}
#ifdef __cplusplus
}}
#endif

#endif
"""


class Refused(Exception):
    """An error in the object files."""


def llvm(tool, *arguments):
    """The output of an LLVM tool. It is parsed, so the tool must have the version whose output is known, 19."""
    program = shutil.which(f"llvm-{tool}-19")
    if program is None:
        raise Refused(f"llvm-{tool}-19 is not installed (Debian: llvm-19)")
    done = subprocess.run([program, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"llvm-{tool}-19: {done.stderr}")
    return done.stdout


def expect_equal(what, found, expected):
    if found != expected:
        raise Refused(f"{what}\n  found:    {found}\n  expected: {expected}")


def check_headers(triple, objects):
    """Checks format, machine and system, and that no section (on ELF, nor the stack) is both writable and executable.

    Returns the oldest version of Apple's systems that the objects run on; None for other systems.
    """
    text = llvm("readobj", "--file-headers", "--sections", "--macho-version-min", *objects)
    minimum_os = None
    for file in re.split(r"^File: ", text, flags=re.MULTILINE)[1:]:
        path = file.splitlines()[0]
        found = re.search(r"^Format: (.*)", file, re.MULTILINE)[1]
        if platform := re.search(r"Platform: (.*)\n *Version: (.*)", file):
            found, minimum_os = f"{found} {platform[1]}", platform[2]
        expect_equal(f"the format of {path}", found, triple.format)
        if found.startswith("elf") and "Name: .note.GNU-stack" not in file:
            raise Refused(f"{path} does not say that its stack need not be executable")
        for section in file.split("Section {"):
            if (re.search(r"SHF_EXECINSTR|IMAGE_SCN_MEM_EXECUTE|Instructions \(", section) and
                    re.search(r"SHF_WRITE|IMAGE_SCN_MEM_WRITE|Segment: __DATA|Name: \.note\.GNU-stack", section)):
                raise Refused(f"{path} has something executable that should not be:{section}")
    return minimum_os


def symbols(*arguments):
    names = llvm("nm", "--format=just-symbols", "--quiet", *arguments).splitlines()
    return sorted(name for name in names if name and not name.endswith(":"))  # a colon ends the heading of a file


def check_symbols(triple, objects, prefix, kernels):
    """Checks that each object defines its kernel and Halide's _argv and _metadata of it, and needs no symbol."""
    defined = symbols("--extern-only", "--defined-only", *objects)
    undefined = symbols("--undefined-only", *objects)
    if triple.format.startswith("COFF"):
        # Objects define constants under names made from their bits. The C runtime defines _fltused, which marks the use
        # of floats, and __chkstk, which touches the stack of functions that use more than a page of it.
        defined = [name for name in defined if not re.fullmatch(r"__(real|xmm|ymm|zmm)@[0-9a-f]+", name)]
        undefined = [name for name in undefined if name not in ("_fltused", "__chkstk")]
    expect_equal("the symbols that the objects define", defined,
                 sorted(prefix + kernel.name + suffix for kernel in kernels for suffix in ("", "_argv", "_metadata")))
    expect_equal("the symbols that the objects need", undefined, [])


def write_package(folder, emitted, list_of_kernels, triple, version):
    """Writes a package into `folder`, from the kernels in the folder `emitted`, and returns its number of kernels.
    Leaves out non-temporal kernels, which are for Halyard's own library only."""
    manifests = [json.loads((emitted / f"kernels_{target.name}.json").read_text())
                 for target in list_of_kernels.targets_of(triple.name)]
    made = [row for manifest in manifests for row in manifest["kernels"] if row["place"] != "non_temporal"]
    kernels = [list_of_kernels.kernels[row["name"]] for row in made]
    objects = [emitted / (kernel.name + triple.suffix) for kernel in kernels]
    prefix = "_" if triple.format.startswith("Mach-O") else ""
    minimum_os = check_headers(triple, objects)
    check_symbols(triple, objects, prefix, kernels)
    llvm("ar", "rcsD", folder / triple.library, *objects)

    rows, declarations, target = [], "", None
    for kernel, row in zip(kernels, made):
        rows.append({"name": kernel.name, "symbol": prefix + kernel.name, "op": kernel.op, "pairing": kernel.pairing,
                     "out_pairing": kernel.out_pairing, "dtype": kernel.dtype, "in_place": kernel.place == "in_place",
                     "packed": kernel.packed, "target": kernel.target.name, "isa": kernel.target.isa,
                     "schedule": row["schedule"], "halide_features": kernel.target.features})
        if kernel.target != target:
            target = kernel.target
            declarations += f"\n/* For {target.isa}. */\n"
        declarations += f"halyard_{kernel.op}_kernel {kernel.name};\n"
    about = {"triple": triple.name, "halyard": version, "halide": manifests[0]["halide"], "library": triple.library,
             "header": "halyard_kernels.h", "format": triple.format}
    about |= {"minimum_os": minimum_os} if minimum_os else {}
    fallback = ("\n * A CPU without AVX2 and FMA has none here: for such the program needs a fallback of its own."
                if triple.name.startswith("x86-64-") else "")
    (folder / "manifest.json").write_text(json.dumps(about | {"kernels": rows}, indent=1) + "\n")
    (folder / "halyard_kernels.h").write_text(HEADER.format(
        library=triple.library, triple=triple.name, version=version, fallback=fallback, abi=ABI.read_text(),
        declarations=declarations))
    return len(kernels)


def main():
    list_of_kernels = read_kernels.read()
    parser = argparse.ArgumentParser()
    parser.add_argument("triple", choices=list_of_kernels.triples)
    parser.add_argument("--objects", type=pathlib.Path, required=True, help="the folder that emit.py wrote to")
    parser.add_argument("--destination", type=pathlib.Path, required=True)
    parser.add_argument("--version", required=True, help="Halyard's")
    given = parser.parse_args()

    triple = list_of_kernels.triples[given.triple]
    parent = given.destination.parent
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix=".pack-") as scratch:
        stage = pathlib.Path(scratch) / "new"
        stage.mkdir()
        try:
            n_kernels = write_package(stage, given.objects, list_of_kernels, triple, given.version)
        except (Refused, OSError) as why:
            sys.exit(f"{triple.name}: {why}")
        if given.destination.exists():
            given.destination.rename(pathlib.Path(scratch) / "old")
        stage.rename(given.destination)
    n_bytes = (given.destination / triple.library).stat().st_size
    print(f"{given.destination}: {n_kernels} kernels, {n_bytes} bytes")


main()
