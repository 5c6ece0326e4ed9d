"""Java's Raft-mode brokers and ours: their stores open in ours unchanged, also with an earlier plain log. A
group of both is refused.

Each test starts three JVMs."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from scripts.peers.javapeer import broker_missing
from tests.interop.raftbrokers import MEMBERS, RaftBrokers, places
from tests.support.realpair import bodies, ours

pytestmark = [
    pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing())),
]


@pytest.mark.parametrize("number", [pytest.param(signal.SIGTERM, marks=pytest.mark.long), signal.SIGKILL])
def test_stores_of_java_raft_brokers_continue_in_ours(number: signal.Signals, tmp_path: Path) -> None:
    with RaftBrokers(tmp_path / "group") as group:
        plain = bodies("plain", 60) if number is signal.SIGKILL else []
        if plain:  # the store of a master without Raft mode, which all members continue
            group.start(0, enableDLegerCommitLog="false")
            group.create_topic()
            group.send_until_acknowledged(*plain)
            group.end_all(signal.SIGTERM)
            for member in range(1, MEMBERS):
                shutil.copytree(group.store(0), group.store(member))
        group.start_all()
        group.create_topic_at_leader()
        first = bodies("first", 150)  # several files of the log
        group.send_until_acknowledged(*first)
        first += plain
        before = places(group)
        old = [sorted((group.store(member) / "commitlog").glob("0*")) for member in range(MEMBERS)]
        group.end_all(number)
        files = [[file.read_bytes() for file in each] for each in old]
        group.commands = [ours] * MEMBERS
        group.start_all()
        group.wait_for(lambda: before.items() <= places(group).items())
        assert {*places(group).values()} >= {*first}
        second = bodies("second", 60)
        group.send_until_acknowledged(*second)
        leader = group.leader()
        assert leader is not None
        group.kill(f"broker-{leader - 1}")
        group.wait_for(lambda: {*places(group).values()} >= {*first, *second})
        assert files == [[file.read_bytes() for file in each] for each in old]
        assert all(len(each) > 1 for each in old) if plain else not any(old)
        after = places(group)
        assert before.items() <= after.items()
        for queue_id in (0, 1):
            offsets = sorted(offset for queue, offset in after if queue == queue_id)
            assert offsets == list(range(len(offsets)))


def test_our_broker_does_not_join_a_java_raft_group_and_logs_it(tmp_path: Path) -> None:
    with RaftBrokers(tmp_path / "group") as group:
        group.commands[2] = ours
        group.start_all()
        group.create_topic_at_leader()
        sent = bodies("sent", 20)
        group.send_until_acknowledged(*sent)  # two of Java's are a majority
        group.wait_for(
            lambda: group.said(2).count("speaks DLedger as Java does") == 2
        )  # once for each of them
        assert (
            group.said(2).count("WARNING dledger.node.transport") < 20
        )  # what comes again is not said again
        assert not any((group.store(2) / "dledger-n2" / "data").glob("*"))
