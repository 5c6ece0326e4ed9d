"""The commit log: its segments, appending to it, its retention."""
