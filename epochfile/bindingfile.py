"""The durable file of a binding, next to the epoch file that upstream reads.

Invariant: a damaged binding counts as absent. A binding stays absent while a full disk has no room for a new file, because an
intact log with a valid epoch file is served without a binding."""

from __future__ import annotations

import logging

from epochfile.binding import Binding, BindingDamaged, decode_binding
from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("epochfile")

SUFFIX = ".binding"


class BindingFile:
    def __init__(self, files: SmallFiles, epoch_file: str) -> None:
        self._files = files
        self.name = epoch_file + SUFFIX

    async def load(self) -> Binding | None:
        """The stored binding; None if there is no readable one. Raises OSError."""
        data = await self._files.read(self.name)
        if data is None:
            return None
        try:
            return decode_binding(data)
        except BindingDamaged as error:
            logger.warning(
                "the binding of the epoch file is damaged, the epoch file is believed as far as it agrees with the log",
                extra=fields(file=self.name, why=error),
            )
            return None

    async def store(self, binding: Binding) -> None:
        """Store durably. On a full disk an existing file is overwritten in place, and no new file is made. OSError leaves the
        old file, the new file or, on a full disk, a damaged file."""
        if not binding.seals:
            await self._files.remove(self.name)
            return
        data = binding.encode()
        try:
            await self._files.replace(self.name, data)
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            if await self._files.read(self.name) is None:
                logger.warning("no room for the binding of the epoch file", extra=fields(file=self.name))
                return
            await self._files.overwrite(self.name, data)
