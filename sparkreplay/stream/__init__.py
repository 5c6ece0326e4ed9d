"""A streaming read: positions that survive restarts, and the size of each batch."""
