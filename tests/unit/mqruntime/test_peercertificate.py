"""Addresses that a certificate speaks for."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from mqruntime.peercertificate import (
    CONTROLLER,
    MISSING,
    NOT_ASKED,
    broker_role,
    certificate_of,
    names_in,
)

Names = list[tuple[str, str]]


@pytest.mark.parametrize(
    ("names", "speaks", "does_not"),
    [
        (
            [("DNS", "One.Example")],
            ["one.example:1", "ONE.example.:2"],
            ["two.example:1", "one.example.org:1"],
        ),
        ([("IP Address", "10.0.0.1")], ["10.0.0.1:1", "10.0.0.1:2"], ["10.0.0.2:1", "110.0.0.1:1"]),
        ([("IP Address", "0:0:0:0:0:0:0:1")], ["[::1]:1"], ["[::2]:1"]),
        ([("DNS", "*.example")], [], ["one.example:1", "*.example:1"]),
        (
            [("URI", "rocketmq://h:1"), ("URI", "rocketmq://h:2/"), ("DNS", "h")],
            ["h:1", "H:2"],
            ["h:3", "g:1"],
        ),
        ([("URI", "rocketmq://[0::1]:1")], ["[::1]:1"], ["[::1]:2"]),
        ([("URI", "https://h:1"), ("email", "h")], [], ["h:1"]),
        ([("DNS", "xn--bcher-kva.example")], ["bücher.example:1", "BÜCHER.example:1"], ["bucher.example:1"]),
        ([], [], ["h:1", ":", ""]),
    ],
)
def test_a_certificate_speaks_for_its_hosts_or_for_its_addresses_only(
    names: Names, speaks: list[str], does_not: list[str]
) -> None:
    found = names_in({"subjectAltName": names})
    assert [address for address in [*speaks, *does_not] if found.speaks_for(address)] == speaks
    assert found.speaks_for_one_of(speaks) is bool(speaks) and not found.speaks_for_one_of(does_not)
    assert found.is_of_server is bool(speaks)


def test_without_a_question_everybody_may_claim_anything_and_without_an_answer_nobody() -> None:
    assert NOT_ASKED.speaks_for("h:1") and NOT_ASKED.is_of_server and NOT_ASKED.speaks_for_one_of(["h:1"])
    assert not MISSING.speaks_for("h:1") and not MISSING.is_of_server


@pytest.mark.parametrize(
    ("roles", "may_be"),
    [
        ([], ["controller", "broker/a", "broker/b c"]),
        (["controller"], ["controller"]),
        (["broker/b%20c"], ["broker/b c"]),
        (["broker/a", "controller"], ["controller", "broker/a"]),
        (["namesrv"], []),
    ],
)
def test_a_certificate_with_roles_has_no_other_role(roles: list[str], may_be: list[str]) -> None:
    names = [("URI", f"rocketmq:{role}") for role in roles]
    found = names_in({"subjectAltName": [("DNS", "h"), *names]})
    asked = {
        "controller": CONTROLLER, "broker/a": broker_role("a"), "broker/b c": broker_role("b c"),
    }  # fmt: skip
    assert [name for name, role in asked.items() if found.may_be(role)] == may_be
    assert found.speaks_for("h:1") and NOT_ASKED.may_be("controller")


def test_a_server_is_contradicted_only_by_other_addresses() -> None:
    assert names_in({"subjectAltName": [("URI", "rocketmq://h:1")]}).contradicts("h:2")
    assert not names_in({"subjectAltName": [("URI", "rocketmq://h:1")]}).contradicts("h:1")
    assert not names_in({"subjectAltName": [("DNS", "*.example")]}).contradicts("one.example:1")
    assert not NOT_ASKED.contradicts("h:1")


@pytest.mark.parametrize(
    ("tls", "found"),
    [
        (None, NOT_ASKED),
        (SimpleNamespace(context=SimpleNamespace(verify_mode=0)), NOT_ASKED),
        (SimpleNamespace(context=SimpleNamespace(verify_mode=1), getpeercert=lambda: None), MISSING),
        (SimpleNamespace(context=SimpleNamespace(verify_mode=2), getpeercert=dict), MISSING),
    ],
)
def test_a_connection_has_a_certificate_only_where_it_was_asked_for(tls: object, found: object) -> None:
    transport = SimpleNamespace(get_extra_info=lambda name: tls if name == "ssl_object" else None)
    assert certificate_of(transport) == found
