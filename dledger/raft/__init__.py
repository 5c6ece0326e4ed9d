"""Raft without clock, disk or network, and the values that it is told and tells."""
