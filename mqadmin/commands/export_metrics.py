"""exportMetrics: how much the brokers of a cluster have to do, as a JSON file."""

from __future__ import annotations

from typing import Any

from mqadmin.admin import AdminClient
from mqadmin.calls import brokerstats, configs, groups, metadata
from mqadmin.calls.brokerstats import TOPIC_PUT_NUMS, day_sum
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.exports import write_json
from mqadmin.report import Report
from mqadmin.versions import version_name
from remoting.command import VERSION

FILE = "metrics.json"
HALF_TOPIC, SCHEDULE_TOPIC = "RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"


def rate(text: str | None) -> float:
    """The first of the three numbers that a broker gives; a Java one gives none in its first seconds."""
    return float(next(iter((text or "").split()), 0))


def day_count(info: dict[str, str], what: str) -> int:
    """Of yesterday, as a broker counts days."""
    return int(info.get(f"{what}TotalTodayMorning", 0)) - int(info.get(f"{what}TotalYesterdayMorning", 0))


@admin_command(
    "exportMetrics",
    Argument("c", "clusterName", "choose a cluster to export", required=True),
    Argument("f", "filePath", "export metrics.json path | default /tmp/rocketmq/export"),
)
def command(namesrvaddr: str | None, clustername: str, filepath: str | None) -> None:
    namesrv, cluster = required_namesrv(namesrvaddr), clustername.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        sets = [row for row in (await client.cluster_info(namesrv)).sets_of(cluster) if 0 in row.addresses]
        if not sets:
            raise AdminError(
                f"{namesrv} knows no master of cluster {cluster}; clusterList shows what is there"
            )
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
        path = write_json(filepath, FILE, {"evaluateReport": brokers, "totalData": total})
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
