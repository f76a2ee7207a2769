"""pack.py BUILD OUTPUT [--variants KERNEL]: packs what a machine with a CUDA device needs, which may have no network, no
compiler and no Python: programs without symbols, the C++ library that they need, on_device.sh, which runs them, what it
asks them to time, peers_cuda.py, and variants of a kernel's schedule. OUTPUT is a folder, and is made anew."""

import argparse
import itertools
import json
import lzma
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile

MOST_MIB = 64
PROGRAMS = ["halyard", "halyard_gpu_tests", "halyard_bench_gpu"]
LIBRARIES = ["libstdc++.so.6", "libgcc_s.so.1"]
# Blocks of 64 to 512 threads: beside each other in a head, by heads, and heads that each thread takes.
VARIANTS = [numbers for numbers in itertools.product((4, 8, 16), (4, 8, 16, 32), (1, 2, 4))
            if 64 <= numbers[0] * numbers[1] <= 512]


def strip(source, target):
    subprocess.run(["strip", "-o", target, source], check=True)


def libraries_of(program):
    """The paths of the shared libraries that a program would load here."""
    said = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    return dict(re.findall(r"^\s*(\S+) => (\S+)", said, re.MULTILINE))


def make_variants(build, kernel, target):
    """An archive of programs, each with another schedule of a kernel. They differ little, and so take little room."""
    recipes = json.loads((build / "generated/tuning.json").read_text())
    recipe = next((r for r in recipes["kernels"] if r["name"] == kernel and r["gpu"]), None)
    if recipe is None:
        sys.exit(f"{kernel} is no kernel of a GPU that can be tuned")
    with tempfile.TemporaryDirectory() as folder, \
            lzma.open(target, "wb", preset=6) as packed, \
            tarfile.open(fileobj=packed, mode="w") as archive:
        folder = pathlib.Path(folder)
        for across, down, heads in VARIANTS:
            numbers = recipe["defaults"] | {"element_threads": across, "head_threads": down, "heads_per_thread": heads}
            name = f"{kernel}.{across}x{down}x{heads}"
            subprocess.run([*recipe["emit"], folder, *(f"{n}={v}" for n, v in numbers.items())], check=True)
            object_file = folder / (kernel + recipe["suffix"])
            places = {"{from}": object_file, "{to}": folder / name}
            subprocess.run([places.get(word, word) for word in recipe["link"]], check=True)
            strip(folder / name, folder / name)
            archive.add(folder / name, f"variants/{name}")
            (folder / name).unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("output", type=pathlib.Path)
    parser.add_argument("--variants", metavar="KERNEL", default="halyard_rotate_half_bf16_in_place_cuda_sm80",
                        help="[%(default)s]; none: no variants")
    options = parser.parse_args()
    shutil.rmtree(options.output, ignore_errors=True)
    for folder in "bin", "lib":
        (options.output / folder).mkdir(parents=True)
    for program in PROGRAMS:
        strip(options.build / "bin" / program, options.output / "bin" / program)
    found = libraries_of(options.build / "bin" / PROGRAMS[0])
    for library in LIBRARIES:
        shutil.copy(os.path.realpath(found[library]), options.output / "lib" / library)
    here = pathlib.Path(__file__).parent
    for script in "on_device.sh", "peers_cuda.py", "cuda_rounds.py", "../files.py", "../hosts.py", "../turns.py":
        shutil.copy(here / script, options.output)
    with open(options.output / "requests.jsonl", "w") as requests:
        subprocess.run([sys.executable, "-EsB", here / "cuda_rounds.py", "--write-requests"], stdout=requests,
                       check=True)
    if options.variants != "none":
        make_variants(options.build, options.variants, options.output / "variants.tar.xz")
    mib = sum(path.stat().st_size for path in options.output.rglob("*") if path.is_file()) / 2**20
    print(f"{options.output} holds {mib:.1f} MiB")
    if mib > MOST_MIB:
        sys.exit(f"that is more than {MOST_MIB} MiB")


main()
