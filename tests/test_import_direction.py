"""The architecture as a test: which package may import which, and which modules are pure.

A pure module knows no event loop, clock, socket, file or thread: it is driven by literals in tests and by the very same
code in the simulator."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

MAY_IMPORT: dict[str, set[str]] = {
    "mqruntime": set(),
    "epochfile": {"mqruntime"},
    "remoting": {"mqruntime"},
    "messagestore": {"mqruntime"},
    "ha": {"epochfile", "mqruntime"},
    "dledger": {"remoting", "mqruntime"},
    "controller": {"dledger", "remoting", "mqruntime"},
    "broker": {"ha", "epochfile", "messagestore", "remoting", "mqruntime"},
    "namesrv": {"remoting", "mqruntime"},
    "mqclient": {"remoting", "mqruntime"},
    "mqadmin": {"mqclient", "remoting", "mqruntime"},
    "sparkreplay": {"messagestore", "epochfile", "mqclient"},
    "localcluster": {"mqclient", "mqadmin", "sparkreplay", "mqruntime"},
}
"""Package -> the packages of ours that it may import. localcluster runs mqreplay's reader in the quickstart."""

ALSO_ALLOWED = {
    "namesrv/__main__.py": {"controller"},
    "sparkreplay/resend/job.py": {"mqruntime"},
    "sparkreplay/resend/lane.py": {"remoting"},
}
"""The name server's process may carry a controller inside (enableControllerInNamesrv). A resend gives the client its clock, and
tells refusals apart by their codes."""

PURE = [
    "epochfile/entry.py",
    "epochfile/history.py",
    "epochfile/format.py",
    "ha/frames.py",
    "ha/master/link.py",
    "ha/slave/link.py",
    "ha/syncstateset.py",
    "ha/confirm.py",
    "dledger/raft.py",
    "dledger/raftlog.py",
    "dledger/arrivals.py",
    "dledger/messages.py",
    "dledger/messagejson.py",
    "dledger/actions.py",
    "controller/events.py",
    "controller/state.py",
    "controller/commands.py",
    "controller/decision.py",
    "controller/electpolicy.py",
    "controller/heartbeats.py",
    "controller/electionhistory.py",
    "broker/role/membership.py",
    "localcluster/history.py",
    "namesrv/routes.py",
    "remoting/frame.py",
    "remoting/fastjson.py",
    "messagestore/contractmark.py",
    "messagestore/record.py",
    "messagestore/walker.py",
]
IMPURE_MODULES = {
    "asyncio", "socket", "os", "time", "threading", "random", "secrets", "uuid", "datetime", "subprocess", "select",
    "ssl", "mmap", "tempfile", "shutil", "io", "aiofiles", "uvloop", "pathlib",
}  # fmt: skip


def modules_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


def imports_in(path: Path) -> Iterator[tuple[str, list[str]]]:
    """Yields (dotted module, names taken from it) of each import statement."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, []
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import; name the package"
            yield node.module or "", [alias.name for alias in node.names]


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    assert modules_of(package), f"{package} is in the table but not in the tree"
    for path in modules_of(package):
        allowed = MAY_IMPORT[package] | {package} | ALSO_ALLOWED.get(str(path.relative_to(ROOT)), set())
        for module, _ in imports_in(path):
            root = module.split(".")[0]
            assert root in allowed or root not in {*MAY_IMPORT, "simulation", "tests", "scripts"}, (
                f"{path.relative_to(ROOT)} imports {module}; {package} may import {sorted(allowed)}"
            )


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_nothing_imports_a_private_name_of_another_package(package: str) -> None:
    for path in modules_of(package):
        for module, names in imports_in(path):
            if module.split(".")[0] == package:
                continue
            private = [
                part for part in [*module.split("."), *names] if part.startswith("_") and part[:2] != "__"
            ]
            assert not private or module.split(".")[0] not in MAY_IMPORT, f"{path}: {module} {private}"


@pytest.mark.parametrize("name", PURE)
def test_a_pure_module_knows_nothing_of_the_outside_world(name: str) -> None:
    path = ROOT / name
    assert path.exists(), f"{name} is listed as pure but does not exist"
    for module, _ in imports_in(path):
        assert module.split(".")[0] not in IMPURE_MODULES, f"{name} imports {module}"


WITH_A_DOOR = {ROOT / "sparkreplay" / "__init__.py"}
"""Markers that hold a function as well: `from sparkreplay import register` is what users of Spark write."""


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_marker_holds_a_docstring_only(package: str) -> None:
    for path in {*(ROOT / package).rglob("__init__.py")} - WITH_A_DOOR:
        body = ast.parse(path.read_text()).body
        assert len(body) <= 1 and all(isinstance(node, ast.Expr) for node in body), f"{path} holds code"
