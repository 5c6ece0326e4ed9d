"""Writes that a disk refuses for a while.

Invariant: what a full disk refused has left things as they were and is tried again RETRY_S later at the earliest; it is told
when it begins, every half minute, and when it is over. A sync is none of these writes, whatever its error: the kernel
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
"""Values of OSError.errno that may pass by themselves. Every other one is a failed disk."""
RETRY_S = 1.0
CURES = {
    **dict.fromkeys(DISK_FULL, "; make room on this {server}'s disk"),
    errno.EFBIG: "; raise the limit on the size of files (ulimit -f, LimitFSIZE)",
    errno.ENOMEM: "; raise the limit on memory or mappings (ulimit -v, vm.max_map_count)",
    errno.EMFILE: "; raise the limit on open files (ulimit -n, LimitNOFILE)",
}


def cure(error: OSError, server: str = "broker") -> str:
    """What to do about it, as the end of a sentence; nothing where nobody knows."""
    return CURES.get(error.errno or 0, "").format(server=server)


class RetriedWrite:
    """One write that is tried again. People are told `refusal` of it, with the cure behind it, and `again` when it went well
    after that. With `any_error` every error may pass, not that of a full disk alone."""

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
        """Whether the last try was."""
        return self._refused is not None

    async def perform(self, write: Callable[[], Awaitable[None]]) -> bool:
        """Again and again until it went well; True when it was refused before."""
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
        """What `work` makes. OSError, its own or, soon after that, the same without another try."""
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
        """A try was refused. Raises an error that does not pass by itself."""
        if error.errno not in DISK_FULL and not self._any_error:
            raise error
        now_s = asyncio.get_running_loop().time()
        self._refused = error, now_s + RETRY_S
        if self._failure.failed(error.errno, int(now_s * 1000)):
            line = self._refusal + cure(error, self._server)
            self._logger.log(self._level, "%s", line, extra=fields(why=error))

    def done(self) -> None:
        """A try went well."""
        if self._refused is not None:
            self._refused = None
            after_ms = self._failure.recovered(int(asyncio.get_running_loop().time() * 1000))
            if self._again is not None:
                self._logger.info("%s", self._again, extra=fields(after_ms=after_ms))
