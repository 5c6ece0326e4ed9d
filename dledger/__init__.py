"""Raft under RocketMQ's names: elections, a replicated log on disk, and the node that drives them."""
