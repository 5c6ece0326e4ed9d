"""The controller: SyncStateSets and masters of all broker sets, decided by a Raft group."""
