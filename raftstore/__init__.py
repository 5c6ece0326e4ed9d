"""The store of a Raft-mode broker: its commit log is a DLedger log. Read whole, and taken over into controller mode."""
