"""The master's side of replication."""
