"""A group of real Java controllers (RocketMQ 5.3.3, DLedger 0.3.1.2); each may be replaced by ours on its own
store.

Invariant: no process outlives the group."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

from localcluster.ports import lease_any
from localcluster.waiting import NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import SyncStateInfo
from mqruntime.clock import SystemClock
from scripts.peers.javaserver import NO_SPIN, java_server
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS, WAIT_S
from tests.interop.javabroker import java_broker
from tests.interop.javaclient import JavaClient

ROOT = Path(__file__).parents[2]
FILE_BYTES = 4 << 20
JAVA_BROKER = {
    "brokerRole": "SLAVE",
    "brokerId": -1,
    "timerWheelEnable": "false",
    **NO_SPIN,
    "mappedFileSizeConsumeQueue": 6_000,
    "maxHashSlotNum": 100,
    "maxIndexNum": 400,
}

T = TypeVar("T")


class Controllers:
    """`n0` to `n2`, and brokers that use them. The output of each goes into a file of its name. `tools` runs
    the real mqadmin."""

    def __init__(self, home: Path, tools: JavaClient, count: int = 3) -> None:
        self.home = home
        self._tools = tools
        home.mkdir(parents=True, exist_ok=True)
        self._lease = lease_any(home, 40)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.names = [f"n{number}" for number in range(count)]
        self.addresses = {name: f"127.0.0.1:{self._lease.ports[at]}" for at, name in enumerate(self.names, 1)}
        self.list = ";".join(self.addresses.values())
        self.namesrv = f"127.0.0.1:{self._lease.ports[0]}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for name in list(self._processes):
            self.kill(name)
        self._lease.release()

    # -- processes

    def store(self, name: str) -> Path:
        return self.home / f"store-{name}"

    def member(self, name: str) -> Path:
        return self.store(name) / f"dledger-{name}"

    def settings(self, name: str, **more: object) -> Path:
        """The properties file, the same for Java's and for ours."""
        lines = {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": ";".join(
                f"{peer}-{address}" for peer, address in self.addresses.items()
            ),
            "controllerDLegerSelfId": name,
            "controllerStorePath": self.store(name),
            "mappedFileSize": FILE_BYTES,
            **more,
        }
        return self._written(name, lines)

    def start_java(self, name: str) -> None:
        self._run(name, java_server("controller", self.settings(name), self.home / f"home-{name}"))

    def start_ours(self, name: str, **more: object) -> None:
        self._run(name, self._ours("controller", self.settings(name, **more)))

    def start_embedded(self, name: str) -> None:
        """Starts our controller inside the name server."""
        more = {"enableControllerInNamesrv": "true", "listenPort": self.namesrv.rpartition(":")[2]}
        self._run(name, self._ours("namesrv", self.settings(name, **more)))

    def start_namesrv(self) -> None:
        lines = {"listenPort": self.namesrv.rpartition(":")[2], "kvConfigPath": self.home / "kvConfig.json"}
        self._run("namesrv", self._ours("namesrv", self._written("namesrv", lines)))

    def start_broker(self, number: int, *, java: bool = False) -> None:
        port = self._lease.ports[10 * (1 + number) + 2]
        lines = {
            "brokerClusterName": "DefaultCluster",
            "brokerName": "broker-a",
            "enableControllerMode": "true",
            "controllerAddr": self.list,
            "namesrvAddr": self.namesrv,
            "brokerIP1": "127.0.0.1",
            "listenPort": port,
            "storePathRootDir": self.home / f"broker-{number}",
            "mappedFileSizeCommitLog": 1 << 20,
            **NOBODY_IS_LATE,
        }
        name = f"broker-{number}"
        file = self._written(name, lines | (JAVA_BROKER if java else {}))
        self._run(name, java_broker(file) if java else self._ours("broker", file))

    def _ours(self, module: str, file: Path) -> list[str]:
        return [sys.executable, "-P", "-m", module, "-c", str(file)]

    def _written(self, name: str, lines: dict[str, object]) -> Path:
        file = self.home / f"{name}.conf"
        file.write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
        return file

    def _run(self, name: str, command: list[str]) -> None:
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "ROCKETMQ_HOME": str(self.home)}
        with (self.home / f"{name}.log").open("ab") as said:
            self._processes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=said, stderr=said, env=environment, cwd=self.home
            )

    def kill(self, name: str) -> None:
        process = self._processes.pop(name)
        process.kill()
        process.wait()

    def end(self, name: str) -> int:
        process = self._processes.pop(name)
        process.terminate()
        return process.wait(WAIT_S)

    def end_all(self) -> list[int]:
        """Stops all controllers at once; returns their exit codes."""
        processes = [self._processes.pop(name) for name in self.names]
        for process in processes:
            process.terminate()
        return [process.wait(WAIT_S) for process in processes]

    def exit_code(self, name: str) -> int:
        """The exit code of a controller that ends by itself."""
        return self._processes.pop(name).wait(WAIT_S)

    def said(self, name: str) -> str:
        return (self.home / f"{name}.log").read_text(errors="replace")

    # -- requests

    def java_admin(self, *arguments: str) -> str:
        """The output of the real mqadmin."""
        return str(self._tools.ask("admin", *arguments)["out"])

    def until(self, what: str, ask: Callable[[AdminClient], Coroutine[Any, Any, T | None]]) -> T:
        """The first answer that is not None; refused requests are repeated."""

        async def asked() -> T:
            admin = AdminClient(SystemClock())
            try:
                return await wait_for(what, lambda: probe(admin), WAIT_MS)
            finally:
                await admin.close()

        async def probe(admin: AdminClient) -> T:
            try:
                answered = await ask(admin)
            except AdminError as error:
                raise NotYet(str(error)) from error
            if answered is None:
                raise NotYet(what)
            return answered

        return asyncio.run(asked())

    def leader(self, *, other_than: str = "") -> str:
        """The name of the leader."""

        async def answered(admin: AdminClient) -> str | None:
            address = await admin.leader(self.list)
            found = next(name for name, known in self.addresses.items() if known == address)
            return found if found != other_than else None

        return self.until("a leader", answered)

    def settle(self, count: int = 2, *, master_id: int | None = None) -> SyncStateInfo:
        """Waits until so many replicas are in sync, under the given master if any; returns the set."""

        async def answered(admin: AdminClient) -> SyncStateInfo | None:
            state = (await admin.sync_states(self.list, ["broker-a"])).get("broker-a")
            if state is None or len(state.in_sync) != count:
                return None
            return state if master_id in (None, state.master_id) else None

        return self.until("a set", answered)

    def move_master(self) -> None:
        """Moves the mastership to the other replica with the real mqadmin, when the leader knows that one.
        mqadmin writes to stderr on success."""
        self.facts()
        before = self.settle()
        wanted = next(
            replica.broker_id for replica in before.in_sync if replica.broker_id != before.master_id
        )
        where = ["-bn", "broker-a", "-c", "DefaultCluster"]
        self.java_admin("electMaster", "-a", self.addresses[self.leader()], "-b", str(wanted), *where)
        self.settle(master_id=wanted)

    def facts(self) -> list[str]:
        """The lines of the real mqadmin about the set, once both replicas are in sync and known to the
        leader. The order of members varies."""

        async def answered(admin: AdminClient) -> list[str] | None:
            lines = await asyncio.to_thread(
                self.java_admin, "getSyncStateSet", "-a", await admin.leader(self.list), "-b", "broker-a"
            )
            return sorted(lines.split("\n")) if lines.count("alive=true") == 2 else None

        return self.until("a whole set", answered)
