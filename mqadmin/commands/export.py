"""Commands that write a cluster's data into files."""

from __future__ import annotations

from typing import Any

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import brokerstats, configs, groups, metadata
from mqadmin.calls.brokerstats import TOPIC_PUT_NUMS, day_sum
from mqadmin.command import Argument, UsageWanted, admin_command, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.exports import write_json
from mqadmin.replies import BrokerSet
from mqadmin.report import Report
from mqadmin.versions import version_name
from remoting.command import VERSION

CONFIGS_FILE = "configs.json"
KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
"""The keys that upstream selects. A key that a broker does not have is missing in the file."""


async def _sets_with_masters(client: AdminClient, namesrv: str, cluster: str) -> list[BrokerSet]:
    """The broker sets of a cluster that have a master. Raises `AdminError` if none has."""
    sets = [row for row in (await client.cluster_info(namesrv)).sets_of(cluster) if 0 in row.addresses]
    if not sets:
        raise AdminError(f"{namesrv} knows no master of cluster {cluster}; clusterList shows what is there")
    return sets


@admin_command(
    "exportConfigs",
    Argument("c", "clusterName", "choose a cluster to export", required=True),
    Argument("f", "filePath", "export configs.json path | default /tmp/rocketmq/export"),
)
def export_configs(namesrvaddr: str | None, clustername: str, filepath: str | None) -> None:
    """The size of a cluster and the settings of its masters, as a JSON file."""
    namesrv, cluster = required_namesrv(namesrvaddr), clustername.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        sets = await _sets_with_masters(client, namesrv, cluster)
        found: dict[str, dict[str, str]] = {}
        for brokers in sets:
            settings = await configs.settings_of(client, configs.BROKERS, brokers.addresses[0])
            found[brokers.broker_name] = {key: settings[key] for key in KEYS if key in settings}
        scale = {
            "namesrvSize": len(split_addresses(namesrv)),
            "masterBrokerSize": len(sets),
            "slaveBrokerSize": sum(len(row.addresses) - 1 for row in sets),
        }
        path = write_json(filepath, CONFIGS_FILE, {"brokerConfigs": found, "clusterScale": scale})
        report.text(f"export {path} success\n")
        report.put(file=str(path), broker_configs=found, cluster_scale=scale)

    run(calls)


FILES = {"topicConfigTable": "topic.json", "subscriptionGroupTable": "subscriptionGroup.json"}
BOTH = "metadata.json"


def add_up(total: dict[str, Any], table: dict[str, Any], counts: tuple[str, ...]) -> None:
    """Add the rows of one broker set. The members named in `counts` are added to those of an existing row."""
    for name, row in table.items():
        known = total.get(name)
        total[name] = row if known is None else row | {key: known[key] + row[key] for key in counts}


@admin_command(
    "exportMetadata",
    Argument("c", "clusterName", "choose a cluster to export"),
    Argument("b", "brokerAddr", "choose a broker to export"),
    Argument("f", "filePath", "export metadata.json path | default /tmp/rocketmq/export"),
    Argument("t", "topic", "only export topic metadata", is_flag=True),
    Argument("g", "subscriptionGroup", "only export subscriptionGroup metadata", is_flag=True),
    Argument("s", "specialTopic", "need retryTopic and dlqTopic", is_flag=True),
)
def export_metadata(
    namesrvaddr: str | None,
    clustername: str | None,
    brokeraddr: str | None,
    filepath: str | None,
    topic: bool,
    subscriptiongroup: bool,
    specialtopic: bool,
) -> None:
    """The topics and groups of a cluster, or of one broker, as a JSON file.

    Invariant: the system's own are left out; queue numbers of several broker sets are added up, as in upstream."""
    one_wanted(brokeraddr, clustername)
    if topic and subscriptiongroup:
        raise UsageWanted("-t and -g each leave out the other: give neither for both")

    async def calls(client: AdminClient, report: Report) -> None:
        masters = (
            [brokeraddr]
            if brokeraddr
            else await client.masters(required_namesrv(namesrvaddr), clustername or "")
        )
        tables: dict[str, dict[str, Any]] = {}
        for master in masters:
            if not subscriptiongroup:
                found = await metadata.user_topics(client, master, with_special=specialtopic)
                add_up(tables.setdefault("topicConfigTable", {}), found, ("readQueueNums", "writeQueueNums"))
            if not topic:
                found = await metadata.user_groups(client, master)
                add_up(tables.setdefault("subscriptionGroupTable", {}), found, ("retryQueueNums",))
        name = BOTH if len(tables) > 1 else FILES[next(iter(tables))]
        path = write_json(filepath, name, {**tables, "exportTime": client.clock.now_ms()})
        report.text(f"export {path} success\n")
        report.put(file=str(path), **tables)

    run(calls)


METRICS_FILE = "metrics.json"
HALF_TOPIC, SCHEDULE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


def rate(text: str | None) -> float:
    """The first of a broker's three numbers. A Java broker returns no number in its first seconds."""
    return float(next(iter((text or "").split()), 0))


def day_count(info: dict[str, str], what: str) -> int:
    """The count of yesterday, by the broker's clock."""
    return int(info.get(f"{what}TotalTodayMorning", 0)) - int(info.get(f"{what}TotalYesterdayMorning", 0))


@admin_command(
    "exportMetrics",
    Argument("c", "clusterName", "choose a cluster to export", required=True),
    Argument("f", "filePath", "export metrics.json path | default /tmp/rocketmq/export"),
)
def export_metrics(namesrvaddr: str | None, clustername: str, filepath: str | None) -> None:
    """The load of the brokers of a cluster, as a JSON file."""
    namesrv, cluster = required_namesrv(namesrvaddr), clustername.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        sets = await _sets_with_masters(client, namesrv, cluster)
        brokers: dict[str, dict[str, Any]] = {}
        for row in sets:
            brokers[row.broker_name] = await _report_of(client, row.addresses[0])
        quotas = [each["runtimeQuota"] for each in brokers.values()]
        total = {
            "totalTps": {
                f"total{name[0].upper()}{name[1:]}": sum(quota["tps"][name] for quota in quotas)
                for name in quotas[0]["tps"]
            },
            "totalOneDayNum": {
                name: sum(quota["oneDayNum"][name] for quota in quotas) for name in quotas[0]["oneDayNum"]
            },
        }
        path = write_json(filepath, METRICS_FILE, {"evaluateReport": brokers, "totalData": total})
        report.text(f"export {path} success\n")
        report.put(file=str(path), evaluate_report=brokers, total_data=total)

    run(calls)


async def _report_of(client: AdminClient, master: str) -> dict[str, Any]:
    info = await client.runtime_info(master)
    settings = await configs.settings_of(client, configs.BROKERS, master)
    of_groups = await metadata.user_groups(client, master)
    of_topics = await metadata.user_topics(client, master)
    half = await brokerstats.recent(client, master, TOPIC_PUT_NUMS, HALF_TOPIC)
    delayed = await brokerstats.recent(client, master, TOPIC_PUT_NUMS, SCHEDULE_TOPIC)
    versions: set[str] = set()
    for name in of_groups:
        connected = await groups.consumers(client, [master], name)
        for member in connected.connection_set if connected is not None else ():
            versions.add(f"{member.language}%{version_name(member.version)}")
    return {
        "runtimeEnv": {
            "cpuNum": settings.get("clientCallbackExecutorThreads"),
            "totalMemKBytes": info.get("totalMemKBytes"),
        },
        "runtimeQuota": {
            "diskRatio": {name: info.get(name) for name in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "tps": {
                "normalInTps": rate(info.get("putTps")),
                "normalOutTps": rate(info.get("getTransferredTps")),
                "transInTps": half.stats_minute.tps,
                "scheduleInTps": delayed.stats_minute.tps,
            },
            "oneDayNum": {
                "normalOneDayInNum": day_count(info, "msgPut"),
                "normalOneDayOutNum": day_count(info, "msgGet"),
                "transOneDayInNum": day_sum(half),
                "scheduleOneDayInNum": day_sum(delayed),
            },
            "messageAverageSize": info.get("putMessageAverageSize"),
            "topicSize": len(of_topics),
            "groupSize": len(of_groups),
        },
        "runtimeVersion": {"rocketmqVersion": version_name(VERSION), "clientInfo": sorted(versions)},
    }
