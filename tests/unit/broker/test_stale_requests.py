"""What a former master passes on undoes nothing that was said to its successor, and what it slept through is not passed on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from broker.neighbours.naps import AWAKE_MS, LATE_MS_MAX, LOOK_MS, Naps
from broker.switchover.forwarding import READS, WRITES, Forwarding
from broker.switchover.forwardingstate import FORWARD_MS, Stage
from broker.tables import saidhere
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.queuelocks import LEASE_MS, RebalanceLocks
from mqruntime.tasks import Tasks
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.queues import LockBatchResponseBody, LockQueuesBody, MessageQueue
from remoting.codes import RequestCode, ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.headers.admin import TopicHeader
from remoting.headers.offsets import ResetOffsetHeader, UpdateConsumerOffsetHeader
from remoting.headers.pull import SYS_FLAG_COMMIT_OFFSET, SYS_FLAG_SUBSCRIPTION, PullMessageHeader
from remoting.router import Router
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.unit.broker.brokerset import Cluster
from tests.unit.broker.groupset import GroupSet
from tests.unit.broker.recordingpeer import RecordingPeer
from tests.unit.broker.test_forwarding import stage_of
from tests.unit.doubles import ManualClock

GROUP, QUEUE = "CG", ("orders", 1)
KEY = (GROUP, *QUEUE)


# -- the tables


def test_a_lock_that_its_holder_asked_for_here_is_not_given_up_by_what_is_passed_on() -> None:
    locks = RebalanceLocks(ManualClock(), lambda: None)
    locks.lock(GROUP, [QUEUE], "x", is_passed_on=True)
    locks.unlock(GROUP, [QUEUE], "x", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "x", is_passed_on=True) == [QUEUE]
    assert locks.lock(GROUP, [QUEUE], "x") == [QUEUE]  # renewed here
    locks.unlock(GROUP, [QUEUE], "x", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "y") == []
    locks.unlock(GROUP, [QUEUE], "x")
    assert locks.lock(GROUP, [QUEUE], "y") == [QUEUE]
    locks.unlock(GROUP, [QUEUE], "y", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "x") == []


def test_a_queue_that_was_given_up_here_is_not_locked_by_what_is_passed_on() -> None:
    locks = RebalanceLocks(clock := ManualClock(), lambda: None)
    locks.lock(GROUP, [QUEUE], "x")
    locks.unlock(GROUP, [QUEUE], "x")
    assert locks.lock(GROUP, [QUEUE], "x", is_passed_on=True) == []
    assert locks.lock(GROUP, [QUEUE], "y", is_passed_on=True) == [QUEUE]
    clock.ms += LEASE_MS
    assert locks.lock(GROUP, [QUEUE], "x", is_passed_on=True) == [
        QUEUE
    ]  # locked by another since, so it may be news


def test_a_new_master_was_asked_for_nothing_yet() -> None:
    locks = RebalanceLocks(ManualClock(), lambda: None)
    locks.lock(GROUP, [QUEUE], "x")
    locks.begin()
    locks.unlock(GROUP, [QUEUE], "x", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "y") == [QUEUE]


def passed_on(offsets: ConsumerOffsets, offset: int) -> int | None:
    """Where the group is once a former master has passed on that commit."""
    assert offsets.commit(*KEY, offset, is_passed_on=True)
    return offsets.find(*KEY)


def test_a_commit_that_is_passed_on_lowers_no_offset() -> None:
    offsets = ConsumerOffsets()
    assert passed_on(offsets, 20) == 20
    offsets.commit(*KEY, 150)
    assert passed_on(offsets, 20) == 150
    assert passed_on(offsets, 151) == 151


def test_nor_does_it_undo_what_moved_the_group_back_here() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(*KEY, 150)
    offsets.commit(*KEY, 20)  # its reader sought back
    assert passed_on(offsets, 150) == 20
    offsets.said_here.begin()
    assert passed_on(offsets, 150) == 150
    offsets.reset({KEY: 30})
    assert offsets.pulled(*KEY, 150) == 30 and offsets.pulled(*KEY, 30) is None  # it goes on there
    assert passed_on(offsets, 150) == 30


def test_nor_a_deletion() -> None:
    for kind, name in (("group", GROUP), ("topic", "orders")):
        offsets = ConsumerOffsets()
        offsets.commit(*KEY, 150)
        remove = offsets.remove_group if kind == "group" else offsets.remove_topic
        remove(name)
        assert passed_on(offsets, 150) is None
        offsets.commit(*KEY, 2)
        assert passed_on(offsets, 150) == 2


def test_where_more_was_said_than_is_kept_nothing_that_is_passed_on_counts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saidhere, "KEYS_MAX", 2)
    offsets = ConsumerOffsets()
    offsets.reset({(GROUP, "other", 1): 1, (GROUP, "other", 2): 1, (GROUP, "other", 3): 1})
    assert passed_on(offsets, 5) is None


def test_a_group_that_the_former_master_moved_goes_on_there_though_it_still_comes_through_it() -> None:
    """Java's clients ask for routes each 30 s: what they read and commit until then must count."""
    offsets = ConsumerOffsets()
    offsets.commit(*KEY, 150)
    offsets.reset({KEY: 30})
    offsets.said_here.begin()  # a failover
    assert offsets.pulled(*KEY, 150, is_passed_on=True) == 30
    assert passed_on(offsets, 150) == 30
    assert offsets.pulled(*KEY, 30, is_passed_on=True) is None
    assert passed_on(offsets, 60) == 60


def test_a_pull_that_is_passed_on_neither_hears_of_a_move_that_was_made_here_nor_ends_it() -> None:
    offsets = ConsumerOffsets()
    offsets.reset({KEY: 30})
    for _ in range(10):
        assert offsets.pulled(*KEY, 150, is_passed_on=True) == 30
        assert offsets.pulled(*KEY, 30, is_passed_on=True) is None
    offsets.commit(*KEY, 150)
    assert offsets.find(*KEY) == 30


# -- what waited through a sleep


def test_what_comes_behind_a_nap_is_late_for_a_while() -> None:
    naps, peer = Naps(clock := ManualClock()), RecordingPeer()
    clock.ms += LOOK_MS + LATE_MS_MAX
    assert not naps.is_late(peer)  # type: ignore[arg-type]
    clock.ms += LOOK_MS + LATE_MS_MAX + 1
    assert naps.is_late(peer) and naps.number == 1  # type: ignore[arg-type]
    for _ in range(AWAKE_MS // LOOK_MS - 1):
        clock.ms += LOOK_MS
        assert naps.is_late(peer)  # type: ignore[arg-type]
    clock.ms += LOOK_MS
    assert not naps.is_late(peer)  # type: ignore[arg-type]


def test_what_its_socket_held_is_late_however_long_it_takes_to_read_it() -> None:
    naps, behind, flood = Naps(clock := ManualClock()), RecordingPeer(), RecordingPeer()
    clock.ms += 10_000
    behind.behind_since_ms = clock.ms + 5
    assert naps.is_late(behind)  # type: ignore[arg-type]
    for _ in range(60):
        clock.ms += LOOK_MS
        naps.look()
    flood.behind_since_ms = clock.ms
    assert naps.is_late(behind) and not naps.is_late(flood)  # type: ignore[arg-type]
    behind.behind_since_ms = None
    assert not naps.is_late(behind)  # type: ignore[arg-type]


def _failed(error: BaseException) -> None:
    raise AssertionError from error


def test_what_waited_for_a_successor_through_a_nap_is_refused_and_dropped_where_nobody_hears() -> None:
    async def scenario() -> None:
        clock, peer = ManualClock(), RecordingPeer()
        forwarding = Forwarding(clock, Tasks(_failed), carried_max=10, forward_ms=FORWARD_MS)
        router = Router()
        for code in (*WRITES, *READS):
            router.add(code, lambda peer, command: command.reply())
        forwarding.guard(router)
        forwarding.leads(is_formed=True)
        forwarding.announced()
        sends = forwarding.sends(lambda peer, commands: None)
        sends(peer, [RemotingCommand(RequestCode.SEND_MESSAGE, 1)])  # type: ignore[arg-type]
        unlock = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, 2)
        told = asyncio.ensure_future(router.handlers[unlock.code](peer, unlock))  # type: ignore[arg-type]
        one_way = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, 3, ONEWAY_BIT)
        untold = asyncio.ensure_future(router.handlers[unlock.code](peer, one_way))  # type: ignore[arg-type]
        clock.ms += LOOK_MS + LATE_MS_MAX + 1
        forwarding.follows("10.0.0.2:10911", 7)
        successor = forwarding.state.successor
        assert successor is not None
        forwarding._opened(successor)
        await asyncio.gather(told, untold)
        assert forwarding.late == 3 and forwarding.forwarded == 0
        assert [(each.opaque, each.code) for each in peer.replies] == [
            (1, ResponseCode.SYSTEM_BUSY),
            (2, ResponseCode.SYSTEM_BUSY),
        ]
        await forwarding.stop()

    asyncio.run(scenario())


# -- brokers


def lock_body(client_id: str) -> bytes:
    return LockQueuesBody(GROUP, client_id, [MessageQueue("orders", "broker-a", 1)]).encode()


class Handed:
    """A set whose `former` master passes on what it is asked to the `master`."""

    def __init__(self, cluster: Cluster) -> None:
        self.world = cluster.world
        self.cluster = cluster
        self.cluster.start_up()
        self.former = self.cluster.master

    def hand_over(self) -> None:
        self.former.pause(40_000)
        self.world.run_until(lambda: len(self.cluster.masters) == 2, 60_000)
        self.passes_on()

    def passes_on(self) -> None:
        """Until the former master does, and is awake for long enough."""
        self.world.run_until(lambda: stage_of(self.cluster, self.former) is Stage.OPEN, 60_000)
        self.world.run_for_ms(2_000)

    @property
    def master(self) -> Node:
        (master,) = [node for node in self.cluster.masters if node is not self.former]
        return master

    def ask(self, node: Node, code: int, header: object = None, body: bytes | None = None) -> RemotingCommand:
        reply: RemotingCommand = self.cluster.run(self.cluster.ask(f"{node.host}:10911", code, header, body))
        return reply

    def say(self, node: Node, code: int, header: object = None, body: bytes | None = None) -> None:
        """One-way, over a connection that stays open for a minute."""

        async def said() -> None:
            async with self.cluster.client() as client:
                command = RemotingCommand.request(code, header, body)  # type: ignore[arg-type]
                await client.remoting.one_way(f"{node.host}:10911", command)
                await asyncio.sleep(60)

        self.cluster._client_node.spawn(said())
        self.world.run_for_ms(50)

    def holds(self, node: Node, client_id: str) -> bool:
        """Whether it does, once it has asked for its lock."""
        reply = self.ask(node, RequestCode.LOCK_BATCH_MQ, None, lock_body(client_id))
        assert reply.code == ResponseCode.SUCCESS
        return bool(LockBatchResponseBody.decode(bytes(reply.body or b"")).locked)

    def commit(self, node: Node, offset: int) -> None:
        header = UpdateConsumerOffsetHeader(GROUP, "orders", 1, offset)
        assert self.ask(node, RequestCode.UPDATE_CONSUMER_OFFSET, header).code == 0

    @property
    def offset(self) -> int | None:
        return self.cluster.app(self.master).tables.offsets.find(*KEY)


@pytest.fixture(params=[lambda world: Cluster(world, 3), GroupSet], ids=["controllers", "raft"])
def handed(request: pytest.FixtureRequest) -> Iterator[Handed]:
    with World(31) as world:
        yield Handed(request.param(world))


def test_an_unlock_that_is_passed_on_takes_no_lock_that_the_successor_gave(handed: Handed) -> None:
    handed.hand_over()
    assert handed.holds(handed.master, "x")
    assert handed.ask(handed.former, RequestCode.UNLOCK_BATCH_MQ, None, lock_body("x")).code == 0
    assert handed.cluster.app(handed.former).requests.forwarding.forwarded == 1
    assert not handed.holds(handed.master, "y")


def test_one_that_gives_up_what_was_locked_the_same_way_does(handed: Handed) -> None:
    handed.hand_over()
    assert handed.holds(handed.former, "x")
    assert handed.ask(handed.former, RequestCode.UNLOCK_BATCH_MQ, None, lock_body("x")).code == 0
    assert handed.holds(handed.master, "y")


def test_a_commit_that_is_passed_on_brings_no_group_back(handed: Handed) -> None:
    handed.commit(handed.former, 10)
    handed.hand_over()
    handed.commit(handed.master, 150)
    handed.commit(handed.former, 20)
    assert handed.offset == 150
    handed.commit(handed.former, 160)
    assert handed.offset == 160


def test_nor_does_the_commit_of_a_pull(handed: Handed) -> None:
    handed.hand_over()
    handed.commit(handed.master, 150)
    flags = SYS_FLAG_COMMIT_OFFSET | SYS_FLAG_SUBSCRIPTION
    pull = PullMessageHeader(GROUP, "orders", 1, 0, 32, flags, 20, 0, 0, subscription="*")
    handed.ask(handed.former, RequestCode.PULL_MESSAGE, pull)
    assert handed.offset == 150


def test_nor_over_a_move_or_into_a_topic_that_was_made_again(handed: Handed) -> None:
    handed.commit(handed.former, 10)
    group = SubscriptionGroupConfig(GROUP).encode()
    handed.ask(handed.former, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
    handed.hand_over()
    move = ResetOffsetHeader("orders", GROUP, 0, queue_id=1, offset=0)
    assert handed.ask(handed.master, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, move).code == 0
    pull = PullMessageHeader(GROUP, "orders", 1, 5, 32, SYS_FLAG_SUBSCRIPTION, 0, 0, 0, subscription="*")
    assert handed.ask(handed.master, RequestCode.PULL_MESSAGE, pull).code == ResponseCode.PULL_OFFSET_MOVED
    pull.queue_offset = 0
    handed.ask(handed.master, RequestCode.PULL_MESSAGE, pull)
    handed.commit(handed.former, 10)
    assert handed.offset == 0
    assert handed.ask(handed.master, RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader("orders")).code == 0
    handed.cluster.create_topic()
    handed.commit(handed.former, 10)
    assert handed.offset is None


def frozen(handed: Handed) -> None:
    """The former master stands still until another was elected, and an unlock of x and a commit wait in its socket."""
    assert handed.holds(handed.former, "x")
    handed.commit(handed.former, 150)
    handed.world.run_for_ms(2_000)
    handed.former.pause(40_000)
    handed.world.run_for_ms(100)
    handed.say(handed.former, RequestCode.UNLOCK_BATCH_MQ, None, lock_body("x"))
    header = UpdateConsumerOffsetHeader(GROUP, "orders", 1, 160)
    handed.say(handed.former, RequestCode.UPDATE_CONSUMER_OFFSET, header)
    handed.world.run_until(lambda: len(handed.cluster.masters) == 2, 60_000)
    handed.world.run_for_ms(500)


def test_what_waited_while_a_former_master_stood_still_is_not_passed_on(handed: Handed) -> None:
    frozen(handed)  # nothing is said to the successor, which would take both
    handed.passes_on()
    forwarding = handed.cluster.app(handed.former).requests.forwarding
    assert forwarding.forwarded == 0
    assert forwarding.naps.number == 1
    assert handed.offset == 150
    assert not handed.holds(handed.master, "y")


def test_what_comes_once_it_is_awake_is_passed_on(handed: Handed) -> None:
    frozen(handed)
    handed.passes_on()
    handed.commit(handed.former, 170)
    assert handed.offset == 170
    assert handed.cluster.app(handed.former).requests.forwarding.forwarded == 1
