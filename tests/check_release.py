#!/usr/bin/env python3
"""What a release needs to have seen, in one table. A step's result holds for the files that it ran on, so that a later
call goes on where this one stopped. Results are kept in tests/release.json, which is committed: all steps take hours, and
another machine may go on too. Outputs are in build/release/HASH."""

import argparse
import dataclasses
import datetime
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve()
ROOT = HERE.parents[1]
# What this machine needs to reach the network, for a root file system of its own.
NETWORK = ["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt", "/etc/pip.conf",
           "/etc/apt/apt.conf.d"]
VARIABLES = re.compile(r"(?i)\w+_proxy|PIP_\w+|SSL_CERT_\w+|LANG|LC_ALL|TERM")
SYSTEMS = ["bookworm", "trixie", "noble"]  # debootstrap knows where their packages are
# Compilers of releases of Debian: packages, and what packages/compilers.py calls them.
COMPILERS = {
    "bookworm": ("g++-12,clang-16", "g++-12 clang++-16"),
    "trixie": ("g++-13,g++-14,clang-17,clang-18,clang-19,g++-aarch64-linux-gnu,qemu-user",
               "g++-13 g++-14 clang++-17 clang++-18 clang++-19 aarch64-linux-gnu-g++"),
}
CONAN = "conan==2.34.0"
RECORD = "tests/release.json"
# Lines that tell how much a step did, and what it left out.
COUNTS = re.compile(r"tests passed|\d+ passed|mutants|no find|compared|ratios|wrote|as they were|Done \d+|differ")
SKIPPED = re.compile(r"(?i)^(?:run: )?skip|\(Skipped\)|\d+ skipped")


@dataclasses.dataclass(frozen=True)
class Step:
    name: str
    what: str
    command: str  # ./run's arguments; or what begins with "=": a function here, and its arguments
    may_be_skipped: bool = False


STEPS = [
    Step("lint", "clang-tidy, cppcheck, shellcheck", "lint"),
    Step("suite", "the whole suite, and pages' commands", "test"),
    Step("asan", "the same under AddressSanitizer", "test asan"),
    Step("ubsan", "and UndefinedBehaviorSanitizer", "test ubsan"),
    Step("tsan", "and ThreadSanitizer", "test tsan"),
    Step("memcheck", "kernels and runs under valgrind", "test memcheck"),
    Step("aarch64", "the suite on emulated AArch64", "test aarch64"),
    Step("abi", "the ABI beside the last release's", "test abi"),
    Step("fuzz", "an hour of fuzzing", "fuzz 60"),
    Step("soak", "half an hour of random runs in many threads", "soak 30"),
    Step("mutations", "each check of arguments broken in turn", "test mutations"),
    Step("python", "the Python package", "test python"),
    Step("engines", "llama.cpp, ONNX Runtime and vLLM", "test engines"),
    Step("floors", "speed beside the recorded ratios", "bench --check-floors"),
    Step("wheel", "the wheel, twice the same, and in a bare environment", "=wheel"),
    Step("wheel-aarch64", "the same for AArch64, tested under qemu", "wheel aarch64"),
    Step("archives", "archives, twice the same", "=archives"),
    Step("compilers", "the source archive by gcc 12 to 14 and clang 16 to 19, for AArch64 too", "=compilers"),
    Step("conan", "the source archive's recipe for Conan", "=conan"),
    *(Step(name, f"a fresh {name}: ./run demo and test, not as root, where the path has a space", f"=fresh {name}",
           may_be_skipped=name == "noble")  # not every network has Ubuntu's packages
      for name in SYSTEMS),
]


class Skipped(Exception):
    """Why a step cannot be done here."""


def call(log, *command, **options):
    """Runs a command, whose output goes to the log."""
    log.write(f"+ {' '.join(map(str, command))}\n")
    log.flush()
    subprocess.run([*map(str, command)], check=True, stdout=log, stderr=log, stdin=subprocess.DEVNULL, **options)


def checksums(log, pattern):
    sums = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted((ROOT / "dist").glob(pattern))}
    log.writelines(f"{value}  {name}\n" for name, value in sums.items())
    return sums


def make(log, command, pattern):
    """The files that ./run makes in dist, with their checksums: none is of another state of the tree."""
    for path in (ROOT / "dist").glob(pattern):
        path.unlink()
    call(log, "./run", command, cwd=ROOT)
    return checksums(log, pattern)


def made_twice(log, command, pattern):
    """The files that ./run makes in dist, which are the same the second time."""
    found = [make(log, command, pattern) for _ in range(2)]
    if not found[0] or found[0] != found[1]:
        raise RuntimeError(f"./run {command} made other bytes the second time, or none")
    return [ROOT / "dist" / name for name in found[0]]


def make_environment(log, folder, *packages):
    """The programs of a new virtual environment with these packages."""
    shutil.rmtree(folder, ignore_errors=True)
    call(log, sys.executable, "-m", "venv", folder)
    call(log, folder / "bin/python", "-m", "pip", "install", "--quiet", *packages)
    return folder / "bin"


def wheel(log, folder):
    made = made_twice(log, "wheel", "halyard-*.whl")
    for path in made:
        held = zipfile.ZipFile(path).namelist()
        if not any("/sboms/halyard" in name for name in held) or not any("LICENSES_OF_OTHERS" in name for name in held):
            raise RuntimeError(f"{path.name} lacks its bill of materials, or the licences of what it holds")
        programs = make_environment(log, folder / "venv", "numpy", path)
        call(log, programs / "python", "-I", "-c", "import numpy, halyard; x = numpy.ones((2, 1, 8), numpy.float32)\n"
             "angles = halyard.AngleSource(halyard.Frequencies.from_base(10000, 8))\n"
             "assert not numpy.array_equal(halyard.rotate(x, angles=angles, positions=numpy.arange(2)), x)")
    log.write(f"wrote {len(made)} wheels, each twice the same\n")


def archives(log, folder):
    made = made_twice(log, "dist", "*.tar.gz")
    log.write(f"wrote {len(made)} archives, each twice the same\n")


def make_root(log, folder, name, packages):
    """A root file system of its own, with a user who is not root."""
    if os.geteuid() != 0:
        raise Skipped("only root may make a root file system")
    if shutil.which("debootstrap") is None:
        raise Skipped("debootstrap is missing")
    root = folder / name
    shutil.rmtree(root, ignore_errors=True)
    try:
        call(log, "debootstrap", "--variant=minbase", f"--include=ca-certificates,git,sudo{packages}", name, root)
    except subprocess.CalledProcessError:
        raise Skipped(f"{name} could not be fetched") from None
    for path in map(pathlib.Path, NETWORK):
        if path.exists():
            to = root / path.relative_to("/")
            shutil.copytree(path, to, dirs_exist_ok=True) if path.is_dir() else shutil.copy(path, to)
    call(log, "chroot", root, "useradd", "--create-home", "newcomer")
    (root / "etc/sudoers.d/newcomer").write_text("newcomer ALL=(ALL) NOPASSWD: ALL\nDefaults env_keep = \"*\"\n")
    return root


def do_in_root(log, root, command):
    """Runs a command as the user, in the user's home, and removes the root file system where it passed. What is mounted
    is so in a namespace of its own, and not when the root is removed."""
    call(log, "chroot", root, "chown", "-R", "newcomer:", "/home/newcomer")
    script = ('mount -t proc proc "$0/proc"; for m in dev sys; do mount --rbind "/$m" "$0/$m"; done; '
              'exec chroot "$0" sudo -E -H -u newcomer bash -ec "$1"')
    kept = {key: value for key, value in os.environ.items() if VARIABLES.fullmatch(key)}
    call(log, "unshare", "--mount", "--pid", "--fork", "bash", "-ec", script, root, f"cd; {command}",
         env=kept | {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"})
    shutil.rmtree(root)


def fresh(log, folder, name):
    root = make_root(log, folder, name, "")
    call(log, "git", "clone", "--quiet", ROOT, root / "home/newcomer/a clone")
    do_in_root(log, root, "cd 'a clone'; ./run demo; ./run test")


def make_archive(log):
    """The source archive, which is named by its version alone."""
    name, = (name for name in make(log, "dist", "halyard-*.tar.gz") if name.count("-") == 1)
    return ROOT / "dist" / name


def compilers(log, folder):
    archive = make_archive(log)
    for name, (packages, names) in COMPILERS.items():
        root = make_root(log, folder, name, f",cmake,ninja-build,python3,libc6-dev,{packages}")
        for path in archive, ROOT / "packages/compilers.py":
            shutil.copy(path, root / "home/newcomer")
        do_in_root(log, root, f"python3 compilers.py halyard-*.tar.gz {names}")
    n_compilers = sum(len(names.split()) for _, names in COMPILERS.values())
    log.write(f"{n_compilers} compilers passed, each as C++20 and C++23\n")


def conan(log, folder):
    """The recipe in the source archive, which builds an example with the package that it makes."""
    shutil.rmtree(folder / "conan", ignore_errors=True)
    with tarfile.open(make_archive(log)) as packed:
        packed.extractall(folder / "conan")
    sources, = (folder / "conan").glob("halyard-*")
    programs = make_environment(log, folder / "conan/venv", CONAN)
    environment = os.environ | {"CONAN_HOME": str(folder / "conan/home"),
                                "PATH": f"{programs}:{ROOT}/.deps/venv/bin:{os.environ['PATH']}"}  # which has CMake
    call(log, "conan", "profile", "detect", env=environment)
    for gpu in False, True:
        call(log, "conan", "create", "packages/conan", "-s", "compiler.cppstd=20", "-o", f"halyard/*:gpu={gpu}",
             cwd=sources, env=environment)
    shutil.rmtree(folder / "conan")
    log.write("wrote 2 packages\n")


def do(step, folder):
    """What a step came to: a state, in how many seconds, and what its output says."""
    path, begun, state, words = folder / f"{step.name}.log", time.monotonic(), "passed", ""
    with path.open("w") as log:
        try:
            first, *rest = step.command.split()
            if first.startswith("="):
                globals()[first[1:]](log, folder, *rest)
            else:
                call(log, "./run", first, *rest, cwd=ROOT)
        except Skipped as why:
            state, words = "skipped", str(why)
        except (OSError, RuntimeError, subprocess.CalledProcessError) as error:
            state, words = "FAILED", str(error) if isinstance(error, RuntimeError) else ""
    lines = path.read_text(errors="replace").splitlines()
    counts = [line.strip() for line in lines if COUNTS.search(line)]
    skipped = sum(bool(SKIPPED.search(line)) for line in lines)
    last = lines[-1].strip() if lines else ""
    words = words or (counts[-1] if counts and state == "passed" else last)
    return {"state": state, "seconds": round(time.monotonic() - begun), "words": words[:100], "skipped": skipped,
            "when": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")}


def git(*arguments):
    return subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, text=True, check=True).stdout


def hash_of_files():
    """Of all that is committed but the record, since a result would else end with the commit that keeps it."""
    lines = [line for line in git("ls-tree", "-r", "HEAD").splitlines() if not line.endswith(f"\t{RECORD}")]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:40]


def read_record(files):
    """The results that hold for these files, by step."""
    record = json.loads((ROOT / RECORD).read_text()) if (ROOT / RECORD).exists() else {}
    return record["results"] if record.get("files") == files else {}


def add_to_record(files, folder, name, result):
    """The results with one more. Other calls may run other steps at the same time."""
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        results = read_record(files) | {name: result}
        (ROOT / RECORD).write_text(json.dumps({"files": files, "results": results}, indent=1, sort_keys=True) + "\n")
    return results


def table(results):
    """As Markdown."""
    yield "| step | what | result | hours | it says | when (UTC) |"
    yield "|---|---|---|---|---|---|"
    for step in STEPS:
        result = results.get(step.name)
        if result is None:
            yield f"| {step.name} | {step.what} | not run | | | |"
            continue
        words = result["words"].replace("|", "/")
        words += f"; {result['skipped']} lines about what was skipped" if result["skipped"] else ""
        yield (f"| {step.name} | {step.what} | {result['state']} | {result['seconds'] / 3600:.2f} | {words} | "
               f"{result['when']} |")
    yield f"| all | | | {sum(result['seconds'] for result in results.values()) / 3600:.2f} | | |"


def main(arguments):
    parser = argparse.ArgumentParser(prog="./run check-release", description=__doc__)
    names = [step.name for step in STEPS]
    parser.add_argument("steps", nargs="*", metavar="STEP", help=f"of {', '.join(names)} [all that have not passed]")
    parser.add_argument("--table", action="store_true", help="print what is known, and run nothing")
    given = parser.parse_args(arguments)
    for name in given.steps:
        if name not in names:
            parser.error(f"there is no step '{name}': they are {', '.join(names)}")
    if git("status", "--porcelain", "--", ".", f":!{RECORD}"):
        parser.error("commit first: results hold for what is committed")
    files = hash_of_files()
    folder = ROOT / "build/release" / files
    folder.mkdir(parents=True, exist_ok=True)
    results = read_record(files)
    for step in STEPS:
        wanted = step.name in given.steps or not given.steps and results.get(step.name, {}).get("state") != "passed"
        if wanted and not given.table:
            print(f"check-release: {step.name}: {step.what}", file=sys.stderr, flush=True)
            results = add_to_record(files, folder, step.name, do(step, folder))
            print(f"check-release: {step.name} {results[step.name]['state']} (log: {folder / step.name}.log)",
                  file=sys.stderr, flush=True)
    print("\n".join(table(results)))
    is_done = all(results.get(step.name, {}).get("state") in ("passed", "skipped")[:1 + step.may_be_skipped]
                  for step in STEPS)
    return 0 if is_done else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
