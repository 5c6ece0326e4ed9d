"""Samples all metrics at one moment. Metrics of processes come from the kernel, those of brokers from the brokers, and those of
the load from sender and consumer.

Invariant: a process that does not answer or does not run has no values at that moment, and costs at most ANSWER_MS_MAX."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from localcluster.cluster import Cluster
from localcluster.secured import connector_of
from localcluster.soak.consumer import Consumer
from localcluster.soak.figures import LOAD, SoakFigure, column
from localcluster.soak.proc import disk_bytes, taken_by
from localcluster.soak.sender import Sender
from mqadmin.admin import AdminClient
from mqadmin.errors import AdminError
from mqruntime.clock import Clock

ANSWER_MS_MAX = 1_000
REPORTED = {
    SoakFigure.MIN_OFFSET: "commitLogMinOffset",
    SoakFigure.MAX_OFFSET: "commitLogMaxOffset",
    SoakFigure.CONFIRM_OFFSET: "confirmOffset",
    SoakFigure.DISPATCH_BEHIND: "dispatchBehindBytes",
}


class Sampler:
    def __init__(self, cluster: Cluster, sender: Sender, consumer: Consumer, clock: Clock) -> None:
        self._cluster = cluster
        self._sender = sender
        self._consumer = consumer
        self._clock = clock
        self._admin = AdminClient(clock, connector_of(cluster.layout))
        self._admin.answer_ms_max = ANSWER_MS_MAX
        self._former: dict[str, tuple[int, float, int]] = {}  # name -> pid, CPU seconds, when
        self._former_acknowledged = (0, clock.monotonic_ms())

    async def close(self) -> None:
        await self._admin.close()

    async def look(self) -> dict[str, float]:
        """Values by `column`."""
        row = self._load()
        states = self._cluster.states()
        pids = {name: identity.pid for name, identity in states.items() if identity is not None}
        for name, pid in {**pids, LOAD: os.getpid()}.items():
            self._kernel(row, name, pid)
        folders = [name for name in self._cluster.layout.names if (self._cluster.directory / name).is_dir()]
        for name, used in zip(folders, await asyncio.to_thread(self._disk, folders), strict=True):
            row[column(name, SoakFigure.DISK)] = used
        brokers = [name for name in self._cluster.layout.broker_names if name in pids]
        await asyncio.gather(*(self._broker(row, name) for name in brokers))
        return row

    def _load(self) -> dict[str, float]:
        now_ms, (former, former_ms) = self._clock.monotonic_ms(), self._former_acknowledged
        self._former_acknowledged = (self._sender.acknowledged, now_ms)
        elapsed_s = max(now_ms - former_ms, 1) / 1000
        return {
            column(LOAD, SoakFigure.RATE): (self._sender.acknowledged - former) / elapsed_s,
            column(LOAD, SoakFigure.SILENCE): self._sender.silence_ms() / 1000,
            column(LOAD, SoakFigure.CONSUMER_LAG): self._consumer.lag,
        }

    def _kernel(self, row: dict[str, float], name: str, pid: int) -> None:
        taken = taken_by(pid)
        if taken is None:
            self._former.pop(name, None)
            return
        now_ms = self._clock.monotonic_ms()
        row[column(name, SoakFigure.MEMORY)] = taken.memory
        row[column(name, SoakFigure.DESCRIPTORS)] = taken.descriptors
        former = self._former.get(name)
        if former is not None and former[0] == pid and now_ms > former[2]:
            row[column(name, SoakFigure.CPU)] = 100_000 * (taken.cpu_s - former[1]) / (now_ms - former[2])
        self._former[name] = (pid, taken.cpu_s, now_ms)

    def _disk(self, names: list[str]) -> list[int]:
        return [disk_bytes(Path(self._cluster.directory / name)) for name in names]

    async def _broker(self, row: dict[str, float], name: str) -> None:
        try:
            info = await self._admin.runtime_info(self._cluster.layout.address(name))
        except AdminError:
            return
        for figure, key in REPORTED.items():
            if info.get(key, "").isdecimal():
                row[column(name, figure)] = int(info[key])
