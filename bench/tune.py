"""Finds better schedules for this CPU: ./run tune [--kernels GLOB] [--minutes M] [--shapes NAME...] [--target NAME]

The tuner varies the numbers of a kernel's schedule, for one loop of the kernel after the other. Each variant is linked
into a libhalyard.so of its own, must pass the kernel's tests, and is timed beside the default in interleaved rounds on
the same memory. A schedule that is faster beyond noise, and slower on no shape, is written to
generators/schedules/<cpu>.json, which the next build reads. Run nothing else on the machine meanwhile. Exit status: 0
done; 1 an error; 2 wrong usage; 130 interrupted.
"""

import argparse
import concurrent.futures
import fnmatch
import itertools
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time
import typing

from files import Failed, load_json, save_json, show_progress
from machine import ROOT, find_caches, find_commit, read_cpuinfo
from measure import copies_of, set_expected
from native import Library
from prepared import Prepared
from rounds import Effort, Subject, interval_of_median, measure, ratios
from cases import RotationCase, read_models, with_heads

sys.path.insert(1, str(ROOT / "generators/emit"))
import emit  # noqa: E402
import read_kernels  # noqa: E402
import tuned_schedules  # noqa: E402

# The efforts for hot shapes and for cold shapes, whose calls take longer. An Effort is the number of rounds, and the
# least number of seconds for which a shape is called in each. A short round is seldom interrupted.
PRESELECTION, FINAL = (Effort(25, 2e-4), Effort(7, 1e-3)), (Effort(201, 2e-4), Effort(41, 2e-3))
FINALISTS = 3
LEAST_GAIN = 0.01  # a variant must be faster by more than this, in the mean of the hot shapes
MOST_LOSS = 0.01  # no shape may be slower by this much
PATIENCE = 60  # CPU seconds that the check of a variant's results may take
MAKING_SHARE = 0.7  # the share of the time for making variants; the rest is for timing them


# ---- Gains and losses -----------------------------------------------------------------------------------------------


class Gain(typing.NamedTuple):
    """How many times as fast as the base schedule a variant is: medians over the rounds."""
    hot: float  # the geometric mean over the hot shapes
    noise: float  # the uncertainty of hot
    shapes: tuple  # (low, median, high) of each shape

    def is_better(self):
        return self.hot > 1 + max(self.noise, LEAST_GAIN) and not self.losses()

    def losses(self):
        """The indices of shapes that are slower."""
        return [i for i, (_, _, high) in enumerate(self.shapes) if high <= 1 - MOST_LOSS]


def find_gain(base, other, control, hot):
    """The Gain of `other` over `base`, both seconds by shape and round. `control` is a second copy of the base: its
    difference from the base is noise. `hot` has the indices of the hot shapes, which make the mean; cold shapes are too
    noisy for it, and can only forbid a variant."""
    def mean_gain(seconds):
        in_rounds = zip(*(ratios(base[i], seconds[i]) for i in hot))
        return interval_of_median([statistics.geometric_mean(ratios_of_round) for ratios_of_round in in_rounds])

    low, gain, high = mean_gain(other)
    noise = max((high - low) / 2, abs(mean_gain(control)[1] - 1))
    return Gain(gain, noise, tuple(interval_of_median(ratios(*both)) for both in zip(base, other)))


# ---- Variants --------------------------------------------------------------------------------------------------------


def list_variants(listed, base, loops):
    """A kernel's schedules that differ from the base in the parameters whose loops are `loops`: all combinations of
    their values that the parameters' limits allow, the nearest to the base first. A schedule maps names to values."""
    names = [name for name in base if listed.parameters[name].loops == loops]
    variants = [base | dict(zip(names, values))
                for values in itertools.product(*(listed.parameters[name].values for name in names))]
    fits = lambda v: all(v[name] <= v.get(listed.parameters[name].limit, v[name]) for name in v)
    distance = lambda v: sum(abs(math.log2(max(v[name], 0.5) / max(base[name], 0.5))) for name in names)
    return sorted((v for v in variants if v != base and fits(v)), key=distance)


def label(numbers, base):
    """The numbers that differ from the base: "elements_per_vector 8, hoist_rows 0"."""
    return ", ".join(f"{name} {value}" for name, value in numbers.items() if value != base[name])


class Variant(typing.NamedTuple):
    numbers: dict
    path: pathlib.Path  # of its library
    fault: str = ""  # why it cannot be used; empty: it passed its tests


class Maker:
    """Makes and checks variants of a kernel in a folder."""

    def __init__(self, recipe, kernel, folder):
        self.recipe, self.kernel, self.folder, self.made = recipe, kernel, pathlib.Path(folder), itertools.count()
        self.emitter = emit.Emitter(recipe["generator"], recipe["compiler"])

    def link(self, *words):
        # The kernel is defined twice; the linker takes the first definition, the variant.
        subprocess.run([self.recipe["compiler"], "-Wl,-z,muldefs", *map(str, words), "-pthread"], check=True)

    def find_fault(self, command, **environment):
        """The reason why the command failed; empty if it succeeded."""
        # ulimit kills a variant that hangs, which then looks like one that crashes.
        done = subprocess.run(["sh", "-c", f'ulimit -t {PATIENCE} && exec "$@"', "sh", *map(str, command)], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=os.environ | environment)
        why = re.search(rf"{self.kernel.name}:? ([^-].*?)(?= =====|$)", " ".join(done.stdout.split()))
        return "" if done.returncode == 0 else why[1][:250] if why else f"failed with status {done.returncode}"

    def make(self, numbers):
        """The Variant with these numbers: emitted, checked, and linked if it has no fault."""
        folder = self.folder / str(next(self.made))
        folder.mkdir()
        library, program = folder / "libhalyard.so", folder / "check"
        try:
            assembly, = self.emitter.emit(self.kernel, f"{self.kernel.target.processor}-linux", ".o", folder, numbers,
                                          ["assembly"])
        except emit.Failed as why:
            return Variant(numbers, library, " ".join(str(why).split())[:300])
        fault = self.find_fault([sys.executable, "-B", ROOT / "tests/library/check_assembly.py",
                                 self.recipe["assembler"], assembly])
        if not fault:
            self.link(assembly, "-o", program, *self.recipe["check"])
            makes_rows = self.kernel.op == "rows_phase"
            test = "row errors: phase*" if makes_rows else self.kernel.name
            fault = self.find_fault([program, test, "--rng-seed", "1"], HALYARD_TEST_ROUNDS="20")
        if not fault:
            self.link("-shared", assembly, "-o", library, "-Wl,--whole-archive", self.recipe["library"],
                      "-Wl,--no-whole-archive", f"-Wl,--version-script={self.recipe['exports']}")
        return Variant(numbers, library, fault)

    def make_variants(self, lists, until):
        """The Variants with these lists of numbers, as many as can be begun before the time `until`."""
        begin = lambda numbers: self.make(numbers) if time.monotonic() < until else None
        with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return [variant for variant in pool.map(begin, lists) if variant]


# ---- Cases and times -------------------------------------------------------------------------------------------------


def list_tuning_cases(kernel, models):
    """The cases on which a kernel is timed: for each head_dim and rotary_dim a decoding step and a batch, both hot; for
    the first model also a cold prompt."""
    if kernel.op == "rows_phase":
        one_head = with_heads(models[0], "-one-head", 1)  # so that computing cos and sin takes most of the time
        return [RotationCase(one_head, tokens, "f32", angles="phase") for tokens in (1, 64, 512)]
    models = list({(m.head_dim, m.rotary_dim): m for m in reversed(models)
                   if (m.pairing, m.out_pairing) == (kernel.pairing, kernel.out_pairing)}.values())[::-1]
    fields = {"dtype": kernel.dtype, "in_place": kernel.place == "in_place"}
    return ([RotationCase(model, tokens, **fields) for model in models for tokens in (1, 64)] +
            [RotationCase(model, 512, **fields, cold=True) for model in models[:1]])


def time_variants(cases, target, libraries, effort):
    """Seconds by library, case and round. Pins this thread to one CPU meanwhile."""
    seconds, cpus = [[] for _ in libraries], os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(cpus)})
    try:
        for case in cases:
            show_progress(f"timing {len(libraries)} variants on {case.name}")
            prepared, subjects = Prepared(case.described()), []
            set_expected(case, prepared, libraries[0])
            for library in libraries:
                call = prepared.call("run", library, target)
                subjects.append(Subject(case.name, call.seconds))
                if prepared.error_of(call) > 0:
                    raise Failed(f"{case.name}: a variant that passed its check gives a wrong result")
            measure(subjects, effort[case.cold])
            for own, subject in zip(seconds, subjects):
                own.append(subject.seconds)
            prepared.close()
    finally:
        os.sched_setaffinity(0, cpus)
    return seconds


class Tuner:
    """Tunes one kernel."""

    def __init__(self, listed, kernel, models, maker):
        self.listed, self.kernel, self.maker = listed, kernel, maker
        self.cases = list_tuning_cases(kernel, models)
        self.hot = [i for i, case in enumerate(self.cases) if not case.cold]
        self.tried, self.refused = 0, []
        self.default = maker.make(dict(kernel.parameters))
        if self.default.fault:
            raise Failed(f"{kernel.name}: the default schedule can't be taken: {self.default.fault}")
        self.base = self.candidate = self.default

    def compare(self, base, others, effort):
        """The Gain of each of `others` over the base. A second copy of the base is timed too, to measure the noise."""
        with copies_of(base, base, *others) as libraries:
            base, control, *seconds = time_variants(self.cases, self.kernel.target.name, libraries, effort)
        return [find_gain(base, other, control, self.hot) for other in seconds]

    def vary(self, numbers, until):
        """Makes and times variants with these numbers; the fastest becomes the base if it is better."""
        show_progress(f"{self.kernel.name}: making {len(numbers)} variants")
        made = self.maker.make_variants(numbers, until)
        self.tried += len(made)
        self.refused += [variant for variant in made if variant.fault]
        alive = [variant for variant in made if not variant.fault]
        if len(alive) > FINALISTS:
            gains = self.compare(self.base, alive, PRESELECTION)
            best = sorted(range(len(alive)), key=lambda i: -gains[i].hot)[:FINALISTS]
            alive = [alive[i] for i in best]
        if alive:
            gains = self.compare(self.base, alive, FINAL)
            gain, winner = max(zip(gains, alive), key=lambda both: (both[0].is_better(), both[0].hot))
            if gain.is_better():
                self.base = self.candidate = winner
            elif self.candidate is self.default:
                self.candidate = winner  # so that the report has the gain of the best variant

    def tune(self, until):
        """(the best candidate, its Gain over the default). Noise favours the fastest of many variants, so the winner is
        timed three times more, and the smallest gain counts."""
        loops = list(dict.fromkeys(self.listed.parameters[name].loops for name in self.kernel.parameters))
        for i, some in enumerate(loops):
            n, *later = (len(list_variants(self.listed, self.base.numbers, each)) for each in loops[i:])
            now = time.monotonic()
            self.vary(list_variants(self.listed, self.base.numbers, some),
                      now + MAKING_SHARE * (until - now) * n / max(n + sum(later), 1))
        if self.candidate is self.default:
            raise Failed(f"{self.kernel.name}: there was time for no variant")
        gains = [self.compare(self.default, [self.candidate], FINAL)[0] for _ in range(3)]
        return self.candidate, min(gains, key=lambda gain: (gain.is_better(), gain.hot))


# ---- The run ---------------------------------------------------------------------------------------------------------


def print_result(tuner, candidate, gain):
    """Prints a line for the kernel, one for each shape, and one for each refused variant."""
    what = label(candidate.numbers, tuner.default.numbers)
    slower = ", ".join(tuner.cases[i].name for i in gain.losses())
    words = "gain {} by {}" if gain.is_better() else "default kept: best candidate {} by {}"
    show_progress()
    print(f"{tuner.kernel.name}: {words.format(f'{100 * (gain.hot - 1):+.1f} %', what)}, noise "
          f"{100 * gain.noise:.1f} %{slower and f', slower on {slower}'}; {tuner.tried} variants tried, "
          f"{len(tuner.refused)} refused")
    for case, shape in zip(tuner.cases, gain.shapes):
        low, gain_of_shape, high = (f"{100 * (ratio - 1):+.1f}" for ratio in shape)
        print(f"    {case.name:56} {gain_of_shape:>6} % ({low} … {high})")
    for variant in tuner.refused:
        print(f"    refused {label(variant.numbers, tuner.default.numbers)}: {variant.fault}")
    sys.stdout.flush()


def save_entry(path, cpu, tuner, candidate, gain, more):
    """Writes the kernel's entry, or removes an old one if the candidate is not better than the default."""
    schedules = load_json(path) if path.exists() else {}
    kernels = schedules.get("kernels", {})
    kernels.pop(tuner.kernel.name, None)
    if gain.is_better():
        shapes = {case.name: [round(value, 4) for value in shape] for case, shape in zip(tuner.cases, gain.shapes)}
        kernels[tuner.kernel.name] = more | {
            "parameters": candidate.numbers, "default_sha256": tuner.maker.emitter.default_sha256(tuner.kernel),
            "gain": round(gain.hot, 4), "noise": round(gain.noise, 4), "shapes": shapes}
    if kernels:
        path.parent.mkdir(exist_ok=True)
        save_json(path, {"cpu": cpu, "kernels": kernels})
    else:
        path.unlink(missing_ok=True)


def find_kernels(listed, options, library):
    """The kernels to tune. No model needs strided kernels, and memory limits kernels whose stores bypass the caches."""
    target = options.target or next(name for name, words in library.targets.items() if "active" in words)
    if "supported" not in library.targets.get(target, ()):
        raise Failed(f'this machine can\'t run "{target}"')
    kernels = [kernel for kernel in listed.kernels_of(target) if kernel.parameters and not kernel.target.is_cuda
               and kernel.pairing != "strided" and not kernel.is_non_temporal
               and fnmatch.fnmatchcase(kernel.name, options.kernels)]
    if not kernels:
        raise Failed(f'no kernel of {target} that is tuned matches "{options.kernels}"')
    return kernels


def find_models(wanted):
    models = [model for model in read_models() if not wanted or model.name in wanted]
    if missing := set(wanted or ()) - {model.name for model in models}:
        raise Failed(f"bench/shapes.txt has no {', '.join(sorted(missing))}")
    return models


def run(options):
    recipe, listed = load_json(options.build / "generated/tuning.json"), read_kernels.read()
    library = Library(options.build / "lib/libhalyard.so")
    kernels = find_kernels(listed, options, library)
    models, info, name = find_models(options.shapes), read_cpuinfo(), tuned_schedules.cpu_name()
    if not name:
        raise Failed("this CPU states no model, by which its file of schedules would be named")
    cpu = {"name": name, "cpu": info.get("model name", "unknown"), "stepping": info.get("stepping", "unknown"),
           "caches": find_caches()}
    more = {"halide": recipe["halide"], "commit": find_commit(), "date": time.strftime("%Y-%m-%d", time.gmtime()),
            "command": " ".join(["./run tune", *sys.argv[1:]])}
    print(f"{cpu['cpu']} ({name}), {cpu['caches']}; Halyard {more['commit']}, Halide {more['halide']}, {more['date']}")
    print("Gains: medians over the rounds, and their 99.9 % intervals. Noise: half of the interval, or the difference\n"
          "between two copies of the default.\n", flush=True)
    end, n_better = time.monotonic() + 60 * options.minutes, 0
    for i, kernel in enumerate(kernels):
        now = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            tuner = Tuner(listed, kernel, models, Maker(recipe, kernel, folder))
            candidate, gain = tuner.tune(now + (end - now) / (len(kernels) - i))
            print_result(tuner, candidate, gain)
            save_entry(options.output / f"{name}.json", cpu, tuner, candidate, gain, more)
        n_better += gain.is_better()
    print(f"\n{n_better} of {len(kernels)} kernels have a better schedule than the default"
          + (f", in {options.output / name}.json. ./run build takes it." if n_better else "."))


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./run tune", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--kernels", default="*", metavar="GLOB", help="only kernels whose name matches [*]")
    add("--minutes", type=float, default=math.inf, metavar="M", help="end after about M minutes [all schedules tried]")
    add("--shapes", nargs="+", metavar="NAME", help="time only with these models of bench/shapes.txt")
    add("--target", default="", help="tune this target's kernels [the best target that this machine has]")
    add("--output", type=pathlib.Path, default=tuned_schedules.FOLDER, metavar="FOLDER",
        help="where <cpu>.json is written [generators/schedules]")
    add("--build", type=pathlib.Path, default=ROOT / "build/host", metavar="FOLDER", help="[build/host]")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    try:
        run(options)
        return 0
    except KeyboardInterrupt:
        show_progress()
        print("tune: interrupted; the kernels that are finished are kept", file=sys.stderr)
        return 130
    except (Failed, OSError, subprocess.CalledProcessError) as error:
        show_progress()
        print(f"tune: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
