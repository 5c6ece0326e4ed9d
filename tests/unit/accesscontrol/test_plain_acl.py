"""Accounts of ACL 1.0 as users and rights of ACL 2.0."""

from __future__ import annotations

import random
from typing import Any

import pytest

from accesscontrol.javaorder import JavaRights
from accesscontrol.plainacl import KINDS, NotPlainAcl, convert
from accesscontrol.policies import AccessDecision, Action, Kind, Need, Rights, entries_of
from remoting.bodies.access import AclInfo, UserInfo

SECRET = "a-secret-that-no-text-shows"


def account(name: str = "alice", **members: Any) -> dict[str, Any]:
    return {"accessKey": name, "secretKey": SECRET, **members}


def file(*accounts: Any, **members: Any) -> dict[str, Any]:
    return {"accounts": [*accounts], **members}


def rights(acl: AclInfo | None) -> list[str]:
    return [
        f"{policy.policy_type} {entry.resource} {entry.decision} {'|'.join(entry.actions or ())}"
        for policy in (acl.policies if acl else None) or ()
        for entry in policy.entries or ()
    ]


def of_one(**members: Any) -> tuple[list[str], list[str]]:
    """The rights of an account, and what is lost but traces."""
    made = convert([("f", file(account(**members)))])
    return rights(made.accounts[0].acl), [line for line in made.lost if "traces" not in line]


def test_an_account_becomes_a_user_with_custom_and_default_policies() -> None:
    made = convert([("f", file(account(
        topicPerms=["orders=PUB|SUB", " audit = PUB ", "secret=DENY"], groupPerms=["readers=SUB"],
        defaultTopicPerm="DENY", defaultGroupPerm="SUB",
    )))])  # fmt: skip
    [(user, acl)] = made.accounts
    assert user == UserInfo("alice", SECRET, "Normal")
    assert acl is not None and acl.subject == "User:alice"
    assert rights(acl) == [
        "Custom Topic:orders Allow Pub|Sub",
        "Custom Topic:audit Allow Pub",
        "Custom Topic:secret Deny All",
        "Custom Group:readers Allow Sub",
        "Default Topic:* Deny All",
        "Default Group:* Allow Sub",
    ]


@pytest.mark.parametrize(
    ("text", "user_type"), [("true", "Super"), ("YES", "Super"), ("False", "Normal"), (None, "Normal")]
)
def test_an_admin_becomes_a_super_user(text: str | None, user_type: str) -> None:
    [(user, acl)] = convert([("f", file(account(admin=text)))]).accounts
    assert (user.user_type, acl) == (user_type, None)


@pytest.mark.parametrize("text", ["pub", "ALL", "PUB,SUB", "PUB|SUB|PUB", "", "PUB=x"])
def test_an_unknown_permission_denies_everything_and_is_reported(text: str) -> None:
    assert of_one(topicPerms=[f"orders={text}"]) == (
        ["Custom Topic:orders Deny All"],
        [f"alice: topicPerms 'orders={text}' is no permission, so everything is denied there"],
    )


def test_an_unknown_default_permission_denies_everything_and_is_reported() -> None:
    assert of_one(defaultGroupPerm="ANY") == (
        ["Default Group:* Deny All"],
        ["alice: defaultGroupPerm 'ANY' is no permission, so everything is denied there"],
    )


def test_what_the_permission_of_a_name_leaves_out_is_not_added_by_the_default() -> None:
    made, lost = of_one(topicPerms=["audit=PUB", "orders=PUB|SUB"], defaultTopicPerm="PUB|SUB")
    assert not lost
    assert made[2:] == ["Default Topic:* Allow Pub|Sub", "Default Topic:audit Deny Sub"]


def test_white_addresses_are_lost_by_name() -> None:
    content = file(account(whiteRemoteAddress="192.168.1.*"), globalWhiteRemoteAddresses=["10.0.*.*", "::1"])
    lost = convert([("plain_acl.yml", content)]).lost
    assert lost[:3] == [
        "plain_acl.yml: requests from 10.0.*.* needed no signature, now they do",
        "plain_acl.yml: requests from ::1 needed no signature, now they do",
        "alice: requests from 192.168.1.* needed no signature, now they do",
    ]


def test_accounts_that_could_trace_are_lost_unless_they_may_write_traces() -> None:
    content = file(
        account("alice"),
        account("bob", defaultTopicPerm="SUB"),
        account("eve", topicPerms=["RMQ_SYS_TRACE_TOPIC=PUB"]),
        account("root", admin="true"),
    )
    [line] = convert([("f", content)]).lost
    assert line.startswith("alice, bob: every account could write traces")


def test_names_with_a_star_are_no_patterns_and_are_left_out() -> None:
    made, lost = of_one(topicPerms=["*=PUB", "orders*=PUB|SUB", "=PUB", "%RETRY%=PUB", "%RETRY%*=PUB"])
    assert made == []
    assert lost[0] == "alice: topicPerms '*=PUB' is left out, because it names no topic"
    assert len(lost) == 5


def test_a_retry_topic_is_its_group() -> None:
    made, lost = of_one(topicPerms=["%RETRY%readers=SUB"], groupPerms=["%RETRY%others=SUB"])
    assert made == ["Custom Group:readers Allow Sub", "Custom Group:others Allow Sub"]
    assert not lost


def test_the_last_permission_of_a_name_counts_as_in_acl_1() -> None:
    made, lost = of_one(topicPerms=["orders=PUB", "orders=DENY"])
    assert made == ["Custom Topic:orders Deny All"]
    assert lost == ["alice: topicPerms has orders twice; the last permission counts"]


def test_the_first_of_two_accounts_with_one_access_key_counts() -> None:
    made = convert([("a", file(account(admin="true"))), ("b", file(account("bob"), account(admin="false")))])
    assert [(user.username, user.user_type) for user, _ in made.accounts] == [
        ("alice", "Super"),
        ("bob", "Normal"),
    ]
    assert "b, account 2: not created, because a, account 1 also has the accessKey alice" in made.lost


@pytest.mark.parametrize("key", ["accessKey", "secretKey"])
@pytest.mark.parametrize("value", [None, ""])
def test_an_account_without_a_key_is_not_created(key: str, value: str | None) -> None:
    made = convert([("f", file(account() | {key: value}))])
    assert made.accounts == []
    assert made.lost == ["f, account 1: not created, because accessKey or secretKey is missing"]


def test_an_empty_file_has_no_accounts() -> None:
    for content in (None, {"accounts": None, "globalWhiteRemoteAddresses": None}):
        made = convert([("f", content)])
        assert (made.accounts, made.lost) == ([], [])


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (["x"], "f: must have the keys accounts, dataVersion, globalWhiteRemoteAddresses"),
        ({"accessKey": "a"}, "f: has a key that ACL 1.0 does not know; it knows accounts"),
        ({"accounts": {"accessKey": "a"}}, "f: accounts must be a list"),
        ({"accounts": "a"}, "f: accounts must be a list"),
        (file(None, SECRET), "f, account 2: must have the keys accessKey"),
        (file(account(), account(**{SECRET: "x"})), "f, account 2: has a key that ACL 1.0 does not know"),
        (file(account(admin="1")), "f, account 1: admin must be true or false"),
        (file(account(secretKey=[SECRET])), "f, account 1: secretKey must be a text"),
        (file(account(topicPerms="orders=PUB")), "f, account 1: topicPerms must be a list"),
        (file(account(topicPerms=[{"orders": "PUB"}])), "f, account 1: topicPerms must be a list of texts"),
        (file(account(topicPerms=[f"t{n}=PUB" for n in range(10_001)])), "f, account 1: A subject has 10000 entries"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_file_of_acl_1_is_refused_with_the_place(content: object, said: str) -> None:
    with pytest.raises(NotPlainAcl) as refused:
        convert([("f", content)])
    assert str(refused.value).startswith(said)
    assert SECRET not in str(refused.value)


def test_no_text_of_a_conversion_has_a_secret_key() -> None:
    made = convert([("f", file(account(topicPerms=["a=?"]), account(), account("")))])
    assert SECRET not in repr(made)
    assert made.accounts[0].user.password == SECRET


PERMISSIONS = {"PUB": {"Pub"}, "SUB": {"Sub"}, "PUB|SUB": {"Pub", "Sub"}, "DENY": set[str](), "?": set[str]()}


def allowed_by_acl_1(members: dict[str, Any], kind: Kind, name: str, action: Action) -> bool:
    [(key, default_key)] = [(key, default) for each, key, default in KINDS if each is kind]
    named = dict(text.split("=") for text in members[key])
    return action.value in PERMISSIONS[named.get(name, members[default_key])]


def test_every_account_may_do_exactly_what_it_may_in_acl_1_here_and_with_java() -> None:
    rng = random.Random(3)
    checked = set[tuple[AccessDecision, bool]]()
    for _ in range(300):
        members: dict[str, Any] = {
            key: [f"{name}={rng.choice([*PERMISSIONS])}" for name in rng.sample("abc", rng.randint(0, 3))]
            for _, key, _ in KINDS
        } | {default: rng.choice([*PERMISSIONS]) for _, _, default in KINDS}
        acl = convert([("f", file(account(**members)))]).accounts[0].acl
        assert acl is not None
        ours, java = Rights(acl), JavaRights(entries_of(acl))
        for kind, name, action in (
            (k, n, a) for k, _, _ in KINDS for n in "abcd" for a in (Action.PUB, Action.SUB)
        ):
            need = Need(kind, name, (action,))
            verdict = ours.verdict(need, "")
            assert verdict is java.verdict(need, ""), members
            expected = allowed_by_acl_1(members, kind, name, action)
            assert (verdict is AccessDecision.ALLOWED) is expected, (members, need)
            checked.add((verdict, expected))
    assert checked >= {(AccessDecision.ALLOWED, True), (AccessDecision.DENIED, False)}
