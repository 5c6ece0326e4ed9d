"""Reads files with settings of topics or groups, for commands that take such a file.

Invariant: a file is read whole and checked before any request is sent."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from mqadmin.errors import AdminError
from remoting import fastjson
from remoting.bodies.body import Body
from remoting.errors import BodyError

BodyT = TypeVar("BodyT", bound=Body)


def read_list(kind: type[BodyT], file: str) -> list[BodyT]:
    """The JSON array of `kind` in `file`, which must not be empty. Raises `AdminError`."""
    try:
        rows = fastjson.loads(Path(file).read_bytes())
    except OSError as error:
        raise AdminError(f"{file} cannot be read: {error.strerror}") from error
    except fastjson.FastJsonError as error:
        raise AdminError(f"{file} is no JSON: {error}") from error
    if not isinstance(rows, list) or not rows:
        raise AdminError(f"{file} holds no JSON array of {kind.__name__}")
    try:
        return [kind.from_json(row, f"{file}[{number}]") for number, row in enumerate(rows)]
    except BodyError as error:
        raise AdminError(str(error)) from error
