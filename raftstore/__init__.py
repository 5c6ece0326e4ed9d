"""The store of a Raft-mode broker, whose commit log is a DLedger log. The package also adopts such a store into controller
mode, and exports a store to Raft mode."""
