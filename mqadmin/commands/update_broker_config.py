"""updateBrokerConfig: changes one setting of running brokers."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, boolean, one_wanted, run
from mqadmin.report import Report
from mqadmin.wanted import members_of, wanted_masters


def format_updated(address: str) -> str:
    return f"update broker config success, {address}\n"


@admin_command(
    "updateBrokerConfig",
    Argument("a", "updateAllBroker", "update all brokers include slave", alone="true"),
    Argument("b", "brokerAddr", "update which broker"),
    Argument("c", "clusterName", "update which cluster"),
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def command(
    namesrvaddr: str | None,
    updateallbroker: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    key: str,
    value: str,
) -> None:
    one_wanted(brokeraddr, clustername)
    slaves_too = boolean("-a", updateallbroker)

    async def calls(client: AdminClient, report: Report) -> None:
        if slaves_too and not brokeraddr:
            addresses = await members_of(client, namesrvaddr, clustername)
        else:
            addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        report.put(key=key, value=value, brokers=[])
        async for address in configs.changed(client, configs.BROKERS, addresses, key, value):
            report.text(format_updated(address))
            report.add("brokers", address)

    run(calls)
