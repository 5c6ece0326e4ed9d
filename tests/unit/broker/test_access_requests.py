"""The requests that change users and policies: what is refused, and what a change does to tables that changed meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from accesscontrol.policies import ENTRIES_MAX
from broker.access import requests as requests_module
from broker.access.requests import OF_SETTINGS, AccessRequests
from broker.settings.broker import BrokerSettings
from broker.tables.accesstables import Acls, Users
from remoting.bodies.access import AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.codes import RequestCode as Code
from remoting.command import RemotingCommand
from remoting.router import Router
from tests.support.doubles import ManualClock
from tests.support.recordingpeer import RecordingPeer

SETTINGS = [
    "controllerAddr=127.0.0.1:9878",
    "namesrvAddr=127.0.0.1:9876",
    "authenticationEnabled=true",
    'innerClientAuthenticationCredentials={"accessKey":"servers","secretKey":"s"}',
    'initAuthenticationUser={"username":"root","password":"root-1"}',
]


class TablesOfAccess:
    """Both tables, without the others."""

    def __init__(self) -> None:
        self.users = Users(lambda: None)
        self.acls = Acls(lambda: None)

    def delete_user(self, name: str) -> None:
        self.acls.remove(f"User:{name}")
        self.users.remove(name)


class Bench:
    """A broker, the master if `leads`. `meanwhile` runs while another master is asked, which does not answer."""

    def __init__(self) -> None:
        self.tables = TablesOfAccess()
        self.leads = True
        self.caller_is_super = True
        self.master_is_java = False
        self.meanwhile: Callable[[], None] = lambda: None
        self.router = Router()
        bench: Any = self
        AccessRequests(
            cast(Any, self.tables), bench, BrokerSettings.load(None, SETTINGS), bench, bench, self._of_master,
            cast(Any, ManualClock()), lambda: self.master_is_java,
        ).add_to(self.router)  # fmt: skip
        self.tables.users.put(UserInfo("root", "root-1", "Super", "enable"))

    # -- the membership, the access and the agreement

    @property
    def accepts_sends(self) -> bool:
        return self.leads

    def sees_passwords(self, request: RemotingCommand) -> bool:
        return self.caller_is_super

    def is_super(self, request: RemotingCommand) -> bool:
        return self.caller_is_super

    async def _of_master(self, peer: object, request: RemotingCommand) -> RemotingCommand | None:
        self.meanwhile()
        return None

    async def change_everywhere(
        self, request: RemotingCommand, what: str, make: Callable[[], None]
    ) -> RemotingCommand:
        make()
        return request.reply()

    # -- requests

    def ask(self, code: int, body: Any = None, **ext: str) -> tuple[int, str | None]:
        reply = self.reply(code, body, **ext)
        return reply.code, reply.remark

    def reply(self, code: int, body: Any = None, **ext: str) -> RemotingCommand:
        command = RemotingCommand.request(code, ext, body.encode() if body is not None else None)
        answer: Any = self.router.handlers[code](cast(Any, RecordingPeer()), command)
        if isinstance(answer, RemotingCommand):
            return answer

        async def awaited() -> RemotingCommand:
            return cast(RemotingCommand, await answer)

        return asyncio.run(awaited())

    def create(self, name: str = "alice", **more: Any) -> tuple[int, str | None]:
        return self.ask(Code.AUTH_CREATE_USER, UserInfo(name, "pw", **more), username=name)

    def update(self, name: str = "alice", **more: Any) -> tuple[int, str | None]:
        return self.ask(Code.AUTH_UPDATE_USER, UserInfo(name, **more), username=name)

    def allow(self, *resources: str, name: str = "alice", **ext: str) -> tuple[int, str | None]:
        return self.ask(Code.AUTH_CREATE_ACL, rights(name, *resources), **({"subject": f"User:{name}"} | ext))

    @property
    def resources(self) -> list[str | None]:
        """Of alice's rights."""
        acl = self.tables.acls.find("User:alice")
        return (
            []
            if acl is None
            else [entry.resource for policy in acl.policies or [] for entry in policy.entries or []]
        )


def rights(name: str, *resources: str, kind: str = "Custom") -> AclInfo:
    return AclInfo(
        f"User:{name}",
        [PolicyInfo(kind, [PolicyEntryInfo(each, ["Pub"], None, "Allow") for each in resources])],
    )


OK = (0, None)


# -- users


@pytest.mark.parametrize(
    ("name", "body", "answer"),
    [
        ("", UserInfo("", "pw"), (29, "The username is blank")),
        ("  ", UserInfo("", "pw"), (29, "The username is blank")),
        ("alice", UserInfo("bob", "pw"), (16, "the header names user alice, the body bob")),
        ("alice", UserInfo("alice", ""), (16, "password can not be blank")),
        ("alice", UserInfo("alice"), (16, "password can not be blank")),
        ("alice", UserInfo("alice", "x" * 1_025), (16, "a password has at most 1024 bytes")),
        ("alice", UserInfo("alice", "pw", "Normal", "asleep"), (16, "The user status is illegal.")),
        ("a\nb", UserInfo("a\nb", "pw"), (16, "a user name has at most 255 bytes, all printable")),
        ("\u9ad8" * 86, UserInfo(None, "pw"), (16, "a user name has at most 255 bytes, all printable")),
        ("root", UserInfo("root", "pw"), (16, "The user is existed")),
        (
            "servers", UserInfo("servers", "pw"),
            (16, OF_SETTINGS.format("servers", "innerClientAuthenticationCredentials")),
        ),
    ],
)  # fmt: skip
def test_a_user_that_cannot_be_made_is_refused(name: str, body: UserInfo, answer: tuple[int, str]) -> None:
    bench = Bench()
    assert bench.ask(Code.AUTH_CREATE_USER, body, username=name) == answer
    assert [*bench.tables.users.rows] == ["root"]


def test_a_user_is_made_with_upstreams_defaults_and_changed_in_part() -> None:
    bench = Bench()
    assert bench.create() == bench.create("bob", user_type="sUPER", user_status="DISABLE") == OK
    rows = bench.tables.users.rows
    assert rows["alice"] == UserInfo("alice", "pw", "Normal", "enable")
    assert rows["bob"] == UserInfo("bob", "pw", "Super", "disable")
    assert bench.update(password="new") == bench.update(user_status="disable") == OK
    assert bench.update("bob", user_status="enable", password="") == OK
    assert rows["alice"] == UserInfo("alice", "new", "Normal", "disable")
    assert rows["bob"] == UserInfo("bob", "pw", "Super", "enable")
    assert bench.update("ghost", password="x") == (16, "The user is not exist")


def test_only_a_super_user_changes_super_users() -> None:
    bench = Bench()
    assert bench.create() == OK
    bench.caller_is_super = False
    only = (16, "The super user can only be update by super user")
    assert bench.create("eve", user_type="Super") == (1, "The super user can only be create by super user")
    assert bench.update("root", password="x") == only
    assert bench.update("root", user_status="disable") == only
    assert bench.update("root", user_type="Normal") == only
    assert bench.update(user_type="SUPER") == only
    assert bench.ask(Code.AUTH_DELETE_USER, username="root") == only
    assert bench.tables.users.find("root") == UserInfo("root", "root-1", "Super", "enable")
    assert bench.create("bob", user_type="Normal") == bench.update(password="x") == OK
    assert bench.ask(Code.AUTH_DELETE_USER, username="alice") == OK


def test_users_of_the_settings_are_not_deleted() -> None:
    bench = Bench()
    of_settings = (16, OF_SETTINGS.format("root", "initAuthenticationUser"))
    assert bench.ask(Code.AUTH_DELETE_USER, username="root") == of_settings
    assert bench.ask(Code.AUTH_DELETE_USER, username="servers")[0] == 16
    assert bench.ask(Code.AUTH_DELETE_USER, username="ghost") == OK
    assert bench.ask(Code.AUTH_DELETE_USER) == (29, "The username is blank")


def test_a_user_is_deleted_with_its_rights() -> None:
    bench = Bench()
    assert bench.create() == bench.allow("Topic:a") == OK
    assert bench.ask(Code.AUTH_DELETE_USER, username="alice") == OK
    assert not bench.tables.acls.rows
    assert bench.create() == OK
    assert bench.ask(Code.AUTH_GET_ACL, subject="User:alice") == OK
    assert bench.resources == []


def test_passwords_are_shown_to_super_users_only() -> None:
    bench = Bench()
    assert b"root-1" in bytes(bench.reply(Code.AUTH_GET_USER, username="root").body or b"")
    assert b"root-1" in bytes(bench.reply(Code.AUTH_LIST_USER).body or b"")
    bench.caller_is_super = False
    shown = b'{"userStatus":"enable","userType":"Super","username":"root"}'
    assert bench.reply(Code.AUTH_GET_USER, username="root").body == shown
    assert bench.reply(Code.AUTH_LIST_USER, filter="oo").body == b"[" + shown + b"]"
    assert bench.reply(Code.AUTH_LIST_USER, filter="x").body is None


def test_the_number_of_users_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(requests_module, "USERS_MAX", 2)
    bench = Bench()
    assert bench.create() == OK
    assert bench.create("bob") == (16, "there are 2 users, which is the most that a broker set keeps")
    assert bench.update(password="x") == OK


# -- policies


def test_rights_are_those_of_a_user_and_named_once() -> None:
    bench = Bench()
    assert bench.create() == OK
    assert bench.allow("Topic:a") == bench.allow("topic:a", "Topic:b") == OK
    assert bench.resources == ["Topic:a", "Topic:b"]
    assert bench.allow("Topic:a", name="ghost") == (16, "The subject of User:ghost is not exist.")
    assert bench.allow("Topic:x", subject="User:root") == (16, "the header names user root, the body alice")
    assert (
        bench.ask(Code.AUTH_CREATE_ACL, AclInfo(None, rights("x", "Topic:c").policies), subject="user:alice")
        == OK
    )
    assert bench.resources == ["Topic:a", "Topic:b", "Topic:c"]
    for subject in ("alice", "Group:alice", "User:", ":alice"):
        answer = bench.ask(
            Code.AUTH_CREATE_ACL, AclInfo(subject, rights("x", "Topic:d").policies), subject=subject
        )
        assert answer == (1, "An system error occurred, please try again later.")
    assert bench.allow("orders") == (16, "The resource is null.")
    assert bench.resources == ["Topic:a", "Topic:b", "Topic:c"]


def test_rights_are_deleted_by_resource_and_as_a_whole() -> None:
    bench = Bench()
    assert bench.create() == bench.allow("Topic:a", "Topic:b") == OK
    assert (
        bench.ask(Code.AUTH_CREATE_ACL, rights("alice", "Topic:a", kind="default"), subject="User:alice")
        == OK
    )
    assert (
        bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:a", policyType="Default") == OK
    )
    assert bench.resources == ["Topic:a", "Topic:b"]
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="TOPIC:a") == OK
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:never") == OK
    assert bench.resources == ["Topic:b"]
    refused = bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:b", policyType="Special")
    assert refused == (16, "The policy type is illegal.")
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="b") == (
        16,
        "The resource is null.",
    )
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice") == OK
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice") == (16, "The acl is not exist.")
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:ghost") == (16, "The subject is not exist.")
    assert bench.ask(Code.AUTH_GET_ACL, subject="User:ghost") == (16, "The subject is not exist.")


def test_all_rights_together_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    """One frame has those of many users."""
    bench = Bench()
    assert bench.create() == bench.create("bob") == OK
    many = [f"Topic:{number}" for number in range(ENTRIES_MAX + 1)]
    assert bench.allow(*many) == (16, "A subject has 10000 entries at most.")
    assert bench.allow(*many[:100]) == OK
    acl = bench.tables.acls.find("User:alice")
    assert acl is not None
    monkeypatch.setattr(requests_module, "RIGHTS_BYTES_MAX", len(acl.encode()) + 100)
    full = (16, f"the rights of all users have {len(acl.encode()) + 100} bytes at most")
    assert bench.allow(*many[:2], name="bob") == full
    assert bench.allow(*many[:102]) == full
    assert bench.allow(many[0]) == OK, "an entry in place of another"
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice") == bench.allow(*many[:2], name="bob") == OK


# -- replicas


def test_a_slave_of_a_java_master_changes_nothing_and_says_so() -> None:
    bench = Bench()
    assert bench.create() == OK
    bench.leads, bench.master_is_java = False, True
    body = UserInfo("alice", user_status="disable")
    refused = [
        bench.create("bob"),
        bench.ask(Code.AUTH_UPDATE_USER, body, username="alice"),
        bench.allow("Topic:a"),
    ]
    refused.append(bench.ask(Code.AUTH_DELETE_USER, username="alice"))
    for code, remark in refused:
        assert code == 1 and "the master is a Java broker, whose users are not copied" in (remark or "")
    assert bench.tables.users.find("alice") is not None
    bench.leads = True
    assert bench.create("bob") == OK


def test_a_slave_that_has_a_change_answers_that_it_is_done() -> None:
    bench = Bench()
    assert bench.create() == bench.allow("Topic:a") == OK
    bench.leads = False
    assert bench.create() == bench.allow("Topic:a") == bench.update(password="pw") == OK
    assert bench.ask(Code.AUTH_CREATE_USER, UserInfo("alice", "other"), username="alice") == (
        16,
        "The user is existed",
    )
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:root") == OK
    assert bench.ask(Code.AUTH_DELETE_USER, username="ghost") == OK


def test_a_change_keeps_what_was_changed_while_another_master_was_asked() -> None:
    """This broker becomes the master while the former one is asked, and copies a newer table before."""
    bench = Bench()
    assert bench.create() == bench.allow("Topic:a") == OK
    denial = PolicyEntryInfo("Topic:secret", ["All"], None, "Deny")

    def denied() -> None:
        acl = AclInfo("User:alice", [PolicyInfo("Custom", [denial])])
        bench.tables.acls.replace({"User:alice": acl})

    bench.meanwhile = denied
    assert bench.allow("Topic:b") == OK
    assert bench.resources == ["Topic:secret", "Topic:b"]
    assert bench.ask(Code.AUTH_DELETE_ACL, subject="User:alice", resource="Topic:b") == OK
    assert bench.resources == ["Topic:secret"]
    disabled = UserInfo("alice", "pw", "Normal", "disable")
    bench.meanwhile = lambda: bench.tables.users.put(disabled)
    assert bench.update(password="new") == OK
    assert bench.tables.users.find("alice") == UserInfo("alice", "new", "Normal", "disable")
    bench.meanwhile = lambda: bench.tables.delete_user("alice")
    assert bench.update(password="newer") == OK
    assert bench.tables.users.find("alice") is None
