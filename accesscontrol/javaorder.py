"""What Java brokers decide about a user's rights. Upstream: AclAuthorizationHandler of 5.3.3.

Upstream documents the order that `policies` has, and 5.5.0 decides by it. The comparison in 5.3.3 asks only for the resource of
its first entry and prefers the shorter prefix. So the decision depends on the order in which the entries were added, and on the
steps of the sort. Addresses count here as in `policies`. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import count, product
from operator import itemgetter
from string import ascii_lowercase
from typing import NamedTuple

from accesscontrol.policies import (
    AccessDecision,
    Action,
    Kind,
    Need,
    PolicyEntry,
    Resource,
    Rights,
    entries_of,
    most_specific_first,
)
from remoting.bodies.access import CUSTOM, DEFAULT, AclInfo

SORTED_BY_INSERTION = 31
"""Up to so many entries, Java's List.sort is a binary insertion sort. It merges longer lists, and fails for some of them."""
ALTERNATIVES = (
    (Action.SUB, Action.GET),
    (Action.SUB, Action.UPDATE),
    (Action.PUB, Action.SUB, Action.GET),
)
"""Actions of which a request needs one."""
ANYWHERE = ""
"""A host outside all networks."""
LETTERS = "x" + ascii_lowercase.replace("x", "")


class JavaRights:
    """The rights in one user's policies, as Java decides about them."""

    def __init__(self, entries: dict[str, list[PolicyEntry]]) -> None:
        self._tables = [_by_resource(entries.get(kind, ())) for kind in (CUSTOM, DEFAULT)]

    def verdict(self, need: Need, host: str) -> AccessDecision | None:
        """None if so many entries match that the decision is not known."""
        resources = [*most_specific_first(need, range(len(need.name), 0, -1))]
        for table in self._tables:
            matching = [row for resource in resources for row in table.get(resource, ())]
            entries = [
                entry for _, entry in sorted(matching, key=itemgetter(0)) if entry.concerns(need, host)
            ]
            if len(entries) > SORTED_BY_INSERTION:
                return None
            if entries:
                return AccessDecision.ALLOWED if sorted_by_java(entries)[0].allows else AccessDecision.DENIED
        return AccessDecision.NO_MATCH


def _by_resource(entries: Iterable[PolicyEntry]) -> dict[Resource, list[tuple[int, PolicyEntry]]]:
    """Resource -> its entries, each with its position in the list."""
    found: dict[Resource, list[tuple[int, PolicyEntry]]] = {}
    for position, entry in enumerate(entries):
        found.setdefault(entry.resource, []).append((position, entry))
    return found


def sorted_by_java(entries: Sequence[PolicyEntry]) -> list[PolicyEntry]:
    """The entries after Java's List.sort, of which the first decides. Upstream: TimSort.binarySort."""
    rows = list(entries)
    sorted_end = _arrange_first_run(rows)
    for index in range(sorted_end, len(rows)):
        pivot = rows.pop(index)
        low, high = 0, index
        while low < high:
            middle = (low + high) // 2
            if compare(pivot, rows[middle]) < 0:
                high = middle
            else:
                low = middle + 1
        rows.insert(low, pivot)
    return rows


def _arrange_first_run(rows: list[PolicyEntry]) -> int:
    """The end of the run at the start, which is reversed if it descends. Upstream: TimSort.countRunAndMakeAscending."""
    if len(rows) < 2:
        return len(rows)
    descends = compare(rows[1], rows[0]) < 0
    end = 2
    while end < len(rows) and (compare(rows[end], rows[end - 1]) < 0) is descends:
        end += 1
    if descends:
        rows[:end] = rows[:end][::-1]
    return end


def compare(first: PolicyEntry, second: PolicyEntry) -> int:
    """Upstream: comparePolicyEntries. It is not symmetric."""
    one, other = first.resource, second.resource
    if one.kind is not other.kind:
        return -1 if other.kind is Kind.ANYTHING else 1
    if one.is_prefix and other.is_prefix:
        if len(one.name) != len(other.name):
            return -1 if len(one.name) < len(other.name) else 1
    elif one.name and _pattern(one) != _pattern(other):
        return -1
    if not first.allows:
        return 1
    return 0 if second.allows else -1


def _pattern(resource: Resource) -> tuple[bool, bool]:
    """Everything of its kind, a prefix or a name."""
    return bool(resource.name), resource.is_prefix


# -- differences


class Difference(NamedTuple):
    """A request whose decision differs. `host` is ANYWHERE unless an entry is about addresses. `java` is None if it is not
    known."""

    need: Need
    host: str
    java: AccessDecision | None
    ours: AccessDecision


def differences(acl: AclInfo) -> list[Difference]:
    """The requests on which Java decides differently. The resource of each is an example of those that the same entries match.
    Raises AccessRefused."""
    entries = entries_of(acl)
    java, ours = JavaRights(entries), Rights(acl)
    found: list[Difference] = []
    for kind, name, host in _places(entries):
        differing: set[Action] = set()
        for actions in _actions_in(entries):
            if differing.isdisjoint(actions):
                need = Need(kind, name, actions)
                verdicts = java.verdict(need, host), ours.verdict(need, host)
                if verdicts[0] is not verdicts[1]:
                    differing.update(actions)
                    found.append(Difference(need, host, *verdicts))
    return found


def _places(entries: dict[str, list[PolicyEntry]]) -> Iterator[tuple[Kind, str, str]]:
    """Kind, name and host of requests, at least one for each set of entries that may match a name."""
    rows = [entry for policy in entries.values() for entry in policy]
    hosts = [ANYWHERE, *dict.fromkeys(host for entry in rows for host in _borders(entry))]
    for kind in Kind:
        resources = dict.fromkeys(row.resource for row in rows if row.resource.kind is kind)
        if resources and kind is not Kind.ANYTHING:
            for name in _names(resources):
                yield from ((kind, name, host) for host in hosts)


def _names(resources: Collection[Resource]) -> list[str]:
    """Each name, and for each prefix and for everything of the kind a name to which no longer resource belongs."""
    beginnings = {resource.name[:end] for resource in resources for end in range(len(resource.name) + 1)}
    names = [resource.name for resource in resources if resource.name and not resource.is_prefix]
    prefixes = ["", *(resource.name for resource in resources if resource.is_prefix)]
    return [*names, *(_longer(prefix, beginnings) for prefix in prefixes)]


def _longer(prefix: str, beginnings: set[str]) -> str:
    """The prefix with letters after it, so that it is none of `beginnings`."""
    longer = (prefix + "".join(letters) for length in count(1) for letters in product(LETTERS, repeat=length))
    return next(name for name in longer if name not in beginnings)


def _borders(entry: PolicyEntry) -> Iterator[str]:
    """The first and the last address of each network."""
    for network in entry.networks:
        yield str(network[0])
        yield str(network[-1])


def _actions_in(entries: dict[str, list[PolicyEntry]]) -> list[tuple[Action, ...]]:
    """Each action of an entry, then the alternatives."""
    named = {action for policy in entries.values() for entry in policy for action in entry.actions}
    if Action.ALL in named:
        named = set(Action)
    single = [action for action in Action if action in named and action is not Action.ALL]
    alternatives = [actions for actions in ALTERNATIVES if len(named.intersection(actions)) > 1]
    return [*((action,) for action in single), *alternatives]
