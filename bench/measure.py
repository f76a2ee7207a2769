"""Rows of the bench's table: works, each timed in the same rounds as its rivals and as the loops that set its ceilings.
A row is what --json writes of it."""

import dataclasses

import turns
from files import show_progress
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
    """A rival of a row, or a way to the same result."""
    return {"name": subject.name, **subject.about, **subject.timing().json()}


def describe(work, target):
    model = work.model
    return {"name": work.name, "kernel": f"halyard_rotate_{work.kernel}_{target}", "target": target,
            "model": model.name, "tokens": work.tokens, "q_heads": model.q_heads, "k_heads": model.k_heads,
            "head_dim": model.head_dim, "rotary_dim": model.rotary_dim, "pairing": model.pairing,
            "out_pairing": model.out_pairing, "dtype": work.dtype, "in_place": work.in_place,
            "cold": work.cold or work.cold_table, "tensors": 2 if work.apart else 1, "angles": work.angles,
            "threads": work.threads, "bytes": work.n_bytes}


def prepare(work, setting, for_peers=True, **more):
    """What the server says of a work, and the subjects, with those of peers, each with what is known of it beforehand."""
    peers = setting.peers if for_peers else None
    ready = setting.server.ask("prepare", target=setting.target, with_peers=peers is not None, **work, **more)
    subjects = [Subject(about.pop("name"), setting.server, key, about=about)
                for key, about in enumerate(ready["subjects"])]
    for name, peer, form, found in peers.check(work, ready["places"]) if peers else ():
        subjects.append(Subject(name, peer, "run", about={"kind": "peer", **found, "form": form}))
    return ready, subjects


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
    ready, subjects = prepare(work.described(), setting, work.for_peers)
    # What a peer's calls take that have next to nothing to do.
    overheads = {s.name: Subject(s.name, s.host, "overhead") for s in subjects if s.about["kind"] == "peer"}
    turns.measure([*subjects, *overheads.values()], setting.effort)
    for subject in subjects:
        if subject.name in overheads:
            subject.about["overhead_seconds"] = overheads[subject.name].timing().median
    return make_row(work, ready["target"], subjects)


def with_progress(things, name_of):
    """The things, one after the other; the one at hand is shown."""
    for i, thing in enumerate(things, 1):
        show_progress(f"{i} of {len(things)}: {name_of(thing)}")
        yield thing
    show_progress()


def measure_rows(works, setting):
    rows = []
    for work in with_progress(works, lambda work: work.name):
        setting.pin(work.threads == 1)
        rows.append(measure_row(work, setting))
    return rows


def timing_of(recorded):
    return Timing(*(recorded[f"{name}_seconds"] for name in Timing._fields))


def loses(row):
    """Whether a loop or a peer is faster by more than both spreads."""
    return any(rival["kind"] in ("loop", "peer") and not rival["wrong"] and
               0.0 < rival["median_seconds"] + rival["spread_seconds"] < row["median_seconds"] - row["spread_seconds"]
               for rival in row["rivals"])


# ---- Errors at 64 positions up to the last one, in f32 ---------------------------------------------------------------


def accuracy_works(last=131071):
    return [Work(Model("accuracy", 2, 0, 128, 128, pairing, pairing), 64, "f32", in_place=False,
                 first_position=last - 63) for pairing in ("half", "interleaved")]


def measure_accuracy(setting):
    """[{"name", "max_error": {pairing: error}}] of Halyard, the loops and the peers."""
    errors = {}
    for work in accuracy_works():
        for subject in prepare(work.described(), setting, rivals=["loop"])[1]:
            name = subject.name + (", exact cos and sin" if subject.about["kind"] == "loop" else "")
            errors.setdefault(name, {})[work.model.pairing] = subject.about["max_error"]
    return [{"name": name, "max_error": of} for name, of in errors.items()]
