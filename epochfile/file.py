"""The durable epoch file and its second copy. Upstream: EpochFileCache.

Invariant: after `store` returns, any crash leaves a file that reads back as the stored history. At any moment one copy is
whole. Both copies are equal except during a store, so nothing is lost when the main file is damaged. For an empty history both
files are removed: an empty file would make other readers use an old second copy."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from epochfile.bindingfile import BindingFile
from epochfile.format import EpochFileDamaged, decode, encode
from epochfile.history import EpochHistory
from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("epochfile")

DEFAULT_NAME = "epochFileCheckpoint"
BACKUP_SUFFIX = ".bak"


class EpochFileUnreadable(Exception):
    """Neither copy of an existing epoch file is readable; the log must not be served."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name}: {why}, and {name}{BACKUP_SUFFIX} is absent or damaged too; restore one of them, "
            "or remove the whole store so that this broker joins as a new replica"
        )
        self.name = name
        self.why = why


class EpochFile:
    """Loads and stores one history."""

    def __init__(self, files: SmallFiles, name: str = DEFAULT_NAME) -> None:
        self._files = files
        self._name = name
        self.binding = BindingFile(files, name)

    @property
    def name(self) -> str:
        return self._name

    async def load(self, check: Callable[[EpochHistory], Awaitable[None]] | None = None) -> EpochHistory:
        """Load the history; empty when no copy exists. An exception of `check` reaches the caller, and both copies stay
        unchanged. After a successful check a damaged or older copy is rewritten, if the disk has room. Raises
        EpochFileUnreadable or OSError."""
        why = "is absent"
        main = await self._files.read(self._name)
        backup = await self._files.read(self._name + BACKUP_SUFFIX)
        if main is not None:
            try:
                history = decode(main)
            except EpochFileDamaged as error:
                why = str(error)
            else:
                if check is not None:
                    await check(history)
                if backup != main:
                    await self._mend(self._name + BACKUP_SUFFIX, main)
                return history
        if backup is None:
            if main is None:
                if check is not None:
                    await check(EpochHistory())
                return EpochHistory()
            raise EpochFileUnreadable(self._name, why)
        try:
            history = decode(backup)
        except EpochFileDamaged as error:
            raise EpochFileUnreadable(self._name, why) from error
        if check is not None:
            await check(history)
        logger.warning("epoch file read from its second copy", extra=fields(file=self._name, why=why))
        await self._mend(self._name, backup)
        return history

    async def _mend(self, name: str, data: bytes) -> None:
        try:
            await self._files.replace(name, data)
        except OSError as error:  # the other copy is intact; the next start tries again
            logger.warning("copy of the epoch file not mended", extra=fields(file=name, why=error))

    async def store(self, history: EpochHistory) -> None:
        """Store durably. On a full disk this succeeds only if both copies exist. OSError leaves the old history or the new
        one."""
        backup = self._name + BACKUP_SUFFIX
        if len(history) == 0:
            await self._files.remove(backup)  # first, or a crash would bring the old history back
            await self._files.remove(self._name)
            return
        data = encode(history)
        try:
            await self._files.replace(self._name, data)
            await self._files.replace(backup, data)
        except OSError as error:
            if error.errno not in DISK_FULL or not await self._occurs_twice():
                raise
            await self._files.overwrite(backup, data)
            await self._files.overwrite(self._name, data)

    async def _occurs_twice(self) -> bool:
        """Whether overwriting the second copy in place is safe: the main file is whole, and a second copy exists."""
        main = await self._files.read(self._name)
        backup = await self._files.read(self._name + BACKUP_SUFFIX)
        if main is None or backup is None:
            return False
        try:
            decode(main)
        except EpochFileDamaged:
            return False
        return True
