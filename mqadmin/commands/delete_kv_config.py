"""deleteKvConfig: removes one value of the name servers' key-value store."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import nameservers
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.report import Report

DONE = "delete kv config from namespace success.\n"


@admin_command(
    "deleteKvConfig",
    Argument("s", "namespace", "set the namespace", required=True),
    Argument("k", "key", "set the key name", required=True),
)
def command(namesrvaddr: str | None, namespace: str, key: str) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        gone_from = await nameservers.delete_kv(client, namesrv, namespace.strip(), key.strip())
        report.put(name_servers=gone_from)
        report.text(DONE)

    run(calls)
