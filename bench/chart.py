"""./run bench chart RUN.json -o FILE: draws the rows that --json wrote: a bar for Halyard's speed, and marks for the
speeds of the C loops and the best peer. Rows in which one of these is faster come first."""

import argparse
import fnmatch
import json
import sys

import matplotlib
from matplotlib.figure import Figure

GREY, BLUE = "#78818b", "#1f8fd0"  # readable on white and on black pages, as are the marks' colours
MARKS = {"gcc": ("o", "none", "#e07b1a"), "clang": ("o", "#e07b1a", "#e07b1a"), "best peer": ("D", *["#1aa37a"] * 2)}
STYLE = {"font.size": 12, "text.color": GREY, "xtick.labelcolor": GREY, "ytick.labelcolor": GREY, "grid.alpha": 0.35,
         "axes.facecolor": "none", "axes.axisbelow": True, "legend.frameon": False, "svg.fonttype": "none"}


def describe(row):
    words = [row["model"], f"{row['tokens']:,} token{'s' * (row['tokens'] != 1)}", row["dtype"],
             "in place" if row["in_place"] else "out of place", *["cold"] * row["cold"],
             *["2 tensors"] * row["name"].endswith("/q-and-k")]
    return ", ".join(words) + " *" * (row["judged_by"] == "conversion")


def find_ratios(row):
    """{mark: speed as a fraction of the ceiling's} of each C loop, the best peer, and a bound run ("bound")."""
    ceiling, found = row[row["judged_by"]]["median_seconds"], {}
    for rival in row["rivals"]:
        if rival["kind"] in ("bound", "loop", "peer") and not rival["wrong"]:
            mark = {"loop": rival["name"].split()[0], "peer": "best peer"}.get(rival["kind"], "bound")
            found[mark] = max(found.get(mark, 0.0), ceiling / rival["median_seconds"])
    return found


def draw(run, pattern):
    rows = [row for row in run["rows"] if fnmatch.fnmatchcase(row["name"], pattern) and "ratio" in row]
    if not rows:
        raise ValueError(f'no row matches "{pattern}"')
    rows.sort(key=lambda row: all(ratio <= row["ratio"] for mark, ratio in find_ratios(row).items() if mark != "bound"))
    figure = Figure((12, 2.2 + 0.3 * len(rows)), dpi=72, layout="constrained", facecolor="none")
    axes = figure.add_subplot(frame_on=False, ylim=(len(rows) - 0.4, -0.6))
    for y, (row, found) in enumerate((row, find_ratios(row)) for row in rows):
        axes.barh(y, row["ratio"], 0.56, color=BLUE, label="Halyard")
        if found.get("bound", 0) > row["ratio"]:
            axes.barh(y, found["bound"] - row["ratio"], 0.56, row["ratio"], fc=BLUE, alpha=0.4, label="as a bound run")
        for mark, (marker, face, edge) in MARKS.items():
            if mark in found:
                axes.plot(found[mark], y, marker, mfc=face, mec=edge, ms=8, mew=2, clip_on=False,
                          label=mark if mark == "best peer" else f"C loop, {mark}")
    axes.set_yticks(range(len(rows)), map(describe, rows))
    axes.axvline(1, color=GREY, linewidth=1, linestyle=(0, (3, 3)))
    axes.grid(axis="x")
    axes.tick_params(length=0)
    legend = dict(sorted(zip(*axes.get_legend_handles_labels()[::-1]), key=lambda one: one[0] != "Halyard"))
    figure.legend(legend.values(), legend, loc="outside upper left", ncols=len(legend), alignment="left",
                  title="Fraction of the hardware limit (1 = limit)", title_fontsize=15)
    figure.supxlabel("1.0: the fastest copy (in place: multiply) of the same bytes; in rows with *, the fastest"
                     f" conversion to f32 and back\n{run['command']} ({rows[0]['target']}; rows {pattern})\n"
                     "{cpu}, {caches}; Halyard {commit}, {date}".format_map(run["machine"]), size=10, x=0.01, ha="left")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="./run bench chart", description=__doc__)
    parser.add_argument("run", metavar="RUN.json", help="what --json wrote")
    parser.add_argument("-o", dest="output", required=True, metavar="FILE", help="the picture: .svg, .png or .pdf")
    parser.add_argument("--filter", default="*/llama-3-8b/*/hot*", help="which rows [%(default)s]")
    options = parser.parse_args()
    try:
        with open(options.run) as file, matplotlib.rc_context(STYLE):
            draw(json.load(file), options.filter).savefig(options.output, dpi=144)
    except (AttributeError, KeyError, OSError, TypeError, ValueError) as error:
        sys.exit(f"bench: can't draw {options.run}: {error!r}; a run is what --json wrote, a picture .svg, .png, .pdf")
