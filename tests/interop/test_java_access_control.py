"""A Java broker that checks signatures and rights: our client, our tools and our slave sign what they send to the broker."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from localcluster.layout import CLUSTER_NAME
from mqclient.client import Client
from mqclient.errors import SendRefused
from mqclient.producer import SendStatus
from remoting.signing import Credentials
from scripts.peers.javapeer import broker_missing
from tests.interop.javabroker import CHECKED, INNER, PASSWORD, USER, java_broker
from tests.support.realpair import ROOT, TOPIC, RealPair, ours
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.skipif(broker_missing() is not None, reason=str(broker_missing()))]


def mqadmin(*arguments: str, keys: Path | None) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "MQ_CREDENTIALS_FILE": str(keys) if keys is not None else ""}
    command = [sys.executable, "-m", "mqadmin", *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


async def sent(namesrv: str, credentials: Credentials | None) -> SendStatus:
    async with Client(namesrv, credentials=credentials) as client:
        return (await client.producer("Signed").send(TOPIC, b"signed", timeout_ms=20_000)).status


def test_a_java_broker_serves_what_our_client_tools_and_slave_sign(tmp_path: Path) -> None:
    keys = tmp_path / "tools.yml"
    keys.write_text(f"accessKey: {USER}\nsecretKey: '{PASSWORD}'\n")
    with RealPair(tmp_path / "pair", [java_broker, ours]) as pair:
        pair.start(0, **CHECKED, **INNER)
        create = ("updateTopic", "-n", pair.namesrv, "-c", CLUSTER_NAME, "-t", TOPIC, "-r", "2", "-w", "2")
        wait_until("the topic is made", lambda: mqadmin(*create, keys=keys).returncode == 0)
        refused = mqadmin(*create, keys=None)
        assert refused.returncode == 1 and "username cannot be null" in refused.stderr
        pair.start(1, **INNER)
        assert asyncio.run(sent(pair.namesrv, Credentials(USER, PASSWORD))) is SendStatus.SEND_OK
        for credentials in (None, Credentials(USER, "wrong"), Credentials("nobody", PASSWORD)):
            with pytest.raises(SendRefused, match="16"):
                asyncio.run(sent(pair.namesrv, credentials))
        topics = pair.store(1) / "config" / "topics.json"
        wait_until("the slave has the topic", lambda: topics.exists() and f'"{TOPIC}"' in topics.read_text())
        assert PASSWORD not in pair.said(1)
