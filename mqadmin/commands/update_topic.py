"""updateTopic: creates or changes a topic on one broker or on every master of a cluster."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import nameservers
from mqadmin.command import Argument, UsageWanted, admin_command, boolean, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.replies import TopicSettings
from mqadmin.report import Report, java_map, java_text
from mqadmin.wanted import wanted_masters


def format_created(address: str) -> str:
    """The line for one broker that has the topic now."""
    return f"create topic to {address} success.\n"


def format_topic(topic: TopicSettings) -> str:
    """The topic as upstream's TopicConfig writes itself; the permission letters are R, W and X (inherit)."""
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
    """The permission that -p gives, 6 without it. Raises `UsageWanted`."""
    if text is None:
        return 6
    if text.strip() not in ("2", "4", "6"):
        raise UsageWanted(f"-p {text}: must be 2 (write), 4 (read) or 6 (both)")
    return int(text)


def attribute_changes(option: str, text: str | None) -> dict[str, str]:
    """`+a=b,-c` -> {"+a": "b", "-c": ""}: what to set and what to drop."""
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
    """Tells name servers how many queues of an ordered topic each broker set has: of a cluster all at once, or of one."""
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
def command(
    namesrvaddr: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    topic: str,
    **given: str | None,
) -> None:
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
