"""Variants of a kernel: the generator emits them, some at once, each in a process of its own; then they are checked and
timed, those for this machine by the server, those of a GPU by programs of their own."""

import collections
import contextlib
import math
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

import turns
from files import Failed
from hosts import Guest
from search import NOT_TRIED, label

AT_ONCE = 2
PRODUCT = "variant"  # the name of what is linked
SEED = 1
SIGNALS = signal.SIGINT, signal.SIGTERM
QUICK_CHECK, THOROUGH_CHECK = 8, 32  # random runs of a GPU's kernel


@contextlib.contextmanager
def uninterrupted():
    """Ctrl-C waits, so that what is begun here is known to those who end it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)


class Job:
    """A shell's command in a session of its own, so that all of it can be ended. What it prints goes to the log."""

    def __init__(self, command, log, limit):
        self.log, self.until = log, time.monotonic() + limit
        with open(log, "wb") as output:
            self.process = subprocess.Popen(["/bin/sh", "-c", command], stdin=subprocess.DEVNULL, stdout=output,
                                            stderr=output, start_new_session=True)

    def end(self):
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def wait(self):
        """Why it failed, or nothing. Ends it where it takes too long, or is interrupted."""
        try:
            status = self.process.wait(max(0.0, self.until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.end()
            return "took too long"
        except BaseException:
            self.end()
            raise
        if status == 0:
            return ""
        if shutil.disk_usage(self.log.parent).free < 1 << 16:
            return "failed: the disk is full"
        said = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return f"failed: {said[-1][:300] if said else f'status {status}'}"


def ask_program(command, log, what):
    """The lines that a command prints. A log of it is left."""
    if why := Job(shlex.join(map(str, command)), log, 60).wait():
        raise Failed(f"{what}: {why}")
    return log.read_text().splitlines()


class Workshop:
    """Works in a folder, which it makes and removes. `patience` is the seconds that making a variant may take, and each
    check of it. `say` is told what is going on. take(variant, folder) makes use of what has been emitted."""

    def __init__(self, recipe, works, folder, patience, say):
        self.recipe, self.works, self.folder, self.patience, self.say = recipe, works, folder, patience, say
        self.shapes = [work.name for work in works]
        self.made, self.n_folders = {}, 0
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)

    now = staticmethod(time.monotonic)

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def command_for(self, variant, folder):
        recipe = self.recipe
        emitted = str(folder / (recipe["name"] + recipe["suffix"]))
        places = {"{from}": emitted, "{to}": str(folder / PRODUCT)}
        commands = [[*recipe["emit"], str(folder), *(f"{name}={value}" for name, value in variant)]]
        commands += [[*recipe["check"], emitted]] if recipe["check"] else []
        commands.append([places.get(word, word) for word in recipe["link"]])
        return " && ".join(map(shlex.join, commands))

    def make(self, variants, until):
        faults, running = [NOT_TRIED] * len(variants), collections.deque()
        waiting = collections.deque(enumerate(variants))
        try:
            while running or (waiting and self.now() < until):
                while len(running) < AT_ONCE and waiting and self.now() < until:
                    i, variant = waiting.popleft()
                    folder = self.folder / str(self.n_folders)
                    folder.mkdir()
                    self.n_folders += 1
                    command = self.command_for(variant, folder)
                    with uninterrupted():
                        running.append((i, folder, Job(command, folder / "log", self.patience)))
                if running:
                    i, folder, job = running[0]
                    self.say(f"variant {i + 1} of {len(variants)}")
                    fault = job.wait()
                    running.popleft()
                    faults[i] = f"making it {fault}" if fault else self.take(variants[i], folder)
        finally:
            for _, _, job in running:
                job.end()
        return faults

    def measure(self, variants, effort):
        """subjects(i, variants) makes them ready on work i."""
        samples = []
        for i, work in enumerate(self.works):
            self.say(f"timing {len(variants)} variants on {work.name}")
            subjects = self.subjects(i, variants)
            turns.measure(subjects, effort)
            if not subjects[0].seconds:
                raise Failed(f"the schedule {subjects[0].name}, with which others are compared, ended: "
                             f"{subjects[0].host.why}")
            samples.append([subject.seconds or [math.inf] * effort.n_rounds for subject in subjects])  # never wins
        return list(map(list, zip(*samples)))


class LocalWorkshop(Workshop):
    """Variants for this machine: the server checks them in processes of their own, and times them on works."""

    def __init__(self, server, recipe, works, folder, patience, say):
        super().__init__(recipe, works, folder, patience, say)
        self.server = server
        server.ask("open", kernel=recipe["name"], target=recipe["isa"], patience=patience,
                   works=[work.described() for work in works])

    def take(self, variant, folder):
        answer = self.server.ask("load", file=str(folder / PRODUCT), parameters=dict(variant))
        if not answer["fault"]:
            self.made[variant] = answer["variant"]
        return answer["fault"]

    def prove(self, variant):
        self.say(f"checking {label(variant)}")
        return self.server.ask("prove", variant=self.made[variant])["fault"]

    def subjects(self, i, variants):
        self.server.ask("choose", work=i, variants=[self.made[variant] for variant in variants])
        return [turns.Subject(label(variant), self.server, key) for key, variant in enumerate(variants)]

    def measure(self, variants, effort):
        self.server.pin(True)
        samples = super().measure(variants, effort)
        self.server.pin(False)
        return samples


class GpuWorkshop(Workshop):
    """A variant is a program of its own (cuda/gpu_server.cpp), because a wrong kernel can break the whole context of a
    device."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.running = {}

    def close(self):
        for program in self.running.values():
            program.close()
        super().close()

    def check(self, program, seed, times):
        command = shlex.join([str(program), "check", self.recipe["name"], str(seed), str(times)])
        why = Job(command, self.folder / "check.log", self.patience).wait()
        return f"checking it {why}" if why else ""

    def take(self, variant, folder):
        fault = self.check(folder / PRODUCT, SEED, QUICK_CHECK)
        if not fault:
            self.made[variant] = folder / PRODUCT
        return fault

    def prove(self, variant):
        self.say(f"checking {label(variant)}")
        return self.check(self.made[variant], SEED + 1, THOROUGH_CHECK)

    def subjects(self, i, variants):
        # A search narrows: variants that are not asked for now will not be again, and the others need their memory.
        for variant in set(self.running) - set(variants):
            self.running.pop(variant).close()
        for variant in set(variants) - set(self.running):
            self.running[variant] = Guest([str(self.made[variant])], self.patience)
        model = self.works[i].model
        for program in {self.running[variant] for variant in variants}:
            try:
                program.ask("prepare", kernel=self.recipe["name"], tokens=self.works[i].tokens, heads=model.heads,
                            head_dim=model.head_dim, rotary_dim=model.rotary_dim)
            except Failed as why:
                program.why = str(why)
        return [turns.Subject(label(variant), self.running[variant], 0) for variant in variants]
