"""Member lists: their bytes, the allowed changes, and the list in force in a log."""

from __future__ import annotations

import pytest

from dledger.raft.entries import Entry
from dledger.raft.errors import ChangeRefused, MembersUnknown, RefusalReason
from dledger.raft.membership import (
    Change,
    ConfigurationHistory,
    Members,
    RaftMembership,
    Step,
    decode_configurations,
    decode_members,
    encode_configurations,
    encode_members,
    is_members,
)

THREE = Members({"n0": "h0:1", "n1": "h1:1", "n2": "h2:1"})
FOUR = Members(THREE.voters, {"n3": "h3:1"})
BODY = b'\x00dledger members\x00\x01{"voters":{"n0":"h0:1","n1":"h1:1","n2":"h2:1"},"learners":{"n3":"h3:1"}}'


def test_a_member_list_has_these_bytes_and_reads_back() -> None:
    assert encode_members(FOUR) == BODY
    assert is_members(BODY) and not is_members(b"") and not is_members(b"\x00dledger members")
    assert decode_members(7, BODY) == FOUR


@pytest.mark.parametrize(
    "body",
    [
        b"\x00dledger members\x00",
        b"\x00dledger members\x00\x02{}",
        b"\x00dledger members\x00\x01",
        b"\x00dledger members\x00\x01{}",
        b'\x00dledger members\x00\x01{"voters":{},"learners":{}}',
        b'\x00dledger members\x00\x01{"voters":{"n0":"h0:1"},"learners":{"n0":"h0:1"}}',
        b'\x00dledger members\x00\x01{"voters":{"n0":1},"learners":{}}',
        b'\x00dledger members\x00\x01{"voters":["n0"],"learners":{}}',
    ],
)
def test_a_malformed_member_list_is_rejected(body: bytes) -> None:
    with pytest.raises(MembersUnknown, match="entry 7"):
        decode_members(7, body)


@pytest.mark.parametrize(
    ("change", "voters", "learners", "quorum"),
    [
        (Change(Step.ADD, "n4", "h4:1"), "n0 n1 n2", "n3 n4", 2),
        (Change(Step.PROMOTE, "n3"), "n0 n1 n2 n3", "", 3),
        (Change(Step.REMOVE, "n3"), "n0 n1 n2", "", 2),
        (Change(Step.REMOVE, "n0"), "n1 n2", "n3", 2),
    ],
)
def test_a_change_produces_the_next_member_list(
    change: Change, voters: str, learners: str, quorum: int
) -> None:
    members = change.of(FOUR)
    assert sorted(members.voters) == voters.split() and sorted(members.learners) == learners.split()
    assert members.quorum == quorum


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (Change(Step.ADD, "n0", "h9:1"), RefusalReason.ID_TAKEN),
        (Change(Step.ADD, "n3", "h9:1"), RefusalReason.ID_TAKEN),
        (Change(Step.ADD, "n9", "h3:1"), RefusalReason.ADDRESS_TAKEN),
        (Change(Step.ADD, "n9", "h9"), RefusalReason.BAD_ADDRESS),
        (Change(Step.ADD, "n9", "h9:65536"), RefusalReason.BAD_ADDRESS),
        (Change(Step.ADD, "n-9", "h9:1"), RefusalReason.BAD_ADDRESS),
        (Change(Step.ADD, "n9", "h;9:1"), RefusalReason.BAD_ADDRESS),
        (Change(Step.PROMOTE, "n9"), RefusalReason.UNKNOWN_ID),
        (Change(Step.PROMOTE, "n1"), RefusalReason.VOTES_ALREADY),
        (Change(Step.REMOVE, "n9"), RefusalReason.UNKNOWN_ID),
    ],
)
def test_an_impossible_change_is_rejected_with_its_reason(change: Change, why: RefusalReason) -> None:
    with pytest.raises(ChangeRefused) as refused:
        change.of(FOUR)
    assert refused.value.why is why


def test_the_last_voter_cannot_be_removed() -> None:
    one = Members({"n0": "h0:1"}, {"n1": "h1:1"})
    with pytest.raises(ChangeRefused) as refused:
        Change(Step.REMOVE, "n0").of(one)
    assert refused.value.why is RefusalReason.LAST_VOTER
    assert Change(Step.REMOVE, "n1").of(one).learners == {}


def said(index: int, members: Members) -> Entry:
    return Entry(index, 1, encode_members(members))


def test_the_newest_list_in_the_log_is_in_force_until_it_is_cut() -> None:
    membership = RaftMembership("n0", THREE)
    assert (membership.index, membership.peers, membership.voters) == (-1, ("n1", "n2"), ("n1", "n2"))
    assert membership.take([Entry(0, 1, b""), said(1, FOUR), Entry(2, 1, b"x")])
    assert (membership.index, membership.peers, membership.voters) == (1, ("n1", "n2", "n3"), ("n1", "n2"))
    two = Change(Step.REMOVE, "n0").of(FOUR)
    assert membership.take([said(3, two)]) and not membership.votes and membership.quorum == 2
    assert membership.at(2) == ((1, FOUR),) and membership.at(0) == ()
    assert membership.knows("n3", 3) and not membership.knows("n9", 3)
    assert not membership.cut(4)
    assert membership.cut(3) and membership.members == FOUR
    assert membership.cut(0) and membership.members == THREE


def test_a_member_removed_by_an_uncommitted_change_is_still_known() -> None:
    membership = RaftMembership("n1", THREE, [(5, FOUR), (9, Members({"n1": "h1:1", "n2": "h2:1"}))])
    assert membership.before(4) == THREE.addresses | FOUR.addresses
    assert membership.before(8) == FOUR.addresses and membership.knows("n0", 8)
    assert membership.before(9) == {} and not membership.knows("n0", 9)


def test_new_entries_replace_the_configurations_from_their_index_on() -> None:
    history = ConfigurationHistory([(3, THREE), (5, FOUR)])
    assert not ConfigurationHistory().take([Entry(0, 1, b"x")])
    assert history.take([Entry(4, 2, b"x"), Entry(5, 2, b"y")])
    assert history.up_to(99) == (3, THREE) and history.up_to(2) is None


def test_a_span_returns_the_configurations_of_a_range_of_indexes() -> None:
    history = ConfigurationHistory([(3, THREE), (5, FOUR), (8, THREE)])
    assert history.span(6, 99) == [(5, FOUR), (8, THREE)]
    assert history.span(2, 5) == [(3, THREE), (5, FOUR)]
    history.forget(6)
    assert history.span(-1, 99) == [(5, FOUR), (8, THREE)]


def test_configurations_are_stored_as_one_line() -> None:
    text = encode_configurations([(5, FOUR)])
    assert text == ('[{"index":5,"voters":{"n0":"h0:1","n1":"h1:1","n2":"h2:1"},"learners":{"n3":"h3:1"}}]')
    assert decode_configurations("f", text) == ((5, FOUR),)
    assert encode_configurations([]) == "" and decode_configurations("f", "") == ()
    with pytest.raises(MembersUnknown, match="^f has"):
        decode_configurations("f", "[{}]")
