"""Every admin command once against real processes: consistent output and correct exit codes.

The tests share the cluster and run in order."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from mqadmin.cli import COMMANDS
from scripts.peers.waits import NOBODY_IS_LATE, WAIT_MS
from tests.process.forkedcommands import ForkedCommands
from tests.support.waiting import wait_until

TOPIC, GROUP = "AdminTopic", "AdminGroup"
asked: set[str] = set()


class Admin:
    """`mqadmin` as a process, with the cluster's name server."""

    def __init__(self, cluster: Cluster, commands: ForkedCommands) -> None:
        self._commands = commands
        self.namesrv = cluster.layout.namesrv
        self.controllers = cluster.layout.controller_list
        self.folder = cluster.layout.directory

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        asked.add(arguments[0])
        return self._commands.run("mqadmin", *arguments, "-n", self.namesrv)

    def json_of(self, *arguments: str) -> Any:
        """The JSON of a command that succeeds."""
        done = self.run(*arguments, "--json")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def shown(self, *arguments: str) -> str:
        """The text of a command that succeeds."""
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def failed(self, *arguments: str) -> str:
        """The one line of a command that fails."""
        done = self.run(*arguments)
        assert done.returncode == 1
        assert done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    def master(self) -> str:
        [state] = self.json_of("getSyncStateSet", "-a", self.controllers, "-b", BROKER_SET)["brokerSets"]
        return str(state["masterAddress"])


@pytest.fixture(scope="module")
def admin(tmp_path_factory: pytest.TempPathFactory, commands: ForkedCommands) -> Iterator[Admin]:
    with Cluster.create(tmp_path_factory.mktemp("admin") / "cluster", broker_settings=NOBODY_IS_LATE) as made:
        made.start()
        asyncio.run(made.wait_whole(timeout_ms=WAIT_MS))
        asyncio.run(made.create_topic(TOPIC, 2))
        yield Admin(made, commands)


def test_topics_and_groups_are_created(admin: Admin) -> None:
    assert "success" in admin.shown("updateTopic", "-c", CLUSTER_NAME, "-t", TOPIC, "-r", "2", "-w", "2")
    assert "success" in admin.shown("updateSubGroup", "-c", CLUSTER_NAME, "-g", GROUP)
    assert TOPIC in admin.json_of("topicList")["topics"]
    assert admin.json_of("topicRoute", "-t", TOPIC)["route"]["queueDatas"][0]["readQueueNums"] == 2
    assert "TOPIC_NOT_EXIST" in admin.failed("topicRoute", "-t", "Nowhere")


def test_a_message_is_sent_and_found_by_every_query(admin: Admin) -> None:
    sent = admin.json_of(
        "sendMessage", "-t", TOPIC, "-p", "hello", "-k", "key other", "-b", BROKER_SET, "-i", "1"
    )
    assert sent["status"] == "SEND_OK"
    place = ("-t", TOPIC, "-b", BROKER_SET, "-i", "1", "-o", "0")
    found = [
        admin.json_of("queryMsgById", "-t", TOPIC, "-i", sent["offsetMsgId"])["messages"][0],
        admin.json_of("queryMsgById", "-t", TOPIC, "-i", sent["msgId"])["messages"][0],
        admin.json_of("queryMsgByKey", "-t", TOPIC, "-k", "other")["messages"][0],
        admin.json_of("queryMsgByOffset", *place)["messages"][0],
        admin.json_of("consumeMessage", *place)["messages"][0],
    ]
    assert {message["msgId"] for message in found} == {sent["msgId"]}
    assert {message["body"] for message in found} == {"hello"}
    assert "no message with key othe" in admin.failed("queryMsgByKey", "-t", TOPIC, "-k", "othe")
    offsets = {
        row["queueId"]: row["maxOffset"] for row in admin.json_of("topicStatus", "-t", TOPIC)["queues"]
    }
    assert offsets == {0: 0, 1: 1}


def test_a_group_is_reset_and_its_progress_changes(admin: Admin) -> None:
    move = ("resetOffsetByTime", "-g", GROUP, "-t", TOPIC, "-s")
    assert {row["offset"] for row in admin.json_of(*move, "0")["queues"]} == {0}
    assert admin.json_of("consumerProgress", "-g", GROUP)["diffTotal"] == 1
    assert {row["offset"] for row in admin.json_of(*move, "-1")["queues"]} == {0, 1}
    [group] = [row for row in admin.json_of("consumerProgress")["groups"] if row["group"] == GROUP]
    assert group["diffTotal"] == 0
    assert "updateSubGroup" in admin.failed("resetOffsetByTime", "-g", "Nobody", "-t", TOPIC, "-s", "0")


def test_brokers_and_controllers_are_queried_and_changed(admin: Admin) -> None:
    master = admin.master()
    assert len(admin.json_of("clusterList")["brokers"]) == 3
    assert len(admin.json_of("brokerStatus", "-c", CLUSTER_NAME)["brokers"]) == 3
    assert admin.json_of("getBrokerConfig", "-b", master)["brokers"][master]["brokerName"] == BROKER_SET
    on_brokers = ("updateBrokerConfig", "-c", CLUSTER_NAME, "-a", "-v", "900", "-k")
    assert len(admin.json_of(*on_brokers, "shortPollingTimeMills")["brokers"]) == 3
    assert "restart" in admin.failed(*on_brokers, "listenPort")
    assert "has no setting" in admin.failed("updateBrokerConfig", "-b", master, "-k", "nothing", "-v", "1")
    assert admin.json_of("haStatus", "-b", master)["brokers"][0]["isMaster"] is True
    assert len(admin.json_of("getBrokerEpoch", "-b", BROKER_SET)["brokers"]) == 3
    assert admin.json_of("getControllerMetaData", "-a", admin.controllers)["leaderAddress"]
    change = ("updateControllerConfig", "-a", admin.controllers, "-k", "scanInactiveMasterInterval")
    assert len(admin.json_of(*change, "-v", "4000")["controllers"]) == 3
    settings = admin.json_of("getControllerConfig", "-a", admin.controllers)["controllers"]
    assert {row["scanInactiveMasterInterval"] for row in settings.values()} == {"4000"}
    clean = ("cleanBrokerMetadata", "-a", admin.controllers, "-bn", BROKER_SET, "-c", CLUSTER_NAME, "-b", "1")
    assert "still alive" in admin.failed(*clean)


def test_the_master_is_changed_and_watch_shows_it(admin: Admin) -> None:
    [state] = admin.json_of("getSyncStateSet", "-a", admin.controllers, "-b", BROKER_SET)["brokerSets"]
    chosen = next(row["brokerId"] for row in state["inSync"] if row["brokerId"] != state["masterId"])
    elect = ("electMaster", "-a", admin.controllers, "-bn", BROKER_SET, "-c", CLUSTER_NAME, "-b")
    elected = admin.json_of(*elect, str(chosen))
    assert "knows no" in admin.failed("watch", "--once", "-b", "nowhere")
    view = admin.json_of("watch")["view"]
    [seen] = view["sets"]
    assert (seen["masterId"], seen["masterEpoch"]) == (chosen, elected["masterEpoch"])
    assert [row["epoch"] for row in seen["elections"]][-1] == 1
    assert len(view["controllers"]) == 3
    lines = admin.shown("watch", "--once").splitlines()
    assert f"master {chosen} " in lines[0]
    assert max(map(len, lines)) <= 80


def test_leadership_is_transferred_to_another_controller(admin: Admin) -> None:
    moved = admin.json_of("leadershipTransfer", "-a", admin.controllers)
    assert moved["leaderId"] not in ("", moved["formerId"])
    assert f"#ControllerLeaderId\t{moved['formerId']}\n" in admin.shown(
        "leadershipTransfer", "-a", admin.controllers, "-t", moved["formerId"]
    )


def test_changes_of_the_controller_group_are_checked(admin: Admin) -> None:
    add = ("addController", "-a", admin.controllers, "-m")
    would = admin.json_of(*add, "n9-127.0.0.1:1", "-d")
    assert would["after"]["learners"] == {"n9": "127.0.0.1:1"} and would["before"]["learners"] == {}
    assert "ID-HOST:PORT" in admin.run(*add, "n9").stderr
    assert "n0 is a member already" in admin.failed(*add, "n0-127.0.0.1:1", "-d")
    remove = ("removeController", "-a", admin.controllers, "-i")
    assert "n9 is not among the members n0, n1, n2" in admin.failed(*remove, "n9")
    leader = admin.json_of("getControllerMetaData", "-a", admin.controllers)["leaderId"]
    assert "transfer its leadership first" in admin.failed(*remove, leader, "-d")
    assert "#WouldBe\t" in admin.shown(*remove, next(each for each in ("n0", "n1") if each != leader), "-d")


@pytest.mark.parametrize("command", ["deleteExpiredCommitLog", "cleanExpiredCQ"])
def test_expired_files_are_deleted_on_demand(admin: Admin, command: str) -> None:
    assert "success" in admin.shown(command, "-c", CLUSTER_NAME)


def test_a_replica_resyncs_while_its_process_keeps_running(admin: Admin) -> None:
    def members() -> tuple[int, dict[int, str]]:
        [state] = admin.json_of("getSyncStateSet", "-a", admin.controllers, "-b", BROKER_SET)["brokerSets"]
        return state["masterId"], {row["brokerId"]: row["address"] for row in state["inSync"]}

    assert "is the master" in admin.failed("resyncBroker", "-b", admin.master())
    wait_until("all are in the set", lambda: len(members()[1]) == 3)
    master_id, before = members()
    replica_id, address = next(row for row in before.items() if row[0] != master_id)
    dry = admin.json_of("resyncBroker", "-b", address, "-d")
    assert dry["brokerId"] == replica_id and dry["logBytes"] > 0
    assert members()[1].keys() == before.keys()
    folder = admin.json_of("resyncBroker", "-b", address)["folder"]
    wait_until(
        "the new copy is in the set", lambda: len(members()[1]) == 3 and replica_id not in members()[1]
    )
    wait_until("what it had is removed", lambda: not [*admin.folder.rglob(folder)])
    assert address in members()[1].values()


def test_lists_of_topics_groups_and_settings_are_shown_and_changed(admin: Admin, tmp_path: Path) -> None:
    master = admin.master()
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text('[{"topicName": "AdminListed", "readQueueNums": 2, "writeQueueNums": 2, "perm": 6}]')
    groups.write_text('[{"groupName": "AdminListed"}]')
    assert admin.json_of("updateTopicList", "-b", master, "-f", str(topics))["brokers"] == [master]
    assert admin.json_of("updateSubGroupList", "-b", master, "-f", str(groups))["brokers"] == [master]
    assert admin.json_of("getConsumerConfig", "-g", "AdminListed")["configs"][0]["groupName"] == "AdminListed"
    assert CLUSTER_NAME in admin.shown("topicClusterList", "-t", "AdminListed")
    [changed] = admin.json_of("updateTopicPerm", "-c", CLUSTER_NAME, "-t", "AdminListed", "-p", "4")[
        "brokers"
    ]
    assert (changed["permBefore"], changed["perm"]) == (6, 4)
    for verb in ("wipeWritePerm", "addWritePerm"):
        assert "OK" in admin.shown(verb, "-b", BROKER_SET)
    admin.shown("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{BROKER_SET}:2")
    assert f"{BROKER_SET}:2" in admin.shown("updateOrderConf", "-t", TOPIC, "-m", "get")
    admin.shown("updateOrderConf", "-t", TOPIC, "-m", "delete")
    admin.shown("updateKvConfig", "-s", "ADMIN", "-k", "key", "-v", "value")
    admin.shown("deleteKvConfig", "-s", "ADMIN", "-k", "key")
    admin.shown("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    assert "orderMessageEnable" in admin.shown("getNamesrvConfig")


def test_messages_offsets_and_traffic_are_shown(admin: Admin) -> None:
    master = admin.master()
    message = admin.json_of("printMsg", "-t", TOPIC)["messages"][0]
    assert message["body"] == "hello"
    by_queue = admin.json_of("printMsgByQueue", "-t", TOPIC, "-a", BROKER_SET, "-i", "1", "-p", "true")
    assert by_queue["messages"][0]["msgId"] == message["msgId"]
    [found] = admin.json_of("queryMsgByUniqueKey", "-t", TOPIC, "-i", message["msgId"])["messages"]
    assert found["topic"] == TOPIC
    assert "no trace" in admin.failed("queryMsgTraceById", "-i", message["msgId"], "-t", TOPIC).lower()
    cq = admin.json_of("queryCq", "-t", TOPIC, "-q", "1", "-i", "0", "-c", "1", "-b", master)
    assert cq["maxQueueIndex"] >= 1
    admin.shown("cloneGroupOffset", "-s", GROUP, "-d", "AdminCloned", "-t", TOPIC)
    assert admin.json_of("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)["queues"]
    assert admin.json_of("brokerConsumeStats", "-b", master)["totalDiff"] >= 0
    assert admin.json_of("statsAll", "-t", TOPIC)["topics"][0]["topic"] == TOPIC
    assert admin.json_of("allocateMQ", "-t", TOPIC, "-i", "1,2")["result"].keys() == {"1", "2"}
    assert admin.shown("checkMsgSendRT", "-t", TOPIC, "-a", "2").count("true") == 2
    assert admin.shown("sendMsgStatus", "-b", BROKER_SET, "-c", "2").count("SEND_OK") == 2
    assert admin.json_of("clusterRT", "-a", "2", "--once")["brokers"][0]["success"] == 2


def test_connected_clients_are_shown_and_metadata_is_exported(admin: Admin, tmp_path: Path) -> None:
    assert "groups" in admin.json_of("producer", "-b", admin.master())
    assert "groups" in admin.json_of("startMonitoring", "--once")
    for command, what in (
        ("producerConnection", ("-g", "AdminNobody", "-t", TOPIC)),
        ("consumerConnection", ("-g", GROUP)),
        ("consumerStatus", ("-g", GROUP)),
    ):
        assert GROUP in (said := admin.failed(command, *what)) or "AdminNobody" in said
    for command in ("exportMetadata", "exportMetrics", "exportConfigs"):
        admin.shown(command, "-c", CLUSTER_NAME, "-f", str(tmp_path))
    assert {path.name for path in tmp_path.iterdir()} >= {"metadata.json", "metrics.json", "configs.json"}


def test_users_and_rights_are_changed_shown_and_compared(admin: Admin, tmp_path: Path) -> None:
    """Without access control: nobody sees passwords, so nobody copies users."""
    everywhere, shop = ("-c", CLUSTER_NAME), ("-s", "User:shop")
    master = admin.master()
    admin.shown("createUser", *everywhere, "-u", "shop", "-p", "one")
    admin.shown("updateUser", *everywhere, "-u", "shop", "-s", "disable")
    [user] = admin.json_of("getUser", "-b", master, "-u", "shop")["brokers"][0]["users"]
    assert (user["username"], user["userStatus"]) == ("shop", "disable")
    assert "password" not in user
    assert len(admin.json_of("listUser", "-b", master)["brokers"][0]["users"]) == 1
    rights = ("-r", "Topic:orders", "-a", "Pub", "-d", "Allow")
    admin.shown("createAcl", *everywhere, *shop, *rights)
    admin.shown("updateAcl", *everywhere, *shop, "-r", "Topic:bills", "-a", "Sub", "-d", "Deny")
    assert "Topic:bills" in admin.shown("getAcl", "-b", master, *shop)
    assert "Topic:orders" in admin.shown("listAcl", "-b", master)
    admin.shown("compareAcl", *everywhere)
    assert "password" in admin.failed("copyUser", "-f", master, "-t", master)
    admin.shown("copyAcl", "-f", master, "-t", master)
    former = tmp_path / "plain_acl.yml"
    former.write_text(
        "accounts:\n- accessKey: billing1\n  secretKey: billing-secret\n  topicPerms:\n  - orders=SUB\n"
    )
    admin.shown("importPlainAcl", *everywhere, "-f", str(former), "--apply")
    assert len(admin.json_of("listUser", "-b", master)["brokers"][0]["users"]) == 2
    admin.shown("deleteAcl", *everywhere, *shop)
    for name in ("shop", "billing1"):
        admin.shown("deleteUser", *everywhere, "-u", name)
    assert "not exist" in admin.failed("updateUser", "-b", master, "-u", "shop", "-s", "enable")


def test_topics_and_groups_are_deleted(admin: Admin) -> None:
    assert "success" in admin.shown("deleteSubGroup", "-c", CLUSTER_NAME, "-g", GROUP, "-r", "true")
    assert "success" in admin.shown("deleteTopic", "-c", CLUSTER_NAME, "-t", TOPIC)
    assert "has topic" in admin.failed("deleteTopic", "-c", CLUSTER_NAME, "-t", TOPIC)
    assert asked == set(COMMANDS)
