"""Each port and connection of a server, client or tool goes through the network that it was given, which may demand TLS."""

from __future__ import annotations

import ast

from tests.architecture.house import ROOT, TREE

WITH_A_NETWORK = {"RemotingClient", "RemotingServer", "HttpPages", "HAService", "Forwarding"}
"""Without their argument `network` they open plain ports and connections, which is for tests."""
DIALLERS = {"create_connection", "create_server", "open_connection", "start_server"}
OPENS = {
    "mqruntime/network.py",
    "mqruntime/tlsconnector.py",
    "sparkreplay/store/livebroker.py",
    "localcluster/relay.py",
}
"""The modules that open ports and connections: the networks, a reader without an event loop, and a relay of bytes."""


def test_every_port_and_connection_goes_through_a_network() -> None:
    plain = []
    for path in TREE.files.values():
        shown = str(path.relative_to(ROOT))
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            given = {keyword.arg for keyword in node.keywords}
            if name in WITH_A_NETWORK and "network" not in given and len(node.args) < 3:
                plain.append(f"{shown}:{node.lineno} {name}")
            if name in DIALLERS and shown not in OPENS:
                plain.append(f"{shown}:{node.lineno} {name}")
    assert plain == []
