"""Holds the order of the folders: which may include which, and how many sources one may have.

    test_folders.py SOURCE_FOLDER
"""

import posixpath
import re
import sys
from collections import defaultdict
from pathlib import Path

TOPS = ["runtime", "checks", "tests", "bench", "generators", "engines", "python"]
SUFFIXES = (".h", ".hpp", ".c", ".cpp", ".inc", ".py")

# What the sources of a folder may include beside its own. Subfolders count as their folder, but for those named here.
ARROWS = {
    "runtime/include": [],
    "runtime/base": ["runtime/include"],
    "runtime/frequencies": ["runtime/include", "runtime/base"],
    "runtime/angles": ["runtime/include", "runtime/base", "runtime/frequencies"],
    "runtime/config": ["runtime/include", "runtime/base", "runtime/frequencies"],
    "runtime/core": ["runtime/include", "runtime/base", "runtime/frequencies", "runtime/angles"],
    "runtime/kv": ["runtime/include", "runtime/base", "runtime/angles", "runtime/core"],
    "runtime/api": ["runtime/include", "runtime/base", "runtime/angles", "runtime/core", "runtime/kv"],
    "runtime/gpu": ["runtime/include", "runtime/base", "runtime/angles", "runtime/core", "runtime/kv"],
    "runtime/tool/files": [],
    "runtime/tool/options": ["runtime/include", "runtime/tool/files"],
    "runtime/tool": ["runtime/include", "runtime/tool/options", "runtime/tool/files"],
    "checks": ["runtime"],
    "tests": ["runtime", "checks"],
    "tests/tool": ["runtime", "checks", "tests", "runtime/tool/files"],
    "bench": ["runtime/include"],
    "engines": ["runtime/include"],
    "generators/arithmetic": ["runtime"],  # what kernels and the portable reference share
    "generators/gpu": ["runtime", "generators/arithmetic"],
    "generators": ["runtime", "generators/arithmetic", "generators/gpu"],
    "python": ["runtime/include"],
}
# What "runtime" in a row does not stand for.
PRIVATE = "runtime/tool"
# The list of kernels, which everyone reads.
LISTS = re.compile(r"generators/\w+\.inc")

MOST_SOURCES = 20  # of a folder; a source and its header count as one
DATA = re.compile(r"tests/data(/|$)")

# Where a quoted include is looked for, after the includer's own folder.
ROOTS = ["runtime", "runtime/include", "", "tests", "bench", "generators"]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(halyard/[^>]+)>)', re.MULTILINE)


def owner_of(path):
    """The folder that the arrows are about."""
    folder = posixpath.dirname(path)
    while folder and folder not in ARROWS:
        folder = posixpath.dirname(folder)
    return folder or path.split("/")[0]


def resolve(tree, includer, name):
    """The included file's path; None where it is no file of the tree, but generated or a dependency's."""
    folder = posixpath.dirname(includer)
    top = includer.split("/")[0]
    for root in [folder, top, *ROOTS]:
        path = posixpath.normpath(posixpath.join(root, name))
        if path in tree:
            return path
    return None


def line_of(text, at):
    return text.count("\n", 0, at) + 1


# ---- Arrows --------------------------------------------------------------------------------------------------------


def may_include(includer, included):
    own, other = owner_of(includer), owner_of(included)
    tops = [] if other.startswith(PRIVATE) else [other.split("/")[0]]
    return other == own or any(each in ARROWS.get(own, []) for each in [other, *tops])


def arrow_faults(tree):
    for path, text in sorted(tree.items()):
        for match in INCLUDE.finditer(text) if not path.endswith(".py") else ():
            included = resolve(tree, path, match[1] or match[2])
            if included is not None and not LISTS.fullmatch(included) and not may_include(path, included):
                yield f"{path}:{line_of(text, match.start())}: {owner_of(path)} must not include {included}"


def circle_faults(tree):
    """Two folders of one row above that include each other, about which ARROWS says nothing."""
    first = {}
    for path, text in sorted(tree.items()):
        for match in INCLUDE.finditer(text) if not path.endswith(".py") else ():
            included = resolve(tree, path, match[1] or match[2])
            if included is not None and owner_of(included) == owner_of(path) and not LISTS.fullmatch(included):
                first.setdefault((posixpath.dirname(path), posixpath.dirname(included)), (path, included))
    for (folder, other), (path, included) in sorted(first.items()):
        if folder < other and (other, folder) in first:
            yield f"{path}: includes {included}, but {other} includes {folder} too"


# ---- Folders -------------------------------------------------------------------------------------------------------


def folder_faults(tree):
    folders = defaultdict(set)
    for path in tree:
        if not DATA.match(path):
            folders[posixpath.dirname(path)].add(posixpath.splitext(posixpath.basename(path))[0])
    for folder, stems in sorted(folders.items()):
        if len(stems) > MOST_SOURCES:
            yield f"{folder}: has {len(stems)} sources, but at most {MOST_SOURCES} are one folder"


def read_tree(folder):
    """The sources, by their paths from the folder."""
    files = [path for top in TOPS for path in Path(folder, top).rglob("*")
             if path.name.endswith(SUFFIXES) and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def main():
    tree = read_tree(sys.argv[1])
    assert len(tree) > 100, f"{sys.argv[1]} holds {len(tree)} sources"
    faults = [*arrow_faults(tree), *circle_faults(tree), *folder_faults(tree)]
    print("\n".join(faults) or f"{len(tree)} sources are in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
