"""Our SQL92 filters compared with upstream's classes: accepted expressions, matches, and consumerFilter.json
on either side.

`python -m scripts.comparefilters` runs for a given time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from broker.tables.consumerfilters import CONSUMER_FILTERS_FILE, ConsumerFilters
from mqruntime.clock import SystemClock
from remoting.bodies.heartbeats import SubscriptionData
from scripts.filtercases import Java, compare, word
from scripts.peers.javapeer import broker_missing

pytestmark = pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing()))

SEED = 20
COUNT = 3_000


@pytest.fixture(scope="module")
def java() -> Iterator[Java]:
    with Java() as made:
        yield made


def test_expressions_match_the_same_messages_as_javas(java: Java) -> None:
    differences = list(compare(java, Random(SEED), COUNT))
    assert not differences, f"seed {SEED}, {len(differences)} of {COUNT}:\n{differences[0]}"


def test_each_broker_loads_the_consumer_filter_file_of_the_other(java: Java, tmp_path: Path) -> None:
    table = ConsumerFilters(SystemClock(), lambda: None)
    ours = SubscriptionData("TopicA", "a > 5", sub_version=7, expression_type="SQL92")
    table.register("GroupA", [ours])
    file = tmp_path / CONSUMER_FILTERS_FILE
    file.parent.mkdir()
    file.write_bytes(table.encode())
    known = {"expression": "a > 5", "version": 7, "dead": True, "compiled": True}
    assert java.ask("load", tmp_path, "GroupA", "TopicA") == known
    assert java.ask("register", tmp_path, "GroupB", "TopicA", word(b"b = 'x'"), 9) == {"registered": True}
    again = ConsumerFilters(SystemClock(), lambda: None)
    again.decode(file.read_bytes())
    for group, expression, version in (("GroupA", "a > 5", 7), ("GroupB", "b = 'x'", 9)):
        found = again.find(group, "TopicA")
        assert found is not None and (found.expression, found.client_version) == (expression, version)
        again.register(
            group, [SubscriptionData("TopicA", expression, sub_version=version, expression_type="SQL92")]
        )
        assert found.dead_time == 0
    assert found is not None
    positions = found.bloom_filter_data.bit_pos
    again.register("GroupB", [SubscriptionData("TopicA", "c = 'y'", sub_version=10, expression_type="SQL92")])
    recomputed = again.find("GroupB", "TopicA")
    assert recomputed is not None and recomputed.bloom_filter_data.bit_pos == positions, (
        "as Java computed them"
    )
