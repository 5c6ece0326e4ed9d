"""What a log that begins later still says of its queues."""

from __future__ import annotations

import pytest

from raftstore.queueends import EmptiedQueueEnd, QueueEndsUnreadable, decode_queue_ends, encode_queue_ends

ENDS = [EmptiedQueueEnd("a", 0, 7), EmptiedQueueEnd("a", 1, 3), EmptiedQueueEnd("ä%b", 0, 1 << 40)]


def test_ends_come_back_as_they_were() -> None:
    assert decode_queue_ends(encode_queue_ends([*ENDS, EmptiedQueueEnd("empty", 0, 0)])) == ENDS
    assert encode_queue_ends([EmptiedQueueEnd("a", 0, 7)]) == b'{"queueEnds":[["a",0,7]]}'


def test_a_log_that_begins_with_its_first_message_has_none() -> None:
    assert decode_queue_ends(b"") == []


@pytest.mark.parametrize(
    "note", [b"x", b"{}", b'{"queueEnds":1}', b'{"queueEnds":[["a",0]]}', b'{"queueEnds":[[0,0,1]]}']
)
def test_what_another_version_wrote_is_refused(note: bytes) -> None:
    with pytest.raises(QueueEndsUnreadable):
        decode_queue_ends(note)
