"""The figures of a Raft-mode broker as a member of its group, declared; shown behind those of every broker."""

from __future__ import annotations

from mqruntime.figures import Figure

OF_MEMBER = ("member",)

ROLE = Figure("rocketmq_dledger_role", "1 candidate, 2 follower, 3 leader", ours=True)
TERM = Figure("rocketmq_dledger_term", "of the group, as this member knows it", ours=True)
FIRST_INDEX = Figure("rocketmq_dledger_first_index", "first entry that is kept", ours=True)
LAST_INDEX = Figure("rocketmq_dledger_last_index", "last entry, decided or not", ours=True)
DECIDED_INDEX = Figure(
    "rocketmq_dledger_decided_index", "last entry that is decided; -1 before any", ours=True
)
BEHIND = Figure(
    "rocketmq_dledger_behind_entries",
    "entries of the leader that a member is not known to hold",
    OF_MEMBER,
    ours=True,
)
UNREADABLE = Figure(
    "rocketmq_dledger_unreadable_reads_total",
    "reads for members that lack entries which found a damaged one, or no readable disk",
    ours=True,
)
SILENT = Figure(
    "rocketmq_dledger_silent_milliseconds", "since the leader last heard of a member", OF_MEMBER, ours=True
)
