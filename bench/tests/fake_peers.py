"""fake_peers.py MODE FILE BYTES: answers the bench in the place of bench/rivals/peers.py, rightly or wrongly."""
import json
import math
import mmap
import os
import struct
import sys
import time

mode, file, size = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
memory = mmap.mmap(file, size)
work = {}


def rotate(to_x):
    """f32, half; copies x where to_x, which is wrong."""
    x, y = work["slots"][0]
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
    return {"at": y}


def answer(request):
    do, peer = request["do"], request.get("peer")
    if do == "list":
        if mode == "nonsense":
            return ["what?"]
        return {"peers": [{"name": name, "version": "1", "note": ""}
                          for name in ("right", "wrong", "crash", "hang", "nonsense", "decline")],
                "absent": [{"name": "missing", "why": "is not installed"}]}
    if do == "prepare":
        if mode == "crash":
            print("no luck today", file=sys.stderr, flush=True)
            os._exit(3)
        work.update(request)
        names = ["right", "wrong", "crash", "hang", "nonsense", "decline"]
        return {"ready": [{"peer": name, "form": "slowly"} for name in names if name not in request["without"]],
                "refused": [{"peer": "fussy", "why": "not this"}]}
    if do == "result" and work.get("road"):
        return {"at": work["x"]}  # and leaves the outputs as they are
    if do == "result":
        return rotate(peer == "wrong")
    if do == "run":
        if peer == "crash":
            os._exit(3)
        if peer == "hang":
            time.sleep(60)
        if peer == "nonsense":
            return {"seconds": "many"}
        if peer == "decline":
            return {"error": "not now"}
    return {"seconds": 1e-5 * request["times"]}


for line in sys.stdin:
    print(json.dumps(answer(json.loads(line))), flush=True)
