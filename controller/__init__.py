"""The controller: it decides the masters and SyncStateSets of all broker sets. A Raft group of controllers replicates them."""
