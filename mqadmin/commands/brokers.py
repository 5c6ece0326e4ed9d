"""Commands about brokers: clusters, settings, statistics, replication, old files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import tzinfo
from typing import Any, NamedTuple

from mqadmin.admin import AdminClient, body_of
from mqadmin.calls import brokerstats, configs, groups, topics
from mqadmin.calls.brokerstats import GROUP_GET_NUMS, TOPIC_PUT_NUMS, day_sum
from mqadmin.calls.retention import ask_brokers
from mqadmin.calls.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX
from mqadmin.command import (
    I64_MAX,
    Argument,
    admin_command,
    boolean,
    number,
    one_wanted,
    required_namesrv,
    run,
)
from mqadmin.commands.groups import queue_order
from mqadmin.errors import AdminError, ServerUnreachable
from mqadmin.replies import BrokerEpochs, BrokerSet, HALink, HAStatus
from mqadmin.report import Report, plain
from mqadmin.times import format_seconds, format_time
from mqadmin.wanted import members_of, wanted_masters
from remoting.bodies.queues import ConsumeStatsList, MessageQueue, OffsetWrapper
from remoting.codes import RequestCode, ResponseCode
from remoting.headers.admin import ConsumeStatsInBrokerHeader, ResyncBrokerHeader, ResyncBrokerResponseHeader

HOUR_MS = 3_600_000
CLUSTER_LIST_HEADING = (
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
    """One broker. `broker_id` is its role id. `info` is the table of its runtime info, empty if the broker did not answer."""

    cluster: str
    broker_name: str
    broker_id: int
    address: str
    info: dict[str, str]


def format_broker_row(row: BrokerRow, now_ms: int) -> str:
    """A line under CLUSTER_LIST_HEADING. Hour is the age of the oldest message at `now_ms`, or 0 if there is no message."""
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
    """The first of the numbers in a value (rates have three); 0 for an absent or unreadable value."""
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
def cluster_list(
    namesrvaddr: str | None, clustername: str | None, interval: str | None, morestats: bool
) -> None:
    """Every registered broker with its role, load and age of data."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        rows, silent = await _rows(client, namesrv, clustername)
        if clustername and not rows:
            raise AdminError(f"cluster {clustername} is unknown; without -c, clusterList shows all")
        now_ms = client.clock.now_ms()
        report.text(HEADING_MORE if morestats else CLUSTER_LIST_HEADING)
        report.put(brokers=rows)
        for row in rows:
            report.text(format_row_more(row) if morestats else format_broker_row(row, now_ms))
        if silent:
            raise AdminError("; ".join(silent))

    run(calls, interval=interval)


async def _rows(client: AdminClient, namesrv: str, cluster: str | None) -> tuple[list[BrokerRow], list[str]]:
    """A row for each registered broker, and the reasons why some brokers did not answer."""
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


def format_status(table: dict[str, str], address: str | None = None) -> str:
    """One line per key. With `address`, for lists of several brokers, each line begins with the address."""
    before = "" if address is None else f"{address:<24} "
    return "".join(f"{before}{key:<32}: {table[key]}\n" for key in sorted(table))


@admin_command(
    "brokerStatus",
    Argument("b", "brokerAddr", "Broker address"),
    Argument("c", "clusterName", "which cluster"),
)
def broker_status(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None) -> None:
    """A broker's runtime info, sorted by key."""
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


def headings(sets: list[BrokerSet]) -> list[tuple[str, str]]:
    """(address, heading) of each broker of a cluster: every master, then its slaves."""
    rows: list[tuple[str, str]] = []
    for brokers in sets:
        master = brokers.addresses.get(0, "NO_MASTER")
        for broker_id, address in brokers.addresses.items():
            slave = f"My Master: {master}=====Slave: {address}"
            rows.append((address, f"Master: {address}" if broker_id == 0 else slave))
    return rows


@admin_command(
    "getBrokerConfig",
    Argument("b", "brokerAddr", "get which broker"),
    Argument("c", "clusterName", "get which cluster"),
)
def broker_config(namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None) -> None:
    """The settings in force on brokers."""
    one_wanted(brokeraddr, clustername, not_both=True)

    async def calls(client: AdminClient, report: Report) -> None:
        if brokeraddr:
            wanted = [(brokeraddr, brokeraddr)]
        else:
            info = await client.cluster_info(required_namesrv(namesrvaddr))
            wanted = headings(info.sets_of(clustername))
        if not wanted:
            raise AdminError(f"cluster {clustername} is unknown; clusterList shows what is registered")
        found: dict[str, dict[str, str]] = {}
        for address, heading in wanted:
            found[address] = await configs.settings_of(client, configs.BROKERS, address)
            report.text(configs.format_settings(heading, found[address]) + "\n")
            report.put(brokers=found)

    run(calls)


def format_updated(address: str) -> str:
    return f"update broker config success, {address}\n"


@admin_command(
    "updateBrokerConfig",
    Argument("a", "updateAllBroker", "update all brokers include slave", alone="true"),
    Argument("b", "brokerAddr", "update which broker"),
    Argument("c", "clusterName", "update which cluster"),
    Argument("k", "key", "config key", required=True),
    Argument("v", "value", "config value", required=True, may_be_empty=True),
)
def update_broker_config(
    namesrvaddr: str | None,
    updateallbroker: str | None,
    brokeraddr: str | None,
    clustername: str | None,
    key: str,
    value: str,
) -> None:
    """Changes one setting of running brokers."""
    one_wanted(brokeraddr, clustername)
    slaves_too = boolean("-a", updateallbroker)

    async def calls(client: AdminClient, report: Report) -> None:
        if slaves_too and not brokeraddr:
            addresses = await members_of(client, namesrvaddr, clustername)
        else:
            addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        report.put(key=key, value=value, brokers=[])
        async for address in configs.changed(client, configs.BROKERS, addresses, key, value):
            report.text(format_updated(address))
            report.add("brokers", address)

    run(calls)


TIMEOUT_MS = 50_000
COLUMNS = "{:<64}  {:<64}  {:<32}  {:<4}  {:<20}  {:<20}  {:<20}  {}\n"
CONSUME_STATS_HEADING = COLUMNS.format(
    "#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"
)


def format_queue(group: str, queue: MessageQueue, row: OffsetWrapper, zone: tzinfo | None = None) -> str:
    """A line under CONSUME_STATS_HEADING."""
    return COLUMNS.format(
        queue.topic[:64],
        group,
        queue.broker_name[:32],
        queue.queue_id,
        row.broker_offset,
        row.consumer_offset,
        row.broker_offset - row.consumer_offset,
        format_seconds(row.last_timestamp, zone),
    )


@admin_command(
    "brokerConsumeStats",
    Argument("b", "brokerAddr", "Broker address", required=True),
    Argument("t", "timeoutMillis", "request timeout Millis"),
    Argument("l", "level", "threshold of print diff"),
    Argument("o", "order", "order topic"),
)
def broker_consume_stats(
    namesrvaddr: str | None, brokeraddr: str, timeoutmillis: str | None, level: str | None, order: str | None
) -> None:
    """The lag of every group of one broker, queue by queue."""
    wait_ms = number("-t", timeoutmillis, TIMEOUT_MS, least=1)
    least = number("-l", level, 0, most=I64_MAX)
    header = ConsumeStatsInBrokerHeader(boolean("-o", order))

    async def calls(client: AdminClient, report: Report) -> None:
        reply = await client.ask(brokeraddr, RequestCode.GET_BROKER_CONSUME_STATS, header, wait_ms=wait_ms)
        found = body_of(ConsumeStatsList, brokeraddr, reply)
        report.text(CONSUME_STATS_HEADING)
        report.put(queues=[], total_diff=found.total_diff)
        for of_group in found.consume_stats_list:
            for group, each in of_group.items():
                for queue, row in sorted(
                    (pair for stats in each for pair in stats.offset_table.items()), key=queue_order
                ):
                    if row.broker_offset - row.consumer_offset >= least and row.last_timestamp > 0:
                        report.text(format_queue(group, queue, row))
                        report.add("queues", {"group": group, **plain(queue), **plain(row)})
        report.text(f"\nDiff Total: {found.total_diff}\n")

    run(calls)


STATS_HEADING = (
    f"{'#Topic':<64}  {'#Consumer Group':<64} {'#Accumulation':>12} {'#InTPS':>11} {'#OutTPS':>11} "
    f"{'#InMsg24Hour':>14} {'#OutMsg24Hour':>14}\n"
)


class Flow(NamedTuple):
    """One topic with one of its consumer groups; `group` is None if no group consumes the topic."""

    topic: str
    group: str | None
    accumulation: int
    in_tps: float
    out_tps: float
    in_day: int
    out_day: int


def format_flow(row: Flow) -> str:
    """A line under STATS_HEADING."""
    out_tps, out_day = f"{row.out_tps:.2f}", str(row.out_day)
    if row.group is None:
        out_tps, out_day = "", "NO_CONSUMER"
    return (
        f"{row.topic[:64]:<64}  {(row.group or '')[:64]:<64} {row.accumulation:>12} {row.in_tps:>11.2f} {out_tps:>11} "
        f"{row.in_day:>14} {out_day:>14}\n"
    )


def flow_json(row: Flow) -> dict[str, Any]:
    """One row for scripts."""
    return {
        "topic": row.topic,
        "group": row.group,
        "accumulation": row.accumulation,
        "inTps": row.in_tps,
        "outTps": row.out_tps,
        "in24Hour": row.in_day,
        "out24Hour": row.out_day,
    }


@admin_command(
    "statsAll",
    Argument("a", "activeTopic", "print active topic only", is_flag=True),
    Argument("t", "topic", "print select topic only"),
)
def stats_all(namesrvaddr: str | None, activetopic: bool, topic: str | None) -> None:
    """Rates of messages into each topic and out to each of its groups, per second and in 24 hours."""
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        names = [topic.strip()] if topic else await topics.all_topics(client, namesrv)
        heading = iter([STATS_HEADING])
        report.put(topics=[])
        for name in names:
            if name.startswith((RETRY_PREFIX, DEAD_LETTER_PREFIX)):
                continue
            try:
                flows = await _flows(client, namesrv, name)
            except AdminError as error:
                if topic:
                    raise
                report.note(f"topic {name} is not shown: {error}")
                continue
            report.text(next(heading, ""))
            for row in flows:
                if not activetopic or row.in_day or row.out_day:
                    report.text(format_flow(row))
                    report.add("topics", flow_json(row))

    run(calls)


async def _flows(client: AdminClient, namesrv: str, topic: str) -> list[Flow]:
    masters = [holder.address for holder in await topics.holders(client, namesrv, topic)]
    puts = [await brokerstats.recent(client, master, TOPIC_PUT_NUMS, topic) for master in masters]
    in_tps, in_day = sum(row.stats_minute.tps for row in puts), sum(map(day_sum, puts))
    names = {name for master in masters for name in await topics.groups_of(client, master, topic)}
    flows = []
    for name in sorted(names):
        gets = [
            await brokerstats.recent(client, master, GROUP_GET_NUMS, f"{topic}@{name}") for master in masters
        ]
        behind = (await groups.progress(client, masters, name, topic)).diff_total
        out_tps, out_day = sum(row.stats_minute.tps for row in gets), sum(map(day_sum, gets))
        flows.append(Flow(topic, name, max(behind, 0), in_tps, out_tps, in_day, out_day))
    return flows or [Flow(topic, None, 0, in_tps, 0.0, in_day, 0)]


@admin_command(
    "cleanExpiredCQ",
    Argument("b", "brokerAddr", "Broker address"),
    Argument("c", "cluster", "clustername"),
)
def clean_expired_cq(namesrvaddr: str | None, brokeraddr: str | None, cluster: str | None) -> None:
    """Makes brokers delete queue files that refer to deleted messages."""

    async def calls(client: AdminClient, report: Report) -> None:
        await ask_brokers(
            client, report, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, brokeraddr, namesrvaddr, cluster
        )

    run(calls)


@admin_command(
    "deleteExpiredCommitLog",
    Argument("b", "brokerAddr", "Broker address"),
    Argument("c", "cluster", "clustername"),
)
def delete_expired_commit_log(namesrvaddr: str | None, brokeraddr: str | None, cluster: str | None) -> None:
    """Makes brokers delete segments that are old enough, at any hour."""

    async def calls(client: AdminClient, report: Report) -> None:
        await ask_brokers(
            client, report, RequestCode.DELETE_EXPIRED_COMMITLOG, brokeraddr, namesrvaddr, cluster
        )

    run(calls)


def format_ha_status(address: str, status: HAStatus, zone: tzinfo | None = None) -> str:
    """The answer of the broker at `address`, in upstream's layout. Times are in `zone`; None is the local zone."""
    return _master(address, status) if status.is_master else _slave(status, zone)


def _master(address: str, status: HAStatus) -> str:
    heading = (
        f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{status.master_max_offset}"
        f"\n#SlaveNum\t{len(status.links)}\n#InSyncSlaveNum\t{status.in_sync_slaves}\n"
        f"{'#SlaveAddr':<32}  {'#SlaveAckOffset':<16} {'#Diff':>16} {'#TransferSpeed(KB/s)':>16} "
        f"{'#Status':>16} {'#TransferFromWhere':>16}\n"
    )
    rows = (
        f"{link.address:<32}  {link.ack_offset:<16d} {link.diff_bytes:>16d} "
        f"{link.bytes_per_second / 1024:>16.2f} {_state(link):>16} "
        f"{link.transfer_offset:>16d}\n"
        for link in status.links
    )
    return heading + "".join(rows)


def _state(link: HALink) -> str:
    """The state of a link. A learner never counts as in sync, however small its lag is."""
    return "OK" if link.in_sync else "Learner" if link.learner else "Fall Behind"


def _slave(status: HAStatus, zone: tzinfo | None) -> str:
    return (
        f"\n#MasterAddr\t{status.master_ha_address or 'null'}\n#CommitLogMaxOffset\t{status.max_offset}\n"
        f"#TransferSpeed(KB/s)\t{status.bytes_per_second / 1024:.2f}\n"
        f"#LastReadTime\t{format_time(status.last_read_ms, zone)}\n"
        f"#LastWriteTime\t{format_time(status.last_write_ms, zone)}\n"
        f"#MasterFlushOffset\t{status.master_flush_offset}\n"
    )


@admin_command(
    "haStatus",
    Argument("b", "brokerAddr", "which broker to fetch"),
    Argument("c", "clusterName", "which cluster"),
    Argument("i", "interval", "the interval(second) of get info"),
)
def ha_status(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, interval: str | None
) -> None:
    """The progress of replication, as a master or a slave reports it."""
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        for address in addresses:
            status = await client.ha_status(address)
            report.text(format_ha_status(address, status))
            report.add("brokers", {"brokerAddr": address, **plain(status)})

    run(calls, interval=interval)


def format_epochs(address: str, epochs: BrokerEpochs) -> str:
    """One broker in upstream's layout. The broker id is the role id, 0 on the master."""
    heading = (
        f"\n#clusterName\t{epochs.cluster_name}\n#brokerName\t{epochs.broker_name}"
        f"\n#brokerAddr\t{address}\n#brokerId\t{epochs.broker_id}"
    )
    return heading + "".join(f"\n#Epoch: {entry}" for entry in epochs.epochs) + "\n"


@admin_command(
    "getBrokerEpoch",
    Argument("b", "brokerName", "which broker to fetch"),
    Argument("c", "clusterName", "which cluster"),
    Argument("i", "interval", "the interval(second) of get info"),
)
def broker_epoch(
    namesrvaddr: str | None, brokername: str | None, clustername: str | None, interval: str | None
) -> None:
    """The epoch history of each member of a broker set."""
    one_wanted(brokername, clustername, not_both=True)
    namesrv = required_namesrv(namesrvaddr)

    async def calls(client: AdminClient, report: Report) -> None:
        sets = (await client.cluster_info(namesrv)).sets_of(clustername)
        if brokername:
            sets = [brokers for brokers in sets if brokers.broker_name == brokername]
        if not sets:
            wanted = f"broker set {brokername}" if brokername else f"cluster {clustername}"
            raise AdminError(f"{namesrv} knows no {wanted}; clusterList shows what is registered")
        for brokers in sets:
            for address in brokers.addresses.values():
                epochs = await client.broker_epochs(address)
                report.text(format_epochs(address, epochs))
                report.add("brokers", {"brokerAddr": address, **plain(epochs)})

    run(calls, interval=interval)


ADVICE = {
    ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA: "getSyncStateSet shows the members of the set",
}


def format_resync(said: ResyncBrokerResponseHeader, broker: str, *, dry_run: bool) -> str:
    """Two lines: one on the resync, one on the folder of the former store."""
    begins = "would start" if dry_run else "starts"
    then = (
        "and stays there, because it may hold data that no other replica has"
        if said.keeps
        else "and is removed when the new copy is in the SyncStateSet"
    )
    return (
        f"broker {said.broker_id} at {broker} {begins} empty, under an id of its own\n"
        f"its store, with {said.log_bytes} bytes of log, goes to {said.folder} below storePathRootDir, {then}\n"
    )


@admin_command(
    "resyncBroker",
    Argument("b", "brokerAddr", "Address of a replica that is not the master", required=True),
    Argument("d", "dryRun", "Only ask whether it would, and change nothing", is_flag=True),
)
def resync_broker(namesrvaddr: str | None, brokeraddr: str, dryrun: bool) -> None:
    """Makes a replica set its store aside and start with an empty one."""

    async def calls(client: AdminClient, report: Report) -> None:
        reply = await client.ask(
            brokeraddr, RequestCode.RESYNC_BROKER, ResyncBrokerHeader(dry_run=dryrun), advice=ADVICE
        )
        said = ResyncBrokerResponseHeader.from_ext(reply.ext)
        report.text(format_resync(said, brokeraddr, dry_run=dryrun))
        report.put(
            broker=brokeraddr,
            broker_id=said.broker_id,
            folder=said.folder,
            log_bytes=said.log_bytes,
            keeps=said.keeps,
            dry_run=dryrun,
        )

    run(calls)
