"""Topics, groups, offsets, clients and their files."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any, cast

import pytest

from broker.clients.bounds import of_member
from broker.clients.groups import ConsumerGroups
from broker.metrics.rates import Rates
from broker.role.contract import contract_sentence
from broker.settings.addresses import addresses
from broker.settings.broker import BrokerSettings
from broker.tables import consumeroffsets
from broker.tables.consumeroffsets import ConsumerOffsets
from broker.tables.savedtable import SavedTable, TableUnreadable
from broker.tables.subscriptiongroups import SubscriptionGroups
from broker.tables.tables import Tables
from broker.tables.topics import Topics, system_topics
from messagestore.properties import tag_hash
from mqclient.message import decode_messages
from mqruntime.settings import SettingsError
from mqruntime.slices import whole
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, ProducerData, SubscriptionData
from remoting.bodies.offsets import ConsumerOffsetWrapper
from remoting.bodies.topics import TopicConfig, TopicConfigWrapper
from tests.support.doubles import ManualClock, MemoryFiles, NoQueues

VECTORS = Path(__file__).parents[2] / "vectors" / "broker"


def topics(changes: list[int] | None = None) -> Topics:
    system = system_topics("DefaultCluster", "broker-a", auto_create=True, queue_nums=8)
    return Topics(ManualClock(), system, lambda: changes.append(1) if changes is not None else None)


# -- topics


def test_a_new_broker_has_more_than_one_topic_to_register() -> None:
    names = topics().names()
    assert {"TBW102", "SELF_TEST_TOPIC", "DefaultCluster", "broker-a"} <= set(names)
    assert len(names) > 1, "name servers refuse a first registration of exactly one topic"


@pytest.mark.parametrize(
    ("settings", "topic"),
    [
        ({"traceTopicEnable": True}, "RMQ_SYS_TRACE_TOPIC"),
        ({"traceTopicEnable": True, "msgTraceTopicName": "OurTraces"}, "OurTraces"),
        ({}, None),
    ],
)
def test_the_trace_topic_exists_only_with_trace_topic_enable(
    settings: dict[str, Any], topic: str | None
) -> None:
    tables = Tables(BrokerSettings(**settings), MemoryFiles(), ManualClock(), NoQueues())
    without = Tables(BrokerSettings(), MemoryFiles(), ManualClock(), NoQueues()).topics.names()
    found = [tables.topics.find(name) for name in tables.topics.names() if name not in without]
    assert found == ([TopicConfig(topic, 1, 1, 6)] if topic else [])


def test_recorded_traces_of_java_clients_decode_as_messages() -> None:
    messages = decode_messages((VECTORS / "trace-messages.bin").read_bytes())
    events = [line for each in messages for line in each.plain_body().decode().split("\x02") if line]
    assert {each.topic for each in messages} == {"RMQ_SYS_TRACE_TOPIC"}
    assert sorted(line.split("\x01")[0] for line in events) == [
        *["Pub"] * 2, *["SubAfter"] * 2, *["SubBefore"] * 2,
    ]  # fmt: skip


def test_every_change_of_a_topic_creates_a_new_version_under_the_current_epoch() -> None:
    changes: list[int] = []
    table = topics(changes)
    first = table.data_version
    table.led_under(4)
    table.ensure("orders", 4)
    table.ensure("orders", 4)
    assert table.data_version.order > first.order
    assert (table.data_version.state_version, table.data_version.counter) == (4, 2)
    assert len(changes) == 2


def test_a_topic_is_created_only_from_a_template_that_may_be_inherited() -> None:
    table = topics()
    assert table.create_for_send("orders", "SELF_TEST_TOPIC", 4) is None
    assert table.create_for_send("orders", "absent", 4) is None
    created = table.create_for_send("orders", "TBW102", 16)
    assert created is not None and created.read_queue_nums == 8, "never more queues than the template"


def test_a_retry_topic_is_created_by_the_first_send_to_it() -> None:
    topic = topics().create_for_send("%RETRY%CG", "TBW102", 4)
    assert topic is not None and (topic.read_queue_nums, topic.perm) == (1, 6)


def test_the_topic_table_covers_queues_that_hold_messages() -> None:
    table = topics()
    table.cover("orders", 2)
    table.cover("orders", 5)
    table.cover("orders", 1)
    topic = table.find("orders")
    assert topic is not None and (topic.read_queue_nums, topic.write_queue_nums) == (6, 3)


def test_a_slave_adopts_its_masters_topics_once() -> None:
    master, slave = topics(), topics()
    master.led_under(3)
    master.ensure("orders", 4)
    slave.ensure("strange", 1)
    wrapper = TopicConfigWrapper.decode(master.wrapper().encode())
    assert slave.adopt(wrapper)
    assert slave.find("strange") is None
    assert slave.data_version == master.data_version
    assert not slave.adopt(wrapper)


def test_topics_json_round_trips() -> None:
    table, again = topics(), topics()
    table.put(TopicConfig("orders", 4, 2, 4, attributes={"a": "b"}))
    again.decode(table.encode())
    assert (again.find("orders"), again.data_version) == (table.find("orders"), table.data_version)


# -- files


def test_a_table_is_written_only_when_it_changed() -> None:
    files, content = MemoryFiles(), [b"{1}"]
    table = SavedTable(files, "t.json", lambda: content[0], lambda data: None)

    async def scenario() -> None:
        await table.save()
        assert files.replaced == 0
        table.changed()
        await asyncio.gather(table.save(), table.save(), table.save())
        assert files.replaced == 1
        table.changed()
        first = asyncio.ensure_future(table.save())
        await asyncio.sleep(0)
        content[0] = b"{2}"
        table.changed()
        await first
        assert table.dirty
        await table.save()

    asyncio.run(scenario())
    assert files.content == {"t.json": b'{"journal":0,2}'}


def test_a_broken_file_is_replaced_by_javas_backup_or_stops_the_start() -> None:
    offsets = ConsumerOffsets()
    good = b'{"offsetTable":{"orders@CG":{0:12,1:7\n\t\t}}}'
    files = MemoryFiles({"o.json": b"{broken", "o.json.bak": good})
    table = SavedTable(files, "o.json", offsets.encode, offsets.decode)
    assert asyncio.run(table.load())
    assert offsets.find("CG", "orders", 1) == 7
    del files.content["o.json.bak"]
    with pytest.raises(TableUnreadable, match=r"o\.json"):
        asyncio.run(table.load())
    assert not asyncio.run(SavedTable(MemoryFiles(), "o.json", offsets.encode, offsets.decode).load())


# -- groups, offsets, clients


def test_groups_are_created_on_demand_unless_forbidden() -> None:
    changes: list[int] = []
    groups = SubscriptionGroups(ManualClock(), auto_create=True, on_change=lambda: changes.append(1))
    group = groups.find_or_create("CG")
    assert group is not None and group is groups.find_or_create("CG")
    assert len(changes) == 1
    assert groups.find_or_create(" ") is None
    strict = SubscriptionGroups(ManualClock(), auto_create=False, on_change=lambda: None)
    assert strict.find_or_create("CG") is None


def test_a_slave_adopts_its_masters_groups() -> None:
    master = SubscriptionGroups(ManualClock(), auto_create=True, on_change=lambda: None)
    slave = SubscriptionGroups(ManualClock(), auto_create=True, on_change=lambda: None)
    master.find_or_create("CG")
    copy = type(master.wrapper).decode(master.encode())
    assert slave.adopt(copy)
    assert not slave.adopt(copy)
    assert slave.find("CG") == master.find("CG")


def test_offsets_encoded_in_steps_equal_the_whole_body(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumeroffsets, "OFFSETS_A_STEP", 4)
    offsets = ConsumerOffsets()
    assert offsets.encode() == ConsumerOffsetWrapper().encode()
    for group in ("CG", "Other", '\u00fc"@'):
        for queue_id in range(3):
            offsets.commit(group, "orders", queue_id, 10 + queue_id)
    offsets.reset({("CG", "orders", 1): 5})
    table = {f"orders@{group}": {0: 10, 1: 11, 2: 12} for group in ("CG", "Other", '\u00fc"@')}
    table["orders@CG"][1] = 5
    expected = ConsumerOffsetWrapper(table, offset_resets=offsets.resets.wrapper()).encode()
    assert offsets.encode() == expected
    steps = offsets.for_slaves()
    assert sum(1 for _ in steps) == 3
    assert whole(offsets.for_slaves()) == (expected, 0)
    offsets.keep("orders", 0, 99)
    offsets.give({"half@CID_RMQ_SYS_TRANS": {0: 7}}, 1234)
    table["half@CID_RMQ_SYS_TRANS"] = {0: 7}
    expected = ConsumerOffsetWrapper(table, offset_resets=offsets.resets.wrapper()).encode()
    assert whole(offsets.for_slaves()) == (expected, 1234)


def test_a_commit_during_encoding_is_included_and_a_reset_restarts_the_encoding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumeroffsets, "OFFSETS_A_STEP", 2)
    offsets = ConsumerOffsets()
    for group in ("A", "B"):
        offsets.commit(group, "orders", 0, 10)
    steps = offsets.for_slaves()
    next(steps)
    offsets.commit("B", "orders", 0, 11)
    offsets.commit("New", "orders", 0, 1)
    body, _ = whole(steps)
    assert ConsumerOffsetWrapper.decode(body).offset_table == {"orders@A": {0: 10}, "orders@B": {0: 11}}
    steps = offsets.for_slaves()
    next(steps)
    offsets.reset({("A", "orders", 0): 3})
    body, _ = whole(steps)
    written = ConsumerOffsetWrapper.decode(body)
    assert written.offset_table["orders@A"] == {0: 3}
    assert written.offset_resets == offsets.resets.wrapper()


def test_committed_offsets_are_found_copied_and_forgotten() -> None:
    offsets, slave = ConsumerOffsets(), ConsumerOffsets()
    offsets.commit("CG", "orders", 0, 12)
    offsets.commit("CG", "orders", 1, 7)
    offsets.commit("Other", "orders", 0, 3)
    assert whole(offsets.topics_of("CG")) == ["orders"]
    assert whole(offsets.groups_of("orders")) == ["CG", "Other"]
    assert whole(offsets.topics_by_group()) == {"CG": ["orders"], "Other": ["orders"]}
    wrapper = ConsumerOffsetWrapper.decode(offsets.encode())
    assert slave.adopt(wrapper)
    assert not slave.adopt(wrapper)
    assert slave.find("CG", "orders", 1) == 7
    slave.remove_group("CG")
    assert (slave.find("CG", "orders", 0), slave.find("Other", "orders", 0)) == (None, 3)
    slave.remove_topic("orders")
    assert slave.find("Other", "orders", 0) is None


class NamedPeer:
    closed = False

    def __init__(self, address: str) -> None:
        self.remote_address = address
        self.number = int(address.rpartition(":")[2])


def heartbeat(client_id: str, version: int = 1, expression: str = "*") -> HeartbeatData:
    subscription = SubscriptionData("orders", expression, sub_version=version)
    consumer = ConsumerData("CG", subscription_data_set=[subscription])
    return HeartbeatData(client_id, [ProducerData("PG")], [consumer])


def test_members_of_a_group_are_known_while_they_are_connected() -> None:
    groups = ConsumerGroups()
    one, two = cast(Any, NamedPeer("10.0.0.1:1")), cast(Any, NamedPeer("10.0.0.2:1"))
    assert groups.heartbeat(one, heartbeat("c1"), "JAVA", 479) == ["CG"]
    assert groups.heartbeat(one, heartbeat("c1"), "JAVA", 479) == [], "nothing changed"
    assert groups.heartbeat(two, heartbeat("c2", version=3, expression="A"), "JAVA", 479) == ["CG"]
    group = groups.find("CG")
    assert group is not None and list(group.clients) == ["c1", "c2"]
    newest = groups.subscription("CG", "orders")
    assert newest is not None and (newest.version, newest.data.sub_string) == (3, "A")
    assert groups.groups_of("orders") == ["CG"]
    assert len(groups.producers("PG")) == 2
    assert groups.disconnected(one) == ["CG"]
    assert groups.leave("c2", "CG", "PG") == ["CG"]
    assert (groups.find("CG"), groups.producers("PG")) == (None, [])


def effective(groups: ConsumerGroups) -> tuple[int, str]:
    """Version and expression of the effective subscription."""
    found = groups.subscription("CG", "orders")
    assert found is not None
    return found.version, found.data.sub_string


def test_the_latest_heartbeat_of_a_client_counts_regardless_of_its_clock() -> None:
    groups, peer = ConsumerGroups(), cast(Any, NamedPeer("10.0.0.1:1"))
    hour = 3_600_000
    groups.heartbeat(peer, heartbeat("c1", version=2 * hour, expression="A"), "JAVA", 479)
    groups.heartbeat(peer, heartbeat("c1", version=1 * hour, expression="B"), "JAVA", 479)
    assert effective(groups) == (1 * hour, "B")
    filter_ = cast(Any, groups.subscription("CG", "orders")).filter
    assert [filter_(tag_hash(tag)) for tag in "AB"] == [False, True]
    groups.renew("CG", "c1", [SubscriptionData("orders", "C", sub_version=7)])
    assert effective(groups) == (1 * hour, "B"), "an answer may be older than the heartbeat"
    groups.renew("CG", "c1", [SubscriptionData("orders", "C", sub_version=hour + 1)])
    assert effective(groups) == (hour + 1, "C")
    groups.renew("CG", "c2", [SubscriptionData("orders", "D", sub_version=2 * hour)])
    assert effective(groups) == (hour + 1, "C"), "this client is not in the group"


def test_the_newest_version_among_clients_counts_while_its_client_is_connected() -> None:
    groups = ConsumerGroups()
    one, two, three = (cast(Any, NamedPeer(f"10.0.0.1:{port}")) for port in (1, 2, 3))
    groups.heartbeat(one, heartbeat("c1", version=5, expression="A"), "JAVA", 479)
    groups.heartbeat(two, heartbeat("c2", version=3, expression="B"), "JAVA", 479)
    groups.heartbeat(three, heartbeat("c3", version=3, expression="C"), "JAVA", 479)
    groups.heartbeat(one, heartbeat("c1", version=5, expression="A"), "JAVA", 479)
    assert effective(groups) == (5, "A")
    groups.heartbeat(one, heartbeat("c1", version=2, expression="D"), "JAVA", 479)
    assert effective(groups) == (3, "C"), "of equal versions the later one counts"
    groups.disconnected(three)
    assert effective(groups) == (3, "B")
    groups.leave("c2", "CG", None)
    assert effective(groups) == (2, "D")
    groups.disconnected(one)
    assert groups.find("CG") is None and groups._characters == cast(Any, of_member("PG", "c2"))


def test_a_late_heartbeat_over_an_older_connection_changes_nothing() -> None:
    groups = ConsumerGroups()
    old, new = cast(Any, NamedPeer("10.0.0.1:1")), cast(Any, NamedPeer("10.0.0.1:2"))
    groups.heartbeat(new, heartbeat("c1", version=1, expression="new"), "JAVA", 479)
    assert groups.heartbeat(old, heartbeat("c1", version=9, expression="old"), "JAVA", 479) == []
    assert effective(groups) == (1, "new")
    assert [client.peer for client in groups.producers("PG")] == [new]
    assert groups.disconnected(old) == [] and groups.find("CG") is not None
    new.closed = True
    groups.heartbeat(old, heartbeat("c1", version=9, expression="old"), "JAVA", 479)
    assert effective(groups) == (9, "old"), "two processes share a client id, and one of them left"


def test_a_topic_that_no_client_subscribes_to_any_more_is_removed() -> None:
    groups = ConsumerGroups()
    one, two = cast(Any, NamedPeer("10.0.0.1:1")), cast(Any, NamedPeer("10.0.0.1:2"))
    groups.heartbeat(one, heartbeat("c1"), "JAVA", 479)
    groups.heartbeat(two, heartbeat("c2"), "JAVA", 479)
    other = HeartbeatData("c1", [], [ConsumerData("CG", subscription_data_set=[SubscriptionData("other")])])
    assert groups.heartbeat(one, other, "JAVA", 479) == ["CG"]
    assert groups.groups_of("orders") == ["CG"] == groups.groups_of("other")
    groups.disconnected(two)
    assert (groups.groups_of("orders"), groups.groups_of("other")) == ([], ["CG"])


def test_clients_that_leave_in_falling_order_of_versions_are_looked_at_once_each() -> None:
    """Each leaving client has the version that counts."""
    groups = ConsumerGroups()
    peers = [cast(Any, NamedPeer(f"10.0.0.1:{port}")) for port in range(1, 5_001)]
    for peer in peers:
        groups.heartbeat(peer, heartbeat(peer.remote_address, version=peer.number), "JAVA", 479)
    subscriptions = cast(Any, groups.find("CG"))._said["orders"]
    assert len(subscriptions._newest) <= 2 * len(peers) + 8
    for peer in reversed(peers[1:]):
        groups.disconnected(peer)
        assert len(subscriptions._newest) <= peer.number, "each entry is looked at once"
    assert effective(groups) == (1, "*")


def test_a_client_that_reconnected_is_not_dropped_with_its_old_connection() -> None:
    groups = ConsumerGroups()
    old, new = cast(Any, NamedPeer("10.0.0.1:1")), cast(Any, NamedPeer("10.0.0.1:2"))
    groups.heartbeat(old, heartbeat("c1"), "JAVA", 479)
    assert groups.heartbeat(new, heartbeat("c1"), "JAVA", 479) == ["CG"]
    assert groups.disconnected(old) == []
    assert groups.find("CG") is not None
    assert groups.disconnected(new) == ["CG"]
    assert (groups.find("CG"), groups.producers("PG")) == (None, [])


def test_a_client_that_left_may_return_and_is_removed_with_its_connection() -> None:
    groups = ConsumerGroups()
    peer = cast(Any, NamedPeer("10.0.0.1:1"))
    groups.heartbeat(peer, heartbeat("c1"), "JAVA", 479)
    assert groups.leave("c1", "CG", "PG") == ["CG"]
    assert groups.disconnected(peer) == [], "the client had left already"
    groups.heartbeat(peer, heartbeat("c1"), "JAVA", 479)
    assert groups.disconnected(peer) == ["CG"]


def seconds_to_disconnect(connections: int) -> float:
    """The processor time of the disconnects."""
    groups = ConsumerGroups()
    peers = [cast(Any, NamedPeer(f"10.0.0.1:{port}")) for port in range(connections)]
    for peer in peers:
        groups.heartbeat(peer, heartbeat(peer.remote_address), "JAVA", 479)
    began = time.process_time()
    changes = [groups.disconnected(peer) for peer in reversed(peers)]
    ended = time.process_time()
    assert changes == [["CG"]] * len(peers)
    assert (groups.find("CG"), groups.producers("PG")) == (None, [])
    return ended - began


def test_the_end_of_many_connections_takes_time_linear_in_their_number() -> None:
    few, many = seconds_to_disconnect(3_000), seconds_to_disconnect(30_000)
    assert many < 40 * few, "ten times as many take a hundred times as long if each end looks at every client"


# -- settings and the rest


def test_a_java_brokers_file_loads_without_a_warning(tmp_path: Any) -> None:
    file = tmp_path / "broker.conf"
    file.write_text(
        "brokerClusterName=DefaultCluster\nbrokerName=broker-a\nbrokerId=-1\nbrokerRole=SLAVE\nenableControllerMode=true\n"
        "controllerAddr=127.0.0.1:9878;127.0.0.1:9868\nnamesrvAddr=127.0.0.1:9876\nallAckInSyncStateSet=true\n"
        "listenPort=30911\nhaListenPort=30912\nbrokerIP1=127.0.0.1\nstorePathRootDir=/tmp/s\nstorePathCommitLog=/tmp/s/commitlog\n"
        "autoCreateTopicEnable=true\nmappedFileSizeCommitLog=1048576\nmappedFileSizeConsumeQueue=60000\n"
        "sendMessageThreadPoolNums=4\nwarmMapedFileEnable=false\nwaitTimeMillsInSendQueue=2000\n"
    )
    settings = BrokerSettings.load(file)
    assert settings.warnings == []
    assert (settings.ha_port, settings.fast_port, settings.address) == (30912, 30909, "127.0.0.1:30911")
    assert settings.controllers == ["127.0.0.1:9878", "127.0.0.1:9868"]


def test_the_in_sync_replicas_setting_of_java_brokers_causes_a_warning() -> None:
    [warning] = BrokerSettings.load(None, ["inSyncReplicas=2"]).warnings
    assert "minInSyncReplicas" in warning


def test_retention_settings_of_java_brokers_apply_here_too() -> None:
    asked = [
        "deleteWhen=04;16",
        "fileReservedTime=48",
        "diskMaxUsedSpaceRatio=70",
        "cleanFileForciblyEnable=false",
    ]
    settings = BrokerSettings.load(None, asked)
    rules = settings.retention
    assert settings.warnings == []
    assert (rules.delete_hours, rules.reserved_ms, rules.clean_above) == ({4, 16}, 48 * 3_600_000, 0.7)
    assert (rules.may_clean_forcibly, rules.clean_forcibly_above, rules.refuse_above) == (False, 0.85, 0.9)
    assert BrokerSettings.load(None, ["fileReservedSeconds=90"]).retention.reserved_ms == 90_000
    with pytest.raises(SettingsError, match="hours of the day"):
        BrokerSettings.load(None, ["deleteWhen=25"])


def test_a_separate_replication_network_is_warned_of_while_slave_hosts_are_checked() -> None:
    there = ["brokerIP1=10.0.0.1", "brokerIP2=192.168.0.1"]
    [warning] = BrokerSettings.load(None, there).warnings
    assert "haSlaveHostCheck=false" in warning
    with pytest.raises(SettingsError, match="brokerIP2"):
        BrokerSettings.load(None, there, strict=True)
    assert BrokerSettings.load(None, [*there, "haSlaveHostCheck=false"]).warnings == []
    assert BrokerSettings.load(None, ["brokerIP1=10.0.0.1", "brokerIP2=10.0.0.1"]).warnings == []


def test_the_ha_port_follows_the_listen_port_unless_it_is_set() -> None:
    assert BrokerSettings(listenPort=20911).ha_port == 20912
    assert addresses(" a:1 ;; b:2;") == ["a:1", "b:2"]


@pytest.mark.parametrize(
    "override",
    [
        "enableDLegerCommitLog=true",
        "enableSlaveActingMaster=true",
        "aclEnable=true",
        "authenticationEnabled=true",
        "authorizationEnabled=true",
        "brokerRole=MASTER",
        "enableControllerMode=false brokerRole=SLAVE",
        "enableControllerMode=false brokerRole=SYNC_MASTER brokerId=1",
        "haMasterAddress=a:1;b:2",
        "enableControllerMode=false allFlushInSyncStateSet=true flushDiskType=SYNC_FLUSH",
        "brokerName=a#b",
        "brokerIP1=host",
        "brokerIP1=0.0.0.0",
        "brokerIP2=::",
        "listenPort=65535",
        "listenPort=2",
        "brokerHeartbeatInterval=10000",
        "messageDelayLevel=1s 2x",
    ],
)
def test_settings_that_cannot_be_honoured_are_refused(override: str) -> None:
    with pytest.raises(SettingsError):
        BrokerSettings.load(
            None, override.split(" ", 2) if "enableControllerMode" in override else [override]
        )


GROUP = ["enableDLegerCommitLog=true", "dLegerPeers=n0-h:1;n1-h:2;n2-h:3", "dLegerSelfId=n1"]


def test_upstreams_keys_of_raft_mode_are_accepted() -> None:
    group = BrokerSettings.load(None, [*GROUP, "preferredLeaderIds=n0;n2"]).raft_group
    assert group is not None and group.broker_id == 2
    assert (group.peers, group.preferred) == ({"n0": "h:1", "n1": "h:2", "n2": "h:3"}, ("n0", "n2"))


def test_preferred_leaders_are_accepted_under_both_keys_of_upstream() -> None:
    both = ["preferredLeaderId=n2", "preferredLeaderIds=n2;n0"]
    for overrides, preferred in (both[:1], ("n2",)), (both, ("n2", "n0")):
        settings = BrokerSettings.load(None, [*GROUP, *overrides, "enableBatchPush=true"], strict=True)
        assert settings.raft_group is not None and settings.raft_group.preferred == preferred


def test_the_ledger_must_be_below_the_store_root() -> None:
    there = ["storePathRootDir=/data/s", "storePathDLedgerCommitLog=/data/s/dledger-n1/data"]
    assert BrokerSettings.load(None, [*GROUP, *there], strict=True).raft_group is not None
    assert BrokerSettings.load(None, ["storePathDLedgerCommitLog=/ssd"]).raft_group is None
    with pytest.raises(
        SettingsError, match="storePathDLedgerCommitLog must be /data/s/dledger-n1/data.*link from there"
    ):
        BrokerSettings.load(None, [*GROUP, there[0], "storePathDLedgerCommitLog=/ssd/data"])


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("dLegerPeers=", "dLegerPeers '' must list"),
        ("dLegerPeers=n0-h:1;n1", "must list each member once"),
        ("dLegerPeers=n0-h:1;n0-h:2", "must list each member once"),
        ("dLegerPeers=n0-h:1,n1-h:2;n2-h:3", "a comma where ; is due"),
        ("dLegerPeers=n0-http://h:1;n1-h:2", "without http://"),
        ("dLegerPeers=n0-h:1;n1-h:99999", "no port from 1"),
        ("dLegerPeers=a1-h:1;n1-h:2", "a number of its own"),
        ("dLegerSelfId=n7", "dLegerSelfId: 'n7' is not among"),
        ("preferredLeaderIds=n9", "preferredLeaderIds: 'n9' is not among"),
        ("preferredLeaderId=n9", "preferredLeaderId: 'n9' is not among"),
        ("enableControllerMode=true", "contradict each other"),
        ("allFlushInSyncStateSet=true", "SYNC_FLUSH"),
    ],
)
def test_invalid_settings_of_a_raft_group_are_refused(override: str, why: str) -> None:
    with pytest.raises(SettingsError, match=why):
        BrokerSettings.load(None, [*GROUP, override])


@pytest.mark.parametrize(
    ("settings", "contract"),
    [
        ({"allAckInSyncStateSet": False}, "contract A"),
        ({}, "contract B"),
        ({"minInSyncReplicas": 2}, "contract C"),
        ({"minInSyncReplicas": 2, "flushDiskType": "SYNC_FLUSH"}, "on disk"),
        ({"flushDiskType": "SYNC_FLUSH", "allFlushInSyncStateSet": True}, "contract B on disk"),
        (
            {"minInSyncReplicas": 2, "flushDiskType": "SYNC_FLUSH", "allFlushInSyncStateSet": True},
            "contract D",
        ),
        ({"enableControllerMode": False}, "ASYNC_MASTER of a pair"),
        ({"enableControllerMode": False, "brokerRole": "SYNC_MASTER"}, "once one slave has it"),
        ({"enableControllerMode": False, "brokerRole": "SLAVE", "brokerId": 1}, "slave of a pair"),
    ],
)
def test_the_contract_sentence_names_the_contract_in_force(settings: dict[str, Any], contract: str) -> None:
    assert contract in contract_sentence(BrokerSettings(**settings))


def test_rates_count_over_ten_seconds_a_minute_and_ten_minutes() -> None:
    rates = Rates()
    for second in range(700):
        rates.sample(10 * second if second > 600 else 0, second * 1_000)
    assert rates.per_second(6_990, 699_000) == "10.00 10.00 11.65"
