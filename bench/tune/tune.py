"""Finds better schedules for this machine, and writes them into generators/schedules: ./run tune [ARGS]

It tries other numbers in the kernels' schedules, and keeps those that are better than the default. Exit status: 0 done;
1 something failed; 2 wrong usage; 130 interrupted.
"""

import argparse
import fcntl
import fnmatch
import math
import os
import pathlib
import signal
import sys
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1]))
from files import Failed, load_json, save_json, show_progress  # noqa: E402
from hosts import Server  # noqa: E402
from machine import ROOT, describe_machine, format_machine, read_cpuinfo  # noqa: E402
from search import Parameter, format_results, tune_kernels  # noqa: E402
from works import Work, part_of, read_models  # noqa: E402
from workshop import GpuWorkshop, LocalWorkshop, ask_program  # noqa: E402


# ---- Works by which kernels are tuned --------------------------------------------------------------------------------


def models_for(recipe, models):
    """The models that have a kernel's pairings, one for each pair of head_dim and rotary_dim. A strided kernel takes
    those of half pairing."""
    pairings = tuple("interleaved" if recipe[key] == "interleaved" else "half" for key in ("pairing", "out_pairing"))
    found = {}
    for model in models:
        if (model.pairing, model.out_pairing) == pairings:
            found.setdefault((model.head_dim, model.rotary_dim), model)
    return list(found.values())


def list_rotation_works(recipe, models):
    """A decoding step and a batch of each model, and a prompt of the first that is in no cache. A kernel that stores
    past the caches gets outputs from 6 to 96 MiB, on either side of each size from which on a run may do so, which are
    read afterwards as a model's next step would."""
    strided, place = recipe["pairing"] == "strided", recipe["place"]
    models = models_for(recipe, models)
    if place == "non_temporal":
        of = lambda model, tokens: Work(model, tokens, recipe["dtype"], False, read_back=True, strided=strided)
        return [of(model, (mib << 20) // (of(model, 1).n_bytes // 2)) for model in models[:1]
                for mib in (6, 12, 24, 48, 96)]
    of = lambda model, tokens, cold=False: Work(
        model, tokens, recipe["dtype"], place == "in_place", cold, strided=strided)
    return ([of(model, 512, True) for model in models[:1]] +
            [of(model, tokens) for model in models for tokens in (1, 64)])


def list_works(recipe, models):
    if recipe["gpu"]:
        # Decoding steps of one request and of a batch, and a prompt.
        return [Work(model, tokens, recipe["dtype"], recipe["place"] == "in_place")
                for model in models_for(recipe, models) for tokens in (1, 64, 4096)] if recipe["pairing"] else []
    if recipe["op"] == "rows_phase":
        one_head = part_of(models[0], "-one-head", 1)  # which costs little beside its rows
        return [Work(one_head, tokens, "f32", angles="phase") for tokens in (1, 64, 512)]
    return list_rotation_works(recipe, models) if recipe["op"] == "rotate" else []


def find_models(wanted):
    with open(ROOT / "bench/shapes.txt") as shapes:
        models = {model.name: model for model in read_models(shapes)}
    for name in wanted or ():
        if name not in models:
            raise Failed(f'there is no shape "{name}" in bench/shapes.txt')
    return [model for model in models.values() if not wanted or model.name in wanted]


def list_plans(recipes, target, options):
    """The kernels of a target that match and can be tuned, by name, with their works."""
    models = find_models(options.shapes)
    plans = {recipe["name"]: (recipe, list_works(recipe, models)) for recipe in recipes["kernels"]
             if recipe["isa"] == target and fnmatch.fnmatchcase(recipe["name"], options.kernels)}
    plans = {name: plan for name, plan in sorted(plans.items()) if plan[1]}
    if not plans:
        raise Failed(f'no kernel of {target} matches "{options.kernels}" and has a shape to be tuned on')
    return plans


# ---- The run ---------------------------------------------------------------------------------------------------------


def command_of(options):
    words = ["./run tune"]
    words += [f"--kernels '{options.kernels}'"] if options.kernels != "*" else []
    words += [f"--target {options.target}"] if options.target else []
    words += ["--shapes", *options.shapes] if options.shapes else []
    words += [f"--minutes {options.minutes:g}"] if options.minutes < math.inf else []
    return " ".join(words)


def find_target(server, wanted):
    """The target whose kernels are tuned: the one that was asked for, or the best that this machine runs."""
    for target in server.about["targets"]:
        if target["name"] == wanted or (not wanted and target["active"]):
            if not target["supported"]:
                raise Failed(f"this machine can't run {wanted}")
            return target["name"]
    raise Failed(f'there is no target "{wanted}"')


def make_folder(path):
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Failed(f"can't make the folder {path}: {error.strerror}") from None


def lock_folder(path):
    """Keeps a second run out of the folder until the process ends."""
    file = os.open(path / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise Failed(f"another run is at work in {path}") from None


class Progress:
    """Shows how far the run is, on one line of a terminal."""

    def __init__(self, n_kernels, seconds):
        self.n_kernels, self.start, self.until = n_kernels, time.monotonic(), time.monotonic() + seconds
        self.n_begun, self.kernel = 0, ""

    def begin(self, kernel):
        self.kernel, self.n_begun = kernel, self.n_begun + 1

    def say(self, what):
        done, now = self.n_begun - 1, time.monotonic()
        guess = (now - self.start) / done * (self.n_kernels - done) if done else math.inf
        seconds = min(guess, self.until - now)
        left = f", {seconds / 60:.0f} min left" if seconds < math.inf else ""
        show_progress(f"{self.n_begun} of {self.n_kernels}{left}: {self.kernel}: {what}")


class Tuning:
    def __init__(self, options):
        self.options, self.recipes = options, load_json(options.recipes or options.build / "generated/tuning.json")
        for what in "generator", "compiler":
            if not os.access(self.recipes[what], os.X_OK):
                raise Failed(f"there is no {what} at {self.recipes[what]}: ./run build finds or makes it")
        self.on_gpu = options.target == "cuda_sm80"
        if self.on_gpu and not self.recipes["gpu_program"]:
            raise Failed("this build has no kernels for GPUs")
        make_folder(options.state)
        lock_folder(options.state)
        self.server = None if self.on_gpu else Server([str(options.build / "bin/halyard_bench_server")])
        self.find_device()
        self.plans = list_plans(self.recipes, self.target, options)
        self.kernels = {kernel: recipe["defaults"] for kernel, (recipe, _) in self.plans.items()}
        self.space = [Parameter(p["name"], p["loops"], p["limit"], tuple(p["values"]))
                      for p in self.recipes["parameters"]]
        self.seconds, self.journal = 60 * options.minutes, options.state / "journal.json"
        # An interrupted run does not go on with another generator.
        self.key = self.provenance | {"generator": os.stat(self.recipes["generator"]).st_mtime_ns}
        make_folder(options.output)
        self.progress = Progress(len(self.plans), self.seconds)

    now = staticmethod(time.monotonic)

    def find_device(self):
        """What a schedule says of the device, and by which it is named."""
        log = self.options.state / "device.log"
        if self.on_gpu:
            self.target = self.options.target
            said = ask_program([self.recipes["gpu_program"], "device"], log, f"no device for {self.target}")
            name, gpu, driver = (said + ["", "", ""])[:3]
            self.device, self.text = {"name": name, "gpu": gpu, "driver": driver}, f"{gpu} ({driver})"
        else:
            self.target = find_target(self.server, self.options.target)
            name = (ask_program(self.recipes["cpu"], log, "this CPU can't be named") + [""])[0]
            machine = describe_machine(self.server.about)
            self.device = {"name": name, "cpu": machine["cpu"], "stepping": read_cpuinfo().get("stepping", "unknown"),
                           "caches": machine["caches"]}
            self.text = format_machine(machine)
        if not name:
            raise Failed("this device tells no model by which its schedules could be named")
        self.provenance = {"schema": 4, "halide": self.recipes["halide"], "device": self.device,
                           "command": command_of(self.options)}

    def open(self, kernel):
        self.progress.begin(kernel)
        recipe, works = self.plans[kernel]
        arguments = recipe, works, self.options.state / "variants", self.options.patience, self.progress.say
        return GpuWorkshop(*arguments) if self.on_gpu else LocalWorkshop(self.server, *arguments)

    def finish(self, kernel, result):
        """Writes the schedule that a kernel's build is to take, or removes an earlier one where nothing is better than
        the default."""
        path = self.options.output / f"{kernel}.{self.device['name']}.json"
        if not result["improved"]:
            if result["variants"]["complete"]:
                path.unlink(missing_ok=True)
            return
        draft = self.options.state / "schedule.json"
        save_json(draft, {**{key: value for key, value in result.items() if key != "improved"}, **self.provenance,
                          "date": time.strftime("%Y-%m-%d", time.gmtime()), "kernel": kernel,
                          "target": self.plans[kernel][0]["target"], "checksum": "", "default_sha256": ""})
        ask_program([*self.recipes["seal"], draft, path], draft.with_suffix(".log"), "a schedule can't be written")

    def run(self):
        results = tune_kernels(self)
        show_progress()
        n_better = sum(result["improved"] for result in results.values())
        print(f"{self.text}\n\n{format_results(results)}\n\n"
              "Before and after: medians over the rounds, half the distance of the quartiles, and how many\n"
              f"times as fast. {n_better} of {len(results)} kernels have a better schedule than the default"
              f"{f', in {self.options.output}' if n_better else ''}.")
        if len(results) < len(self.plans):
            print(f"Time was up before the other {len(self.plans) - len(results)}.")


def parse(arguments):
    parser = argparse.ArgumentParser(prog="./run tune", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)

    def minutes(text):
        if not float(text) > 0:
            raise argparse.ArgumentTypeError(f"{text} is not more than 0")
        return float(text)

    def seconds(text):
        if not 1 <= int(text) <= 3600:
            raise argparse.ArgumentTypeError(f"{text} is not in 1 … 3600")
        return int(text)

    def add(name, text, **more):
        parser.add_argument(name, help=text, **more)

    add("--kernels", "only kernels whose name matches this glob [*]", default="*", metavar="GLOB")
    add("--shapes", "only on these models of bench/shapes.txt", nargs="+", metavar="NAME")
    add("--minutes", "end after about so long [when all is tried]", type=minutes, default=math.inf, metavar="M")
    add("--target", "the kernels of this target [the best one]", default="")
    add("--patience", "seconds that making a variant may take, and each check of it [60]", type=seconds, default=60,
        metavar="S")
    add("--recipes", "how variants are made [what the build wrote]", type=pathlib.Path, metavar="FILE")
    add("--state", "where an interrupted run is kept [build/tune]", type=pathlib.Path, default=ROOT / "build/tune",
        metavar="FOLDER")
    add("--output", "where schedules are written [generators/schedules]", type=pathlib.Path,
        default=ROOT / "generators/schedules", metavar="FOLDER")
    add("--build", "whose library is tuned [build/host]", type=pathlib.Path, default=ROOT / "build/host",
        metavar="FOLDER")
    return parser.parse_args(arguments)


def main(arguments):
    options = parse(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        Tuning(options).run()
        return 0
    except KeyboardInterrupt:
        show_progress()
        print("tune: interrupted; what is finished is kept, and the same command goes on", file=sys.stderr)
        return 130
    except (Failed, OSError, ValueError) as error:
        show_progress()
        print(f"tune: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
