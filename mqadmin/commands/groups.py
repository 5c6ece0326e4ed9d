"""Commands about consumer groups, their members and progress, and about producers."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls import clients, groups, topics
from mqadmin.calls.groups import GroupProgress
from mqadmin.calls.topics import RETRY_PREFIX
from mqadmin.command import (
    I64_MAX,
    Argument,
    UsageWanted,
    admin_command,
    boolean,
    number,
    one_wanted,
    required_namesrv,
    run,
)
from mqadmin.commands.topics import attribute_changes
from mqadmin.configfiles import read_list
from mqadmin.errors import AdminError
from mqadmin.exports import write_text
from mqadmin.report import Report, java_map, java_text, plain
from mqadmin.runninginfo import format_info, same_subscription, troubles
from mqadmin.times import format_seconds
from mqadmin.versions import version_name
from mqadmin.wanted import wanted_masters
from remoting.bodies.groups import SubscriptionGroupConfig, SubscriptionGroupList
from remoting.bodies.heartbeats import (
    Connection,
    ConsumerConnection,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
)
from remoting.bodies.queues import ConsumerQueues, MessageQueue, OffsetWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import ProducerGroupHeader

POLICY_HELP = (
    'the json string of retry policy ( exponential: {"type":"EXPONENTIAL","exponentialRetryPolicy":'
    '{"initial":5000,"max":7200000,"multiplier":2}} customized: {"type":"CUSTOMIZED","customizedRetryPolicy":'
    '{"next":[1000,5000,10000]}} )'
)


def format_created(address: str) -> str:
    return f"create subscription group to {address} success.\n"


def fields_of(group: SubscriptionGroupConfig) -> dict[str, Any]:
    """The fields of upstream's SubscriptionGroupConfig, in its order."""
    policy = group.group_retry_policy
    return {
        "groupName": group.group_name,
        "consumeEnable": group.consume_enable,
        "consumeFromMinEnable": group.consume_from_min_enable,
        "consumeBroadcastEnable": group.consume_broadcast_enable,
        "consumeMessageOrderly": group.consume_message_orderly,
        "retryQueueNums": group.retry_queue_nums,
        "retryMaxTimes": group.retry_max_times,
        "groupRetryPolicy": f"GroupRetryPolicy{{type={java_text(policy.get('type'))}, "
        f"exponentialRetryPolicy={java_text(policy.get('exponentialRetryPolicy'))}, "
        f"customizedRetryPolicy={java_text(policy.get('customizedRetryPolicy'))}}}",
        "brokerId": group.broker_id,
        "whichBrokerWhenConsumeSlowly": group.which_broker_when_consume_slowly,
        "notifyConsumerIdsChangedEnable": group.notify_consumer_ids_changed_enable,
        "groupSysFlag": group.group_sys_flag,
        "consumeTimeoutMinute": group.consume_timeout_minute,
        "subscriptionDataSet": group.subscription_data_set,
        "attributes": java_map(group.attributes),
    }


def format_group_config(group: SubscriptionGroupConfig) -> str:
    """The group in the format of upstream's SubscriptionGroupConfig.toString. As in upstream, there is no line end."""
    inside = ", ".join(f"{name}={java_text(value)}" for name, value in fields_of(group).items())
    return f"SubscriptionGroupConfig{{{inside}}}"


def retry_policy(text: str | None) -> dict[str, Any]:
    """The policy in -p. Raises `UsageWanted`."""
    if text is None:
        return {"type": "CUSTOMIZED"}
    try:
        policy = json.loads(text)
    except ValueError as error:
        raise UsageWanted(f"-p {text}: no JSON: {error}") from None
    if not isinstance(policy, dict) or policy.get("type") not in ("EXPONENTIAL", "CUSTOMIZED"):
        raise UsageWanted(f"-p {text}: the type is EXPONENTIAL or CUSTOMIZED")
    return policy


@admin_command(
    "updateSubGroup",
    Argument("a", "notifyConsumerIdsChanged", "notify consumerId changed"),
    Argument("b", "brokerAddr", "create subscription group to which broker"),
    Argument("c", "clusterName", "create subscription group to which cluster"),
    Argument("d", "consumeBroadcastEnable", "broadcast"),
    Argument("g", "groupName", "consumer group name", required=True),
    Argument("i", "brokerId", "consumer from which broker id"),
    Argument("m", "consumeFromMinEnable", "from min offset"),
    Argument("o", "consumeMessageOrderly", "consume message orderly"),
    Argument("p", "groupRetryPolicy", POLICY_HELP),
    Argument("q", "retryQueueNums", "retry queue nums"),
    Argument("r", "retryMaxTimes", "retry max times"),
    Argument("s", "consumeEnable", "consume enable"),
    Argument("w", "whichBrokerWhenConsumeSlowly", "which broker id when consume slowly"),
    Argument("attributes", "attributes", "attribute(+a=b,+c=d,-e)"),
)
def update_sub_group(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, **given: str | None
) -> None:
    """Creates or changes a consumer group on one broker or on every master of a cluster."""
    one_wanted(brokeraddr, clustername)
    group = SubscriptionGroupConfig(
        group_name=(given["groupname"] or "").strip(),
        consume_enable=boolean("-s", given["consumeenable"], True),
        consume_from_min_enable=boolean("-m", given["consumefromminenable"]),
        consume_broadcast_enable=boolean("-d", given["consumebroadcastenable"]),
        consume_message_orderly=boolean("-o", given["consumemessageorderly"]),
        retry_queue_nums=number("-q", given["retryqueuenums"], 1),
        retry_max_times=number("-r", given["retrymaxtimes"], 16, least=-1),
        group_retry_policy=retry_policy(given["groupretrypolicy"]),
        broker_id=number("-i", given["brokerid"], 0, most=I64_MAX),
        which_broker_when_consume_slowly=number("-w", given["whichbrokerwhenconsumeslowly"], 1, most=I64_MAX),
        notify_consumer_ids_changed_enable=boolean("-a", given["notifyconsumeridschanged"], True),
        attributes=attribute_changes("--attributes", given["attributes"]),
    )

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        for address in addresses:
            await groups.put(client, address, group)
            report.text(format_created(address))
            report.add("brokers", address)
        report.text(format_group_config(group))
        report.put(group=group)

    run(calls)


def format_submitted(address: str, *, of_cluster: bool) -> str:
    what = "subscription group" if of_cluster else "group"
    return f"submit batch of {what} config to {address} success, please check the result later.\n"


@admin_command(
    "updateSubGroupList",
    Argument("b", "brokerAddr", "create groups to which broker"),
    Argument("c", "clusterName", "create groups to which cluster"),
    Argument(
        "f",
        "filename",
        "Path to a file with a list of org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig "
        "in json format",
        required=True,
    ),
)
def update_sub_group_list(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, filename: str
) -> None:
    """Creates or changes the consumer groups of a file."""
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        body = SubscriptionGroupList(read_list(SubscriptionGroupConfig, filename.strip()))
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST
            await client.ask(address, code, body=body.encode())
            report.text(format_submitted(address, of_cluster=brokeraddr is None))
            report.add("brokers", address)
        report.put(groups=[group.group_name for group in body.group_config_list])

    run(calls)


def format_deleted(group: str, broker: str, cluster: str | None) -> str:
    where = f" in cluster [{cluster}]" if cluster else ""
    return f"delete subscription group [{group}] from broker [{broker}]{where} success.\n"


@admin_command(
    "deleteSubGroup",
    Argument("b", "brokerAddr", "delete subscription group from which broker"),
    Argument("c", "clusterName", "delete subscription group from which cluster"),
    Argument("g", "groupName", "subscription group name", required=True),
    Argument("r", "removeOffset", "remove offset"),
)
def delete_sub_group(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    groupname: str,
    removeoffset: str | None,
) -> None:
    """Deletes a consumer group, and its retry topics, from brokers."""
    one_wanted(brokeraddr, clustername)
    clean_offset = boolean("-r", removeoffset)

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        if not any([await groups.is_known(client, address, groupname) for address in addresses]):
            raise AdminError(
                f"no broker of {', '.join(addresses)} has a group {groupname}; consumerProgress lists groups"
            )
        for address in addresses:
            await groups.delete(client, address, groupname, clean_offset=clean_offset)
            report.text(format_deleted(groupname, address, None if brokeraddr else clustername))
            report.add("brokers", address)
        report.put(group=groupname)
        if not brokeraddr:
            namesrv = required_namesrv(namesrvaddr)
            for prefix in (topics.RETRY_PREFIX, topics.DEAD_LETTER_PREFIX):
                for address in addresses:
                    await topics.delete_on_broker(client, address, prefix + groupname)
                await topics.delete_on_name_servers(client, namesrv, prefix + groupname, clustername)

    run(calls)


CONFIG_RULE = "=" * 29


def format_config(cluster: str, broker_name: str, group: SubscriptionGroupConfig) -> str:
    """Upstream's block: a heading between two rules, then one line per field."""
    rows = "".join(
        f"{name:<40}=  {'' if value is None else java_text(value)}\n"
        for name, value in fields_of(group).items()
    )
    return f"{CONFIG_RULE}{cluster}:{broker_name}{CONFIG_RULE}\n{rows}"


@admin_command("getConsumerConfig", Argument("g", "groupName", "subscription group name", required=True))
def consumer_config(namesrvaddr: str | None, groupname: str) -> None:
    """The settings of a consumer group on each broker set that has it."""
    namesrv, name = required_namesrv(namesrvaddr), groupname.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(configs=[])
        known = False
        for brokers in (await client.cluster_info(namesrv)).sets_of(None):
            address = brokers.addresses[min(brokers.addresses)]
            group = await groups.settings_of(client, address, name)
            if group is None:
                continue
            known = True
            report.text(format_config(brokers.cluster, brokers.broker_name, group))
            report.add(
                "configs", {"cluster": brokers.cluster, "brokerName": brokers.broker_name, **group.members()}
            )
        if not known:
            raise AdminError(f"no broker has a group {name}; consumerProgress lists the groups")

    run(calls)


QUEUE_HEADING = (
    f"{'#Topic':<64}  {'#Broker Name':<32}  {'#QID':<4}  {'#Broker Offset':<20}  {'#Consumer Offset':<20}  "
    f"{'#Diff':<20} {'#Inflight':<20}#LastTime\n"
)
QUEUE_HEADING_WITH_IP = QUEUE_HEADING.replace("#Diff", f"{'#Client IP':<20} #Diff", 1)
GROUP_HEADING = f"{'#Group':<64}  {'#Count':<6}  {'#Version':<24} {'#Type':<5}  {'#Model':<14}  {'#TPS':<7}  #Diff Total\n"
TYPES = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL", "CONSUME_POP": "POP"}

Readers = dict[MessageQueue, str]
"""Queue -> ip of the client that reads it."""


@dataclass(frozen=True, slots=True)
class GroupRow:
    """One group in the list of all groups. `consumers` is None while no consumer is connected."""

    group: str
    consumers: ConsumerConnection | None
    consume_tps: float
    diff_total: int


def format_progress(
    progress: GroupProgress, zone: tzinfo | None = None, readers: Readers | None = None
) -> str:
    """One line per queue, ordered by topic, broker and queue, and the totals. A line has the ip of the queue's reader if
    readers are given."""

    def ip(queue: MessageQueue) -> str:
        return "" if readers is None else f"{readers.get(queue, 'N/A'):<20} "

    rows = "".join(
        f"{queue.topic[:64]:<64}  {queue.broker_name[:32]:<32}  {queue.queue_id:<4}  {row.broker_offset:<20}  "
        f"{row.consumer_offset:<20}  {ip(queue)}{row.broker_offset - row.consumer_offset:<20} "
        f"{row.pull_offset - row.consumer_offset:<20} "
        f"{format_seconds(row.last_timestamp, zone) if row.last_timestamp > 0 else 'N/A'}\n"
        for queue, row in sorted(progress.offsets.items(), key=queue_order)
    )
    heading = QUEUE_HEADING if readers is None else QUEUE_HEADING_WITH_IP
    return (
        f"{heading}{rows}\nConsume TPS: {progress.consume_tps:.2f}\n"
        f"Consume Diff Total: {progress.diff_total}\nConsume Inflight Total: {progress.inflight_total}\n"
    )


def format_group_row(row: GroupRow) -> str:
    """A line under GROUP_HEADING."""
    members = row.consumers.connection_set if row.consumers else []
    oldest = min((member.version for member in members), default=0)
    version = version_name(oldest) if members else "OFFLINE"
    kind = TYPES.get(row.consumers.consume_type or "", "") if row.consumers else ""
    model = (row.consumers.message_model or "") if row.consumers and kind == "PUSH" else ""
    return (
        f"{row.group[:64]:<64}  {len(members):<6}  {version:<24} {kind:<5}  {model:<14}  "
        f"{row.consume_tps:<7.0f}  {row.diff_total}\n"
    )


def queue_order(row: tuple[MessageQueue, OffsetWrapper]) -> tuple[str, str, int]:
    return row[0].topic, row[0].broker_name, row[0].queue_id


@admin_command(
    "consumerProgress",
    Argument("c", "cluster", "Cluster name"),
    Argument("g", "groupName", "consumer group name"),
    Argument("t", "topicName", "topic name"),
    Argument("s", "showClientIP", "Show Client IP per Queue"),
)
def consumer_progress(
    namesrvaddr: str | None,
    cluster: str | None,
    groupname: str | None,
    topicname: str | None,
    showclientip: str | None,
) -> None:
    """The lag of groups behind their queues."""
    namesrv = required_namesrv(namesrvaddr)
    show_ip = boolean("-s", showclientip)
    if show_ip and not groupname:
        raise UsageWanted("-s shows the readers of one group's queues: name the group with -g")

    async def calls(client: AdminClient, report: Report) -> None:
        masters = await groups.one_of_each_set(client, namesrv, cluster)
        if groupname:
            await _one(client, report, masters, groupname, topicname, show_ip)
            return
        report.text(GROUP_HEADING)
        report.put(groups=[])
        for name in await groups.names(client, namesrv, masters):
            progress = await groups.progress(client, masters, name, topicname)
            members = await groups.consumers(client, masters, name)
            row = GroupRow(name, members, progress.consume_tps, progress.diff_total)
            report.text(format_group_row(row))
            report.add("groups", row)

    run(calls)


async def _one(
    client: AdminClient,
    report: Report,
    masters: list[str],
    group: str,
    topic: str | None,
    show_ip: bool,
) -> None:
    progress = await groups.progress(client, masters, group, topic)
    if not progress.offsets:
        of = f" of topic {topic}" if topic else ""
        raise AdminError(f"group {group} has committed no offset{of}; consumerProgress lists the groups")
    readers: Readers | None = None
    if show_ip:
        readers, silent = await clients.readers(client, masters, group)
        for line in silent:
            report.note(line)
    report.text(format_progress(progress, readers=readers))
    report.put(
        group=group,
        consume_tps=progress.consume_tps,
        diff_total=progress.diff_total,
        inflight_total=progress.inflight_total,
        queues=[
            {
                **plain(queue),
                **plain(row),
                **({} if readers is None else {"clientIp": readers.get(queue)}),
            }
            for queue, row in sorted(progress.offsets.items(), key=queue_order)
        ],
    )


CONSUMER_CONNECTION_HEADING = f"{'#ClientId':<36} {'#ClientAddr':<22} {'#Language':<10} #Version\n"
TOPIC_HEADING = f"{'#Topic':<20} #SubExpression\n"


def format_connected(connected: ConsumerConnection) -> str:
    """The clients, the subscriptions by topic, and the mode of consumption."""
    clients = "".join(
        f"{row.client_id:<36} {row.client_addr:<22} {row.language:<10} {version_name(row.version)}\n"
        for row in connected.connection_set
    )
    wanted = "".join(
        f"{data.topic:<20} {data.sub_string}\n" for _, data in sorted(connected.subscription_table.items())
    )
    return (
        f"{CONSUMER_CONNECTION_HEADING}{clients}\nBelow is subscription:\n{TOPIC_HEADING}{wanted}\n"
        f"ConsumeType: {java_text(connected.consume_type)}\nMessageModel: {java_text(connected.message_model)}\n"
        f"ConsumeFromWhere: {java_text(connected.consume_from_where)}\n"
    )


async def must_be_online(
    client: AdminClient, namesrv: str | None, broker: str | None, group: str
) -> ConsumerConnection:
    """The consumers of a group at `broker`, or at all masters. Raises `AdminError` if none is connected."""
    masters = [broker] if broker else await groups.one_of_each_set(client, required_namesrv(namesrv))
    found = await groups.consumers(client, masters, group)
    if found is None:
        raise AdminError(f"no consumer of group {group} is online; consumerProgress lists the groups")
    return found


@admin_command(
    "consumerConnection",
    Argument("g", "consumerGroup", "consumer group name", required=True),
    Argument("b", "brokerAddr", "broker address"),
)
def consumer_connection(namesrvaddr: str | None, consumergroup: str, brokeraddr: str | None) -> None:
    """The connected consumers of a group, and their subscriptions."""

    async def calls(client: AdminClient, report: Report) -> None:
        found = await must_be_online(client, namesrvaddr, brokeraddr, consumergroup.strip())
        report.text(format_connected(found))
        report.put(**found.to_json())

    run(calls)


COLUMNS = "{:<10} {:<40} {:<20} {}\n"
CONSUMER_STATUS_HEADING = COLUMNS.format("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile")
UNSAFE = re.compile(r"[^0-9A-Za-z@._#-]")


def format_verdict(infos: dict[str, ConsumerQueues], now_ms: int) -> str:
    """The text that lists the problems found in a group, or says that there are none."""
    if not same_subscription(infos, now_ms):
        return "\n\nWARN: Different subscription in the same group of consumer!!!"
    lines = [line for name, info in sorted(infos.items()) for line in troubles(name, info, now_ms)]
    return "\n\nSame subscription in the same group of consumer\n\nRebalance OK\n" + "".join(
        f"{line}\n" for line in lines
    )


def file_for(folder: str, client_id: str) -> Path:
    """The file for a client. It is below the working directory, as in upstream; a client id cannot lead elsewhere."""
    return Path(folder) / (UNSAFE.sub("_", client_id).lstrip(".") or "_")


@admin_command(
    "consumerStatus",
    Argument("g", "consumerGroup", "consumer group name", required=True),
    Argument("i", "clientId", "The consumer's client id"),
    Argument("b", "brokerAddr", "broker address"),
    Argument("s", "jstack", "Run jstack command in the consumer progress", is_flag=True),
)
def consumer_status(
    namesrvaddr: str | None, consumergroup: str, clientid: str | None, brokeraddr: str | None, jstack: bool
) -> None:
    """The state of a group's connected consumers: of one consumer on the screen, or of each in a file, with the problems
    found."""
    group = consumergroup.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        found = await must_be_online(client, namesrvaddr, brokeraddr, group)
        masters = (
            [brokeraddr]
            if brokeraddr
            else await groups.one_of_each_set(client, required_namesrv(namesrvaddr))
        )
        if clientid:
            info = await _running_info(client, masters, group, clientid.strip(), jstack)
            report.text(format_info(info))
            report.put(clients={clientid.strip(): info.to_json()})
            return
        infos: dict[str, ConsumerQueues] = {}
        folder = str(client.clock.now_ms())
        report.text(CONSUMER_STATUS_HEADING)
        for member in found.connection_set:
            try:
                infos[member.client_id] = await _running_info(
                    client, masters, group, member.client_id, jstack
                )
            except AdminError as error:
                report.note(f"{member.client_id} does not report its state: {error}")
                continue
            _show(report, len(infos), member, infos[member.client_id], folder)
        if not infos:
            raise AdminError(f"no consumer of group {group} reports its state")
        report.text(format_verdict(infos, client.clock.now_ms()))
        report.put(clients={name: info.to_json() for name, info in infos.items()})

    run(calls)


def _show(report: Report, number: int, member: Connection, info: ConsumerQueues, folder: str) -> None:
    if not report.as_json:
        path = write_text(file_for(folder, member.client_id), format_info(info))
        report.text(COLUMNS.format(number, member.client_id, version_name(member.version), path))


async def _running_info(
    client: AdminClient, masters: list[str], group: str, client_id: str, jstack: bool
) -> ConsumerQueues:
    """Query a client through the first broker that has its connection."""
    failed: AdminError | None = None
    for master in masters:
        try:
            return await clients.queues_of(client, master, group, client_id, jstack=jstack)
        except AdminError as error:
            failed = failed or error
    assert failed is not None, "there is a master, because the group is online there"
    raise failed


def format_producers(members: list[Connection]) -> str:
    """A numbered line for each producer. As in upstream, there is no heading."""
    return "".join(
        f"{number:04}  {row.client_id:<32} {row.client_addr:<22} {row.language:<8} {version_name(row.version)}\n"
        for number, row in enumerate(members, 1)
    )


@admin_command(
    "producerConnection",
    Argument("g", "producerGroup", "producer group name", required=True),
    Argument("t", "topic", "topic name", required=True),
)
def producer_connection(namesrvaddr: str | None, producergroup: str, topic: str) -> None:
    """The connected producers of a group, at the masters that have a topic."""
    namesrv, group = required_namesrv(namesrvaddr), producergroup.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        members: dict[str, Connection] = {}
        for holder in await topics.holders(client, namesrv, topic.strip()):
            reply = await client.ask_for(
                holder.address,
                RequestCode.GET_PRODUCER_CONNECTION_LIST,
                ProducerGroupHeader(group),
                absent=ResponseCode.SYSTEM_ERROR,
            )
            if reply is not None:
                found = body_of(ProducerConnection, holder.address, reply).connection_set
                members |= {member.client_id: member for member in found}
        if not members:
            raise AdminError(f"no producer of group {group} is connected where topic {topic} is")
        rows = [members[name] for name in sorted(members)]
        report.text(format_producers(rows))
        report.put(connection_set=[row.to_json() for row in rows])

    run(calls)


def format_producer(group: str, producer: ProducerInfo) -> str:
    """The line for one producer, in the format of toString of upstream's object."""
    return (
        f"producer group ({group}) instance : clientId={producer.client_id},remoteIP={producer.remote_ip}, "
        f"language={producer.language}, version={producer.version}, "
        f"lastUpdateTimestamp={producer.last_update_timestamp}\n"
    )


@admin_command("producer", Argument("b", "broker", "broker address", required=True))
def producers(namesrvaddr: str | None, broker: str) -> None:
    """Every producer that is connected to one broker, by group."""

    async def calls(client: AdminClient, report: Report) -> None:
        reply = await client.ask(broker, RequestCode.GET_ALL_PRODUCER_INFO)
        table = body_of(ProducerTable, broker, reply)
        for group, members in sorted(table.data.items()):
            report.text("".join(format_producer(group, member) for member in members))
        report.put(groups=table.to_json()["data"])

    run(calls)


INTERVAL = "60"
PREFIX, NOTIFY = "[MONITOR] ", "[MONITOR]  [NOTIFY] "
MONITORING_RULE = "=" * 41


class Undone(NamedTuple):
    """A group's unconsumed messages of one topic, and the time since the last consumed message in ms (0 if the group has
    caught up)."""

    group: str
    topic: str
    total: int
    most_in_one_queue: int
    delay_ms: int


def format_undone(row: Undone) -> str:
    """The text in the format of toString of upstream's object."""
    return (
        f"{PREFIX}reportUndoneMsgs: UndoneMsgs [consumerGroup={row.group}, topic={row.topic}, "
        f"undoneMsgsTotal={row.total}, undoneMsgsSingleMQ={row.most_in_one_queue}, "
        f"undoneMsgsDelayTimeMills={row.delay_ms}]\n"
    )


def undone_of(group: str, progress: GroupProgress, now_ms: int) -> list[Undone]:
    """The unconsumed messages by topic."""
    of_topic: dict[str, list[OffsetWrapper]] = {}
    for queue, row in progress.offsets.items():
        of_topic.setdefault(queue.topic, []).append(row)
    found = []
    for topic, rows in sorted(of_topic.items()):
        behind = [(row, row.broker_offset - row.consumer_offset) for row in rows]
        delays = [now_ms - row.last_timestamp for row, left in behind if left > 0 and row.last_timestamp > 0]
        total = sum(left for _, left in behind if left > 0)
        found.append(Undone(group, topic, total, max(left for _, left in behind), max(delays, default=0)))
    return found


def undone_json(row: Undone) -> dict[str, Any]:
    """One row for scripts. Its members have the names of upstream's object."""
    return {
        "topic": row.topic,
        "undoneMsgsTotal": row.total,
        "undoneMsgsSingleMQ": row.most_in_one_queue,
        "undoneMsgsDelayTimeMills": row.delay_ms,
    }


@admin_command(
    "startMonitoring",
    Argument("once", "once", "one round, then end (not an option of upstream's)", is_flag=True),
)
def start_monitoring(namesrvaddr: str | None, once: bool) -> None:
    """Once a minute, the lag of each group and the problems of its consumers.

    Invariant: standard output gets what upstream writes to a log file. A group that cannot be queried is named, and
    does not affect the others."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        names = [
            topic.removeprefix(RETRY_PREFIX)
            for topic in await topics.all_topics(client, namesrv)
            if topic.startswith(RETRY_PREFIX)
        ]
        masters = await groups.one_of_each_set(client, namesrv)
        report.text(f"{PREFIX}{MONITORING_RULE}beginRound\n")
        report.put(groups=[])
        for name in sorted(names):
            try:
                await _look_at(client, report, masters, name)
            except AdminError as error:
                report.note(f"group {name} cannot be looked at: {error}")
        report.text(f"{PREFIX}{MONITORING_RULE}endRound\n")

    run(calls, interval=None if once else INTERVAL)


async def _look_at(client: AdminClient, report: Report, masters: list[str], group: str) -> None:
    """Look at the consumers of a group that is online."""
    connected = await groups.consumers(client, masters, group)
    if connected is None:
        return
    now_ms = client.clock.now_ms()
    undone = undone_of(group, await groups.progress(client, masters, group), now_ms)
    report.text("".join(map(format_undone, undone)))
    infos: dict[str, ConsumerQueues] = {}
    for member in connected.connection_set:
        for master in masters:
            try:
                infos[member.client_id] = await clients.queues_of(client, master, group, member.client_id)
                break
            except AdminError:  # another broker has its connection
                continue
    notices: list[str] = []
    if infos and not same_subscription(infos, now_ms):
        notices.append("Subscription different")
    for name, info in sorted(infos.items()):
        notices += [f"ClientId: {name}, {line}" for line in troubles(name, info, now_ms)]
    for notice in notices:
        report.text(f"{NOTIFY}reportConsumerRunningInfo: ConsumerGroup: {group}, {notice}\n")
    report.add("groups", {"group": group, "undone": [undone_json(row) for row in undone], "notices": notices})
