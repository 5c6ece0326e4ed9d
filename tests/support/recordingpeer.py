"""The client's end of a connection, as a handler of the broker sees it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from remoting.command import Body, RemotingCommand
from remoting.frame import FrameReader


class RecordingPeer:
    """Records sent commands: one entry of `writes` for each write."""

    remote_address = "10.0.0.9:5000"
    own_host = "10.0.0.1"

    def __init__(self) -> None:
        self.attributes: dict[str, object] = {}
        self.active_at_ms = 0
        self.closed = False
        self.number = 0
        self.behind_since_ms: int | None = None
        self.writes: list[list[RemotingCommand]] = []
        self.close_callbacks: list[Callable[[Any], None]] = []

    def send(self, commands: Sequence[RemotingCommand]) -> None:
        self.writes.append(list(commands))

    def write(self, buffers: Sequence[Body]) -> None:
        self.writes.append(FrameReader().receive(b"".join(map(bytes, buffers))))

    def on_close(self, callback: Callable[[Any], None]) -> None:
        self.close_callbacks.append(callback)

    @property
    def replies(self) -> list[RemotingCommand]:
        return [command for write in self.writes for command in write]
