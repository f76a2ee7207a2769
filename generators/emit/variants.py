"""What ./run tune needs of the generators: how variants of a kernel are made, and how a schedule file is finished.

variants.py recipes --output FILE ...      writes for bench/tune/tune.py how each kernel's variants are made
variants.py variant --kernel K -o FOLDER NAME=VALUE ...   emits a kernel with these numbers
variants.py cpu                            prints the name of this machine's CPU
variants.py seal DRAFT FILE                writes a schedule file from a draft, with its checksum and the default's hash
"""

import argparse
import json
import pathlib
import sys

import emit
import read_kernels
import tuned_schedules

ROOT = pathlib.Path(__file__).parents[2]


def recipe(options, kernel):
    """How a kernel's variants are made, checked and linked. {from} and {to} stand for files."""
    target = kernel.target
    me = [sys.executable, "-B", __file__]
    made_by = ["--generator", options.generator, "--compiler", options.compiler]
    if target.is_gpu:
        check = []
        # The variant comes first, so that the library's own kernel stays out.
        link = [options.compiler, "{from}", *options.gpu_link, "-o", "{to}"]
    else:
        check = [sys.executable, "-B", str(ROOT / "tests/library/check_assembly.py"), options.assembler]
        link = [options.compiler, "-shared", "-nostdlib", "{from}", "-o", "{to}"]
    return {
        "name": kernel.name, "isa": target.name, "target": tuned_schedules.linux_target(kernel),
        "defaults": kernel.parameters,
        "gpu": target.is_gpu, "op": kernel.op, "pairing": kernel.pairing, "out_pairing": kernel.out_pairing,
        "dtype": kernel.dtype, "place": kernel.place,
        "emit": [*me, "variant", *made_by, "--kernel", kernel.name, "-o"],
        "suffix": ".o" if target.is_gpu else ".s", "check": check, "link": link}


def write_recipes(options):
    listed = read_kernels.read()
    targets = listed.targets_of(options.triple) + (listed.gpu_targets() if options.gpu_link else [])
    kernels = [recipe(options, kernel) for target in targets for kernel in listed.kernels_of(target.name)
               if kernel.parameters]
    parameters = [{"name": p.name, "loops": p.loops, "limit": p.limit or "none", "values": p.values}
                  for p in listed.parameters.values()]
    text = json.dumps({
        "halide": options.halide, "generator": options.generator, "compiler": options.compiler,
        "cpu": [sys.executable, "-B", __file__, "cpu"],
        "seal": [sys.executable, "-B", __file__, "seal", "--generator", options.generator, "--compiler",
                 options.compiler],
        "gpu_program": options.gpu_program, "parameters": parameters, "kernels": kernels}, indent=1)
    options.output.write_text(text + "\n")


def emit_variant(options):
    kernel = read_kernels.read().kernels[options.kernel]
    parameters = {name: int(value) for name, value in (number.split("=") for number in options.numbers)}
    emitter = emit.Emitter(options.generator, options.compiler)
    output = "object" if kernel.target.is_gpu else "assembly"
    emitter.emit(kernel, f"{kernel.target.processor}-linux", ".o", options.o, parameters=parameters, outputs=[output])


def seal(options):
    draft = options.draft.read_text()
    kernel = read_kernels.read().kernels[json.loads(draft)["kernel"]]
    default_sha256 = emit.Emitter(options.generator, options.compiler).default_sha256(kernel)
    part = options.file.with_suffix(".part")
    part.write_text(tuned_schedules.seal(draft, default_sha256))
    part.replace(options.file)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    made_by = argparse.ArgumentParser(add_help=False)
    made_by.add_argument("--generator", required=True)
    made_by.add_argument("--compiler", required=True)

    command = commands.add_parser("recipes", parents=[made_by])
    command.set_defaults(run=write_recipes)
    command.add_argument("--halide", required=True)
    command.add_argument("--triple", required=True, help="of this machine, whose variants can be run")
    command.add_argument("--assembler", required=True, help="checks variants")
    command.add_argument("--gpu-program", default="", help="checks and times variants of GPU kernels")
    command.add_argument("--gpu-link", nargs=argparse.REMAINDER, default=[], help="what it is linked from")
    command.add_argument("--output", type=pathlib.Path, required=True)

    command = commands.add_parser("variant", parents=[made_by])
    command.set_defaults(run=emit_variant)
    command.add_argument("--kernel", required=True)
    command.add_argument("-o", required=True)
    command.add_argument("numbers", nargs="*")

    command = commands.add_parser("cpu")
    command.set_defaults(run=lambda _: print(tuned_schedules.cpu_name()))

    command = commands.add_parser("seal", parents=[made_by])
    command.set_defaults(run=seal)
    command.add_argument("draft", type=pathlib.Path)
    command.add_argument("file", type=pathlib.Path)

    options = parser.parse_args()
    try:
        options.run(options)
    except (emit.Failed, read_kernels.BadList, OSError) as error:
        sys.exit(str(error).strip())


if __name__ == "__main__":
    main()
