"""Breaks each check of plans, runs and angle sources, one at a time, and sees that a test fails: mutate.py [FILE...]

A check is a condition that is returned, chooses between an error and none, or whose branch fails or leaves early. It is
broken by never holding ("deleted") and by holding just when it should not ("inverted"), and so is each operand of its
&& and || (one of && is deleted by always holding). All are in one build, in build/mutations, where HALYARD_MUTANT says
which is broken. FILE is one of the runtime's. Fails where no test notices and EQUIVALENT does not say why.
"""

import collections
import concurrent.futures
import html
import os
import pathlib
import re
import resource
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]
COPY = ROOT / "build/mutations"
CMAKE = ROOT / ".deps/venv/bin/cmake"
FILES = ["read/plan_desc.cpp", "read/read_run.cpp", "read/read_stages.cpp", "read/read_bound.cpp", "read/areas.h",
         "read/areas.cpp", "read/cache.cpp", "read/slots.cpp", "read/slots.h", "read/stage_desc.cpp",
         "read/stage_desc.h", "base/error.h", "base/error.cpp", "base/overlap.h", "base/overlap.cpp", "base/share.cpp",
         "base/text.h", "base/token_numbers.h", "base/versioned.h", "angles/angle_source.cpp",
         "angles/create_angle_source.cpp", "frequencies/for_length.cpp", "frequencies/frequencies.h",
         "frequencies/frequencies.cpp", "angles/joined.cpp", "angles/linear.cpp", "angles/moves.cpp", "angles/pair_axes.cpp",
         "angles/positions.cpp", "angles/references/references.cpp", "angles/references/ggml.cpp",
         "angles/references/vllm.cpp", "frequencies/scaling.cpp", "angles/tables.cpp", "config/config.cpp",
         "walk/run.cpp", "walk/bound_run.cpp", "walk/plan.cpp", "walk/choose.cpp", "walk/blocks.cpp",
         "walk/dispatch.cpp", "walk/make_rows.cpp", "walk/pool.cpp", "gpu/driver.cpp", "gpu/gpu_angles.cpp",
         "gpu/gpu_plan.cpp", "gpu/gpu_run.cpp", "gpu/launch.cpp", "gpu/read_gpu_run.cpp", "gpu/road_launch.cpp",
         "gpu/road_run.cpp"]
# The quick ones, quickest first; the first that fails is the one that counts.
TESTS = [("halyard_tests", "[errors]"), ("halyard_test_allocations",),
         ("halyard_tests", "[angles],[axes],[scaling],[config],[dispatch],[threads],[property],[sources],[large],"
                           "[non-temporal],[road]")]
GPU_TESTS = [("halyard_cuda_tests",), ("halyard_gpu_tests", "gpu errors: *,gpu road: *,halyard_rotate_half_f32_opencl")]
LEAVES = re.compile(r"\bfail|return (_+|status|false|true|HALYARD_OK|nullptr|-1)\b|HALYARD_TRY|error->code|replace_if|"
                    r"n_refused|^\s*continue;")
HEADER = """
#ifndef HALYARD_MUTATED
#define HALYARD_MUTATED
#include <cstdlib>
inline const int halyard_mutant = std::getenv("HALYARD_MUTANT") ? std::atoi(std::getenv("HALYARD_MUTANT")) : 0;
template <typename Value> Value halyard_mutated(int id, int deleted, Value value) {
    return halyard_mutant == id ? Value(deleted) : halyard_mutant == -id ? Value(!value) : value;
}
#endif
"""
# What changes nothing that can be observed, and why: file, what is broken and how.
EQUIVALENT = {
    ("gpu/driver.cpp", "require_device(out->device, error)", "deleted"):
        "shows where a device is missing, as none is here",
    ("gpu/gpu_run.cpp", "step > 0", "deleted"): "joins heads that lie backwards too, which is as right",
    ("base/versioned.h", "in != nullptr && in->size == sizeof(Struct)", "deleted"):
        "copies what could be read where it is",
    ("walk/run.cpp", "n <= max_piece_tokens && n_tasks <= 1 && run.share.count == 1 && run.plan->rotates && "
     "!run.plan->rerotates && run.angles->is_direct && find_rows(run, run.positions, 0, n, rows)", "deleted"):
        "takes the way of many tokens, to the same bits",
    ("read/read_stages.cpp", "desc.scale", "deleted"): "looks into a stage that is not there, whose memory holds zeros",
    ("read/read_bound.cpp", "run.tensors[i].n_heads == 0", "deleted"): "looks at ranges that nothing has set",
    ("read/slots.cpp", "slot >= slots.n_slots", "deleted"):
        "lets pass what another thread writes between two looks; the first look's like is caught",
    ("base/overlap.h", "shape[i] == 1", "deleted"): "0 times any stride is 0, a little later",
    ("read/read_run.cpp", "!is_same", "deleted"): "checks the same tensor once more",
    ("angles/angle_source.cpp", "positions.consecutive && source.listed == nullptr && "
     "source.covers(positions.at(batch, 0, axis)) && source.covers(positions.at(batch, n_tokens - 1, axis))",
     "deleted"): "looks at each position instead of both ends",
}

checks = []  # (file, line, text), by number
cpu_seconds = collections.Counter()  # that a program's tests may take
noticed_by = collections.defaultdict(dict)  # by file: the programs and cases that noticed a mutant, the last one last


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
    else:
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
    for name, content in copies.items():
        (COPY / name).parent.mkdir(parents=True, exist_ok=True)
        if not (COPY / name).exists() or (COPY / name).read_bytes() != content:
            (COPY / name).write_bytes(content)
    if not (COPY / "build/host/build.ninja").exists():
        (COPY / ".deps").unlink(missing_ok=True)
        (COPY / ".deps").symlink_to(ROOT / ".deps")
        subprocess.run([CMAKE, "--preset", "host", "-DHALYARD_BUILD_BENCH=OFF"], cwd=COPY, stdout=sys.stderr,
                       check=True)
    targets = {test[0] for test in TESTS + GPU_TESTS}
    command = [CMAKE, "--build", "--preset", "host", "--target", *targets]
    subprocess.run(command, cwd=COPY, stdout=sys.stderr, check=True)


def run(test, mutant):
    """What fails of a test: its program, and its case where there is one; None when nothing does. It has twice as much of
    the CPU as with nothing broken and ten seconds, and ten minutes in all."""
    program, *names = test
    catch = [*names, "--abort", "--reporter", "xml", "--rng-seed", "20261121"] if program.endswith("tests") else []
    environment = {**os.environ, "HALYARD_MUTANT": str(mutant)}
    cpu = f"--cpu={cpu_seconds[program]}" if mutant else "--cpu=600"
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime
    try:
        done = subprocess.run(["prlimit", cpu, COPY / "build/host/bin" / program, *catch], timeout=600,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment)
    except subprocess.TimeoutExpired:
        return f"{program}, which waits forever", ""
    if mutant == 0:  # alone
        used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime - before
        cpu_seconds[program] = max(cpu_seconds[program], 10 + 2 * int(used))
    if done.returncode in (0, 77):  # 77: skipped
        return None
    cases = re.findall(r'<TestCase name="([^"]*)"', done.stdout.decode(errors="replace"))
    return program, html.unescape(cases[-1]) if cases else ""


def catch(mutant):
    """What notices a mutant, as run says it. The cases that noticed the last ones of its file come first: they are quick."""
    file = checks[abs(mutant) - 1][0] if mutant else ""
    tests = TESTS + GPU_TESTS if mutant == 0 else GPU_TESTS if file.startswith("gpu/") else TESTS
    for program, case in list(noticed_by[file])[:-9:-1]:
        if (caught := run((program, re.sub(r"([\\,\[\]])", r"\\\1", case)), mutant)) == (program, case):
            break
    else:
        caught = next((caught for caught in (run(test, mutant) for test in tests) if caught), None)
    if caught and caught[1]:
        noticed_by[file].pop(caught, None)
        noticed_by[file][caught] = True
    return caught


def main():
    files = sys.argv[1:] or FILES
    if unknown := sorted(set(files) - set(FILES)):
        sys.exit(f"mutate.py: {unknown[0]} is none of {', '.join(FILES)}")
    build()
    if caught := catch(0):
        sys.exit(f"with nothing broken, a test fails: {' '.join(caught)}")
    mutants = [sign * (i + 1) for i, check in enumerate(checks) if check[0] in files for sign in (1, -1)]
    counts = collections.Counter()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for mutant, caught in zip(mutants, pool.map(catch, mutants)):
            file, line, text = checks[abs(mutant) - 1]
            how = "deleted" if mutant > 0 else "inverted"
            reason = EQUIVALENT.get((file, text, how))
            result = " ".join(caught) if caught else reason or "NOT NOTICED"
            counts[file, how, "caught" if caught else "equivalent" if reason else "NOT NOTICED"] += 1
            print(f"{file}:{line}\t{how}\t{text}\t{result}", flush=True)
    for (file, how, result), count in sorted(counts.items()):
        print(f"{file}: {count} {how}, {result}")
    sys.exit(any(result == "NOT NOTICED" for _, _, result in counts))


main()
