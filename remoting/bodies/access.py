"""Users and policies of access control, as the requests AUTH_CREATE_USER (3001) to AUTH_LIST_ACL (3010) carry them. Brokers
store them in the same form.

Invariant: no text shows a password."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import orjson

from remoting import fastjson
from remoting.bodies.body import LIST_BYTES_MAX, Body, WrittenOnce
from remoting.errors import BodyError

SUPER, NORMAL = "Super", "Normal"
ENABLED, DISABLED = "enable", "disable"
CUSTOM, DEFAULT = "Custom", "Default"


@dataclass(frozen=True, slots=True)
class UserInfo(WrittenOnce):
    """A user. Body of AUTH_CREATE_USER (3001) and AUTH_UPDATE_USER (3002), in which absent members keep their value; reply to
    AUTH_GET_USER (3004). `user_type` is SUPER or NORMAL, `user_status` is ENABLED or DISABLED, in any case of letters."""

    username: str | None = None
    password: str | None = field(default=None, repr=False)
    user_type: str | None = None
    user_status: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyEntryInfo(Body):
    """One right: `resource` is `*`, `TYPE:*`, `TYPE:PREFIX*` or `TYPE:NAME`; `decision` is Allow or Deny. `source_ips` are
    addresses or ranges ADDRESS/BITS; absent if the entry holds for all addresses."""

    resource: str | None = None
    actions: list[str] | None = None
    source_ips: list[str] | None = None
    decision: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyInfo(Body):
    """The entries of one kind: CUSTOM, or DEFAULT, which counts where no custom entry matches."""

    policy_type: str | None = None
    entries: list[PolicyEntryInfo] | None = None


@dataclass(frozen=True, slots=True)
class AclInfo(WrittenOnce):
    """All rights of one subject, `User:NAME`. Body of AUTH_CREATE_ACL (3006) and AUTH_UPDATE_ACL (3007); reply to AUTH_GET_ACL
    (3009)."""

    subject: str | None = None
    policies: list[PolicyInfo] | None = None


@dataclass(slots=True)
class UserTable(Body):
    """All users of a broker set, by name."""

    users: dict[str, UserInfo] = field(default_factory=dict)


@dataclass(slots=True)
class AclTable(Body):
    """The rights of all subjects of a broker set, by subject."""

    acls: dict[str, AclInfo] = field(default_factory=dict)


def encode_list(rows: list[UserInfo] | list[AclInfo]) -> bytes:
    """Reply to AUTH_LIST_USER (3005) and AUTH_LIST_ACL (3010)."""
    return orjson.dumps([row.to_json() for row in rows])


def users_in(body: bytes | None) -> list[UserInfo]:
    """The users in a reply to AUTH_LIST_USER; no body means none. Raises BodyError."""
    return [UserInfo.from_json(row, "users[]") for row in _array(body)]


def acls_in(body: bytes | None) -> list[AclInfo]:
    """The rights in a reply to AUTH_LIST_ACL; no body means none. Raises BodyError."""
    return [AclInfo.from_json(row, "acls[]") for row in _array(body)]


def _array(body: bytes | None) -> list[Any]:
    if not body:
        return []
    try:
        rows = fastjson.loads(body, dialect_max=LIST_BYTES_MAX)
    except fastjson.FastJsonError as error:
        raise BodyError(f"a list expected, but the body is not JSON: {error}") from None
    if not isinstance(rows, list):
        raise BodyError("a list expected, but the body is no JSON array")
    return rows
