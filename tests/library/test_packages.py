"""Installs Halyard and packs its source archives, builds programs with them as users would, and compares the programs'
output with the README's.

See harness.py for the command line. The checks are the functions that main() lists.
"""

import json
import os
import pathlib
import re
import shlex
import shutil
import sys
import tarfile

from harness import PYTHON, attempt, expect_c_example, expect_equal, fail, main, run, skip

WITHOUT_PACKAGES = ["-DHALYARD_JSON_DIR=/nowhere", "-DCMAKE_DISABLE_FIND_PACKAGE_Halide=ON"]


def prefix(build):
    """The folder in which install() leaves an installed Halyard for the other checks."""
    return build.scratch / "prefix"


def readme_part(build, kind):
    """A part of the README's example, which CMake extracts: cpp (the program), txt (its output) or cmake."""
    return build.folder / f"tests/readme_example.{kind}"


def expect_programs(build, folder):
    """Checks that the programs that consume() has built run, and that the README's example prints its output there."""
    expect_equal("the README's example prints", run(*build.emulator, folder / "app"), readme_part(build, "txt").read_text())
    expect_c_example(build, folder / "consumer_c")


def configure(build, folder, *options, cxx=True, make=None):
    """The command that configures tests/library/consumer with this build's own tools."""
    generator = ["-G", "Unix Makefiles", f"-DCMAKE_MAKE_PROGRAM={make}"] if make else [
        "-G", build.CMAKE_GENERATOR, f"-DCMAKE_MAKE_PROGRAM={build.CMAKE_MAKE_PROGRAM}"]
    tools = [f"-DCMAKE_C_COMPILER={build.CMAKE_C_COMPILER}", f"-DC_EXAMPLE={build.c_example}"]
    if cxx:
        tools += [f"-DCMAKE_CXX_COMPILER={build.CMAKE_CXX_COMPILER}", f"-DREADME_EXAMPLE={readme_part(build, 'cpp')}",
                  f"-DREADME_CMAKE={readme_part(build, 'cmake')}"]
    if cxx and build.CMAKE_CROSSCOMPILING == "TRUE":
        tools += [f"-D{name}={getattr(build, name)}" for name in ("CMAKE_SYSTEM_NAME", "CMAKE_SYSTEM_PROCESSOR")]
    return [build.CMAKE_COMMAND, "-S", build.here / "consumer", "-B", folder, *generator, *tools, *options]


def consume(build, name, *options, **how):
    """Configures and builds tests/library/consumer; returns the folder with its programs."""
    folder = build.scratch / name
    shutil.rmtree(folder, ignore_errors=True)
    run(*configure(build, folder, *options, **how))
    run(build.CMAKE_COMMAND, "--build", folder, "--parallel", "2")
    return folder


def blocks_of(page):
    return re.findall(r"^```sh\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)


def run_block(block, folder, **variables):
    """Runs a shell block in a folder, which is HOME too. It compiles without optimisation, to be quick."""
    run("bash", "-ec", f"cd {shlex.quote(str(folder))}\n{block}", HOME=folder, CMAKE_BUILD_TYPE="None", **variables)


def shell_blocks(build):
    """The shell blocks of the pages run unchanged, in an imitation of a checkout after `./run build`. Its ./run starts
    this build's tool, and makes archives of this build's kernels. Of other commands only the names are checked, because
    these commands take minutes or have their own tests."""
    folder = build.scratch / "checkout"
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build").mkdir(parents=True)
    for path in build.source.iterdir():
        if path.name not in ("run", "build", "dist", ".deps", ".git"):
            (folder / path.name).symlink_to(path)
    (folder / ".deps/venv/bin").mkdir(parents=True)
    for name, program in ("cmake", build.CMAKE_COMMAND), ("ninja", build.CMAKE_MAKE_PROGRAM):
        (folder / ".deps/venv/bin" / name).symlink_to(program)
    dist = shlex.join(map(str, [*PYTHON, *archive_of_all(build), "--destination", "dist"]))
    (folder / "run").write_text(f"""#!/bin/sh
case $1 in
halyard) shift; exec {shlex.quote(str(build.folder))}/bin/halyard "$@" ;;
dist) exec {dist} ;;
*) exec {shlex.quote(str(build.source))}/run help "$1" ;;
esac
""")
    (folder / "run").chmod(0o755)
    for page in "README.md", "bench/README.md":
        blocks = blocks_of(build.source / page)
        expect_equal(f"{page} has blocks", bool(blocks), True)
        for block in blocks:
            run_block(block, folder)


def files_below(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


def install(build):
    """Every component installs files, all together install everything, and no file names a folder of this machine."""
    whole, parts = prefix(build), build.scratch / "prefix.parts"
    for folder in whole, parts:
        shutil.rmtree(folder, ignore_errors=True)
    for component in build.list("HALYARD_COMPONENTS"):
        before = files_below(parts)
        run(build.CMAKE_COMMAND, "--install", build.folder, "--prefix", parts, "--component", component)
        if files_below(parts) == before:
            fail(f"the component {component} is empty")
        if component == "runtime":
            for name in "LICENSE", "LICENSES_OF_OTHERS":
                expect_equal(f"{name} as it is installed", (parts / "share/doc/halyard" / name).read_text(),
                             (build.source / name).read_text())
    run(build.CMAKE_COMMAND, "--install", build.folder, "--prefix", whole)
    expect_equal("the components together are not the whole", files_below(parts), files_below(whole))
    for path in whole.rglob("*"):
        if path.suffix in (".cmake", ".pc"):
            for word in str(whole), str(build.folder), "nlohmann":
                if word in path.read_text():
                    fail(f"{path} has a path of this machine, or a dependency of the build: {word}")
    # The other checks use the installation at another path than it was installed to, because it must be relocatable.
    shutil.rmtree(whole)
    parts.rename(whole)


def find_package(build, kind):
    """find_package serves C and C++ programs, with the shared library, or with the static library and link-time
    optimisation."""
    options = ["-DBUILD_SHARED_LIBS=ON"] if kind == "shared" else [
        "-DCMAKE_INTERPROCEDURAL_OPTIMIZATION=ON", "-DCMAKE_BUILD_TYPE=Release"]
    folder = consume(build, f"find_package_{kind}", f"-DCMAKE_PREFIX_PATH={prefix(build)}", *options)
    expect_programs(build, folder)
    needed = re.findall(r"libhalyard\S*\]", run(build.CMAKE_READELF, "-dW", folder / "app"))
    expect_equal("what the program needs of Halyard", needed,
                 [f"libhalyard.so.{build.HALYARD_SOVERSION}]"] if kind == "shared" else [])


def find_package_one_kind(build):
    """If only the static or only the shared library is installed, find_package serves a C project with that one. It
    refuses a package with neither, another version, and an unknown component."""
    part = build.scratch / "prefix.one_kind"
    options = [f"-DCMAKE_PREFIX_PATH={part}", "-DLANGUAGES=C"]
    for removed, needs in [("*.so*", False), ("*.a", True), ("*", None)]:
        shutil.rmtree(part, ignore_errors=True)
        shutil.copytree(prefix(build), part, symlinks=True)
        refused = [("0.0", "halyard"), ("0.2", "halyard"), ("0.1;COMPONENTS;tpu", "halyard")] if needs else []
        for path in part.rglob(f"libhalyard{removed}"):
            path.unlink()
        if needs is None:
            refused = [("0.1", "neither libhalyard.a nor libhalyard.so")]
        else:
            folder = consume(build, "find_package_one_kind", *options, cxx=False)
            expect_c_example(build, folder / "consumer_c")
            needed = "libhalyard" in run(build.CMAKE_READELF, "-dW", folder / "consumer_c")
            expect_equal(f"without {removed}, whether libhalyard.so is needed", needed, needs)
        for wanted, why in refused:
            done = attempt(*configure(build, build.scratch / "find_package_refuses", *options, f"-DWANTED={wanted}",
                                      cxx=False))
            if done.returncode == 0 or why not in " ".join(done.stderr.split()):
                fail(f"find_package of {wanted} was not refused: {done.stderr}")


def pkg_config(build):
    """The flags of pkg-config link programs that run: dynamic programs with the static library, wholly static
    programs, and programs with the shared library, which has its own .pc file and is found by LD_LIBRARY_PATH."""
    program = shutil.which("pkg-config")
    if not program:
        skip("pkg-config is not installed")
    libraries = prefix(build) / build.CMAKE_INSTALL_LIBDIR
    consumer = build.scratch / "pkg_config"
    for name in "halyard", "halyard_cuda":
        if not (libraries / f"pkgconfig/{name}.pc").exists():
            continue
        for kind, *options in ("",), ("", "-static"), ("-shared", "-Wl,--no-as-needed"):
            flags = run(program, "--cflags", "--libs", f"{name}{kind} = {build.PROJECT_VERSION}",
                        PKG_CONFIG_PATH=libraries / "pkgconfig")
            run(build.CMAKE_C_COMPILER, "-std=c11", build.c_example, "-Wl,--no-undefined", "-o", consumer, *options,
                *shlex.split(flags))
            expect_c_example(build, consumer, LD_LIBRARY_PATH=libraries if kind else None)
            expect_equal(f"whether {name}{kind} needs lib{name}.so",
                         f"lib{name}.so" in run(build.CMAKE_READELF, "-dW", consumer), bool(kind))


def add_subdirectory(build):
    """add_subdirectory of a checkout uses what ./run setup fetched, and is optimised even without a build type."""
    folder, bare = build.scratch / "add_subdirectory", build.scratch / "add_subdirectory.sources"
    for leftover in folder, bare:
        shutil.rmtree(leftover, ignore_errors=True)

    def expect(sources, is_taken, words, *options):
        shutil.rmtree(folder, ignore_errors=True)
        done = attempt(*configure(build, folder, f"-DHALYARD_SOURCE_DIR={sources}", *options), CMAKE_BUILD_TYPE=None)
        if (done.returncode == 0) != is_taken or not re.search(words.replace(" ", r"\s+"), done.stderr):
            fail(f"a build in a project with {options} says: {done.stderr}")

    for name in "generators", "runtime":
        shutil.copytree(build.source / name, bare / name)
    shutil.copy(build.source / "CMakeLists.txt", bare)
    expect(bare, False, 'call "[^"]*/run setup"', *WITHOUT_PACKAGES)

    if not (build.source / ".deps/halide").exists():
        skip("./run setup has fetched nothing here")
    for targets in "x86_avx2;x86_avx3", "x86_avx2;cuda_sm80", "arm_neon":
        expect(build.source, False, 'HALYARD_TARGETS holds ("(x86_avx3|cuda_sm80)", which is )?none of',
               f"-DHALYARD_TARGETS={targets}")
    expect(build.source, True, "No kernel is built for", "-DHALYARD_TARGETS=reference", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON")
    for source in json.loads((folder / "compile_commands.json").read_text()):
        is_ours = str(build.source / "runtime") in source["file"]
        if is_ours != (" -O3 " in source["command"]) and "/generators/" not in source["file"]:
            fail(f"in a project without a build type {source['file']} is compiled so: {source['command']}")


def archive_of(build, *options):
    """The command that makes a source archive, without the destination."""
    return [build.source / "generators/emit/dist.py", "--version", build.PROJECT_VERSION, "--json",
            build.HALYARD_JSON_DIR, *options]


def archive_of_all(build):
    return archive_of(build, "--triple", f"x86-64-linux={build.kernels}", "--cuda", build.kernels, "--halide-license",
                      build.HALYARD_HALIDE_LICENSE)


def make_archive(build, name, script):
    """Makes a source archive and unpacks it. The nightly run makes archives twice and compares them."""
    folder = build.scratch / "archives"
    run(*PYTHON, *script, "--destination", folder)
    shutil.rmtree(folder / name, ignore_errors=True)
    with tarfile.open(folder / f"{name}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.2 lacks it; 3.12 warns without
        archive.extractall(folder)
    return folder / name


def expect_sbom(build, sources):
    """The archive's SBOM lists the versions of the code that it contains, and pip builds with the same versions."""
    parts = {part["name"]: part["version"] for part in json.loads((sources / "halyard.cdx.json").read_text())["components"]}
    header = (sources / "third_party/nlohmann/detail/abi_macros.hpp").read_text()
    version = ".".join(re.findall(r"#define NLOHMANN_JSON_VERSION_[A-Z]+ (\d+)", header))
    expect_equal("the SBOM's parts", parts, {"Halide": build.HALYARD_HALIDE_VERSION, "JSON for Modern C++": version})
    pinned = (build.source / "requirements.txt").read_text()
    for pin in re.findall(r'"([\w-]+==[\d.]+)"', (build.source / "pyproject.toml").read_text()):
        if f"\n{pin} " not in pinned:
            fail(f"pyproject.toml takes {pin}, which requirements.txt does not pin")
    table, *licenses = re.split(r"\n-+\n", (sources / "LICENSES_OF_OTHERS").read_text())
    expect_equal("the licences that are listed", [text.partition("\n")[0] for text in licenses],
                 re.findall(r"^(\S.*?) {2,}", table, re.MULTILINE))


def emitted_twice(build):
    """Emitted kernels do not depend on the build's folder: emitting them in two folders gives the same bytes."""
    emit = [*PYTHON, build.source / "generators/emit/emit.py", "--generator", build.folder / "bin/halyard_generator",
            "--halide", build.HALYARD_HALIDE_VERSION, "--schedules", "none"]
    for triple, target, kernel, suffixes in [
            ("x86-64-linux", "x86_avx512", "halyard_rows_phase", ".s .o"),
            ("arm-64-linux", "arm_neon", "halyard_rows_phase", ".s"),
            ("x86-64-linux", "cuda_sm80", "halyard_rotate_half_f32", ".o .ptx")]:
        folders = [build.scratch / name for name in ("emitted once", "emitted again/elsewhere")]
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
            run(*emit, "--triple", triple, "--target", target, "--kernels", f"{kernel}_{target}", "-o", folder)
        for file in [f"{kernel}_{target}{suffix}" for suffix in suffixes.split()] + [f"kernel_rows_{target}.inc"]:
            first, second = ((folder / file).read_bytes() for folder in folders)
            expect_equal(f"{file}, emitted in another folder, is the same", second == first, True)


def source_archive(build):
    """The source archive builds without Halide and JSON on the machine, here with one target's kernels."""
    name = f"halyard-{build.PROJECT_VERSION}"
    sources = make_archive(build, name, archive_of_all(build))
    expect_sbom(build, sources)
    # With Make, which users often have, and which needs more complete dependencies than Ninja.
    folder = consume(build, "source_archive", f"-DHALYARD_SOURCE_DIR={sources}", "-DHALYARD_BUILD_CUDA=ON",
                     "-DHALYARD_TARGETS=x86_avx2;arm_neon", *WITHOUT_PACKAGES,
                     make=shutil.which("gmake") or shutil.which("make"))
    expect_programs(build, folder)
    symbols = run(build.CMAKE_NM, folder / "app")
    expect_equal("the kernels in the program", re.findall(r" (halyard_rotate_half_f32_x86_[a-z0-9]+)\n", symbols),
                 ["halyard_rotate_half_f32_x86_avx2"])
    tools = [pathlib.Path(program).parent for program in (build.CMAKE_COMMAND, build.CMAKE_MAKE_PROGRAM)]
    opening, *_ = blocks_of(sources / "README.md")
    run_block(opening, sources, PATH=":".join(map(str, [*tools, os.environ["PATH"]])),
              CMAKE_GENERATOR=build.CMAKE_GENERATOR)
    run(*PYTHON, build.here / "check_pages.py", sources)
    if not (sources / "halyard/share/doc/halyard/halyard.cdx.json").exists():
        fail("the archive's SBOM is not installed")


def triple_archive(build):
    """The archive for this build's triple contains a static library of kernels instead of assembly, and builds too."""
    if not shutil.which("llvm-ar-19"):
        skip("llvm-ar-19 is not installed (Debian: llvm-19)")
    triple = build.HALYARD_TRIPLE
    package = build.scratch / "archives" / triple
    run(*PYTHON, build.source / "generators/emit/pack.py", triple, "--objects", build.kernels,
        "--destination", package, "--version", build.PROJECT_VERSION)
    sources = make_archive(build, f"halyard-{build.PROJECT_VERSION}-{triple}", archive_of(build, "--package", package))
    folder = consume(build, "triple_archive", f"-DHALYARD_SOURCE_DIR={sources}", *WITHOUT_PACKAGES)
    expect_programs(build, folder)
    symbols = run(build.CMAKE_NM, folder / "app")
    if not re.search(r" halyard_rotate_half_f32_(x86_avx2|arm_neon)\n", symbols):
        fail(f"the program lacks the kernels of the archive: {symbols}")


main(install, find_package, find_package_one_kind, pkg_config, add_subdirectory, emitted_twice, source_archive,
     triple_archive, shell_blocks)
