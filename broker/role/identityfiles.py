"""The identity of a broker on disk, and the check that the store is still the one for which the id was granted.

Invariant: the mark is durable before the identity file is. So a store was emptied if it has an identity but no mark, no log and
no epochs. A log was lost if the store has no log, but an epoch that starts after offset 0. In both cases the broker is missing
data that the SyncStateSet counts on, so the broker abandons its id before it uses the store.

    brokerIdentity        see broker.role.identity; its name is a setting
    brokerIdentity-temp
    storeMark             the identity again, and the check code that it was granted to"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from broker.role.identity import (
    TEMPORARY_SUFFIX,
    Identity,
    IdentityInvalid,
    TemporaryIdentity,
    decode_identity,
    decode_mark,
    decode_temporary,
)
from epochfile.history import EpochHistory
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("broker.identityfiles")

MARK_FILE = "storeMark"


@dataclass(frozen=True, slots=True)
class LogFound:
    """The log that the start finds: whether it has a segment file, and the epochs of the epoch file."""

    segments: bool
    history: EpochHistory

    def why_lost(self, *, marked: bool) -> str | None:
        """The reason to believe that the log was lost; None if nothing proves that there was a log. A log that never held a
        byte has no segment, and no epoch that starts after offset 0."""
        last = self.history.last()
        if self.segments or (last is None and marked) or (last is not None and last.start_offset == 0):
            return None
        if last is None:
            return "the store was emptied, only its identity was kept"
        return f"the log is gone that epoch {last.epoch} continued at {last.start_offset}"


class IdentityFiles:
    """The files of one broker."""

    def __init__(self, files: SmallFiles, name: str, cluster_name: str, broker_name: str) -> None:
        self._files = files
        self._name = name
        self._temporary_name = name + TEMPORARY_SUFFIX
        self._names = cluster_name, broker_name

    async def load(self, found: LogFound) -> Identity | TemporaryIdentity | None:
        """The id that this store has or applies for; None if it needs a new id. Durably removes the identity of a lost store.
        Raises IdentityInvalid, OSError."""
        data = await self._files.read(self._name)
        if data is None:
            return await self._temporary()
        identity = decode_identity(self._name, data, *self._names)
        mark = await self._mark()
        if mark is not None and mark.broker_id != identity.broker_id:
            raise IdentityInvalid(
                self._name,
                f"says broker id {identity.broker_id}, but {MARK_FILE} says that the store is that of {mark.broker_id}",
            )
        why = found.why_lost(marked=mark is not None)
        if why is not None:
            await self._give_up(identity, why)
            return await self._temporary()
        if mark is None:  # the store is upstream's, or older than marks
            await self._files.replace(MARK_FILE, identity.encode_mark())
        return mark or identity

    async def _give_up(self, identity: Identity, why: str) -> None:
        logger.warning(
            "%s: broker id %d is abandoned and this broker joins as a new replica; once the old id has left the "
            "SyncStateSet, cleanBrokerMetadata forgets it",
            why,
            identity.broker_id,
            extra=fields(file=self._name),
        )
        await self._files.remove(MARK_FILE)  # first, so that an identity that is restored has no mark
        await self._files.remove(self._name)

    async def apply_for(self, temporary: TemporaryIdentity) -> None:
        """Store the application; durable on return. Raises OSError."""
        await self._files.replace(self._temporary_name, temporary.encode())

    async def granted(self, identity: Identity) -> None:
        """Bind the store to `identity`; durable on return. Raises OSError."""
        await self._files.replace(MARK_FILE, identity.encode_mark())
        await self._files.replace(self._name, identity.encode())
        await self._files.remove(self._temporary_name)

    async def _mark(self) -> Identity | None:
        data = await self._files.read(MARK_FILE)
        return None if data is None else decode_mark(MARK_FILE, data, *self._names)

    async def _temporary(self) -> TemporaryIdentity | None:
        name = self._temporary_name
        data = await self._files.read(name)
        return None if data is None else decode_temporary(name, data, *self._names)
