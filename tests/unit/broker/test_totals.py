"""The totals of a broker by topic and group."""

from __future__ import annotations

from broker.metrics.totals import Amount, Totals
from messagestore.messages import MessageToStore, PutResult, PutStatus


def message(topic: str) -> MessageToStore:
    return MessageToStore(topic, 0, b"body")


def stored(size: int, count: int = 1) -> PutResult:
    return PutResult(1000, 1000 + size, 0, count, 0)


REFUSED = PutResult(-1, -1, -1, 0, -1, PutStatus.MESSAGE_ILLEGAL)


def test_sends_of_one_topic_are_added_with_the_given_totals() -> None:
    totals = Totals()
    totals.sends_stored([message("orders")] * 3, [stored(100), REFUSED, stored(150, 2)], 3, 250)
    assert totals.stored == {"orders": Amount(3, 250)}


def test_sends_of_several_topics_are_counted_by_topic_without_refused_ones() -> None:
    totals = Totals()
    messages = [message("orders"), message("bills"), message("orders"), message("notes")]
    totals.sends_stored(messages, [stored(100), stored(200, 4), stored(50), REFUSED], 6, 350)
    assert totals.stored == {"orders": Amount(2, 150), "bills": Amount(4, 200)}


def test_a_topic_without_a_stored_message_is_not_counted() -> None:
    totals = Totals()
    totals.sends_stored([message("orders")], [REFUSED], 0, 0)
    assert totals.stored == {}


def test_record_sizes_are_counted_and_a_batch_counts_with_its_mean_size() -> None:
    totals = Totals()
    totals.sends_stored([message("orders")] * 3, [stored(1024), stored(5000, 2), stored(5000)], 4, 11_024)
    totals.sends_stored([message("orders"), message("bills")], [REFUSED, stored(100)], 1, 100)
    orders = totals.sizes["orders"]
    assert orders.counts == [1, 2, 1, 0, 0, 0, 0]
    assert orders.sum == 11_024
    assert totals.sizes["bills"].counts[0] == 1


def test_dead_letters_are_counted_by_group() -> None:
    totals = Totals()
    totals.sends_stored([message("%DLQ%CG"), message("orders")], [stored(100), stored(100)], 2, 200)
    totals.dead_letter("%DLQ%CG")
    totals.dead_letter("%RETRY%CG")
    assert totals.dead_letters == {"CG": 2}


def test_pulls_are_counted_by_topic_and_group() -> None:
    totals = Totals()
    for group, count in (("A", 2), ("B", 5), ("A", 3)):
        totals.pull_found("orders", group, count, 10 * count)
    assert totals.found == {("orders", "A"): Amount(5, 50), ("orders", "B"): Amount(5, 50)}
