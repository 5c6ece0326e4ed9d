"""The Apache C++ client (Python wheel `rocketmq` 0.4.4) against our cluster in real processes.

cppclient.py documents each line. It is a separate process, so a native crash fails one test only."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import elect_another, other_members
from mqadmin.replies import SyncStateInfo
from scripts.peers.peerprocess import PeerProcess
from scripts.peers.waits import WAIT_MS

REFUSED_EVERY = 5  # as in cppclient.py, whose import needs the wheel

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("rocketmq") is None,
        reason="no C++ client: its wheel `rocketmq` 0.4.4 is for Linux on x86-64",
    ),
]


def started(cluster: Cluster, home: Path) -> PeerProcess:
    """A client whose native logs go to the folder `home`."""
    program = str(Path(__file__).with_name("cppclient.py"))
    return PeerProcess([sys.executable, "-P", program, cluster.layout.namesrv], {"HOME": str(home)})


def whole(cluster: Cluster) -> SyncStateInfo:
    return asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))


@pytest.fixture
def cpp(cluster: Cluster, tmp_path: Path) -> Iterator[PeerProcess]:
    with started(cluster, tmp_path) as client:
        yield client


def all_read(failed: int = 0, **tags: int) -> dict[str, object]:
    """A reading with every message once and unchanged, after `failed` failed tries."""
    return dict(read=sum(tags.values()), failed=failed, missing=0, repeated=0, changed=0, tags=tags)


def test_cpp_consumers_read_messages_of_the_cpp_producer(cpp: PeerProcess) -> None:
    assert cpp.ask("sync", "CppSent", 20, 100, "TagA") == {"acked": 20, "failed": 0}
    cpp.ask("subscribe", "CppSent", "CppPush", "TagA||TagC")
    assert cpp.ask("async", "CppSent", 100, 300, "TagB") == {"acked": 100, "failed": 0}
    assert cpp.ask("batch", "CppSent", 64, 50, "TagC") == {"acked": 64, "failed": 0}
    # the client deflates bodies above 4 KiB
    assert cpp.ask("sync", "CppSent", 5, 12_000, "TagA") == {"acked": 5, "failed": 0}
    assert cpp.ask("oneway", "CppSent", 50, 100, "TagA") == {"acked": 50, "failed": 0}
    assert cpp.ask("delayed", "CppSent", 1, "TagA") == {"acked": 1, "failed": 0}
    assert cpp.ask("drained") == all_read(TagA=76, TagC=64)
    assert cpp.ask("pull", "CppSent", "CppPullAll", "*") == all_read(TagA=76, TagB=100, TagC=64)
    assert cpp.ask("pull", "CppSent", "CppPullB", "TagB") == all_read(TagB=100)


def test_a_message_that_a_cpp_listener_rejects_is_redelivered(
    cpp: PeerProcess, cluster: Cluster, tmp_path: Path
) -> None:
    # one message per queue, because this library silently fails the rest of a pull after a failure
    assert cpp.ask("sync", "CppRetried", 4, 100, "Tag") == {"acked": 4, "failed": 0}
    # it looks for the retry topic at its start and then each 10 s; an earlier start creates the topic
    with started(cluster, tmp_path) as before:
        before.ask("sync", "CppBefore", 1, 100, "Tag")
        before.ask("subscribe", "CppBefore", "CppRetry", "*")
        assert before.ask("drained") == all_read(Tag=1)
    cpp.ask("subscribe", "CppRetried", "CppRetry", "*", 1)
    assert cpp.ask("drained") == all_read(failed=4, Tag=4)


def test_a_message_rejected_by_an_orderly_cpp_listener_is_redelivered_in_order(cpp: PeerProcess) -> None:
    assert cpp.ask("sync", "CppRefused", 1, 100, "Tag") == {"acked": 1, "failed": 0}  # makes the topic
    cpp.ask("order", "CppRefused", "CppRefuser", 2)
    assert cpp.ask("sync", "CppRefused", 40, 100, "Tag") == {"acked": 40, "failed": 0}
    consumed = cpp.ask("drained")
    failed = consumed["failed"]
    assert failed >= 2 * 40 // REFUSED_EVERY and failed % 2 == 0
    assert consumed == {**all_read(failed=failed, Tag=41), "disordered": 0, "overtaken": 0}


def test_an_orderly_cpp_consumer_keeps_order_through_a_hand_over_and_a_kill(
    cpp: PeerProcess, cluster: Cluster
) -> None:
    assert cpp.ask("sync", "CppOrdered", 60, 100, "Tag") == {"acked": 60, "failed": 0}
    cpp.ask("order", "CppOrdered", "CppInOrder")
    cpp.ask("stream", "CppOrdered")
    cpp.ask("await", 50)
    asyncio.run(elect_another(cluster, other_members(whole(cluster))[0]))
    cpp.ask("await", 50)
    cpp.ask("finish")
    master = cluster.layout.name_of(whole(cluster).master_address or "")
    assert master is not None
    cluster.kill([master])
    asyncio.run(cluster.wait_in_sync(2, timeout_ms=WAIT_MS))
    cpp.ask("reopen")
    assert cpp.ask("sync", "CppOrdered", 60, 100, "Tag") == {"acked": 60, "failed": 0}
    consumed = cpp.ask("drained")  # an offset that was lost with the master repeats messages
    assert (consumed["missing"], consumed["changed"], consumed["disordered"]) == (0, 0, 0)
    assert consumed["read"] - consumed["repeated"] >= 60 + 100 + 60
    cluster.start([master])
    whole(cluster)


def test_messages_acknowledged_to_cpp_clients_survive_a_killed_master(
    cpp: PeerProcess, cluster: Cluster, tally: Callable[[str, int], None]
) -> None:
    before = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    master = cluster.layout.name_of(before.master_address or "")
    assert master is not None
    assert cpp.ask("sync", "CppSurvived", 1, 100, "Tag") == {"acked": 1, "failed": 0}
    cpp.ask("subscribe", "CppSurvived", "CppSurvivor", "*")
    cpp.ask("stream", "CppSurvived")
    cpp.ask("await", 50)
    cluster.kill([master])
    after = asyncio.run(cluster.wait_in_sync(2, timeout_ms=WAIT_MS))
    assert after.master_epoch > before.master_epoch
    first = cpp.ask("finish")  # with failures, or without where its own retries outlasted the election
    cpp.ask("reopen")
    cpp.ask("stream", "CppSurvived")
    cpp.ask("await", 50)
    second = cpp.ask("finish")
    acked = 1 + first["acked"] + second["acked"]
    assert acked > 100
    consumed = cpp.ask("drained")  # an offset that was lost with the master repeats messages
    assert (consumed["missing"], consumed["changed"]) == (0, 0)
    cluster.start([master])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    reading = cpp.ask("pull", "CppSurvived", "CppSurvivorPull", "*")
    assert (reading["missing"], reading["changed"]) == (0, 0)
    once = reading["read"] - reading["repeated"]  # the client itself sends again what was not answered
    assert acked <= once <= acked + first["failed"] + second["failed"]
    tally("cpp messages read back", reading["read"])
