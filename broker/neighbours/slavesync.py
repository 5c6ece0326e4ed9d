"""A slave's copies of what its master keeps beside the log: consumer offsets (43) and delay offsets (45), and of a master that
does not know COPY_TABLES topics (21) and groups (201).

Invariant: only answers of the master of the present role are taken over, whoever is reached at its address, no offsets
that are older than the deletions that are known here, and of the master's own none that rest on what this log lacks: in its
place this broker would skip what stands here. Each table is on disk before the next round, or as soon as the disk
takes it. A table that cannot be had is asked for again in the next round; the others do not wait
for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from broker.neighbours.tablecopy import TableCopy
from broker.role.membership import Membership
from broker.tables.tables import Tables
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.waking import woken
from remoting.bodies.groups import SubscriptionGroupWrapper
from remoting.bodies.offsets import ConsumerOffsetWrapper, DelayOffsetWrapper
from remoting.bodies.topics import TopicsForSlaves
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, HeaderError, RemotingError
from remoting.headers.group import SlaveHeader, TablesVersionHeader

logger = logging.getLogger("broker.slavesync")

TIMEOUT_MS = 3_000
ALL_THAT_IS_HERE = 1 << 62
"""As what offsets rest on, where the master does not say what: it may be upstream's."""
FACTS = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
OFFSETS = (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET)


class SlaveSync:
    """Asks the master that `membership` names."""

    def __init__(
        self,
        membership: Membership,
        *,
        client: RemotingClient,
        clock: Clock,
        tables: Tables,
        interval_ms: int,
        facts: TableCopy,
        holds: Callable[[int], bool],
    ) -> None:
        """`holds(end)`: whether this log is the master's up to there."""
        self._membership = membership
        self._client = client
        self._clock = clock
        self._tables = tables
        self._saved = tables.copied_from_master
        self._interval_ms = interval_ms
        self._facts = facts
        self._holds = holds
        self._wake = asyncio.Event()
        self._failures = {code: RepeatedFailure() for code in self._saved}
        self._leads: tuple[str | None, int] | None = None  # who gave consumer offsets last, and led then

    def soon(self) -> None:
        """There is a new master."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            for code in (*(FACTS if self._facts.master_is_old else ()), *OFFSETS):
                master = self._membership.master_address
                if master is not None:
                    await self._copy(master, code)
            await woken(self._wake, self._interval_ms)

    async def _copy(self, master: str, code: RequestCode) -> None:
        try:
            request = RemotingCommand.request(code, SlaveHeader(self._membership.broker_id))
            reply = await self._client.call(master, request, TIMEOUT_MS)
            if reply.code != ResponseCode.SUCCESS or self._membership.master_address != master:
                return
            if self._adopt(code, reply):
                self._saved[code].changed(fact=code in FACTS)
                with suppress(OSError):  # it stays changed: broker.tables.tables tries on, and tells
                    await self._saved[code].save()
        except (RemotingError, HeaderError, BodyError) as error:
            if self._failures[code].failed(master, self._clock.monotonic_ms()):
                logger.warning(
                    "not copied from master", extra=fields(master=master, what=code.name, why=error)
                )
        else:
            self._failures[code].recovered(self._clock.monotonic_ms())

    def _adopt(self, code: RequestCode, reply: RemotingCommand) -> bool:
        if code == RequestCode.GET_ALL_TOPIC_CONFIG:
            topics = TopicsForSlaves.decode(reply.body)
            self._tables.topics_deleted(topics.deleted_topics)
            return self._tables.topics.adopt(topics)
        if code == RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG:
            return self._tables.groups.adopt(SubscriptionGroupWrapper.decode(reply.body))
        told = TablesVersionHeader.from_ext(reply.ext)
        if not self._counts(code, told.tables_version):
            return False  # it may have what was deleted since, or say that more is delivered than stands in this log
        rests_on = ALL_THAT_IS_HERE if told.rests_on is None else told.rests_on
        holds = told.rests_on is None or rests_on == 0 or self._holds(rests_on)
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            return holds and self._tables.delays.adopt(DelayOffsetWrapper.decode(reply.body), rests_on)
        wrapper = ConsumerOffsetWrapper.decode(reply.body)
        return self._tables.offsets.adopt(wrapper, rests_on if holds else None)

    def _counts(self, code: RequestCode, version: str | None) -> bool:
        """A master of an older version says none with its delay offsets; with its consumer offsets, which were asked for just
        before, it does."""
        present = self._membership.master_address, self._membership.master_epoch
        if code == RequestCode.GET_ALL_DELAY_OFFSET and version is None and self._leads == present:
            return True
        counts = self._facts.counts(version)
        if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            self._leads = present if counts else None
        return counts
