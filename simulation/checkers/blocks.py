"""Checks that brokers have allocated disk blocks for what they write.

Invariant L8: a segment has blocks for all that a broker has written into it. Without them a full disk would kill the process
after it has acknowledged a message."""

from __future__ import annotations

from messagestore.log.commitlog import FOLDER
from messagestore.walker import segment_name
from simulation.cluster.looks import started_broker
from simulation.kernel.node import Node
from simulation.kernel.violation import Violation


def log_has_blocks(node: Node) -> None:
    """Check the segment where the log ends. Raises Violation."""
    app = started_broker(node)
    if app is None:
        return
    end = app.store.max_offset()
    at = end % app.store.segment_size_bytes
    inode = node.disk.entries.get(f"{FOLDER}/{segment_name(end - at)}")
    if inode is not None and inode.allocated_end < at:
        raise Violation(
            "L8",
            f"{node.name}'s log ends at {end}, its segment has blocks only for {inode.allocated_end} bytes",
        )
