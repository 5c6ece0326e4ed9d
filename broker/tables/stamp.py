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

    def role_taken(self, version: TablesVersion, *, leads: bool) -> None:
        """What a leader has it names by its own count from now on."""
        self._leads = leads
        self.changed(version)

    def changed(self, version: TablesVersion) -> None:
        """The tables were changed here: news of a leader's, and of who follows none at all."""
        if self._leads:
            self._set(version)

    def encode(self) -> bytes:
        return Stamp(None if self.version is None else str(self.version)).encode()

    def decode(self, data: bytes) -> None:
        """Raises BodyError."""
        self.version = TablesVersion.parse(Stamp.decode(data).tables_version)

    def _set(self, version: TablesVersion) -> None:
        if version != self.version:
            self.version = version
            self._on_change()
