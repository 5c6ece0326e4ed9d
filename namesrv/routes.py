"""The route table: broker groups, their live members and their topics, as brokers register them. Upstream: RouteInfoManager.

Invariant: a topic is listed only for a group that has an address. An address has one id in its group. An address never gets id
0 while the live address with id 0 has a higher state version (the master epoch). The numbers of brokers and of topic rows are
limited against made-up registrations.

Times are monotonic milliseconds from the caller. `channel` is any object that identifies the connection of a registration.
Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from remoting.bodies.dataversion import DataVersion
from remoting.bodies.routes import BrokerData, QueueData
from remoting.bodies.topics import PERM_READ, PERM_WRITE, TopicConfig

MASTER_ID = 0
LIVE_MS_DEFAULT = 120_000  # for a registration without a heartbeat timeout
BROKERS_MAX = 10_000
ROWS_MAX = 1_000_000
"""Limit of the rows of topics: a topic has one row for each group that serves it."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """Registration data of one broker. `acting_master` is None when the request does not contain it."""

    cluster: str
    broker_name: str
    broker_addr: str
    broker_id: int
    ha_server_addr: str
    topics: dict[str, TopicConfig]
    data_version: DataVersion
    channel: object
    live_ms: int = LIVE_MS_DEFAULT
    acting_master: bool | None = None
    zone_name: str | None = None


@dataclass(frozen=True, slots=True)
class Registered:
    """The answer to an accepted registration, or to a silently ignored one: the addresses of a slave's master, else empty."""

    master_addr: str | None = None
    ha_server_addr: str | None = None


class OneTopicRefused(Exception):
    """A first registration has exactly one topic: upstream takes such a registration for an update from an unknown broker."""


class TableFull(Exception):
    """The table is full; the text says whether of brokers or of topic rows."""


@dataclass(slots=True)
class LiveBroker:
    """The newest registration of one address."""

    broker_name: str
    updated_ms: int
    live_ms: int
    data_version: DataVersion
    ha_server_addr: str
    channel: object


@dataclass(slots=True)
class RouteTable:
    """All routes of a name server; every method is one atomic change or query."""

    groups: dict[str, BrokerData] = field(default_factory=dict)
    clusters: dict[str, dict[str, None]] = field(default_factory=dict)  # cluster -> group names, ordered
    topics: dict[str, dict[str, QueueData]] = field(default_factory=dict)  # topic -> group name -> queues
    live: dict[tuple[str, str], LiveBroker] = field(default_factory=dict)  # by (cluster, address)
    _rows: int = 0

    def register(
        self, new: BrokerRegistration, now_ms: int, *, only_these_topics: bool = False
    ) -> Registered:
        """Register a broker. With `only_these_topics`, the group's other topics are removed. Raises OneTopicRefused,
        TableFull."""
        group = self.groups.get(new.broker_name)
        if self._is_stale(group, new):
            self._forget_address(new.broker_name, new.broker_addr, except_id=None)
            self.live.pop((new.cluster, new.broker_addr), None)
            return Registered()
        holder = group.broker_addrs.get(new.broker_id) if group is not None else None
        if holder is None and len(new.topics) == 1:
            raise OneTopicRefused
        self._check_room(new)
        group = self._joined(new)
        self._forget_address(new.broker_name, new.broker_addr, except_id=new.broker_id)
        group.broker_addrs[new.broker_id] = new.broker_addr
        self._take_topics(group, new, first=holder is None, only_these=only_these_topics)
        self.live[new.cluster, new.broker_addr] = LiveBroker(
            new.broker_name, now_ms, new.live_ms, new.data_version, new.ha_server_addr, new.channel
        )
        return self._answer(group, new)

    def unregister(self, cluster: str, broker_name: str, broker_addr: str) -> None:
        """Remove an address. If it is the last address of its group, remove the group and the group's topics too."""
        self.live.pop((cluster, broker_addr), None)
        group = self.groups.get(broker_name)
        if group is None:
            return
        had_master = MASTER_ID in group.broker_addrs
        self._forget_address(broker_name, broker_addr, except_id=None)
        if not group.broker_addrs:
            self._forget_group(broker_name)
        elif had_master and MASTER_ID not in group.broker_addrs and group.enable_acting_master:
            self.set_write_permission(broker_name, allowed=False)

    def refresh(self, cluster: str, broker_addr: str, now_ms: int) -> None:
        """Extend the life of a known address by a heartbeat; ignore an unknown one."""
        live = self.live.get((cluster, broker_addr))
        if live is not None:
            live.updated_ms = now_ms

    def version_of(self, cluster: str, broker_addr: str) -> DataVersion | None:
        """The data version in the last registration of an address."""
        live = self.live.get((cluster, broker_addr))
        return live.data_version if live is not None else None

    def close_channel(self, channel: object) -> list[str]:
        """Unregister the brokers of a closed connection at once. Returns their addresses."""
        return self._drop(key for key, live in self.live.items() if live.channel is channel)

    def expire(self, now_ms: int) -> list[object]:
        """Unregister brokers without a timely heartbeat. Returns their channels, which the caller closes."""
        silent = [key for key, live in self.live.items() if now_ms - live.updated_ms > live.live_ms]
        channels = [self.live[key].channel for key in silent]
        self._drop(silent)
        return channels

    def set_write_permission(self, broker_name: str, *, allowed: bool) -> int:
        """Set or remove the write permission of every topic of a group. Returns the number of these topics."""
        count = 0
        for queues in self.topics.values():
            data = queues.get(broker_name)
            if data is not None:
                data.perm = data.perm | PERM_READ | PERM_WRITE if allowed else data.perm & ~PERM_WRITE
                count += 1
        return count

    def delete_topic(self, topic: str, cluster: str | None) -> None:
        """Remove a topic from all groups, or from the groups of one cluster. The next registration of a broker may restore the
        topic."""
        queues = self.topics.get(topic, {})
        for name in list(queues):
            if cluster is None or name in self.clusters.get(cluster, {}):
                del queues[name]
                self._rows -= 1
        if not queues:
            self.topics.pop(topic, None)

    def add_topic(self, topic: str, queue_datas: Iterable[QueueData]) -> None:
        """Add a topic's queues for the groups that are known. Raises TableFull."""
        for data in queue_datas:
            if data.broker_name in self.groups:
                if self._rows >= ROWS_MAX:
                    raise TableFull(f"{ROWS_MAX} topics of broker groups are registered")
                self._put(topic, data)

    def _put(self, topic: str, data: QueueData) -> None:
        queues = self.topics.setdefault(topic, {})
        self._rows += data.broker_name not in queues
        queues[data.broker_name] = data

    def _check_room(self, new: BrokerRegistration) -> None:
        if len(self.live) >= BROKERS_MAX and (new.cluster, new.broker_addr) not in self.live:
            raise TableFull(f"{BROKERS_MAX} brokers are registered")
        news = (name for name in new.topics if new.broker_name not in self.topics.get(name, ()))
        if self._rows + sum(1 for _ in news) > ROWS_MAX:
            raise TableFull(f"{ROWS_MAX} topics of broker groups are registered")

    def _is_stale(self, group: BrokerData | None, new: BrokerRegistration) -> bool:
        """Whether another live address holds the id under a higher master epoch."""
        holder = group.broker_addrs.get(new.broker_id) if group is not None else None
        if holder is None or holder == new.broker_addr:
            return False
        live = self.live.get((new.cluster, holder))
        return live is not None and live.data_version.state_version > new.data_version.state_version

    def _joined(self, new: BrokerRegistration) -> BrokerData:
        """The group of a registration, in its cluster."""
        group = self.groups.get(new.broker_name)
        if group is None:
            group = self.groups[new.broker_name] = BrokerData(new.cluster, new.broker_name)
        group.enable_acting_master = bool(new.acting_master)
        if new.zone_name is not None:
            group.zone_name = new.zone_name
        self.clusters.setdefault(new.cluster, {})[new.broker_name] = None
        return group

    def _take_topics(
        self, group: BrokerData, new: BrokerRegistration, *, first: bool, only_these: bool
    ) -> None:
        """Take the topics of a master, or of a member that can act as master and has the lowest id of its group."""
        is_prime_slave = (
            new.broker_id != MASTER_ID
            and new.acting_master is not None
            and new.broker_id == min(group.broker_addrs)
        )
        if new.broker_id != MASTER_ID and not is_prime_slave:
            return
        if only_these:
            for topic in [name for name, queues in self.topics.items() if new.broker_name in queues]:
                if topic not in new.topics:
                    self._remove_queues(topic, new.broker_name)
        changed = first or self.version_of(new.cluster, new.broker_addr) != new.data_version
        read_only = is_prime_slave and group.enable_acting_master
        for name, config in new.topics.items():
            if changed or new.broker_name not in self.topics.get(name, ()):
                perm = config.perm & ~PERM_WRITE if read_only else config.perm
                queues = config.read_queue_nums, config.write_queue_nums
                self._put(name, QueueData(new.broker_name, *queues, perm, config.topic_sys_flag))

    def _answer(self, group: BrokerData, new: BrokerRegistration) -> Registered:
        if new.broker_id == MASTER_ID:
            return Registered()
        master_addr = group.broker_addrs.get(MASTER_ID)
        master = self.live.get((new.cluster, master_addr)) if master_addr is not None else None
        return Registered(master_addr, master.ha_server_addr) if master is not None else Registered()

    def _drop(self, keys: Iterable[tuple[str, str]]) -> list[str]:
        dropped: list[str] = []
        for cluster, address in list(keys):
            self.unregister(cluster, self.live[cluster, address].broker_name, address)
            dropped.append(address)
        return dropped

    def _forget_address(self, broker_name: str, broker_addr: str, *, except_id: int | None) -> None:
        addresses = self.groups[broker_name].broker_addrs
        for broker_id in [known for known, address in addresses.items() if address == broker_addr]:
            if broker_id != except_id:
                del addresses[broker_id]

    def _forget_group(self, broker_name: str) -> None:
        del self.groups[broker_name]
        for cluster in list(self.clusters):
            self.clusters[cluster].pop(broker_name, None)
            if not self.clusters[cluster]:
                del self.clusters[cluster]
        for topic in list(self.topics):
            self._remove_queues(topic, broker_name)

    def _remove_queues(self, topic: str, broker_name: str) -> None:
        self._rows -= self.topics[topic].pop(broker_name, None) is not None
        if not self.topics[topic]:
            del self.topics[topic]
