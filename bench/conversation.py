"""Talks with another program, which answers each line with a line."""

import atexit
import json
import os
import select
import signal
import subprocess
import tempfile
import time


class Lost(Exception):
    """The program can't be talked to any more."""


class Declined(Exception):
    """The program could not do something, says so, and goes on."""


class Conversation:
    """The program has a session of its own, so that whatever it starts ends with it, and Ctrl-C is for us alone."""

    def __init__(self, command, files=()):
        self.unread, self.log = b"", tempfile.TemporaryFile()
        try:
            self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                            pass_fds=files, start_new_session=True)
        except OSError as error:
            self.log.close()
            raise Lost(f"can't be started: {error.strerror}") from None
        self.pid = self.process.pid
        self.to, self.back = self.process.stdin.fileno(), self.process.stdout.fileno()
        os.set_blocking(self.to, False)
        atexit.register(self.stop)

    def stop(self):
        atexit.unregister(self.stop)
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()
        self.log.close()

    def last_words(self):
        """The last line that the program wrote to its standard error."""
        if self.log.closed:
            return ""
        self.log.seek(0)
        lines = self.log.read()[-4096:].decode(errors="replace").strip("\n").split("\n")
        return lines[-1][:200]

    @staticmethod
    def wait(file, event, deadline):
        poller = select.poll()
        poller.register(file, event)
        left = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
        if not poller.poll(left):
            raise Lost("did not answer in time")

    def say(self, line, limit=None):
        """Sends a line and returns the answer. Raises Lost where none comes within so many seconds."""
        deadline = None if limit is None else time.monotonic() + limit
        rest = line.encode() + b"\n"
        while rest:
            self.wait(self.to, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self.to, rest):]
            except BlockingIOError:
                continue
            except OSError:
                raise Lost("ended") from None
        parts = [self.unread]
        while b"\n" not in parts[-1]:
            self.wait(self.back, select.POLLIN, deadline)
            parts.append(os.read(self.back, 1 << 20))
            if not parts[-1]:
                raise Lost("ended")
        answer, _, self.unread = b"".join(parts).partition(b"\n")
        return answer.decode(errors="replace")

    def ask(self, request, limit=None):
        """The same with JSON objects. Raises Declined where the answer is {"error": why}."""
        answer = self.say(json.dumps(request), limit)
        try:
            parsed = json.loads(answer)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise Lost(f"answered nonsense: {answer[:60]}")
        if "error" in parsed:
            raise Declined(parsed["error"] if isinstance(parsed["error"], str) else "an error without a word")
        return parsed
