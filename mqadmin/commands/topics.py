"""Commands about topics, their queues and the brokers that have them."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import tzinfo
from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.calls import nameservers, topics
from mqadmin.calls.nameservers import ORDER_TOPIC_CONFIG
from mqadmin.command import Argument, UsageWanted, admin_command, boolean, one_wanted, required_namesrv, run
from mqadmin.configfiles import read_list
from mqadmin.errors import AdminError
from mqadmin.replies import BrokerSet, TopicSettings
from mqadmin.report import Report, java_map, java_text, plain
from mqadmin.times import format_time
from mqadmin.wanted import wanted_masters
from remoting.bodies.queues import MessageQueue, TopicOffset
from remoting.bodies.routes import why_no_order_conf
from remoting.bodies.topics import PERM_READ, TopicConfig, TopicConfigList
from remoting.codes import RequestCode


def format_created(address: str) -> str:
    """The line for one broker that has the topic now."""
    return f"create topic to {address} success.\n"


def format_topic(topic: TopicSettings) -> str:
    """The topic in the format of upstream's TopicConfig.toString. The permission letters are R, W and X (inherit)."""
    perm = "".join(letter if topic.perm & bit else "-" for letter, bit in (("R", 4), ("W", 2), ("X", 1)))
    return (
        f"TopicConfig [topicName={topic.name}, readQueueNums={topic.read_queues}, "
        f"writeQueueNums={topic.write_queues}, perm={perm}, topicFilterType=SINGLE_TAG, "
        f"topicSysFlag={topic.sys_flag}, order={java_text(topic.order)}, attributes={java_map(topic.attributes)}]\n"
    )


def _count(option: str, text: str | None, default: int) -> int:
    if text is None:
        return default
    if not text.strip().isdecimal() or not 0 < int(text) <= 65536:
        raise UsageWanted(f"{option} {text}: must be a number of queues, 1 to 65536")
    return int(text)


def perm_of(text: str | None) -> int:
    """The permission in -p, 6 without it. Raises `UsageWanted`."""
    if text is None:
        return 6
    if text.strip() not in ("2", "4", "6"):
        raise UsageWanted(f"-p {text}: must be 2 (write), 4 (read) or 6 (both)")
    return int(text)


def attribute_changes(option: str, text: str | None) -> dict[str, str]:
    """`+a=b,-c` -> {"+a": "b", "-c": ""}: attributes to set and to delete."""
    changes: dict[str, str] = {}
    for part in (text or "").split(","):
        key, _, value = part.strip().partition("=")
        if not key:
            continue
        if key[0] not in "+-" or (key[0] == "+") != bool(value):
            raise UsageWanted(
                f"{option} {text}: write +key=value to set and -key to drop, separated by commas"
            )
        changes[key] = value
    return changes


async def _order(
    client: AdminClient,
    report: Report,
    namesrv: str | None,
    addresses: list[str],
    cluster: str | None,
    topic: TopicSettings,
) -> None:
    """Send name servers the number of queues of an ordered topic on each broker set of a cluster, or on one broker set."""
    known = required_namesrv(namesrv)
    sets = (await client.cluster_info(known)).sets_of(cluster)
    names = [row.broker_name for row in sets if cluster or set(addresses) & set(row.addresses.values())]
    if not names:
        raise AdminError(
            f"{known} knows no broker {', '.join(addresses)}: it has the topic, which has no order conf"
        )
    queues = dict.fromkeys(names, topic.write_queues)
    conf = ";".join(f"{name}:{count}" for name, count in queues.items())
    if cluster:
        await nameservers.put_kv(client, known, nameservers.ORDER_TOPIC_CONFIG, topic.name, conf)
    else:
        await nameservers.add_to_order_conf(client, known, topic.name, queues)
    report.text(f"set {'cluster' if cluster else 'broker'} orderConf. isOrder=true, orderConf=[{conf}]\n")
    report.put(order_conf=conf)


@admin_command(
    "updateTopic",
    Argument("b", "brokerAddr", "create topic to which broker"),
    Argument("c", "clusterName", "create topic to which cluster"),
    Argument("t", "topic", "topic name", required=True),
    Argument("a", "attributes", "attribute(+a=b,+c=d,-e)"),
    Argument("r", "readQueueNums", "set read queue nums"),
    Argument("w", "writeQueueNums", "set write queue nums"),
    Argument("p", "perm", "set topic's permission(2|4|6), intro[2:W 4:R; 6:RW]"),
    Argument("o", "order", "set topic's order(true|false)"),
    Argument("u", "unit", "is unit topic (true|false)"),
    Argument("s", "hasUnitSub", "has unit sub (true|false)"),
)
def update_topic(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    topic: str,
    **given: str | None,
) -> None:
    """Creates or changes a topic on one broker or on every master of a cluster."""
    one_wanted(brokeraddr, clustername)
    settings = TopicSettings(
        name=topic.strip(),
        read_queues=_count("-r", given["readqueuenums"], 8),
        write_queues=_count("-w", given["writequeuenums"], 8),
        perm=perm_of(given["perm"]),
        order=boolean("-o", given["order"]),
        sys_flag=boolean("-u", given["unit"]) | boolean("-s", given["hasunitsub"]) << 1,
        attributes=attribute_changes("-a", given["attributes"]),
    )

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        for address in addresses:
            await client.create_topic(address, settings)
            report.text(format_created(address))
            report.add("brokers", address)
        if settings.order:
            await _order(
                client, report, namesrvaddr, addresses, clustername if not brokeraddr else None, settings
            )
        report.text(format_topic(settings))
        report.put(topic=settings)

    run(calls)


def format_submitted(address: str) -> str:
    return f"submit batch of topic config to {address} success, please check the result later.\n"


@admin_command(
    "updateTopicList",
    Argument("b", "brokerAddr", "create topic to which broker"),
    Argument("c", "clusterName", "create topic to which cluster"),
    Argument(
        "f",
        "filename",
        "Path to a file with list of org.apache.rocketmq.common.TopicConfig in json format",
        required=True,
    ),
)
def update_topic_list(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, filename: str
) -> None:
    """Creates or changes the topics of a file, all or none on each broker."""
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        body = TopicConfigList(read_list(TopicConfig, filename.strip()))
        for address in await wanted_masters(client, brokeraddr, namesrvaddr, clustername):
            await client.ask(address, RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=body.encode())
            report.text(format_submitted(address))
            report.add("brokers", address)
        report.put(topics=[topic.topic_name for topic in body.topic_config_list])

    run(calls)


def format_deleted(topic: str, cluster: str) -> str:
    return (
        f"delete topic [{topic}] from cluster [{cluster}] success.\n"
        f"delete topic [{topic}] from NameServer success.\n"
    )


@admin_command(
    "deleteTopic",
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "clusterName", "delete topic from which cluster", required=True),
)
def delete_topic(namesrvaddr: str | None, topic: str, clustername: str) -> None:
    """Deletes a topic from the masters of a cluster and from the name servers."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        masters = await client.masters(namesrv, clustername)
        there = [await client.knows_topic(master, topic) for master in masters]
        if not any(there) and not await topics.is_routed(client, namesrv, topic):
            raise AdminError(
                f"no broker of cluster {clustername} has topic {topic}; topicList shows what is there"
            )
        for master in masters:
            await topics.delete_on_broker(client, master, topic)
        await topics.delete_on_name_servers(client, namesrv, topic, clustername)
        report.text(format_deleted(topic, clustername))
        report.put(topic=topic, cluster_name=clustername, brokers=masters)

    run(calls)


SAME = "new perm equals to the old one!\n"


def format_changed(old: int, new: int, address: str) -> str:
    return f"update topic perm from {old} to {new} in {address} success.\n"


@admin_command(
    "updateTopicPerm",
    Argument("b", "brokerAddr", "create topic to which broker"),
    Argument("c", "clusterName", "create topic to which cluster"),
    Argument("t", "topic", "topic name", required=True),
    Argument("p", "perm", "set topic's permission(2|4|6), intro[2:W; 4:R; 6:RW]", required=True),
)
def update_topic_perm(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, topic: str, perm: str
) -> None:
    """Changes the permission of a topic, and nothing else of it, on one master or on all of a cluster."""
    one_wanted(brokeraddr, clustername)
    wanted, name, namesrv = perm_of(perm), topic.strip(), required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        holders = await topics.holders(client, namesrv, name, clustername if not brokeraddr else None)
        addresses = [holder.address for holder in holders if brokeraddr in (None, holder.address)]
        if not addresses:
            raise AdminError(
                f"{brokeraddr} is no master that has topic {name}; topicRoute shows the brokers that have it"
            )
        for address in addresses:
            now = await topics.settings_of(client, address, name)
            if now.perm == wanted:
                report.text(SAME)
            else:
                await client.create_topic(address, replace(now, perm=wanted))
                report.text(format_changed(now.perm, wanted, address))
                if brokeraddr:
                    report.text(format_topic(replace(now, perm=wanted)).rstrip("\n") + ".\n")
            report.add("brokers", {"address": address, "permBefore": now.perm, "perm": wanted})

    run(calls)


LIST_COLUMNS = "{:<45} {:<32} {:<50} {:<10} {:<11} {:<5}\n"
LIST_HEADING = LIST_COLUMNS.format(
    "#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"
)
LIST_RULE = "-" * 158 + "\n"


def format_json(route: dict[str, Any]) -> str:
    """The route in the format of upstream's JSON library: tabs, sorted keys, bare and unbroken broker ids."""
    return _pretty({key: value for key, value in route.items() if value is not None}, 0) + "\n"


def format_list(route: dict[str, Any]) -> str:
    """One line per broker set and a total."""
    sets = {row["brokerName"]: BrokerSet.from_json(row) for row in route.get("brokerDatas") or ()}
    queues = [row for row in route.get("queueDatas") or () if row["brokerName"] in sets]
    lines = [LIST_HEADING]
    for row in queues:
        brokers = sets[row["brokerName"]]
        lines.append(
            LIST_COLUMNS.format(
                brokers.cluster,
                brokers.broker_name,
                java_map(brokers.addresses),
                row["readQueueNums"],
                row["writeQueueNums"],
                row["perm"],
            )
        )
    total_read = sum(row["readQueueNums"] for row in queues)
    total_write = sum(row["writeQueueNums"] for row in queues)
    total = LIST_COLUMNS.format("Total:", len(queues), "", total_read, total_write, "")
    return "".join([*lines, LIST_RULE, total])


def _pretty(value: Any, depth: int) -> str:
    inner, outer = "\n" + "\t" * (depth + 1), "\n" + "\t" * depth
    if isinstance(value, dict) and value:
        if all(key.isdecimal() for key in value):
            rows = sorted(value.items(), key=lambda row: int(row[0]))
            return "{" + ",".join(f"{key}:{_pretty(item, depth + 1)}" for key, item in rows) + outer + "}"
        rows = sorted(value.items())
        return (
            "{" + ",".join(f'{inner}"{key}":{_pretty(item, depth + 1)}' for key, item in rows) + outer + "}"
        )
    if isinstance(value, list) and value:
        return "[" + ",".join(inner + _pretty(item, depth + 1) for item in value) + outer + "]"
    return json.dumps(value, ensure_ascii=False)


@admin_command(
    "topicRoute",
    Argument("t", "topic", "topic name", required=True),
    Argument("l", "list", "Use list format to print data", is_flag=True),
)
def topic_route(namesrvaddr: str | None, topic: str, list: bool) -> None:
    """Which brokers serve a topic, as JSON in upstream's layout or as a list."""

    async def calls(client: AdminClient, report: Report) -> None:
        route = await client.topic_route(required_namesrv(namesrvaddr), topic)
        report.text(format_list(route) if list else format_json(route))
        report.put(route=route)

    run(calls)


COLUMNS = "{:<32}  {:<4}  {:<20}  {:<20}    {}\n"
TOPIC_STATUS_HEADING = COLUMNS.format("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated")

Offsets = dict[MessageQueue, TopicOffset]


def format_offsets(offsets: Offsets, zone: tzinfo | None = None) -> str:
    """HEADING and one line per queue, ordered by broker and queue. A queue that never had a message has no time."""
    return TOPIC_STATUS_HEADING + "".join(
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
    """The last line: messages per second that the brokers receive for this topic."""
    return f"\nTopic Put TPS: {per_second}\n"


def queue_order(row: tuple[MessageQueue, TopicOffset]) -> tuple[str, int]:
    return row[0].broker_name, row[0].queue_id


@admin_command(
    "topicStatus",
    Argument("t", "topic", "topic name", required=True),
    Argument("c", "cluster", "cluster name"),
)
def topic_status(namesrvaddr: str | None, topic: str, cluster: str | None) -> None:
    """The offsets of each queue of a topic."""

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


@admin_command("topicClusterList", Argument("t", "topic", "topic name", required=True))
def topic_clusters(namesrvaddr: str | None, topic: str) -> None:
    """The clusters that have a topic."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        holders = await topics.holders(client, namesrv, topic.strip())
        clusters = sorted({holder.cluster for holder in holders})
        report.text("".join(f"{cluster}\n" for cluster in clusters))
        report.put(topic=topic.strip(), clusters=clusters)

    run(calls)


TOPIC_LIST_HEADING = "{:<20}  {:<48}  {:<48}\n".format("#Cluster Name", "#Topic", "#Consumer Group")


def format_topic_row(cluster: str, topic: str, group: str) -> str:
    """A line under TOPIC_LIST_HEADING. Names longer than 64 characters are cut, as in upstream."""
    return f"{cluster[:20]:<20}  {topic[:64]:<64}  {group[:64]:<64}\n"


@admin_command(
    "topicList",
    Argument("c", "clusterModel", "clusterModel", is_flag=True),
)
def topic_list(namesrvaddr: str | None, clustermodel: bool) -> None:
    """The topics that the name server knows, on request with their clusters and consumer groups."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        names = await topics.all_topics(client, namesrv)
        if not clustermodel:
            report.text("".join(f"{name}\n" for name in names))
            report.put(topics=names)
            return
        report.text(TOPIC_LIST_HEADING)
        report.put(topics=[])
        skipped = (topics.RETRY_PREFIX, topics.DEAD_LETTER_PREFIX)
        failed: list[str] = []
        for name in names:
            if name.startswith(skipped):
                continue
            try:
                holders = await topics.holders(client, namesrv, name)
                groups = {
                    group for row in holders for group in await topics.groups_of(client, row.address, name)
                }
            except AdminError as error:
                failed.append(f"{name}: {error}")
                continue
            for group in sorted(groups) or [""]:
                report.text(format_topic_row(holders[0].cluster, name, group))
            report.add("topics", {"cluster": holders[0].cluster, "topic": name, "groups": sorted(groups)})
        if failed:
            raise AdminError(f"{len(failed)} topics are missing from the list; the first is {failed[0]}")

    run(calls)


METHODS = "put", "get", "delete"


def format_order_conf_done(method: str, topic: str, conf: str | None) -> str:
    """Upstream's line of each method, without a line end."""
    verb = {"put": "update", "get": "get", "delete": "delete"}[method]
    shown = f", orderConf=[{conf}]" if conf is not None else ""
    return f"{verb} orderConf success. topic=[{topic}]{shown}{' ' if method == 'get' else ''}"


@admin_command(
    "updateOrderConf",
    Argument("t", "topic", "topic name", required=True),
    Argument("v", "orderConf", "set order conf [eg. brokerName1:num;brokerName2:num]"),
    Argument("m", "method", "option type [eg. put|get|delete", required=True),
)
def update_order_conf(namesrvaddr: str | None, topic: str, orderconf: str | None, method: str) -> None:
    """The number of queues of an ordered topic on each broker set, which name servers return to clients if
    orderMessageEnable is set."""
    namesrv = required_namesrv(namesrvaddr)
    name, wanted, conf = topic.strip(), method.strip(), (orderconf or "").strip()
    if wanted not in METHODS:
        raise UsageWanted(f"-m {method}: must be put, get or delete")
    if wanted == "put" and (why := why_no_order_conf(conf)) is not None:
        raise UsageWanted(f"-v {orderconf or ''}: {why}")

    async def calls(client: AdminClient, report: Report) -> None:
        shown: str | None = None
        if wanted == "put":
            shown = conf
            await nameservers.put_kv(client, namesrv, ORDER_TOPIC_CONFIG, name, conf)
        elif wanted == "get":
            shown = await nameservers.get_kv(client, namesrv, ORDER_TOPIC_CONFIG, name)
        else:
            await nameservers.delete_kv(client, namesrv, ORDER_TOPIC_CONFIG, name)
        report.text(format_order_conf_done(wanted, name, shown))
        report.put(topic=name, order_conf=shown)

    run(calls)


def shares(queues: list[MessageQueue], consumers: list[str]) -> dict[str, list[MessageQueue]]:
    """Give consecutive queues to each consumer in turn. If the queues cannot be divided evenly, the first consumers get one
    more."""
    each, more = divmod(len(queues), len(consumers))
    found: dict[str, list[MessageQueue]] = {}
    start = 0
    for number, consumer in enumerate(consumers):
        count = each + (number < more)
        found[consumer] = queues[start : start + count]
        start += count
    return found


@admin_command(
    "allocateMQ",
    Argument("t", "topic", "topic name", required=True),
    Argument("i", "ipList", "ipList", required=True),
)
def allocate_mq(namesrvaddr: str | None, topic: str, iplist: str) -> None:
    """The distribution of a topic's queues to consumers with the given addresses, by the clients' default strategy.

    Invariant: only the name server is asked; each queue goes to exactly one of them."""
    consumers = list(dict.fromkeys(part.strip() for part in iplist.split(",") if part.strip()))
    if not consumers:
        raise UsageWanted(f"-i {iplist}: give addresses of consumers, separated by commas")

    async def calls(client: AdminClient, report: Report) -> None:
        name = topic.strip()
        route = await client.topic_route(required_namesrv(namesrvaddr), name)
        queues = [
            MessageQueue(name, row["brokerName"], queue_id)
            for row in sorted(route.get("queueDatas") or (), key=lambda row: str(row["brokerName"]))
            for queue_id in range(row["readQueueNums"] if row["perm"] & PERM_READ else 0)
        ]
        found = shares(queues, consumers)
        result = {
            consumer: [
                queue.to_json()
                for queue in sorted(of_one, key=lambda queue: (queue.broker_name, queue.queue_id))
            ]
            for consumer, of_one in found.items()
        }
        report.text(json.dumps({"result": result}, separators=(",", ":")) + "\n")
        report.put(result=plain(result))

    run(calls)
