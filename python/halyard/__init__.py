"""Halyard: rotary position embedding (RoPE), accurate at every position and as fast as memory allows.

    >>> import halyard, numpy as np
    >>> angles = halyard.AngleSource(halyard.Frequencies.from_base(10000.0, 4))
    >>> q = np.array([[[1, 1, 0, 0]]] * 3, np.float32)      # 3 tokens, 1 head, head_dim 4: pairs (1, 0), (1, 0)
    >>> halyard.rotate(q, angles=angles).round(5)[:, 0]     # positions 0, 1, 2
    array([[ 1.     ,  1.     ,  0.     ,  0.     ],
           [ 0.5403 ,  0.99995,  0.84147,  0.01   ],
           [-0.41615,  0.9998 ,  0.9093 ,  0.02   ]], dtype=float32)

Make ``Frequencies`` (from a base, a list or a model's config), then an ``AngleSource``, shared by all layers, and call
``rotate`` with CPU arrays of NumPy, PyTorch, JAX or any other library that speaks DLPack. Nothing is copied. The C
ABI's header, ``halyard/halyard.h``, defines frequencies, pairings and angle sources to the bit. In the help of
arguments, [brackets] hold the default or a shape.

An argument that Halyard refuses raises ``halyard.Error``, a ValueError, before anything is written. An argument that
should be an array but is none raises TypeError.

Objects never change, and any number of threads may use them; calls release the GIL while kernels run.

If the package was built with CUDA (HALYARD_BUILD_CUDA), the tensors of ``rotate`` may lie on a CUDA device. All other
arrays must then lie on the same device, except ``scale``, which stays in host memory. ``rotate`` enqueues its work on
the current stream of the tensors' library and does not wait for it. So the values of positions and slots raise no
errors. With bad_position "error", a token at a position that the AngleSource does not cover rotates as at position 0
and is not stored in a cache. A slot outside the cache counts as -1 (not stored). duplicate_slots must be "last", but if
several tokens have the same slot, each element of the slot may come from any of them. ``halyard_cuda.h`` lists the
stages that GPUs have. threads is ignored.
"""

from ._angles import AngleSource
from ._calls import convert, prepare, rerotate, rotate
from ._core import Error, version as __version__
from ._frequencies import Frequencies, QScale
from ._library import Target, explain, targets
from ._tensor import Cache, CacheLayout, DynamicScale, Groups, Norm, Tensor

__all__ = ["AngleSource", "Cache", "CacheLayout", "DynamicScale", "Error", "Frequencies", "Groups", "Norm", "QScale",
           "Target", "Tensor", "convert", "explain", "prepare", "rerotate", "rotate", "targets"]
