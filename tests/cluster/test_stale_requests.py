"""Forwarded requests undo no newer request at the successor, and late requests are not forwarded."""

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
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet
from tests.cluster.handovers import stage_of
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer

GROUP, QUEUE = "CG", ("orders", 1)
KEY = (GROUP, *QUEUE)


# -- the tables


def test_a_forwarded_unlock_does_not_release_a_lock_requested_here() -> None:
    locks = RebalanceLocks(ManualClock(), lambda: None)
    locks.lock(GROUP, [QUEUE], "x", is_passed_on=True)
    locks.unlock(GROUP, [QUEUE], "x", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "x", is_passed_on=True) == [QUEUE]
    assert locks.lock(GROUP, [QUEUE], "x") == [QUEUE]  # the holder renews it here
    locks.unlock(GROUP, [QUEUE], "x", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "y") == []
    locks.unlock(GROUP, [QUEUE], "x")
    assert locks.lock(GROUP, [QUEUE], "y") == [QUEUE]
    locks.unlock(GROUP, [QUEUE], "y", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "x") == []


def test_a_forwarded_lock_does_not_take_a_queue_unlocked_here() -> None:
    locks = RebalanceLocks(clock := ManualClock(), lambda: None)
    locks.lock(GROUP, [QUEUE], "x")
    locks.unlock(GROUP, [QUEUE], "x")
    assert locks.lock(GROUP, [QUEUE], "x", is_passed_on=True) == []
    assert locks.lock(GROUP, [QUEUE], "y", is_passed_on=True) == [QUEUE]
    clock.ms += LEASE_MS
    assert locks.lock(GROUP, [QUEUE], "x", is_passed_on=True) == [
        QUEUE
    ]  # another client locked it since, so the request may be new


def test_a_new_master_treats_no_lock_as_requested_here() -> None:
    locks = RebalanceLocks(ManualClock(), lambda: None)
    locks.lock(GROUP, [QUEUE], "x")
    locks.begin()
    locks.unlock(GROUP, [QUEUE], "x", is_passed_on=True)
    assert locks.lock(GROUP, [QUEUE], "y") == [QUEUE]


def after_forwarded(offsets: ConsumerOffsets, offset: int) -> int | None:
    """The offset of the group after a forwarded commit."""
    assert offsets.commit(*KEY, offset, is_passed_on=True)
    return offsets.find(*KEY)


def test_a_forwarded_commit_lowers_no_offset() -> None:
    offsets = ConsumerOffsets()
    assert after_forwarded(offsets, 20) == 20
    offsets.commit(*KEY, 150)
    assert after_forwarded(offsets, 20) == 150
    assert after_forwarded(offsets, 151) == 151


def test_a_forwarded_commit_does_not_undo_a_lower_commit_or_a_reset() -> None:
    offsets = ConsumerOffsets()
    offsets.commit(*KEY, 150)
    offsets.commit(*KEY, 20)  # its reader seeks back
    assert after_forwarded(offsets, 150) == 20
    offsets.said_here.begin()
    assert after_forwarded(offsets, 150) == 150
    offsets.reset({KEY: 30})
    assert offsets.pulled(*KEY, 150) == 30 and offsets.pulled(*KEY, 30) is None  # the group continues there
    assert after_forwarded(offsets, 150) == 30


def test_a_forwarded_commit_does_not_undo_a_deletion() -> None:
    for kind, name in (("group", GROUP), ("topic", "orders")):
        offsets = ConsumerOffsets()
        offsets.commit(*KEY, 150)
        remove = offsets.remove_group if kind == "group" else offsets.remove_topic
        remove(name)
        assert after_forwarded(offsets, 150) is None
        offsets.commit(*KEY, 2)
        assert after_forwarded(offsets, 150) == 2


def test_forwarded_commits_are_ignored_once_the_record_of_local_requests_overflows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(saidhere, "KEYS_MAX", 2)
    offsets = ConsumerOffsets()
    offsets.reset({(GROUP, "other", 1): 1, (GROUP, "other", 2): 1, (GROUP, "other", 3): 1})
    assert after_forwarded(offsets, 5) is None


def test_a_group_reset_by_the_former_master_continues_through_it() -> None:
    """Java's clients ask for routes each 30 s: their reads and commits until then must count."""
    offsets = ConsumerOffsets()
    offsets.commit(*KEY, 150)
    offsets.reset({KEY: 30})
    offsets.said_here.begin()  # a failover
    assert offsets.pulled(*KEY, 150, is_passed_on=True) == 30
    assert after_forwarded(offsets, 150) == 30
    assert offsets.pulled(*KEY, 30, is_passed_on=True) is None
    assert after_forwarded(offsets, 60) == 60


def test_a_forwarded_pull_does_not_end_a_reset_made_here() -> None:
    offsets = ConsumerOffsets()
    offsets.reset({KEY: 30})
    for _ in range(10):
        assert offsets.pulled(*KEY, 150, is_passed_on=True) == 30
        assert offsets.pulled(*KEY, 30, is_passed_on=True) is None
    offsets.commit(*KEY, 150)
    assert offsets.find(*KEY) == 30


# -- requests that waited while the process was paused


def test_requests_after_a_pause_of_the_process_count_as_late_for_a_while() -> None:
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


def test_requests_buffered_in_a_socket_during_a_pause_are_late_until_all_are_read() -> None:
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


def test_requests_held_during_a_pause_are_refused_and_one_way_ones_dropped() -> None:
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
        answered = asyncio.ensure_future(router.handlers[unlock.code](peer, unlock))  # type: ignore[arg-type]
        one_way = RemotingCommand(RequestCode.UNLOCK_BATCH_MQ, 3, ONEWAY_BIT)
        unanswered = asyncio.ensure_future(router.handlers[unlock.code](peer, one_way))  # type: ignore[arg-type]
        clock.ms += LOOK_MS + LATE_MS_MAX + 1
        forwarding.follows("10.0.0.2:10911", 7)
        successor = forwarding.state.successor
        assert successor is not None
        forwarding._opened(successor)
        await asyncio.gather(answered, unanswered)
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
    """A set whose `former` master forwards requests to the `master`."""

    def __init__(self, cluster: Cluster) -> None:
        self.world = cluster.world
        self.cluster = cluster
        self.cluster.start_up()
        self.former = self.cluster.master

    def hand_over(self) -> None:
        self.former.pause(40_000)
        self.world.run_until(lambda: len(self.cluster.masters) == 2, 60_000)
        self.wait_until_forwarding()

    def wait_until_forwarding(self) -> None:
        """Waits until the former master forwards requests, and has been awake for long enough."""
        self.world.run_until(lambda: stage_of(self.cluster, self.former) is Stage.FORWARDING, 60_000)
        self.world.run_for_ms(2_000)

    @property
    def master(self) -> Node:
        (master,) = [node for node in self.cluster.masters if node is not self.former]
        return master

    def ask(self, node: Node, code: int, header: object = None, body: bytes | None = None) -> RemotingCommand:
        reply: RemotingCommand = self.cluster.run(self.cluster.ask(f"{node.host}:10911", code, header, body))
        return reply

    def say(self, node: Node, code: int, header: object = None, body: bytes | None = None) -> None:
        """Sends a one-way request over a connection that stays open for a minute."""

        async def send() -> None:
            async with self.cluster.client() as client:
                command = RemotingCommand.request(code, header, body)  # type: ignore[arg-type]
                await client.remoting.one_way(f"{node.host}:10911", command)
                await asyncio.sleep(60)

        self.cluster._client_node.spawn(send())
        self.world.run_for_ms(50)

    def holds(self, node: Node, client_id: str) -> bool:
        """Requests the lock for the client, and returns whether it got it."""
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


def test_a_forwarded_unlock_releases_no_lock_granted_by_the_successor(handed: Handed) -> None:
    handed.hand_over()
    assert handed.holds(handed.master, "x")
    assert handed.ask(handed.former, RequestCode.UNLOCK_BATCH_MQ, None, lock_body("x")).code == 0
    assert handed.cluster.app(handed.former).requests.forwarding.forwarded == 1
    assert not handed.holds(handed.master, "y")


def test_a_forwarded_unlock_releases_a_forwarded_lock(handed: Handed) -> None:
    handed.hand_over()
    assert handed.holds(handed.former, "x")
    assert handed.ask(handed.former, RequestCode.UNLOCK_BATCH_MQ, None, lock_body("x")).code == 0
    assert handed.holds(handed.master, "y")


def test_a_forwarded_commit_moves_no_group_back(handed: Handed) -> None:
    handed.commit(handed.former, 10)
    handed.hand_over()
    handed.commit(handed.master, 150)
    handed.commit(handed.former, 20)
    assert handed.offset == 150
    handed.commit(handed.former, 160)
    assert handed.offset == 160


def test_the_commit_of_a_forwarded_pull_moves_no_group_back(handed: Handed) -> None:
    handed.hand_over()
    handed.commit(handed.master, 150)
    flags = SYS_FLAG_COMMIT_OFFSET | SYS_FLAG_SUBSCRIPTION
    pull = PullMessageHeader(GROUP, "orders", 1, 0, 32, flags, 20, 0, 0, subscription="*")
    handed.ask(handed.former, RequestCode.PULL_MESSAGE, pull)
    assert handed.offset == 150


def test_a_forwarded_commit_overrides_no_reset_and_reaches_no_recreated_topic(handed: Handed) -> None:
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


def pause_former_master(handed: Handed) -> None:
    """Pauses the former master until another one is elected; an unlock and a commit wait in its socket."""
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


def test_requests_that_waited_while_a_former_master_was_paused_are_not_forwarded(handed: Handed) -> None:
    pause_former_master(handed)  # the successor got no request itself, so it would accept both
    handed.wait_until_forwarding()
    forwarding = handed.cluster.app(handed.former).requests.forwarding
    assert forwarding.forwarded == 0
    assert forwarding.naps.number == 1
    assert handed.offset == 150
    assert not handed.holds(handed.master, "y")


def test_requests_after_the_pause_of_a_former_master_are_forwarded(handed: Handed) -> None:
    pause_former_master(handed)
    handed.wait_until_forwarding()
    handed.commit(handed.former, 170)
    assert handed.offset == 170
    assert handed.cluster.app(handed.former).requests.forwarding.forwarded == 1
