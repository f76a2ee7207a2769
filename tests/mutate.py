"""Mutation tests: breaks Halyard's code on purpose, one place at a time, to see which tests fail.

    mutate.py [conditions|values|kernels] [FILE...] [--seed N] [--count N]

conditions (the default) breaks each check of the runtime. A check is a condition that is returned, that selects an
error, or that guards a branch which fails or leaves early. One mutant deletes the check, so that it never holds, and
another inverts it. Each operand of && and || is deleted and inverted, too; a deleted operand of && always holds. Prints
the first test that fails for each mutant. Exits with 1 if no test fails for a mutant, unless EQUIVALENT has the reason.

values makes --count mutants of values by RULES, at most one in each function. --seed selects them. The selection does
not depend on the position of code, so most mutants stay the same when code moves. Runs every test that reaches a
mutant, writes the failing ones to build/mutations/values.tsv, and prints how many mutants each test catches.

kernels does the same for the generators' arithmetic (a tenth of --count mutants), and emits the CPU kernels again for
each mutant.

All mutants of a kind are in one build, in build/mutations; HALYARD_MUTANT is the number of the mutant that is active. A
first run without a mutant records which mutants each test reaches. FILE, a file or folder within runtime/ such as
base/overlap.h or core, restricts the mutants that are tried, but not the selection.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import html
import itertools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
CMAKE = ROOT / ".deps/venv/bin/cmake"
# Headers first, so that a change of a .cpp file does not renumber the mutants of headers, and so rebuild everything.
FILES = sorted((str(path.relative_to(ROOT)) for path in ROOT.glob("runtime/**/*.*") if path.suffix in (".cpp", ".h")
                and not path.is_relative_to(ROOT / "runtime/include")), key=lambda name: (name.endswith(".cpp"), name))
ARITHMETIC = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("generators/arithmetic/*.h"))
# The test programs, and the Catch2 expression that selects their tests; None for a program without Catch2.
PROGRAMS = {
    "halyard_test_allocations": None,
    "halyard_tests": "~[emulated]",
    "halyard_cuda_calls_tests": "*",
    "halyard_cuda_tests": "*",
}
# Only mutants in runtime/tool/ may be caught by the tool's tests. Tests of kernels are not run: kernels have no checks.
OF_TOOL, OF_KERNELS = re.compile(r"\[(?:tool|npy)\]"), re.compile(r"\[(?:kernel|checker)\]")
MOST_MUTANTS = 8192
QUICK = 0.2  # seconds; faster tests are tried first
# Code that fails or leaves early.
LEAVES = re.compile(r"\b(?:fail|refuse|malformed|throw)|return (_+|status|false|true|HALYARD_OK|nullptr|-1)\b|"
                    r"HALYARD_TRY|error->code|replace_if|n_refused|^\s*continue;")
# The objects before a member, as in "a.b[i]->".
OF = r"(?<![\w.>])(?:\w+(?:\[\w+\])?(?:\.|->|::))*"
# Value mutants: the name of each rule, and the code that it replaces.
RULES = {
    "operator": r"(?<=[\w)\]}] )(?:[-+*/]|[<>]=?)(?=\s)",
    "sign": r"(?:(?<=[(\[{])|(?<=return )|(?<=[=,?:] ))-[\w.]+\b(?![.(\[]|->)",
    "min/max": r"\bstd::(?:min|max)\b(?=[<(])",
    "constant by one": r"(?<![\w.'])(?:0x[\da-f]+|\d+)u?l{0,2}(?![\w.'])",
    "stride": OF + r"(?:stride_\w+|strides(?:\.\w+|\[\w+\])|(?:in|out)\.(?:batch|token|head|element))\b",
    "pair": OF + r"(?:\w*(?:cos|sin)(?![a-z])\w*|[xy][01]|(?<=[.>])(?:first|second))\b",
}
OPERATORS = {"+": "-", "-": "+", "*": "+", "/": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">"}
WORDS = {one: other for pair in ("min max", "cos sin", "first second", "0 1")
         for one, other in (pair.split(), pair.split()[::-1])}
# Statements without value mutants: they must be constant, or make an error message.
NO_VALUE = re.compile(r"\b(?:constexpr|static_assert|case|static|using|template|enum|fail\w*|refuse\w*|throw)\b")
HEADER = """
#ifndef HALYARD_MUTATED
#define HALYARD_MUTATED
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
static const int halyard_mutant = std::getenv("HALYARD_MUTANT") ? std::atoi(std::getenv("HALYARD_MUTANT")) : 0;
// A file with one byte for each mutant: 1 if the mutant was reached.
static void *const halyard_reached = std::getenv("HALYARD_REACHED") ? mmap(nullptr, N_MUTANTS, PROT_WRITE, MAP_SHARED,
    open(std::getenv("HALYARD_REACHED"), O_RDWR), 0) : nullptr;
[[maybe_unused]] static bool halyard_is(int id) {
    if (halyard_reached) {
        __atomic_store_n(static_cast<char *>(halyard_reached) + id, 1, __ATOMIC_RELAXED);
    }
    return halyard_mutant == id;
}
[[maybe_unused]] static int halyard_check(int id, int deleted, int value) {  // a halyard_status: 0 is success
    return halyard_is(id) ? deleted : halyard_is(id + 1) ? !value : value;
}
template <typename Condition> static bool halyard_check(int id, int deleted, const Condition &value) {
    return halyard_check(id, deleted, static_cast<int>(static_cast<bool>(value))) != 0;
}
// a + HalyardOperator{id} + b is a + b or, if the mutant is active, a - b. So the script need not find where a begins.
struct HalyardOperator { int id; };
template <typename Left> struct HalyardLeft { const Left &left; int id; };
#define HALYARD_OPERATOR(op, other) \\
    template <typename Left> HalyardLeft<Left> operator op(const Left &left, HalyardOperator its) { \\
        return {left, its.id}; \\
    } \\
    template <typename Left, typename Right> auto operator op(HalyardLeft<Left> its, const Right &right) { \\
        return halyard_is(its.id) ? its.left other right : its.left op right; \\
    }
OPERATORS
#endif
""".replace("N_MUTANTS", str(MOST_MUTANTS)).replace(
    "OPERATORS", "\n".join(f"HALYARD_OPERATOR({operator}, {other})" for operator, other in OPERATORS.items()))
# Mutants that no test can catch, by the reason: breaking these checks changes nothing that can be observed here.
EQUIVALENT = {check: reason for reason, checks in {
    "selects other code, which gives the same bits": [
        "pair_axes.cpp deleted: desc.n_axes == 1", "check_and_bind.cpp deleted: !is_descending",
        "check_and_bind.cpp deleted: !are_alike", "call.cpp deleted: (stages.scale || stages.position_scales)",
        "stages.cpp deleted: norm", "stages.cpp inverted: norm",
        "stages.cpp deleted: tensor_plan.dtype == Dtype::f32", "stages.cpp deleted: norm->rounding == 0",
        "norm.cpp deleted: norm", "norm.cpp inverted: norm", "norm.cpp deleted: !norm->layer",
        "norm.cpp deleted: of.tensor_plan.dtype == Dtype::f32",
        "cache.h deleted: spacing == 0", "cache.h inverted: spacing == 0",
        "cache.h deleted: has_units(element_bytes)", "cache.h inverted: has_units(element_bytes)",
        "check_and_bind.cpp deleted: records", "check_and_bind.cpp deleted: records->is_q8()",
        "check_and_bind.cpp deleted: ((side.token | side.head) & 1) != 0",
        "positions.cpp deleted: positions.is_consecutive && range.has(positions.at(data, batch, 0, axis)) && "
        "range.has(positions.at(data, batch, positions.n_tokens - 1, axis))",
        "call.cpp deleted: program.reads_rows && n <= max_block_tokens && program.n_tasks == 1 && share.count == 1 && "
        "find_rows(row_input(program, given), 0, 0, n, row_of_token)"],
    "matters only if HALYARD_KV is OFF, the user may not read a file, or memory has more than 2^64 bytes": [
        "without_kv.cpp deleted: !plan->tensors[i].is_plain", "without_kv.cpp inverted: !plan->tensors[i].is_plain",
        "file.cpp deleted: file == nullptr",
        "check_and_bind.cpp deleted: __builtin_mul_overflow(n, bytes_each, &bound.reach.above)"],
    "reads a null pointer, or too early; the same check follows (UndefinedBehaviorSanitizer may notice)": [
        "widths.cpp deleted: stated", "cuda_run.cpp deleted: check_kv_args(plan.checks, given.kv, error)"],
    "matters only on machines that lack a device or a target": [
        "targets.cpp deleted: (supported_targets() & bit(*found)) == 0",
        "targets.cpp deleted: (supported_targets() & bit(target)) == 0",
        r"driver.cpp deleted: reason[0] != '\0'"],
    "matters only if threads write at the same time (ThreadSanitizer may notice)": [
        "cache.cpp deleted: slot >= slots.n_slots"],
    "joins heads with negative strides too, which is right as well": ["cuda_run.cpp deleted: step(s, t) > 0"],
}.items() for check in checks}


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    how: str  # "deleted", "inverted", or a rule
    text: str  # the check; or "old → new in" the code around it
    edits: tuple  # of the file: (begin, end, new text, in which ID stands for the mutant's number)
    function: str = ""  # value mutants only: the name and the lines of the function
    lines: range = range(0)

    def __str__(self):
        return f"{self.file}:{self.line}\t{self.how}\t{self.text}"


@dataclasses.dataclass(frozen=True)
class Test:
    program: str
    case: str = ""  # the name of the Catch2 test case; empty for a program without Catch2
    tags: str = ""
    seconds: float = 300
    reaches: bytes = b""  # for each mutant's number: 1 if the test reaches the mutant

    def __str__(self):
        return f"{self.program}: {self.case}" if self.case else self.program


# ---- Sources -------------------------------------------------------------------------------------------------------

def read_source(file):
    """Returns a file's text, and that text with blanked comments, literals and directives, for counting brackets."""
    text = (ROOT / file).read_text()
    blank = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'|^#(?:[^\n]*\\\n)*[^\n]*', re.M)
    return text, blank.sub(lambda found: re.sub(r"[^\n]", " " if found[0][0] in "/#" else "_", found[0]), text)


def end_of_bracket(code, at):
    """The index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0:
            return i


def split(code, begin, end, operator):
    """Splits code[begin:end] at an operator of two characters outside of brackets: (begin, end) of each operand."""
    parts, depth = [begin], 0
    for i in range(begin, end):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0 and code.startswith(operator, i):
            parts += [i, i + 2]
    return list(zip(parts[::2], parts[1::2] + [end]))


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def write(mutants):
    """Returns the source of each file that has mutants, with all their edits. #line makes compilers report the original
    lines. Edits at one place are sorted so that closing brackets come first, those of inner conditions before outer."""
    edits = collections.defaultdict(list)
    for number, mutant in mutants.items():
        for i, (begin, end, new) in enumerate(mutant.edits):
            edits[mutant.file].append((begin, end, number * (-1) ** i, new.replace("ID", str(number))))
    sources = {}
    for file in edits:
        text, parts, at = read_source(file)[0], [], 0
        for begin, end, _, new in sorted(edits[file]):
            parts += [text[at:begin], new]
            at = end
        sources[file] = f'#line 1 "mutants"{HEADER}#line 1 "{file}"\n{"".join(parts)}{text[at:]}'
    return sources


# ---- Conditions ----------------------------------------------------------------------------------------------------

def parts_of(code, begin, end, deleted=0, is_whole=True):
    """Yields (begin, end, value when deleted) for a condition, and for each operand if it is joined by && or ||."""
    begin += len(code[begin:end]) - len(code[begin:end].lstrip())
    end = begin + len(code[begin:end].rstrip())
    if is_whole:
        yield begin, end, deleted
    bracket = begin + code.startswith("!(", begin)
    operator = "||" if len(split(code, begin, end, "||")) > 1 else "&&"
    if code[bracket] == "(" and end_of_bracket(code, bracket) == end - 1:
        yield from parts_of(code, bracket + 1, end - 1, is_whole=False)
    elif "?" not in code[begin:end] and len(split(code, begin, end, operator)) > 1:  # ?: is not split
        for operand in split(code, begin, end, operator):
            yield from parts_of(code, *operand, int(operator == "&&"))


def find_checks(code):
    """Returns (begin, end, value when deleted) for each check of a file."""
    conditions = []
    statuses = [(found.end(), end_of_bracket(code, found.end() - 1), 0) for found in re.finditer(r"\bHALYARD_TRY\(", code)]
    for found in re.finditer(r"\bif \(", code):
        end = end_of_bracket(code, found.end() - 1)
        begin = split(code, found.end(), end, "; ")[-1][0]  # after a declaration in the if
        brace = code.index("{", end)
        if not LEAVES.search(code[brace + 1:end_of_bracket(code, brace)]):
            continue
        if declared := re.match(r"const (?:halyard_status|int) status =\s*", code[begin:end]):
            statuses.append((begin + declared.end(), end, 0))
        elif not re.match(r"const [^=(]* =\s", code[begin:end]):  # `if (const auto *x = find())` is no check
            conditions += parts_of(code, begin, end)
    found = [*conditions, *statuses]
    returns = [(one.span(1), 0, False) for one in re.finditer(r"\breturn ([^;{}?]*(?:&&|\|\|)[^;{}?]*);", code)]
    returns += [(one.span(1), int(one[2] == "HALYARD_OK"), True)  # deleting `c ? HALYARD_OK : error` makes c true
                for one in re.finditer(r"\breturn ([^;{}?]+)\? (HALYARD_OK|status|fail|fail_null)\b", code)]
    for (begin, end), deleted, is_whole in returns:
        if not any(first <= begin < last for first, last, _ in found):  # not in a lambda inside another check
            found += parts_of(code, begin, end, deleted, is_whole)
    return found


def all_conditions():
    """Returns the mutants of all checks of the runtime by number. The two mutants of a check have adjacent numbers."""
    mutants = {}
    for file in FILES:
        text, code = read_source(file)
        for begin, end, deleted in find_checks(code):
            edits = ((begin, begin, f"halyard_check(ID, {deleted}, "), (end, end, ")"))
            for how in ("deleted", "inverted"):
                mutants[len(mutants) + 1] = Mutant(file, line_of(text, begin), how, " ".join(text[begin:end].split()),
                                                   edits if how == "deleted" else ())
    return mutants


def try_conditions(builds, files, pool, tests):
    """Prints the first test that catches each mutant. Returns whether all are caught or in EQUIVALENT."""
    last_ones = collections.defaultdict(dict)  # by mutated file: the tests that caught its mutants, latest last

    def catch(mutant, number):
        """The test that catches a mutant, or why none does. Tries quick tests, and those that caught others, first."""
        key = f"{pathlib.Path(mutant.file).name} {mutant.how}: {mutant.text}"
        if key in EQUIVALENT:
            return EQUIVALENT[key]
        recent = list(last_ones[mutant.file])[-8:]
        reaching = [test for test in tests if test.reaches[number] and not OF_KERNELS.search(test.tags) and
                    (mutant.file.startswith("runtime/tool/") or not OF_TOOL.search(test.tags))]
        for test in sorted(reaching, key=lambda test: (test.seconds >= QUICK, test not in recent, test.seconds)):
            if builds.notices(test, HALYARD_MUTANT=str(number)):
                last_ones[mutant.file].pop(test, None)
                last_ones[mutant.file][test] = True
                return test
        return "NOT NOTICED"

    counts = collections.Counter()
    numbers = [number for number, mutant in builds.mutants.items() if mutant.file in files]
    mutants = [builds.mutants[number] for number in numbers]
    for mutant, found in zip(mutants, pool.map(catch, mutants, numbers)):
        counts["caught" if isinstance(found, Test) else "NOT NOTICED" if found == "NOT NOTICED" else "equivalent"] += 1
        print(f"{mutant}\t{found}", flush=True)
    print(f"{len(numbers)} mutants: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return counts["NOT NOTICED"] == 0


# ---- Values --------------------------------------------------------------------------------------------------------

def find_functions(code):
    """Yields (name, begin and end of the body) for each function but constexpr ones, which may make constants."""
    at = 0
    while (brace := code.find("{", at)) >= 0:
        head = re.split(r"[;{}]", code[at:brace])[-1]
        named = re.search(r"(operator\W+|~?\w+)\s*\(", head)
        if named is None and not re.search(r"=\s*$", head):
            at = brace + 1  # in a namespace or a class
            continue
        at = end_of_bracket(code, brace)
        if named and "constexpr" not in head:
            yield named[1], brace + 1, at


def find_values(file):
    """Yields all mutants that RULES can make in the functions of a file."""
    text, code = read_source(file)
    for function, first, last in find_functions(code):
        for rule, pattern in RULES.items():
            for found in re.compile(pattern).finditer(code, first, last):
                if NO_VALUE.search(re.split("[;{}]", code[first:found.start()])[-1]):
                    continue
                begin, end = found.span()
                if rule == "min/max":
                    end = end_of_bracket(code, code.index("(", end)) + 1
                old = text[begin:end]
                others = ([OPERATORS[old]] if rule == "operator" else
                          [old[1:]] if rule == "sign" else
                          [f"{old} + 1"] if rule == "constant by one" else
                          sorted(set(re.findall(pattern, code[first:last])) - {old}) if rule == "stride" else
                          [re.sub("min|max|cos|sin|first|second|[01]$", lambda word: WORDS[word[0]], old, count=1)])
                for other in others:
                    new = (f"{old} HalyardOperator{{ID}} {old}" if rule == "operator" else
                           f"(halyard_is(ID) ? {other} : {old})")
                    change = f"{old} → {other} in {text[max(first, begin - 30):min(end + 30, last)]}"
                    yield Mutant(file, line_of(text, begin), rule, " ".join(change.split()), ((begin, end, new),),
                                 function, range(line_of(text, first), line_of(text, last) + 1))


class Values:
    """The value mutants that a seed selects: in each of the `count` top-ranked functions, the top-ranked mutant that
    compiles."""

    def __init__(self, seed, count, files):
        def rank(*words):
            """A hash of the seed and the words: random, but always the same."""
            return hashlib.sha256(repr((seed, *words)).encode()).digest()

        self.count = count
        functions = collections.defaultdict(list)
        for value in itertools.chain(*map(find_values, files)):
            functions[value.function, value.file].append(value)
        self.functions = [sorted(functions[one], key=lambda value: (rank(one[0], value.how), rank(one[0], value.text)))
                          for one in sorted(functions, key=lambda one: (rank(one[0]), one))]

    def chosen(self):
        numbered = [(number + 1, values[0]) for number, values in enumerate(self.functions) if values]
        return dict(numbered[:self.count])

    def drop_uncompilable(self, output):
        """Drops the mutants in whose functions a compiler reports errors. Returns whether there were any."""
        wrong = {(file, int(line)) for file, line in
                 re.findall(r"^(\S+?):(\d+):\d+:\s+(?:error:|required from)", output, re.M)}
        refused = {number for number, value in self.chosen().items()
                   if any(file == value.file and line in value.lines for file, line in wrong)}
        for number in refused:
            del self.functions[number - 1][0]
        return bool(refused)


def try_values(builds, files, pool, tests):
    """Writes which tests catch each mutant, and prints for each test how many mutants it catches."""
    noticed, tried = {}, collections.Counter()  # the tests that catch each mutant; the mutants tried with each test
    with builds.root.with_suffix(".tsv").open("w") as table:
        for number, mutant in builds.mutants.items():
            if mutant.file not in files:
                continue
            if builds.emits:
                for manifest in (builds.host / "kernels").glob("kernels_*.json"):
                    manifest.unlink()  # so that the build emits all kernels again
                if builds.make(builds.programs, HALYARD_MUTANT=str(number)):
                    print(f"{mutant}\tnot emitted", flush=True)
                    continue
            reaching = [test for test in tests if builds.emits or test.reaches[number]]
            failed = pool.map(lambda test: builds.notices(test, HALYARD_MUTANT=str(number)), reaching)
            noticed[mutant] = [test for test, fails in zip(reaching, failed) if fails]
            tried.update(reaching)
            table.writelines(f"{mutant}\t{test}\n" for test in noticed[mutant])
            table.flush()
            print(f"{mutant}\tnoticed by {len(noticed[mutant])} of {len(reaching)}", flush=True)

    alone = collections.Counter(some[0] for some in noticed.values() if len(some) == 1)
    counts = collections.Counter(test for some in noticed.values() for test in some)
    print("\nseconds\ttried\tnotices\talone\ttest")
    for test in sorted(tests, key=lambda test: (-alone[test], -counts[test], test.seconds)):
        print(f"{test.seconds:.2f}\t{tried[test]}\t{counts[test]}\t{alone[test]}\t{test}")
    print(f"\n{len(alone)} tests notice what no other does, and {sum(counts[test] == 0 for test in tests)} of "
          f"{len(tests)} notice nothing. Of {len(noticed)} mutants nothing notices:",
          *(mutant for mutant, some in noticed.items() if not some), sep="\n")


# ---- Builds and tests ----------------------------------------------------------------------------------------------

class Builds:
    """A copy of the tree that contains all mutants, and its host build."""

    def __init__(self, kind, values):
        self.root = ROOT / "build/mutations" / kind
        self.host = self.root / "build/host"
        self.emits = kind == "kernels"
        self.programs = {name: PROGRAMS[name] for name in (["halyard_tests"] if self.emits else PROGRAMS)}
        while True:
            self.mutants = values.chosen() if values else all_conditions()
            assert max(self.mutants) < MOST_MUTANTS
            self.copy(write(self.mutants))
            # The first target contains all mutated code, so that errors show before the tests are compiled.
            errors = self.make(["halyard_generator" if self.emits else "halyard_tool"]) or self.make(self.programs)
            if not errors:
                return
            if not values or not values.drop_uncompilable(errors):
                sys.exit(errors)

    def copy(self, sources):
        names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
        names = [name for name in names.split("\n") if (ROOT / name).is_file()]
        for path in (path for room in ("checks", "runtime", "tests") for path in self.root.glob(f"{room}/**/*.[ch]*")):
            if str(path.relative_to(self.root)) not in names:
                path.unlink()
        for name in names:
            path = self.root / name
            content = sources[name].encode() if name in sources else (ROOT / name).read_bytes()
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def make(self, targets, **variables):
        """Builds targets. Returns the build's output if it fails, else an empty string."""
        if not (self.host / "build.ninja").exists():
            (self.root / ".deps").unlink(missing_ok=True)
            (self.root / ".deps").symlink_to(ROOT / ".deps")
            # Mutants of conditions and values are not in kernels, so kernels come from the ordinary host build.
            command = [CMAKE, "--preset", "host", "-DHALYARD_BUILD_BENCH=OFF",
                       "-DHALYARD_BUILD_CUDA=OFF" if self.emits else f"-DHALYARD_HOST_BUILD={ROOT}/build/host"]
            subprocess.run(command, cwd=self.root, stdout=sys.stderr, check=True)
        print("building", *targets, file=sys.stderr)
        command = [CMAKE, "--build", self.host, "--target", *targets, "--", "-k", "0"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **variables})
        return done.stdout if done.returncode != 0 else ""

    def notices(self, test, **variables):
        """Whether a test fails. A run that takes too long counts as a failure: more CPU time than 3 s plus three times
        the test's own time, or more wall-clock time than 20 s plus ten times that. Tests stop at the first failure."""
        case = re.sub(r'([\\",\[\]])', r"\\\1", test.case)
        limits = ["timeout", "-s", "KILL", str(20 + 10 * test.seconds), "prlimit", f"--cpu={3 + int(3 * test.seconds)}"]
        command = [self.host / "bin" / test.program, *([case, "--abort", "--rng-seed", "20261121"] if case else [])]
        done = subprocess.run([*limits, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, "LD_LIBRARY_PATH": str(self.host / "emulated_cuda"), **variables})
        return done.returncode not in (0, 4, 77)  # 4, 77: skipped

    def measure(self, test):
        """Runs a test without a mutant, and returns it with its time and the mutants that it reaches."""
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(MOST_MUTANTS)
            begun = time.monotonic()
            if self.notices(test, HALYARD_REACHED=file.name):
                sys.exit(f"with nothing broken, a test fails: {test}")
            return dataclasses.replace(test, seconds=time.monotonic() - begun, reaches=file.read())

    def find_tests(self, pool):
        """Returns all tests, the longest first, so that no CPU waits for a long one at the end."""
        found = []
        for program, cases in self.programs.items():
            command = [self.host / "bin" / program, cases, "--list-tests", "--reporter", "xml"]
            listed = subprocess.check_output(command, text=True) if cases else "<Name></Name><Tags></Tags>"
            found += [Test(program, html.unescape(name), tags) for name, tags in
                      re.findall(r"<Name>([^<]*)</Name>.*?<Tags>([^<]*)</Tags>", listed, re.S)]
        return sorted(pool.map(self.measure, found), key=lambda test: -test.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="[conditions|values|kernels] FILE")
    parser.add_argument("--seed", type=int, default=20261121, help="of values [%(default)s]")
    parser.add_argument("--count", type=int, default=100, help="of values [%(default)s]")
    options = parser.parse_args()
    kind = options.what.pop(0) if options.what[:1] in (["conditions"], ["values"], ["kernels"]) else "conditions"
    options.what = [name.removeprefix("runtime/") for name in options.what]
    for name in options.what:
        if not any(file.startswith(f"runtime/{name}") for file in FILES):
            sys.exit(f"mutate.py: {name} is none of {', '.join(FILES)}")
    files = [file for file in FILES if file.startswith(tuple(f"runtime/{name}" for name in options.what or [""]))]
    values = Values(options.seed, options.count, FILES) if kind == "values" else None
    if kind == "kernels":
        if options.what:
            parser.error("kernels takes no FILE")
        files = ARITHMETIC
        values = Values(options.seed, options.count // 10, files)
    builds = Builds(kind, values)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tests = builds.find_tests(pool)
        if kind == "conditions":
            sys.exit(not try_conditions(builds, files, pool, tests))
        print(f"seed {options.seed}")
        try_values(builds, files, pool, tests)


if __name__ == "__main__":
    main()
