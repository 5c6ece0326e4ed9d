"""Limit of topics and consumer groups that clients create by naming them.

Invariant: none is created once the table, as slaves and name servers get it, would exceed `BYTES_MAX`: both tables, locks
and deletions are sent in one frame, and a frame that is too large cannot be sent. Those that an administrator creates count,
but are not rejected."""

from __future__ import annotations

import logging
from collections.abc import Iterable

logger = logging.getLogger("broker.tables")

BYTES_MAX = 3 << 20


class AutoCreation:
    """The limit of one table, with `bytes_each` for a row besides its name; `command` creates a row by hand."""

    def __init__(self, what: str, command: str, bytes_each: int) -> None:
        self._what = what
        self._command = command
        self._bytes_each = bytes_each
        self._bytes = 0
        self._is_logged = False

    def takes(self, name: str) -> bool:
        """Whether a client may create `name`; the first rejection is logged."""
        if self._bytes + self._cost(name) <= BYTES_MAX:
            return True
        if not self._is_logged:
            self._is_logged = True
            logger.warning(
                "%s are not created for clients any more: there are so many that replicas could not copy more; delete unused "
                "ones, and create with %s what is needed",
                self._what,
                self._command,
            )
        return False

    def are(self, names: Iterable[str]) -> None:
        """The table was replaced."""
        self._bytes = sum(map(self._cost, names))

    def added(self, name: str) -> None:
        self._bytes += self._cost(name)

    def removed(self, name: str) -> None:
        self._bytes -= self._cost(name)
        self._is_logged = False

    def _cost(self, name: str) -> int:
        return self._bytes_each + 2 * len(name.encode())
