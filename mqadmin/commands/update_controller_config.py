"""updateControllerConfig: changes one setting of running controllers, each for itself."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, run
from mqadmin.commands.controller_config import ADDRESS_HELP
from mqadmin.errors import AdminError, all_failed
from mqadmin.report import Report


def format_updated(addresses: list[str], key: str, value: str) -> str:
    return f"update controller config success![{', '.join(addresses)}]\n{key} : {value}\n"


@admin_command(
    "updateControllerConfig",
    Argument("a", "controllerAddress", ADDRESS_HELP, required=True),
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def command(namesrvaddr: str | None, controlleraddress: str, key: str, value: str) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        addresses = split_addresses(controlleraddress)
        report.put(key=key, value=value, controllers=[])
        failed: list[AdminError] = []
        for address in addresses:
            try:
                await configs.change_controller(client, address, key, value)
            except AdminError as error:
                failed.append(error)
            else:
                report.add("controllers", address)
        if failed:
            raise all_failed(failed, len(addresses), "controllers")
        report.text(format_updated(addresses, key, value))

    run(calls)
