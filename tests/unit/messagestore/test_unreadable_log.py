"""A log with a range that the disk cannot read for a while or for ever."""

from __future__ import annotations

import asyncio
import errno
import logging
import os

import pytest

from messagestore.store.messagestore import MessageStore
from mqruntime.log import FIELDS
from simulation.kernel.disk import SimulatedDisk
from simulation.kernel.node import Node
from tests.unit.messagestore.simulateddisks import on_a_node
from tests.unit.messagestore.storehelp import message, small_settings

pytestmark = pytest.mark.usefixtures("way")

UNREADABLE = OSError(errno.EIO, os.strerror(errno.EIO))
MESSAGES = 30
WAITS = "dispatch waits: the disk does not give the log"


async def filled(node: Node, fatal: list[BaseException]) -> MessageStore:
    """A master with two messages per segment; all segments but the last are cold, and nothing is
    confirmed."""
    settings = small_settings(hot_segments=1, scrub_bytes_per_second=0)
    store = MessageStore(node.runtime(), settings, on_fatal=fatal.append)
    await store.start()
    await store.become_master()
    store.append([message(bytes(1500)) for _ in range(MESSAGES)])
    return store


def times_failed(disk: SimulatedDisk) -> int:
    return disk.failures["read"]


def test_dispatch_waits_for_an_unreadable_log_and_skips_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)

    async def scenario(node: Node) -> None:
        fatal: list[BaseException] = []
        store = await filled(node, fatal)
        node.disk.fail_next("read", UNREADABLE, where="commitlog", times=3)
        store.set_confirm_offset(store.max_offset())
        for tenth in range(25):
            await asyncio.sleep(0.1)
            assert (times_failed(node.disk), fatal) == (1 + tenth // 10, [])
            assert store.dispatched_offset() == 0 and store.dispatch_waits
            [end] = [each.end_offset for each in store.append([message()])]  # sends are taken
            store.set_confirm_offset(end)
        await asyncio.sleep(1)
        assert store.dispatched_offset() == store.confirm_offset() == store.max_offset()
        assert store.max_queue_offset("TopicTest", 0) == MESSAGES + 25
        assert not store.dispatch_waits and fatal == []
        await store.stop()

    on_a_node(scenario)
    logged = [
        (line.getMessage(), vars(line)[FIELDS]) for line in caplog.records if "dispatch" in line.getMessage()
    ]
    [(waits, where), (continues, _)] = logged
    assert waits.startswith(WAITS) and (where["offset"], where["why"].errno) == (0, errno.EIO)
    assert continues == "dispatch continues, the disk returns the log again"
