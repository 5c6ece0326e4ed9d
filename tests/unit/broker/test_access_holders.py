"""Which slaves may serve users by their master's tables, and which have followed their master lately."""

from __future__ import annotations

from broker.tables.holders import Holders, TablesVersion

NOW, BEFORE = TablesVersion(4, 20), TablesVersion(4, 19)
HOSTS = {2: "10.0.0.2", 3: "10.0.0.3"}


def test_a_slave_that_asks_for_its_first_tables_may_serve_users_with_them() -> None:
    holders = Holders()
    holders.reported(2, None, BEFORE, 1_000)
    assert holders.behind(NOW, 999) == [2]
    assert holders.behind(NOW, 1_000) == [], "its lease is over"
    holders.reported(2, NOW, NOW, 1_010)
    assert holders.behind(NOW, 999) == []


def test_a_slave_follows_since_the_answer_that_its_request_repeats() -> None:
    holders = Holders()
    holders.reported(2, BEFORE, BEFORE, 5_000)
    holders.reported(3, BEFORE, BEFORE, 5_000, 4_000)
    assert holders.silent([2, 3], 3_999, HOSTS, 4) == [2]
    assert holders.silent([2, 3], 4_000, HOSTS, 4) == [2, 3]
    holders.reported(3, BEFORE, BEFORE, 5_500, 3_000)
    assert holders.silent([3], 3_999, HOSTS, 4) == [], "an older request that overtook a newer one"


def test_a_slave_without_the_tables_does_not_follow() -> None:
    holders = Holders()
    holders.reported(2, None, NOW, 5_000, 4_990)
    assert holders.silent([2], 0, HOSTS, 4) == [2]


def test_another_epoch_begins_without_leases() -> None:
    holders = Holders()
    holders.reported(2, NOW, NOW, 5_000, 4_990)
    assert holders.silent([2], 0, HOSTS, 5) == [2]
    assert holders.behind(TablesVersion(5, 1), 0) == []
