"""queryCq: the entries of a queue as a broker has them, and whether a group's subscription takes them."""

from __future__ import annotations

import json

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls import topics
from mqadmin.command import I64_MAX, Argument, admin_command, number, required_namesrv, run
from mqadmin.report import Report, java_text
from remoting.bodies.queues import ConsumeQueueData, QueryConsumeQueueBody
from remoting.codes import RequestCode
from remoting.headers.messages import QueryConsumeQueueHeader

RULE = "======================================\n"
COUNT = 10


def format_entry(index: int, entry: ConsumeQueueData) -> str:
    """One entry as upstream's object writes itself."""
    return (
        f"idx: {index}\nConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson='{java_text(entry.extend_data_json)}', "
        f"bitMap='{java_text(entry.bit_map)}', eval={java_text(entry.eval)}, msg='{java_text(entry.msg)}'}}\n{RULE}"
    )


def format_queue(found: QueryConsumeQueueBody, index: int) -> str:
    """Subscription, bounds and entries."""
    text = ""
    if found.subscription_data is not None:
        data = json.dumps(found.subscription_data.to_json(), ensure_ascii=False, indent="\t")
        text += f"Subscription data: \n{data}\n{RULE}"
    if found.filter_data is not None:
        text += f"Filter data: \n{found.filter_data}\n{RULE}"
    text += f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{RULE}"
    first = max(index, found.min_queue_index)
    return text + "".join(format_entry(first + at, entry) for at, entry in enumerate(found.queue_data))


@admin_command(
    "queryCq",
    Argument("t", "topic", "topic name", required=True),
    Argument("q", "queue", "queue num, ie. 1", required=True),
    Argument("i", "index", "start queue index.", required=True),
    Argument("c", "count", "how many."),
    Argument("b", "broker", "broker addr."),
    Argument("g", "consumer", "consumer group."),
)
def command(
    namesrvaddr: str | None,
    topic: str,
    queue: str,
    index: str,
    count: str | None,
    broker: str | None,
    consumer: str | None,
) -> None:
    first = number("-i", index, 0, most=I64_MAX)
    header = QueryConsumeQueueHeader(
        topic.strip(), number("-q", queue, 0), first, number("-c", count, COUNT, least=1), consumer
    )

    async def calls(client: AdminClient, report: Report) -> None:
        address = broker
        if not address:
            holders = await topics.holders(client, required_namesrv(namesrvaddr), header.topic)
            address = holders[0].address
        reply = await client.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        found = body_of(QueryConsumeQueueBody, address, reply)
        report.text(format_queue(found, first))
        report.put(broker=address, **found.to_json())

    run(calls)
