#!/usr/bin/env python3
"""fake_linker.py COMMAND... TO: links as the command does, but what it makes times itself on a driver that records
only. The emulated driver would take minutes for what a device does in a millisecond; checks go on to execute."""

import pathlib
import subprocess
import sys

*command, to = sys.argv[1:]
subprocess.run([*command, to + ".real"], check=True)
pathlib.Path(to).write_text('#!/bin/sh\n[ "$1" ] || export HALYARD_EMULATED_CUDA=records\n'
                            'exec "$0.real" "$@"\n')
pathlib.Path(to).chmod(0o700)
