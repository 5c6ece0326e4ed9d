"""A client of another language in a process of its own: one line of words in, one line of JSON out.

Invariant: every question is answered or the test fails; nobody waits for a client that hangs or has crashed."""

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
ANSWER_S_MAX = 2 * WAIT_S  # the clients wait so long for what must happen, and then say what did


class PeerProcess:
    """`command` answers each line that it gets with one line."""

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.communicate()
        self._complaints.close()

    def ask(self, *words: object) -> dict[str, Any]:
        """Has it do one thing; fails on what it could not do."""
        answer = self.answer(*words)
        assert "error" not in answer, answer["error"]
        return answer

    def answer(self, *words: object) -> dict[str, Any]:
        """What it said, which may be {"error"}."""
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
        """The end of what it wrote to stderr."""
        self._complaints.seek(0)
        return self._complaints.read().decode("utf-8", "replace")[-SHOWN_MAX:]
