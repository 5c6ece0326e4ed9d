"""The Raft core, without clock, disk or network, and its input and output values."""
