"""Mutation tests of the CUDA kernels: breaks one statement of a kernel's PTX at a time, and checks that the kernel's
tests fail on the emulated CUDA device of checks/cuda.

    mutate_ptx.py BUILD [--seed N] [--only WORD]

A seed selects the statements. Each mutant runs in a test process of its own, in place of the kernel. A mutant that runs
ten times as long as the kernel counts as caught. Exits with 1 if no test catches a mutant, unless EQUIVALENT has the
reason. --only restricts the mutants to kernels or rules with WORD in their name.
"""

import argparse
import concurrent.futures
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time


def replace(pattern, after):
    """A rule: a pattern for a whole statement, and its replacement. ADDRESS in the pattern matches [register+offset],
    in two groups: the register, and the offset or nothing."""
    return re.compile(pattern.replace("ADDRESS", r"\[(%\w+)(?:\+(-?\d+))?\]")), after


def add_to_number(step):
    """A replacement that adds to the number in the second of three groups."""
    return lambda found: f"{found[1]}{int(found[2]) + step}{found[3]}"


def add_to_address(step):
    """A replacement that adds to the offset of ADDRESS. The pattern has one group before ADDRESS and one after it."""
    return lambda found: f"{found[1]}[{found[2]}+{int(found[3] or 0) + step}]{found[4]}"


RULES = {
    "fma split": replace(r"fma\.rn\.f32\s+(\S+), (\S+), (\S+), (?!0f00000000)(\S+);",
                         r"{ .reg .b32 split; mul.rn.f32 split, \2, \3; add.rn.f32 \1, split, \4; }"),
    "branch flipped": replace(r"@(%p\d+ bra.*;)", r"@!\1"),
    "barrier dropped": replace(r"bar\.sync\s+0;", ""),
    "load 4 bytes on": replace(r"(ld\.(?:global|shared)\S+\s+[^\[]*)ADDRESS(.*;)", add_to_address(4)),
    "store 2 bytes on": replace(r"(st\.global\.b16\s+)ADDRESS(.*;)", add_to_address(2)),
    "store 4 bytes on": replace(r"(st\.(?:global|shared)\.b(?:32|64)\s+)ADDRESS(.*;)", add_to_address(4)),
    "store 16 bytes on": replace(r"(st\.global\.v\S+\s+)ADDRESS(.*;)", add_to_address(16)),
    "load by nc": replace(r"ld\.global\.(?!nc)(.*;)", r"ld.global.nc.\1"),
    "operands swapped": replace(r"((?:selp|sub)\.\w+\s+%\w+, )([^,;]+), ([^,;]+)(.*;)", r"\1\3, \2\4"),
    "min for max": replace(r"max(\..*;)", r"min\1"),
    "max for min": replace(r"min(\..*;)", r"max\1"),
    "shift less": replace(r"((?:shl|shr)\.\S+\s+\S+, \S+, )(\d+)(;)", add_to_number(-1)),
    "shift more": replace(r"((?:shl|shr)\.\S+\s+\S+, \S+, )(\d+)(;)", add_to_number(1)),
    "sum of 32 bits": replace(r"add\.s64\s+(?!%shared)(\S+), (\S+), (%\S+);",
                              r"{ .reg .b64 sum; .reg .b32 low; add.s64 sum, \2, \3; cvt.u32.u64 low, sum; "
                              r"cvt.u64.u32 \1, low; }"),
    "rounding constant": replace(r"(add\.s32\s+\S+, \S+, )(?!1610612736)(\d{4,})(;)", add_to_number(1)),
    "NaN select dropped": replace(r"selp\.f32(\s+\S+, )(\S+), (\S+), (\S+);", r"mov.b32\1\3;"),
    "ne for eq": replace(r"setp\.eq(.*;)", r"setp.ne\1"),
    "round short": replace(r"(setp\.eq\.b32\s+\S+, \S+, )0(;)", r"\g<1>1\2"),
    "or for and": replace(r"and\.pred(.*;)", r"or.pred\1"),
    "and for or": replace(r"or\.pred(.*;)", r"and.pred\1"),
    "constant an ulp off": replace(r"(?!fma.*0f00000000)(.*)0f([0-9A-F]{8})(.*;)",
                                   lambda found: f"{found[1]}0f{int(found[2], 16) + 1:08X}{found[3]}"),
    "sign kept": replace(r"neg\.f32\s+(\S+), (\S+);", r"mov.b32 \1, \2;"),
    "halves swapped": replace(r"(mov\.b(?:32|64)\s+%\w+, \{|cvt\.rn\.b?f16x2\.f32\s+\S+, )([^,]+), ([^};]+)(.*;)",
                              r"\1\3, \2\4"),
    "bit field off": replace(r"(bfe\.\S+\s+\S+, \S+, )(\d+)(, .*;)", add_to_number(1)),
    "addend dropped": replace(r"mad\.lo\.s(\d+)(\s+\S+, \S+, \S+), \S+;", r"mul.lo.s\1\2;"),
    "count off by one": replace(r"(add\.s32\s+\S+, \S+, )(-?1)(;)", lambda found: f"{found[1]}{2 * int(found[2])}{found[3]}"),
}
# The kernels to break: the tests that must catch the mutants, and the number of mutants.
KERNELS = {
    "halyard_rotate_half_bf16_in_place": ("halyard_rotate_half_bf16_in_place_cuda_sm80", 12),
    "halyard_rotate_interleaved_f32": ("halyard_rotate_interleaved_f32_cuda_sm80", 10),
    "halyard_rotate_half_to_interleaved_f16": ("halyard_rotate_half_to_interleaved_f16_cuda_sm80", 8),
    "halyard_rotate_strided_f16_in_place": ("halyard_rotate_strided_f16_in_place_cuda_sm80", 8),
    "halyard_copy_16": ("halyard_rotate_strided_f16_cuda_sm80", 4),
    "halyard_copy_128": ("halyard_rotate_half_bf16_cuda_sm80", 4),
    "halyard_check_positions": ("cuda device: positions of many tokens*", 8),
    "halyard_kv_bf16_128": ("halyard_kv_bf16_128_cuda_sm80", 16),
    "halyard_kv_f32_128": ("halyard_kv_f32_128_cuda_sm80", 16),
    "halyard_kv_f16_e4m3_80": ("halyard_kv_f16_e4m3_80_cuda_sm80", 12),
    "halyard_kv_bf16_192_interleaved_64_at_128": ("halyard_kv_bf16_192_interleaved_64_at_128_cuda_sm80", 8),
}
# Mutants that tests may miss: (part of the kernel's name, pattern of the rule, start of the statement, reason).
EQUIVALENT = [
    ("16", "fma split|constant|rounding|sign kept", "", "16 bits mostly hide it; f32 kernels share the code"),
    ("check_positions", "shift", "shl.b64", "positions whose upper half is more than a sign are bad in any case"),
    ("copy_128", "addend dropped", "", "the copied elements begin at the pointer, so the addend is 0"),
    ("check_positions", "branch flipped", "@%p4", "whole blocks and the last one are checked in the same way"),
    ("rotate", "or for and|count off by one", "", "another condition implies this one"),
    ("kv_f16_e4m3_80", "or for and", "and.pred %p1", "only threads that rotate use the exchanged elements"),
    ("kv_bf16_192", "or for and", "and.pred %p3", "heads without a weight load one, too, and ignore it"),
    ("kv_bf16_128", "or for and", "and.pred %p3", "heads without a weight load one, too, and ignore it"),
    ("kv_f32_128", "or for and", "and.pred %p4", "only normed heads use the root of the sum"),
    ("kv_f32_128", "or for and", "and.pred %p17", "spare threads write the same rows, or what nothing reads yet"),
    ("kv_f16_e4m3_80", "round short", "setp.eq.b32 %p13", "another row of threads does what is done once for a block"),
    ("kv", "round short", "setp.eq.b32 %p16", "another row of threads does what is done once for a block"),
    ("kv", "load by nc", "ld.global.v", "it loads weights, which nothing writes"),
]


def mutants_of(kernel, ptx):
    """Yields all mutants of a kernel: (kernel, rule, index of the line, its statement, the replacement)."""
    lines = ptx.split("\n")
    for at in range(lines.index("{"), len(lines)):
        before = " ".join(lines[at].split("//")[0].split())
        for rule, (pattern, change) in RULES.items():
            found = pattern.fullmatch(before)
            after = before if not found else change(found) if callable(change) else found.expand(change)
            if after != before:
                yield kernel, rule, at, before, after


def why_equivalent(kernel, rule, _, before, __):
    return next((why for of, rules, begin, why in EQUIVALENT
                 if of in kernel and re.match(rules, rule) and before.startswith(begin)), None)


class Runner:
    def __init__(self, build, folder, seed):
        self.build, self.folder, self.seed = build, folder, seed
        self.limits = {}

    def path_of(self, kernel):
        return self.build / "kernels" / f"{kernel}_cuda_sm80.ptx"

    def find_catcher(self, kernel, replacement, timeout, rounds=1):
        """Runs a kernel's tests with the file `replacement` in its place. Returns what caught it, in words, or None."""
        environment = {**os.environ, "LD_LIBRARY_PATH": str(self.build / "emulated_cuda"),
                       "HALYARD_EMULATED_CUDA_REPLACE": f"{self.path_of(kernel)}:{replacement}",
                       "HALYARD_CUDA_ROUNDS": str(rounds)}
        command = [self.build / "bin/halyard_cuda_tests", KERNELS[kernel][0], "--abort", "--rng-seed", str(self.seed)]
        try:
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=environment,
                                  timeout=timeout)
        except subprocess.TimeoutExpired:
            return "hangs"
        output = done.stdout.decode(errors="replace")
        if done.returncode == 4 or "skipped" in output:
            sys.exit(f"mutate_ptx.py: {KERNELS[kernel][0]} finds no driver in {self.build / 'emulated_cuda'}")
        fault = re.search(r"emulated CUDA: (?:.*threads, )?(.*?)(?:, in line|$)", output, re.MULTILINE)
        return None if done.returncode == 0 else fault[1] if fault else "other bits"

    def check(self, kernel):
        """The tests must pass with the kernel itself, and fail with a file that is not PTX. Sets the time limit."""
        begun = time.monotonic()
        if caught := self.find_catcher(kernel, self.path_of(kernel), 300):
            sys.exit(f"mutate_ptx.py: with nothing broken, a test of {kernel} fails: {caught}")
        self.limits[kernel] = 10 + 10 * (time.monotonic() - begun)
        nothing = self.folder / "nothing.ptx"
        nothing.write_text("no PTX")
        if not self.find_catcher(kernel, nothing, 300):
            sys.exit(f"mutate_ptx.py: no test runs {kernel}, or {self.path_of(kernel)} is not what was built in")

    def catch(self, mutant):
        kernel, rule, at, _, after = mutant
        lines = self.path_of(kernel).read_text().split("\n")
        lines[at] = after
        by = self.folder / f"{kernel} {rule} {at}.ptx"
        by.write_text("\n".join(lines))
        limit, may_pass = self.limits[kernel], why_equivalent(*mutant)
        # Some mutants change a result only rarely, so a mutant that the first run misses is run for 20 rounds.
        caught = self.find_catcher(kernel, by, limit)
        return caught or (None if may_pass else self.find_catcher(kernel, by, 20 * limit, 20))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=20261121)
    parser.add_argument("--only", default="")
    given = parser.parse_args()
    print(f"seed {given.seed}")
    luck = random.Random(given.seed)
    n_missed = 0
    with tempfile.TemporaryDirectory() as folder, concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        runner = Runner(given.build.resolve(), pathlib.Path(folder), given.seed)
        mutants = []
        for kernel, (_, count) in KERNELS.items():
            all_of_it = list(mutants_of(kernel, runner.path_of(kernel).read_text()))
            luck.shuffle(all_of_it)
            first = {mutant[1]: mutant for mutant in all_of_it}.values()  # one mutant of each rule comes first
            mutants += sorted(all_of_it, key=lambda mutant: mutant not in first)[:count]
        mutants = [mutant for mutant in mutants if given.only in mutant[0] or given.only in mutant[1]]
        list(pool.map(runner.check, {mutant[0]: None for mutant in mutants}))
        for mutant, caught in zip(mutants, pool.map(runner.catch, mutants)):
            kernel, rule, at, before, after = mutant
            result = caught or why_equivalent(*mutant) or "NOT NOTICED"
            n_missed += result == "NOT NOTICED"
            print(f"{kernel}:{at + 1}\t{rule}\t{before} -> {after}\t{result}", flush=True)
    print(f"{len(mutants)} mutants, {n_missed} not noticed")
    sys.exit(n_missed != 0)


main()
