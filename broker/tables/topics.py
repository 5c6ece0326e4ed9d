"""The topic configurations of this broker. Upstream: TopicConfigManager.

Invariant: the data version changes with every change of a topic. The state version in it is the masterEpoch of the change, so a
newer master's table wins at name servers and slaves. The topics that clients create by using a new name are limited, so that
the table can be copied and registered (`broker/tables/autocreation.py`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import orjson

from broker.tables.autocreation import AutoCreation
from messagestore.systemtopics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    HALF_TOPIC,
    OFFSET_MOVED_TOPIC,
    OP_HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    SYSTEM_PREFIX,
)
from mqruntime.clock import Clock
from remoting.bodies.dataversion import DataVersion
from remoting.bodies.topics import PERM_INHERIT, PERM_READ, PERM_WRITE, TopicConfig, TopicConfigWrapper

TOPICS_FILE = "config/topics.json"
PERM_ALL = PERM_READ | PERM_WRITE | PERM_INHERIT
PERM_READ_WRITE = PERM_READ | PERM_WRITE
TOPIC_BYTES = 128
"""The size of a topic in a copied table, without its name, which the copy has twice."""


def system_topics(
    cluster_name: str, broker_name: str, *, auto_create: bool, queue_nums: int, trace_topic: str = ""
) -> list[TopicConfig]:
    """The system topics of a 5.3 broker. They are also needed because name servers reject a broker whose first table has one
    topic. Clients write message traces to `trace_topic`; "" for no trace topic."""
    table = [
        (SELF_TEST_TOPIC, 1, PERM_READ_WRITE),
        (BENCHMARK_TOPIC, 1024, PERM_READ_WRITE),
        (cluster_name, 16, PERM_ALL),
        (broker_name, 1, PERM_ALL),
        (OFFSET_MOVED_TOPIC, 1, PERM_READ_WRITE),
        (SCHEDULE_TOPIC, 18, PERM_READ_WRITE),
        (f"{cluster_name}_REPLY_TOPIC", 1, PERM_READ_WRITE),
        (HALF_TOPIC, 1, PERM_READ_WRITE),
        (OP_HALF_TOPIC, 1, PERM_READ_WRITE),
    ]
    if auto_create:
        table.append((AUTO_CREATE_TOPIC, queue_nums, PERM_ALL))
    if trace_topic:
        table.append((trace_topic, 1, PERM_READ_WRITE))
    return [TopicConfig(name, queues, queues, perm) for name, queues, perm in table]


class Topics:
    """The topic configurations by name. `on_change` runs after each change made here (not for `adopt`); if only the version has
    changed, `on_led` runs instead."""

    def __init__(
        self,
        clock: Clock,
        system: Iterable[TopicConfig],
        on_change: Callable[[], None],
        on_led: Callable[[], None] | None = None,
    ) -> None:
        self._clock = clock
        self._on_change = on_change
        self._on_led = on_led or on_change
        self._table = {topic.topic_name: topic for topic in system}
        self.system_names = frozenset(self._table)
        self._system = list(self._table.values())
        self._room = AutoCreation("topics", "updateTopic", TOPIC_BYTES)
        self._room.are(self._table)
        self._epoch = 0
        self.on_row: Callable[[str], None] = lambda name: None
        """Called with the name of each topic that is changed here, before `on_change`."""
        self.auto_create = True
        """Whether a send may create a topic after AUTO_CREATE_TOPIC. May change while the broker runs."""
        self.data_version = DataVersion(timestamp=clock.now_ms())

    def find(self, name: str) -> TopicConfig | None:
        return self._table.get(name)

    def is_system(self, name: str) -> bool:
        """Whether brokers create this topic by themselves."""
        return name in self.system_names or name.startswith(SYSTEM_PREFIX)

    def names(self) -> list[str]:
        return list(self._table)

    def put(self, topic: TopicConfig) -> None:
        """Create the topic or replace its configuration."""
        if topic.topic_name not in self._table:
            self._room.added(topic.topic_name)
        self._table[topic.topic_name] = topic
        self.on_row(topic.topic_name)
        self._changed()

    def remove(self, name: str) -> None:
        if self._table.pop(name, None) is not None:
            self._room.removed(name)
            self.on_row(name)
            self._changed()

    def create_for_send(self, name: str, default_topic: str, queue_nums: int) -> TopicConfig | None:
        """Create the topic of a first send like `default_topic`. None if that topic does not allow this, or if there is no
        room."""
        if not self._room.takes(name):
            return None
        if name.startswith(RETRY_PREFIX):
            return self.ensure(name, 1)
        model = self._table.get(default_topic)
        if default_topic == AUTO_CREATE_TOPIC and not self.auto_create:
            return None
        if model is None or not model.perm & PERM_INHERIT:
            return None
        queues = max(min(queue_nums, model.write_queue_nums), 1)
        topic = TopicConfig(
            name, queues, queues, model.perm & ~PERM_INHERIT, model.topic_filter_type, model.topic_sys_flag
        )
        self.put(topic)
        return topic

    def offer_auto_creation(self, queue_nums: int, *, notify: bool) -> None:
        """Set the number of queues in the model of auto-created topics. If `notify`, name servers and slaves get the change."""
        model = TopicConfig(AUTO_CREATE_TOPIC, queue_nums, queue_nums, PERM_ALL)
        self._system = [each for each in self._system if each.topic_name != AUTO_CREATE_TOPIC] + [model]
        self.system_names = frozenset(each.topic_name for each in self._system)
        self._table[AUTO_CREATE_TOPIC] = model
        self._room.are(self._table)
        self.on_row(AUTO_CREATE_TOPIC)
        if notify:
            self._changed()

    def renew_version(self) -> None:
        """Make a new version, because registration data of the topics has changed, although no topic has."""
        self._changed()

    def ensure(self, name: str, queue_nums: int) -> TopicConfig:
        """The topic; created with `queue_nums` queues if it is new."""
        topic = self._table.get(name)
        if topic is None:
            topic = TopicConfig(name, queue_nums, queue_nums)
            self.put(topic)
        return topic

    def cover(self, name: str, queue_id: int) -> None:
        """Add a queue with messages to its topic. The topic may be missing, if a master died before slaves copied it."""
        topic = self._table.get(name)
        if topic is None:
            self.put(TopicConfig(name, queue_id + 1, queue_id + 1))
        elif queue_id >= topic.read_queue_nums:
            self.put(replace(topic, read_queue_nums=queue_id + 1))

    def led_under(self, master_epoch: int) -> None:
        """Called when a role was taken: the table gets a version of this epoch."""
        self._epoch = master_epoch
        self._next_version()
        self._on_led()

    @property
    def epoch(self) -> int:
        """The masterEpoch of the role that was taken last; 0 before the first."""
        return self._epoch

    def wrapper(self) -> TopicConfigWrapper:
        """The table in the form that name servers and slaves get."""
        return TopicConfigWrapper(dict(self._table), self.data_version)

    def adopt(self, wrapper: TopicConfigWrapper) -> bool:
        """Adopt the master's table. Returns False if its version equals the own version."""
        if wrapper.data_version == self.data_version:
            return False
        self.replace(wrapper)
        return True

    def replace(self, wrapper: TopicConfigWrapper) -> bool:
        """Adopt the master's table, even if the versions are equal, as after two brokers took roles in the same ms. Returns
        whether a topic changed."""
        former = self._table
        self._table = {topic.topic_name: topic for topic in self._system} | wrapper.topic_config_table
        self._room.are(self._table)
        self.data_version = wrapper.data_version
        return self._table != former

    def apply(self, changed: Iterable[TopicConfig], gone: Iterable[str], version: DataVersion) -> bool:
        """Adopt the master's changes, which lead to this version. Returns whether a topic or the version changed."""
        differs = False
        for topic in changed:
            name = topic.topic_name
            former = self._table.get(name)
            if former is None:
                self._room.added(name)
            if former != topic:
                self._table[name], differs = topic, True
        for name in gone:
            if self._table.pop(name, None) is not None:
                self._room.removed(name)
                differs = True
        differs |= self.data_version != version
        self.data_version = version
        return differs

    def encode(self) -> bytes:
        """The content of topics.json."""
        wrapper = self.wrapper().to_json()
        return orjson.dumps({key: wrapper[key] for key in ("dataVersion", "topicConfigTable")})

    def decode(self, data: bytes) -> None:
        """Read the content of topics.json. Raises BodyError."""
        self.adopt(TopicConfigWrapper.decode(data))

    def _changed(self) -> None:
        self._next_version()
        self._on_change()

    def _next_version(self) -> None:
        self.data_version = self.data_version.next_version(self._clock.now_ms(), self._epoch)
