"""updateKvConfig: sets one value of the name servers' key-value store."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls import nameservers
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.report import Report

DONE = "create or update kv config to namespace success.\n"


@admin_command(
    "updateKvConfig",
    Argument("s", "namespace", "set the namespace", required=True),
    Argument("k", "key", "set the key name", required=True),
    Argument("v", "value", "set the key value", required=True, may_be_empty=True),
)
def command(namesrvaddr: str | None, namespace: str, key: str, value: str) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        wanted = (namespace.strip(), key.strip(), value.strip())
        report.put(name_servers=await nameservers.put_kv(client, namesrv, *wanted))
        report.text(DONE)

    run(calls)
