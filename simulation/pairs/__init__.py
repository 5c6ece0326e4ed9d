"""Pairs (a master and its slaves without controllers) in one simulated world, and their invariants."""
