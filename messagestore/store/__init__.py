"""The store as a broker opens it: its settings, its recovery at a start, and the store itself with log, queues and index."""
