"""One broker set of a Java broker and ours, each in turn its master; `scripts/interop` runs longer."""

from __future__ import annotations

import asyncio
import random
import re
from functools import partial
from pathlib import Path

import pytest

from localcluster.drill import DrillFailed, elect_another, other_members
from localcluster.history import Verdict, judge
from localcluster.load import SteadyLoad, read_back
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqclient.client import Client
from mqruntime.clock import SystemClock
from scripts.peers.fleet import Fleet, fleet_missing
from scripts.peers.mixes import TOPIC, failovers, mqadmin, under_load
from scripts.peers.waits import WAIT_MS

pytestmark = [pytest.mark.skipif(fleet_missing() is not None, reason=str(fleet_missing()))]

SET = ("broker-0", "broker-1")
LATE = {
    "checkSyncStateSetPeriod": "1000",
    "haMaxTimeSlaveNotCatchup": "3000",
    "haHousekeepingInterval": str(WAIT_MS),
}
"""Broker settings: a paused slave leaves the SyncStateSet because it lags, not because its idle connection
was closed."""
ALONE = 20
"""Acknowledgements that a master gives while it is alone, as contract B allows."""
MEMBER = re.compile(r"^InSyncReplica:\t.*?(127\.0\.0\.1:\d+)", re.MULTILINE)


def test_a_java_broker_and_ours_in_one_set_are_masters_in_turn_without_loss(
    tmp_path: Path,
) -> None:
    with Fleet.made(tmp_path / "fleet", java=["broker-0"], contract="B") as fleet:
        fleet.start()
        asyncio.run(fleet.wait_whole(timeout_ms=WAIT_MS))
        outcome = asyncio.run(failovers(fleet, 3, facts=True))
        fleet.kill(["broker-0"])
    assert outcome.verdict.faults == []
    assert outcome.verdict.acknowledged > 100
    assert set(outcome.masters) == {"broker-0", "broker-1"}


@pytest.mark.parametrize(
    ("controllers", "pauses"),
    [((), True), (("controller-0",), False)],
    ids=["our_controller", "javas_controller"],
)
@pytest.mark.long
def test_a_set_of_a_java_broker_and_ours_shrinks_and_recovers_under_either_master(
    tmp_path: Path, controllers: tuple[str, ...], pauses: bool
) -> None:
    java = ["broker-0", *controllers]
    with Fleet.made(tmp_path / "fleet", java=java, contract="B", **LATE) as fleet:
        fleet.start()
        verdicts = asyncio.run(shrunk_in_turn(fleet, pauses=pauses))
        fleet.kill(["broker-0"])
    assert [verdict.faults for verdict in verdicts] == [[], []]
    assert verdicts[0].acknowledged >= 2 * ALONE


async def shrunk_in_turn(fleet: Fleet, *, pauses: bool) -> list[Verdict]:
    """Under load each is master while the other is killed, and with `pauses` before that while it is paused.
    Both are read back."""
    judged: list[Verdict] = []
    await fleet.wait_whole(timeout_ms=WAIT_MS)
    async with under_load(fleet, 1, judged) as load:
        for master, slave in (SET, SET[::-1]):
            await leads(fleet, master)
            if pauses:
                fleet.pause(slave)
                await alone(fleet, master, load)
                fleet.resume(slave)
                await whole(fleet)
            fleet.kill([slave])
            await alone(fleet, master, load)
            fleet.start([slave])
            await whole(fleet)
    await leads(fleet, SET[0])
    async with Client(fleet.layout.namesrv, clock=SystemClock(), random=random.Random(2)) as reader:
        found = await read_back(reader.consumer("MixedReaders"), TOPIC, load.attempts, WAIT_MS)
    return [*judged, judge(load.attempts, found)]


async def leads(fleet: Fleet, name: str) -> None:
    """Waits until the set is in sync with `name` as its master."""

    async def probe() -> None:
        state = await fleet.wait_whole(timeout_ms=WAIT_MS)
        if fleet.layout.name_of(state.master_address or "") == name:
            return
        try:
            await elect_another(fleet, other_members(state)[0])
        except DrillFailed as error:
            raise NotYet(str(error)) from error
        raise NotYet(f"{state.master_address} was master")

    await wait_for(f"{name} is master", probe, WAIT_MS)


async def alone(fleet: Fleet, name: str, load: SteadyLoad) -> None:
    """Waits until mqadmin shows `name` as the only member and it acknowledges new sends."""
    await wait_for(f"{name} is alone", partial(shown, fleet, {name}), WAIT_MS)
    assert await load.acknowledged_after(SystemClock().now_ms(), WAIT_MS, ALONE)


async def whole(fleet: Fleet) -> None:
    await wait_for("both are in the set", partial(shown, fleet, {*SET}), WAIT_MS)


async def shown(fleet: Fleet, wanted: set[str]) -> None:
    """Raises NotYet if the controller or mqadmin has others in the SyncStateSet."""
    admin = AdminClient(SystemClock())
    try:
        state = await fleet.sync_state(admin)
    finally:
        await admin.close()
    if {fleet.layout.name_of(replica.address) for replica in state.in_sync} != wanted:
        raise NotYet(str(state))
    text = await mqadmin(fleet, "-a", fleet.layout.controller_list, "getSyncStateSet", "-b", "broker-a")
    if {fleet.layout.name_of(address) for address in MEMBER.findall(text)} != wanted:
        raise NotYet(text)
