"""The public Java client and the real mqadmin of Apache RocketMQ 5.3.3: where they are, and a JVM that runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from tests.interop.peerprocess import PeerProcess

SOURCES = Path(__file__).parent / "java"
DEFAULT_PEERS = "~/.cache/autoswitch-mq/peers-5.3.3"
JARS = Path(os.environ.get("AUTOSWITCH_PEERS") or DEFAULT_PEERS).expanduser() / "jars"
QUICK_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def missing() -> str | None:
    """Why the Java side cannot run here."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return "no JDK: java and javac must be in PATH"
    if not (JARS / "rocketmq-tools-5.3.3.jar").exists():
        return f"no RocketMQ 5.3.3 in {JARS}: run scripts/fetch-peers, which needs Maven"
    return None


class JavaClient(PeerProcess):
    """java/JavaClient.java, compiled and run in the folder `home`, where its logs and local offsets go."""

    def __init__(self, namesrv: str, home: Path) -> None:
        classes = home / "classes"
        sources = [str(path) for path in sorted(SOURCES.glob("*.java"))]
        options = [f"-J{option}" for option in QUICK_START] + ["-proc:none", "-nowarn", "-Xlint:none"]
        subprocess.run(["javac", *options, "-cp", f"{JARS}/*", "-d", classes, *sources], check=True)
        path = os.pathsep.join([str(classes), str(SOURCES), f"{JARS}/*"])
        super().__init__(
            ["java", "-Xmx256m", *QUICK_START, f"-Duser.home={home}", "-cp", path, "JavaClient", namesrv]
        )

    def admin(self, *arguments: object) -> str:
        """What an mqadmin command printed; it has failed when it complained."""
        answer = self.ask("admin", *arguments)
        assert answer["err"] == "", answer["err"]
        return str(answer["out"])
