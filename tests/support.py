#!/usr/bin/env python3
"""support.py README.md BUILD...: which kernels were run where, as a table in the README.

support.py --check README.md BUILD...   compares the table with the kernels that the builds have, and writes nothing

A BUILD is a build folder: generated/ has the lists of its kernels, and tests.xml, in JUnit's format, the results of its
latest `./run test`. A target's dtypes stand in a row for each way in which they were tested, under their pairings. What
GPUs' kernels ran on is what the driver said then, in the output of a test.
"""

import collections
import pathlib
import re
import sys
import xml.etree.ElementTree

BEGIN, END = "<!-- made by ./run support -->\n", "<!-- end -->\n"
DTYPES = ["f32", "f16", "bf16"]
PAIRINGS = ["half", "interleaved", "half_to_interleaved", "interleaved_to_half", "strided"]
RUN, EMULATED, EMITTED = "on hardware", "emulated", "emitted only"
DEVICES_TEST = "gpu: the devices of this machine"  # in tests/gpu/test_gpu_kernels.cpp
POCL = "Portable Computing Language"

Kernel = collections.namedtuple("Kernel", "name target pairing dtype is_gpu")


def kernels_of(build):
    """In the order of kernels.inc."""
    lists = re.findall(r'"(.*)"', (build / "generated/built_rows.inc").read_text())
    text = "".join(pathlib.Path(path).read_text() for path in lists)
    pattern = rf"halyard_rotate_({'|'.join(PAIRINGS)})_({'|'.join(DTYPES)})\w*"
    for row in re.finditer(r"^(\w+)\((\w+), (\w+), ", text, re.MULTILINE):
        name = re.fullmatch(pattern, row[2])
        if name:
            yield Kernel(row[2], row[3], name[1], name[2], row[1] == "HALYARD_GPU_KERNEL")


def results_of(build):
    """What became of each test, what devices of GPUs' targets are, and on which day."""
    try:
        suite = xml.etree.ElementTree.parse(build / "tests.xml").getroot()
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        sys.exit(f"support.py: {build} has no results of ./run test: {error}")
    cases = {case.get("name"): case for case in suite.iter("testcase")}
    said = cases[DEVICES_TEST].findtext("system-out") if DEVICES_TEST in cases else ""
    devices = dict(re.findall(r"^(\w+): (.+)$", said, re.MULTILINE))
    return {name: case.get("status") for name, case in cases.items()}, devices, suite.get("timestamp", "")[:10]


def cpu():
    """The machine's, as /proc/cpuinfo names it."""
    found = re.search(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found[1].strip() if found else "a CPU that does not tell its name"


def tested(kernel, build, status, devices):
    if status == "fail":
        sys.exit(f"support.py: the test of {kernel.name} failed")
    if status is None:
        sys.exit(f"support.py: {kernel.name} was not tested: run all of ./run test, and ./run test aarch64")
    if status != "run":
        return EMITTED
    if not kernel.is_gpu:
        return EMULATED if build.name == "aarch64" else RUN
    device = devices.get(kernel.target)
    if device is None:
        sys.exit(f'support.py: the test "{DEVICES_TEST}" does not say what {kernel.target} ran on')
    if device == "emulated":
        return EMULATED
    return f"on {device.replace(POCL, 'PoCL')}" if device.endswith(", a CPU") else RUN


def make_table(builds):
    targets = {}  # target -> how tested -> pairing -> dtypes
    dates = set()
    for build in builds:
        results, devices, date = results_of(build)
        dates.add(date)
        worst = {}
        for kernel in kernels_of(build):
            key = kernel.target, kernel.pairing, kernel.dtype
            how = tested(kernel, build, results.get(kernel.name), devices)
            worst[key] = max(worst.get(key, how), how, key=lambda one: (one == EMITTED, one != RUN))
        for (target, pairing, dtype), how in worst.items():
            targets.setdefault(target, {}).setdefault(how, {}).setdefault(pairing, set()).add(dtype)
    lines = [f"| target | tested | {' | '.join(pairing.replace('_', ' ') for pairing in PAIRINGS)} |",
             "|---" * (2 + len(PAIRINGS)) + "|"]
    for target, ways in targets.items():
        for how, dtypes in ways.items():
            cells = [", ".join(dtype for dtype in DTYPES if dtype in dtypes.get(pairing, ())) or "-"
                     for pairing in PAIRINGS]
            lines.append(f"| `{target}` | {how} | {' | '.join(cells)} |")
    return "\n".join(lines) + f"\n\nAs tested on {max(dates)}, the hardware being {cpu()}.\n"


def combinations(table):
    """The target, pairing and dtype of every cell."""
    found = set()
    for row in re.finditer(r"^\| `(\w+)` \| [^|]* \| (.*) \|$", table, re.MULTILINE):
        for pairing, cell in zip(PAIRINGS, row[2].split(" | ")):
            found |= {(row[1], pairing, dtype) for dtype in cell.split(", ") if dtype != "-"}
    return found


def main():
    arguments = sys.argv[1:]
    check = arguments[:1] == ["--check"]
    readme, *builds = map(pathlib.Path, arguments[check:])
    before, begin, rest = readme.read_text().partition(BEGIN)
    table, end, after = rest.partition(END)
    if not (begin and end):
        sys.exit(f"support.py: {readme} has no place for the table, which is between {BEGIN!r} and {END!r}")
    if not check:
        readme.write_text(before + BEGIN + make_table(builds) + END + after)
        return
    listed = {tuple(kernel[1:4]) for build in builds for kernel in kernels_of(build)}
    targets = {target for target, _, _ in listed}
    shown = {cell for cell in combinations(table) if cell[0] in targets}
    if not listed or shown != listed:
        sys.exit(f"support.py: {readme} shows other kernels than there are: {sorted(shown ^ listed)}; "
                 "write its table anew with ./run test, ./run test aarch64 and ./run support")


main()
