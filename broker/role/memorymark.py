"""The mark from which a broker learns at its start that its log may be missing acknowledged data.

A send is acknowledged once it is in the memory of every member. A killed process loses no data in memory; a machine that goes
down loses data that was not synced. So the mark names the boot of the machine under which the store was opened last. An orderly
end removes the boot from the mark.

    boot=71d5...     the boot under which the store is open, or was open when its process was killed
    lost=yes         a boot ended while the store was open, or a sync of its log failed; since then the log has not caught
                     up with a master's
    flushed=yes      under this boot only data on disk was acknowledged or counted, so the boot's end loses no data
    closed=yes       the store is closed; this line keeps room on a full disk for the mark of the next start
    unsynced=71d5... a sync failed under this boot: the kernel may take data for written that is on no disk, so no end in
                     this boot is orderly, even if later syncs succeed
    setback=yes      controllers know a newer start number than this disk has: the disk was set back to an earlier image

Invariant: the mark is durable before the store is used under a new boot. `lost` is removed only in two cases: the log has
caught up with an elected master's log, or this broker was elected, so that its own log is the reference."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from mqruntime.diskfull import DISK_FULL, RetriedWrite
from mqruntime.log import fields
from mqruntime.smallfiles import SmallFiles

logger = logging.getLogger("broker.memorymark")

FILE = "memoryMark"
CLOSED = b"closed=yes\n"


class KeptMemoryMark:
    """The mark of one store. `boot_id` names the present boot of the machine. It is empty if the system does not report the
    boot; then every end of the process without `close` counts as an end of the machine."""

    def __init__(self, files: SmallFiles, boot_id: str, *, acks_flushed: bool = False) -> None:
        """`acks_flushed`: allFlushInSyncStateSet."""
        self._files = files
        self._acks_flushed = acks_flushed
        self._boot_id = boot_id.strip()
        self._lost = False
        self._unsynced = False
        self._set_back = False
        self._is_open = False
        self._write = RetriedWrite(logger, f"{FILE} cannot be written, retrying")

    @property
    def may_have_lost_data(self) -> bool:
        """Whether the log may be missing data that this broker had in memory and was counted for."""
        return self._lost

    @property
    def was_set_back(self) -> bool:
        """Whether the log may be missing data because this disk was set back: the controllers know a newer disk of this store,
        which may hold the data."""
        return self._set_back

    @property
    def sync_failed_before(self) -> bool:
        """Whether a sync failed under this boot, so that the kernel may take data for written that is on no disk."""
        return self._unsynced

    async def open(self) -> None:
        """Read and renew the mark at the start, before any role and once the log is on disk. A damaged mark counts as `lost`.
        Raises OSError."""
        data = await self._files.read(FILE)
        if data is not None:
            found = _decode(data)
            went_down = found.boot_id is not None and (found.boot_id != self._boot_id or not found.boot_id)
            self._lost = found.lost or (went_down and (not found.flushed or found.unsynced is not None))
            self._unsynced = found.unsynced is not None and found.unsynced == self._boot_id
            self._set_back = found.set_back
        if self._lost:
            logger.warning(
                "the machine went down while this store was open, or a sync of it failed: its log may be missing acknowledged "
                "data, so this broker is not elected by itself before it has caught up with a master",
                extra=fields(file=FILE),
            )
        wanted = self._encode()
        if wanted != data:
            await self._store(wanted, there=data is not None)
        self._is_open = True

    async def _store(self, wanted: bytes, *, there: bool) -> None:
        """Write the mark; on a full disk overwrite it in place. A crash then leaves a damaged mark, which has the same
        effect."""
        try:
            await self._files.replace(FILE, wanted)
        except OSError as error:
            if error.errno not in DISK_FULL or not there:
                raise
            await self._files.overwrite(FILE, wanted)

    async def sync_failed(self) -> None:
        """Record that a sync of the log failed. Raises OSError if the mark cannot be written either."""
        self._lost = self._unsynced = True
        try:
            await self._files.replace(FILE, self._encode())
        except OSError:
            await self._files.overwrite(
                FILE, self._encode()
            )  # the next process may read this, even if it never reaches the disk

    async def set_back(self) -> None:
        """Record that controllers know a newer disk of this store than this one; durable on return. Raises OSError."""
        self._lost = self._set_back = True
        await self._store(self._encode(), there=True)

    def _encode(self) -> bytes:
        unsynced = self._boot_id if self._unsynced else None
        return _Mark(self._boot_id, self._lost, unsynced, self._acks_flushed, self._set_back).encode()

    async def caught_up(self) -> None:
        """Remove `lost`, because the log holds all acknowledged data."""
        if self._lost:
            unsynced = self._boot_id if self._unsynced else None
            wanted = _Mark(self._boot_id, False, unsynced, self._acks_flushed).encode()
            await self._write.perform(lambda: self._store(wanted, there=True))
            self._lost = self._set_back = False
            logger.info("log verified complete", extra=fields(file=FILE))

    async def close(self, *, synced: bool) -> None:
        """Record an orderly end if `synced`: the whole log is on disk. Raises OSError."""
        if not self._is_open or not synced or self._unsynced:
            return
        mark = _Mark(None, True, None, False, self._set_back).encode() if self._lost else CLOSED
        await self._store(mark, there=True)


@dataclass(frozen=True, slots=True)
class _Mark:
    """`boot_id` is the boot under which the store was left open, None if closed; `unsynced` the boot under which a sync
    failed."""

    boot_id: str | None
    lost: bool
    unsynced: str | None
    flushed: bool
    set_back: bool = False

    def encode(self) -> bytes:
        lines = [] if self.boot_id is None else [f"boot={self.boot_id}"]
        lines += ["lost=yes"] if self.lost else []
        lines += ["setback=yes"] if self.set_back else []
        lines += ["flushed=yes"] if self.flushed else []
        lines += [] if self.unsynced is None else [f"unsynced={self.unsynced}"]
        return "".join(f"{line}\n" for line in lines).encode()


def _decode(data: bytes) -> _Mark:
    if data == CLOSED:
        return _Mark(None, False, None, False)
    values = dict(line.partition("=")[::2] for line in data[:1024].decode("utf-8", "replace").splitlines())
    if not values.keys() <= {"boot", "lost", "flushed", "unsynced", "setback"} or not values:
        return _Mark(None, True, None, False)
    return _Mark(
        values.get("boot"),
        values.get("lost") == "yes",
        values.get("unsynced"),
        values.get("flushed") == "yes",
        values.get("setback") == "yes",
    )
