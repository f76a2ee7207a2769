#!/usr/bin/env python3
"""Takes the place of the generator: runs HALYARD_REAL_GENERATOR, and breaks some of the kernels that it emits."""

import os
import pathlib
import re
import subprocess
import sys

# Instructions in place of the kernel's, by elements_per_step.
BAD = {
    "32": "1:\tjmp\t1b",
    "16": "\tud2",
    "4": "\txorl\t%eax, %eax\n\tretq",  # wrong, but fast
}
SLOW = "\tmovl\t$3000000, %eax\n1:\tdecl\t%eax\n\tjnz\t1b"


def main(arguments):
    values = dict(re.findall(r"^(\w+)=(.*)$", "\n".join(arguments), re.MULTILINE))
    if "32" in (values.get("elements_per_step_any"), values.get("element_threads")):
        sys.exit("this generator cannot")
    subprocess.run([os.environ["HALYARD_REAL_GENERATOR"], *arguments], check=True)
    folder, name = (arguments[arguments.index(option) + 1] for option in ("-o", "-f"))
    if "element_threads" in values:  # of a GPU: PTX is in the object
        path = pathlib.Path(folder, name + ".o")
        if values["element_threads"] == "4":
            path.write_bytes(re.sub(rb"\bmul((\.rn)?\.f32)", rb"add\1", path.read_bytes()))
        return
    path = pathlib.Path(folder, name + ".s")
    step, assembly = values.get("elements_per_step"), path.read_text()
    if step == "8" or values.get("pairs_per_step") == "16":
        assembly = assembly.replace("\tvmulps\t", "\tvaddps\t")
    first = SLOW if step == "128" else BAD.get(step, "")
    path.write_text(re.sub(rf"^{name}:.*", rf"\g<0>\n{first}".replace("\\t", "\t"), assembly, flags=re.MULTILINE))


main(sys.argv[1:])
