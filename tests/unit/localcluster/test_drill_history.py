"""The checker of drills compares acknowledged messages with the messages read back."""

from __future__ import annotations

from localcluster.history import (
    Found,
    MessagePlace,
    Outage,
    SendAttempt,
    SendOutcome,
    first_acknowledgement,
    judge,
    longest_outage,
    longest_wait_ms,
)


def acked(name: str, offset: int, ended_ms: int = 0, *, body: str = "h") -> SendAttempt:
    return SendAttempt(
        name, body, SendOutcome.ACKNOWLEDGED, ended_ms - 1, ended_ms, MessagePlace("q0", offset)
    )


def failed(name: str, outcome: SendOutcome) -> SendAttempt:
    return SendAttempt(name, "h", outcome, 0, 1, why="timeout")


def there(name: str, offset: int, *, body: str = "h", queue: str = "q0") -> Found:
    return Found(name, body, MessagePlace(queue, offset))


def test_acknowledged_messages_at_their_offsets_pass() -> None:
    verdict = judge([acked("a", 0), acked("b", 1)], [there("b", 1), there("a", 0)])
    assert verdict.holds
    assert (verdict.acknowledged, verdict.read) == (2, 2)


def test_a_missing_acknowledged_message_is_lost() -> None:
    verdict = judge([acked("a", 0), acked("b", 1)], [there("a", 0)])
    assert not verdict.holds
    assert verdict.lost == ["b was acknowledged at q0@1 and is nowhere"]


def test_a_lost_message_is_reported_with_the_message_at_its_offset() -> None:
    attempts = [acked("a", 0), acked("b", 1), failed("u", SendOutcome.UNKNOWN)]
    verdict = judge(attempts, [there("a", 0), there("u", 1)])
    assert verdict.lost == ["b was acknowledged at q0@1 and is nowhere; u is there"]


def test_two_messages_at_one_offset_are_named() -> None:
    attempts = [acked("a", 0), failed("u", SendOutcome.UNKNOWN)]
    verdict = judge(attempts, [there("a", 0), there("u", 0)])
    assert verdict.gaps == ["q0@0 is where a and u are"]


def test_another_body_at_the_acknowledged_offset_is_a_change() -> None:
    verdict = judge([acked("a", 0)], [there("a", 0, body="other")])
    assert verdict.changed == ["a at q0@0 has another body"]
    assert not verdict.moved


def test_an_acknowledged_message_at_another_offset_has_moved() -> None:
    attempts = [acked("a", 0), acked("b", 1)]
    verdict = judge(attempts, [there("b", 0), there("a", 1)])
    assert verdict.moved == [
        "a was acknowledged at q0@0 and is at q0@1",
        "b was acknowledged at q0@1 and is at q0@0",
    ]
    assert not verdict.lost


def test_a_message_read_twice_is_duplicated_with_any_outcome() -> None:
    attempts = [acked("a", 0), failed("u", SendOutcome.UNKNOWN)]
    verdict = judge(attempts, [there("a", 0), there("a", 1), there("u", 2), there("u", 3)])
    assert verdict.duplicated == ["a is there 2 times: q0@0, q0@1", "u is there 2 times: q0@2, q0@3"]


def test_a_message_of_unknown_outcome_may_be_present_or_absent() -> None:
    attempts = [failed("u", SendOutcome.UNKNOWN), failed("v", SendOutcome.UNKNOWN)]
    verdict = judge(attempts, [there("u", 0)])
    assert verdict.holds
    assert (verdict.unknown, verdict.unknown_present) == (2, 1)


def test_a_refused_message_that_appears_is_a_fault() -> None:
    verdict = judge([failed("r", SendOutcome.REFUSED)], [there("r", 0)])
    assert verdict.refused_present == ["r was refused (timeout) and is at q0@0"]
    assert judge([failed("r", SendOutcome.REFUSED)], []).holds


def test_a_message_that_was_never_sent_is_a_fault() -> None:
    assert judge([], [there("x", 0)]).strangers == ["x was never sent and is at q0@0"]


def test_a_gap_in_a_queue_is_a_fault() -> None:
    attempts = [acked("a", 0), acked("b", 2)]
    verdict = judge(attempts, [there("a", 0), there("b", 2)])
    assert verdict.gaps == ["q0 goes from offset 0 to 2"]
    assert judge([acked("b", 1)], [there("b", 1)]).gaps == ["q0 goes from offset -1 to 1"]


def test_queues_count_their_offsets_apart() -> None:
    attempts = [
        acked("a", 0),
        SendAttempt("b", "h", SendOutcome.ACKNOWLEDGED, 0, 1, MessagePlace("q1", 0)),
    ]
    assert judge(attempts, [there("a", 0), there("b", 0, queue="q1")]).holds


def test_an_outage_is_the_longest_silence_around_the_fault() -> None:
    attempts = [acked(str(moment), 0, moment) for moment in (0, 50, 100, 900, 905, 910, 3000)]
    outage = longest_outage(attempts, fault_ms=102, until_ms=905)
    assert outage == Outage(100, 900)
    assert outage.length_ms == 800
    assert longest_outage(attempts, fault_ms=2000, until_ms=2500) == Outage(910, 3000)
    assert longest_outage(attempts, fault_ms=4000, until_ms=5000) is None
    assert longest_outage([], 0, 1) is None


def test_the_first_acknowledgement_does_not_depend_on_later_silences() -> None:
    attempts = [
        *(acked(str(moment), 0, moment) for moment in (90, 240, 300, 900)),
        failed("u", SendOutcome.UNKNOWN),
    ]
    assert longest_outage(attempts, fault_ms=100, until_ms=1000) == Outage(300, 900)
    assert first_acknowledgement(attempts, since_ms=181) == 240
    assert first_acknowledgement(attempts, since_ms=901) is None


def test_only_acknowledgements_end_an_outage() -> None:
    attempts = [acked("a", 0, 0), failed("u", SendOutcome.UNKNOWN), acked("b", 1, 500)]
    assert longest_outage(attempts, 0, 500) == Outage(0, 500)


def test_a_wait_is_counted_from_when_service_is_due_to_the_end() -> None:
    attempts = [acked(str(moment), 0, moment) for moment in (0, 900, 1000, 1100, 5000)]
    assert longest_wait_ms(attempts, 100, 1200) == 800
    assert longest_wait_ms(attempts, 950, 1200) == 100
    assert longest_wait_ms(attempts, 950, 4000) == 2900
    assert longest_wait_ms([], 10, 30) == 20
