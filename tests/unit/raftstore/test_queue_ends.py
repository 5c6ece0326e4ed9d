"""The queue ends that a log with a later start still stores."""

from __future__ import annotations

import pytest

from raftstore.queueends import EmptiedQueueEnd, QueueEndsUnreadable, decode_queue_ends, encode_queue_ends

ENDS = [EmptiedQueueEnd("a", 0, 7), EmptiedQueueEnd("a", 1, 3), EmptiedQueueEnd("ä%b", 0, 1 << 40)]


def test_queue_ends_are_encoded_and_decoded() -> None:
    assert decode_queue_ends(encode_queue_ends([*ENDS, EmptiedQueueEnd("empty", 0, 0)])) == ENDS
    assert encode_queue_ends([EmptiedQueueEnd("a", 0, 7)]) == b'{"queueEnds":[["a",0,7]]}'


def test_an_empty_note_has_no_queue_ends() -> None:
    assert decode_queue_ends(b"") == []


@pytest.mark.parametrize(
    "note", [b"x", b"{}", b'{"queueEnds":1}', b'{"queueEnds":[["a",0]]}', b'{"queueEnds":[[0,0,1]]}']
)
def test_a_malformed_queue_end_note_is_rejected(note: bytes) -> None:
    with pytest.raises(QueueEndsUnreadable):
        decode_queue_ends(note)
