"""getControllerMetaData: one controller's view of its group and leader."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.command import Argument, admin_command, run
from mqadmin.replies import ControllerMetadata
from mqadmin.report import Report, java_text, plain


def format_metadata(metadata: ControllerMetadata) -> str:
    """Upstream's lines; what the controller does not know reads `null`."""
    lines = [
        "",
        f"#ControllerGroup\t{java_text(metadata.group)}",
        f"#ControllerLeaderId\t{java_text(metadata.leader_id)}",
        f"#ControllerLeaderAddress\t{java_text(metadata.leader_address)}",
        *(f"#Peer:\t{peer}" for peer in metadata.peers),
    ]
    return "\n".join(lines) + "\n"


@admin_command(
    "getControllerMetaData",
    Argument("a", "controllerAddress", "the address of controller", required=True),
)
def command(namesrvaddr: str | None, controlleraddress: str) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        metadata = await client.controller_metadata(split_addresses(controlleraddress)[0])
        report.text(format_metadata(metadata))
        report.put(**plain(metadata))

    run(calls)
