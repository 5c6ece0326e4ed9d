"""Modules below a folder and what they import, read from their source.

Invariant: an import counts at any place, in a function too; imports for type checking only are marked.
Imports of a package's `__init__.py` do not count for its modules: a test allows only a docstring there."""

from __future__ import annotations

import ast
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

LINES_MAX = 900
"""One noun may need so many; a limit of 600 split one state machine into several files."""
IMPURE_MODULES = {
    "asyncio", "socket", "os", "time", "threading", "random", "secrets", "uuid", "datetime", "subprocess", "select",
    "ssl", "mmap", "tempfile", "shutil", "io", "aiofiles", "uvloop", "pathlib",
}  # fmt: skip


class Import(NamedTuple):
    """`from module import names`, or `import module`."""

    module: str
    names: list[str]
    for_types: bool


class Edge(NamedTuple):
    """An imported module, ours or another."""

    module: str
    for_types: bool


class SourceTree:
    def __init__(self, root: Path, packages: Iterable[str]) -> None:
        self.root = root
        self.files = {
            _dotted(path.relative_to(root)): path
            for package in packages
            for path in sorted((root / package).rglob("*.py"))
        }

    @cached_property
    def imports(self) -> dict[str, list[Import]]:
        return {module: list(imports_in(path)) for module, path in self.files.items()}

    @cached_property
    def edges(self) -> dict[str, list[Edge]]:
        return {module: list(self._edges_of(module)) for module in self.files}

    def _edges_of(self, module: str) -> Iterator[Edge]:
        for imported in self.imports[module]:
            for name in imported.names or [""]:
                inner = f"{imported.module}.{name}"
                yield Edge(inner if inner in self.files else imported.module, imported.for_types)

    def shown(self, module: str) -> str:
        return str(self.files[module].relative_to(self.root)) if module in self.files else module

    def pure_modules(self) -> list[str]:
        """The modules whose docstring ends with the word `Pure.`"""
        return [module for module, path in self.files.items() if declares_purity(path)]

    def way_out(self, module: str) -> str | None:
        """The shortest chain of imports from a module to the outside world."""
        chain = self._chain(
            module, lambda edge: edge.module.split(".")[0] in IMPURE_MODULES, lambda edge: not edge.for_types
        )
        return chain and self._drawn(chain)

    def circles(self) -> list[str]:
        """One circle of each group of modules that import each other, and the rest of the group."""
        reached = {module: self._reached(module) for module in self.files}
        found, listed = [], set[str]()
        for module in sorted(self.files):
            if module in reached[module] and module not in listed:
                group = {other for other in reached[module] if module in reached[other]}
                circle = self._chain(module, lambda edge, end=module: edge.module == end, lambda _: True)
                assert circle
                rest = sorted(map(self.shown, group - {*circle}))
                found.append(self._drawn(circle) + (f" (and {', '.join(rest)})" if rest else ""))
                listed |= group
        return found

    def too_long(self) -> list[str]:
        counts = {module: len(path.read_text().splitlines()) for module, path in self.files.items()}
        return [
            f"{self.shown(module)}: {count} lines" for module, count in counts.items() if count > LINES_MAX
        ]

    def folder_circles(self) -> set[tuple[str, str]]:
        """Pairs of folders of one package, below it or the package itself, that import each other. An
        `__init__` counts as in no folder, because it is the public interface of its folder."""
        folder = {
            module: module.rpartition(".")[0]
            for module, path in self.files.items()
            if path.name != "__init__.py"
        }
        pairs = {
            (folder[module], folder[edge.module])
            for module, edges in self.edges.items()
            for edge in edges
            if module in folder and edge.module in folder and folder[module] != folder[edge.module]
        }
        return {(a, b) for a, b in pairs if a < b and (b, a) in pairs}

    def classes_by_name(self) -> dict[str, list[str]]:
        """Class name -> the modules that define one."""
        found: dict[str, list[str]] = {}
        for module, path in self.files.items():
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, []).append(module)
        return found

    def _reached(self, module: str) -> set[str]:
        reached, waiting = set[str](), [module]
        while waiting:
            for edge in self.edges[waiting.pop()]:
                if edge.module in self.files and edge.module not in reached:
                    reached.add(edge.module)
                    waiting.append(edge.module)
        return reached

    def _chain(
        self, start: str, found: Callable[[Edge], bool], followed: Callable[[Edge], bool]
    ) -> list[str] | None:
        came_from: dict[str, list[str]] = {start: [start]}
        waiting = deque([start])
        while waiting:
            module = waiting.popleft()
            for edge in filter(followed, self.edges[module]):
                chain = [*came_from[module], edge.module]
                if found(edge):
                    return chain
                if edge.module in self.files and edge.module not in came_from:
                    came_from[edge.module] = chain
                    waiting.append(edge.module)
        return None

    def _drawn(self, chain: list[str]) -> str:
        return " -> ".join(map(self.shown, chain))


def imports_in(path: Path) -> Iterator[Import]:
    return _imports_below(ast.parse(path.read_text()), path, for_types=False)


def _imports_below(node: ast.AST, path: Path, *, for_types: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield Import(alias.name, [], for_types)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, f"{path}: relative import; name the package"
        yield Import(node.module or "", [alias.name for alias in node.names], for_types)
    typed = node.body if isinstance(node, ast.If) and _asks_for_type_checking(node.test) else []
    for child in ast.iter_child_nodes(node):
        yield from _imports_below(child, path, for_types=for_types or child in typed)


def _asks_for_type_checking(test: ast.expr) -> bool:
    return ast.unparse(test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def declares_purity(path: Path) -> bool:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    return docstring.split()[-1:] == ["Pure."]


def _dotted(path: Path) -> str:
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
