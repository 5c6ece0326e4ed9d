"""Raft-mode broker sets (which elect their master themselves, without controllers) in one simulated world, and their
invariants."""
