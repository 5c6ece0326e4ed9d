"""The history of a user: which changes administrators requested, and what they were answered.

Invariant: nothing here comes from the product. A change without an answer may take effect at any later time, because its
request may still wait in a socket. A change that was answered without success was carried out at the asked broker or not, and
may be lost with that broker's mastership. The next change of the same thing that is answered with success settles it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

PASSWORD, ENABLED = "password", "enabled"


class Entry(NamedTuple):
    """One right, allowed or denied. No `hosts` means all hosts."""

    allows: bool
    actions: frozenset[str]
    hosts: frozenset[str] = frozenset()

    def permits(self, action: str, host: str) -> bool:
        return self.allows and action in self.actions and (not self.hosts or host in self.hosts)


Value = str | bool | Entry | None
"""A password, whether the user is enabled, or the entry of a resource. None: there is none."""


class Outcome(Enum):
    OPEN = "no answer yet"
    DONE = "answered with success"
    REFUSED = "without effect"
    UNSURE = "answered, and may be in force"
    LOST = "no answer, and may still take effect"


@dataclass
class Change:
    """One request of an administrator. `values` are the new values: by PASSWORD, ENABLED, or resource."""

    what: str
    values: Mapping[str, Value]
    asked_us: int
    outcome: Outcome = Outcome.OPEN
    answered_us: int = 0

    def __str__(self) -> str:
        return f"{self.what} at {self.asked_us / 1e6:.3f} s: {self.outcome.value} at {self.answered_us / 1e6:.3f} s"


@dataclass
class Account:
    """One user. Its changes are requested one after the other."""

    name: str
    changes: list[Change] = field(default_factory=list)

    def asked(self, what: str, values: Mapping[str, Value], now_us: int) -> Change:
        change = Change(what, dict(values), now_us)
        self.changes.append(change)
        return change

    def possible(self, aspect: str, began_us: int, ended_us: int) -> list[Value]:
        """The values that PASSWORD, ENABLED or a resource may have had at some moment of this time, newest first."""
        found: list[Value] = []
        is_settled = False
        for change in reversed(self.changes):
            if aspect not in change.values or change.outcome is Outcome.REFUSED or change.asked_us > ended_us:
                continue
            if not is_settled or change.outcome is Outcome.LOST:
                found.append(change.values[aspect])
            if change.outcome is Outcome.DONE and change.answered_us <= began_us:
                is_settled = True
        if not is_settled:
            found.append(None)
        return found

    def known(self, aspect: str) -> Value:
        """The value in the last change that was answered with success."""
        done = (
            change for change in reversed(self.changes)
            if aspect in change.values and change.outcome is Outcome.DONE
        )  # fmt: skip
        return next((change.values[aspect] for change in done), None)

    def passwords(self) -> list[str]:
        """All that were ever requested, oldest first."""
        asked = (change.values.get(PASSWORD) for change in self.changes)
        return list(dict.fromkeys(value for value in asked if isinstance(value, str)))

    @property
    def lost(self) -> list[Change]:
        return [change for change in self.changes if change.outcome is Outcome.LOST]

    def shown(self) -> str:
        return f"{self.name}: {'; '.join(map(str, self.changes[-8:]))}"


@dataclass(frozen=True)
class Request:
    """A request that a user sent from `host` to `broker`. `account` is None for a user who never existed, and `password` is
    None for a request without a signature. `needs` are pairs of a resource and an action."""

    what: str
    account: Account | None
    password: str | None
    host: str
    broker: str
    needs: tuple[tuple[str, str], ...]
    began_us: int

    def __str__(self) -> str:
        signed = "unsigned" if self.password is None else f"signed with {self.password}"
        return f"{self.what} from {self.host} to {self.broker} at {self.began_us / 1e6:.3f} s, {signed}"

    def may_be_served(self, ended_us: int, since_us: int | None = None) -> bool:
        """Whether the user may have had all rights at some moment, each at its own. `since_us`, if later, counts as the
        beginning of the request."""
        account, began_us = self.account, max(self.began_us, since_us or 0)
        if account is None or self.password is None:
            return False
        return (
            self.password in account.possible(PASSWORD, began_us, ended_us)
            and True in account.possible(ENABLED, began_us, ended_us)
            and all(
                any(self._permits(value, action) for value in account.possible(resource, began_us, ended_us))
                for resource, action in self.needs
            )
        )

    def must_be_served(self, ended_us: int) -> bool:
        """Whether the user had all rights all the time."""
        account, began_us = self.account, self.began_us
        if account is None or self.password is None:
            return False
        return (
            {*account.possible(PASSWORD, began_us, ended_us)} == {self.password}
            and {*account.possible(ENABLED, began_us, ended_us)} == {True}
            and all(
                self._permits(value, action)
                for resource, action in self.needs
                for value in account.possible(resource, began_us, ended_us)
            )
        )

    def _permits(self, value: Value, action: str) -> bool:
        return isinstance(value, Entry) and value.permits(action, self.host)
