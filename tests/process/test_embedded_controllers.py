"""Name servers with an embedded controller, as in upstream's plugin samples: start, end, and a broker set on
them."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from localcluster import ports
from localcluster.load import read_messages
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError, RequestRefused
from mqadmin.replies import SyncStateInfo, TopicSettings
from mqclient.client import Client
from mqclient.errors import RouteUnknown, SendOutcomeUnknown, SendRefused
from mqclient.producer import SendStatus
from mqruntime.clock import SystemClock
from remoting.codes import RequestCode
from remoting.header import Header
from remoting.headers.nameserver import PutKVConfigHeader
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS

ROOT = Path(__file__).parents[2]
LICENCE = """<!--
  Licensed to the Apache Software Foundation (ASF) under one or more
  the License.  You may obtain a copy of the License at

      http://www.apache.org/licenses/LICENSE-2.0
  -->
"""
"""The first lines of upstream's samples. They are no comment in this format: each is an unknown key."""
PLUGIN = (
    LICENCE
    + """
#Namesrv config
listenPort = {namesrv}
enableControllerInNamesrv = true

#controller config
controllerDLegerGroup = group1
controllerDLegerPeers = n0-127.0.0.1:9878;n1-127.0.0.1:9868;n2-127.0.0.1:9858
controllerDLegerSelfId = n{number}
"""
)
MOVED = {9876: 0, 9886: 1, 9896: 2, 9878: 3, 9868: 4, 9858: 5, 30911: 12, 30921: 22}
"""Port in the files -> place in a leased block; a broker also takes the ones at -2 and +1."""
TOPIC = "Orders"
OUTCOMES = (RouteUnknown, SendRefused, SendOutcomeUnknown)

T = TypeVar("T")


class Scene:
    """Processes by the name of their file; their output goes into a file next to it. None outlives the
    test."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self._lease = ports.lease_any(home, 40)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.namesrvs = [self.port_of(port) for port in (9876, 9886, 9896)]
        self.controllers = ";".join(f"127.0.0.1:{self.port_of(port)}" for port in (9878, 9868, 9858))

    def close(self) -> None:
        for name in list(self._processes):
            self.kill(name)
        self._lease.release()

    def port_of(self, port: int) -> int:
        return self._lease.ports.start + MOVED[port]

    def file(self, name: str, text: str) -> None:
        """The properties of `name`, with the ports of this block."""
        pattern = r"\b(?:" + "|".join(map(str, MOVED)) + r")\b"
        moved = re.sub(pattern, lambda match: str(self.port_of(int(match.group()))), text)
        (self.home / f"{name}.conf").write_text(moved)

    def plugin(self, number: int) -> str:
        """The file of one of upstream's three."""
        name = f"namesrv-n{number}"
        self.file(name, PLUGIN.format(namesrv=9876 + 10 * number, number=number))
        return name

    def alone(self, more: str = "", *, name: str = "namesrv-n0", namesrv: int = 9876) -> str:
        """The file of one whose controller is the complete group."""
        text = PLUGIN.format(namesrv=namesrv, number=0)
        text = re.sub(r"(?<=n0-127.0.0.1:9878);.*", "", text)
        self.file(name, f"{text}mappedFileSize = 1048576\n{more}")
        return name

    def start(self, name: str) -> subprocess.Popen[bytes]:
        module = name.partition("-")[0]
        with (self.home / f"{name}.log").open("ab") as said:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-P", "-m", module, "--strict", "-c", f"{name}.conf"],
                cwd=self.home,
                env={**os.environ, "PYTHONPATH": str(ROOT), "HOME": str(self.home)},
                stderr=said,
            )
        return self._processes[name]

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> int:
        """Stops it and returns the exit code."""
        process = self._processes.pop(name)
        process.terminate()
        return process.wait()

    def said(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text()

    def asked(self, ask: Callable[[AdminClient], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            admin = AdminClient(SystemClock())
            try:
                return await ask(admin)
            finally:
                await admin.close()

        return asyncio.run(run())

    def until(self, what: str, ask: Callable[[AdminClient], Coroutine[Any, Any, T | None]]) -> T:
        """The first answer that is not None; refused requests are repeated."""

        async def probe(admin: AdminClient) -> T:
            for name, process in self._processes.items():
                assert process.poll() is None, f"{name} ended: {self.said(name)}"
            try:
                answered = await ask(admin)
            except AdminError as error:
                raise NotYet(str(error)) from error
            if answered is None:
                raise NotYet(what)
            return answered

        return self.asked(lambda admin: wait_for(what, lambda: probe(admin), WAIT_MS))

    def leader(self, former: str = "") -> str:
        """The process whose controller leads and is not `former`."""

        async def answered(admin: AdminClient) -> str | None:
            address = await admin.leader(self.controllers)
            name = f"namesrv-n{self.controllers.split(';').index(address)}"
            return name if name != former else None

        return self.until("a leader", answered)

    def set_of(self, met: Callable[[SyncStateInfo], bool]) -> SyncStateInfo:
        async def answered(admin: AdminClient) -> SyncStateInfo | None:
            state = (await admin.sync_states(self.controllers, ["broker-a"])).get("broker-a")
            return state if state is not None and met(state) else None

        return self.until("the set", answered)

    def send(self, body: bytes, namesrv: int) -> None:
        """Sends until the message is acknowledged."""

        async def probe() -> bool:
            async with Client(f"127.0.0.1:{namesrv}", clock=SystemClock(), random=random.Random(1)) as client:
                try:
                    result = await client.producer("Producers").send(TOPIC, body, timeout_ms=10_000)
                except OUTCOMES as error:
                    raise NotYet(str(error)) from error
                if result.status is not SendStatus.SEND_OK:
                    raise NotYet(str(result.status))
                return True

        assert asyncio.run(wait_for("an acknowledgement", probe, WAIT_MS))

    def bodies(self, namesrv: int) -> set[bytes]:
        async def read() -> set[bytes]:
            async with Client(f"127.0.0.1:{namesrv}", clock=SystemClock(), random=random.Random(1)) as client:
                read = read_messages(client.consumer("Readers"), TOPIC, WAIT_MS)
                return {message.body async for _, message in read}

        return asyncio.run(read())


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    made = Scene(tmp_path)
    try:
        yield made
    finally:
        made.close()


def broker(scene: Scene, number: int) -> str:
    name = f"broker-n{number}"
    settings = {
        "brokerClusterName": "DefaultCluster",
        "brokerName": "broker-a",
        "enableControllerMode": "true",
        "controllerAddr": "127.0.0.1:9878;127.0.0.1:9868;127.0.0.1:9858",
        "namesrvAddr": "127.0.0.1:9876;127.0.0.1:9886;127.0.0.1:9896",
        "brokerIP1": "127.0.0.1",
        "listenPort": 30911 + 10 * number,
        "storePathRootDir": f"store-{number}",
        "mappedFileSizeCommitLog": 1 << 20,
        "minInSyncReplicas": 1,
        **NOBODY_IS_LATE,
    }
    scene.file(name, "".join(f"{key} = {value}\n" for key, value in settings.items()))
    return name


def test_three_embedded_controllers_survive_a_killed_leader_and_master(scene: Scene) -> None:
    names = [scene.plugin(number) for number in range(3)]
    for name in (*names, broker(scene, 0), broker(scene, 1)):
        scene.start(name)
    before = scene.set_of(lambda state: len(state.in_sync) == 2)
    assert before.master_address is not None
    addresses = [f"127.0.0.1:{scene.port_of(port)}" for port in (30911, 30921)]
    settings = TopicSettings(TOPIC, 2, 2, 6)
    scene.until("a topic", lambda admin: created(admin, before.master_address or "", settings))
    scene.send(b"first", scene.namesrvs[0])

    killed = scene.leader()
    scene.kill(killed)
    others = [name for name in names if name != killed]
    assert scene.leader(former=killed) in others
    master = before.master_address
    scene.kill(f"broker-n{addresses.index(master)}")
    after = scene.set_of(lambda state: state.master_address not in (None, master))
    assert after.master_epoch > before.master_epoch
    living = scene.namesrvs[names.index(others[0])]
    scene.send(b"second", living)

    scene.start(killed)
    scene.start(f"broker-n{addresses.index(master)}")
    scene.set_of(lambda state: len(state.in_sync) == 2)
    scene.until("three members", lambda admin: all_answer(admin, scene.controllers))
    leader = scene.leader()
    assert scene.end(leader) == 0
    said = scene.said(leader)
    handed, stopped = said.find("leadership handed over"), said.find("INFO mqruntime.serve stopped")
    assert 0 < handed < stopped, said
    rest = next(name for name in names if name != leader)
    assert scene.bodies(scene.namesrvs[names.index(rest)]) == {b"first", b"second"}
    for name in names:
        assert "unknown setting" not in scene.said(name)
        folder = scene.home / "DLedgerController" / f"n{names.index(name)}"
        assert (folder / f"dledger-n{names.index(name)}").is_dir()


async def created(admin: AdminClient, master: str, settings: TopicSettings) -> bool:
    await admin.create_topic(master, settings)
    return True


async def all_answer(admin: AdminClient, controllers: str) -> bool | None:
    answered = [await admin.controller_metadata(address) for address in controllers.split(";")]
    return True if len({metadata.leader_id for metadata in answered}) == 1 and answered[0].leader_id else None


def test_a_setting_changed_in_one_server_does_not_change_the_other_or_the_file(scene: Scene) -> None:
    name = scene.alone(f"metricsExporterType=PROM\nmetricsPromExporterPort={scene.port_of(30911)}\n")
    text = (scene.home / f"{name}.conf").read_text()
    scene.start(name)
    assert scene.leader() == name
    namesrv, controller = f"127.0.0.1:{scene.namesrvs[0]}", scene.controllers.split(";")[0]

    def asked(address: str, code: RequestCode, body: bytes = b"", header: Header | None = None) -> list[str]:
        reply = scene.asked(lambda admin: admin.ask(address, code, header, body=body))
        return bytes(reply.body or b"").decode().splitlines()

    asked(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, b"scanNotActiveBrokerInterval=700\n")
    asked(controller, RequestCode.UPDATE_CONTROLLER_CONFIG, b"enableElectUncleanMaster=true\n")
    assert "scanNotActiveBrokerInterval=700" in asked(namesrv, RequestCode.GET_NAMESRV_CONFIG)
    shown = asked(controller, RequestCode.GET_CONTROLLER_CONFIG)
    assert {"scanNotActiveBrokerInterval=5000", "enableElectUncleanMaster=true"} <= {*shown}
    for line in (b"enableControllerInNamesrv=false\n", b"kvConfigPath=elsewhere\n"):
        with pytest.raises(RequestRefused, match="black list"):
            asked(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, line)
    for address, code in (
        (namesrv, RequestCode.CONTROLLER_GET_METADATA_INFO),
        (controller, RequestCode.GET_NAMESRV_CONFIG),
    ):
        with pytest.raises(RequestRefused, match="does not serve"):
            asked(address, code)
    asked(namesrv, RequestCode.PUT_KV_CONFIG, header=PutKVConfigHeader("ORDER_TOPIC_CONFIG", "Orders", "a:1"))
    assert (scene.home / f"{name}.conf").read_text() == text
    kept = json.loads((scene.home / "DLedgerController" / "n0" / "kvConfig.json").read_text())
    assert kept == {"configTable": {"ORDER_TOPIC_CONFIG": {"Orders": "a:1"}}}
    with urllib.request.urlopen(f"http://127.0.0.1:{scene.port_of(30911)}/metrics") as page:
        metrics = page.read().decode()
    assert "rocketmq_namesrv_brokers 0.0" in metrics and "\nrole{" in metrics
    assert scene.end(name) == 0


def ends(scene: Scene, name: str) -> tuple[int, str]:
    """The exit code and the output of a process that ends by itself."""
    return scene.start(name).wait(), scene.said(name)


@pytest.mark.parametrize("port", [9876, 9878])
def test_a_used_port_ends_name_server_and_controller(scene: Scene, port: int) -> None:
    name = scene.alone()
    with socket.create_server(("127.0.0.1", scene.port_of(port))):
        code, said = ends(scene, name)
    assert code == 1
    assert f"fatal: 127.0.0.1:{scene.port_of(port)}" in said and said.count("fatal") == 1, said


def test_a_damaged_log_ends_name_server_and_controller_with_a_reason(scene: Scene) -> None:
    name = scene.alone()
    scene.start(name)
    assert scene.leader() == name
    assert scene.end(name) == 0
    (scene.home / "DLedgerController" / "n0" / "dledger-n0" / "currterm").unlink()
    code, said = ends(scene, name)
    assert code == 1
    assert "fatal: dledger-n0/currterm: is missing although there is a log" in said, said


def test_a_second_process_on_either_folder_is_refused(scene: Scene) -> None:
    name = scene.alone()
    scene.start(name)
    assert scene.leader() == name
    held = scene.home / "DLedgerController" / "n0"
    for number, folders in enumerate(
        (
            "",
            f"kvConfigPath = {scene.home}/other/kvConfig.json\n",
            f"controllerStorePath = {scene.home}/other\nkvConfigPath = {held}/kvConfig.json\n",
        )
    ):
        second = f"namesrv-second{number}"
        scene.alone(folders, name=second, namesrv=9886)
        code, said = ends(scene, second)
        assert code == 2
        assert f"{held}/lock: another process" in said and said.count("\n") == 1, said
    assert scene.end(name) == 0


def test_a_signal_while_waiting_for_peers_stops_both_in_order(scene: Scene) -> None:
    """One of three: it serves routes and never leads."""
    name = scene.plugin(0)
    scene.start(name)
    namesrv = f"127.0.0.1:{scene.namesrvs[0]}"
    scene.until("its lists", lambda admin: admin.cluster_info(namesrv))
    assert scene.end(name) == 0
