"""The store of a Raft-mode broker: its commit log is a DLedger log. Read whole, taken over into controller mode, given back."""
