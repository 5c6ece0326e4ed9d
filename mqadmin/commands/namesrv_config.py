"""getNamesrvConfig: the settings that are in force on each name server of the list."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs
from mqadmin.command import admin_command, required_namesrv, run
from mqadmin.report import Report


@admin_command("getNamesrvConfig")
def command(namesrvaddr: str | None) -> None:
    addresses = split_addresses(required_namesrv(namesrvaddr))

    async def calls(client: AdminClient, report: Report) -> None:
        found: dict[str, dict[str, str]] = {}
        for address in addresses:
            found[address] = await configs.settings_of(client, configs.NAMESRVS, address)
            report.text(configs.format_settings(address, found[address]))
            report.put(name_servers=found)

    run(calls)
