"""Answers of a running controller, compared with frames of a Java 5.3.3 controller if there are any."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.settings import ControllerSettings
from mqruntime.settings import OURS
from mqruntime.tlssettings import TlsSettings
from remoting.bodies.replicas import SyncStateSetBody
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import ConnectFailed
from remoting.frame import FrameReader
from remoting.headers.controller import (
    AlterSyncStateSetHeader,
    ApplyBrokerIdHeader,
    CleanBrokerDataHeader,
    GetReplicaInfoHeader,
    RegisterBrokerToControllerHeader,
)
from simulation.controllers.scriptedbroker import BROKER_NAME, CLUSTER_NAME
from simulation.controllers.world import PEERS, ControllerWorld
from simulation.kernel.node import SimulatedClock
from tests.simulation.controllerscene import asked, whole_cluster

VECTORS = Path(__file__).parents[1] / "vectors" / "controller"
EXCHANGES = [json.loads(line) for line in (VECTORS / "java-5.3.3-exchanges.jsonl").read_text().splitlines()]


def command(frame: str) -> RemotingCommand:
    (found,) = FrameReader().receive(bytes.fromhex(frame))
    return found


@pytest.fixture
def cluster() -> Iterator[ControllerWorld]:
    with whole_cluster(4) as cluster:
        yield cluster


def ask(cluster: ControllerWorld, request: RemotingCommand, *, follower: bool = False) -> RemotingCommand:
    """The answer of the leader or of a follower."""
    leader = cluster.leader()
    assert leader is not None
    node = next(node for node in cluster.controllers if (node is not leader) is follower)
    return asked(cluster, node, request)


def request(code: RequestCode, header: object = None, body: bytes | None = None) -> RemotingCommand:
    return RemotingCommand.request(code, header, body)  # type: ignore[arg-type]


def test_a_follower_controller_answers_only_that_it_does_not_lead(cluster: ControllerWorld) -> None:
    rows = [row for row in EXCHANGES if row["reply"] == 2007]
    assert {row["code"] for row in rows} == {1001, 1002, 1003, 1004, 1006, 1011, 1012, 1013}
    for row in rows:
        ours, java = ask(cluster, command(row["request_frame"]), follower=True), command(row["reply_frame"])
        assert (ours.code, ours.remark, ours.ext, ours.body) == (2007, java.remark, {}, None)


@pytest.mark.parametrize("follower", [False, True])
def test_every_controller_accepts_heartbeats(cluster: ControllerWorld, follower: bool) -> None:
    for row in EXCHANGES:
        if row["code"] == 904:
            ours = ask(cluster, command(row["request_frame"]), follower=follower)
            java = command(row["reply_frame"])
            assert (ours.code, ours.remark, ours.ext, ours.body) == (java.code, java.remark, {}, None)


@pytest.mark.parametrize("follower", [False, True])
def test_every_controller_knows_the_leader(cluster: ControllerWorld, follower: bool) -> None:
    java = command(next(row for row in EXCHANGES if row["code"] == 1005)["reply_frame"])
    ours = ask(cluster, request(RequestCode.CONTROLLER_GET_METADATA_INFO), follower=follower)
    leader = cluster.leader()
    assert leader is not None
    assert ours.ext.keys() == java.ext.keys()
    assert ours.ext == {
        "group": "group1",
        "controllerLeaderId": leader.name,
        "controllerLeaderAddress": PEERS[leader.name],
        "isLeader": "false" if follower else "true",
        "peers": "n0:10.0.1.1:9878;n1:10.0.1.2:9878;n2:10.0.1.3:9878;",
    }


def test_settings_are_shown_and_changed_on_one_controller(cluster: ControllerWorld) -> None:
    for row in EXCHANGES:
        if row["code"] == 1009:
            ours, java = ask(cluster, command(row["request_frame"])), command(row["reply_frame"])
            assert (ours.code, ours.remark, ours.ext, ours.body) == (java.code, java.remark, {}, None)
    assert (
        ask(
            cluster, request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=b"enableElectUncleanMaster=true\n")
        ).code
        == 0
    )
    lines = bytes(ask(cluster, request(RequestCode.GET_CONTROLLER_CONFIG)).body or b"").decode().splitlines()
    assert lines == sorted(lines)
    assert "enableElectUncleanMaster=true" in lines
    assert "configBlackList=configBlackList;configStorePath" in lines
    java_keys = {
        line.partition("=")[0]
        for row in EXCHANGES
        if row["code"] == 1010
        for line in bytes(command(row["reply_frame"]).body or b"").decode().splitlines()
    }
    own_keys = {key for key, default in ControllerSettings.UPSTREAM.items() if default == OURS}
    tls_keys = TlsSettings.keys().keys()  # properties of the process in Java
    assert {line.partition("=")[0] for line in lines} <= java_keys | own_keys | tls_keys
    follower = bytes(ask(cluster, request(RequestCode.GET_CONTROLLER_CONFIG), follower=True).body or b"")
    assert b"enableElectUncleanMaster=false\n" in follower


def test_an_invalid_setting_changes_nothing(cluster: ControllerWorld) -> None:
    before = ask(cluster, request(RequestCode.GET_CONTROLLER_CONFIG)).body
    for body in (
        b"notifyBrokerRoleChanged=false\nelectMasterMaxRetryCount=many\n",
        b"notifyBrokerRoleChanged=false\nconfigBlackList=x\n",
        b"notifyBrokerRoleChanged=false\nrocketmqHome=/x\n",
        b"notifyBrokerRoleChanged=false\ncontrollerDLegerSelfId=n9\n",
        b"notifyBrokerRoleChanged=\\uZZZZ\n",
        b"notifyBrokerRoleChanged=false\nmappedFileSize=2097152\n",
    ):
        assert ask(cluster, request(RequestCode.UPDATE_CONTROLLER_CONFIG, body=body)).code in (1, 16)
    assert ask(cluster, request(RequestCode.GET_CONTROLLER_CONFIG)).body == before


def test_hostile_requests_are_refused_and_change_nothing(cluster: ControllerWorld) -> None:
    master_id = cluster.checker.state(BROKER_NAME).master_id
    assert master_id is not None
    other = master_id % 3 + 1
    alter = RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET
    apply = RequestCode.CONTROLLER_APPLY_BROKER_ID
    state = cluster.checker.state(BROKER_NAME)
    hostile = [
        (request(alter, {"brokerName": BROKER_NAME, "masterBrokerId": "1_0", "masterEpoch": "1"}), 1),
        (request(alter, {"brokerName": BROKER_NAME, "masterBrokerId": str(2**63), "masterEpoch": "1"}), 1),
        (
            request(
                alter, AlterSyncStateSetHeader(BROKER_NAME, other, 1), SyncStateSetBody(frozenset()).encode()
            ),
            2002,
        ),
        (request(alter, AlterSyncStateSetHeader(BROKER_NAME, master_id, 1), b'{"syncStateSet":"x"}'), 1),
        (request(alter, AlterSyncStateSetHeader(BROKER_NAME, master_id, 1), b"[" * 100_000), 1),
        (request(apply, ApplyBrokerIdHeader(BROKER_NAME, master_id, "10.9.9.9:1;1", CLUSTER_NAME)), 2014),
        (request(apply, ApplyBrokerIdHeader("x" * 300, 1, "10.9.9.9:1;1", CLUSTER_NAME)), 1),
        (
            request(
                RequestCode.CONTROLLER_REGISTER_BROKER,
                RegisterBrokerToControllerHeader(BROKER_NAME, 77, "10.9.9.9:1", CLUSTER_NAME),
            ),
            2010,
        ),
        (
            request(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataHeader(BROKER_NAME, "wrong", str(other))),
            2009,
        ),
        (request(RequestCode.CLEAN_BROKER_DATA, CleanBrokerDataHeader(BROKER_NAME)), 2009),
        (request(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'{"a":1}'), 1),
        (request(RequestCode.CONTROLLER_GET_REPLICA_INFO), 1),
        (request(RequestCode.GET_BROKER_EPOCH_CACHE), 3),
    ]
    for command_, code in hostile:
        assert ask(cluster, command_).code == code, command_
    assert cluster.checker.state(BROKER_NAME).master_epoch == state.master_epoch == 1


def test_a_heartbeat_of_an_unknown_broker_leaves_no_trace(cluster: ControllerWorld) -> None:
    beat = {"clusterName": CLUSTER_NAME, "brokerAddr": "x:1", "brokerName": BROKER_NAME, "brokerId": "9"}
    assert ask(cluster, request(RequestCode.BROKER_HEARTBEAT, beat)).code == 0
    leader = cluster.leader()
    assert leader is not None
    assert not cluster.app(leader).brokers.liveness().is_alive((CLUSTER_NAME, BROKER_NAME, 9))


def test_a_cut_off_leader_serves_no_reads(cluster: ControllerWorld) -> None:
    leader = cluster.leader()
    assert leader is not None
    for other in cluster.controllers:
        if other is not leader:
            cluster.world.network.cut(leader.host, other.host)
    info = request(RequestCode.CONTROLLER_GET_REPLICA_INFO, GetReplicaInfoHeader(BROKER_NAME))
    assert ask(cluster, info).code == 2007


def test_a_stopped_controller_hands_over_and_its_port_is_free(cluster: ControllerWorld) -> None:
    leader = cluster.leader()
    assert leader is not None
    cluster.world.run(leader.stop())
    cluster.world.run_until(lambda: cluster.leader() not in (None, leader), limit_ms=5_000)

    async def connect() -> None:
        client = RemotingClient(clock=SimulatedClock(leader))
        with pytest.raises(ConnectFailed):
            await client.call(PEERS[leader.name], request(RequestCode.CONTROLLER_GET_METADATA_INFO))
        await client.close()

    cluster.world.run(connect())
    cluster.start_controller(leader)
    cluster.world.run_until(cluster.whole, limit_ms=30_000)
