"""The table of a run, for readers, from what --json writes."""

from measure import loses, timing_of

NOISY = 0.1  # a spread that is more than this part of its median


def times(row, rival):
    """How many times as long as Halyard a rival takes: "3.21"; a dash where that is not known."""
    return f"{rival['median_seconds'] / row['median_seconds']:.2f}" if rival else "-"


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


def columns_of(rows):
    """{head: cell of a row}: columns that follow the fixed ones, those that some row has something for."""
    of_kind = {}
    for row in rows:
        for rival in row["rivals"]:
            of_kind.setdefault(rival["kind"], {})[rival["name"]] = True
    columns = {}

    def add(kind, head, cell):
        if kind in of_kind:
            columns.setdefault(head, cell)

    add("reference", "x reference", lambda row: times(row, find(row, "reference")))
    add("bound", "x bound", lambda row: times(row, find(row, "bound")))
    add("kernels", "ns over kernels", over_kernels)
    for kind, pattern in ("loop", "x {} loop"), ("angles", "x {}"):
        for name in of_kind.get(kind, ()):
            add(kind, pattern.format(name.split()[0]),
                lambda row, kind=kind, name=name: times(row, find(row, kind, name)))
    add("one_thread", "x 1 thread", lambda row: times(row, find(row, "one_thread")))
    add("peer", "x best peer", best_peer)
    return columns


def show_error(error):
    return "not a number" if error is None else f"{error:.1e}"


def format_row(row, width, columns):
    own = timing_of(row)
    line = (f"{row['name']:<{width}} {own.median * 1e6:11.3f} +- {own.spread * 1e6:8.3f} "
            f"{row['gigabytes_per_second']:7.1f} {row['ratio']:6.2f} "
            f"{'c' if row['judged_by'] == 'conversion' else ' '}")
    line += "".join(f"  {cell(row):>{len(head)}}" for head, cell in columns.items())
    if row["wrong"]:
        line += f"  WRONG: error {show_error(row['max_error'])}"
    return line + "".join(f"  ({rival['name']} is wrong: error {show_error(rival['max_error'])})"
                          for rival in row["rivals"] if rival["wrong"])


def warn_of_noise(n_noisy, n_rows, what="the median"):
    return [f"This machine is noisy: {n_noisy} of {n_rows} rows have a spread of more than {100 * NOISY:.0f} % of "
            f"{what}."] if n_noisy else []


def format_rows(rows):
    """Rows in which a loop or a peer is faster come first. A noisy machine gets a warning."""
    columns = columns_of(rows)
    width = max(len(row["name"]) for row in rows)
    lines = [f"{'kernel/model/tokens':<{width}} {'time, us':>23} {'GB/s':>7} {'ceiling':>8}" +
             "".join(f"  {head}" for head in columns)]
    lost = [row for row in rows if loses(row)]
    if lost:
        lines.append(f"Slower than a C loop or a peer ({len(lost)} of {len(rows)}):")
        lines += [format_row(row, width, columns) for row in lost]
        lines.append("The others:")
    lines += [format_row(row, width, columns) for row in rows if not loses(row)]
    n_noisy = sum(max(timing_of(row).relative_spread, timing_of(row[row["judged_by"]]).relative_spread) > NOISY
                  for row in rows)
    return "\n".join(lines + warn_of_noise(n_noisy, len(rows)))


def format_accuracy(all_errors):
    lines = [f"{'':34} {'half':>12} {'interleaved':>12}"]
    for one in all_errors:
        cells = (show_error(one["max_error"][how]) if how in one["max_error"] else "-"
                 for how in ("half", "interleaved"))
        lines.append(f"{one['name']:<34}" + "".join(f" {cell:>12}" for cell in cells))
    return "\n".join(lines)


def format_budget(budgets):
    return "\n".join("{target}: {kernels} kernels, {stage_kernels} of them stages, {megabytes:.2f} MB of objects".format(
        megabytes=budget["bytes"] * 1e-6, **budget) for budget in budgets)


def format_peers(listed):
    lines = ["Peers: " + ", ".join(f"{peer['name']} {peer['version']}" for peer in listed["peers"])]
    for key, words in ("absent", "Not there"), ("refused", "Not in every row"):
        lines += [f"{words}: {peer['name']}: {peer['why']}" for peer in listed[key]]
    return "\n".join(lines)
