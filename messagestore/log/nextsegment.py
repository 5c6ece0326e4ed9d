"""The segment that the log wants next, made before a write waits for it.

Invariant: one try is planned at a time, and a refused one is repeated without a send."""

from __future__ import annotations

import asyncio

from messagestore.log.commitlog import CommitLog
from mqruntime.diskfull import RETRY_S


class NextSegment:
    def __init__(self, log: CommitLog) -> None:
        self._log = log
        self._planned: asyncio.Handle | None = None
        self._stopped = False

    def prepare_soon(self) -> None:
        if self._planned is None and not self._stopped and self._log.wants_next():
            self._planned = asyncio.get_running_loop().call_soon(self._prepare)

    def stop(self) -> None:
        """No try any more."""
        self._stopped = True
        if self._planned is not None:
            self._planned.cancel()

    def _prepare(self) -> None:
        self._planned = None
        try:
            self._log.prepare_next()
        except OSError:  # told by the log; a roll tries again too, and answers the sender
            self._planned = asyncio.get_running_loop().call_later(RETRY_S, self._prepare)
