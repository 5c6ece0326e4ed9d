"""Find the record boundaries in a chunk of log. Many walkers, each a position in the chunk, move together: one NumPy step moves
each walker by one record.

Invariant: the result is exactly that of a walk record by record from the chunk's beginning. The first walker starts at a known
boundary; the others start at places that only look like records. Each walker must end exactly where the next walker started, so
every start is reached from the known boundary by record sizes alone. If a walker misses the next start, the result is None.
Pure."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from messagestore.record import MAGIC_V1, MAGIC_V2, PHYSICAL_OFFSET, PHYSICAL_OFFSET_AT, RECORD_SIZE_MIN

STEPS_MAX = 1024
"""Limit per chunk. Uneven strips (a few large records among many small ones) are walked faster record by record."""
STEPS_BETWEEN_CHECKS = 4
MAGICS_BEGIN = MAGIC_V1.to_bytes(4, "big")[:3]
MAGIC_AT = 4
PREFIX_BYTES = 8


def boundaries_in_step(
    buffer: bytes | bytearray, held: int, offset: int, *, strip_bytes: int, size_max: int
) -> NDArray[np.int64] | None:
    """Where records begin in `buffer[:held]`, whose first byte is a boundary at physical offset `offset`.

    The last place is a boundary too, but its content is not examined. None means that the caller must walk the records one by
    one. A walker's share is about `strip_bytes`: more walkers need more searching, fewer walkers more steps. Records are at
    most `size_max` long."""
    starts = likely_records(buffer, held, offset, strip_bytes)
    if len(starts) < 2:
        return None
    words = np.ndarray(held - PREFIX_BYTES + 1, ">u8", buffer, 0, (1,))  # at every byte: size and magic
    goals, limit = starts[1:], int(starts[-1])
    at = starts[:-1]
    places, prefixes = [], []
    for step in range(STEPS_MAX):
        prefix = words[at].astype(np.uint64)
        places.append(at)
        prefixes.append(prefix)
        at = np.minimum(at + (prefix >> 32).astype(np.int64), limit + 1)  # no walker ends beyond the limit
        if step % STEPS_BETWEEN_CHECKS == 0 and (at >= goals).all():
            break
    else:
        return None
    places.append(at)
    paths = np.array(places).T  # a row for each walker, its places in order
    walked = paths < goals[:, None]
    landed = paths[np.arange(len(goals)), walked.sum(1)]
    if not (landed == goals).all():
        return None
    found = np.array(prefixes).T[walked[:, :-1]]
    magics, sizes = found & 0xFFFFFFFF, found >> 32
    good = ((magics == MAGIC_V1) | (magics == MAGIC_V2)) & (sizes >= RECORD_SIZE_MIN) & (sizes <= size_max)
    if not good.all():
        return None
    return np.append(paths[walked], limit)


def likely_records(buffer: bytes | bytearray, held: int, offset: int, strip_bytes: int) -> NDArray[np.int64]:
    """The chunk's first record, and about one place in each strip with a magic and its own physical offset."""
    starts = [0]
    find, physical_offset = buffer.find, PHYSICAL_OFFSET.unpack_from
    last = held - RECORD_SIZE_MIN
    for strip in range(strip_bytes, last, strip_bytes):
        strip_end = min(strip + strip_bytes, last)
        place = find(MAGICS_BEGIN, strip + MAGIC_AT, strip_end) - MAGIC_AT
        while place > 0:
            if physical_offset(buffer, place + PHYSICAL_OFFSET_AT)[0] == offset + place:
                starts.append(place)
                break
            place = find(MAGICS_BEGIN, place + MAGIC_AT + 1, strip_end) - MAGIC_AT
    return np.array(starts, np.int64)
