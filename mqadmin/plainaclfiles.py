"""Reads the YAML files of ACL 1.0. Upstream: PlainPermissionManager and AclUtils.

Invariant: each value is a text, as it is written: a secret key of digits stays what it is. An error shows no line of a file."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from accesscontrol.plainacl import Conversion, NotPlainAcl, convert
from mqadmin.errors import AdminError

ENDINGS = (".yml", ".yaml")
TOOLS_FILE = "tools.yml"
"""The credentials of upstream's tools, which may be in the same folder."""
BYTES_MAX = 16 << 20
RESOLVED = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:merge")
"""Kinds of plain values that are no text."""


def read_plain_acls(names: list[str]) -> Conversion:
    """Convert files, and all files of ACL 1.0 below folders. Raises `AdminError`."""
    if find_spec("yaml") is None:
        raise AdminError("YAML is read with the library PyYAML: pip install 'autoswitch-mq[migration]'")
    files = list(dict.fromkeys(file.resolve() for name in names for file in _files(Path(name).expanduser())))
    try:
        return convert((str(file), _content(file)) for file in files)
    except NotPlainAcl as error:
        raise AdminError(str(error)) from None


def _files(path: Path) -> Iterator[Path]:
    """The file itself, or the files below a folder, in the order of their names. Raises `AdminError` if there is none."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        raise AdminError(f"{path}: there is no such file or folder")
    found = [
        file
        for file in sorted(path.rglob("*"))
        if file.suffix in ENDINGS and file.name != TOOLS_FILE and file.is_file()
    ]
    if not found:
        raise AdminError(f"{path}: no file below this folder ends in {' or '.join(ENDINGS)}")
    yield from found


def _content(file: Path) -> object:
    """The YAML of a file. Raises `AdminError`, without the text of the library, which may contain lines of the file."""
    import yaml

    try:
        with file.open("rb") as opened:
            data = opened.read(BYTES_MAX + 1)
    except OSError as error:
        raise AdminError(f"{file} cannot be read: {error.strerror}") from None
    if len(data) > BYTES_MAX:
        raise AdminError(f"{file} has more than {BYTES_MAX} bytes, so it is no file of ACL 1.0")
    try:
        return yaml.load(data, _text_loader())  # noqa: S506 - a SafeLoader
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{file}, line {mark.line + 1}" if mark is not None else str(file)
        raise AdminError(f"{place}: this is no valid YAML") from None


def _text_loader() -> Any:
    """A loader that leaves numbers, dates and truth values as texts."""
    import yaml

    resolvers = {
        first: [(tag, pattern) for tag, pattern in rows if tag in RESOLVED]
        for first, rows in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }
    return type("TextLoader", (yaml.SafeLoader,), {"yaml_implicit_resolvers": resolvers})
