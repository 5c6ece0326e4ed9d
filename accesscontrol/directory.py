"""The users that a port knows.

Invariant: no text shows a password. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from accesscontrol.policies import Rights


@dataclass(frozen=True, slots=True)
class KnownUser:
    """`secret_key` is the password, with which the user signs."""

    name: str
    secret_key: bytes = field(repr=False)
    is_super: bool = False
    is_enabled: bool = True


class Directory(Protocol):
    """`changes` increases with each change of a user or of rights: then nothing that was decided before counts any more."""

    @property
    def changes(self) -> int: ...

    def user(self, name: str) -> KnownUser | None: ...

    def rights(self, name: str) -> Rights | None:
        """The rights of a user; None if the user has no policy."""
        ...


class Administrators:
    """A few administrators by name and password, and no other users: the directory of name servers and controllers."""

    def __init__(self, passwords: Mapping[str, str] | None = None) -> None:
        self.changes = 0
        self._users: dict[str, KnownUser] = {}
        self.replace(passwords or {})

    def replace(self, passwords: Mapping[str, str]) -> None:
        self._users = {
            name: KnownUser(name, password.encode(), is_super=True) for name, password in passwords.items()
        }
        self.changes += 1

    def user(self, name: str) -> KnownUser | None:
        return self._users.get(name)

    def rights(self, name: str) -> Rights | None:
        return None
