"""What the requests of the port for members of a Raft group need."""

from __future__ import annotations

from accesscontrol.needs import ClusterRows, Table
from dledger.node.needs import member_table
from remoting.codes import RequestCode


def group_member_table(cluster: str) -> Table:
    rows = ClusterRows(cluster)
    return {
        **member_table(rows),
        **dict.fromkeys((RequestCode.DLEDGER_READ_LOG, RequestCode.READ_TABLES), rows.of_servers),
        RequestCode.EXCHANGE_BROKER_HA_INFO: rows.read_by_servers,
    }
