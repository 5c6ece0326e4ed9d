"""A broker without Raft mode, killed, whose store a Raft-mode set of real processes goes on from; one member has nothing."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

from tests.interop.test_java_raft_mode import MEMBERS, RaftBrokers
from tests.interop.test_java_raft_mode_and_ours import read_of
from tests.realpair import bodies, ours


def test_a_set_goes_on_from_what_a_killed_broker_left_and_fills_who_has_nothing(tmp_path: Path) -> None:
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
        group.wait_for(lambda: {*read_of(group).values()} >= {*plain, *first})
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
        group.wait_for(lambda: {*read_of(group).values()} >= {*plain, *first, *second})
