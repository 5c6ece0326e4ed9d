"""The store of a Raft-mode broker, whose commit log is a DLedger log: read, adopted into controller mode, and
exported again."""
