"""Real processes: the master is killed right after its administrator gets a success."""

from __future__ import annotations

import asyncio
import random
import signal
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import SyncStateInfo, TopicSettings
from mqclient.client import Client
from mqruntime.clock import SystemClock
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.header import Header
from remoting.headers.admin import DeleteSubscriptionGroupHeader, GroupHeader, TopicHeader
from remoting.headers.offsets import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS

TOPIC, GROUP = "Kept", "Readers"


class Scene:
    """A cluster, and an administrator after whose changes the master is killed."""

    def __init__(self, cluster: Cluster, admin: AdminClient) -> None:
        self.cluster = cluster
        self.admin = admin
        self.state: SyncStateInfo | None = None

    @property
    def master(self) -> str:
        assert self.state is not None and self.state.master_address is not None
        return self.state.master_address

    async def whole(self) -> None:
        self.state = await self.cluster.wait_whole(timeout_ms=WAIT_MS)

    async def last_change(
        self, code: RequestCode, ext: Header | None = None, body: bytes | None = None
    ) -> None:
        """Kills the master at the answer; returns when the next one leads."""
        await self.admin.ask(self.master, code, ext, body=body)
        await self.after_the_death()

    async def after_the_death(self) -> None:
        name, former = self.cluster.layout.name_of(self.master), self.master
        assert name is not None
        self.cluster.kill([name], signal.SIGKILL)

        async def another() -> SyncStateInfo:
            state = await self.cluster_state()
            if state.master_address in (None, former):
                raise NotYet("no new master")
            return state

        self.state = await wait_for("another master", another, WAIT_MS)
        await wait_for("its role", self.takes_sends, WAIT_MS)
        self.cluster.start([name])

    async def cluster_state(self) -> SyncStateInfo:
        try:
            return (await self.admin.sync_states(self.cluster.layout.controller_list, [BROKER_SET]))[
                BROKER_SET
            ]
        except AdminError as error:
            raise NotYet(str(error)) from error

    async def takes_sends(self) -> None:
        try:
            status = await self.admin.ha_status(self.master)
        except AdminError as error:
            raise NotYet(str(error)) from error
        if not status.is_master:
            raise NotYet("it follows")


async def kept_through_kills(cluster: Cluster) -> None:
    admin = AdminClient(SystemClock())
    try:
        scene = Scene(cluster, admin)
        await scene.whole()
        await admin.create_topic(scene.master, TopicSettings(TOPIC, 3, 3))
        await scene.after_the_death()
        assert await admin.knows_topic(scene.master, TOPIC)

        async def routed() -> None:
            try:
                await admin.topic_route(cluster.layout.namesrv, TOPIC)
            except AdminError as error:
                raise NotYet(str(error)) from error

        await wait_for("the route", routed, WAIT_MS)
        await scene.whole()
        async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(7)) as client:
            assert (
                await client.producer("PG").send(TOPIC, b"stored in the log", timeout_ms=WAIT_MS)
            ).acknowledged
        group = SubscriptionGroupConfig(GROUP, retry_max_times=5).encode()
        commit = UpdateConsumerOffsetHeader(GROUP, TOPIC, 0, 1)
        await admin.ask(scene.master, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        await scene.last_change(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, None, group)
        await admin.ask(scene.master, RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG, GroupHeader(GROUP))
        await scene.whole()
        await admin.ask(scene.master, RequestCode.UPDATE_CONSUMER_OFFSET, commit)
        deleted = DeleteSubscriptionGroupHeader(GROUP, clean_offset=True)
        await scene.last_change(RequestCode.DELETE_SUBSCRIPTIONGROUP, deleted)
        asked = QueryConsumerOffsetHeader(GROUP, TOPIC, 0, set_zero_if_not_found=False)
        absent = await admin.ask_for(
            scene.master, RequestCode.QUERY_CONSUMER_OFFSET, asked, absent=ResponseCode.QUERY_NOT_FOUND
        )
        assert absent is None
        await scene.whole()
        await scene.last_change(RequestCode.DELETE_TOPIC_IN_BROKER, TopicHeader(TOPIC))
        assert not await admin.knows_topic(scene.master, TOPIC)
        await scene.whole()
        for replica in scene.state.in_sync if scene.state else ():
            assert not await admin.knows_topic(replica.address, TOPIC), "it came back with its messages"
    finally:
        await admin.close()


def test_the_next_master_has_the_changes_acknowledged_by_the_killed_one(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster", broker_settings=NOBODY_IS_LATE) as made:
        made.start()
        asyncio.run(kept_through_kills(made))
