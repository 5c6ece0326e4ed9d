"""RocketMQ's Java client, tools and brokers over TLS, with certificates at both ends and signed requests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import elect_another, other_members
from localcluster.layout import BROKER_SET, CLUSTER_NAME, HOST
from localcluster.secured import credentials_of
from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.guarded import let_plain_connections_in
from scripts.peers.javapeer import JARS, missing
from scripts.peers.keys import administrator_file, tls_options
from scripts.peers.mixes import failovers
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.interop.javaclient import JavaClient, everything

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing()))]

NO_PERMISSION = 16
UNSURE = "may not know the present users"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("secured") / "cluster"
    with Cluster.create(folder, secure=True, broker_settings=NOBODY_IS_LATE) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made


def test_java_client_and_tools_work_over_tls(
    secured: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    layout = secured.layout
    home = tmp_path_factory.mktemp("home")
    asyncio.run(secured.create_topic("Sent"))  # for the user of the client, who may create none
    keys, tools = credentials_of(layout), administrator_file(layout)
    with JavaClient(layout.namesrv, home, JARS, tls_options(layout), keys, tools) as java:
        java.admin("updateTopic", "-n", layout.namesrv, "-c", CLUSTER_NAME, "-t", "Sent", "-r", 4, "-w", 4)
        assert java.ask("sync", "Sent", 100, 100) == {"acked": 100, "failed": 0}
        assert java.ask("async", "Sent", 400, 1024) == {"acked": 400, "failed": 0}
        assert java.ask("sync", "Sent", 4, 3_000_000) == {"acked": 4, "failed": 0}
        java.ask("subscribe", "Sent", "SecurePush")
        assert java.ask("drained") == everything(504, compressed=4)
        assert java.ask("pull", "Sent") == everything(504, compressed=4)
        listed = java.admin("clusterList", "-n", layout.namesrv)
        assert listed.count(BROKER_SET) == 3
        state = asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS))
        other = next(replica for replica in state.in_sync if replica.broker_id != state.master_id)
        java.admin(
            "electMaster", "-a", layout.address("controller-0"), "-b", other.broker_id, "-n", layout.namesrv,
            "-c", CLUSTER_NAME, "-bn", BROKER_SET,
        )  # fmt: skip
        assert asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS)).master_id == other.broker_id
        assert java.ask("sync", "Sent", 100, 100) == {"acked": 100, "failed": 0}


def test_a_java_client_that_signs_loses_nothing_at_an_election_and_a_kill(
    secured: Cluster, tmp_path: Path
) -> None:
    layout = secured.layout
    asyncio.run(secured.create_topic("Streamed"))
    with JavaClient(layout.namesrv, tmp_path, JARS, tls_options(layout), credentials_of(layout)) as java:
        java.ask("stream", "Streamed")
        java.ask("await", 50)
        before = asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(elect_another(secured, other_members(before)[0]))
        java.ask("await", 50)
        state = asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS))
        assert state.master_epoch > before.master_epoch
        master = layout.name_of(state.master_address or "")
        assert master is not None
        secured.kill([master])
        java.ask("await", 50)
        sent = java.ask("finish")
        assert sent["acked"] >= 150 and NO_PERMISSION not in sent["given up"]
        secured.start([master])
        asyncio.run(secured.wait_whole(timeout_ms=WAIT_MS))
        reading = java.ask("pull", "Streamed")
    assert sent["acked"] <= reading["read"] <= sent["acked"] + sent["failed"]
    assert reading == everything(reading["read"])


def refused(fleet: Fleet, names: Sequence[str]) -> list[str]:
    """The refusals in the logs of these processes, except of users while a master may not know the present ones."""
    lines = [line for name in names for line in fleet.log_file(name).read_text().splitlines()]
    return [line for line in lines if "request refused" in line and UNSURE not in line]


@pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))
@pytest.mark.long
@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_a_java_broker_and_ours_that_sign_fail_over_and_refuse_nothing(tmp_path: Path, tls: bool) -> None:
    """With TLS only the replication stream is plain. Without TLS signatures alone prove who sends requests. The
    controllers' notices of a new master are signed, so the Java broker does not wait for its own next poll."""
    with Fleet.made(tmp_path / "fleet", java=["broker-0"], contract="B", secure=True) as fleet:
        if not tls:
            let_plain_connections_in(fleet)
        asyncio.run(fleet.begin())
        outcome = asyncio.run(failovers(fleet, 4, facts=True))
        fleet.kill(["broker-0"])
        own = fleet.log_file("broker-1").read_text()
        javas = (fleet.directory / "java/broker-0/logs/rocketmqlogs/broker.log").read_text(errors="replace")
        assert refused(fleet, ["namesrv", "controller-0", "broker-1"]) == []
    assert not tls or f"plain connection peer={HOST}" not in own
    assert "Receive notifyBrokerRoleChanged request" in javas
    assert outcome.verdict.faults == [] and outcome.verdict.acknowledged > 100
    assert set(outcome.masters) == {"broker-0", "broker-1"}


@pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))
@pytest.mark.long
@pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])
def test_our_guarded_brokers_fail_over_under_java_controllers(tmp_path: Path, tls: bool) -> None:
    """Java's controllers do not sign. Over TLS our brokers know them by their certificates. Over plain connections
    their notices are refused, and our brokers find the new master by their next poll."""
    java = ["namesrv", "controller-0"]
    with Fleet.made(tmp_path / "fleet", java=java, brokers=3, contract="C", secure=True) as fleet:
        if not tls:
            let_plain_connections_in(fleet)
        asyncio.run(fleet.begin())
        outcome = asyncio.run(failovers(fleet, 3))
        fleet.kill(java)
        ours = refused(fleet, fleet.layout.broker_names)
    assert outcome.verdict.faults == [] and outcome.verdict.acknowledged > 100
    assert bool(ours) is not tls
    assert all("request=NOTIFY_BROKER_ROLE_CHANGED" in line for line in ours)


@pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))
@pytest.mark.long
def test_users_reach_a_java_broker_by_the_tool_only(tmp_path: Path) -> None:
    """While ours leads, the tool's commands for a cluster change both brokers. Commands for ours do not change Java's."""
    with Fleet.made(tmp_path / "fleet", java=["broker-0"], contract="B", secure=True) as fleet:
        asyncio.run(fleet.begin())
        layout, home = fleet.layout, tmp_path / "home"
        home.mkdir()
        tools, both = administrator_file(layout), [layout.address(name) for name in layout.broker_names]
        where = ("-n", layout.namesrv, "-c", CLUSTER_NAME)
        with JavaClient(layout.namesrv, home, JARS, tls_options(layout), tools=tools) as tool:
            made = tool.admin("createUser", *where, "-u", "eve", "-p", "one")
            assert sorted(made.splitlines()) == [f"create user to {each} success." for each in sorted(both)]
            tool.admin("createAcl", *where, "-s", "User:eve", "-r", "Topic:a", "-a", "Pub", "-d", "Allow")
            tool.admin("createUser", "-b", both[1], "-u", "adam", "-p", "two")
            rights = [tool.admin("getAcl", "-b", each, "-s", "User:eve") for each in both]
            assert rights[0] == rights[1] and "Topic:a" in rights[0]
            users = [tool.admin("listUser", "-b", each, "-f", "a") for each in both]
            assert ["adam" in each for each in users] == [False, True]
        fleet.kill(["broker-0"])
