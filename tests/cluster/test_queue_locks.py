"""Queues that clients lock to consume in order: one holder each, through kills, hand-overs and restarts."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import Iterator
from contextlib import suppress

import pytest

from broker.tables import queuelocks
from broker.tables.queuelocks import LEASE_MS, RebalanceLocks
from mqclient.client import Client
from mqclient.errors import LockFailed
from mqclient.queuelocks import TRUST_MS, QueueLocks
from mqclient.route import MessageQueue
from remoting.bodies.queues import LockBatchResponseBody, LockQueuesBody
from remoting.bodies.queues import MessageQueue as WireQueue
from remoting.bodies.tables import QueueLock, QueueLockTable
from remoting.codes import RequestCode, ResponseCode
from remoting.errors import BodyError
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import NAMESRV, Cluster, controllers_of, cut_off

ONE, TWO = ("orders", 1), ("orders", 2)
QUEUES = [MessageQueue("orders", "broker-a", number) for number in (1, 2)]


class Clock:
    def __init__(self) -> None:
        self.ms = 1_000

    def monotonic_ms(self) -> int:
        return self.ms

    def now_ms(self) -> int:
        return self.ms

    def work_us(self) -> int:
        return 1_000 * self.ms


class Table:
    """Locks with a counter of changes."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.changes = 0
        self.locks = RebalanceLocks(self.clock, self._changed)

    def _changed(self) -> None:
        self.changes += 1


# -- the table


def test_a_queue_has_one_holder_until_its_lease_is_over() -> None:
    table = Table()
    locks, clock = table.locks, table.clock
    assert locks.lock("CG", [ONE, TWO], "a") == [ONE, TWO]
    clock.ms += LEASE_MS - 1
    assert locks.lock("CG", [TWO], "a") == [TWO]
    assert locks.lock("CG", [ONE, TWO], "b") == []
    assert locks.lock("other", [ONE], "b") == [ONE]
    clock.ms += 1
    assert locks.lock("CG", [ONE, TWO], "b") == [ONE]
    assert locks.lock("CG", [ONE, TWO], "a") == [TWO]
    assert table.changes == 3


def test_an_unlock_by_the_holder_frees_a_queue_at_once_and_by_others_does_nothing() -> None:
    table = Table()
    locks = table.locks
    locks.lock("CG", [ONE], "a")
    locks.unlock("CG", [ONE], "b")
    locks.unlock("other", [ONE], "a")
    assert locks.lock("CG", [ONE], "b") == []
    locks.unlock("CG", [ONE, TWO], "a")
    assert locks.lock("CG", [ONE], "b") == [ONE]
    assert table.changes == 3


def test_a_lock_is_agreed_while_its_holder_keeps_it() -> None:
    locks = Table().locks
    locks.lock("CG", [ONE, TWO], "a")
    assert not locks.agreed("CG", [ONE], "a")
    locks.unlock("CG", [TWO], "a")
    assert locks.note_agreed("CG", [ONE, TWO], "a", locks.newest) == [ONE]
    assert locks.agreed("CG", [ONE], "a") and not locks.agreed("CG", [ONE], "b")
    assert not locks.agreed("CG", [ONE, TWO], "a")
    locks.led()
    assert not locks.agreed("CG", [ONE], "a")


def test_a_queue_locked_again_during_replication_of_the_first_lock_is_not_agreed() -> None:
    locks = Table().locks
    locks.lock("CG", [ONE, TWO], "a")
    replicated = locks.newest
    locks.unlock("CG", [ONE], "a")
    locks.lock("CG", [ONE], "a")
    assert locks.note_agreed("CG", [ONE, TWO], "a", replicated) == [TWO]
    assert not locks.agreed("CG", [ONE], "a")


def test_under_a_new_master_each_lease_restarts() -> None:
    master, slave = Table(), Table()
    master.locks.lock("CG", [ONE], "a")
    assert slave.locks.adopt(master.locks.wrapper())
    assert not slave.locks.adopt(master.locks.wrapper())
    slave.clock.ms += 10 * LEASE_MS  # in which the holder renewed its lock at the master
    slave.locks.led()
    assert slave.locks.lock("CG", [ONE], "b") == []
    slave.clock.ms += LEASE_MS
    assert slave.locks.lock("CG", [ONE], "b") == [ONE]


def test_a_lock_table_is_encoded_once_while_no_holder_changes() -> None:
    table = Table()
    table.locks.lock("CG", [ONE, TWO], "a")
    first = table.locks.wrapper()
    written = first.encode()
    assert written == (
        b'{"locks":[{"clientId":"a","group":"CG","queueId":1,"topic":"orders"},'
        b'{"clientId":"a","group":"CG","queueId":2,"topic":"orders"}]}'
    )
    table.locks.lock("CG", [ONE], "a")  # renewed
    assert table.locks.wrapper() is first and first.encode() is written
    table.locks.unlock("CG", [ONE], "a")
    assert table.locks.wrapper().encode() == (
        b'{"locks":[{"clientId":"a","group":"CG","queueId":2,"topic":"orders"}]}'
    )


def test_a_slave_adopts_changed_locks() -> None:
    master, slave = Table().locks, Table().locks
    master.lock("CG", [ONE, TWO], "a")
    assert slave.adopt(QueueLockTable.decode(master.encode()))
    master.unlock("CG", [ONE, TWO], "a")
    master.lock("CG", [TWO], "b")
    assert slave.adopt(QueueLockTable.decode(master.encode()))
    assert slave.encode() == master.encode()
    assert not slave.adopt(master.wrapper())


def test_lock_rows_with_queue_ids_as_text_are_read_and_malformed_ones_refused() -> None:
    assert QueueLockTable.decode(
        b'{"locks":[{"clientId":"a","group":"CG","queueId":"1","topic":"t"}]}'
    ).locks == [QueueLock("CG", "t", 1, "a")]
    for row in (b'{"group":"CG"}', b"7", b'{"clientId":"a","group":"CG","queueId":2147483648,"topic":"t"}'):
        with pytest.raises(BodyError):
            QueueLockTable.decode(b'{"locks":[' + row + b"]}")
    with pytest.raises(BodyError):
        QueueLockTable.decode(b'{"locks":{}}')


def test_lock_holders_are_restored_from_the_file() -> None:
    before, after = Table(), Table()
    before.locks.lock("CG", [ONE], "a")
    after.locks.decode(before.locks.encode())
    assert after.locks.lock("CG", [ONE], "b") == []
    assert after.locks.lock("CG", [ONE], "a") == [ONE]
    with pytest.raises(BodyError):
        after.locks.decode(b'{"locks":[{"group":"CG"}]}')


def test_expired_locks_are_forgotten() -> None:
    table = Table()
    table.locks.lock("CG", [ONE, TWO], "a")
    table.clock.ms += LEASE_MS
    assert table.locks.lock("other", [ONE], "b") == [ONE]
    assert [lock.group for lock in table.locks.wrapper().locks] == ["other"]


def test_expired_locks_make_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queuelocks, "LOCKS_MAX", 2)
    table = Table()
    assert table.locks.lock("CG", [ONE, TWO, ("orders", 3)], "a") == [ONE, TWO]
    table.clock.ms += LEASE_MS
    assert table.locks.lock("CG", [("orders", 3)], "a") == [("orders", 3)]
    assert len(table.locks.wrapper().locks) == 1


def test_locks_are_bounded_by_the_size_that_slaves_can_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    table, name = Table(), "\0" * 255
    monkeypatch.setattr(queuelocks, "BYTES_MAX", 4_000)
    many = [("orders", number) for number in range(9)]
    for _ in range(2):
        assert table.locks.lock(name, many, name) == many[:2]
        assert 4_000 < len(table.locks.encode()) < 8_000
        copied = Table()
        copied.locks.decode(table.locks.encode())
        assert copied.locks.lock("CG", many, "b") == []
        table.locks.unlock(name, many, name)
        assert table.locks.lock("CG", many, "b") == many
        table.clock.ms += LEASE_MS
        assert table.locks.lock("CG", many[:1], "c") == many[:1]
        table.locks.unlock("CG", many, "c")


# -- the requests


def test_lock_bodies_have_upstreams_format() -> None:
    asked = LockQueuesBody.decode(
        b'{"clientId":"10.0.0.9@1#2","consumerGroup":"CG","mqSet":[{"brokerName":"broker-a","queueId":1,"topic":"orders"}],'
        b'"onlyThisBroker":false}'
    )
    assert asked == LockQueuesBody("CG", "10.0.0.9@1#2", [WireQueue("orders", "broker-a", 1)])
    answer = LockBatchResponseBody([WireQueue("orders", "broker-a", 1)]).encode()
    assert answer == b'{"lockOKMQSet":[{"brokerName":"broker-a","queueId":1,"topic":"orders"}]}'


class Readers:
    """A set of three brokers, and clients that lock queues of its topic."""

    def __init__(self, world: World, **settings: object) -> None:
        self.world = world
        self.cluster = Cluster(world, 3, **settings)
        self.cluster.start_up()

    def lock(self, client_id: str, queues: list[MessageQueue] = QUEUES) -> set[MessageQueue]:
        async def asked() -> set[MessageQueue]:
            async with self.cluster.client() as client:
                return await client.locks("CG", client_id).lock(queues)

        held: set[MessageQueue] = self.cluster.run(asked())
        return held

    def unlock(self, client_id: str) -> None:
        async def asked() -> None:
            async with self.cluster.client() as client:
                await client.locks("CG", client_id).unlock(QUEUES)

        self.cluster.run(asked())

    def fail_over(self) -> None:
        self.cluster.master.kill()
        self.cluster.wait_in_sync(len(self.cluster.brokers) - 1, 30_000)
        self.world.run_for_ms(1_000)


@pytest.fixture
def readers() -> Iterator[Readers]:
    with World(23) as world:
        yield Readers(world)


def test_a_queue_held_by_one_client_is_not_given_to_another(readers: Readers) -> None:
    assert readers.lock("a", QUEUES[:1]) == {QUEUES[0]}
    assert readers.lock("b") == {QUEUES[1]}
    assert readers.lock("a") == {QUEUES[0]}
    readers.unlock("a")
    assert readers.lock("b") == set(QUEUES)


def test_a_lock_survives_the_master_that_granted_it(readers: Readers) -> None:
    assert readers.lock("a") == set(QUEUES)
    readers.fail_over()
    assert readers.lock("b") == set()
    assert readers.lock("a") == set(QUEUES)
    readers.unlock("a")
    assert readers.lock("b") == set(QUEUES)


def test_a_holder_that_died_with_the_master_keeps_its_lock_no_longer_than_a_lease(readers: Readers) -> None:
    readers.lock("a")
    given_ms = readers.world.now_ms
    readers.fail_over()
    while not readers.lock("b"):
        readers.world.run_for_ms(1_000)
    assert given_ms + TRUST_MS < readers.world.now_ms < given_ms + LEASE_MS + 10_000


def test_a_lock_survives_a_power_cut_of_all_brokers(readers: Readers) -> None:
    assert readers.lock("a") == set(QUEUES)
    for node in readers.cluster.brokers:
        node.kill(power_cut=True)
    for node in readers.cluster.brokers:
        readers.cluster.start(node)
    readers.cluster.wait_in_sync(3, 60_000)
    readers.world.run_for_ms(1_000)
    assert readers.lock("b") == set()
    assert readers.lock("a") == set(QUEUES)


def test_a_lock_is_granted_only_once_the_slaves_hold_it(readers: Readers) -> None:
    slave = next(node for node in readers.cluster.brokers if node is not readers.cluster.master)
    readers.lock("a", QUEUES[:1])
    for operation in ("append", "replace"):
        slave.disk.fail_next(operation, OSError(errno.EIO, os.strerror(errno.EIO)), times=1_000)
    with pytest.raises(LockFailed, match="12 .*not yet on broker"):
        readers.lock("a")
    assert readers.lock("a", QUEUES[:1]) == {QUEUES[0]}  # the slave holds this lock
    slave.disk.mend()
    readers.world.run_for_ms(5_000)
    assert readers.lock("a") == set(QUEUES)


def test_unknown_queues_are_not_locked_and_a_slave_refers_to_the_master(readers: Readers) -> None:
    wrong = [("orders", "broker-b", 1), ("strange", "broker-a", 0), ("orders", "broker-a", 99)]
    body = LockQueuesBody("CG", "a", [WireQueue(*queue) for queue in wrong])
    cluster = readers.cluster
    master = cluster.app(cluster.master).address
    reply = cluster.run(cluster.ask(master, RequestCode.LOCK_BATCH_MQ, None, body.encode()))
    assert (reply.code, reply.body) == (ResponseCode.SUCCESS, b'{"lockOKMQSet":[]}')
    slave = cluster.slaves[0]
    for code in (RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ):
        reply = cluster.run(cluster.ask(cluster.app(slave).address, code, None, body.encode()))
        assert reply.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert master in (reply.remark or "")


def test_a_holder_renews_its_lock_throughout_a_hand_over(readers: Readers) -> None:
    """A former master forwards requests until the client has the new route."""
    cluster = readers.cluster

    async def renewed() -> list[bool]:
        held = []
        async with cluster.client() as client:
            locks: QueueLocks = client.locks("CG", "a")
            await locks.lock(QUEUES)
            wanted = next(
                cluster.app(node).membership.broker_id
                for node in cluster.brokers
                if node is not cluster.master
            )
            changing = asyncio.create_task(cluster.designate(wanted))
            for _ in range(100):
                held.append(await locks.lock(QUEUES) == set(QUEUES))
                await asyncio.sleep(0.01)
            await changing
        return held

    former = cluster.master
    assert all(cluster.run(renewed()))
    assert cluster.master is not former


def test_a_client_trusts_a_lock_for_the_trust_period_after_its_request(readers: Readers) -> None:
    async def trusted() -> list[bool]:
        async with readers.cluster.client() as client:
            locks: QueueLocks = client.locks("CG", "a")
            holds = [locks.holds(QUEUES[0])]
            await locks.lock(QUEUES)
            holds.append(locks.holds(QUEUES[0]))
            await asyncio.sleep(TRUST_MS / 1000)
            holds.append(locks.holds(QUEUES[0]))
            await locks.lock(QUEUES)
            holds.append(locks.holds(QUEUES[0]))
            await locks.unlock(QUEUES[:1])
            return [*holds, locks.holds(QUEUES[0]), locks.holds(QUEUES[1])]

    assert readers.cluster.run(trusted()) == [False, True, False, True, False, True]


def test_a_partitioned_master_renews_no_locks(readers: Readers) -> None:
    """One client reaches only the partitioned master, the other one only the next master."""
    world, cluster = readers.world, readers.cluster
    there, former = world.node("client there", "10.0.4.2"), cluster.master
    client = Client(NAMESRV, clock=SimulatedClock(there), random=random.Random(1))
    one: QueueLocks = client.locks("CG", "a")

    async def renew() -> None:
        while True:
            with suppress(LockFailed):
                await one.lock(QUEUES)
            await asyncio.sleep(10)

    async def other_holds() -> bool:
        async with cluster.client() as client:
            locks: QueueLocks = client.locks("CG", "b")
            while not locks.holds(QUEUES[0]):
                with suppress(LockFailed):
                    await locks.lock(QUEUES)
                await asyncio.sleep(1)
            return one.holds(QUEUES[0])

    there.spawn(renew())
    world.run_for_ms(1_000)
    assert one.holds(QUEUES[0])
    cut_off(world, former, [*cluster.brokers, *controllers_of(world), world.nodes["namesrv"]])
    cut_off(world, there, [node for node in [*cluster.brokers, world.nodes["namesrv"]] if node is not former])
    assert not cluster.run(other_holds())


def test_without_controllers_locks_are_renewed_after_the_slaves_confirm(readers: Readers) -> None:
    assert readers.lock("a") == set(QUEUES)
    for node in controllers_of(readers.world):
        node.kill()
    for _ in range(12):
        readers.world.run_for_ms(10_000)
        assert readers.lock("a") == set(QUEUES)
        assert readers.lock("b") == set()


def test_a_queue_unlocked_while_its_lock_request_is_under_way_is_not_held(readers: Readers) -> None:
    """The unlock is sent while the answer to the lock request is under way."""

    async def trusted() -> tuple[set[MessageQueue], bool, bool, set[MessageQueue]]:
        async with readers.cluster.client() as client:
            locks: QueueLocks = client.locks("CG", "a")
            await locks.lock(QUEUES[1:])
            asked = asyncio.create_task(locks.lock(QUEUES))
            await asyncio.sleep(0.0001)
            await locks.unlock(QUEUES[:1])
            held = await asked
            now = locks.holds(QUEUES[0]), locks.holds(QUEUES[1])
            return held, *now, await locks.lock(QUEUES)

    assert readers.cluster.run(trusted()) == ({QUEUES[1]}, False, True, set(QUEUES))


def test_a_lock_request_with_an_overlong_name_is_refused(readers: Readers) -> None:
    """Slaves copy the name with each queue, and have no room for such names."""
    cluster, wire = readers.cluster, [WireQueue("orders", "broker-a", 1)]
    master = cluster.app(cluster.master).address
    for body in (LockQueuesBody("CG", "a" * 256, wire), LockQueuesBody("g" * 256, "a", wire)):
        reply = cluster.run(cluster.ask(master, RequestCode.LOCK_BATCH_MQ, None, body.encode()))
        assert (reply.code, reply.remark) == (1, "a group and a client id have 255 characters at most")
