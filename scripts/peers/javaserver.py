"""Servers of Apache RocketMQ, of the version that scripts.peers.javapeer says: what starts one, and
`python -m scripts.peers.javaserver -c FILE`, which becomes one;
`broker-0.conf` makes it a broker.

Invariant: the process stays the same one, so that who started it may signal it; its heap is small, its logs go beside FILE.

A server maps the classes that one before it had loaded (`-XX:SharedArchiveFile`), and starts with less work. The first run on a
machine makes these files beside the jars; without them, or with one that does not fit, all runs as it would."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from localcluster.ports import lease_any
from scripts.peers.javapeer import BROKER_JARS, CONTROLLER_JARS, NAMESRV_JARS, PEERS, QUICK_START

LOADED = PEERS / "loaded"
STARTED = b"boot success"
NO_SPIN = {"transactionMetricFlushInterval": "200"}
"""Setting of Java brokers: for the first of these intervals, 3000 ms by default, a thread of theirs keeps a core busy."""


@dataclass(frozen=True, slots=True)
class Kind:
    """`alone`: the settings of one that only starts and ends."""

    jars: Path
    program: str
    memory: str
    alone: str


KINDS = {
    "broker": Kind(
        BROKER_JARS,
        "org.apache.rocketmq.broker.BrokerStartup",
        "192m",
        "listenPort={port}\nnamesrvAddr=127.0.0.1:1\nstorePathRootDir={folder}/store\nmappedFileSizeCommitLog=1048576\n"
        "mappedFileSizeConsumeQueue=6000\ntransactionMetricFlushInterval=200\ntimerWheelEnable=false\nmaxHashSlotNum=100\nmaxIndexNum=400\n",
    ),
    "controller": Kind(
        CONTROLLER_JARS,
        "org.apache.rocketmq.controller.ControllerStartup",
        "96m",
        "controllerDLegerGroup=group1\ncontrollerDLegerPeers=n0-127.0.0.1:{port}\ncontrollerDLegerSelfId=n0\n"
        "controllerStorePath={folder}/store\nmappedFileSize=4194304\n",
    ),
    "namesrv": Kind(
        NAMESRV_JARS,
        "org.apache.rocketmq.namesrv.NamesrvStartup",
        "64m",
        "listenPort={port}\nkvConfigPath={folder}/kvConfig.json\n",
    ),
}


def java_server(kind: str, file: Path, home: Path) -> list[str]:
    """What starts one with the properties file `file`; its logs go into `home`."""
    archive = _archive(kind)
    mapped = ["-Xlog:disable", f"-XX:SharedArchiveFile={archive}"] if archive else []
    return _command(kind, file, home, mapped)


def _command(kind: str, file: Path, home: Path, options: list[str]) -> list[str]:
    """TLS is off: they make a key and a certificate at each start else, for connections that nobody opens."""
    it = KINDS[kind]
    java = shutil.which("java") or "java"
    heap = [f"-Xms{it.memory}", f"-Xmx{it.memory}", "-XX:MaxDirectMemorySize=256m"]
    more = [*QUICK_START, *options, "-Dtls.server.mode=disabled", f"-Duser.home={home}"]
    return [java, *heap, *more, "-cp", f"{it.jars}/*", it.program, "-c", str(file)]


@cache
def _archive(kind: str) -> Path | None:
    """Of this Java and these jars; None where it cannot be made. Runs side by side wait for the one that makes it."""
    java = Path(shutil.which("java") or "java").resolve()
    jars = sorted((path.name, path.stat().st_mtime_ns) for path in KINDS[kind].jars.iterdir())
    named = f"{java} {java.stat().st_mtime_ns} {QUICK_START} {KINDS[kind]} {jars}"
    file = LOADED / f"{kind}-{hashlib.sha256(named.encode()).hexdigest()[:16]}.jsa"
    if not file.exists():
        LOADED.mkdir(exist_ok=True)
        with (LOADED / f"{kind}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not file.exists():
                _make(kind, file)
    return file if file.exists() else None


def _make(kind: str, file: Path) -> None:
    with tempfile.TemporaryDirectory(dir=LOADED) as made:
        folder = Path(made)
        lease = lease_any(folder, 10)
        settings, fresh = folder / "alone.conf", folder / file.name
        settings.write_text(KINDS[kind].alone.format(port=lease.ports[2], folder=folder))
        command = _command(kind, settings, folder, [f"-XX:ArchiveClassesAtExit={fresh}"])
        environment = {**os.environ, "ROCKETMQ_HOME": str(folder)}
        with subprocess.Popen(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if STARTED in line:
                    process.send_signal(signal.SIGTERM)
        lease.release()
        if fresh.exists():
            fresh.rename(file)


def main() -> None:
    file = Path(sys.argv[sys.argv.index("-c") + 1]).resolve()
    home = file.parent / "java" / file.stem
    os.environ["ROCKETMQ_HOME"] = str(home)
    command = java_server(file.stem.partition("-")[0], file, home)
    os.execv(command[0], command)  # noqa: S606 - nothing of it is a shell's


if __name__ == "__main__":
    main()
