"""The first start in Raft mode on a plain log, ended at every step by kill or power cut, and started again.

Expected: the records of the plain log keep their bytes, and a later start has the result of an undisturbed
first one."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from raftstore import member
from simulation.kernel.world import World
from tests.cluster.groupset import MEMBERS, small_ledger
from tests.cluster.mixedset import MixedSet, old_files
from tests.cluster.pairset import Pair

STEPS_MAX = 2_000
STRIDE = 17


def steps_until(world: World, done: Any, count: int) -> bool:
    """Runs `steps` steps of the world, or until `done()`; returns whether it was done first."""
    left = [count]

    def counted() -> bool:
        left[0] -= 1
        return left[0] < 0 or done()

    world.run_until(counted, 60_000)
    return left[0] >= 0


@pytest.mark.parametrize("power_cut", [False, True])
def test_no_crash_of_the_first_start_changes_a_record(
    power_cut: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(member, "ledger_settings", small_ledger)
    with World(31 + power_cut) as world:
        pair = Pair(world, slaves=0, master_role="ASYNC_MASTER")
        pair.start(pair.master)
        world.run_until(pair.leads, 20_000)
        pair.create_topic()
        sent = [b"%d " % number + b"x" * (number * 53 % 2000) for number in range(120)]
        pair.send(*sent)
        node = pair.master
        world.run(node.stop())
        before = old_files(node)
        records = {path: len(content.rstrip(b"\0")) for path, content in before.items()}
        image = copy.deepcopy((node.disk.entries, node.disk._durable))
        group = MixedSet(world, [node], pair._client_node, dLegerPeers=f"n0-{MEMBERS['n0']}")
        for steps in range(4 * power_cut, STEPS_MAX, STRIDE):
            node.disk.entries, node.disk._durable = copy.deepcopy(image)
            group.start(node)
            finished = steps_until(world, lambda: node.disk.is_durable("dledger-n0/currterm"), steps)
            node.kill(power_cut=power_cut)
            for path, size in records.items():
                assert old_files(node)[path][:size] == before[path][:size], f"after {steps} steps"
            group.start(node)
            world.run_until(group.has_master, 20_000)
            store = group.app(node).store
            assert sum(store.max_queue_offset("orders", queue) for queue in range(4)) == len(sent)
            assert old_files(node).keys() == before.keys()
            node.kill()
            if finished:
                break
        else:
            pytest.fail(f"no start was through after {STEPS_MAX} steps")
        assert steps > 5 * STRIDE
        group.start(node)
        group.wait_for_master()
        assert sorted(bytes(one.body) for one in group.run(group.read_all())) == sorted(sent)
