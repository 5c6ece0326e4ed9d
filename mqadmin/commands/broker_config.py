"""getBrokerConfig: the settings that are in force on brokers."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError
from mqadmin.replies import BrokerSet
from mqadmin.report import Report


def headings(sets: list[BrokerSet]) -> list[tuple[str, str]]:
    """(address, heading) of each broker of a cluster: every master, then its slaves."""
    rows: list[tuple[str, str]] = []
    for brokers in sets:
        master = brokers.addresses.get(0, "NO_MASTER")
        for broker_id, address in brokers.addresses.items():
            slave = f"My Master: {master}=====Slave: {address}"
            rows.append((address, f"Master: {address}" if broker_id == 0 else slave))
    return rows


@admin_command(
    "getBrokerConfig",
    Argument("b", "brokerAddr", "get which broker"),
    Argument("c", "clusterName", "get which cluster"),
)
def command(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None) -> None:
    one_wanted(brokeraddr, clustername, not_both=True)

    async def calls(client: AdminClient, report: Report) -> None:
        if brokeraddr:
            wanted = [(brokeraddr, brokeraddr)]
        else:
            info = await client.cluster_info(required_namesrv(namesrvaddr))
            wanted = headings(info.sets_of(clustername))
        if not wanted:
            raise AdminError(f"cluster {clustername} is unknown; clusterList shows what is registered")
        found: dict[str, dict[str, str]] = {}
        for address, heading in wanted:
            found[address] = await configs.settings_of(client, configs.BROKERS, address)
            report.text(configs.format_settings(heading, found[address]) + "\n")
            report.put(brokers=found)

    run(calls)
