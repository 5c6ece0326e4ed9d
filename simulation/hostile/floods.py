"""Many small requests that any client may send, as bytes of one connection.

Invariant: each flood consists of whole frames, none of which ends the connection. Pure."""

from __future__ import annotations

from remoting.codes import RequestCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.headers.offsets import UpdateConsumerOffsetHeader
from simulation.hostile.frames import framed, whole

SMALL = framed(b'{"code":999,"flag":2}')
"""A one-way request of 29 bytes that no server serves."""
assert len(SMALL) == 29


def small(count: int) -> bytes:
    return SMALL * count


def commits(groups: int, topic: str, queues: int) -> bytes:
    """One-way commits of each group in each queue."""
    made = bytearray()
    for group in range(groups):
        for queue_id in range(queues):
            header = UpdateConsumerOffsetHeader(f"Flood-{group}", topic, queue_id, 0)
            command = RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
            command.flag |= ONEWAY_BIT
            made += whole(command)
    return bytes(made)


def tables(count: int) -> bytes:
    """Requests for the table of all offsets. Each is answered."""
    return b"".join(
        whole(RemotingCommand(RequestCode.GET_ALL_CONSUMER_OFFSET, number)) for number in range(1, count + 1)
    )
