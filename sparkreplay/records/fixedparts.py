"""The fixed parts of a chunk's records as whole columns, for any mixture of IPv4 and IPv6 hosts.

Invariant: fields are read by the layouts of `messagestore.record`, and each record by the layout for its kinds of hosts.
Nothing here refers to the chunk's buffer."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from messagestore.record import FIXED_FIELDS, FIXED_PARTS
from sparkreplay.records.hosts import host_text

NUMPY_TYPES = {"i": ">i4", "I": ">u4", "q": ">i8"}
IPV6_SHIFT = 4
"""The position in sysFlag of the two bits for IPv6 hosts."""


def layout(hosts: int) -> np.dtype[np.void]:
    """The layout for the two bits: 1 for an IPv6 born host, 2 for an IPv6 store host. A host stays raw bytes."""
    sizes = {"born_host": 20 if hosts & 1 else 8, "store_host": 20 if hosts & 2 else 8}
    fields = [
        (name, f"V{sizes[name]}" if kind == "host" else NUMPY_TYPES[kind]) for name, kind in FIXED_FIELDS
    ]
    made = np.dtype(fields)
    assert made.itemsize == FIXED_PARTS[hosts].size
    return made


LAYOUTS = tuple(layout(hosts) for hosts in range(4))
SHORTEST = FIXED_PARTS[0].size


class FixedParts:
    """The fixed parts of records that begin at `positions` and end at `ends`. `short` marks records that are shorter than
    their header."""

    def __init__(
        self, data: NDArray[np.uint8], positions: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        self.count = len(positions)
        whole = ends - positions >= SHORTEST
        safe = positions if whole.all() else np.where(whole, positions, 0)
        if len(data) < SHORTEST:
            data = np.zeros(SHORTEST, np.uint8)
        plain = gathered(data, safe, 0)
        hosts = plain["sys_flag"].astype(np.int32) >> IPV6_SHIFT & 3
        self.sizes: NDArray[np.int64] | int = SHORTEST
        self.groups: list[tuple[NDArray[np.int64] | slice, NDArray[np.void]]] = [(slice(None), plain)]
        self.short = ~whole
        if hosts.any():
            sizes = np.array([part.size for part in FIXED_PARTS])[hosts]
            self.sizes = sizes
            self.short |= ends - positions < sizes
            kept = np.where(self.short, 0, hosts)
            self.groups = []
            for kind in np.unique(kept).tolist():
                rows = np.flatnonzero(kept == kind)
                self.groups.append((rows, gathered(data, safe[rows], kind)))

    def native(self, name: str) -> NDArray[Any]:
        """One number of every record, in the machine's byte order."""
        first = self.groups[0][1][name]
        kind = first.dtype.newbyteorder("=")
        if len(self.groups) == 1:
            return first.astype(kind)
        out = np.empty(self.count, kind)
        for rows, fields in self.groups:
            out[rows] = fields[name]
        return out

    @cached_property
    def order(self) -> NDArray[np.int64]:
        """Each record's index in the concatenated groups."""
        out = np.empty(self.count, np.int64)
        out[np.concatenate([np.arange(self.count)[rows] for rows, _ in self.groups])] = np.arange(self.count)
        return out

    def hosts(self, name: str) -> pa.Array:
        """`ip:port` of every record; the few distinct hosts of a chunk are formatted once each."""
        texts = [host_texts(fields[name]) for _, fields in self.groups]
        return texts[0] if len(texts) == 1 else pa.concat_arrays(texts).take(pa.array(self.order))


def gathered(data: NDArray[np.uint8], positions: NDArray[np.int64], kind: int) -> NDArray[np.void]:
    """A copy of the fixed parts at `positions`, which must all lie inside `data`."""
    size = LAYOUTS[kind].itemsize
    everywhere = np.ndarray(len(data) - size + 1, f"V{size}", data, 0, (1,))
    return everywhere[positions].view(LAYOUTS[kind])


def host_texts(raw: NDArray[np.void]) -> pa.Array:
    size = raw.dtype.itemsize
    packed = pa.Array.from_buffers(
        pa.binary(size), len(raw), [None, pa.py_buffer(np.ascontiguousarray(raw).view(np.uint8))]
    )
    coded = packed.dictionary_encode()
    texts = [host_text(value) for value in coded.dictionary.to_pylist()]
    return pa.array(texts, pa.string()).take(coded.indices)
