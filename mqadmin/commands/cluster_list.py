"""clusterList: every registered broker with its role, load and age of data."""

from __future__ import annotations

from dataclasses import dataclass

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, required_namesrv, run
from mqadmin.errors import AdminError, ServerUnreachable
from mqadmin.report import Report

HOUR_MS = 3_600_000
HEADING = (
    "#Cluster Name           #Broker Name            #BID  #Addr                  #Version       "
    "       #InTPS(LOAD)                   #OutTPS(LOAD)"
    "  #Timer(Progress)        #PCWait(ms)  #Hour         #SPACE    #ACTIVATED\n"
)
HEADING_MORE = (
    "#Cluster Name     #Broker Name                    "
    "   #InTotalYest  #OutTotalYest  #InTotalToday #OutTotalToday\n"
)


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """One broker: `broker_id` is the role's, `info` the table of its runtime info, empty when it did not
    answer."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    info: dict[str, str]


def format_row(row: BrokerRow, now_ms: int) -> str:
    """A line under HEADING. Hour is the age of the oldest message at `now_ms`, 0 when there is none."""
    info = row.info
    into = (
        f"{_number(info, 'putTps'):9.2f}({_text(info, 'sendThreadPoolQueueSize')},"
        f"{_text(info, 'sendThreadPoolQueueHeadWaitTimeMills')}ms)"
    )
    out = (
        f"{_number(info, 'getTransferredTps'):9.2f}({_text(info, 'pullThreadPoolQueueSize')},"
        f"{_text(info, 'pullThreadPoolQueueHeadWaitTimeMills')}ms|{_text(info, 'ackThreadPoolQueueSize')},"
        f"{_text(info, 'ackThreadPoolQueueHeadWaitTimeMills')}ms)"
    )
    timer = (
        f"{_number(info, 'timerReadBehind'):.0f}-{_number(info, 'timerOffsetBehind'):.0f}"
        f"({_number(info, 'timerCongestNum') / 10000:.1f}w, {_number(info, 'timerEnqueueTps'):.1f}, "
        f"{_number(info, 'timerDequeueTps'):.1f})"
    )
    earliest_ms = _number(info, "earliestMessageTimeStamp")
    hours = (now_ms - earliest_ms) / HOUR_MS if earliest_ms > 0 else 0.0
    space = f"{_number(info, 'commitLogDiskRatio'):.4f}"
    return (
        f"{row.cluster:<22}  {row.broker_name:<22}  {row.broker_id:<4}  {row.address:<22} "
        f"{info.get('brokerVersionDesc', ''):<16}  {into:>16}  {out:>30}  {timer:<22}  "
        f"{_text(info, 'pageCacheLockTimeMills'):>11}  {f'{hours:2.2f}':<12}  "
        f"{space:<8}  {info.get('brokerActive', 'false'):>10}\n"
    )


def format_row_more(row: BrokerRow) -> str:
    """A line under HEADING_MORE: messages of yesterday and of today, in and out."""
    counts = [
        _number(row.info, f"msg{way}Total{end}") - _number(row.info, f"msg{way}Total{start}")
        for end, start in (
            ("TodayMorning", "YesterdayMorning"),
            ("TodayNow", "TodayMorning"),
        )
        for way in ("Put", "Get")
    ]
    return f"{row.cluster:<16}  {row.broker_name:<32}" + "".join(f" {count:14.0f}" for count in counts) + "\n"


def _text(info: dict[str, str], key: str) -> str:
    return info.get(key, "") or "0"


def _number(info: dict[str, str], key: str) -> float:
    """The first of the numbers in a value (rates carry three); 0 for an absent or unreadable one."""
    first = info.get(key, "").split(" ")[0]
    try:
        return float(first)
    except ValueError:
        return 0.0


@admin_command(
    "clusterList",
    Argument("c", "clusterName", "which cluster"),
    Argument("i", "interval", "specify intervals numbers, it is in seconds"),
    Argument("m", "moreStats", "Print more stats", is_flag=True),
)
def command(namesrvaddr: str | None, clustername: str | None, interval: str | None, morestats: bool) -> None:
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        rows, silent = await _rows(client, namesrv, clustername)
        if clustername and not rows:
            raise AdminError(f"cluster {clustername} is unknown; without -c, clusterList shows all")
        now_ms = client.clock.now_ms()
        report.text(HEADING_MORE if morestats else HEADING)
        report.put(brokers=rows)
        for row in rows:
            report.text(format_row_more(row) if morestats else format_row(row, now_ms))
        if silent:
            raise AdminError("; ".join(silent))

    run(calls, interval=interval)


async def _rows(client: AdminClient, namesrv: str, cluster: str | None) -> tuple[list[BrokerRow], list[str]]:
    """A row for each registered broker, and why some of them did not answer."""
    rows: list[BrokerRow] = []
    silent: list[str] = []
    for brokers in (await client.cluster_info(namesrv)).sets_of(cluster):
        for broker_id, address in brokers.addresses.items():
            try:
                info = await client.runtime_info(address)
            except ServerUnreachable as error:
                silent.append(str(error))
                info = {}
            rows.append(BrokerRow(brokers.cluster, brokers.broker_name, broker_id, address, info))
    return rows, silent
