"""The epoch history of one commit log: the epoch in which each range of the log was written."""
