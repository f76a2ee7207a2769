"""Checks which folders include which others, and that no folder has too many sources.

    test_folders.py SOURCE_FOLDER
"""

import posixpath
import re
import sys
from collections import defaultdict
from pathlib import Path

TOPS = ["runtime", "checks", "tests", "bench", "generators", "engines", "python"]
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".inc", ".py")

# The folders that a folder may include beside itself. A subfolder counts as its parent unless it has a row here.
ARROWS = {
    "runtime/include": [],
    "runtime/base": ["runtime/include"],
    "runtime/frequencies": ["runtime/include", "runtime/base"],
    "runtime/angles": ["runtime/include", "runtime/base", "runtime/frequencies"],
    "runtime/config": ["runtime/include", "runtime/base", "runtime/frequencies"],
    "runtime/core": ["runtime/include", "runtime/base", "runtime/frequencies", "runtime/angles"],
    "runtime/kv": ["runtime/include", "runtime/base", "runtime/angles", "runtime/core"],
    "runtime/api": ["runtime/include", "runtime/base", "runtime/angles", "runtime/core", "runtime/kv"],
    "runtime/cuda": ["runtime/include", "runtime/base", "runtime/angles", "runtime/core", "runtime/kv"],
    "runtime/tool/files": [],
    "runtime/tool/options": ["runtime/include", "runtime/tool/files"],
    "runtime/tool": ["runtime/include", "runtime/tool/options", "runtime/tool/files"],
    "checks": ["runtime"],
    "tests": ["runtime", "checks"],
    "tests/tool": ["runtime", "checks", "tests", "runtime/tool/files"],
    "bench": ["runtime/include"],
    "engines": ["runtime/include"],
    "generators/arithmetic": ["runtime"],  # what kernels and the portable reference share
    "generators/cuda": ["runtime", "generators/arithmetic"],
    "generators": ["runtime", "generators/arithmetic", "generators/cuda"],
    "python": ["runtime/include"],
}
# Within a row, "runtime" allows all of the runtime but this folder.
PRIVATE = "runtime/tool"
# The lists of kernels, which every folder may include.
LISTS = re.compile(r"generators/\w+\.inc")

MOST_SOURCES = 15  # in a folder; a source and its header count as one

# The folders in which a quoted include is looked for, after the including file's own folder.
ROOTS = ["runtime", "runtime/include", "", "tests", "bench", "generators"]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(halyard/[^>]+)>)', re.MULTILINE)


def folder_of(path):
    """The folder of ARROWS that a file belongs to."""
    folder = posixpath.dirname(path)
    while folder and folder not in ARROWS:
        folder = posixpath.dirname(folder)
    return folder or path.split("/")[0]


def find_includes(tree):
    """Yields (file, line, included file) for each include of a file in the tree, not of generated or foreign files."""
    for path, text in sorted(tree.items()):
        for match in INCLUDE.finditer(text) if not path.endswith(".py") else ():
            roots = [posixpath.dirname(path), path.split("/")[0], *ROOTS]
            places = [posixpath.normpath(posixpath.join(root, match[1] or match[2])) for root in roots]
            included = next((place for place in places if place in tree), None)
            if included is not None and not LISTS.fullmatch(included):
                yield path, text.count("\n", 0, match.start()) + 1, included


def find_faults(tree):
    first = {}
    for path, line, included in find_includes(tree):
        own, other = folder_of(path), folder_of(included)
        tops = [] if other.startswith(PRIVATE) else [other.split("/")[0]]
        if other != own and not any(each in ARROWS.get(own, []) for each in [other, *tops]):
            yield f"{path}:{line}: {own} must not include {included}"
        elif other == own:
            first.setdefault((posixpath.dirname(path), posixpath.dirname(included)), (path, included))
    # ARROWS does not order the subfolders of one row. Two of them must not include each other.
    for (folder, other), (path, included) in sorted(first.items()):
        if folder < other and (other, folder) in first:
            yield f"{path}: includes {included}, but {other} includes {folder} too"
    folders = defaultdict(set)
    for path in tree:
        if not path.startswith("tests/data/"):
            folders[posixpath.dirname(path)].add(posixpath.splitext(posixpath.basename(path))[0])
    for folder, stems in sorted(folders.items()):
        if len(stems) > MOST_SOURCES:
            yield f"{folder}: has {len(stems)} sources, but at most {MOST_SOURCES} are one folder"


def main(folder):
    files = [path for top in TOPS for path in Path(folder, top).rglob("*")
             if path.name.endswith(SUFFIXES) and "__pycache__" not in path.parts]
    tree = {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}
    assert len(tree) > 100, f"{folder} holds {len(tree)} sources"
    faults = list(find_faults(tree))
    print("\n".join(faults) or f"{len(tree)} sources are in order")
    return 1 if faults else 0


sys.exit(main(sys.argv[1]))
