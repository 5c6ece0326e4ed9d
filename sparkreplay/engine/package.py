"""The archive for Spark's --py-files: the reader and the modules that it imports, so that executors need only numpy and
pyarrow.

Invariant: the archive's content is found by following imports. Two archives of one version have the same bytes."""

from __future__ import annotations

import ast
import io
import zipfile
from collections.abc import Iterator
from pathlib import Path

from sparkreplay.durable import replace_durably

HERE = Path(__file__).parents[2]
"""The folder of this project's packages."""
READER = "sparkreplay"
OURS = ("sparkreplay", "epochfile", "messagestore", "mqruntime")
DRIVER_ONLY = ("sparkreplay.__main__", "sparkreplay.commands", "sparkreplay.resend")
"""Left out are commands and modules for a live cluster, because they need the whole installation."""
ALSO = ("messagestore.walker",)
"""Added for users' jobs that walk records themselves."""
MADE_AT = (1980, 1, 1, 0, 0, 0)
PERMISSIONS = 0o644 << 16


def write_package(target: str | Path) -> Path:
    """Write the archive and return its path. Raises OSError, which names the archive, and leaves no temporary file."""
    path = Path(target)
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, source in sorted(packaged_files().items()):
            entry = zipfile.ZipInfo(name, MADE_AT)
            entry.external_attr = PERMISSIONS
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, source)
    replace_durably(path, made.getvalue())
    return path


def packaged_files() -> dict[str, bytes]:
    """Name in the archive -> source."""
    files: dict[str, bytes] = {}
    waiting = [
        ".".join(path.relative_to(HERE).with_suffix("").parts)
        for path in (HERE / READER).rglob("*.py")
        if path.stem != "__init__"
    ]
    waiting += [READER, *ALSO]
    seen: set[str] = set()
    while waiting:
        module = waiting.pop()
        if module in seen or not is_packaged(module):
            continue
        seen.add(module)
        for name in (f"{module.replace('.', '/')}.py", f"{module.replace('.', '/')}/__init__.py"):
            if (HERE / name).is_file():  # else the name is imported from a module
                source = files[name] = (HERE / name).read_bytes()
                waiting += imported(ast.parse(source))
    return files


def is_packaged(module: str) -> bool:
    return module.split(".")[0] in OURS and not any(
        module == name or module.startswith(name + ".") for name in DRIVER_ONLY
    )


def imported(tree: ast.Module) -> Iterator[str]:
    """The dotted names of all imports in a module, and of the packages that contain them."""
    for node in ast.walk(tree):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
