"""The message store: record format, commit log, consume queues, checkpoint, recovery and the store that joins them."""
