"""wipeWritePerm: name servers tell producers of no queue of a broker set any more, until it registers something new."""

from __future__ import annotations

from mqadmin.command import Argument, admin_command
from mqadmin.writepermission import set_everywhere


@admin_command("wipeWritePerm", Argument("b", "brokerName", "broker name", required=True))
def command(namesrvaddr: str | None, brokername: str) -> None:
    set_everywhere(namesrvaddr, brokername.strip(), allowed=False)
