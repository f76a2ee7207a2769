"""check_pack.py PACK BUILD: what ./run pack cuda packs runs in another folder, with nothing of this checkout's, until it
finds no device. On a machine that has one this prints SKIP."""

import pathlib
import subprocess
import sys
import tempfile

pack, build = sys.argv[1:]
environment = {"PATH": "/usr/bin:/bin", "LD_LIBRARY_PATH": ""}
with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    subprocess.run([sys.executable, "-I", pack, build, folder / "made", "--variants", "none"], check=True)
    (folder / "made").rename(folder / "elsewhere")
    run = subprocess.run(["bash", folder / "elsewhere/on_device.sh", folder / "results"], cwd="/", text=True,
                         capture_output=True, env=environment, timeout=600)
    if run.returncode in (0, 1):
        print("SKIP: there is a device")
        sys.exit(0)
    said = (folder / "results/summary.txt").read_text()
    if run.returncode != 3 or "no device: " not in said or "targets: done" not in said:
        sys.exit(f"exit status {run.returncode}: {said}{run.stderr}")
    if "cuda_sm80" not in (folder / "results/targets.txt").read_text():
        sys.exit("the tool lists no cuda_sm80")
