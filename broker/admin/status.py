"""Requests about the broker itself: its configuration, runtime information, HA address, HA status and epochs."""

from __future__ import annotations

from typing import Protocol

import orjson

from broker.metrics.rates import Rates
from broker.role.contractmark import KeptContractMark
from broker.role.membership import Membership
from broker.settings.broker import BrokerSettings
from ha.service.replication import Replication
from messagestore.errors import RecordDamaged
from messagestore.record import store_timestamp
from messagestore.store.brokerstore import BrokerStore
from mqruntime.clock import Clock
from nativepath import presence
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.epochs import EpochCache, EpochSpan
from remoting.bodies.routes import KVTable
from remoting.codes import RequestCode, ResponseCode
from remoting.command import VERSION, RemotingCommand
from remoting.headers.admin import GetBrokerConfigResponseHeader
from remoting.headers.group import ExchangeHAInfoHeader
from remoting.peer import Peer
from remoting.router import Router

LAST_EPOCH_END = 2**63 - 1
DAMAGES_LOGGED_MAX = 100
VERSION_NAME = "V5_3_3"

ALWAYS_ZERO = (
    "msgPutTotalYesterdayMorning", "msgPutTotalTodayMorning", "msgGetTotalYesterdayMorning", "msgGetTotalTodayMorning",
    "sendThreadPoolQueueSize", "pullThreadPoolQueueSize", "ackThreadPoolQueueSize",
    "sendThreadPoolQueueHeadWaitTimeMills", "pullThreadPoolQueueHeadWaitTimeMills",
    "ackThreadPoolQueueHeadWaitTimeMills", "pageCacheLockTimeMills",
    "timerReadBehind", "timerOffsetBehind", "timerCongestNum", "timerEnqueueTps", "timerDequeueTps",
)  # fmt: skip
"""Numbers that `mqadmin clusterList` parses, but that this broker does not have."""


class Counters(Protocol):
    """The totals since the start."""

    @property
    def messages_put(self) -> int: ...

    @property
    def messages_got(self) -> int: ...

    @property
    def sends_waiting(self) -> int: ...

    @property
    def open_transactions(self) -> int: ...

    @property
    def pulls_held(self) -> int: ...

    @property
    def requests_forwarded(self) -> int: ...

    @property
    def requests_late(self) -> int: ...

    @property
    def forwards_to(self) -> str: ...

    @property
    def mean_record_bytes(self) -> float: ...


class StatusRequests:
    """The handlers."""

    def __init__(
        self,
        *,
        settings: BrokerSettings,
        store: BrokerStore,
        ha: Replication,
        role: Membership,
        contract_mark: KeptContractMark,
        counters: Counters,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._store = store
        self._ha = ha
        self._role = role
        self._counters = counters
        self._clock = clock
        self._contract_mark = contract_mark
        self._put_rates = Rates()
        self._get_rates = Rates()
        self._booted_ms = clock.now_ms()
        self._started_ms = clock.monotonic_ms()
        self._role_seen: tuple[int | None, int] | None = None
        self._role_since_ms = self._booted_ms

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.GET_BROKER_CONFIG, self._config)
        router.add(RequestCode.GET_BROKER_RUNTIME_INFO, self._runtime)
        router.add(RequestCode.EXCHANGE_BROKER_HA_INFO, self._ha_info)
        router.add(RequestCode.GET_BROKER_HA_STATUS, self._ha_status)
        router.add(RequestCode.GET_BROKER_EPOCH_CACHE, self._epochs)

    def sample(self) -> None:
        """Sample the rates and the start of the role. Called once a second."""
        self._look_at_role()
        now_ms = self._clock.monotonic_ms()
        self._put_rates.sample(self._counters.messages_put, now_ms)
        self._get_rates.sample(self._counters.messages_got, now_ms)

    def _look_at_role(self) -> None:
        role = (self._role.role_id, self._ha.epoch)
        if role != self._role_seen:
            self._role_seen, self._role_since_ms = role, self._clock.now_ms()

    def _config(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        version = DataVersion(timestamp=self._booted_ms).encode().decode()
        body = self._settings.effective().encode()
        return command.reply(header=GetBrokerConfigResponseHeader(version), body=body)

    async def _runtime(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        now_ms, store, counters = self._clock.monotonic_ms(), self._store, self._counters
        self._look_at_role()
        up_seconds = (now_ms - self._started_ms) // 1000
        days, hours, minutes = up_seconds // 86_400, up_seconds // 3_600 % 24, up_seconds // 60 % 60
        disk_used = f"{store.disk_space().used:.2f}"
        damages = list(store.integrity.damages.values())[:DAMAGES_LOGGED_MAX]
        table = dict.fromkeys(ALWAYS_ZERO, "0") | {
            "bootTimestamp": str(self._booted_ms),
            "brokerActive": "true" if self._role.role_id is not None else "false",
            "brokerVersion": str(VERSION),
            "brokerVersionDesc": VERSION_NAME,
            "commitLogDiskRatio": disk_used,
            "commitLogMaxOffset": str(store.max_offset()),
            "commitLogMinOffset": str(store.min_offset()),
            "compiledModule": "off" if presence.native is None else "yes",
            "confirmOffset": str(store.confirm_offset()),
            "consumeQueueDiskRatio": disk_used,
            "damagedRecords": " ".join(f"{each.segment}:{each.offset}" for each in damages),
            "dispatchBehindBytes": str(max(store.confirm_offset() - store.dispatched_offset(), 0)),
            "earliestMessageTimeStamp": str(await self._earliest_ms()),
            "getTransferredTps": self._get_rates.per_second(counters.messages_got, now_ms),
            "forwardedRequests": str(counters.requests_forwarded),
            "lateRequests": str(counters.requests_late),
            "forwardsTo": counters.forwards_to,
            "heldPulls": str(counters.pulls_held),
            "msgGetTotalTodayNow": str(counters.messages_got),
            "msgPutTotalTodayNow": str(counters.messages_put),
            "openTransactions": str(counters.open_transactions),
            "putMessageAverageSize": str(counters.mean_record_bytes),
            "putTps": self._put_rates.per_second(counters.messages_put, now_ms),
            "ranContractA": "true" if self._contract_mark.ran_contract_a else "false",
            "roleSinceTimestamp": str(self._role_since_ms),
            "scrubPasses": str(store.scrubber.schedule.passes),
            "scrubPosition": str(store.scrubber.schedule.position),
            "uncheckedBytes": str(store.integrity.unchecked.size_bytes),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {up_seconds % 60} seconds ]",
            "waitingSends": str(counters.sends_waiting),
        }
        if self._role.broker_id is not None:
            table["replicaId"] = str(self._role.broker_id)
        return command.reply(body=KVTable(table).encode())

    async def _earliest_ms(self) -> int:
        """Store time of the first message in the log; the start of this process if there is no message."""
        first = self._store.first_message_offset()
        try:
            record = None if first is None else await self._store.message_at(first)
        except RecordDamaged:
            record = None
        return self._booted_ms if record is None else store_timestamp(record, 0)

    def _ha_info(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        if ExchangeHAInfoHeader.from_ext(command.ext).master_ha_address is not None:
            return command.reply(
                ResponseCode.SYSTEM_ERROR,
                "in controller mode a broker learns its master from the controllers",
            )
        if not self._role.accepts_sends:
            return command.reply(ResponseCode.SYSTEM_ERROR, "this broker is not master now")
        header = ExchangeHAInfoHeader(self._ha.address, self._store.flushed_offset(), self._role.address)
        return command.reply(header=header)

    def _ha_status(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        return command.reply(body=orjson.dumps(self._ha.status()))

    def _epochs(self, peer: Peer, command: RemotingCommand) -> RemotingCommand:
        entries = self._ha.history.entries
        ends = [entry.start_offset for entry in entries[1:]] + [LAST_EPOCH_END]
        spans = [
            EpochSpan(entry.epoch, entry.start_offset, end) for entry, end in zip(entries, ends, strict=False)
        ]
        settings = self._settings
        role_id = self._role.role_id
        body = EpochCache(
            settings.broker_cluster_name,
            settings.broker_name,
            -1 if role_id is None else role_id,
            self._store.max_offset(),
            spans,
        )
        return command.reply(body=body.encode())
