"""The live view: what it makes of what servers tell, and how it looks in 80 columns."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from mqadmin.watch.screen import screen, span
from mqadmin.watch.story import Story, reason
from mqadmin.watch.timelines import ELECTIONS_MAX, fullest, joined
from mqadmin.watch.view import BrokerView, ControllerView, Election, SetView, View
from remoting.bodies.elections import Election as Told
from remoting.codes import RequestCode

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

VECTORS = Path(__file__).parents[2] / "vectors" / "config"
RECORD = bytes.fromhex(json.loads((VECTORS / "replies.json").read_text())["queryMsgById"][0]["body_hex"])
NOON_MS = 1795262400000  # 2026-11-21 12:00:00
ADDRESSES = ("192.168.100.201:10911", "192.168.100.202:10911", "192.168.100.203:10911")


def member(broker_id: int, **more: Any) -> BrokerView:
    own: dict[str, Any] = {"role": "slave", "epoch": 4, "max_offset": 10**12, "alive": True, "in_sync": True}
    return BrokerView(ADDRESSES[broker_id - 1], broker_id, **own | more)


def broker_set(master: int | None, epoch: int | None, *members: BrokerView, **more: Any) -> SetView:
    address = None if master is None else ADDRESSES[master - 1]
    return SetView("broker-a", "DefaultCluster", master, address, epoch, 7, members, **more)


def drawn(view: View) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(screen(view, UTC))
    output = console.file
    assert isinstance(output, io.StringIO)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def test_a_master_that_went_silent_was_lost_and_one_that_lives_handed_over() -> None:
    before = broker_set(1, 4, member(1), member(2))
    assert reason(before, broker_set(2, 5, member(1, alive=False), member(2))) == "broker 1 was lost"
    assert reason(before, broker_set(2, 5, member(1, trouble="refused"), member(2))) == "broker 1 was lost"
    assert reason(before, broker_set(2, 5, member(2))) == "broker 1 was lost"
    assert reason(before, broker_set(2, 5, member(1), member(2))) == "handed over by 1"
    assert reason(before, broker_set(1, 5, member(1), member(2))) == "the same broker again"
    assert reason(before, broker_set(None, 5, member(1))) == "nobody fit was alive"
    assert reason(broker_set(None, 5, member(1)), before) == "there was no master"


def test_why_is_said_only_of_elections_that_were_seen() -> None:
    story = Story()
    logged = (Election(4, 100, 200, first_message_ms=5, master=ADDRESSES[0]),)
    first = story.goes_on(broker_set(1, 4, member(1), member(2), elections=logged), 10)
    assert first.elections == logged
    unheard = story.goes_on(broker_set(None, None, member(1), elections=logged), 20)
    assert unheard.elections == logged
    later = story.goes_on(broker_set(2, 6, member(1), member(2), elections=logged), 30)
    assert later.elections[0] == Election(6, master=ADDRESSES[1], at_ms=30, why="handed over by 1")
    in_its_log = (Election(6, 200, 300, at_ms=29), *logged)
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
        Election(epoch, 10**11 * epoch, 10**11 * (epoch + 1), NOON_MS, ADDRESSES[0])
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


def test_a_set_without_master_or_controllers_is_drawn_as_such() -> None:
    nobody = drawn(View(NOON_MS, (), (broker_set(None, 5, member(1)),)))
    assert nobody[0].endswith("NO MASTER, epoch 5")
    unheard = drawn(
        View(NOON_MS, (), (broker_set(None, None, member(1, in_sync=None)),), "no controller leads")
    )
    assert unheard[0] == "no controller leads"
    assert unheard[1].endswith("master not known, no controller tells")


def lost(epoch: int, old: int | None, new: int | None, at_ms: int, **more: Any) -> Told:
    """Noticed at `at_ms`, elected 12 ms later."""
    return Told(epoch, old, new, "connection lost", at_ms - 400, at_ms, at_ms, at_ms + 12, **more)


def test_timelines_are_told_in_80_columns_whatever_the_figures() -> None:
    days_ago = NOON_MS - 3 * 86_400_000
    told = {
        one.epoch: one
        for one in (
            Told(1, None, 1, "first election"),
            Told(2, 1, 2, "operator asked", None, None, days_ago, days_ago + 3),
            lost(3, 2, 1, NOON_MS - 90_000, notified_ms=NOON_MS - 89_987, writable_ms=NOON_MS - 89_905),
            replace(lost(4, 1, None, NOON_MS - 10_000), reason="heartbeat lost", heard_ms=NOON_MS - 20_001),
            Told(
                5,
                None,
                3,
                "no master, unclean",
                None,
                None,
                NOON_MS,
                NOON_MS + 4,
                NOON_MS + 5,
                NOON_MS + 2_345,
            ),
        )
    }
    row = broker_set(1, 5, member(1), member(2), elections=joined((), told))
    lines = drawn(View(NOON_MS + 3_000, (), (row,)))
    start = next(index for index, line in enumerate(lines) if line.startswith("epoch"))
    assert lines[start:] == [
        "epoch  when            master  silent  elected  told  writable  why",
        "─" * 80,
        "    5  12:00:00.000    -> 3                 +4    +5     +2345  no master,",
        "                                                                unclean",
        "    4  11:59:50.000    1 ->     10001      +12                  heartbeat lost",
        "    3  11:58:30.000    2 -> 1     400      +12   +13       +95  connection lost",
        "    2  11-18 12:00:00  1 -> 2               +3                  operator asked",
        "    1  -               -> 1                                     first election",
    ]
    assert lines[1] == "master since 11-21 12:00:02 (0 s); heartbeat lost in epoch 4"


def test_a_set_that_lost_its_master_says_since_when_and_why() -> None:
    row = broker_set(None, 4, member(1), elections=joined((), {4: lost(4, 1, None, NOON_MS)}))
    lines = drawn(View(NOON_MS + 5_000, (), (row,)))
    assert lines[0].endswith("NO MASTER, epoch 4")
    assert lines[1] == "nobody since 11-21 12:00:00 (4 s); connection lost"


def test_elections_of_several_sets_stand_under_their_names() -> None:
    one = broker_set(1, 1, member(1), elections=(Election(1),))
    lines = drawn(View(NOON_MS, (), (one, replace(one, broker_name="broker-b"))))
    assert lines.index("broker-a") < lines.index("broker-b")


def test_each_election_is_told_by_the_controller_that_knows_most_of_it() -> None:
    leader = [lost(2, 1, 2, 5_000, notified_ms=5_013, writable_ms=5_095), Told(3, 2, 1)]
    follower = [Told(1, None, 1, "first election"), Told(2, 1, 2, elected_ms=5_020), lost(3, 2, 1, 9_000)]
    assert fullest([leader, follower]) == {1: follower[0], 2: leader[0], 3: follower[2]}
    assert fullest([follower, leader]) == fullest([leader, follower])
    assert fullest([]) == {}


def test_told_elections_are_joined_with_the_epochs_in_the_log() -> None:
    logged = (Election(4, 100, 200, 7, ADDRESSES[0]), Election(2, 0, 100, 5, ADDRESSES[1]))
    told = {epoch: lost(epoch, 1, 2, epoch * 1000, writable_ms=epoch * 1000 + 50) for epoch in range(3, 14)}
    rows = joined(logged, told)
    assert [row.epoch for row in rows] == list(range(13, 3, -1))
    last = rows[-1]
    assert (last.start_offset, last.first_message_ms, last.at_ms, last.why) == (
        100,
        7,
        4_050,
        "connection lost",
    )
    assert last.told == told[4]
    assert joined(logged, {}) == logged


def test_what_was_told_counts_more_than_what_was_seen() -> None:
    story = Story()
    story.goes_on(broker_set(1, 4, member(1), member(2)), 10)
    elections = joined((), {5: Told(5, 1, 2, "operator asked")})
    look = story.goes_on(broker_set(2, 5, member(1, alive=False), member(2), elections=elections), 20)
    assert look.elections[0].why == "operator asked"


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


def says_as_broker(server: ScriptedServer, role_id: int, max_offset: int) -> None:
    info = {"confirmOffset": "850", "roleSinceTimestamp": str(NOON_MS)}
    server.says(RequestCode.GET_BROKER_RUNTIME_INFO, {"table": info})
    spans = [{"epoch": 3, "startOffset": 832, "endOffset": 2**63 - 1}]
    told = {"clusterName": "C", "brokerName": "broker-a", "brokerId": role_id, "maxOffset": max_offset}
    server.says(RequestCode.GET_BROKER_EPOCH_CACHE, told | {"epochList": spans})
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    server.says(RequestCode.GET_BROKER_CONFIG, f"controllerAddr={server.address}\n".encode())


@pytest.fixture
def leads(server: ScriptedServer, another_server: ScriptedServer) -> ScriptedServer:
    """Controller leader and master in one; the other server is a slave that lacks 50 bytes of the log."""
    rows = [
        {"brokerName": "broker-a", "brokerId": number, "brokerAddress": address, "alive": True}
        for number, address in ((1, server.address), (2, another_server.address))
    ]
    state = {
        "masterBrokerId": 1,
        "masterAddress": server.address,
        "masterEpoch": 3,
        "syncStateSetEpoch": 8,
        "inSyncReplicas": rows[:1],
        "notInSyncReplicas": rows[1:],
    }
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": server.address, "isLeader": "true"}
    server.says(RequestCode.CONTROLLER_GET_METADATA_INFO, ext=ext)
    server.says(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {"replicasInfoTable": {"broker-a": state}})
    says_as_broker(server, role_id=0, max_offset=900)
    says_as_broker(another_server, role_id=2, max_offset=850)
    return server


def test_one_look_asks_everybody_and_shows_it(leads: ScriptedServer) -> None:
    server = leads
    result = server.run("watch", "--once")
    assert result.exit_code == 0, result.stderr
    assert f"master 1 {server.address}, epoch 3" in result.stdout
    told = json.loads(server.run("watch", "-a", server.address, "-b", "broker-a", "--json").stdout)["view"]
    [seen] = told["sets"]
    assert seen["syncStateSetEpoch"] == 8
    master, slave = seen["brokers"]
    assert (master["role"], master["lagBytes"], master["lagMs"]) == ("master", 0, 0)
    assert (slave["role"], slave["lagBytes"], slave["lagMs"] > 0) == ("slave", 50, True)
    [election] = seen["elections"]
    assert (election["epoch"], election["startOffset"], election["atMs"]) == (3, 832, NOON_MS)
    assert (election["firstMessageMs"], election["master"]) == (1795256518551, server.address)
    assert told["controllers"][0]["isLeader"] is True


def test_without_a_leading_controller_the_brokers_are_shown_and_the_look_fails(
    leads: ScriptedServer,
) -> None:
    server = leads
    server.says(RequestCode.CONTROLLER_GET_METADATA_INFO, ext={"isLeader": "false"})
    result = server.run("watch", "--once")
    assert result.exit_code == 1
    assert server.address in result.stdout
    assert "no controller leads" in result.stderr


def test_watching_needs_a_terminal_and_something_to_watch(leads: ScriptedServer) -> None:
    server = leads
    assert "--once prints one look" in server.run("watch").stderr
    assert "knows no such broker set" in server.run("watch", "--once", "-b", "nope").stderr
    server.says(RequestCode.GET_BROKER_CONFIG, b"brokerName=broker-a\n")
    assert "name them with -a" in server.run("watch", "--once").stderr


def test_what_controllers_tell_of_elections_is_shown_with_what_the_log_has(leads: ScriptedServer) -> None:
    told = lost(3, 2, 1, NOON_MS, notified_ms=NOON_MS + 13, writable_ms=NOON_MS + 95)
    body = {"electionsTable": {"broker-a": [Told(2, 1, 2).to_json(), told.to_json()]}}
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": leads.address, "isLeader": "true"}
    leads.says(RequestCode.CONTROLLER_GET_METADATA_INFO, body, ext=ext)
    result = leads.run("watch", "--once")
    assert result.exit_code == 0, result.stderr
    assert "2 -> 1     400      +12   +13       +95  connection lost" in result.stdout
    assert json.loads(leads.requests(RequestCode.CONTROLLER_GET_METADATA_INFO)[0].body or b"") == ["broker-a"]
    [seen] = json.loads(leads.run("watch", "--json").stdout)["view"]["sets"]
    newest, older = seen["elections"]
    assert newest["told"] == {"reason": "connection lost"} | {
        "epoch": 3,
        "oldMasterId": 2,
        "newMasterId": 1,
        "heardMs": NOON_MS - 400,
        "noticedMs": NOON_MS,
        "proposedMs": NOON_MS,
        "electedMs": NOON_MS + 12,
        "notifiedMs": NOON_MS + 13,
        "writableMs": NOON_MS + 95,
    }
    assert (newest["startOffset"], newest["why"]) == (832, "connection lost")
    assert (older["told"]["newMasterId"], older["startOffset"], older["why"]) == (2, None, None)


def test_any_controller_that_knows_the_leader_will_do(
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
