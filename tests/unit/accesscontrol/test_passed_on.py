"""A master checks again what a former master, whose users may be old ones, passes on."""

from __future__ import annotations

import pytest

from accesscontrol.guard import PASSED_FOR
from remoting.passedfields import FORMER_FIELDS, change
from remoting.signing import Credentials
from tests.unit.accesscontrol.guardscene import ALICE, SEND, ClientPeer, Scene, request

FORMER = ClientPeer("10.0.2.1:6000")


def scene() -> Scene:
    made = Scene(is_passed_on=lambda peer: peer is FORMER.peer)
    made.users.allow("Topic:orders")
    return made


def test_a_former_password_does_not_pass_through_a_former_master() -> None:
    passed = request(SEND, Credentials("alice", "former"), topic="orders")
    assert scene().refusal(passed, FORMER) == (16, "check signature failed.")


def test_fields_that_a_former_master_has_changed_leave_the_signature_right() -> None:
    passed = request(SEND, ALICE, topic="orders", sysFlag="3")
    change(passed.ext, {"sysFlag": "7", "subscription": "TagA"})
    assert scene().refusal(passed, FORMER) is None
    assert scene().refusal(passed) == (16, "check signature failed."), "nobody else may change them"


def test_only_a_former_master_says_what_it_changed_and_for_whom() -> None:
    passed = request(SEND, ALICE, topic="orders", sysFlag="3")
    change(passed.ext, {"sysFlag": "7"})
    made = scene()
    made.guard.name_client(made.client.peer, [passed])
    assert FORMER_FIELDS not in passed.ext
    assert passed.ext[PASSED_FOR] == "10.0.0.9"
    assert made.refusal(passed, FORMER) == (16, "check signature failed."), "the client changed it"
    forged = request(SEND, ALICE, topic="orders")
    forged.ext[PASSED_FOR] = "10.0.0.1"
    assert made.refusal(forged) == (16, "check signature failed."), "the client names another host"


@pytest.mark.parametrize("field", ["topic", "AccessKey"])
def test_a_former_master_changes_no_other_fields_than_those_of_pulls(field: str) -> None:
    passed = request(SEND, ALICE, topic="orders", sysFlag="3")
    change(passed.ext, {field: "clicks"})
    assert scene().refusal(passed, FORMER) is not None


def test_a_former_master_changes_no_field_that_it_does_not_name() -> None:
    passed = request(SEND, ALICE, topic="orders", sysFlag="3")
    passed.ext["sysFlag"] = "7"
    assert scene().refusal(passed, FORMER) == (16, "check signature failed.")
