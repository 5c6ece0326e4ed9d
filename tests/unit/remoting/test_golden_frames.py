"""Frames captured between Java processes: decoded correctly, and written back byte for byte."""

from __future__ import annotations

import pytest

from remoting.command import JSON, ONEWAY_BIT, RESPONSE_BIT, RemotingCommand
from remoting.frame import FrameReader, encode
from remoting.headercodec import LANGUAGES
from tests.unit.remoting.goldenframes import GoldenFrame, golden_frames, odd_frames


def read(data: bytes, step: int) -> list[RemotingCommand]:
    reader = FrameReader()
    commands = [c for at in range(0, len(data), step) for c in reader.receive(data[at : at + step])]
    assert reader.failure is None
    assert not reader.has_partial_frame
    return commands


def test_every_captured_frame_reads_as_its_decoding_says() -> None:
    for golden in golden_frames():
        (command,) = read(golden.data, len(golden.data))
        header = golden.header
        assert command.code == header["code"]
        assert command.opaque == header["opaque"]
        assert command.flag == header["flag"]
        assert command.language in (header["language"], LANGUAGES[0] if header["language"] == 0 else None)
        assert command.version == header["version"]
        assert command.remark == header.get("remark")
        assert command.ext == (header.get("extFields") or {})
        assert len(command.body or b"") == golden.row["bodyLength"]
        assert command.serialize_type == golden.serialize_type


@pytest.mark.parametrize("step", [1, 7, 100_000])
def test_frames_are_read_in_any_chunks(step: int) -> None:
    goldens = [golden for golden in golden_frames() if step > 1 or len(golden.data) < 1000][: 4000 * step]
    stream = b"".join(golden.data for golden in goldens)
    commands = read(stream, step)
    assert [command.opaque for command in commands] == [golden.header["opaque"] for golden in goldens]
    assert [len(command.body or b"") for command in commands] == [g.row["bodyLength"] for g in goldens]


def test_a_java_sender_s_frames_are_written_back_byte_for_byte() -> None:
    rewritten = [golden for golden in golden_frames() if is_java_ordered(golden)]
    assert len(rewritten) > len(golden_frames()) * 0.98
    for golden in rewritten:
        (command,) = read(golden.data, len(golden.data))
        assert b"".join(encode(command)) == without_empty_ext(golden)


def is_java_ordered(golden: GoldenFrame) -> bool:
    """A few of the captured JSON headers were written by hand, in another order of keys than Java's."""
    return golden.serialize_type != JSON or list(golden.header) == sorted(golden.header)


def without_empty_ext(golden: GoldenFrame) -> bytes:
    """Java writes `"extFields":{}` for an empty header object and nothing for none; we write nothing."""
    empty = b'"extFields":{},'
    if golden.serialize_type != JSON or golden.header.get("extFields") != {}:
        return golden.data
    length, word = int.from_bytes(golden.data[:4], "big"), int.from_bytes(golden.data[4:8], "big")
    shorter = (length - len(empty)).to_bytes(4, "big") + (word - len(empty)).to_bytes(4, "big")
    return shorter + golden.data[8:].replace(empty, b"", 1)


@pytest.mark.parametrize("odd", odd_frames(), ids=lambda odd: odd["name"])
def test_malformed_frames_close_the_connection_exactly_when_java_does(odd: dict[str, object]) -> None:
    data = bytes.fromhex(str(odd["sentHexPrefix"]))
    reader = FrameReader()
    commands = reader.receive(data)
    assert (reader.failure is not None) == odd["closed"]
    answered = str(odd["receivedText"]).count('"flag":1')
    assert len([c for c in commands if not c.flag & (ONEWAY_BIT | RESPONSE_BIT)]) == answered
