"""One member at work: Raft, its disk and its connections on an event loop."""
