"""A Java push consumer, managed with our mqadmin and upstream's through our brokers."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from localcluster.cluster import Cluster
from localcluster.layout import CLUSTER_NAME
from localcluster.waiting import NotYet, wait_for
from mqadmin.cli import COMMANDS, admin
from scripts.peers.javapeer import missing
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient
from tests.unit.mqadmin.adminpage import UPSTREAMS

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

ROOT = Path(__file__).parents[2]
TOPIC, GROUP, QUEUES = "Administered", "InteropAdministered", 4


def json_of(cluster: Cluster, *arguments: str) -> Any:
    """The JSON of a command of our mqadmin."""
    command = [sys.executable, "-m", "mqadmin", *arguments, "-n", cluster.layout.namesrv, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def client_id(cluster: Cluster) -> str:
    [group] = [row for row in json_of(cluster, "consumerProgress")["groups"] if row["group"] == GROUP]
    [member] = group["consumers"]["connectionSet"]
    return str(member["clientId"])


def test_a_java_consumer_reports_its_queues_and_consumes_a_message_again(
    java: JavaClient, cluster: Cluster
) -> None:
    namesrv = ("-n", cluster.layout.namesrv)
    create = ("-c", CLUSTER_NAME, "-t", TOPIC, "-r", QUEUES, "-w", QUEUES)
    assert "success" in java.admin("updateTopic", *namesrv, *create)
    java.ask("consume", "administered", TOPIC, GROUP, "CLUSTERING", "*", 0, -1)
    java.ask("assigned", "administered", QUEUES)
    sent = json_of(cluster, "sendMessage", "-t", TOPIC, "-p", "hello", "-k", "7", "-c", "Tag")
    java.ask("seen", "administered", 1)
    # offsets for every queue
    java.admin("resetOffsetByTime", *namesrv, "-g", GROUP, "-t", TOPIC, "-s", "now")

    member = client_id(cluster)
    ip = member.partition("@")[0]

    async def both_show_the_client() -> None:
        """A reset consumer drops its queues, and takes them again with its next rebalance."""
        rows = json_of(cluster, "consumerProgress", "-g", GROUP, "-s", "true")["queues"]
        upstream = java.admin("consumerProgress", *namesrv, "-g", GROUP, "-s", "true")
        shown = [line.split()[5] for line in upstream.splitlines() if line.startswith(TOPIC)]
        if not [row["clientIp"] for row in rows] == shown == [ip] * QUEUES:
            raise NotYet(f"{rows}\n{upstream}")

    asyncio.run(wait_for("queues that are read", both_show_the_client, WAIT_MS))

    given = ("-t", TOPIC, "-i", sent["msgId"], "-g", GROUP, "-d", member)
    [result] = json_of(cluster, "queryMsgById", *given)["results"]
    assert result["consumeResult"] == "CR_SUCCESS"
    assert "consumeResult=CR_SUCCESS" in java.admin("queryMsgById", *namesrv, *given)
    json_of(cluster, "queryMsgById", "-t", TOPIC, "-i", sent["offsetMsgId"], "-s", "true")
    java.ask("seen", "administered", 4)
    assert java.ask("close", "administered")["keys"] == [7] * 4


def test_the_page_of_commands_lists_all_commands_of_upstream(java: JavaClient) -> None:
    names = {line.split()[0] for line in java.admin().splitlines() if line.startswith("   ")}
    assert names == set(UPSTREAMS)


OPTION = re.compile(r"^ (-\w),--(\S.*?)( +<arg>)?  ", re.MULTILINE)
NEWER_OPTIONS = {
    "queryMsgByKey": {("-p", "keyType", True), ("-l", "lastKey", True)},
    "queryMsgByUniqueKey": {("-s", "startTime", True), ("-e", "endTime", True)},
}
"""Options of 5.5.0 that ours has too."""
WITHOUT_BLANK = {"print msg": "printMsg", "print log": "printLog", "machine room": "machineRoom"}


@pytest.mark.parametrize("name", [name for name in UPSTREAMS if name in COMMANDS])
def test_each_command_takes_upstreams_options(java: JavaClient, name: str) -> None:
    ours = CliRunner().invoke(admin, ["help", name], prog_name="mqadmin").stdout
    options = {
        (letter, WITHOUT_BLANK.get(long.strip(), long.strip()), bool(value))
        for letter, long, value in OPTION.findall(java.admin("help", name))
    }
    assert len(options) >= 2
    options |= NEWER_OPTIONS.get(name, set())
    assert {(letter, long, bool(value)) for letter, long, value in OPTION.findall(ours)} == options
