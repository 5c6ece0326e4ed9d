"""RocketMQ's Java client and tools, driven by tests line by line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from scripts.peers.javapeer import JARS, QUICK_START, SOURCES, compiled
from scripts.peers.peerprocess import PeerProcess


class JavaClient(PeerProcess):
    """java/JavaClient.java, run in the folder `home`, where its logs and local offsets go. For mqadmin
    commands only, `namesrv` need not exist. `options` are those of its JVM."""

    def __init__(self, namesrv: str, home: Path, jars: Path = JARS, options: Sequence[str] = ()) -> None:
        classes = compiled(sorted(SOURCES.glob("*.java")), jars)
        path = os.pathsep.join([str(classes), str(SOURCES), f"{jars}/*"])
        super().__init__(
            [
                "java",
                "-Xmx256m",
                *QUICK_START,
                *options,
                f"-Duser.home={home}",
                "-cp",
                path,
                "JavaClient",
                namesrv,
            ]
        )

    def admin(self, *arguments: object) -> str:
        """The output of an mqadmin command; fails if it wrote to stderr."""
        answer = self.ask("admin", *arguments)
        assert answer["err"] == "", answer["err"]
        return str(answer["out"])


def everything(read: int, *, compressed: int = 0) -> dict[str, int]:
    """A reading with every message once, in its place and unchanged."""
    return dict(read=read, compressed=compressed, missing=0, repeated=0, moved=0, changed=0)
