"""Forged requests about roles and sets, sent to a whole set: only controllers change roles and sets."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from broker.clients.requesters import Requesters
from broker.role.membership import ReplicaRole
from broker.switchover.forwardingstate import Stage
from mqclient.producer import SendStatus
from namesrv.server import NamesrvApp
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.replicas import BrokerReplicasInfo, ReplicasInfo
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.controller import NotifyBrokerRoleChangedHeader
from remoting.headers.group import AwaitMasterHeader, HandOverHeader
from simulation.hostile.roles import hand_overs, notification, notifications, registration
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, NAMESRV, Cluster, controllers_of
from tests.cluster.groupset import GroupSet
from tests.cluster.pairset import Pair

FAR = 2**31 - 1


def ids_of(cluster: Cluster) -> dict[int, str]:
    """Broker id -> address."""
    apps = [cluster.app(node) for node in cluster.brokers]
    return {app.membership.broker_id or 0: app.address for app in apps}


def say(world: World, address: str, *commands: RemotingCommand) -> list[RemotingCommand]:
    """Sends the commands from a host that belongs to no broker, controller or client."""
    stranger = world.nodes.get("stranger") or world.node("stranger", "10.0.9.1")

    async def ask() -> list[RemotingCommand]:
        client = RemotingClient(clock=SimulatedClock(stranger))
        try:
            return [await client.call(address, command, 5_000) for command in commands]
        finally:
            await client.close()

    asking = stranger.spawn(ask())
    world.run_until(asking.done, 60_000)
    return asking.result()


def test_a_forged_notification_does_not_remove_a_member_from_the_masters_set(world: World) -> None:
    cluster = Cluster(world, 2, minInSyncReplicas=1, slaveTimeout=500, allAckInSyncStateSet=True)
    cluster.start_up()
    master = cluster.app(cluster.master)
    [slave] = cluster.slaves
    own_id, epoch = master.membership.broker_id or 0, master.membership.master_epoch
    slave.kill()
    confirmed = master.store.confirm_offset()
    for node in controllers_of(world):  # otherwise they would soon agree that it has left
        world.network.cut(cluster.master.host, node.host)
    for set_epoch in (FAR, master.ha.mastership.sync_state_set.set_epoch + 1):  # type: ignore[union-attr]
        forged = notification(own_id, master.address, epoch, frozenset({own_id}), set_epoch)
        [answer] = say(world, master.address, forged)
        assert answer.code == (ResponseCode.INVALID_PARAMETER if set_epoch == FAR else ResponseCode.SUCCESS)
        world.run_for_ms(500)
        assert master.ha.applied_members() == {1, 2}, "the set of the controllers still contains it"
    [result] = cluster.run(once(cluster, b"held by one"))
    assert result is SendStatus.FLUSH_SLAVE_TIMEOUT
    assert master.store.confirm_offset() == confirmed and master.membership.accepts_sends


async def once(cluster: Cluster, body: bytes) -> list[SendStatus]:
    async with cluster.client() as client:
        return [(await client.producer("producers").send("orders", body)).status]


def test_a_forged_epoch_reaches_no_file_and_the_set_leads_after_a_restart_of_all(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    ids, epoch = ids_of(cluster), cluster.app(cluster.master).membership.master_epoch
    for broker_id, address in ids.items():
        [answer] = say(world, address, notification(broker_id, address, FAR, frozenset({broker_id}), FAR))
        assert answer.code == ResponseCode.INVALID_PARAMETER
        assert answer.remark == "SyncStateSet: epoch 2147483647 is above 1073741824, where no cluster gets"
    [warned, *_] = [record for record in caplog.records if record.getMessage() == "epoch disbelieved"]
    assert warned.levelno == logging.ERROR and "1008" in warned.fields["hint"]  # type: ignore[attr-defined]
    world.run_for_ms(1_000)
    assert {cluster.app(node).ha.epoch for node in cluster.brokers} == {epoch}
    for node in [*cluster.brokers, *controllers_of(world)]:
        node.kill()
    cluster.start_controllers()
    for node in cluster.brokers:
        cluster.start(node)
    cluster.wait_in_sync(3, 30_000)
    assert all(epoch < cluster.app(node).ha.epoch < epoch + 10 for node in cluster.brokers)


def test_forged_notifications_change_neither_role_nor_epoch_nor_set(world: World) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    leads, ids = cluster.master, ids_of(cluster)
    master = cluster.app(leads)
    before = [(cluster.app(node).membership.role, cluster.app(node).ha.epoch) for node in cluster.brokers]
    set_epoch = master.ha.mastership.sync_state_set.set_epoch  # type: ignore[union-attr]
    forged = list(notifications(ids, master.membership.master_epoch, set_epoch))
    for address in ids.values():
        answers = say(world, address, *forged)
        assert {answer.code for answer in answers} == {0, ResponseCode.INVALID_PARAMETER}
    world.run_for_ms(2_000)
    after = [(cluster.app(node).membership.role, cluster.app(node).ha.epoch) for node in cluster.brokers]
    assert after == before and cluster.master is leads
    assert master.ha.applied_members() == set(ids)
    [result] = cluster.run(once(cluster, b"taken"))
    assert result is SendStatus.SEND_OK


def test_a_true_notification_makes_the_elected_broker_master_before_its_next_poll(world: World) -> None:
    """Only the notification of the true controllers can be this fast: polls are 5 s apart."""
    cluster = Cluster(world, 3)
    cluster.start_up()
    old = cluster.master
    world.run_for_ms(1_000)
    old.kill()
    began_ms = world.now_ms
    world.run_until(lambda: bool(cluster.masters), 1_000)
    assert world.now_ms - began_ms < 150


@pytest.mark.parametrize("epoch", [1, 2, FAR])
def test_in_a_pair_a_notification_is_refused_and_changes_no_role(world: World, epoch: int) -> None:
    pair = Pair(world)
    pair.start_up()
    for node in pair.nodes:
        address = pair.app(node).address
        [answer] = say(world, address, notification(7, "6.6.6.6:1", epoch, frozenset({7}), epoch))
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "has the role that its configuration says" in (answer.remark or "")
    world.run_for_ms(1_000)
    assert pair.leads() and pair.app(pair.slave).membership.role is ReplicaRole.SLAVE
    assert pair.send(b"taken")[0].status is SendStatus.SEND_OK


@pytest.mark.parametrize("ahead", [0, 1, 50])
def test_in_raft_mode_a_notification_is_refused_and_changes_no_role(world: World, ahead: int) -> None:
    group = GroupSet(world)
    group.start_up()
    leads = group.master
    term = group.app(leads).membership.master_epoch
    for node in group.brokers:
        app = group.app(node)
        other = notification(2, group.app(leads).address, term + ahead, frozenset({2}), term + ahead)
        [answer] = say(world, app.address, other)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED
        assert "elects its master itself" in (answer.remark or "")
    world.run_for_ms(1_000)
    assert group.master is leads and group.app(leads).membership.accepts_sends


def test_a_master_refuses_a_hand_over_request_from_a_stranger(world: World) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    master = cluster.app(cluster.master)
    answers = say(
        world, master.address, *hand_overs("broker-a", ids_of(cluster), master.membership.master_epoch)
    )
    assert {answer.code for answer in answers} == {ResponseCode.NO_PERMISSION}
    assert "haSlaveHostCheck" in (answers[0].remark or "")
    assert master.requests.forwarding.state.stage is Stage.SERVING
    began_ms = world.now_ms
    [result] = cluster.run(once(cluster, b"at once"))
    assert result is SendStatus.SEND_OK and world.now_ms - began_ms < 100
    successor = next(broker_id for broker_id in ids_of(cluster) if broker_id != master.membership.broker_id)
    header = HandOverHeader("broker-a", master.membership.master_epoch, successor, 400, 1_000)
    answer = cluster.run(cluster.ask_as_controller(master.address, RequestCode.HAND_OVER, header))
    assert answer.code == ResponseCode.SUCCESS
    assert master.requests.forwarding.state.stage is Stage.HOLDING


def test_without_controllers_a_master_refuses_every_hand_over_request(world: World) -> None:
    group = GroupSet(world)
    group.start_up()
    master = group.app(group.master)
    answers = say(
        world, master.address, *hand_overs("broker-a", ids_of(group), master.membership.master_epoch)
    )
    assert {answer.code for answer in answers} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
    assert master.requests.forwarding.state.stage is Stage.SERVING
    with World(32) as other:
        pair = Pair(other)
        pair.start_up()
        leads = pair.app(pair.master)
        answers = say(other, leads.address, *hand_overs("broker-a", {0: "", 1: ""}, 1))
        assert {answer.code for answer in answers} == {ResponseCode.REQUEST_CODE_NOT_SUPPORTED}
        assert leads.requests.forwarding.state.stage is Stage.SERVING


def former_masters(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The hosts that the broker takes for former masters."""
    noted: list[str] = []
    monkeypatch.setattr(
        Requesters, "passes_on", lambda us, peer: noted.append(peer.remote_address.rpartition(":")[0])
    )
    return noted


def test_a_stranger_is_not_taken_for_a_former_master(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    master, noted = cluster.app(cluster.master), former_masters(monkeypatch)
    for broker_id in (None, *ids_of(cluster), 77):
        header = AwaitMasterHeader(master.membership.master_epoch, 100, broker_id)
        [answer] = say(world, master.address, RemotingCommand.request(RequestCode.AWAIT_MASTER, header))
        assert answer.code == ResponseCode.SUCCESS and noted == []


@pytest.mark.parametrize("kind", [Cluster, GroupSet])
def test_a_former_master_is_recognized_by_its_host(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: type[Cluster]
) -> None:
    cluster = GroupSet(world) if kind is GroupSet else Cluster(world, 3)
    cluster.start_up()
    former, noted = cluster.master, former_masters(monkeypatch)
    if isinstance(cluster, GroupSet):
        roles = cluster.app(former)._group_roles
        assert roles is not None
        cluster.run(roles.hand_over())
    else:
        own_id = cluster.app(former).membership.broker_id
        cluster.run(cluster.designate(min(set(ids_of(cluster)) - {own_id})))
    world.run_until(lambda: cluster.app(former).requests.forwarding.reached, 5_000)
    assert noted == [former.host]


def test_id_and_address_alone_neither_register_nor_heartbeat_for_a_live_broker(world: World) -> None:
    """1003 and 904 as Java's brokers send them, without check code and start number."""
    cluster = Cluster(world, 3)
    cluster.start_up()
    leads, ids = cluster.master, ids_of(cluster)
    master = cluster.app(leads)
    own_id, epoch = master.membership.broker_id or 0, master.membership.master_epoch
    named = {"clusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": str(own_id)}
    registration_request = RemotingCommand.request(
        RequestCode.CONTROLLER_REGISTER_BROKER, {**named, "brokerAddress": "6.6.6.6:10911"}
    )
    beats = [
        RemotingCommand.request(
            RequestCode.BROKER_HEARTBEAT,
            {
                **named,
                "brokerId": str(broker_id),
                "brokerAddr": address,
                "incarnation": str(2**60),
                "maxOffset": str(2**60),
            },
        )
        for broker_id, address in ids.items()
    ]
    for host in CONTROLLERS:
        [refused, *_] = say(world, f"{host}:9878", registration_request, *beats)
        assert refused.code in (ResponseCode.CONTROLLER_BROKER_ID_INVALID, ResponseCode.CONTROLLER_NOT_LEADER)
    world.run_for_ms(15_000)
    assert cluster.master is leads and master.membership.master_epoch == epoch
    [data] = cluster.run(set_of(cluster))
    assert {each.broker_id: each.broker_address for each in data.in_sync_replicas} == ids
    [result] = cluster.run(once(cluster, b"taken"))
    assert result is SendStatus.SEND_OK


def with_made_up_numbers(ids: dict[int, str]) -> Iterator[RemotingCommand]:
    """1003 as this project's brokers send it, without the check code, with the address of each broker."""
    for broker_id, address in ids.items():
        for number, incarnation in ((20, 2**60), (2**62, 2**60), (2**63 - 1, 2**60)):
            yield registration("broker-a", broker_id, address, number, incarnation)


@pytest.mark.parametrize("all_are_dead", [False, True])
def test_a_forged_start_number_deposes_no_master_and_marks_no_disk_as_set_back(
    world: World, all_are_dead: bool
) -> None:
    cluster = Cluster(world, 3)
    cluster.start_up()
    leads, ids, epoch = cluster.master, ids_of(cluster), cluster.app(cluster.master).membership.master_epoch
    for node in cluster.brokers if all_are_dead else ():
        node.kill()
    world.run_for_ms(1_000)
    for host in CONTROLLERS:
        for answer in say(world, f"{host}:9878", *with_made_up_numbers(ids)):
            refusals = (ResponseCode.CONTROLLER_BROKER_ID_INVALID, ResponseCode.CONTROLLER_NOT_LEADER)
            assert answer.code in refusals and "knownStartNumber" not in answer.ext
    for node in cluster.brokers if all_are_dead else ():
        cluster.start(node)
    cluster.wait_in_sync(3, 30_000)
    world.run_for_ms(15_000)
    assert not any(cluster.app(node).memory_mark.was_set_back for node in cluster.brokers)
    if not all_are_dead:
        assert cluster.master is leads and cluster.app(leads).membership.master_epoch == epoch
    [result] = cluster.run(once(cluster, b"taken"))
    assert result is SendStatus.SEND_OK


async def set_of(cluster: Cluster) -> list[ReplicasInfo]:
    """The replicas of the set in the state of the leading controller."""
    reply = await cluster.ask(f"{CONTROLLERS[0]}:9878", RequestCode.CONTROLLER_GET_METADATA_INFO)
    leader = reply.ext["controllerLeaderAddress"]
    asked = await cluster.ask(leader, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=b'["broker-a"]')
    return list(BrokerReplicasInfo.decode(asked.body).replicas_info_table.values())


def test_a_stranger_neither_removes_a_broker_from_the_routes_nor_keeps_one_in_them(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()
    master = cluster.app(cluster.master)
    namesrv = world.nodes["namesrv"].app
    assert isinstance(namesrv, NamesrvApp)
    live = namesrv.table.live["DefaultCluster", master.address]
    named = {
        "brokerName": "broker-a",
        "brokerAddr": master.address,
        "clusterName": "DefaultCluster",
        "brokerId": "0",
    }
    before_ms = live.updated_ms
    kept, asked = [
        RemotingCommand.request(code, named)
        for code in (RequestCode.BROKER_HEARTBEAT, RequestCode.QUERY_DATA_VERSION)
    ]
    asked.body = DataVersion().encode()
    gone = RemotingCommand.request(RequestCode.UNREGISTER_BROKER, named)
    answers = say(world, NAMESRV, kept, asked, gone)
    assert [answer.code for answer in answers] == [0, 0, ResponseCode.NO_PERMISSION]
    assert live.updated_ms == before_ms and namesrv.table.live["DefaultCluster", master.address] is live
    assert cluster.run(once(cluster, b"still routed")) == [SendStatus.SEND_OK]
    old = cluster.master
    world.run(old.stop(), limit_ms=20_000)
    assert ("DefaultCluster", f"{old.host}:10911") not in namesrv.table.live, (
        "the broker itself may unregister"
    )


def test_a_malformed_notification_is_answered_and_changes_nothing(world: World) -> None:
    cluster = Cluster(world, 2)
    cluster.start_up()
    header = NotifyBrokerRoleChangedHeader("10.0.2.1:10911", 9, 9, 1)
    for body in (
        None,
        b"{",
        b'{"syncStateSet":null}',
        b'{"syncStateSet":[1],"syncStateSetEpoch":2147483648}',
    ):
        bad = RemotingCommand.request(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, header, body)
        [answer] = say(world, cluster.app(cluster.master).address, bad)
        assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR)
    world.run_for_ms(1_000)
    assert cluster.app(cluster.master).ha.in_sync_count() == 2
