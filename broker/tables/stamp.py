"""The version of a Raft-mode broker's tables: the term of the leader that made the version, and the leader's counter.

Invariant: the version never decreases. It is written to disk only after tables of this or a newer version. A broker that lost
tables has no version. It records this before it writes any table, so it does not count in a majority of copies. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from broker.tables.holders import TablesVersion
from remoting.bodies.body import Body

STAMP_FILE = "config/tablesVersion.json"
OLDEST = TablesVersion(0, 0)
"""The version of tables that an older release or a Java broker has written. Their age is not known."""


@dataclass(frozen=True, slots=True)
class Stamp(Body):
    """The content of tablesVersion.json."""

    tables_version: str | None = None
    files: str = ""
    """The names of the tables to which the version applies, separated by `;`."""


class CopyStamp:
    """The present version. `on_change` runs after each change. `files()` returns the tables that are on disk before it."""

    def __init__(self, on_change: Callable[[], None], files: Callable[[], list[str]] = list) -> None:
        self._on_change = on_change
        self._files = files
        self._leads = False
        self.version: TablesVersion | None = None
        self.covered_files: list[str] = []
        """The files to which the version applied when it was read."""

    def may_take(self, version: TablesVersion) -> bool:
        return self.version is None or version >= self.version

    def took(self, version: TablesVersion) -> None:
        """Record that the tables are a copy of this version."""
        assert self.may_take(version), f"{version} is older than {self.version}"
        self._leads = False
        self._set(version)

    def led(self, version: TablesVersion) -> None:
        """Record that this broker is master: from now on it gives its tables versions of its own."""
        self.took(version)
        self._leads = True

    def leads_no_more(self) -> None:
        """From now on changes made here get no version."""
        self._leads = False

    def changed(self, version: TablesVersion) -> None:
        """Record a change of the tables. It counts only if this broker leads."""
        if self._leads:
            self._set(version)

    def disown(self) -> None:
        """Drop a version that belongs to another group."""
        self._set(OLDEST)

    def encode(self) -> bytes:
        return Stamp(None if self.version is None else str(self.version), ";".join(self._files())).encode()

    def decode(self, data: bytes) -> None:
        """Decode the stamp. Raises BodyError."""
        stamp = Stamp.decode(data)
        self.version, self.covered_files = TablesVersion.parse(stamp.tables_version), stamp.files.split(";")

    def lost(self) -> None:
        """Record that some of the tables are lost, so that the remaining tables have no version."""
        self._set(None)

    def _set(self, version: TablesVersion | None) -> None:
        if version != self.version:
            self.version = version
            self._on_change()
