"""A running member: its Raft core, its disk and its connections on an event loop."""
