"""electMaster while clients send and read that ask for routes every 30 s: nobody notices."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from broker.role.passage import Stage
from mqclient.client import Client
from mqclient.errors import ClientError
from mqclient.producer import SendStatus
from remoting.codes import RequestCode
from simulation.kernel.world import World
from tests.unit.broker.brokerset import Cluster

SENDERS = 4


@dataclass
class Sender:
    """Sends to its own queue, one message after the other, until `done`."""

    queue_id: int
    sent: list[bytes] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    longest_ms: int = 0

    async def run(self, client: Client, done: asyncio.Event) -> None:
        producer, clock = client.producer("PG"), client.clock
        while not done.is_set():
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
            await asyncio.sleep(0.003)


async def sent_through(cluster: Cluster, change: object) -> list[Sender]:
    """What SENDERS got told while `change`, which changes the master, was carried out."""
    senders, done = [Sender(number) for number in range(SENDERS)], asyncio.Event()
    async with cluster.client() as client, asyncio.TaskGroup() as tasks:
        for sender in senders:
            tasks.create_task(sender.run(client, done))
        await asyncio.sleep(0.5)
        await change()  # type: ignore[operator]
        await asyncio.sleep(3)
        done.set()
    return senders


def another(cluster: Cluster) -> int | None:
    """The id of a broker that is not master."""
    return next(
        cluster.app(node).membership.broker_id for node in cluster.brokers if node is not cluster.master
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("members_min", [1, 2])
def test_nobody_who_sends_notices_that_another_is_elected(seed: int, members_min: int) -> None:
    with World(seed) as world:
        cluster = Cluster(world, 3, minInSyncReplicas=members_min)
        cluster.start_up()
        old = cluster.master
        designate = another(cluster)
        senders = cluster.run(sent_through(cluster, lambda: cluster.designate(designate)))
        assert cluster.master is not old
        assert [sender.errors for sender in senders] == [[]] * SENDERS
        assert max(sender.longest_ms for sender in senders) <= 200
        assert cluster.app(old).requests.forwarding.passage.stage is Stage.OPEN
        assert cluster.app(old).requests.forwarding.forwarded > 100
        read = [message.body for message in cluster.run(cluster.read_all())]
        for sender in senders:
            of_it = [body for body in read if body.startswith(f"{sender.queue_id}:".encode())]
            assert of_it == sender.sent, "each once, in the order of sending"


def test_a_master_that_does_not_know_the_request_is_deposed_as_ever() -> None:
    with World(4) as world:
        cluster = Cluster(world, 3)
        cluster.start_up()
        old = cluster.master
        del cluster.app(old).requests.router.handlers[RequestCode.HAND_OVER]
        cluster.run(cluster.designate(another(cluster)))
        world.run_until(lambda: cluster.masters not in ([], [old]) and cluster.in_sync(3), 10_000)
