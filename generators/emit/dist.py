"""dist.py --version V --json FOLDER --destination FOLDER ...: writes source archives for ./run dist.

halyard-V.tar.gz has the kernels of each --triple as assembly, so that building it needs only a C++ compiler and CMake.
There is also an archive for each --package, a folder that pack.py wrote, with its library in place of assembly. The
same files give the same bytes.

Pages are the checkout's, without passages that are true in a checkout only: these are between the comments "in a
checkout" and "end", at the end of a line or on lines of their own. halyard.cdx.json is the SBOM of the archive.
"""

import argparse
import gzip
import io
import json
import os
import pathlib
import re
import tarfile

import sbom
import emit
import read_kernels

ROOT = pathlib.Path(__file__).parents[2]
TIME = 315532800  # 1980, the earliest date of a zip file

# Replaces the README's first passage that is for a checkout; the others are left out.
OPENING = """\
This archive has the kernels emitted, so a C++20 compiler and CMake 3.25 build it, without Halide and Python:

```sh
cmake -S . -B build
cmake --build build --parallel
cmake --install build --prefix "$HOME/halyard"
g++ -std=c++17 examples/decode.cpp -I "$HOME/halyard/include" "$HOME/halyard/lib/libhalyard.a" -o build/decode
build/decode
```

`-DHALYARD_BUILD_TOOL=ON` also builds the tool `halyard`, where CLI11 is installed. The tests, the bench and the Python
package are in the checkout that this archive was made from.
"""


def below(folder, pattern=""):
    """The files below a folder whose names match, each as {path in an archive's folder: path}."""
    return {path.relative_to(folder): path for path in folder.rglob("*")
            if path.is_file() and re.search(pattern, path.name)}


def in_folder(name, files):
    return {f"{name}/{path}": source for path, source in files.items()}


def page(path):
    """The text of a page for archives, as bytes."""
    text = path.read_text()
    lines = r"^<!-- in a checkout -->\n.*?^<!-- end -->\n"
    how = re.DOTALL | re.MULTILINE
    if path == ROOT / "README.md":
        text = re.sub(lines, lambda match: OPENING, text, count=1, flags=how)
    text = re.sub(f"{lines}|<!-- in a checkout -->.*?<!-- end -->", "", text, flags=how)
    text = re.sub("<!--.*?-->\n?", "", text, flags=re.DOTALL)
    return text.replace("./run halyard ", "halyard ").encode()


def sources(json_folder, version):
    """All sources except the kernels, and the pages about them, by path in the archive."""
    names = ["CMakeLists.txt", "LICENSE", "LICENSES_OF_OTHERS", "CHANGELOG.md", "README.md", "SECURITY.md",
             "generators/CMakeLists.txt", "bench/llama-3-8b.svg"]
    files = {name: ROOT / name for name in names}
    files |= in_folder("generators", below(ROOT / "generators", r"\.(cmake|inc)$"))
    for name in "runtime", "examples", "engines":
        files |= in_folder(name, below(ROOT / name, r"^CMakeLists\.txt$|^[^.].*\.(c|cpp|h|hpp|inc|md|map|in|cmake|npy)$"))
    files |= in_folder("tests/data/configs", below(ROOT / "tests/data/configs"))  # runtime/models.md names these
    del files["engines/vllm/README.md"]  # it is about a plug-in in the Python package
    files |= in_folder("third_party/nlohmann", below(json_folder / "nlohmann", r"\.hpp$"))
    files["halyard.cdx.json"] = sbom.cyclone_dx(version, ["Halide", "JSON for Modern C++"])
    return {name: page(file) if name.endswith(".md") else file for name, file in files.items()}


def kernels_as_assembly(triples, cuda, license_file):
    """The files of kernels, for triples with the folders that they are in. GPU kernels are object files, as is Halide's
    runtime, which has no other form."""
    list_of_kernels = read_kernels.read()
    files = {"kernels/x86-64-linux/halide_runtime.o": cuda / "halide_runtime.o",
             f"third_party/halide/{license_file.name}": license_file}
    for triple, folder in triples:
        for target in list_of_kernels.targets_of(triple):
            files |= in_folder(f"kernels/{triple}", emitted(folder, target, ".s"))
    for target in list_of_kernels.cuda_targets():
        files |= in_folder("kernels/x86-64-linux", emitted(cuda, target, ".o"))
    return files


def emitted(folder, target, suffix):
    """A target's kernels as emit.py wrote them (.s or .o), and the rows that the library's table includes."""
    kernels = json.loads((folder / f"kernels_{target.name}.json").read_text())["kernels"]
    names = [kernel["name"] + suffix for kernel in kernels] + [f"kernel_rows_{target.name}.inc"]
    return {name: folder / name for name in names}


def packed(folder):
    """The files that pack.py wrote, and the rows of the kernels in its library."""
    list_of_kernels = read_kernels.read()
    manifest = json.loads((folder / "manifest.json").read_text())
    files = below(folder)
    for target in list_of_kernels.targets_of(manifest["triple"]):
        products = [emit.Product(list_of_kernels.kernels[row["name"]], {}, row["schedule"])
                    for row in manifest["kernels"] if row["target"] == target.name]
        files[f"kernel_rows_{target.name}.inc"] = emit.rows_of(products).encode()
    return files


def write_archive(path, files):
    """Writes an archive with one folder of files, each given as a path or as bytes, without user names and dates."""
    folder = path.name.removesuffix(".tar.gz")
    part = path.with_name(path.name + ".part")
    with (part.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as packed,
          tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive):
        for name in sorted(files):
            made_here = isinstance(files[name], bytes)
            content = files[name] if made_here else files[name].read_bytes()
            entry = tarfile.TarInfo(f"{folder}/{name}")
            entry.size = len(content)
            entry.mtime = TIME
            entry.mode = 0o755 if not made_here and os.access(files[name], os.X_OK) else 0o644
            archive.addfile(entry, io.BytesIO(content))
    part.replace(path)
    print(f"{path}: {path.stat().st_size} bytes")


def triple_and_folder(text):
    triple, _, folder = text.partition("=")
    return triple, pathlib.Path(folder)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", required=True)
    parser.add_argument("--json", type=pathlib.Path, required=True, help="the folder that holds nlohmann/json.hpp")
    parser.add_argument("--destination", type=pathlib.Path, required=True)
    parser.add_argument("--triple", type=triple_and_folder, action="append", default=[], metavar="TRIPLE=FOLDER",
                        help="the folder of a triple's assembly")
    parser.add_argument("--cuda", type=pathlib.Path, help="the folder of the GPUs' objects")
    parser.add_argument("--halide-license", type=pathlib.Path)
    parser.add_argument("--package", type=pathlib.Path, action="append", default=[])
    given = parser.parse_args()

    given.destination.mkdir(parents=True, exist_ok=True)
    common = sources(given.json, given.version)
    if given.triple:
        write_archive(given.destination / f"halyard-{given.version}.tar.gz",
                      common | kernels_as_assembly(given.triple, given.cuda, given.halide_license))
    for package in given.package:
        write_archive(given.destination / f"halyard-{given.version}-{package.name}.tar.gz",
                      common | in_folder(f"kernels/{package.name}", packed(package)))


main()
