"""Raft-mode broker sets in one simulated world, and what holds of them."""
