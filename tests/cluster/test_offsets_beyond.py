"""Consumer groups that had read lost data continue at the end of their queues under the next master."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from broker.tables import offsetlimits
from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.tables.offsetlimits import LIMITS_MAX
from broker.tables.offsetresets import OffsetResets
from controller.server import ControllerApp
from mqclient.client import Client
from mqclient.consumer import PullConsumer, PullStatus
from mqclient.route import MessageQueue
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.bodies.offsets import ConsumerOffsetWrapper, OffsetReset
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import ResetOffsetHeader, UpdateConsumerOffsetHeader
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, Cluster
from tests.cluster.pairset import Pair

QUEUE = MessageQueue("orders", "broker-a", 1)
GROUP = "CG"
COPIED_MS = 3_000
HA_PORT = 10912
CLOCKS_DIFFER_MS = 1_000
SYNCED_EACH_MS = 10_000


def test_only_offsets_beyond_the_end_of_their_queue_are_found() -> None:
    offsets = ConsumerOffsets()
    for group, topic, queue_id, offset in (
        ("behind", "orders", 0, 49), ("at end", "orders", 0, 50), ("ahead", "orders", 0, 51), ("ahead", "gone", 3, 7),
    ):  # fmt: skip
        offsets.commit(group, topic, queue_id, offset)
    offsets.keep("orders", 0, 1_000)
    asked: list[tuple[str, int]] = []

    def end_of(topic: str, queue_id: int) -> int:
        asked.append((topic, queue_id))
        return 50 if topic == "orders" else 0

    ends = offsets.ends(end_of)
    assert sorted(asked) == [("gone", 3), ("orders", 0)], "each queue once"
    assert offsets.beyond(ends) == {("ahead", "orders", 0): 50, ("ahead", "gone", 3): 0}
    assert (TRANSACTIONS_GROUP, "orders", 0) not in ends
    assert asyncio.run(offsets.beyond_ends(end_of)) == {("ahead", "orders", 0): 50, ("ahead", "gone", 3): 0}


def test_offsets_of_many_queues_are_compared_in_slices() -> None:
    offsets = ConsumerOffsets()
    for number in range(2_000):
        for queue_id in range(8):
            offsets.commit(f"group-{number}", "orders", queue_id, number)
    work, turns = offsets.beyond_ends(lambda topic, queue_id: 1_998), 0
    try:
        while True:
            work.send(None)
            turns += 1
    except StopIteration as end:
        assert end.value == {("group-1999", "orders", queue_id): 1_998 for queue_id in range(8)}
    assert turns == 16_000 // 5_000


def limited(at: int, limit: int) -> ConsumerOffsets:
    """Group CG committed `at` in a queue that lost its entries from `limit` on."""
    offsets = ConsumerOffsets(OffsetResets())
    offsets.commit(GROUP, "orders", 1, at)
    offsets.resets.limit({(GROUP, "orders", 1): limit})
    return offsets


def test_a_group_commits_nothing_beyond_its_limit_until_it_pulls_within_the_log() -> None:
    offsets = limited(40, 50)
    for offset, kept in ((60, 40), (45, 45), (51, 45)):
        assert offsets.commit(GROUP, "orders", 1, offset)
        assert offsets.find(GROUP, "orders", 1) == kept
    assert [offsets.pulled(GROUP, "orders", 1, offset) for offset in (60, 50, 60)] == [50, None, None]
    offsets.commit(GROUP, "orders", 1, 60)
    assert offsets.find(GROUP, "orders", 1) == 60


def test_a_limit_is_not_returned_within_the_log_and_a_bounded_number_of_times_beyond_it() -> None:
    offsets = limited(40, 50)
    assert offsets.pulled(GROUP, "orders", 1, 50) is None
    assert offsets.pulled(GROUP, "orders", 1, 51) is None
    offsets = limited(40, 50)
    assert [offsets.pulled(GROUP, "orders", 1, 99) for _ in range(5)] == [50, 50, 50, None, None]


def test_a_reset_after_a_limit_takes_precedence_and_one_before_it_is_lowered_to_it() -> None:
    offsets = limited(40, 50)
    offsets.reset({(GROUP, "orders", 1): 55})
    assert [offsets.pulled(GROUP, "orders", 1, offset) for offset in (60, 55, 55)] == [55, None, None]
    offsets = ConsumerOffsets(OffsetResets())
    offsets.reset({(GROUP, "orders", 1): 55})
    offsets.resets.limit({(GROUP, "orders", 1): 50})
    assert offsets.pulled(GROUP, "orders", 1, 60) == offsets.find(GROUP, "orders", 1) == 50


def test_limits_are_saved_and_copied_and_end_when_their_group_continues() -> None:
    offsets = limited(40, 50)
    written = offsets.encode()
    row = {"group": GROUP, "offset": 50, "queueId": 1, "topic": "orders"}
    assert json.loads(written)["offsetResets"] == {"limits": [row], "resets": []}
    copy = ConsumerOffsets(OffsetResets())
    copy.decode(written)
    assert copy.pulled(GROUP, "orders", 1, 60) == 50
    copy.adopt(ConsumerOffsetWrapper({"orders@CG": {1: 50}}))
    assert copy.pulled(GROUP, "orders", 1, 60) == 50, "the group may still be beyond the limit"
    copy.adopt(ConsumerOffsetWrapper({"orders@CG": {1: 51}}))
    assert copy.pulled(GROUP, "orders", 1, 60) is None
    offsets.pulled(GROUP, "orders", 1, 50)
    offsets.commit(GROUP, "orders", 1, 70)
    assert "offsetResets" not in json.loads(offsets.encode())
    offsets.resets.limit({(GROUP, "orders", 1): 50, ("other", "orders", 1): 50})
    copy.decode(offsets.encode())
    assert [copy.pulled(group, "orders", 1, 99) for group in (GROUP, "other")] == [None, 50]
    offsets.resets.remove_group("other")
    assert offsets.resets.limits.rows() == [OffsetReset(GROUP, "orders", 1, 50)]


def test_limits_are_bounded() -> None:
    resets = OffsetResets()
    resets.limit({(GROUP, "orders", queue_id): 0 for queue_id in range(LIMITS_MAX)})
    with pytest.raises(ValueError, match="20001 limits"):
        resets.limit({("other", "orders", 0): 0})
    assert len(resets.limits.rows() or ()) == LIMITS_MAX


async def send(client: Client, *bodies: bytes) -> None:
    producer = client.producer("PG")
    for body in bodies:
        assert (
            await producer.send("orders", body, queue_id=1, timeout_ms=20_000, patience_ms=20_000)
        ).acknowledged


def numbered(what: bytes, count: int) -> list[bytes]:
    return [b"%s-%d" % (what, number) for number in range(count)]


async def bodies_from(consumer: PullConsumer, offset: int) -> list[bytes]:
    """The messages that `consumer` gets from `offset` on; it follows returned offsets."""
    found: list[bytes] = []
    while True:
        result = await consumer.pull(QUEUE, offset)
        found += [message.body for message in result.messages]
        if result.next_offset == offset:
            return found
        offset = result.next_offset


class Scene:
    """A set of three brokers whose logs are synced rarely, and group CG."""

    def __init__(self, world: World, **settings: object) -> None:
        self.world = world
        self.cluster = Cluster(world, 3, flushIntervalCommitLog=SYNCED_EACH_MS, **settings)
        self.cluster.start_up()

    def act(self, what: Callable[[Client], Awaitable[None]]) -> None:
        async def acted() -> None:
            async with self.cluster.client() as client:
                await what(client)

        self.cluster.run(acted())

    def table(self, node: Node) -> int | None:
        return self.cluster.app(node).tables.offsets.find(GROUP, "orders", 1)

    def consume(self, start: int, count: int) -> None:
        async def consumed(client: Client) -> None:
            await send(client, *numbered(b"old", count))
            consumer = client.consumer(GROUP)
            assert len(await bodies_from(consumer, start)) == count
            await consumer.commit(QUEUE, start + count)

        self.act(consumed)

    def make_group(self) -> None:
        async def made(client: Client) -> None:
            body = SubscriptionGroupConfig(GROUP).encode()
            request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, body)
            assert (
                await client.remoting.call(self.cluster.app(self.cluster.master).address, request)
            ).code == 0

        self.act(made)

    def fail_over(self) -> None:
        former = self.cluster.master
        former.kill()
        self.world.run_until(lambda: self.cluster.masters not in ([], [former]), 30_000)

    def elect_uncleanly(self) -> None:
        """Fails over to any live broker, and heals the network."""
        for number in range(len(CONTROLLERS)):
            controller = self.world.nodes[f"controller-{number}"].app
            assert isinstance(controller, ControllerApp)
            controller.settings.enable_elect_unclean_master = True
        self.fail_over()
        self.world.network.heal()

    def new_messages_are_read(self, ahead: int, count: int = 30) -> None:
        """A running consumer at offset `ahead` and one at the committed offset read all new messages."""
        new = numbered(b"new", count)

        async def read(client: Client) -> None:
            await send(client, *new)
            consumer = client.consumer(GROUP)
            await consumer.commit(QUEUE, ahead)
            committed = await consumer.committed(QUEUE)
            assert committed is not None
            starts = [(await consumer.pull(QUEUE, ahead)).next_offset, committed]
            for start in starts:
                assert (await bodies_from(consumer, start))[-count:] == new
            await consumer.commit(QUEUE, await consumer.max_offset(QUEUE))

        self.act(read)


@pytest.fixture
def scene(world: World) -> Scene:
    return Scene(world)


def lose_power(scene: Scene) -> None:
    """All machines lose power, and restart with their synced data."""
    brokers = scene.cluster.brokers
    for node in brokers:
        node.disk.share_kept = 0.0
        node.kill(power_cut=True)
    for node in brokers:
        scene.cluster.start(node)
    scene.cluster.wait_in_sync(3, 60_000)


def lose_ten(scene: Scene, copied_ms: int) -> None:
    """The set loses ten messages that group CG had read; slaves had `copied_ms` to copy its offset."""
    scene.make_group()
    scene.consume(0, 10)
    scene.world.run_for_ms(SYNCED_EACH_MS)
    scene.consume(10, 10)
    scene.world.run_for_ms(copied_ms)
    lose_power(scene)
    assert scene.cluster.app(scene.cluster.master).store.next_queue_offset("orders", 1) == 10


@pytest.mark.parametrize("copied_ms", [0, COPIED_MS])
def test_after_a_power_loss_of_all_brokers_no_consumer_skips_new_messages(
    scene: Scene, copied_ms: int
) -> None:
    """Contract C: messages lost from two members' memory may be lost, but none acknowledged afterwards.

    That holds whether brokers or only the consumer know the offset of the lost messages.
    """
    lose_ten(scene, copied_ms)
    scene.new_messages_are_read(20)
    scene.world.run_for_ms(COPIED_MS)
    assert [scene.cluster.app(node).tables.resets.limits.rows() for node in scene.cluster.brokers] == [
        None
    ] * 3


def test_no_consumer_skips_new_messages_after_a_second_failover(scene: Scene) -> None:
    lose_ten(scene, COPIED_MS)
    scene.act(lambda client: send(client, *numbered(b"between", 15)))
    scene.fail_over()
    scene.new_messages_are_read(20, 5)

    async def all_of_it(client: Client) -> None:
        assert len(await bodies_from(client.consumer("another"), 0)) == 10 + 15 + 5

    scene.act(all_of_it)


def test_no_consumer_skips_new_messages_after_a_restart_of_all_brokers(scene: Scene) -> None:
    """The queues have grown past the limit by then."""
    lose_ten(scene, COPIED_MS)
    scene.act(lambda client: send(client, *numbered(b"between", 15)))
    for node in scene.cluster.brokers:
        node.kill()
    for node in scene.cluster.brokers:
        scene.cluster.start(node)
    scene.cluster.wait_in_sync(3, 60_000)
    scene.new_messages_are_read(20, 5)


def test_with_too_many_groups_the_committed_offsets_are_still_lowered(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(offsetlimits, "LIMITS_MAX", 0)
    lose_ten(scene, COPIED_MS)
    assert "running consumers are not moved" in caplog.text
    assert scene.table(scene.cluster.master) == 10


def test_a_slave_promoted_to_master_starts_no_group_beyond_its_log() -> None:
    """It copied the offset of a group that had read messages which the slave never got."""
    with World(34) as world:
        pair = Pair(world, master_role="ASYNC_MASTER")
        pair.start_up()
        stores = [pair.app(node).store for node in pair.nodes]

        async def sent(body: bytes) -> None:
            async with pair.client() as client:
                await client.producer("PG").send("orders", body, queue_id=0)

        pair.run(sent(b"copied"))
        world.run_until(pair.caught_up, 5_000)
        world.network.stall(pair.master.host, pair.slave.host, HA_PORT)
        pair.run(sent(b"lost"))
        assert pair.pull(pair.master).ext["nextBeginOffset"] == "2"
        commit = UpdateConsumerOffsetHeader("readers", "orders", 0, 2)
        assert pair.ask(pair.master, RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
        world.run_for_ms(COPIED_MS)
        assert [store.next_queue_offset("orders", 0) for store in stores] == [2, 1]
        assert pair.app(pair.slave).tables.offsets.find("readers", "orders", 0) == 2
        pair.master.kill()
        pair.slave.kill()
        pair.start(pair.slave, brokerRole="ASYNC_MASTER", brokerId=0)
        world.run_until(
            lambda: pair.slave.app is not None and pair.app(pair.slave).membership.accepts_sends, 10_000
        )
        world.run_for_ms(COPIED_MS)  # name servers know the new master
        for body in (b"new", b"newer"):
            pair.run(sent(body))
        reply = pair.pull(pair.slave, offset=2)
        assert (reply.code, reply.ext["nextBeginOffset"]) == (ResponseCode.PULL_OFFSET_MOVED, "1")
        assert pair.pull(pair.slave, offset=1).ext["nextBeginOffset"] == "3"


def test_a_failover_without_loss_moves_no_offset(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.make_group()
    scene.consume(0, 20)
    scene.world.run_for_ms(COPIED_MS)
    scene.fail_over()
    assert "lost its end" not in caplog.text
    assert [scene.table(node) for node in scene.cluster.masters] == [20]
    assert scene.cluster.app(scene.cluster.master).tables.resets.wrapper() is None


def test_after_an_unclean_election_a_consumer_ahead_of_the_log_skips_new_messages(
    world: World,
) -> None:
    """As docs/operations/acknowledgements.md says, with the operator's remedy.

    Slaves with stalled links continue to copy offsets, and one of them is elected.
    """
    scene = Scene(world, minInSyncReplicas=1)
    scene.make_group()
    scene.consume(0, 10)
    world.run_for_ms(COPIED_MS)
    master = scene.cluster.master
    slaves = [node for node in scene.cluster.brokers if node is not master]
    for slave in slaves:
        world.network.stall(master.host, slave.host, HA_PORT)
    scene.cluster.wait_in_sync(1, 60_000)
    scene.consume(10, 10)
    world.run_for_ms(COPIED_MS)
    elected_ms = SimulatedClock(master).now_ms()
    scene.elect_uncleanly()
    assert [scene.table(node) for node in slaves] == [20, 20]

    async def passed_over(client: Client) -> None:
        new = numbered(b"new", 30)
        consumer = client.consumer(GROUP)
        await send(client, *new[:5])
        result = await consumer.pull(QUEUE, 20)
        assert (result.status, result.next_offset) == (PullStatus.OFFSET_ILLEGAL, 15), (
            "behind the messages sent so far"
        )
        await send(client, *new[5:])
        assert await bodies_from(consumer, 20) == new[10:]
        header = ResetOffsetHeader("orders", GROUP, elected_ms - CLOCKS_DIFFER_MS, queue_id=1)
        request = RemotingCommand.request(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, header)
        assert (
            await client.remoting.call(scene.cluster.app(scene.cluster.master).address, request)
        ).code == 0
        assert await bodies_from(consumer, 40) == new

    scene.act(passed_over)
