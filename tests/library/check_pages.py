"""check_pages.py ROOT: every file that a page of the project names or links to is there.

A name in backquotes is a file's if it ends as our files do, or begins with a folder of the project. It is given from the
project's folder or from the page's, and a name without a folder may be that of any file.
"""

import pathlib
import re
import sys

SUFFIXES = "cpp|h|hpp|c|py|cmake|inc|md|json|txt|sh"
# Files that are made, or that belong to others.
NOT_OURS = {"config.json", "manifest.json", "halyard_kernels.h", "before.json", "after.json",
            "generators/schedules", "xnnpack.h", "ggml.h", "modeling_llama.py", "ContribOperators.md",
            "onnxruntime_cxx_api.h"}
SKIPPED = {".deps", "build", "dist", ".git"}


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    folders = [path.name for path in root.iterdir() if path.is_dir() and path.name not in SKIPPED]
    files = {path.name for path in root.iterdir()}
    files |= {path.name for folder in folders for path in (root / folder).rglob("*.*")}
    quoted = rf"`((?:[\w.-]+/)*[\w.-]+\.(?:{SUFFIXES})|(?:{'|'.join(folders)})/[\w./-]*)`"
    linked = r"\]\((?!\w+:)([^)#]+)"
    name = re.compile(f"{quoted}|{linked}")
    n_names, missing = 0, []
    pages = [*root.glob("*.md"), *(path for folder in folders for path in (root / folder).rglob("*.md"))]
    for page in sorted(pages):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            for found in name.finditer(line):
                path = found[1] or found[2]
                if path in NOT_OURS:
                    continue
                n_names += 1
                beside = [root, page.parent, root / "runtime/include"]
                if not any((folder / path).exists() for folder in beside) and path not in files:
                    missing.append(f"{page.relative_to(root)}:{number}: there is no {path}")
    if missing or n_names == 0:
        sys.exit("\n".join(missing) or "no page names a file")
    print(f"{n_names} names of files are right")


main()
