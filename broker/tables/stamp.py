"""Which version of its group's tables a Raft-mode broker has: the term of the leader who made it, and that leader's count.

Invariant: it never goes back; on disk it stands only behind tables that are no older. A broker whose tables are gone has none,
and knows that before it has written any: what it says counts in no majority of copies. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.tables.holders import TablesVersion
from remoting.bodies.body import Body

STAMP_FILE = "config/tablesVersion.json"
OLDEST = TablesVersion(0, 0)
"""Of tables that an older version of ours, or Java's, has written: nothing tells how new they are."""


@dataclass(frozen=True, slots=True)
class Stamp(Body):
    """The content of tablesVersion.json."""

    tables_version: str | None = None


class CopyStamp:
    """`on_change` runs after each change."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change
        self._leads = False
        self.version: TablesVersion | None = None

    def may_take(self, version: TablesVersion) -> bool:
        return self.version is None or version >= self.version

    def took(self, version: TablesVersion) -> None:
        """A copy of this version is here."""
        assert self.may_take(version), f"{version} is older than {self.version}"
        self._leads = False
        self._set(version)

    def led(self, version: TablesVersion) -> None:
        """This broker is the master: what it has is its own word now, and so is each change."""
        self.took(version)
        self._leads = True

    def leads_no_more(self) -> None:
        """What is changed here from now on is no word of a leader."""
        self._leads = False

    def changed(self, version: TablesVersion) -> None:
        """The tables were changed here, which is news where this broker leads."""
        if self._leads:
            self._set(version)

    def disown(self) -> None:
        """The version is none of this group's."""
        self._set(OLDEST)

    def encode(self) -> bytes:
        return Stamp(None if self.version is None else str(self.version)).encode()

    def decode(self, data: bytes) -> None:
        """Raises BodyError."""
        self.version = TablesVersion.parse(Stamp.decode(data).tables_version)

    def _set(self, version: TablesVersion) -> None:
        if version != self.version:
            self.version = version
            self._on_change()
