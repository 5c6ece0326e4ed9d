"""The table of a controller's metrics, in the order in which they are shown, with upstream's names, types and labels."""

from __future__ import annotations

from mqruntime.figures import Figure

BASE_LABELS = ("address", "group", "peer_id")

ROLE = Figure("role", "1 candidate, 2 follower, 3 leader")
DISK_USAGE = Figure("dledger_disk_usage_bytes", "size of the files of its log")
SNAPSHOTS = Figure(
    "dledger_snapshot_total",
    "snapshots of its state that are durable: `made` here, or `installed` from another member",
    ("origin",),
    ours=True,
)
SNAPSHOT_LATENCY = Figure(
    "dledger_snapshot_latency_milliseconds", "writing of a snapshot", histogram=True, ours=True
)
SNAPSHOT_BYTES = Figure("dledger_snapshot_bytes", "size of the newest snapshot; 0 without any", ours=True)
SNAPSHOT_INDEX = Figure(
    "dledger_snapshot_last_index", "last entry in the newest snapshot; -1 without any", ours=True
)
ACTIVE_BROKERS = Figure("active_broker_num", "brokers heard in time", ("cluster", "broker_set"))
REQUESTS = Figure(
    "request_total",
    "requests answered: `success`, `failed` or `timeout`",
    ("request_type", "request_handle_status"),
)
REQUEST_LATENCY = Figure(
    "request_latency_microseconds",
    "from the arrival of a request to its answer",
    ("request_type",),
    histogram=True,
)
PROPOSALS = Figure(
    "dledger_op_total",
    "proposals to the group (`append`): `success`, `failed` or `timeout`",
    ("dledger_operation", "dLedger_operation_status"),
)
PROPOSAL_LATENCY = Figure(
    "dledger_op_latency_microseconds",
    "from a proposal to the group (`append`) to its end",
    ("dledger_operation",),
    histogram=True,
)
MESSAGES_REFUSED = Figure(
    "member_messages_refused_total",
    "messages of members that do not count, by sender (`stranger`: not in the list) and reason: `address`, `certificate`, "
    "`origin`, `peers`, `term`, or `unconfirmed`: a newer list of members that no known member reports",
    ("member", "reason"),
    ours=True,
)
ELECTIONS = Figure(
    "election_total",
    "elections held by this leader: `new_master_elected`, `keep_current_master` or `no_master_elected`",
    ("cluster", "broker_set", "election_result"),
)
