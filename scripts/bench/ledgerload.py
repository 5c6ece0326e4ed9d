"""Upstream's DLedgerClient under load, java/LedgerLoad.java in a JVM of its own.

Invariant: one JVM for all groups, so that none gains from a client that is warmer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.peers.javapeer import BROKER_JARS, SOURCES
from scripts.peers.peerprocess import PeerProcess

PROGRAM = Path(__file__).parent / "java" / "LedgerLoad.java"
MEMORY = ["-Xms512m", "-Xmx512m", "-XX:+UseParallelGC"]


@dataclass(frozen=True)
class LedgerOutcome:
    """The outcome of one load; p50 and p99 are of the answers to appends."""

    entries: int
    refused: int
    seconds: float
    p50_ms: float
    p99_ms: float
    last_refusal: str


class LedgerLoad(PeerProcess):
    """`home` is where the client's logs go."""

    def __init__(self, home: Path) -> None:
        path = f"{SOURCES}:{BROKER_JARS}/*"  # the first holds the logging configuration that keeps it silent
        super().__init__(["java", *MEMORY, f"-Duser.home={home}", "-cp", path, str(PROGRAM)])

    def append(self, group: str, peers: str, seconds: float, size: int, threads: int) -> LedgerOutcome:
        """The first append to a group waits until it has a leader."""
        outcome = LedgerOutcome(**self.ask("append", group, peers, seconds, size, threads))
        if not outcome.entries:
            raise SystemExit(f"upstream's client appended nothing: {outcome.last_refusal}")
        return outcome

    def leave(self, peers: str) -> None:
        self.ask("leave", peers)
