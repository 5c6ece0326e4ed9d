"""getControllerConfig: the settings that are in force on controllers."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, run
from mqadmin.report import Report

ADDRESS_HELP = "Controller address list, eg: 192.168.0.1:9878;192.168.0.2:9878"


@admin_command(
    "getControllerConfig",
    Argument("a", "controllerAddress", ADDRESS_HELP, required=True),
)
def command(namesrvaddr: str | None, controlleraddress: str) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        found: dict[str, dict[str, str]] = {}
        for address in split_addresses(controlleraddress):
            found[address] = await configs.settings_of(client, configs.CONTROLLERS, address)
            report.text(configs.format_settings(address, found[address]))
            report.put(controllers=found)

    run(calls)
