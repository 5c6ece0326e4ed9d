"""The frame of a pull's answer with messages.

Invariant: the header equals, byte for byte, the encoded header of a reply with these fields. It is encoded once, and then only
its numbers are replaced. The message buffers are not changed."""

from __future__ import annotations

from broker.pulls.direction import Direction
from messagestore.messages import GetResult, GetStatus
from remoting.codes import ResponseCode
from remoting.command import Body, RemotingCommand
from remoting.frame import START
from remoting.headercodec import encode_header
from remoting.headers.pull import PullMessageResponseHeader

JOINED_BYTES_MAX = 2048
"""If the average size of the buffers is below this, it is cheaper to copy them together than to write them one by one."""


def _template() -> bytes:
    """The encoded header, with placeholders for four numbers and the opaque."""
    *offsets, opaque = places = [1_000_000_000 + number for number in range(5)]
    reply = RemotingCommand(0, opaque).reply(
        ResponseCode.SUCCESS, GetStatus.FOUND.value, PullMessageResponseHeader(*offsets)
    )
    header = encode_header(reply)
    found = [header.index(b"%d" % place) for place in places]
    assert found == sorted(found) and b"%" not in header
    for place in places:
        header = header.replace(b"%d" % place, b"%d")
    return header


HEADER = _template()


def frame_of(opaque: int, said: Direction, result: GetResult) -> list[Body]:
    """The frame with `result` for the request with `opaque`. The reader continues as in `said`."""
    buffers = result.buffers
    header = HEADER % (said.broker_id, said.next_offset, result.min_offset, result.max_offset, opaque)
    size = sum(map(len, buffers))
    head = START.pack(4 + len(header) + size, len(header)) + header
    if size <= JOINED_BYTES_MAX * len(buffers):
        return [b"".join([head, *buffers])]
    return [head, *buffers]
