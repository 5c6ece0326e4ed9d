"""The settings of a server as a table for the documentation.

Invariant: the same on every machine: paths below the home folder are shown with `~`."""

from __future__ import annotations

from pathlib import Path

from pydantic.fields import FieldInfo

from mqruntime.settings import OURS, Settings, text_of


def markdown_table(settings_class: type[Settings]) -> str:
    """A row a key, sorted: key, default here, upstream's default where it differs, meaning."""
    rows = ["| key | default | upstream | meaning |", "|---|---|---|---|"]
    for key, name in sorted(settings_class.keys().items()):
        field = settings_class.model_fields[name]
        upstream = settings_class.UPSTREAM.get(key, "")
        shown = "has no such key" if upstream == OURS else upstream
        assert field.description, f"{settings_class.__name__}: {key} has no description"
        rows.append(f"| `{key}` | {_default(field)} | {shown} | {field.description} |")
    return "\n".join(rows) + "\n"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    value = field.default
    if isinstance(value, Path) and value.is_relative_to(Path.home()):
        return f"`~/{value.relative_to(Path.home())}`"
    text = text_of(value)
    return f"`{text}`" if text else "empty"
