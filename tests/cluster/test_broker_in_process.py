"""Whole broker sets on virtual time: real brokers, controllers, name server and client, one seed each."""

from __future__ import annotations

import asyncio

import pytest

from broker.app import BrokerApp
from broker.role.controllercalls import ControllerCalls
from broker.role.identity import IdentityInvalid
from broker.role.manager import ReplicasManager
from broker.role.membership import ReplicaRole
from epochfile.history import EpochHistory
from ha.epochs import KeptEpochs
from ha.syncstateset import Alter
from mqclient.errors import SendRefused
from mqclient.producer import SendStatus
from remoting.bodies.elections import Elections
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import CallTimeout
from remoting.headers.controller import ElectMasterHeader
from remoting.headers.send import SendMessageHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster


def test_three_brokers_are_in_sync_and_writable_within_four_seconds() -> None:
    with World(1) as world:
        cluster = Cluster(world, 3)
        cluster.wait_in_sync(3, limit_ms=4_000)
        assert len(cluster.masters) == 1


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_message_is_acknowledged_by_all_three_and_then_read(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = [f"message {number}".encode() * 20 for number in range(50)]
        results = cluster.run(cluster.send_all(bodies))
        assert [result.status for result in results] == [SendStatus.SEND_OK] * 50
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1, "every member holds an acknowledged message"
        assert cluster.bodies() == sorted(bodies)


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_nothing_acknowledged_is_lost_when_the_master_is_killed(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        first = [f"before {number}".encode() for number in range(20)]
        cluster.run(cluster.send_all(first))
        old = cluster.master
        old.kill()
        killed_at_ms = world.now_ms
        cluster.wait_in_sync(2)
        assert world.now_ms - killed_at_ms < 4_000
        second = [f"after {number}".encode() for number in range(20)]
        cluster.run(cluster.send_all(second))
        cluster.start(old)
        cluster.wait_in_sync(3)
        assert cluster.app(old).membership.role is ReplicaRole.SLAVE
        read = [message.body for message in cluster.run(cluster.read_all())]
        assert set(first + second) <= set(read)
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1


def test_every_controller_learns_at_once_that_the_new_master_is_writable() -> None:
    with World(14) as world:
        cluster = Cluster(world, 2, brokerHeartbeatInterval=3_000)
        cluster.start_up()
        cluster.master.kill()
        cluster.wait_in_sync(1)  # no broker joins it, so no alter shows that it is writable
        world.run_for_ms(100)
        for host in CONTROLLERS:
            asked = cluster.ask(
                f"{host}:9878", RequestCode.CONTROLLER_GET_METADATA_INFO, None, b'["broker-a"]'
            )
            election = Elections.decode(cluster.run(asked).body).elections_table["broker-a"][-1]
            assert (election.epoch, election.reason) == (2, "connection lost")
            assert election.elected_ms is not None and election.writable_ms is not None
            assert election.writable_ms - election.elected_ms < 500


@pytest.mark.parametrize("alone", [False, True], ids=["among others", "alone"])
@pytest.mark.parametrize("kind", ["namesrv", "controller", "broker"])
def test_a_server_stops_within_three_seconds(kind: str, alone: bool) -> None:
    with World(6) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        node = next(
            node for node in world.nodes.values() if node.name.startswith(kind) and node is not cluster.master
        )
        if alone:
            for other in {*world.nodes.values()} - {node}:
                other.kill(power_cut=True)
            world.run_for_ms(500)
        world.run(node.stop(), limit_ms=3_000)
        assert node.left_behind == []


def test_a_stopped_master_hands_over_quickly_and_leaves_no_task_behind() -> None:
    with World(5) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = [f"message {number}".encode() for number in range(10)]
        cluster.run(cluster.send_all(bodies))
        old = cluster.master
        began_ms = world.now_ms
        world.run(old.stop())
        assert world.now_ms - began_ms < 3_000
        assert old.left_behind == []
        cluster.wait_in_sync(2, limit_ms=4_000)
        assert {message.body for message in cluster.run(cluster.read_all())} == set(bodies)


def test_a_lone_broker_serves_under_contract_b() -> None:
    with World(6) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.run(cluster.send_all([b"alone"]))
        assert [message.body for message in cluster.run(cluster.read_all())] == [b"alone"]


def test_a_set_below_min_in_sync_replicas_stores_nothing() -> None:
    with World(7) as world:
        cluster = Cluster(world, 1)
        cluster.start_up()
        world.run_for_ms(1_000)
        end = cluster.app(cluster.master).store.max_offset()

        async def send() -> None:
            async with cluster.client() as client:
                with pytest.raises(SendRefused, match="in-sync replicas not enough"):
                    await client.producer("producers").send("orders", b"refused")

        cluster.run(send())
        assert cluster.app(cluster.master).store.max_offset() == end


def test_an_isolated_master_acknowledges_nothing_and_follows_when_it_is_back() -> None:
    with World(8) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all([b"before"]))
        old = cluster.master
        others = [node.host for node in cluster.brokers if node is not old] + CONTROLLERS + ["10.0.3.1"]
        for host in others:
            world.network.cut(old.host, host)
        app = cluster.app(old)
        header = SendMessageHeader("producers", "orders", "TBW102", 4, 0, 0, 0, 0)
        with pytest.raises(CallTimeout):
            cluster.run(cluster.ask(app.address, RequestCode.SEND_MESSAGE, header, b"alone"))
        world.run_until(lambda: any(node is not old for node in cluster.masters), 30_000)
        assert app.store.confirm_offset() < app.store.max_offset()
        for host in others:
            world.network.heal(old.host, host)
        world.run_until(lambda: cluster.app(old).membership.role is ReplicaRole.SLAVE, 30_000)
        cluster.wait_in_sync(3, limit_ms=30_000)
        assert {message.body for message in cluster.run(cluster.read_all())} == {b"before"}


def test_all_brokers_killed_and_restarted_keep_acknowledged_messages() -> None:
    with World(9) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        bodies = [f"message {number}".encode() for number in range(30)]
        cluster.run(cluster.send_all(bodies))
        for node in cluster.brokers:
            node.kill()
        for node in cluster.brokers:
            cluster.start(node)
        cluster.wait_in_sync(3, limit_ms=30_000)
        assert {message.body for message in cluster.run(cluster.read_all())} == set(bodies)


def test_a_held_pull_is_answered_when_its_message_arrives() -> None:
    with World(10) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()

        async def wait_for_it() -> tuple[list[bytes], int]:
            async with cluster.client() as client:
                producer, consumer = client.producer("producers"), client.consumer("readers")
                await producer.send("orders", b"first", queue_id=0)
                (queue, *_) = await consumer.queues("orders")
                pull = asyncio.create_task(consumer.pull(queue, 1, suspend_ms=15_000))
                await asyncio.sleep(2)
                assert not pull.done()
                await producer.send("orders", b"second", queue_id=0)
                sent_ms = world.now_ms
                result = await pull
                return [message.body for message in result.messages], world.now_ms - sent_ms

        bodies, waited_ms = cluster.run(wait_for_it())
        assert bodies == [b"second"]
        assert waited_ms < 500


def test_an_elected_slave_takes_over_and_all_others_follow_it() -> None:
    with World(21) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all([b"before"]))
        old = cluster.master
        chosen = next(node for node in cluster.brokers if node is not old)

        async def elect() -> None:
            broker_id = cluster.app(chosen).membership.role_id
            assert broker_id is not None
            header = ElectMasterHeader("broker-a", "DefaultCluster", broker_id, designate_elect=True)
            await cluster.ask_leader(RequestCode.CONTROLLER_ELECT_MASTER, header)

        cluster.run(elect())
        world.run_until(lambda: cluster.masters == [chosen], 2_000)
        cluster.wait_in_sync(3, limit_ms=3_000)
        assert cluster.app(old).membership.role is ReplicaRole.SLAVE
        assert cluster.in_sync(3)


def test_a_name_server_that_restarts_knows_the_routes_again_within_three_seconds() -> None:
    with World(22) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        namesrv = world.nodes["namesrv"]
        namesrv.kill()
        world.run_for_ms(500)
        cluster.start_namesrv()
        world.run_for_ms(3_000)
        cluster.run(cluster.send_all([b"after"]))


def test_a_learner_holds_everything_and_never_enters_the_set() -> None:
    with World(23) as world:
        cluster = Cluster(world, 2)
        cluster.start_up()
        cluster.brokers.append(
            world.node("learner", "10.0.2.9")
        )  # last, because a set's first broker becomes its master
        cluster.start(cluster.brokers[-1], asyncLearner=True)
        cluster.run(cluster.send_all([b"learned"]))
        world.run_for_ms(20_000)
        assert cluster.in_sync(2)
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1


def test_with_sync_flush_an_acknowledged_message_is_on_the_masters_disk() -> None:
    with World(24) as world:
        cluster = Cluster(world, 3, flushDiskType="SYNC_FLUSH", flushIntervalCommitLog=60_000)
        cluster.start_up()
        cluster.run(cluster.send_all([b"flushed"] * 5))
        store = cluster.app(cluster.master).store
        assert store.flushed_offset() == store.max_offset()


def test_without_all_acks_a_master_answers_before_its_slaves_hold_the_message() -> None:
    with World(25) as world:
        cluster = Cluster(world, 3, allAckInSyncStateSet=False, minInSyncReplicas=1)
        cluster.start_up()
        master = cluster.master
        for node in cluster.brokers:
            if node is not master:
                world.network.cut(master.host, node.host)
        (result,) = cluster.run(cluster.send_all([b"alone"]))
        assert result.status is SendStatus.SEND_OK


def test_a_replica_of_another_set_refuses_to_start() -> None:
    with World(26) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.wait_in_sync(1)
        node = cluster.brokers[0]
        world.run(node.stop())
        cluster.start(node, brokerName="broker-b")
        world.run_until(lambda: node.failure is not None, 1_000)
        assert isinstance(node.failure, IdentityInvalid)


def test_a_slave_takes_the_ha_address_from_the_name_server_if_its_master_reports_none() -> None:
    with World(27) as world:
        cluster = Cluster(world, 2, minInSyncReplicas=1)
        for node in cluster.brokers:
            world.run_until(lambda node=node: isinstance(node.app, BrokerApp), 100)  # type: ignore[misc]
            app = cluster.app(node)
            app.requests.router.handlers.pop(RequestCode.EXCHANGE_BROKER_HA_INFO)
        cluster.wait_in_sync(2, limit_ms=40_000)


def test_a_master_that_no_controller_heard_for_a_while_keeps_its_epoch() -> None:
    with World(28) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        cluster.run(cluster.send_all([b"before"]))
        master = cluster.master
        app = cluster.app(master)
        epoch = app.ha.epoch
        # the controllers hear no broker, so they elect none
        for node in cluster.brokers:
            for host in CONTROLLERS:
                world.network.cut(node.host, host)
        world.run_for_ms(30_000)
        for node in cluster.brokers:
            for host in CONTROLLERS:
                world.network.heal(node.host, host)
        cluster.wait_in_sync(3, limit_ms=30_000)
        cluster.run(cluster.send_all([b"after"]))
        assert cluster.master is master and app.ha.epoch == epoch
        assert {message.body for message in cluster.run(cluster.read_all())} >= {b"before", b"after"}
        ends = {cluster.app(node).store.max_offset() for node in cluster.brokers}
        assert len(ends) == 1


def test_an_alter_of_the_previous_epoch_is_not_sent_after_a_reelection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The set shrinks while a reelected master writes its epoch file: the alter is of the previous epoch."""
    wanted: list[int] = []
    sent: list[tuple[int, int]] = []
    ask, command, store = ReplicasManager.alter_sync_state_set, ControllerCalls.alter, KeptEpochs.store

    def asked(self: ReplicasManager, alter: Alter) -> None:
        wanted.append(alter.master_epoch)
        ask(self, alter)

    def made(self: ControllerCalls, alter: Alter, wall_ms: int) -> RemotingCommand:
        sent.append((alter.master_epoch, self._membership.master_epoch))
        return command(self, alter, wall_ms)

    async def slowly(self: KeptEpochs, history: EpochHistory) -> None:
        await asyncio.sleep(3 if len(history) > 1 else 0)
        await store(self, history)

    with World(301) as world:
        cluster = Cluster(world, 2, minInSyncReplicas=1)
        cluster.start_up()
        cluster.run(cluster.send_all([b"an epoch without a byte would be replaced"]))
        master = cluster.master
        for owner, name, instead in (
            (ReplicasManager, "alter_sync_state_set", asked),
            (ControllerCalls, "alter", made),
            (KeptEpochs, "store", slowly),
        ):
            monkeypatch.setattr(owner, name, instead)
        next(node for node in cluster.brokers if node is not master).kill()
        world.run_for_ms(300)
        for host in CONTROLLERS:
            world.network.reset(master.host, host)
        world.run_for_ms(15_000)
        assert cluster.in_sync(1)
        assert min(wanted) < cluster.app(master).membership.master_epoch, (
            "the alter was requested before the new epoch was taken"
        )
    assert all(of == taken for of, taken in sent), sent


def test_refusals_are_logged_rarely_while_a_slave_cut_off_from_controllers_replicates(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its expansion is refused twice a second: successful reads in between must not repeat the log line."""
    with World(31) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        slave = cluster.slaves[0]
        for node in world.nodes.values():
            if node is not slave:
                world.network.cut(slave.host, node.host)
        cluster.wait_in_sync(2, 20_000)
        world.run_for_ms(20_000)
        world.network.heal(slave.host, cluster.master.host)
        world.run_for_ms(5_000)
        caplog.clear()
        world.run_for_ms(60_000)
        assert cluster.in_sync(2)
    refused = [record for record in caplog.records if record.getMessage() == "controller refused, retrying"]
    assert 1 <= len(refused) <= 60_000 / 5_000 + 1, "once after each regular poll"
