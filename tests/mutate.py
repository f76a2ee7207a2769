"""Breaks the code on purpose, to see which tests notice: mutate.py [conditions|values] [FILE...] [--seed N] [--count N]

conditions (the default) breaks each check of the runtime, one at a time. A check is a condition that is returned,
chooses between an error and none, or whose branch fails or leaves early. It is broken by never holding ("deleted") and
by holding just when it should not ("inverted"), and so is each operand of its && and || (one of && is deleted by always
holding). It prints what notices first, and fails where no test notices and EQUIVALENT does not say why.

values makes about --count mutants by RULES: at most one in a function, and in as many functions of a folder as its size
asks for. --seed says which. No choice depends on where code stands, so most mutants outlive moves. A tenth of them is
in the arithmetic of the generators, and the CPU's kernels are emitted anew for each. Every test that reaches a mutant
is tried. Those that notice it go to build/mutations/values.tsv, and in the end it prints what each test is good for.

All mutants of a kind are in one build, in build/mutations, where HALYARD_MUTANT says which is broken. One is tried by
the tests that reach it with nothing broken. FILE restricts what is tried, but changes no choice: it is a file or folder
such as base/overlap.h or core, within runtime/, or generators/arithmetic.
"""

import argparse
import collections
import concurrent.futures
import dataclasses
import hashlib
import html
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).parents[1]
CMAKE = ROOT / ".deps/venv/bin/cmake"
ARITHMETIC = "generators/arithmetic/"
# Headers first: their checks keep their numbers, by which all is built, while sources change.
FILES = sorted((str(path.relative_to(ROOT)) for folder in ("runtime/", ARITHMETIC)
                for path in ROOT.glob(folder + "**/*.*") if path.suffix in (".cpp", ".h")
                and not path.is_relative_to(ROOT / "runtime/include")), key=lambda name: (name.endswith(".cpp"), name))
# The programs that are to notice what is broken, and their cases as Catch2 names them. One of them has none.
PROGRAMS = {
    "halyard_test_allocations": None,
    "halyard_tests": "~[emulated]",
    "halyard_cuda_calls_tests": "*",
    "halyard_cuda_tests": "~[cuda_sm80]",
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
    "min/max": r"\b(?:std|Halide)::(?:min|max)\b(?=[<(])",
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
template <typename Value> static Value halyard_check(int id, int deleted, Value value) {
    return halyard_is(id) ? Value(deleted) : halyard_is(id + 1) ? Value(!value) : value;
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
# Why nothing that can be observed changes, and what is broken then: of a file, how, and which checks. None is tried.
# What is indented further goes on with the line above.
EQUIVALENT = r"""
takes another way, to the same bits
    angle_source.h deleted: kind == halyard::AngleKind::given
    pair_axes.cpp deleted: desc.n_axes == 1
    road_run.cpp deleted: tensor.n_heads == 0
    road_run.cpp inverted: tensor.n_heads == 0
looks at what is not there, or not set, and makes nothing of it (UndefinedBehaviorSanitizer may notice)
    call.cpp deleted: slot >= 0
shows where a device or a target is missing, and all are here
    targets.cpp deleted: (supported_targets() & bit(*found)) == 0; (supported_targets() & bit(target)) == 0
    driver.cpp deleted: reason[0] == '\0'; require_device(error)
shows only where threads write at once (ThreadSanitizer may notice)
    call.cpp deleted: slot / together % share.count == share.index
    call.cpp inverted: slot / together % share.count == share.index
    cache.cpp deleted: slot >= slots.n_slots
joins heads that lie backwards too, which is as right
    cuda_run.cpp deleted: step > 0
"""


@dataclasses.dataclass(frozen=True)
class Mutant:
    file: str
    line: int
    how: str  # "deleted", "inverted", or a rule
    text: str  # the check; or what takes the place of what, and what stands around it
    # Of a value: its function, that one's lines, where it stands, and what is put there, with ID for its number.
    function: str = ""
    lines: range = range(0)
    begin: int = 0
    end: int = 0
    new: str = ""

    def __str__(self):
        return f"{self.file}:{self.line}\t{self.how}\t{self.text}"

    def key(self):
        """As EQUIVALENT names it."""
        return f"{pathlib.Path(self.file).name} {self.how}: {self.text}"


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


def edit(file, text, edits):
    """The text with its edits (begin, end, new). Compilers name the lines that the file itself has."""
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return f'#line 1 "mutants"{HEADER}#line 1 "{file}"\n{text}'


# ---- Conditions ----------------------------------------------------------------------------------------------------

class Conditions:
    """All checks of the runtime. Each has two mutants, whose numbers follow each other."""

    def __init__(self):
        self.mutants = {}
        self.sources = {file: self.break_file(file) for file in FILES if not file.startswith(ARITHMETIC)}

    def check(self, file, text, begin, end, inner, deleted=0):
        """A check that can be broken."""
        id = len(self.mutants) + 1
        for i, how in enumerate(("deleted", "inverted")):
            self.mutants[id + i] = Mutant(file, line_of(text, begin), how, " ".join(text[begin:end].split()))
        return f"halyard_check({id}, {deleted}, {inner})"

    def condition(self, file, text, code, begin, end, deleted=0, is_whole=True):
        """The same for a condition, as a whole and in each of its operands."""
        begin += len(code[begin:end]) - len(code[begin:end].lstrip())
        end = begin + len(code[begin:end].rstrip())
        numbered = self.check(file, text, begin, end, "WHOLE", deleted) if is_whole else "WHOLE"
        inner = text[begin:end]
        bracket = begin + code.startswith("!(", begin)
        if code[bracket] == "(" and closing(code, bracket) == end - 1:
            inner = self.condition(file, text, code, bracket + 1, end - 1, is_whole=False)
            inner = f"{text[begin:bracket]}({inner})"
        elif "?" not in code[begin:end]:  # which binds less than both
            operator = "||" if len(split(code, begin, end, "||")) > 1 else "&&"
            operands = split(code, begin, end, operator)
            if len(operands) > 1:
                inner = f" {operator} ".join(self.condition(file, text, code, *operand, int(operator == "&&"))
                                             for operand in operands)
        return numbered.replace("WHOLE", f"bool({inner})" if is_whole else inner)

    def break_file(self, file):
        """The file with all its checks made breakable."""
        text, code = read(file)
        edits = []
        statuses = [(found.end(), closing(code, found.end() - 1)) for found in re.finditer(r"\bHALYARD_TRY\(", code)]
        for found in re.finditer(r"\bif \(", code):
            end = closing(code, found.end() - 1)
            begin = split(code, found.end(), end, "; ")[-1][0]  # behind what is declared
            brace = code.index("{", end)
            if not LEAVES.search(code[brace + 1:closing(code, brace)]):
                continue
            if declared := re.match(r"const (?:halyard_status|int) status =\s*", code[begin:end]):
                statuses.append((begin + declared.end(), end))
            elif not re.match(r"const [^=(]* =\s", code[begin:end]):  # a pointer that is there or not is no check
                edits.append((begin, end, self.condition(file, text, code, begin, end)))
        edits += [(begin, end, self.check(file, text, begin, end, text[begin:end])) for begin, end in statuses]
        returns = [(found.span(1), 0, False) for found in re.finditer(r"\breturn ([^;{}?]*(?:&&|\|\|)[^;{}?]*);", code)]
        returns += [(found.span(1), int(found[2] == "HALYARD_OK"), True)  # the condition is then what is asked for
                    for found in re.finditer(r"\breturn ([^;{}?]+)\? (HALYARD_OK|status|fail|fail_null)\b", code)]
        for (begin, end), deleted, is_whole in returns:
            if not any(first <= begin < last for first, last, _ in edits):  # a lambda in another check
                edits.append((begin, end, self.condition(file, text, code, begin, end, deleted, is_whole)))
        return edit(file, text, edits)


def read_equivalent():
    """The reasons of EQUIVALENT, by what is broken."""
    reasons = {}
    for reason, rows in re.findall(r"^(\S.*)\n((?: .*\n)+)", re.sub(r"\n {8}", " ", EQUIVALENT), re.M):
        for what, checks in re.findall(r" (\S+ \w+): (.*)", rows):
            reasons.update({f"{what}: {check}": reason for check in checks.split("; ")})
    return reasons


def try_conditions(builds, conditions, files, pool, tests):
    """Prints what notices first. Whether all is noticed or explained."""
    equivalent = read_equivalent()
    last_ones = collections.defaultdict(dict)  # by file: the tests that noticed something, the last one last

    def catch(number):
        """What notices a mutant. The quick tests are tried first, and of them those that noticed the last mutants."""
        mutant = conditions.mutants[number]
        recent = list(last_ones[mutant.file])[-8:]
        reaching = [test for test in tests if test.reaches[number] and not OF_KERNELS.search(test.tags) and
                    (mutant.file.startswith("runtime/tool/") or not OF_TOOL.search(test.tags))]
        for test in sorted(reaching, key=lambda test: (test.seconds >= QUICK, test not in recent, test.seconds)):
            if mutant.key() not in equivalent and builds.notices(test, HALYARD_MUTANT=str(number)):
                last_ones[mutant.file].pop(test, None)
                last_ones[mutant.file][test] = True
                return test
        return None

    numbers = [number for number, mutant in conditions.mutants.items() if mutant.file in files]
    counts = collections.Counter()
    for number, test in zip(numbers, pool.map(catch, numbers)):
        mutant = conditions.mutants[number]
        reason = equivalent.get(mutant.key(), "NOT NOTICED")
        counts["caught" if test else "NOT NOTICED" if reason == "NOT NOTICED" else "equivalent"] += 1
        print(f"{mutant}\t{test or reason}", flush=True)
    strays = set(equivalent) - {mutant.key() for mutant in conditions.mutants.values()}
    for stray in sorted(strays):
        print(f"EQUIVALENT speaks of what is not there: {stray}")
    print(f"{len(numbers)} mutants: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    return counts["NOT NOTICED"] == 0 and not (strays and len(numbers) == len(conditions.mutants))


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
                    yield Mutant(file, line_of(text, begin), rule, " ".join(said.split()), function,
                                 range(line_of(text, first), line_of(text, last) + 1), begin, end, new)


class Values:
    """The mutants that a seed chooses of all that compile."""

    def __init__(self, seed, count):
        self.seed, self.count, self.refused = seed, count, set()
        self.folders = collections.defaultdict(lambda: collections.defaultdict(list))  # by folder and function
        for file in FILES:
            for value in find_values(file):
                self.folders["/".join(file.split("/")[:2])][value.function, file].append(value)
        self.choose()

    def rank(self, *words):
        """As good as a random number, and always the same for these words."""
        return hashlib.sha256(repr((self.seed, *words)).encode()).digest()

    def choose(self):
        """Chooses functions of each folder, and of each function a rule and what it turns: always those of least rank.
        Numbers are those of functions. Of the arithmetic it takes all: which make other kernels shows later."""
        self.mutants, number = {}, 0
        n_all = sum(len(functions) for folder, functions in self.folders.items() if folder.startswith("runtime"))
        for folder, functions in sorted(self.folders.items()):
            left = max(1, round(0.9 * self.count * len(functions) / n_all)) if folder.startswith("runtime") else n_all
            for function, file in sorted(functions, key=lambda one: (self.rank(folder, one[0]), one)):
                number += 1
                values = [value for value in functions[function, file] if value not in self.refused]
                if values and left > 0:
                    left -= 1
                    self.mutants[number] = min(values, key=lambda value: (
                        self.rank(function, value.how), self.rank(function, value.text)))
        edits = collections.defaultdict(list)
        for number, value in self.mutants.items():
            edits[value.file].append((value.begin, value.end, value.new.replace("ID", str(number))))
        self.sources = {file: edit(file, read(file)[0], edits[file]) for file in FILES}

    def refuse(self, said):
        """Chooses others for mutants in whose functions a compiler finds errors. Whether there are any."""
        wrong = {(file, int(line)) for file, line in
                 re.findall(r"^(\S+?):(\d+):\d+:\s+(?:error:|required from)", said, re.M)}
        refused = {value for value in self.mutants.values()
                   if any(file == value.file and line in value.lines for file, line in wrong)}
        self.refused |= refused
        self.choose()
        return bool(refused)


def try_values(builds, values, files, pool, tests):
    """Writes which tests notice each mutant, and prints what that says of the tests."""
    noticed, tried = {}, collections.Counter()  # the tests by mutant; with how many mutants a test was tried
    table = (builds.root.parent / "values.tsv").open("w")

    def try_one(mutant, reaching, **variables):
        failed = pool.map(lambda test: builds.notices(test, **variables), reaching)
        noticed[mutant] = [test for test, fails in zip(reaching, failed) if fails]
        tried.update(reaching)
        table.writelines(f"{mutant}\t{test}\n" for test in noticed[mutant])
        table.flush()
        print(f"{mutant}\tnoticed by {len(noticed[mutant])} of {len(reaching)}", flush=True)

    usual, left = None, max(1, values.count // 10)
    for number, mutant in values.mutants.items():
        if not mutant.file.startswith(ARITHMETIC):
            if mutant.file in files:
                try_one(mutant, [test for test in tests if test.reaches[number]], HALYARD_MUTANT=str(number))
        elif left > 0 and any(file.startswith(ARITHMETIC) for file in files):
            usual = usual or builds.emit()
            kernels = builds.emit(HALYARD_MUTANT=str(number))
            if kernels not in (None, usual):
                left -= 1
                if mutant.file in files:
                    try_one(mutant, tests)

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

    def __init__(self, kind, mutants):
        self.root = ROOT / "build/mutations" / kind
        self.host = self.root / "build/host"
        self.has_values = kind == "values"
        assert max(mutants.mutants) + 1 < MOST_MUTANTS
        self.forget_kernels()
        self.write(mutants.sources)
        # What does not compile shows before the tests are compiled.
        for targets in [["halyard_generator"], ["halyard_tool"], PROGRAMS] if self.has_values else [PROGRAMS]:
            while said := self.make(targets):
                if not self.has_values or not mutants.refuse(said):
                    sys.exit(said)
                self.write(mutants.sources)

    def write(self, sources):
        names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True)
        names = names.split("\n")
        for path in [*self.root.glob("tests/**/*.h"), *self.root.glob("checks/**/*.h")]:  # of another state, in the way
            if str(path.relative_to(self.root)) not in names:
                path.unlink()
        for name in filter(lambda name: (ROOT / name).is_file(), names):
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
            kernels = [] if self.has_values else [f"-DHALYARD_HOST_BUILD={ROOT}/build/host"]  # which have no checks
            command = [CMAKE, "--preset", "host", "-DHALYARD_BUILD_BENCH=OFF", "-DHALYARD_TEST_ROUNDS=6", *kernels]
            subprocess.run(command, cwd=self.root, stdout=sys.stderr, check=True)
        print("building", *targets, file=sys.stderr)
        command = [CMAKE, "--build", self.host, "--target", *targets, "--", "-k", "0"]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              env={**os.environ, **variables})
        return done.stdout if done.returncode != 0 else ""

    def forget_kernels(self):
        """Has the CPU's kernels emitted once more, with whatever is broken then."""
        for manifest in self.host.glob("kernels/kernels_x86_*.json"):
            manifest.unlink()

    def emit(self, **variables):
        """Builds the tests with kernels of generators that may be broken. The objects, or None where that fails."""
        self.forget_kernels()
        if self.make(PROGRAMS, **variables):
            return None
        return [path.read_bytes() for path in sorted(self.host.glob("kernels/joined/x86_*.o"))]

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
        for program, cases in PROGRAMS.items():
            command = [self.host / "bin" / program, cases, "--list-tests", "--reporter", "xml"]
            listed = subprocess.check_output(command, text=True) if cases else "<Name></Name><Tags></Tags>"
            found += [Test(program, html.unescape(name), tags) for name, tags in
                      re.findall(r"<Name>([^<]*)</Name>.*?<Tags>([^<]*)</Tags>", listed, re.S)]
        return sorted(pool.map(self.measure, found), key=lambda test: -test.seconds)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="[conditions|values] FILE")
    parser.add_argument("--seed", type=int, default=20261121, help="of values [%(default)s]")
    parser.add_argument("--count", type=int, default=100, help="of values [%(default)s]")
    options = parser.parse_args()
    kind = options.what.pop(0) if options.what[:1] in (["conditions"], ["values"]) else "conditions"
    for name in options.what:
        if not any(file.startswith((name, f"runtime/{name}")) for file in FILES):
            sys.exit(f"mutate.py: {name} is none of {', '.join(FILES)}")
    names = tuple(start + name for name in options.what or [""] for start in ("", "runtime/"))
    files = [file for file in FILES if file.startswith(names)]
    mutants = Conditions() if kind == "conditions" else Values(options.seed, options.count)
    builds = Builds(kind, mutants)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tests = builds.find_tests(pool)
        if kind == "conditions":
            sys.exit(not try_conditions(builds, mutants, files, pool, tests))
        print(f"seed {options.seed}")
        try_values(builds, mutants, files, pool, tests)


if __name__ == "__main__":
    main()
