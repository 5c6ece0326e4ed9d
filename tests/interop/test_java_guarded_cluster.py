"""Upstream's mqadmin on our guarded cluster: the commands of users and policies."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import elect_another, other_members
from localcluster.layout import CLUSTER_NAME
from remoting.signing import Credentials
from scripts.peers.javapeer import JARS, missing
from scripts.peers.keys import administrator_file, tls_options
from scripts.peers.waits import WAIT_MS
from tests.interop.guardedcluster import guarded_cluster
from tests.interop.javabroker import PASSWORD, USER
from tests.interop.javaclient import JavaClient
from tests.support.waiting import wait_until
from tests.unit.mqadmin.accessrows import ROWS, lines

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing()))]

USERS = "#UserName         #Password               #UserType               #UserStatus           \n"
POLICIES = "#Subject          #PolicyType  #Resource               #Actions              #SourceIp                 #Decision \n"
BROKERS = 2


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """With the administrator of the brokers whose output was recorded."""
    folder = tmp_path_factory.mktemp("guarded") / "cluster"
    with guarded_cluster(folder, administrator=Credentials(USER, PASSWORD)) as made:
        yield made


@pytest.fixture(scope="module")
def tool(guarded: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[JavaClient]:
    layout, home = guarded.layout, tmp_path_factory.mktemp("home")
    options = [*tls_options(layout), "-Dfile.encoding=UTF-8"]
    with JavaClient(layout.namesrv, home, JARS, options, tools=administrator_file(layout)) as made:
        yield made


def addresses(cluster: Cluster) -> tuple[str, str]:
    """Those of the master and the slave."""
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    [slave] = other_members(state)
    return state.master_address or "", slave.address


def test_upstreams_tool_prints_on_our_brokers_what_it_prints_on_its_own(
    guarded: Cluster, tool: JavaClient
) -> None:
    master, slave = addresses(guarded)
    printed: dict[str, str] = {}
    for row in ROWS:
        row = row.at(master=master, slave=slave, namesrv=guarded.layout.namesrv)
        answer = tool.ask("admin", *row.arguments)
        printed[row.name] = answer["out"]
        if row.name != "listUser-slave":
            assert lines(answer["out"]) == lines(row.stdout), row.name
        if row.error is None:
            assert answer["err"] == "", row.name
        else:
            assert f"CODE: {row.error[0]}  DESC: {row.error[1]}" in answer["err"], row.name
    assert printed["listUser-slave"] == printed["listUser"], "our slave has what its master has"


def user_row(name: str, password: str, status: str) -> str:
    return f"{name:<16}  {password:<22}  {'Normal':<22}  {status:<22}\n"


def policy_row(subject: str, resource: str, actions: str, decision: str) -> str:
    return f"{subject:<16}  {'Custom':<10}  {resource:<22}  {actions:<20}  {'null':<24}  {decision:<10}\n"


@pytest.mark.parametrize("run", ["one master", "the other master"])
def test_upstreams_tool_changes_users_and_policies_of_a_whole_cluster(
    guarded: Cluster, tool: JavaClient, run: str
) -> None:
    """The tool sends a change to both replicas, one after the other. So it asks the master first in one of the
    runs, and the slave first in the other one."""
    where = ("-n", guarded.layout.namesrv, "-c", CLUSTER_NAME)
    both = addresses(guarded)
    wait_until("both are known", lambda: tool.admin("clusterList", *where).count(CLUSTER_NAME) == BROKERS)

    def change(what: str, *words: str) -> None:
        done = tool.admin(words[0], *where, *words[1:])
        assert lines(done) == lines("".join(f"{what} to {address} success.\n" for address in both)), words

    subject = ("-s", "User:eve")
    change("create user", "createUser", "-u", "eve", "-p", "one")
    change("update user", "updateUser", "-u", "eve", "-p", "two")
    change("update user", "updateUser", "-u", "eve", "-s", "disable")
    assert tool.admin("getUser", *where, "-u", "eve") == USERS + user_row("eve", "two", "disable")
    change("create acl", "createAcl", *subject, "-r", "Topic:a,Group:g", "-a", "Pub,Sub", "-d", "Allow")
    change("update acl", "updateAcl", *subject, "-r", "Topic:b", "-a", "Get", "-d", "Deny")
    change("delete acl", "deleteAcl", *subject, "-r", "Topic:a")
    policies = POLICIES + policy_row("User:eve", "Group:g", "[Pub, Sub]", "Allow")
    policies += policy_row("User:eve", "Topic:b", "[Get]", "Deny")
    assert tool.admin("getAcl", *where, *subject) == policies
    assert tool.admin("listAcl", *where, "-s", "eve") == policies
    change("delete acl", "deleteAcl", *subject)
    assert tool.admin("getAcl", *where, *subject) == ""
    again = tool.ask("admin", "createUser", *where, "-u", "eve", "-p", "three")
    assert again["out"] == "" and "CODE: 16  DESC: The user is existed" in again["err"]
    change("delete user", "deleteUser", "-u", "eve")
    assert tool.admin("getUser", *where, "-u", "eve") == ""
    state = asyncio.run(guarded.wait_whole(timeout_ms=WAIT_MS))
    asyncio.run(elect_another(guarded, other_members(state)[0]))
    wait_until("another master", lambda: addresses(guarded)[0] != state.master_address)


def test_upstreams_tool_without_credentials_is_refused(guarded: Cluster, tmp_path: Path) -> None:
    layout = guarded.layout
    with JavaClient(layout.namesrv, tmp_path, JARS, tls_options(layout)) as tool:
        refused = tool.ask("admin", "listUser", "-b", addresses(guarded)[0])
    assert refused["out"] == "" and "CODE: 16  DESC: username cannot be null." in refused["err"]
