"""Bugs that are planted into Raft-mode brokers, to prove that the checks of the groups world find them."""

from simulation.mutants.groups import (  # noqa: F401  their bugs join the others
    access,
    copy,
    fact,
    link,
    mixed,
    olddisks,
    role,
    transaction,
)
from simulation.mutants.groups.bugs import BUGS, planted

__all__ = ["BUGS", "planted"]
