"""Authentication of peers while members are added and removed."""

from __future__ import annotations

import asyncio

import pytest

from dledger.node.authenticator import MessageRefusal, PeerAuthenticator, TheirList
from dledger.raft.membership import Members
from dledger.raft.messages import HeartBeatRequest, HeartBeatResponse, ResultCode
from mqruntime.peercertificate import MISSING, NOT_ASKED, PeerCertificate, names_in
from tests.support.doubles import ManualClock

PEERS = {"n0": "10.0.0.1:1", "n1": "10.0.0.2:1", "n2": "10.0.0.3:1"}
LIST = "n0-10.0.0.1:1;n1-10.0.0.2:1;n2-10.0.0.3:1"
WITH_N3 = f"{LIST};n3-10.0.0.4:1"
WITHOUT_N2 = "n0-10.0.0.1:1;n1-10.0.0.2:1;n3-10.0.0.4:1"
OTHERS = "n3-10.0.0.4:1;n4-10.0.0.5:1"


def guard(index: int = -1, before: dict[str, str] | None = None, role: str = "") -> PeerAuthenticator:
    """The authenticator of n0, whose log names PEERS in entry `index`."""
    made = PeerAuthenticator(
        self_id="n0", peers=PEERS, checks_addresses=True, clock=ManualClock(), term=lambda: 4, role=role
    )
    if index >= 0:
        made.members_are(index, Members(PEERS), before or {})
    return made


def reports(made: PeerAuthenticator, member: str, text: str, index: int) -> None:
    """An answer of `member` shows this list."""
    answer = HeartBeatResponse(4, ResultCode.SUCCESS)
    assert made.check_response(member, answer, TheirList(text, index)) is None


def judged(
    made: PeerAuthenticator,
    sender: str,
    text: str,
    index: int,
    host: str = "10.0.0.4",
    term: int = 5,
    certificate: PeerCertificate = NOT_ASKED,
) -> MessageRefusal | None:
    request = HeartBeatRequest(term)
    theirs = TheirList(text, index)
    return asyncio.run(made.check_request(sender, request, theirs, f"{host}:40000", certificate))


@pytest.mark.parametrize(
    ("own", "sender", "text", "index", "refusal"),
    [
        (-1, "n3", WITH_N3, -1, MessageRefusal.PEERS),  # two settings
        (-1, "n3", WITH_N3, 9, None),  # a newer list names both
        (7, "n3", WITH_N3, 9, None),
        (7, "n3", WITHOUT_N2, 10, None),  # its list may be newer than the report
        (9, "n3", WITH_N3, 7, MessageRefusal.PEERS),  # it was removed
        (7, "n3", OTHERS, 9, MessageRefusal.PEERS),  # not a list with this one in it
        (7, "n3", WITH_N3, -1, MessageRefusal.PEERS),  # not a member yet
    ],
)
def test_an_unknown_sender_is_accepted_when_a_newer_list_names_both(
    own: int, sender: str, text: str, index: int, refusal: MessageRefusal | None
) -> None:
    made = guard(own)
    if refusal is None:
        assert judged(made, sender, text, index) is MessageRefusal.UNCONFIRMED
        reports(made, "n1", WITH_N3, 9)
    assert judged(made, sender, text, index) is refusal
    assert made.vouched == ({} if refusal else {"n3": "10.0.0.4:1"})
    assert made.address_of("n3") == (None if refusal else "10.0.0.4:1")


@pytest.mark.parametrize("index", [8, 9, 10**9])
@pytest.mark.parametrize(
    ("reported", "at"),
    [
        (LIST, 7),  # nothing newer
        (f"{LIST};n4-10.0.0.5:1", 9),  # others were added
        (WITHOUT_N2.replace("n0-10.0.0.1:1;", ""), 9),  # a list without this member
        (WITH_N3, 6),  # n3 was a member before
    ],
)
def test_a_list_that_no_known_member_reports_is_not_believed(reported: str, at: int, index: int) -> None:
    made = guard(7)
    for member in ("n1", "n2"):
        reports(made, member, reported, at)
    assert judged(made, "n3", WITH_N3, index) is MessageRefusal.UNCONFIRMED
    assert made.needs_confirmation("n3", TheirList(WITH_N3, index)) and made.address_of("n3") is None


def test_the_address_of_a_confirmed_member_is_the_reported_one() -> None:
    made = guard(7)
    reports(made, "n1", WITH_N3, 9)
    elsewhere = WITH_N3.replace("10.0.0.4", "10.0.0.9")
    assert judged(made, "n3", elsewhere, 9, host="10.0.0.9") is MessageRefusal.ADDRESS
    own = of(("IP Address", "10.0.0.9"))
    assert judged(made, "n3", elsewhere, 9, host="10.0.0.9", certificate=own) is MessageRefusal.CERTIFICATE


def test_only_accepted_answers_of_known_members_confirm() -> None:
    made = guard(7)
    answer, newer = HeartBeatResponse(4, ResultCode.SUCCESS), TheirList(WITH_N3, 9)
    assert made.check_response("n3", answer, newer) is MessageRefusal.UNCONFIRMED
    assert made.check_response("n1", HeartBeatResponse(1 << 40, ResultCode.SUCCESS), newer) is not None
    assert judged(made, "n1", WITH_N3, 9, host="10.0.0.2") is None  # a request may come from another process
    assert judged(made, "n3", WITH_N3, 9) is MessageRefusal.UNCONFIRMED and made.vouched == {}


def test_a_member_is_accepted_with_any_member_list() -> None:
    for index, text in ((-1, LIST), (3, WITH_N3), (9, WITHOUT_N2)):
        assert judged(guard(7), "n1", text, index, host="10.0.0.2") is None


def test_a_confirmed_peer_must_keep_its_address_and_plausible_terms() -> None:
    made = guard(7)
    reports(made, "n1", WITH_N3, 9)
    assert judged(made, "n3", WITH_N3, 9, host="10.0.0.9") is MessageRefusal.ADDRESS
    assert judged(made, "n3", "", -2, host="10.0.0.9") is MessageRefusal.ADDRESS
    assert judged(made, "n3", WITH_N3, 9, term=1 << 40) is MessageRefusal.TERM
    made.members_are(9, Members(PEERS), {})
    assert made.vouched == {} and judged(made, "n3", WITH_N3, 9) is MessageRefusal.PEERS


def test_peers_of_a_forged_list_are_no_majority_for_a_far_term() -> None:
    made = guard(7)
    made_up = f"{WITH_N3};n4-10.0.0.5:1"
    reports(made, "n1", made_up, 9)
    senders = [("n3", "10.0.0.4"), ("n4", "10.0.0.5"), ("n3", "10.0.0.4")]
    assert [judged(made, name, made_up, 9, host, 1 << 40) for name, host in senders] == [
        MessageRefusal.TERM
    ] * 3


def test_a_member_removed_by_an_uncommitted_change_is_accepted() -> None:
    made = guard(9, before={"n3": "10.0.0.4:1"})
    assert judged(made, "n3", WITH_N3, 7) is None and made.vouched == {}
    assert judged(made, "n3", WITH_N3, 7, host="10.0.0.9") is MessageRefusal.ADDRESS


def test_members_that_can_read_changes_are_recorded() -> None:
    made = guard()
    for sender, index in (("n1", -1), ("n2", -2)):
        answer = HeartBeatResponse(4, ResultCode.SUCCESS)
        assert made.check_response(sender, answer, TheirList(LIST, index)) is None
    assert made.knows_changes == {"n1"}
    made.check_response("n1", HeartBeatResponse(4, ResultCode.SUCCESS), TheirList(LIST, -2))
    assert made.knows_changes == set()


def test_a_refusal_reports_a_different_member_list() -> None:
    made = guard()
    assert made.check_refusal("n1", TheirList("n1-10.0.0.2:1;n2-10.0.0.3:1", 5)) is MessageRefusal.PEERS
    assert made.refused["n1", "peers"] == 1


def test_a_refusal_of_a_member_that_lags_asks_for_patience(caplog: pytest.LogCaptureFixture) -> None:
    made = guard(9)
    without = "n1-10.0.0.2:1;n2-10.0.0.3:1"
    for index in (-1, 7):
        assert made.check_refusal("n1", TheirList(without, index)) is MessageRefusal.UNCONFIRMED
    assert [record.levelname for record in caplog.records if "is older" in record.getMessage()] == ["WARNING"]
    assert made.check_refusal("n1", TheirList(without, 9)) is MessageRefusal.PEERS


def test_another_leader_is_a_rival_only_when_settings_differ() -> None:
    theirs = f"n3-10.0.0.4:1;{LIST}"
    for own, index, rival in ((-1, -1, True), (-1, 9, False), (7, -1, False)):
        found = asyncio.run(guard(own).is_rival("n3", TheirList(theirs, index), "10.0.0.4:1", NOT_ASKED))
        assert found is rival


def test_members_with_different_log_origins_refuse_each_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    made = guard(-1)
    text, heard = made.peer_list, []
    made.origin = "a log up to 4096"
    made.on_other_origin = heard.append
    same, other, none = (
        TheirList(text, -1, origin) for origin in ("a log up to 4096", "a log up to 8192", "")
    )
    answer = HeartBeatResponse(1, ResultCode.SUCCESS)
    assert made.check_response("n1", answer, same) is None and heard == []
    assert made.check_response("n1", answer, other) is MessageRefusal.ORIGIN
    assert made.check_response("n2", answer, none) is MessageRefusal.ORIGIN
    assert heard == ["n1", "n2"]
    assert "here a log up to 4096, there a log up to 8192" in caplog.text and "there none" in caplog.text
    assert (made.refused["n1", "origin"], MessageRefusal.ORIGIN.code) == (1, ResultCode.UNKNOWN_MEMBER)


def test_a_member_that_was_added_again_is_a_confirmed_peer() -> None:
    """Otherwise Raft knows that the removal is committed and rejects that leader (Raft seed
    3088769975583584)."""
    made = guard(7, before={"n3": "10.0.0.4:1"})
    theirs = TheirList(WITH_N3, 9)
    assert judged(made, "n3", WITH_N3, 9) is None and made.needs_confirmation("n3", theirs)
    assert made.vouched == {}
    reports(made, "n1", WITH_N3, 9)
    assert made.vouched == {"n3": "10.0.0.4:1"}


def of(*names: tuple[str, str]) -> PeerCertificate:
    return names_in({"subjectAltName": names})


@pytest.mark.parametrize(
    ("certificate", "refusal"),
    [
        (of(("IP Address", "10.0.0.2")), None),
        (of(("URI", "rocketmq://10.0.0.2:1")), None),
        (of(("IP Address", "10.0.0.3")), MessageRefusal.CERTIFICATE),  # the one of n2
        (of(("IP Address", "10.0.0.2"), ("URI", "rocketmq://10.0.0.2:2")), MessageRefusal.CERTIFICATE),
        (of(("DNS", "alice")), MessageRefusal.CERTIFICATE),
        (MISSING, MessageRefusal.CERTIFICATE),
        (NOT_ASKED, None),
    ],
)
def test_a_member_speaks_only_with_a_certificate_of_its_address(
    certificate: PeerCertificate, refusal: MessageRefusal | None
) -> None:
    made = guard(7)
    assert judged(made, "n1", LIST, 7, "10.0.0.2", certificate=certificate) is refusal
    speaks = asyncio.run(made.speaks_for("n1", ["10.0.0.2:9"], certificate))
    assert speaks is (refusal is None)
    assert made.refused["n1", "certificate"] == (2 if refusal else 0)


def test_a_member_of_another_role_is_refused() -> None:
    made = guard(7, role="controller")
    for role, refusal in (("controller", None), ("broker/a", MessageRefusal.CERTIFICATE)):
        certificate = of(("IP Address", "10.0.0.2"), ("URI", f"rocketmq:{role}"))
        assert judged(made, "n1", LIST, 7, "10.0.0.2", certificate=certificate) is refusal


def test_a_member_of_a_newer_list_needs_a_certificate_too() -> None:
    made = guard(7)
    reports(made, "n1", WITH_N3, 9)
    wrong = of(("IP Address", "10.0.0.2"))
    assert judged(made, "n3", WITH_N3, 9, certificate=wrong) is MessageRefusal.CERTIFICATE
    assert judged(made, "n3", WITH_N3, 9, certificate=of(("IP Address", "10.0.0.4"))) is None


@pytest.mark.parametrize("certificate", [of(("DNS", "alice")), of(), MISSING])
@pytest.mark.parametrize(
    ("text", "index"), [(LIST, -1), (WITH_N3, 9), (f"{LIST};zz-10.9.9.9:1", -1), ("", -2)]
)
def test_a_message_without_the_certificate_of_its_sender_leaves_no_trace(
    certificate: PeerCertificate, text: str, index: int
) -> None:
    for sender in ("n1", "n3", "zz"):
        made = guard(7)
        made.knows_changes.add("n1")
        others: list[str] = []
        made.on_other_origin = others.append
        assert judged(made, sender, text, index, certificate=certificate) is MessageRefusal.CERTIFICATE
        assert (made.vouched, made.knows_changes, others) == ({}, {"n1"}, [])


def test_a_rival_with_a_certificate_must_be_at_the_address_of_a_member() -> None:
    def is_rival(text: str, certificate: PeerCertificate) -> bool:
        return asyncio.run(guard(-1).is_rival("zz", TheirList(text, -1), "10.0.0.2:9", certificate))

    stranger, renamed = f"{LIST};zz-10.0.0.2:7", "n0-10.0.0.1:1;zz-10.0.0.2:1"
    assert is_rival(stranger, NOT_ASKED) and is_rival(renamed, NOT_ASKED)
    own = of(("IP Address", "10.0.0.2"))
    assert is_rival(renamed, own) and not is_rival(stranger, own)
