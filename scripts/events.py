"""The events in the logs of servers and clients, collected from the logging calls in the source.

Invariant: a text is a literal or a constant of a module. A part that is known only at run time is an ellipsis."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
LEVELS = ("CRITICAL", "ERROR", "WARNING", "INFO")
METHODS = {
    "critical": "CRITICAL",
    "error": "ERROR",
    "exception": "ERROR",
    "warning": "WARNING",
    "info": "INFO",
}
UNKNOWN = "…"
OR = ". Or: "
ROOM = "the end of the line names it: make room on the disk, or raise the limit that was reached"


@dataclass(frozen=True, slots=True)
class Event:
    level: str
    """One of LEVELS, or two with a comma if the call chooses."""
    text: str
    fields: tuple[str, ...]
    hint: str

    @property
    def sorted_by(self) -> tuple[int, str]:
        return LEVELS.index(self.level.split(",")[0]), self.text.lower()


def events_of(package: str) -> list[Event]:
    """The events of INFO and above, the gravest first. A text has one entry, with the fields of all its calls."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for path in sorted((ROOT / package).rglob("*.py")):
        for event in Module(path).events():
            found.setdefault((event.level, event.text, event.hint), []).extend(event.fields)
    events = [
        Event(level, text, tuple(dict.fromkeys(fields)), hint)
        for (level, text, hint), fields in found.items()
    ]
    return sorted(events, key=lambda event: (*event.sorted_by, event.hint))


class Module:
    """One source file, with the constants that its texts use."""

    def __init__(self, path: Path) -> None:
        self._tree = ast.parse(path.read_text())
        self._constants = dict(self._named())

    def events(self) -> Iterator[Event]:
        for scope in ast.walk(self._tree):
            if isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef):
                for call in (node for node in ast.walk(scope) if isinstance(node, ast.Call)):
                    yield from self._retried(call, scope)
                    if level := self._level(call, scope):
                        yield from self._events_at(call, level, scope)

    def _named(self) -> Iterator[tuple[str, ast.expr]]:
        """The constants of this module, and those that it imports from modules of this project."""
        for node in self._tree.body:
            if isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
                source = ROOT / (node.module.replace(".", "/") + ".py")
                if source.exists():
                    there = _constants(source)
                    yield from (
                        (name.asname or name.name, there[name.name])
                        for name in node.names
                        if name.name in there
                    )
        yield from _assigned(self._tree.body)

    def _level(self, call: ast.Call, scope: ast.AST) -> str:
        if not isinstance(call.func, ast.Attribute) or not call.args:
            return ""
        if ast.unparse(call.func.value) not in ("logger", "self._logger"):
            return ""
        if call.func.attr == "log":
            names = [node for value in self._values(call.args[0], scope) for node in ast.walk(value)]
            levels = [node.attr for node in names if isinstance(node, ast.Attribute) and node.attr in LEVELS]
            return ", ".join(sorted({*levels}, key=LEVELS.index)) or "WARNING, INFO"
        return METHODS.get(call.func.attr, "")

    def _retried(self, call: ast.Call, scope: ast.AST) -> Iterator[Event]:
        """The events of a write that mqruntime/diskfull.py tries again: its refusal, with the remedy, and the end of the
        refusal."""
        if ast.unparse(call.func) != "RetriedWrite" or len(call.args) < 2:
            return
        options = {keyword.arg: keyword.value for keyword in call.keywords}
        level = ast.unparse(options["level"]).rpartition(".")[2] if "level" in options else "WARNING"
        for text in self._texts(call.args[1], scope):
            yield Event(level, text, ("why",), ROOM)
        for text in self._texts(options["again"], scope) if "again" in options else []:
            yield Event("INFO", text, ("after_ms",), "")

    def _events_at(self, call: ast.Call, level: str, scope: ast.AST) -> Iterator[Event]:
        template, *arguments = call.args[1:] if ast.unparse(call.func).endswith(".log") else call.args
        extra = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
        values = self._fields(extra[0], scope) if extra else {}
        hint = self._text(values.pop("hint"), scope) if "hint" in values else ""
        for form in self._texts(template, scope):
            text = self._filled(form, arguments, scope)
            if text.strip(f"{UNKNOWN}:; "):
                yield Event(level, text, tuple(values), hint)

    def _filled(self, form: str, arguments: list[ast.expr], scope: ast.AST) -> str:
        parts = form.replace("%d", "%s").replace("%r", "%s").split("%s")
        filled = parts[0]
        for number, part in enumerate(parts[1:]):
            filled += (self._text(arguments[number], scope) if number < len(arguments) else UNKNOWN) + part
        return " ".join(filled.split())

    def _fields(self, node: ast.expr, scope: ast.AST) -> dict[str, ast.expr]:
        """The fields of `fields(...)`, of a name with such a value, and of what either includes with `**`."""
        found: dict[str, ast.expr] = {}
        for value in self._values(node, scope):
            if isinstance(value, ast.Call):
                for keyword in value.keywords:
                    if keyword.arg is None:
                        found |= self._fields(keyword.value, scope)
                    else:
                        found[keyword.arg] = keyword.value
            elif isinstance(value, ast.Dict):
                found |= {
                    key.value: item
                    for key, item in zip(value.keys, value.values, strict=True)
                    if isinstance(key, ast.Constant) and isinstance(key.value, str)
                }
        return found

    def _values(self, node: ast.expr, scope: ast.AST) -> list[ast.expr]:
        """The values that a name gets in this function or module. Any other expression is its own value."""
        if not isinstance(node, ast.Name):
            return [node]
        given = [value for name, value in _assigned(ast.walk(scope)) if name == node.id]
        given = given or list(self._passed(node.id, scope))
        return given or ([self._constants[node.id]] if node.id in self._constants else [])

    def _passed(self, name: str, scope: ast.AST) -> Iterator[ast.expr]:
        """The values that this module passes for a parameter of one of its own methods."""
        assert isinstance(scope, ast.FunctionDef | ast.AsyncFunctionDef)
        names = [argument.arg for argument in scope.args.args if argument.arg != "self"]
        for call in ast.walk(self._tree) if name in names else ():
            if isinstance(call, ast.Call) and ast.unparse(call.func) == f"self.{scope.name}":
                yield from call.args[names.index(name) : names.index(name) + 1]

    def _texts(self, node: ast.expr, scope: ast.AST) -> list[str]:
        values = self._values(node, scope)
        sides = [side for value in values for side in _sides(value)]
        return [self._text(side, scope) for side in sides] or [UNKNOWN]

    def _text(self, node: ast.expr, scope: ast.AST) -> str:
        match node:
            case ast.Constant(value=str(text)):
                return text
            case ast.JoinedStr(values=parts):
                return "".join(self._text(part, scope) for part in parts)
            case ast.FormattedValue(value=ast.Name() as name) | (ast.Name() as name) if name.id.isupper():
                return self._text(self._constants[name.id], scope) if name.id in self._constants else UNKNOWN
            case ast.Name() if values := self._values(node, scope):
                texts = [self._text(value, scope) for value in values if not isinstance(value, ast.Name)]
                return OR.join(dict.fromkeys(texts)) or UNKNOWN
            case ast.IfExp(body=body, orelse=orelse):
                return OR.join(dict.fromkeys((self._text(body, scope), self._text(orelse, scope))))
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(
                table := self._constants.get(name), ast.Dict
            ):
                return OR.join(dict.fromkeys(self._text(value, scope) for value in table.values))
            case _:
                return UNKNOWN


@cache
def _constants(source: Path) -> dict[str, ast.expr]:
    return dict(_assigned(ast.parse(source.read_text()).body))


def _assigned(nodes: Iterator[ast.AST] | list[ast.stmt]) -> Iterator[tuple[str, ast.expr]]:
    for node in nodes:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name):
                    yield target.id, node.value
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = zip(target.elts, node.value.elts, strict=True)
                    yield from ((name.id, value) for name, value in pairs if isinstance(name, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            yield node.target.id, node.value


def _sides(node: ast.expr) -> list[ast.expr]:
    return [*_sides(node.body), *_sides(node.orelse)] if isinstance(node, ast.IfExp) else [node]
