"""Upstream's DLedgerClient under load: java/LedgerLoad.java in a separate JVM.

Invariant: all groups use the same JVM, so that no group has the advantage of a warmer client."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.peers.javapeer import BROKER_JARS, SOURCES
from scripts.peers.peerprocess import PeerProcess

PROGRAM = Path(__file__).parent / "java" / "LedgerLoad.java"
MEMORY = ["-Xms512m", "-Xmx512m", "-XX:+UseParallelGC"]


@dataclass(frozen=True)
class LedgerOutcome:
    """The outcome of one load. p50 and p99 are times of answers to appends."""

    entries: int
    refused: int
    seconds: float
    p50_ms: float
    p99_ms: float
    last_refusal: str


class LedgerLoad(PeerProcess):
    """Runs the load. `home` is the folder for the client's logs."""

    def __init__(self, home: Path) -> None:
        path = f"{SOURCES}:{BROKER_JARS}/*"  # SOURCES has a logging configuration that keeps it silent
        super().__init__(["java", *MEMORY, f"-Duser.home={home}", "-cp", path, str(PROGRAM)])

    def append(self, group: str, peers: str, seconds: float, size: int, threads: int) -> LedgerOutcome:
        """Run one load. The first append to a group waits until the group has a leader."""
        outcome = LedgerOutcome(**self.ask("append", group, peers, seconds, size, threads))
        if not outcome.entries:
            raise SystemExit(f"upstream's client appended nothing: {outcome.last_refusal}")
        return outcome

    def leave(self, peers: str) -> None:
        self.ask("leave", peers)
