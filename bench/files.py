"""Files of JSON, and a terminal's line of progress."""

import json
import os
import pathlib
import sys


class Failed(Exception):
    """Something that was asked for can't be done; says why in a sentence."""


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
    """Fails at once rather than after minutes."""
    if path and not os.access(pathlib.Path(path).resolve().parent, os.W_OK):
        raise Failed(f"can't write {path}")


def show_progress(text=""):
    """On one line of a terminal, in the place of what was there."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)
