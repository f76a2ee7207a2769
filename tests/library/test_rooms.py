"""Holds the order of the rooms: which folder may include which, and that each source has a header of its own name.

    test_rooms.py SOURCE_FOLDER
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
    "runtime/device": ["runtime/include"],
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

# Headers that declare what several sources define: why.
SHARED_HEADERS = {
    "runtime/core/rotate.h": "the portable reference is compiled without contraction",
    "runtime/core/targets.h": "what a CPU has is apart from which targets there are",
    "runtime/kv/groups.h": "descriptions are apart from the records that are written by them",
    "runtime/kv/program.h": "a run of stages is bind and call",
    "runtime/tool/commands.h": "the entry points of the tool's commands, a source each",
}

MOST_SOURCES = 20  # of a folder; a source and its header count as one
DATA = re.compile(r"tests/data(/|$)")

# Where a quoted include is looked for, after the includer's own folder.
ROOTS = ["runtime", "runtime/include", "", "tests", "bench", "generators"]

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(halyard/[^>]+)>)', re.MULTILINE)


def room_of(path):
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
    room, other = room_of(includer), room_of(included)
    tops = [] if other.startswith(PRIVATE) else [other.split("/")[0]]
    return other == room or any(each in ARROWS.get(room, []) for each in [other, *tops])


def arrow_faults(tree):
    for path, text in sorted(tree.items()):
        for match in INCLUDE.finditer(text) if not path.endswith(".py") else ():
            included = resolve(tree, path, match[1] or match[2])
            if included is not None and not LISTS.fullmatch(included) and not may_include(path, included):
                yield f"{path}:{line_of(text, match.start())}: {room_of(path)} must not include {included}"


def circle_faults(tree):
    """Two folders of one room that include each other, about which ARROWS says nothing."""
    first = {}
    for path, text in sorted(tree.items()):
        for match in INCLUDE.finditer(text) if not path.endswith(".py") else ():
            included = resolve(tree, path, match[1] or match[2])
            if included is not None and room_of(included) == room_of(path) and not LISTS.fullmatch(included):
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
            yield f"{folder}: has {len(stems)} sources, but at most {MOST_SOURCES} are one room"


# ---- Sources and headers -------------------------------------------------------------------------------------------


FUNCTION = re.compile(r"""
    ^(?=\w|\[)(?!struct|class|enum|union|namespace|using|typedef|static_assert)
    (?P<head>(?:template\ <.*>\s+)?[^\n(;{}=#/]*?)      # clang-format leaves it at the margin, and members not
    (?P<name>[\w:~]+)\((?:[^;{}]|\{\})*\)[^;{}]*(?P<end>[;{])""", re.MULTILINE | re.VERBOSE)


def blank(match):
    """Spaces in the place of a match, so that line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def functions_of(text):
    """The functions outside of anonymous namespaces and types: (name, position, whether defined, whether of the ABI)."""
    for hidden in (r"^namespace \{\n.*?^\}  // namespace$", r"//[^\n]*|/\*.*?\*/"):
        text = re.sub(hidden, blank, text, flags=re.MULTILINE | re.DOTALL)
    for match in FUNCTION.finditer(text):
        name, is_defined = match["name"].split("::")[-1], match["end"] == "{"
        is_own = is_defined and re.match(r"(template|inline|constexpr|static)\b", match["head"])
        is_abi = 'extern "C"' in match["head"] or name.startswith("halyard_") or name == "main"
        if not re.match(r"(static|constexpr)\b", match["head"]):
            yield name, match.start(), is_defined, bool(is_own or is_abi)


def source_faults(tree):
    """A runtime source has its header, or defines only functions of the C ABI; a header declares what its source has."""
    functions = {path: list(functions_of(text)) for path, text in tree.items()
                 if path.startswith("runtime/") and path.endswith((".h", ".cpp"))}
    unused = {header for header in SHARED_HEADERS if header in tree}
    for path, own in sorted(functions.items()):
        stem, suffix = posixpath.splitext(path)
        if suffix == ".cpp" and stem + ".h" not in tree:
            entries = {name for header in SHARED_HEADERS if room_of(header) == room_of(path)
                       for name, *_ in functions.get(header, ())}
            for name, at, is_defined, is_abi in own:
                if is_defined and not is_abi and name not in entries:
                    yield (f"{path}:{line_of(tree[path], at)}: {name} is no function of the C ABI, "
                           f"so it belongs in a source that has a header")
        if suffix == ".h" and not path.startswith("runtime/include/"):
            defined = {name for name, _, is_defined, _ in [*own, *functions.get(stem + ".cpp", ())] if is_defined}
            for name, at, is_defined, is_abi in own:
                if is_defined or is_abi or name in defined:
                    continue
                if path in SHARED_HEADERS:
                    unused.discard(path)
                    continue
                yield f"{path}:{line_of(tree[path], at)}: {name} is defined neither here nor in {stem}.cpp"
    for header in sorted(unused):
        yield f"{header}: declares only what its source defines, so the exception for it can go"


def read_tree(folder):
    """The sources, by their paths from the folder."""
    files = [path for top in TOPS for path in Path(folder, top).rglob("*")
             if path.name.endswith(SUFFIXES) and "__pycache__" not in path.parts]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in files}


def main():
    tree = read_tree(sys.argv[1])
    assert len(tree) > 100, f"{sys.argv[1]} holds {len(tree)} sources"
    faults = [*arrow_faults(tree), *circle_faults(tree), *folder_faults(tree), *source_faults(tree)]
    print("\n".join(faults) or f"{len(tree)} sources are in order")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
