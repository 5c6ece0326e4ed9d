"""Which version of its group's tables a Raft-mode broker has: the term of the leader who made it, and that leader's count.

Invariant: it never goes back; on disk it stands only behind tables that are no older. A broker whose tables, or some of them,
are gone has none, and knows that before it has written any: what it says counts in no majority of copies. Pure."""

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
    files: str = ""
    """Of the tables that it stands for, parted by ;."""


class CopyStamp:
    """`on_change` runs after each change; `files()` has its tables on disk, or will before it."""

    def __init__(self, on_change: Callable[[], None], files: Callable[[], list[str]] = list) -> None:
        self._on_change = on_change
        self._files = files
        self._leads = False
        self.version: TablesVersion | None = None
        self.stood_on: list[str] = []
        """The files that it told of when it was read."""

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
        return Stamp(None if self.version is None else str(self.version), ";".join(self._files())).encode()

    def decode(self, data: bytes) -> None:
        """Raises BodyError."""
        stamp = Stamp.decode(data)
        self.version, self.stood_on = TablesVersion.parse(stamp.tables_version), stamp.files.split(";")

    def lost(self) -> None:
        """Tables that it stood for are gone: what is left is no version of them."""
        self._set(None)

    def _set(self, version: TablesVersion | None) -> None:
        if version != self.version:
            self.version = version
            self._on_change()
