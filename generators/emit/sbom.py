"""sbom.py VERSION FILE NAME...: writes a release's SBOM, the third-party components in it, as CycloneDX. Names,
licences and web pages come from LICENSES_OF_OTHERS, versions from requirements.txt.
"""

import json
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).parents[2]


def components():
    """The rows of LICENSES_OF_OTHERS, by name. Packages of the distribution have no version, since it is not pinned."""
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
    """The SBOM of a release with these components, as bytes. Without a date, so that it is always the same."""
    listed = components()
    whole = {"type": "library", "name": "halyard", "version": version, "licenses": [{"license": {"id": "MIT"}}]}
    sbom = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": whole},
            "components": [listed[name] for name in names]}
    return (json.dumps(sbom, indent=2) + "\n").encode()


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_bytes(cyclone_dx(sys.argv[1], sys.argv[3:]))
