"""Replication of the commit log between the brokers of one set."""
