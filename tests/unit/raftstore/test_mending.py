"""Corrupted entries and records are rebuilt from another member's bytes only if the old content is proven."""

from __future__ import annotations

import pytest

from dledger.raft.entries import Entry
from dledger.storage.entry import CHECK_END, CHECK_START, IndexUnit, header_of, stored_check
from messagestore.record import encode, encode_blank
from raftstore.mending import OWN_END, Around, closed, entry_in_header, is_closed, mended, plain_mended
from tests.unit.raftstore.raftstores import message

POSITION, PREVIOUS = 4096, 0x1234_5678


def written(body: bytes, batch_position: int, previous: int) -> bytes:
    """An entry as a member writes it: number `batch_position` of its sync, after an entry with that
    checksum."""
    return header_of(Entry(7, 3, body), POSITION, batch_position, previous)[0] + body


def bodies() -> list[bytes]:
    one = message(1, b"x" * 40, 5)
    one.physical_offset = POSITION + 48
    return [encode(one), b""]


def around(check: int = PREVIOUS, synced_before: int = 1, behind: bytes = b"") -> Around:
    return Around(check, synced_before, behind)


def behind(entry: bytes) -> bytes:
    """The next entry of that disk."""
    return header_of(Entry(8, 3, b"next"), POSITION + len(entry), 0, stored_check(entry))[0] + b"next"


def flipped(entry: bytes, at: int) -> bytes:
    return entry[:at] + bytes([entry[at] ^ 4]) + entry[at + 1 :]


@pytest.mark.parametrize("body", bodies())
def test_an_entry_is_rebuilt_with_the_checksums_of_its_own_disk(body: bytes) -> None:
    was, theirs = written(body, 2, PREVIOUS), written(body, 0, 99)
    assert was != theirs
    unit = entry_in_header(theirs, POSITION)
    assert unit == IndexUnit(POSITION, len(was), 7, 3)
    for at in [*range(CHECK_START), *range(OWN_END, len(was))]:
        assert mended(flipped(was, at), theirs, unit, around()) == was
    for zeroed in (was[:24] + bytes(24) + was[48:], bytes(len(was))):
        assert mended(zeroed, theirs, unit, around()) is None, (
            "our entries have a checksum, and later entries continue from it"
        )
    for at in range(CHECK_START, CHECK_END):  # only a later entry proves the old bytes
        assert mended(flipped(was, at), theirs, unit, around()) is None
        assert mended(flipped(was, at), theirs, unit, around(behind=behind(was))) == was
        assert mended(flipped(was, at), theirs, unit, around(behind=flipped(behind(was), 50))) is None
    for at in range(CHECK_END, OWN_END):  # known from the entry before
        assert mended(flipped(was, at), theirs, unit, around()) == was
        assert mended(flipped(was, at), theirs, unit, around(synced_before=7)) is None


def test_an_entry_is_not_rebuilt_without_proof() -> None:
    body, other = bodies()[0], message(1, b"y" * 40, 5)
    other.physical_offset = POSITION + 48
    was = written(body, 2, PREVIOUS)
    unit = entry_in_header(was, POSITION)
    assert unit is not None
    assert mended(was, written(encode(other), 0, 99), unit, around()) is None, "another message of its size"
    assert mended(was, flipped(written(body, 0, 99), 150), unit, around()) is None, "corrupted there too"
    assert mended(was, was, unit, around(PREVIOUS + 1)) is None, "the entry before is another"
    assert mended(was[:-1], was, unit, around()) is None
    assert entry_in_header(was, POSITION + 1) is None
    by_java = was[:CHECK_START] + bytes(8) + was[OWN_END:]
    assert CHECK_END + 4 == OWN_END
    assert mended(flipped(by_java, 150), was, unit, around(0)) == by_java, "Java writes no checksums"


def test_file_ends_and_plain_records_are_rebuilt() -> None:
    assert is_closed(closed(500), 500) and not is_closed(closed(500), 499) and not is_closed(b"", 500)
    one = message(2, b"z" * 30, 0)
    one.physical_offset = 256
    record = encode(one)
    assert plain_mended(record, 10_000, 256) == record
    assert plain_mended(flipped(record, 90), 10_000, 256) is None
    assert plain_mended(record, 10_000, 512) is None
    assert plain_mended(encode_blank(300), 300, 700) == encode_blank(300)
    assert plain_mended(encode_blank(300), 301, 700) is None
