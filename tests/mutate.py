"""Breaks code on purpose, to see which tests notice:
    mutate.py [conditions|values|kernels] [FILE...] [--seed N] [--count N]

conditions (the default) breaks each check, one at a time. A check is a condition that is returned, chooses between an
error and none, or whose branch fails or leaves early. It is broken by never holding ("deleted") and by holding just
when it should not ("inverted"), and so is each operand of its && and || (one of && is deleted by always holding). It
prints what notices first, and fails where no test notices and EQUIVALENT does not say why.

values makes --count mutants by RULES, at most one in a function. --seed says which. No choice depends on where code
stands, so most mutants outlive moves. Every test that reaches a mutant is tried. Those that notice it go to
build/mutations/values.tsv, and in the end it prints what each test is good for.

kernels breaks some values of the generators' arithmetic in the same way (a tenth of --count), and emits the kernels for
CPUs anew with each.

All mutants of a kind are in one build, in build/mutations, where HALYARD_MUTANT says which is broken. One is tried by
the tests that reach it with nothing broken. FILE restricts what is tried, but changes no choice: it is a file or folder
within runtime/, such as base/overlap.h or core.
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
# Headers first: their checks keep their numbers, by which all is built, while sources change.
FILES = sorted((str(path.relative_to(ROOT)) for path in ROOT.glob("runtime/**/*.*") if path.suffix in (".cpp", ".h")
                and not path.is_relative_to(ROOT / "runtime/include")), key=lambda name: (name.endswith(".cpp"), name))
ARITHMETIC = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("generators/arithmetic/*.h"))
# The programs that are to notice what is broken, and their cases as Catch2 names them. One of them has none.
PROGRAMS = {
    "halyard_test_allocations": None,
    "halyard_tests": "~[emulated]",
    "halyard_cuda_calls_tests": "*",
    "halyard_cuda_tests": "*",
}
# Checks of the tool are noticed by its tests. Those of the library must be noticed by its own, and no kernel makes any.
OF_TOOL, OF_KERNELS = re.compile(r"\[(?:tool|npy)\]"), re.compile(r"\[(?:kernel|checker)\]")
MOST_MUTANTS = 8192
QUICK = 0.2  # seconds that a test may take to be among the first
LEAVES = re.compile(r"\b(?:fail|refuse|malformed|throw)|return (_+|status|false|true|HALYARD_OK|nullptr|-1)\b|"
                    r"HALYARD_TRY|error->code|replace_if|n_refused|^\s*continue;")
# What a value mutant turns, after what its members are of.
OF = r"(?<![\w.>])(?:\w+(?:\[\w+\])?(?:\.|->|::))*"
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
# What must be constant, or is a sentence for people.
NO_VALUE = re.compile(r"\b(?:constexpr|static_assert|case|static|using|template|enum|fail\w*|refuse\w*|throw)\b")
HEADER = """
#ifndef HALYARD_MUTATED
#define HALYARD_MUTATED
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
static const int halyard_mutant = std::getenv("HALYARD_MUTANT") ? std::atoi(std::getenv("HALYARD_MUTANT")) : 0;
// A file of one byte for each mutant, which says whether it was reached.
static void *const halyard_reached = std::getenv("HALYARD_REACHED") ? mmap(nullptr, N_MUTANTS, PROT_WRITE, MAP_SHARED,
    open(std::getenv("HALYARD_REACHED"), O_RDWR), 0) : nullptr;
[[maybe_unused]] static bool halyard_is(int id) {
    if (halyard_reached) {
        __atomic_store_n(static_cast<char *>(halyard_reached) + id, 1, __ATOMIC_RELAXED);
    }
    return halyard_mutant == id;
}
[[maybe_unused]] static int halyard_check(int id, int deleted, int value) {  // of a status
    return halyard_is(id) ? deleted : halyard_is(id + 1) ? !value : value;
}
template <typename Condition> static bool halyard_check(int id, int deleted, const Condition &value) {
    return halyard_check(id, deleted, static_cast<int>(static_cast<bool>(value))) != 0;
}
// a + HalyardOperator{id} + b is a + b or, where that is broken, a - b. So nobody needs to know where operands end.
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
# Checks that nothing that can be observed depends on, by the reason. None is tried.
EQUIVALENT = {check: reason for reason, checks in {
    "takes another way, to the same bits": [
        "pair_axes.cpp deleted: desc.n_axes == 1", "program.cpp deleted: !is_descending",
        "program.cpp deleted: !are_alike", "call.cpp deleted: (stages.scale || stages.position_scales)",
        "call.cpp deleted: call.program.tensors[i].n_heads == 0", "plan.cpp deleted: !norm.layer",
        "plan.cpp deleted: norm != nullptr", "plan.cpp inverted: norm != nullptr",
        "plan.cpp deleted: desc.dtype == Dtype::f32", "plan.cpp deleted: norm->rounding == 0",
        "positions.cpp deleted: positions.is_consecutive && range.has(positions.at(data, batch, 0, axis)) && "
        "range.has(positions.at(data, batch, positions.n_tokens - 1, axis))",
        "call.cpp deleted: program.reads_rows && n <= max_block_tokens && program.n_tasks == 1 && share.count == 1 && "
        "find_rows(row_input(program, given), 0, 0, n, row_of_token)"],
    "shows where HALYARD_KV is OFF, the user may not read a file, or memory has more than 2^64 bytes": [
        "disabled.cpp deleted: !plan->tensors[i].is_plain()", "disabled.cpp inverted: !plan->tensors[i].is_plain()",
        "file.cpp deleted: file == nullptr",
        "program.cpp deleted: __builtin_mul_overflow(n, bytes, &bound.reach.above)"],
    "looks at what is not there, or too early: the same check follows (UndefinedBehaviorSanitizer may notice)": [
        "widths.cpp deleted: stated", "cuda_run.cpp deleted: check_kv_args(plan.checks, given.kv, error)"],
    "shows where a device or a target is missing, and all are here": [
        "targets.cpp deleted: (supported_targets() & bit(*found)) == 0",
        "targets.cpp deleted: (supported_targets() & bit(target)) == 0",
        r"driver.cpp deleted: reason[0] != '\0'"],
    "shows only where threads write at once (ThreadSanitizer may notice)": [
        "cache.cpp deleted: slot >= slots.n_slots", "cache.cpp deleted: first == token"],
    "joins heads that lie backwards too, which is as right": ["cuda_run.cpp deleted: step(s, t) > 0"],
}.items() for check in checks}


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    how: str  # "deleted", "inverted", or a rule
    text: str  # the check; or what takes the place of what, and what stands around it
    edits: tuple  # of the file: (where it begins and ends, what stands there, with ID for the mutant's number)
    function: str = ""  # of a value: its function, and that one's lines
    lines: range = range(0)

    def __str__(self):
        return f"{self.file}:{self.line}\t{self.how}\t{self.text}"


@dataclasses.dataclass(frozen=True)
class Test:
    program: str
    case: str = ""  # none where a program has none
    tags: str = ""
    seconds: float = 300
    reaches: bytes = b""  # by number of a mutant: 1 where the test comes there

    def __str__(self):
        return f"{self.program}: {self.case}" if self.case else self.program


# ---- Sources -------------------------------------------------------------------------------------------------------

def read(file):
    """A file's text, and that without comments, literals and preprocessor lines, so that brackets can be counted."""
    text = (ROOT / file).read_text()
    blank = re.compile(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'|^#(?:[^\n]*\\\n)*[^\n]*', re.M)
    return text, blank.sub(lambda found: re.sub(r"[^\n]", " " if found[0][0] in "/#" else "_", found[0]), text)


def closing(code, at):
    """Where the bracket at `at` is closed."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0:
            return i


def split(code, begin, end, operator):
    """The operands of an operator of two characters that stands in no bracket."""
    parts, depth = [begin], 0
    for i in range(begin, end):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0 and code.startswith(operator, i):
            parts += [i, i + 2]
    return list(zip(parts[::2], parts[1::2] + [end]))


def line_of(text, at):
    return text.count("\n", 0, at) + 1


def write(mutants):
    """The sources that have mutants, by file. Compilers name the lines that a file itself has. Of edits at one place
    those are first that end there, the inner ones before the outer ones."""
    edits = collections.defaultdict(list)
    for number, mutant in mutants.items():
        for i, (begin, end, new) in enumerate(mutant.edits):
            edits[mutant.file].append((begin, end, number * (-1) ** i, new.replace("ID", str(number))))
    sources = {}
    for file in edits:
        text, parts, at = read(file)[0], [], 0
        for begin, end, _, new in sorted(edits[file]):
            parts += [text[at:begin], new]
            at = end
        sources[file] = f'#line 1 "mutants"{HEADER}#line 1 "{file}"\n{"".join(parts)}{text[at:]}'
    return sources


# ---- Conditions ----------------------------------------------------------------------------------------------------

def parts_of(code, begin, end, deleted=0, is_whole=True):
    """A condition, as a whole and each of its operands: where it begins and ends, and what it is when it is deleted."""
    begin += len(code[begin:end]) - len(code[begin:end].lstrip())
    end = begin + len(code[begin:end].rstrip())
    if is_whole:
        yield begin, end, deleted
    bracket = begin + code.startswith("!(", begin)
    operator = "||" if len(split(code, begin, end, "||")) > 1 else "&&"
    if code[bracket] == "(" and closing(code, bracket) == end - 1:
        yield from parts_of(code, bracket + 1, end - 1, is_whole=False)
    elif "?" not in code[begin:end] and len(split(code, begin, end, operator)) > 1:  # ? binds less than both
        for operand in split(code, begin, end, operator):
            yield from parts_of(code, *operand, int(operator == "&&"))


def find_checks(code):
    """Where all checks of a file begin and end, and what they are when they are deleted."""
    conditions = []
    statuses = [(found.end(), closing(code, found.end() - 1), 0) for found in re.finditer(r"\bHALYARD_TRY\(", code)]
    for found in re.finditer(r"\bif \(", code):
        end = closing(code, found.end() - 1)
        begin = split(code, found.end(), end, "; ")[-1][0]  # behind what is declared
        brace = code.index("{", end)
        if not LEAVES.search(code[brace + 1:closing(code, brace)]):
            continue
        if declared := re.match(r"const (?:halyard_status|int) status =\s*", code[begin:end]):
            statuses.append((begin + declared.end(), end, 0))
        elif not re.match(r"const [^=(]* =\s", code[begin:end]):  # a pointer that is there or not is no check
            conditions += parts_of(code, begin, end)
    found = [*conditions, *statuses]
    returns = [(one.span(1), 0, False) for one in re.finditer(r"\breturn ([^;{}?]*(?:&&|\|\|)[^;{}?]*);", code)]
    returns += [(one.span(1), int(one[2] == "HALYARD_OK"), True)  # the condition is then what is asked for
                for one in re.finditer(r"\breturn ([^;{}?]+)\? (HALYARD_OK|status|fail|fail_null)\b", code)]
    for (begin, end), deleted, is_whole in returns:
        if not any(first <= begin < last for first, last, _ in found):  # a lambda in another check
            found += parts_of(code, begin, end, deleted, is_whole)
    return found


def all_conditions():
    """All checks of the runtime, by number. Each has two mutants, whose numbers follow each other."""
    mutants = {}
    for file in FILES:
        text, code = read(file)
        for begin, end, deleted in find_checks(code):
            edits = ((begin, begin, f"halyard_check(ID, {deleted}, "), (end, end, ")"))
            for how in ("deleted", "inverted"):
                mutants[len(mutants) + 1] = Mutant(file, line_of(text, begin), how, " ".join(text[begin:end].split()),
                                                   edits if how == "deleted" else ())
    return mutants


def try_conditions(builds, files, pool, tests):
    """Prints what notices first. Whether all is noticed or explained."""
    last_ones = collections.defaultdict(dict)  # by file: the tests that noticed something, the last one last

    def catch(mutant, number):
        """What notices a mutant. The quick tests are tried first, and of them those that noticed the last mutants."""
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
    """The functions that run: (name, where the body begins and ends). What is in one of constexpr may be a constant."""
    at = 0
    while (brace := code.find("{", at)) >= 0:
        head = re.split(r"[;{}]", code[at:brace])[-1]
        named = re.search(r"(operator\W+|~?\w+)\s*\(", head)
        if named is None and not re.search(r"=\s*$", head):
            at = brace + 1  # in a namespace or a class
            continue
        at = closing(code, brace)
        if named and "constexpr" not in head:
            yield named[1], brace + 1, at


def find_values(file):
    """All that RULES can turn in the functions of a file."""
    text, code = read(file)
    for function, first, last in find_functions(code):
        for rule, pattern in RULES.items():
            for found in re.compile(pattern).finditer(code, first, last):
                if NO_VALUE.search(re.split("[;{}]", code[first:found.start()])[-1]):
                    continue
                begin, end = found.span()
                if rule == "min/max":
                    end = closing(code, code.index("(", end)) + 1
                old = text[begin:end]
                others = ([OPERATORS[old]] if rule == "operator" else
                          [old[1:]] if rule == "sign" else
                          [f"{old} + 1"] if rule == "constant by one" else
                          sorted(set(re.findall(pattern, code[first:last])) - {old}) if rule == "stride" else
                          [re.sub("min|max|cos|sin|first|second|[01]$", lambda word: WORDS[word[0]], old, count=1)])
                for other in others:
                    new = (f"{old} HalyardOperator{{ID}} {old}" if rule == "operator" else
                           f"(halyard_is(ID) ? {other} : {old})")
                    said = f"{old} → {other} in {text[max(first, begin - 30):min(end + 30, last)]}"
                    yield Mutant(file, line_of(text, begin), rule, " ".join(said.split()), ((begin, end, new),),
                                 function, range(line_of(text, first), line_of(text, last) + 1))


class Values:
    """The mutants that a seed chooses of all that compile: of each function one, in the functions of least rank."""

    def __init__(self, seed, count, files):
        def rank(*words):
            """As good as a random number, and always the same for these words."""
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

    def refuse(self, said):
        """Gives up mutants in whose functions a compiler finds errors. Whether there are any."""
        wrong = {(file, int(line)) for file, line in
                 re.findall(r"^(\S+?):(\d+):\d+:\s+(?:error:|required from)", said, re.M)}
        refused = {number for number, value in self.chosen().items()
                   if any(file == value.file and line in value.lines for file, line in wrong)}
        for number in refused:
            del self.functions[number - 1][0]
        return bool(refused)


def try_values(builds, files, pool, tests):
    """Writes which tests notice each mutant, and prints what that says of the tests."""
    noticed, tried = {}, collections.Counter()  # the tests by mutant; with how many mutants a test was tried
    with builds.root.with_suffix(".tsv").open("w") as table:
        for number, mutant in builds.mutants.items():
            if mutant.file not in files:
                continue
            if builds.emits:
                for manifest in (builds.host / "kernels").glob("kernels_*.json"):
                    manifest.unlink()  # so that all are emitted anew
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
    """A copy of the tree with everything breakable, and its host build."""

    def __init__(self, kind, values):
        self.root = ROOT / "build/mutations" / kind
        self.host = self.root / "build/host"
        self.emits = kind == "kernels"
        self.programs = {name: PROGRAMS[name] for name in (["halyard_tests"] if self.emits else PROGRAMS)}
        while True:
            self.mutants = values.chosen() if values else all_conditions()
            assert max(self.mutants) < MOST_MUTANTS
            self.copy(write(self.mutants))
            # What does not compile shows before the tests are compiled.
            said = self.make(["halyard_generator" if self.emits else "halyard_tool"]) or self.make(self.programs)
            if not said:
                return
            if not values or not values.refuse(said):
                sys.exit(said)

    def copy(self, sources):
        names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
        names = [name for name in names.split("\n") if (ROOT / name).is_file()]
        for path in [*self.root.glob("tests/**/*.h"), *self.root.glob("checks/**/*.h")]:  # of another state, in the way
            if str(path.relative_to(self.root)) not in names:
                path.unlink()
        for name in names:
            path = self.root / name
            content = sources[name].encode() if name in sources else (ROOT / name).read_bytes()
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists() or path.read_bytes() != content:
                path.write_bytes(content)

    def make(self, targets, **variables):
        """Builds targets. Returns what was said if that fails, else nothing."""
        if not (self.host / "build.ninja").exists():
            (self.root / ".deps").unlink(missing_ok=True)
            (self.root / ".deps").symlink_to(ROOT / ".deps")
            command = [CMAKE, "--preset", "host", "-DHALYARD_BUILD_BENCH=OFF",  # the host's kernels have no mutants
                       "-DHALYARD_BUILD_CUDA=OFF" if self.emits else f"-DHALYARD_HOST_BUILD={ROOT}/build/host"]
            subprocess.run(command, cwd=self.root, stdout=sys.stderr, check=True)
        print("building", *targets, file=sys.stderr)
        command = [CMAKE, "--build", self.host, "--target", *targets, "--", "-k", "0"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **variables})
        return done.stdout if done.returncode != 0 else ""

    def notices(self, test, **variables):
        """Whether a test fails: within thrice the CPU's time that it took with nothing broken and three seconds, and
        within ten times that time and twenty seconds in all. One fault will do."""
        case = re.sub(r'([\\",\[\]])', r"\\\1", test.case)
        limits = ["timeout", "-s", "KILL", str(20 + 10 * test.seconds), "prlimit", f"--cpu={3 + int(3 * test.seconds)}"]
        command = [self.host / "bin" / test.program, *([case, "--abort", "--rng-seed", "20261121"] if case else [])]
        done = subprocess.run([*limits, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              env={**os.environ, "LD_LIBRARY_PATH": str(self.host / "emulated_cuda"), **variables})
        return done.returncode not in (0, 4, 77)  # 4, 77: skipped

    def measure(self, test):
        """A test as it is with nothing broken."""
        with tempfile.NamedTemporaryFile() as file:
            file.truncate(MOST_MUTANTS)
            begun = time.monotonic()
            if self.notices(test, HALYARD_REACHED=file.name):
                sys.exit(f"with nothing broken, a test fails: {test}")
            return dataclasses.replace(test, seconds=time.monotonic() - begun, reaches=file.read())

    def find_tests(self, pool):
        """All tests. Those that take longest are first, so that no CPU waits for the last."""
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
