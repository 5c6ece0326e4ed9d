"""The four frames, byte by byte as in the reference."""

from __future__ import annotations

import pytest

from epochfile.history import EpochHistory
from ha.frames import (
    BODY_SIZE_MAX,
    EPOCH_ENTRY,
    HANDSHAKE_REPLY,
    TRANSFER,
    HAFrameError,
    Handshake,
    HandshakeReply,
    TransferHeader,
    decode_ack,
    encode_ack,
)

TWO_EPOCHS = EpochHistory([(1, 0), (2, 1580)])


def test_a_handshake_has_these_bytes() -> None:
    data = bytes.fromhex("00000001000000000000000000000002")
    assert Handshake(2).encode() == data
    assert Handshake.decode(data) == Handshake(2)
    assert Handshake.decode(Handshake(7, True, True).encode()) == Handshake(7, True, True)


def test_a_handshake_reply_with_two_epochs_has_these_bytes() -> None:
    data = bytes.fromhex(
        "00000001000000180000000000000cd000000002000000010000000000000000000000020000000000000" + "62c"
    )
    reply = HandshakeReply(3280, TWO_EPOCHS)
    assert reply.encode() == data
    assert HandshakeReply.body_size(data[:20]) == 24
    assert HandshakeReply.decode(data[:20], data[20:]) == reply


def test_a_transfer_header_has_these_bytes() -> None:
    data = bytes.fromhex("000000020000062c00000000000006a400000002000000000000062c0000000000000cd0")
    header = TransferHeader(1580, 1700, 2, 1580, 3280)
    assert header.encode() == data
    assert TransferHeader.decode(data) == header


def test_an_ack_has_these_bytes() -> None:
    assert encode_ack(3280) == bytes.fromhex("000000020000000000000cd0")
    assert decode_ack(encode_ack(3280)) == 3280


@pytest.mark.parametrize("size", [-1, -(2**31), BODY_SIZE_MAX + 1, 2**31 - 1])
def test_a_transfer_body_of_an_impossible_size_is_refused_r34(size: int) -> None:
    with pytest.raises(HAFrameError, match="body"):
        TransferHeader.decode(TRANSFER.pack(2, size, 0, 1, 0, 0))


@pytest.mark.parametrize("state", [-1, 0, 1, 3, 4, 2**31 - 1])
def test_a_transfer_frame_of_another_state_is_refused(state: int) -> None:
    with pytest.raises(HAFrameError, match="state"):
        TransferHeader.decode(TRANSFER.pack(state, 0, 0, 1, 0, 0))


@pytest.mark.parametrize("size", [-12, 0, 13, 12 * 100_001, 2**31 - 1])
def test_a_handshake_reply_with_an_impossible_epoch_list_is_refused(size: int) -> None:
    with pytest.raises(HAFrameError, match="epochs"):
        HandshakeReply.body_size(HANDSHAKE_REPLY.pack(1, size, 0, 1))


@pytest.mark.parametrize(
    "entries", [[(2, 0), (1, 5)], [(1, 0), (1, 5)], [(1, 5), (2, 5)], [(-1, 0)], [(1, -1)]]
)
def test_a_handshake_reply_with_epochs_out_of_order_is_refused(entries: list[tuple[int, int]]) -> None:
    body = b"".join(EPOCH_ENTRY.pack(*entry) for entry in entries)
    with pytest.raises(HAFrameError):
        HandshakeReply.decode(HANDSHAKE_REPLY.pack(1, len(body), 100, 1), body)


def test_a_handshake_reply_with_an_epoch_beyond_the_log_is_refused() -> None:
    data = HandshakeReply(1000, TWO_EPOCHS).encode()
    with pytest.raises(HAFrameError, match="beyond"):
        HandshakeReply.decode(data[:20], data[20:])


def test_more_than_a_thousand_epochs_fit_r16() -> None:
    epochs = EpochHistory((n, n * 10) for n in range(1, 2001))
    data = HandshakeReply(10**6, epochs).encode()
    assert HandshakeReply.decode(data[:20], data[20:]).epochs == epochs


ADDRESSED = bytes.fromhex("00000001 0001 0000 0000000e") + b"10.0.0.2:10911"


def test_a_handshake_of_slaves_before_5_1_1_contains_an_address() -> None:
    """Layout of 5.0.0: state, two flags, the address' length and the address, which is not padded."""
    assert Handshake.size_of(ADDRESSED) == len(ADDRESSED) == 26
    assert Handshake.decode(ADDRESSED) == Handshake(0, True, False, address="10.0.0.2:10911")
    assert Handshake(0, True, False, address="10.0.0.2:10911").encode() == ADDRESSED


def test_bytes_8_to_11_distinguish_the_two_handshakes() -> None:
    assert Handshake.size_of(Handshake(2).encode()[:12]) == 16
    assert Handshake.size_of(ADDRESSED[:12]) == 26
    assert Handshake.size_of(ADDRESSED[:11]) is None


def test_an_address_that_is_too_long_or_no_text_is_refused() -> None:
    with pytest.raises(HAFrameError):
        Handshake.size_of(ADDRESSED[:8] + b"\0\0\4\1")
    with pytest.raises(HAFrameError):
        Handshake.decode(ADDRESSED[:12] + b"\xff" * 14)
