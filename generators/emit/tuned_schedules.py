"""Tuned schedules: numbers that ./run tune found for a device, in place of those of kernels.inc.

They lie in schedules/<kernel>.<device>.json, and each file is used whole or not at all. A file holds as long as the
kernel's default does: `default_sha256` is the hash of what was emitted for the default when the file was measured.
"""

import hashlib
import json
import pathlib
import re

SCHEMA = 4
CHANGED = "it was changed since ./run tune wrote it"


class Unusable(Exception):
    """Why a schedule is not used."""


def sha256(data):
    return hashlib.sha256(data if isinstance(data, bytes) else data.encode()).hexdigest()


def read(path, kernel, device, halide, list_of_kernels, find_default_sha256):
    """The parameters that a file holds for a kernel and a device. Raises Unusable.

    find_default_sha256 is called last, because it emits the default.
    """
    text = path.read_text()  # a checkout may have CRLF, which counts as LF
    try:
        schedule = json.loads(text)
    except (ValueError, RecursionError):
        schedule = None
    if not isinstance(schedule, dict):
        raise Unusable("it is not a JSON object")
    if schedule.get("schema") != SCHEMA:
        raise Unusable(f"its schema is not {SCHEMA}")
    if schedule.get("checksum") != checksum(text, schedule.get("checksum")):
        raise Unusable(CHANGED)
    named = schedule.get("device")
    found = schedule | {"device": named.get("name") if isinstance(named, dict) else None}
    expected = {"kernel": kernel.name, "device": device, "halide": halide, "target": linux_target(kernel)}
    for field, value in expected.items():
        if found.get(field) != value:
            raise Unusable(f'its {field} is not "{value}"')
    parameters = schedule.get("parameters")
    _check_parameters(parameters, kernel, list_of_kernels)
    if schedule.get("default_sha256") != find_default_sha256():
        raise Unusable("it was measured against another default than the one that is emitted now")
    return parameters


def _check_parameters(parameters, kernel, list_of_kernels):
    if not isinstance(parameters, dict) or len(parameters) != len(kernel.parameters):
        raise Unusable(f"its parameters are not {len(kernel.parameters)}")
    for name in kernel.parameters:
        values = list_of_kernels.parameters[name].values
        if type(parameters.get(name)) is not int or parameters[name] not in values:
            raise Unusable(f"its {name} is none of {', '.join(map(str, values))}")
    for name, value in parameters.items():
        limit = list_of_kernels.parameters[name].limit
        if limit in parameters and value > parameters[limit]:
            raise Unusable(f"its {name} exceeds its {limit}")


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


def linux_target(kernel):
    """Schedules are measured on Linux, and hold for the other systems of the same processor."""
    return kernel.halide(f"{kernel.target.processor}-linux")


def checksum(text, present):
    """The hash of a file's text, in which the checksum itself counts as empty."""
    return sha256(text.replace(f'"{present}"', '""'))


def seal(draft, default_sha256):
    """The text of a file, from a draft whose checksum and default_sha256 are empty."""
    text, n = re.subn(r'"default_sha256": ""', f'"default_sha256": "{default_sha256}"', draft)
    sealed, m = re.subn(r'"checksum": ""', f'"checksum": "{sha256(text)}"', text)
    if (n, m) != (1, 1):
        raise ValueError("a draft has one empty checksum and one empty default_sha256")
    return sealed
