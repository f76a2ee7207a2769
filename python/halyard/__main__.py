"""python -m halyard plot: what ./run plot draws, of the package's own frequencies."""

import argparse
import sys

from . import Frequencies

try:
    import numpy as np

    from . import plot
except ImportError as missing:
    sys.exit(f"halyard: plots need matplotlib: pip install 'halyard[plot]' ({missing})")


def add_frequencies(command: argparse.ArgumentParser) -> None:
    source = command.add_mutually_exclusive_group(required=True)
    source.add_argument("--rotary-dim", type=int, metavar="N", help="twice the number of pairs, of --base")
    source.add_argument("--inv-freq", metavar="FILE", help="or: inverse frequencies, .npy, [rotary_dim / 2]")
    source.add_argument("--config", metavar="FILE", help="or: a model's Hugging Face config.json")
    command.add_argument("--base", type=float, help="inv_freq[k] = BASE^(-2k / rotary_dim), with --rotary-dim [10000]")
    command.add_argument("--attention-factor", type=float, help="what results are multiplied by, with --inv-freq [1]")
    command.add_argument("--seq-len", type=int, metavar="N", help="context length in tokens, with --config")
    command.add_argument("--layer-type", metavar="NAME", help="whose frequencies, with --config")


def make_frequencies(options: argparse.Namespace) -> Frequencies:
    if options.config is not None:
        return Frequencies.from_config(options.config, seq_len=options.seq_len or 0, layer_type=options.layer_type)
    if options.inv_freq is not None:
        factor = 1.0 if options.attention_factor is None else options.attention_factor
        return Frequencies.from_list(np.load(options.inv_freq), factor)
    return Frequencies.from_base(10000.0 if options.base is None else options.base, options.rotary_dim)


def main() -> None:
    parser = plot.Parser(prog="python -m halyard", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    command = commands.add_parser("plot", allow_abbrev=False, help="draw how q·k decays with distance, the wavelengths "
                                  "of the pairs, and their angles by position")
    plot.add_options(command)
    add_frequencies(command)
    options = parser.parse_args()
    for name, source in (("base", "rotary_dim"), ("attention_factor", "inv_freq"), ("seq_len", "config"),
                         ("layer_type", "config")):
        if getattr(options, name) is not None and getattr(options, source) is None:
            command.error(f"--{name} needs --{source}".replace("_", "-"))
    plot.run(command, options.output, lambda: plot.draw(
        plot.describe(make_frequencies(options), options.seq_len), options.reference))


if __name__ == "__main__":
    main()
