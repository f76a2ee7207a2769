"""The table of a run, for readers, from what --json writes."""

from measure import loses, timing_of

NOISY = 0.1  # a spread that is more than this part of its median


def times(row, rival):
    """How many times as long as Halyard a rival takes: "3.21"; a dash where that is not known."""
    is_timed = rival and rival["median_seconds"]
    return f"{rival['median_seconds'] / row['median_seconds']:.2f}" if is_timed else "-"


def find(row, kind, name=None):
    return next((r for r in row["rivals"] if r["kind"] == kind and name in (None, r["name"])), None)


def best_peer(row):
    right = [r for r in row["rivals"] if r["kind"] == "peer" and not r["wrong"]]
    if not right:
        return "-"
    peer = min(right, key=lambda rival: rival["median_seconds"])
    own_seconds = peer["median_seconds"] - peer["overhead_seconds"]
    text = f"{times(row, peer)} {peer['name']}"
    if own_seconds <= 0.0:
        return text + " (all of it the call)"
    if own_seconds < 0.9 * peer["median_seconds"]:
        return text + f" ({own_seconds / row['median_seconds']:.2f} without its call)"
    return text


def over_kernels(row):
    bound, kernels = find(row, "bound"), find(row, "kernels")
    return f"{(bound['median_seconds'] - kernels['median_seconds']) * 1e9:.1f}" if bound and kernels else "-"


def align(rows, columns):
    """Lines of {head: cell of a row}; the first column is to the left, the others are to the right."""
    cells = [[*columns], *([cell(row) for cell in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]) for first, *others in cells]


def rivals_columns(rows):
    """Columns of what some row has."""
    of_kind = {}
    for row in rows:
        for rival in row["rivals"]:
            of_kind.setdefault(rival["kind"], {})[rival["name"]] = True
    of = lambda kind, name=None: lambda row: times(row, find(row, kind, name))
    every = {"reference": {"x reference": of("reference")}, "bound": {"x bound": of("bound")},
             "kernels": {"ns over kernels": over_kernels},
             "loop": {f"x {name.split()[0]} loop": of("loop", name) for name in of_kind.get("loop", ())},
             "angles": {f"x {name}": of("angles", name) for name in of_kind.get("angles", ())},
             "one_thread": {"x 1 thread": of("one_thread")}, "peer": {"x best peer": best_peer}}
    return {head: cell for kind, columns in every.items() if kind in of_kind for head, cell in columns.items()}


def show_error(error):
    return "not a number" if error is None else f"{error:.1e}"


def show_timing(row, unit=1e6):
    """In microseconds."""
    return f"{row['median_seconds'] * unit:.3f} +- {row['spread_seconds'] * unit:8.3f}"


def say_wrong(row):
    own = [f"  WRONG: error {show_error(row['max_error'])}"] * row["wrong"]
    return "".join(own + [f"  ({rival['name'] or rival['kind']} is wrong: error {show_error(rival['max_error'])})"
                          for rival in row["rivals"] if rival["wrong"]])


def warn_of_noise(n_noisy, n_rows, what="the median"):
    return [f"This machine is noisy: {n_noisy} of {n_rows} rows have a spread of more than {100 * NOISY:.0f} % of "
            f"{what}."] if n_noisy else []


def format_rows(rows):
    """Rows in which a loop or a peer is faster come first. A noisy machine gets a warning."""
    rows = sorted(rows, key=lambda row: not loses(row))
    n_lost = sum(map(loses, rows))
    head, *lines = align(rows, {
        "kernel/model/tokens": lambda row: row["name"], "time, us": show_timing,
        "GB/s": lambda row: f"{row['gigabytes_per_second']:.1f}",
        "ceiling  ": lambda row: f"{row['ratio']:.2f} {'c' if row['judged_by'] == 'conversion' else ' '}",
        **rivals_columns(rows)})
    lines = [line + say_wrong(row) for line, row in zip(lines, rows)]
    if n_lost:
        lines[n_lost:n_lost] = ["The others:"]
        lines.insert(0, f"Slower than a C loop or a peer ({n_lost} of {len(rows)}):")
    n_noisy = sum(max(timing_of(row).relative_spread, timing_of(row[row["judged_by"]]).relative_spread) > NOISY
                  for row in rows)
    return "\n".join([head, *lines, *warn_of_noise(n_noisy, len(rows))])


def format_accuracy(all_errors):
    of = lambda how: lambda one: show_error(one["max_error"][how]) if how in one["max_error"] else "-"
    return "\n".join(align(all_errors, {"": lambda one: one["name"], "half": of("half"),
                                        "interleaved": of("interleaved")}))


def format_budget(budgets):
    return "\n".join("{target}: {kernels} kernels, {stage_kernels} of them stages, {megabytes:.2f} MB of objects".format(
        megabytes=budget["bytes"] * 1e-6, **budget) for budget in budgets)


def format_peers(listed):
    lines = ["Peers: " + ", ".join(f"{peer['name']} {peer['version']}" for peer in listed["peers"])]
    for key, words in ("absent", "Not there"), ("refused", "Not in every row"):
        lines += [f"{words}: {peer['name']}: {peer['why']}" for peer in listed[key]]
    return "\n".join(lines)
