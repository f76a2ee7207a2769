"""Rows of the bench's table: works, each timed in the same rounds as its rivals and as the loops that set its ceilings.
A row is what --json writes of it."""

import dataclasses
import sys

import turns
from turns import Subject, Timing
from works import Model, Work

RIVALS = ("reference", "one_thread", "bound", "kernels", "angles", "loop", "peer")


@dataclasses.dataclass
class Setting:
    """How works are timed, and where."""
    server: object
    effort: turns.Effort = turns.THOROUGH
    target: str = ""  # empty: the best one
    peers: object = None

    def pin(self, pinned):
        """A single thread shares one core with its peers; several threads need all cores."""
        self.server.pin(pinned)
        if self.peers:
            self.peers.pin(pinned)


def best_ceiling(subjects, own):
    """The fastest of the loops that set a ceiling; None where there is none."""
    timed = [(subject.timing(), subject.name) for subject in subjects]
    if not timed:
        return None
    timing, name = min(timed, key=lambda one: one[0].median)
    return {"name": name, "ratio": timing.median / own.median, **timing.json()}


def rival_of(subject):
    about = subject.about
    return {"name": subject.name, "kind": about["kind"], "max_error": about["max_error"], "wrong": about["wrong"],
            **about.get("of_peer", {}), **subject.timing().json()}


def describe(work, target):
    model = work.model
    return {"name": work.name, "kernel": f"halyard_rotate_{work.kernel}_{target}", "target": target,
            "model": model.name, "tokens": work.tokens, "q_heads": model.q_heads, "k_heads": model.k_heads,
            "head_dim": model.head_dim, "rotary_dim": model.rotary_dim, "pairing": model.pairing,
            "out_pairing": model.out_pairing, "dtype": work.dtype, "in_place": work.in_place,
            "cold": work.cold or work.cold_table, "tensors": 2 if work.apart else 1, "angles": work.angles,
            "threads": work.threads, "bytes": work.n_bytes}


def add_peers(setting, ready, subjects):
    """Adds the peers that can do a work, and what their calls take that have next to nothing to do."""
    overheads = {}
    for name, form, found in setting.peers.check(setting.server, ready["peers"]):
        subjects.append(Subject(name, setting.peers, ("run", name)))
        subjects[-1].about = {"kind": "peer", "of_peer": {"form": form}, **found}
        overheads[name] = Subject(f"{name}'s call", setting.peers, ("overhead", name))
    setting.server.ask("reset")
    return overheads


def make_row(work, target, subjects):
    own = subjects[0].timing()
    of_kind = {kind: [s for s in subjects if s.about["kind"] == kind and s.seconds]
               for kind in (*RIVALS, "memory", "conversion")}
    memory, conversion = (best_ceiling(of_kind[kind], own) for kind in ("memory", "conversion"))
    judged_by = "conversion" if conversion and conversion["ratio"] > memory["ratio"] else "memory"
    loops = {}
    for subject in of_kind["memory"] + of_kind["conversion"]:
        median = subject.timing().median
        loops[subject.name] = min(median, loops.get(subject.name, median))
    row = {**describe(work, target), **own.json(), "gigabytes_per_second": work.n_bytes / own.median * 1e-9,
           "max_error": subjects[0].about["max_error"], "wrong": subjects[0].about["wrong"],
           "ratio": max(memory["ratio"], conversion["ratio"] if conversion else 0.0), "judged_by": judged_by,
           "memory": memory, "ceiling_loops": loops,
           "rivals": [rival_of(subject) for kind in RIVALS for subject in of_kind[kind]]}
    return row | ({"conversion": conversion} if conversion else {})


def measure_row(work, setting):
    ready, subjects = setting.server.prepare(work.described(), target=setting.target,
                                             with_peers=setting.peers is not None)
    overheads = add_peers(setting, ready, subjects) if setting.peers else {}
    turns.measure([*subjects, *overheads.values()], setting.effort)
    for subject in subjects:
        if subject.name in overheads:
            subject.about["of_peer"]["overhead_seconds"] = overheads[subject.name].timing().median
    return make_row(work, ready["target"], subjects)


def show_progress(things, name_of):
    """The things, one after the other; on a terminal the one at hand is shown."""
    watched = sys.stderr.isatty()
    for i, thing in enumerate(things, 1):
        if watched:
            print(f"\r\033[K{i} of {len(things)}: {name_of(thing)}", end="", file=sys.stderr, flush=True)
        yield thing
    if watched:
        print("\r\033[K", end="", file=sys.stderr, flush=True)


def measure_rows(works, setting):
    rows = []
    for work in show_progress(works, lambda work: work.name):
        setting.pin(work.threads == 1)
        rows.append(measure_row(work, setting))
    return rows


def timing_of(recorded):
    return Timing(*(recorded[f"{name}_seconds"] for name in Timing._fields))


def is_beaten(own, rivals):
    """Whether a loop or a peer is faster by more than both spreads."""
    return any(rival.get("kind", "loop") in ("loop", "peer") and not rival["wrong"] and
               0.0 < rival["median_seconds"] + rival["spread_seconds"] < own.median - own.spread for rival in rivals)


def loses(row):
    return is_beaten(timing_of(row), row["rivals"])


# ---- Errors at the last of 131,072 positions, in f32 -----------------------------------------------------------------


def accuracy_works():
    return [Work(Model("accuracy", 2, 0, 128, 128, pairing, pairing), 64, "f32", in_place=False,
                 first_position=131072 - 64) for pairing in ("half", "interleaved")]


def measure_accuracy(setting):
    """[{"name", "max_error": {pairing: error}}] of Halyard, the loops and the peers."""
    errors = {}
    for work in accuracy_works():
        ready, subjects = setting.server.prepare(work.described(), rivals=["loop"], with_peers=True)
        for subject in subjects:
            name = "halyard" if subject.about["kind"] == "halyard" else f"{subject.name}, exact cos and sin"
            errors.setdefault(name, {})[work.model.pairing] = subject.about["max_error"]
        for name, _, found in setting.peers.check(setting.server, ready["peers"]):
            errors.setdefault(name, {})[work.model.pairing] = found["max_error"]
    return [{"name": name, "max_error": of} for name, of in errors.items()]
