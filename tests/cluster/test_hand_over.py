"""electMaster while clients send and read, and ask for routes every 30 s: no request fails."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass, field
from unittest.mock import patch

import pytest

from broker.switchover import gracefulshutdown
from broker.switchover.forwardingstate import Stage
from broker.switchover.gracefulshutdown import GracefulShutdown
from mqclient import routetable
from mqclient.client import Client
from mqclient.errors import ClientError
from mqclient.message import decode_messages
from mqclient.producer import SendStatus
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.pull import PullMessageHeader
from remoting.headers.send import SendMessageHeader
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.handovers import another
from tests.support.longtests import long

SENDERS = 4
EAGER_S, CALM_S = 0.003, 0.03
"""Pauses between two sends of one sender, during the change of master and until clients get new routes."""


@dataclass
class Sender:
    """Sends to its own queue, one message after the other, until `done`."""

    queue_id: int
    sent: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    longest_ms: int = 0
    pause_s: float = EAGER_S
    asks_for_routes: bool = False

    async def run(self, client: Client, done: asyncio.Event) -> None:
        producer, clock = client.producer("PG"), client.clock
        while not done.is_set():
            if self.asks_for_routes:
                client.routes.renew("orders")
            body = f"{self.queue_id}:{len(self.sent) + len(self.errors)}".encode()
            began_ms = clock.monotonic_ms()
            try:
                result = await producer.send("orders", body, queue_id=self.queue_id)
            except ClientError as error:
                self.errors.append(str(error))
            else:
                if result.status is SendStatus.SEND_OK:
                    self.sent.append(body)
                else:
                    self.errors.append(result.status.name)
            self.longest_ms = max(self.longest_ms, clock.monotonic_ms() - began_ms)
            await asyncio.sleep(self.pause_s)


async def sent_through(cluster: Cluster, change: object, *, asking: bool = False) -> list[Sender]:
    """The senders after `change` replaced the master; with `asking` they ask for routes all the time."""
    senders = [Sender(number, asks_for_routes=asking) for number in range(SENDERS)]
    done = asyncio.Event()
    async with cluster.client() as client, asyncio.TaskGroup() as tasks:
        for sender in senders:
            tasks.create_task(sender.run(client, done))
        await asyncio.sleep(0.2)
        await change()  # type: ignore[operator]
        await asyncio.sleep(0.8)
        for sender in senders:
            sender.pause_s = CALM_S
        await asyncio.sleep(2.2)
        done.set()
    return senders


@pytest.mark.parametrize("seed", [1, *long([2, 3])])
@pytest.mark.parametrize("members_min", [1, 2])
def test_no_send_fails_when_another_master_is_elected(seed: int, members_min: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3, minInSyncReplicas=members_min)
        cluster.start_up()
        old = cluster.master
        designate = another(cluster)
        senders = cluster.run(sent_through(cluster, lambda: cluster.designate(designate)))
        assert cluster.master is not old
        assert [sender.errors for sender in senders] == [[]] * SENDERS
        assert max(sender.longest_ms for sender in senders) <= 120
        assert cluster.app(old).requests.forwarding.state.stage is Stage.FORWARDING
        assert cluster.app(old).requests.forwarding.forwarded > 100
        assert cluster.app(old).requests.forwards_to == cluster.app(cluster.master).address
        read = [message.body for message in cluster.run(cluster.read_all())]
        for sender in senders:
            of_it = [body for body in read if body.startswith(f"{sender.queue_id}:".encode())]
            assert of_it == sender.sent, "each message once, in the order of sending"


@pytest.mark.parametrize("seed", [1, *long([2, 3])])
@pytest.mark.parametrize("members_min", [1, 2])
def test_no_send_fails_in_an_election_while_clients_keep_asking_for_routes(
    seed: int, members_min: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routetable, "RETRY_MS", 1)
    with World(seed) as world:
        cluster = Cluster(world, 3, minInSyncReplicas=members_min)
        cluster.start_up()
        designate = another(cluster)
        senders = cluster.run(sent_through(cluster, lambda: cluster.designate(designate), asking=True))
        assert [sender.errors for sender in senders] == [[]] * SENDERS
        assert cluster.bodies() == sorted(body for sender in senders for body in sender.sent)


def test_a_stopping_master_stores_no_message_that_it_holds() -> None:
    """No slave confirms the stored ones, so that it waits as long as it may."""
    with World(1) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old, app = cluster.master, cluster.app(cluster.master)
        settle = GracefulShutdown.settle
        ends: list[int] = []
        answers: list[int] = []
        settling = asyncio.Event()

        async def noted(self: GracefulShutdown) -> None:
            ends.append(app.store.max_offset())
            settling.set()
            await settle(self)

        async def stop() -> None:
            for number in range(3):
                world.nodes[f"controller-{number}"].pause(5_000)
            for node in cluster.slaves:
                world.network.cut(old.host, node.host)
            await asyncio.sleep(0.05)
            held = asyncio.ensure_future(send_while_it_waits())
            await old.stop()
            await held

        async def send_while_it_waits() -> None:
            await settling.wait()
            header = SendMessageHeader("producers", "orders", "TBW102", 4, 0, 0, 0, 0)
            with suppress(RemotingError):
                answers.append(
                    (await cluster.ask(app.address, RequestCode.SEND_MESSAGE, header, b"held")).code
                )

        late_look = patch.object(
            gracefulshutdown, "LOOK_MS", 37
        )  # the end of the wait falls between two looks
        with late_look, patch.object(GracefulShutdown, "settle", noted):
            cluster.run(sent_through(cluster, stop))
        assert answers == [ResponseCode.SYSTEM_BUSY]
        assert ends == [app.store.max_offset()] and app.store.max_offset() > app.store.confirm_offset()


@pytest.mark.parametrize("seed", [1, *long([2])])
def test_no_send_fails_when_the_master_is_stopped(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old, stopping = cluster.master, []

        async def stop() -> None:
            stopping.append(asyncio.ensure_future(old.stop()))

        senders = cluster.run(sent_through(cluster, stop))
        assert [sender.errors for sender in senders] == [[]] * SENDERS
        assert max(sender.longest_ms for sender in senders) <= 350
        world.run_until(lambda: not old.running, 500)  # its clients have disconnected
        assert not old.left_behind
        read = [message.body for message in cluster.run(cluster.read_all())]
        for sender in senders:
            of_it = [body for body in read if body.startswith(f"{sender.queue_id}:".encode())]
            assert of_it == sender.sent, "each message once, in the order of sending"
        cluster.start(old)
        cluster.wait_in_sync(3)


@pytest.mark.parametrize("seed", [1, *long([2, 3, 4])])
def test_a_master_without_a_successor_answers_stored_sends_before_it_stops(seed: int) -> None:
    """No controller elects a successor in time."""
    with World(seed) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()

        async def stop() -> None:
            for number in range(3):
                world.nodes[f"controller-{number}"].pause(5_000)
            await cluster.master.stop()

        senders = cluster.run(sent_through(cluster, stop))
        assert any(sender.errors for sender in senders), "no broker accepted messages for a while"
        cluster.wait_in_sync(2, 20_000)
        read = cluster.bodies()
        assert read == sorted(body for sender in senders for body in sender.sent)


@pytest.mark.parametrize("seed", [1, *long([2])])
def test_no_send_fails_when_a_master_yields(seed: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3, yieldAfterMillis=100)
        cluster.start_up()
        old = cluster.master

        async def hang_the_disk() -> None:
            old.disk.stall(2_500)

        senders = cluster.run(sent_through(cluster, hang_the_disk))
        assert cluster.master is not old
        assert [sender.errors for sender in senders] == [[]] * SENDERS


def test_a_stopped_master_stays_for_its_clients_until_they_have_asked_for_routes() -> None:
    with World(3) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old = cluster.master

        async def connected() -> int:
            async with cluster.client() as client:
                await client.producer("PG").send("orders", b"one")
                began_ms = client.clock.monotonic_ms()
                stopping = asyncio.ensure_future(old.stop())
                await asyncio.sleep(5)
                await client.producer("PG").send("orders", b"two")
                await stopping
                return client.clock.monotonic_ms() - began_ms

        assert 35_000 <= cluster.run(connected()) <= 40_000
        assert not old.left_behind


def test_a_stopped_master_forwards_its_clients_to_each_next_master() -> None:
    with World(5) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old = cluster.master

        async def two_successors() -> None:
            async with cluster.client() as client:
                producer = client.producer("PG")
                await producer.send("orders", b"one", queue_id=0)
                stopping = asyncio.ensure_future(old.stop())
                await asyncio.sleep(3)
                await producer.send("orders", b"two", queue_id=0)
                await cluster.designate(another(cluster, old))
                await asyncio.sleep(3)
                await producer.send("orders", b"three", queue_id=0)
                await stopping

        cluster.run(two_successors())
        assert [message.body for message in cluster.run(cluster.read_all())] == [b"one", b"two", b"three"]


def test_a_master_that_does_not_support_hand_over_is_replaced_without_it() -> None:
    with World(4) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old = cluster.master
        del cluster.app(old).requests.router.handlers[RequestCode.HAND_OVER]
        cluster.run(cluster.designate(another(cluster)))
        world.run_until(lambda: cluster.masters not in ([], [old]) and cluster.in_sync(3), 10_000)


def test_a_consumer_unknown_to_the_successor_reads_on_through_its_former_master() -> None:
    """A new successor knows no consumer, and Java consumers send their subscriptions every 30 s only."""
    with World(4) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        former = cluster.app(cluster.master).address
        beat = HeartbeatData(
            "reader",
            consumer_data_set=[
                ConsumerData(
                    "readers", subscription_data_set=[SubscriptionData("orders", "TagA", sub_version=5)]
                )
            ],
        )
        pull = PullMessageHeader("readers", "orders", 0, 0, 32, 0, 0, 0, 5)

        async def read_through_a_hand_over() -> RemotingCommand:
            async with cluster.client() as client:
                call = client.remoting.call
                assert (
                    await call(former, RemotingCommand.request(RequestCode.HEART_BEAT, None, beat.encode()))
                ).code == 0
                producer = client.producer("PG")
                for tag in ("TagA", "TagB", "TagA"):
                    await producer.send("orders", tag.encode(), tags=tag, queue_id=0)
                await cluster.designate(another(cluster))
                while stage_of(former) is not Stage.FORWARDING:  # noqa: ASYNC110 - the simulated world has no events for tests
                    await asyncio.sleep(0.005)
                return await call(former, RemotingCommand.request(RequestCode.PULL_MESSAGE, pull))

        def stage_of(address: str) -> Stage:
            app = next(cluster.app(node) for node in cluster.brokers if cluster.app(node).address == address)
            return app.requests.forwarding.state.stage

        reply = cluster.run(read_through_a_hand_over())
        assert reply.code == 0, reply.remark
        assert [message.body for message in decode_messages(reply.body or b"")] == [b"TagA", b"TagA"]
