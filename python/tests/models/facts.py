"""What Halyard reads of a config, beside what a package's own class made of it."""

import json
import sys

import halyard
import torch


def read(text, layer_type=None, seq_len=0):
    """Frequencies, or the words of the refusal."""
    try:
        return halyard.Frequencies._wrap(halyard._core.Frequencies.from_config(text.encode(), seq_len, layer_type)), ""
    except halyard.Error as error:
        return None, str(error)


def describe(f):
    pairing = f.pairing if f.pairing == f.out_pairing else f"{f.pairing}, writes {f.out_pairing}"
    axes = "" if f.axis_map is None else f", axes {f.axis_map[0]}:" + ",".join(map(str, f.axis_map[1]))
    return f"{pairing} {f.rotary_dim} of {f.head_dim}, base {f.base:g}, {f.method}{axes}"


def facts_of(f, inv_freq=None):
    """With the first, middle and last of a package's own inverse frequencies, if they are given."""
    names = ("pairing", "out_pairing", "head_dim", "rotary_dim", "base", "method", "attention_factor")
    facts = {name: getattr(f, name) for name in names} | {"axis_map": f.axis_map and [f.axis_map[0], *f.axis_map[1]]}
    if inv_freq is not None:
        facts["inv_freq"] = [float(f"{float(inv_freq[i]):.9g}") for i in (0, len(inv_freq) // 2, -1)]
    return facts


def compare_held(frequencies, inv_freq, factor):
    """What is wrong with what Halyard read, or None."""
    own = torch.tensor(frequencies.inv_freq, dtype=torch.float64)
    if own.shape != inv_freq.shape:
        return f"{len(own)} pairs, but {len(inv_freq)}"
    if not torch.allclose(own.abs(), inv_freq, rtol=2e-6, atol=0):
        return "inv_freq differs"
    if abs(frequencies.attention_factor - factor) > 1e-6 * factor:
        return f"attention_factor {frequencies.attention_factor}, but {factor}"
    return None


def compare_turns(frequencies, positions, before, after, **options):
    """The same of q and k, before and after the package's own code turned them."""
    turned = halyard.rotate(*before, angles=halyard.AngleSource(frequencies), positions=positions.to(torch.int32),
                            pairing=frequencies.pairing, **options)
    return "q and k turn otherwise" if any((x - y).abs().max() > 1e-4 for x, y in zip(turned, after)) else None


def write_rows(path, rows):
    """A fixture of one row a line, if the command line asks for it."""
    if "--write" in sys.argv:
        lines = [json.dumps(row, sort_keys=True, allow_nan=False) for row in rows]
        path.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")
