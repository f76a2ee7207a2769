"""The processes in which things are timed: the server (Halyard, C loops and ceilings), and those of the peers. Each
answers a line with a line."""

import atexit
import contextlib
import functools
import json
import os
import signal
import subprocess
import tempfile
import threading
import time

from files import Failed

ALL_CPUS = os.sched_getaffinity(0)


class Lost(Failed):
    """The program can't be talked to any more."""


class Declined(Failed):
    """The program could not do something, says so, and goes on."""


class Program:
    """It has a session of its own, so that whatever it starts ends with it, and Ctrl-C is for us alone. `limit` is how
    many seconds an answer may take. One that crashes, hangs or answers nonsense is lost; `why` says so then."""

    def __init__(self, command, limit=86400.0, name="it", files=()):
        self.command, self.limit, self.name, self.files, self.why = command, limit, name, files, ""
        self.start()

    def start(self):
        self.log = tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, pass_fds=self.files,
                start_new_session=True, encoding="utf-8", errors="replace")
        except OSError as error:
            self.log.close()
            raise Lost(f"{self.name} can't be started: {error.strerror}") from None
        self.pid = self.process.pid
        atexit.register(self.close)

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def close(self):
        atexit.unregister(self.close)
        self.kill()
        self.process.wait()
        with contextlib.suppress(OSError):  # what it has not read
            self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()

    def lose(self, why):
        """With the last line that the program wrote to its standard error."""
        self.log.seek(0)
        words = self.log.read()[-4096:].decode(errors="replace").strip("\n").split("\n")[-1][:200]
        self.why = f"{self.name} {why}" + (f" ({words})" if words else "")
        raise Lost(self.why) from None

    def say(self, line, n_limits=1):
        """Sends a line and returns the answer. Ends the program where none comes in time."""
        limit = n_limits * self.limit
        until, timer = time.monotonic() + limit, threading.Timer(limit, self.kill)
        timer.start()
        try:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            answer = self.process.stdout.readline()
        except OSError:
            answer = ""
        finally:
            timer.cancel()
        if not answer.endswith("\n"):
            self.lose("ended" if time.monotonic() < until else "did not answer in time")
        return answer

    def ask(self, what, n_limits=1, **request):
        """Raises Declined where the answer is {"error": why}."""
        if self.why:
            raise Lost(self.why)
        answer = self.say(json.dumps({"do": what, **request}), n_limits)
        try:
            parsed = json.loads(answer)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            self.lose(f"answered nonsense: {answer[:60].rstrip()}")
        if "error" in parsed:
            raise Declined(parsed["error"] if isinstance(parsed["error"], str) else "an error without a word")
        return parsed

    def round(self, calls):
        """Has it make calls [(key, n), ...]. Returns the seconds that each took."""
        seconds = self.ask("round", calls=calls).get("seconds")
        if not isinstance(seconds, list) or not all(isinstance(each, (int, float)) for each in seconds):
            self.lose("answered without seconds")
        return seconds

    def pin(self, pinned):
        """Keeps it on the last CPU that it may use, so that rivals in two processes share one core's caches. Where this
        is not allowed, timings are noisier, and nothing else is wrong."""
        with contextlib.suppress(OSError):
            os.sched_setaffinity(self.pid, {max(ALL_CPUS)} if pinned else ALL_CPUS)


class Guest(Program):
    """A program that may fail, and can't be called any more then; the others go on."""

    def round(self, calls):
        try:
            return super().round(calls)
        except Failed:
            return [None] * len(calls)


class Server(Program):
    """Makes works ready and times them: server/server.cpp and cuda/gpu_server.cpp say what they are asked."""

    file = None

    def __init__(self, command):
        super().__init__(command, name=command[0])

    @functools.cached_property
    def about(self):
        return self.ask("describe")

    def reserve(self, works):
        """Has memory for the largest of some works, which self.file lets others map too."""
        answer = self.ask("reserve", works=works)
        self.n_bytes = answer["bytes"]
        self.close_file()
        self.file = os.open(f"/proc/{self.pid}/fd/{answer['file']}", os.O_RDWR)

    def close_file(self):
        if self.file is not None:
            os.close(self.file)
            self.file = None

    def close(self):
        super().close()
        self.close_file()


class Peers:
    """Other libraries, each in a Python process of its own on the server's memory: rivals/peers.py says what they are
    asked. `list` is {"peers", "absent", "refused"}: the versions of those that are there, why others are not there or
    no longer there, and why some could not do some of the works."""

    def __init__(self, command, server, limit, kind="rotation", pinned=False):
        self.server, self.pinned, self.refused, self.peers, self.versions = server, pinned, {}, {}, {}
        try:
            with contextlib.closing(Program(command, limit)) as program:
                answer = program.ask("list", 10, kind=kind)
            self.never, names = dict(answer["absent"]), list(answer["peers"])
        except (Failed, KeyError, TypeError, ValueError) as error:
            raise Failed(f"the peers' program {command[-1]} is of no use: {error}") from None
        for name in names:
            peer = self.peers[name] = Guest([*command, name, str(server.file), str(server.n_bytes)], limit,
                                            files=(server.file,))
            peer.pin(pinned)
            try:
                self.versions[name] = peer.ask("load", 10).get("version", "of no version")
            except Failed as why:
                peer.why = str(why)

    @property
    def list(self):
        lost = {name: peer.why for name, peer in self.peers.items() if peer.why}
        return {"peers": [{"name": name, "version": version} for name, version in self.versions.items()],
                "absent": [{"name": name, "why": why} for name, why in {**self.never, **lost}.items()],
                "refused": [{"name": name, "why": why} for name, why in self.refused]}

    def pin(self, pinned):
        """Starts the processes anew where that changes their CPUs: libraries have made their threads."""
        if pinned != self.pinned:
            self.pinned = pinned
            for peer in self.peers.values():
                if not peer.why:
                    peer.close()
                    peer.start()
                    peer.pin(pinned)

    def check(self, work, places):
        """Has all peers make a work ready, compares the result of each with the formula, and returns (name, peer, form,
        what was found). `places` is what the server says of the work's memory."""
        found = []
        for name, peer in self.peers.items():
            try:
                form = peer.ask("prepare", 10, **work, **places).get("form", "")
                self.server.ask("reset")
                peer.ask("result")
                found.append((name, peer, form, self.server.ask("check")))
            except Declined as why:
                self.refused[name, str(why)] = True
            except Lost:
                pass  # the peer's `why` says so; a lost server says it again below
        self.server.ask("reset")
        return found

    def close(self):
        for peer in self.peers.values():
            peer.close()
