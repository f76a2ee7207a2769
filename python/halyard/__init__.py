"""Halyard: rotary position embedding (RoPE), right at every position and as fast as memory, for arrays of any library.

    >>> import halyard, numpy as np
    >>> angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 4))
    >>> q = np.array([[[1, 1, 0, 0]]] * 3, np.float32)      # 3 tokens, 1 head of 4: pairs (1, 0) and (1, 0)
    >>> halyard.rotate(q, angles=angles).round(5)[:, 0]     # positions 0, 1, 2
    array([[ 1.     ,  1.     ,  0.     ,  0.     ],
           [ 0.5403 ,  0.99995,  0.84147,  0.01   ],
           [-0.41615,  0.9998 ,  0.9093 ,  0.02   ]], dtype=float32)

Make ``Frequencies`` (from a base, a list or a model's config), then an ``AngleSource``, shared by all layers, and call
``rotate`` with arrays of NumPy, PyTorch, JAX or whatever else speaks DLPack, on a CPU. Nothing is copied. What
frequencies, pairings and angle sources are, to the bit, is said in the C ABI's header, ``halyard/halyard.h``.

What Halyard refuses raises ``halyard.Error``, a ValueError, before anything is written; what is no array at all raises
TypeError. Objects never change, and any number of threads may use them; calls release the interpreter's lock.
"""

from ._angles import AngleSource
from ._convert import convert
from ._core import Error, version as __version__
from ._frequencies import Frequencies, QScale
from ._library import Target, explain, targets
from ._prepare import prepare
from ._rerotate import rerotate
from ._rotate import CacheLayout, DynamicScale, Groups, Norm, rotate

__all__ = ["AngleSource", "CacheLayout", "DynamicScale", "Error", "Frequencies", "Groups", "Norm", "QScale",
           "Target", "convert", "explain", "prepare", "rerotate", "rotate", "targets"]
