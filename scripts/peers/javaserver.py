"""Servers of Apache RocketMQ, of the version in scripts.peers.javapeer. This module has the command that starts a server.
`python -m scripts.peers.javaserver -c FILE` becomes a server: a broker if FILE is `broker-0.conf`, for example.

Invariant: the process stays the same, so that its parent can signal it. Its heap is small, and its logs are next to FILE.

A server maps the classes that an earlier server loaded (`-XX:SharedArchiveFile`), so it starts with less work. The first run
on a machine makes these files next to the jars. Without a file that fits, servers start as usual."""

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

from localcluster.layout import escaped
from localcluster.ports import lease_any
from mqruntime.properties import parse
from scripts.peers.javapeer import BROKER_JARS, CONTROLLER_JARS, NAMESRV_JARS, PEERS, QUICK_START

LOADED = PEERS / "loaded"
STARTED = b"boot success"
NO_SPIN = {"transactionMetricFlushInterval": "200"}
"""A setting of Java brokers. During the first such interval, by default 3000 ms, one of their threads keeps a core busy."""
FROM_FILE = "file:"
PROVIDERS = {
    "authenticationMetadataProvider": "org.apache.rocketmq.auth.authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": "org.apache.rocketmq.auth.authorization.provider.LocalAuthorizationMetadataProvider",
}
"""Settings without which a Java broker with access control refuses every request."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server. `alone` are the settings of a server that only starts and ends."""

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
    """The command that starts a server with the properties file `file`. The server's logs are in `home`."""
    archive = _archive(kind)
    mapped = ["-Xlog:disable", f"-XX:SharedArchiveFile={archive}"] if archive else []
    return _command(kind, file, home, mapped)


def _command(kind: str, file: Path, home: Path, options: list[str]) -> list[str]:
    it = KINDS[kind]
    java = shutil.which("java") or "java"
    heap = [f"-Xms{it.memory}", f"-Xmx{it.memory}", "-XX:MaxDirectMemorySize=256m"]
    more = [*QUICK_START, *options, *tls_options(file), f"-Duser.home={home}"]
    return [java, *heap, *more, "-cp", f"{it.jars}/*", it.program, "-c", str(file)]


def tls_options(file: Path) -> list[str]:
    """The options of TLS in `file`. Java reads them as properties of the process. Without any option TLS is off, because
    otherwise Java would make a key and a certificate at each start."""
    entries = {entry.key: entry.value for entry in parse(file.read_bytes()).entries}
    chosen = {key: entries[key] for key in ("tls.server.mode", "tls.config.file") if key in entries}
    return [f"-D{key}={value}" for key, value in ({"tls.server.mode": "disabled"} | chosen).items()]


@cache
def _archive(kind: str) -> Path | None:
    """The archive for this Java and these jars; None if it cannot be made. Parallel runs wait for the run that makes it."""
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


def for_java(file: Path, home: Path) -> Path:
    """The file itself; a copy in `home` if it has access control. Java reads no secrets from files, and needs the names of
    classes that ours does without. Only the owner may read the copy."""
    entries = {entry.key: entry.value for entry in parse(file.read_bytes()).entries}
    if entries.get("authenticationEnabled") != "true":
        return file
    for key, value in entries.items():
        if value.startswith(FROM_FILE):
            entries[key] = Path(value.removeprefix(FROM_FILE)).read_text().strip()
    home.mkdir(parents=True, exist_ok=True)
    copy = home / file.name
    copy.touch(0o600)
    copy.write_text("".join(f"{key}={escaped(value)}\n" for key, value in {**PROVIDERS, **entries}.items()))
    return copy


def main() -> None:
    file = Path(sys.argv[sys.argv.index("-c") + 1]).resolve()
    home = file.parent / "java" / file.stem
    os.environ["ROCKETMQ_HOME"] = str(home)
    command = java_server(file.stem.partition("-")[0], for_java(file, home), home)
    os.execv(command[0], command)  # noqa: S606 - nothing of it is a shell's


if __name__ == "__main__":
    main()
