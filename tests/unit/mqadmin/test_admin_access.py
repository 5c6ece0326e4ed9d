"""The commands of access control, with the output of upstream's tool as the reference."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from click.testing import CliRunner

from mqadmin.cli import admin
from mqadmin.commands import users
from mqadmin.commands.acls import format_acls
from remoting.bodies.access import AclInfo, PolicyInfo
from remoting.codes import RequestCode
from tests.unit.mqadmin.accessanswers import AccessTables
from tests.unit.mqadmin.accessrows import REFUSED_HERE, ROWS, Ran, lines

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

CODES = [code for code in RequestCode if code.name.startswith("AUTH_")]
VARIABLE = "MQ_NEW_PASSWORD"


def knows(server: ScriptedServer, **sets: dict[int, ScriptedServer]) -> None:
    """The name server has these broker sets of cluster DefaultCluster: members by role id."""
    rows = {
        name: {
            "brokerAddrs": {str(role_id): one.address for role_id, one in members.items()},
            "brokerName": name,
            "cluster": "DefaultCluster",
        }
        for name, members in sets.items()
    }
    tables = {"brokerAddrTable": rows, "clusterAddrTable": {"DefaultCluster": list(rows)}}
    server.says(RequestCode.GET_BROKER_CLUSTER_INFO, tables)


def bodies(server: ScriptedServer, code: RequestCode) -> list[Any]:
    return [orjson.loads(bytes(request.body or b"{}")) for request in server.requests(code)]


@pytest.fixture
def pair(server: ScriptedServer, another_server: ScriptedServer) -> tuple[ScriptedServer, ScriptedServer]:
    """Name server and master in one, and a slave that copies nothing, as Java's. Both have the first user."""
    knows(server, a={0: server, 1: another_server})
    for one in (server, another_server):
        AccessTables(one)
    return server, another_server


def test_each_command_prints_what_upstreams_tool_prints(pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    master, slave = pair
    for row in ROWS:
        if row.error is None:
            ran = row.accepted_here().at(master=master.address, slave=slave.address, namesrv=master.address)
            done = master.run(*ran.arguments)
            assert (done.exit_code, done.stderr) == (0, ""), row.name
            assert lines(done.stdout) == lines(ran.stdout), row.name


@pytest.mark.parametrize("row", [row for row in ROWS if row.error and row.name not in REFUSED_HERE])
def test_a_refusal_is_one_line_with_the_brokers_reason(server: ScriptedServer, row: Ran) -> None:
    assert row.error is not None
    status, reason = row.error
    for code in CODES:
        server.says(code, status=status, remark=f"{reason} See https://a.b/c")
    asked = row.at(master=server.address, slave=server.address, namesrv=server.address)
    refused = server.run(*asked.arguments)
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert refused.stderr.count("\n") == 1
    assert f"answered {status} " in refused.stderr and f"({reason})" in refused.stderr


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in REFUSED_HERE])
def test_words_that_upstreams_brokers_ignore_are_refused(server: ScriptedServer, row: Ran) -> None:
    refused = server.run(*row.at(master=server.address, slave="", namesrv="").arguments)
    assert refused.exit_code == 1
    assert refused.stdout.startswith("usage: ")
    assert REFUSED_HERE[row.name][0].split(",")[-1] in refused.stderr
    assert server.asked == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("createUser -u u -p p", "one of -b and -c is needed"),
        ("getAcl", "one of -b and -c is needed"),
        ("createUser -b B -c C -u u -p p", "only one of -b and -c is taken"),
        ("listUser -b B -c C", "only one of -b and -c is taken"),
        ("createUser -b B -u u", f"one of -p and {VARIABLE} is needed"),
        ("createUser -b B -u u -p -", "the password is empty"),
        ("updateUser -b B -u u", "exactly one of -p, -s and -t is needed"),
        ("updateUser -b B -u u -s enable -t Super", "exactly one of -p, -s and -t is needed"),
        ("updateUser -b B -u u -s disabled", "-s disabled: must be enable or disable"),
        ("updateUser -b B -u u -t Root", "-t Root: must be Super or Normal"),
        ("createAcl -b B -s User:u -r , -a Pub -d Allow", "-r is given without a text"),
        ("createAcl -b B -s User:u -r Topic:t -a , -d Allow", "-a is given without a text"),
        ("createAcl -b B -s User:u -r Topic:t -a Pub -d Allow -i ,", "-i is given without a text"),
        ("deleteAcl -b B -s User:u -r ,", "-r is given without a text"),
        ("copyUser -f B -t B -u ,", "-u is given without a text"),
        ("copyAcl -f B -t B -s ,", "-s is given without a text"),
    ],
)
def test_a_wrong_option_shows_the_usage_and_sends_nothing(
    server: ScriptedServer, line: str, said: str
) -> None:
    refused = server.run(*line.replace(" B", f" {server.address}").split())
    assert (refused.exit_code, refused.stderr) == (1, f"{said}\n")
    assert refused.stdout.startswith(f"usage: mqadmin {line.split()[0]} ")
    assert server.asked == []


def test_requests_have_the_bodies_that_upstreams_tool_sends(server: ScriptedServer) -> None:
    for code in CODES:
        server.says(code)
    to = ("-b", server.address)
    server.run("createUser", *to, "-u", " u ", "-p", " secret ")
    server.run("createUser", *to, "-u", "u", "-p", "secret", "-t", "super")
    assert bodies(server, RequestCode.AUTH_CREATE_USER) == [
        {"username": "u", "password": "secret"},
        {"username": "u", "password": "secret", "userType": "Super"},
    ]
    server.run("updateUser", *to, "-u", "u", "-s", "disable")
    assert bodies(server, RequestCode.AUTH_UPDATE_USER) == [{"username": "u", "userStatus": "disable"}]
    rights = ("-s", "User:u", "-a", "pub, Sub", "-d", "Allow")
    server.run("createAcl", *to, *rights, "-r", "Topic:a,Group:g-*", "-i", "10.0.0.0/8,::1")
    server.run("updateAcl", *to, *rights, "-r", "*")
    entry = {"actions": ["Pub", "Sub"], "decision": "Allow", "sourceIps": ["10.0.0.0/8", "::1"]}
    assert bodies(server, RequestCode.AUTH_CREATE_ACL) == [
        {
            "subject": "User:u",
            "policies": [{"entries": [entry | {"resource": "Topic:a"}, entry | {"resource": "Group:g-*"}]}],
        }
    ]
    entry.pop("sourceIps")
    assert bodies(server, RequestCode.AUTH_UPDATE_ACL) == [
        {"subject": "User:u", "policies": [{"entries": [entry | {"resource": "*"}]}]}
    ]


def test_rights_of_several_resources_are_deleted_one_by_one(server: ScriptedServer) -> None:
    """Upstream's tool sends the list as one resource, which no user has, and reports success."""
    server.says(RequestCode.AUTH_DELETE_ACL)
    done = server.run("deleteAcl", "-b", server.address, "-s", "User:u", "-r", "Topic:a,Topic:b")
    assert done.stdout == f"delete acl to {server.address} success.\n"
    asked = [request.ext["resource"] for request in server.requests(RequestCode.AUTH_DELETE_ACL)]
    assert asked == ["Topic:a", "Topic:b"]


@pytest.mark.parametrize(
    ("options", "environment", "typed", "password"),
    [
        (["-p", "given"], {VARIABLE: "unused"}, "", "given"),
        ([], {VARIABLE: "variable"}, "", "variable"),
        (["-p", "-"], {VARIABLE: "variable"}, "unused\n", "variable"),
        (["-p", "-"], {}, "typed\nunused\n", "typed"),
        (["-p", "-typed"], {}, "", "-typed"),
    ],
)
def test_a_password_need_not_be_visible_to_other_users_of_the_machine(
    server: ScriptedServer, options: list[str], environment: dict[str, str], typed: str, password: str
) -> None:
    server.says(RequestCode.AUTH_CREATE_USER)
    command = ["createUser", "-b", server.address, "-u", "u", *options]
    done = CliRunner(env=environment).invoke(admin, command, input=typed, prog_name="mqadmin")
    assert done.exit_code == 0, done.output
    [body] = bodies(server, RequestCode.AUTH_CREATE_USER)
    assert body["password"] == password
    assert password not in done.output


def test_a_password_is_typed_without_echo(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr(users, "getpass", lambda prompt: "typed")
    assert users.new_password("-") == "typed"


def test_a_new_password_is_read_from_the_variable_with_a_dash(server: ScriptedServer) -> None:
    server.says(RequestCode.AUTH_UPDATE_USER)
    command = ["updateUser", "-b", server.address, "-u", "u", "-p", "-"]
    done = CliRunner(env={VARIABLE: "secret"}).invoke(admin, command, prog_name="mqadmin")
    assert done.exit_code == 0
    assert bodies(server, RequestCode.AUTH_UPDATE_USER) == [{"username": "u", "password": "secret"}]


def test_masters_change_before_slaves_and_an_error_stops_no_other_broker(
    server: ScriptedServer, another_server: ScriptedServer
) -> None:
    knows(server, a={1: another_server}, b={0: server})
    another_server.says(RequestCode.AUTH_DELETE_USER)
    server.says(RequestCode.AUTH_DELETE_USER)
    delete = ("deleteUser", "-c", "DefaultCluster", "-u", "u")
    done = server.run(*delete)
    assert done.stdout == "".join(
        f"delete user to {one.address} success.\n" for one in (server, another_server)
    )
    server.says(RequestCode.AUTH_DELETE_USER, status=16, remark="no")
    failed = server.run(*delete)
    assert (failed.exit_code, failed.stdout) == (1, f"delete user to {another_server.address} success.\n")
    assert "answered 16 NO_PERMISSION (no) (1 of 2 brokers failed)" in failed.stderr


def test_users_are_read_from_the_first_master_that_has_them(
    server: ScriptedServer, another_server: ScriptedServer
) -> None:
    knows(server, a={0: server}, b={0: another_server})
    AccessTables(server).users.clear()
    AccessTables(another_server)
    for command in (("getUser", "-u", "rocketmq"), ("listUser",)):
        done = server.run(*command, "-c", "DefaultCluster")
        assert done.stdout.splitlines()[1].split() == ["rocketmq", "12345678", "Super", "enable"]
    shown = json.loads(server.run("listUser", "-c", "DefaultCluster", "--json").stdout)
    user = {"username": "rocketmq", "userType": "Super", "userStatus": "enable"}
    assert shown["brokers"] == [
        {"address": server.address, "users": []},
        {"address": another_server.address, "users": [user]},
    ]


def test_a_password_that_the_broker_withholds_is_shown_as_null(server: ScriptedServer) -> None:
    AccessTables(server).add_user("alice")
    row = server.run("getUser", "-b", server.address, "-u", "alice").stdout.splitlines()[1]
    assert row.split() == ["alice", "null", "Normal", "enable"]


def test_a_user_without_a_password_is_not_copied(pair: tuple[ScriptedServer, ScriptedServer]) -> None:
    source, target = pair
    there = AccessTables(target)
    AccessTables(source).add_user("alice")
    copy = ("copyUser", "-f", source.address, "-t", target.address)
    done = source.run(*copy)
    assert done.exit_code == 1
    assert done.stdout == f"copy user of rocketmq from {source.address} to {target.address} success.\n"
    assert done.stderr == (
        f"mqadmin copyUser: {source.address} returned no password of alice, so nothing of them was copied; "
        "sign the request as a Super user\n"
    )
    assert set(there.users) == {"rocketmq"}
    unknown = source.run(*copy, "-u", "rocketmq,nobody")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert f"{source.address} has no user nobody, so nothing was copied" in unknown.stderr


def test_a_subject_without_rights_is_named_when_it_is_copied(
    pair: tuple[ScriptedServer, ScriptedServer],
) -> None:
    source, target = pair
    rights = ("-s", "User:rocketmq", "-r", "*", "-a", "All", "-d", "Allow")
    source.run("createAcl", "-b", source.address, *rights)
    copy = ("copyAcl", "-f", source.address, "-t", target.address, "-s")
    unknown = source.run(*copy, "User:rocketmq,User:nobody")
    assert (unknown.exit_code, unknown.stdout) == (1, "")
    assert f"{source.address} has no rights of User:nobody, so nothing was copied" in unknown.stderr
    assert source.run(*copy, "User:rocketmq").exit_code == 0
    shown = json.loads(source.run("listAcl", "-b", target.address, "--json").stdout)
    [acl] = shown["brokers"][0]["acls"]
    assert acl["policies"][0]["entries"][0]["resource"] == "*"


def test_json_of_a_change_names_its_brokers_and_no_password(
    pair: tuple[ScriptedServer, ScriptedServer],
) -> None:
    server, another_server = pair
    of_cluster = ("-c", "DefaultCluster", "--json")
    done = server.run("createUser", *of_cluster, "-u", "alice", "-p", "secret")
    assert json.loads(done.stdout) == {
        "username": "alice",
        "brokers": [server.address, another_server.address],
    }
    shown = server.run("getUser", *of_cluster, "-u", "alice").stdout
    assert "alice" in shown and "secret" not in shown
    refused = server.run("createUser", "-b", "127.0.0.1:9", "-u", "alice", "-p", "secret", "--json")
    assert "secret" not in refused.output


def test_a_body_that_is_no_list_is_named(server: ScriptedServer) -> None:
    for command, code in (("listUser", RequestCode.AUTH_LIST_USER), ("listAcl", RequestCode.AUTH_LIST_ACL)):
        server.says(code, {"not": "a list"})
        refused = server.run(command, "-b", server.address)
        assert refused.exit_code == 1
        assert f"{server.address} answered with a body that is no list" in refused.stderr


def test_rights_without_policies_or_entries_are_shown() -> None:
    empty = format_acls([AclInfo("User:u"), AclInfo("User:v", [PolicyInfo("Custom")])]).splitlines()
    assert [line.split() for line in empty[1:]] == [["User:u"]]
