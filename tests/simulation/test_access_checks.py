"""The check of access control: what it expects after each outcome of a change, and what it reports."""

from __future__ import annotations

import pytest

from remoting.codes import ResponseCode
from simulation.checkers.accesscheck import CALM_MS, SHOWN, STORED, AccessCheck, Leading
from simulation.checkers.accounthistory import Account, Entry, Outcome, Request, Value
from simulation.kernel.violation import Violation

TOPIC, GET = "Topic:guarded", "Get"
HERE, ELSEWHERE = "10.0.6.2", "10.0.6.3"
ALLOWED = Entry(True, frozenset({GET}))
DENIED = Entry(False, frozenset({GET}))
NO_USER, NO_RIGHT = (
    "User:user-0 is not found.",
    "User:user-0 has no permission to access Topic:guarded from 10.0.6.2, x",
)


def changed(account: Account, asked_us: int, outcome: Outcome, **values: Value) -> None:
    """A change that is answered 10 us after it was requested."""
    change = account.asked(
        "change", {TOPIC if key == "topic" else key: value for key, value in values.items()}, asked_us
    )
    change.outcome, change.answered_us = outcome, asked_us + 10


def granted(check: AccessCheck) -> Account:
    account = check.new_account()
    changed(account, 100, Outcome.DONE, password="first", enabled=True)
    changed(account, 200, Outcome.DONE, topic=ALLOWED)
    return account


def request(
    account: Account | None, began_us: int, password: str | None = "first", host: str = HERE
) -> Request:
    return Request("show", account, password, host, "broker-0", ((TOPIC, GET),), began_us)


def answered(
    check: AccessCheck, asked: Request, code: int, remark: str = "", now_us: int | None = None
) -> None:
    check.answered(asked, code, remark, now_us or asked.began_us + 5, SHOWN)


def found(check: AccessCheck, calm: Leading | None = None, now_us: int = 0) -> str | None:
    try:
        check.look([], calm, now_us)
    except Violation as violation:
        return str(violation)[:2]
    return None


def test_a_user_with_all_rights_must_be_served() -> None:
    check = AccessCheck()
    account = granted(check)
    answered(check, request(account, 300), ResponseCode.SUCCESS)
    assert found(check) is None
    answered(check, request(account, 300), ResponseCode.SYSTEM_BUSY)
    assert found(check) is None, "this broker may not be sure"
    answered(check, request(account, 300), ResponseCode.NO_PERMISSION, NO_RIGHT)
    assert found(check) == "A2"


def test_another_refusal_with_the_same_code_is_not_about_rights() -> None:
    check = AccessCheck()
    answered(
        check, request(granted(check), 300), ResponseCode.NO_PERMISSION, "the broker does not serve readers"
    )
    assert found(check) is None


@pytest.mark.parametrize(("password", "has_account"), [("second", True), (None, True), ("first", False)])
def test_nobody_is_served_with_a_wrong_signature(password: str | None, has_account: bool) -> None:
    check = AccessCheck()
    account = granted(check)
    answered(check, request(account if has_account else None, 300, password), ResponseCode.SUCCESS)
    assert found(check) == "A1"


@pytest.mark.parametrize(
    "revocation",
    [{"topic": DENIED}, {"topic": None}, {"enabled": False}, {"password": "second"}, {"password": None}],
)
def test_an_answered_revocation_counts_for_requests_that_begin_later(revocation: dict[str, Value]) -> None:
    check = AccessCheck()
    account = granted(check)
    changed(account, 400, Outcome.DONE, **revocation)
    answered(check, request(account, 409), ResponseCode.SUCCESS, now_us=500)
    answered(check, request(account, 405), ResponseCode.NO_PERMISSION, NO_RIGHT)
    assert found(check) is None, "these began before the answer"
    answered(check, request(account, 410), ResponseCode.SUCCESS)
    assert found(check) == "A1"


@pytest.mark.parametrize("outcome", [Outcome.OPEN, Outcome.UNSURE, Outcome.LOST])
def test_a_change_without_success_may_be_in_force_or_not(outcome: Outcome) -> None:
    check = AccessCheck()
    account = granted(check)
    changed(account, 400, outcome, topic=DENIED)
    answered(check, request(account, 500), ResponseCode.SUCCESS)
    answered(check, request(account, 500), ResponseCode.NO_PERMISSION, NO_RIGHT)
    assert found(check) is None


@pytest.mark.parametrize(
    ("outcome", "rule"), [(Outcome.LOST, None), (Outcome.UNSURE, "A1"), (Outcome.REFUSED, "A1")]
)
def test_only_a_change_without_an_answer_may_take_effect_after_the_next(
    outcome: Outcome, rule: str | None
) -> None:
    check = AccessCheck()
    account = granted(check)
    changed(account, 300, Outcome.DONE, topic=DENIED)
    changed(account, 400, outcome, topic=ALLOWED)
    changed(account, 500, Outcome.DONE, topic=None)
    answered(check, request(account, 600), ResponseCode.SUCCESS)
    assert found(check) == rule


def test_a_refused_change_has_no_effect() -> None:
    check = AccessCheck()
    account = granted(check)
    changed(account, 400, Outcome.REFUSED, topic=DENIED)
    answered(check, request(account, 500), ResponseCode.NO_PERMISSION, NO_RIGHT)
    assert found(check) == "A2"


def test_an_entry_for_one_host_counts_for_no_other() -> None:
    check = AccessCheck()
    account = granted(check)
    changed(account, 300, Outcome.DONE, topic=ALLOWED._replace(hosts=frozenset({HERE})))
    answered(check, request(account, 400), ResponseCode.SUCCESS)
    assert found(check) is None
    answered(check, request(account, 400, host=ELSEWHERE), ResponseCode.SUCCESS)
    assert found(check) == "A1"


def test_a_stored_message_counts_as_served_whatever_became_of_its_copies() -> None:
    check = AccessCheck()
    account = granted(check)
    changed(account, 300, Outcome.DONE, topic=DENIED)
    asked = request(account, 400)
    check.answered(asked, ResponseCode.FLUSH_SLAVE_TIMEOUT, "", 405, STORED)
    assert found(check) == "A1"


def test_a_message_of_after_the_revocation_goes_to_no_waiting_pull() -> None:
    check = AccessCheck()
    account = granted(check)
    waiting = request(account, 300)
    changed(account, 400, Outcome.DONE, topic=DENIED)
    check.answered(waiting, ResponseCode.SUCCESS, "", 600, SHOWN, newest_us=405)
    assert found(check) is None
    check.answered(waiting, ResponseCode.SUCCESS, "", 600, SHOWN, newest_us=450)
    assert found(check) == "A1"


def test_while_nothing_is_broken_the_master_serves() -> None:
    check, us = AccessCheck(), 1_000 * CALM_MS
    account, master = granted(check), Leading("broker-0", 1, 7)
    assert found(check, master, 1_000) is None
    answered(check, request(account, us), ResponseCode.SYSTEM_BUSY)
    assert found(check, master, us + 10) is None, "it was not calm for long enough"
    answered(check, request(account, us + 1_000), ResponseCode.SYSTEM_BUSY)
    assert found(check, None, us + 1_010) is None, "something broke at this moment"
    assert found(check, master, us + 1_020) is None
    answered(check, request(account, 3 * us), ResponseCode.SYSTEM_BUSY)
    assert found(check, master, 3 * us + 10) == "A3"
