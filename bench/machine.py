"""Describes the machine and the build: the head of every table."""

import datetime
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]


def read_line(path):
    """The first line of a file; empty where there is none."""
    try:
        return pathlib.Path(path).read_text().split("\n")[0]
    except OSError:
        return ""


def read_cpuinfo():
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0]
    except OSError:
        text = ""
    return dict(re.findall(r"^([^\t:]+)\t*: (.*)$", text, re.MULTILINE))


def find_commit():
    """The commit of the sources, followed by "-dirty" where files differ from it; "unknown" outside a repository."""
    try:
        done = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty"], capture_output=True, text=True)
        return done.stdout.strip() or "unknown"
    except OSError:
        return "unknown"


def find_caches():
    caches = []
    for cache in sorted(pathlib.Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, size = read_line(cache / "level"), read_line(cache / "size")
        if level and read_line(cache / "type") != "Instruction":
            caches.append(f"L{level} {size}")
    return ", ".join(caches) or "unknown caches"


def describe_machine(build):
    """A dict for --json and format_machine. `build` is Native.about: compilers and Halide's version."""
    info = read_cpuinfo()
    of = lambda key: info.get(key, "unknown")
    family = f"{of('vendor_id')} family {of('cpu family')} model {of('model')}"
    governor = read_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
    return {"cpu": f"{of('model name')} ({family}), {os.cpu_count()} CPUs", "family": family, "caches": find_caches(),
            "governor": f"governor {governor}" if governor else "no governor shown", "compiler": build["compiler"],
            "loops": build["loops"], "halide": build["halide"], "commit": find_commit(),
            "date": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d}"}


def format_machine(machine):
    return ("{cpu}, {caches}, {governor}\n{compiler}, Halide {halide}, Halyard {commit}, {date}; C loops: {loops}"
            .format_map(machine))
