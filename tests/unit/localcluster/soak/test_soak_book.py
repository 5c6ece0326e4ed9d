"""The book of a soak: acknowledgements, messages read, and messages removed by retention."""

from __future__ import annotations

import pytest

from localcluster.history import SendOutcome
from localcluster.soak.book import Book, Fault

QUEUE, KEPT_MS = "Soak@broker-a:0", 1_000


def sent(
    book: Book,
    outcome: SendOutcome = SendOutcome.ACKNOWLEDGED,
    *,
    offset: int | None = None,
    began_ms: int = 0,
) -> int:
    number = book.begin()
    if offset is not None:
        book.queue(QUEUE).acknowledge(offset, number, began_ms)
    book.end(number, outcome)
    return number


def read(book: Book, offset: int, number: int | None, *, whole: bool = True) -> None:
    book.read(QUEUE, offset, number, whole=whole, now_ms=0)
    if number is not None:
        book.queue(QUEUE).read(offset, number)


def test_messages_read_at_their_acknowledged_offsets_are_no_fault() -> None:
    book = Book(KEPT_MS)
    first = sent(book, offset=0)
    read(book, 0, first)
    second = book.begin()
    read(book, 1, second)
    book.queue(QUEUE).acknowledge(1, second, 0)
    book.end(second, SendOutcome.ACKNOWLEDGED)
    unknown = sent(book, SendOutcome.UNKNOWN)
    read(book, 2, unknown)
    assert book.queue(QUEUE).judge_retained(0, 3, {0: first, 1: second, 2: unknown}) == 2
    assert not book.faults.counts
    assert (book.read_count, book.outcomes[SendOutcome.ACKNOWLEDGED]) == (3, 2)


def test_another_message_at_an_acknowledged_offset_is_a_loss() -> None:
    book = Book(KEPT_MS)
    sent(book, offset=0)
    other = sent(book, SendOutcome.UNKNOWN)
    read(book, 0, other)
    assert book.faults.lines == ["lost: 0 was acknowledged at Soak@broker-a:0@0, where 1 was read"]
    twice = Book(KEPT_MS)
    sent(twice, offset=0)
    sent(twice, offset=0)
    assert twice.faults.lines == [
        "lost: 0 was acknowledged at Soak@broker-a:0@0, where 1 was acknowledged later"
    ]
    late = Book(KEPT_MS)
    read(late, 0, late.begin())
    sent(late, offset=0)
    assert late.faults.counts == {Fault.LOST: 1}


@pytest.mark.parametrize(
    ("found", "begin", "faults"),
    [
        ({0: 0, 1: 1}, 0, {}),
        ({0: 0}, 0, {Fault.LOST: 1, Fault.GAP: 1}),
        ({0: 0, 1: 7}, 0, {Fault.LOST: 1}),
        ({1: 1}, 1, {}),  # retention removed the first one between the two reads
        ({0: 7, 1: 1}, 1, {Fault.LOST: 1}),
    ],
)
def test_the_last_reading_reports_messages_missing_from_the_retained_range(
    found: dict[int, int], begin: int, faults: dict[Fault, int]
) -> None:
    book = Book(KEPT_MS)
    sent(book, offset=0)
    sent(book, offset=1)
    book.queue(QUEUE).judge_retained(begin, 2, found)
    assert book.faults.counts == faults


def test_an_unacknowledged_message_that_was_read_must_stay() -> None:
    book = Book(KEPT_MS)
    read(book, 0, sent(book, SendOutcome.UNKNOWN))
    book.queue(QUEUE).judge_retained(0, 1, {0: 5})
    assert book.faults.counts == {Fault.TAKEN_BACK: 1}


def test_retention_may_remove_only_messages_that_are_old_enough() -> None:
    book = Book(KEPT_MS)
    for offset, began_ms in enumerate([0, 100, 900]):
        sent(book, offset=offset, began_ms=began_ms)
    read(book, 0, 0)
    account = book.queue(QUEUE)
    account.begin_at(2, 1_100)
    assert (account.base, account.removed_unread) == (2, 1)
    assert not book.faults.counts
    account.begin_at(1, 1_200)  # a replica with older messages
    assert account.base == 2
    account.begin_at(3, 1_899)
    assert book.faults.lines == ["removed too young: Soak@broker-a:0@2 after 999 ms"]
    account.begin_at(9, 5_000)
    assert account.base == 9
    sent(book, offset=8, began_ms=4_500)  # acknowledged after retention removed the message
    assert book.faults.counts == {Fault.TOO_YOUNG: 2}
    read(book, 4, sent(book, SendOutcome.UNKNOWN))
    sent(book, offset=9, began_ms=5_000)
    assert account.judge_retained(9, 10, {9: 4}) == 0


@pytest.mark.parametrize("refused_first", [True, False])
def test_a_refused_message_that_is_read_is_a_fault(refused_first: bool) -> None:
    book = Book(KEPT_MS)
    number = book.begin()
    if refused_first:
        book.end(number, SendOutcome.REFUSED)
    read(book, 0, number)
    if not refused_first:
        book.end(number, SendOutcome.REFUSED)
    assert book.faults.counts == {Fault.REFUSED_PRESENT: 1}


def test_unknown_changed_and_duplicate_messages_are_distinguished() -> None:
    book = Book(KEPT_MS)
    number = sent(book, SendOutcome.UNKNOWN)
    read(book, 0, number, whole=False)
    read(book, 1, number)
    read(book, 2, None)
    book.read(QUEUE, 3, 77, whole=True, now_ms=0)
    assert book.faults.counts == {Fault.CHANGED: 1, Fault.DUPLICATED: 1, Fault.STRANGER: 2}


def test_delayed_messages_may_come_twice_but_must_come() -> None:
    book = Book(KEPT_MS)
    early, late, never, refused = (book.begin() for _ in range(4))
    book.read("D", 0, early, whole=True, now_ms=10)
    book.end_delayed(early, SendOutcome.ACKNOWLEDGED, 10)
    book.end_delayed(late, SendOutcome.ACKNOWLEDGED, 1_000)
    book.end_delayed(never, SendOutcome.ACKNOWLEDGED, 1_000)
    book.end_delayed(refused, SendOutcome.REFUSED, 1_000)
    assert set(book.awaited) == {late, never}
    book.read("D", 1, late, whole=True, now_ms=1_300)
    book.read("D", 2, late, whole=True, now_ms=9_000)
    assert (book.delayed_twice, book.delayed_late_ms) == (1, 300)
    book.give_up_awaited(1)
    assert not book.faults.counts
    book.give_up_awaited(0)
    assert book.faults.lines == ["lost: 2, which was delayed, did not come"]


def test_the_book_does_not_grow_with_messages_removed_by_retention() -> None:
    book = Book(0)
    for offset in range(5_000):
        sent(book, offset=offset)
        read(book, offset, offset)
        book.queue(QUEUE).begin_at(offset - 10, offset)
    account = book.queue(QUEUE)
    assert account.base == 4_989
    assert account.judge_retained(4_989, 5_000, {offset: offset for offset in range(4_989, 5_000)}) == 11
    assert not book.faults.counts
