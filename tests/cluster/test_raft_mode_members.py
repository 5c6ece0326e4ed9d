"""Members of a Raft-mode set that are added, removed and replaced while clients send."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from broker.role.membership import ReplicaRole
from dledger.client import DLedgerClient, Refused
from mqclient.errors import SendOutcomeUnknown, SendRefused
from simulation.kernel.node import Node
from simulation.kernel.world import World
from tests.cluster.groupset import MEMBERS, GroupSet, started

CATCH_UP_MS = 30_000
FOURTH = "10.0.2.4:40911"


@pytest.fixture
def world() -> Iterator[World]:
    with World(29) as world:
        yield world


def operated(group: GroupSet, act: Callable[[DLedgerClient], Awaitable[Any]]) -> Any:
    """The result of `act` with an operator's client that knows the first peer list."""

    async def run() -> Any:
        async with group.client() as client:
            return await act(DLedgerClient(MEMBERS, "broker-a", client.remoting, timeout_ms=3_000))

    return group.run(run())


class Sending:
    """Sends until it is stopped; `acknowledged` has the bodies of acknowledged sends."""

    def __init__(self, group: GroupSet) -> None:
        self.group = group
        self.acknowledged: list[bytes] = []
        self._stopped = False

    async def run(self) -> None:
        async with self.group.client() as client:
            producer = client.producer("producers")
            for number in range(100_000):
                if self._stopped:
                    return
                body = b"under way %d" % number
                try:
                    await producer.send("orders", body)
                    self.acknowledged.append(body)
                except (SendRefused, SendOutcomeUnknown):
                    pass
                await asyncio.sleep(0.02)

    def stop(self) -> None:
        self._stopped = True


def under_load(group: GroupSet, act: Callable[[DLedgerClient], Awaitable[None]]) -> list[bytes]:
    """Sends during and after `act`, and returns the acknowledged bodies."""
    sending = Sending(group)

    async def run() -> None:
        task = asyncio.create_task(sending.run())
        await asyncio.sleep(0.5)
        async with group.client() as client:
            await act(DLedgerClient(MEMBERS, "broker-a", client.remoting, timeout_ms=3_000))
        await asyncio.sleep(1)
        sending.stop()
        await task

    group.run(run())
    assert len(sending.acknowledged) > 20
    return sending.acknowledged


def removed_from(group: GroupSet, node: Node) -> str:
    """Removes the node from the list of brokers, and returns its member id."""
    member = f"n{node.name.rpartition('-')[2]}"
    group.brokers = [each for each in group.brokers if each is not node]
    return member


@pytest.mark.parametrize("leads", [False, True])
def test_a_dead_member_is_replaced_under_load_and_nothing_is_lost(world: World, leads: bool) -> None:
    group = started(world)
    dead = group.master if leads else group.slaves[0]
    dead.kill()
    dead.disk.wipe()
    group.wait_for_master()
    gone = removed_from(group, dead)
    present = {member: address for member, address in MEMBERS.items() if member != gone}

    async def replace(operator: DLedgerClient) -> None:
        await operator.remove(gone)
        group.start_newcomer(3, present)
        result = await operator.add("n3", FOURTH, CATCH_UP_MS)
        assert sorted(result["after"]["voters"]) == sorted([*present, "n3"])

    acknowledged = under_load(group, replace)
    world.run_until(group.caught_up, 30_000)
    newcomer = group.brokers[-1]
    assert group.app(newcomer).membership.role is ReplicaRole.SLAVE
    assert group.app(newcomer).membership.broker_id == 4
    group.master.kill()  # a majority needs the new member now
    group.wait_for_master()
    assert set(acknowledged) <= {*group.bodies()}


def test_a_set_grows_and_shrinks_and_its_members_start_with_their_old_lists(world: World) -> None:
    group = started(world)
    former = group.master

    async def change(operator: DLedgerClient) -> None:
        group.start_newcomer(3, MEMBERS)
        await operator.add("n3", FOURTH, CATCH_UP_MS)
        await operator.remove(f"n{group.brokers.index(former)}")  # the leader hands over first

    acknowledged = under_load(group, change)
    assert group.master is not former
    world.run_for_ms(15_000)
    assert group.app(former).ha.address == f"{former.host}:40911"  # it still runs, and reports its address
    world.run(former.stop())
    removed_from(group, former)
    world.run_until(group.caught_up, 30_000)
    fourth = group.brokers[-1]
    for node in group.brokers:
        node.kill()
    for node in group.brokers:
        changed: dict[str, Any] = {}
        if node is fourth:
            changed = {"dLegerPeers": ";".join(f"{m}-{a}" for m, a in {**MEMBERS, "n3": FOURTH}.items())}
        group.start(node, dLegerSelfId=f"n{node.name.rpartition('-')[2]}", **changed)
    group.wait_for_master()
    assert set(acknowledged) <= {*group.bodies()}
    world.run_until(group.caught_up, 30_000)


@pytest.mark.parametrize("newcomer_leads", [False, True])
def test_an_emptied_member_rejoins_with_an_outdated_peer_list(world: World, newcomer_leads: bool) -> None:
    group = started(world)
    dead = group.slaves[0]
    dead.kill()
    gone = removed_from(group, dead)
    present = {member: address for member, address in MEMBERS.items() if member != gone}

    async def replace(operator: DLedgerClient) -> None:
        await operator.remove(gone)
        group.start_newcomer(3, present)
        await operator.add("n3", FOURTH, CATCH_UP_MS)

    acknowledged = under_load(group, replace)
    newcomer = group.brokers[-1]
    if newcomer_leads:
        operated(group, lambda operator: operator.transfer("n3"))
        world.run_until(lambda: group.masters == [newcomer], 20_000)
    emptied = next(node for node in group.brokers if node not in (group.master, newcomer))
    emptied.kill()
    emptied.disk.wipe()
    world.run_for_ms(3_000)
    group.start(emptied, dLegerSelfId=f"n{emptied.name.rpartition('-')[2]}")
    world.run_until(group.caught_up, 60_000)
    world.run_for_ms(3_000)
    group.master.kill()
    group.wait_for_master()
    assert set(acknowledged) <= {*group.bodies()}


def test_a_new_member_copies_a_log_whose_start_was_moved_by_retention(world: World) -> None:
    retention = {
        "fileReservedSeconds": 5,
        "deleteWhen": ";".join(f"{hour:02d}" for hour in range(24)),
        "cleanResourceInterval": 500,
    }
    group = started(world, **retention)
    for number in range(4):
        group.run(group.send_all([b"%d %d " % (number, nth) + b"x" * 300 for nth in range(200)]))
        world.run_for_ms(3_000)
    world.run_until(lambda: group.app(group.master).store.min_offset() > 0, 30_000)
    newcomer = group.start_newcomer(3, MEMBERS)
    others = [f"n{number}-{host}" for number, host in enumerate([*MEMBERS.values(), FOURTH])]

    async def add(operator: DLedgerClient) -> None:
        adding = asyncio.create_task(operator.add("n3", FOURTH, CATCH_UP_MS))
        while not adding.done():
            await asyncio.sleep(0.1)
            if not newcomer.running:  # it stopped to replace its log by that of another member
                assert newcomer.failure is None
                group.start(newcomer, dLegerSelfId="n3", dLegerPeers=";".join(others))
        await adding

    operated(group, add)
    group.run(group.send_all([b"at the end"]))
    world.run_until(group.caught_up, 30_000)
    assert newcomer.incarnation == 2
    assert group.app(newcomer).store.min_offset() > 0
    assert group.app(newcomer).store.queue_offset_skips() == 0


@pytest.mark.parametrize(
    ("member", "why"),
    [
        ("x1", "n1 and x1 would be one broker, 2"),
        ("fourth", "no id of a broker"),
        ("3n", "no id of a broker"),
    ],
)
def test_a_member_id_without_a_unique_broker_id_is_refused(world: World, member: str, why: str) -> None:
    group = started(world)

    async def add(operator: DLedgerClient) -> None:
        with pytest.raises(Refused, match=why) as refused:
            await operator.add(member, FOURTH, CATCH_UP_MS)
        assert refused.value.why == "BAD_ID"

    operated(group, add)
    world.run_for_ms(2_000)
    assert group.has_master()
