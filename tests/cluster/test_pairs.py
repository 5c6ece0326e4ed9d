"""A master and its slaves without controllers, on virtual time: real brokers, name server and client."""

from __future__ import annotations

import logging
from unittest.mock import patch

import pytest

from broker.clients.refusals import REJECTED
from broker.role.membership import ReplicaRole
from ha.classic.master import ClassicMasterLink
from ha.errors import StoreOfSet
from mqclient.producer import SendStatus
from remoting.bodies.routes import TopicRouteData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.nameserver import GetRouteInfoHeader
from remoting.headers.send import SendMessageHeader
from simulation.kernel.world import World
from tests.cluster.pairset import NAMESRV, Pair

OK = SendStatus.SEND_OK


def bodies(count: int, size: int = 500) -> list[bytes]:
    return [f"message {number}".encode().ljust(size) for number in range(count)]


@pytest.mark.parametrize("seed", [1, 2])
def test_a_message_acknowledged_by_a_sync_master_is_on_its_slave(seed: int) -> None:
    with World(seed) as world:
        pair = Pair(world)
        pair.start_up()
        for body in bodies(20):
            [result] = pair.send(body)
            assert result.status is OK
            assert pair.caught_up(), "a send was acknowledged before the slave held it"
        assert sorted(message.body for message in pair.read()) == sorted(bodies(20))
        master, slave = pair.app(pair.master), pair.app(pair.slave)
        assert master.store.read(0, 1 << 20) == slave.store.read(0, 1 << 20)
        assert slave.store.confirm_offset() == pair.end(pair.slave)


def test_without_a_slave_sends_are_stored_and_answered_slave_not_available() -> None:
    with World(3) as world:
        pair = Pair(world)
        pair.start_up()
        pair.slave.kill()
        world.run_until(lambda: pair.slaves_in_step() == 0, 5_000)
        [result] = pair.send(b"alone")
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE and result.queue_offset >= 0
        assert [message.body for message in pair.read()] == [b"alone"]
        pair.start(pair.slave)
        world.run_until(pair.caught_up, 20_000)
        assert pair.send(b"together")[0].status is OK


def test_a_send_that_the_slave_does_not_confirm_in_time_times_out() -> None:
    with World(4) as world:
        pair = Pair(world, syncFlushTimeout=1_000)
        pair.start_up()
        pair.slave.pause(10_000)
        [result] = pair.send(b"late")
        assert result.status is SendStatus.FLUSH_SLAVE_TIMEOUT
        world.run_until(pair.caught_up, 20_000)


def test_a_sync_master_does_not_wait_for_a_slave_too_far_behind() -> None:
    with World(5) as world:
        pair = Pair(world, haSlaveFallbehindMax=2_000, syncFlushTimeout=1_000)
        pair.start_up()
        pair.slave.pause(10_000)
        statuses = [result.status for result in pair.send(*bodies(6, size=1_000))]
        assert statuses[0] is SendStatus.FLUSH_SLAVE_TIMEOUT
        assert statuses[-1] is SendStatus.SLAVE_NOT_AVAILABLE


def test_an_async_master_does_not_wait_for_its_slave() -> None:
    with World(6) as world:
        pair = Pair(world, master_role="ASYNC_MASTER")
        pair.start_up()
        pair.slave.kill()
        assert pair.send(b"alone")[0].status is OK


def test_a_synced_send_without_a_slave_waits_for_the_disk() -> None:
    with World(7) as world:
        pair = Pair(world, slaves=0, flushDiskType="SYNC_FLUSH")
        pair.start_up()
        [result] = pair.send(b"alone")
        assert result.status is SendStatus.SLAVE_NOT_AVAILABLE
        store = pair.app(pair.master).store
        assert store.flushed_offset() == store.max_offset()


def test_a_slow_disk_of_an_async_master_answers_flush_disk_timeout() -> None:
    with World(8) as world:
        pair = Pair(
            world, slaves=0, master_role="ASYNC_MASTER", flushDiskType="SYNC_FLUSH", syncFlushTimeout=500
        )
        pair.start_up()
        pair.master.disk.stall(2_000)
        assert pair.send(b"late")[0].status is SendStatus.FLUSH_DISK_TIMEOUT


def test_name_servers_show_the_pair_and_a_slave_takes_no_sends() -> None:
    with World(9) as world:
        pair = Pair(world, slaves=2)
        pair.start_up()
        for node in pair.nodes[1:]:
            assert pair.app(node).membership.role is ReplicaRole.SLAVE
            assert pair.app(node).membership.master_address == pair.app(pair.master).address
        request = RemotingCommand.request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader("orders"))
        [broker] = TopicRouteData.decode(pair.run(pair.asked(NAMESRV, request)).body).broker_datas
        assert broker.broker_addrs == {0: "10.0.2.1:10911", 1: "10.0.2.2:10911", 2: "10.0.2.3:10911"}
        assert pair.pull(pair.slave).code == ResponseCode.SYSTEM_BUSY
        header = SendMessageHeader("producers", "orders", "TBW102", 4, 0, 0, 0, 0)
        refused = pair.ask(pair.slave, RequestCode.SEND_MESSAGE, header, b"x")
        assert (refused.code, refused.remark) == (ResponseCode.SYSTEM_BUSY, REJECTED)


def test_a_slave_of_a_pair_serves_reads_with_slave_read_enable() -> None:
    with World(18) as world:
        pair = Pair(world, slaveReadEnable=True)
        pair.start_up()
        pair.send(b"x")
        world.run_until(lambda: pair.app(pair.slave).tables.topics.find("orders") is not None, 5_000)
        found = [pair.pull(pair.slave, queue_id) for queue_id in range(4)]
        assert [reply.code for reply in found].count(ResponseCode.SUCCESS) == 1


def test_slaves_of_a_pair_copy_the_tables_of_the_master() -> None:
    with World(10) as world:
        pair = Pair(world)
        pair.start_up()
        pair.send(b"x")
        world.run_until(lambda: pair.app(pair.slave).tables.topics.find("orders") is not None, 5_000)
        pair.app(pair.master).tables.offsets.commit("group", "orders", 0, 1)
        slave = pair.app(pair.slave).tables
        world.run_until(lambda: slave.offsets.find("group", "orders", 0) == 1, 5_000)


def test_an_empty_slave_begins_with_the_last_file_of_its_master() -> None:
    with World(11) as world:
        pair = Pair(world, mappedFileSizeCommitLog=16_384)
        pair.start(pair.master)
        world.run_until(pair.leads, 5_000)
        pair.create_topic()
        pair.send(*bodies(60, size=1_000))
        assert pair.end(pair.master) > 3 * 16_384
        pair.start(pair.slave)
        world.run_until(pair.caught_up, 20_000)
        store = pair.app(pair.slave).store
        assert store.min_offset() == pair.end(pair.master) // 16_384 * 16_384
        assert pair.send(b"more")[0].status is OK


@pytest.mark.parametrize("seed", range(20, 26))
def test_a_slave_that_loses_power_right_after_its_first_copy_starts_over(seed: int) -> None:
    with World(seed) as world:
        pair = Pair(world, mappedFileSizeCommitLog=16_384, flushIntervalCommitLog=3_000)
        pair.start(pair.master)
        world.run_until(pair.leads, 5_000)
        pair.create_topic()
        pair.send(*bodies(20, size=1_000))
        pair.start(pair.slave)
        world.run_until(lambda: pair.slave.app is not None and pair.end(pair.slave) > 0, 20_000)
        world.run_for_ms(1_500)  # a checkpoint, no sync of the log yet
        pair.slave.kill(power_cut=True)
        pair.start(pair.slave)
        world.run_until(pair.caught_up, 20_000)
        assert pair.slave.failure is None


def test_replication_continues_after_a_kill_of_the_slave_and_of_the_master() -> None:
    with World(12) as world:
        pair = Pair(world)
        pair.start_up()
        pair.send(*bodies(10))
        pair.slave.kill()
        pair.send(*bodies(5))
        pair.start(pair.slave)
        world.run_until(pair.caught_up, 20_000)
        pair.master.kill()
        world.run_for_ms(2_000)
        pair.start(pair.master)
        world.run_until(lambda: pair.slaves_in_step() == 1, 40_000)
        assert pair.send(b"after")[0].status is OK
        assert pair.caught_up() and len(pair.read()) == 16


@pytest.mark.parametrize("seed", [13, 15])
def test_a_slave_does_not_follow_a_master_that_lost_data_that_the_slave_holds(
    seed: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Upstream's slave continues once the master's log is longer, in the middle of other records.

    Before that its reports acknowledge sends that only the master holds.
    """
    with World(seed) as world:
        pair = Pair(world, flushIntervalCommitLog=100_000)
        pair.start_up()
        pair.send(*bodies(20))
        held = pair.end(pair.slave)
        pair.master.disk.share_kept = 0.0
        pair.master.kill(power_cut=True)
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        assert pair.end(pair.master) < held, "its disk kept everything: take another seed"
        with caplog.at_level(logging.ERROR, "ha.classic"):
            statuses = {result.status for result in pair.send(*bodies(60))}
            world.run_for_ms(40_000)
        assert statuses == {SendStatus.SLAVE_NOT_AVAILABLE}, "the slave does not hold them"
        assert pair.end(pair.slave) == held < pair.end(pair.master)
        assert "does not follow its master" in caplog.text


def test_delayed_messages_are_delivered_without_a_slave() -> None:
    with World(16) as world:
        pair = Pair(world, slaves=0, messageDelayLevel="1s 2s")
        pair.start_up()

        async def delayed() -> None:
            async with pair.client() as client:
                await client.producer("producers").send("orders", b"later", properties={"DELAY": "1"})

        pair.run(delayed())
        world.run_for_ms(3_000)
        assert [message.body for message in pair.read()] == [b"later"]
        assert pair.app(pair.master).tables.delays.next_offset(1) == 1


@pytest.mark.parametrize("role", ["SYNC_MASTER", "ASYNC_MASTER"])
def test_a_promoted_slave_delivers_messages_it_holds_no_copy_of(role: str) -> None:
    """Upstream's master gives its slave the delay offset of a message that only the master holds."""
    with World(18) as world:
        pair = Pair(world, messageDelayLevel="6s 9s", master_role=role)
        pair.start_up()

        async def delayed() -> None:
            async with pair.client() as client:
                await client.producer("producers").send("orders", b"later", properties={"DELAY": "1"})

        pair.run(delayed())
        world.run_until(pair.caught_up, 5_000)
        master, slave = pair.app(pair.master), pair.app(pair.slave)
        held = pair.end(pair.slave)
        with patch.object(
            ClassicMasterLink, "writable", lambda *_: []
        ):  # tables are still copied, the log is not
            world.run_until(lambda: master.tables.delays.next_offset(1) == 1, 10_000)
            world.run_for_ms(3_000)
            assert pair.end(pair.master) > pair.end(pair.slave) == held
            assert slave.tables.delays.next_offset(1) == 0
            for node in pair.nodes:
                node.kill()
        pair.nodes[:2] = reversed(pair.nodes[:2])
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        world.run_for_ms(8_000)
        assert [message.body for message in pair.read()] == [b"later"]


def test_a_store_of_controller_mode_is_refused_in_a_pair() -> None:
    with World(17) as world:
        pair = Pair(world, slaves=0)
        pair.master.disk.put("epochFileCheckpoint", b"1\n1725254278\n1-0\n")
        pair.start(pair.master)
        world.run_until(lambda: pair.master.failure is not None, 5_000)
        assert isinstance(pair.master.failure, StoreOfSet)
        assert "enableControllerMode" in str(pair.master.failure)
