"""What the disk would not give the store, and whether to ask again.

Invariant: a file that was refused is asked for again after RETRY_MS at the earliest, however many sends want it, and each lack
is told when it begins, every half minute, and when it is over."""

from __future__ import annotations

import errno
import logging
from collections.abc import Callable
from typing import TypeVar

from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields
from mqruntime.repeatedfailure import RepeatedFailure

T = TypeVar("T")

RETRY_MS = 1_000
CURES = {
    **dict.fromkeys(DISK_FULL, "; make room on this broker's disk"),
    errno.EFBIG: "; raise the limit on the size of files (ulimit -f, LimitFSIZE)",
    errno.ENOMEM: "; raise the limit on memory or mappings (ulimit -v, vm.max_map_count)",
    errno.EMFILE: "; raise the limit on open files (ulimit -n, LimitNOFILE)",
}

logger = logging.getLogger(__name__)


class DiskRoom:
    """`monotonic_ms` reads the clock. `what` names what is lacking, for people."""

    def __init__(self, monotonic_ms: Callable[[], int]) -> None:
        self._monotonic_ms = monotonic_ms
        self._failures: dict[str, RepeatedFailure] = {}
        self._refused: dict[str, tuple[OSError, int]] = {}  # the error, and when to try again

    def make(self, what: str, work: Callable[[], T]) -> T:
        """What `work` makes. OSError, its own or, soon after that, the same without another try."""
        if what in self._refused:
            error, again_ms = self._refused[what]
            if self._monotonic_ms() < again_ms:
                raise OSError(error.errno, error.strerror, error.filename)
        try:
            made = work()
        except OSError as error:
            self._refused[what] = error, self._monotonic_ms() + RETRY_MS
            self.lacking(what, error)
            raise
        self._refused.pop(what, None)
        self.found(what)
        return made

    def lacks(self, what: str) -> bool:
        """Whether the last try failed."""
        return what in self._failures

    def lacking(self, what: str, error: OSError) -> None:
        """The disk refused what somebody tries again by himself."""
        if self._failures.setdefault(what, RepeatedFailure()).failed(error.errno, self._monotonic_ms()):
            cure = CURES.get(error.errno or 0, "")
            logger.warning(f"no {what} can be written, trying on{cure}", extra=fields(why=error))

    def found(self, what: str) -> None:
        """It went well."""
        failure = self._failures.pop(what, None)
        if failure is not None:
            logger.info(
                f"{what} can be written again", extra=fields(after_ms=failure.recovered(self._monotonic_ms()))
            )
