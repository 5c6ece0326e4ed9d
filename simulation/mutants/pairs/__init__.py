"""Bugs that are planted into masters and slaves without controllers, to prove that the checks of the pairs world find them."""

from simulation.mutants.pairs import delay, role, transaction  # noqa: F401  their bugs join the others
from simulation.mutants.pairs.bugs import BUGS, planted

__all__ = ["BUGS", "planted"]
