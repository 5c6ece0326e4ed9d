"""A master is stopped (SIGSTOP) while requests wait in its socket, and continues when another one leads. The
stale requests undo nothing that the client changed at the successor, whether or not the old master already
knows of it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import DrillFailed, elect_another
from localcluster.layout import BROKER_SET
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqclient.errors import LockFailed
from mqclient.producer import SendStatus
from mqclient.queuelocks import QueueLocks
from mqclient.route import MessageQueue
from mqruntime.clock import SystemClock
from remoting.bodies.queues import LockQueuesBody
from remoting.bodies.queues import MessageQueue as WireQueue
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS

TOPIC, GROUP = "Orders", "Readers"
QUEUE = MessageQueue(TOPIC, BROKER_SET, 0)
EARLIER, LATER = 3, 7


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("stale requests") / "cluster"
    with Cluster.create(folder, controllers=1, broker_settings=NOBODY_IS_LATE) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(made.create_topic(TOPIC, queues=1))
        yield made


@pytest.mark.parametrize("has_heard", [True, False])
def test_stale_requests_of_a_stopped_master_undo_nothing(cluster: Cluster, has_heard: bool) -> None:
    asyncio.run(drill(cluster, f"{GROUP}-{has_heard}", has_heard=has_heard))


async def drill(cluster: Cluster, group: str, *, has_heard: bool) -> None:
    before = await cluster.wait_whole(timeout_ms=WAIT_MS)
    old = cluster.layout.name_of(before.master_address or "")
    assert old is not None
    address = cluster.layout.address(old)
    async with client(cluster, 1) as of_x, client(cluster, 2) as of_y:
        for number in range(10):
            sent = await of_x.producer("Producers").send(TOPIC, b"%d" % number, timeout_ms=WAIT_MS)
            assert sent.status is SendStatus.SEND_OK
        x, y = of_x.locks(group, "X"), of_y.locks(group, "Y")
        assert await gets(x) and not await gets(y)
        assert await commit(of_x.remoting, address, group, EARLIER - 1) == ResponseCode.SUCCESS
        if has_heard:
            master = await successor(cluster, before)
            await cluster.wait_whole(timeout_ms=WAIT_MS)
        cluster.pause(old)
        asleep = [old]
        try:
            await say_what_is_out_of_date(of_x.remoting, address, group)
            answer = asyncio.ensure_future(committed(of_x.remoting, address, group))
            if not has_heard:
                cluster.kill(["controller-0"])  # its new connection notifies, behind the waiting requests
                cluster.start(["controller-0"])
                master = await successor(cluster, before)
            assert await gets(x) and not await gets(y)
            assert await commit(of_x.remoting, master, group, LATER) == ResponseCode.SUCCESS
            if not has_heard:
                for name in ("controller-0", *cluster.layout.broker_names):
                    if name != old:
                        cluster.pause(name)
                        asleep.append(name)
            cluster.resume(old)
            said = await answer
            assert has_heard or said == EARLIER, "it still served as the master"
        finally:
            for name in asleep:
                cluster.resume(name)
        await cluster.wait_whole(timeout_ms=WAIT_MS)
        assert await committed(of_x.remoting, master, group) == LATER
        assert not await gets(y) and await gets(x)


def client(cluster: Cluster, seed: int) -> Client:
    return Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(seed))


async def successor(cluster: Cluster, before: SyncStateInfo) -> str:
    """Lets an operator elect another master than `before`; returns its address."""
    admin = AdminClient(SystemClock())
    chosen = next(replica for replica in before.in_sync if replica.broker_id != before.master_id)

    async def leads() -> str:
        try:
            await elect_another(cluster, chosen)
        except DrillFailed as error:
            raise NotYet(str(error)) from error
        state = await cluster.sync_state(admin)
        if state.master_address != chosen.address:
            raise NotYet("it does not lead")
        return chosen.address

    try:
        return await wait_for("another master", leads, WAIT_MS)
    finally:
        await admin.close()


async def gets(locks: QueueLocks) -> bool:
    """Whether the client can lock the queue at the master, once clients know it."""

    async def asked() -> bool:
        try:
            return QUEUE in await locks.lock([QUEUE])
        except LockFailed as error:
            raise NotYet(str(error)) from error

    return await wait_for("an answer about the lock", asked, WAIT_MS)


async def say_what_is_out_of_date(remoting: RemotingClient, address: str, group: str) -> None:
    """One-way unlock and commit, as Java's clients send them."""
    body = LockQueuesBody(group, "X", [WireQueue(TOPIC, BROKER_SET, 0)]).encode()
    await remoting.one_way(address, RemotingCommand.request(RequestCode.UNLOCK_BATCH_MQ, body=body))
    await remoting.one_way(address, update(group, EARLIER))


def update(group: str, offset: int) -> RemotingCommand:
    header = UpdateConsumerOffsetHeader(group, TOPIC, 0, offset)
    return RemotingCommand.request(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def commit(remoting: RemotingClient, address: str, group: str, offset: int) -> int:
    return (await remoting.call(address, update(group, offset), WAIT_MS)).code


async def committed(remoting: RemotingClient, address: str, group: str) -> int | None:
    """None if the broker refuses."""
    request = RemotingCommand.request(
        RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(group, TOPIC, 0)
    )
    reply = await remoting.call(address, request, WAIT_MS)
    return int(reply.ext["offset"]) if reply.code == ResponseCode.SUCCESS else None
