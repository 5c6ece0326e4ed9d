"""A store folder written byte by byte, independently of the product's own encoder."""

from __future__ import annotations

import os
import struct
import zlib
from pathlib import Path

V1, V2, BLANK = 0xDAA320A7, 0xDAA320AB, 0xCBD43194


def record(
    at: int,
    *,
    topic: str = "orders",
    queue_id: int = 0,
    queue_offset: int = 0,
    body: bytes = b"hello",
    properties: str = "",
    sys_flag: int = 0,
    crc: int | None = None,
    born_ms: int = 1700000000000,
    stored_ms: int = 1700000000001,
) -> bytes:
    """The record at physical offset `at`."""
    name, text = topic.encode(), properties.encode()
    magic = V2 if len(name) > 127 else V1
    born = bytes(15) + b"\x01" if sys_flag & 0x10 else bytes([10, 0, 0, 9])
    stored = bytes(15) + b"\x02" if sys_flag & 0x20 else bytes([10, 0, 0, 1])
    tail = struct.pack(">H" if magic == V2 else ">B", len(name)) + name + struct.pack(">H", len(text)) + text
    body_crc = zlib.crc32(body) & 0x7FFFFFFF if crc is None else crc
    fixed = struct.pack(">IIiiqqi", magic, body_crc, queue_id, 7, queue_offset, at, sys_flag)
    fixed += struct.pack(">q", born_ms) + born + struct.pack(">i", 5000)
    fixed += struct.pack(">q", stored_ms) + stored + struct.pack(">i", 10911)
    fixed += struct.pack(">iqi", 0, 0, len(body)) + body + tail
    return struct.pack(">i", len(fixed) + 4) + fixed


class StoreFolder:
    """Grows record by record; a record that does not fit is preceded by a BLANK, as a broker does."""

    def __init__(self, root: Path, segment_bytes: int = 4096) -> None:
        self.root = root
        self.segment_bytes = segment_bytes
        self.log = bytearray()
        self.log_min = 0
        self.ends: list[int] = []
        self.records: list[tuple[str, int, int]] = []
        self.uncounted: set[int] = set()
        """Which of the records no consume queue holds."""
        self.next_queue_offset: dict[tuple[str, int], int] = {}

    def add(self, *, topic: str = "orders", queue_id: int = 0, **fields: object) -> int:
        """Appends a record; returns its physical offset."""
        offset = self.next_queue_offset.get((topic, queue_id), 0)
        made = record(len(self.log), topic=topic, queue_id=queue_id, queue_offset=offset, **fields)  # type: ignore[arg-type]
        left = self.segment_bytes - len(self.log) % self.segment_bytes
        if len(made) + 8 > left:
            self.log += struct.pack(">iI", left, BLANK) + bytes(left - 8)
            made = record(len(self.log), topic=topic, queue_id=queue_id, queue_offset=offset, **fields)  # type: ignore[arg-type]
        self.next_queue_offset[topic, queue_id] = offset + 1
        at = len(self.log)
        self.records.append((topic, queue_id, at))
        self.log += made
        self.ends.append(len(self.log))
        return at

    def write(self, *, confirm: int | None = None, epochs: tuple[tuple[int, int], ...] = ((1, 0),)) -> str:
        """Writes segments with zero tails, epoch file, checkpoint and identity, as a broker does. A concurrent
        reader sees complete files, and a confirm offset only after its records. Returns the folder."""
        folder = self.root / "commitlog"
        folder.mkdir(parents=True, exist_ok=True)
        size = self.segment_bytes
        for start in range(self.log_min, max(len(self.log), 1), size):
            part = bytes(self.log[start : start + size])
            write_in_place(folder / f"{start:020d}", part.ljust(size, b"\0"))
        self.write_epochs(epochs)
        bound = len(self.log) if confirm is None else confirm
        write_in_place(self.root / "brokerIdentity", b"DefaultCluster#broker-a#1")
        write_in_place(self.root / "checkpoint", struct.pack(">5q", 0, 0, 0, 0, bound).ljust(4096, b"\0"))
        return str(self.root)

    def delete_first(self, segments: int) -> int:
        """Retention; returns the new log start."""
        for _ in range(segments):
            (self.root / "commitlog" / f"{self.log_min:020d}").unlink()
            self.log_min += self.segment_bytes
        return self.log_min

    def write_queues(self, entries_of_file: int = 20, count: int | None = None) -> None:
        """Consume queues of the first `count` records, in files of a few entries, the last one padded with zeros."""
        entries: dict[tuple[str, int], list[bytes]] = {}
        for number, ((topic, queue_id, at), end) in enumerate(zip(self.records, self.ends, strict=True)):
            if number in self.uncounted or (count is not None and number >= count):
                continue
            entries.setdefault((topic, queue_id), []).append(struct.pack(">qiq", at, end - at, 0))
        for (topic, queue_id), found in entries.items():
            folder = self.root / "consumequeue" / topic / str(queue_id)
            folder.mkdir(parents=True, exist_ok=True)
            for first in range(0, len(found), entries_of_file):
                data = b"".join(found[first : first + entries_of_file])
                (folder / f"{first * 20:020d}").write_bytes(data.ljust(entries_of_file * 20, b"\0"))

    def write_epochs(self, epochs: tuple[tuple[int, int], ...]) -> None:
        lines = "".join(f"{epoch}-{start}\n" for epoch, start in epochs)
        text = f"{len(epochs)}\n{zlib.crc32(lines.encode()) & 0x7FFFFFFF}\n{lines}"
        (self.root / "epochs").write_text(text)
        (self.root / "epochs").replace(self.root / "epochFileCheckpoint")


def write_in_place(path: Path, data: bytes) -> None:
    """A new file has its full size as soon as it is not empty."""
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        os.ftruncate(file, len(data))
        os.pwrite(file, data, 0)
    finally:
        os.close(file)
