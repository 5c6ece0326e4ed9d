"""The text of the epoch file, against files that RocketMQ 5.3.3 wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epochfile.format import EpochFileDamaged, decode, encode
from epochfile.history import EpochHistory

STATES = sorted((Path(__file__).parents[2] / "vectors/ha/state-auto").iterdir())


def test_two_entries_are_written_as_rocketmq_writes_them() -> None:
    text = bytes.fromhex("320a313330323334303032350a312d300a322d313538300a")
    assert encode(EpochHistory([(1, 0), (2, 1580)])) == text == b"2\n1302340025\n1-0\n2-1580\n"


@pytest.mark.parametrize(
    ("entries", "crc"),
    [
        ([(7, 7000), (8, 8000)], 773307083),
        ([(1, 0)], 1725254278),
        ([(1, 0), (2, 1580), (3, 3280)], 1993944182),
    ],
)
def test_the_crc_covers_the_entry_lines(entries: list[tuple[int, int]], crc: int) -> None:
    data = encode(EpochHistory(entries))
    assert data.split(b"\n")[1] == b"%d" % crc
    assert decode(data) == EpochHistory(entries)


@pytest.mark.parametrize("state", STATES, ids=lambda path: path.name)
def test_files_of_java_brokers_are_read_and_written_back_byte_for_byte(state: Path) -> None:
    data = (state / "epochFileCheckpoint").read_bytes()
    history = decode(data)
    assert encode(history) == data
    reported = json.loads((state / "info.json").read_text())
    if reported and "info" in reported and reported["info"]:
        assert [tuple(row) for row in history] == [
            (e["epoch"], e["startOffset"]) for e in reported["info"]["epochList"]
        ]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\n",
        b"2\n1302340025\n",
        b"2\n1302340025\n1-0\n",
        b"2\n1302340025\n1-0\n2-1580",
        b"1\n1302340025\n1-0\n2-1580\n",
        b"2\n1302340026\n1-0\n2-1580\n",
        b"0\n0\n",
        b"-1\n0\n",
        b"1\n0\n-1-5\n",
        b"1\n0\n1-0-0\n",
        b"1\n0\n1 - 0\n",
        b"1\n0\n1-\n",
        b"2\n0\n2-0\n1-10\n",
        b"2\n0\n1-10\n2-10\n",
        b"1\n0\n2147483648-0\n",
        b"\xef\xbb\xbf1\n1725254278\n1-0\n",
        b"1\r\n1725254278\r\n1-0\r\n",
        b"99999999\n0\n" + b"1-0\n" * 3,
        b"x\ny\nz\n",
        b"\0" * 64,
        "1\n0\n\u0661-0\n".encode(),
    ],
)
def test_any_malformed_file_is_damage_and_not_a_shorter_history(data: bytes) -> None:
    with pytest.raises(EpochFileDamaged):
        decode(data)


def test_a_crc_of_zero_is_not_checked() -> None:
    assert decode(b"1\n0\n1-0\n") == EpochHistory([(1, 0)])


def test_every_prefix_of_a_file_is_damage() -> None:
    data = encode(EpochHistory([(1, 0), (2, 1580), (3, 3280)]))
    for length in range(len(data)):
        with pytest.raises(EpochFileDamaged):
            decode(data[:length])
