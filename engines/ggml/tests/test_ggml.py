"""test_ggml.py BUILD LLAMA: runs llama.cpp's programs and tests with libhalyard_ggml.so, and prints a table.

BUILD is the build folder with the plug-in, such as build/engines; LLAMA is the unpacked and built llama.cpp.
  --preload LIBRARY   a sanitizer's runtime, for programs that were built without it
  --graphs            only the small graphs
"""

import argparse
import collections
import os
import pathlib
import re
import subprocess
import sys
import tempfile

THREADS = 4
# The number of test-llama-archs' tests, and of the nodes that Halyard must replace in them.
ARCHS = (133, 3940)
# The same for test-backend-ops, by the operators that it tests: (test cases, replaced nodes).
OPERATORS = {"ROPE": (470, 470), "ROPE_SET_ROWS,RMS_NORM_MUL_ROPE": (283, 279)}
# The number of models with random weights that test-llama-archs writes.
MODELS = 128
# Models for which llama.cpp itself aborts or crashes when it shifts quantised keys.
NO_SHIFT = {"deepseek2", "deepseek32", "dots3note", "glm-dsa", "hy_v4", "laguna", "minimax-m3", "mistral4"}
# The nodes that models with quantised caches may leave to ggml: Hadamard transforms of attention's output, or of q that
# is scaled after its rotation; stores of v without a transform. "nodes" is the sum of all counts.
LEFT = {"nodes", "Hadamard transforms", "stores into quantised caches"}
# The counts that the plug-in logs for graphs.cpp: of "replaced" at least these, of "left" exactly these.
GRAPHS = {"replaced": {"shift": 131, "hadamard, cache": 251, "norm of rows, rope": 70, "norm, rope, cache": 75},
          "left": {"nodes": 790, "Hadamard transforms": 220, "stores into quantised caches": 490,
                   "the graph itself makes the positions": 70, "shift: it multiplies keys by a factor": 10}}


class Tests:
    def __init__(self, arguments):
        build, llama = (pathlib.Path(each).resolve() for each in (arguments.build, arguments.llama))
        self.bin, self.llama_bin, self.models = build / "bin", llama / "build" / "bin", llama.parent / "models"
        self.library = str(build / "lib" / "libhalyard_ggml.so")
        self.preload = arguments.preload
        self.folder = tempfile.TemporaryDirectory()
        self.n_failed = 0

    def run(self, program, *arguments, loads=None, preload=None, **variables):
        """Runs a program with the plug-in `loads` and an LD_PRELOAD library, if given. Returns its status, its output,
        and the plug-in's counts from ggml's log: two Counters, "replaced" and "left", each with its sum as "nodes"."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GGML_", "HALYARD_"))}
        environment.update(variables)
        if preloads := [library for library in (self.preload, preload) if library]:
            # llama.cpp's programs do not free all memory when they end.
            environment.update(LD_PRELOAD=":".join(preloads), ASAN_OPTIONS="detect_leaks=0")
        if loads:
            environment["GGML_BACKEND_PATH"] = loads
        process = subprocess.run([program, *arguments], env=environment, timeout=1200, text=True, errors="replace",
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output = re.sub("\x1b\\[[0-9;]*m", "", process.stdout)
        counts = {"replaced": collections.Counter(), "left": collections.Counter()}
        line = r"halyard: (replaced|left) ?(?:to ggml)?: (.*)\n"
        for kind, entries in re.findall(line, output):
            for n, what in (each.split(" ", 1) for each in entries.split("; ")):
                counts[kind].update({what: int(n), "nodes": int(n)})
        return process.returncode, re.sub(line, "", output), counts

    def row(self, what, passed, result):
        self.n_failed += not passed
        print(f"{'ok    ' if passed else 'FAILED'} {what:59} {result[:1000]}", flush=True)

    def exports(self):
        exported = subprocess.run(["nm", "-D", "--defined-only", "--format=posix", self.library], check=True,
                                  capture_output=True, text=True).stdout
        names = [line.split()[0] for line in exported.splitlines()]
        self.row("what the library exports", names == ["ggml_backend_init"], f"{names}")

    def graphs(self):
        status, output, report = self.run(self.bin / "halyard_ggml_graphs", self.library, str(THREADS))
        passed = (status == 0 and report["left"] == GRAPHS["left"]
                  and GRAPHS["replaced"].items() <= report["replaced"].items())
        self.row(f"graphs made here, {THREADS} threads", passed, f"{output.strip()[-400:]}; {report}")

    def operators(self):
        for operators, (n_cases, n_nodes) in OPERATORS.items():
            status, output, report = self.run(self.llama_bin / "test-backend-ops", "test", "-o", operators, "-b", "CPU",
                                              loads=self.library)
            cases = re.search(r"(\d+)/(\d+) tests passed", output)
            passed = (status == 0 and cases and cases[1] == cases[2] == str(n_cases)
                      and report["replaced"]["nodes"] == n_nodes and not report["left"])
            self.row(f"test-backend-ops {operators}", passed, f"{cases and cases[0]}, {report}")

    def architectures(self, cache, flash, disable="0"):
        """Compares the logits of each model before and after the plug-in is loaded: a prompt, tokens of two sequences, a
        state that is saved and restored, and a context shift. `disable` is LLAMA_ATTN_ROT_DISABLE: "1" switches the
        Hadamard transform off. Without the transform, llama.cpp itself crashes in a shift of quantised keys."""
        counts = collections.Counter()
        is_quantised = cache.startswith("q")
        self.models.mkdir(exist_ok=True)
        if len(list(self.models.glob("*.gguf"))) < MODELS:
            self.run(self.llama_bin / "test-llama-archs", "--seed", "1", "-o", str(self.models))
        paths = sorted(self.models.glob("*.gguf"))
        for path in paths:
            name = re.sub("-(dense|moe)$", "", path.stem)
            stays = ["no-shift"] if is_quantised and (name in NO_SHIFT or disable != "0") else []
            status, output, report = self.run(self.bin / "halyard_ggml_logits", str(path), self.library, str(THREADS),
                                              cache, flash, *stays, LLAMA_ATTN_ROT_DISABLE=disable)
            if status == 3 and is_quantised:
                counts["refused by llama.cpp"] += 1
                continue
            counts["models"] += 1
            for what in "restored", "shifted":
                counts[what] += f"{what} -" not in output
            left = report["left"]
            counts["with RoPE"] += report["replaced"]["nodes"] > 0
            for kind in "replaced", "left":
                counts.update({f"{kind}: {what}": n for what, n in report[kind].items() if what != "nodes"})
            if status != 0 or not left.keys() <= (LEFT if is_quantised else {"nodes"}):
                self.row(f"{path.stem}, {cache} cache", False, f"{output.strip()[-200:]} {left}")
        where = f"{cache} cache, flash attention {flash}" + (", no Hadamard" if disable != "0" else "")
        self.row(f"models, {where}", len(paths) == MODELS,
                 ", ".join(f"{n} {what}" for what, n in counts.items()))

    def llama_archs(self):
        """test-llama-archs never has ggml load backends, so a preloaded library does. The program compares the logits of
        each model with those of the same model saved and loaded again; both come from Halyard."""
        preload = pathlib.Path(self.folder.name) / "libhalyard_ggml_load.so"
        preload.symlink_to(pathlib.Path(self.library).with_name(preload.name))  # LD_PRELOAD is split at spaces
        for _ in range(3):  # the program's log thread may lose the last lines on a busy machine
            status, output, report = self.run(self.llama_bin / "test-llama-archs", "--seed", "1", "-v", "4",
                                              loads=self.library, preload=str(preload))
            if summary := re.search(r"Summary: (.*)", output):
                break
        replaced, left = (report[name]["nodes"] for name in ("replaced", "left"))
        passed = (status == 0 and summary and summary[1] == f"all {ARCHS[0]} test(s) passed" and replaced == ARCHS[1]
                  and left == 0)
        result = summary[1] if summary else f"status {status}, {output.strip()[-300:]}"
        self.row("test-llama-archs", passed, f"{result}, {replaced} nodes replaced, {left} left")

    def refusals(self):
        """If the plug-in cannot work, it logs one message, and the program runs as stock."""
        library = pathlib.Path(self.library).read_bytes()
        other = pathlib.Path(self.folder.name) / "libother.so"
        other.write_bytes(library.replace(b"\0RMS_NORM\0", b"\0RMS_NORN\0"))
        cases = {
            "another ggml": (str(other), {}, "differs from the one that this library was built for in the operation"),
            "a ceiling that does not exist": (self.library, {"HALYARD_MAX_TARGET": "x87"},
                                              "variable HALYARD_MAX_TARGET is"),
            "a target without kernels": (self.library, {"HALYARD_TARGET": "reference"}, "but the target is reference"),
            "not asked for": (None, {}, ""),
        }
        for what, (library, variables, message) in cases.items():
            status, output, report = self.run(self.llama_bin / "test-backend-ops", "test", "-o", "ROPE_SET_ROWS", "-b",
                                              "CPU", loads=library, **variables)
            lines = [line for line in output.splitlines() if "halyard: " in line]
            passed = (status == 0 and not report["replaced"] and len(lines) == bool(message)
                      and all(message in line for line in lines))
            self.row(what, passed, lines[0][:150] if lines else "stock")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("llama")
    parser.add_argument("--preload")
    parser.add_argument("--graphs", action="store_true")
    arguments = parser.parse_args()
    tests = Tests(arguments)
    tests.exports()
    tests.graphs()
    if not arguments.graphs:
        tests.operators()
        tests.refusals()
        tests.llama_archs()
        for what in (("f16", "auto"), ("f32", "auto"), ("q8_0", "on"), ("q8_0", "off"), ("q4_0", "on"),
                     ("q8_0", "on", "1")):
            tests.architectures(*what)
    print(f"{tests.n_failed} failed")
    return tests.n_failed != 0


sys.exit(main())
