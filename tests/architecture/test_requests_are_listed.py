"""Each request that a server answers has a row in docs/requests.md, with its allowed senders, how they are checked, and the
rights that they need with access control."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from accesscontrol.needs import Table
from accesscontrol.policies import Kind
from broker.access.needs import broker_table
from controller.needs import controller_table
from dledger.raft.messages import MessageCode
from namesrv.needs import name_server_table
from namesrv.settings import NamesrvSettings
from raftstore.needs import group_member_table
from remoting.codes import RequestCode
from remoting.command import RemotingCommand
from simulation.kernel.world import World
from tests.cluster.brokerset import Cluster
from tests.cluster.groupset import GroupSet
from tests.cluster.pairset import Pair
from tests.support.notedservers import servers_noted

PAGE = Path(__file__).parents[2] / "docs" / "requests.md"
SECTION = re.compile(r"^## (.+)$", re.MULTILINE)
ROW = re.compile(r"^\| (\d[\d, ]*) \| ([A-Z][\w, ]*) \| (.+?) \| (.+?) \| (.+?) \| (.+?) \|$", re.MULTILINE)
SECTIONS = {9876: "Name servers", 9878: "Controllers", 10911: "Brokers", 10909: "Brokers"}
MEMBERS = "Member port of Raft mode"
"""The sections of all other ports."""
TABLES: dict[str, Table] = {
    "Brokers": broker_table("DefaultCluster"),
    MEMBERS: group_member_table("DefaultCluster"),
    "Controllers": controller_table(),
    "Name servers": name_server_table(),
}
WITHOUT_POLICIES = ("Controllers", "Name servers")
OPEN = {"Name servers": NamesrvSettings().open_codes}
EXT = dict.fromkeys(("topic", "b"), "t") | dict.fromkeys(
    ("consumerGroup", "group", "groupName", "srcGroup", "destGroup"), "g"
)
BODY = {
    **dict.fromkeys(("clientID", "clientId"), "c"), **dict.fromkeys(("consumerGroup", "group", "groupName"), "g"),
    **dict.fromkeys(("topic", "topicName"), "t"), "subscriptionData": {"topic": "t"},
    "mqSet": [{"topic": "t", "brokerName": "b", "queueId": 0}],
    "consumerDataSet": [{"groupName": "g", "subscriptionDataSet": [{"topic": "t"}]}],
    "topicConfigList": [{"topicName": "t"}], "groupConfigList": [{"groupName": "g"}],
    "topicList": ["t"], "groupNameList": ["g"],
}  # fmt: skip
"""EXT and BODY name a topic and a group wherever a request can name one."""


def rows_of(section: str) -> list[tuple[list[int], list[str], tuple[str, ...]]]:
    parts = SECTION.split(PAGE.read_text())
    text = parts[parts.index(section) + 1]
    return [
        ([int(code) for code in codes.split(",")], [name.strip() for name in names.split(",")], tuple(rest))
        for codes, names, *rest in ROW.findall(text)
    ]


def needed(section: str, code: int) -> str:
    """What the servers of this section check, as the page says it."""
    if code in OPEN.get(section, ()):
        return "nothing"
    row = TABLES[section][code]
    request = RemotingCommand.request(code, dict(EXT), json.dumps(BODY).encode())
    servers = ["servers"] if row.from_servers(request) else []
    if row.only_super or section in WITHOUT_POLICIES:
        administrators = [] if row.only_super and servers else ["administrators"]
        return ", ".join([*administrators, *servers])
    kinds = (Kind.CLUSTER, Kind.TOPIC, Kind.GROUP)
    rights = dict.fromkeys(
        (kinds.index(need.kind), f"{need.kind.value} {' or '.join(action.value for action in need.actions)}")
        for need in row.needs(request)
    )
    return ", ".join([*(text for _, text in sorted(rights, key=lambda right: right[0])), *servers])


def under_controllers(world: World) -> None:
    Cluster(world, 1, minInSyncReplicas=1).start_up()


def in_a_pair(world: World) -> None:
    Pair(world).start_up()


def in_raft_mode(world: World) -> None:
    GroupSet(world).start_up()


@pytest.fixture(scope="module")
def answered() -> dict[str, set[int]]:
    """Section -> the codes that servers of its ports answer, in any mode."""
    found: dict[str, set[int]] = {}
    with servers_noted() as noted:
        for number, started in enumerate((under_controllers, in_a_pair, in_raft_mode)):
            with World(number + 1) as world:
                started(world)
        for port, router in noted:
            codes = {*router.handlers, *router.batch_handlers}
            found.setdefault(SECTIONS.get(port, MEMBERS), set()).update(codes)
    return found


@pytest.mark.parametrize("section", [*dict.fromkeys(SECTIONS.values()), MEMBERS])
def test_each_request_of_each_port_has_one_row(answered: dict[str, set[int]], section: str) -> None:
    listed = [code for codes, _, _ in rows_of(section) for code in codes]
    assert len(listed) == len(set(listed)), "a request has two rows"
    assert sorted(listed) == sorted(answered[section])


@pytest.mark.parametrize("section", [*dict.fromkeys(SECTIONS.values()), MEMBERS])
def test_a_row_of_the_requests_page_is_complete(section: str) -> None:
    for codes, names, answers in rows_of(section):
        kinds = [RequestCode if code in list(RequestCode) else MessageCode for code in codes]
        assert names == [kind(code).name for kind, code in zip(kinds, codes, strict=True)]
        assert all(answer.strip() for answer in answers), f"{codes}"


@pytest.mark.parametrize("section", TABLES)
def test_each_row_names_what_access_control_checks(section: str) -> None:
    listed = {code: answers[2] for codes, _, answers in rows_of(section) for code in codes}
    assert listed == {code: needed(section, code) for code in listed}
