"""A broker of two requests, 28 and 1007, on loopback. The test sets its answers."""

from __future__ import annotations

import json
import socketserver
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Thread
from typing import Any


@dataclass
class ScriptedBroker:
    confirm: int | None = 0
    max_offset: int = 1 << 40
    epochs: tuple[tuple[int, int], ...] = ((1, 0),)
    cluster_name: str = "DefaultCluster"
    broker_name: str = "broker-a"
    replica_id: int | None = 1
    contract_a: bool = False
    later: list[dict[str, Any]] = field(default_factory=list)
    """Attributes to set after each further answer to 1007."""
    raw: bytes | None = None
    """Bytes to send instead of a frame, before the connection is closed."""
    code: int = 0
    address: str = ""
    asked: list[int] = field(default_factory=list)

    def reply(self, request: dict[str, Any]) -> bytes:
        self.asked.append(request["code"])
        body = {28: self.runtime, 1007: self.cache}[request["code"]]()
        header = json.dumps(
            {"code": self.code, "flag": 1, "opaque": request["opaque"], "remark": "no"}
        ).encode()
        data = json.dumps(body).encode()
        return struct.pack(">II", 4 + len(header) + len(data), len(header)) + header + data

    def runtime(self) -> dict[str, Any]:
        table = {"brokerVersionDesc": "V5_3_3", "ranContractA": "true" if self.contract_a else "false"}
        if self.confirm is not None:
            table["confirmOffset"] = str(self.confirm)
        if self.replica_id is not None:
            table["replicaId"] = str(self.replica_id)
        return {"table": table}

    def cache(self) -> dict[str, Any]:
        ends = [start for _, start in self.epochs[1:]] + [2**63 - 1]
        body = {
            "brokerId": 0, "brokerName": self.broker_name, "clusterName": self.cluster_name,
            "maxOffset": self.max_offset,
            "epochList": [
                {"epoch": epoch, "startOffset": start, "endOffset": end}
                for (epoch, start), end in zip(self.epochs, ends, strict=False)
            ],
        }  # fmt: skip
        for name, value in (self.later.pop(0) if self.later else {}).items():
            setattr(self, name, value)
        return body


@contextmanager
def serving(broker: ScriptedBroker) -> Iterator[ScriptedBroker]:
    class Connection(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while head := self.rfile.read(8):
                size, header_bytes = struct.unpack(">II", head)
                request = json.loads(self.rfile.read(size - 4)[:header_bytes])
                if broker.raw is not None:
                    self.wfile.write(broker.raw)
                    return
                self.wfile.write(broker.reply(request))

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Connection) as server:
        server.daemon_threads = True
        thread = Thread(target=server.serve_forever, name="scripted broker", daemon=True)
        thread.start()
        broker.address = f"127.0.0.1:{server.server_address[1]}"
        try:
            yield broker
        finally:
            server.shutdown()
            thread.join()
