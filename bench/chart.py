"""./run bench chart RUN.json -o FILE: draws a run, a bar for each row.

A bar is Halyard's ratio to the row's ceiling, marks are those of C loops and of the best peer; first come the rows of
what engines do most. python/halyard/plot.py writes the file.
"""

import collections
import fnmatch
import json
import math
import pathlib
import sys

import matplotlib
from matplotlib.figure import Figure

sys.path.append(str(pathlib.Path(__file__).parents[1] / "python/halyard"))  # last: torch.py is there, too
import plot  # noqa: E402

WIDTH, LEFT, RIGHT, TOP, ROW = 860, 285, 40, 74, 21  # pixels
GREY, BLUE, ORANGE, GREEN = "#78818b", "#1f8fd0", "#e07b1a", "#1aa37a"  # they show on white pages and on black ones
MARKS = {"gcc": {"marker": "o", "markerfacecolor": "none", "color": ORANGE, "markersize": 8, "markeredgewidth": 2},
         "clang": {"marker": "o", "color": ORANGE, "markersize": 9, "markeredgewidth": 0},
         "peer": {"marker": "D", "color": GREEN, "markersize": 8.5, "markeredgewidth": 0}}
STYLE = plot.STYLE | {"grid.color": "#8a8f96", "grid.alpha": 0.35} | dict.fromkeys(
    ("text.color", "xtick.labelcolor", "ytick.labelcolor"), GREY)


def describe_row(row, one_model):
    """As in: 64 tokens, bf16, in place. Before it the model, where the chart has several; after it a star, where the
    ceiling is the conversion's."""
    words = [] if one_model else [row["model"]]
    words += [f"{row['tokens']:,} token{'' if row['tokens'] == 1 else 's'}", row["dtype"],
              "in place" if row["in_place"] else "out of place", *["cold"] * row["cold"],
              *[row["angles"]] * (row["angles"] != "table")]
    return ", ".join(words) + " *" * (row["judged_by"] == "conversion")


def read_rivals(row):
    """Kind of mark, or "bound" -> the rival's name and its ratio; of several peers the best."""
    ceiling, found = row[row["judged_by"]]["median_seconds"], {}
    for rival in sorted(row["rivals"], key=lambda rival: -rival["median_seconds"]):
        if not rival["wrong"] and rival["kind"] in ("bound", "loop", "peer"):
            compiler = "gcc" if rival["name"].startswith("gcc") else "clang"
            found[compiler if rival["kind"] == "loop" else rival["kind"]] = (
                rival["name"], ceiling / rival["median_seconds"])
    return found


def is_engines(row):
    """What engines do: the next token of one request or of several, in the storage that models have."""
    return row["dtype"] != "f32" and row["tokens"] <= 64


def make_notes(run, rows, rivals, pattern):
    peers = collections.Counter(each["peer"][0] for each in rivals if "peer" in each).most_common()
    counts = ", ".join(f"{name} {n} time{'' if n == 1 else 's'}" for name, n in peers)
    machine, threads = run["machine"], rows[0]["threads"]
    return ["1.0: the fastest copy (in place: multiply) of the same bytes; where it is slower (*), the fastest loop "
            "that only converts them to f32 and back", *[f"Best peer: {counts}"] * bool(peers),
            f"{run['command']}  ({rows[0]['target']}, {threads} thread{'' if threads == 1 else 's'}; rows {pattern})",
            f"{machine['cpu']}, {machine['caches']}; Halyard {machine['commit']}, {machine['date']}"]


def draw_row(axes, y, row, rivals):
    """What the legend shows of it: name -> artist."""
    drawn = {"Halyard": axes.barh(y, row["ratio"], 12 / ROW, color=BLUE)}
    bound = rivals.get("bound", ("", 0))[1]
    if bound > row["ratio"]:
        drawn["as a bound run"] = axes.barh(y, bound - row["ratio"], 12 / ROW, row["ratio"], color=BLUE, alpha=0.45)
    for kind, style in MARKS.items():
        if kind in rivals:
            name, ratio = rivals[kind]
            label = "best peer" if kind == "peer" else f"C loop, {name}"
            drawn[label], = axes.plot(ratio, y, linestyle="", clip_on=False, **style)
    return drawn


def draw_rows(axes, rows, rivals, one_model, headings):
    """From the top down; a heading takes the place of a row."""
    ys, drawn = [], {}
    for i, (row, found) in enumerate(zip(rows, rivals)):
        ys.append(i + sum(at <= i for at in headings))
        drawn |= draw_row(axes, ys[-1], row, found)
        if i in headings:
            axes.annotate(headings[i], (0, ys[-1] - 1), (16 - LEFT, 0), textcoords="offset points", va="center",
                          weight="bold")
    axes.set_yticks(ys, [describe_row(row, one_model) for row in rows])
    order = "Halyard", "as a bound run", "C loop, gcc", "C loop, clang", "best peer"
    names = sorted(drawn, key=lambda name: [name.startswith(each) for each in order].index(True))
    axes.figure.legend([drawn[name] for name in names], names, loc="center left", ncols=5, borderpad=0, borderaxespad=0,
                       fontsize=12, bbox_to_anchor=(16 / WIDTH, 1 - 46 / axes.figure.bbox.height))


def draw(run, pattern):
    """The figure of the rows whose names match."""
    rows = [row for row in run["rows"] if fnmatch.fnmatchcase(row["name"], pattern)]
    if not rows:
        raise ValueError(f'no row matches "{pattern}"')
    rows.sort(key=lambda row: not is_engines(row))
    first, n_engines, rivals = rows[0], sum(map(is_engines, rows)), [read_rivals(row) for row in rows]
    one_model = all(row["model"] == first["model"] for row in rows)
    headings = {0: "Decoding, in 16 bits", n_engines: "All else"} if 0 < n_engines < len(rows) else {}
    n_places = len(rows) + len(headings)
    most = max([1, *(row["ratio"] for row in rows), *(ratio for each in rivals for _, ratio in each.values())])
    ticks = [i / 5 for i in range(math.ceil(most * 5 - 1e-9) + 1)]
    height = TOP + ROW * n_places + 100
    title = "Part of the speed that memory and conversion allow"
    if one_model:
        title += f": {first['model']}, {first['q_heads']} + {first['k_heads']} heads of {first['head_dim']}"
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH / 72, height / 72), dpi=72, facecolor="none", label=title)
        axes = figure.add_axes((LEFT / WIDTH, 100 / height, 1 - (LEFT + RIGHT) / WIDTH, ROW * n_places / height),
                               xlim=(0, ticks[-1]), ylim=(n_places - 0.5, -0.5), frame_on=False)
        draw_rows(axes, rows, rivals, one_model, headings)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.tick_params(length=0, pad=8)
        axes.grid(axis="x")
        axes.axvline(1, color=GREY, linewidth=1, linestyle=(0, (3, 3)), clip_on=False)
        figure.text(16 / WIDTH, 1 - 24 / height, title, size=16, weight="bold")
        for i, note in enumerate(make_notes(run, rows, rivals, pattern)):
            figure.text(16 / WIDTH, (56 - 16 * i) / height, note, size=11)
    return figure


def read_and_draw(path, pattern):
    with open(path, "rb") as file:
        text = file.read()
    try:
        return draw(json.loads(text), pattern)
    except (AttributeError, KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"'{path}' is not what ./run bench --json writes: {error!r}") from None


if __name__ == "__main__":
    parser = plot.Parser(prog="./run bench chart", allow_abbrev=False)
    parser.add_argument("run", metavar="RUN.json", help="what --json wrote")
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="the picture: .svg, .png or .pdf")
    parser.add_argument("--filter", default="*/llama-3-8b/*/hot", help="which rows [%(default)s]")
    options = parser.parse_args()
    plot.run(parser, options.output, lambda: read_and_draw(options.run, options.filter))
