"""fake_peers.py MODE FILE BYTES: answers the bench in the place of bench/rivals/peers.py, rightly or wrongly."""
import json
import math
import mmap
import os
import struct
import sys
import time

mode, *served = sys.argv[1:]
name, memory = None, None
if served:
    name, memory = served[0], mmap.mmap(int(served[1]), int(served[2]))
work = {}


def rotate(to_x):
    """f32, half; copies x where to_x, which is wrong."""
    x, y = work["copies"][0]
    heads, dim, pairs = work["heads"], work["head_dim"], work["rotary_dim"] // 2
    for t in range(work["tokens"]):
        position = struct.unpack_from("<q", memory, work["positions"] + 8 * t)[0]
        for h in range(heads):
            at = 4 * (t * heads + h) * dim
            values = list(struct.unpack_from(f"<{dim}f", memory, x + at))
            for k in range(0 if to_x else pairs):
                angle = position * work["base"] ** (-k / pairs)
                x0, x1 = values[k], values[k + pairs]
                values[k] = x0 * math.cos(angle) - x1 * math.sin(angle)
                values[k + pairs] = x0 * math.sin(angle) + x1 * math.cos(angle)
            struct.pack_into(f"<{dim}f", memory, y + at, *values)


def answer(request):
    do = request["do"]
    if do == "list":
        if mode == "nonsense":
            return ["what?"]
        return {"peers": ["right", "wrong", "unready", "fussy", "crash", "hang", "nonsense", "decline", "broken"],
                "absent": {"missing": "is not installed"}}
    if do == "load":
        return {"error": "does not load"} if name == "broken" else {"version": "1"}
    if do == "prepare":
        if name == "unready":
            print("no luck today", file=sys.stderr, flush=True)
            os._exit(3)
        work.update(request)
        return {"error": "not this"} if name == "fussy" else {"form": "slowly"}
    if do == "result" and work["kind"] == "rotation":  # of a road it leaves the outputs as they are
        rotate(name == "wrong")
    if do == "round":
        if name == "crash":
            os._exit(3)
        if name == "hang":
            time.sleep(60)
        if name == "nonsense":
            return {"seconds": "many"}
        if name == "decline":
            return {"error": "not now"}
    return {"seconds": [1e-5 * n for _, n in request.get("calls", ())]}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
