"""A slave's side of replication, for both kinds of links: follows one master, and reconnects when the connection ends.

Invariant: there is one connection at a time. A durable step (a change of log or epoch file that must be on disk before the link
continues) is never cancelled: `stop` waits for it. When `stop` returns, neither the socket nor a step uses the log. A step that
fails on a full disk ends the connection, and is repeated on the next connection."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine

from ha.counters import HACounters
from ha.log import ReplicatedLog
from ha.settings import HASettings
from ha.slave.connection import ReceivingLink, SlaveConnection
from ha.slave.link import Cut, PersistEpochs
from mqruntime.clock import Clock
from mqruntime.diskfull import RetriedWrite
from mqruntime.log import fields
from mqruntime.network import Link, Network
from mqruntime.repeatedfailure import RepeatedFailure
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha.slave")

LASTING_WAITS = 2  # a connection that lasts longer than this many of the longest waits counts as good
NO_ROOM = "no disk space for a change that the master's log requires, retrying"


async def cut_partial_record(log: ReplicatedLog) -> None:
    """Let the log end with its last complete record, durably. Later bytes, which a broken connection or a crash left, are cut.
    The confirm offset is lowered to the end of a complete record too. Raises OSError."""
    await log.confirm_whole_records()
    log_end = log.max_offset()
    boundary = await log.truncate(log_end)
    if boundary < log_end:
        logger.info(
            "log truncated",
            extra=fields(log_end=log_end, to=boundary, bytes=log_end - boundary, why="partial record"),
        )


def wait_after(frames: int, lasted_ms: int, settings: HASettings) -> int | None:
    """The delay after a connection that brought `frames` frames and lasted `lasted_ms`; None means the same delay as before
    it."""
    lasting = frames > 0 and lasted_ms > LASTING_WAITS * settings.reconnect_ms_max
    return settings.reconnect_ms_min if lasting else None


class Follower:
    """The follower. Subclasses make the links, and do the work before and during a connection."""

    def __init__(
        self,
        log: ReplicatedLog,
        *,
        settings: HASettings,
        clock: Clock,
        network: Network,
        tasks: Tasks,
        counters: HACounters,
        on_confirm: Callable[[], None],
        on_caught_up: Callable[[], None],
        name: str,
    ) -> None:
        self._log = log
        self._settings = settings
        self._clock = clock
        self._network = network
        self._tasks = tasks
        self._counters = counters
        self._on_confirm = on_confirm
        self._on_caught_up = on_caught_up
        self._address: str | None = None
        self._address_changed = asyncio.Event()
        # the log end and confirm offset that last were ends of records; kept because the check reads a whole segment
        self._whole = -1, -1
        self._unreached = RepeatedFailure()
        self._write = RetriedWrite(logger, NO_ROOM)
        self._log_refused = False  # the log could not accept the data of the last connection
        self._step: asyncio.Task[bool] | None = None
        self.connection: SlaveConnection | None = None
        self._task = tasks.start(self._follow(), name=name)

    # -- for subclasses

    async def _prepare(self) -> int | None:
        """Prepare a connection. Returns the delay in ms before the next attempt, or None to connect now."""
        raise NotImplementedError

    def _new_link(self) -> ReceivingLink:
        """The link of a connection that is about to be made."""
        raise NotImplementedError

    async def _perform(self, step: Cut | PersistEpochs, connection: SlaveConnection) -> None:
        """Perform the durable step that the link of `connection` waits for. Raises OSError."""
        raise NotImplementedError

    def _link_ended(self) -> None:
        """Handle the end of an established connection, unless `stop` ended it."""

    def _stayed_out(self, connection: SlaveConnection, address: str) -> bool:
        """Whether the link of an ended connection refused to follow this master. If so, the reason is logged."""
        return False

    # -- the one master

    @property
    def is_connected(self) -> bool:
        return self.connection is not None and self.connection.is_up

    @property
    def master_ha_address(self) -> str | None:
        return self._address

    def set_address(self, address: str) -> None:
        """Follow the master at `address` ("host:port"). A connection to another address ends."""
        if address == self._address:
            return
        self._address = address
        self._address_changed.set()
        if self.connection is not None:
            self.connection.close("the master's HA address has changed")

    async def stop(self) -> None:
        """Stop. Raises the OSError of a step that was in progress."""
        self._task.cancel()
        await asyncio.wait([self._task])
        if self.connection is not None:
            self.connection.close("change of role")
            await self.connection.wait_closed()
        if self._step is not None:
            await self._step

    async def _follow(self) -> None:
        wait_ms = self._settings.reconnect_ms_min
        while True:
            self._address_changed.clear()
            if self._address is not None:
                wait_ms = await self._connected_to(self._address) or wait_ms
            wait_s = None if self._address is None else wait_ms / 1000
            try:
                async with asyncio.timeout(wait_s):
                    await self._address_changed.wait()
                wait_ms = self._settings.reconnect_ms_min
            except TimeoutError:
                wait_ms = min(2 * wait_ms, self._settings.reconnect_ms_max)

    async def _connected_to(self, address: str) -> int | None:
        """Run one connection. Returns the delay before the next connection. None means the same delay as before this
        connection: the master was not reached, this log does not fit the master's log, no frame came, or the connection ended
        soon. A connection ends soon if two brokers have one id."""
        log = self._log
        if (log.max_offset(), log.confirm_offset()) != self._whole:
            if not await self._durably(cut_partial_record(log)):
                return self._settings.full_log_wait_ms
            self._whole = log.max_offset(), log.confirm_offset()
        if (wait_ms := await self._prepare()) is not None:
            return wait_ms
        if self._log_refused and not self._has_room():
            return self._settings.full_log_wait_ms
        host, _, port = address.rpartition(":")
        try:
            connection = await self._network.connect(
                self._new_connection,
                host.strip("[]"),
                int(port),
                self._settings.connect_timeout_ms,
                Link.REPLICATION,
            )
        except (OSError, TimeoutError, ValueError) as error:
            if self._unreached.failed(address, self._clock.monotonic_ms()):
                logger.warning(
                    "master not reached, retrying",
                    extra=fields(address=address, why=str(error) or "timeout"),
                )
            return None
        connected_ms = self._clock.monotonic_ms()
        self._unreached.recovered(connected_ms)
        logger.info("connected to master", extra=fields(address=address, log_end=self._log.max_offset()))
        while (step := await connection.next_durable_step()) is not None:
            if not await self._durably(self._perform(step, connection)):
                connection.refuse_log("no room on this broker's disk")
        logger.info(
            "connection to master ended", extra=fields(address=address, reason=connection.close_reason)
        )
        self._link_ended()
        self._log_refused = connection.log_refused
        if self._log_refused:
            return self._settings.full_log_wait_ms
        if self._stayed_out(connection, address):
            return None
        self._write.done()
        return wait_after(connection.link.frames, self._clock.monotonic_ms() - connected_ms, self._settings)

    def _has_room(self) -> bool:
        """Whether the log accepts bytes again, so that it makes sense to connect. An empty log is not tested, because only the
        master knows its start."""
        end = self._log.max_offset()
        if end == self._log.min_offset():
            return True
        try:
            self._log.write_view(end, 1)
        except OSError:
            return False
        return True

    def _new_connection(self) -> SlaveConnection:
        self.connection = SlaveConnection(
            self._new_link(),
            self._log,
            self._clock,
            self._tasks,
            self._counters,
            self._on_confirm,
            self._on_caught_up,
        )
        return self.connection

    async def _durably(self, step: Coroutine[None, None, None]) -> bool:
        """Run a step, which completes even if this task is cancelled. If the step failed because of a full disk, this is logged
        and False is returned; nothing has changed then."""
        self._step = asyncio.get_running_loop().create_task(self._unless_full(step), name="ha-slave-step")
        done = await asyncio.shield(self._step)
        self._step = None
        return done

    async def _unless_full(self, step: Coroutine[None, None, None]) -> bool:
        try:
            await step
        except OSError as error:
            self._write.failed(error)
            return False
        return True
