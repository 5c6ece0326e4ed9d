"""Dispatch from the log to consume queues and index files, and rebuild what is missing in them. Upstream: ReputMessageService,
CommitLogDispatcher."""
