"""Breaks each check of plans, runs and angle sources, one at a time, and sees that a test fails: mutate.py [FILE...]

A check is a condition that is returned, chooses between an error and none, or whose branch fails or leaves early. It is
broken by never holding ("deleted") and by holding just when it should not ("inverted"), and so is each operand of its
&& and || (one of && is deleted by always holding). All are in one build, in build/mutations, where HALYARD_MUTANT says
which is broken. It is tried by the tests that come there with nothing broken. FILE is one of the runtime's, or the first
letters of some. Fails where no test notices and EQUIVALENT does not say why.
"""

import collections
import concurrent.futures
import dataclasses
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
COPY = ROOT / "build/mutations"
BIN = COPY / "build/host/bin"
CMAKE = ROOT / ".deps/venv/bin/cmake"
# Headers first: their checks keep their numbers, by which all is built, while sources change.
FILES = sorted((str(path.relative_to(ROOT / "runtime")) for path in (ROOT / "runtime").glob("*/**/*.*")
                if path.suffix in (".cpp", ".h") and not path.is_relative_to(ROOT / "runtime/tool")),
               key=lambda name: (name.endswith(".cpp"), name))
# The programs that are to notice what is broken, and their cases as Catch2 names them. One of them has none.
PROGRAMS = {
    "halyard_test_allocations": None,
    "halyard_tests": "~[tool]~[npy]~[kernel]~[checker]~[emulated]~[gpu]",
    "halyard_cuda_tests": "*",
    "halyard_gpu_tests": "gpu*,cuda device*,halyard_rotate_half_f32_cuda_sm80",
}
MOST_CHECKS = 4096
QUICK = 0.2  # seconds that a test may take to be among the first
LEAVES = re.compile(r"\b(?:fail|refuse)|return (_+|status|false|true|HALYARD_OK|nullptr|-1)\b|HALYARD_TRY|error->code|"
                    r"replace_if|n_refused|^\s*continue;")
HEADER = """
#ifndef HALYARD_MUTATED
#define HALYARD_MUTATED
#include <cstdlib>
#include <fcntl.h>
#include <sys/mman.h>
static const int halyard_mutant = std::getenv("HALYARD_MUTANT") ? std::atoi(std::getenv("HALYARD_MUTANT")) : 0;
// A file of one byte for each check, which says whether it was reached.
static char *const halyard_reached = [] {
    const char *path = std::getenv("HALYARD_REACHED");
    void *at = path ? mmap(nullptr, N_CHECKS, PROT_WRITE, MAP_SHARED, open(path, O_RDWR), 0) : nullptr;
    return static_cast<char *>(at);
}();
template <typename Value> static Value halyard_mutated(int id, int deleted, Value value) {
    if (halyard_reached) {
        __atomic_store_n(&halyard_reached[id], 1, __ATOMIC_RELAXED);
    }
    return halyard_mutant == id ? Value(deleted) : halyard_mutant == -id ? Value(!value) : value;
}
#endif
""".replace("N_CHECKS", str(MOST_CHECKS))
# What changes nothing that can be observed, and why: file, what is broken and how. It is not tried.
EQUIVALENT = {
    ("gpu/driver.cpp", "require_device(error)", "deleted"): "shows where a device is missing, and one is here",
    ("gpu/driver.cpp", "reason[0] == '\\0'", "deleted"): "shows where a device is missing, and one is here",
    ("gpu/road_run.cpp", "tensor.n_heads == 0", "deleted"): "takes a launch for each batch row, to the same bits",
    ("gpu/road_run.cpp", "tensor.n_heads == 0", "inverted"): "takes a launch for each batch row, to the same bits",
    ("gpu/gpu_run.cpp", "arguments.run.tensors[i].n_heads == 0", "deleted"):
        "looks for what no kernel takes in a tensor whose strides are 0",
    ("gpu/gpu_run.cpp", "step > 0", "deleted"): "joins heads that lie backwards too, which is as right",
    ("walk/run.cpp", "n <= max_piece_tokens && n_tasks <= 1 && run.share.count == 1 && run.plan->rotates && "
     "!run.plan->rerotates && run.angles->is_direct && find_rows(run, run.positions, 0, n, rows)", "deleted"):
        "takes the way of many tokens, to the same bits",
    ("read/read_bound.cpp", "!move_if_brought(given[array], reach[array], &stages.arrays[array].range)", "inverted"):
        "takes the slower way, which says what is wrong, of stages that are as they were bound too",
    ("read/read_bound.cpp", "(data != nullptr) == (reach.above != 0)", "inverted"):
        "takes the slower way at the next array, which is brought or not as it should be",
    ("read/read_bound.cpp", "move_to(data, reach, out)", "inverted"): "takes the slower way at this array, or the next",
    ("read/read_bound.cpp", "run.tensors[i].n_heads == 0", "deleted"): "looks at ranges that nothing has set",
    ("read/slots.cpp", "slot >= slots.n_slots", "deleted"):
        "lets pass what another thread writes between two looks; the first look's like is caught",
    ("read/read_stages.cpp", "find_memory_range(scales, out)", "deleted"):
        "finds an end of 0, which is before all that is given",
    ("base/overlap.h", "shape[i] == 1", "deleted"): "0 times any stride is 0, a little later",
    ("angles/angle_source.h", "kind == halyard::AngleKind::given", "deleted"):
        "finds a caller's rows as positions, which are the same numbers, by a slower way",
    ("angles/pair_axes.cpp", "desc.n_axes == 1", "deleted"): "keeps a map of one axis, by a slower way",
    ("walk/blocks.cpp", "desc.norm", "deleted"): "looks into a norm that is not there, whose memory holds zeros",
    ("walk/blocks.cpp", "desc.norm", "inverted"): "takes the way of blocks, to the same bits",
    ("walk/blocks.cpp", "desc.norm->rounding == 0", "deleted"): "takes the way of blocks, to the same bits",
    ("walk/blocks.cpp", "desc.dtype == Dtype::f32", "deleted"): "takes the way of blocks, to the same bits",
    ("walk/blocks.cpp", "!desc.groups", "inverted"): "takes the way of blocks, to the same bits",
    ("walk/blocks.cpp", "tensor.in.element == 1", "deleted"): "takes a loop in the place of blocks, to the same bits",
    ("walk/blocks.cpp", "tensor.in.element == 1", "inverted"): "takes the one in the place of the other",
    ("walk/blocks.cpp", "!desc.cache", "deleted"): "looks into a cache that is not there, whose memory holds zeros",
    ("walk/blocks.cpp", "desc.cache->is_linear(desc.head_dim, &stride_element)", "deleted"):
        "takes the way of blocks, to the same bits",
    ("walk/blocks.cpp", "stride_element == 1", "deleted"): "takes a loop in the place of blocks, to the same bits",
    ("walk/blocks.cpp", "stride_element == 1", "inverted"): "takes the one in the place of the other",
    ("walk/bound_run.cpp", "run.is_empty", "deleted"): "multiplies sizes whose product nothing asks for",
    ("walk/bound_run.cpp", "count_tasks(run) > 1", "deleted"): "takes one thread, to the same bits",
    ("walk/bound_run.cpp", "given.part == 0", "inverted"): "takes the way of other runs, to the same bits",
    ("walk/bound_run.cpp", "given.n_parts == 0", "deleted"): "takes the way of other runs, to the same bits",
    ("walk/bound_run.cpp", "given.n_parts == 1", "deleted"): "takes the way of other runs, to the same bits",
    ("walk/bound_run.cpp", "find_rows(bound->run, brought.positions, 0, bound->rows[0].extent, rows)", "inverted"):
        "takes the way of other runs, to the same bits",
    ("walk/bound_run.cpp", "brought.is_apart && bound->is_prepared && given.part == 0 && (given.n_parts == 0 || "
     "given.n_parts == 1) && find_rows(bound->run, brought.positions, 0, bound->rows[0].extent, rows)", "deleted"):
        "takes the way of other runs, to the same bits",
    ("walk/bound_run.cpp", "tensor.n_heads == 0", "deleted"):
        "calls a kernel for no heads, or reads what nothing has set: for UndefinedBehaviorSanitizer",
    ("walk/choose.cpp", "tensor.n_heads == 0", "deleted"):
        "reads of a tensor without heads what nothing has set, and nothing calls its kernel: for the same sanitizer",
    ("walk/choose.cpp", "desc.is_staged", "deleted"): "chooses a kernel that stages do not call",
    ("walk/dispatch.cpp", "(supported_targets() & bit(*found)) == 0", "deleted"):
        "shows on a CPU that lacks a target: here, or where the suite emulates some",
    ("walk/dispatch.cpp", "(supported_targets() & bit(target)) == 0", "deleted"):
        "shows on a CPU that lacks a target: here, or where the suite emulates some",
    ("walk/stages.cpp", "block.strides.element != 1", "inverted"): "takes the portable loop, to the same bits",
    ("walk/stages.cpp", "extents.n_elements % whole_vectors == 0", "deleted"): "copies heads first, to the same bits",
    ("walk/run.cpp", "slot >= 0", "deleted"): "leaves a token without a slot to where its block has none",
    ("walk/run.cpp", "slot / together % share.count == share.index", "deleted"):
        "has every task do all slots, in the same order, to the same bits: a race, for ThreadSanitizer",
    ("walk/run.cpp", "slot / together % share.count == share.index", "inverted"):
        "has all tasks but one do a slot, in the same order",
    ("walk/run.cpp", "tensor.n_heads == 0", "deleted"): "goes through no heads",
    ("walk/stages.cpp", "layer != nullptr", "deleted"): "takes the portable loop, to the same bits",
    ("walk/run.h", "(tensor.in.batch == run.n_tokens * tensor.in.token && tensor.out.batch == run.n_tokens * "
     "tensor.out.token)", "deleted"): "takes the way of pieces, to the same bits",
    ("walk/run.h", "run.n_tokens == 1", "deleted"): "takes the way of pieces, to the same bits",
    ("walk/run.h", "run.n_batch == 1", "deleted"): "takes the way of pieces, to the same bits",
    ("read/plan_desc.cpp", "out->norm", "deleted"): "looks into a norm that is not there, whose memory holds zeros",
    ("read/token_records.cpp", "g == groups.n_groups - 1", "deleted"):
        "looks further for what is not finite only where another thread has just mended it",
    ("read/read_run.cpp", "!is_same", "deleted"): "checks the same tensor once more",
    ("angles/angle_source.cpp", "positions.consecutive && source.covers(positions.at(batch, 0, axis)) && "
     "source.covers(positions.at(batch, n_tokens - 1, axis))",
     "deleted"): "looks at each position instead of both ends",
}

checks = []  # (file, line, text), by number
noticed_by = collections.defaultdict(dict)  # by file: what noticed a mutant, the last one last


@dataclasses.dataclass
class Test:
    program: str
    case: str  # "" where a program has none
    seconds: float
    reaches: bytes  # by number of a check: 1 where the test comes there


def number(file, text, begin, end):
    checks.append((file, text.count("\n", 0, begin) + 1, " ".join(text[begin:end].split())))
    return len(checks)


def closing(code, at):
    """Where the bracket at `at` is closed."""
    depth = 0
    for i in range(at, len(code)):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0:
            return i


def split(code, begin, end, operator):
    """The operands of an operator that stands in no bracket."""
    parts, depth = [begin], 0
    for i in range(begin, end):
        depth += (code[i] in "({[") - (code[i] in ")}]")
        if depth == 0 and code.startswith(operator, i):
            parts += [i, i + 2]
    return list(zip(parts[::2], parts[1::2] + [end]))


def mutate_condition(file, text, code, begin, end, deleted=0, is_whole=True):
    """A condition that can be broken, as a whole and in each of its operands."""
    begin += len(code[begin:end]) - len(code[begin:end].lstrip())
    end = begin + len(code[begin:end].rstrip())
    inner = text[begin:end]
    bracket = begin + code.startswith("!(", begin)
    if code[bracket] == "(" and closing(code, bracket) == end - 1:
        inner = f"{text[begin:bracket]}({mutate_condition(file, text, code, bracket + 1, end - 1, is_whole=False)})"
    elif "?" not in code[begin:end]:  # which binds less than both
        operator = "||" if len(split(code, begin, end, "||")) > 1 else "&&"
        operands = split(code, begin, end, operator)
        if len(operands) > 1:
            inner = f" {operator} ".join(mutate_condition(file, text, code, *operand, int(operator == "&&"))
                                         for operand in operands)
    return f"halyard_mutated({number(file, text, begin, end)}, {deleted}, bool({inner}))" if is_whole else inner


def mutate(file):
    """The file with all its checks made breakable."""
    text = (ROOT / "runtime" / file).read_text()
    # Without what comments and literals say, so that brackets can be counted.
    code = re.sub(r'//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\])\'',
                  lambda found: (" " if found[0][0] == "/" else "_") * len(found[0]), text)
    edits = []
    for found in re.finditer(r"\bif \(", code):
        begin, end = found.end(), closing(code, found.end() - 1)
        brace = code.index("{", end)
        if not LEAVES.search(code[brace + 1:closing(code, brace)]):
            continue
        declared = re.match(r"const (?:halyard_status|int) status =\s*", code[begin:end])
        if not declared and re.match(r"const [^=(]* =\s", code[begin:end]):
            continue  # a pointer that is there or not, which is no check
        if declared:
            begin += declared.end()
            edits.append((begin, end, f"halyard_mutated({number(file, text, begin, end)}, 0, {text[begin:end]})"))
        else:
            edits.append((begin, end, mutate_condition(file, text, code, begin, end)))
    for found in re.finditer(r"\bHALYARD_TRY\(", code):
        begin, end = found.end(), closing(code, found.end() - 1)
        if not code[:begin].endswith("#define HALYARD_TRY("):
            edits.append((begin, end, f"halyard_mutated({number(file, text, begin, end)}, 0, {text[begin:end]})"))
    for found in re.finditer(r"\breturn ([^;{}?]*(?:&&|\|\|)[^;{}?]*);", code):
        edits.append((*found.span(1), mutate_condition(file, text, code, *found.span(1), is_whole=False)))
    for found in re.finditer(r"\breturn ([^;{}?]+)\? (HALYARD_OK|status|fail|fail_null)\b", code):
        is_good = found[2] == "HALYARD_OK"  # the condition is then what is asked for
        edits.append((*found.span(1), mutate_condition(file, text, code, *found.span(1), int(is_good))))
    for begin, end, new in sorted(edits, reverse=True):
        text = text[:begin] + new + text[end:]
    return HEADER + text


def build():
    """A copy of the sources with everything breakable, built."""
    names = subprocess.check_output(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, text=True).split("\n")
    copies = {name: (ROOT / name).read_bytes() for name in names if (ROOT / name).is_file()}
    copies.update({f"runtime/{file}": mutate(file).encode() for file in FILES})
    for path in [*COPY.glob("tests/**/*.h"), *COPY.glob("checks/**/*.h")]:  # of another state, and in the way
        if str(path.relative_to(COPY)) not in copies:
            path.unlink()
    assert len(checks) < MOST_CHECKS
    for name, content in copies.items():
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        if not (COPY / name).exists() or (COPY / name).read_bytes() != content:
            (COPY / name).write_bytes(content)
    if not (COPY / "build/host/build.ninja").exists():
        (COPY / ".deps").unlink(missing_ok=True)
        (COPY / ".deps").symlink_to(ROOT / ".deps")
        options = ["-DHALYARD_BUILD_BENCH=OFF", f"-DHALYARD_HOST_BUILD={ROOT}/build/host"]  # kernels have no checks
        subprocess.run([CMAKE, "--preset", "host", *options], cwd=COPY, stdout=sys.stderr, check=True)
    command = [CMAKE, "--build", "--preset", "host", "--target", *PROGRAMS]
    subprocess.run(command, cwd=COPY, stdout=sys.stderr, check=True)


def run(program, cases, seconds, **variables):
    """What fails of a program's cases: its name, and the case, or None when nothing does, or all is skipped. It has twice
    the CPU's time that they took with nothing broken and ten seconds, and ten times that and a minute in all."""
    named = ",".join(re.sub(r'([\\",\[\]])', r"\\\1", case) for case in cases)
    catch = [named, "--abort", "--reporter", "xml", "--rng-seed", "20261121"] if named else []
    try:
        done = subprocess.run(["prlimit", f"--cpu={10 + int(2 * seconds)}", BIN / program, *catch],
                              timeout=60 + 10 * seconds, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              env={**os.environ, "LD_LIBRARY_PATH": str(BIN.parent / "emulated_cuda"), **variables})
    except subprocess.TimeoutExpired:
        return f"{program}, which waits forever", ""
    if done.returncode in (0, 4, 77):  # 4, 77: skipped
        return None
    begun = re.findall(r'<TestCase name="([^"]*)"', done.stdout.decode(errors="replace"))
    return program, html.unescape(begun[-1]) if begun else ""


def measure(program, case):
    """A test as it is with nothing broken."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(MOST_CHECKS)
        begun = time.monotonic()
        if run(program, [case] if case else [], 300, HALYARD_REACHED=file.name):
            sys.exit(f"with nothing broken, a test fails: {program} {case}")
        return Test(program, case, time.monotonic() - begun, file.read())


def find_tests(pool):
    found = []
    for program, cases in PROGRAMS.items():
        names = [""]
        if cases:
            listed = subprocess.check_output([BIN / program, cases, "--list-tests", "--reporter", "xml"], text=True)
            names = [html.unescape(name) for name in re.findall(r"<Name>([^<]*)</Name>", listed)]
        found += pool.map(measure, [program] * len(names), names)
    return found


def why_equivalent(mutant):
    file, _, text = checks[abs(mutant) - 1]
    return EQUIVALENT.get((file, text, "deleted" if mutant > 0 else "inverted"))


def catch(mutant, tests):
    """What notices a mutant, as run says it, of the tests that reach its check: first of the quick ones, and of those what
    noticed the last mutants of its file."""
    if why_equivalent(mutant):
        return None
    noticed = noticed_by[checks[abs(mutant) - 1][0]]
    last = list(noticed)[-8:]

    def turn(test):
        return test.seconds >= QUICK, (test.program, test.case) not in last

    reaching = sorted((test for test in tests if test.reaches[abs(mutant)]), key=turn)  # by program, within a turn
    for (_, program), some in itertools.groupby(reaching, lambda test: (turn(test), test.program)):
        some = list(some)
        caught = run(program, [test.case for test in some if test.case], sum(test.seconds for test in some),
                     HALYARD_MUTANT=str(mutant))
        if caught:
            noticed.pop(caught, None)
            noticed[caught] = True
            return caught
    return None


def main():
    for name in sys.argv[1:]:
        if not any(file.startswith(name) for file in FILES):
            sys.exit(f"mutate.py: {name} is none of {', '.join(FILES)}")
    files = [file for file in FILES if file.startswith(tuple(sys.argv[1:] or [""]))]
    build()
    for file, text, how in EQUIVALENT:
        if not any(check[0] == file and check[2] == text for check in checks):
            sys.exit(f"mutate.py: EQUIVALENT speaks of a check that is not there: {file}: {text}")
    mutants = [sign * (i + 1) for i, check in enumerate(checks) if check[0] in files for sign in (1, -1)]
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        tests = find_tests(pool)
        for mutant, caught in zip(mutants, pool.map(lambda mutant: catch(mutant, tests), mutants)):
            file, line, text = checks[abs(mutant) - 1]
            how, reason = "deleted" if mutant > 0 else "inverted", why_equivalent(mutant)
            result = " ".join(caught) if caught else reason or "NOT NOTICED"
            counts[file, how, "caught" if caught else "equivalent" if reason else "NOT NOTICED"] += 1
            print(f"{file}:{line}\t{how}\t{text}\t{result}", flush=True)
    for (file, how, result), count in sorted(counts.items()):
        print(f"{file}: {count} {how}, {result}")
    totals = collections.Counter()
    for (_, _, result), count in counts.items():
        totals[result] += count
    print(f"{len(mutants)} mutants:", ", ".join(f"{count} {result}" for result, count in sorted(totals.items())))
    sys.exit(any(result == "NOT NOTICED" for _, _, result in counts))


if __name__ == "__main__":
    main()
