"""clusterRT: how long sends take to each broker set, again and again: to the topic that is named as the set is.

Invariant: with -p a line is what upstream writes for log collectors, and nothing else is printed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from mqadmin.admin import AdminClient
from mqadmin.calls.sending import producer
from mqadmin.command import Argument, admin_command, boolean, number, required_namesrv, run
from mqadmin.commands.send_msg_status import BODY_BYTES_MAX
from mqadmin.errors import AdminError
from mqadmin.report import Report
from mqadmin.timedsends import Timed, mean_of_warm, timed_sends

GROUP = "mqadmin_clusterRT"
AMOUNT, SIZE, INTERVAL = 100, 128, "10"
HEADING = (
    f"{'#Cluster Name':<24}  {'#Broker Name':<24}  {'#RT':<4}  {'#successCount':<8}  {'#failCount':<8}\n"
)
LOG_ZONE = timezone(timedelta(hours=8))
"""Upstream's lines for log collectors are in this zone, whatever the machine's is."""


def format_row(cluster: str, broker_name: str, sends: list[Timed]) -> str:
    """A line under HEADING."""
    done = sum(send.success for send in sends)
    rt = f"{mean_of_warm(sends):.2f}"
    return f"{cluster:<24}  {broker_name:<24}  {rt:<8}  {done:<16}  {len(sends) - done:<16}\n"


def format_log(room: str, cluster: str, broker_name: str, sends: list[Timed], now_ms: int) -> str:
    """A line for log collectors."""
    moment = datetime.fromtimestamp(now_ms / 1000, UTC).astimezone(LOG_ZONE)
    rt = int(mean_of_warm(sends) + 0.5)
    return f"{moment:%Y-%m-%d %H:%M:%S}|{room}|{cluster}|{broker_name}|{rt}\n"


@admin_command(
    "clusterRT",
    Argument("a", "amount", "message amount | default 100"),
    Argument("s", "size", "message size | default 128 Byte"),
    Argument("c", "cluster", "cluster name | default display all cluster"),
    Argument("p", "printLog", "print as tlog | default false"),
    Argument("m", "machineRoom", "machine room name | default noname"),
    Argument("i", "interval", "print interval | default 10 seconds"),
    Argument("once", "once", "one round, then end (not an option of upstream's)", is_flag=True),
)
def command(
    namesrvaddr: str | None,
    amount: str | None,
    size: str | None,
    cluster: str | None,
    printlog: str | None,
    machineroom: str | None,
    interval: str | None,
    once: bool,
) -> None:
    namesrv = required_namesrv(namesrvaddr)
    count = number("-a", amount, AMOUNT, least=1)
    body = b"a" * number("-s", size, SIZE, least=1, most=BODY_BYTES_MAX)
    as_log, room = boolean("-p", printlog), machineroom or "noname"
    headings = iter(() if as_log else (HEADING,))

    async def calls(client: AdminClient, report: Report) -> None:
        sets = (await client.cluster_info(namesrv)).sets_of(cluster)
        if not sets:
            what = f"cluster {cluster} is unknown" if cluster else "no broker is registered"
            raise AdminError(f"{what}; clusterList shows what is there")
        report.text(next(headings, ""))
        async with producer(client, namesrv, GROUP) as sender:
            for brokers in sets:
                name = brokers.broker_name
                sends = [send async for send in timed_sends(client, sender, name, body, count)]
                row = (brokers.cluster, name, sends)
                now_ms = client.clock.now_ms()
                report.text(format_log(room, *row, now_ms) if as_log else format_row(*row))
                done = sum(send.success for send in sends)
                report.add(
                    "brokers",
                    {
                        "cluster": brokers.cluster,
                        "brokerName": name,
                        "rtMs": round(mean_of_warm(sends), 2),
                        "success": done,
                        "failed": count - done,
                    },
                )

    run(calls, interval=None if once else interval or INTERVAL)
