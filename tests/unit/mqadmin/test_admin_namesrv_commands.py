"""The commands that read or change name servers, against a scripted server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer


def both(server: ScriptedServer, another: ScriptedServer) -> list[str]:
    return ["-n", f"{server.address};{another.address}"]


@pytest.mark.parametrize(
    ("command", "code", "verb", "count"),
    [
        ("wipeWritePerm", RequestCode.WIPE_WRITE_PERM_OF_BROKER, "wipe", "wipeTopicCount"),
        ("addWritePerm", RequestCode.ADD_WRITE_PERM_OF_BROKER, "add", "addTopicCount"),
    ],
)
def test_write_permission_is_set_at_every_name_server(
    server: ScriptedServer,
    another_server: ScriptedServer,
    command: str,
    code: RequestCode,
    verb: str,
    count: str,
) -> None:
    for one in (server, another_server):
        one.says(code, ext={count: "57"})
    shown = server.run(command, "-b", "broker-a", *both(server, another_server))
    assert shown.stdout == "".join(
        f"{verb} write perm of broker[broker-a] in name server[{one.address}] OK, 57\n"
        for one in (server, another_server)
    )
    another_server.says(code, status=1, remark="no")
    failed = server.run(command, "-b", "broker-a", *both(server, another_server), "--json")
    assert failed.exit_code == 1
    report = json.loads(failed.stdout)
    assert [row["topics"] for row in report["nameServers"]] == [57]
    assert "1 of 2 name servers failed" in report["error"]


def test_setting_the_permission_of_an_unknown_broker_set_fails(server: ScriptedServer) -> None:
    result = server.run("wipeWritePerm", "-b", "broker-z")
    assert result.exit_code == 1
    assert "knows no broker set broker-z; clusterList" in result.stderr
    assert not server.requests(RequestCode.WIPE_WRITE_PERM_OF_BROKER)


def test_the_settings_of_each_name_server_are_shown_and_changed(
    server: ScriptedServer, another_server: ScriptedServer
) -> None:
    for one in (server, another_server):
        one.says(RequestCode.GET_NAMESRV_CONFIG, b"listenPort=9876\norderMessageEnable=true\n")
        one.says(RequestCode.UPDATE_NAMESRV_CONFIG)
    shown = server.run("getNamesrvConfig", *both(server, another_server)).stdout
    assert shown.startswith(f"============{server.address}============\n{'listenPort':<50}=  9876\n")
    assert shown.count("orderMessageEnable") == 2
    change = ("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "true")
    done = server.run(*change, *both(server, another_server))
    assert done.stdout == (
        f"update name server config success![{server.address}, {another_server.address}]\norderMessageEnable : true\n"
    )
    another_server.says(RequestCode.UPDATE_NAMESRV_CONFIG, status=16, remark="black list")
    assert "answered 16 NO_PERMISSION" in server.run(*change, *both(server, another_server)).stderr


def test_values_are_put_and_deleted_at_every_name_server(
    server: ScriptedServer, another_server: ScriptedServer
) -> None:
    for one in (server, another_server):
        one.says(RequestCode.PUT_KV_CONFIG)
        one.says(RequestCode.DELETE_KV_CONFIG)
    at = both(server, another_server)
    put = server.run("updateKvConfig", "-s", "SPACE", "-k", "key", "-v", "value", *at)
    assert put.stdout == "create or update kv config to namespace success.\n"
    delete = server.run("deleteKvConfig", "-s", "SPACE", "-k", "key", *at)
    assert delete.stdout == "delete kv config from namespace success.\n"
    for one in (server, another_server):
        [request] = one.requests(RequestCode.PUT_KV_CONFIG)
        assert request.ext == {"namespace": "SPACE", "key": "key", "value": "value"}
        assert len(one.requests(RequestCode.DELETE_KV_CONFIG)) == 1
    another_server.says(RequestCode.PUT_KV_CONFIG, status=1, remark="disk full")
    failed = server.run("updateKvConfig", "-s", "SPACE", "-k", "key", "-v", "value", *at)
    assert failed.exit_code == 1
    assert f"(done by {server.address})" in failed.stderr


def test_the_order_conf_of_a_topic_is_put_got_and_deleted(server: ScriptedServer) -> None:
    server.says(RequestCode.PUT_KV_CONFIG)
    server.says(RequestCode.DELETE_KV_CONFIG)
    server.says(RequestCode.GET_KV_CONFIG, ext={"value": "broker-a:4"})
    of = ("updateOrderConf", "-t", "T", "-m")
    put = server.run(*of, "put", "-v", "broker-a:4;broker-b:4").stdout
    assert put == "update orderConf success. topic=[T], orderConf=[broker-a:4;broker-b:4]"
    assert server.run(*of, "get").stdout == "get orderConf success. topic=[T], orderConf=[broker-a:4] "
    assert server.run(*of, "delete").stdout == "delete orderConf success. topic=[T]"
    [request] = server.requests(RequestCode.PUT_KV_CONFIG)
    assert request.ext["namespace"] == "ORDER_TOPIC_CONFIG"
    server.says(RequestCode.GET_KV_CONFIG, status=22, remark="No config item")
    assert "it was never put, or was deleted" in server.run(*of, "get").stderr


@pytest.mark.parametrize(
    "options",
    [["-m", "take"], ["-m", "put"]]
    + [
        ["-m", "put", "-v", conf]
        for conf in (
            "broker-a",
            "broker-a:99999999999",
            "broker-a:0",
            "broker-a:65537",
            "any text: 4",
            "broker-a:4;",
            ":4",
        )
    ],
)
def test_a_malformed_order_conf_is_refused(server: ScriptedServer, options: list[str]) -> None:
    assert server.run("updateOrderConf", "-t", "T", *options).exit_code == 1
    assert not server.asked
