"""Groups of Raft members."""
