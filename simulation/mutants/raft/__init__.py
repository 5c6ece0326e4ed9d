"""Bugs planted into members of a Raft group, to prove that the checks of the raft and registers worlds find them."""

from simulation.mutants.raft.bugs import BUGS, planted

__all__ = ["BUGS", "planted"]
