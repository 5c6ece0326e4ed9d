"""The rights of one user. Upstream: Acl, Policy, PolicyEntry of ACL 2.0, and AclAuthorizationHandler.

An entry allows or denies actions on a resource: everything (`*`), everything of one type (`Topic:*`), a prefix (`Topic:a*`) or
one name (`Topic:a`), perhaps only for requests from certain addresses.

Invariant: of the entries that match a request, the most specific resource decides: the name, then the longest prefix, then the
type, then `*`. If the custom policy has no entry that matches, the default policy is asked. Without a match nothing is allowed.
This is the order that upstream documents; upstream's own comparison depends on the order of the entries (docs/differences.md).
Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import NamedTuple

from remoting.bodies.access import CUSTOM, DEFAULT, AclInfo, PolicyEntryInfo, PolicyInfo

ENTRIES_MAX = 10_000
"""Limit of the entries of one subject."""
SOURCES_MAX = 64
"""Limit of the networks of one entry."""
ANY = "*"


class AccessRefused(Exception):
    """A user or policy that cannot be stored. The text is upstream's remark where upstream has one."""


class Action(Enum):
    ALL = "All"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Kind(Enum):
    """The types of resources. ANYTHING is the type of the resource `*`."""

    ANYTHING = ANY
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Need(NamedTuple):
    """What a request needs: one of `actions` on the resource of this kind and name. With `by_name_only` an entry for a prefix
    or for everything does not count."""

    kind: Kind
    name: str
    actions: tuple[Action, ...]
    by_name_only: bool = False

    @property
    def resource(self) -> str:
        return f"{self.kind.value}:{self.name}"


class Resource(NamedTuple):
    """`name` is "" for everything of the kind."""

    kind: Kind
    name: str = ""
    is_prefix: bool = False

    def __str__(self) -> str:
        if self.kind is Kind.ANYTHING:
            return ANY
        return f"{self.kind.value}:{self.name}{ANY if self.is_prefix or not self.name else ''}"


class AccessDecision(Enum):
    ALLOWED = "allowed"
    DENIED = "the decision is deny."
    NO_MATCH = "no matched policies."


@dataclass(frozen=True, slots=True)
class PolicyEntry:
    """One right. `networks` are those that the request must come from, with `sources` as their texts; empty for all."""

    resource: Resource
    actions: tuple[Action, ...]
    allows: bool
    sources: tuple[str, ...] = ()
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def concerns(self, need: Need, host: str) -> bool:
        """Whether the entry is about one of the actions, and about requests from this host."""
        if Action.ALL not in self.actions and not any(action in self.actions for action in need.actions):
            return False
        return not self.networks or _is_within(host, self.networks)


class Rights:
    """The rights in one user's policies."""

    def __init__(self, acl: AclInfo) -> None:
        """Raises AccessRefused."""
        entries = entries_of(acl)
        self._custom = {entry.resource: entry for entry in entries.get(CUSTOM, ())}
        self._default = {entry.resource: entry for entry in entries.get(DEFAULT, ())}
        prefixes = (each for each in (*self._custom, *self._default) if each.is_prefix)
        self._lengths = sorted({len(each.name) for each in prefixes}, reverse=True)

    def verdict(self, need: Need, host: str) -> AccessDecision:
        resources = [*most_specific_first(need, self._lengths)]
        for table in (self._custom, self._default):
            for resource in resources:
                entry = table.get(resource)
                if entry is not None and entry.concerns(need, host):
                    return AccessDecision.ALLOWED if entry.allows else AccessDecision.DENIED
        return AccessDecision.NO_MATCH

    def allows_some(self, need: Need, host: str) -> bool:
        """Whether the user may have such a right for any name."""
        return any(
            entry.allows and entry.resource.kind in (need.kind, Kind.ANYTHING) and entry.concerns(need, host)
            for table in (self._custom, self._default)
            for entry in table.values()
        )


def most_specific_first(need: Need, lengths: Iterable[int]) -> Iterator[Resource]:
    """The resources to which an entry for this need may belong, if prefixes have these `lengths`, the longest first."""
    kind, name, _, by_name_only = need
    yield Resource(kind, name)
    if by_name_only:
        return
    for length in lengths:
        if length <= len(name):
            yield Resource(kind, name[:length], True)
    yield Resource(kind)
    yield Resource(Kind.ANYTHING)


# -- text forms


def entries_of(acl: AclInfo) -> dict[str, list[PolicyEntry]]:
    """By type of policy. Raises AccessRefused."""
    found: dict[str, list[PolicyEntry]] = {}
    for policy in acl.policies or ():
        entries = found.setdefault(policy_type(policy.policy_type), [])
        entries += map(entry_of, policy.entries or ())
    if sum(map(len, found.values())) > ENTRIES_MAX:
        raise AccessRefused(f"A subject has {ENTRIES_MAX} entries at most.")
    return found


def policy_type(text: str | None) -> str:
    """CUSTOM if absent. Raises AccessRefused."""
    named = _named(text, (CUSTOM, DEFAULT)) if text else CUSTOM
    if named is None:
        raise AccessRefused("The policy type is illegal.")
    return named


def entry_of(info: PolicyEntryInfo) -> PolicyEntry:
    """Raises AccessRefused."""
    resource = resource_of(info.resource)
    actions = tuple(dict.fromkeys(filter(None, map(_action_of, info.actions or ()))))
    if not actions:
        raise AccessRefused("The actions is empty.")
    decision = _named(info.decision, ("Allow", "Deny"))
    if decision is None:
        raise AccessRefused("The decision is null or illegal.")
    sources = tuple(text.strip() for text in info.source_ips or ())
    if len(sources) > SOURCES_MAX:
        raise AccessRefused(f"An entry has {SOURCES_MAX} source ips at most.")
    return PolicyEntry(resource, actions, decision == "Allow", sources, tuple(map(_network, sources)))


def resource_of(text: str | None) -> Resource:
    """Raises AccessRefused. A `*` in the middle ends the prefix, as upstream reads it."""
    text = (text or "").strip()
    if text == ANY:
        return Resource(Kind.ANYTHING)
    kind_name, _, name = text.partition(":")
    kind = _named(kind_name, [kind.value for kind in Kind if kind is not Kind.ANYTHING])
    if kind is None or not name:
        raise AccessRefused("The resource is null.")
    if name.endswith(ANY):
        prefix = name.partition(ANY)[0]
        return Resource(Kind(kind), prefix, bool(prefix))
    return Resource(Kind(kind), name)


def _action_of(text: str) -> Action | None:
    """None for an unknown name, which upstream ignores. Raises AccessRefused."""
    if text.lower() == "any":
        raise AccessRefused("The actions can not be Any.")
    named = _named(text, [action.value for action in Action])
    return None if named is None else Action(named)


def _named(text: str | None, names: Iterable[str]) -> str | None:
    """The one of `names` that `text` is, in any case of letters."""
    wanted = (text or "").strip().lower()
    return next((name for name in names if name.lower() == wanted), None)


def _network(text: str) -> IPv4Network | IPv6Network:
    try:
        network = ip_network(text, strict=False)
    except ValueError:
        raise AccessRefused("The source ip is invalid.") from None
    mapped = network.network_address.ipv4_mapped if isinstance(network, IPv6Network) else None
    return network if mapped is None else IPv4Network((mapped, max(network.prefixlen - 96, 0)))


def _is_within(host: str, networks: Iterable[IPv4Network | IPv6Network]) -> bool:
    try:
        address = ip_address(host.strip("[]"))
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return any(address in network or (mapped is not None and mapped in network) for network in networks)


# -- changes


def added_to(former: AclInfo | None, added: AclInfo) -> AclInfo:
    """`former` with the entries of `added`; an entry replaces one of the same resource, at its place. All in their stored form.
    Raises AccessRefused."""
    tables: dict[str, dict[Resource, PolicyEntry]] = {}
    for acl in (former, added):
        for kind, entries in entries_of(acl).items() if acl is not None else ():
            table = tables.setdefault(kind, {})
            for entry in entries:
                table[entry.resource] = entry
    return _stored(added.subject or "", tables)


def without(acl: AclInfo, resource: Resource, kind: str | None) -> AclInfo | None:
    """`acl` without the entries of this resource, in policies of this type or of both; None if nothing is left. Raises
    AccessRefused."""
    tables = {
        each: {
            entry.resource: entry
            for entry in entries
            if entry.resource != resource or kind not in (None, each)
        }
        for each, entries in entries_of(acl).items()
    }
    left = {each: table for each, table in tables.items() if table}
    return _stored(acl.subject or "", left) if left else None


def _stored(subject: str, tables: dict[str, dict[Resource, PolicyEntry]]) -> AclInfo:
    if sum(map(len, tables.values())) > ENTRIES_MAX:
        raise AccessRefused(f"A subject has {ENTRIES_MAX} entries at most.")
    policies = [
        PolicyInfo(kind, list(map(_info_of, table.values()))) for kind, table in sorted(tables.items())
    ]
    return AclInfo(subject, policies)


def _info_of(entry: PolicyEntry) -> PolicyEntryInfo:
    return PolicyEntryInfo(
        str(entry.resource),
        [action.value for action in entry.actions],
        [*entry.sources] or None,
        "Allow" if entry.allows else "Deny",
    )
