"""Records of a chunk as Arrow columns: whole columns at a time, never an object per message.

Invariant: nothing that is returned refers to the chunk's buffer."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from messagestore.record import (
    BORN_HOST_IPV6,
    CRC_MASK,
    FIXED_FIELDS,
    MAGIC_V2,
    STORE_HOST_IPV6,
    TRANSACTION_MASK,
)
from sparkreplay.bodies import decompressed
from sparkreplay.errors import LogCorrupted
from sparkreplay.hosts import host_text
from sparkreplay.properties import property_column, property_map
from sparkreplay.rowfilter import RowFilter
from sparkreplay.schema import TIMESTAMP, arrow_schema
from sparkreplay.topics import is_system_topic
from sparkreplay.walk import Chunk

NUMPY_TYPES = {"i": ">i4", "I": ">u4", "q": ">i8", "host": ">u8"}
FIXED = np.dtype([(name, NUMPY_TYPES[kind]) for name, kind in FIXED_FIELDS])
"""The part before the body as both hosts are IPv4: a host is its four bytes and its port, as one number."""
FIXED_BYTES = FIXED.itemsize
TRANSACTIONS = pa.array(["none", "prepared", "commit", "rollback"])


@dataclass(frozen=True)
class Selection:
    """Which records of the log become rows, and which of their columns."""

    columns: tuple[str, ...]
    topics: frozenset[str] | None = None
    queues: frozenset[int] | None = None
    committed_only: bool = True
    system_topics: bool = False
    check_crc: bool = False
    decompress: bool = True
    broker_name: str = ""
    epochs: tuple[tuple[int, int], ...] = field(default=())
    row_filter: RowFilter | None = None


def decode_chunk(chunk: Chunk, selection: Selection, path: str) -> pa.RecordBatch:
    """Raises LogCorrupted when a record's own lengths, place or CRC contradict it."""
    return ChunkColumns(chunk, selection, path).batch()


class ChunkColumns:
    """The columns of one chunk, each made when first asked for."""

    def __init__(self, chunk: Chunk, selection: Selection, path: str) -> None:
        self.chunk = chunk
        self.selection = selection
        self.path = path
        positions = chunk.positions
        self.ends = np.append(positions[1:], len(chunk.data))
        data = chunk.data
        if len(data) < positions[-1] + FIXED_BYTES:
            raise LogCorrupted(
                path, chunk.start_offset + int(positions[-1]), "the record is shorter than its header"
            )
        self.fixed = np.lib.stride_tricks.sliding_window_view(data, FIXED_BYTES)[positions].view(FIXED)[:, 0]
        self.sys_flag = self.fixed["sys_flag"].astype(np.int32)
        self.late = {name: self.fixed[name] for name, _ in FIXED_FIELDS}
        self.patch_ipv6()
        self.find_parts()
        self.rows = self.chosen_rows()

    def patch_ipv6(self) -> None:
        """Fields behind an IPv6 host stand 12 bytes later: those rows are read one by one (they are rare)."""
        self.header_bytes = np.full(len(self.fixed), FIXED_BYTES, np.int64)
        self.ipv6_hosts: dict[int, tuple[str | None, str | None]] = {}
        rows = np.flatnonzero(self.sys_flag & (BORN_HOST_IPV6 | STORE_HOST_IPV6))
        if not len(rows):
            return
        for name in (
            "store_timestamp",
            "store_host",
            "reconsume_times",
            "prepared_transaction_offset",
            "body_length",
        ):
            self.late[name] = self.late[name].copy()
        view = self.chunk.data.data
        for row in rows.tolist():
            at = int(self.chunk.positions[row]) + 48
            flags = int(self.sys_flag[row])
            born_size = 20 if flags & BORN_HOST_IPV6 else 8
            store_at = at + born_size + 8
            store_size = 20 if flags & STORE_HOST_IPV6 else 8
            rest = struct.Struct(">iqi")
            if store_at + store_size + rest.size > int(self.ends[row]):
                raise LogCorrupted(self.path, self.offset_of(row), "the record is shorter than its header")
            self.late["store_timestamp"][row] = struct.unpack_from(">q", view, at + born_size)[0]
            reconsume, prepared, body_size = rest.unpack_from(view, store_at + store_size)
            self.late["reconsume_times"][row] = reconsume
            self.late["prepared_transaction_offset"][row] = prepared
            self.late["body_length"][row] = body_size
            if store_size == 8:
                self.late["store_host"][row] = struct.unpack_from(">Q", view, store_at)[0]
            self.header_bytes[row] = FIXED_BYTES + (born_size - 8) + (store_size - 8)
            self.ipv6_hosts[row] = (
                host_text(view[at : at + 20]) if born_size == 20 else None,
                host_text(view[store_at : store_at + 20]) if store_size == 20 else None,
            )

    def offset_of(self, row: int) -> int:
        return self.chunk.start_offset + int(self.chunk.positions[row])

    def find_parts(self) -> None:
        """Where body, topic and properties of each record lie; lengths must add up to the record's size."""
        data, positions, ends = self.chunk.data, self.chunk.positions, self.ends
        last = len(data) - 1
        self.body_at = positions + self.header_bytes
        body_size = self.late["body_length"].astype(np.int64)
        self.body_end = self.body_at + body_size
        bad = (body_size < 0) | (self.body_end + 3 > ends)
        self.require(~bad, "the body is longer than the record")
        wide = self.fixed["magic"] == MAGIC_V2
        first = data[self.body_end].astype(np.int64)
        second = data[np.minimum(self.body_end + 1, last)].astype(np.int64)
        topic_size = np.where(wide, first << 8 | second, first)
        self.topic_at = self.body_end + np.where(wide, 2, 1)
        self.topic_end = self.topic_at + topic_size
        self.require(self.topic_end + 2 <= ends, "the topic is longer than the record")
        properties_size = data[self.topic_end].astype(np.int64) << 8 | data[self.topic_end + 1].astype(
            np.int64
        )
        self.properties_at = self.topic_end + 2
        self.require(
            self.properties_at + properties_size == ends, "its parts do not add up to the record's size"
        )
        here = self.chunk.start_offset + positions
        self.require(self.late["physical_offset"] == here, "the record names another physical offset")

    def require(self, good: NDArray[np.bool_], why: str) -> None:
        if not good.all():
            raise LogCorrupted(self.path, self.offset_of(int(np.argmin(good))), why)

    @cached_property
    def parts(self) -> pa.Array:
        """Six pieces a record (header, body, topic length, topic, properties length, properties) over the chunk itself."""
        bounds = np.empty(6 * len(self.fixed) + 1, np.int32)
        starts = (
            self.chunk.positions,
            self.body_at,
            self.body_end,
            self.topic_at,
            self.topic_end,
            self.properties_at,
        )
        for place, start in enumerate(starts):
            bounds[place:-1:6] = start
        bounds[-1] = self.ends[-1]
        return pa.Array.from_buffers(
            pa.binary(), len(bounds) - 1, [None, pa.py_buffer(bounds), pa.py_buffer(self.chunk.data)]
        )

    def pieces(self, place: int, rows: NDArray[np.int64]) -> pa.Array:
        """A copy of one piece of each of `rows`."""
        return self.parts.take(pa.array(rows * 6 + place))

    def text(self, place: int, rows: NDArray[np.int64]) -> pa.Array:
        try:
            return self.pieces(place, rows).cast(pa.string())
        except pa.ArrowInvalid as error:
            raise LogCorrupted(
                self.path, self.chunk.start_offset, f"text that is not UTF-8: {error}"
            ) from error

    def chosen_rows(self) -> NDArray[np.int64]:
        """The rows that the selection asks for; CRCs are checked on these."""
        selection = self.selection
        rows = np.arange(len(self.fixed), dtype=np.int64)
        if selection.committed_only:
            kind = self.sys_flag & TRANSACTION_MASK
            rows = rows[(kind == 0) | (kind == 8)]
        if selection.queues is not None:
            rows = rows[np.isin(self.late["queue_id"][rows], list(selection.queues))]
        self.topics = self.text(3, rows)
        keep: pa.Array | None = None
        if selection.topics is not None:
            keep = pc.is_in(self.topics, pa.array(sorted(selection.topics), pa.string()))
        elif not selection.system_topics:
            names = self.topics.unique()
            hidden = [name for name in names.to_pylist() if is_system_topic(name)]
            if hidden:
                keep = pc.invert(pc.is_in(self.topics, pa.array(hidden, pa.string())))
        if keep is not None:
            rows = rows[np.asarray(keep)]
            self.topics = self.topics.filter(keep)
        if selection.row_filter is not None:
            rows = selection.row_filter.choose(self, rows)
            self.topics = self.text(3, rows)
        if selection.check_crc:
            self.check_crc(rows)
        return rows

    def native(self, name: str) -> NDArray[np.signedinteger]:
        """A fixed field of every record, in the machine's byte order."""
        values = self.late[name]
        return values.astype(values.dtype.newbyteorder("="))

    def topics_of(self, rows: NDArray[np.int64]) -> pa.Array:
        return self.text(3, rows)

    def check_crc(self, rows: NDArray[np.int64]) -> None:
        view = self.chunk.data.data
        stored = self.fixed["body_crc"]
        starts, ends = self.body_at.tolist(), self.body_end.tolist()
        for row in rows.tolist():
            body = view[starts[row] : ends[row]]
            if body and crc32(body) & CRC_MASK != stored[row]:
                raise LogCorrupted(self.path, self.offset_of(row), "the body's CRC differs")

    @cached_property
    def properties(self) -> pa.Array:
        return self.text(5, self.rows)

    def numbers(self, name: str, arrow: pa.DataType) -> pa.Array:
        native = np.ascontiguousarray(self.late[name][self.rows]).astype(
            self.late[name].dtype.newbyteorder("=")
        )
        return pa.array(native, arrow)

    def times(self, name: str) -> pa.Array:
        return pc.multiply(self.numbers(name, pa.int64()), 1000).cast(TIMESTAMP)

    def hosts(self, name: str, which: int) -> pa.Array:
        """`ip:port`; the few distinct hosts of a chunk are formatted once each."""
        distinct, codes = np.unique(self.late[name][self.rows], return_inverse=True)
        texts = [host_text(int(value).to_bytes(8, "big")) for value in distinct.tolist()]
        if self.ipv6_hosts:
            per_row = [texts[code] for code in codes.tolist()]
            for place, row in enumerate(self.rows.tolist()):
                per_row[place] = self.ipv6_hosts.get(row, (None, None))[which] or per_row[place]
            return pa.array(per_row, pa.string())
        return pa.array(texts, pa.string()).take(pa.array(codes))

    def epochs(self) -> pa.Array:
        starts = np.array([start for _, start in self.selection.epochs], np.int64)
        numbers = np.array([-1, *(epoch for epoch, _ in self.selection.epochs)], np.int32)
        here = self.chunk.start_offset + self.chunk.positions[self.rows]
        return pa.array(numbers[np.searchsorted(starts, here, "right")], pa.int32())

    def body(self) -> pa.Array:
        bodies = self.pieces(1, self.rows)
        if not self.selection.decompress:
            return bodies
        return decompressed(bodies, self.sys_flag[self.rows], lambda place: self.where(int(self.rows[place])))

    def where(self, row: int) -> tuple[str, int]:
        return self.path, self.offset_of(row)

    def column(self, name: str) -> pa.Array:
        return MAKERS[name](self)

    def batch(self) -> pa.RecordBatch:
        names = self.selection.columns
        return pa.RecordBatch.from_arrays([self.column(name) for name in names], schema=arrow_schema(names))


MAKERS: dict[str, Callable[[ChunkColumns], Any]] = {
    "topic": lambda c: c.topics,
    "queue_id": lambda c: c.numbers("queue_id", pa.int32()),
    "queue_offset": lambda c: c.numbers("queue_offset", pa.int64()),
    "tags": lambda c: property_column(c.properties, "TAGS"),
    "keys": lambda c: property_column(c.properties, "KEYS"),
    "msg_id": lambda c: property_column(c.properties, "UNIQ_KEY"),
    "body": lambda c: c.body(),
    "properties": lambda c: property_map(c.properties),
    "born_timestamp": lambda c: c.times("born_timestamp"),
    "store_timestamp": lambda c: c.times("store_timestamp"),
    "born_host": lambda c: c.hosts("born_host", 0),
    "store_host": lambda c: c.hosts("store_host", 1),
    "flag": lambda c: c.numbers("flag", pa.int32()),
    "sys_flag": lambda c: pa.array(c.sys_flag[c.rows], pa.int32()),
    "transaction": lambda c: TRANSACTIONS.take(pa.array((c.sys_flag[c.rows] & TRANSACTION_MASK) >> 2)),
    "reconsume_times": lambda c: c.numbers("reconsume_times", pa.int32()),
    "prepared_transaction_offset": lambda c: c.numbers("prepared_transaction_offset", pa.int64()),
    "physical_offset": lambda c: c.numbers("physical_offset", pa.int64()),
    "store_size": lambda c: pa.array((c.ends - c.chunk.positions)[c.rows], pa.int32()),
    "body_crc": lambda c: pa.array(c.fixed["body_crc"][c.rows].astype(np.int32), pa.int32()),
    "epoch": lambda c: c.epochs(),
    "broker_name": lambda c: pa.repeat(pa.scalar(c.selection.broker_name, pa.string()), len(c.rows)),
}
