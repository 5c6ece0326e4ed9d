"""Consumer offsets beyond a new master's log: it was elected without all that was confirmed, or right behind such a one."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from broker.tables.consumeroffsets import TRANSACTIONS_GROUP, ConsumerOffsets
from broker.tables.offsetlimits import OffsetLimits, common_end
from epochfile.history import EpochHistory
from messagestore.messages import QueueEntry
from remoting.codes import RequestCode
from remoting.headers.offsets import QueryConsumerOffsetHeader, UpdateConsumerOffsetHeader
from tests.unit.broker.served import Served

RECORD_BYTES = 100
UNCLEAN = EpochHistory([(1, 0), (2, 5_000), (4, 20_000)])
"""The master of epoch 2 was elected with the first 50 messages of epoch 1, of which there were 100."""


class OneQueue:
    """Queue 0 of orders: `count` messages from `first` on, of which `listed` are dispatched."""

    def __init__(self, count: int, listed: int | None = None, first: int = 0) -> None:
        self.count = count
        self.listed = count if listed is None else listed
        self.first = first

    def next_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.count if (topic, queue_id) == ("orders", 0) else 0

    def max_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.listed if (topic, queue_id) == ("orders", 0) else 0

    def min_queue_offset(self, topic: str, queue_id: int) -> int:
        return self.first if (topic, queue_id) == ("orders", 0) else 0

    def entries(self, topic: str, queue_id: int, offset: int, count_max: int) -> Sequence[QueueEntry]:
        listed = range(offset, min(offset + count_max, self.listed))
        return [QueueEntry(RECORD_BYTES * number, RECORD_BYTES, 0) for number in listed]


@pytest.mark.parametrize(
    ("table_epoch", "end"), [(0, 0), (1, 5_000), (2, 20_000), (3, 20_000), (4, None), (None, None)]
)
def test_what_the_table_and_the_log_have_in_common(table_epoch: int | None, end: int | None) -> None:
    assert common_end(UNCLEAN, table_epoch) == end


@pytest.mark.parametrize(
    ("queue", "table_epoch", "limit"),
    [
        (OneQueue(50), 1, 50),  # elected with half of them itself
        (OneQueue(150), 1, 50),  # its predecessor was; what was sent since fills the places of what is lost
        (OneQueue(150), 2, 150),
        (OneQueue(150), None, 150),
        (OneQueue(150, first=70), 1, 70),
        (OneQueue(60, listed=40), 1, 60),  # the rest is dispatched soon
        (OneQueue(0), 1, 0),
    ],
)
def test_an_offset_is_believed_up_to_there(queue: OneQueue, table_epoch: int | None, limit: int) -> None:
    assert OffsetLimits(queue, common_end(UNCLEAN, table_epoch)).of("orders", 0) == limit


def test_offsets_beyond_are_taken_back_and_others_stay() -> None:
    offsets = ConsumerOffsets()
    offsets.commit("behind", "orders", 0, 49)
    offsets.commit("ahead", "orders", 0, 100)
    offsets.commit("ahead", "elsewhere", 3, 7)
    offsets.keep("orders", 0, 1_000)
    commits = offsets.commits
    assert offsets.correct(OffsetLimits(OneQueue(150), 5_000).of) == 2
    found = [offsets.find(group, "orders", 0) for group in ("behind", "ahead", TRANSACTIONS_GROUP)]
    assert found == [49, 50, 1_000] and offsets.find("ahead", "elsewhere", 3) == 0
    assert offsets.commits == commits + 2, "so the file is written"


def test_a_new_master_begins_nobody_beyond_its_queues(served: Served) -> None:
    """Who commits 50 where three messages stand reads the fourth all the same."""
    for group, offset in (("ahead", 50), ("level", 3), ("behind", 1)):
        commit = UpdateConsumerOffsetHeader(group, "orders", 1, offset)
        assert served.ask(RequestCode.UPDATE_CONSUMER_OFFSET, commit).code == 0
    served.world.run_for_ms(3_000)
    assert served.slave.tables.offsets.find("ahead", "orders", 1) == 50
    former = served.cluster.master
    former.kill()
    cluster = served.cluster
    served.world.run_until(lambda: cluster.masters not in ([], [former]), 30_000)
    served.master = cluster.app(cluster.master)
    begun = [
        served.ext(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(group, "orders", 1))["offset"]
        for group in ("ahead", "level", "behind")
    ]
    assert begun == ["3", "3", "1"]
    assert served.master.tables.offsets_epoch == served.master.membership.master_epoch
