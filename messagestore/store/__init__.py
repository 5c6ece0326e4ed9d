"""The store as a broker opens it: settings, recovery at a start, the store that joins log, queues and index."""
