"""What the requests of a Raft member's port need. Upstream checks none of them."""

from __future__ import annotations

from dataclasses import replace

from accesscontrol.needs import ClusterRows, Table
from dledger.node.clientjson import ClientCode
from dledger.raft.messages import MessageCode
from remoting.codes import RequestCode


def member_table(rows: ClusterRows) -> Table:
    return {
        **dict.fromkeys(MessageCode, rows.of_servers),
        ClientCode.METADATA: rows.read_by_servers,
        RequestCode.DLEDGER_CHANGE_MEMBERS: replace(
            rows.changes, only_super=True
        ),  # a member gets everything
    }
