"""Three controllers as in `conf/cluster-3n`, on separate ports and in a folder that is removed afterwards.

Invariant: only addresses and folders differ from the shipped settings. Every started process is ended."""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import ports
from localcluster.processes import SOURCE_ROOT, ProcessIdentity, spawn
from mqruntime.clock import SystemClock
from remoting.client import RemotingClient
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.controller import GetMetadataResponseHeader

IDS = ("n0", "n1", "n2")
END_S = 20.0
LEADER_S_MAX = 60.0
LOOK_AGAIN_S = 0.01


class ControllerGroup:
    """The controllers. `addresses` are by id. With `sync_ms` each of their syncs takes that much longer."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-")
        self.root = Path(self._folder.name)
        self._lease = ports.lease_any(self.root, len(IDS))
        self.addresses = {
            name: f"127.0.0.1:{port}" for name, port in zip(IDS, self._lease.ports, strict=True)
        }
        self._processes: dict[str, ProcessIdentity] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._lease.release()
        self._folder.cleanup()

    def start(self, name: str, sync_ms: float = 0) -> None:
        peers = ";".join(f"{peer}-{address}" for peer, address in self.addresses.items())
        arguments = [
            "-c", str(SOURCE_ROOT / "conf" / "cluster-3n" / f"controller-{name}.conf"),
            f"controllerDLegerPeers={peers}",
            f"controllerStorePath={self.root / name}",
        ]  # fmt: skip
        module = "controller"
        if sync_ms:
            module, arguments = "scripts.bench.slowsync", [f"{sync_ms:g}", "controller", *arguments]
        self._processes[name] = spawn(module, arguments, self.root / f"{name}.log")

    def start_all(self, sync_ms: float = 0) -> None:
        for name in IDS:
            self.start(name, sync_ms)

    def signal(self, name: str, number: signal.Signals) -> None:
        self._processes[name].send(number)

    def stop(self) -> None:
        """End them, by force if they take too long."""
        for process in self._processes.values():
            process.send(signal.SIGTERM)
        for process in self._processes.values():
            if not process.wait_gone(END_S):
                process.send(signal.SIGKILL)
                process.wait_gone(END_S)
        self._processes.clear()

    def wait_gone(self, name: str) -> None:
        if not self._processes[name].wait_gone(END_S):
            raise SystemExit(f"controller {name} does not end; see {self.root / name}.log")

    def pid(self, name: str) -> int:
        return self._processes[name].pid

    async def agreed_leader(self) -> str:
        """The id of the controller that all three controllers, including itself, name as their leader."""
        client = RemotingClient(clock=SystemClock())
        deadline = time.monotonic() + LEADER_S_MAX
        try:
            while time.monotonic() < deadline:
                named = {await self._leader_of(client, address) for address in self.addresses.values()}
                leader = named.pop()
                if not named and leader is not None:
                    return leader
                await asyncio.sleep(LOOK_AGAIN_S)
        finally:
            await client.close()
        raise SystemExit(f"the controllers agree on no leader within {LEADER_S_MAX:g} s")

    async def _leader_of(self, client: RemotingClient, address: str) -> str | None:
        request = RemotingCommand.request(RequestCode.CONTROLLER_GET_METADATA_INFO)
        try:
            reply = await client.call(address, request)
        except RemotingError:
            return None
        return GetMetadataResponseHeader.from_ext(reply.ext).controller_leader_id or None
