"""Breaks the CUDA kernels that ship on purpose, one statement at a time, and sees that their tests fail on the machine
of checks/cuda: mutate_ptx.py BUILD [--seed N] [--only WORD] [--count N]

Which statements are broken is drawn by a seed, which is printed. Each mutant is loaded in the kernel's place by a test
program of its own; one that runs for ten times as long as the kernel itself is caught, too. Fails where no test notices
and EQUIVALENT does not say why: then a test's random cases want something, or EQUIVALENT does. --only takes those whose
kernel or rule has a word in its name; --count draws so many of all mutants.
"""

import argparse
import collections
import concurrent.futures
import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

REGISTER = r"%\w+"


def swapped(opcode):
    """Exchanges the last two of three sources, or the only two."""
    return rf"({opcode}\s+{REGISTER}, )([^,;]+), ([^,;]+)(.*;)", r"\1\3, \2\4"


def another(found, step):
    """The same with its last number changed."""
    return f"{found[1]}{int(found[2]) + step}{found[3]}"


def off_by_ulp(found):
    return f"{found[1]}0f{int(found[2], 16) + 1:08X}{found[3]}"


def split_fma(found):
    d, a, b, c = found.groups()
    return f"{{ .reg .b32 split; mul.rn.f32 split, {a}, {b}; add.rn.f32 {d}, split, {c}; }}"


def narrow_sum(found):
    return (f"{{ .reg .b64 sum; .reg .b32 low; add.s64 sum, {found[2]}, {found[3]}; cvt.u32.u64 low, sum; "
            f"cvt.u64.u32 {found[1]}, low; }}")


def displaced(step):
    def change(found):
        return f"{found[1]}[{found[2]}+{int(found[3] or 0) + step}]{found[4]}"
    return change


ADDRESS = rf"\[({REGISTER})(?:\+(-?\d+))?\](.*;)"
# What is broken: a pattern that a statement fits, and what takes its place.
RULES = {
    "fma split": (r"fma\.rn\.f32\s+(\S+), (\S+), (\S+), (\S+);", split_fma),
    "branch flipped": (r"@(%p\d+ bra.*;)", r"@!\1"),
    "barrier dropped": (r"bar\.sync\s+0;", ""),
    "load 4 bytes on": (r"(ld\.(?:global|shared)\S+\s+[^\[]*)" + ADDRESS, displaced(4)),
    "store 4 bytes on": (r"(st\.(?:global|shared)\.b(?:32|64)\s+)" + ADDRESS, displaced(4)),
    "store 2 bytes on": (r"(st\.global\.b16\s+)" + ADDRESS, displaced(2)),
    "store 16 bytes on": (r"(st\.global\.v\S+\s+)" + ADDRESS, displaced(16)),
    "store at 8 bytes": (r"(st\.global\.v\S+\s+)" + ADDRESS, displaced(8)),
    "load by nc": (r"ld\.global\.(?!nc)(.*;)", r"ld.global.nc.\1"),
    "selp swapped": swapped(r"selp\.\w+"),
    "sub swapped": swapped(r"sub\.\w+"),
    "min for max": (r"max(\..*;)", r"min\1"),
    "max for min": (r"min(\..*;)", r"max\1"),
    "shift less": (r"((?:shl|shr)\.\S+\s+\S+, \S+, )(\d+)(;)", lambda found: another(found, -1)),
    "shift more": (r"((?:shl|shr)\.\S+\s+\S+, \S+, )(\d+)(;)", lambda found: another(found, 1)),
    "sign lost in cvt": (r"cvt\.s64\.s32(.*;)", r"cvt.u64.u32\1"),
    "sign lost in shift": (r"shr\.s(.*;)", r"shr.u\1"),
    "sign lost in product": (r"mul\.wide\.s32(.*;)", r"mul.wide.u32\1"),
    "sum of 32 bits": (r"add\.s64\s+(\S+), (\S+), (%\S+);", narrow_sum),
    "rounding constant more": (r"(add\.s32\s+\S+, \S+, )(?!1610612736)(\d{4,})(;)", lambda found: another(found, 1)),
    "rounding constant less": (r"(add\.s32\s+\S+, \S+, )(?!1610612736)(\d{4,})(;)", lambda found: another(found, -1)),
    "NaN kept as it is": (r"selp\.b32\s+(\S+), 2143289344, (\S+), \S+;", r"mov.b32 \1, \2;"),
    "NaN select turned": (r"selp\.f32(\s+\S+, )(\S+), (\S+), (\S+);", r"mov.f32\1\3;"),
    "le for lt": (r"setp\.lt(.*;)", r"setp.le\1"),
    "ge for gt": (r"setp\.gt(.*;)", r"setp.ge\1"),
    "gt for ge": (r"setp\.ge(.*;)", r"setp.gt\1"),
    "ne for eq": (r"setp\.eq(.*;)", r"setp.ne\1"),
    "round short": (r"(setp\.eq\.b32\s+\S+, \S+, )0(;)", r"\g<1>1\2"),
    "or for and": (r"and\.pred(.*;)", r"or.pred\1"),
    "and for or": (r"or\.pred(.*;)", r"and.pred\1"),
    "constant an ulp off": (r"(.*)0f([0-9A-F]{8})(.*;)", off_by_ulp),
    "mask of a bit less": (r"(and\.b32\s+\S+, \S+, )(-65536|-2147483648|1073741824|1073741760|63)(;)",
                           lambda found: another(found, 1 if found[2] == "-2147483648" else -1)),
    "sign kept": (r"neg\.f32\s+(\S+), (\S+);", r"mov.f32 \1, \2;"),
    "halves swapped": (r"(mov\.b(?:32|64)\s+%\w+, \{)([^,]+), ([^}]+)(\};)", r"\1\3, \2\4"),
    "bit field off": (r"(bfe\.\S+\s+\S+, \S+, )(\d+)(, .*;)", lambda found: another(found, 1)),
    "xor dropped": (r"xor\.b32\s+(\S+), (\S+), (%\S+);", r"mov.b32 \1, \2;"),
    "addend dropped": (r"mad\.lo\.s(\d+)(\s+\S+, \S+, \S+), \S+;", r"mul.lo.s\1\2;"),
    "f16 halves swapped": (r"(cvt\.rn\.b?f16x2\.f32\s+\S+, )(\S+), (\S+)(;)", r"\1\3, \2\4"),
    "count off by one": (r"(add\.s32\s+\S+, \S+, )(-?1)(;)", lambda found: f"{found[1]}{2 * int(found[2])}{found[3]}"),
    "clamp off by one": (r"((?:min|max)\.\S+\s+\S+, \S+, )(-?\d+)(;)", lambda found: another(found, 1)),
}
PRODUCT = re.compile(r"mul(?:\.rn)?\.f32\s+(\S+), (\S+), (\S+);")

# Which kernels are broken, the tests that must notice, and how many mutants are drawn for them.
KERNELS = {
    "halyard_rotate_half_bf16_in_place": ("halyard_rotate_half_bf16_in_place_cuda_sm80", 12),
    "halyard_rotate_half_bf16": ("halyard_rotate_half_bf16_cuda_sm80", 8),
    "halyard_rotate_interleaved_f32": ("halyard_rotate_interleaved_f32_cuda_sm80", 10),
    "halyard_rotate_half_to_interleaved_f16": ("halyard_rotate_half_to_interleaved_f16_cuda_sm80", 8),
    "halyard_rotate_strided_f16_in_place": ("halyard_rotate_strided_f16_in_place_cuda_sm80", 8),
    "halyard_copy_16": ("halyard_rotate_strided_f16_cuda_sm80", 4),
    "halyard_copy_32": ("halyard_rotate_strided_f32_cuda_sm80", 4),
    "halyard_copy_128": ("halyard_rotate_half_bf16_cuda_sm80", 4),
    "halyard_check_positions": ("cuda device: positions of many tokens*", 8),
    "halyard_kv_bf16_128": ("halyard_kv_bf16_128_cuda_sm80", 16),
    "halyard_kv_f32_128": ("halyard_kv_f32_128_cuda_sm80", 16),
    "halyard_kv_f16_e4m3_80": ("halyard_kv_f16_e4m3_80_cuda_sm80", 12),
    "halyard_kv_bf16_192_interleaved_64_at_128": ("halyard_kv_bf16_192_interleaved_64_at_128_cuda_sm80", 8),
}
# What 16 bits hide as a rule, where it is done to angles, before the barrier: the kernels of f32 have the same code.
TOO_SMALL = {"constant an ulp off", "fma split", "cross product fused", "mask of a bit less", "rounding constant more",
             "rounding constant less"}
# What changes nothing that can be observed, and why: a part of a kernel's name, a rule, and what the statement and
# those that set its sources begin with, in which nothing has a number but constants.
EQUIVALENT = [
    ("", "clamp off by one", r"m\w+\.s64 .*2305843009213693952", "a position so far out is bad in any case"),
    ("", "ge for gt", r"setp\.gt\.u32 .*2139095040", "cos and sin are not infinite"),
    ("rotate", "ge for gt", r"setp\.gt\.s32 %p, %r, 0; <- sub", "each block has some pair"),
    ("rotate", "le for lt", r"setp\.lt\.s32 %p, %r, %r; <- mov.u32 %r, %tid.y; <- (min|shr)",
     "the next condition tells, too"),
    ("rotate", "sign lost in product", r"mul\.wide\.s32 %rd, %r, [24]; <- mad\.lo\.s32 %r, %r, %r, %r;",
     "rows of cos and sin are counted from 0 upwards"),
    ("rotate", "NaN kept as it is", "selp", "a NaN of cos or sin makes one of the result"),
    ("half_bf16_in_place", "xor dropped", r"xor\.b32 %r, %r, %r; <- selp\.b32 .* <- ld\.param", "cos keeps its sign"),
    ("half_to_interleaved_f16", "xor dropped", r"xor\.b32 %r, %r, %r; <- ld\.global\.nc.* <- ld\.param",
     "cos keeps its sign"),
    ("copy_128", "addend dropped", r"mad\.lo\.s32 .* <- ld\.param\S+ %r, \[parameter\]; <- add\.s32 .* <- ld\.param",
     "what is copied begins where its pointer leads"),
    ("", "sign lost in cvt", r"cvt\.s64\.s32 %rd, %r; <- mul\.lo", "tokens are counted from 0 upwards"),
    ("", "sum of 32 bits", r"add\.s64 %shared", "shared memory ends before 4 GiB"),
    ("kv", "clamp off by one", r"min\.u32 .*1138753536", "the next float is rounded to 448 of e4m3, too"),
    ("kv", "sign lost in cvt", r"cvt\.s64\.s32 %rd, %r; <- min\.s32", "tokens are counted from 0 upwards"),
    ("kv", "sign lost in cvt", r"cvt\.s64\.s32 %rd, %r; <- ld\.param", "a cache has 0 slots or more"),
    ("kv", "sign lost in cvt", r"cvt\.s64\.s32 %rd, %r; <- (sub|selp)", "heads are counted from 0 upwards"),
    ("kv", "sign lost in product", r"mul\.wide\.s32 %rd, %r, [24];", "rows and pairs are counted from 0 upwards"),
    ("kv", "sign lost in shift", r"shr\.s32 %r, %r, 31; <- (cvt\.u32\.u64|sub)", "what is divided is not negative"),
    ("kv_f32", "load by nc", r"ld\.global\.v2\.b32", "of weights, which nobody writes"),
    ("kv", "fma split", r"fma\.rn\.f32 %r, %r, %r, 0f00000000", "a sum with zero rounds nothing"),
    ("kv", "constant an ulp off", r"fma\.rn\.f32 %r, %r, %r, 0f00000000", "no square of 16 bits has so small a part"),
]

Mutant = collections.namedtuple("Mutant", "kernel line rule before after place")


def statements(ptx):
    """Each line of a kernel's code, with its number, without comments."""
    begin = ptx.index("{\n")
    return [(number, " ".join(line.split("//")[0].split())) for number, line in enumerate(ptx.split("\n"))
            if number > ptx.count("\n", 0, begin)]


def plain(statement):
    """A statement whose registers and parameters have no numbers."""
    return re.sub(r"(%[a-z]+)\d+", r"\1", re.sub(r"\[_\w+\]", "[parameter]", statement))


def place_of(statement, setters):
    """A statement and those that set what it reads: with it the same place is found again in other builds."""
    read = re.findall(r"%[a-z]+\d+", statement)[0 if statement.startswith(("st.", "@")) else 1:]
    return " <- ".join([plain(statement)] + [plain(setters[register]) for register in read if register in setters])


def mutants_of(kernel, ptx):
    """All ways to break a kernel."""
    code = statements(ptx)
    barrier = next((number for number, line in code if line.startswith("bar.sync")), 0)
    setters = {found[1]: line for _, line in code if (found := re.match(r"[a-z]\S+ (%\w+),", line))}
    products = {found[1]: found.groups() for _, line in code if (found := PRODUCT.fullmatch(line))}
    is_kv = "_kv_" in kernel  # whose angles lie behind its barriers, too
    for number, line in code:
        for rule, (pattern, change) in RULES.items():
            is_hidden = "16" in kernel and rule in TOO_SMALL and (is_kv or number < barrier)
            found = None if is_hidden else re.fullmatch(pattern, line)
            after = line if not found else change(found) if callable(change) else found.expand(change)
            if after != line:
                yield Mutant(kernel, number + 1, rule, line, after, place_of(line, setters))
        found = re.fullmatch(r"fma\.rn\.f32\s+(\S+), (\S+), (\S+), (\S+);", line)
        if found and found[4] in products and number > barrier and "e4m3" not in kernel:
            _, m, n = products[found[4]]
            after = (f"{{ .reg .b32 cross; mul.rn.f32 cross, {found[2]}, {found[3]}; "
                     f"fma.rn.f32 {found[1]}, {m}, {n}, cross; }}")
            yield Mutant(kernel, number + 1, "cross product fused", line, after, place_of(line, setters))


def draw(mutants, count, seed):
    """Some mutants: of as many rules as there are, one after the other. Other builds draw the same as far as can be."""
    def luck(*words):
        return hashlib.sha256(" ".join(map(str, (seed, *words))).encode()).hexdigest()

    by_rule = collections.defaultdict(list)
    for mutant in mutants:
        by_rule[mutant.kernel, mutant.rule].append(mutant)
    for each in by_rule.values():
        each.sort(key=lambda mutant: luck(*mutant[:1], mutant.rule, mutant.place))
    rules = sorted(by_rule, key=lambda rule: luck(*rule))
    rounds = max((len(each) for each in by_rule.values()), default=0)
    order = [by_rule[rule][i] for i in range(rounds) for rule in rules if i < len(by_rule[rule])]
    return order[:count]


def why_equivalent(mutant):
    return next((reason for kernel, rule, place, reason in EQUIVALENT
                 if kernel in mutant.kernel and mutant.rule == rule and re.match(place, mutant.place)), None)


class Runner:
    def __init__(self, build, folder, seed):
        self.build, self.folder, self.seed = build, folder, seed
        self.limits = {}

    def path_of(self, kernel):
        return self.build / "kernels" / f"{kernel}_cuda_sm80.ptx"

    def test(self, kernel, by, seed, limit, rounds=1):
        """What notices that a kernel is replaced by a file, in words, or None."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.build / "emulated_cuda"),
                       "HALYARD_EMULATED_CUDA_REPLACE": f"{self.path_of(kernel)}:{by}",
                       "HALYARD_CUDA_ROUNDS": str(rounds)}
        environment.pop("HALYARD_EMULATED_CUDA", None)
        command = [self.build / "bin/halyard_cuda_tests", KERNELS[kernel][0], "--abort", "--rng-seed", str(seed)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                                  timeout=limit)
        except subprocess.TimeoutExpired:
            return "hangs"
        output = done.stdout.decode(errors="replace")
        if done.returncode == 4 or "skipped" in output:
            sys.exit(f"mutate_ptx.py: {KERNELS[kernel][0]} finds no driver in {self.build / 'emulated_cuda'}")
        return what_failed(output) if done.returncode != 0 else None

    def check(self, kernel):
        """The kernel itself passes, and what is no kernel at all is noticed."""
        begun = time.monotonic()
        if caught := self.test(kernel, self.path_of(kernel), self.seed, 300):
            sys.exit(f"mutate_ptx.py: with nothing broken, a test of {kernel} fails: {caught}")
        self.limits[kernel] = 10 + 10 * (time.monotonic() - begun)
        nothing = self.folder / "nothing.ptx"
        nothing.write_text("no PTX")
        if not self.test(kernel, nothing, self.seed, 300):
            sys.exit(f"mutate_ptx.py: no test runs {kernel}, or {self.path_of(kernel)} is not what was built in")

    def catch(self, numbered):
        number, mutant = numbered
        lines = self.path_of(mutant.kernel).read_text().split("\n")
        lines[mutant.line - 1] = "\t" + mutant.after
        by = self.folder / f"{number}.ptx"
        by.write_text("\n".join(lines))
        limit = self.limits[mutant.kernel]
        caught = self.test(mutant.kernel, by, self.seed, limit)
        if not caught and not why_equivalent(mutant):  # what is rare needs more runs
            caught = self.test(mutant.kernel, by, self.seed + 1, 6 * limit, 6)
        return caught


def what_failed(output):
    """The machine's sentence, or that values differ."""
    if found := re.search(r"emulated CUDA: (.*)", output):
        fault = re.search(r"threads, (.*?)(?:, in line|$)", found[1])
        return "fault: " + (fault[1] if fault else found[1])[:60]
    return "other bits" if re.search(r"FAILED|fail", output) else "the program ends: " + output[-60:].strip()


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--only", default="")
    parser.add_argument("--count", type=int)
    return parser.parse_args()


def choose(given, runner):
    chosen = []
    for kernel, (_, count) in KERNELS.items():
        mutants = list(mutants_of(kernel, runner.path_of(kernel).read_text()))
        chosen += draw(mutants, count, given.seed)
    chosen = [mutant for mutant in chosen if given.only in mutant.kernel or given.only in mutant.rule]
    return draw(chosen, given.count, given.seed) if given.count else chosen


def main():
    given = arguments()
    print(f"seed {given.seed}")
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runner = Runner(given.build.resolve(), pathlib.Path(folder), given.seed)
        mutants = choose(given, runner)
        list(pool.map(runner.check, sorted({mutant.kernel for mutant in mutants})))
        counts = collections.Counter()
        for mutant, caught in zip(mutants, pool.map(runner.catch, enumerate(mutants))):
            reason = None if caught else why_equivalent(mutant)
            result = "caught" if caught else "equivalent" if reason else "NOT NOTICED"
            counts[mutant.kernel, result] += 1
            print(f"{mutant.kernel}:{mutant.line}\t{mutant.rule}\t{mutant.before} -> {mutant.after}\t"
                  f"{caught or reason or result}", flush=True)
    for (kernel, result), count in sorted(counts.items()):
        print(f"{kernel}: {count} {result}")
    missed = sum(count for (_, result), count in counts.items() if result == "NOT NOTICED")
    print(f"{sum(counts.values())} mutants, {missed} not noticed")
    sys.exit(missed != 0)


main()
