"""leadershipTransfer: the leading controller hands its leadership to another one."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import leadership
from mqadmin.command import Argument, admin_command, run
from mqadmin.report import Report


@admin_command(
    "leadershipTransfer",
    Argument("a", "controllerAddress", "The address of controller", required=True),
    Argument("t", "transfereeId", "The id of the controller that is to lead; left out: the leader chooses"),
)
def command(namesrvaddr: str | None, controlleraddress: str, transfereeid: str | None) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        moved = await leadership.transfer(client, controlleraddress, transfereeid or "")
        report.text(
            f"\n#ControllerGroup\t{moved.group}\n#FormerLeaderId\t{moved.former_id}\n#ControllerLeaderId\t{moved.leader_id}"
            f"\n#ControllerLeaderAddress\t{moved.leader_address}\n"
        )
        report.put(**moved._asdict())

    run(calls)
