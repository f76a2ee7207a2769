"""python3 check_excerpt.py PAGE FOLDER KERNEL: the lines of a page's code block stand in a kernel's .stmt, in that order.

A line may end in "…" where it was cut. A kernel that has another schedule than the default is passed over.
"""

import json
import pathlib
import re
import sys

page, folder, kernel = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), sys.argv[3]
manifests = [json.loads(path.read_text()) for path in folder.glob("kernels_*.json")]
schedule = next(k["schedule"] for manifest in manifests for k in manifest["kernels"] if k["name"] == kernel)
if schedule != "default":
    print(f"SKIP: {kernel} has the schedule of {schedule}")
    sys.exit(0)
block = re.search(r"```stmt\n(.*?)```", page.read_text(), re.DOTALL)
if not block:
    sys.exit(f"{page} has no block marked stmt")
lines = iter((folder / f"{kernel}.stmt").read_text().splitlines())
for wanted in block[1].splitlines():
    if not any(line.startswith(wanted[:-1]) if wanted.endswith("…") else line == wanted for line in lines):
        sys.exit(f"{kernel}.stmt does not have, after the lines before it: {wanted}")
