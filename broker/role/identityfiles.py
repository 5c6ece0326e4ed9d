"""Who a broker is, on disk, and whether the store beside that is still the one that the id was granted to.

Invariant: the mark is durable before the identity file is. So an identity without the mark, beside neither log nor epochs,
is all that is left of a store that was emptied; and a log that epochs tell of must be there. Such a broker lacks what
its id stands for in the SyncStateSet: the id is given up, before anything of the store is used under it.

    brokerIdentity        see broker.role.identity; its name can be set
    brokerIdentity-temp
    storeMark             the identity once more, and the check code that it was granted to"""

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
    """What a start finds of the log: whether there is a segment file, and the epochs of the epoch file."""

    segments: bool
    history: EpochHistory

    def why_lost(self, *, marked: bool) -> str | None:
        """What tells that a log was here which is gone; None when nothing does. A log that never held a byte has neither
        a segment nor an epoch beyond its beginning."""
        last = self.history.last()
        if self.segments or (last is None and marked) or (last is not None and last.start_offset == 0):
            return None
        if last is None:
            return "the store was emptied, only its identity was kept"
        return f"the log is gone that epoch {last.epoch} went on in at {last.start_offset}"


class IdentityFiles:
    """The files of one broker."""

    def __init__(self, files: SmallFiles, name: str, cluster_name: str, broker_name: str) -> None:
        self._files = files
        self._name = name
        self._temporary_name = name + TEMPORARY_SUFFIX
        self._names = cluster_name, broker_name

    async def load(self, found: LogFound) -> Identity | TemporaryIdentity | None:
        """The id that this store holds or applies for; None when a new one is to be asked for. An identity whose store is
        lost is removed, durably. IdentityInvalid, OSError."""
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
        if mark is None:  # a store of upstream's, or of before there were marks
            await self._files.replace(MARK_FILE, identity.encode_mark())
        return mark or identity

    async def _give_up(self, identity: Identity, why: str) -> None:
        logger.warning(
            "%s: broker id %d is given up and this broker joins as a new replica; once the old id has left the "
            "SyncStateSet, cleanBrokerMetadata forgets it",
            why,
            identity.broker_id,
            extra=fields(file=self._name),
        )
        await self._files.remove(MARK_FILE)  # first: an identity that is put back finds no mark either
        await self._files.remove(self._name)

    async def apply_for(self, temporary: TemporaryIdentity) -> None:
        """Durable on return. OSError."""
        await self._files.replace(self._temporary_name, temporary.encode())

    async def granted(self, identity: Identity) -> None:
        """The store is that of `identity` from now on. OSError."""
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
