"""A slave's copies of its master's offset tables: consumer offsets (GET_ALL_CONSUMER_OFFSET, 43) and delay offsets
(GET_ALL_DELAY_OFFSET, 45). If the master does not know COPY_TABLES, topics (GET_ALL_TOPIC_CONFIG, 21) and groups
(GET_ALL_SUBSCRIPTIONGROUP_CONFIG, 201) are copied too. Upstream: SlaveSynchronize.

Invariant: an answer is used only if it comes from the master of the present role, whichever broker is at the master's address.
Offsets that are older than the deletions known here are not used. The master's own offsets, of delayed messages and
transactions, are not used if they belong to records that are missing in this log, because as master this broker would skip
messages. Each table is on disk before the next round, or as soon as the disk accepts it. A table that cannot be read is
requested again in the next round, and delays no other table."""

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
from mqruntime.waking import wait_event
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
"""The value of `rests_on` if an upstream master reports none."""
FACTS = (RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
OFFSETS = (RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET)


class SlaveSync:
    """The copies from the master that `membership` names."""

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
        """`holds(end)` returns whether this log equals the master's log up to `end`."""
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
        self._leads: tuple[str | None, int] | None = None  # the leader that sent the last consumer offsets

    def soon(self) -> None:
        """Copy soon, because there is a new master."""
        self._wake.set()

    async def run(self) -> None:
        while True:
            self._wake.clear()
            for code in (*(FACTS if self._facts.master_is_old else ()), *OFFSETS):
                master = self._membership.master_address
                if master is not None:
                    await self._copy(master, code)
            await wait_event(self._wake, self._interval_ms)

    async def _copy(self, master: str, code: RequestCode) -> None:
        try:
            request = RemotingCommand.request(code, SlaveHeader(self._membership.broker_id))
            reply = await self._client.call(master, request, TIMEOUT_MS)
            if reply.code != ResponseCode.SUCCESS or self._membership.master_address != master:
                return
            if self._adopt(code, reply):
                self._saved[code].changed(fact=code in FACTS)
                with suppress(OSError):  # the table stays changed: broker.tables.tables retries, and logs
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
        header = TablesVersionHeader.from_ext(reply.ext)
        if not self._counts(code, header.tables_version):
            return False  # it may have deleted rows, or deliveries of messages that differ in this log
        rests_on = ALL_THAT_IS_HERE if header.rests_on is None else header.rests_on
        holds = header.rests_on is None or rests_on == 0 or self._holds(rests_on)
        if code == RequestCode.GET_ALL_DELAY_OFFSET:
            return holds and self._tables.delays.adopt(DelayOffsetWrapper.decode(reply.body), rests_on)
        wrapper = ConsumerOffsetWrapper.decode(reply.body)
        return self._tables.offsets.adopt(wrapper, rests_on if holds else None)

    def _counts(self, code: RequestCode, version: str | None) -> bool:
        """Whether the answer comes from the leading master. Older releases send no version with delay offsets. They send a
        version with consumer offsets, which are requested just before."""
        present = self._membership.master_address, self._membership.master_epoch
        if code == RequestCode.GET_ALL_DELAY_OFFSET and version is None and self._leads == present:
            return True
        counts = self._facts.counts(version)
        if code == RequestCode.GET_ALL_CONSUMER_OFFSET:
            self._leads = present if counts else None
        return counts
