"""A local cluster of processes to measure. Its folder is removed afterwards."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localcluster.cluster import Cluster


@contextmanager
def new_cluster(*, controllers: int = 3, brokers: int = 3) -> Iterator[Cluster]:
    """Make a cluster without starting it."""
    with tempfile.TemporaryDirectory(prefix="autoswitch-mq-bench-") as folder:
        with Cluster.create(Path(folder) / "cluster", controllers=controllers, brokers=brokers) as cluster:
            yield cluster


@contextmanager
def whole_cluster(*, controllers: int = 3, brokers: int = 3) -> Iterator[Cluster]:
    """Start a cluster, and wait until every broker is in the SyncStateSet."""
    with new_cluster(controllers=controllers, brokers=brokers) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole())
        yield cluster
