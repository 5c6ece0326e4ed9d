"""Client, mqadmin, broker and controller of Apache RocketMQ: where they are installed, and JVMs that run them.

They are of 5.3.3 or, if AUTOSWITCH_PEERS_VERSION says so, of 5.5.1. Only brokers and controllers of 5.5.1 were published, so
client, tools and name server are then of 5.5.0. Classes compiled for them are stored next to their jars, so that only the
first run after a change takes the time."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from scripts.peers.peerprocess import PeerProcess

SOURCES = Path(__file__).parent / "java"
OLDER, NEWER = "5.3.3", "5.5.1"
PEERS_VERSION = "AUTOSWITCH_PEERS_VERSION"
VERSION = os.environ.get(PEERS_VERSION) or OLDER
CLIENT_VERSION = "5.5.0" if VERSION == NEWER else VERSION
"""The version of client, tools and name server."""
CACHE = Path("~/.cache/autoswitch-mq").expanduser()


def peers_of(version: str) -> Path:
    """The folder into which scripts/fetch-peers puts them."""
    named = os.environ.get("AUTOSWITCH_PEERS")
    if version == OLDER:
        return Path(named).expanduser() if named else CACHE / f"peers-{OLDER}"
    return (Path(named).expanduser() if named else CACHE) / f"peers-{version}"


PEERS = peers_of(VERSION)
JARS = PEERS / "jars"
BROKER_JARS = PEERS / "broker-jars"
CONTROLLER_JARS = PEERS / "controller-jars"
NAMESRV_JARS = PEERS / "namesrv-jars"
OLD_CLIENT = "4.9.8"
OLD_CLIENT_JARS = peers_of(OLDER) / f"client-{OLD_CLIENT}-jars"
QUICK_START = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]


def missing() -> str | None:
    """Why the Java side cannot run here."""
    if shutil.which("java") is None or shutil.which("javac") is None:
        return "no JDK: java and javac must be in PATH"
    if not (JARS / f"rocketmq-tools-{CLIENT_VERSION}.jar").exists():
        return f"no RocketMQ {CLIENT_VERSION} in {JARS}: run scripts/fetch-peers, which needs Maven"
    return None


def newer_missing() -> str | None:
    """Why clients and servers of 5.5 cannot run here."""
    folder = peers_of(NEWER)
    if not (folder / "controller-jars" / f"rocketmq-controller-{NEWER}.jar").exists():
        return f"no RocketMQ {NEWER} in {folder}: run scripts/fetch-peers, which needs Maven"
    return missing()


def broker_missing() -> str | None:
    """Why no Java broker can run here."""
    if shutil.which("java") is None:
        return "no JDK: java must be in PATH"
    if not (BROKER_JARS / f"rocketmq-broker-{VERSION}.jar").exists():
        return f"no broker of RocketMQ {VERSION} in {BROKER_JARS}: run scripts/fetch-peers, which needs Maven"
    return None


def controller_missing() -> str | None:
    """Why no Java controller can run here."""
    if not (CONTROLLER_JARS / f"rocketmq-controller-{VERSION}.jar").exists():
        return f"no controller of RocketMQ {VERSION} in {CONTROLLER_JARS}: run scripts/fetch-peers, which needs Maven"
    return missing()


def namesrv_missing() -> str | None:
    """Why no Java name server can run here."""
    if not (NAMESRV_JARS / f"rocketmq-namesrv-{CLIENT_VERSION}.jar").exists():
        return f"no name server of RocketMQ {CLIENT_VERSION} in {NAMESRV_JARS}: run scripts/fetch-peers, which needs Maven"
    return missing()


def old_client_missing() -> str | None:
    """Why no Java client of 4.9 can run here."""
    if not (OLD_CLIENT_JARS / f"rocketmq-acl-{OLD_CLIENT}.jar").exists():
        return f"no client of RocketMQ {OLD_CLIENT} in {OLD_CLIENT_JARS}: run scripts/fetch-peers, which needs Maven"
    return missing()


def compiled(sources: Sequence[Path], jars: Path) -> Path:
    """The folder with the classes of `sources`, which need `jars`."""
    content = f"{jars.parent.name}/{jars.name}".encode() + b"".join(path.read_bytes() for path in sources)
    classes = PEERS / "classes" / hashlib.sha256(content).hexdigest()[:16]
    if not classes.exists():
        classes.parent.mkdir(exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix="compiling.", dir=classes.parent))
        options = [f"-J{option}" for option in QUICK_START] + ["-proc:none", "-nowarn", "-Xlint:none"]
        subprocess.run(["javac", *options, "-cp", f"{jars}/*", "-d", fresh, *sources], check=True)
        try:
            fresh.rename(classes)
        except OSError:  # another run was faster
            shutil.rmtree(fresh)
            assert classes.exists()
    return classes


def default_clients(
    jars: Path,
    namesrv: str,
    topic: str,
    home: Path,
    poll_ms: int | None = None,
    send_timeout_ms: int | None = None,
    interval_ms: int | None = None,
    more: Sequence[str] = (),
) -> PeerProcess:
    """java/handover/HandOver.java with the client in `jars`, which has its default settings except for those given here. `more`
    are options of its JVM."""
    names = ("handover/HandOver.java", "Keys.java", "Patience.java")
    classes = compiled([SOURCES / name for name in names], jars)
    path = os.pathsep.join([str(classes), str(SOURCES), f"{jars}/*"])
    # 4.9 has its own logger, which our files do not silence
    options = [*more, f"-Duser.home={home}", "-Drocketmq.client.logLevel=WARN"]
    options += [] if send_timeout_ms is None else [f"-DsendTimeoutMs={send_timeout_ms}"]
    options += [] if interval_ms is None else [f"-DintervalMs={interval_ms}"]
    poll = [] if poll_ms is None else [str(poll_ms)]
    command = ["java", "-Xmx256m", *QUICK_START, *options, "-cp", path, "HandOver", namesrv, topic, *poll]
    return PeerProcess(command)
