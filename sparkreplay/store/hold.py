"""A reader's lease on the log of a store: asks its broker to keep the part that is still to be read (messagestore.leases).

Invariant: a lease only asks: deleted data is reported as usual. Nothing else is ever written into a store, and this only if
`holdLog` is set."""

from __future__ import annotations

import logging
import os
import socket
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from messagestore.leases import FOLDER, Lease
from sparkreplay.errors import OptionError
from sparkreplay.store.files import LocalFiles
from sparkreplay.store.snapshot import StoreSnapshot

LEASE_MS = 300_000
RENEW_MS = 60_000
logger = logging.getLogger("sparkreplay")


def wall_ms() -> int:
    return time.time_ns() // 1_000_000


def new_holder() -> str:
    """A name of one read, on whatever worker its tasks run."""
    return f"read-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class LogHold:
    """The lease of the read `holder` on the store at `root`, from byte `offset` of its log on. Small enough to be pickled to
    workers, each of which may renew it."""

    root: str
    holder: str
    offset: int

    @property
    def _path(self) -> Path:
        return Path(self.root) / FOLDER / self.holder

    def take(self, now_ms: Callable[[], int] = wall_ms) -> None:
        """Write the lease for the first time. Raises OptionError if the store is not writable."""
        try:
            self._write(now_ms())
        except OSError as error:
            raise OptionError(
                "holdLog",
                f"{self._path} cannot be written ({error.strerror}); run as a user who may, or leave it out",
            ) from error

    def renew(self, now_ms: Callable[[], int] = wall_ms) -> None:
        """Renew the lease unless that was done lately. A failed write is logged: the read continues, and reports deleted
        data."""
        try:
            if now_ms() - self._path.stat().st_mtime_ns // 1_000_000 < RENEW_MS:
                return
        except OSError:
            pass
        try:
            self._write(now_ms())
        except OSError as error:
            logger.warning("%s: lease not renewed: %s", self._path, error)

    def release(self) -> None:
        """The read has ended."""
        self._path.unlink(missing_ok=True)

    def _write(self, now_ms: int) -> None:
        """Write whole or not at all; the broker ignores files with the suffix of an unfinished one."""
        self._path.parent.mkdir(exist_ok=True)
        lease = Lease(f"{self.holder} on {socket.gethostname()}", self.offset, now_ms + LEASE_MS)
        unfinished = self._path.with_name(f"{self.holder}.{os.getpid()}.tmp")
        unfinished.write_bytes(lease.encode())
        unfinished.replace(self._path)


def hold_on(store: StoreSnapshot, holder: str, offset: int) -> LogHold:
    """A new lease, written. Raises OptionError for a store that is not in a local folder."""
    if not isinstance(store.files, LocalFiles):
        raise OptionError("holdLog", f"{store.root} is not in a local folder, where its broker would look")
    hold = LogHold(store.files.root, holder, offset)
    hold.take()
    return hold
