"""How much clients may make by naming it: topics, consumer groups.

Invariant: nothing more is made once the table, as slaves and name servers get it, would have `BYTES_MAX`: both tables, locks
and deletions go in one frame, and one that is too large reaches nobody. What an administrator makes counts, and is not
refused."""

from __future__ import annotations

import logging
from collections.abc import Iterable

logger = logging.getLogger("broker.tables")

BYTES_MAX = 3 << 20


class AutoCreation:
    """Of one table, with `bytes_each` for a row beside its name; `command` makes a row by hand."""

    def __init__(self, what: str, command: str, bytes_each: int) -> None:
        self._what = what
        self._command = command
        self._bytes_each = bytes_each
        self._bytes = 0
        self._told = False

    def takes(self, name: str) -> bool:
        """Whether a client may make `name`; an operator hears of the first that may not."""
        if self._bytes + self._cost(name) <= BYTES_MAX:
            return True
        if not self._told:
            self._told = True
            logger.warning(
                "%s are not made for clients any more: there are so many that replicas could not copy more; delete those that "
                "nobody uses, and make with %s what is needed",
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
        self._told = False

    def _cost(self, name: str) -> int:
        return self._bytes_each + 2 * len(name.encode())
