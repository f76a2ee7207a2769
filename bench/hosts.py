"""The processes in which things are timed: the server (Halyard, C loops and ceilings), and that of the peers."""

import os

from conversation import Conversation, Declined, Lost
from files import Failed
from turns import Subject

ALL_CPUS = os.sched_getaffinity(0)
FAILURES_ALLOWED = 3


def pin(pid, pinned):
    """Keeps a process on the last CPU that it may use, so that rivals in two processes share one core's caches. Where
    this is not allowed, timings are noisier, and nothing else is wrong."""
    try:
        os.sched_setaffinity(pid, {max(ALL_CPUS)} if pinned else ALL_CPUS)
    except OSError:
        pass


class Server:
    """Makes works ready and times them: server/server.cpp says what it is asked."""

    def __init__(self, command):
        try:
            self.process = Conversation(command)
            self.about = self.ask("describe")
        except Lost as error:
            raise Failed(f"{command[0]}: {error}") from None
        self.file = None

    def ask(self, what, **request):
        try:
            return self.process.ask({"do": what, **request})
        except Declined as error:
            raise Failed(str(error)) from None
        except Lost as error:
            raise Failed(f"the server {error} ({self.process.last_words()})") from None

    def pin(self, pinned):
        pin(self.process.pid, pinned)

    def reserve(self, works):
        """Has memory for the largest of some works, which self.file lets others map too."""
        answer = self.ask("reserve", works=works)
        self.n_bytes = answer["bytes"]
        if self.file is not None:
            os.close(self.file)
        self.file = os.open(f"/proc/{self.process.pid}/fd/{answer['file']}", os.O_RDWR)

    def prepare(self, work, **more):
        """Returns what the server says of a work, and the subjects, each with what is known of it beforehand."""
        answer = self.ask("prepare", **work, **more)
        subjects = []
        for key, about in enumerate(answer["subjects"]):
            subjects.append(Subject(about["name"], self, key))
            subjects[-1].about = about
        return answer, subjects

    def round(self, calls):
        return self.ask("round", calls=calls)["seconds"]

    def close(self):
        self.process.stop()
        if self.file is not None:
            os.close(self.file)
            self.file = None


class Peers:
    """Other libraries, in a Python process on the server's memory: rivals/peers.py says what is asked and answered. A
    peer that crashes, hangs or answers nonsense becomes absent, and the process starts again without it.

    `list` is {"peers", "absent", "refused"}: the versions of the peers that are there, why others are not there or no
    longer there, and why some could not do some of the works.
    """

    def __init__(self, command, server, limit, pinned=False):
        self.command, self.server, self.limit, self.pinned = command, server, limit, pinned
        self.prepared, self.lost, self.n_failures, self.process = None, [], 0, None
        try:
            self.start()
            answer = self.process.ask({"do": "list"}, 10 * limit)
            self.list = {"peers": [{key: str(peer[key]) for key in peer} for peer in answer["peers"]],
                         "absent": [{"name": peer["name"], "why": peer["why"]} for peer in answer["absent"]],
                         "refused": []}
            [peer["name"] + peer["version"] for peer in self.list["peers"]]
        except (Lost, Declined, KeyError, TypeError) as error:
            words = self.process.last_words() if self.process else ""
            raise Failed(f"the peers' process {command[-1]} is of no use: it {error}" +
                         (f" ({words})" if words else "")) from None

    def start(self):
        if self.process:
            self.process.stop()
        self.process = None
        self.process = Conversation([*self.command, str(self.server.file), str(self.server.n_bytes)],
                                    files=(self.server.file,))
        pin(self.process.pid, self.pinned)

    def pin(self, pinned):
        """Starts the process anew where that changes its CPUs: its libraries have made their threads."""
        if pinned != self.pinned:
            self.pinned, self.prepared = pinned, None
            if self.process:
                self.start()

    def give_up(self, peer, why):
        words = self.process.last_words() if self.process else ""
        self.list["absent"].append({"name": peer, "why": why + (f" ({words})" if words else "")})
        self.lost.append(peer)

    def prepare(self, request):
        """[{"peer", "form"}]: those that can do a work and have not failed before."""
        if request is None or self.n_failures == FAILURES_ALLOWED:
            return []
        self.prepared = request
        try:
            answer = self.process.ask({**request, "without": self.lost}, 10 * self.limit)
            for peer in answer["refused"]:
                known = {"name": peer["peer"], "why": peer["why"]}
                if known not in self.list["refused"]:
                    self.list["refused"].append(known)
            return [peer for peer in answer["ready"] if peer["peer"] not in self.lost and peer["form"] is not None]
        except Declined:
            return []
        except (Lost, KeyError, TypeError) as error:
            self.n_failures += 1
            if self.n_failures < FAILURES_ALLOWED:
                self.prepared = None
                self.start()
                return []
            self.give_up("every peer",
                         f"making ready failed {FAILURES_ALLOWED} times; the last time the process {error}")
            self.process.stop()
            self.process = None
            return []

    def start_again(self):
        """Prepares the other peers for the same work."""
        while self.n_failures < FAILURES_ALLOWED:
            try:
                self.start()
                if self.prepared:
                    self.process.ask({**self.prepared, "without": self.lost}, 10 * self.limit)
                return
            except (Lost, Declined):
                self.n_failures += 1

    def ask_number(self, what, peer, n_calls, key):
        """A number of a peer's answer; None where the peer is lost or declines."""
        if self.process is None or peer in self.lost:
            return None
        try:
            number = self.process.ask({"do": what, "peer": peer, "times": n_calls}, self.limit).get(key)
        except Declined:
            return None
        except Lost as error:
            self.give_up(peer, str(error))
            self.start_again()
            return None
        if isinstance(number, (int, float)) and number >= 0:
            return number
        self.give_up(peer, f"answered without {key}")
        return None

    def result(self, peer):
        """Where in the memory the peer's result lies."""
        at = self.ask_number("result", peer, 1, "at")
        return int(at) if at is not None and at < self.server.n_bytes else None

    def round(self, calls):
        """Keys are ("run", peer), or ("overhead", peer) for the smallest tensor that the peer takes."""
        return [self.ask_number(what, peer, n, "seconds") for (what, peer), n in calls]

    def check(self, server, make_ready):
        """Prepares peers, compares the result of each with the formula, and returns (peer, form, what was found)."""
        found = []
        for peer in self.prepare(make_ready):
            server.ask("reset")
            at = self.result(peer["peer"])
            if at is not None:
                found.append((peer["peer"], peer["form"], server.ask("check", at=at)))
        return found

    def close(self):
        if self.process:
            self.process.stop()
