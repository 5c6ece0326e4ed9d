"""TLS is turned on in a running cluster, by the steps of docs/operations/turn-on-tls.md, while a client sends."""

from __future__ import annotations

import asyncio
import random
from dataclasses import replace
from functools import partial
from pathlib import Path
from ssl import SSLContext

import pytest

from localcluster.cluster import Cluster
from localcluster.history import SendOutcome, judge
from localcluster.layout import TLS_FOLDER
from localcluster.load import SteadyLoad, read_back
from localcluster.secured import context_of, make_certificates, make_passwords_of
from localcluster.waiting import NotYet, wait_for
from mqclient.client import Client
from mqclient.errors import ClientError
from mqruntime.clock import SystemClock
from scripts.peers.waits import WAIT_MS

TOPIC, QUEUES = "TurnedOn", 4


def steps(cluster: Cluster, name: str) -> list[dict[str, str]]:
    """The settings of `name` that each step adds or changes."""
    folder = cluster.directory / TLS_FOLDER
    own = {
        "tls.server.mode": "permissive",
        "tls.server.certPath": f"{folder / name}.pem",
        "tls.server.keyPath": f"{folder / name}.key",
        "tls.client.trustCertPath": f"{folder / 'ca.pem'}",
    }
    asks = {
        "tls.server.mode": "enforcing",
        "tls.server.need.client.auth": "require",
        "tls.server.authClient": "true",
        "tls.server.trustCertPath": f"{folder / 'ca.pem'}",
    }
    return [own, {"tls.enable": "true"}, asks]


@pytest.mark.long
def test_tls_is_turned_on_step_by_step_while_a_client_sends(tmp_path: Path) -> None:
    with Cluster.create(tmp_path / "cluster") as cluster:
        make_certificates(cluster.layout)
        make_passwords_of(cluster.layout)
        cluster.start()
        asyncio.run(turned_on(cluster))


async def turned_on(cluster: Cluster) -> None:
    await cluster.wait_whole(timeout_ms=WAIT_MS)
    await cluster.create_topic(TOPIC, QUEUES)
    loads = [await sending_while(cluster, None, 0, 1)]
    cluster.layout = replace(cluster.layout, secure=True)  # clients and tools use TLS and sign from now on
    context = context_of(cluster.layout)
    loads.append(await sending_while(cluster, context, 2))
    async with Client(cluster.layout.namesrv, tls=context) as reader:
        attempts = [attempt for load in loads for attempt in load.attempts]
        read = await read_back(reader.consumer("TurnedOnCheck"), TOPIC, attempts, WAIT_MS)
    verdict = judge(attempts, read)
    assert verdict.faults == [] and verdict.acknowledged > 0
    with pytest.raises(ClientError):
        async with Client(cluster.layout.namesrv) as plain:
            await plain.producer("Plain").send(TOPIC, b"plain")


async def sending_while(cluster: Cluster, context: SSLContext | None, *numbers: int) -> SteadyLoad:
    """Sends while each process in turn is restarted with these steps."""
    chance = random.Random(numbers[0])
    async with Client(cluster.layout.namesrv, tls=context) as client:
        load = SteadyLoad(
            client.producer("TurnedOn"),
            TOPIC,
            queues=QUEUES,
            clock=SystemClock(),
            random=chance,
            interval_ms=20,
        )
        load.start()
        for number in numbers:
            for name in cluster.layout.names:
                acknowledged = count(load)
                await asyncio.to_thread(cluster.stop, [name])
                with (cluster.directory / f"{name}.conf").open("a") as file:
                    file.writelines(f"{key}={value}\n" for key, value in steps(cluster, name)[number].items())
                await asyncio.to_thread(cluster.start, [name])
                await cluster.wait_whole(timeout_ms=WAIT_MS)
                await wait_for("an acknowledgement", partial(more_than, load, acknowledged), WAIT_MS)
        await load.stop()
    return load


def count(load: SteadyLoad) -> int:
    return sum(attempt.outcome is SendOutcome.ACKNOWLEDGED for attempt in load.attempts)


async def more_than(load: SteadyLoad, acknowledged: int) -> None:
    if count(load) <= acknowledged:
        raise NotYet(f"{acknowledged} are acknowledged")
