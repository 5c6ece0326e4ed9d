"""updateBrokerConfig: changes one setting of running brokers."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, one_wanted, required_namesrv, run
from mqadmin.errors import AdminError, all_failed
from mqadmin.report import Report


def format_updated(address: str) -> str:
    return f"update broker config success, {address}\n"


@admin_command(
    "updateBrokerConfig",
    "Update broker's config.",
    Argument("a", "updateAllBroker", "update all brokers include slave", is_flag=True),
    Argument("b", "brokerAddr", "update which broker"),
    Argument("c", "clusterName", "update which cluster"),
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def command(
    namesrvaddr: str | None,
    updateallbroker: bool,
    brokeraddr: str | None,
    clustername: str | None,
    key: str,
    value: str,
) -> None:
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        namesrv = "" if brokeraddr else required_namesrv(namesrvaddr)
        if brokeraddr:
            addresses = [brokeraddr]
        elif updateallbroker:
            sets = (await client.cluster_info(namesrv)).sets_of(clustername)
            addresses = [address for brokers in sets for address in brokers.addresses.values()]
        else:
            addresses = await client.masters(namesrv, clustername or "")
        if not addresses:
            raise AdminError(f"cluster {clustername} is unknown; clusterList shows what is registered")
        report.put(key=key, value=value, brokers=[])
        failed: list[AdminError] = []
        for address in addresses:
            try:
                await configs.change_broker(client, address, key, value)
            except AdminError as error:
                failed.append(error)
                continue
            report.text(format_updated(address))
            report.add("brokers", address)
        if failed:
            raise all_failed(failed, len(addresses), "brokers")

    run(calls)
