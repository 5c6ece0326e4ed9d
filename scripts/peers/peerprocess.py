"""A client in another language, in a separate process. It gets a line of words and answers with a line of JSON.

Invariant: every request is answered, or the test fails. Nobody waits for a client that hangs or has crashed."""

from __future__ import annotations

import os
import selectors
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from typing import Any, Self

import orjson

from scripts.peers.waits import WAIT_S

SHOWN_MAX = 4_000
ANSWER_S_MAX = 2 * WAIT_S  # clients wait WAIT_S for an event, and then answer


class PeerProcess:
    """The process. `command` answers each line with one line."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self._complaints = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the process
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._complaints,
            env={**os.environ, **(environment or {})},
        )
        self._received = b""

    @property
    def pid(self) -> int:
        return self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def ask(self, *words: object) -> dict[str, Any]:
        """Send a request to the client. Fails if the client could not do it."""
        answer = self.answer(*words)
        assert "error" not in answer, answer["error"]
        return answer

    def answer(self, *words: object) -> dict[str, Any]:
        """The client's answer, which may be {"error"}."""
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)).encode() + b"\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = orjson.loads(self._line(words))
        return answer

    def _line(self, words: tuple[object, ...]) -> bytes:
        assert self._process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._received:
                assert selector.select(ANSWER_S_MAX), f"no answer to {words} for {ANSWER_S_MAX} s"
                data = os.read(self._process.stdout.fileno(), 65536)
                assert data, f"the client ended with {self._process.wait()} at {words}: {self._complained()}"
                self._received += data
        line, _, self._received = self._received.partition(b"\n")
        return line

    def _complained(self) -> str:
        """The end of the client's stderr."""
        self._complaints.seek(0)
        return self._complaints.read().decode("utf-8", "replace")[-SHOWN_MAX:]
