"""The masters of many sets are lost at the same time."""

from __future__ import annotations

import asyncio
from collections import Counter

from controller.decision import Decision
from controller.events import ElectMaster
from controller.failover import LOOK_AT_ALL_EVERY_MS, LOOK_EVERY_MS, SETS_A_TURN
from controller.heartbeats import Liveness
from tests.unit.controller.guardscene import SETS, SETTINGS, Member, Scene, play


def test_elections_of_many_sets_are_proposed_in_one_batch() -> None:
    async def scenario(scene: Scene) -> None:
        scene.lead()
        await until_quiet(scene.member)
        assert scene.member.uncommitted == SETS
        scene.member.commit()
        assert scene.masters() == [2] * SETS
        assert [*scene.brokers.asked_of] == scene.names

    play(scenario)


def test_a_loop_turn_examines_and_notifies_only_a_few_sets() -> None:
    async def scenario(scene: Scene) -> None:
        looked_at, is_due = 0, scene.guard._is_due

        def looking(broker_name: str, live: Liveness) -> bool:
            nonlocal looked_at
            looked_at += 1
            return is_due(broker_name, live)

        scene.guard._is_due = looking  # type: ignore[method-assign]
        scene.guard._settings = SETTINGS.model_copy(update={"notify_broker_role_changed": True})
        scene.lead()
        before = (0, 0, 0)
        while scene.member.uncommitted < SETS or len(scene.notified) < SETS:
            await asyncio.sleep(0)
            now = (looked_at, len(scene.notified), scene.member.uncommitted)
            assert all(done - earlier <= SETS_A_TURN for done, earlier in zip(now, before, strict=True))
            before = now
        assert looked_at == len(scene.notified) == SETS

    play(scenario)


def test_sets_with_a_master_are_examined_less_often_than_those_without() -> None:
    async def scenario(scene: Scene) -> None:
        led, unled = scene.names[2], scene.names[3]
        for name in scene.names:
            if name != unled:
                scene.brokers.hear(1, [name])
        scene.brokers.lose(2, [unled])
        scene.state.apply(ElectMaster(unled, None))
        looked_at, is_due = Counter[str](), scene.guard._is_due

        def looking(broker_name: str, live: Liveness) -> bool:
            looked_at[broker_name] += 1
            return is_due(broker_name, live)

        scene.guard._is_due = looking  # type: ignore[method-assign]
        scene.lead()
        for _ in range(20):
            scene.clock.ms += LOOK_EVERY_MS
            scene.guard.changed("unknown")  # the test's clock wakes no task
            for _ in range(20):
                await asyncio.sleep(0)
        assert looked_at[unled] >= 20
        assert looked_at[led] <= 2 + 20 * LOOK_EVERY_MS // LOOK_AT_ALL_EVERY_MS

    play(scenario)


def test_a_slow_election_of_one_set_does_not_delay_others() -> None:
    async def scenario(scene: Scene) -> None:
        stuck, lost_later = scene.names[0], scene.names[1]
        hangs = asyncio.create_task(
            scene.runner.run(stuck, lambda state, live: Decision(events=(ElectMaster(stuck, 2),)))
        )
        scene.brokers.hear(1, [lost_later])
        await asyncio.sleep(0)
        held, scene.member.uncommitted_now = scene.member.uncommitted_now, []
        scene.lead()
        await until_quiet(scene.member)
        scene.member.commit()
        assert scene.masters() == [1, 1] + [2] * (SETS - 2), (
            "all but the waiting one and the one with a live master"
        )
        scene.brokers.lose(1, [lost_later])
        scene.guard.changed(lost_later)
        await until_quiet(scene.member)
        scene.member.commit()
        assert scene.masters() == [1] + [2] * (SETS - 1)
        scene.member.uncommitted_now = held
        scene.member.commit()
        await hangs

    play(scenario)


async def until_quiet(member: Member) -> None:
    """Wait until every proposal that needs no commit has been made."""
    before = -1
    while member.uncommitted != before or not before:
        before = member.uncommitted
        for _ in range(5):
            await asyncio.sleep(0)
