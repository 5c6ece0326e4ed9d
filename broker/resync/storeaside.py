"""The store that a broker sets aside for a resync with an empty store, and the file that records the progress.

    state=moving|filling
    folder=aside-20261122T210703.125Z     below the store's root; the time is UTC's
    broker_id=3                           of the store in it, given up
    keeps=yes                             it may hold what nobody else does: it is for the operator to remove

Invariant: the file is durable before anything is moved, and has `state=moving` until everything is moved. So a start continues
where the process before was killed, and no store is opened that is only partly moved. The folder is removed only when the new
copy is in the SyncStateSet. The file is removed after the folder."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from enum import Enum

from broker.role.identity import TEMPORARY_SUFFIX
from broker.role.identityfiles import MARK_FILE
from broker.role.memorymark import FILE as MEMORY_MARK
from broker.role.startnumber import FILE as START_NUMBER
from epochfile.bindingfile import SUFFIX as BINDING_SUFFIX
from epochfile.file import BACKUP_SUFFIX
from messagestore.checkpoint import FILE as CHECKPOINT
from messagestore.contractmark import FILE as CONTRACT_MARK
from messagestore.index.table import FOLDER as INDEX
from messagestore.leases import FOLDER as LEASES
from messagestore.log.commitlog import FOLDER as LOG
from messagestore.queues.ends import FILE as QUEUE_ENDS
from messagestore.queues.table import FOLDER as QUEUES
from messagestore.store.beginning import BEGINNING_FILE
from messagestore.store.brokerstore import ABORT_FILE, ABORT_SPARE
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("broker.storeaside")

FILE = "storeAside"
PREFIX = "aside-"
TABLES = "config"


class State(Enum):
    MOVING = "moving"
    FILLING = "filling"


class StoreAsideUnreadable(Exception):
    """The file about the old store is unreadable; an operator must act."""

    def __init__(self, data: bytes) -> None:
        super().__init__(
            f"{FILE}: {data[:200]!r} does not say which folder the store was set aside in; where commitlog is next to it "
            f"and not in the newest folder {PREFIX}…, remove this file, else move the rest of the store there first"
        )


@dataclass(frozen=True, slots=True)
class Aside:
    """A store that was set aside, or is being moved."""

    state: State
    folder: str
    broker_id: int
    keeps: bool

    def encode(self) -> bytes:
        lines = [f"state={self.state.value}", f"folder={self.folder}", f"broker_id={self.broker_id}"]
        return "".join(f"{line}\n" for line in [*lines, *(["keeps=yes"] if self.keeps else [])]).encode()


def decode(data: bytes) -> Aside:
    """Decode the file. Raises StoreAsideUnreadable."""
    values = dict(line.partition("=")[::2] for line in data.decode("utf-8", "replace").splitlines())
    try:
        state, broker_id = State(values["state"]), int(values["broker_id"])
        folder = values["folder"]
    except (KeyError, ValueError):
        raise StoreAsideUnreadable(data) from None
    if not folder.startswith(PREFIX) or "/" in folder:
        raise StoreAsideUnreadable(data)
    return Aside(state, folder, broker_id, values.get("keeps") == "yes")


def entries(identity_file: str, epoch_file: str) -> tuple[str, ...]:
    """The parts of a store's root that belong to the store."""
    epochs = (epoch_file, epoch_file + BACKUP_SUFFIX, epoch_file + BINDING_SUFFIX)
    identity = (identity_file, identity_file + TEMPORARY_SUFFIX, MARK_FILE, MEMORY_MARK, START_NUMBER)
    marks = (CHECKPOINT, QUEUE_ENDS, ABORT_FILE, ABORT_SPARE, BEGINNING_FILE, CONTRACT_MARK)
    return (*identity, *epochs, *marks, LOG, QUEUES, INDEX, TABLES, LEASES)


class StoreAside:
    """The old store. `side_files` is used to remove it without delaying other work on the disk."""

    def __init__(self, files: SmallFiles, side_files: SmallFiles, names: Sequence[str]) -> None:
        """`names` is the result of `entries`."""
        self._files = files
        self._side_files = side_files
        self._names = names
        self.now: Aside | None = None
        """The store that is set aside, until this broker's new copy is in the SyncStateSet."""

    async def open(self) -> None:
        """Continue an interrupted move at the start, before the store is read. Raises StoreAsideUnreadable, OSError."""
        data = await self._files.read(FILE)
        self.now = None if data is None else decode(data)
        if self.now is None or self.now.state is not State.MOVING:
            return
        for name in self._names:
            await self._files.move(name, self.now.folder)
        self.now = replace(self.now, state=State.FILLING)
        await self._files.replace(FILE, self.now.encode())
        logger.warning(
            "store set aside, resync as an empty replica",
            extra=fields(folder=self.now.folder, former_id=self.now.broker_id),
        )

    async def immovable(self) -> list[str]:
        """The names of the store's parts that cannot be moved."""
        return await self._files.immovable(self._names)

    def folder_at(self, wall_ms: int) -> str:
        """The name of the folder, which contains the time."""
        at = datetime.fromtimestamp(wall_ms // 1000, UTC)
        return f"{PREFIX}{at:%Y%m%dT%H%M%S}.{wall_ms % 1000:03}Z"

    async def plan(self, folder: str, broker_id: int, *, keeps: bool) -> None:
        """Let the next start set the store aside. After an OSError the next start certainly does not."""
        self.now = Aside(State.MOVING, folder, broker_id, keeps)
        try:
            await self._files.replace(FILE, self.now.encode())
        except OSError:
            if await self._may_be_there():
                return  # the controllers forgot it: a start without the file registers it as it was
            self.now = None
            raise

    async def _may_be_there(self) -> bool:
        """Whether a start may find the file although a write or sync failed."""
        try:
            return await self._files.read(FILE) is not None
        except OSError:
            return True

    async def joined(self) -> None:
        """Remove the old store, because the new copy is in the SyncStateSet. Raises OSError."""
        assert self.now is not None and self.now.state is State.FILLING
        said = fields(folder=self.now.folder, former_id=self.now.broker_id)
        if self.now.keeps:
            logger.warning(
                "the new copy is in the SyncStateSet; the folder may hold messages that nobody else has: remove it when they "
                "are not wanted",
                extra=said,
            )
        else:
            await self._side_files.discard(self.now.folder)
            logger.info("the new copy is in the SyncStateSet, old store removed", extra=said)
        await self._files.remove(FILE)
        self.now = None
