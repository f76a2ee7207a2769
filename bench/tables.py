"""Formats rows, as --json writes them, as tables for readers."""

from measure import find_rival, loses, timing_of

NOISY = 0.1  # a relative spread above this is noise


def times(row, rival):
    """The rival's time divided by Halyard's, such as "3.21"; a dash if there is no such rival."""
    return f"{rival['median_seconds'] / row['median_seconds']:.2f}" if rival else "-"


def best_peer(row):
    right = [rival for rival in row["rivals"] if rival["kind"] == "peer" and not rival["wrong"]]
    if not right:
        return "-"
    peer = min(right, key=lambda rival: rival["median_seconds"])
    return f"{times(row, peer)} {peer['name']}"


def show_time(row):
    """A row's time and spread in microseconds."""
    return f"{row['median_seconds'] * 1e6:.3f} +- {row['spread_seconds'] * 1e6:8.3f}"


def show_ceiling(row):
    return f"{row['ratio']:.2f} {'c' if row['judged_by'] == 'conversion' else ' '}" if "ratio" in row else "-"


def align(rows, columns):
    """Lines of text. `columns` is {head: function from a row to its cell}; the first column is left-aligned."""
    cells = [[*columns], *([cell(row) for cell in columns.values()] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells)]
    return ["  ".join([first.ljust(widths[0]), *map(str.rjust, others, widths[1:])]) for first, *others in cells]


def columns_of(rows):
    """The columns in which some row has a value, as align takes them."""
    of = lambda kind, name=None: lambda row: times(row, find_rival(row, kind, name))
    loops = {f"x {rival['name'].split()[0]} loop": of("loop", rival["name"])
             for row in rows for rival in row["rivals"] if rival["kind"] == "loop"}
    columns = {"row": lambda row: row["name"], "time, us": show_time,
               "GB/s": lambda row: f"{row['gigabytes_per_second']:.1f}" if "bytes" in row else "-",
               "ceiling  ": show_ceiling, "x reference": of("reference"), "x bound": of("bound"), "x unbound": of("unbound"),
               **loops, "x best peer": best_peer}
    return {head: cell for head, cell in columns.items() if any(cell(row) != "-" for row in rows)}


def show_error(error):
    return "not a number" if error is None else f"{error:.1e}"


def say_wrong(row):
    own = [f"  WRONG: error {show_error(row['max_error'])}"] * row["wrong"]
    return "".join(own + [f"  ({rival['name']} is wrong: error {show_error(rival['max_error'])})"
                          for rival in row["rivals"] if rival["wrong"]])


def format_rows(rows):
    """Rows in which a C loop or a peer is faster come first. The last line warns of a noisy machine."""
    rows = sorted(rows, key=lambda row: not loses(row))
    n_lost = sum(map(loses, rows))
    head, *lines = align(rows, columns_of(rows))
    lines = [line + say_wrong(row) for line, row in zip(lines, rows)]
    if n_lost:
        lines[n_lost:n_lost] = ["The others:"]
        lines.insert(0, f"Slower than a C loop or a peer ({n_lost} of {len(rows)}):")
    n_noisy = sum(timing_of(row).relative_spread > NOISY for row in rows)
    if n_noisy:
        lines.append(f"This machine is noisy: {n_noisy} of {len(rows)} rows have a spread of more than 10 % of the "
                     "median.")
    return "\n".join([head, *lines])


def format_peers(listed):
    lines = ["Peers: " + ", ".join(f"{peer['name']} {peer['version']}" for peer in listed["peers"])]
    for key, words in ("absent", "Not there"), ("refused", "Not in every row"):
        lines += [f"{words}: {peer['name']}: {peer['why']}" for peer in listed[key]]
    return "\n".join(lines)


def format_builds(found):
    """The times of this build, and by how much the other build's times differ in the same rounds."""
    return "\n".join(align(found, {
        "row": lambda one: f"{one[1].name} {one[1].contender}", "time, us": lambda one: f"{one[0].median * 1e6:.3f}",
        "the other's": lambda one: say_difference(one[1])}))


def say_difference(difference):
    low, median, high = (100 * (value - 1) for value in difference[2:])
    return f"{median:+.1f} % ({low:+.1f} … {high:+.1f})"
