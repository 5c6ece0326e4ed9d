"""A Raft-mode set of real processes continues the store of a killed plain broker; one member starts empty."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.interop.raftbrokers import MEMBERS, RaftBrokers, places
from tests.support.realpair import bodies, ours


def test_a_raft_set_continues_a_killed_brokers_store_and_fills_an_empty_member(tmp_path: Path) -> None:
    with RaftBrokers(tmp_path / "group") as group:
        group.commands = [ours] * MEMBERS
        plain = bodies("plain", 60)
        group.start(0, enableDLegerCommitLog="false")
        group.create_topic()
        group.send_until_acknowledged(*plain)
        group.end_all(signal.SIGKILL)
        shutil.copytree(group.store(0), group.store(1))
        group.start_all()
        group.create_topic_at_leader()
        first = bodies("first", 60)
        group.send_until_acknowledged(*first)
        group.wait_for(lambda: {*places(group).values()} >= {*plain, *first})
        files = [
            {file.name: file.read_bytes() for file in (group.store(member) / "commitlog").glob("0*")}
            for member in range(MEMBERS)
        ]
        assert len(files[0]) > 1 and files[0] == files[1] == files[2]
        leader = group.leader()
        assert leader is not None
        group.kill(f"broker-{leader - 1}")
        second = bodies("second", 10)
        group.send_until_acknowledged(*second)
        group.wait_for(lambda: {*places(group).values()} >= {*plain, *first, *second})
