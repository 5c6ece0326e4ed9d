"""Concatenation of pieces of a buffer. Pure."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


def without_gaps(
    buffer: NDArray[np.uint8], positions: NDArray[np.int64], sizes: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """A copy of only the pieces, which must be in ascending order in `buffer`."""
    bounds = np.empty(2 * len(positions) + 1, np.int32)
    bounds[:-1:2] = positions
    bounds[1::2] = positions + sizes
    bounds[-1] = bounds[-2]
    pieces = pa.Array.from_buffers(
        pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(buffer)]
    )
    records = pieces.take(pa.array(np.arange(0, len(bounds) - 1, 2)))
    return np.frombuffer(records.buffers()[2], np.uint8, int(sizes.sum()))
