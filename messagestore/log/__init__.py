"""The commit log: its segments, appending to it, and what a start finds of it."""
