"""The users and rights in a broker's tables, as its guard reads them.

Invariant: a change of a table counts for the next request. Rights that cannot be read allow nothing."""

from __future__ import annotations

import logging

from accesscontrol.directory import KnownUser
from accesscontrol.policies import AccessRefused, Rights
from broker.tables.accesstables import Acls, Users, subject_of
from mqruntime.log import fields
from remoting.bodies.access import DISABLED, SUPER, AclInfo, UserInfo

logger = logging.getLogger("broker.access")


class TableRules:
    """The directory of `users` and `acls`."""

    def __init__(self, users: Users, acls: Acls) -> None:
        self._users = users
        self._acls = acls
        self._known: dict[str, KnownUser] = {}
        self._rights: dict[str, tuple[AclInfo, Rights | None]] = {}
        """What was read of each user's policies, with the row it was read of."""
        self._read_at = (users.changes, acls.changes)

    @property
    def changes(self) -> int:
        return self._users.changes + self._acls.changes

    def user(self, name: str) -> KnownUser | None:
        self._forget_changed()
        known = self._known.get(name)
        if known is None and (info := self._users.find(name)) is not None:
            known = self._known[name] = known_user(info)
        return known

    def rights(self, name: str) -> Rights | None:
        acl = self._acls.find(subject_of(name))
        if acl is None:
            self._rights.pop(name, None)
            return None
        known = self._rights.get(name)
        if known is None or known[0] is not acl:
            known = self._rights[name] = acl, self._read(name, acl)
        return known[1]

    @staticmethod
    def _read(name: str, acl: AclInfo) -> Rights | None:
        try:
            return Rights(acl)
        except AccessRefused as error:
            logger.error("policies cannot be read, they allow nothing", extra=fields(user=name, why=error))
            return None

    def _forget_changed(self) -> None:
        now = self._users.changes, self._acls.changes
        if now != self._read_at:
            self._read_at = now
            self._known.clear()


def known_user(info: UserInfo) -> KnownUser:
    return KnownUser(
        info.username or "",
        (info.password or "").encode(),
        is_super=(info.user_type or "").lower() == SUPER.lower(),
        is_enabled=(info.user_status or "").lower() != DISABLED.lower(),
    )
