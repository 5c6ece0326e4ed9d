"""The same commands by upstream's mqadmin and by ours, against our servers: their output and files must
agree."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.cluster import Cluster
from localcluster.layout import BROKER_SET, CLUSTER_NAME
from localcluster.waiting import NotYet, wait_for
from mqclient import Client
from scripts.peers.javapeer import missing
from scripts.peers.waits import WAIT_MS
from tests.interop.javaclient import JavaClient
from tests.interop.ourmqadmin import json_of, printed
from tests.unit.mqadmin.adminpage import ROWS

pytestmark = [
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]

TOPIC, GROUP, QUEUES, SENT = "AdminBoth", "AdminBothGroup", 2, 4
CONSUMER = "adminboth"
HEARD = re.compile(r"lastUpdateTimestamp=\d+")
"""Text that changes between two calls."""
WITHOUT_END = {"clusterRT", "startMonitoring"}
"""Upstream's tool repeats these until it is killed; ours has `--once`."""
ELSEWHERE = {
    "electMaster",
    *("createUser", "updateUser", "deleteUser", "getUser", "listUser", "copyUser"),
    *("createAcl", "updateAcl", "deleteAcl", "getAcl", "listAcl", "copyAcl"),
}
"""test_java_client.py hands over; test_java_access_commands.py has the commands of access control."""


class Both:
    """Upstream's tool and ours, with the same name server."""

    def __init__(self, java: JavaClient, cluster: Cluster) -> None:
        self.java = java
        self.namesrv = cluster.layout.namesrv
        self.controllers = cluster.layout.controller_list
        self.asked: set[str] = set()
        """Commands that upstream's tool ran."""

    def upstream(self, command: str, *arguments: object) -> str:
        self.asked.add(command)
        return self.java.admin(command, *arguments, "-n", self.namesrv)

    def refused(self, command: str, *arguments: object) -> str:
        """The error of upstream's tool for a command that fails."""
        self.asked.add(command)
        answer = self.java.ask("admin", command, *arguments)
        assert answer["err"] != ""
        return str(answer["err"])

    def ours(self, *arguments: object) -> str:
        return printed(self.namesrv, *arguments)

    def json_of(self, *arguments: object) -> Any:
        return json_of(self.namesrv, *arguments)

    def agree(self, *arguments: str | int | Path) -> list[str]:
        """The lines that both print, in any order (upstream's is that of a hash table)."""
        command, *more = arguments
        ours, upstream = (
            lines(HEARD.sub("", text)) for text in (self.ours(*arguments), self.upstream(str(command), *more))
        )
        assert ours == upstream, arguments
        return ours

    def master(self) -> str:
        [row] = [row for row in self.json_of("clusterList")["brokers"] if row["brokerId"] == 0]
        return str(row["address"])


def lines(text: str) -> list[str]:
    return sorted(line.rstrip() for line in text.splitlines() if line.strip())


def until(what: str, met: Callable[[], bool]) -> None:
    async def probe() -> None:
        if not await asyncio.to_thread(met):  # mqadmin has a loop of its own
            raise NotYet(what)

    asyncio.run(wait_for(what, probe, WAIT_MS))


@pytest.fixture(scope="module")
def both(java: JavaClient, cluster: Cluster) -> Iterator[Both]:
    """A topic with messages that a Java consumer has read."""
    tools = Both(java, cluster)
    create = ("-c", CLUSTER_NAME, "-t", TOPIC, "-r", QUEUES, "-w", QUEUES)
    assert "success" in tools.upstream("updateTopic", *create)
    java.ask("consume", CONSUMER, TOPIC, GROUP, "CLUSTERING", "*", 0, -1)
    java.ask("assigned", CONSUMER, QUEUES)
    for number in range(SENT):
        where = ("-b", "broker-a", "-i", number % QUEUES)
        tools.ours("sendMessage", "-t", TOPIC, "-p", f"body {number}", "-k", number, "-c", "Tag", *where)
    java.ask("seen", CONSUMER, SENT)
    asyncio.run(commit_all(tools.namesrv))
    yield tools
    java.ask("close", CONSUMER)


async def commit_all(namesrv: str) -> None:
    """Sends the heartbeat that the consumer would send within ten seconds. A reset would take away its queues
    10 s later."""
    async with Client(namesrv) as client:
        consumer = client.consumer(GROUP)
        for queue in await consumer.queues(TOPIC):
            await consumer.commit(queue, await consumer.max_offset(queue))


def test_query_commands_print_the_same_as_upstreams_tool(both: Both) -> None:
    master = both.master()
    for line in (
        f"consumerConnection -g {GROUP}",
        f"getConsumerConfig -g {GROUP}",
        f"queryCq -t {TOPIC} -q 0 -i 0 -c 3",
        f"topicClusterList -t {TOPIC}",
        "getNamesrvConfig",
        f"producer -b {master}",
        f"producerConnection -g CLIENT_INNER_PRODUCER -t {TOPIC}",
        f"getBrokerConfig -b {master}",
        f"getControllerConfig -a {both.controllers}",
        f"queryMsgByKey -t {TOPIC} -k 2",
        f"topicRoute -t {TOPIC}",
    ):
        assert both.agree(*line.split())
    assert [row["group"] for row in both.json_of("brokerConsumeStats", "-b", master)["queues"]].count(GROUP)
    assert (
        both.ours("brokerConsumeStats", "-b", master).splitlines()[0]
        == (both.upstream("brokerConsumeStats", "-b", master).splitlines()[0])
    )


def test_each_tool_shows_the_changes_of_the_other(both: Both, tmp_path: Path) -> None:
    broker_name = "broker-a"
    for verb in ("wipeWritePerm", "addWritePerm"):
        [line] = both.agree(verb, "-b", broker_name)
        assert f"broker[{broker_name}] in name server[{both.namesrv}] OK, " in line
    both.agree("updateKvConfig", "-s", "INTEROP", "-k", "key", "-v", "value")
    both.agree("deleteKvConfig", "-s", "INTEROP", "-k", "key")
    both.agree("updateOrderConf", "-t", TOPIC, "-m", "put", "-v", f"{broker_name}:{QUEUES}")
    assert f"orderConf=[{broker_name}:{QUEUES}]" in both.agree("updateOrderConf", "-t", TOPIC, "-m", "get")[0]
    both.agree("updateOrderConf", "-t", TOPIC, "-m", "delete")
    both.agree("updateTopic", "-b", both.master(), "-t", "AdminBothOrdered", "-w", 4, "-o", "true")
    both.agree("updateNamesrvConfig", "-k", "orderMessageEnable", "-v", "false")
    of_cluster = ("-c", CLUSTER_NAME, "-t", TOPIC, "-p")
    assert "from 6 to 4" in both.upstream("updateTopicPerm", *of_cluster, 4)
    assert "from 4 to 6" in both.ours("updateTopicPerm", *of_cluster, 6)
    topics, groups = tmp_path / "topics.json", tmp_path / "groups.json"
    topics.write_text(json.dumps([{"topicName": f"AdminBoth{at}", "perm": 6} for at in range(2)]))
    groups.write_text(json.dumps([{"groupName": "AdminBothListed"}]))
    both.agree("updateTopicList", "-b", both.master(), "-f", topics)
    both.agree("updateSubGroupList", "-b", both.master(), "-f", groups)
    listed = ("updateSubGroupList", "-c", CLUSTER_NAME, "-f", groups)
    assert set(lines(both.ours(*listed))) < set(lines(both.upstream(*listed))), "and upstream's usage"
    assert both.json_of("getConsumerConfig", "-g", "AdminBothListed")["configs"]


def test_offsets_are_cloned(both: Both) -> None:
    [line] = both.agree("cloneGroupOffset", "-s", GROUP, "-d", "AdminBothClone", "-t", TOPIC)
    assert "clone group offset success" in line
    rows = both.json_of("consumerProgress", "-g", "AdminBothClone")["queues"]
    assert sum(row["consumerOffset"] for row in rows) == SENT


def test_messages_are_found_and_printed_alike(both: Both) -> None:
    def ids(text: str) -> list[str]:
        return sorted(re.findall(r"MSGID: (\w+) .*BODY: (.*)", text))

    assert len(ids(both.ours("printMsg", "-t", TOPIC))) == SENT
    assert ids(both.ours("printMsg", "-t", TOPIC)) == ids(both.upstream("printMsg", "-t", TOPIC))
    by_queue = ("printMsgByQueue", "-t", TOPIC, "-a", "broker-a", "-i", 0, "-p", "true", "-f", "true")
    ours, upstream = both.ours(*by_queue), both.upstream(*by_queue)
    assert ids(ours) == ids(upstream)
    assert ours.splitlines()[-1].split() == upstream.splitlines()[-1].split()
    [message, *_] = both.json_of("printMsg", "-t", TOPIC)["messages"]
    by_id = ("queryMsgByUniqueKey", "-t", TOPIC, "-i", message["msgId"])
    upstream_shown = set(lines(both.upstream(*by_id)))
    more = {line.split()[0] for line in set(lines(both.ours(*by_id))) - upstream_shown}
    assert more <= {"OffsetID:", "Properties:", "MessageTrack"}, "upstream writes all tracks in one line"


def test_a_trace_is_read_alike(both: Both) -> None:
    key = "A" * 32
    both.ours("updateTopic", "-c", CLUSTER_NAME, "-t", "AdminBothTraces", "-r", 1, "-w", 1)
    sent = [
        "Pub",
        "1795522357773",
        "DefaultRegion",
        "PG",
        TOPIC,
        key,
        "t",
        "k",
        "h",
        "4",
        "7",
        "0",
        "off",
        "true",
    ]
    read = ["SubAfter", "request", key, "5", "true", "k", "0", "1795522357999", GROUP]
    body = "".join("\x01".join(row) + "\x02" for row in (sent, read))
    both.ours("sendMessage", "-t", "AdminBothTraces", "-p", body, "-k", key)
    found = both.agree("queryMsgTraceById", "-i", key, "-t", "AdminBothTraces")
    assert [line.split()[:2] for line in found if not line.startswith("#")] == [["Pub", "PG"], ["Sub", GROUP]]


def test_traffic_is_counted(both: Both) -> None:
    def row(text: str) -> list[str]:
        [found] = [
            line.split() for line in text.splitlines() if line.startswith(f"{TOPIC} ") and GROUP in line
        ]
        return found

    ours, upstream = row(both.ours("statsAll", "-t", TOPIC)), row(both.upstream("statsAll", "-t", TOPIC))
    assert ours[-2:] == upstream[-2:]
    assert min(int(ours[-2]), int(ours[-1])) >= SENT
    assert float(upstream[-4]) > 0
    rates = both.json_of("topicStatus", "-t", TOPIC)["topicPutTps"]
    assert rates > 0


def test_exports_hold_the_same(both: Both, tmp_path: Path) -> None:
    for command, name in (
        ("exportMetadata", "metadata.json"),
        ("exportConfigs", "configs.json"),
        ("exportMetrics", "metrics.json"),
    ):
        both.upstream(command, "-c", CLUSTER_NAME, "-f", tmp_path / "upstream")
        both.ours(command, "-c", CLUSTER_NAME, "-f", tmp_path / "ours")
        ours, upstream = (json.loads((tmp_path / side / name).read_text()) for side in ("ours", "upstream"))
        assert ours.keys() == upstream.keys()
        for part in ("topicConfigTable", "subscriptionGroupTable", "brokerConfigs", "clusterScale"):
            assert ours.get(part) == upstream.get(part)
    quota = ours["evaluateReport"]["broker-a"]["runtimeQuota"]
    assert quota.keys() == upstream["evaluateReport"]["broker-a"]["runtimeQuota"].keys()
    assert quota["topicSize"] == upstream["evaluateReport"]["broker-a"]["runtimeQuota"]["topicSize"]


def test_consumer_status_is_the_same_in_both_tools(
    both: Both, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [member] = both.json_of("consumerConnection", "-g", GROUP)["connectionSet"]
    of_one = ("consumerStatus", "-g", GROUP, "-i", member["clientId"])
    reads = "ProcessQueueInfo [commitOffset="

    # it takes the queue of its retry topic once it knows the topic
    until("it reads all its queues", lambda: both.ours(*of_one).count(reads) == QUEUES + 1)
    ours, upstream = both.ours(*of_one), both.upstream(*of_one)
    headings = re.compile(r"^#.*#$", re.MULTILINE)
    assert headings.findall(ours) == headings.findall(upstream)
    assert ours.count(reads) == upstream.count(reads) == QUEUES + 1
    monkeypatch.chdir(tmp_path)
    assert "Rebalance OK" in both.ours("consumerStatus", "-g", GROUP)
    [file] = tmp_path.glob("*/*")
    assert "#Consumer RT&TPS#" in file.read_text()
    [row] = [row for row in both.json_of("startMonitoring", "--once")["groups"] if row["group"] == GROUP]
    assert TOPIC in {undone["topic"] for undone in row["undone"]}


def test_sends_are_timed(both: Both) -> None:
    for line in (f"checkMsgSendRT -t {TOPIC} -a 2", "sendMsgStatus -b broker-a -c 2"):
        ours, upstream = both.ours(*line.split()), both.upstream(*line.split())
        assert len(ours.splitlines()) == len(upstream.splitlines())
        assert ours.count("true") == upstream.count("true")
        assert ours.count("SEND_OK") == upstream.count("SEND_OK")
    [row] = both.json_of("clusterRT", "-a", 2, "--once")["brokers"]
    assert (row["success"], row["failed"]) == (2, 0)


def test_queues_are_shared_out_as_clients_do(both: Both) -> None:
    shares = both.json_of("allocateMQ", "-t", TOPIC, "-i", "1,2,3")["result"]
    upstream = json.loads(both.upstream("allocateMQ", "-t", TOPIC, "-i", "1,2,3"))["result"]
    assert {name: len(queues) for name, queues in shares.items()} == {
        name: len(queues) for name, queues in upstream.items()
    }


def test_offsets_are_skipped(both: Both) -> None:
    """Runs last, because each reset takes away the consumer's queues some time later."""
    assert len(both.agree("skipAccumulatedMessage", "-g", GROUP, "-t", TOPIC)) == 1 + QUEUES


def test_servers_are_queried_and_configured_with_upstreams_tool(both: Both) -> None:
    master, one = both.master(), both.controllers.partition(";")[0]
    assert both.upstream("clusterList").count(CLUSTER_NAME) == 3
    assert "msgPutTotalTodayNow" in both.upstream("brokerStatus", "-b", master)
    assert TOPIC in both.upstream("topicList").split()
    assert both.upstream("getBrokerEpoch", "-b", BROKER_SET).count("#brokerName\t") == 3
    assert "#InSyncSlaveNum\t2\n" in both.upstream("haStatus", "-b", master)
    assert f"#MasterAddr\t{master}\n" in both.upstream(
        "getSyncStateSet", "-a", both.controllers, "-b", BROKER_SET
    )
    assert both.upstream("getControllerMetaData", "-a", one).count("#Peer:\t") == 3
    set_to = ("-k", "shortPollingTimeMills", "-v", 900)
    assert "update broker config success" in both.upstream("updateBrokerConfig", "-b", master, *set_to)
    set_to = ("-k", "scanInactiveMasterInterval", "-v", 4_000)
    assert "success" in both.upstream("updateControllerConfig", "-a", both.controllers, *set_to)
    for command in ("cleanExpiredCQ", "deleteExpiredCommitLog"):
        assert "success" in both.upstream(command, "-c", CLUSTER_NAME)
    clean = ("-a", one, "-bn", BROKER_SET, "-c", CLUSTER_NAME, "-b", "1;2;3")
    assert "still alive" in both.refused("cleanBrokerMetadata", *clean)


def test_messages_and_groups_are_created_and_deleted_with_upstreams_tool(both: Both) -> None:
    topic, group = "AdminBothGone", "AdminBothGoneGroup"
    both.upstream("updateTopic", "-c", CLUSTER_NAME, "-t", topic, "-r", 1, "-w", 1)
    both.upstream("updateSubGroup", "-c", CLUSTER_NAME, "-g", group)
    sent = both.upstream("sendMessage", "-t", topic, "-p", "hello", "-k", "known")
    assert "SEND_OK" in sent
    [message] = both.json_of("queryMsgByKey", "-t", topic, "-k", "known")["messages"]
    for found in (
        both.upstream("queryMsgByOffset", "-t", topic, "-b", BROKER_SET, "-i", 0, "-o", 0),
        both.upstream("queryMsgById", "-t", topic, "-i", message["msgId"]),
        both.upstream("consumeMessage", "-t", topic, "-b", BROKER_SET, "-i", 0, "-o", 0, "-c", 1),
    ):
        assert message["msgId"] in found
    assert BROKER_SET in both.upstream("resetOffsetByTime", "-g", group, "-t", topic, "-s", 0)
    assert "Consume Diff Total: " in both.upstream("consumerProgress", "-g", GROUP)
    [queue] = [
        line for line in both.upstream("topicStatus", "-t", topic).splitlines() if line.startswith(BROKER_SET)
    ]
    assert queue.split()[:4] == [BROKER_SET, "0", "0", "1"]
    assert "success" in both.upstream("deleteTopic", "-c", CLUSTER_NAME, "-t", topic)
    assert "success" in both.upstream("deleteSubGroup", "-c", CLUSTER_NAME, "-g", group)
    assert topic not in both.json_of("topicList")["topics"]


@pytest.mark.parametrize(
    ("line", "feature"),
    [
        (f"setConsumeMode -t {TOPIC} -g {GROUP} -m POP -q 4", "POP consumption"),
        ("getColdDataFlowCtrInfo", "control of cold reads"),
        ("setCommitLogReadAheadMode -m 0", "control of cold reads"),
        ("cleanUnusedTopic", "cleaning of unused topics"),
        ("resetMasterFlushOffset -o 0", "flush offsets set by hand"),
    ],
)
def test_upstreams_tool_shows_that_a_feature_is_not_built(both: Both, line: str, feature: str) -> None:
    command, *more = line.split()
    said = both.refused(command, "-b", both.master(), *more)
    assert f"not built here: {feature}" in said


def test_upstreams_tool_ran_every_command_that_works_according_to_the_page(both: Both) -> None:
    """Runs last: it counts the commands of the tests before."""
    works = {name for name, (state, _) in ROWS.items() if state in ("works", "differs")}
    assert both.asked & works - ELSEWHERE == works - WITHOUT_END - ELSEWHERE
