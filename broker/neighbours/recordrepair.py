"""Repair of corrupt records of a slave from its master. A record is read by its offset in the log (VIEW_MESSAGE_BY_ID, 33),
which Java masters answer too.

Invariant: a record is replaced only below this slave's confirm offset, only if both logs have the same epoch at its offset
(GET_BROKER_EPOCH_CACHE, 1007), and only by bytes that pass their CRC and belong to this offset. Otherwise the damage stays, and
the repair is tried again."""

from __future__ import annotations

import asyncio
import logging

from broker.role.membership import Membership
from epochfile.entry import EpochEntry
from ha.service.haservice import HAService
from messagestore.scrub.soundness import Damage
from messagestore.store.messagestore import MessageStore
from mqruntime.clock import Clock
from mqruntime.log import fields
from mqruntime.repeatedfailures import RepeatedFailures
from remoting.bodies.epochs import EpochCache
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError, RemotingError
from remoting.headers.messages import ViewMessageHeader

logger = logging.getLogger("broker.recordrepair")

INTERVAL_MS = 2_000
TIMEOUT_MS = 3_000


class NotRepaired(Exception):
    """This attempt to repair failed; the error's text names the reason."""


class RecordRepair:
    """The repair from the master that `membership` names."""

    def __init__(
        self,
        membership: Membership,
        *,
        store: MessageStore,
        ha: HAService,
        client: RemotingClient,
        clock: Clock,
    ) -> None:
        self._membership = membership
        self._store = store
        self._ha = ha
        self._client = client
        self._clock = clock
        self._failures = RepeatedFailures()

    async def run(self) -> None:
        while True:
            await asyncio.sleep(INTERVAL_MS / 1000)
            await self.repair_all()

    async def repair_all(self) -> None:
        """Repair every damaged record that the master can return now."""
        for damage in list(self._store.integrity.damages.values()):
            master = self._membership.master_address
            if master is None or not self._membership.is_slave:
                return
            try:
                await self._repair(damage, master)
            except (NotRepaired, RemotingError, BodyError) as error:
                if self._failures.failed(damage.offset, self._clock.monotonic_ms()):
                    said = fields(offset=damage.offset, segment=damage.segment, master=master, why=error)
                    logger.warning("damaged record not repaired, retrying", extra=said)
            else:
                self._failures.recovered(damage.offset)

    async def _repair(self, damage: Damage, master: str) -> None:
        entry = self._ha.history.entry_at(damage.offset)
        if entry is None or damage.offset >= self._store.confirm_offset():
            raise NotRepaired("the record is not known to be confirmed")
        reply = await self._client.call(
            master, RemotingCommand.request(RequestCode.GET_BROKER_EPOCH_CACHE), TIMEOUT_MS
        )
        if reply.code != ResponseCode.SUCCESS or not _has_epoch_beyond(
            EpochCache.decode(reply.body), entry, damage.offset
        ):
            raise NotRepaired(
                f"the master does not report that epoch {entry.epoch} of {entry.start_offset} reaches there"
            )
        request = RemotingCommand.request(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(damage.offset))
        reply = await self._client.call(master, request, TIMEOUT_MS)
        if reply.code != ResponseCode.SUCCESS or reply.body is None:
            raise NotRepaired(f"the master answers code {reply.code}: {reply.remark or ''}")
        if self._membership.master_address != master or self._ha.history.entry_at(damage.offset) != entry:
            raise NotRepaired("roles have changed meanwhile")
        if not await self._store.repair(damage.offset, bytes(reply.body)):
            raise NotRepaired("the master's bytes there do not fit")
        logger.warning(
            "damaged record repaired from the master",
            extra=fields(segment=damage.segment, offset=damage.offset, master=master),
        )


def _has_epoch_beyond(cache: EpochCache, entry: EpochEntry, offset: int) -> bool:
    """Whether the master's log has the epoch of `entry` from the same start on, and up to an end beyond `offset`."""
    return any(
        (span.epoch, span.start_offset) == entry and offset < min(span.end_offset, cache.max_offset)
        for span in cache.epoch_list
    )
