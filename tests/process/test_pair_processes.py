"""A pair in real processes: acknowledged messages are on the slave, through kills of either."""

from __future__ import annotations

from pathlib import Path

from mqclient.producer import SendStatus
from tests.support.realpair import SEGMENT_BYTES, RealPair, bodies, ours


def test_a_pair_keeps_acknowledged_messages_through_kills_of_either(tmp_path: Path) -> None:
    with RealPair(tmp_path / "pair", [ours, ours]) as pair:
        pair.start(0)
        pair.create_topic()
        assert pair.send(b"alone")[0].status is SendStatus.SLAVE_NOT_AVAILABLE
        pair.start(1)
        pair.wait_for(lambda: pair.slaves_level() == 1)  # a new slave begins with the master's last segment
        sent = bodies("first", 100)
        pair.send_until_acknowledged(sent[0])
        assert {result.status for result in pair.send(*sent[1:])} == {SendStatus.SEND_OK}
        pair.kill("broker-1")
        missed = bodies("missed", 20)
        assert {result.status for result in pair.send(*missed)} <= {
            SendStatus.SLAVE_NOT_AVAILABLE, SendStatus.FLUSH_SLAVE_TIMEOUT,
        }  # fmt: skip
        pair.start(1)
        pair.wait_for(lambda: pair.slaves_level() == 1)
        pair.kill("broker-0")
        pair.start(0)
        after = bodies("after", 20)
        pair.send_until_acknowledged(*after)
        assert {message.body for message in pair.read()} >= {b"alone", *sent, *missed, *after}
        pair.wait_for(lambda: pair.slaves_level() == 1)
        assert pair.log(0) == pair.log(1)
        assert len(pair.log(0)) > 2 and set(pair.log(0)) <= set(range(0, 1 << 20, SEGMENT_BYTES))
