"""Shared by tests of the live view: sets as values, a screen of 80 columns, servers of a cluster."""

from __future__ import annotations

import io
from datetime import UTC
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mqadmin.watch.screen import screen
from mqadmin.watch.view import MemberView, SetView, View
from remoting.codes import RequestCode
from tests.unit.mqadmin.messageanswers import RECORD

if TYPE_CHECKING:
    from tests.unit.mqadmin.conftest import ScriptedServer

NOON_MS = 1795262400000  # 2026-11-21 12:00:00
ADDRESSES = ("192.168.100.201:10911", "192.168.100.202:10911", "192.168.100.203:10911")


def member(broker_id: int, **more: Any) -> MemberView:
    own: dict[str, Any] = {"role": "slave", "epoch": 4, "max_offset": 10**12, "alive": True, "in_sync": True}
    return MemberView(ADDRESSES[broker_id - 1], broker_id, **own | more)


def broker_set(master: int | None, epoch: int | None, *members: MemberView, **more: Any) -> SetView:
    address = None if master is None else ADDRESSES[master - 1]
    return SetView("broker-a", "DefaultCluster", master, address, epoch, 7, members, **more)


def drawn(view: View) -> list[str]:
    console = Console(file=io.StringIO(), width=80)
    console.print(screen(view, UTC))
    output = console.file
    assert isinstance(output, io.StringIO)
    return [line.rstrip() for line in output.getvalue().splitlines()]


def says_as_broker(server: ScriptedServer, role_id: int, max_offset: int) -> None:
    info = {"confirmOffset": "850", "roleSinceTimestamp": str(NOON_MS)}
    server.says(RequestCode.GET_BROKER_RUNTIME_INFO, {"table": info})
    spans = [{"epoch": 3, "startOffset": 832, "endOffset": 2**63 - 1}]
    fields = {"clusterName": "C", "brokerName": "broker-a", "brokerId": role_id, "maxOffset": max_offset}
    server.says(RequestCode.GET_BROKER_EPOCH_CACHE, fields | {"epochList": spans})
    server.says(RequestCode.VIEW_MESSAGE_BY_ID, RECORD)
    server.says(RequestCode.GET_BROKER_CONFIG, f"controllerAddr={server.address}\n".encode())


def lead(server: ScriptedServer, another_server: ScriptedServer) -> None:
    """`server` is controller leader and master in one; the other one is a slave 50 bytes behind."""
    rows = [
        {"brokerName": "broker-a", "brokerId": number, "brokerAddress": address, "alive": True}
        for number, address in ((1, server.address), (2, another_server.address))
    ]
    state = {
        "masterBrokerId": 1,
        "masterAddress": server.address,
        "masterEpoch": 3,
        "syncStateSetEpoch": 8,
        "inSyncReplicas": rows[:1],
        "notInSyncReplicas": rows[1:],
    }
    ext = {"controllerLeaderId": "n0", "controllerLeaderAddress": server.address, "isLeader": "true"}
    server.says(RequestCode.CONTROLLER_GET_METADATA_INFO, ext=ext)
    server.says(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, {"replicasInfoTable": {"broker-a": state}})
    says_as_broker(server, role_id=0, max_offset=900)
    says_as_broker(another_server, role_id=2, max_offset=850)
