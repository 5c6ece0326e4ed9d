"""One member's files on its disk: the log, the vote, the checkpoint and the snapshots."""
