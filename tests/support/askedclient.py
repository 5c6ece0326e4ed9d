"""A connected client whose subscription its broker requests (307)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

from remoting.command import RemotingCommand
from tests.support.recordingpeer import RecordingPeer

JAVA_ANSWER = (Path(__file__).parents[1] / "vectors" / "broker" / "consumer-running-info.json").read_bytes()
GROUP, TOPIC, VERSION = "G13865", "P1386", 1795269813247
"""The subscription of the Java 5.3.3 push consumer in JAVA_ANSWER, with `Tag`."""


class AskedClient(RecordingPeer):
    """A connection whose client answers 307 with `answer`."""

    def __init__(self, answer: Callable[[RemotingCommand], RemotingCommand]) -> None:
        super().__init__()
        self.closed = False
        self.answer = answer
        self.questions: list[RemotingCommand] = []

    async def call(self, command: RemotingCommand, timeout_ms: int) -> RemotingCommand:
        self.questions.append(command)
        await asyncio.sleep(0)
        return self.answer(command)
