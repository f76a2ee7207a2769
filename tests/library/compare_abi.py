"""Checks that programs that were linked with the last release run with the shared libraries of this build.

    compare_abi.py LIBRARIES INCLUDE_FOLDER BASELINES [--write]

LIBRARIES is a folder with libhalyard.so and libhalyard_cuda.so, compiled with -g; BASELINES has abidw's description of
the released libraries. abidiff compares every type that a function reaches. New functions, new constants, and new
fields at the end of a struct that begins with its size are allowed. A release writes new baselines with --write.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
from xml.etree import ElementTree

NAMES = ("libhalyard", "libhalyard_cuda")
# Leaves out what depends on the machine or the compiler, and what no header declares.
ABIDW = ["abidw", "--drop-private-types", "--drop-undefined-syms", "--exported-interfaces-only", "--no-architecture",
         "--no-comp-dir-path", "--no-corpus-path", "--no-elf-needed", "--no-parameter-names", "--no-show-locs",
         "--type-id-style", "hash"]


def write(library, include, path):
    subprocess.run([*ABIDW, "--headers-dir", include, "--out-file", path, library], check=True)
    path.write_text(re.sub(r"path='[^']*/runtime/", "path='runtime/", path.read_text()))  # without the build's folder


def structs(tree):
    return {struct.get("name"): struct for struct in tree.iter("class-decl") if struct.find("data-member") is not None}


def remove_new_fields(baseline, found):
    """Removes from the file `found` the fields that structs with a leading `size` have after the baseline's last."""
    tree = ElementTree.parse(found)
    before, after = structs(ElementTree.parse(baseline)), structs(tree)
    for name in before.keys() & after.keys():
        n_fields = len(before[name].findall("data-member"))
        fields = after[name].findall("data-member")
        if fields[0].find("var-decl").get("name") == "size" and len(fields) > n_fields:
            for field in fields[n_fields:]:
                after[name].remove(field)
            after[name].set("size-in-bits", before[name].get("size-in-bits"))
    tree.write(found)


def main():
    libraries, include, baselines = map(pathlib.Path, sys.argv[1:4])
    with tempfile.TemporaryDirectory() as folder:
        broken = []
        for library in NAMES:
            baseline, found = baselines / f"{library}.abi", pathlib.Path(folder) / f"{library}.abi"
            if sys.argv[4:] == ["--write"]:
                baselines.mkdir(exist_ok=True)
                write(libraries / f"{library}.so", include, baseline)
            write(libraries / f"{library}.so", include, found)
            remove_new_fields(baseline, found)
            done = subprocess.run(["abidiff", "--no-added-syms", baseline, found], capture_output=True, text=True)
            if done.returncode != 0:
                broken.append(f"{done.stdout}{done.stderr}{library}.so is not what programs were linked with.")
        if broken:
            sys.exit("\n".join(broken) + "\nruntime/abi.md says what that takes.")
    print(f"{' and '.join(NAMES)} serve programs of the last release")


main()
