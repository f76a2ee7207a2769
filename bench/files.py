"""JSON files, the bench's error type, and a line of progress on the terminal."""

import json
import os
import pathlib
import sys


class Failed(Exception):
    """A request cannot be carried out; its text says why."""


def save_json(path, value):
    text = json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False)
    pathlib.Path(path).write_text(text + "\n")


def load_json(path):
    try:
        return json.loads(pathlib.Path(path).read_text())
    except OSError:
        raise Failed(f"can't read {path}") from None
    except ValueError:
        raise Failed(f"{path} is not JSON") from None


def need_writable(path):
    """Raises Failed if the file cannot be written, before minutes of timing rather than after."""
    if path and not os.access(pathlib.Path(path).resolve().parent, os.W_OK):
        raise Failed(f"can't write {path}")


def show_progress(text=""):
    """Replaces the line of progress on the terminal; an empty text erases it."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
