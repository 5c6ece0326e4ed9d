"""The check of the disk space before a resync: a copy of the master's log must fit next to the store that is set aside.

Invariant: the size is that of the segments between the start and the end of the master's log, with one segment made ahead. It
must fit below the usage at which retention deletes by force, because retention would remove the beginning of the copy. Queues,
index and new messages are not counted."""

from __future__ import annotations

from broker.resync.logspan import LogSpan, log_span
from broker.role.membership import Membership
from ha.errors import MasterUnread
from messagestore.log.retention import Rules
from messagestore.store.brokerstore import BrokerStore
from messagestore.store.settings import StoreSettings
from mqruntime.segments import DiskSpace
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError

TIMEOUT_MS = 1_500
"""Timeout of the request to the master, below the timeout of the operator."""
MADE_AHEAD = 1
"""The number of segments that are made after the segment in which a log ends."""


class InsufficientSpace(Exception):
    """The disk has no room for two stores; the error's text names the remedy."""

    def __init__(self, needed_bytes: int, room_bytes: int, rules: Rules) -> None:
        limit = (
            f" below diskSpaceCleanForciblyRatio={100 * rules.clean_forcibly_above:.0f}"
            if rules.may_clean_forcibly
            else ""
        )
        super().__init__(
            f"a copy of the master's log needs {needed_bytes} bytes next to this store, and its disk has room for {room_bytes}"
            f"{limit}: make room, or, where getSyncStateSet shows enough other members, stop this broker and empty its store"
        )


class ResyncSpaceCheck:
    """Compares the space on this disk with the log of the master that `membership` names."""

    def __init__(
        self, membership: Membership, client: RemotingClient, store: BrokerStore, settings: StoreSettings
    ) -> None:
        self._membership = membership
        self._client = client
        self._store = store
        self._settings = settings

    async def check(self) -> None:
        """Check the space. Raises InsufficientSpace, MasterUnread, and OSError of the disk."""
        needed = copy_bytes(await self._master_log(), self._store.segment_size_bytes)
        rules = self._settings.retention
        room = room_bytes(self._store.disk_space(), rules)
        if needed > room:
            raise InsufficientSpace(needed, room, rules)

    async def _master_log(self) -> LogSpan:
        master = self._membership.master_address
        if master is None:
            raise MasterUnread("this broker follows no master at the moment")
        try:
            request = RemotingCommand.request(RequestCode.GET_BROKER_RUNTIME_INFO)
            reply = await self._client.call(master, request, TIMEOUT_MS)
        except RemotingError as error:
            raise MasterUnread(str(error)) from error
        if reply.code != ResponseCode.SUCCESS:
            raise MasterUnread(f"{master} answers {reply.code}: {reply.remark or ''}")
        return log_span(reply.body)


def copy_bytes(log: LogSpan, segment_bytes: int) -> int:
    """The size of the segments of a copy of `log`."""
    return (log.ends // segment_bytes + 1 + MADE_AHEAD - log.begins // segment_bytes) * segment_bytes


def room_bytes(space: DiskSpace, rules: Rules) -> int:
    """The number of bytes that can be written before the disk is full or retention deletes young data."""
    if not rules.may_clean_forcibly:
        return space.free_bytes
    forced_at = int(sum(space) * rules.clean_forcibly_above)
    return min(space.free_bytes, max(forced_at - space.used_bytes, 0))
