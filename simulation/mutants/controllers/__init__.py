"""Bugs that are planted into controllers, to prove that the checks of their world find them."""

from simulation.mutants.controllers import bounds  # noqa: F401  their bugs join the others
from simulation.mutants.controllers.bugs import BUGS, planted

__all__ = ["BUGS", "planted"]
