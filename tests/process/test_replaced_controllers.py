"""A controller of a running cluster is replaced by one on another port; then another one may be killed."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from functools import partial
from pathlib import Path
from typing import Any

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CONTROLLER_GROUP
from scripts.peers.waits import WAIT_MS, WAIT_S
from tests.process.forkedcommands import ForkedCommands
from tests.process.serverprocess import ServerProcess
from tests.unit.dledger.ledgergroup import free_ports


def json_of(commands: ForkedCommands, *arguments: str) -> Any:
    """The JSON of a command, repeated until it succeeds because controllers may be electing."""
    deadline = time.monotonic() + WAIT_S
    while True:
        done = commands.run("mqadmin", *arguments, "--json")
        if done.returncode == 0:
            return json.loads(done.stdout)
        assert time.monotonic() < deadline, done.stderr
        time.sleep(0.2)


def test_a_controller_is_replaced_under_a_running_cluster(tmp_path: Path, commands: ForkedCommands) -> None:
    mqadmin = partial(json_of, commands)
    with Cluster.create(tmp_path / "cluster") as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
        old = cluster.layout.controller_list
        (port,) = free_ports(1)
        address = f"127.0.0.1:{port}"
        peers = [
            f"n{number}-{cluster.layout.address(name)}"
            for number, name in enumerate(cluster.layout.controller_names)
        ]
        file = tmp_path / "new.conf"
        file.write_text(
            f"controllerDLegerGroup={CONTROLLER_GROUP}\ncontrollerDLegerSelfId=n3\n"
            f"controllerDLegerPeers={';'.join(peers)};n3-{address}\ncontrollerStorePath={tmp_path / 'new'}\n"
        )
        with ServerProcess("controller", "-c", str(file)) as new:
            new.wait_to_say("does not vote yet")
            added = mqadmin("addController", "-a", old, "-m", f"n3-{address}")
            assert sorted(added["after"]["voters"]) == ["n0", "n1", "n2", "n3"]
            new.wait_to_say("votes from now on")
            leader = mqadmin("getControllerMetaData", "-a", address)["leaderId"]
            removed = mqadmin("removeController", "-a", f"{old};{address}", "-i", leader)  # hands over first
            assert leader not in removed["after"]["voters"]
            gone = f"controller-{leader[1:]}"
            cluster.kill([gone], signal.SIGTERM)
            rest = [name for name in cluster.layout.controller_names if name != gone]
            known = mqadmin("getControllerMetaData", "-a", address)["peers"]
            assert sorted(peer.partition(":")[0] for peer in known) == sorted(
                {"n0", "n1", "n2", "n3"} - {leader}
            )
            cluster.kill([rest[0]])  # one old and the new controller are a majority of the three
            left = f"{cluster.layout.address(rest[1])};{address}"
            [state] = mqadmin("getSyncStateSet", "-a", left, "-b", BROKER_SET)["brokerSets"]
            chosen = next(row["brokerId"] for row in state["inSync"] if row["brokerId"] != state["masterId"])
            done = mqadmin(
                "electMaster", "-a", left, "-b", str(chosen), "-bn", BROKER_SET, "-c", "DefaultCluster"
            )
            assert done["masterEpoch"] > state["masterEpoch"]
