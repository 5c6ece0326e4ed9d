"""A slave's copies of what its master keeps beside the log: topics (21), groups (201), consumer offsets (43) and delay
offsets (45).

Invariant: only answers of the master of the present role are taken over; each table is on disk before the next round,
or as soon as the disk takes it. A table that cannot be had is asked for again in the next round; the others do not wait
for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.delayoffsets import DelayOffsets
from broker.tables.savedtable import SavedTable
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.topics import Topics
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.waking import woken
from remoting.bodies.groups import SubscriptionGroupWrapper
from remoting.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper
from remoting.bodies.topics import TopicConfigWrapper
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError

logger = logging.getLogger("broker.slavesync")

TIMEOUT_MS = 3_000


class SlaveSync:
    """`master` gives the master's remoting address while this broker is its slave."""

    def __init__(
        self,
        *,
        client: RemotingClient,
        clock: Clock,
        master: Callable[[], str | None],
        topics: Topics,
        groups: SubscriptionGroups,
        offsets: ConsumerOffsets,
        delays: DelayOffsets,
        saved: dict[RequestCode, SavedTable],
        interval_ms: int,
    ) -> None:
        self._client = client
        self._clock = clock
        self._master = master
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delays = delays
        self._saved = saved
        self._interval_ms = interval_ms
        self._wake = asyncio.Event()
        self._failures = {code: RepeatedFailure() for code in saved}

    def soon(self) -> None:
        """There is a new master."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            for code in (
                RequestCode.GET_ALL_TOPIC_CONFIG,
                RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
                RequestCode.GET_ALL_CONSUMER_OFFSET,
                RequestCode.GET_ALL_DELAY_OFFSET,
            ):
                master = self._master()
                if master is not None:
                    await self._copy(master, code)
            await woken(self._wake, self._interval_ms)

    async def _copy(self, master: str, code: RequestCode) -> None:
        try:
            reply = await self._client.call(master, RemotingCommand.request(code), TIMEOUT_MS)
            if reply.code != ResponseCode.SUCCESS or self._master() != master:
                return
            if self._adopt(code, reply):
                self._saved[code].changed()
                with suppress(OSError):  # it stays changed: broker.tables.tables tries on, and tells
                    await self._saved[code].save()
        except (RemotingError, BodyError) as error:
            if self._failures[code].failed(master, self._clock.monotonic_ms()):
                logger.warning(
                    "not copied from master", extra=fields(master=master, what=code.name, why=error)
                )
        else:
            self._failures[code].recovered(self._clock.monotonic_ms())

    def _adopt(self, code: RequestCode, reply: RemotingCommand) -> bool:
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            return self._topics.adopt(TopicConfigWrapper.decode(reply.body))
        if code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            return self._groups.adopt(SubscriptionGroupWrapper.decode(reply.body))
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            return self._delays.adopt(DelayOffsetWrapper.decode(reply.body))
        return self._offsets.adopt(ConsumerOffsetWrapper.decode(reply.body))
