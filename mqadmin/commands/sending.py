"""Commands that send messages, and measure the time of sends."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from mqadmin.admin import AdminClient
from mqadmin.calls import topics
from mqadmin.calls.sending import as_json, must_be_safe, producer
from mqadmin.command import Argument, UsageWanted, admin_command, boolean, number, required_namesrv, run
from mqadmin.commands.messages import format_sent
from mqadmin.errors import AdminError
from mqadmin.report import Report, java_text
from mqadmin.timedsends import Timed, mean_of_warm, timed_sends
from mqclient.producer import SendResult

SEND_MESSAGE_GROUP = "TOOLS_PRODUCER"
NO_TRACE = "-m true changes nothing: this tool sends no trace messages"
COLUMNS = "{:<32}  {:<4}  {:<20}    {}\n"
SEND_MESSAGE_HEADING = COLUMNS.format("#Broker Name", "#QID", "#Send Result", "#MsgId")


def format_result(result: SendResult) -> str:
    """A line under SEND_MESSAGE_HEADING."""
    return COLUMNS.format(
        result.queue.broker_name, result.queue.queue_id, result.status.name, result.message_ids[0]
    )


@admin_command(
    "sendMessage",
    Argument("t", "topic", "Topic name", required=True),
    Argument("p", "body", "UTF-8 string format of the message body", required=True, may_be_empty=True),
    Argument("k", "key", "Message keys"),
    Argument("c", "tags", "Message tags"),
    Argument("b", "broker", "Send message to target broker"),
    Argument("i", "qid", "Send message to target queue"),
    Argument("m", "msgTraceEnable", "Message Trace Enable, Default: false"),
)
def send_message(
    namesrvaddr: str | None,
    topic: str,
    body: str,
    key: str | None,
    tags: str | None,
    broker: str | None,
    qid: str | None,
    msgtraceenable: str | None,
) -> None:
    """Sends one message, to check that a topic accepts it."""
    namesrv = required_namesrv(namesrvaddr)
    traced = boolean("-m", msgtraceenable)
    queue_id = None if qid is None else number("-i", qid, 0)
    if queue_id is not None and not broker:
        raise UsageWanted("-i names a queue of one broker set: give its name with -b")

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, topic, broker)
        async with producer(client, namesrv, SEND_MESSAGE_GROUP) as sender:
            result = await sender.send(
                topic, body.encode(), keys=key or "", tags=tags or "", broker_name=broker, queue_id=queue_id
            )
        if traced:
            report.note(NO_TRACE)
        report.text(SEND_MESSAGE_HEADING + format_result(result))
        report.put(**as_json(result))
        must_be_safe(result)

    run(calls)


STATUS_GROUP = "PID_SMSC"
TEXT = b"hello jodie"
STATUS_SIZE, STATUS_COUNT = 128, 50
BODY_BYTES_MAX = 4 << 20


@admin_command(
    "sendMsgStatus",
    Argument(
        "b", "brokerName", "Broker Name e.g. clusterName_brokerName as DefaultCluster_broker-a", required=True
    ),
    Argument("s", "messageSize", "Message Size, Default: 128"),
    Argument("c", "count", "send message count, Default: 50"),
)
def send_msg_status(
    namesrvaddr: str | None, brokername: str, messagesize: str | None, count: str | None
) -> None:
    """Sends to the topic named like a broker set, and shows the time of each send."""
    namesrv, topic = required_namesrv(namesrvaddr), brokername.strip()
    size = number("-s", messagesize, STATUS_SIZE, least=1, most=BODY_BYTES_MAX)
    sends = number("-c", count, STATUS_COUNT, least=1)
    body = TEXT * -(-size // len(TEXT))

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, topic, None)
        failed = 0
        why = ""
        async with producer(client, namesrv, STATUS_GROUP) as sender:
            await sender.send(topic, TEXT)  # this send opens the connection
            async for send in timed_sends(client, sender, topic, body, sends):
                if send.result is not None:
                    report.text(f"rt={send.ms}ms, SendResult={format_sent(send.result)}")
                    report.add("sends", {"rtMs": send.ms, **as_json(send.result)})
                if not send.success:
                    failed, why = failed + 1, send.why or "stored, but not safe"
        if failed:
            raise AdminError(f"{failed} of {sends} sends failed, the last: {why}")

    run(calls)


SEND_RT_GROUP = "mqadmin_checkMsgSendRT"
SEND_RT_AMOUNT, SEND_RT_SIZE = 100, 128
SEND_RT_HEADING = COLUMNS.format("#Broker Name", "#QID", "#Send Result", "#RT")


def format_send(send: Timed) -> str:
    """A line under SEND_RT_HEADING. Without an answer the queue is unknown."""
    queue = send.result.queue if send.result is not None else None
    where = (queue.broker_name, queue.queue_id) if queue is not None else ("-", "-")
    return COLUMNS.format(*where, java_text(send.success), send.ms)


@admin_command(
    "checkMsgSendRT",
    Argument("t", "topic", "topic name", required=True),
    Argument("a", "amount", "message amount | default 100"),
    Argument("s", "size", "message size | default 128 Byte"),
)
def check_msg_send_rt(namesrvaddr: str | None, topic: str, amount: str | None, size: str | None) -> None:
    """Sends to the queues of a topic in turn, and shows the time of each send."""
    namesrv, name = required_namesrv(namesrvaddr), topic.strip()
    count = number("-a", amount, SEND_RT_AMOUNT, least=1)
    body = b"a" * number("-s", size, SEND_RT_SIZE, least=1, most=BODY_BYTES_MAX)

    async def calls(client: AdminClient, report: Report) -> None:
        await topics.must_have(client, namesrv, name, None)
        report.text(SEND_RT_HEADING)
        sends: list[Timed] = []
        async with producer(client, namesrv, SEND_RT_GROUP) as sender:
            async for send in timed_sends(client, sender, name, body, count):
                report.text(format_send(send))
                report.add("sends", {"rtMs": send.ms, "success": send.success})
                sends.append(send)
        report.text(f"Avg RT: {mean_of_warm(sends):.2f}\n")
        report.put(average_rt_ms=round(mean_of_warm(sends), 2))
        failed = [send for send in sends if not send.success]
        if failed:
            why = failed[-1].why or "stored, but not safe"
            raise AdminError(f"{len(failed)} of {count} sends failed, the last: {why}")

    run(calls)


CLUSTER_RT_GROUP = "mqadmin_clusterRT"
CLUSTER_RT_AMOUNT, CLUSTER_RT_SIZE, INTERVAL = 100, 128, "10"
CLUSTER_RT_HEADING = (
    f"{'#Cluster Name':<24}  {'#Broker Name':<24}  {'#RT':<4}  {'#successCount':<8}  {'#failCount':<8}\n"
)
LOG_ZONE = timezone(timedelta(hours=8))
"""Time zone of upstream's lines for log collectors, whatever the zone of the machine is."""


def format_row(cluster: str, broker_name: str, sends: list[Timed]) -> str:
    """A line under CLUSTER_RT_HEADING."""
    done = sum(send.success for send in sends)
    rt = f"{mean_of_warm(sends):.2f}"
    return f"{cluster:<24}  {broker_name:<24}  {rt:<8}  {done:<16}  {len(sends) - done:<16}\n"


def format_log(room: str, cluster: str, broker_name: str, sends: list[Timed], now_ms: int) -> str:
    """A line for log collectors."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(LOG_ZONE)
    rt = int(mean_of_warm(sends) + 0.5)
    return f"{moment:%Y-%m-%d %H:%M:%S}|{room}|{cluster}|{broker_name}|{rt}\n"


@admin_command(
    "clusterRT",
    Argument("a", "amount", "message amount | default 100"),
    Argument("s", "size", "message size | default 128 Byte"),
    Argument("c", "cluster", "cluster name | default display all cluster"),
    Argument("p", "printLog", "print as tlog | default false"),
    Argument("m", "machineRoom", "machine room name | default noname"),
    Argument("i", "interval", "print interval | default 10 seconds"),
    Argument("once", "once", "one round, then end (not an option of upstream's)", is_flag=True),
)
def cluster_rt(
    namesrvaddr: str | None,
    amount: str | None,
    size: str | None,
    cluster: str | None,
    printlog: str | None,
    machineroom: str | None,
    interval: str | None,
    once: bool,
) -> None:
    """Repeatedly, the time of sends to each broker set, to the topic named like the set.

    Invariant: with -p each line is upstream's for log collectors, and nothing else is printed."""
    namesrv = required_namesrv(namesrvaddr)
    count = number("-a", amount, CLUSTER_RT_AMOUNT, least=1)
    body = b"a" * number("-s", size, CLUSTER_RT_SIZE, least=1, most=BODY_BYTES_MAX)
    as_log, room = boolean("-p", printlog), machineroom or "noname"
    headings = iter(() if as_log else (CLUSTER_RT_HEADING,))

    async def calls(client: AdminClient, report: Report) -> None:
        sets = (await client.cluster_info(namesrv)).sets_of(cluster)
        if not sets:
            what = f"cluster {cluster} is unknown" if cluster else "no broker is registered"
            raise AdminError(f"{what}; clusterList shows what is there")
        report.text(next(headings, ""))
        async with producer(client, namesrv, CLUSTER_RT_GROUP) as sender:
            for brokers in sets:
                name = brokers.broker_name
                sends = [send async for send in timed_sends(client, sender, name, body, count)]
                row = (brokers.cluster, name, sends)
                now_ms = client.clock.now_ms()
                report.text(format_log(room, *row, now_ms) if as_log else format_row(*row))
                done = sum(send.success for send in sends)
                report.add(
                    "brokers",
                    {
                        "cluster": brokers.cluster,
                        "brokerName": name,
                        "rtMs": round(mean_of_warm(sends), 2),
                        "success": done,
                        "failed": count - done,
                    },
                )

    run(calls, interval=None if once else interval or INTERVAL)
