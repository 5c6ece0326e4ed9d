"""haStatus: how far replication has come, seen from a master or from one slave."""

from __future__ import annotations

from datetime import tzinfo

from mqadmin.admin import AdminClient
from mqadmin.command import Argument, admin_command, one_wanted, run
from mqadmin.replies import HALink, HAStatus
from mqadmin.report import Report, plain
from mqadmin.times import format_time
from mqadmin.wanted import wanted_masters


def format_ha_status(address: str, status: HAStatus, zone: tzinfo | None = None) -> str:
    """Upstream's layout of the answer of the broker at `address`; times in `zone`, None being the local
    one."""
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
    """A learner is in no set, however close it is."""
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
def command(
    namesrvaddr: str | None, brokeraddr: str | None, clustername: str | None, interval: str | None
) -> None:
    one_wanted(brokeraddr, clustername)

    async def calls(client: AdminClient, report: Report) -> None:
        addresses = await wanted_masters(client, brokeraddr, namesrvaddr, clustername)
        for address in addresses:
            status = await client.ha_status(address)
            report.text(format_ha_status(address, status))
            report.add("brokers", {"brokerAddr": address, **plain(status)})

    run(calls, interval=interval)
