"""importPlainAcl and compareAcl."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mqadmin.errors import AdminError
from mqadmin.plainaclfiles import BYTES_MAX, read_plain_acls
from remoting.codes import RequestCode as Code
from tests.unit.mqadmin.accessanswers import AccessTables

if TYPE_CHECKING:
    from click.testing import Result

    from tests.unit.mqadmin.conftest import ScriptedServer

SECRETS = ("alice-secret", "admin-secret")
SAMPLE = """\
globalWhiteRemoteAddresses:
- 10.10.103.*
accounts:
- accessKey: alice
  secretKey: alice-secret
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  topicPerms:
  - orders=PUB|SUB
  - RMQ_SYS_TRACE_TOPIC=PUB
  groupPerms: [readers=SUB]
- accessKey: operator
  secretKey: admin-secret
  admin: true
"""
LOST = "requests from 10.10.103.* needed no signature, now they do"
NORMAL_ACL = {
    "subject": "User:alice",
    "policies": [
        {
            "policyType": "Custom",
            "entries": [
                {"resource": "Topic:orders", "actions": ["Pub", "Sub"], "decision": "Allow"},
                {"resource": "Topic:RMQ_SYS_TRACE_TOPIC", "actions": ["Pub"], "decision": "Allow"},
                {"resource": "Group:readers", "actions": ["Sub"], "decision": "Allow"},
            ],
        },
        {
            "policyType": "Default",
            "entries": [{"resource": "Topic:*", "actions": ["All"], "decision": "Deny"}],
        },
    ],
}


@pytest.fixture
def sample(tmp_path: Path) -> str:
    (tmp_path / "plain_acl.yml").write_text(SAMPLE)
    return str(tmp_path / "plain_acl.yml")


def read(folder: Path, **files: str) -> Any:
    """What the files with these texts are converted to; `_` in a name is `/`."""
    for name, text in files.items():
        path = folder / f"{name.replace('_', '/')}.yml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return read_plain_acls([str(folder)])


def has_no_secret(result: Result) -> bool:
    return not any(secret in result.output for secret in SECRETS)


# -- importPlainAcl


def test_a_dry_run_shows_users_rights_and_losses_and_sends_nothing(
    server: ScriptedServer, sample: str
) -> None:
    shown = server.run("importPlainAcl", "-f", sample)
    assert (shown.exit_code, shown.stderr) == (0, "")
    assert [line.split() for line in shown.stdout.splitlines()] == [
        ["#UserName", "#UserType"],
        ["alice", "Normal"],
        ["operator", "Super"],
        ["#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"],
        ["User:alice", "Custom", "Topic:orders", "[Pub,", "Sub]", "null", "Allow"],
        ["User:alice", "Custom", "Topic:RMQ_SYS_TRACE_TOPIC", "[Pub]", "null", "Allow"],
        ["User:alice", "Custom", "Group:readers", "[Sub]", "null", "Allow"],
        ["User:alice", "Default", "Topic:*", "[All]", "null", "Deny"],
        ["Nothing", "was", "created;", "--apply", "with", "-b", "or", "-c", "creates", "these", "users."],
        ["lost:", f"{sample}:", *LOST.split()],
    ]
    assert has_no_secret(shown)
    assert server.asked == []


def test_the_json_of_a_dry_run_has_no_secret(server: ScriptedServer, sample: str) -> None:
    shown = server.run("importPlainAcl", "-f", sample, "--json")
    found = json.loads(shown.stdout)
    assert found["users"] == [
        {"username": "alice", "userType": "Normal"},
        {"username": "operator", "userType": "Super"},
    ]
    assert [acl["subject"] for acl in found["acls"]] == ["User:alice"]
    assert found["lost"] == [f"{sample}: {LOST}"]
    assert has_no_secret(shown)


@pytest.mark.parametrize("options", [["-b", "ADDRESS"], ["-c", "C"]])
def test_applying_creates_users_with_their_rights(
    server: ScriptedServer, sample: str, options: list[str]
) -> None:
    for code in (Code.AUTH_GET_USER, Code.AUTH_CREATE_USER, Code.AUTH_CREATE_ACL):
        server.says(code)
    options = [option.replace("ADDRESS", server.address) for option in options]
    done = server.run("importPlainAcl", "-f", sample, "--apply", *options)
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"create user alice to {server.address} success.",
        f"create user operator to {server.address} success.",
        f"lost: {sample}: {LOST}",
    ]
    assert has_no_secret(done)
    bodies = [json.loads(bytes(asked.body or b"")) for asked in server.requests(Code.AUTH_CREATE_USER)]
    assert bodies == [
        {"username": "alice", "password": "alice-secret", "userType": "Normal"},
        {"username": "operator", "password": "admin-secret", "userType": "Super"},
    ]
    [acl] = server.requests(Code.AUTH_CREATE_ACL)
    assert acl.ext["subject"] == "User:alice"
    assert json.loads(bytes(acl.body or b"")) == NORMAL_ACL


def test_a_user_that_exists_stays_as_it_is(server: ScriptedServer, sample: str) -> None:
    tables = AccessTables(server)
    tables.add_user("alice", password="another")
    done = server.run("importPlainAcl", "-f", sample, "--apply", "-b", server.address, "--json")
    assert json.loads(done.stdout)["brokers"] == [
        {"address": server.address, "created": ["operator"], "existing": ["alice"]}
    ]
    assert tables.users["alice"]["password"] == "another"
    assert server.requests(Code.AUTH_CREATE_ACL) == []
    again = server.run("importPlainAcl", "-f", sample, "--apply", "-b", server.address)
    assert again.stdout.startswith(
        f"user alice exists on {server.address} and stays as it is.\nuser operator"
    )


def test_a_refused_account_does_not_stop_the_others(server: ScriptedServer, sample: str) -> None:
    AccessTables(server)
    stores = server.answers[Code.AUTH_CREATE_USER]
    server.answers[Code.AUTH_CREATE_USER] = lambda asked: (
        asked.reply(16, "no") if asked.ext["username"] == "alice" else stores(asked)
    )
    done = server.run("importPlainAcl", "-f", sample, "--apply", "-b", server.address)
    assert done.exit_code == 1
    assert f"create user operator to {server.address} success." in done.stdout
    assert done.stderr == (
        f"mqadmin importPlainAcl: AUTH_CREATE_USER: {server.address} answered 16 NO_PERMISSION (no)\n"
    )
    assert has_no_secret(done)


def test_a_user_without_rights_is_reported_and_ends_the_import(server: ScriptedServer, sample: str) -> None:
    AccessTables(server)
    server.says(Code.AUTH_CREATE_ACL, status=1, remark="disk full")
    done = server.run("importPlainAcl", "-f", sample, "--apply", "-b", server.address)
    assert (done.exit_code, done.stdout) == (1, f"lost: {sample}: {LOST}\n")
    assert (
        "(disk full); user alice has no rights yet: delete it with deleteUser, then import again"
        in done.stderr
    )
    assert len(server.requests(Code.AUTH_CREATE_USER)) == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--apply"], "one of -b and -c is needed"),
        (["--apply", "-b", "B", "-c", "C"], "only one of -b and -c is taken"),
        (["-b", "B"], "-b and -c need --apply"),
    ],
)
def test_wrong_options_show_the_usage(
    server: ScriptedServer, sample: str, options: list[str], said: str
) -> None:
    refused = server.run("importPlainAcl", "-f", sample, *options)
    assert (refused.exit_code, refused.stderr) == (1, f"{said}\n")
    assert server.asked == []


# -- files of ACL 1.0


def test_values_are_texts_as_they_are_written(tmp_path: Path) -> None:
    made = read(tmp_path, plain="accounts:\n- {accessKey: 0123456789, secretKey: 0x1F, admin: yes}\n")
    [(user, _)] = made.accounts
    assert (user.username, user.password, user.user_type) == ("0123456789", "0x1F", "Super")


@pytest.mark.parametrize("absent", ["", "~", "null"])
def test_absent_values_are_absent(tmp_path: Path, absent: str) -> None:
    made = read(tmp_path, plain=f"accounts:\n- accessKey: alice\n  secretKey: {absent}\n")
    assert made.accounts == []


def test_accounts_may_share_members(tmp_path: Path) -> None:
    shared = "accounts:\n- &first {accessKey: a, secretKey: s, admin: true}\n- {<<: *first, accessKey: b}\n"
    made = read(tmp_path, plain=shared)
    assert [user.username for user, _ in made.accounts if user.user_type == "Super"] == ["a", "b"]


def test_files_below_a_folder_are_read_in_order_but_not_those_of_the_tools(tmp_path: Path) -> None:
    made = read(
        tmp_path,
        acl_b_1="accounts:\n- {accessKey: same, secretKey: first}\n",
        acl_c="accounts:\n- {accessKey: same, secretKey: second}\n- {accessKey: other, secretKey: s}\n",
        tools="accessKey: x\nsecretKey: y\n",
    )
    assert [(user.username, user.password) for user, _ in made.accounts] == [
        ("same", "first"),
        ("other", "s"),
    ]
    (lost,) = (line for line in made.lost if "not created" in line)
    assert lost.startswith(f"{tmp_path}/acl/c.yml, account 1: ")
    assert f"{tmp_path}/acl/b/1.yml, account 1 also has the accessKey same" in lost


def test_a_file_that_is_named_twice_is_read_once(tmp_path: Path, sample: str) -> None:
    (tmp_path / "link.yaml").symlink_to(sample)
    made = read_plain_acls([str(tmp_path), sample])
    assert len(made.lost) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("accounts:\n- secretKey: *alice-secret\n", ", line 2: this is no valid YAML"),
        ("accounts: [alice-secret\n", "this is no valid YAML"),
        ("a: 1\n---\nalice-secret: 2\n", "this is no valid YAML"),
        ("accounts: !!python/object:os.system [alice-secret]\n", ", line 1: this is no valid YAML"),
        ("accounts: !!int alice-secret\n", "this is no valid YAML"),
        ("alice-secret \x00", "this is no valid YAML"),
        ("[" * 100_000, "this is no valid YAML"),
        ("alice-secret: x\n", ": has a key that ACL 1.0 does not know; it knows accounts"),
        ("#" * (BYTES_MAX + 1), f" has more than {BYTES_MAX} bytes, so it is no file of ACL 1.0"),
    ],
    ids=["alias", "end", "two", "object", "int", "null", "depth", "key", "size"],
)
def test_an_invalid_file_is_named_without_its_text(
    server: ScriptedServer, tmp_path: Path, text: str, said: str
) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(text)
    refused = server.run("importPlainAcl", "-f", str(file), "--apply", "-b", server.address)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"mqadmin importPlainAcl: {file}")
    assert said in refused.stderr and refused.stderr.count("\n") == 1
    assert has_no_secret(refused)
    assert server.asked == []


@pytest.mark.parametrize("name", ["missing.yml", "."])
def test_a_missing_file_or_an_empty_folder_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(AdminError, match="there is no such file or folder|no file below this folder ends in"):
        read_plain_acls([str(tmp_path / name)])


def test_a_missing_library_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch, sample: str) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(AdminError, match=r"pip install 'autoswitch-mq\[migration\]'"):
        read_plain_acls([sample])


# -- compareAcl


def entry(resource: str, decision: str, *sources: str) -> dict[str, Any]:
    return {
        "resource": resource,
        "actions": ["Pub", "Sub"],
        "decision": decision,
        "sourceIps": [*sources] or None,
    }


def acl_of(name: str, *entries: dict[str, Any]) -> dict[str, Any]:
    return {"subject": f"User:{name}", "policies": [{"policyType": "Custom", "entries": [*entries]}]}


VOID = entry("Topic:secret", "Deny"), entry("Topic:*", "Allow")


def test_users_with_other_rights_than_with_java_are_listed(server: ScriptedServer) -> None:
    tables = AccessTables(server)
    tables.acls = {
        "User:alice": acl_of("alice", *VOID),
        "User:bob": acl_of("bob", *reversed(VOID)),
        "User:rocketmq": acl_of("rocketmq", *VOID),
    }
    found = server.run("compareAcl", "-c", "C")
    assert found.exit_code == 1
    assert [line.split() for line in found.stdout.splitlines()] == [
        ["#Subject", "#Resource", "#Actions", "#SourceIp", "#Java5.3.3", "#Here"],
        ["User:alice", "Topic:secret", "Pub,", "Sub", "others", "Allow", "Deny"],
    ]
    assert found.stderr.startswith(
        "mqadmin compareAcl: User:alice: other rights than on Java's brokers 5.3.3"
    )
    row = json.loads(server.run("compareAcl", "-b", server.address, "--json").stdout)["brokers"][0]
    assert row["differences"] == [
        {"subject": "User:alice", "resource": "Topic:secret", "actions": "Pub, Sub", "sourceIp": "others",
         "java": "Allow", "here": "Deny"}
    ]  # fmt: skip


def test_equal_rights_print_nothing_and_succeed(server: ScriptedServer) -> None:
    AccessTables(server).acls = {"User:bob": acl_of("bob", *reversed(VOID))}
    same = server.run("compareAcl", "-b", server.address)
    assert (same.exit_code, same.output) == (0, "")


def test_rights_that_are_refused_here_are_listed(server: ScriptedServer) -> None:
    AccessTables(server).acls = {"User:eve": acl_of("eve", entry("Topic:a", "Allow", "10.0.0.*"))}
    found = server.run("compareAcl", "-b", server.address)
    assert found.exit_code == 1
    assert "refused here: The source ip is invalid." in found.stdout
