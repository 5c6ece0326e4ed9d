"""A read that goes on: positions that survive restarts, and how much each batch takes."""
