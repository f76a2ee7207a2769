"""check_pages.py ROOT: every file that a page of the project names or links to exists.

A name in backquotes is a file's name if it has one of our suffixes, or begins with a folder of the project. It is
relative to the project's folder, the page's folder or runtime/include. If the name has no folder, the file may be in
any folder of the project.

An archive of ./run dist has the pages, but neither tests nor ./run. There only links are checked, and no page but the
CHANGELOG may mention ./run.
"""

import pathlib
import re
import sys

# Files that are generated, or that belong to other projects.
NOT_OURS = {"config.json", "manifest.json", "halyard.cdx.json", "halyard_kernels.h", "before.json", "after.json",
            "generators/schedules", "xnnpack.h", "ggml.h", "modeling_llama.py", "ContribOperators.md"}

root = pathlib.Path(sys.argv[1]).resolve()
is_archive = not (root / "run").exists()
folders = [path.name for path in root.iterdir() if path.is_dir() and path.name not in (".deps", "build", "dist", ".git")]
all_files = [path for path in root.iterdir()] + [path for folder in folders for path in (root / folder).rglob("*.*")]
known = NOT_OURS | {path.name for path in all_files}
quoted = rf"`((?:[\w.-]+/)*[\w.-]+\.(?:cpp|h|hpp|c|py|cmake|inc|md|json|txt|sh)|(?:{'|'.join(folders)})/[\w./-]*)`"
missing = []
for page in sorted(path for path in all_files if path.suffix == ".md"):
    text = page.read_text()
    for link in re.findall(r"\]\((?!\w+:)([^)#\s]+)", text):
        if not (page.parent / link).exists():
            missing.append(f"{page}: {link} leads to nothing")
    if is_archive and page.name != "CHANGELOG.md":
        missing += [f"{page}: there is no ./run: {line}" for line in re.findall(r".*\./run\b.*", text)]
    for name in re.findall(quoted, text):
        places = [folder / name for folder in (root, page.parent, root / "runtime/include")]
        if not is_archive and name not in known and not any(place.exists() for place in places):
            missing.append(f"{page}: there is no {name}")
sys.exit("\n".join(missing) or 0)
