"""updateControllerConfig: changes one setting of running controllers, each for itself."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.calls import configs
from mqadmin.command import Argument, admin_command, run
from mqadmin.commands.controller_config import ADDRESS_HELP
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
        async for address in configs.changed(client, configs.CONTROLLERS, addresses, key, value):
            report.add("controllers", address)
        report.text(format_updated(addresses, key, value))

    run(calls)
