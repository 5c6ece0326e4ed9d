"""The frames of the AutoSwitch link, big-endian, declared once.

Invariant: every size and field position of the link's wire format is in this file and nowhere else. Pure."""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from epochfile.history import EpochHistory, EpochOutOfOrder

Readable = bytes | bytearray | memoryview


class HAConnectionState(IntEnum):
    """The first field of every frame."""

    READY = 0
    HANDSHAKE = 1
    TRANSFER = 2
    SUSPEND = 3
    SHUTDOWN = 4


HANDSHAKE_STATE, TRANSFER_STATE = int(HAConnectionState.HANDSHAKE), int(HAConnectionState.TRANSFER)
"""Constants for the check of every frame, because an enum's attributes are slow to look up."""

HANDSHAKE = Struct(
    ">"  # offset field
    "i"  #  0 state                   HANDSHAKE
    "h"  #  4 is_sync_from_last_file  1: an empty slave starts at the master's last file
    "h"  #  6 is_async_learner        1: never a member of the SyncStateSet; 2, not upstream's: only acknowledges data on disk.
    #                                 Upstream's master compares with 1
    "q"  #  8 slave_broker_id         the id that the controllers granted, >= 1
)
ADDRESS_HANDSHAKE = Struct(
    ">"  # offset field
    "i"  #  0 state                   HANDSHAKE
    "h"  #  4 is_sync_from_last_file
    "h"  #  6 is_async_learner
    "i"  #  8 address_size            bytes of UTF-8 that follow: the address that the slave registered
)
HANDSHAKE_REPLY = Struct(
    ">"  # offset field
    "i"  #  0 state       HANDSHAKE
    "i"  #  4 body_size   12 bytes an epoch entry
    "q"  #  8 max_offset  end of the master's log
    "i"  # 16 last_epoch  the master's last epoch, -1 if there is none; readers use the entries
)
EPOCH_ENTRY = Struct(
    ">"  # offset field
    "i"  #  0 epoch
    "q"  #  4 start_offset
)
TRANSFER = Struct(
    ">"  # offset field
    "i"  #  0 state               TRANSFER
    "i"  #  4 body_size           bytes of log that follow; 0 in a heartbeat or the notice of an epoch
    "q"  #  8 offset              offset of the first of these bytes
    "i"  # 16 epoch               the epoch in which these bytes were written
    "q"  # 20 epoch_start_offset
    "q"  # 28 confirm_offset      every SyncStateSet member holds the log up to here
)
ACK = Struct(
    ">"  # offset field
    "i"  #  0 state       TRANSFER
    "q"  #  4 max_offset  end of the slave's log; the first ack requests the start offset
)
assert (HANDSHAKE.size, ADDRESS_HANDSHAKE.size, HANDSHAKE_REPLY.size) == (16, 12, 20)
assert (EPOCH_ENTRY.size, TRANSFER.size, ACK.size) == (12, 36, 12)

LEARNER, ACKS_FLUSHED = 1, 2
"""Values of `is_async_learner` in a handshake."""

BODY_SIZE_MAX = 4 * 1024 * 1024 - TRANSFER.size
"""A Java slave has a buffer of 4 MiB for one frame."""
EPOCH_ENTRIES_MAX = 100_000
ADDRESS_SIZE_MAX = 1_024


class HAFrameError(ValueError):
    """The bytes violate the protocol."""


class Handshake(NamedTuple):
    """The first bytes of a connection, sent by the slave to the master. Slaves before 5.1.1 send their address instead of an
    id, and have id 0 here."""

    slave_broker_id: int
    is_sync_from_last_file: bool = False
    is_async_learner: bool = False
    acks_flushed: bool = False  # a learner does not count, and never sends this
    address: str = ""

    @staticmethod
    def size_of(data: Readable) -> int | None:
        """Size of the handshake at the start of `data`; None if more data is needed to know. The upper half of an id, which
        controllers never use, is the size of the address in the form with an address. Raises HAFrameError."""
        if len(data) < ADDRESS_HANDSHAKE.size:
            return None
        address_size = ADDRESS_HANDSHAKE.unpack_from(data)[3]
        if address_size <= 0:
            return HANDSHAKE.size
        if address_size > ADDRESS_SIZE_MAX:
            raise HAFrameError(f"a handshake with an address of {address_size} bytes")
        return int(ADDRESS_HANDSHAKE.size + address_size)

    def encode(self) -> bytes:
        kind = LEARNER if self.is_async_learner else ACKS_FLUSHED if self.acks_flushed else 0
        if self.address:
            address = self.address.encode()
            head = HAConnectionState.HANDSHAKE, self.is_sync_from_last_file, kind, len(address)
            return ADDRESS_HANDSHAKE.pack(*head) + address
        return HANDSHAKE.pack(
            HAConnectionState.HANDSHAKE,
            self.is_sync_from_last_file,
            kind,
            self.slave_broker_id,
        )

    @staticmethod
    def decode(data: Readable) -> Handshake:
        """Decode `size_of` bytes. Raises HAFrameError."""
        state, last_file, kind, address_size = ADDRESS_HANDSHAKE.unpack_from(data)
        if address_size > 0:
            expect_state(state, HAConnectionState.HANDSHAKE)
            try:
                address = bytes(data[ADDRESS_HANDSHAKE.size :]).decode()
            except UnicodeDecodeError:
                raise HAFrameError("a handshake with an address that is not text") from None
            return Handshake(0, last_file == 1, kind == LEARNER, kind == ACKS_FLUSHED, address)
        state, last_file, kind, broker_id = HANDSHAKE.unpack(data)
        expect_state(state, HAConnectionState.HANDSHAKE)
        return Handshake(broker_id, last_file == 1, kind == LEARNER, kind == ACKS_FLUSHED)


class HandshakeReply(NamedTuple):
    """The master's reply to the slave: the epochs of the master's log and the log's end."""

    max_offset: int
    epochs: EpochHistory

    def encode(self) -> bytes:
        """Encode header and entries in one piece, because a Java slave that receives only the header sends a second
        handshake."""
        header = HANDSHAKE_REPLY.pack(
            HAConnectionState.HANDSHAKE,
            EPOCH_ENTRY.size * len(self.epochs),
            self.max_offset,
            self.epochs.last_epoch(),
        )
        return header + b"".join(EPOCH_ENTRY.pack(*entry) for entry in self.epochs)

    @staticmethod
    def body_size(header: Readable) -> int:
        """Size of the entries after this header. Raises HAFrameError if the header cannot be that of a reply."""
        state, body_size, max_offset, _last_epoch = HANDSHAKE_REPLY.unpack(header)
        expect_state(state, HAConnectionState.HANDSHAKE)
        if body_size % EPOCH_ENTRY.size or not 0 < body_size <= EPOCH_ENTRIES_MAX * EPOCH_ENTRY.size:
            raise HAFrameError(f"a handshake reply with {body_size} bytes of epochs")
        if max_offset < 0:
            raise HAFrameError(f"a handshake reply with max offset {max_offset}")
        return int(body_size)

    @staticmethod
    def decode(header: Readable, body: Readable) -> HandshakeReply:
        """Decode a reply. Raises HAFrameError unless the epochs are in order and begin within the log."""
        max_offset = HANDSHAKE_REPLY.unpack(header)[2]
        try:
            epochs = EpochHistory(EPOCH_ENTRY.iter_unpack(body))
        except EpochOutOfOrder as error:
            raise HAFrameError(f"a handshake reply with {error}") from error
        last = epochs.last()
        if last is not None and last.start_offset > max_offset:
            raise HAFrameError(f"a handshake reply with {epochs!r} beyond its max offset {max_offset}")
        return HandshakeReply(max_offset, epochs)


class TransferHeader(NamedTuple):
    """Master to slave, followed by `body_size` bytes of log."""

    body_size: int
    offset: int
    epoch: int
    epoch_start_offset: int
    confirm_offset: int

    def encode(self) -> bytes:
        return TRANSFER.pack(TRANSFER_STATE, *self)

    @staticmethod
    def decode(data: Readable) -> TransferHeader:
        """Decode a header. Raises HAFrameError for another state, or for a body size that no frame can have."""
        state, body_size, offset, epoch, epoch_start_offset, confirm_offset = TRANSFER.unpack(data)
        if state != TRANSFER_STATE:
            expect_state(state, HAConnectionState.TRANSFER)
        if not 0 <= body_size <= BODY_SIZE_MAX:
            raise HAFrameError(f"a transfer frame with a body of {body_size} bytes")
        return TransferHeader(body_size, offset, epoch, epoch_start_offset, confirm_offset)


def encode_ack(max_offset: int) -> bytes:
    return ACK.pack(TRANSFER_STATE, max_offset)


def decode_ack(data: Readable) -> int:
    """The slave's log end. Raises HAFrameError for another state."""
    state, max_offset = ACK.unpack(data)
    expect_state(state, HAConnectionState.TRANSFER)
    return int(max_offset)


def state_of(data: Readable) -> int:
    """The first field of the frame at the start of `data`, which has at least 4 bytes."""
    return int.from_bytes(data[:4], "big", signed=True)


def expect_state(state: int, wanted: HAConnectionState) -> None:
    if state != wanted:
        raise HAFrameError(f"a frame of state {state} where {wanted.name} is due")
