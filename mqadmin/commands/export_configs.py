"""exportConfigs: how big a cluster is and how its masters are set, as a JSON file."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.exports import write_json
from mqadmin.report import Report

FILE = "configs.json"
KEYS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
"""Upstream's choice; a broker without such a key has none in the file."""


@admin_command(
    "exportConfigs",
    Argument("c", "clusterName", "choose a cluster to export", required=True),
    Argument("f", "filePath", "export configs.json path | default /tmp/rocketmq/export"),
)
def command(namesrvaddr: str | None, clustername: str, filepath: str | None) -> None:
    namesrv, cluster = required_namesrv(namesrvaddr), clustername.strip()

    async def calls(client: AdminClient, report: Report) -> None:
        sets = [row for row in (await client.cluster_info(namesrv)).sets_of(cluster) if 0 in row.addresses]
        if not sets:
            raise AdminError(
                f"{namesrv} knows no master of cluster {cluster}; clusterList shows what is there"
            )
        found: dict[str, dict[str, str]] = {}
        for brokers in sets:
            settings = await configs.settings_of(client, configs.BROKERS, brokers.addresses[0])
            found[brokers.broker_name] = {key: settings[key] for key in KEYS if key in settings}
        scale = {
            "namesrvSize": len(split_addresses(namesrv)),
            "masterBrokerSize": len(sets),
            "slaveBrokerSize": sum(len(row.addresses) - 1 for row in sets),
        }
        path = write_json(filepath, FILE, {"brokerConfigs": found, "clusterScale": scale})
        report.text(f"export {path} success\n")
        report.put(file=str(path), broker_configs=found, cluster_scale=scale)

    run(calls)
