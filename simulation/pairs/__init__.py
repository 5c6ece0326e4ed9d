"""Pairs of master and slaves without controllers in one simulated world, and their invariants."""
