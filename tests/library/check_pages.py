"""check_pages.py ROOT: every file that a page of the project names or links to is there.

A name in backquotes is a file's if it ends as our files do, or begins with a folder of the project. It is given from the
project's folder or from the page's, and a name without a folder may be that of any file.

An archive of ./run dist has the pages without the tests and without ./run: there every link leads to something, and no
page but the CHANGELOG tells of ./run.
"""

import pathlib
import re
import sys

SUFFIXES = "cpp|h|hpp|c|py|cmake|inc|md|json|txt|sh"
# Files that are made, or that belong to others.
NOT_OURS = {"config.json", "manifest.json", "halyard.cdx.json", "halyard_kernels.h", "before.json", "after.json",
            "generators/schedules", "xnnpack.h", "ggml.h", "modeling_llama.py", "ContribOperators.md"}
SKIPPED = {".deps", "build", "dist", ".git"}


def headings(page):
    """The anchors of a page's headings, as GitHub makes them."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in re.findall("^#+ (.*)", page.read_text(), re.MULTILINE))
    return {word.replace(" ", "-") for word in words}


def is_dead(link, page):
    path, _, anchor = link.partition("#")
    target = page.parent / path if path else page
    return not target.exists() or (anchor and anchor not in headings(target))


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    folders = [path.name for path in root.iterdir() if path.is_dir() and path.name not in SKIPPED]
    files = {path.name for path in root.iterdir()}
    files |= {path.name for folder in folders for path in (root / folder).rglob("*.*")}
    quoted = rf"`((?:[\w.-]+/)*[\w.-]+\.(?:{SUFFIXES})|(?:{'|'.join(folders)})/[\w./-]*)`"
    linked = r"\]\((?!\w+:)([^)\s]+)"
    name = re.compile(f"{quoted}|{linked}")
    is_archive = not (root / "run").exists()
    n_names, missing = 0, []
    pages = [*root.glob("*.md"), *(path for folder in folders for path in (root / folder).rglob("*.md"))]
    for page in sorted(pages):
        for number, line in enumerate(page.read_text().splitlines(), 1):
            where = f"{page.relative_to(root)}:{number}:"
            if is_archive and re.search(r"\./run\b", line) and page.name != "CHANGELOG.md":
                missing.append(f"{where} there is no ./run: {line}")
            for path, link in name.findall(line):
                n_names += 1
                if link and is_dead(link, page):
                    missing.append(f"{where} {link} leads to nothing")
                elif path and not is_archive and path not in NOT_OURS | files and not any(
                        (folder / path).exists() for folder in (root, page.parent, root / "runtime/include")):
                    missing.append(f"{where} there is no {path}")
    if missing or n_names == 0:
        sys.exit("\n".join(missing) or "no page names a file")
    print(f"{n_names} names of files are right")


main()
