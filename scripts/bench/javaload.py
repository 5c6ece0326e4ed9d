"""The public Java client under load: java/Load.java in a separate JVM.

Invariant: all sides use the same JVM, so that no side has the advantage of a warmer client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.lightclient import UNANSWERED_S_MAX
from scripts.peers.javapeer import JARS, SOURCES
from scripts.peers.peerprocess import PeerProcess

PROGRAM = Path(__file__).parent / "java" / "Load.java"
MEMORY = ["-Xms512m", "-Xmx512m", "-XX:+UseParallelGC"]


@dataclass(frozen=True)
class JavaOutcome:
    """The outcome of one load. p50 and p99 are times of answers to sends."""

    messages: int
    refused: int
    seconds: float
    p50_ms: float
    p99_ms: float
    last_refusal: str


class JavaLoad(PeerProcess):
    """Runs the load. `home` is the folder for the client's logs and local offsets; `options` are those of the JVM."""

    def __init__(self, home: Path, options: Sequence[str] = ()) -> None:
        path = f"{SOURCES}:{JARS}/*"  # SOURCES has a logging configuration that keeps it silent
        super().__init__(["java", *MEMORY, *options, f"-Duser.home={home}", "-cp", path, str(PROGRAM)])

    def load(self, what: str, namesrv: str, topic: str, seconds: float, *more: int) -> JavaOutcome:
        """Run one load of java/Load.java: `async`, `sync`, `deals`, `pull`, `push` or `order`."""
        outcome = JavaOutcome(**self.ask(what, namesrv, topic, seconds, *more))
        if not outcome.messages:
            why = outcome.last_refusal or f"nothing within {UNANSWERED_S_MAX:g} s"
            raise SystemExit(f"the Java client's {what} came to nothing: {why}")
        return outcome

    def leave(self, namesrv: str) -> None:
        self.ask("leave", namesrv)
