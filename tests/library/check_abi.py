"""Compares the C ABI with tests/abi.txt: functions, constants, and the size and offsets of every struct.

python3 check_abi.py COMPILER INCLUDE_FOLDER ABI_TXT [--write]

A change that programs would notice has to be meant. With --write the file is written anew; what then differs in it is
the change: lines may be added, and a struct may grow at its end.
"""

import difflib
import pathlib
import re
import subprocess
import sys
import tempfile

HEADERS = ("halyard.h", "halyard_gpu.h")


def declarations(path):
    """The functions, structs and constants of a header: their text, {name: fields}, and names."""
    text = re.sub(r"/\*.*?\*/", "", path.read_text(), flags=re.DOTALL)
    functions = [" ".join(f.split()) for f in re.findall(r"^HALYARD_API (.*?);", text, re.DOTALL | re.MULTILINE)]
    structs = {}
    for body, name in re.findall(r"^typedef struct \w+ \{(.*?)^\} (\w+);", text, re.DOTALL | re.MULTILINE):
        members = [member for member in body.split(";") if member.strip()]
        structs[name] = [re.search(r"\(\*(\w+)\)|(\w+)(?:\[\w+\])?\s*$", member) for member in members]
        structs[name] = [match[1] or match[2] for match in structs[name]]
    enumerations = re.findall(r"enum \{(.*?)\}", text, re.DOTALL)
    constants = [name for body in enumerations for name in re.findall(r"HALYARD_\w+(?= =)", body)]
    if not functions or not structs:
        sys.exit(f"{path} has no functions or no structs, as this script reads it")
    return functions, structs, constants


def describe(compiler, include):
    """The whole ABI in lines. Numbers come from a C program."""
    lines, prints = [], []
    for header in HEADERS:
        functions, structs, constants = declarations(include / "halyard" / header)
        lines += functions
        prints += [f'printf("{name} = %d\\n", (int){name});' for name in constants]
        for name, fields in structs.items():
            prints.append(f'printf("{name}: %zu bytes\\n", sizeof({name}));')
            prints += [
                f'printf("{name}.{field}: offset %zu, %zu bytes\\n", offsetof({name}, {field}), '
                f"sizeof((({name} *)0)->{field}));"
                for field in fields
            ]
    includes = "".join(f"#include <halyard/{header}>\n" for header in HEADERS)
    program = f"{includes}#include <stddef.h>\n#include <stdio.h>\nint main(void) {{\n" + "\n".join(prints) + "\n}\n"
    with tempfile.TemporaryDirectory() as folder:
        source, binary = pathlib.Path(folder) / "abi.c", pathlib.Path(folder) / "abi"
        source.write_text(program)
        subprocess.run([compiler, "-std=c11", "-I", include, source, "-o", binary], check=True)
        return lines + subprocess.run([binary], check=True, capture_output=True, text=True).stdout.splitlines()


def main():
    compiler, include, recorded = sys.argv[1], pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])
    found = describe(compiler, include)
    if sys.argv[4:] == ["--write"]:
        recorded.write_text("\n".join(found) + "\n")
        return
    before = recorded.read_text().splitlines()
    difference = list(difflib.unified_diff(before, found, str(recorded), "the headers", n=0, lineterm=""))
    if difference:
        sys.exit("\n".join(difference) + f"\nThe C ABI changed. If that is meant: python3 {' '.join(sys.argv)} --write")


main()
