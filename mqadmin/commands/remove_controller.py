"""removeController: a controller is no member of the group any more; one that leads hands over first."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import controllers
from mqadmin.command import Argument, admin_command, run
from mqadmin.commands.add_controller import put_change
from mqadmin.report import Report


@admin_command(
    "removeController",
    Argument("a", "controllerAddress", "The addresses of controllers of the group", required=True),
    Argument("i", "controllerId", "The id of the one that goes; stop it afterwards", required=True),
    Argument("d", "dryRun", "Only ask whether it would, and change nothing", is_flag=True),
)
def command(namesrvaddr: str | None, controlleraddress: str, controllerid: str, dryrun: bool) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        change = await controllers.remove(client, controlleraddress, controllerid, dry_run=dryrun)
        put_change(report, change, dry_run=dryrun)

    run(calls)
