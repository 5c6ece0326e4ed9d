"""The controller: masters and SyncStateSets of all broker sets, replicated by a Raft group."""
