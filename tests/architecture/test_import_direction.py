"""Packages import only what the tables of house.py allow. Nothing else imports tests, and no test imports another."""

from __future__ import annotations

import ast
import re

import pytest

from tests.architecture.house import ALSO_ALLOWED, MAY_IMPORT, ROOT, TREE, WITH_A_DOOR
from tests.architecture.sourcetree import imports_in


def modules_of(package: str) -> list[str]:
    return [module for module in TREE.files if module.split(".")[0] == package]


@pytest.mark.parametrize("folder", ["simulation", "scripts"])
def test_nothing_but_tests_imports_tests(folder: str) -> None:
    sources = list((ROOT / folder).rglob("*.py"))
    assert sources
    importing = re.compile(r"^\s*(from|import) tests\b", re.MULTILINE)
    assert [str(path) for path in sources if importing.search(path.read_text())] == []


def test_no_test_imports_from_another_test() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {imported.module} {imported.names}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for imported in imports_in(path)
        if any(name.startswith("test_") for name in (imported.module.rpartition(".")[2], *imported.names))
    ]
    assert not found, "\n" + "\n".join(found)


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
