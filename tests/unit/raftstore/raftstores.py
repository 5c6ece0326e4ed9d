"""Stores of Raft-mode brokers: recorded Java stores, and stores built byte by byte from given messages."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from pathlib import Path

from dledger.raft.entries import Entry
from dledger.storage.entry import BLANK, BLANK_MAGIC, CHECK_END, CHECK_START, header_of
from messagestore.record import Message, encode
from messagestore.recordcrc import seal, with_room
from raftstore.folder import read_log
from raftstore.framing import PlacedMessage

VECTORS = Path(__file__).parents[2] / "vectors" / "raftstore"
FILE_BYTES = 16_384
INDEX_BYTES = 167_772_160
MEMBER = "dledger-n0"
HOST = b"\x7f\0\0\1" + (10_911).to_bytes(4, "big")
TIME_MS = 1_700_000_000_000


def lay_out(name: str, root: Path) -> Path:
    """Unpack the Java store `name` at full size below `root`."""
    for path in sorted((VECTORS / name).rglob("*")):
        if path.is_file():
            target = root / path.relative_to(VECTORS / name).with_suffix("")
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.suffix == ".gz":
                target.write_bytes(gzip.decompress(path.read_bytes()))
                with target.open("r+b") as file:
                    file.truncate(INDEX_BYTES if target.parent.name == "index" else FILE_BYTES)
            else:
                (root / path.relative_to(VECTORS / name)).write_bytes(path.read_bytes())
    return root


def message(number: int, body: bytes, queue_offset: int, topic: str = "Orders") -> Message:
    return Message(
        topic, 0, queue_offset, 0, 0, number, 0, 0, TIME_MS, HOST, TIME_MS + number, HOST, 0, 0, body, b"K\1v\2"
    )  # fmt: skip


class StoreOfMessages:
    """A store below `root` with files of `file_bytes` that begins with entry `first_index` at `begin`. As in
    Java, it has no checksums."""

    def __init__(self, root: Path, file_bytes: int = 2048, begin: int = 0, first_index: int = 0) -> None:
        self.root = root
        self.file_bytes = file_bytes
        self.begin = self.end = begin
        self.next_index = first_index
        self._data = bytearray()

    def add(self, message: Message, *, term: int = 3, sealed: bool = False) -> int:
        """Append the message and return the position of its entry."""
        size = 48 + len(encode(message)) + (20 if sealed else 0)
        left = self.file_bytes - self.end % self.file_bytes
        if size + 8 > left:
            self._data += BLANK.pack(BLANK_MAGIC, left).ljust(left, b"\0")
            self.end += left
        message.physical_offset = self.end + 48
        if sealed:
            message.properties = with_room(message.properties)
        record = bytearray(encode(message))
        if sealed:
            seal(record, 0, len(record))
        return self.add_body(bytes(record), term=term)

    def add_body(self, body: bytes, *, term: int = 3) -> int:
        position = self.end
        header, _ = header_of(Entry(self.next_index, term, body), position, 0, 0)
        self._data += header[:CHECK_START] + b"\0\0\0\0" + header[CHECK_END:] + body
        self.end += len(header) + len(body)
        self.next_index += 1
        return position

    def write(self) -> Path:
        folder = self.root / MEMBER
        (folder / "data").mkdir(parents=True, exist_ok=True)
        for at in range(0, len(self._data), self.file_bytes):
            content = bytes(self._data[at : at + self.file_bytes]).ljust(self.file_bytes, b"\0")
            (folder / "data" / f"{self.begin + at:020d}").write_bytes(content)
        (folder / "currterm").write_text("voteLeader=n0\ncurrTerm=3\n")
        (folder / "checkpoint").write_text(f"committedIndex={self.next_index - 1}\nendIndex=-1\n")
        return self.root


def messages_in(root: Path) -> tuple[list[PlacedMessage], str]:
    """All messages, and the damage of the log."""
    log = read_log(root)
    return list(log.messages()), log.census.damage


def contents(root: Path) -> dict[str, bytes]:
    return {
        str(path): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and path.stat().st_size < 1 << 20
    }


def bodies_filled(names: Sequence[str]) -> list[bytes]:
    """Bodies as in the recorded Java stores: padded with dots to alternating sizes."""
    sizes = (0, 1, 50, 200, 900, 3000)
    return [f"{name} ".encode().ljust(sizes[number % 6], b".") for number, name in enumerate(names)]
