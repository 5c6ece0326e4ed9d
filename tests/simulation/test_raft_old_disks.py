"""Members of a Raft group with disks set back to earlier images; others are not slowed down."""

from __future__ import annotations

import errno
import os

import pytest

from simulation.kernel.images import image_of, restore
from simulation.kernel.node import Node
from simulation.kernel.world import World
from simulation.raft.group import RaftGroup
from tests.simulation.raftscene import commit, leader_of, others, proposing, started

OLD_MS = 6_000
"""An image must be older than this to be recognised as one (dledger.node.starts)."""


def set_back_with_those_that_lag(world: World, size: int) -> tuple[RaftGroup, Node]:
    """A bare majority has committed `X`. All died, and one of it comes back first, with an older disk."""
    group = started(world, size)
    leader, member = leader_of(group)
    old, *rest = others(group, leader)
    near, far = rest[: size // 2 - 1], rest[size // 2 - 1 :]
    commit(group, 3)
    image = image_of(old.disk)
    world.run_for_ms(OLD_MS)
    for node in (leader, old, *near):
        for other in far:
            world.network.cut(node.host, other.host)
    outcome = proposing(leader, member, b"X")
    world.run_until(lambda: bool(outcome), 2_000)
    assert not isinstance(outcome[0], Exception)
    for node in group.nodes:
        node.kill()
    world.network.heal()
    restore(old.disk, image)
    group.check.emptied(old.name)
    for node in (old, *far):
        group.start(node)
    return group, old


@pytest.mark.parametrize(("size", "seed"), [(3, 1), (3, 2), (5, 3)])
def test_a_member_with_an_older_disk_elects_no_leader_without_its_lost_entries(size: int, seed: int) -> None:
    with World(seed) as world:
        group, old = set_back_with_those_that_lag(world, size)
        world.run_for_ms(8_000)
        assert not group.active(), "the members with X are down"
        for node in group.nodes:
            if not node.running:
                group.start(node)
        world.run_until(group.agreed, 10_000)
        assert b"X" in {entry.body for entry in group.check.committed_log}
        world.run_until(lambda: counts(group, old), 3_000)
        old.kill()
        group.start(old)
        world.run_until(lambda: counts(group, old), 1_000)


def test_the_log_of_a_member_with_an_older_disk_has_a_hint(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "dledger")
    with World(4) as world:
        _, old = set_back_with_those_that_lag(world, 3)
        world.run_for_ms(1_000)
    errors = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert any(f"self={old.name} the disk of this member was set back" in line for line in errors)
    assert any(
        "does not vote yet: its disk was set back to an earlier image" in line for line in caplog.messages
    )


def test_a_member_with_an_older_disk_killed_before_it_caught_up_elects_no_leader() -> None:
    """Its second start draws a number above the one that others know from its lost run."""
    with World(5) as world:
        group, old = set_back_with_those_that_lag(world, 3)
        for away_ms in (700, 40, 3_000):
            world.run_for_ms(away_ms)
            old.kill(power_cut=True)
            group.start(old)
        world.run_for_ms(8_000)
        assert not group.active()


def test_a_leader_detects_a_disk_image_that_is_a_moment_old(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with World(6) as world:
        group = started(world)
        leader, member = leader_of(group)
        old = others(group, leader)[0]
        world.run_for_ms(2_500)
        image = image_of(old.disk)
        commit(group, 2)
        old.kill()
        restore(old.disk, image)
        group.check.emptied(old.name)
        group.start(old)
        world.run_until(lambda: "has lost what it acknowledged" in caplog.text, 3_000)
        assert f"peer={old.name} has lost" in caplog.text and group.active() == [leader]
        world.run_until(lambda: counts(group, old) and group.agreed(), 5_000)
        assert member.core is not None and not member.core.progress[old.name].forgot


@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_a_member_that_cannot_store_a_start_number_ends_unless_its_disk_is_full(error: int) -> None:
    """A member does not answer a start number that it cannot store durably."""
    with World(7) as world:
        group = started(world)
        leader, _ = leader_of(group)
        hears, begins = others(group, leader)
        begins.kill()
        hears.disk.fail_next("replace", OSError(error, os.strerror(error)), where="/starts")
        group.start(begins)
        world.run_until(lambda: counts(group, begins), 1_500)
        world.run_for_ms(100)
        assert hears.disk.failures["replace"] == 1
        assert (group.member(hears) is not None) == (error == errno.ENOSPC)
        assert group.active() == [leader] and counts(group, begins)


@pytest.mark.parametrize("stays_away", [False, True])
def test_members_with_current_disks_elect_without_delay(stays_away: bool) -> None:
    """Within one election timeout and the round trips of a vote."""
    for seed in range(1, 11):
        with World(seed) as world:
            group = started(world)
            world.run_for_ms(3_000)
            for node in group.nodes:
                node.kill()
            for node in group.nodes[stays_away:]:
                group.start(node)
            limit_ms = group.settings.election_timeout_max_ms + 500
            world.run_until(lambda group=group: bool(group.active()), limit_ms)  # type: ignore[misc]


def test_disks_without_start_numbers_or_with_a_copied_file_are_accepted() -> None:
    """As after an operator copied one member's log to the others, or after an earlier version."""
    with World(7) as world:
        group = started(world)
        world.run_for_ms(3_000)
        for node in group.nodes:
            node.kill()
        first, copied, without = group.nodes
        other = image_of(first.disk)[f"dledger-{first.name}/starts"]
        for node in (copied, without):
            image = image_of(node.disk)
            del image[f"dledger-{node.name}/starts"]
            if node is copied:
                image[f"dledger-{node.name}/starts"] = other
            restore(node.disk, image)
        group.start_all()
        world.run_until(group.agreed, 5_000)
        world.run_for_ms(3_000)
        assert all(counts(group, node) for node in group.nodes)


def counts(group: RaftGroup, node: Node) -> bool:
    member = group.member(node)
    return member is not None and member.core is not None and member.core.counts
