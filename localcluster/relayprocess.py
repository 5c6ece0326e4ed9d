"""Runs the relay of a cluster in a separate process, so that work in this process does not delay the relay.

Invariant: the relay ends when the context ends, and also when this process ends, however it ends."""

from __future__ import annotations

import subprocess
from types import TracebackType
from typing import Self

from localcluster.cluster import Cluster, ClusterError
from localcluster.layout import HOST
from localcluster.partitions import Cuts
from localcluster.processes import command_of, environment
from localcluster.relay import OBEYED, Order

STOP_TIMEOUT_S = 10.0
NAME = "relay"


class RelayProcess:
    """Relays bytes between the processes of a cluster, and from clients to them. Its log is `relay.log`.

    Start it together with the processes: a process that is not in the cluster's table when it connects is taken for a
    client."""

    def __init__(self, cluster: Cluster) -> None:
        assert cluster.layout.bind_host != HOST, "its processes listen where the relay is to listen"
        self._cluster = cluster

    def __enter__(self) -> Self:
        log = self._cluster.log_file(NAME)
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command_of("localcluster.relay", [str(self._cluster.directory)]),
                env=environment(),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,  # interrupts are handled by this process only
            )
        try:
            self._heard()
        except ClusterError:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def cut(self, cuts: Cuts) -> None:
        """From now on cut exactly these links. Raises `ClusterError` if the relay has ended."""
        self._order(Order(cuts, reset=False))

    def heal(self, *, reset: bool = False) -> None:
        """Open every link. With `reset`, connections that were cut are reset. Raises `ClusterError` as `cut`."""
        self._order(Order(frozenset(), reset))

    def close(self) -> None:
        """End the relay. Then no process of the cluster reaches another."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _order(self, order: Order) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(order.encode() + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # there will be no answer
        self._heard()

    def _heard(self) -> None:
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != OBEYED:
            raise ClusterError(f"the relay has ended; its log ends with:\n{self._cluster.log_tail(NAME)}")
