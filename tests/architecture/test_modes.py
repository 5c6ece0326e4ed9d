"""Only one module asks for the replication mode, and the modules listed here with a reason.

Brokers under controllers, in a pair and in Raft mode are one program. The differences are behind
messagestore.store.brokerstore and ha.service.replication, and broker.modes chooses. With an `if` by mode
elsewhere, one mode soon misses a feature of the others."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.house import TREE

ASKS = {
    "raft_group", "pair", "under_controllers", "is_pair_slave", "enable_d_leger_commit_log", "enable_controller_mode",
    "CopiedLog", "GroupLog",
}  # fmt: skip
MAY_ASK = {
    "broker.modes": "chooses",
    "broker.app": "puts together what was chosen",
    "broker.role.contract": "says in words what a send is worth",
    "broker.neighbours.neighbours": "a pair hears of its master from name servers alone",
    "broker.requests": "what a pair delivers waits for its slave",
}
OF_SETTINGS = "broker.settings."
SERVERS = ("broker.", "ha.", "messagestore.", "raftstore.", "remoting.", "mqruntime.")


def asked_in(module: str) -> Iterator[str]:
    """The lines of a module that ask for the mode, by settings or by type."""
    for node in ast.walk(ast.parse(TREE.files[module].read_text())):
        if isinstance(node, ast.Attribute) and node.attr in ASKS:
            of = node.value
            if (isinstance(of, ast.Name) and of.id == "settings") or (
                isinstance(of, ast.Attribute) and of.attr in ("settings", "_settings")
            ):
                yield f"{module}:{node.lineno} {node.attr}"
        elif isinstance(node, ast.Name) and node.id in ("CopiedLog", "GroupLog"):
            yield f"{module}:{node.lineno} {node.id}"


def test_only_listed_modules_ask_for_the_mode() -> None:
    asking = {
        module: list(asked_in(module))
        for module in TREE.files
        if module.startswith(SERVERS) and not module.startswith(OF_SETTINGS)
    }
    assert {module for module, found in asking.items() if found} == set(MAY_ASK), {
        module: found for module, found in asking.items() if found
    }
