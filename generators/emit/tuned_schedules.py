"""Tuned schedules: numbers that ./run tune found on a CPU, in place of those of kernels.inc.

schedules/<cpu>.json holds those of a CPU: {"cpu": {...}, "kernels": {name: {"parameters", "default_sha256", ...}}}.
The entry of a kernel is used whole or not at all. It holds as long as the kernel's default does: `default_sha256` is
the hash of what was emitted for the default when the schedule was measured.
"""

import hashlib
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).parents[1] / "schedules"


class Unusable(Exception):
    """Why a schedule is not used."""


def sha256(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def load(path):
    """The entries of a CPU's file by kernel. Raises Unusable."""
    try:
        kernels = json.loads(path.read_text())["kernels"]
        if all(isinstance(entry, dict) for entry in kernels.values()):
            return kernels
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        pass
    raise Unusable(f"{path} is not what ./run tune writes")


def read_entry(entry, kernel, halide, list_of_kernels, find_default_sha256):
    """The numbers that a kernel's entry holds. Raises Unusable. find_default_sha256 is called last: it emits the
    default."""
    if entry.get("halide") != halide:
        raise Unusable(f"it was measured with another Halide than {halide}")
    parameters = entry.get("parameters")
    if not isinstance(parameters, dict) or parameters.keys() != kernel.parameters.keys():
        raise Unusable(f"its parameters are not {', '.join(kernel.parameters)}")
    for name, value in parameters.items():
        parameter = list_of_kernels.parameters[name]
        if type(value) is not int or value not in parameter.values:
            raise Unusable(f"its {name} is none of {', '.join(map(str, parameter.values))}")
        limit = parameters.get(parameter.limit, value)
        if type(limit) is int and value > limit:
            raise Unusable(f"its {name} exceeds its {parameter.limit}")
    if entry.get("default_sha256") != find_default_sha256():
        raise Unusable("it was measured against another default than the one that is emitted now")
    return parameters


def cpu_name(cpuinfo="/proc/cpuinfo"):
    """This machine's CPU, as files are named for it: amd_25_17, arm_41_d0c. Nothing where that is not known."""
    try:
        text = pathlib.Path(cpuinfo).read_text()
    except OSError:
        return ""
    cells = dict(re.findall(r"^([\w ]+?)\s*: (?:0x)?(\w+)$", text, re.MULTILINE))
    vendor = {"AuthenticAMD": "amd", "GenuineIntel": "intel"}.get(cells.get("vendor_id"))
    for parts in (vendor, cells.get("cpu family"), cells.get("model")), (
            "arm", cells.get("CPU implementer"), cells.get("CPU part")):
        if all(parts):
            return "_".join(parts)
    return ""
