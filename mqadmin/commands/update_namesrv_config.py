"""updateNamesrvConfig: changes one setting of every name server of the list, while they run."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.report import Report


def format_updated(addresses: list[str], key: str, value: str) -> str:
    """Upstream's lines; its list of name servers is printed as Java prints lists."""
    return f"update name server config success![{', '.join(addresses)}]\n{key} : {value}\n"


@admin_command(
    "updateNamesrvConfig",
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def command(namesrvaddr: str | None, key: str, value: str) -> None:
    addresses = split_addresses(required_namesrv(namesrvaddr))

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(key=key, value=value, name_servers=[])
        done: list[str] = []
        async for address in configs.changed(client, configs.NAMESRVS, addresses, key, value):
            done.append(address)
            report.add("nameServers", address)
        report.text(format_updated(done, key, value))

    run(calls)
