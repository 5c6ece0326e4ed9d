"""A reader's lease on the log of a store. It asks the store's broker to keep the part of the log that is still to be read
(messagestore.leases).

Invariant: a lease is only a request. If the broker deletes the data nevertheless, the read reports this as it would without a
lease. Nothing but leases is ever written into a store, and leases only if `holdLog` is set."""

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
    """The name of one read, on all workers that run its tasks."""
    return f"read-{uuid.uuid4().hex[:12]}"


@dataclass(frozen=True)
class LogHold:
    """The lease of the read `holder` on the store at `root`, from byte `offset` of its log on. It is small enough to be
    pickled to workers, and each worker may renew it."""

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
        """Renew the lease unless that was done lately. A failed write is only logged, and the read continues without a
        lease."""
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
        """Write the whole lease file or nothing: it is written under another name first, with a suffix that the broker ignores,
        and then renamed."""
        self._path.parent.mkdir(exist_ok=True)
        lease = Lease(f"{self.holder} on {socket.gethostname()}", self.offset, now_ms + LEASE_MS)
        unfinished = self._path.with_name(f"{self.holder}.{os.getpid()}.tmp")
        unfinished.write_bytes(lease.encode())
        unfinished.replace(self._path)


def hold_on(store: StoreSnapshot, holder: str, offset: int) -> LogHold:
    """Write a new lease and return it. Raises OptionError for a store that is not in a local folder."""
    if not isinstance(store.files, LocalFiles):
        raise OptionError("holdLog", f"{store.root} is not in a local folder, where its broker would look")
    hold = LogHold(store.files.root, holder, offset)
    hold.take()
    return hold
