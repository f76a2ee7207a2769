"""compilers.py ARCHIVE COMPILER...: builds and installs a source archive by each C++ compiler, as C++20 and C++23, and
links programs with the installed static and shared library: in C++ and C, with and without exceptions. An example must
print the same in all builds.

A COMPILER is a program's name: g++-12, clang++-19, aarch64-linux-gnu-g++ (qemu runs the programs that it builds).
"""

import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

# A program without exceptions defines HALYARD_THROW to handle errors.
BARE = """
#include <cstdio>
#include <cstdlib>
#define HALYARD_THROW(error) (std::printf("%d\\n", (error).status()), std::exit(0))
#include <halyard/halyard.hpp>
int main() { halyard::frequencies::from_base(-1.0, 128); }
"""


def run(*command, **options):
    done = subprocess.run([*map(str, command)], text=True, capture_output=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    if "warning:" in done.stderr + done.stdout:
        sys.exit(f"{' '.join(map(str, command))} warns:\n{done.stdout}{done.stderr}")
    return done.stdout


def check(sources, compiler, standard, folder):
    """Builds by one compiler and standard. Returns the outputs of decode.cpp, which should all be the same."""
    c = re.sub(r"clang\+\+", "clang", compiler).replace("g++", "gcc")
    cross = ["-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64"] if "aarch64" in compiler else []
    emulator = ["qemu-aarch64", "-L", "/usr/aarch64-linux-gnu"] if cross else []
    run("cmake", "-G", "Ninja", "-S", sources, "-B", folder / "build", f"-DCMAKE_CXX_COMPILER={compiler}",
        f"-DCMAKE_C_COMPILER={c}", f"-DCMAKE_CXX_STANDARD={standard}", *cross)
    run("cmake", "--build", folder / "build")
    run("cmake", "--install", folder / "build", "--prefix", folder / "prefix")
    include, lib = ["-I", folder / "prefix/include"], folder / "prefix/lib"
    printed = set()
    for how in [lib / "libhalyard.a"], ["-L", lib, "-lhalyard", f"-Wl,-rpath,{lib}"]:
        for used in "17", {20: "20", 23: "2b"}[standard]:  # 2b: C++23 in 2022
            run(compiler, f"-std=c++{used}", "-Wall", "-Wextra", "-Werror", *include, sources / "examples/decode.cpp", *how,
                "-o", folder / "decode")
            printed.add(run(*emulator, folder / "decode"))
    (folder / "bare.cpp").write_text(BARE)
    run(compiler, "-std=c++17", "-fno-exceptions", "-fno-rtti", *include, folder / "bare.cpp", lib / "libhalyard.a", "-o",
        folder / "bare")
    if run(*emulator, folder / "bare") != "11\n":
        sys.exit(f"{compiler}: a program without exceptions met another error, or none")
    run(c, "-std=c11", *include, sources / "examples/rotate.c", lib / "libhalyard.a", "-lstdc++", "-lm", "-lpthread", "-o",
        folder / "rotate")
    run(*emulator, folder / "rotate")
    return printed


def main(archive, *compilers):
    printed = set()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        with tarfile.open(archive) as packed:
            packed.extractall(folder / "sources")
        sources, = (folder / "sources").iterdir()
        for compiler in compilers:
            for standard in 20, 23:
                here = folder / f"{compiler} {standard}"
                here.mkdir()
                printed |= check(sources, compiler, standard, here)
                print(f"{compiler}, C++{standard}: passed", flush=True)
    if len(printed) != 1:
        sys.exit(f"the example printed {printed}")
    print(f"{len(compilers)} compilers passed, each as C++20 and C++23")


main(*sys.argv[1:])
