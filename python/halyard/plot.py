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
import math
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import matplotlib
import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import NullFormatter

ASSUMED_CONTEXT = 4096
WIDTH, HEIGHT = 960, 790  # a figure has 72 dots per inch, so that points are pixels

# Okabe and Ito's colours, which the colour-blind can tell apart (jfly.uni-koeln.de/color): blue and vermilion. Where
# pages are dark, browsers show an SVG in DARK's: sky blue and orange.
PAGE, INK, NOTE, EDGE, GRID = "#ffffff", "#222222", "#555555", "#444444", "#e4e4e4"
USED, UNSCALED, FAST = "#0072b2", "#d55e00", "#8e8e8e"
DARK = {PAGE: "#16181b", INK: "#e8e8e8", NOTE: "#b0b0b0", EDGE: "#b0b0b0", GRID: "#2e3236", USED: "#56b4e9",
        UNSCALED: "#e69f00"}
MARK = {"color": INK, "linewidth": 1.2, "linestyle": (0, (2, 3))}
STYLE = {
    "font.family": "DejaVu Sans", "font.size": 12, "legend.fontsize": 11.5, "text.color": INK, "axes.labelcolor": INK,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "xtick.color": EDGE, "ytick.color": EDGE, "axes.edgecolor": EDGE,
    "axes.linewidth": 1, "axes.facecolor": "none", "grid.color": GRID, "grid.linewidth": 1, "axes.axisbelow": True,
    "xtick.major.size": 6, "ytick.major.size": 6, "xtick.minor.size": 3, "ytick.minor.size": 3, "lines.linewidth": 1.8,
    "legend.frameon": False, "svg.fonttype": "none", "svg.hashsalt": "halyard", "pdf.fonttype": 42}


def describe(frequencies: Any, seq_len: int | None = None) -> dict[str, Any]:
    """What `halyard frequencies` prints, as far as `draw` reads it. seq_len: as from_config was called with it."""
    names = "inv_freq", "attention_factor", "method", "base", "original_max_position", "max_position"
    known = {name: getattr(frequencies, name) for name in names} | {"seq_len": seq_len}
    return {name: value for name, value in known.items() if value is not None}


# ---- Numbers ---------------------------------------------------------------------------------------------------------


class Series:
    """Frequencies, and whose rounding turns by them: the reference is exact or hf_f32."""

    def __init__(self, inv_freq, reference="exact", label="inv_freq", colour=USED, dashes="-"):
        self.inv_freq = np.asarray(inv_freq, np.float32 if reference == "hf_f32" else np.float64)
        self.label, self.style = label, {"color": colour, "linestyle": dashes}

    def angles(self, positions, pairs=slice(None)):
        """In radians, [positions, pairs]."""
        inv_freq = self.inv_freq[pairs]
        return np.multiply.outer(np.asarray(positions).astype(inv_freq.dtype), inv_freq).astype(np.float64)


class Subject:
    """What there is to draw."""

    def __init__(self, description, reference):
        self.description, self.method, self.reference = description, description["method"], reference
        self.inv_freq = np.array(description["inv_freq"], np.float64)
        self.n_pairs = len(self.inv_freq)
        is_scaled = self.method not in ("default", "list")
        self.series = [Series(self.inv_freq, reference, self.method if is_scaled else "inv_freq")]
        if is_scaled:
            powers = description["base"] ** (-np.arange(self.n_pairs) / self.n_pairs)
            self.series.append(Series(powers, reference, "unscaled, same base", UNSCALED, (0, (4, 2))))
        self.seq_len, trained = description.get("seq_len"), description.get("original_max_position", 0)
        stated = max(trained, description.get("max_position", 0), self.seq_len or 0)
        self.is_stated, self.context = stated != 0, stated or ASSUMED_CONTEXT  # in tokens
        self.trained = trained if trained < stated else 0  # 0 where it is not known, or the context
        self.reach = max(self.context, 16)  # where axes end, which need some length


def find_ratio(inv_freq):
    """By how much one pair turns faster than the next, on average. Where neighbours come into step, a turn apart, the
    score rises: a wave that returns whenever the distance has grown by this factor."""
    speeds = np.abs(inv_freq[inv_freq != 0], dtype=np.float64)
    with np.errstate(over="ignore"):
        ratio = (speeds.max() / speeds.min()) ** (1 / (len(speeds) - 1)) if len(speeds) > 1 else 1
    return float(np.clip(ratio, 1.1, 1.4))


def find_scores(series, distances):
    """⟨R_m q, R_n k⟩ of all-ones q and k, relative to that at distance 0: the mean of the pairs' cosines."""
    n_at_once = max(2**20 // len(series.inv_freq), 1)
    parts = (distances[i:i + n_at_once] for i in range(0, len(distances), n_at_once))
    return np.concatenate([np.cos(series.angles(part)).mean(1) for part in parts])


def sample_distances(n_pairs, reach, ratio):
    """Every distance, as long as they are not many in a window; further on some, spread evenly."""
    n_most = max(2**26 / n_pairs, 256)  # so that a head as wide as the library allows takes seconds, not hours
    step = max(ratio ** (1 / 1024), reach ** (1 / n_most))
    samples, distance = [], 1.0
    while distance <= reach:
        following = max(distance + 1, distance * step // 1)
        part = (len(samples) + 1) * (1 + 5**0.5) / 2 % 1  # multiples of the golden ratio are in step with no frequency
        samples.append(min(distance + part * (following - distance) // 1, reach))
        distance = following
    return np.array(samples)


def find_decay(series, reach, ratio, n_points=300):
    """The scores around points of the curve, from one wave to the next: columns of distance, the first and the last
    distance around it, their mean score, and the bounds of nine tenths of them. A mean over whole waves shows the
    decay; scores of single distances would show which of these were drawn."""
    samples = sample_distances(len(series.inv_freq), reach * ratio**0.5, ratio)
    scores, points, distance = find_scores(series, samples), [], 1.0
    while True:
        first, last = np.ceil(distance / ratio**0.5), np.floor(distance * ratio**0.5)
        begin = min(np.searchsorted(samples, first), len(samples) - 1)
        around = np.sort(scores[begin:max(np.searchsorted(samples, last, "right"), begin + 1)])
        n_out = len(around) // 20
        points.append((distance, first, last, around.mean(), around[n_out], around[-1 - n_out]))
        if distance >= reach:
            return np.array(points).T
        distance = min(max(distance + 1, distance * reach ** (1 / n_points) // 1), reach)


def find_wavelengths(inv_freq):
    """In tokens; infinite for a pair that does not turn."""
    with np.errstate(divide="ignore", over="ignore"):
        return 2 * np.pi / np.abs(inv_freq, dtype=np.float64)


def find_cells(series, reach, n_rows=64, n_columns=144):
    """The part of a turn, 0 … 1, of some pairs at positions from 1 to reach, [rows, columns]; masked where a pair makes
    more than a third of a turn within a cell, whose colour would mean nothing."""
    n_rows = min(n_rows, len(series.inv_freq))
    pairs = (2 * np.arange(n_rows) + 1) * len(series.inv_freq) // (2 * n_rows)
    edges = float(reach) ** (np.arange(n_columns + 1) / n_columns)
    positions = float(reach) ** ((np.arange(n_columns) + 0.5) / n_columns)
    fast = np.multiply.outer(np.diff(edges), np.abs(series.inv_freq[pairs], dtype=np.float64)) > 2 * np.pi / 3
    return np.ma.masked_array(series.angles(positions, pairs) / (2 * np.pi) % 1, fast).T


def make_colours(n_colours=256):
    """A colour for each part of a turn: an ellipse in Oklab (bottosson.github.io/posts/oklab) through light, blue, dark
    and yellow. Its ends meet, neighbours differ about alike, and most colour-blind people see blue against yellow as
    others do."""
    turn = 2 * np.pi * (np.arange(n_colours) + 0.5) / n_colours
    lab = np.array([0.60 + 0.32 * np.cos(turn), -0.02 * np.sin(turn), -0.135 * np.sin(turn)])
    lms = np.array([[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728],
                    [1, -0.0894841775, -1.2914855480]]) @ lab
    linear = np.array([[4.0767416621, -3.3077115913, 0.2309699292], [-1.2684380046, 2.6097574011, -0.3413193965],
                       [-0.0041960863, -0.7034186147, 1.7076147010]]) @ lms**3
    linear = linear.clip(0, 1)
    rgb = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return ListedColormap(rgb.T).with_extremes(bad=FAST)


# ---- Words -----------------------------------------------------------------------------------------------------------


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
        error = np.abs(subject.series[0].angles([last])[0] - last * subject.inv_freq).max()
        text += f" Float32 angles, up to {error:.2g} rad from exact ones at position {say(last)}."
    if n_still := np.count_nonzero(subject.inv_freq == 0):
        text += f" {say(n_still)} of {say(subject.n_pairs)} pairs do not turn."
    return text


def name_contexts(subject):
    yield subject.context, f"context {say(subject.context)}" + ("" if subject.is_stated else " (assumed)")
    if subject.trained:
        yield subject.trained, f"trained on {say(subject.trained)}"


# ---- The picture -----------------------------------------------------------------------------------------------------


def add_axes(figure, left, top, right, bottom):
    """At these pixels of the page."""
    return figure.add_axes((left / WIDTH, 1 - bottom / HEIGHT, (right - left) / WIDTH, (bottom - top) / HEIGHT))


def add_text(figure, x, y, words, **style):
    return figure.text(x / WIDTH, 1 - y / HEIGHT, words, **style)


def add_panel(figure, left, top, right, bottom, letter, name):
    for x, words in (left - 54, letter), (left, name):
        add_text(figure, x, top - 40, words, size=14, weight="bold")
    return add_axes(figure, left, top, right, bottom)


def add_note(axes, words, at, offset, coords="axes fraction", **style):
    """offset: in pixels, from a place in these coordinates."""
    return axes.annotate(words, at, offset, coords, "offset points", annotation_clip=False,
                         **{"color": NOTE, "size": 11.5} | style)


def set_log(axis, first, last, n_most):
    """Ticks at powers of ten, at most n_most, with short ones between where there is space for them. matplotlib's own
    would try powers beyond the greatest double, of an axis that comes near it."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log", f"{axis.axis_name}lim": (first, last)})
    exponents = range(math.ceil(math.log10(first) - 1e-9), math.floor(math.log10(last) + 1e-9) + 1)
    step = (len(exponents) - 1) // n_most + 1
    raised = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")
    labels = {10.0**each: "10" + str(each).translate(raised) for each in exponents[::step]}
    axis.set_ticks(list(labels), labels.values())
    between = (digit * 10.0**each for each in exponents for digit in range(2, 10) if step == 1)
    axis.set_ticks([each for each in between if each <= last], minor=True)
    axis.set_minor_formatter(NullFormatter())


def set_pairs(axis, n_pairs):
    """Ticks at multiples of a power of two, as head sizes are."""
    axis.axes.set(**{f"{axis.axis_name}lim": (-0.5, n_pairs - 0.5)})
    ticks = range(0, n_pairs, 1 << max((n_pairs - 1).bit_length() - 2, 0))
    axis.set_ticks(ticks, map(say, ticks))


def mark_contexts(axes, subject, **style):
    """Vertical lines at the context lengths, their names above the frame, where there are no data: each ends at its
    line, in two rows where one has no space for both."""
    coords, left = ("data", "axes fraction"), -np.inf
    for tokens, words in reversed(list(name_contexts(subject))):
        axes.axvline(tokens, clip_on=False, **MARK | style)
        note = add_note(axes, words, (tokens, 1), (-4, 5), coords, ha="right")
        height = 18 if note.get_window_extent().x0 < left + 8 else 5
        note.set_position((-4, height))
        add_note(axes, "", (tokens, 1), (0, height + 9), coords,
                 arrowprops={"arrowstyle": "-", "color": EDGE, "shrinkA": 0, "shrinkB": 0})
        left = axes.transData.transform((tokens, 0))[0]


def draw_decay(figure, subject):
    axes = add_panel(figure, 70, 126, 936, 350, "a", "Decay of ⟨Rₘq, Rₙk⟩ with distance, all-ones q and k")
    ratio, least = find_ratio(subject.series[0].inv_freq), 0
    set_log(axes.xaxis, 1, subject.reach, 16)
    for series in subject.series:
        distance, _, _, mean, low, high = find_decay(series, subject.reach, ratio)
        axes.fill_between(distance, low, high, color=series.style["color"], alpha=0.2, linewidth=0)
        axes.plot(distance, mean, label=series.label, clip_on=False, zorder=3, **series.style)
        least = min(least, low.min())
    quarters = np.arange(max(math.floor(least * 4), -4), 5)
    axes.set_ylim(quarters[0] / 4, 1)
    axes.set_yticks(quarters / 4, [f"{each / 4:g}".replace("-", "−") for each in quarters])
    axes.grid()
    axes.axhline(0, color=EDGE, linewidth=1)
    mark_contexts(axes, subject)
    axes.set(xlabel=f"distance {'m − n, n = 0' if subject.reference == 'hf_f32' else '|m − n|'} (tokens)",
             ylabel="score / score at distance 0")
    width = 100 * (ratio**0.5 - 1)
    add_note(axes, f"mean and 90 % band, over distances within ±{width:.0f} %", (1, 0), (0, -34), ha="right")
    if len(subject.series) > 1:
        axes.legend(loc="lower right", bbox_to_anchor=(1, 1 + 33 / 224), ncols=2, labelcolor=NOTE, borderaxespad=0)


def draw_wavelengths(figure, subject):
    axes = add_panel(figure, 70, 467, 440, 725, "b", "Wavelength of each pair")
    wavelengths = [find_wavelengths(series.inv_freq) for series in subject.series]
    finite = np.concatenate([each[np.isfinite(each)] for each in wavelengths])
    bottom = np.floor(np.log10(min([subject.context, *finite])) - 1e-9)
    top = np.ceil(np.log10(max([3 * subject.context, *finite])) + 1e-9)  # leaves space for a name above its line
    set_log(axes.yaxis, 10**bottom, 10 ** min(max(top, bottom + 1), 308), 10)
    set_pairs(axes.xaxis, subject.n_pairs)
    step = (subject.n_pairs - 1) // 512 + 1
    for each, series in zip(wavelengths, subject.series):
        dots = "o" if subject.n_pairs == 1 or subject.n_pairs <= 64 and series is subject.series[0] else ""
        axes.plot(np.arange(subject.n_pairs)[::step], np.where(np.isfinite(each), each, np.nan)[::step],
                  label=series.label, marker=dots, markersize=4, markeredgewidth=0, **series.style)
    axes.grid()
    heights = []
    for tokens, words in name_contexts(subject):
        axes.axhline(tokens, **MARK)
        heights.append(axes.transData.transform((0, tokens))[1])
        is_close = 0 < heights[0] - heights[-1] < 16
        add_note(axes, words, (0, tokens), (6, -12 if is_close else 4), ("axes fraction", "data"))
    tokens = subject.trained or subject.context
    add_note(axes, f"less than one turn in {say(tokens)} tokens: {say(np.count_nonzero(wavelengths[0] > tokens))} of "
             f"{say(subject.n_pairs)} pairs", (0, 1), (0, 5))
    if not np.isfinite(wavelengths[0]).any():
        add_note(axes, "No pair turns: every inv_freq is 0.", (0.5, 0.7), (0, 0), ha="center")
    axes.set(xlabel="pair k", ylabel="wavelength 2π / inv_freq (tokens)")
    if len(subject.series) > 1:
        axes.legend(loc="lower right", labelcolor=NOTE)


def draw_angles(figure, subject):
    axes = add_panel(figure, 530, 467, 862, 725, "c", "Angle position × inv_freq, modulo 2π")
    cells = find_cells(subject.series[0], subject.reach)
    image = {"cmap": make_colours(), "aspect": "auto", "origin": "lower", "interpolation": "none",
             "extent": (0, 1, 0, 1)}
    axes.imshow(cells, vmin=0, vmax=1, transform=axes.transAxes, **image)
    set_log(axes.xaxis, 1, subject.reach, 8)
    set_pairs(axes.yaxis, subject.n_pairs)
    if subject.trained:
        axes.axvline(subject.trained, color="#fefefe", linewidth=3, alpha=0.75)  # so that the mark shows on dark cells
    mark_contexts(axes, subject, color="black")
    shown = "" if len(cells) == subject.n_pairs else f" ({len(cells)} of {say(subject.n_pairs)} shown)"
    axes.set(xlabel="position (tokens)", ylabel=f"pair k{shown}")
    bar = add_axes(figure, 876, 467, 890, 692)
    bar.imshow(np.arange(256)[:, None], **image)
    bar.set_xticks([])
    bar.yaxis.tick_right()
    bar.tick_params(length=4)
    bar.set_yticks(np.arange(5) / 4, ["0", "π/2", "π", "3π/2", "2π"])
    figure.add_artist(Rectangle((876 / WIDTH, 1 - 725 / HEIGHT), 14 / WIDTH, 14 / HEIGHT, facecolor=FAST))
    add_text(figure, 897, 722, "faster*")
    add_text(figure, 936, 781, "* grey: more than a third of a turn within one cell of the picture", ha="right",
             size=11.5, color=NOTE)


def draw(description: Mapping[str, Any], reference: str = "exact") -> Figure:
    """The figure. description: what `halyard frequencies` prints; reference: whose rounding turns, exact or hf_f32."""
    subject = Subject(description, reference)
    with matplotlib.rc_context(STYLE):
        figure = Figure((WIDTH / 72, HEIGHT / 72), dpi=72, facecolor=PAGE, label=make_title(subject))
        add_text(figure, 16, 36, make_title(subject), size=19, weight="bold")
        subtitle = add_text(figure, 16, 60, make_subtitle(subject), size=11.5, color=NOTE)
        subtitle.set_size(11.5 * min((WIDTH - 32) / subtitle.get_window_extent().width, 1))
        draw_decay(figure, subject)
        draw_wavelengths(figure, subject)
        draw_angles(figure, subject)
    return figure


# ---- Files and the command -------------------------------------------------------------------------------------------


def find_format(path):
    ending = "svg" if path == "-" else os.path.splitext(path)[1][1:].lower()
    if ending not in ("svg", "png", "pdf"):
        raise ValueError(f"'{path}' has to end in .svg, .png or .pdf, which says what the picture is")
    return ending


def render(figure, ending):
    """The bytes of a file: the same for the same figure."""
    no_date = {"svg": {"Date": None}, "png": {"Software": None}, "pdf": {"CreationDate": None}}[ending]
    with matplotlib.rc_context(STYLE), io.BytesIO() as file:
        figure.savefig(file, format=ending, dpi=144, metadata={"Title": figure.get_label()} | no_date)
        data = file.getvalue()
    if ending != "svg":
        return data
    text = re.sub(r'width="([\d.]+)pt" height="([\d.]+)pt"', r'width="\1" height="\2"', data.decode(), count=1)
    rules = "".join(f'[style*="{what}: {light}"] {{{what}: {dark} !important}}\n' for light, dark in DARK.items()
                    for what in ("fill", "stroke"))
    return text.replace("</style>", '\ntext {font-family: system-ui, "Helvetica Neue", Arial, sans-serif !important}\n'
                        f"@media (prefers-color-scheme: dark) {{\n{rules}}}</style>", 1).encode()


def replace_file(path, data):
    path = os.path.realpath(path)  # a link stays one
    if os.path.exists(path):
        open(path, "r+b").close()  # a rename would replace what its owner has protected
    temporary = f"{path}.{os.getpid()}"
    try:
        with open(temporary, "xb") as file:
            file.write(data)
        os.replace(temporary, path)
    except OSError:
        if os.path.exists(temporary):
            os.unlink(temporary)
        raise


def write(figure: Figure, path: str) -> None:
    """Writes a file whole or not at all; its ending says which format it has. "-" is an SVG to the standard output."""
    data = render(figure, find_format(path))
    try:
        if path == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            replace_file(path, data)
    except OSError as error:
        name = "to the standard output" if path == "-" else f"'{path}'"
        raise OSError(error.errno, f"can't write {name}: {error.strerror}") from None


class Parser(argparse.ArgumentParser):
    """Complains as the tool does."""

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


def ask(tool, arguments):
    done = subprocess.run([tool, "frequencies", *arguments], stdout=subprocess.PIPE)
    return json.loads(done.stdout) if done.returncode == 0 else sys.exit(done.returncode)


if __name__ == "__main__":
    script = Parser(add_help=False, allow_abbrev=False)  # ./run has the help
    add_options(script)
    given, others = script.parse_known_args(sys.argv[2:])
    run(script, given.output, lambda: draw(ask(sys.argv[1], others), given.reference))
