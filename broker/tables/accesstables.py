"""Users and their policies, as rows that slaves copy. Upstream keeps them in two RocksDB stores of each broker, which nothing
copies: after a failover the new master knows only what was written to it.

Invariant: a policy belongs to a user: it is removed with its user."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from remoting.bodies.access import AclInfo, AclTable, UserInfo, UserTable

USERS_FILE = "config/users.json"
ACLS_FILE = "config/acls.json"
USERS_MAX = 10_000
SUBJECT_PREFIX = "User:"
RowT = TypeVar("RowT", UserInfo, AclInfo)


def subject_of(username: str) -> str:
    return SUBJECT_PREFIX + username


class AccessTable(Generic[RowT]):
    """Rows by name or subject. `on_change` runs after each change made here, `on_row` before it with the key."""

    def __init__(self, key: Callable[[RowT], str], on_change: Callable[[], None]) -> None:
        self._key: Callable[[RowT], str] = key
        self._on_change = on_change
        self.rows: dict[str, RowT] = {}
        self.on_row: Callable[[str], None] = lambda key: None
        self.changes = 0
        """Increases with each change, made here or copied."""

    def find(self, key: str) -> RowT | None:
        return self.rows.get(key)

    def put(self, row: RowT) -> None:
        if self.rows.get(key := self._key(row)) == row:
            return
        self.rows[key] = row
        self._changed(key)

    def remove(self, key: str) -> None:
        if self.rows.pop(key, None) is not None:
            self._changed(key)

    def replace(self, rows: Mapping[str, RowT]) -> bool:
        """Adopt the master's table. Returns whether it differs."""
        if self.rows == rows:
            return False
        self.rows = dict(rows)
        self.changes += 1
        return True

    def apply(self, changed: Iterable[RowT], gone: Iterable[str]) -> bool:
        """Adopt the master's changes. Returns whether a row changed."""
        differs = False
        for row in changed:
            if self.rows.get(key := self._key(row)) != row:
                self.rows[key], differs = row, True
        for key in gone:
            differs |= self.rows.pop(key, None) is not None
        self.changes += differs
        return differs

    def _changed(self, key: str) -> None:
        self.changes += 1
        self.on_row(key)
        self._on_change()


class Users(AccessTable[UserInfo]):
    """The users by name."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__(lambda row: row.username or "", on_change)

    def encode(self) -> bytes:
        return UserTable(self.rows).encode()

    def decode(self, data: bytes) -> None:
        """Read the content of users.json. Raises BodyError."""
        self.replace(UserTable.decode(data).users)


class Acls(AccessTable[AclInfo]):
    """The policies by subject."""

    def __init__(self, on_change: Callable[[], None]) -> None:
        super().__init__(lambda row: row.subject or "", on_change)

    def encode(self) -> bytes:
        return AclTable(self.rows).encode()

    def decode(self, data: bytes) -> None:
        """Read the content of acls.json. Raises BodyError."""
        self.replace(AclTable.decode(data).acls)
