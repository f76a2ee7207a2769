"""Checks the built libraries and kernels by nm and readelf, and the packages that ./run emit writes.

See harness.py for the command line. The checks are the functions that main() lists.
"""

import hashlib
import json
import pathlib
import re
import shutil

from harness import PYTHON, attempt, expect_equal, fail, main, run, skip

PRINTS_OR_ENDS = re.compile(
    r"_*(v?f?d?printf(_chk)?|f?put[cs]|putchar|f?write|perror|syslog|abort|exit|quick_exit|assert_fail"
    r"|_ZSt4(cout|cerr|clog))(@|$)")
STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Werror"]


def symbols(build, *arguments):
    """The names that nm lists with these arguments, sorted; a name with several types is listed once for each type."""
    text = run(build.CMAKE_NM, "-P", *arguments)
    return sorted(line.split()[0] for line in set(re.findall(r"^\S+ [A-Za-z] ", text, re.MULTILINE)))


def declared(*headers):
    """The functions that headers declare."""
    text = "".join(re.sub(r"/\*.*?\*/", "", header.read_text(), flags=re.DOTALL) for header in headers)
    return sorted(re.findall(r"HALYARD_API [^;(]*?(halyard_[a-z_]+)\(", text))


def exports(build):
    """The shared libraries export exactly the functions that the headers declare."""
    names = ["halyard", "halyard_kv", "halyard_cuda"]
    libraries = {build.halyard_shared: names[:2]}
    if hasattr(build, "halyard_cuda_shared"):
        libraries[build.halyard_cuda_shared] = names
    for library, headers in libraries.items():
        expect_equal(f"{library} exports something else than its headers declare",
                     symbols(build, "-D", "--defined-only", library),
                     declared(*(build.include / f"halyard/{name}.h" for name in headers)))


def cuda_symbols(build):
    """The CUDA library defines no symbols of Halide's runtime, so that a program may have its own Halide runtime."""
    names = symbols(build, "-g", "--defined-only", build.halyard_cuda_static)
    expect_equal(f"{build.halyard_cuda_static} has symbols of Halide's runtime",
                 [name for name in names if "halide" in name and not name.startswith("_ZN7halyard")], [])


def own_symbols(build):
    """The static library defines only symbols of Halyard and of the C++ library, so that a program may have another
    version of Halyard's dependencies."""
    for name in run(build.CMAKE_NM, "-C", "--defined-only", "--extern-only", build.halyard_static).splitlines():
        name = re.sub(r"^[0-9a-f]* \w ", "", name)
        if not name or name.endswith(":") or name.startswith(("DW.ref.", "halyard_")):
            continue
        spaces = re.findall(r"(?<![\w:])(\w+)::", name)
        if not spaces or not all(space in ("std", "__gnu_cxx") or space.startswith("halyard") for space in spaces):
            fail(f"{build.halyard_static} defines {name}")


def needs(build):
    """The shared library needs only the C and C++ runtimes, and calls nothing that prints or ends the process."""
    shared = build.halyard_shared
    for library in re.findall(r"Shared library: \[(.*?)\]", run(build.CMAKE_READELF, "-dW", shared)):
        if not re.match(r"(lib(c|m|pthread|gcc_s|stdc\+\+|c\+\+|c\+\+abi)|ld-linux-x86-64)\.so", library):
            fail(f"{shared} needs {library}")
    for symbol in symbols(build, "-D", "-u", shared):
        if PRINTS_OR_ENDS.match(symbol):
            fail(f"{shared} calls {symbol}, which prints or ends the process")


def hardened(build):
    """No memory of the shared library is both writable and executable, and its relocations are read-only when loaded."""
    shared = build.halyard_shared
    segments = run(build.CMAKE_READELF, "-lW", shared)
    if not re.search(r"GNU_STACK.* RW ", segments) or "GNU_RELRO" not in segments or " RWE " in segments:
        fail(f"{shared} has memory that is writable and executable, or no RELRO:\n{segments}")
    dynamic = run(build.CMAKE_READELF, "-dW", shared)
    if not re.search(r"BIND_NOW|Flags: .*NOW", dynamic) or "TEXTREL" in dynamic:
        fail(f"{shared} binds symbols late, or has relocations in its code:\n{dynamic}")


def kernel_objects(build):
    """Each kernel's object defines only its own symbols, needs none, and does not make the stack executable."""
    folder = build.kernels
    # Objects of GPU kernels are left out, because they need Halide's runtime and are linked with it.
    objects = [path for path in sorted(folder.glob("halyard_*.o"))
               if not re.search(r"_(cuda_sm\d+|cuda_kernels)$", path.stem)]
    if not objects:
        fail(f"there are no kernels in {folder}")
    expect_equal(f"the kernels in {folder} have undefined symbols", symbols(build, "-u", *objects), [])
    expect_equal(f"the kernels in {folder} define other symbols than their own",
                 symbols(build, "-g", "--defined-only", *objects),
                 sorted(path.stem + suffix for path in objects for suffix in ("", "_argv", "_metadata")))
    # An object without this section, or with the flag X on it, would make the stack of the program executable.
    sections = run(build.CMAKE_READELF, "-SW", *objects)
    not_executable = re.findall(r"\.note\.GNU-stack +PROGBITS +0+ [0-9a-f]+ 0+ 00 +0 ", sections)
    expect_equal("kernels that say that their stack need not be executable", len(not_executable), len(objects))


def headers(build):
    """Each header compiles alone and twice over under strict warnings: .h as C and C++, .hpp as C++."""
    strict = [*STRICT, "-Wshadow", "-fsyntax-only", "-I", build.include]
    c, cpp = build.scratch / "alone.c", build.scratch / "alone.cpp"
    for header in "halyard", "halyard_kv", "halyard_cuda":
        c.write_text(f"#include <halyard/{header}.h>\n" * 2)
        cpp.write_text(f"#include <halyard/{header}.hpp>\n" * 2)
        run(build.CMAKE_C_COMPILER, "-std=c11", "-Wstrict-prototypes", *strict, c)
        run(build.CMAKE_C_COMPILER, "-std=c99", *strict, c)
        for standard in 17, 20:
            run(build.CMAKE_CXX_COMPILER, f"-std=c++{standard}", *strict, cpp)
            run(build.CMAKE_CXX_COMPILER, f"-std=c++{standard}", *strict, "-x", "c++", c)
        # A program without exceptions must define HALYARD_THROW; else the compiler's error tells it to.
        without = [build.CMAKE_CXX_COMPILER, "-std=c++17", "-fno-exceptions", "-fno-rtti", *strict]
        run(*without, "-include", "cstdlib", "-DHALYARD_THROW(error)=static_cast<void>(error), std::abort()", cpp)
        refused = attempt(*without, cpp)
        if refused.returncode == 0 or "define HALYARD_THROW(error)" not in refused.stderr:
            fail(f"{header}.hpp without exceptions tells: {refused.stderr}")


def load(build):
    """The library, and a copy of it under another name, can be loaded, used and unloaded in one process."""
    library = pathlib.Path(build.halyard_shared).resolve()
    copy = shutil.copy(library, build.scratch / "libhalyard_copy.so")
    program = build.scratch / "load_library"
    run(build.CMAKE_C_COMPILER, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers",
        "-I", build.include, build.here / "load_library.c", "-o", program, "-ldl")
    run(*build.emulator, program, library, copy)


def emulated(build, cpu, target):
    """Tests of dispatch and of golden data pass on an emulated CPU, where `target` is the best target.

    The [kernel] tests do not run there: QEMU 7.2's vmaskmovps reads the masked elements too, which are in guard pages.
    """
    qemu = shutil.which("qemu-x86_64")
    if not qemu:
        skip("qemu-x86_64 is not installed (Debian: qemu-user)")
    tests = [qemu, "-cpu", cpu, build.halyard_tests]
    # Skip if the emulator lacks a feature of the CPU, as QEMU before 7.2 lacks AVX2.
    probe = attempt(*tests, "--list-tags")
    if probe.returncode != 0 or re.search(r"doesn't support requested feature: .*(avx2|fma|f16c|bmi)", probe.stderr):
        skip(f"{qemu} cannot emulate {cpu}: {probe.stderr}")
    text = run(*tests, "[emulated],[golden]", "--rng-seed", build.HALYARD_TEST_SEED,
               HALYARD_TEST_EXPECTED_TARGET=target, HALYARD_TARGET=None, HALYARD_MAX_TARGET=None)
    if "All tests passed" not in text:
        fail(f"on {cpu}: {text}")
    print(f"on {cpu}, dispatch takes {target}: {text}")


def samples(build, triple):
    """The folder with the objects of two kernels for a triple."""
    return build.folder / "emit/samples" / triple


def pack(build, triple, objects, destination):
    """Packs a triple's objects, which is the last step of ./run emit."""
    if not shutil.which("llvm-ar-19"):
        skip("llvm-ar-19 is not installed (Debian: llvm-19)")
    return attempt(*PYTHON, build.source / "generators/emit/pack.py", triple, "--objects", objects,
                   "--destination", destination, "--version", "1.2.3")


def emitted(build, triple):
    """A triple's library, header and manifest agree, the header compiles, and a program runs if this machine can."""
    own = triple == build.HALYARD_TRIPLE
    dist = build.scratch / "dist" / triple
    done = pack(build, triple, build.kernels if own and not build.HALYARD_TARGETS else samples(build, triple), dist)
    if done.returncode != 0:
        fail(f"{triple} was not packed: {done.stderr}")

    manifest = json.loads((dist / "manifest.json").read_text())
    expect_equal(f"the header of {triple} declares other kernels than the manifest",
                 re.findall(r"^halyard_[a-z_]+_kernel .*;$", (dist / "halyard_kernels.h").read_text(), re.MULTILINE),
                 [f"halyard_{row['op']}_kernel {row['name']};" for row in manifest["kernels"]])

    expect_equal(f"the header of {triple} says that some CPUs need a fallback",
                 "needs a fallback" in (dist / "halyard_kernels.h").read_text(), triple.startswith("x86-64-"))

    # The header compiles when included twice, and with Halide's header before or after it.
    strict = [*STRICT, "-Wshadow", "-I", dist, "-I", build.include]
    ours, theirs = "#include <halyard_kernels.h>\n", "#include <HalideRuntime.h>\n#include <halyard/halyard.h>\n"
    for name, text in ("alone", ours + ours), ("before", ours + theirs), ("after", theirs + ours):
        source = dist / f"{name}.c"
        source.write_text(text)
        sources = ["-isystem", build.HALYARD_HALIDE_RUNTIME_DIR, "-fsyntax-only", source]
        run(build.CMAKE_C_COMPILER, "-std=c11", "-Wstrict-prototypes", *strict, *sources)
        run(build.CMAKE_CXX_COMPILER, "-std=c++17", *strict, "-x", "c++", *sources)

    compiler, emulator = [build.CMAKE_C_COMPILER], []
    if triple == "arm-64-linux":
        cross, qemu = shutil.which("aarch64-linux-gnu-gcc"), shutil.which("qemu-aarch64")
        if not cross or not qemu:
            skip("the library is right, but running it needs aarch64-linux-gnu-gcc and qemu-aarch64")
        compiler, emulator = [cross, "-static"], [qemu, "-cpu", "cortex-a53"]
    elif not own:
        return
    run(*compiler, "-std=c11", *strict, build.here / "emitted.c", dist / manifest["library"], "-o", dist / "program",
        "-Wl,--fatal-warnings")
    print(run(*emulator, dist / "program"))


def digests(folder):
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(folder.iterdir())}


def emitted_unfit(build):
    """pack.py refuses objects that no program should be linked with, and leaves an existing package as it was. It
    refuses objects of another system, and writes no package."""
    folder, dist = build.scratch / "unfit", build.scratch / "dist/unfit"
    shutil.copytree(samples(build, "x86-64-linux"), folder, dirs_exist_ok=True)
    broken = folder / "halyard_rotate_half_f32_x86_avx2.o"
    good = samples(build, "x86-64-linux") / broken.name
    objcopy = [build.CMAKE_OBJCOPY, good, broken]
    commands = {
        None: [*objcopy],
        "has something executable that should not be": [*objcopy, "--set-section-flags=.text=alloc,load,code,data"],
        "does not say that its stack need not be executable": [*objcopy, "--remove-section=.note.GNU-stack"],
        "the symbols that the objects define": [*objcopy, "--add-symbol=stray=.text:0,global,function"],
        "the symbols that the objects need": [build.CMAKE_LINKER, "-r", "-u", "stray", good, "-o", broken],
        "not recognized as a valid object file": ["dd", f"if={good}", f"of={broken}", "bs=1", "skip=1"],
    }
    for why, command in commands.items():
        run(*command)
        done = pack(build, "x86-64-linux", folder, dist)
        if why is None:
            expect_equal("packing a good object ends with", (done.returncode, done.stderr), (0, ""))
            before = digests(dist)
        elif done.returncode == 0 or why not in done.stderr:
            fail(f"an object was not refused, because of '{why}': {done.stdout}{done.stderr}")
        expect_equal(f"the package, after '{why}'", digests(dist), before)
    wrong = build.scratch / "dist/wrong"
    done = pack(build, "arm-64-osx", samples(build, "arm-64-ios"), wrong)
    if done.returncode == 0 or not re.search(r"found: +Mach-O arm64 ios\n +expected: +Mach-O arm64 macos", done.stderr):
        fail(f"objects for iOS were taken for macOS's: {done.stdout}{done.stderr}")
    expect_equal("what is left beside the package", [wrong.exists(), *dist.parent.glob(".pack-*")], [False])


main(exports, cuda_symbols, own_symbols, needs, hardened, kernel_objects, headers, load, emulated,
     emitted, emitted_unfit)
