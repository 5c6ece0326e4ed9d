"""Slices of a log of entries as the scrub checks them: each flipped bit is reported for its own entry."""

from __future__ import annotations

from dledger.raft.entries import Entry
from dledger.storage.entry import header_of, stored_check
from messagestore.record import encode
from raftstore.chain import ENDS_MAX, Chain, walk_entries
from tests.unit.raftstore.raftstores import message

FILE = 4096


def log(*bodies_or_none: bytes | None) -> tuple[bytes, list[int]]:
    """Entries with these bodies, or with a message for None; and the start of each."""
    content, begins, check = b"", list[int](), 0
    for index, given in enumerate(bodies_or_none):
        begins.append(len(content))
        one = message(index, b"body", index)
        one.physical_offset = len(content) + 48
        body = encode(one) if given is None else given
        header, check = header_of(Entry(index, 1, body), len(content), index, check)
        content += header + body
    return content, begins


def test_a_flipped_bit_is_reported_for_its_own_entry_only() -> None:
    content, begins = log(b"", None, None, b"")
    walked, checks = walk_entries(content, 0, FILE, len(content), before=(0,))
    assert (walked.end, walked.records, walked.why) == (len(content), 4, "")
    assert checks == (stored_check(content[begins[-1] :]),)
    for at in range(len(content)):
        corrupted = content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :]
        walked, checks = walk_entries(corrupted, 0, FILE, len(content), before=(0,))
        assert walked.why and walked.end == max(begin for begin in begins if begin <= at), at
        if walked.size:
            behind, rest = walked.end + walked.size, corrupted[walked.end + walked.size :]
            assert walk_entries(rest, behind, FILE, len(content), before=checks)[0].why == "", at


def test_the_checksum_of_the_first_entry_in_a_walk_is_trusted() -> None:
    content, begins = log(b"", b"")
    walked, checks = walk_entries(content[begins[1] :], begins[1], FILE, len(content))
    assert not walked.why and checks == (stored_check(content[begins[1] :]),)
    assert walk_entries(content[begins[1] :], begins[1], FILE, len(content), before=(7,))[0].why
    by_java = content[:36] + bytes(4) + content[40 : begins[1]]
    assert not walk_entries(by_java, 0, FILE, begins[1], before=(9,))[0].why, "Java writes no checksums"


def test_a_walk_continues_with_the_checksum_where_another_ended() -> None:
    chain = Chain()
    assert chain.before(0) == ()
    chain.ends(96, (5,))
    chain.ends(96, ())
    assert chain.before(96) == (5,) and chain.before(95) == ()
    for position in range(100, 100 + ENDS_MAX):
        chain.ends(position, (1,))
    assert chain.before(96) == ()
