"""Writes that a disk refuses for a while.

Invariant: a write that a full disk refuses changes nothing and is tried again after RETRY_S at the earliest; it is logged
when the failure begins, every half minute, and when it ends. A sync is none of these writes, whatever its error: the kernel
forgets the pages that it could not write."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

T = TypeVar("T")

DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
"""Values of OSError.errno of errors that may pass. Any other error is a failed disk."""
RETRY_S = 1.0
CURES = {
    **dict.fromkeys(DISK_FULL, "; make room on this {server}'s disk"),
    errno.EFBIG: "; raise the limit on the size of files (ulimit -f, LimitFSIZE)",
    errno.ENOMEM: "; raise the limit on memory or mappings (ulimit -v, vm.max_map_count)",
    errno.EMFILE: "; raise the limit on open files (ulimit -n, LimitNOFILE)",
}


def cure(error: OSError, server: str = "broker") -> str:
    """The remedy, to end a sentence with; empty if none is known."""
    return CURES.get(error.errno or 0, "").format(server=server)


class RetriedWrite:
    """A write that is retried. Logs `refusal` with the remedy, and `again` at the next success. With `any_error` every error
    may pass, not only a full disk's."""

    def __init__(
        self, logger: logging.Logger, refusal: str, *, again: str | None = None, server: str = "broker",
        level: int = logging.WARNING, any_error: bool = False,
    ) -> None:  # fmt: skip
        self._logger = logger
        self._refusal = refusal
        self._again = again
        self._server = server
        self._level = level
        self._any_error = any_error
        self._failure = RepeatedFailure()
        self._refused: tuple[OSError, float] | None = None  # the last error, and when `make` may try again

    @property
    def refused(self) -> bool:
        """Whether the last attempt was refused."""
        return self._refused is not None

    async def perform(self, write: Callable[[], Awaitable[None]]) -> bool:
        """Retry until success; returns True if it was refused before."""
        waited = False
        while not await self.attempt(write()):
            waited = True
            await asyncio.sleep(RETRY_S)
        return waited

    async def attempt(self, write: Awaitable[None]) -> bool:
        """False when the disk refused it: the caller tries again."""
        try:
            await write
        except OSError as error:
            self.failed(error)
            return False
        self.done()
        return True

    def make(self, work: Callable[[], T]) -> T:
        """The result of `work`. Raises its OSError, and the same without another attempt soon after that."""
        if self._refused is not None:
            error, again_s = self._refused
            if asyncio.get_running_loop().time() < again_s:
                raise OSError(error.errno, error.strerror, error.filename)
        try:
            made = work()
        except OSError as error:
            self.failed(error)
            raise
        self.done()
        return made

    def failed(self, error: OSError) -> None:
        """An attempt was refused. Raises an error that does not pass by itself."""
        if error.errno not in DISK_FULL and not self._any_error:
            raise error
        now_s = asyncio.get_running_loop().time()
        self._refused = error, now_s + RETRY_S
        if self._failure.failed(error.errno, int(now_s * 1000)):
            line = self._refusal + cure(error, self._server)
            self._logger.log(self._level, "%s", line, extra=fields(why=error))

    def done(self) -> None:
        """An attempt succeeded."""
        if self._refused is not None:
            self._refused = None
            after_ms = self._failure.recovered(int(asyncio.get_running_loop().time() * 1000))
            if self._again is not None:
                self._logger.info("%s", self._again, extra=fields(after_ms=after_ms))
