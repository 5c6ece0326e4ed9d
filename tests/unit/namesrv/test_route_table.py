"""The route table through registrations, elections, deaths and administrators."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mqruntime.slices import Steps, whole
from namesrv import views
from namesrv.routes import BrokerRegistration, OneTopicRefused, Registered, RouteTable
from remoting.bodies.routes import BrokerData, ClusterInfo, QueueData, TopicList
from tests.unit.namesrv.registrations import A, B, C, registration_of, topics


def table_with(*registrations: BrokerRegistration) -> RouteTable:
    table = RouteTable()
    for registration in registrations:
        table.register(registration, now_ms=0)
    return table


def addresses(table: RouteTable, name: str = "broker-a") -> dict[int, str]:
    return table.groups[name].broker_addrs


def test_a_slave_gets_its_master_in_the_reply_and_a_master_gets_none() -> None:
    table = RouteTable()
    assert table.register(registration_of(2, B, acting_master=None), 0) == Registered()
    assert table.register(registration_of(0, A), 0) == Registered()
    assert table.register(registration_of(2, B), 0) == Registered(A, f"ha-of-{A}")


def test_a_slave_does_not_get_a_master_that_is_no_longer_live() -> None:
    table = table_with(registration_of(0, A), registration_of(2, B))
    del table.live["DefaultCluster", A]
    assert table.register(registration_of(2, B), 0) == Registered()


def test_a_promoted_slave_gets_id_0_and_loses_its_own() -> None:
    table = table_with(registration_of(0, A), registration_of(2, B))
    table.register(registration_of(0, B, epoch=2), 0)
    assert addresses(table) == {0: B}


def test_a_deposed_master_cannot_take_id_0_back_and_is_removed() -> None:
    table = table_with(registration_of(0, A, epoch=1), registration_of(0, B, epoch=2))
    assert addresses(table) == {0: B}
    assert table.register(registration_of(0, A, epoch=1), 0) == Registered()
    assert addresses(table) == {0: B}
    assert ("DefaultCluster", A) not in table.live
    table.register(registration_of(1, A, epoch=2), 0)
    assert addresses(table) == {0: B, 1: A}


def test_a_higher_epoch_gets_id_0_while_the_old_master_is_alive() -> None:
    table = table_with(registration_of(0, A, epoch=4), registration_of(2, B, epoch=4))
    table.register(registration_of(0, B, epoch=5), 1)
    route = views.route_of(table, "T", None)
    assert route is not None
    assert route.broker_datas[0].broker_addrs == {0: B}
    assert table.register(registration_of(2, C, epoch=5), 2) == Registered(B, f"ha-of-{B}")


def test_a_deposed_master_listed_as_slave_is_removed_when_it_registers_as_id_0() -> None:
    table = table_with(registration_of(0, B, epoch=2), registration_of(1, A, epoch=2))
    table.register(registration_of(0, A, epoch=1), 0)
    assert addresses(table) == {0: B}


def test_an_equal_epoch_or_a_dead_holder_does_not_protect_its_id() -> None:
    table = table_with(registration_of(0, A, epoch=2))
    table.register(registration_of(0, B, epoch=2), 0)
    assert addresses(table) == {0: B}
    table = table_with(registration_of(0, A, epoch=9))
    del table.live["DefaultCluster", A]
    table.register(registration_of(0, B, epoch=1), 0)
    assert addresses(table) == {0: B}


def test_a_first_registration_with_one_topic_is_refused_and_leaves_no_state() -> None:
    table = RouteTable()
    with pytest.raises(OneTopicRefused):
        table.register(registration_of(0, A, table=topics(T=6)), 0)
    assert (table.groups, table.clusters, table.topics, table.live) == ({}, {}, {}, {})


def test_a_known_broker_may_register_a_single_topic() -> None:
    table = table_with(registration_of(0, A))
    table.register(registration_of(0, A, counter=2, table=topics(New=6)), 0)
    assert set(table.topics) == {"T", "TBW102", "New"}


def test_topics_change_only_with_the_data_version() -> None:
    table = table_with(registration_of(0, A))
    table.register(registration_of(0, A, table=topics(T=4, Extra=6)), 0)
    assert {name: queues["broker-a"].perm for name, queues in table.topics.items()} == {
        "T": 6,
        "TBW102": 7,
        "Extra": 6,
    }
    table.register(registration_of(0, A, counter=2, table=topics(T=4, Extra=6)), 0)
    assert table.topics["T"]["broker-a"].perm == 4


def test_a_slaves_topics_count_only_with_the_lowest_id_and_acting_master() -> None:
    table = table_with(registration_of(0, A), registration_of(2, B, table=topics(S=6, S2=6)))
    assert "S" not in table.topics
    assert "T" not in table_with(registration_of(2, B, acting_master=None)).topics
    assert table_with(registration_of(2, B)).topics["T"]["broker-a"].perm == 6
    assert table_with(registration_of(2, B, acting_master=True)).topics["T"]["broker-a"].perm == 4


def test_topics_missing_at_the_master_are_removed_only_if_configured() -> None:
    assert (
        "T"
        in table_with(registration_of(0, A), registration_of(0, A, counter=2, table=topics(X=6, Y=6))).topics
    )
    table = table_with(registration_of(0, A))
    table.register(registration_of(0, A, counter=2, table=topics(X=6, Y=6)), 0, only_these_topics=True)
    assert set(table.topics) == {"X", "Y"}


def test_topics_of_a_group_are_removed_with_its_last_member() -> None:
    table = table_with(
        registration_of(0, A),
        registration_of(2, B),
        registration_of(0, C, name="broker-b", table=topics(T=6, U=6)),
    )
    table.unregister("DefaultCluster", "broker-a", A)
    assert addresses(table) == {2: B}
    assert table.topics["T"].keys() == {"broker-a", "broker-b"}
    table.unregister("DefaultCluster", "broker-a", B)
    assert table.topics.keys() == {"T", "U"}
    assert table.topics["T"].keys() == {"broker-b"}
    assert table.clusters == {"DefaultCluster": {"broker-b": None}}
    table.unregister("DefaultCluster", "broker-b", C)
    assert (table.groups, table.clusters, table.topics, table.live) == ({}, {}, {}, {})


def test_unregistering_an_unknown_broker_changes_nothing() -> None:
    table = table_with(registration_of(0, A))
    table.unregister("Ghost", "ghost", "10.9.9.9:1")
    table.unregister("DefaultCluster", "broker-a", B)
    assert addresses(table) == {0: A}


def test_a_group_with_acting_master_loses_write_permission_with_its_master() -> None:
    table = table_with(registration_of(0, A, acting_master=True), registration_of(2, B, acting_master=True))
    table.unregister("DefaultCluster", "broker-a", A)
    assert table.topics["T"]["broker-a"].perm == 4


def test_a_closed_channel_unregisters_only_a_broker_that_still_uses_it() -> None:
    table = table_with(registration_of(0, A), registration_of(2, B))
    table.register(replace(registration_of(2, B), channel="second channel"), 0)
    assert table.close_channel(f"channel-of-{B}") == []
    assert table.close_channel("second channel") == [B]
    assert addresses(table) == {0: A}


def test_the_closed_channel_of_the_old_master_does_not_affect_the_new_one() -> None:
    table = table_with(registration_of(0, A, epoch=1), registration_of(2, B, epoch=1))
    table.register(registration_of(0, B, epoch=2), 0)
    table.close_channel(f"channel-of-{A}")
    assert addresses(table) == {0: B}
    assert "T" in table.topics


def test_silent_brokers_expire_after_their_own_timeout() -> None:
    table = RouteTable()
    table.register(replace(registration_of(0, A), live_ms=1_000), now_ms=0)
    table.register(registration_of(2, B), now_ms=0)
    assert table.expire(now_ms=1_000) == []
    assert table.expire(now_ms=1_001) == [f"channel-of-{A}"]
    table.refresh("DefaultCluster", B, now_ms=120_000)
    table.refresh("DefaultCluster", "10.9.9.9:1", now_ms=120_000)
    assert table.expire(now_ms=240_000) == []
    assert table.expire(now_ms=240_001) == [f"channel-of-{B}"]
    assert table.groups == {}


def test_wiped_write_permission_lasts_until_a_registration_changes_the_topics() -> None:
    table = table_with(registration_of(0, A))
    assert table.set_write_permission("broker-a", allowed=False) == 2
    table.register(registration_of(0, A), 0)
    assert table.topics["T"]["broker-a"].perm == 4
    table.register(registration_of(0, A, counter=2), 0)
    assert table.topics["T"]["broker-a"].perm == 6
    table.set_write_permission("broker-a", allowed=False)
    assert table.set_write_permission("broker-a", allowed=True) == 2
    assert table.topics["TBW102"]["broker-a"].perm == 7
    assert table.set_write_permission("ghost", allowed=False) == 0


def test_topics_are_deleted_everywhere_or_in_one_cluster() -> None:
    table = table_with(
        registration_of(0, A), replace(registration_of(0, C, name="broker-b"), cluster="Other")
    )
    table.delete_topic("T", "Other")
    assert table.topics["T"].keys() == {"broker-a"}
    table.delete_topic("T", None)
    assert "T" not in table.topics
    table.delete_topic("T", None)


def test_topics_are_added_only_on_known_groups() -> None:
    table = table_with(registration_of(0, A))
    table.add_topic("Static", [QueueData("broker-a", 1, 1, 6), QueueData("ghost", 1, 1, 6)])
    assert table.topics["Static"].keys() == {"broker-a"}


def test_a_route_lists_addresses_by_id_and_is_absent_for_an_unknown_topic() -> None:
    table = table_with(
        registration_of(3, C, acting_master=None), registration_of(0, A), registration_of(2, B)
    )
    route = views.route_of(table, "T", "broker-a:4")
    assert route is not None
    assert route.encode() == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911","2":"10.0.0.2:10911","3":"10.0.0.3:10911"},'
        b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}],'
        b'"filterServerTable":{},"orderTopicConf":"broker-a:4","queueDatas":[{"brokerName":"broker-a","perm":6,'
        b'"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}'
    )
    assert views.route_of(table, "U", None) is None


def topics_in(steps: Steps[bytes]) -> list[str]:
    return TopicList.decode(whole(steps)).topic_list


def test_long_lists_are_built_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views, "TOPICS_A_STEP", 2)
    monkeypatch.setattr(views, "GROUPS_A_STEP", 2)
    table, names = RouteTable(), [f"topic-{number}" for number in range(5)]
    for name in names:
        table.topics[name] = {"broker-a": QueueData("broker-a", 1, 1, 6)}
    steps = views.all_topics(table)
    next(steps)
    del table.topics["topic-0"], table.topics["topic-4"]
    assert topics_in(steps) == [
        "topic-0",
        "topic-1",
        "topic-2",
        "topic-3",
    ]  # the topics of each step, as of that step
    for number in range(5):
        table.groups[f"set-{number}"] = BrokerData("C", f"set-{number}", {0: A})
    table.clusters["C"] = dict.fromkeys(table.groups)
    written = whole(views.cluster_info(table))
    assert written == ClusterInfo(table.groups, {"C": list(table.groups)}).encode()
    assert sum(1 for _ in views.cluster_info(table)) == 3


def test_topic_lists_and_cluster_info_for_administrators() -> None:
    table = table_with(registration_of(0, A))
    table.add_topic("Unit", [QueueData("broker-a", 1, 1, 6, topic_sys_flag=1)])
    table.add_topic("UnitSub", [QueueData("broker-a", 1, 1, 6, topic_sys_flag=2)])
    assert topics_in(views.all_topics(table)) == ["T", "TBW102", "Unit", "UnitSub"]
    assert topics_in(views.topics_of_cluster(table, "DefaultCluster")) == ["T", "TBW102", "Unit", "UnitSub"]
    assert topics_in(views.topics_of_cluster(table, "Other")) == []
    assert views.system_topics(table).encode() == (
        b'{"brokerAddr":"10.0.0.1:10911","topicList":["DefaultCluster","broker-a"]}'
    )
    assert topics_in(views.unit_topics(table)) == ["Unit"]
    assert topics_in(views.unit_sub_topics(table)) == ["UnitSub"]
    assert topics_in(views.unit_sub_ununit_topics(table)) == ["UnitSub"]
    assert whole(views.cluster_info(table)) == (
        b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a",'
        b'"cluster":"DefaultCluster","enableActingMaster":false}},"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
    )
    assert views.member_group(table, "any", "broker-a").broker_member_group.broker_addrs == {0: A}
    assert views.member_group(table, "any", "ghost").broker_member_group.broker_addrs == {}
