"""cleanExpiredCQ: lets brokers delete files of queues that lead to nothing any more."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.calls.retention import ask_brokers
from mqadmin.command import Argument, admin_command, run
from mqadmin.report import Report
from remoting.codes import RequestCode


@admin_command(
    "cleanExpiredCQ",
    Argument("b", "brokerAddr", "Broker address"),
    Argument("c", "cluster", "clustername"),
)
def command(namesrvaddr: str | None, brokeraddr: str | None, cluster: str | None) -> None:
    async def calls(client: AdminClient, report: Report) -> None:
        await ask_brokers(
            client, report, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, brokeraddr, namesrvaddr, cluster
        )

    run(calls)
