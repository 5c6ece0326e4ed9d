"""A local cluster: creates it in a directory, starts and ends its processes by name, and waits until the cluster is in a wanted
state.

Invariant: signals are sent only to processes that a cluster of this directory started. All data, logs and process tables of a
cluster are below its directory.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
import time
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from localcluster import ports
from localcluster.layout import BROKER_SET, HOST, SEGMENT_BYTES, Layout, Mode
from localcluster.processes import ProcessIdentity, ProcessRecord, ProcessTable, interrupts_held, spawn
from localcluster.raftset import raft_set
from localcluster.secured import admin_of, let_application_in, make_certificates, make_passwords_of
from localcluster.waiting import POLL_MS, NotYet, wait_for
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqadmin.replies import SyncStateInfo, TopicSettings
from mqruntime.certificates import CannotIssue

ENVIRONMENT = "env.json"
STOP_TIMEOUT_S = 10.0
WHOLE_TIMEOUT_MS = 120_000
LOG_TAIL_LINES = 8
ENDING_SIGNALS = frozenset({signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGQUIT})


class ClusterError(Exception):
    """The request cannot be carried out. The text says why and what to do."""


class ProcessDied(ClusterError):
    """A process ended although nothing stopped it. The error contains the end of its log."""


class Cluster:
    """The cluster in `layout.directory`. As a context manager it stops all its processes at the end."""

    def __init__(self, layout: Layout, lease: ports.PortLease | None) -> None:
        self.layout = layout
        self.directory = layout.directory
        self._lease = lease
        self._table = ProcessTable(self.directory)

    @classmethod
    def create(
        cls,
        directory: Path,
        *,
        controllers: int = 3,
        brokers: int = 3,
        base_port: int | None = None,
        segment_bytes: int = SEGMENT_BYTES,
        broker_settings: dict[str, str] | None = None,
        controller_settings: dict[str, str] | None = None,
        bind_host: str = HOST,
        mode: Mode = Mode.CONTROLLER,
        secure: bool = False,
        authority: Path | None = None,
    ) -> Self:
        """Reserve ports and write the files of a new cluster, without starting anything. If `bind_host` is not HOST, processes
        reach each other only through a relay. `authority` is the folder of the authority that signs the certificates of a
        `secure` cluster; by default each cluster makes one.

        Raises `ClusterError` if the directory holds a cluster or other files, `ports.PortsTaken`, `LayoutError`.
        """
        directory = directory.expanduser().resolve()
        if (directory / ENVIRONMENT).exists():
            raise ClusterError(
                f"{directory} holds a cluster already; use `start`, or `down --remove` it first"
            )
        if directory.is_dir() and any(directory.iterdir()):
            raise ClusterError(f"{directory} is not empty; name a new or an empty directory")
        layout = Layout(
            directory,
            ports.FIRST_PORT if base_port is None else base_port,
            0 if mode is Mode.RAFT else controllers,
            brokers,
            segment_bytes,
            dict(broker_settings or {}),
            dict(controller_settings or {}),
            bind_host,
            mode,
            secure,
        )
        if base_port is None:
            lease = ports.lease_any(directory, len(layout.ports))
            layout = replace(layout, base_port=lease.ports.start)
        else:
            lease = ports.lease(directory, layout.ports)
        try:
            directory.mkdir(parents=True, exist_ok=True)
            if secure:
                make_certificates(layout, authority)
                make_passwords_of(layout)
            for name in layout.names:
                (directory / f"{name}.conf").write_text(layout.file(name))
            (directory / ENVIRONMENT).write_text(json.dumps(layout.environment(), indent=1) + "\n")
        except (OSError, CannotIssue):
            lease.release()
            raise
        return cls(layout, lease)

    @staticmethod
    def open(directory: Path) -> Cluster:
        """The cluster that was created in `directory`. Raises `ClusterError` if there is none."""
        directory = directory.expanduser().resolve()
        try:
            text = (directory / ENVIRONMENT).read_text()
        except (FileNotFoundError, NotADirectoryError):
            raise ClusterError(
                f"no cluster in {directory}; `scripts/cluster up --dir ...` makes one"
            ) from None
        return Cluster(Layout.from_environment(directory, text), None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.down()

    # Processes by name

    def start(self, names: Iterable[str] = ()) -> list[str]:
        """Start those of the named processes (of all, if none is named) that do not run. Returns the names of started
        processes."""
        wanted = self._checked(names)
        started: list[str] = []
        with self._table.changing() as table:
            running = {name for name, record in table.items() if record.identity.state() is not None}
            if self._lease is None:
                in_use = frozenset(port for port in self.layout.ports if self._owner_of(port) in running)
                self._lease = ports.lease(self.directory, self.layout.ports, in_use=in_use)
            for name in wanted:
                if name not in running:
                    arguments = ["-c", str(self.directory / f"{name}.conf")]
                    with interrupts_held():
                        identity = spawn(self.layout.module(name), arguments, self.log_file(name))
                        table[name] = ProcessRecord(identity)
                    started.append(name)
        return started

    def kill(self, names: Iterable[str], number: signal.Signals = signal.SIGKILL) -> list[str]:
        """Send a signal to the named processes, and return those that were still running. If the signal is SIGKILL, wait until
        they have ended."""
        hit: list[str] = []
        with self._table.changing() as table:
            for name in self._checked(names):
                if name not in table:
                    continue
                identity = table[name].identity
                if number in ENDING_SIGNALS:
                    table[name] = ProcessRecord(identity, asked_to_end=True)
                if identity.send(number):
                    hit.append(name)
                    if number == signal.SIGKILL:
                        identity.wait_gone(STOP_TIMEOUT_S)
        return hit

    def stop(self, names: Iterable[str] = ()) -> list[str]:
        """End the named processes (all, if none is named) gracefully, brokers first. After 10 s, plus the time for which
        brokers may stay to forward, they are killed."""
        ended: list[str] = []
        with self._table.changing() as table:
            order = [name for name in reversed(self._checked(names)) if name in table]
            for name in order:
                identity = table[name].identity
                was_ending = table[name].asked_to_end  # a second SIGTERM would end a forwarding broker
                table[name] = ProcessRecord(identity, asked_to_end=True)
                if was_ending or identity.send(signal.SIGTERM):
                    ended.append(name)
                identity.send(signal.SIGCONT)  # a paused process cannot handle SIGTERM
            forward_s = int(self.layout.broker_settings.get("shutdownForwardSeconds", 0))
            for name in order:
                identity = table[name].identity
                if not identity.wait_gone(STOP_TIMEOUT_S + forward_s):
                    identity.send(signal.SIGKILL)
                    identity.wait_gone(STOP_TIMEOUT_S)
        return ended

    def restart(self, names: Iterable[str]) -> list[str]:
        """Stop the named processes that run and start them all."""
        wanted = self._checked(names)
        self.stop(wanted)
        return self.start(wanted)

    def pause(self, name: str) -> None:
        """Freeze a process with SIGSTOP until `resume`."""
        if not self.kill([name], signal.SIGSTOP):
            raise ClusterError(f"{name} does not run")
        identity = self._table.read()[name].identity
        deadline_s = time.monotonic() + STOP_TIMEOUT_S
        while identity.state() not in (None, "T", "t") and time.monotonic() < deadline_s:
            time.sleep(POLL_MS / 1000)  # a thread may still run for a moment after the signal

    def resume(self, name: str) -> None:
        self.kill([name], signal.SIGCONT)

    def down(self, *, remove: bool = False) -> None:
        """End every process, release the ports and, with `remove`, delete the directory."""
        if self.directory.exists():
            self.stop()
        if self._lease is not None:
            self._lease.release()
            self._lease = None
        if remove:
            shutil.rmtree(self.directory, ignore_errors=True)

    def states(self) -> dict[str, ProcessIdentity | None]:
        """Name -> identity of each process of the cluster; None for a process that does not run."""
        table = self._table.read()
        return {
            name: table[name].identity if name in table and table[name].identity.state() else None
            for name in self.layout.names
        }

    def check_alive(self) -> None:
        """Raise `ProcessDied` if a started process ended although nothing stopped it."""
        for name, record in self._table.read().items():
            if record.identity.state() is None and not record.asked_to_end:
                raise ProcessDied(f"{name} has ended; its log ends with:\n{self.log_tail(name)}")

    # Files

    def log_file(self, name: str) -> Path:
        return self.directory / "logs" / f"{name}.log"

    def log_tail(self, name: str, lines: int = LOG_TAIL_LINES) -> str:
        """The last lines of a process' log."""
        try:
            text = self.log_file(name).read_text(errors="replace")
        except FileNotFoundError:
            return "(no log)"
        return "\n".join(text.splitlines()[-lines:])

    # Conditions

    async def sync_state(self, admin: AdminClient) -> SyncStateInfo:
        """The broker set according to the leading controller or, in Raft mode, according to its master. Raises `NotYet` while
        there is no leader or no set."""
        self.check_alive()
        if self.layout.in_raft_mode:
            return await raft_set(self.layout, admin)
        try:
            states = await admin.sync_states(self.layout.controller_list, [BROKER_SET])
        except AdminError as error:
            raise NotYet(str(error)) from error
        if BROKER_SET not in states:
            raise NotYet(f"no broker of {BROKER_SET} is registered")
        return states[BROKER_SET]

    async def wait_whole(self, *, timeout_ms: int = WHOLE_TIMEOUT_MS) -> SyncStateInfo:
        """Wait until there is a master, every broker is alive and in the SyncStateSet, and clients find the master.

        Raises `ProcessDied` as soon as a process ends by itself, or `WaitExpired`.
        """
        return await self.wait_in_sync(self.layout.brokers, timeout_ms=timeout_ms)

    async def wait_in_sync(self, members: int, *, timeout_ms: int = WHOLE_TIMEOUT_MS) -> SyncStateInfo:
        """Do as `wait_whole`, but wait for only `members` living members of the SyncStateSet, including the master."""
        admin = admin_of(self.layout)

        async def probe() -> SyncStateInfo:
            state = await self.sync_state(admin)
            alive = [replica for replica in state.in_sync if replica.alive]
            if state.master_address is None or len(alive) < members:
                raise NotYet(_shown(state))
            if state.master_address not in [replica.address for replica in alive]:
                raise NotYet(f"the master is not alive; {_shown(state)}")
            await self._registered(admin, state.master_address)
            return state

        try:
            return await wait_for(f"{members} brokers in the SyncStateSet", probe, timeout_ms)
        finally:
            await admin.close()

    async def wait_leader(self, *, timeout_ms: int = WHOLE_TIMEOUT_MS) -> str:
        """Wait until a controller leads, and return its address."""
        admin = admin_of(self.layout)

        async def probe() -> str:
            self.check_alive()
            try:
                return await admin.leader(self.layout.controller_list)
            except AdminError as error:
                raise NotYet(str(error)) from error

        try:
            return await wait_for("a leading controller", probe, timeout_ms)
        finally:
            await admin.close()

    async def create_topic(self, topic: str, queues: int = 4) -> None:
        """Create a topic on the master. Wait until clients get its route and every member of the SyncStateSet has the topic,
        so that any next master serves it. In a secure cluster the application may use it."""
        admin = admin_of(self.layout)

        wanted = TopicSettings(topic, read_queues=queues, write_queues=queues)

        async def probe() -> None:
            state = await self.wait_in_sync(1)  # the set may have just changed
            try:  # retry while a member of the set does not answer
                await admin.create_topic(state.master_address or "", wanted)
                if self.layout.secure:
                    await let_application_in(self.layout, admin, state.master_address or "")
                await admin.topic_route(self.layout.namesrv, topic)
                for replica in state.in_sync:
                    if not await admin.knows_topic(replica.address, topic):
                        raise NotYet(f"{self.layout.name_of(replica.address)} does not know it")
            except AdminError as error:
                raise NotYet(str(error)) from error

        try:
            await wait_for(f"topic {topic} on every replica", probe, WHOLE_TIMEOUT_MS)
        finally:
            await admin.close()

    async def _registered(self, admin: AdminClient, master_address: str) -> None:
        """Raise `NotYet` unless the name server reports `master_address` as the set's master."""
        try:
            sets = (await admin.cluster_info(self.layout.namesrv)).broker_sets
        except AdminError as error:
            raise NotYet(str(error)) from error
        known = sets[BROKER_SET].addresses.get(0) if BROKER_SET in sets else None
        if known != master_address:
            raise NotYet(f"the name server has {known} as master, and {master_address} is")

    def _checked(self, names: Iterable[str]) -> list[str]:
        wanted = list(names) or self.layout.names
        for name in wanted:
            self.layout.address(name)  # raises for an unknown name
        return [name for name in self.layout.names if name in wanted]

    def _owner_of(self, port: int) -> str | None:
        return next((name for name in self.layout.names if port in self.layout.ports_of(name)), None)


def run(cluster: Cluster) -> SyncStateInfo:
    """Start stopped processes and wait until the cluster is whole. If that fails, or on Ctrl-C, the started processes are
    stopped."""
    ours = [name for name, identity in cluster.states().items() if identity is None]
    try:
        cluster.start()
        return asyncio.run(cluster.wait_whole())
    except BaseException:
        if ours:  # even if `start` was interrupted before it returned their names
            cluster.stop(ours)
        raise


def _shown(state: SyncStateInfo) -> str:
    members = ", ".join(
        f"{replica.broker_id}{'' if replica.alive else ' (dead)'}" for replica in state.in_sync
    )
    return f"master {state.master_id} of epoch {state.master_epoch}, SyncStateSet {{{members}}}"
