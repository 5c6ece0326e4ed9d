"""The log, the vote, the checkpoint and the snapshots of one member on its disk."""
