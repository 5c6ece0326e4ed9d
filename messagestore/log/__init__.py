"""The commit log: its segments, appending to it, and recovery at a start."""
