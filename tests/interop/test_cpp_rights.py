"""The Apache C++ client (Python wheel `rocketmq` 0.4.4) with signed requests on our guarded cluster, over plain
connections, because its library has no TLS."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from scripts.peers.peerprocess import PeerProcess
from tests.interop.guardedcluster import Users, guarded_cluster

pytestmark = [
    pytest.mark.skipif(
        importlib.util.find_spec("rocketmq") is None,
        reason="no C++ client: its wheel `rocketmq` 0.4.4 is for Linux on x86-64",
    ),
]

TOPIC = "CppSigned"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with guarded_cluster(tmp_path_factory.mktemp("cpprights") / "cluster") as made:
        asyncio.run(made.create_topic(TOPIC))
        yield made


def started(cluster: Cluster, keys: Path) -> PeerProcess:
    program = str(Path(__file__).with_name("cppclient.py"))
    environment = {"HOME": str(keys.parent), "CPP_CLIENT_KEYS": str(keys)}
    return PeerProcess([sys.executable, "-P", program, cluster.layout.namesrv], environment)


def test_cpp_clients_need_the_rights_of_their_own_tasks_only(guarded: Cluster, tmp_path: Path) -> None:
    users = Users(guarded, tmp_path)
    groups = {f"Group_Cpp{name}": "Sub" for name in ("Push", "Order", "Pull", "Before")}
    keys = users.add("cpp", **{f"Topic_{TOPIC}": "Pub,Sub"}, **groups)
    with started(guarded, keys) as before:  # makes the retry topic, for which the library looks at its start
        before.ask("sync", TOPIC, 1, 100, "Tag")
        before.ask("subscribe", TOPIC, "CppPush", "*")
        assert before.ask("drained")["missing"] == 0
    with started(guarded, keys) as cpp:
        for how, count, size in (
            ("sync", 20, 100),
            ("async", 50, 300),
            ("batch", 32, 50),
            ("oneway", 20, 100),
        ):
            assert cpp.ask(how, TOPIC, count, size, "Tag") == {"acked": count, "failed": 0}
        assert cpp.ask("sync", TOPIC, 5, 12_000, "Tag") == {"acked": 5, "failed": 0}
        cpp.ask("subscribe", TOPIC, "CppPush", "*", 1)
        pushed = cpp.ask("drained")
        assert pushed["failed"] > 0 and (pushed["missing"], pushed["changed"]) == (0, 0)
        cpp.ask("order", TOPIC, "CppOrder", 1)
        ordered = cpp.ask("drained")
        assert ordered["failed"] > 0
        assert [ordered[fault] for fault in ("missing", "changed", "disordered", "overtaken")] == [0, 0, 0, 0]
        assert cpp.ask("pull", TOPIC, "CppPull", "*")["missing"] == 0
    assert users.refusals() == []


def test_a_cpp_producer_without_the_right_credentials_sends_nothing(guarded: Cluster, tmp_path: Path) -> None:
    """The library reports each failure as a missing route, so the audit log has the reason."""
    users = Users(guarded, tmp_path)
    reader = users.add("reader", **{f"Topic_{TOPIC}": "Sub"})
    reasons = {
        users.keys("reader", "wrong"): "check signature failed.",
        users.keys("ghost", "secret"): "User:ghost is not found.",
        reader: f"User:reader has no permission to access Topic:{TOPIC} from 127.0.0.1",
    }
    for keys, reason in reasons.items():
        with started(guarded, keys) as cpp:
            assert "ProducerSendSyncFailed" in cpp.answer("sync", TOPIC, 1, 100, "Tag")["error"]
        assert any(reason in line for _, line in users.refusals())
