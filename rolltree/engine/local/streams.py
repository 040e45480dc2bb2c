"""Counter-based randomness: the n-th number of a request's stream is a hash of its key and n.

No state is kept, so a sample never depends on what else is in the batch, on pauses or on the order of steps. The hash
is SplitMix64 (Steele, Lea and Flood, "Fast Splittable Pseudorandom Number Generators", OOPSLA 2014), computed for the
whole batch at once.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GAMMA = np.uint64(0x9E3779B97F4A7C15)
_MASK = (1 << 64) - 1


def _mix(z: Keys) -> Keys:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def stream_key(seed: int) -> int:
    """Key of the stream of any integer; hashed twice so that streams of neighbouring seeds do not overlap."""
    key = np.array([seed < 0], dtype=np.uint64)
    rest = seed
    while True:
        key = _mix((key ^ np.uint64(rest & _MASK)) + _GAMMA)
        rest >>= 64
        if rest in (0, -1):
            return int(_mix(key ^ np.uint64(0xD6E8FEB86659FD93))[0])


def passed_over(key: int, count: int) -> int:
    """Key of the stream that begins with the count-th number of another one: their counters differ by a constant."""
    return (key + count * int(_GAMMA)) & _MASK


def uniforms(keys: Keys, counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) per key: the counter-th of its stream, 53 bits."""
    z = _mix(keys + (counters.astype(np.uint64) + np.uint64(1)) * _GAMMA)
    return (z >> np.uint64(11)).astype(np.float64) * 2.0**-53
