"""Whether the compiled module is usable: `native`, or None and `why_not`.

Invariant: without it everything works, slower, and every byte on disk and on the wire is the same. Its users check once, when
they are created, and do not change afterwards. AUTOSWITCH_NATIVE=off in the environment of a process disables it."""

from __future__ import annotations

from importlib import import_module
from os import environ
from typing import TYPE_CHECKING, Protocol, cast

if TYPE_CHECKING:
    from nativepath.native import Entries, Sends

SWITCH = "AUTOSWITCH_NATIVE"
OFF = ("off", "0", "no", "false")
SOURCES = 6
"""Version of the compiled module's interface and of the bytes that it writes: a module built from other sources is not used."""


class Compiled(Protocol):
    """See native.pyi."""

    SOURCES: int
    Entries: type[Entries]

    def put_entries(
        self,
        room: memoryview,
        data: bytes | bytearray,
        begin: int,
        ends: tuple[int, ...],
        first_index: int,
        term: int,
        pos: int,
        batch_position: int,
        check: int,
    ) -> tuple[bytes, int]: ...

    def read_sends(
        self, view: memoryview, begin: int, end: int, frame_bytes_max: int, header_bytes_max: int
    ) -> Sends | None: ...


def _loaded() -> tuple[Compiled | None, str]:
    if environ.get(SWITCH, "").lower() in OFF:
        return None, f"switched off by {SWITCH}"
    try:
        found = cast(Compiled, import_module("nativepath.native"))
    except ImportError as error:
        return None, f"not built: {error}"
    except Exception as error:  # noqa: BLE001 - everything works without the module
        return None, f"{type(error).__name__}: {error}; install this project again"
    if getattr(found, "SOURCES", None) != SOURCES:
        return None, "built from other sources; install this project again"
    return found, ""


native, why_not = _loaded()
