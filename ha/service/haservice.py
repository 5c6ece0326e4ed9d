"""Replication of one broker's log: listens on the HA port, and has the master's role, the slave's role or none. Upstream:
AutoSwitchHAService.

Invariant: there is at most one role at a time, and the epoch of the role never decreases. A change of role ends the former role
first. When `become_master` or `become_slave` returns, no link of the former role uses the log, and the epoch of the new role is
durable."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Callable, Collection
from typing import Any, cast

from epochfile.file import EpochFile
from epochfile.history import NO_EPOCH, EpochHistory
from ha.classic.client import MasterRecords, PairSlave
from ha.classic.mastership import PairMastership
from ha.counters import HACounters
from ha.epochbinding import NOTHING_DUE
from ha.epochs import KeptEpochs
from ha.errors import EpochFenced, HAAddressInUse, HACannotListen, StoreOfSet
from ha.log import ReplicatedLog
from ha.master.admittance import Why
from ha.master.gate import Asker, Gate, ReplicaReader
from ha.master.mastership import Controllers, Mastership
from ha.service.status import runtime_info
from ha.settings import HASettings, PairSettings
from ha.slave.client import MasterWitness, SlaveClient
from ha.slave.follower import Follower, cut_partial_record
from ha.slave.link import LeftBehind, SlaveState, StayOut
from mqruntime.clock import Clock
from mqruntime.listening import why_not_listening
from mqruntime.log import fields
from mqruntime.network import PLAIN, Link, Network, OpenPort
from mqruntime.tasks import Tasks

logger = logging.getLogger("ha")


class _Refused(asyncio.Protocol):
    """A rejected connection: this broker is not master, or has too many connections."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).abort()


class HAService:
    def __init__(
        self,
        log: ReplicatedLog,
        epochs: EpochFile,
        *,
        settings: HASettings,
        clock: Clock,
        host: str,
        port: int,
        advertised_host: str,
        members_min: Callable[[], int],
        truncation_allowed: Callable[[], int | None],
        catch_up_limit: Callable[[], int | None],
        on_fatal: Callable[[BaseException], None],
        pair: PairSettings | None = None,
        network: Network = PLAIN,
    ) -> None:
        """Listens on `host`; slaves connect to `advertised_host`. Three settings are read at each use, because they may change:
        `members_min` is minInSyncReplicas, `truncation_allowed` is allowTruncationTo (None: not set), `catch_up_limit` is
        maxHaTransferByteInSecond (None: no limit). With `pair` the links use the classic protocol. `on_fatal` is called when
        the disk failed and the process must stop."""
        self._log = log
        self._epochs = KeptEpochs(epochs)
        self._settings = settings
        self._clock = clock
        self._host = host
        self._port = port
        self._advertised_host = advertised_host
        self._members_min = members_min
        self._truncation_allowed = truncation_allowed
        self._catch_up_limit = catch_up_limit
        self._pair = pair
        self._records: MasterRecords | None = None
        self._witness: MasterWitness | None = None
        self._is_java: Callable[[int, str], bool] = lambda broker_id, host: False
        self._waiting_end: Callable[[], int] = lambda: NOTHING_DUE
        self._controllers: Controllers | None = None
        self._gate: Gate | None = None
        self._confirm_callbacks: list[Callable[[], None]] = []
        self._caught_up_callbacks: list[Callable[[], None]] = []
        self._ended_callbacks: list[Callable[[], None]] = []
        self._tasks = Tasks(on_fatal)
        self._network = network
        self._open_port: OpenPort | None = None
        self._change_of_role = asyncio.Lock()
        # the present role, on the master's or on the slave's side of the links
        self._end: Mastership | PairMastership | Follower | None = None
        self._epoch = NO_EPOCH
        self._master_id = -1
        self._growth_pending = False
        self.counters = HACounters()

    async def start(self) -> None:
        """Read the epoch file and listen.

        Raises: EpochFileUnreadable, EpochFileForeign, EpochHistoryMissing, StoreOfSet, HAAddressInUse,
        HACannotListen."""
        await self._epochs.load(self._log)
        if self._pair is None:
            self._epochs.within(self._log)  # otherwise this broker could be elected but never lead
        elif (last := self._epochs.history.last()) is not None:
            raise StoreOfSet(self._epochs.file_name, last.epoch)
        self._epoch = self._epochs.history.last_epoch()
        self._log.on_append(self._log_grew)
        if self._settings.acks_flushed and self._pair is None:
            self._log.on_flush(self._flushed)
        try:
            self._open_port = await self._network.listen(
                self._accept, self._host, self._port, Link.REPLICATION
            )
        except OSError as error:
            kind = HAAddressInUse if error.errno == errno.EADDRINUSE else HACannotListen
            raise kind(self._host, self._port, why_not_listening(error)) from error
        self._port = self._open_port.port

    async def stop(self) -> None:
        if self._open_port is not None:
            await self._open_port.close()
        async with self._change_of_role:
            await self._end_links("shutdown")
        await self._tasks.stop()

    @property
    def address(self) -> str:
        """The address (host:port) from which slaves fetch the log. If the configured port is 0, the system chooses a port."""
        return f"{self._advertised_host}:{self._port}"

    @property
    def epoch(self) -> int:
        """The newest known epoch, accepted in a change of role or found in the epoch file; -1 if no epoch is known."""
        return self._epoch

    @property
    def history(self) -> EpochHistory:
        return self._epochs.history

    def on_confirm(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the confirm offset or `acked_end` may have moved, on a master and on a slave."""
        self._confirm_callbacks.append(callback)

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this log holds everything that a master must hold. On a slave this is once for each link (see
        CaughtUp in ha/slave/link.py), on a master at once."""
        self._caught_up_callbacks.append(callback)

    def on_link_ended(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this slave's connection to its master has ended, because there may be another master."""
        self._ended_callbacks.append(callback)

    def speaks_through(self, controllers: Controllers, replicas: ReplicaReader) -> None:
        """Set the clients that ask the controllers for SyncStateSets and for the brokers of the set. Call this before the first
        role."""
        self._controllers = controllers
        self._gate = Gate(
            replicas,
            checks_hosts=self._settings.slave_host_check,
            role=self._settings.slave_role,
            clock=self._clock,
            tasks=self._tasks,
            counters=self.counters,
        )

    async def why_not(self, asker: Asker, broker_id: int) -> Why | None:
        """The reason why `asker` may not act for `broker_id`; None if it may. The check is the same as for links."""
        assert self._gate is not None, "speaks_through comes first"
        return await self._gate.why_not(asker, broker_id)

    def compares_with(self, records: MasterRecords | None) -> None:
        """Set the reader of a pair master's records, None if the master cannot be asked. Call this before the first role."""
        self._records = records

    def asks_in_doubt(self, witness: MasterWitness) -> None:
        """Set the client that asks a master whose epochs contradict this broker's epochs. Call this before the first role."""
        self._witness = witness

    def knows_java_by(self, is_java: Callable[[int, str], bool]) -> None:
        """Set the test whether the slave with a broker id and host is upstream's. Call this before the first role."""
        self._is_java = is_java

    def answers_first(self, waiting_end: Callable[[], int]) -> None:
        """Set the function that returns the end of the first send that waits for a slave. The result is above the log's end if
        no send waits."""
        self._waiting_end = waiting_end

    async def forget_epochs(self) -> None:
        """Drop the epochs of a log that is gone. Call this before the first role with the new log. Raises OSError."""
        assert self._end is None and self._log.max_offset() == self._log.min_offset()
        await self._epochs.store(EpochHistory())
        self._epoch = NO_EPOCH

    async def owned_by(self, broker_id: int | None) -> None:
        """Set the broker id of this store; None while an id is applied for. Call this before the first role. Raises
        EpochFileForeign, OSError."""
        await self._epochs.binding.owned_by(broker_id)

    # -- roles

    async def become_master(
        self, epoch: int, broker_id: int, sync_state_set: frozenset[int], sync_state_set_epoch: int
    ) -> None:
        """Lead `epoch` as `broker_id`. On return the log ends with a complete record, and the epoch's entry is durable. A
        repeated call for the same epoch keeps its entry. Raises EpochFenced, EpochHistoryMissing, OSError."""
        if self._pair is not None:
            await self._lead_pair(self._pair)
            return
        assert self._controllers is not None and self._gate is not None, "speaks_through comes first"
        async with self._change_of_role:
            self._fence(epoch)
            self._epochs.binding.owner = broker_id
            if isinstance(self._end, Mastership):
                if epoch > self._epoch:
                    await self._end.new_epoch(epoch, sync_state_set, sync_state_set_epoch)
                    self._epoch = epoch
                return
            await self._end_links("this broker becomes master")
            await cut_partial_record(self._log)
            history = self._epochs.within(self._log)
            if history.last_epoch() != epoch:
                history = history.append((epoch, self._log.max_offset()))
            await self._epochs.store(history)
            self._epoch = epoch
            self._master_id = broker_id
            self._end = Mastership(
                self._log,
                self._epochs,
                broker_id=broker_id,
                sync_state_set=sync_state_set,
                sync_state_set_epoch=sync_state_set_epoch,
                members_min=self._members_min,
                catch_up_limit=self._catch_up_limit,
                settings=self._settings,
                clock=self._clock,
                tasks=self._tasks,
                counters=self.counters,
                controllers=self._controllers,
                gate=self._gate,
                on_confirm=self._confirmed,
                is_java=self._is_java,
            )
            self._end.begin()
            self._caught_up()
            self.counters.role_changes += 1
            logger.info("master", extra=fields(epoch=epoch, log_end=self._log.max_offset(), epochs=history))

    async def become_slave(
        self, epoch: int, broker_id: int, master_id: int, master_ha_address: str | None = None
    ) -> None:
        """Follow `master_id` as `broker_id`, at once if the master's address ("host:port") is known. A link to the same master
        stays. On return no data of another link is acknowledged. Raises EpochFenced, EpochHistoryMissing, OSError."""
        if self._pair is not None:
            await self._follow_pair(self._pair)
            return
        async with self._change_of_role:
            self._fence(epoch)
            self._epochs.binding.owner = broker_id
            if not (isinstance(self._end, SlaveClient) and master_id == self._master_id):
                self._epochs.within(self._log)
                await self._end_links("this broker becomes slave")
                self._end = SlaveClient(
                    self._log,
                    self._epochs,
                    broker_id=broker_id,
                    epoch=lambda: self._epoch,
                    settings=self._settings,
                    clock=self._clock,
                    network=self._network,
                    tasks=self._tasks,
                    counters=self.counters,
                    on_confirm=self._confirmed,
                    on_caught_up=self._caught_up,
                    on_ended=self._link_ended,
                    truncation_allowed=self._truncation_allowed,
                    witness=self._witness,
                )
                self.counters.role_changes += 1
                self._master_id = master_id
                logger.info(
                    "slave", extra=fields(epoch=epoch, master=master_id, log_end=self._log.max_offset())
                )
            self._epoch = epoch
            self._end.epoch_named(epoch)
            if master_ha_address is not None:
                self._end.set_address(master_ha_address)

    def set_master_ha_address(self, address: str, epoch: int) -> None:
        """Set the HA address of the master of `epoch`. No effect unless this broker follows that master now."""
        if isinstance(self._end, Follower) and epoch == self._epoch:
            self._end.set_address(address)

    async def _lead_pair(self, pair: PairSettings) -> None:
        async with self._change_of_role:
            await self._end_links("this broker becomes master")
            await cut_partial_record(self._log)
            self._end = PairMastership(
                self._log,
                pair=pair,
                settings=self._settings,
                clock=self._clock,
                tasks=self._tasks,
                counters=self.counters,
                on_confirm=self._confirmed,
                waiting_end=self._waiting_end,
            )
            self._end.begin()
            self.counters.role_changes += 1
            logger.info("master of a pair", extra=fields(log_end=self._log.max_offset()))

    async def _follow_pair(self, pair: PairSettings) -> None:
        async with self._change_of_role:
            await self._end_links("this broker becomes slave")
            await cut_partial_record(self._log)
            self._log.set_confirm_offset(
                self._log.max_offset()
            )  # data that a killed process received counts too
            self._confirmed()
            self._end = PairSlave(
                self._log,
                self._records,
                settings=self._settings,
                clock=self._clock,
                network=self._network,
                tasks=self._tasks,
                counters=self.counters,
                on_confirm=self._confirmed,
                on_caught_up=self._caught_up,
            )
            self.counters.role_changes += 1
            logger.info("slave of a pair", extra=fields(log_end=self._log.max_offset()))
            if pair.master_ha_address is not None:
                self._end.set_address(pair.master_ha_address)

    def _fence(self, epoch: int) -> None:
        newest = max(self._epoch, self._epochs.history.last_epoch())
        if epoch < newest:
            raise EpochFenced(epoch, newest)

    async def _end_links(self, reason: str) -> None:
        end, self._end = self._end, None
        if isinstance(end, Mastership | PairMastership):
            await end.end(reason)
        elif end is not None:
            await end.stop()

    @property
    def follows(self) -> bool:
        """Whether this broker is connected to the master that it follows."""
        return isinstance(self._end, Follower) and self._end.is_connected

    @property
    def copies(self) -> bool:
        """Whether this log is a prefix of its master's log and grows with it; False without a link."""
        connection = self._end.connection if isinstance(self._end, SlaveClient) else None
        return connection is not None and connection.link.state is SlaveState.TRANSFER

    def holds(self, end: int) -> bool:
        """See Replication.holds. A pair's slave has no link before it has compared the logs."""
        is_one_log = self.follows if self._pair is not None else self.copies
        return is_one_log and self._log.max_offset() >= end

    # -- a master's view of its SyncStateSet

    @property
    def mastership(self) -> Mastership | None:
        """The present mastership; None unless this broker leads under controllers."""
        return self._end if isinstance(self._end, Mastership) else None

    def in_sync_count(self) -> int:
        """The number of members of the applied set; in a pair this broker and the slaves that are close; 0 unless this broker
        is master."""
        end = self._end
        if isinstance(end, Mastership):
            return len(end.sync_state_set.applied_members)
        return 1 + len(end.in_step()) if isinstance(end, PairMastership) else 0

    def applied_members(self) -> frozenset[int]:
        """The SyncStateSet as the controllers applied it; empty unless this broker is master."""
        mastership = self.mastership
        return frozenset() if mastership is None else mastership.sync_state_set.applied_members

    def counted_members(self) -> frozenset[int]:
        """The brokers over which acks are counted now: the applied set, an open proposal, and slaves about to be proposed.
        Empty unless this broker is master."""
        mastership = self.mastership
        return frozenset() if mastership is None else mastership.sync_state_set.union()

    def confirm_offset(self) -> int:
        return self._log.confirm_offset()

    def may_confirm(self) -> bool:
        """Whether data may be acknowledged: enough members are in sync, and the controllers know the minimum."""
        if isinstance(self._end, PairMastership):
            return True
        mastership = self.mastership
        return mastership is not None and mastership.sync_state_set.may_confirm()

    def agreed_without(self, missing: Collection[int], epoch: int) -> bool:
        """Whether no member is `missing`, because each member may be elected."""
        return not missing

    async def still_leads(self) -> bool:
        """Always True. Under controllers, broker.role.membership learns from the controllers when this broker no longer leads.
        In a pair there is no election."""
        return True

    def acked_end(self) -> int:
        """The offset up to which sends may be answered OK; 0 unless this broker is master."""
        end = self._end
        if isinstance(end, Mastership):
            return end.sync_state_set.acked_end()
        return end.acked_end if isinstance(end, PairMastership) else 0

    def followed_end(self) -> int:
        """See Replication.followed_end."""
        return self._end.followed_end() if isinstance(self._end, PairMastership) else self.acked_end()

    def reachable(self, end: int) -> bool:
        """Whether a send that ends at `end` may wait. In a pair all slaves may be disconnected or too far behind."""
        return self._end.reachable(end) if isinstance(self._end, PairMastership) else True

    # -- the rest

    def read_from(self) -> int | None:
        """The offset from which on connected slaves still read the log; None without a connected slave, and unless this broker
        is master."""
        return self._end.read_from() if isinstance(self._end, Mastership | PairMastership) else None

    async def truncate_epoch_prefix(self, log_min: int) -> None:
        """Drop the epochs below `log_min`, whose part of the log retention has removed. Raises OSError."""
        await self._epochs.truncate_prefix(log_min)

    @property
    def stays_out(self) -> StayOut | LeftBehind | None:
        """The reason why this replica does not follow its master until an operator acts; None while it follows or leads."""
        return self._end.stays_out if isinstance(self._end, SlaveClient | PairSlave) else None

    def status(self) -> dict[str, Any]:
        """HARuntimeInfo, see ha/service/status.py."""
        return runtime_info(self._log, self._end, self._clock.monotonic_ms())

    def slaves(self) -> dict[int, tuple[int, bool]]:
        """For each connected slave: broker id -> (ack offset, whether it is in the applied SyncStateSet). Of several links with
        one id the newest counts. Empty unless this broker is master."""
        if self.mastership is None:
            return {}
        members = self.mastership.sync_state_set.applied_members
        return {
            link.slave_broker_id: (link.link.ack_offset, link.slave_broker_id in members)
            for link in self.mastership.connections
            if link.slave_broker_id >= 0
        }

    def may_be_followed(self) -> bool:
        """Whether a member of the set is connected."""
        return any(in_sync for _, in_sync in self.slaves().values())

    def _log_grew(self) -> None:
        """Schedule a notification, at most one in each turn of the event loop, however many connections brought messages."""
        if not self._growth_pending:
            self._growth_pending = True
            asyncio.get_running_loop().call_soon(self._notify_growth)

    def _notify_growth(self) -> None:
        self._growth_pending = False
        try:
            if isinstance(self._end, Mastership | PairMastership):
                self._end.log_grew()
        except Exception as error:
            self._tasks.fail(error)

    def _flushed(self) -> None:
        if isinstance(self._end, Mastership | SlaveClient):
            self._end.flushed()

    def _confirmed(self) -> None:
        if self._log.confirm_offset() >= self._epochs.binding.due:
            self._epochs.binding.due = NOTHING_DUE
            self._tasks.start(self._epochs.seal(self._log), name="ha-seal-epochs")
        for callback in self._confirm_callbacks:
            callback()

    def _caught_up(self) -> None:
        for callback in self._caught_up_callbacks:
            callback()

    def _link_ended(self) -> None:
        for callback in self._ended_callbacks:
            callback()

    def _accept(self) -> asyncio.BaseProtocol:
        end = self._end
        if end is None or isinstance(end, Follower) or len(end.connections) >= self._settings.connections_max:
            return _Refused()
        return end.accept()
