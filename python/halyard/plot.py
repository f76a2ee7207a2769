"""One picture of what a rotation turns by: how q·k decays with distance, the wavelengths of its pairs, and its angles.

    >>> from halyard import plot
    >>> plot.write(plot.draw(plot.describe(frequencies)), "rope.svg")

`draw` makes a figure of what `halyard frequencies` prints as JSON, `describe` puts halyard.Frequencies into that form,
and `write` writes the same bytes each time. This takes matplotlib (pip install halyard[plot]) and no other part of the
package: `./run plot` runs this file as a script that asks the tool.
"""

import argparse
import io
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

USED, UNSCALED, MARK = "#0072b2", "#d55e00", "#555555"  # Okabe and Ito's, which the colour-blind can tell apart
STYLE = {"font.size": 11, "axes.grid": True, "grid.color": "#e4e4e4", "axes.axisbelow": True, "svg.fonttype": "none",
         "svg.hashsalt": "halyard", "pdf.fonttype": 42}
NO_DATE = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}  # by the ending of a file


def describe(frequencies: Any, seq_len: int | None = None) -> dict[str, Any]:
    """What `halyard frequencies` prints, as far as `draw` reads it. seq_len: as from_config was called with it."""
    names = "inv_freq", "attention_factor", "method", "base", "original_max_position", "max_position"
    known = {name: getattr(frequencies, name) for name in names} | {"seq_len": seq_len}
    return {name: value for name, value in known.items() if value is not None}


def find_angles(inv_freq, positions):
    """In radians, [positions, pairs], with the rounding of inv_freq's dtype."""
    return np.multiply.outer(np.asarray(positions).astype(inv_freq.dtype), inv_freq).astype(np.float64)


class Subject:
    """What there is to draw."""

    def __init__(self, description, reference):
        self.description, self.method, self.reference = description, description["method"], reference
        self.inv_freq = np.array(description["inv_freq"], np.float64)
        self.n_pairs = len(self.inv_freq)
        is_scaled = self.method not in ("default", "list")
        self.drawn = self.inv_freq.astype(np.float32 if reference == "hf_f32" else np.float64)
        self.series = [(self.drawn, {"label": self.method if is_scaled else "inv_freq", "color": USED})]
        if is_scaled:
            powers = description["base"] ** (-np.arange(self.n_pairs) / self.n_pairs)
            self.series.append((powers.astype(self.drawn.dtype), {"label": "unscaled, same base", "color": UNSCALED}))
        self.seq_len, trained = description.get("seq_len"), description.get("original_max_position", 0)
        stated = max(trained, description.get("max_position", 0), self.seq_len or 0)
        self.is_stated, self.context = stated != 0, stated or 4096
        self.trained = trained if trained < stated else 0  # 0 where it is not known, or the context
        self.reach = max(self.context, 16)  # where axes end, which need some length


def find_ratio(inv_freq):
    """By how much one pair turns faster than the next, on average. Where neighbours come into step, the score rises: a
    wave that returns whenever the distance has grown by this factor."""
    speeds = np.abs(inv_freq[inv_freq != 0], dtype=np.float64)
    with np.errstate(over="ignore"):
        ratio = (speeds.max() / speeds.min()) ** (1 / (len(speeds) - 1)) if len(speeds) > 1 else 1
    return float(np.clip(ratio, 1.1, 1.4))


def find_decay(inv_freq, reach, ratio, n_points=300, n_samples=1024):
    """⟨R_m q, R_n k⟩ of all-ones q and k over that at 0: the mean of the pairs' cosines. Columns of a distance,
    the first and last around it, from one wave to the next, their mean, and the bounds of nine tenths of them."""
    n_samples = min(n_samples, max(2**26 // (n_points * len(inv_freq)), 16))  # so that wide heads take seconds
    points = np.unique(np.floor(float(reach) ** (np.arange(n_points + 1) / n_points)))
    columns = []
    for distance in points:
        first, last = np.ceil(distance / ratio**0.5), np.floor(distance * ratio**0.5)
        samples = np.unique(np.round(np.linspace(first, last, int(min(last - first + 1, n_samples)))))
        scores = np.sort(np.cos(find_angles(inv_freq, samples)).mean(1))
        n_out = len(scores) // 20
        columns.append((distance, first, last, scores.mean(), scores[n_out], scores[-1 - n_out]))
    return np.array(columns).T


def find_wavelengths(inv_freq):
    """In tokens; infinite for a pair that does not turn."""
    with np.errstate(divide="ignore", over="ignore"):
        return 2 * np.pi / np.abs(inv_freq, dtype=np.float64)


def find_cells(inv_freq, reach, n_rows=64, n_columns=144):
    """The part of a turn, 0 … 1, of some pairs at positions from 1 to reach, [rows, columns]; masked where a pair makes
    more than a third of a turn within a cell, whose colour would mean nothing."""
    n_rows = min(n_rows, len(inv_freq))
    some = inv_freq[(2 * np.arange(n_rows) + 1) * len(inv_freq) // (2 * n_rows)]
    edges = float(reach) ** (np.arange(n_columns + 1) / n_columns)
    positions = float(reach) ** ((np.arange(n_columns) + 0.5) / n_columns)
    fast = np.multiply.outer(np.diff(edges), np.abs(some, dtype=np.float64)) > 2 * np.pi / 3
    return np.ma.masked_array(find_angles(some, positions) / (2 * np.pi) % 1, fast).T


def say(number):
    """For readers: "131,072"; six significant digits where it isn't whole."""
    return f"{number:,.0f}" if number == number // 1 and abs(number) < 1e15 else f"{number:.6g}"


def make_title(subject):
    base = f", base {say(subject.description['base'])}" if "base" in subject.description else ""
    return (f"RoPE {'from a list' if subject.method == 'list' else subject.method}{base}, rotary_dim "
            f"{2 * subject.n_pairs}, attention_factor {say(subject.description['attention_factor'])}"
            + (", hf_f32" if subject.reference == "hf_f32" else ""))


def make_subtitle(subject):
    is_given, context = subject.seq_len == subject.context, say(subject.context)
    if subject.trained:
        text = f"Trained on {say(subject.trained)} tokens, {'drawn up to' if is_given else 'meant for'} {context}."
    elif subject.is_stated:
        text = f"Context length {context} tokens, as {'given' if is_given else 'stated'}."
    else:
        text = f"No context length is stated; {context} tokens are assumed."
    if subject.method in ("dynamic", "longrope"):
        text += (f" Frequencies for a sequence of {say(subject.seq_len)}." if subject.seq_len else " Frequencies for "
                 f"sequences up to {say(subject.description['original_max_position'])}; --seq-len shows others.")
    if subject.reference == "hf_f32":
        last = subject.context - 1
        error = np.abs(find_angles(subject.drawn, [last])[0] - last * subject.inv_freq).max()
        text += f" Float32 angles, up to {error:.2g} rad from exact ones at position {say(last)}."
    if n_still := np.count_nonzero(subject.inv_freq == 0):
        text += f" {say(n_still)} of {say(subject.n_pairs)} pairs do not turn."
    return text


# ---- The picture -----------------------------------------------------------------------------------------------------


def mark_contexts(subject, draw_line):
    draw_line(subject.context, color=MARK, linestyle=":", label=f"context {say(subject.context)}"
              + ("" if subject.is_stated else " (assumed)"))
    if subject.trained:
        draw_line(subject.trained, color=MARK, linestyle="--", label=f"trained on {say(subject.trained)}")


def draw_decay(axes, subject):
    ratio = find_ratio(subject.drawn)
    for inv_freq, style in subject.series:
        distance, _, _, mean, low, high = find_decay(inv_freq, subject.reach, ratio)
        axes.fill_between(distance, low, high, color=style["color"], alpha=0.2, linewidth=0)
        axes.plot(distance, mean, **style)
    mark_contexts(subject, axes.axvline)
    axes.set(title="a  Decay of ⟨Rₘq, Rₙk⟩ with distance, all-ones q and k", xscale="log", xlim=(1, subject.reach),
             ylabel="score / score at distance 0",
             xlabel=f"distance {'m − n, n = 0' if subject.reference == 'hf_f32' else '|m − n|'} (tokens); "
                    f"mean and 90 % band, over distances within ±{100 * (ratio**0.5 - 1):.0f} %")
    axes.legend()


def draw_wavelengths(axes, subject):
    for inv_freq, style in subject.series:
        wavelengths = find_wavelengths(inv_freq)
        axes.plot(np.where(wavelengths < 1e300, wavelengths, np.nan), marker="." * (subject.n_pairs <= 64), **style)
    mark_contexts(subject, axes.axhline)
    tokens = subject.trained or subject.context
    n_slow = np.count_nonzero(find_wavelengths(subject.inv_freq) > tokens)
    axes.set(title="b  Wavelength of each pair", yscale="log", ylabel="2π / inv_freq (tokens)", xlabel=
             f"pair k; less than one turn in {say(tokens)} tokens: {say(n_slow)} of {say(subject.n_pairs)} pairs")
    axes.legend()


def draw_angles(axes, subject):
    edges = float(subject.reach) ** (np.arange(145) / 144)
    cells = find_cells(subject.drawn, subject.reach)
    shown = "" if len(cells) == subject.n_pairs else f" ({len(cells)} of {say(subject.n_pairs)} shown)"
    axes.set_facecolor("#8e8e8e")
    mesh = axes.pcolormesh(edges, np.linspace(-0.5, subject.n_pairs - 0.5, len(cells) + 1), cells, cmap="twilight",
                           vmin=0, vmax=1, rasterized=True)
    mark_contexts(subject, axes.axvline)
    axes.set(title="c  Angle position × inv_freq, modulo 2π", xscale="log", xlim=(1, subject.reach),
             xlabel="position (tokens); grey: over a third of a turn in a cell", ylabel=f"pair k{shown}")
    axes.grid(False)
    axes.figure.colorbar(mesh, ax=axes, ticks=[0, 0.5, 1]).ax.set_yticklabels(["0", "π", "2π"])


def draw(description: Mapping[str, Any], reference: str = "exact") -> Figure:
    """The figure. description: what `halyard frequencies` prints; reference: whose rounding turns, exact or hf_f32."""
    subject = Subject(description, reference)
    with matplotlib.rc_context(STYLE):
        figure = Figure((13.3, 11), dpi=72, layout="constrained", label=make_title(subject))
        figure.suptitle(f"{make_title(subject)}\n{textwrap.fill(make_subtitle(subject), 120)}")
        panels = figure.subplot_mosaic([[draw_decay, draw_decay], [draw_wavelengths, draw_angles]])
        for draw_panel, axes in panels.items():
            draw_panel(axes, subject)
    return figure


def find_format(path):
    ending = "svg" if path == "-" else os.path.splitext(path)[1][1:].lower()
    if ending not in NO_DATE:
        raise ValueError(f"'{path}' has to end in .svg, .png or .pdf, which says what the picture is")
    return ending


def write(figure: Figure, path: str) -> None:
    """Writes a file, the same for the same figure, by its ending. "-" is an SVG to the standard output."""
    ending, data = find_format(path), io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(data, format=ending, dpi=144, metadata={"Title": figure.get_label()} | NO_DATE[ending])
    try:
        with open(sys.stdout.fileno() if path == "-" else path, "wb", closefd=path != "-") as file:
            file.write(data.getvalue())
    except OSError as error:
        name = "to the standard output" if path == "-" else f"'{path}'"
        raise OSError(error.errno, f"can't write {name}: {error.strerror}") from None


class Parser(argparse.ArgumentParser):  # complains as the tool does
    def error(self, message):
        self.exit(2, f"halyard: {message}\n")


def add_options(parser):
    parser.add_argument("-o", "--output", metavar="FILE", required=True,
                        help="the picture, by its ending: .svg, .png or .pdf; - is an SVG to the standard output")
    parser.add_argument("--reference", choices=("exact", "hf_f32"), default="exact",
                        help="whose rounding: exact, or hf_f32 as Hugging Face's float32 [exact]")


def run(parser, output, make_figure):
    """A command whose options were read: a picture, or one sentence."""
    try:
        find_format(output)
    except ValueError as error:
        parser.error(f"--output: {error}")
    try:
        write(make_figure(), output)
    except (OSError, TypeError, ValueError) as error:
        name = f"can't read '{error.filename}': " if getattr(error, "filename", None) else ""
        parser.exit(1, f"halyard: {name}{getattr(error, 'strerror', None) or error}\n")


if __name__ == "__main__":
    script = Parser(add_help=False, allow_abbrev=False)  # ./run has the help
    add_options(script)
    given, others = script.parse_known_args(sys.argv[2:])
    done = subprocess.run([sys.argv[1], "frequencies", *others], stdout=subprocess.PIPE)
    if done.returncode != 0:
        sys.exit(done.returncode)
    run(script, given.output, lambda: draw(json.loads(done.stdout), given.reference))
