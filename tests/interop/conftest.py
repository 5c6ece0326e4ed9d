"""The cluster that the clients of this layer share: in real processes, with delay levels that suit impatient tests."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from localcluster.cluster import Cluster

WAIT_MS = 20_000
DELAY_LEVELS = "1s 1s 1s 1s 1s"


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Every test leaves it whole."""
    directory = tmp_path_factory.mktemp("interop") / "cluster"
    with Cluster.create(directory, broker_settings={"messageDelayLevel": DELAY_LEVELS}) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        yield made
