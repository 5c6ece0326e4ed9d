"""RocketMQ's Java client and tools, driven by tests line by line."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from remoting.signing import Credentials
from scripts.peers.javapeer import JARS, QUICK_START, SOURCES, compiled
from scripts.peers.keys import key_file, mqadmin_options, signing_options
from scripts.peers.peerprocess import PeerProcess

SILENT = ["-Drocketmq.client.logLevel=WARN"]
"""4.9 has its own logger, which our files do not silence."""


class JavaClient(PeerProcess):
    """java/JavaClient.java, run in the folder `home`, where its logs and local offsets go. For mqadmin
    commands only, `namesrv` need not exist. `options` are those of its JVM. Its clients sign with
    `credentials`, its mqadmin with those in the file `tools`."""

    def __init__(
        self,
        namesrv: str,
        home: Path,
        jars: Path = JARS,
        options: Sequence[str] = (),
        credentials: Credentials | None = None,
        tools: Path | None = None,
    ) -> None:
        signing = [] if credentials is None else signing_options(key_file(home / "keys", credentials))
        administering = [] if tools is None else mqadmin_options(tools, home)
        sources = sorted(SOURCES.glob("*.java"))
        super().__init__(
            [
                *_java(jars, sources, [*options, *signing, *administering, f"-Duser.home={home}"]),
                "JavaClient",
                namesrv,
            ]
        )

    def admin(self, *arguments: object) -> str:
        """The output of an mqadmin command; fails if it wrote to stderr."""
        answer = self.ask("admin", *arguments)
        assert answer["err"] == "", answer["err"]
        return str(answer["out"])


class RightsClient(PeerProcess):
    """java/rights/Rights.java: clients of several users, with the client in `jars`. `home` is as above."""

    def __init__(self, namesrv: str, home: Path, jars: Path = JARS, options: Sequence[str] = ()) -> None:
        sources = [SOURCES / name for name in ("rights/Rights.java", "Keys.java", "Patience.java")]
        java = _java(jars, sources, [*options, *SILENT, f"-Duser.home={home}"])
        super().__init__([*java, "Rights", namesrv])


def _java(jars: Path, sources: Sequence[Path], options: Sequence[str]) -> list[str]:
    path = os.pathsep.join([str(compiled(sources, jars)), str(SOURCES), f"{jars}/*"])
    return ["java", "-Xmx256m", *QUICK_START, *options, "-cp", path]


def everything(read: int, *, compressed: int = 0) -> dict[str, int]:
    """A reading with every message once, in its place and unchanged."""
    return dict(read=read, compressed=compressed, missing=0, repeated=0, moved=0, changed=0)
