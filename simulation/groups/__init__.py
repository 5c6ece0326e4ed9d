"""Raft-mode broker sets in one simulated world, and their invariants."""
