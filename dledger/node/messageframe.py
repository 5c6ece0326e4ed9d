"""The frame of a message between members: the JSON, followed by entries or a part of a snapshot as raw bytes.

Invariant: `unframed` returns the bytes that `framed` was given, or raises MessageFrameDamaged. TCP's checksum is too weak for
data that is stored, so a frame has its own. JSON begins with "{" and a frame does not, so the first byte distinguishes them. A
member sends frames only to members that report that they read frames. Pure."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from zlib import crc32

from dledger.raft.entries import HEAD as ENTRY
from dledger.raft.entries import NO_TERM, Block, Entries, Entry
from dledger.raft.settings import PUSH_ENTRIES_LIMIT

FRAMES = 1
"""The version of frames that this member reads. In a message, 0 or an absent version means that the sender reads no frames."""
HEAD = struct.Struct(
    ">"  # offset field
    "I"  #  0 magic
    "I"  #  4 json_size
    "I"  #  8 data_size
    "I"  # 12 data_crc    CRC-32
)  # then the JSON, then the data
MAGIC = 0xD1ED6E01


class MessageFrameDamaged(ValueError):
    """Bytes that are no frame of a member."""


def framed(json: bytes, data: Iterable[bytes | memoryview]) -> list[bytes | memoryview]:
    """The pieces of a framed body: the JSON, and then `data`, which is not copied."""
    pieces: list[bytes | memoryview] = [b"", *data]
    size, crc = 0, 0
    for piece in pieces:
        size += len(piece)
        crc = crc32(piece, crc)
    pieces[0] = HEAD.pack(MAGIC, len(json), size, crc) + json
    return pieces


def is_framed(body: memoryview) -> bool:
    return len(body) >= 4 and int.from_bytes(body[:4], "big") == MAGIC


def unframed(body: memoryview) -> tuple[memoryview, memoryview]:
    """The JSON and the data of a framed body. Raises MessageFrameDamaged."""
    if len(body) < HEAD.size:
        raise MessageFrameDamaged(f"{len(body)} bytes are no frame")
    _, json_size, data_size, crc = HEAD.unpack_from(body)
    if len(body) != HEAD.size + json_size + data_size:
        raise MessageFrameDamaged(f"{json_size} and {data_size} bytes are not in a frame of {len(body)}")
    json, data = body[HEAD.size : HEAD.size + json_size], body[HEAD.size + json_size :]
    if crc32(data) != crc:
        raise MessageFrameDamaged(f"{data_size} bytes have another CRC-32 than the sender's")
    return json, data


def entry_parts(entries: Sequence[Entry]) -> list[memoryview]:
    """The data of a PUSH."""
    return [block.view for block in Entries.of(entries).blocks]


def entries_in(data: memoryview, first_index: int) -> Entries:
    """The entries in the data of a PUSH, from `first_index` on; `data` is copied. Raises MessageFrameDamaged."""
    blocks: list[Block] = []
    ends: list[int] = []
    content, term, begin, at = bytes(data), NO_TERM, 0, 0
    size_of_all, left = len(content), PUSH_ENTRIES_LIMIT
    while at < size_of_all:
        if not left:
            raise MessageFrameDamaged(f"a PUSH has {PUSH_ENTRIES_LIMIT} entries at most")
        left -= 1
        body_at = at + ENTRY.size
        if body_at > size_of_all:
            raise MessageFrameDamaged(f"{size_of_all - at} bytes are no entry")
        its_term, size = ENTRY.unpack_from(content, at)
        if its_term != term:
            if ends:
                blocks.append(Block(term, content, tuple(ends), begin))
            term, begin, ends = its_term, at, []
        at = body_at + size
        if at > size_of_all:
            raise MessageFrameDamaged(
                f"an entry of {size} bytes is not in the {size_of_all - body_at} that are left"
            )
        ends.append(at)
    if ends:
        blocks.append(Block(term, content, tuple(ends), begin))
    return Entries(first_index, tuple(blocks))
