"""The store of a Raft-mode broker written byte by byte, independently of the product's own encoder."""

from __future__ import annotations

import random
import struct
from pathlib import Path
from zlib import crc32

from tests.unit.sparkreplay.storefolder import StoreFolder, record, write_in_place

LEAD = 48
MEMBERS = b'\x00dledger members\x00\x01{"learners":{},"voters":{"n0":"127.0.0.1:1"}}'


class LedgerFolder(StoreFolder):
    """Grows entry by entry. The log of a plain store may precede the ledger: see `after`."""

    def __init__(self, root: Path, segment_bytes: int = 4096, *, checks: int | None = None) -> None:
        super().__init__(root, segment_bytes)
        self.begin = 0
        self.term = 0
        self.units: list[tuple[int, int, int, int]] = []
        """(pos, size, index, term) of each entry."""
        self.syncs = None if checks is None else random.Random(checks)
        """How many entries share a sync. If None, headers carry zeros, as Java's; else checks, as ours."""
        self.check = 0

    @classmethod
    def after(cls, old: StoreFolder) -> LedgerFolder:
        """The old log is closed with a BLANK, and the ledger begins with the next file."""
        made = cls(old.root, old.segment_bytes)
        old.write()
        (old.root / "epochFileCheckpoint").unlink()
        left = -len(old.log) % old.segment_bytes
        made.log = old.log + (struct.pack(">iI", left, 0xCBD43194) + bytes(left - 8) if left else b"")
        made.begin = len(made.log)
        for start in range(0, made.begin, made.segment_bytes):
            write_in_place(
                old.root / "commitlog" / f"{start:020d}", made.log[start : start + made.segment_bytes]
            )
        made.ends, made.records = list(old.ends), list(old.records)
        made.uncounted, made.next_queue_offset = set(old.uncounted), dict(old.next_queue_offset)
        return made

    def add(self, *, topic: str = "orders", queue_id: int = 0, **fields: object) -> int:
        """Appends an entry with a record; returns the record's physical offset."""
        offset = self.next_queue_offset.get((topic, queue_id), 0)

        def made(at: int) -> bytes:
            return record(at + LEAD, topic=topic, queue_id=queue_id, queue_offset=offset, **fields)  # type: ignore[arg-type]

        at = self.add_entry(made(0), made) + LEAD
        self.next_queue_offset[topic, queue_id] = offset + 1
        self.records.append((topic, queue_id, at))
        self.ends.append(len(self.log))
        return at

    def add_entry(self, body: bytes, made: object = None) -> int:
        """Appends an entry with any body; `made` makes the body for its position. Returns the position."""
        left = self.segment_bytes - len(self.log) % self.segment_bytes
        if LEAD + len(body) + 8 > left:
            self.log += struct.pack(">ii", -1, left) + bytes(left - 8)
        at = len(self.log)
        body = made(at) if callable(made) else body
        head = struct.pack(">iiqqqi", 1, LEAD + len(body), len(self.units), self.term, at, 0)
        rest = struct.pack(">ii", 0 if self.syncs is None else self.syncs.randrange(9), len(body)) + body
        self.check = 0 if self.syncs is None else crc32(head + rest, self.check)
        self.log += head + struct.pack(">I", self.check) + rest
        self.units.append((at, LEAD + len(body), len(self.units), self.term))
        return at

    def write(self, *, confirm: int | None = None, epochs: tuple[tuple[int, int], ...] = ()) -> str:
        """Data files with zero tails, index, the ledger's checkpoint and the broker's. `confirm` is the end of the last
        committed entry, or somewhere behind it. `epochs` are not written: the terms are the epochs."""
        committed = -1
        for pos, size, index, _ in self.units:
            if confirm is None or pos + size <= confirm:
                committed = index
        return self.write_committed(committed)

    def write_committed(self, committed: int) -> str:
        ledger = self.root / "dledger-n0"
        for name in ("data", "index"):
            (ledger / name).mkdir(parents=True, exist_ok=True)
        size = self.segment_bytes
        for start in range(max(self.begin, self.log_min), max(len(self.log), self.begin + 1), size):
            part = bytes(self.log[start : start + size])
            write_in_place(ledger / "data" / f"{start:020d}", part.ljust(size, b"\0"))
        units = b"".join(
            struct.pack(">iqiqq", 1, pos, size, index, term) for pos, size, index, term in self.units
        )
        for start in range(0, len(units), 32 * 64):
            part = units[start : start + 32 * 64].ljust(32 * 64, b"\0")
            write_in_place(ledger / "index" / f"{start:020d}", part)
        (ledger / "checkpoint").write_text(f"committedIndex={committed}\nendIndex={len(self.units) - 1}\n")
        write_in_place(self.root / "checkpoint", bytes(4096))
        write_in_place(self.root / "brokerIdentity", b"DefaultCluster#broker-a#1")
        return str(self.root)

    def delete_first(self, segments: int) -> int:
        """Retention; returns the new log start."""
        for _ in range(segments):
            folder = "dledger-n0/data" if self.log_min >= self.begin else "commitlog"
            (self.root / folder / f"{self.log_min:020d}").unlink()
            self.log_min += self.segment_bytes
        return self.log_min


def grown(
    root: Path, count: int = 100, *, checks: int | None = None, segment_bytes: int = 16384
) -> LedgerFolder:
    ledger = LedgerFolder(root, segment_bytes, checks=checks)
    for number in range(count):
        ledger.add(body=f"{number}".encode().ljust(300, b"."), properties=f"UNIQ_KEY\x01K{number}\x02")
    return ledger
