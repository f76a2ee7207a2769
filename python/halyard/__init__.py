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
TypeError.

Objects never change, and any number of threads may use them; calls release the interpreter's lock.

Tensors of ``rotate`` may lie on a CUDA device where the package was built for that (HALYARD_BUILD_CUDA), and then all
arrays do but scales. The work is enqueued on the stream that their library works on, and not waited for, so what
positions and slots hold is not checked: a position that is not covered is taken for 0, and a slot that is not there for
-1; duplicate_slots has to be "last", which mixes the elements of such tokens. What halyard_cuda.h says of the KV
path holds; threads is not looked at.
"""

from ._angles import AngleSource
from ._calls import convert, prepare, rerotate, rotate
from ._core import Error, version as __version__
from ._frequencies import Frequencies, QScale
from ._library import Target, explain, targets
from ._tensor import Cache, CacheLayout, DynamicScale, Groups, Norm, Tensor

__all__ = ["AngleSource", "Cache", "CacheLayout", "DynamicScale", "Error", "Frequencies", "Groups", "Norm", "QScale",
           "Target", "Tensor", "convert", "explain", "prepare", "rerotate", "rotate", "targets"]
