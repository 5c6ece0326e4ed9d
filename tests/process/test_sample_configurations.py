"""The files under conf/ start unchanged except for their ports, so that tests run next to real servers."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from localcluster import ports
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import SyncStateInfo
from mqruntime.clock import SystemClock
from mqruntime.tlsconnector import connector_of_environment
from mqruntime.tlsfiles import FILE_VARIABLE
from mqruntime.toolcredentials import FILE_VARIABLE as KEYS_VARIABLE
from mqruntime.toolcredentials import keys_of_environment
from remoting.signing import Signer
from scripts.peers.waits import WAIT_MS

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
MOVED = {9876: 0, 9878: 1, 9868: 2, 9858: 3, 9886: 4, 9896: 5, 30911: 10, 30921: 20, 30931: 30}
MOVED |= {40911: 35, 40912: 36, 40913: 37}
"""Port in the files -> place in a leased block; a broker also takes the ones at -2 and +1."""


@contextmanager
def servers(folder: Path, names: list[str], others: dict[str, str] | None = None) -> Iterator[int]:
    """Runs the samples `names` in `folder`, as `mqbroker -c conf/...` would, and `others` by name and text;
    yields the first port."""
    texts = {name: (CONF / name).read_text() for name in names} | (others or {})
    lease = ports.lease_any(folder, 40)
    first = lease.ports.start

    def moved(match: re.Match[str]) -> str:
        return str(first + MOVED[int(match.group())])

    with ExitStack() as stack:
        stack.callback(lease.release)
        for name, text in texts.items():
            file = folder / "conf" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(re.sub(r"\b(?:" + "|".join(map(str, MOVED)) + r")\b", moved, text))
            module = re.match(r"[a-z]+", file.name)
            assert module is not None
            stack.enter_context(running(module.group(), file, folder))
        yield first


@contextmanager
def running(module: str, file: Path, folder: Path) -> Iterator[None]:
    log = folder / f"{file.stem}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", module, "--strict", "-c", str(file)],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(folder)},
            stderr=output,
        )
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()
            process.wait()
    assert process.returncode == 0 and "WARNING mqruntime" not in log.read_text(), log.read_text()


async def in_sync(controllers: str, count: int) -> SyncStateInfo:
    admin = AdminClient(SystemClock(), connector_of_environment(), Signer.of(keys_of_environment()))

    async def probe() -> SyncStateInfo:
        try:
            states = await admin.sync_states(controllers, ["broker-a"])
        except AdminError as error:
            raise NotYet(str(error)) from error
        if "broker-a" not in states or len(states["broker-a"].in_sync) < count:
            raise NotYet(f"not {count} in sync: {states}")
        return states["broker-a"]

    try:
        return await wait_for("a set in sync", probe, WAIT_MS)
    finally:
        await admin.close()


def test_the_quick_start_sample_starts_a_set_of_two(tmp_path: Path) -> None:
    names = [
        "namesrv.conf",
        *(f"quick-start/{name}.conf" for name in ("controller", "broker-n0", "broker-n1")),
    ]
    with servers(tmp_path, names) as first:
        state = asyncio.run(in_sync(f"127.0.0.1:{first + 1}", 2))
    assert state.master_address is not None
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == [
        "broker-n0",
        "broker-n1",
        "controller-n0",
        "namesrv",
    ]


def test_the_three_node_sample_starts_a_set_of_three(tmp_path: Path) -> None:
    nodes = [f"cluster-3n/{kind}-n{number}.conf" for kind in ("controller", "broker") for number in range(3)]
    with servers(tmp_path, ["namesrv.conf", *nodes]) as first:
        state = asyncio.run(in_sync(";".join(f"127.0.0.1:{first + place}" for place in (1, 2, 3)), 3))
    assert state.master_address is not None


def test_the_secure_sample_starts_a_set_of_three(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    subprocess.run(
        [CONF / "secure" / "make-certificates", "run/pki"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHON": sys.executable}, check=True,
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(FILE_VARIABLE, str(CONF / "secure" / "tools.properties"))
    monkeypatch.setenv(KEYS_VARIABLE, "run/pki/tools.yml")
    nodes = [f"secure/{kind}-n{number}.conf" for kind in ("controller", "broker") for number in range(3)]
    with servers(tmp_path, ["secure/namesrv.conf", *nodes]) as first:
        state = asyncio.run(in_sync(";".join(f"127.0.0.1:{first + place}" for place in (1, 2, 3)), 3))
    assert state.master_address is not None


@pytest.mark.long
def test_the_sample_of_name_servers_with_controllers_starts_a_set_of_three(tmp_path: Path) -> None:
    nodes = [f"cluster-3n-namesrv-plugin/namesrv-n{number}.conf" for number in range(3)]
    nodes += [f"cluster-3n/broker-n{number}.conf" for number in range(3)]
    with servers(tmp_path, nodes) as first:
        state = asyncio.run(in_sync(";".join(f"127.0.0.1:{first + place}" for place in (1, 2, 3)), 3))
    assert state.master_address is not None
    folders = [tmp_path / "DLedgerController" / f"n{number}" for number in range(3)]
    assert all((folder / "lock").exists() for folder in folders) and not (tmp_path / "run/namesrv").exists()


UPSTREAMS_RAFT_SAMPLE = """
brokerClusterName = RaftCluster
brokerName=RaftNode00
listenPort=30911
namesrvAddr=127.0.0.1:9876
storePathRootDir=/tmp/rmqstore/node00
storePathCommitLog=/tmp/rmqstore/node00/commitlog
enableDLegerCommitLog=true
dLegerGroup=RaftNode00
dLegerPeers=n0-127.0.0.1:40911;n1-127.0.0.1:40912;n2-127.0.0.1:40913
## must be unique
dLegerSelfId=n0
sendMessageThreadPoolNums=16
"""
"""conf/dledger/broker-n0.conf of 5.3.3, without its licence."""


async def led(namesrv: str, members: int) -> None:
    admin = AdminClient(SystemClock())

    async def probe() -> None:
        try:
            sets = (await admin.cluster_info(namesrv)).broker_sets
        except AdminError as error:
            raise NotYet(str(error)) from error
        found = sets["RaftNode00"].addresses if "RaftNode00" in sets else {}
        if 0 not in found or len(found) < members:
            raise NotYet(f"registered: {found}")

    try:
        await wait_for("a set in Raft mode", probe, WAIT_MS)
    finally:
        await admin.close()


def test_the_raft_mode_sample_starts_a_set_of_three(tmp_path: Path) -> None:
    nodes = [f"dledger/broker-n{number}.conf" for number in range(3)]
    with servers(tmp_path, ["namesrv.conf", *nodes]) as first:
        asyncio.run(led(f"127.0.0.1:{first}", 3))
    assert (tmp_path / "run/node01/dledger-n1/data").is_dir()


def test_upstreams_raft_sample_starts_with_two_of_our_samples(tmp_path: Path) -> None:
    """Unchanged except for the ports and the folder of this test."""
    upstreams = UPSTREAMS_RAFT_SAMPLE.replace("/tmp/rmqstore", str(tmp_path / "rmqstore"))  # noqa: S108
    nodes = ["dledger/broker-n1.conf", "dledger/broker-n2.conf"]
    with servers(tmp_path, ["namesrv.conf", *nodes], {"dledger/broker-n0.conf": upstreams}) as first:
        asyncio.run(led(f"127.0.0.1:{first}", 3))
    assert (tmp_path / "rmqstore/node00/dledger-n0/data").is_dir()
