"""A former master changes fields of requests that it passes on, and its successor restores them to check signatures."""

from __future__ import annotations

import pytest

from remoting.passedfields import FORMER_FIELDS, as_it_came, change


def test_changed_and_added_fields_are_restored() -> None:
    came = {"topic": "orders", "sysFlag": "3"}
    ext = dict(came)
    change(ext, {"sysFlag": "7", "subscription": "TagA"})
    assert (ext["sysFlag"], ext["subscription"]) == ("7", "TagA")
    assert as_it_came(ext) == came


def test_a_request_that_nobody_changed_stays() -> None:
    ext = {"topic": "orders"}
    assert as_it_came(ext) is ext


@pytest.mark.parametrize("text", ["", "{", "[]", "1", '"x"', "\ud800"])
def test_a_malformed_list_of_former_fields_restores_nothing(text: str) -> None:
    ext = {"topic": "orders", FORMER_FIELDS: text}
    assert as_it_came(ext) == ext


def test_fields_that_no_former_master_changes_stay() -> None:
    ext = {"topic": "orders", FORMER_FIELDS: '{"topic":"clicks"}'}
    assert as_it_came(ext) is ext


def test_former_values_that_are_no_texts_are_left_out() -> None:
    assert as_it_came({"sysFlag": "1", FORMER_FIELDS: '{"sysFlag":2,"subscription":null}'}) == {}
