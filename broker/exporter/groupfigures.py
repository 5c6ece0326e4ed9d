"""Definitions of a Raft-mode broker's metrics as a member of its group. They follow the metrics that every broker has."""

from __future__ import annotations

from mqruntime.figures import Figure

OF_MEMBER = ("member",)

ROLE = Figure("rocketmq_dledger_role", "1 candidate, 2 follower, 3 leader", ours=True)
TERM = Figure("rocketmq_dledger_term", "of the group, as this member knows it", ours=True)
FIRST_INDEX = Figure("rocketmq_dledger_first_index", "first entry that is kept", ours=True)
LAST_INDEX = Figure("rocketmq_dledger_last_index", "last entry, committed or not", ours=True)
COMMITTED_INDEX = Figure("rocketmq_dledger_committed_index", "last committed entry; -1 before any", ours=True)
BEHIND = Figure(
    "rocketmq_dledger_behind_entries",
    "entries of the leader that a member is not known to hold",
    OF_MEMBER,
    ours=True,
)
UNREADABLE = Figure(
    "rocketmq_dledger_unreadable_reads_total",
    "reads for members that are missing entries which found a corrupt one, or no readable disk",
    ours=True,
)
SILENT = Figure(
    "rocketmq_dledger_silent_milliseconds",
    "since the leader's last contact with a member",
    OF_MEMBER,
    ours=True,
)
