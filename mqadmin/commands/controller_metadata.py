"""getControllerMetaData: one controller's view of its group and leader."""

from __future__ import annotations

from mqadmin.admin import AdminClient, split_addresses
from mqadmin.command import Argument, admin_command, run
from mqadmin.replies import ControllerMetadata
from mqadmin.report import Report, plain


def format_metadata(metadata: ControllerMetadata) -> str:
    """Upstream's lines; what the controller does not know reads `null`."""
    lines = [
        "",
        f"#ControllerGroup\t{_or_null(metadata.group)}",
        f"#ControllerLeaderId\t{_or_null(metadata.leader_id)}",
        f"#ControllerLeaderAddress\t{_or_null(metadata.leader_address)}",
        *(f"#Peer:\t{peer}" for peer in metadata.peers),
    ]
    return "\n".join(lines) + "\n"


def _or_null(text: str | None) -> str:
    return "null" if text is None else text


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
