"""The processes in which things are timed: the server (Halyard, C loops and ceilings), and those of the peers."""

import functools
import os

from conversation import Conversation, Declined, Lost
from files import Failed

ALL_CPUS = os.sched_getaffinity(0)


def pin(pid, pinned):
    """Keeps a process on the last CPU that it may use, so that rivals in two processes share one core's caches. Where
    this is not allowed, timings are noisier, and nothing else is wrong."""
    try:
        os.sched_setaffinity(pid, {max(ALL_CPUS)} if pinned else ALL_CPUS)
    except OSError:
        pass


class Server:
    """Makes works ready and times them: server/server.cpp and cuda/gpu_server.cpp say what they are asked. `limit` is how
    many seconds an answer may take."""

    def __init__(self, command, limit=None):
        self.name, self.limit, self.file = command[0], limit, None
        try:
            self.process = Conversation(command)
        except Lost as error:
            raise Failed(f"{self.name}: {error}") from None

    @functools.cached_property
    def about(self):
        return self.ask("describe")

    def ask(self, what, **request):
        try:
            return self.process.ask({"do": what, **request}, self.limit)
        except Declined as error:
            raise Failed(str(error)) from None
        except Lost as error:
            words = self.process.last_words()
            raise Failed(f"{self.name} {error}" + (f" ({words})" if words else "")) from None

    def pin(self, pinned):
        pin(self.process.pid, pinned)

    def reserve(self, works):
        """Has memory for the largest of some works, which self.file lets others map too."""
        answer = self.ask("reserve", works=works)
        self.n_bytes = answer["bytes"]
        if self.file is not None:
            os.close(self.file)
        self.file = os.open(f"/proc/{self.process.pid}/fd/{answer['file']}", os.O_RDWR)

    def round(self, calls):
        return self.ask("round", calls=calls)["seconds"]

    def close(self):
        self.process.stop()
        if self.file is not None:
            os.close(self.file)
            self.file = None


class Peer:
    """Another library, in a Python process of its own on the server's memory: rivals/peers.py says what it is asked. One
    that crashes, hangs or answers nonsense is lost; `why` says so then."""

    def __init__(self, name, command, server, limit):
        self.name, self.command, self.server, self.limit = name, [*command, name], server, limit
        self.process, self.why = None, ""

    def start(self, pinned):
        self.close()
        self.process = Conversation([*self.command, str(self.server.file), str(self.server.n_bytes)],
                                    files=(self.server.file,))
        pin(self.process.pid, pinned)

    def ask(self, what, key, n_limits=1, **more):
        """A part of the answer; None where the peer is lost. Raises Declined."""
        if self.why:
            return None
        try:
            answer = self.process.ask({"do": what, **more}, n_limits * self.limit).get(key)
            if isinstance(answer, str) if key in ("version", "form") else isinstance(answer, (int, float)):
                return answer
            self.why = f"answered without {key}"
        except Lost as error:
            words = self.process.last_words()
            self.why = str(error) + (f" ({words})" if words else "")
        return None

    def round(self, calls):
        """Keys are "run", or "overhead" for the smallest tensor that the peer takes."""
        seconds = []
        for what, n in calls:
            try:
                seconds.append(self.ask(what, "seconds", times=n))
            except Declined:
                seconds.append(None)
        return seconds

    def close(self):
        if self.process:
            self.process.stop()


class Peers:
    """Other libraries. `list` is {"peers", "absent", "refused"}: the versions of those that are there, why others are not
    there or no longer there, and why some could not do some of the works."""

    def __init__(self, command, server, limit, kind="rotation", pinned=False):
        self.server, self.pinned, self.refused, process = server, pinned, {}, None
        try:
            process = Conversation(command)
            answer = process.ask({"do": "list", "kind": kind}, 10 * limit)
            self.never = dict(answer["absent"])
            self.peers = [Peer(name, command, server, limit) for name in answer["peers"]]
        except (Lost, Declined, KeyError, TypeError, ValueError) as error:
            words = process and process.last_words()
            raise Failed(f"the peers' program {command[-1]} is of no use: it {error}" +
                         (f" ({words})" if words else "")) from None
        finally:
            if process:
                process.stop()
        self.versions = {}
        for peer in self.peers:
            try:
                peer.start(pinned)
                self.versions[peer.name] = peer.ask("load", "version", 10)
            except Declined as why:
                peer.why = str(why)

    @property
    def list(self):
        lost = {peer.name: peer.why for peer in self.peers if peer.why}
        return {"peers": [{"name": name, "version": version} for name, version in self.versions.items() if version],
                "absent": [{"name": name, "why": why} for name, why in {**self.never, **lost}.items()],
                "refused": [{"name": name, "why": why} for name, why in self.refused]}

    def pin(self, pinned):
        """Starts the processes anew where that changes their CPUs: libraries have made their threads."""
        if pinned != self.pinned:
            self.pinned = pinned
            for peer in self.peers:
                if not peer.why:
                    peer.start(pinned)

    def check(self, work, places):
        """Has all peers make a work ready, compares the result of each with the formula, and returns (peer, form, what was
        found). `places` is what the server says of the work's memory."""
        found = []
        for peer in self.peers:
            try:
                form = peer.ask("prepare", "form", 10, **work, **places)
                self.server.ask("reset")
                if form is not None and peer.ask("result", "seconds") is not None:
                    found.append((peer, form, self.server.ask("check")))
            except Declined as why:
                self.refused[peer.name, str(why)] = True
        self.server.ask("reset")
        return found

    def close(self):
        for peer in self.peers:
            peer.close()
