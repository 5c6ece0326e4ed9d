"""Writes that wait for room on the disk.

Invariant: what comes after such a write does not happen before it. So a member whose disk is full falls silent like one whose
disk hangs, the others go on without it, and it goes on by itself once there is room."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable

from mqruntime.diskfull import DISK_FULL
from mqruntime.log import fields

logger = logging.getLogger(__name__)

RETRY_S = 1.0
REMIND_TRIES = 30


async def once_there_is_room(name: str, write: Callable[[], Awaitable[None]]) -> None:
    """Performs `write` of the file `name`; on a full disk again and again. Raises every other OSError."""
    for tried in itertools.count():
        try:
            await write()
        except OSError as error:
            if error.errno not in DISK_FULL:
                raise
            if tried % REMIND_TRIES == 0:
                logger.warning(
                    "%s cannot be written and this member takes no part until it is; make room on this controller's disk",
                    name,
                    extra=fields(why=error),
                )
            await asyncio.sleep(RETRY_S)
        else:
            if tried:
                logger.info("%s is written, this member takes part again", name)
            return
