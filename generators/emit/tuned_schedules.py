"""Tuned schedules: parameters that ./run tune found on a CPU, in place of those of kernels.inc.

schedules/<cpu>.json has a CPU's schedules: {"cpu": {...}, "kernels": {name: {"parameters", "default_sha256", ...}}}.
The entry of a kernel is used whole or not at all. It is valid until the kernel's default changes: `default_sha256` is
the hash of the assembly that was emitted with the default schedule when the tuned one was measured.
"""

import hashlib
import json
import pathlib
import re

FOLDER = pathlib.Path(__file__).parents[1] / "schedules"


class Unusable(Exception):
    """The reason why a tuned schedule is not used."""


def sha256(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def load(path):
    """The entries of a CPU's file by kernel name. Raises Unusable if the file is malformed."""
    try:
        kernels = json.loads(path.read_text())["kernels"]
        if all(isinstance(entry, dict) for entry in kernels.values()):
            return kernels
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        pass
    raise Unusable(f"{path} is not what ./run tune writes")


def read_entry(entry, kernel, halide, list_of_kernels, find_default_sha256):
    """The parameters of a kernel's entry. Raises Unusable. find_default_sha256 is called last, since it takes
    longest: it emits the kernel with its default schedule."""
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
    """The name of this machine's CPU in files' names: amd_25_17, arm_41_d0c. "" if it is not known."""
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
