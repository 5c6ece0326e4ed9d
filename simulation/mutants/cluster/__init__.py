"""Bugs planted into controllers and brokers, to prove that the checks of the cluster world find them."""

from simulation.mutants.cluster import (  # noqa: F401  their bugs join the others
    access,
    badsector,
    bounds,
    catchup,
    choosing,
    client,
    consuming,
    flood,
    handover,
    index,
    lock,
    move,
    olddisk,
    queue,
    retention,
    seal,
    stale,
    stranger,
    table,
    transaction,
)
from simulation.mutants.cluster.bugs import BUGS, planted

__all__ = ["BUGS", "planted"]
