"""Policies: their text forms, and which entry decides. A second implementation, which sorts all entries, must agree."""

from __future__ import annotations

import random
from collections.abc import Iterator
from ipaddress import ip_address, ip_network

import pytest

from accesscontrol.policies import (
    ENTRIES_MAX,
    SOURCES_MAX,
    AccessDecision,
    AccessRefused,
    Action,
    Kind,
    Need,
    Resource,
    Rights,
    added_to,
    entries_of,
    entry_of,
    most_specific_first,
    policy_type,
    resource_of,
    without,
)
from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo

ALLOWED, DENIED, NO_MATCH = AccessDecision.ALLOWED, AccessDecision.DENIED, AccessDecision.NO_MATCH
HERE = "10.1.2.3"


def entry(text: str, *sources: str) -> PolicyEntryInfo:
    """`DECISION RESOURCE ACTIONS`; the resource may have blanks in it."""
    decision, rest = text.split(" ", 1)
    resource, actions = rest.rsplit(" ", 1)
    return PolicyEntryInfo(resource, actions.split(","), [*sources] or None, decision)


def acl(*custom: PolicyEntryInfo, default: tuple[PolicyEntryInfo, ...] = ()) -> AclInfo:
    policies = [PolicyInfo("Custom", [*custom])] if custom else []
    return AclInfo("User:alice", [*policies, *([PolicyInfo("Default", [*default])] if default else [])])


def need(text: str) -> Need:
    """`TYPE:NAME ACTION,ACTION`."""
    resource, actions = text.rsplit(" ", 1)
    kind, _, name = resource.partition(":")
    return Need(Kind(kind), name, tuple(map(Action, actions.split(","))))


def verdict(wanted: str, *custom: str, host: str = HERE) -> AccessDecision:
    return Rights(acl(*map(entry, custom))).verdict(need(wanted), host)


# -- text forms


@pytest.mark.parametrize(
    ("text", "read", "stored"),
    [
        ("*", Resource(Kind.ANYTHING), "*"),
        (" * ", Resource(Kind.ANYTHING), "*"),
        ("Topic:orders", Resource(Kind.TOPIC, "orders"), "Topic:orders"),
        ("topic:X", Resource(Kind.TOPIC, "X"), "Topic:X"),
        ("GROUP:x", Resource(Kind.GROUP, "x"), "Group:x"),
        ("cluster:DefaultCluster", Resource(Kind.CLUSTER, "DefaultCluster"), "Cluster:DefaultCluster"),
        ("Namespace:n", Resource(Kind.NAMESPACE, "n"), "Namespace:n"),
        ("Topic:*", Resource(Kind.TOPIC), "Topic:*"),
        ("Topic:a*", Resource(Kind.TOPIC, "a", True), "Topic:a*"),
        ("Topic:a*b", Resource(Kind.TOPIC, "a*b"), "Topic:a*b"),
        ("Topic:a*b*", Resource(Kind.TOPIC, "a", True), "Topic:a*"),
        ("Topic:*b*", Resource(Kind.TOPIC), "Topic:*"),
        ("Topic:a:b", Resource(Kind.TOPIC, "a:b"), "Topic:a:b"),
        ("Topic:%RETRY%g", Resource(Kind.TOPIC, "%RETRY%g"), "Topic:%RETRY%g"),
        (" Topic :orders ", Resource(Kind.TOPIC, "orders"), "Topic:orders"),
        ("Topic: orders", Resource(Kind.TOPIC, " orders"), "Topic: orders"),
        ("Topic:\u9ad8*", Resource(Kind.TOPIC, "\u9ad8", True), "Topic:\u9ad8*"),
    ],
)
def test_a_resource_is_read_and_stored_in_one_form(text: str, read: Resource, stored: str) -> None:
    assert resource_of(text) == read
    assert str(read) == stored
    assert resource_of(stored) == read


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        " ",
        "orders",
        "Topic",
        "Topic:",
        "Topic: ",
        ":orders",
        "Queue:orders",
        "*:orders",
        "**",
        "Any:*",
    ],
)
def test_a_resource_without_a_known_type_is_refused(text: str | None) -> None:
    with pytest.raises(AccessRefused, match="^The resource is null.$"):
        resource_of(text)


def test_actions_and_decisions_are_read_in_any_case_and_once() -> None:
    read = entry_of(PolicyEntryInfo("Topic:a", ["pUb", " SUB", "PUB", "list"], None, "dENY"))
    assert read.actions == (Action.PUB, Action.SUB, Action.LIST)
    assert not read.allows
    stored = added_to(None, AclInfo("User:a", [PolicyInfo(None, [entry("allow topic:a ALL,publish")])]))
    assert stored == AclInfo("User:a", [PolicyInfo("Custom", [entry("Allow Topic:a All")])])


@pytest.mark.parametrize(
    ("info", "why"),
    [
        (PolicyEntryInfo("Topic:a", None, None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:a", [], None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:a", ["Publish", ""], None, "Allow"), "The actions is empty."),
        (PolicyEntryInfo("Topic:a", ["Pub", "Any"], None, "Allow"), "The actions can not be Any."),
        (PolicyEntryInfo("Topic:a", ["aNY"], None, "Allow"), "The actions can not be Any."),
        (PolicyEntryInfo("Topic:a", ["Pub"], None, None), "The decision is null or illegal."),
        (PolicyEntryInfo("Topic:a", ["Pub"], None, "Maybe"), "The decision is null or illegal."),
        (PolicyEntryInfo("Topic:a", ["Pub"], None, ""), "The decision is null or illegal."),
        (PolicyEntryInfo(None, ["Pub"], None, "Allow"), "The resource is null."),
        *(
            (PolicyEntryInfo("Topic:a", ["Pub"], ["10.0.0.1", source], "Allow"), "The source ip is invalid.")
            for source in (
                "300.1.1.1", "", "*", "10.0.0.*", "10.0.0.1-9", "10.0.0.1,10.0.0.2", "10.0.0.0/33", "10.0.0", "::1/129",
                "host", "010.0.0.1",
            )
        ),
    ],
)  # fmt: skip
def test_an_entry_that_cannot_be_read_is_refused_with_upstreams_words(
    info: PolicyEntryInfo, why: str
) -> None:
    with pytest.raises(AccessRefused) as refused:
        entry_of(info)
    assert str(refused.value) == why


def test_a_type_of_policy_is_custom_if_absent() -> None:
    assert [policy_type(text) for text in (None, "", "custom", "DEFAULT ")] == [
        "Custom",
        "Custom",
        "Custom",
        "Default",
    ]
    with pytest.raises(AccessRefused, match="^The policy type is illegal.$"):
        policy_type("Special")


# -- addresses


@pytest.mark.parametrize(
    ("source", "within", "outside"),
    [
        ("10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3", "[::ffff:10.1.2.3]"], ["10.1.2.4", "::10.1.2.3"]),
        ("10.1.0.0/16", ["10.1.2.3", "10.1.255.255", "::ffff:10.1.0.0"], ["10.2.0.0", "::1"]),
        ("10.1.2.3/16", ["10.1.9.9"], ["10.2.2.3"]),  # the bits of a host are ignored
        ("0.0.0.0/0", ["10.1.2.3", "255.255.255.255"], ["::1"]),
        ("::1", ["::1", "[::1]", "0:0:0:0:0:0:0:1"], ["::2", "127.0.0.1"]),
        ("2001:db8::/32", ["2001:db8::1", "2001:DB8:ffff::"], ["2001:db9::", "32.1.13.184"]),
        ("::/0", ["::1", "2001:db8::1"], ["10.1.2.3"]),
        ("::ffff:10.1.2.3", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.1.2.4"]),
        ("::ffff:10.1.0.0/112", ["10.1.2.3", "::ffff:10.1.2.3"], ["10.2.2.3"]),
        ("fe80::/64", ["fe80::1%eth0", "fe80::1"], ["fe80:0:0:1::1"]),
    ],
)
def test_a_source_is_an_address_or_a_range(source: str, within: list[str], outside: list[str]) -> None:
    rights = Rights(acl(entry("Allow Topic:a Pub", " " + source)))
    for host in within:
        assert rights.verdict(need("Topic:a Pub"), host) is ALLOWED, host
    for host in [*outside, "", "unknown", "10.1.2.3.4"]:
        assert rights.verdict(need("Topic:a Pub"), host) is NO_MATCH, host


def test_an_entry_for_other_addresses_is_as_if_it_were_not_there() -> None:
    rights = Rights(acl(entry("Deny Topic:a Pub", "10.9.0.0/16"), entry("Allow Topic:* Pub")))
    assert rights.verdict(need("Topic:a Pub"), "10.9.1.1") is DENIED
    assert rights.verdict(need("Topic:a Pub"), HERE) is ALLOWED


# -- precedence


@pytest.mark.parametrize(
    ("entries", "found"),
    [
        ([], NO_MATCH),
        (["Allow Topic:abcd Pub"], ALLOWED),
        (["Deny Topic:abcd Pub"], DENIED),
        (["Allow Topic:abcd All"], ALLOWED),
        (["Allow Topic:abcd Sub,Create,Update,Delete,Get,List"], NO_MATCH),
        (
            ["Allow Topic:abcde Pub", "Allow Topic:ABCD Pub", "Allow Group:abcd All", "Allow Cluster:* All"],
            NO_MATCH,
        ),
        (["Allow Topic:abcd* Pub"], ALLOWED),
        (["Allow Topic:abcde* Pub"], NO_MATCH),
        (["Deny Topic:abcd Pub", "Allow Topic:abcd* Pub"], DENIED),
        (["Deny Topic:ab* Pub", "Allow Topic:abc* Pub"], ALLOWED),
        (["Allow Topic:ab* Pub", "Deny Topic:abc* Pub"], DENIED),
        (["Deny Topic:* Pub", "Allow Topic:a* Pub"], ALLOWED),
        (["Deny Topic:* Pub", "Allow * Pub"], DENIED),
        (["Deny * All", "Allow Topic:* Pub"], ALLOWED),
        (["Deny * All", "Allow Topic:* Sub"], DENIED),
        (["Deny * All", "Allow Topic:abcd Sub"], DENIED),  # the more specific entry is about another action
        (["Allow * All"], ALLOWED),
        (["Allow Topic:abcd Pub", "Deny Topic:abcd Pub"], DENIED),  # the later replaces
        (["Deny topic:abcd Pub", "Allow Topic:abcd Pub"], ALLOWED),
    ],
)
def test_the_most_specific_resource_decides(entries: list[str], found: AccessDecision) -> None:
    assert verdict("Topic:abcd Pub", *entries) is found
    distinct = {resource_of(entry(text).resource) for text in entries}
    if len(distinct) == len(entries):
        assert verdict("Topic:abcd Pub", *reversed(entries)) is found


@pytest.mark.parametrize(
    ("resource", "allowed"), [("*", False), ("Topic:*", False), ("Topic:ha*", False), ("Topic:halves", True)]
)
def test_some_resources_must_be_named(resource: str, allowed: bool) -> None:
    rights = Rights(acl(PolicyEntryInfo(resource, ["All"], None, "Allow")))
    wanted = Need(Kind.TOPIC, "halves", (Action.SUB,), by_name_only=True)
    assert (rights.verdict(wanted, HERE) is AccessDecision.ALLOWED) is allowed
    assert rights.verdict(wanted._replace(by_name_only=False), HERE) is AccessDecision.ALLOWED


def test_only_prefixes_of_lengths_that_entries_have_are_looked_for() -> None:
    """A name of 512 characters has as many prefixes, and a request may have thousands of names."""
    wanted = Need(Kind.TOPIC, "a" * 512, (Action.SUB,))
    assert [str(each)[:12] for each in most_specific_first(wanted, [600, 3, 1])] == [
        "Topic:aaaaaa", "Topic:aaa*", "Topic:a*", "Topic:*", "*",
    ]  # fmt: skip
    rights = Rights(
        acl(
            *(
                PolicyEntryInfo(f"Topic:{'a' * n}*", ["Sub"], None, "Allow" if n == 3 else "Deny")
                for n in (1, 2, 3)
            ),
            PolicyEntryInfo("Topic:aaaa*", ["Pub"], None, "Deny"),
        )
    )
    assert rights.verdict(wanted, HERE) is ALLOWED
    assert rights.verdict(wanted._replace(name="aa"), HERE) is DENIED


def test_one_of_the_alternative_actions_is_enough() -> None:
    assert verdict("Group:g Sub,Get", "Allow Group:g Get") is ALLOWED
    assert verdict("Group:g Sub,Get", "Allow Group:g Pub") is NO_MATCH
    assert verdict("Group:g Sub,Get", "Deny Group:g Get", "Allow Group:* Sub") is DENIED


def test_the_default_policy_counts_if_no_custom_entry_matches() -> None:
    allows, denies = entry("Allow Topic:* Pub"), entry("Deny Topic:abcd Pub")
    wanted = need("Topic:abcd Pub")
    assert Rights(acl(default=(allows,))).verdict(wanted, HERE) is ALLOWED
    assert (
        Rights(acl(entry("Deny * All"), default=(entry("Allow Topic:abcd Pub"),))).verdict(wanted, HERE)
        is DENIED
    )
    assert Rights(acl(entry("Allow Topic:x Pub"), default=(denies,))).verdict(wanted, HERE) is DENIED
    elsewhere = acl(entry("Deny Topic:abcd Pub", "10.9.0.0/16"), default=(allows,))
    assert Rights(elsewhere).verdict(wanted, HERE) is ALLOWED
    assert Rights(elsewhere).verdict(wanted, "10.9.0.1") is DENIED


KINDS = ("Topic", "Group", "Cluster")
LETTERS = "ab"
ACTIONS = [action.value for action in Action]
SOURCES = (
    "10.1.2.3",
    "10.0.0.0/8",
    "10.1.0.0/16",
    "192.168.0.0/16",
    "::1",
    "2001:db8::/32",
    "::ffff:10.1.2.3",
)
HOSTS = (HERE, "10.9.9.9", "192.168.1.1", "::1", "2001:db8::7", "::ffff:10.1.2.3")


def some_name(rng: random.Random, longest: int = 3) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(1, longest)))


def some_resource(rng: random.Random) -> str:
    form = rng.randrange(8)
    if form == 0:
        return "*"
    kind = rng.choice(KINDS)
    if form == 1:
        return f"{kind}:*"
    return f"{kind}:{some_name(rng)}{'*' if form < 5 else ''}"


def some_entries(rng: random.Random) -> Iterator[PolicyEntryInfo]:
    """Of different resources."""
    for resource in dict.fromkeys(some_resource(rng) for _ in range(rng.randint(0, 8))):
        sources = rng.sample(SOURCES, k=rng.choice((0, 0, 0, 1, 2)))
        actions = rng.sample(ACTIONS, k=rng.randint(1, 3))
        yield PolicyEntryInfo(resource, actions, sources or None, rng.choice(("Allow", "Deny")))


def decided_by_sorting(found: AclInfo, wanted: Need, host: str) -> AccessDecision:
    """As documented: all entries that match, sorted by kind of resource and length of the prefix; the first decides."""
    for kind_of_policy in ("Custom", "Default"):
        matching = [
            each
            for policy in found.policies or []
            if policy.policy_type == kind_of_policy
            for each in policy.entries or []
            if matches_resource(each.resource or "", wanted)
            and ({"All", *(action.value for action in wanted.actions)} & {*(each.actions or [])})
            and matches_host(each.source_ips, host)
        ]
        if matching:
            first = min(matching, key=lambda each: rank(each.resource or ""))
            return ALLOWED if first.decision == "Allow" else DENIED
    return NO_MATCH


def matches_resource(text: str, wanted: Need) -> bool:
    if text == "*":
        return True
    kind, _, name = text.partition(":")
    if kind != wanted.kind.value:
        return False
    return wanted.name.startswith(name[:-1]) if name.endswith("*") else wanted.name == name


def matches_host(sources: list[str] | None, host: str) -> bool:
    def plain(text: str) -> str:
        return text.removeprefix("::ffff:")

    return sources is None or any(ip_address(plain(host)) in ip_network(plain(source)) for source in sources)


def rank(text: str) -> tuple[int, int]:
    if text == "*":
        return 3, 0
    name = text.partition(":")[2]
    if name == "*":
        return 2, 0
    return (1, -len(name)) if name.endswith("*") else (0, 0)


def test_a_second_implementation_decides_the_same() -> None:
    seen = dict.fromkeys(AccessDecision, 0)
    for seed in range(1_500):
        rng = random.Random(seed)
        found = acl(*some_entries(rng), default=tuple(some_entries(rng)))
        rights = Rights(found)
        for _ in range(6):
            actions = tuple(map(Action, rng.sample(ACTIONS[1:], k=rng.randint(1, 2))))
            wanted, host = Need(Kind(rng.choice(KINDS)), some_name(rng, 4), actions), rng.choice(HOSTS)
            decided = rights.verdict(wanted, host)
            assert decided is decided_by_sorting(found, wanted, host), (seed, found, wanted, host)
            seen[decided] += 1
    assert min(seen.values()) > 1_000


# -- changes


def test_added_entries_replace_those_of_the_same_resource_at_their_place() -> None:
    first = added_to(
        None, acl(entry("Allow topic:a pub"), entry("Allow Topic:b Sub"), entry("Deny Topic:b* All"))
    )
    second = added_to(first, acl(entry("Deny Topic:a Sub", "10.0.0.1"), entry("Allow Group:g Sub")))
    assert second == acl(
        entry("Deny Topic:a Sub", "10.0.0.1"),
        entry("Allow Topic:b Sub"),
        entry("Deny Topic:b* All"),
        entry("Allow Group:g Sub"),
    )
    assert added_to(second, second) == second
    assert added_to(second, AclInfo("User:alice", None)) == second


def test_policies_of_both_types_are_kept_apart() -> None:
    first = added_to(None, acl(entry("Allow Topic:a Pub"), default=(entry("Deny Topic:a Pub"),)))
    second = added_to(first, acl(default=(entry("Deny Topic:b Pub"),)))
    assert second == acl(
        entry("Allow Topic:a Pub"), default=(entry("Deny Topic:a Pub"), entry("Deny Topic:b Pub"))
    )
    both = AclInfo(
        "User:alice",
        [
            PolicyInfo("Custom", [entry("Allow Topic:x Pub")]),
            PolicyInfo("custom", [entry("Allow Topic:y Pub")]),
        ],
    )
    assert added_to(None, both) == acl(entry("Allow Topic:x Pub"), entry("Allow Topic:y Pub"))


def test_an_added_entry_that_cannot_be_read_changes_nothing() -> None:
    former = acl(entry("Allow Topic:a Pub"))
    with pytest.raises(AccessRefused):
        added_to(former, acl(entry("Allow Topic:b Pub"), entry("Allow orders Pub")))
    assert former == acl(entry("Allow Topic:a Pub"))


def test_a_resource_is_removed_from_one_type_or_from_both() -> None:
    whole = acl(entry("Allow Topic:a Pub"), entry("Allow Topic:a* Pub"), default=(entry("Deny Topic:a Pub"),))
    resource = resource_of("topic:a")
    assert without(whole, resource, None) == acl(entry("Allow Topic:a* Pub"))
    assert without(whole, resource, "Default") == acl(entry("Allow Topic:a Pub"), entry("Allow Topic:a* Pub"))
    assert without(whole, resource, "Custom") == acl(
        entry("Allow Topic:a* Pub"), default=(entry("Deny Topic:a Pub"),)
    )
    assert without(whole, resource_of("Topic:never"), None) == whole
    assert without(acl(entry("Allow Topic:a Pub")), resource, None) is None


def test_a_subject_has_a_limited_number_of_entries() -> None:
    many = acl(*(entry(f"Allow Topic:t{number} Pub") for number in range(ENTRIES_MAX)))
    assert len(entries_of(many)["Custom"]) == ENTRIES_MAX
    full = added_to(None, many)
    with pytest.raises(AccessRefused, match="^A subject has 10000 entries at most.$"):
        added_to(full, acl(default=(entry("Allow Topic:one Pub"),)))
    added_to(full, acl(entry("Deny Topic:t1 Pub")))
    assert Rights(full).verdict(need("Topic:t9999 Pub"), HERE) is ALLOWED


def test_an_entry_has_a_limited_number_of_networks() -> None:
    many = [f"10.{number}.0.0/16" for number in range(SOURCES_MAX + 1)]
    entry_of(entry("Allow Topic:a Pub", *many[1:]))
    with pytest.raises(AccessRefused, match="^An entry has 64 source ips at most.$"):
        entry_of(entry("Allow Topic:a Pub", *many))


def test_without_policies_nothing_is_allowed() -> None:
    for empty in (
        AclInfo("User:a", None),
        AclInfo("User:a", []),
        AclInfo("User:a", [PolicyInfo("Custom", None)]),
    ):
        assert Rights(empty).verdict(need("Topic:a Pub"), HERE) is NO_MATCH
