"""Replication of one broker's log: listens on the HA port, and is a master, a slave or neither. Upstream:
AutoSwitchHAService.

Invariant: at most one role at a time, and its epoch never decreases. A change of role ends the former role first:
when `become_master` or `become_slave` returns, no link of the former role touches the log, and the epoch of the new
role is durable."""

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
    """A connection to a broker that is not master, or that has too many."""

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
        """Listens on `host`; slaves connect to `advertised_host`. Three values may change: `members_min` is
        minInSyncReplicas, `truncation_allowed` is allowTruncationTo (None: not set), `catch_up_limit` is
        maxHaTransferByteInSecond (None: no limit). `pair`: the links are classic ones. `on_fatal`: the disk failed;
        stop the process."""
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
        # the master's or slave's end of the links
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
            self._epochs.within(self._log)  # or it could be elected, and never lead
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
        """Address from which slaves fetch the log, host:port; with port 0 in the configuration the system chooses."""
        return f"{self._advertised_host}:{self._port}"

    @property
    def epoch(self) -> int:
        """The newest known epoch: accepted in a change of role, or found in the epoch file. -1 if none."""
        return self._epoch

    @property
    def history(self) -> EpochHistory:
        return self._epochs.history

    def on_confirm(self, callback: Callable[[], None]) -> None:
        """Call `callback` whenever the confirm offset or `acked_end` may have moved, on a master and on a slave."""
        self._confirm_callbacks.append(callback)

    def on_caught_up(self, callback: Callable[[], None]) -> None:
        """Call `callback` when this log holds everything that a master of it must: on a slave once a link, as
        SlaveLink says; on a master at once."""
        self._caught_up_callbacks.append(callback)

    def on_link_ended(self, callback: Callable[[], None]) -> None:
        """Call `callback` when a slave's connection to its master has ended: there may be another master."""
        self._ended_callbacks.append(callback)

    def speaks_through(self, controllers: Controllers, replicas: ReplicaReader) -> None:
        """Set the clients that ask the controllers for SyncStateSets and for the brokers of the set; before the first
        role."""
        self._controllers = controllers
        self._gate = Gate(
            replicas,
            checks_hosts=self._settings.slave_host_check,
            clock=self._clock,
            tasks=self._tasks,
            counters=self.counters,
        )

    async def why_not(self, asker: Asker, broker_id: int) -> Why | None:
        """The reason why `asker` may not act for `broker_id`, by the same check as for links; None if it may."""
        assert self._gate is not None, "speaks_through comes first"
        return await self._gate.why_not(asker, broker_id)

    def compares_with(self, records: MasterRecords | None) -> None:
        """Set the reader of a pair master's records, None if it cannot be asked; before the first role."""
        self._records = records

    def asks_in_doubt(self, witness: MasterWitness) -> None:
        """Set the client that asks a master whose epochs contradict this broker's; before the first role."""
        self._witness = witness

    def knows_java_by(self, is_java: Callable[[int, str], bool]) -> None:
        """Set the test whether a slave, by broker id and host, is one of upstream's; before the first role."""
        self._is_java = is_java

    def answers_first(self, waiting_end: Callable[[], int]) -> None:
        """Set the end of the first send that waits for a slave; above the log's end if none does."""
        self._waiting_end = waiting_end

    async def forget_epochs(self) -> None:
        """Drop the epochs of a log that is gone, before the first role with the new one. Raises OSError."""
        assert self._end is None and self._log.max_offset() == self._log.min_offset()
        await self._epochs.store(EpochHistory())
        self._epoch = NO_EPOCH

    async def owned_by(self, broker_id: int | None) -> None:
        """Set the broker id of this store, before any role; None while an id is applied for. Raises EpochFileForeign,
        OSError."""
        await self._epochs.binding.owned_by(broker_id)

    # -- roles

    async def become_master(
        self, epoch: int, broker_id: int, sync_state_set: frozenset[int], sync_state_set_epoch: int
    ) -> None:
        """Lead `epoch` as `broker_id`. On return the log ends with a complete record and the epoch's entry is
        durable; the same epoch again keeps its entry. Raises EpochFenced, EpochHistoryMissing, OSError."""
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
        """Follow `master_id` as `broker_id`, at once if its address ("host:port") is known. A link to the same master
        stays; on return nothing of any other link is acked. Raises EpochFenced, EpochHistoryMissing, OSError."""
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
        """Set the HA address of the master of `epoch`; no effect unless that master is followed now."""
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
            )  # data that a killed process received is held, too
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
        """Whether this log is a prefix of its master's, and grows with it; False also without a link."""
        connection = self._end.connection if isinstance(self._end, SlaveClient) else None
        return connection is not None and connection.link.state is SlaveState.TRANSFER

    def holds(self, end: int) -> bool:
        """As in Replication. A pair's slave has no link before it has compared the logs."""
        is_one_log = self.follows if self._pair is not None else self.copies
        return is_one_log and self._log.max_offset() >= end

    # -- a master's view of its SyncStateSet

    @property
    def mastership(self) -> Mastership | None:
        """The present mastership, if this broker leads under controllers."""
        return self._end if isinstance(self._end, Mastership) else None

    def in_sync_count(self) -> int:
        """Members of the applied set; in a pair the slaves that are close and this broker; 0 unless master."""
        end = self._end
        if isinstance(end, Mastership):
            return len(end.sync_state_set.applied_members)
        return 1 + len(end.in_step()) if isinstance(end, PairMastership) else 0

    def applied_members(self) -> frozenset[int]:
        """The SyncStateSet as the controllers applied it. Empty unless master."""
        mastership = self.mastership
        return frozenset() if mastership is None else mastership.sync_state_set.applied_members

    def counted_members(self) -> frozenset[int]:
        """Brokers over which acks are counted now: the applied set, an open proposal, and slaves about to be
        proposed. Empty unless master."""
        mastership = self.mastership
        return frozenset() if mastership is None else mastership.sync_state_set.union()

    def confirm_offset(self) -> int:
        return self._log.confirm_offset()

    def may_confirm(self) -> bool:
        """Whether anything may be acknowledged: enough members are in sync, and the controllers know the minimum."""
        if isinstance(self._end, PairMastership):
            return True
        mastership = self.mastership
        return mastership is not None and mastership.sync_state_set.may_confirm()

    def agreed_without(self, missing: Collection[int], epoch: int) -> bool:
        """Whether all members have it, because each of them may be elected."""
        return not missing

    async def still_leads(self) -> bool:
        """True: controllers are asked instead (see broker.role.membership), and in a pair nothing is."""
        return True

    def acked_end(self) -> int:
        """Sends that end at or below this may be answered OK. 0 unless master."""
        end = self._end
        if isinstance(end, Mastership):
            return end.sync_state_set.acked_end()
        return end.acked_end if isinstance(end, PairMastership) else 0

    def followed_end(self) -> int:
        """As in Replication."""
        return self._end.followed_end() if isinstance(self._end, PairMastership) else self.acked_end()

    def reachable(self, end: int) -> bool:
        """Whether a send that ends at `end` can be waited for; a pair's slaves may be disconnected or too far behind."""
        return self._end.reachable(end) if isinstance(self._end, PairMastership) else True

    # -- the rest

    def read_from(self) -> int | None:
        """Connected slaves still read the log from here on; None without any, and unless master."""
        return self._end.read_from() if isinstance(self._end, Mastership | PairMastership) else None

    async def truncate_epoch_prefix(self, log_min: int) -> None:
        """Drop the epochs of the log below `log_min`, which retention has removed. Raises OSError."""
        await self._epochs.truncate_prefix(log_min)

    @property
    def stays_out(self) -> StayOut | LeftBehind | None:
        """The reason why this replica does not follow its master until an operator acts; None while it does, or leads."""
        return self._end.stays_out if isinstance(self._end, SlaveClient | PairSlave) else None

    def status(self) -> dict[str, Any]:
        """HARuntimeInfo, see ha/service/status.py."""
        return runtime_info(self._log, self._end, self._clock.monotonic_ms())

    def slaves(self) -> dict[int, tuple[int, bool]]:
        """Broker id -> (ack offset, member of the applied SyncStateSet) of each connected slave; of several links of
        one id the newest. Empty unless master."""
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
        """Schedule one notification in each turn of the event loop, however many connections brought messages."""
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
