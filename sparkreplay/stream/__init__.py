"""A streaming read: positions that survive restarts, and sizes of batches."""
