"""mqreplay resend on a real cluster: a killed run continues, a killed master loses nothing, user errors are
reported."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.load import read_messages
from mqclient.client import Client
from mqclient.message import OutgoingMessage, StoredMessage
from mqruntime.clock import SystemClock
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.replicas import stores, until_all_hold_everything

ROOT = Path(__file__).parents[2]
QUEUES = 4
MESSAGES = 3000
SLOWLY = "30"
"""Messages a second, so slow that a run has more than a minute left when the test ends it."""
BORN_MS = 1_600_000_000_000


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster.create(
        tmp_path_factory.mktemp("resend") / "cluster", broker_settings=NOBODY_IS_LATE
    ) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(fill(made))
        yield made


async def fill(cluster: Cluster) -> None:
    """Sends MESSAGES in order to each queue; every fifth is compressed, three share each born millisecond."""
    import zlib

    await cluster.create_topic("orders", QUEUES)
    for name in ("copy", "killed", "slow"):
        await cluster.create_topic(name, QUEUES)
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        producer = client.producer("fill")

        async def queue(queue_id: int) -> None:
            for number in range(queue_id, MESSAGES, QUEUES):
                body = f"{number} ".encode() * 40
                packed = number % 5 == 0
                message = OutgoingMessage(
                    zlib.compress(body) if packed else body,
                    {"KEYS": f"k{number}", "TAGS": "paid", "own": "ä"},
                    flag=number % 7,
                    born_timestamp_ms=BORN_MS + number // 3,
                    sys_flag=1 if packed else 0,
                )
                sent = await producer.send_message("orders", message, queue_id=queue_id, timeout_ms=WAIT_MS)
                assert sent.acknowledged

        await asyncio.gather(*map(queue, range(QUEUES)))
    await until_all_hold_everything(cluster)


def command(cluster: Cluster, to: str, *more: str, store: int = 0) -> list[str]:
    return [
        sys.executable, "-m", "sparkreplay", "resend", stores(cluster)[store], "--topic", "orders", "--to", to,
        "-n", cluster.layout.namesrv, "--json", *more,
    ]  # fmt: skip


def resend(cluster: Cluster, to: str, *more: str, store: int = 0) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(cluster, to, *more, store=store),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def json_of(result: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert result.returncode == 0, result.stderr
    found: dict[str, Any] = json.loads(result.stdout)
    return found


async def received(cluster: Cluster, topic: str) -> dict[int, list[StoredMessage]]:
    queues: dict[int, list[StoredMessage]] = {}
    async with Client(cluster.layout.namesrv, clock=SystemClock(), random=random.Random(1)) as client:
        async for queue, message in read_messages(client.consumer("check"), topic, WAIT_MS):
            queues.setdefault(queue.queue_id, []).append(message)
    return queues


def keys(messages: list[StoredMessage]) -> list[str]:
    return [message.properties["KEYS"] for message in messages]


def until_acknowledged(ledger: Path, count: int, running: subprocess.Popen[str]) -> None:
    while not (ledger.exists() and json.loads(ledger.read_text())["acknowledged"] >= count):
        assert running.poll() is None
        time.sleep(0.05)


def test_a_topic_is_resent_unchanged_in_the_order_of_each_queue(cluster: Cluster, tmp_path: Path) -> None:
    summary = json_of(resend(cluster, "DefaultCluster/copy", "--ledger", str(tmp_path / "ledger")))
    assert (summary["acknowledged"], summary["maybe_twice"]) == (MESSAGES, 0)
    originals, copies = asyncio.run(received(cluster, "orders")), asyncio.run(received(cluster, "copy"))
    for queue_id in range(QUEUES):
        for original, copy in zip(originals[queue_id], copies[queue_id], strict=True):
            assert copy.properties.pop("REPLAY_SRC") == f"broker-a@{original.physical_offset}"
            assert copy.properties.pop("REPLAY_QUEUE") == f"orders/{queue_id}@{original.queue_offset}"
            assert copy.properties.pop("REPLAY_EPOCH") == "1"
            assert copy.properties == original.properties
            for name in ("body", "flag", "born_timestamp_ms", "sys_flag", "queue_offset"):
                assert getattr(copy, name) == getattr(original, name), name


def test_a_killed_resend_continues_from_another_replica_without_a_gap(
    cluster: Cluster, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    more = ("--ledger", str(ledger), "--messages-per-second", SLOWLY)
    running = subprocess.Popen(
        command(cluster, "DefaultCluster/killed", *more), cwd=ROOT, stdout=subprocess.DEVNULL
    )
    until_acknowledged(ledger, 60, running)
    running.send_signal(signal.SIGSTOP)  # so that it still runs when the next one starts
    refused = resend(cluster, "DefaultCluster/killed", *more)
    assert refused.returncode == 1 and "is in use by another run" in refused.stderr
    running.send_signal(signal.SIGKILL)
    running.wait()
    summary = json_of(resend(cluster, "DefaultCluster/killed", "--ledger", str(ledger), store=1))
    copies = asyncio.run(received(cluster, "killed"))
    twice = 0
    for queue_id in range(QUEUES):
        found = keys(copies[queue_id])
        assert list(dict.fromkeys(found)) == [f"k{number}" for number in range(queue_id, MESSAGES, QUEUES)]
        twice += len(found) - len(set(found))
    assert 0 <= twice <= summary["maybe_twice"] < MESSAGES
    again = json_of(resend(cluster, "DefaultCluster/killed", "--ledger", str(ledger), store=2))
    assert (again["acknowledged"], again["maybe_twice"]) == (0, 0)


def test_an_interrupted_resend_exits_with_130_and_survives_a_killed_master(
    cluster: Cluster, tmp_path: Path
) -> None:
    ledger = tmp_path / "ledger"
    more = ("--ledger", str(ledger), "--messages-per-second")
    running = subprocess.Popen(
        command(cluster, "DefaultCluster/slow", *more, SLOWLY),
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    until_acknowledged(ledger, 60, running)
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate()
    assert running.returncode == 130 and "Traceback" not in stderr, stderr
    going_on = subprocess.Popen(
        command(cluster, "DefaultCluster/slow", *more, "1000", store=1),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    )
    until_acknowledged(ledger, 1 + json.loads(ledger.read_text())["acknowledged"], going_on)
    state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    master = cluster.layout.name_of(state.master_address or "") or ""
    cluster.kill([master])
    output, _ = going_on.communicate()
    cluster.start([master])
    asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
    assert going_on.returncode == 0
    copies = asyncio.run(received(cluster, "slow"))
    sent = sum(len(keys(found)) for found in copies.values())
    for queue_id in range(QUEUES):
        found = list(dict.fromkeys(keys(copies[queue_id])))
        assert found == [f"k{number}" for number in range(queue_id, MESSAGES, QUEUES)]
    kept = json.loads(ledger.read_text())
    assert sent - MESSAGES <= kept["maybe_twice"]
    assert json.loads(output)["acknowledged"] <= MESSAGES


@pytest.mark.parametrize(
    ("to", "more", "why"),
    [
        ("nowhere", (), "is not CLUSTER/TOPIC"),
        ("DefaultCluster/missing", (), "create it first (mqadmin updateTopic -c DefaultCluster -t missing)"),
        ("OtherCluster/copy", (), "has no queue to write in cluster OtherCluster, only in DefaultCluster"),
        ("DefaultCluster/orders", (), "--force sends them there all the same"),
        ("DefaultCluster/copy", ("--rate", "fast"), "is no size"),
        ("DefaultCluster/copy", ("-o", "queues=x"), "queues"),
    ],
)
def test_a_user_error_is_reported_in_one_line(
    cluster: Cluster, tmp_path: Path, to: str, more: tuple[str, ...], why: str
) -> None:
    result = resend(cluster, to, "--ledger", str(tmp_path / "ledger"), *more)
    assert result.returncode == 2 and why in result.stderr, result.stderr
    assert list(tmp_path.iterdir()) == []
    assert "Traceback" not in result.stderr and not (tmp_path / "ledger").exists()
