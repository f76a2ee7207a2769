"""python3 check_excerpt.py PAGE FENCE FILE: the lines of a page's code block stand in the file, in that order.

A line may end in "…" where it was cut.
"""

import pathlib
import re
import sys

page, fence, path = sys.argv[1:]
block = re.search(rf"```{fence}\n(.*?)```", pathlib.Path(page).read_text(), re.DOTALL)
if not block:
    sys.exit(f"{page} has no block marked {fence}")
lines = iter(pathlib.Path(path).read_text().splitlines())
for wanted in block[1].splitlines():
    if not any(line.startswith(wanted[:-1]) if wanted.endswith("…") else line == wanted for line in lines):
        sys.exit(f"{path} does not have, after the lines before it: {wanted}")
