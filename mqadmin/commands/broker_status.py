"""brokerStatus: what a broker tells of itself, sorted by key."""

from __future__ import annotations

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, one_wanted, run
from mqadmin.errors import AdminError, ServerUnreachable
from mqadmin.report import Report
from mqadmin.wanted import members_of


def format_status(table: dict[str, str], address: str | None = None) -> str:
    """A line per key; with `address` each line begins with it, for lists of several brokers."""
    before = "" if address is None else f"{address:<24} "
    return "".join(f"{before}{key:<32}: {table[key]}\n" for key in sorted(table))


@admin_command(
    "brokerStatus",
    Argument("b", "brokerAddr", "Broker address"),
    Argument("c", "clusterName", "which cluster"),
)
def command(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None) -> None:
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        report.put(brokers={})
        if brokeraddr:
            table = await client.runtime_info(brokeraddr)
            report.text(format_status(table))
            report.put(brokers={brokeraddr: table})
            return
        tables: dict[str, dict[str, str]] = {}
        silent: list[str] = []
        for address in await members_of(client, namesrvaddr, clustername):
            try:
                tables[address] = await client.runtime_info(address)
            except ServerUnreachable as error:
                silent.append(str(error))
                continue
            report.text(format_status(tables[address], address))
        report.put(brokers=tables)
        if silent:
            raise AdminError("; ".join(silent))

    run(calls)
