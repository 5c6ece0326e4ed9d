"""Java's order of policy entries, as AclAuthorizationHandler of 5.3.3 decided, and the requests on which it differs."""

from __future__ import annotations

import json
import random
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from accesscontrol.javaorder import ALTERNATIVES, JavaRights, differences, sorted_by_java
from accesscontrol.policies import (
    AccessDecision,
    AccessRefused,
    Action,
    Kind,
    Need,
    Rights,
    entries_of,
    entry_of,
)
from remoting.bodies.access import CUSTOM, DEFAULT, AclInfo, PolicyEntryInfo, PolicyInfo

VECTORS = Path(__file__).parents[2] / "vectors" / "acl"
PAIRS = json.loads((VECTORS / "decisions.json").read_text())
ORDERS = json.loads((VECTORS / "orders.json").read_text())


def entry(text: str) -> PolicyEntryInfo:
    """`RESOURCE DECISION ACTIONS ADDRESSES`; by default Pub, from everywhere."""
    resource, decision, actions, *sources = [*text.split(), "Pub"][: max(3, len(text.split()))]
    return PolicyEntryInfo(resource, actions.split(","), sources or None, decision)


def acl(*custom: str, default: tuple[str, ...] = ()) -> AclInfo:
    policies = [PolicyInfo(CUSTOM, [*map(entry, custom)]), PolicyInfo(DEFAULT, [*map(entry, default)])]
    return AclInfo("User:alice", policies)


def found(rights: AclInfo) -> list[tuple[str, str, str]]:
    """Resource, actions, and the decisions of Java and ours."""
    return [
        (
            row.need.resource,
            "|".join(action.value for action in row.need.actions),
            f"{row.java.name if row.java else None} {row.ours.name}",
        )
        for row in differences(rights)
    ]


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: f"{pair['first']}, {pair['second']}")
def test_of_two_entries_the_one_that_java_chose_decides(pair: dict[str, str]) -> None:
    entries = {name: entry_of(entry(pair[name])) for name in ("first", "second")}
    chosen = sorted_by_java([*entries.values()])[0]
    assert chosen == entries[pair["chosen"]]
    assert chosen.allows is (pair["decision"] == "ALLOW")


@pytest.mark.parametrize("row", ORDERS, ids=lambda row: row["resource"])
def test_longer_lists_are_decided_as_by_java(row: dict[str, Any]) -> None:
    rights = JavaRights(entries_of(acl(*row["custom"], default=tuple(row["default"]))))
    kind, _, name = row["resource"].partition(":")
    decided = rights.verdict(Need(Kind(kind), name, tuple(map(Action, row["actions"]))), "")
    assert decided is not None and decided.name == row["decision"]


def test_a_denial_that_a_later_right_for_all_topics_makes_void_is_found() -> None:
    assert found(acl("Topic:secret Deny", "Topic:* Allow")) == [("Topic:secret", "Pub", "ALLOWED DENIED")]
    assert found(acl("Topic:* Allow", "Topic:secret Deny")) == []


def test_a_shorter_prefix_is_found_at_names_of_the_longer_one() -> None:
    rights = acl("Topic:a* Allow", "Topic:a-secret-* Deny", "Topic:a-secret-x Allow")
    assert found(rights) == [("Topic:a-secret-a", "Pub", "ALLOWED DENIED")]


def test_all_is_reported_as_each_action() -> None:
    names = [row[1] for row in found(acl("Group:g Deny All", "Group:* Allow All"))]
    assert names == ["Pub", "Sub", "Create", "Update", "Delete", "Get", "List"]


def test_a_difference_between_alternatives_is_found_by_the_alternatives() -> None:
    rights = acl("Topic:a Deny Get", "Topic:* Allow Sub")
    assert found(rights)[0] == ("Topic:a", "Sub|Get", "ALLOWED DENIED")


def test_entries_about_addresses_are_asked_from_their_first_and_last_address() -> None:
    rows = differences(acl("Topic:a Deny Pub 10.0.0.0/8", "Topic:* Allow Pub 10.1.0.0/16"))
    assert [(row.host, row.need.resource) for row in rows] == [
        ("10.1.0.0", "Topic:a"),
        ("10.1.255.255", "Topic:a"),
    ]


def test_the_default_policy_is_compared_where_no_custom_entry_matches() -> None:
    rights = acl("Group:* Allow", default=("Topic:a Deny", "Topic:* Allow"))
    assert found(rights) == [("Topic:a", "Pub", "ALLOWED DENIED")]


def test_more_entries_than_java_sorts_by_insertion_are_not_known() -> None:
    name = "a" * 40
    assert found(acl(*(f"Topic:{name[:length]}* Allow" for length in range(1, 32)))) == []
    rows = found(acl(*(f"Topic:{name[:length]}* Allow" for length in range(1, 33))))
    assert rows == [(f"Topic:{name[:32]}x", "Pub", "None ALLOWED")]


def test_policies_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(AccessRefused, match="The resource is null"):
        differences(acl("Nothing:a Allow"))


def test_differences_are_empty_only_if_no_request_differs() -> None:
    rng = random.Random(5)
    resources = [
        "*",
        "Topic:*",
        *(f"Topic:{name}{end}" for name in ("a", "b", "ab", "aba") for end in ("", "*")),
    ]
    names = ["".join(letters) for length in (1, 2, 3, 4) for letters in product("abx", repeat=length)]
    actions = [*((action,) for action in Action if action is not Action.ALL), *ALTERNATIVES]
    differing = 0
    for _ in range(60):
        texts = [
            f"{resource} {rng.choice(['Allow', 'Deny'])} {rng.choice(['Pub', 'Sub', 'Get', 'All'])}"
            for resource in rng.sample(resources, rng.randint(1, 5))
        ]
        rights = acl(*texts)
        java, ours = JavaRights(entries_of(rights)), Rights(rights)
        needs = [Need(Kind.TOPIC, name, wanted) for name in names for wanted in actions]
        differs = any(java.verdict(need, "") is not ours.verdict(need, "") for need in needs)
        assert bool(differences(rights)) is differs, texts
        differing += differs
    assert 5 < differing < 55


def test_decisions_are_the_same_where_one_entry_matches() -> None:
    rights = acl("Topic:a Allow", default=("Topic:b Deny",))
    java = JavaRights(entries_of(rights))
    assert [java.verdict(Need(Kind.TOPIC, name, (Action.PUB,)), "") for name in "abc"] == [
        AccessDecision.ALLOWED, AccessDecision.DENIED, AccessDecision.NO_MATCH,
    ]  # fmt: skip
