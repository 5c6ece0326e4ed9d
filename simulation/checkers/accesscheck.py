"""Judges the answers to users of a set with access control, and the set's tables of users and rights.

Invariant: what is expected follows only from requests of administrators and their answers (simulation.checkers.accounthistory).
Rules: A1 no broker serves a request if its user cannot have had the password and all rights between the request and its answer.
A2 no broker answers "no" (16) to a user who had them all the time. A3 while nothing is broken, the master serves such a user.
A4 the master of the newest epoch has all users and rights, and in the end all brokers have them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from remoting.bodies.access import AclInfo
from remoting.codes import ResponseCode
from simulation.checkers.accounthistory import ENABLED, PASSWORD, Account, Entry, Request, Value
from simulation.cluster.looks import BrokerLook
from simulation.kernel.violation import Violation

CALM_MS = 4_000
"""Within this time after the last trouble a master knows that it leads, and its slaves have its tables."""
REFUSALS = re.compile(
    r"username cannot be null\.|User:.* is not found\.|User:.* is disabled\.|check signature failed\."
    r"|User:.* has no permission to access .*"
)
"""Upstream's remarks of access control. Other checks of a broker answer 16, too."""
STORED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.FLUSH_DISK_TIMEOUT,
        ResponseCode.SLAVE_NOT_AVAILABLE,
        ResponseCode.FLUSH_SLAVE_TIMEOUT,
    }
)
PULLED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
    }
)
SHOWN = frozenset({ResponseCode.SUCCESS})


class Leading(NamedTuple):
    """A process that leads in an epoch."""

    node: str
    incarnation: int
    epoch: int


class Late(NamedTuple):
    """A broken promise, which counts if nothing was broken meanwhile."""

    by: Leading
    request: Request
    violation: Violation


class AccessCheck:
    """Judges `accounts`."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self.served = self.refused = self.unsure = 0
        self._violation: Violation | None = None
        self._late: list[Late] = []
        self._calm: tuple[Leading, int] | None = None
        """The master of a set without trouble, and since when (us)."""
        self._epoch = 0

    def new_account(self) -> Account:
        account = Account(f"user-{len(self.accounts)}")
        self.accounts.append(account)
        return account

    # -- answers to users

    def answered(
        self,
        request: Request,
        code: int,
        remark: str,
        now_us: int,
        serving: frozenset[ResponseCode],
        newest_us: int | None = None,
    ) -> None:
        """Judge an answer. `serving` are the codes of a request that was served. `newest_us` is when the newest message in the
        answer was sent: at this moment, too, the user must have had the right to read it."""
        if code in serving:
            self.served += 1
            if not request.may_be_served(now_us, newest_us):
                new = "" if newest_us is None else f", with a message of {newest_us / 1e6:.3f} s"
                self._broken(
                    "A1", f"{_said(request, code, remark, now_us)}{new}, expected a refusal", request
                )
        elif code == ResponseCode.NO_PERMISSION and REFUSALS.fullmatch(remark):
            self.refused += 1
            if request.must_be_served(now_us):
                self._broken("A2", f"{_said(request, code, remark, now_us)}, expected to be served", request)
        else:
            self.unsure += 1
        if serving is SHOWN and code not in serving and request.must_be_served(now_us):
            self._is_late(request, f"{_said(request, code, remark, now_us)}, expected to be served", now_us)

    def _broken(self, rule: str, what: str, request: Request) -> None:
        history = "" if request.account is None else f" | {request.account.shown()}"
        self._violation = self._violation or Violation(rule, what + history)

    def _is_late(self, request: Request, what: str, now_us: int) -> None:
        if self._calm is None:
            return
        leading, since_us = self._calm
        if request.broker == leading.node and request.began_us >= since_us + 1000 * CALM_MS:
            calm = f" | nothing is broken since {since_us / 1e6:.3f} s"
            history = "" if request.account is None else f" | {request.account.shown()}"
            self._late.append(Late(leading, request, Violation("A3", what + calm + history)))

    # -- looks

    def look(self, looks: Iterable[BrokerLook], calm: Leading | None, now_us: int) -> None:
        """Check the answers since the last look, and the tables of the master. `calm` is the master, if nothing is broken now.
        Raises Violation."""
        if self._violation is not None:
            raise self._violation
        if calm is None or self._calm is None or self._calm[0] != calm:
            self._calm = None if calm is None else (calm, now_us)
        for late in self._late:
            if self._calm is not None and late.by == self._calm[0]:
                raise late.violation
        self._late.clear()
        brokers = list(looks)
        self._epoch = max([self._epoch, *(look.master_epoch for look in brokers)])
        for look in brokers:
            if look.accepts_sends and look.master_epoch == self._epoch:
                self._judge_tables(look, now_us)

    def at_the_end(self, looks: Iterable[BrokerLook], now_us: int) -> None:
        """Check all brokers after healing, when every slave had time to copy. Raises Violation."""
        brokers = list(looks)
        self.look(brokers, None, now_us)
        for look in brokers:
            self._judge_tables(look, now_us)
        tables = [look.tables for look in brokers if look.tables is not None]
        for first, second in zip(brokers, brokers[1:], strict=False):
            if first.tables is None or second.tables is None:
                continue
            for one, other in (
                (first.tables.users.rows, second.tables.users.rows),
                (first.tables.acls.rows, second.tables.acls.rows),
            ):
                if one != other:
                    odd = sorted(key for key in {*one, *other} if one.get(key) != other.get(key))
                    raise Violation("A4", f"{first.name} and {second.name} differ in {odd}")
        if not tables or not tables[0].users.rows:
            raise Violation("A4", "no broker has a user")

    def _judge_tables(self, look: BrokerLook, now_us: int) -> None:
        for account in self.accounts:
            if look.tables is None:
                continue
            user = look.tables.users.find(account.name)
            found: dict[str, Value] = (
                {} if user is None else entries_in(look.tables.acls.find(f"User:{account.name}"))
            )
            if user is not None:
                found[PASSWORD] = user.password
                found[ENABLED] = user.user_status == "enable"
            for aspect in {aspect: None for change in account.changes for aspect in change.values}:
                if found.get(aspect) not in (possible := account.possible(aspect, now_us, now_us)):
                    where = f"{look.name}, epoch {look.master_epoch} at {now_us / 1e6:.3f} s"
                    what = f"{where}: {aspect} of {account.name} is {found.get(aspect)}, expected {possible}"
                    raise Violation("A4", f"{what} | {account.shown()}")


def entries_in(acl: AclInfo | None) -> dict[str, Value]:
    """Resource -> entry."""
    entries = (
        entry
        for policy in (acl.policies if acl is not None else None) or ()
        for entry in policy.entries or ()
    )
    return {
        entry.resource or "": Entry(
            entry.decision == "Allow", frozenset(entry.actions or ()), frozenset(entry.source_ips or ())
        )
        for entry in entries
    }


def _said(request: Request, code: int, remark: str, now_us: int) -> str:
    return f"{request}: answered {code} {remark!r} at {now_us / 1e6:.3f} s"
