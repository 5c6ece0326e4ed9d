"""Definitions of a broker's metrics, in the order in which they are shown. Names and types are upstream's; metrics that
upstream does not have are named `rocketmq_ha_*`."""

from __future__ import annotations

from mqruntime.figures import Figure

BASE_LABELS = ("cluster", "node_type", "node_id")
OF_TOPIC = ("topic", "is_system")
OF_READER = ("topic", "consumer_group", "is_system")
OF_CREATION = ("invocation_status", "is_system")
OF_DISK = ("storage_type", "storage_medium")
OF_SLAVE = ("slave_id",)

PERMISSION = Figure("rocketmq_broker_permission", "`brokerPermission`: 4 read, 2 write")
TOPICS = Figure("rocketmq_topic_number", "topics known")
GROUPS = Figure("rocketmq_consumer_group_number", "consumer groups known")
MESSAGES_IN = Figure("rocketmq_messages_in_total", "messages that producers stored", OF_TOPIC)
MESSAGES_OUT = Figure("rocketmq_messages_out_total", "messages that pulls found", OF_READER)
BYTES_IN = Figure("rocketmq_throughput_in_total", "bytes of stored records", OF_TOPIC)
BYTES_OUT = Figure("rocketmq_throughput_out_total", "bytes of records that pulls found", OF_READER)
MESSAGE_SIZE = Figure(
    "rocketmq_message_size",
    "records that producers stored, in bytes; those of one batch count with their mean",
    OF_TOPIC,
    histogram=True,
)
RPC_LATENCY = Figure(
    "rocketmq_rpc_latency_milliseconds",
    "from the arrival of a request to its answer; not of one-way requests. `result` is `success` or "
    "`process_request_failed`",
    ("protocol_type", "request_code", "response_code", "is_long_polling", "result"),
    histogram=True,
)
TOPIC_CREATION = Figure(
    "rocketmq_topic_create_execution_time_milliseconds",
    "creating or changing a topic (17): `success` or `failure`",
    OF_CREATION,
    histogram=True,
)
GROUP_CREATION = Figure(
    "rocketmq_consumer_group_create_execution_time_milliseconds",
    "creating or changing a consumer group (200): `success` or `failure`",
    OF_CREATION,
    histogram=True,
)
DEAD_LETTERS = Figure(
    "rocketmq_send_to_dlq_messages_total",
    "messages whose retries are used up; `topic` is the dead letter topic",
    ("consumer_group", "topic", "is_system"),
)
PRODUCERS = Figure(
    "rocketmq_producer_connections",
    "producers in each group; `version` is the number on the wire",
    ("language", "version", "protocol_type"),
)
CONSUMERS = Figure(
    "rocketmq_consumer_connections",
    "consumers in each group; `consume_mode` push, pull or pop",
    ("consumer_group", "consume_mode", "language", "version", "protocol_type", "is_system"),
)
LAG = Figure(
    "rocketmq_consumer_lag_messages",
    "messages after the committed offsets, as `consumerProgress` counts them",
    ("consumer_group", "topic", "is_retry", "is_system"),
)
COMMITTED = Figure("rocketmq_commit_messages_total", "transactions that were committed", ("topic",))
ROLLED_BACK = Figure("rocketmq_rollback_messages_total", "transactions that were rolled back", ("topic",))
OPEN_TRANSACTIONS = Figure(
    "rocketmq_open_transactions", "transactions that wait for their end; 0 on slaves", ours=True
)
WAITING_SENDS = Figure("rocketmq_waiting_sends", "sends that wait for replicas", ours=True)
HELD_PULLS = Figure("rocketmq_held_pulls", "pulls that wait for messages", ours=True)
STORE_SIZE = Figure("rocketmq_storage_size_bytes", "log that is kept", OF_DISK)
FLUSH_BEHIND = Figure("rocketmq_storage_flush_behind_bytes", "log not yet synced", OF_DISK)
DISPATCH_BEHIND = Figure(
    "rocketmq_storage_dispatch_behind_bytes", "confirmed log not yet in consume queues", OF_DISK
)
DISK_USED = Figure(
    "rocketmq_storage_disk_used_ratio",
    "part of the store's file system that is in use, 0 to 1",
    OF_DISK,
    ours=True,
)
QUEUE_SKIPS = Figure(
    "rocketmq_storage_queue_offset_skips_total",
    "records whose queue offset was not the next one of their queue, or that no queue can list",
    OF_DISK,
    ours=True,
)
SCRUBBED = Figure(
    "rocketmq_storage_scrubbed_bytes_total",
    "log that was read and whose CRCs agreed, since the start",
    OF_DISK,
    ours=True,
)
UNCHECKED = Figure(
    "rocketmq_storage_unchecked_bytes",
    "log that was neither written nor checked since the start, or since a new scrub began",
    OF_DISK,
    ours=True,
)
DAMAGED = Figure(
    "rocketmq_storage_damaged_records",
    "corrupt records on disk, which are neither served nor sent; alarm above 0",
    OF_DISK,
    ours=True,
)
REPAIRED = Figure(
    "rocketmq_storage_repaired_records_total",
    "damaged records that were fetched from the master, in Raft mode from another member",
    OF_DISK,
    ours=True,
)
DELETED_SEGMENTS = Figure(
    "rocketmq_storage_deleted_segments_total",
    "segments of the log that retention deleted",
    OF_DISK,
    ours=True,
)
RESERVE_TIME = Figure(
    "rocketmq_storage_message_reserve_time_milliseconds",
    "age of the oldest message that is kept; 0 without any",
    OF_DISK,
)
MASTER = Figure("rocketmq_ha_master", "1 on the broker that takes sends", ours=True)
EPOCH = Figure("rocketmq_ha_epoch", "newest epoch known here", ours=True)
MAX_OFFSET = Figure("rocketmq_ha_max_offset", "end of the log", ours=True)
CONFIRM_OFFSET = Figure("rocketmq_ha_confirm_offset", "end of what every member has", ours=True)
SET_SIZE = Figure("rocketmq_ha_sync_state_set_size", "members; 0 on slaves", ours=True)
ACK_OFFSET = Figure("rocketmq_ha_slave_ack_offset", "end of what a slave acknowledged", OF_SLAVE, ours=True)
LAG_BYTES = Figure("rocketmq_ha_lag_bytes", "log that a slave has not acknowledged", OF_SLAVE, ours=True)
IN_SYNC = Figure("rocketmq_ha_in_sync", "1 for a member of the SyncStateSet", OF_SLAVE, ours=True)
TRANSFERRED = Figure(
    "rocketmq_ha_transfer_bytes_total", "bytes `sent` and `received` on links", ("direction",), ours=True
)
ROLE_CHANGES = Figure("rocketmq_ha_role_changes_total", "roles taken", ours=True)
TRUNCATIONS = Figure("rocketmq_ha_truncations_total", "cuts of this log to a master's", ours=True)
STAYS_OUT = Figure(
    "rocketmq_ha_stays_out",
    "1 on a replica that follows no master until an operator acts, as its log says",
    ours=True,
)
REFUSED_LINKS = Figure(
    "rocketmq_ha_refused_links_total",
    "links of ids that controllers do not know, or at other hosts",
    ours=True,
)
