"""The epoch history of one commit log: which master wrote which range of it."""
