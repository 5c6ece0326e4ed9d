"""Request bodies are read with bounds, because an unbounded read delays all clients of a server."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tests.architecture.house import TREE

SERVERS = ("broker.", "controller.", "namesrv.")
READERS = {"decode", "loads"}


def unbounded_in(source: str) -> Iterator[int]:
    """The lines that read the body of a request without a bound."""
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Call) or any(word.arg == "dialect_max" for word in node.keywords):
            continue
        reader = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        bodies = [
            part
            for argument in node.args
            for part in ast.walk(argument)
            if isinstance(part, ast.Attribute) and part.attr == "body"
        ]
        of_requests = any(ast.unparse(part.value) in ("command", "request") for part in bodies)
        if reader in READERS and of_requests:
            yield node.lineno


def test_request_bodies_are_read_with_bounds() -> None:
    found = [
        f"{module}:{line}"
        for module, path in TREE.files.items()
        if module.startswith(SERVERS)
        for line in unbounded_in(path.read_text())
    ]
    assert not found, "read by Body.from_request, or with dialect_max"


def test_the_rule_sees_what_it_forbids() -> None:
    assert [*unbounded_in("HeartbeatData.decode(command.body)\nloads(request.body or b'')")] == [1, 2]
    assert not [*unbounded_in("Body.from_request(command.body)\nloads(request.body, dialect_max=9)")]
