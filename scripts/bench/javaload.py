"""The public Java client under load, java/Load.java in a JVM of its own.

Invariant: one JVM for all sides, so that none gains from a client that is warmer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from scripts.bench.lightclient import UNANSWERED_S_MAX
from scripts.peers.javapeer import JARS, SOURCES
from scripts.peers.peerprocess import PeerProcess

PROGRAM = Path(__file__).parent / "java" / "Load.java"
MEMORY = ["-Xms512m", "-Xmx512m", "-XX:+UseParallelGC"]


@dataclass(frozen=True)
class JavaOutcome:
    """The outcome of one load; p50 and p99 are of the answers to sends."""

    messages: int
    refused: int
    seconds: float
    p50_ms: float
    p99_ms: float
    last_refusal: str


class JavaLoad(PeerProcess):
    """`home` is where the client's logs and local offsets go."""

    def __init__(self, home: Path) -> None:
        path = f"{SOURCES}:{JARS}/*"  # the first holds the logging configuration that keeps it silent
        super().__init__(["java", *MEMORY, f"-Duser.home={home}", "-cp", path, str(PROGRAM)])

    def load(self, what: str, namesrv: str, topic: str, seconds: float, *more: int) -> JavaOutcome:
        """`async`, `sync`, `deals`, `pull`, `push` or `order`, as java/Load.java has them."""
        outcome = JavaOutcome(**self.ask(what, namesrv, topic, seconds, *more))
        if not outcome.messages:
            why = outcome.last_refusal or f"nothing within {UNANSWERED_S_MAX:g} s"
            raise SystemExit(f"the Java client's {what} came to nothing: {why}")
        return outcome

    def leave(self, namesrv: str) -> None:
        self.ask("leave", namesrv)
