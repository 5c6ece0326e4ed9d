"""mqreplay run in this process: exit code, stdout and stderr, and stores for it to read."""

from __future__ import annotations

import contextlib
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sparkreplay.__main__ import run
from tests.unit.sparkreplay.storefolder import StoreFolder

DAY_MS = 86_400_000
NOON_MS = 1_700_049_600_000  # 2023-11-15 12:00 UTC


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        made: dict[str, Any] = json.loads(self.out)
        return made


def mqreplay(*arguments: str) -> Done:
    """One worker, in this process, unless the arguments say otherwise."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(list(arguments))
    return Done(code, out.getvalue(), err.getvalue())


def two_days(root: Path, count: int = 400) -> StoreFolder:
    """Two topics and a retry topic in turn, over three queues and two days."""
    store = StoreFolder(root, segment_bytes=16384)
    for number in range(count):
        store.add(
            topic=("orders", "payments", "%RETRY%billing")[number % 3],
            queue_id=number // 3 % 3,
            body=f"body {number} ".encode() * (number % 9),
            properties=f"TAGS\x01T{number % 4}\x02UNIQ_KEY\x01K{number}\x02",
            stored_ms=NOON_MS + number * DAY_MS // count,
        )
    return store


def log_options(path: str, *more: str) -> tuple[str, ...]:
    """Options that read a store in several splits with one worker."""
    return (path, "--split", "8k", "--workers", "1", "--json", *more)
