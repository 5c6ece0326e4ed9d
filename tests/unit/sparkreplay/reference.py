"""A slow decoder of commit log segments, written from the layout. The fast decoder must agree with it."""

from __future__ import annotations

import struct
import zlib
from ipaddress import ip_address

import lz4.frame
import pyarrow as pa
import zstandard

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194
TRANSACTIONS = ("none", "prepared", "commit", "rollback")
SYSTEM_TOPICS = {"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"}

Row = dict[str, object]


class Reader:
    """Takes one field after the other."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data = data
        self.at = at

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self, kind: str) -> int:
        value: int = struct.unpack(">" + kind, self.take(struct.calcsize(kind)))[0]
        return value

    def host(self, ipv6: bool) -> str:
        if ipv6:
            groups = struct.unpack(">8H", self.take(16))
            return f"[{':'.join(f'{group:x}' for group in groups)}]:{self.number('i')}"
        return f"{ip_address(self.take(4))}:{self.number('i')}"


def properties_of(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for piece in text.split("\x02"):
        name, middle, value = piece.partition("\x01")
        if name and middle and value:
            found.pop(name, None)
            found[name] = value
    return found


def opened(body: bytes, sys_flag: int) -> bytes:
    if not sys_flag & 1:
        return body
    kind = sys_flag >> 8 & 7
    if kind == 1:
        return bytes(lz4.frame.decompress(body))
    if kind == 2:
        return zstandard.ZstdDecompressor().decompress(body, max_output_size=1 << 20)
    return zlib.decompress(body)


def microseconds(ms: int) -> int | None:
    return ms * 1000 if abs(ms * 1000) < 1 << 63 else None


def record_row(log: bytes, at: int, epochs: tuple[tuple[int, int], ...], broker_name: str) -> tuple[Row, int]:
    """The record at physical offset `at` of a log that begins at 0, as a row with every column, and its size."""
    fields = Reader(log, at)
    size, magic = fields.number("i"), fields.number("I")
    assert magic in (V1, V2), f"no record at {at}"
    crc, queue_id, flag = fields.number("I"), fields.number("i"), fields.number("i")
    queue_offset, physical_offset, sys_flag = fields.number("q"), fields.number("q"), fields.number("i")
    born, born_host = fields.number("q"), fields.host(bool(sys_flag & 0x10))
    stored, store_host = fields.number("q"), fields.host(bool(sys_flag & 0x20))
    reconsume_times, prepared = fields.number("i"), fields.number("q")
    body = fields.take(fields.number("i"))
    topic = fields.take(fields.number("H" if magic == V2 else "B")).decode()
    raw = fields.take(fields.number("H"))
    assert fields.at == at + size and physical_offset == at
    properties = properties_of(raw.decode())
    row: Row = {
        "topic": topic, "queue_id": queue_id, "queue_offset": queue_offset, "tags": properties.get("TAGS"),
        "keys": properties.get("KEYS"), "msg_id": properties.get("UNIQ_KEY"), "body": opened(body, sys_flag),
        "properties": properties, "properties_raw": raw, "born_timestamp": microseconds(born),
        "store_timestamp": microseconds(stored), "born_host": born_host, "store_host": store_host,
        "flag": flag, "sys_flag": sys_flag, "transaction": TRANSACTIONS[sys_flag >> 2 & 3],
        "reconsume_times": reconsume_times, "prepared_transaction_offset": prepared,
        "physical_offset": physical_offset, "store_size": size, "body_crc": crc,
        "epoch": max((epoch for epoch, start in epochs if start <= at), default=-1), "broker_name": broker_name,
        "row_id": f"{broker_name}@{at}",
    }  # fmt: skip
    return row, size


def rows_below(
    log: bytes, bound: int, *, epochs: tuple[tuple[int, int], ...] = ((1, 0),), committed_only: bool = True
) -> list[Row]:
    """Every row of a log that begins at 0 and whose records end at or below `bound`, system topics left out."""
    rows = []
    at = 0
    while at + 8 <= min(bound, len(log)):
        size, magic = struct.unpack_from(">iI", log, at)
        if magic == BLANK:
            at += size
            continue
        row, size = record_row(log, at, epochs, "broker-a")
        at += size
        if at > bound:
            break
        hidden = row["topic"] in SYSTEM_TOPICS or (
            committed_only and row["transaction"] in ("prepared", "rollback")
        )
        if not hidden:
            rows.append(row)
    return rows


def plain(table: pa.Table) -> list[Row]:
    """Rows of an Arrow table: maps as dictionaries, times as µs, for damage may name a year that no datetime holds."""
    for place, field in enumerate(table.schema):
        if pa.types.is_timestamp(field.type):
            table = table.set_column(place, field.name, table.column(place).cast(pa.int64()))
    return [{**row, "properties": dict(row["properties"])} for row in table.to_pylist()]
