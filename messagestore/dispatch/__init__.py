"""From the log to its derived files (upstream: ReputMessageService, CommitLogDispatcher): each record to its consume queue and
its index file, what was dispatched, and rebuilding what is missing."""
