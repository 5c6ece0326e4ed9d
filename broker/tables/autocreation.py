"""The limit of topics and consumer groups that clients create by using a new name.

Invariant: clients create no row with which the table, as slaves and name servers get it, would exceed `BYTES_MAX`. Both tables,
the locks and the deletions must fit into one frame. Rows that an administrator creates count, but are not rejected."""

from __future__ import annotations

import logging
from collections.abc import Iterable

logger = logging.getLogger("broker.tables")

BYTES_MAX = 3 << 20


class AutoCreation:
    """The limit of one table. A row counts its name and `bytes_each`; `command` is the mqadmin command that creates a row."""

    def __init__(self, what: str, command: str, bytes_each: int) -> None:
        self._what = what
        self._command = command
        self._bytes_each = bytes_each
        self._bytes = 0
        self._is_logged = False

    def takes(self, name: str) -> bool:
        """Whether a client may create `name`. Logs the first rejection."""
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
        """Called when the table was replaced by one with these `names`."""
        self._bytes = sum(map(self._cost, names))

    def added(self, name: str) -> None:
        self._bytes += self._cost(name)

    def removed(self, name: str) -> None:
        self._bytes -= self._cost(name)
        self._is_logged = False

    def _cost(self, name: str) -> int:
        return self._bytes_each + 2 * len(name.encode())
