"""The bounds of the worlds name existing attributes, because an unknown name bounds nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

from tests.architecture.house import HOUSE

NAMED = re.compile(r'"([A-Z]\w*)\.(\w+)(?:\[\])*"')
BOUNDS = re.compile(r"simulation\.\w+\.bounds")
TEXTS = {module: path.read_text() for module, path in HOUSE.files.items()}
DEFINED_IN = HOUSE.classes_by_name()


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse(TEXTS[module])


def sources(owner: str) -> Iterator[str]:
    """The sources of the modules that define this class or a base of it."""
    for module in DEFINED_IN.get(owner, ()):
        yield TEXTS[module]
        for node in ast.walk(parsed(module)):
            if isinstance(node, ast.ClassDef) and node.name == owner:
                for base in node.bases:
                    yield from sources(ast.unparse(base).split("[")[0])


def test_each_bound_names_an_attribute_of_a_class() -> None:
    named = {
        found for module, text in TEXTS.items() if BOUNDS.fullmatch(module) for found in NAMED.findall(text)
    }
    assert len(named) > 50
    lost = [
        f"{owner}.{attribute}"
        for owner, attribute in named
        if not any(re.search(rf"\b{attribute}\b", source) for source in sources(owner))
    ]
    assert lost == []
