"""The allowed imports between packages. The tables are the architecture; docs/architecture.md describes each
package."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.architecture.sourcetree import SourceTree

ROOT = Path(__file__).parent.parent.parent

MAY_IMPORT: dict[str, set[str]] = {
    "mqruntime": set(),
    "epochfile": {"mqruntime"},
    "nativepath": set(),
    "remoting": {"nativepath", "mqruntime"},
    "messagestore": {"nativepath", "mqruntime"},
    "ha": {"epochfile", "mqruntime"},
    "dledger": {"nativepath", "remoting", "mqruntime"},
    "raftstore": {"dledger", "epochfile", "ha", "messagestore", "remoting", "mqruntime"},
    "controller": {"dledger", "remoting", "mqruntime"},
    "filters": set(),
    "broker": {
        "filters",
        "ha",
        "epochfile",
        "messagestore",
        "raftstore",
        "remoting",
        "nativepath",
        "mqruntime",
    },
    "namesrv": {"remoting", "mqruntime"},
    "mqclient": {"remoting", "mqruntime"},
    "mqadmin": {"mqclient", "remoting", "mqruntime"},
    "sparkreplay": {"messagestore", "epochfile", "mqclient"},
    "localcluster": {"dledger", "mqclient", "mqadmin", "sparkreplay", "mqruntime"},
}
"""Package -> our packages that it may import. localcluster runs mqreplay's reader in the quickstart, and is a
client of the members of a Raft-mode set."""

ALSO_ALLOWED = {
    "namesrv/__main__.py": {"controller"},
    "sparkreplay/commands/resend.py": {"mqruntime"},
    "sparkreplay/resend/job.py": {"mqruntime"},
    "sparkreplay/resend/lane.py": {"remoting"},
    "sparkreplay/store/livebroker.py": {"mqruntime"},
}
"""The name server's process may carry a controller inside (enableControllerInNamesrv). A resend gives the
client its clock, and distinguishes refusals by their codes. One module checks all addresses."""

TREE = SourceTree(ROOT, MAY_IMPORT)
WITH_A_DOOR = {ROOT / name / "__init__.py" for name in ("sparkreplay", "dledger", "mqclient")}
"""Markers with code: the public interfaces `sparkreplay.register` and `sparkreplay.open`, `dledger.DLedger`,
and `mqclient.Client`."""


def modules_of(package: str) -> list[str]:
    return [module for module in TREE.files if module.split(".")[0] == package]


@pytest.mark.parametrize("folder", ["simulation", "scripts"])
def test_nothing_but_tests_imports_tests(folder: str) -> None:
    sources = list((ROOT / folder).rglob("*.py"))
    assert sources
    importing = re.compile(r"^\s*(from|import) tests\b", re.MULTILINE)
    assert [str(path) for path in sources if importing.search(path.read_text())] == []


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_imports_only_what_the_table_allows(package: str) -> None:
    assert modules_of(package), f"{package} is in the table but not in the tree"
    for module in modules_of(package):
        allowed = MAY_IMPORT[package] | {package} | ALSO_ALLOWED.get(TREE.shown(module), set())
        for imported in TREE.imports[module]:
            root = imported.module.split(".")[0]
            assert root in allowed or root not in {*MAY_IMPORT, "simulation", "tests", "scripts"}, (
                f"{TREE.shown(module)} imports {imported.module}; {package} may import {sorted(allowed)}"
            )


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_nothing_imports_a_private_name_of_another_package(package: str) -> None:
    for module in modules_of(package):
        for imported in TREE.imports[module]:
            parts = [*imported.module.split("."), *imported.names]
            if parts[0] != package and parts[0] in MAY_IMPORT:
                private = [part for part in parts if part.startswith("_") and part[:2] != "__"]
                assert not private, f"{TREE.shown(module)}: {imported.module} {private}"


@pytest.mark.parametrize("package", sorted(MAY_IMPORT))
def test_a_package_marker_holds_a_docstring_only(package: str) -> None:
    for path in {*(ROOT / package).rglob("__init__.py")} - WITH_A_DOOR:
        body = ast.parse(path.read_text()).body
        assert len(body) <= 1 and all(isinstance(node, ast.Expr) for node in body), f"{path} holds code"
