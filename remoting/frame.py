"""Cuts a byte stream into commands, whatever pieces the network delivers.

    offset size
    0      4     bytes after this field = 4 + header size + body size
    4      4     high byte: header encoding; low 24 bits: header size
    8            header, then body

Invariant: the reader holds at most one incomplete frame, in one buffer that grows with the bytes received,
never with the bytes announced. After the first malformed frame `failure` is set and nothing more is read. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import TYPE_CHECKING

from mqruntime.otherprotocols import PREFIX_BYTES, other_protocol
from remoting.command import Body, RemotingCommand
from remoting.errors import FrameError
from remoting.headercodec import decode_header, encode_header, unread_header

if TYPE_CHECKING:
    from nativepath.native import Sends

    ReadSends = Callable[[memoryview, int, int, int, int], Sends | None]

FRAME_BYTES_MAX = 16 * 1024 * 1024  # including the length field, as in Java's decoder
HEADER_BYTES_MAX = 1024 * 1024
"""Limit of a request's header. Properties of 32,767 bytes may take 196,602 bytes in JSON."""
LENGTH = Struct(">I")
START = Struct(">II")
ALL_BYTES = 1 << 30
SLOW_WEIGHT = 32
"""A byte of a header that is no strict JSON, or has many ROCKETMQ entries, counts as so many: it takes as many times longer."""
BUFFER_BYTES_FIRST = 512  # for a quiet connection; a controller has thousands
BUFFER_BYTES_FREE_MIN = 4 * 1024
BUFFER_BYTES_KEPT = 256 * 1024  # a bigger buffer is released as soon as it is empty


def encode(command: RemotingCommand) -> list[Body]:
    """The buffers of the command's frame: one with lengths and header, and then the pieces of the body, if there is one,
    uncopied."""
    header = encode_header(command)
    body = command.body
    body_size = len(body) if body is not None else 0
    if body is not None and command.behind:
        body_size += sum(map(len, command.behind))
        head = START.pack(4 + len(header) + body_size, command.serialize_type << 24 | len(header)) + header
        return [head, body, *command.behind]
    head = START.pack(4 + len(header) + body_size, command.serialize_type << 24 | len(header)) + header
    return [head, body] if body is not None and body_size else [head]


def commands_in(view: memoryview) -> list[RemotingCommand]:
    """The commands of whole, valid frames; their bodies are parts of `view`."""
    commands, at = [], 0
    while at < len(view):
        length, word = START.unpack_from(view, at)
        header_end, frame_end = at + 8 + (word & 0xFFFFFF), at + 4 + length
        command = decode_header(word >> 24, view[at + 8 : header_end])
        if header_end < frame_end:
            command.body = view[header_end:frame_end]
        commands.append(command)
        at = frame_end
    return commands


class FrameReader:
    """A receive buffer and the frames in it. A header that is longer than `header_bytes_max` is not decoded, and its command is
    marked `unread`. The same holds for a header that is slow to decode, unless `header_bytes_max` allows a whole frame.

    A connection lets its transport fill `buffer()` and then calls `filled(n)`; tests and tools call
    `receive(data)`.
    """

    def __init__(
        self, frame_bytes_max: int = FRAME_BYTES_MAX, header_bytes_max: int = HEADER_BYTES_MAX
    ) -> None:
        self.failure: FrameError | None = None
        self.has_more = False
        """Whether bytes passed to `taken` may hold whole frames that `read` has not returned."""
        self._frame_bytes_max = frame_bytes_max
        self._header_bytes_max = header_bytes_max
        self._bounded = header_bytes_max < frame_bytes_max - START.size
        self._view = memoryview(bytearray(BUFFER_BYTES_FIRST))
        self._begin = 0  # position of the first byte not yet read as a frame
        self._end = 0  # end of the bytes received

    @property
    def has_partial_frame(self) -> bool:
        return self._begin < self._end

    @property
    def size(self) -> int:
        """Of the buffer."""
        return len(self._view)

    def let_go(self) -> None:
        """Release a big buffer if it is empty. Bodies that were returned become invalid."""
        if self._begin == self._end:
            self._begin = self._end = 0
            if len(self._view) > BUFFER_BYTES_KEPT:
                self._view = memoryview(bytearray(BUFFER_BYTES_KEPT))

    def buffer(self) -> memoryview:
        """The buffer for the next bytes, which is never empty. Bodies returned by `filled` become invalid."""
        if self._begin == self._end:
            self.let_go()
        elif self._begin and len(self._view) - self._end < BUFFER_BYTES_FREE_MIN:
            rest = bytes(self._view[self._begin : self._end])
            self._view[: len(rest)] = rest
            self._begin, self._end = 0, len(rest)
        if self._end == len(self._view):
            self._grow()
        return self._view[self._end :]

    def filled(self, count: int) -> list[RemotingCommand]:
        """Take `count` bytes written to `buffer()`, and return the commands whose frames they complete.

        Bodies are memoryviews of the buffer, valid until the next `buffer()` call.
        """
        self.taken(count)
        return self.read(ALL_BYTES)

    def taken(self, count: int) -> None:
        """Take `count` bytes that were written to `buffer()`, without looking for frames. `read` does that."""
        self._end += count
        self.has_more = True

    def read(self, frames_max: int, bytes_max: int = ALL_BYTES) -> list[RemotingCommand]:
        """The commands of the next whole frames. Reading stops after `frames_max` frames, or after the frame that reaches
        `bytes_max`, with the weight of slow headers. Bodies are valid as long as those of `filled`."""
        commands, view, at, end = list[RemotingCommand](), self._view, self._begin, self._end
        frames, bytes_end = 0, at + bytes_max
        try:
            while (frame_end := self._frame_end(view, at, end)) is not None:
                if frames == frames_max or at >= bytes_end:
                    break
                command = self._command(view, at, frame_end)
                if command is not None:
                    commands.append(command)
                    if command.was_slow:
                        bytes_end -= SLOW_WEIGHT * (frame_end - at - len(command.body or b""))
                at = frame_end
                frames += 1
        except FrameError as failure:
            self.failure = failure
            at, frame_end = end, None
        self._begin = at
        self.has_more = frame_end is not None
        if not self.has_more and end == len(view) < BUFFER_BYTES_KEPT:
            self._grow()  # the buffer was full, so more bytes are waiting
        return commands

    def filled_with_sends(self, count: int, read_sends: ReadSends) -> Sends | None:
        """Like `filled`, if these bytes complete frames of plain sends and no other frames. Otherwise take nothing and return
        None."""
        end = self._end + count
        sends = read_sends(self._view, self._begin, end, self._frame_bytes_max, self._header_bytes_max)
        if sends is not None:
            self._begin, self._end = sends.end, end
            if end == len(self._view) < BUFFER_BYTES_KEPT:
                self._grow()
        return sends

    def receive(self, data: Body) -> list[RemotingCommand]:
        """Fill the buffer with `data`; the commands' bodies are bytes and stay valid."""
        commands: list[RemotingCommand] = []
        rest = memoryview(data)
        while rest and self.failure is None:
            room = self.buffer()
            count = min(len(room), len(rest))
            room[:count] = rest[:count]
            rest = rest[count:]
            for command in self.filled(count):
                if command.body is not None:
                    command.body = bytes(command.body)
                commands.append(command)
        return commands

    def _grow(self) -> None:
        size = min(2 * len(self._view), max(self._frame_bytes_max, BUFFER_BYTES_KEPT))
        assert size > len(self._view), "a buffer of the greatest frame's size holds a whole frame"
        grown = memoryview(bytearray(size))
        rest = self._end - self._begin
        grown[:rest] = self._view[self._begin : self._end]
        self._view, self._begin, self._end = grown, 0, rest

    def _frame_end(self, view: memoryview, at: int, end: int) -> int | None:
        """The end of the frame at `at`; None if it is not whole yet. Raises FrameError."""
        if end - at < 4:
            return None
        (length,) = LENGTH.unpack_from(view, at)
        frame_bytes: int = 4 + length
        if not 8 <= frame_bytes <= self._frame_bytes_max:
            found = other_protocol(bytes(view[at : at + PREFIX_BYTES]))
            raise FrameError(
                found or f"frame of {frame_bytes} bytes; 8 to {self._frame_bytes_max} are allowed"
            )
        if end - at < 8:
            return None
        (word,) = LENGTH.unpack_from(view, at + 4)
        header_bytes = word & 0xFFFFFF
        if header_bytes + 8 > frame_bytes:
            raise FrameError(f"header of {header_bytes} bytes in a frame of {frame_bytes}")
        return at + frame_bytes if at + frame_bytes <= end else None

    def _command(self, view: memoryview, at: int, frame_end: int) -> RemotingCommand | None:
        """The command of the whole frame at `at`; None for a frame without header, which is dropped, as Java drops it.
        Raises FrameError."""
        (word,) = LENGTH.unpack_from(view, at + 4)
        header_bytes = word & 0xFFFFFF
        if not header_bytes:
            return None
        header_end = at + 8 + header_bytes
        header = view[at + 8 : header_end]
        if header_bytes > self._header_bytes_max:
            why = f"a header of {header_bytes} bytes; {self._header_bytes_max} are read"
            command = unread_header(word >> 24, header, why)
        else:
            command = decode_header(word >> 24, header, bounded=self._bounded)
        if header_end < frame_end:
            command.body = view[header_end:frame_end]
        return command
