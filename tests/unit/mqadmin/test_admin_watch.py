"""The live view: its state from the answers of servers, and its layout in 80 columns."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from mqadmin.watch.screen import span
from mqadmin.watch.story import Story, reason
from mqadmin.watch.timelines import ELECTIONS_MAX
from mqadmin.watch.view import ControllerView, View, WatchedElection
from remoting.codes import RequestCode
from tests.unit.mqadmin.watchscene import ADDRESSES, NOON_MS, broker_set, drawn, member

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer


def test_a_silent_former_master_was_lost_and_a_live_one_handed_over() -> None:
    before = broker_set(1, 4, member(1), member(2))
    assert reason(before, broker_set(2, 5, member(1, alive=False), member(2))) == "broker 1 was lost"
    assert reason(before, broker_set(2, 5, member(1, trouble="refused"), member(2))) == "broker 1 was lost"
    assert reason(before, broker_set(2, 5, member(2))) == "broker 1 was lost"
    assert reason(before, broker_set(2, 5, member(1), member(2))) == "handed over by 1"
    assert reason(before, broker_set(1, 5, member(1), member(2))) == "the same broker again"
    assert reason(before, broker_set(None, 5, member(1))) == "nobody fit was alive"
    assert reason(broker_set(None, 5, member(1)), before) == "there was no master"


def test_a_reason_is_given_only_for_observed_elections() -> None:
    story = Story()
    logged = (WatchedElection(4, 100, 200, first_message_ms=5, master=ADDRESSES[0]),)
    first = story.goes_on(broker_set(1, 4, member(1), member(2), elections=logged), 10)
    assert first.elections == logged
    unheard = story.goes_on(broker_set(None, None, member(1), elections=logged), 20)
    assert unheard.elections == logged
    later = story.goes_on(broker_set(2, 6, member(1), member(2), elections=logged), 30)
    assert later.elections[0] == WatchedElection(6, master=ADDRESSES[1], at_ms=30, why="handed over by 1")
    in_its_log = (WatchedElection(6, 200, 300, at_ms=29), *logged)
    again = story.goes_on(broker_set(2, 6, member(1), member(2), elections=in_its_log), 40)
    seen = again.elections[0]
    assert (seen.start_offset, seen.at_ms, seen.why) == (200, 29, "handed over by 1")


def test_ten_elections_are_remembered() -> None:
    story = Story()
    for epoch in range(1, 30):
        look = story.goes_on(broker_set(epoch % 2 + 1, epoch, member(1), member(2)), epoch)
    assert [one.epoch for one in look.elections] == list(range(29, 29 - ELECTIONS_MAX, -1))


def test_the_view_fits_80_columns_with_long_addresses_and_large_logs() -> None:
    elections = [
        WatchedElection(epoch, 10**11 * epoch, 10**11 * (epoch + 1), NOON_MS, ADDRESSES[0])
        for epoch in range(9, 0, -1)
    ]
    elections[0] = replace(elections[0], at_ms=NOON_MS, why="nobody fit was alive")
    row = broker_set(
        1,
        9,
        member(1, role="master", confirm_offset=10**12, lag_bytes=0, lag_ms=0),
        member(2, lag_bytes=10**9, lag_ms=123456, in_sync=False),
        member(3, alive=False, role=None, epoch=None, trouble="no answer", in_sync=False),
        elections=tuple(elections),
    )
    controllers = (
        ControllerView("192.168.100.101:9878", True, "n0", "192.168.100.101:9878"),
        ControllerView("192.168.100.102:9878", trouble="no answer"),
        ControllerView("192.168.100.103:9878"),
    )
    lines = drawn(View(NOON_MS + 65_000, controllers, (row,)))
    assert max(map(len, lines)) <= 80
    assert "…" not in "".join(lines)
    assert lines[0] == ("broker-a of DefaultCluster at 12:01:05: master 1 192.168.100.201:10911, epoch 9")
    assert lines[1] == "master since 11-21 12:00:00 (1 min 5 s); nobody fit was alive"
    assert lines[2] == "confirm 1000000000000, max 1000000000000; SyncStateSet [1] of 3, set epoch 7"
    text = "\n".join(lines)
    assert "1000000000  123456" in text
    assert "dead" in text
    assert "192.168.100.103:9878  follower   nobody" in text


def test_a_set_without_master_or_controllers_is_drawn() -> None:
    nobody = drawn(View(NOON_MS, (), (broker_set(None, 5, member(1)),)))
    assert nobody[0].endswith("NO MASTER, epoch 5")
    unheard = drawn(
        View(NOON_MS, (), (broker_set(None, None, member(1, in_sync=None)),), "no controller leads")
    )
    assert unheard[0] == "no controller leads"
    assert unheard[1].endswith("master not known, no controller answers")


@pytest.mark.parametrize(
    ("length_ms", "said"),
    [
        (0, "0 s"),
        (59_999, "59 s"),
        (185_000, "3 min 5 s"),
        (15_000_000, "4 h 10 min"),
        (529_200_000, "6 d 3 h"),
    ],
)
def test_spans_of_time_have_two_units(length_ms: int, said: str) -> None:
    assert span(length_ms) == said


def test_watch_once_asks_all_servers_and_shows_the_view(leads: ScriptedServer) -> None:
    server = leads
    result = server.run("watch", "--once")
    assert result.exit_code == 0, result.stderr
    assert f"master 1 {server.address}, epoch 3" in result.stdout
    view = json.loads(server.run("watch", "-a", server.address, "-b", "broker-a", "--json").stdout)["view"]
    [seen] = view["sets"]
    assert seen["syncStateSetEpoch"] == 8
    master, slave = seen["brokers"]
    assert (master["role"], master["lagBytes"], master["lagMs"]) == ("master", 0, 0)
    assert (slave["role"], slave["lagBytes"], slave["lagMs"] > 0) == ("slave", 50, True)
    [election] = seen["elections"]
    assert (election["epoch"], election["startOffset"], election["atMs"]) == (3, 832, NOON_MS)
    assert (election["firstMessageMs"], election["master"]) == (1795256518551, server.address)
    assert view["controllers"][0]["isLeader"] is True


def test_a_replaced_broker_is_dead_though_its_successor_answers_at_its_address(leads: ScriptedServer) -> None:
    """The controllers keep its id until cleanBrokerMetadata; its address now belongs to another broker."""
    server = leads
    info = {"confirmOffset": "850", "roleSinceTimestamp": str(NOON_MS), "replicaId": "3"}
    rows = [
        {"brokerName": "broker-a", "brokerId": number, "brokerAddress": server.address, "alive": number == 3}
        for number in (1, 3)
    ]
    state = {"masterBrokerId": 3, "masterAddress": server.address, "masterEpoch": 3, "syncStateSetEpoch": 8}
    table = {"broker-a": state | {"inSyncReplicas": rows[1:], "notInSyncReplicas": rows[:1]}}
    server.says(RequestCode.GET_BROKER_RUNTIME_INFO, {"table": info})
    server.says(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {"replicasInfoTable": table})
    asked = server.run("watch", "-a", server.address, "-b", "broker-a", "--json")
    gone, now = json.loads(asked.stdout)["view"]["sets"][0]["brokers"]
    assert (gone["role"], gone["alive"], gone["trouble"]) == (
        None,
        False,
        f"{server.address} is broker 3 now",
    )
    assert (now["role"], now["maxOffset"], now["lagBytes"]) == ("master", 900, 0)


def test_watch_without_a_leading_controller_shows_the_brokers_and_fails(
    leads: ScriptedServer,
) -> None:
    server = leads
    server.says(RequestCode.CONTROLLER_GET_METADATA_INFO, ext={"isLeader": "false"})
    result = server.run("watch", "--once")
    assert result.exit_code == 1
    assert server.address in result.stdout
    assert "no controller leads" in result.stderr


def test_watch_needs_a_terminal_and_an_address(leads: ScriptedServer) -> None:
    server = leads
    assert "--once prints one look" in server.run("watch").stderr
    assert "knows no such broker set" in server.run("watch", "--once", "-b", "nope").stderr
    server.says(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-a\n")
    assert "name them with -a" in server.run("watch", "--once").stderr


def test_watch_takes_the_leader_from_any_controller(
    leads: ScriptedServer, another_server: ScriptedServer
) -> None:
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": leads.address, "isLeader": "false"}
    another_server.says(RequestCode.CONTROLLER_GET_METADATA_INFO, ext=ext)
    result = leads.run("watch", "--once", "-a", another_server.address)
    assert result.exit_code == 0, result.stderr
    assert f"{another_server.address}  follower" in result.stdout
    nobody = leads.run("watch", "--once", "-a", "127.0.0.1:1")
    assert nobody.exit_code == 1
    assert "no controller answers" in nobody.stderr


def test_a_controller_leader_that_just_died_is_named(
    leads: ScriptedServer, another_server: ScriptedServer
) -> None:
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": "127.0.0.1:1", "isLeader": "false"}
    another_server.says(RequestCode.CONTROLLER_GET_METADATA_INFO, ext=ext)
    result = leads.run("watch", "--once", "-a", another_server.address)
    assert result.exit_code == 1
    assert "the leader 127.0.0.1:1 does not answer" in result.stderr
    assert "the leader 127.0.0.1:1 does not answer: the other controllers elect one" in result.stdout
