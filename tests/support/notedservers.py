"""The servers that a test starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from remoting.router import Router
from remoting.server import RemotingServer


@contextmanager
def servers_noted() -> Iterator[list[tuple[int, Router]]]:
    """Port and router of each created server."""
    noted: list[tuple[int, Router]] = []
    made: Callable[..., None] = RemotingServer.__init__

    def noting(self: RemotingServer, router: Router, **settings: Any) -> None:
        noted.append((settings["port"], router))
        made(self, router, **settings)

    with patch.object(RemotingServer, "__init__", noting):
        yield noted
