"""Raft-mode sets under load and faults: a few seeds. Many more: `python -m simulation.groups.world`."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from simulation.groups.members import FEATURES, kind_of
from simulation.groups.world import ACKNOWLEDGED_MIN, GroupWorld, run_seed
from simulation.kernel.foundby import find, found_by
from simulation.kernel.totals import Totals
from simulation.mutants.groups import BUGS
from tests.simulation.played import Scenario, played, scenario
from tests.simulation.unitfind import assert_found
from tests.support.longtests import long

FOUND_BY = found_by("groups")
FOUND_BY_UNIT = {
    "deposed-answers-at-once": "cluster/test_access_leases.py"
    "::test_a_change_whose_master_is_deposed_meanwhile_is_answered_only_when_leases_are_over",
    "arrival-proves-following": "cluster/test_access_leases.py"
    "::test_requests_of_slaves_that_were_long_on_their_way_make_no_former_master_sure",
    "first-copies-unheard": "unit/broker/test_access_holders.py"
    "::test_a_slave_that_asks_for_its_first_tables_may_serve_users_with_them",
    "former-masters-name-no-clients": "cluster/test_access_control.py"
    "::test_requests_that_a_former_master_passes_on_are_checked_for_the_clients_address",
    "begins-behind-what-is-known": "cluster/test_rotten_beginning.py"
    "::test_old_files_are_kept_while_the_entry_before_the_new_log_start_is_corrupt",
    "check-value-lost-for-good": "unit/raftstore/test_mending.py"
    "::test_an_entry_is_rebuilt_with_the_checksums_of_its_own_disk",
    "first-entry-uncompared": "cluster/test_ledger_repair.py"
    "::test_a_log_scan_at_start_creates_no_queue_for_a_corrupt_topic_name[5-0]",
    "late-copy-of-a-former-leader": "cluster/test_group_tables.py"
    "::test_a_late_copy_of_an_older_leaders_tables_is_refused",
    "looks-up-replaced-entries": "unit/dledger/test_placing.py"
    "::test_a_commit_of_entries_that_a_snapshot_has_replaced_on_the_disk_is_passed_over",
    "version-not-persisted": "cluster/test_group_tables.py"
    "::test_table_versions_are_stored_and_tables_without_one_count_as_oldest",
}
"""Planted bug -> the unit test that finds it; hardly one seed in a hundred does."""


FIRST = scenario(1, "facts")
SCENARIOS = [
    FIRST,
    scenario(2, "retention", "preferred"),
    scenario(3, "old disks", "transactions"),
    scenario(47, "plain log before"),
    scenario(8, "access"),
]
LONG_SCENARIOS = [
    scenario(4, "five brokers", "forger"),
    scenario(5, "rot"),
    scenario(6, "rot where a follower needs it"),
    scenario(7, "handed on"),
    scenario(12, "rot that expires"),
    scenario(17, "overtaken"),
    scenario(20, "rot that is copied"),
]


@pytest.mark.parametrize("scenario", [*SCENARIOS, *long(LONG_SCENARIOS)], ids=str)
def test_a_raft_mode_set_keeps_its_guarantees_under_faults(
    scenario: Scenario, tally: Callable[[str, int], None]
) -> None:
    totals = played(GroupWorld, scenario).totals
    assert totals.counts["acknowledged"] >= ACKNOWLEDGED_MIN
    tally("seeds", 1)
    tally("faults", totals.faults.total())


def test_each_feature_is_played_by_a_scenario() -> None:
    kinds = [kind_of(scenario.seed, scenario.asked) for scenario in (*SCENARIOS, *LONG_SCENARIOS)]
    assert frozenset().union(*(kind.played for kind in kinds)) == frozenset(FEATURES)


def test_every_planted_bug_has_a_seed_that_finds_it() -> None:
    assert FOUND_BY.keys() | FOUND_BY_UNIT.keys() == BUGS.keys()


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY_UNIT))
def test_a_planted_bug_is_found_by_its_unit_test(bug: str) -> None:
    assert_found("simulation.mutants.groups", FOUND_BY_UNIT, bug)


@pytest.mark.long
@pytest.mark.parametrize("bug", sorted(FOUND_BY))
def test_a_planted_bug_is_found(bug: str, tally: Callable[[str, int], None]) -> None:
    totals, asked = Totals(), BUGS.asked(bug, FEATURES)
    found = find(lambda seed: run_seed(seed, bug, totals, asked), FOUND_BY[bug])
    tally("seeds", found.tried)


def test_a_seed_gives_the_same_run_again() -> None:
    group = GroupWorld(FIRST.seed, asked=FIRST.asked)
    group.run()
    before = played(GroupWorld, FIRST)
    assert (group.world.trace.events, group.world.trace.digest) == (before.events, before.digest)
