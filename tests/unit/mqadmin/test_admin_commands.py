"""The commands on topics, brokers and settings, against a scripted server."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from remoting.codes import RequestCode
from remoting.command import RemotingCommand

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

QUEUE_KEY = '{"brokerName":"broker-a","queueId":0,"topic":"T"}'
OFFSETS = {QUEUE_KEY: {"lastUpdateTimestamp": 1795256518544, "maxOffset": 9, "minOffset": 2}}


def as_json(server: ScriptedServer, *arguments: str) -> Any:
    result = server.run(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    assert result.stdout.count("\n") == 1
    return json.loads(result.stdout)


def failure(server: ScriptedServer, *arguments: str) -> str:
    """The one line of a command's error."""
    result = server.run(*arguments)
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1, result.stderr
    assert isinstance(result.exception, SystemExit)
    return str(result.stderr)


def test_topics_are_listed_in_the_servers_order(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {"topicList": ["B", "A"]})
    assert server.run("topicList").stdout == "B\nA\n"
    assert as_json(server, "topicList") == {"topics": ["B", "A"]}


def test_topics_are_listed_with_the_groups_that_read_them(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {"topicList": ["T", "%RETRY%G"]})
    server.says(RequestCode.QUERY_TOPIC_CONSUME_BY_WHO, {"groupList": ["G2", "G1"]})
    lines = server.run("topicList", "-c").stdout.splitlines()
    assert [line.split() for line in lines[1:]] == [["C", "T", "G1"], ["C", "T", "G2"]]
    expected = {"topics": [{"cluster": "C", "topic": "T", "groups": ["G1", "G2"]}]}
    assert as_json(server, "topicList", "-c") == expected


def test_an_incomplete_topic_list_says_so_and_fails(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, {"topicList": ["T"]})
    assert "does not serve that request" in failure(server, "topicList", "-c")


def test_a_topics_offsets_are_shown(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_TOPIC_STATS_INFO, {"offsetTable": OFFSETS, "topicPutTps": 1.5})
    shown = server.run("topicStatus", "-t", "T").stdout
    assert "broker-a                          0     2                     9" in shown
    report = as_json(server, "topicStatus", "-t", "T", "-c", "C")
    assert report["queues"][0]["maxOffset"] == 9
    assert "cluster X" in failure(server, "topicStatus", "-t", "T", "-c", "X")


def test_a_topic_is_deleted_on_brokers_and_name_servers(server: ScriptedServer) -> None:
    for code in (
        RequestCode.GET_TOPIC_CONFIG,
        RequestCode.DELETE_TOPIC_IN_BROKER,
        RequestCode.DELETE_TOPIC_IN_NAMESRV,
    ):
        server.says(code)
    assert server.run("deleteTopic", "-t", "T", "-c", "C").exit_code == 0
    [forgotten] = server.requests(RequestCode.DELETE_TOPIC_IN_NAMESRV)
    assert forgotten.ext == {"topic": "T", "clusterName": "C"}


def test_deleting_an_unknown_topic_fails(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_TOPIC_CONFIG, status=17)
    server.says(RequestCode.GET_ROUTEINFO_BY_TOPIC, status=17)
    assert "no broker of cluster C has topic T" in failure(server, "deleteTopic", "-t", "T", "-c", "C")
    assert not server.requests(RequestCode.DELETE_TOPIC_IN_BROKER)


def test_a_brokers_status_is_sorted(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_BROKER_RUNTIME_INFO, {"table": {"b": "2", "a": "1"}})
    one = server.run("brokerStatus", "-b", server.address).stdout
    assert one == f"{'a':<32}: 1\n{'b':<32}: 2\n"
    many = server.run("brokerStatus", "-c", "C").stdout
    assert many.startswith(f"{server.address:<24} a")
    assert as_json(server, "brokerStatus", "-c", "C") == {"brokers": {server.address: {"a": "1", "b": "2"}}}


def test_a_brokers_settings_are_shown(server: ScriptedServer) -> None:
    server.says(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-a\nlistenPort=1\n")
    shown = server.run("getBrokerConfig", "-c", "C").stdout.splitlines()
    assert shown[0] == f"============Master: {server.address}============"
    assert shown[2] == f"{'listenPort':<50}=  1"
    report = as_json(server, "getBrokerConfig", "-b", server.address)
    assert report["brokers"][server.address]["listenPort"] == "1"


@pytest.mark.parametrize("command", ["getBrokerConfig", "getBrokerEpoch"])
@pytest.mark.parametrize(
    ("options", "why"), [((), "one of -b and -c is needed"), (("-b", "c", "-c", "C"), "only one of")]
)
def test_exactly_one_of_broker_and_cluster_is_required(
    server: ScriptedServer, command: str, options: tuple[str, ...], why: str
) -> None:
    """As upstream since 5.4.0. Before that, one of two options was ignored."""
    result = server.run(command, *options)
    assert result.exit_code != 0 and why in result.stderr
    assert server.requests(RequestCode.GET_BROKER_CONFIG) == []


@pytest.mark.parametrize(
    ("command", "change", "read", "where"),
    [
        ("updateBrokerConfig", RequestCode.UPDATE_BROKER_CONFIG, RequestCode.GET_BROKER_CONFIG, "-b"),
        (
            "updateControllerConfig",
            RequestCode.UPDATE_CONTROLLER_CONFIG,
            RequestCode.GET_CONTROLLER_CONFIG,
            "-a",
        ),
    ],
)
def test_a_changed_setting_is_read_back(
    server: ScriptedServer, command: str, change: int, read: int, where: str
) -> None:
    settings = {"interval": "1"}

    def take(request: RemotingCommand) -> RemotingCommand:
        key, _, value = bytes(request.body or b"").decode().strip().partition("=")
        if key in settings and value.isdecimal():
            settings[key] = value
        return request.reply()

    server.answers[change] = take
    server.answers[read] = lambda request: request.reply(body=f"interval={settings['interval']}\n".encode())
    target = (command, where, server.address)
    assert server.run(*target, "-k", "interval", "-v", "7").exit_code == 0
    assert settings == {"interval": "7"}
    assert "has no setting intervall" in failure(server, *target, "-k", "intervall", "-v", "7")
    assert "still reads 7" in failure(server, *target, "-k", "interval", "-v", "soon")


def test_a_fixed_setting_says_how_it_is_changed(server: ScriptedServer) -> None:
    server.says(
        RequestCode.UPDATE_CONTROLLER_CONFIG, status=16, remark="Can not update config in black list."
    )
    said = failure(server, "updateControllerConfig", "-a", server.address, "-k", "x", "-v", "y")
    assert "by a restart only" in said


def test_a_broker_without_run_time_settings_is_reported(server: ScriptedServer) -> None:
    said = failure(server, "updateBrokerConfig", "-c", "C", "-k", "x", "-v", "y")
    assert "UPDATE_BROKER_CONFIG" in said
    assert "does not serve that request" in said


def test_the_leading_controller_removes_broker_metadata(server: ScriptedServer) -> None:
    server.says(RequestCode.CLEAN_BROKER_DATA)
    server.has_members(1, 3, 4)
    options = ("cleanBrokerMetadata", "-a", server.address, "-bn", "broker-a")
    assert as_json(server, *options, "-c", "C", "-b", "3;4") == {
        "brokerName": "broker-a",
        "brokerIds": [3, 4],
    }
    [request] = server.requests(RequestCode.CLEAN_BROKER_DATA)
    assert request.ext["brokerControllerIdsToClean"] == "3;4"
    assert request.ext["isCleanLivingBroker"] == "false"
    assert server.run(*options).exit_code == 1  # no cluster named
    assert server.run(*options, "-l", "-b", "three").exit_code == 1


def test_a_named_broker_set_overrides_the_cluster_as_upstream_does(server: ScriptedServer) -> None:
    server.has_members(1, 2)
    named = ("getSyncStateSet", "-a", server.address, "-b", "broker-a", "-c", "Elsewhere")
    assert as_json(server, *named)["brokerSets"][0]["masterId"] == 1
    assert server.requests(RequestCode.GET_BROKER_CLUSTER_INFO) == []


def test_unknown_brokers_are_not_reported_as_removed(server: ScriptedServer) -> None:
    server.says(RequestCode.CLEAN_BROKER_DATA)
    server.has_members(1, 3)
    options = ("cleanBrokerMetadata", "-a", server.address, "-c", "C", "-bn")
    assert (
        "broker-a has no broker 2, 9; getSyncStateSet"
        in server.run(*options, "broker-a", "-b", "2;3;9").stderr
    )
    assert "know no broker set broker-x" in server.run(*options, "broker-x").stderr
    assert server.requests(RequestCode.CLEAN_BROKER_DATA) == []


@pytest.mark.parametrize(("keeps", "then"), [("false", "is removed when"), ("true", "stays there")])
def test_a_resync_reports_where_the_old_store_is_moved(server: ScriptedServer, keeps: str, then: str) -> None:
    fields = {"brokerId": "3", "folder": "aside-20261122T210703.125Z", "logBytes": "77", "keeps": keeps}
    server.says(RequestCode.RESYNC_BROKER, ext=fields)
    shown = server.run("resyncBroker", "-b", server.address, "-d").stdout
    assert "broker 3" in shown and "would start empty" in shown and "aside-2026" in shown and then in shown
    assert as_json(server, "resyncBroker", "-b", server.address)["logBytes"] == 77
    asked = [request.ext["dryRun"] for request in server.requests(RequestCode.RESYNC_BROKER)]
    assert asked == ["true", "false"]


def test_json_reports_a_failure_too(server: ScriptedServer) -> None:
    result = server.run("topicStatus", "-t", "T", "--json")
    assert result.exit_code == 1
    assert "GET_TOPIC_STATS_INFO" in json.loads(result.stdout)["error"]
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("deleteExpiredCommitLog", RequestCode.DELETE_EXPIRED_COMMITLOG),
        ("cleanExpiredCQ", RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE),
    ],
)
def test_expired_files_are_deleted_on_every_replica(
    server: ScriptedServer, command: str, code: RequestCode
) -> None:
    server.answers[code] = lambda request: request.reply()
    for options in ([], ["-c", "C"], ["-b", server.address]):
        server.asked.clear()
        assert server.run(command, *options).stdout == "success\n"
        assert code in [request.code for request in server.asked]
    assert as_json(server, command, "-b", server.address) == {"brokers": [server.address]}


def test_a_broker_that_cannot_delete_expired_files_is_reported(server: ScriptedServer) -> None:
    assert "does not serve that request" in failure(server, "deleteExpiredCommitLog", "-c", "C")
