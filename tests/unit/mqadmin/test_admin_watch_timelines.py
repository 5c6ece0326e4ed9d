"""Elections as controllers report them: joined, drawn in 80 columns, kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from mqadmin.admin import AdminClient
from mqadmin.watch.gather import Gatherer
from mqadmin.watch.story import Story
from mqadmin.watch.timelines import fullest, joined
from mqadmin.watch.view import View, WatchedElection
from mqruntime.clock import SystemClock
from remoting.bodies.elections import Election
from remoting.codes import RequestCode
from tests.unit.mqadmin.watchscene import ADDRESSES, NOON_MS, broker_set, drawn, member

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer


def lost(epoch: int, old: int | None, new: int | None, at_ms: int, **more: Any) -> Election:
    """Detected at `at_ms`, elected 12 ms later."""
    return Election(epoch, old, new, "connection lost", at_ms - 400, at_ms, at_ms, at_ms + 12, **more)


def test_timelines_fit_80_columns_with_any_figures() -> None:
    days_ago = NOON_MS - 3 * 86_400_000
    reported = {
        one.epoch: one
        for one in (
            Election(1, None, 1, "first election"),
            Election(2, 1, 2, "operator asked", None, None, days_ago, days_ago + 3),
            lost(3, 2, 1, NOON_MS - 90_000, notified_ms=NOON_MS - 89_987, writable_ms=NOON_MS - 89_905),
            replace(lost(4, 1, None, NOON_MS - 10_000), reason="heartbeat lost", heard_ms=NOON_MS - 20_001),
            Election(
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
    row = broker_set(1, 5, member(1), member(2), elections=joined((), reported))
    lines = drawn(View(NOON_MS + 3_000, (), (row,)))
    start = next(index for index, line in enumerate(lines) if line.startswith("epoch"))
    assert lines[start:] == [
        "epoch  when            master  silent  elected  sent  writable  why",
        "─" * 80,
        "    5  12:00:00.000    -> 3                 +4    +5     +2345  no master,",
        "                                                                unclean",
        "    4  11:59:50.000    1 ->     10001      +12                  heartbeat lost",
        "    3  11:58:30.000    2 -> 1     400      +12   +13       +95  connection lost",
        "    2  11-18 12:00:00  1 -> 2               +3                  operator asked",
        "    1  -               -> 1                                     first election",
    ]
    assert lines[1] == "master since 11-21 12:00:02 (0 s); heartbeat lost in epoch 4"


def test_a_set_without_master_shows_since_when_and_why() -> None:
    row = broker_set(None, 4, member(1), elections=joined((), {4: lost(4, 1, None, NOON_MS)}))
    lines = drawn(View(NOON_MS + 5_000, (), (row,)))
    assert lines[0].endswith("NO MASTER, epoch 4")
    assert lines[1] == "nobody since 11-21 12:00:00 (4 s); connection lost"


def test_elections_of_several_sets_are_listed_under_their_names() -> None:
    one = broker_set(1, 1, member(1), elections=(WatchedElection(1),))
    lines = drawn(View(NOON_MS, (), (one, replace(one, broker_name="broker-b"))))
    assert lines.index("broker-a") < lines.index("broker-b")


def test_each_election_is_taken_from_the_controller_with_most_details() -> None:
    leader = [lost(2, 1, 2, 5_000, notified_ms=5_013, writable_ms=5_095), Election(3, 2, 1)]
    follower = [
        Election(1, None, 1, "first election"),
        Election(2, 1, 2, elected_ms=5_020),
        lost(3, 2, 1, 9_000),
    ]
    assert fullest([leader, follower]) == {1: follower[0], 2: leader[0], 3: follower[2]}
    assert fullest([follower, leader]) == fullest([leader, follower])
    assert fullest([]) == {}


def test_reported_elections_are_joined_with_the_epochs_in_the_log() -> None:
    logged = (WatchedElection(4, 100, 200, 7, ADDRESSES[0]), WatchedElection(2, 0, 100, 5, ADDRESSES[1]))
    reported = {
        epoch: lost(epoch, 1, 2, epoch * 1000, writable_ms=epoch * 1000 + 50) for epoch in range(3, 14)
    }
    rows = joined(logged, reported)
    assert [row.epoch for row in rows] == list(range(13, 3, -1))
    last = rows[-1]
    assert (last.start_offset, last.first_message_ms, last.at_ms, last.why) == (
        100,
        7,
        4_050,
        "connection lost",
    )
    assert last.reported == reported[4]
    assert joined(logged, {}) == logged


def test_a_reported_reason_overrides_an_observed_one() -> None:
    story = Story()
    story.goes_on(broker_set(1, 4, member(1), member(2)), 10)
    elections = joined((), {5: Election(5, 1, 2, "operator asked")})
    look = story.goes_on(broker_set(2, 5, member(1, alive=False), member(2), elections=elections), 20)
    assert look.elections[0].why == "operator asked"


def test_elections_reported_by_controllers_are_shown_with_epochs_of_the_log(leads: ScriptedServer) -> None:
    reported = lost(3, 2, 1, NOON_MS, notified_ms=NOON_MS + 13, writable_ms=NOON_MS + 95)
    body = {"electionsTable": {"broker-a": [Election(2, 1, 2).to_json(), reported.to_json()]}}
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": leads.address, "isLeader": "true"}
    leads.says(RequestCode.CONTROLLER_GET_METADATA_INFO, body, ext=ext)
    result = leads.run("watch", "--once")
    assert result.exit_code == 0, result.stderr
    assert "2 -> 1     400      +12   +13       +95  connection lost" in result.stdout
    assert json.loads(bytes(leads.requests(RequestCode.CONTROLLER_GET_METADATA_INFO)[0].body or b"")) == [
        "broker-a"
    ]
    [seen] = json.loads(leads.run("watch", "--json").stdout)["view"]["sets"]
    newest, older = seen["elections"]
    assert newest["reported"] == {"reason": "connection lost"} | {
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
    assert (older["reported"]["newMasterId"], older["startOffset"], older["why"]) == (2, None, None)


def test_a_live_view_keeps_elections_after_controllers_fall_silent(leads: ScriptedServer) -> None:
    reported = lost(3, 2, 1, NOON_MS, writable_ms=NOON_MS + 95)
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": leads.address, "isLeader": "true"}
    body = {"electionsTable": {"broker-a": [reported.to_json(), Election(9, 1, 2).to_json()]}}
    leads.says(RequestCode.CONTROLLER_GET_METADATA_INFO, body, ext=ext)

    async def looks() -> list[View]:
        client = AdminClient(SystemClock())
        gatherer = Gatherer(client, leads.address, ["broker-a"], leads.address)
        try:
            first = await gatherer.look()
            leads.says(RequestCode.CONTROLLER_GET_METADATA_INFO, status=1, remark="no more")
            return [first, await gatherer.look()]
        finally:
            await client.close()

    heard, silent = asyncio.run(looks())
    assert [one.reported for one in heard.sets[0].elections] == [reported], (
        "9 is above the set's epoch: another set's"
    )
    assert [one.reported for one in silent.sets[0].elections] == [reported]
    assert silent.trouble == "no controller answers: do they run, are the addresses right?"
