"""topicStatus: the offsets of each queue of a topic."""

from __future__ import annotations

from datetime import tzinfo

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.report import Report
from mqadmin.times import format_time
from remoting.bodies.queues import MessageQueue, TopicOffset

COLUMNS = "{:<32}  {:<4}  {:<20}  {:<20}    {}\n"
HEADING = COLUMNS.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")

Offsets = dict[MessageQueue, TopicOffset]


def format_offsets(offsets: Offsets, zone: tzinfo | None = None) -> str:
    """HEADING and a line per queue, by broker and queue; a queue that never had a message has no time."""
    return HEADING + "".join(
        COLUMNS.format(
            queue.broker_name,
            queue.queue_id,
            span.min_offset,
            span.max_offset,
            format_time(span.last_update_timestamp, zone) if span.last_update_timestamp > 0 else "",
        )
        for queue, span in sorted(offsets.items(), key=queue_order)
    )


def format_rate(per_second: float) -> str:
    """The last line: messages per second that the brokers take for this topic."""
    return f"\nTopic Put TPS: {per_second}\n"


def queue_order(row: tuple[MessageQueue, TopicOffset]) -> tuple[str, int]:
    return row[0].broker_name, row[0].queue_id


@admin_command(
    "topicStatus",
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "cluster", "cluster name"),
)
def command(namesrvaddr: str | None, topic: str, cluster: str | None) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        offsets: Offsets = {}
        per_second = 0.0
        for holder in await topics.holders(client, required_namesrv(namesrvaddr), topic, cluster):
            table = await topics.statistics(client, holder.address, topic)
            offsets |= table.offset_table
            per_second += table.topic_put_tps
        report.text(format_offsets(offsets) + format_rate(per_second))
        report.put(
            topic=topic,
            topic_put_tps=per_second,
            queues=[
                {
                    "brokerName": queue.broker_name,
                    "queueId": queue.queue_id,
                    "minOffset": span.min_offset,
                    "maxOffset": span.max_offset,
                    "lastUpdateTimestamp": span.last_update_timestamp,
                }
                for queue, span in sorted(offsets.items(), key=queue_order)
            ],
        )

    run(calls)
