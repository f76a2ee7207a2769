"""sbom.py VERSION FILE NAME...: writes what others' code a release holds, as CycloneDX. The names, licences and pages are
those of LICENSES_OF_OTHERS, the versions those that requirements.txt pins.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]


def components():
    """The rows of LICENSES_OF_OTHERS, by name. What the distribution brings has no version of ours."""
    pinned = dict(re.findall(r"^([\w-]+)==(\S+)", (ROOT / "requirements.txt").read_text(), re.MULTILINE))
    table = (ROOT / "LICENSES_OF_OTHERS").read_text().split("\n\n")[1]
    rows = {}
    for name, license_id, _, package, page in (re.split(" {2,}", line) for line in table.splitlines()):
        version = pinned.get(package.rpartition("/")[2])
        rows[name] = {"type": "library", "name": name} | ({"version": version} if version else {}) | {
            "licenses": [{"license": {"id": license_id}}],
            "purl": f"pkg:{package}" + (f"@{version}" if version else ""),
            "externalReferences": [{"type": "website", "url": f"https://{page}"}]}
    return rows


def cyclone_dx(version, names):
    """The bill of a release that holds these, as bytes. It tells no time, so that the same release has the same sbom."""
    listed = components()
    whole = {"type": "library", "name": "halyard", "version": version, "licenses": [{"license": {"id": "MIT"}}]}
    bill = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": whole},
            "components": [listed[name] for name in names]}
    return (json.dumps(bill, indent=2) + "\n").encode()


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_bytes(cyclone_dx(sys.argv[1], sys.argv[3:]))
