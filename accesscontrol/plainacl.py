"""Users and rights of ACL 2.0, from the accounts of ACL 1.0 files (`plain_acl.yml`). Upstream: AuthMigrator and the ACL 1.0 of
5.3.2.

ACL 1.0 asks the permission of a topic or group, and the default one only for topics and groups that an account does not name.
ACL 2.0 asks the default policy for each action that no custom entry has. So the default policy here denies what the account's
own permission of a name leaves out; upstream's migration allows it.

Invariant: no account may do more here than in ACL 1.0. A permission that ACL 1.0 does not know denies everything, as there;
upstream's migration makes it allow everything. What cannot be converted is listed in `lost`. No text has a secret key. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from accesscontrol.policies import ANY, AccessDecision, AccessRefused, Action, Kind, Need, Resource, Rights
from remoting.bodies.access import (
    CUSTOM,
    DEFAULT,
    NORMAL,
    SUPER,
    AclInfo,
    PolicyEntryInfo,
    PolicyInfo,
    UserInfo,
)

FILE_KEYS = {"accounts", "globalWhiteRemoteAddresses", "dataVersion"}
ACCOUNT_KEYS = {
    "accessKey", "secretKey", "whiteRemoteAddress", "admin", "defaultTopicPerm", "defaultGroupPerm", "topicPerms", "groupPerms",
}  # fmt: skip
TRUE, FALSE = {"true", "yes", "on"}, {"false", "no", "off"}
PUB, SUB = (Action.PUB,), (Action.SUB,)
DENY = ()
PERMISSIONS: dict[str, tuple[Action, ...]] = {
    "PUB": PUB, "SUB": SUB, "PUB|SUB": PUB + SUB, "SUB|PUB": PUB + SUB, "DENY": DENY,
}  # fmt: skip
KINDS = ((Kind.TOPIC, "topicPerms", "defaultTopicPerm"), (Kind.GROUP, "groupPerms", "defaultGroupPerm"))
RETRY_PREFIX = "%RETRY%"
TRACES = Need(Kind.TOPIC, "RMQ_SYS_TRACE_TOPIC", PUB)
"""ACL 1.0 lets every account write to it."""


class NotPlainAcl(Exception):
    """A file that is no file of ACL 1.0. The text names the file and the place in it."""


class ConvertedAccount(NamedTuple):
    """`acl` is None if the account has no permissions."""

    user: UserInfo
    acl: AclInfo | None


@dataclass(slots=True)
class Conversion:
    """`lost` has one line for each thing that is not as in ACL 1.0, or that may be a mistake."""

    accounts: list[ConvertedAccount] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)


def convert(files: Iterable[tuple[str, object]]) -> Conversion:
    """Convert the files: the name and the YAML of each, in which each value is a text. Of two accounts with the same accessKey,
    the first counts, as upstream. Raises NotPlainAcl."""
    made = Conversion()
    first_in: dict[str, str] = {}
    for file, content in files:
        members = _members(content, file, FILE_KEYS)
        for address in _texts(members, "globalWhiteRemoteAddresses", file):
            made.lost.append(f"{file}: requests from {address} needed no signature, now they do")
        for number, row in enumerate(_list(members, "accounts", file), 1):
            place = f"{file}, account {number}"
            account = _members(row, place, ACCOUNT_KEYS)
            name = _text(account, "accessKey", place)
            if not name or not _text(account, "secretKey", place):
                made.lost.append(f"{place}: not created, because accessKey or secretKey is missing")
            elif name in first_in:
                made.lost.append(
                    f"{place}: not created, because {first_in[name]} also has the accessKey {name}"
                )
            else:
                first_in[name] = place
                made.accounts.append(_Account(name, account, place, made.lost).converted())
    _report_traces(made)
    return made


def _report_traces(made: Conversion) -> None:
    names = [
        account.user.username or ""
        for account in made.accounts
        if account.user.user_type == NORMAL
        and (account.acl is None or Rights(account.acl).verdict(TRACES, "") is not AccessDecision.ALLOWED)
    ]
    if names:
        made.lost.append(
            f"{', '.join(names)}: every account could write traces; "
            f"give those who trace the action Pub on {TRACES.resource}"
        )


class _Account:
    """One account while it is converted."""

    def __init__(self, name: str, members: dict[str, object], place: str, lost: list[str]) -> None:
        self._name = name
        self._members = members
        self._place = place
        self._lost = lost

    def converted(self) -> ConvertedAccount:
        """Raises NotPlainAcl."""
        if white := _text(self._members, "whiteRemoteAddress", self._place):
            self._lost.append(f"{self._name}: requests from {white} needed no signature, now they do")
        user_type = SUPER if _flag(self._members, "admin", self._place) else NORMAL
        user = UserInfo(self._name, _text(self._members, "secretKey", self._place), user_type)
        named = self._named()
        policies = [
            PolicyInfo(CUSTOM, [_entry(*row) for row in named.items()]),
            PolicyInfo(DEFAULT, self._defaults(named)),
        ]
        policies = [policy for policy in policies if policy.entries]
        if not policies:
            return ConvertedAccount(user, None)
        acl = AclInfo(f"User:{self._name}", policies)
        try:
            Rights(acl)
        except AccessRefused as error:
            raise NotPlainAcl(f"{self._place}: {error}") from None
        return ConvertedAccount(user, acl)

    def _named(self) -> dict[Resource, tuple[Action, ...]]:
        """The topics and groups that the account names, with what it may do there. The last permission of a name counts."""
        found: dict[Resource, tuple[Action, ...]] = {}
        for kind, key, _ in KINDS:
            for text in _texts(self._members, key, self._place):
                name, _, permission = (part.strip() for part in text.partition("="))
                resource = _resource(kind, name)
                if not resource.name or name.endswith(ANY):
                    self._lost.append(
                        f"{self._name}: {key} '{text}' is left out, because it names no {kind.value.lower()}"
                    )
                    continue
                if resource in found:
                    self._lost.append(f"{self._name}: {key} has {name} twice; the last permission counts")
                found[resource] = self._allowed(f"{key} '{text}'", permission)
        return found

    def _defaults(self, named: dict[Resource, tuple[Action, ...]]) -> list[PolicyEntryInfo]:
        """The default permissions, then the denials of what they would add to the permission of a name. In this order Java's
        brokers decide the same."""
        entries: list[PolicyEntryInfo] = []
        for kind, _, key in KINDS:
            permission = _text(self._members, key, self._place).strip()
            if permission:
                allowed = self._allowed(f"{key} '{permission}'", permission)
                entries.append(_entry(Resource(kind), allowed))
                for resource, own in named.items():
                    added = tuple(action for action in allowed if action not in own)
                    if resource.kind is kind and own and added:
                        entries.append(_denial(resource, added))
        return entries

    def _allowed(self, where: str, permission: str) -> tuple[Action, ...]:
        if permission not in PERMISSIONS:
            self._lost.append(f"{self._name}: {where} is no permission, so everything is denied there")
        return PERMISSIONS.get(permission, DENY)


def _resource(kind: Kind, name: str) -> Resource:
    """The topic or group. ACL 1.0 knows a group by its retry topic."""
    if name.startswith(RETRY_PREFIX):
        return Resource(Kind.GROUP, name.removeprefix(RETRY_PREFIX))
    return Resource(kind, name)


def _entry(resource: Resource, allowed: tuple[Action, ...]) -> PolicyEntryInfo:
    return _info(resource, allowed, "Allow") if allowed else _denial(resource, (Action.ALL,))


def _denial(resource: Resource, actions: tuple[Action, ...]) -> PolicyEntryInfo:
    return _info(resource, actions, "Deny")


def _info(resource: Resource, actions: tuple[Action, ...], decision: str) -> PolicyEntryInfo:
    return PolicyEntryInfo(str(resource), [action.value for action in actions], None, decision)


# -- members of the YAML


def _members(value: object, place: str, known: set[str]) -> dict[str, object]:
    """The members of an object; none for an empty file. Raises NotPlainAcl, as upstream for unknown keys."""
    if value is None:
        value = {}
    if not isinstance(value, dict):
        raise NotPlainAcl(f"{place}: must have the keys {', '.join(sorted(known))}")
    if not value.keys() <= known:
        raise NotPlainAcl(
            f"{place}: has a key that ACL 1.0 does not know; it knows {', '.join(sorted(known))}"
        )
    return value


def _text(members: dict[str, object], key: str, place: str) -> str:
    """Empty if absent. Raises NotPlainAcl."""
    value = members.get(key)
    if value is not None and not isinstance(value, str):
        raise NotPlainAcl(f"{place}: {key} must be a text")
    return value or ""


def _flag(members: dict[str, object], key: str, place: str) -> bool:
    """False if absent. Raises NotPlainAcl."""
    text = _text(members, key, place).lower()
    if text and text not in TRUE | FALSE:
        raise NotPlainAcl(f"{place}: {key} must be true or false")
    return text in TRUE


def _list(members: dict[str, object], key: str, place: str) -> list[object]:
    """Empty if absent. Raises NotPlainAcl."""
    value = members.get(key)
    if value is not None and not isinstance(value, list):
        raise NotPlainAcl(f"{place}: {key} must be a list")
    return value or []


def _texts(members: dict[str, object], key: str, place: str) -> list[str]:
    """The texts of a list, without empty ones. Raises NotPlainAcl."""
    rows = [row for row in _list(members, key, place) if row]
    if not all(isinstance(row, str) for row in rows):
        raise NotPlainAcl(f"{place}: {key} must be a list of texts")
    return [str(row) for row in rows]
