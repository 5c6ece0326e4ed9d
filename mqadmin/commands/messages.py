"""Commands that find and read messages."""

from __future__ import annotations

import json
from collections import Counter
from datetime import tzinfo

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls import messages, topics
from mqadmin.calls.givemessage import Found, give
from mqadmin.calls.sending import as_json, must_be_safe, producer
from mqadmin.calls.showmessage import BODY_FORMAT_HELP, check_format, show_message
from mqadmin.command import (
    I64_MAX,
    Argument,
    UsageWanted,
    admin_command,
    boolean,
    number,
    required_namesrv,
    run,
)
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text, plain
from mqadmin.spans import bounds_of, span_of
from mqadmin.times import format_seconds
from mqadmin.traces import PUB, Trace, traces_in
from mqclient.consumer import PullConsumer, PullStatus
from mqclient.message import SYS_FLAG_COMPRESSED, SYS_FLAG_COMPRESSION_TYPE, OutgoingMessage, StoredMessage
from mqclient.producer import SendResult
from mqclient.route import MessageQueue
from remoting.bodies.queues import ConsumeQueueData, QueryConsumeQueueBody
from remoting.codes import RequestCode
from remoting.headers.messages import QueryConsumeQueueHeader

IDS_MAX = 32
RESEND_GROUP = "ReSendMsgById"
COMPRESSION = SYS_FLAG_COMPRESSED | SYS_FLAG_COMPRESSION_TYPE
NO_UNIT = "-u changes nothing: clients here belong to no unit"


def format_sent(result: SendResult) -> str:
    """The line for a message that was sent again, in the format of toString of upstream's object."""
    queue = result.queue
    return (
        f"SendResult [sendStatus={result.status.name}, msgId={result.message_ids[0]}, "
        f"offsetMsgId={result.offset_message_id}, messageQueue=MessageQueue [topic={queue.topic}, "
        f"brokerName={queue.broker_name}, queueId={queue.queue_id}], queueOffset={result.queue_offset}, "
        "recallHandle=null]\n"
    )


@admin_command(
    "queryMsgById",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "cluster", "Cluster name"),
    Argument("d", "clientId", "The consumer's client id"),
    Argument("f", "bodyFormat", BODY_FORMAT_HELP),
    Argument("g", "consumerGroup", "consumer group name"),
    Argument("s", "sendMessage", "resend message"),
    Argument("u", "unitName", "unit name"),
)
def query_by_id(
    namesrvaddr: str | None,
    msgid: str,
    topic: str,
    cluster: str | None,
    clientid: str | None,
    bodyformat: str | None,
    consumergroup: str | None,
    sendmessage: str | None,
    unitname: str | None,
) -> None:
    """The messages with a producer's or a broker's ids, separated by commas: shown, sent again, or passed to one
    consumer."""
    namesrv = required_namesrv(namesrvaddr)
    check_format("-f", bodyformat)
    ids = [part.strip() for part in msgid.split(",") if part.strip()]
    if not ids:
        raise UsageWanted("-i: no id is given")
    resend = boolean("-s", sendmessage)
    if bool(clientid) != bool(consumergroup):
        raise UsageWanted("-g and -d go together: they name the one consumer that is given the message")
    if clientid and resend:
        raise UsageWanted("-s sends to everybody, -g and -d give to one consumer: choose one")

    async def calls(client: AdminClient, report: Report) -> None:
        if unitname:
            report.note(NO_UNIT)
        for text in ids:
            found = await _by_offset_id(client, namesrv, topic, cluster, text)
            if found is None:
                found = await _by_unique_key(client, namesrv, topic, cluster, text)
            if clientid and consumergroup:
                await give(client, report, found, consumergroup, clientid)
            elif resend:
                await _send_again(client, report, namesrv, found[1])
            else:
                await show_message(client, report, namesrv, found[1], bodyformat)

    run(calls)


async def _send_again(client: AdminClient, report: Report, namesrv: str, message: StoredMessage) -> None:
    """Send one more message with the same body, properties and id. The first message stays."""
    report.text(f"prepare resend msg. originalMsgId={message.message_id or messages.offset_id(message)}\n")
    again = OutgoingMessage(
        message.body, message.properties, message.flag, sys_flag=message.sys_flag & COMPRESSION
    )
    async with producer(client, namesrv, RESEND_GROUP) as sender:
        result = await sender.send_message(message.topic, again)
    report.text(format_sent(result))
    report.add("sent", as_json(result))
    must_be_safe(result)


async def _by_offset_id(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None, text: str
) -> Found | None:
    """The message at the byte that an offset id names. Masters are asked, whichever broker the id names, because all logs of a
    set are equal."""
    offset = messages.offset_in(text)
    if offset is None:
        return None
    for holder in await topics.holders(client, namesrv, topic, cluster):
        message = await messages.at_offset(client, holder.address, offset, topic)
        if message is not None and messages.offset_id(message) == text.upper() and message.topic == topic:
            return holder, message
    return None


async def _by_unique_key(
    client: AdminClient, namesrv: str, topic: str, cluster: str | None, text: str
) -> Found:
    found: list[Found] = []
    for holder in await topics.holders(client, namesrv, topic, cluster):
        by_key = await messages.by_key(client, holder.address, topic, text, count_max=IDS_MAX, unique=True)
        found += [(holder, message) for message in by_key]
    if not found:
        raise messages.no_message(f"with id {text} of topic {topic}")
    return min(found, key=lambda row: row[1].store_timestamp_ms)


KEY_HEADING = f"{'#Message ID':<50} {'#QID':>4} {'#Offset':>40}\n"
KEY_COUNT_MAX = 64
KEYS, TAGS = "K", "T"


def format_index_row(message: StoredMessage) -> str:
    """A line under KEY_HEADING."""
    return (
        f"{message.message_id or messages.offset_id(message):<50} {message.queue_id:>4} "
        f"{message.queue_offset:>40}\n"
    )


@admin_command(
    "queryMsgByKey",
    Argument("t", "topic", "Topic name", required=True),
    Argument("k", "msgKey", "Message Key", required=True),
    Argument("b", "beginTimestamp", "Begin timestamp(ms). default:0, eg:1676730526212"),
    Argument("e", "endTimestamp", "End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212"),
    Argument("m", "maxNum", "The maximum number of messages returned by the query, default:64"),
    Argument("c", "cluster", "Cluster name"),
    Argument(
        "p",
        "keyType",
        "K for words of the keys (the default), T for tags, which Java's brokers index from 5.4.0 on",
    ),
    Argument("l", "lastKey", "Where the last answer of a broker with its index in RocksDB ended"),
)
def query_by_key(
    namesrvaddr: str | None,
    topic: str,
    msgkey: str,
    begintimestamp: str | None,
    endtimestamp: str | None,
    maxnum: str | None,
    cluster: str | None,
    keytype: str | None,
    lastkey: str | None,
) -> None:
    """The messages with a key."""
    kind = (keytype or KEYS).strip()
    if kind not in (KEYS, TAGS):
        raise UsageWanted(f"-p {kind}: K for words of the keys, T for tags")
    begin_ms = number("-b", begintimestamp, 0, most=I64_MAX)
    end_ms = number("-e", endtimestamp, I64_MAX, most=I64_MAX)
    count_max = number("-m", maxnum, KEY_COUNT_MAX, least=1)

    async def calls(client: AdminClient, report: Report) -> None:
        found: list[StoredMessage] = []
        for holder in await topics.holders(client, required_namesrv(namesrvaddr), topic, cluster):
            found += await messages.by_key(
                client,
                holder.address,
                topic,
                msgkey,
                count_max=count_max,
                begin_ms=begin_ms,
                end_ms=end_ms,
                by_tag=kind == TAGS,
                last_key=lastkey,
                note=report.note,
            )
        if not found:
            raise messages.no_message(f"with {'tag' if kind == TAGS else 'key'} {msgkey} of topic {topic}")
        report.text(KEY_HEADING + "".join(map(format_index_row, found[:count_max])))
        report.put(messages=[messages.as_json(message) for message in found[:count_max]])

    run(calls)


UNIQUE_KEY_COUNT_MAX = 32


@admin_command(
    "queryMsgByUniqueKey",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "topic", "The topic of msg", required=True),
    Argument("g", "consumerGroup", "consumer group name"),
    Argument("d", "clientId", "The consumer's client id"),
    Argument("a", "showAll", "Print all message, the limit is 32", is_flag=True),
    Argument("s", "startTime", "Begin timestamp(ms) of the search; default: everything"),
    Argument("e", "endTime", "End timestamp(ms) of the search; default: everything"),
    Argument("c", "cluster", "Cluster name or lmq parent topic, lmq is used to find the route."),
)
def query_by_unique_key(
    namesrvaddr: str | None,
    msgid: str,
    topic: str,
    consumergroup: str | None,
    clientid: str | None,
    showall: bool,
    starttime: str | None,
    endtime: str | None,
    cluster: str | None,
) -> None:
    """The messages with a producer's id: the first, or all of them; or passed to one consumer."""
    begin_ms = number("-s", starttime, 0, most=I64_MAX)
    end_ms = number("-e", endtime, I64_MAX, most=I64_MAX)
    namesrv, key = required_namesrv(namesrvaddr), msgid.strip()
    if bool(clientid) != bool(consumergroup):
        raise UsageWanted("-g and -d go together: they name the one consumer that is given the message")

    async def calls(client: AdminClient, report: Report) -> None:
        found: list[Found] = []
        for holder in await topics.holders(client, namesrv, topic.strip(), cluster):
            rows = await messages.by_key(
                client,
                holder.address,
                topic.strip(),
                key,
                count_max=UNIQUE_KEY_COUNT_MAX,
                unique=True,
                begin_ms=begin_ms,
                end_ms=end_ms,
            )
            found += [(holder, message) for message in rows]
        if not found:
            raise messages.no_message(f"of topic {topic} with the id {key}")
        found.sort(key=lambda row: row[1].store_timestamp_ms)
        if clientid and consumergroup:
            await give(client, report, found[0], consumergroup, clientid)
            return
        for _, message in found[: UNIQUE_KEY_COUNT_MAX if showall else 1]:
            await show_message(client, report, namesrv, message, None)

    run(calls)


@admin_command(
    "queryMsgByOffset",
    Argument("b", "brokerName", "Broker Name", required=True),
    Argument("f", "bodyFormat", BODY_FORMAT_HELP),
    Argument("i", "queueId", "Queue Id", required=True),
    Argument("o", "offset", "Queue Offset", required=True),
    Argument("t", "topic", "topic name", required=True),
)
def query_by_offset(
    namesrvaddr: str | None, brokername: str, bodyformat: str | None, queueid: str, offset: str, topic: str
) -> None:
    """The message at a place of a queue."""
    namesrv = required_namesrv(namesrvaddr)
    check_format("-f", bodyformat)
    queue = MessageQueue(topic, brokername, number("-i", queueid, 0))
    wanted = number("-o", offset, 0, most=I64_MAX)

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, topic, brokername)
        async with messages.puller(client, namesrv) as consumer:
            result = await consumer.pull(queue, wanted, max_messages=1)
        found = [message for message in result.messages if message.queue_offset == wanted]
        if not found:
            raise messages.no_message(
                f"at offset {wanted} of {queue}, which holds [{result.min_offset}, {result.max_offset}),"
            )
        await show_message(client, report, namesrv, found[0], bodyformat)

    run(calls)


TRACE_TOPIC = "RMQ_SYS_TRACE_TOPIC"
TRACE_COUNT = 64
COLUMNS = "{:<10} {:<20} {:<20} {:<20} {:<10} {:<10}\n"

Traced = tuple[Trace, str]
"""A trace and the host of the client that sent it."""


def format_traces(found: list[Traced], zone: tzinfo | None = None) -> str:
    """A block for each send, then a block for each group that consumed the message."""
    text = ""
    for row in found:
        if row[0].kind == PUB:
            heading = COLUMNS.format(
                "#Type", "#ProducerGroup", "#ClientHost", "#SendTime", "#CostTimes", "#Status"
            )
            text += heading + _row("Pub", row, zone) + "\n"
    consumed: dict[str, list[Traced]] = {}
    for row in found:
        if row[0].kind != PUB:
            consumed.setdefault(row[0].group, []).append(row)
    for rows in consumed.values():
        text += COLUMNS.format(
            "#Type", "#ConsumerGroup", "#ClientHost", "#ConsumerTime", "#CostTimes", "#Status"
        )
        text += "".join(_row("Sub", row, zone) for row in rows) + "\n"
    return text


def _row(kind: str, traced: Traced, zone: tzinfo | None) -> str:
    trace, host = traced
    status = "success" if trace.success else "failed"
    return COLUMNS.format(
        kind, trace.group, host, format_seconds(trace.time_ms, zone), f"{trace.cost_ms}ms", status
    )


@admin_command(
    "queryMsgTraceById",
    Argument("i", "msgId", "Message Id", required=True),
    Argument("t", "traceTopic", "The name value of message trace topic"),
    Argument("b", "beginTimestamp", "Begin timestamp(ms). default:0, eg:1676730526212"),
    Argument("e", "endTimestamp", "End timestamp(ms). default:Long.MAX_VALUE, eg:1676730526212"),
    Argument("c", "maxNum", "The maximum number of messages returned by the query, default:64"),
)
def query_trace(
    namesrvaddr: str | None,
    msgid: str,
    tracetopic: str | None,
    begintimestamp: str | None,
    endtimestamp: str | None,
    maxnum: str | None,
) -> None:
    """The sender and the consumers of a message, from the clients' own traces in the trace topic."""
    namesrv, topic, key = required_namesrv(namesrvaddr), (tracetopic or TRACE_TOPIC).strip(), msgid.strip()
    begin_ms = number("-b", begintimestamp, 0, most=I64_MAX)
    end_ms = number("-e", endtimestamp, I64_MAX, most=I64_MAX)
    count_max = number("-c", maxnum, TRACE_COUNT, least=1)

    async def calls(client: AdminClient, report: Report) -> None:
        found: list[Traced] = []
        for holder in await topics.holders(client, namesrv, topic):
            rows = await messages.by_key(
                client, holder.address, topic, key, count_max=count_max, begin_ms=begin_ms, end_ms=end_ms
            )
            for message in rows:
                body = messages.shown_body(report, message).decode(errors="replace")
                host = message.born_host.rpartition(":")[0]
                found += [(trace, host) for trace in traces_in(body, key)]
        report.put(traces=[plain(trace) | {"clientHost": host} for trace, host in found])
        if not found:
            raise AdminError(
                f"topic {topic} has no trace of message {key}; clients trace only where it is switched on in them"
            )
        report.text(format_traces(found))

    run(calls)


CQ_RULE = "======================================\n"
CQ_COUNT = 10


def format_entry(index: int, entry: ConsumeQueueData) -> str:
    """One entry, in the format of toString of upstream's object."""
    return (
        f"idx: {index}\nConsumeQueueData{{physicOffset={entry.physic_offset}, physicSize={entry.physic_size}, "
        f"tagsCode={entry.tags_code}, extendDataJson='{java_text(entry.extend_data_json)}', "
        f"bitMap='{java_text(entry.bit_map)}', eval={java_text(entry.eval)}, msg='{java_text(entry.msg)}'}}\n{CQ_RULE}"
    )


def format_consume_queue(found: QueryConsumeQueueBody, index: int) -> str:
    """Subscription, bounds and entries."""
    text = ""
    if found.subscription_data is not None:
        data = json.dumps(found.subscription_data.to_json(), ensure_ascii=False, indent="\t")
        text += f"Subscription data: \n{data}\n{CQ_RULE}"
    if found.filter_data is not None:
        text += f"Filter data: \n{found.filter_data}\n{CQ_RULE}"
    text += f"Queue data: \nmax: {found.max_queue_index}, min: {found.min_queue_index}\n{CQ_RULE}"
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
def query_cq(
    namesrvaddr: str | None,
    topic: str,
    queue: str,
    index: str,
    count: str | None,
    broker: str | None,
    consumer: str | None,
) -> None:
    """The entries of a queue on a broker, and whether a group's subscription matches them."""
    first = number("-i", index, 0, most=I64_MAX)
    header = QueryConsumeQueueHeader(
        topic.strip(), number("-q", queue, 0), first, number("-c", count, CQ_COUNT, least=1), consumer
    )

    async def calls(client: AdminClient, report: Report) -> None:
        address = broker
        if not address:
            holders = await topics.holders(client, required_namesrv(namesrvaddr), header.topic)
            address = holders[0].address
        reply = await client.ask(address, RequestCode.QUERY_CONSUME_QUEUE, header)
        found = body_of(QueryConsumeQueueBody, address, reply)
        report.text(format_consume_queue(found, first))
        report.put(broker=address, **found.to_json())

    run(calls)


TIME_HELP = "timestamp[currentTimeMillis|yyyy-MM-dd#HH:mm:ss:SSS]"
HIDDEN = "NOT PRINT BODY"
PRINT_RULE = "-" * 56 + "\n"
STATUS = {PullStatus.NO_MATCHED_MESSAGE: "NO_MATCHED_MSG", PullStatus.NO_NEW_MESSAGE: "NO_NEW_MSG"}


def format_message_queue(queue: MessageQueue) -> str:
    return f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}]"


def format_nothing(queue: MessageQueue, status: PullStatus, offset: int) -> str:
    """The line of a pull without a message."""
    said = "no matched msg." if status is PullStatus.NO_MATCHED_MESSAGE else "print msg finished."
    return f"{format_message_queue(queue)} {said} status={STATUS.get(status, 'OFFSET_ILLEGAL')}, offset={offset}\n"


@admin_command(
    "printMsg",
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "charsetName", "CharsetName(eg: UTF-8,GBK)"),
    Argument("s", "subExpression", "Subscribe Expression(eg: TagA || TagB)"),
    Argument("b", "beginTimestamp", f"Begin {TIME_HELP}"),
    Argument("e", "endTimestamp", f"End {TIME_HELP}"),
    Argument("d", "printBody", "print body"),
    Argument("l", "lmqParentTopic", "Lmq parent topic, lmq is used to find the route."),
)
def print_msg(
    namesrvaddr: str | None,
    topic: str,
    charsetname: str | None,
    subexpression: str | None,
    begintimestamp: str | None,
    endtimestamp: str | None,
    printbody: str | None,
    lmqparenttopic: str | None,
) -> None:
    """The messages of a topic, queue by queue, within a span of time and with some tags."""
    namesrv, name = required_namesrv(namesrvaddr), topic.strip()
    check_format("-c", charsetname)
    shows_body = boolean("-d", printbody, True)
    tags = (subexpression or "*").strip()

    async def calls(client: AdminClient, report: Report) -> None:
        if lmqparenttopic:
            raise AdminError("-l: queues of light topics (LMQ) are not built; leave it out")
        span = span_of(client, ("-b", begintimestamp), ("-e", endtimestamp))
        holders = {row.broker_name: row.address for row in await topics.holders(client, namesrv, name)}
        report.put(messages=[])
        async with messages.puller(client, namesrv) as consumer:
            for queue in await consumer.queues(name):
                bounds = await bounds_of(client, holders[queue.broker_name], consumer, queue, span)
                report.text(f"minOffset={bounds[0]}, maxOffset={bounds[1]}, {format_message_queue(queue)}\n")
                await _print_queue(report, consumer, queue, bounds, tags, charsetname if shows_body else "")
                report.text(PRINT_RULE)

    run(calls)


async def _print_queue(
    report: Report,
    consumer: PullConsumer,
    queue: MessageQueue,
    bounds: tuple[int, int],
    tags: str,
    charset: str | None,
) -> None:
    """Print the messages within `bounds`, or the reason if there are none. `charset` "" hides bodies."""
    offset, end = bounds
    while offset < end:
        result = await consumer.pull(queue, offset, tags=tags)
        for message in result.messages:
            if message.queue_offset < end:
                body = HIDDEN
                if charset != "":
                    body = messages.shown_body(report, message).decode(charset or "UTF-8", errors="replace")
                report.text(messages.format_line(queue.broker_name, message, body))
                report.add("messages", messages.as_json(message))
        if result.status is not PullStatus.FOUND:
            report.text(format_nothing(queue, result.status, result.next_offset))
            if result.status is not PullStatus.NO_MATCHED_MESSAGE:
                return
        if result.next_offset <= offset:
            raise AdminError(f"{format_message_queue(queue)}: nothing to read at {offset}")
        offset = result.next_offset


def format_tags(counts: Counter[str]) -> str:
    """A line per tag, the most frequent first."""
    return "".join(f"Tag: {tag:<30} Count: {count}\n" for tag, count in counts.most_common())


@admin_command(
    "printMsgByQueue",
    Argument("t", "topic", "topic name", required=True),
    Argument("a", "brokerName", "broker name", required=True),
    Argument("i", "queueId", "queue id", required=True),
    Argument("c", "charsetName", "CharsetName(eg: UTF-8,GBK)"),
    Argument("s", "subExpression", "Subscribe Expression(eg: TagA || TagB)"),
    Argument("b", "beginTimestamp", f"Begin {TIME_HELP}"),
    Argument("e", "endTimestamp", f"End {TIME_HELP}"),
    Argument("p", "printMsg", "print msg. eg: true | false(default)"),
    Argument("d", "printBody", "print body. eg: true | false(default)"),
    Argument("f", "calculate", "calculate by tag. eg: true | false(default)"),
)
def print_msg_by_queue(
    namesrvaddr: str | None, topic: str, brokername: str, queueid: str, **given: str | None
) -> None:
    """The messages of one queue, within a span of time and with some tags, or the number of messages by tag."""
    namesrv, charset = required_namesrv(namesrvaddr), given["charsetname"]
    check_format("-c", charset)
    queue = MessageQueue(topic.strip(), brokername.strip(), number("-i", queueid, 0))
    shows, shows_body = boolean("-p", given["printmsg"]), boolean("-d", given["printbody"])
    counts_tags = boolean("-f", given["calculate"])
    tags = (given["subexpression"] or "*").strip()

    async def calls(client: AdminClient, report: Report) -> None:
        span = span_of(client, ("-b", given["begintimestamp"]), ("-e", given["endtimestamp"]))
        holders = {row.broker_name: row.address for row in await topics.holders(client, namesrv, queue.topic)}
        if queue.broker_name not in holders:
            raise AdminError(
                f"broker set {queue.broker_name} has no topic {queue.topic}; topicRoute shows where it is"
            )
        counts: Counter[str] = Counter()
        async with messages.puller(client, namesrv) as consumer:
            if queue not in await consumer.queues(queue.topic):
                raise AdminError(
                    f"topic {queue.topic} has no queue {queue.queue_id} on {queue.broker_name}; topicStatus shows which it has"
                )
            offset, end = await bounds_of(client, holders[queue.broker_name], consumer, queue, span)
            while offset < end:
                result = await consumer.pull(queue, offset, tags=tags)
                for message in result.messages:
                    if message.queue_offset >= end:
                        continue
                    counts.update(filter(None, [message.properties.get("TAGS")]))
                    if shows:
                        text = HIDDEN
                        if shows_body:
                            text = messages.shown_body(report, message).decode(
                                charset or "UTF-8", errors="replace"
                            )
                        report.text(messages.format_line(queue.broker_name, message, text))
                        report.add("messages", messages.as_json(message))
                if result.next_offset <= offset:
                    break
                offset = result.next_offset
        if counts_tags:
            report.text(format_tags(counts))
            report.put(tags=dict(counts.most_common()))

    run(calls)


CONSUMED_COUNT_MAX = 128


def format_end(queue: MessageQueue, end: int) -> str:
    """The line after the last message of a queue."""
    return (
        f"MessageQueue [topic={queue.topic}, brokerName={queue.broker_name}, queueId={queue.queue_id}] "
        f"print msg finished. status=NO_NEW_MSG, offset={end}\n"
    )


@admin_command(
    "consumeMessage",
    Argument("t", "topic", "Topic name", required=True),
    Argument("b", "brokerName", "Broker name"),
    Argument("o", "offset", "Queue offset"),
    Argument("i", "queueId", "Queue Id"),
    Argument("g", "consumerGroup", "Consumer group name"),
    Argument("s", "beginTimestamp", f"Begin {TIME_HELP}"),
    Argument("e", "endTimestamp", f"End {TIME_HELP}"),
    Argument("c", "MessageNumber", "Number of message to be consumed"),
)
def consume_message(
    namesrvaddr: str | None,
    topic: str,
    brokername: str | None,
    offset: str | None,
    queueid: str | None,
    consumergroup: str | None,
    begintimestamp: str | None,
    endtimestamp: str | None,
    messagenumber: str | None,
) -> None:
    """Reads messages of a topic, of one queue or of a span of time, without committing offsets."""
    namesrv = required_namesrv(namesrvaddr)
    queue_id = None if queueid is None else number("-i", queueid, 0)
    if queue_id is not None and not brokername:
        raise UsageWanted("-i names a queue of one broker set: give its name with -b")
    if offset is not None and queue_id is None:
        raise UsageWanted("-o is an offset of one queue: give it with -b and -i")
    count_max = number("-c", messagenumber, CONSUMED_COUNT_MAX, least=1)
    first = None if offset is None else number("-o", offset, 0, most=I64_MAX)

    async def calls(client: AdminClient, report: Report) -> None:
        span = span_of(client, ("-s", begintimestamp), ("-e", endtimestamp), first)
        holders = {row.broker_name: row.address for row in await topics.holders(client, namesrv, topic)}
        report.put(messages=[])
        left = count_max
        async with messages.puller(client, namesrv, consumergroup or messages.TOOLS_GROUP) as consumer:
            queues = [
                queue
                for queue in await consumer.queues(topic)
                if brokername in (None, queue.broker_name) and queue_id in (None, queue.queue_id)
            ]
            if not queues:
                raise AdminError(f"topic {topic} has no such queue; topicStatus shows which it has")
            for queue in queues:
                bounds = await bounds_of(client, holders[queue.broker_name], consumer, queue, span)
                left -= await _consume_queue(report, consumer, queue, bounds, left)
                if not left:
                    break

    run(calls)


async def _consume_queue(
    report: Report, consumer: PullConsumer, queue: MessageQueue, bounds: tuple[int, int], count_max: int
) -> int:
    """Print at most `count_max` messages within `bounds`, and return their number."""
    start, end = bounds
    cut = end - start > count_max
    if cut:
        report.text(f"The older {count_max} message of the {queue.queue_id} queue will be provided\n")
    if end > start:
        report.text("Consume ok\n")
    shown = 0
    async for message in consumer.read(queue, start, min(end, start + count_max)):
        body = messages.shown_body(report, message).decode(errors="replace")
        report.text(messages.format_line(queue.broker_name, message, body))
        report.add("messages", messages.as_json(message))
        shown += 1
    if not cut:
        report.text(format_end(queue, end))
    return shown
