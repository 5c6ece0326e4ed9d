"""The body of a batch send: messages one after the other, each with a small header of its own.

Invariant: a body is parsed to its very end, or rejected."""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

MEMBER_HEADER = Struct(
    ">"  # offset field
    "i"  #  0 total_size    bytes of this member, header included
    "i"  #  4 magic         0
    "i"  #  8 body_crc      0; the broker computes it
    "i"  # 12 flag
    "i"  # 16 body_length
)
PROPERTIES_LENGTH = Struct(">h")
MEMBER_SIZE_MIN = MEMBER_HEADER.size + PROPERTIES_LENGTH.size
SENT_MEMBERS_MAX = 16_384
"""Limit of the messages in a batch that a client sends. 4 MiB have room for 190,000, which would hold the broker for 0.5 s."""


class BatchMember(NamedTuple):
    """One message of a batch, as views of the batch's body."""

    flag: int
    body: memoryview
    properties: bytes


class BatchError(ValueError):
    """A batch body that does not parse; `at` is the byte where the bad member starts."""

    def __init__(self, at: int, why: str) -> None:
        super().__init__(f"batch body at {at}: {why}")
        self.at = at
        self.why = why


def parse_batch(body: bytes | bytearray | memoryview, members_max: int | None = None) -> list[BatchMember]:
    """The members of a batch in order. Raises BatchError if the body is empty, its sizes do not add up, or it has more than
    `members_max`."""
    view = memoryview(body)
    members: list[BatchMember] = []
    at = 0
    while at < len(view):
        if len(members) == members_max:
            raise BatchError(at, f"more than {members_max} messages; send fewer at a time")
        if len(view) - at < MEMBER_SIZE_MIN:
            raise BatchError(at, f"{len(view) - at} bytes cannot hold a message")
        size, _, _, flag, body_length = MEMBER_HEADER.unpack_from(view, at)
        body_at = at + MEMBER_HEADER.size
        properties_at = body_at + body_length + PROPERTIES_LENGTH.size
        if body_length < 0 or properties_at > len(view):
            raise BatchError(at, f"body length {body_length} exceeds the batch")
        (properties_length,) = PROPERTIES_LENGTH.unpack_from(view, body_at + body_length)
        end = properties_at + properties_length
        if properties_length < 0 or end > len(view) or end - at != size:
            raise BatchError(at, f"size {size} is not what its parts add up to ({end - at})")
        members.append(
            BatchMember(flag, view[body_at : body_at + body_length], bytes(view[properties_at:end]))
        )
        at = end
    if not members:
        raise BatchError(0, "no message in it")
    return members
