"""Each request that a port serves has its own row of access control, and is refused to everybody whom the row does not name."""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import pytest

from accesscontrol.needs import ClusterRows, Table
from accesscontrol.policies import Action
from broker.access.needs import broker_table
from broker.app import BrokerApp
from controller.needs import controller_table
from dledger.raft.messages import MessageCode
from messagestore.systemtopics import HALF_TOPIC
from mqclient.producer import SendResult
from mqruntime.peercertificate import MISSING, NOT_ASKED, PeerCertificate
from namesrv.needs import name_server_table
from raftstore.needs import group_member_table
from remoting.bodies.access import NORMAL, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.client import RemotingClient
from remoting.codes import RequestCode as Code
from remoting.codes import ResponseCode
from remoting.command import ONEWAY_BIT, RemotingCommand
from remoting.dispatch import RequestDispatcher
from remoting.peer import Peer
from remoting.router import BatchHandler, Outcome, Router
from remoting.signing import Credentials, Signer
from simulation.kernel.node import SimulatedClock
from simulation.kernel.world import World
from tests.cluster.brokerset import CONTROLLERS, NAMESRV, Cluster
from tests.cluster.groupset import GroupSet
from tests.cluster.guardedset import ACCESS, ADMIN, ALICE, GuardedCluster
from tests.support.notedservers import servers_noted
from tests.support.recordingpeer import RecordingPeer

NO_PERMISSION = ResponseCode.NO_PERMISSION
UNKNOWN = 7777
CLIENT_HOST = "10.255.255.254"
"""Of requests that the world itself sends."""
GUEST = Credentials("guest", "guest-password")
"""A user without any policy."""
SERVERS = Credentials("servers", "servers-secret")
ADMINS_TABLES = {"Name servers": name_server_table(), "Controllers": controller_table()}
"""The ports that know no users but administrators."""
TABLES: dict[str, Table] = {
    "Brokers": broker_table("DefaultCluster"),
    "Brokers of Raft mode": broker_table("DefaultCluster"),
    "Members": group_member_table("DefaultCluster"),
    **ADMINS_TABLES,
}
SERVER = PeerCertificate(True, frozenset({"10.0.2.1"}))


class Asks(NamedTuple):
    """One form of a request. `needs` are the rights that its user must have, all of them: RESOURCE ACTION, with the
    alternatives of an action behind `|`; empty if a signature is enough, SUPER if no right is."""

    code: int
    needs: str
    ext: Mapping[str, str] = {}
    body: Any = None

    def request(self, user: Credentials | None = None) -> RemotingCommand:
        body = None if self.body is None else json.dumps(self.body).encode()
        command = RemotingCommand.request(self.code, dict(self.ext), body)
        if user is not None:
            Signer(user).sign(command)
        return command

    @property
    def rights(self) -> list[tuple[str, list[str]]]:
        """(resource, alternative actions)."""
        if self.needs == SUPER:
            return []
        pairs = [each.rsplit(" ", 1) for each in self.needs.split("; ") if each]
        return [(resource, actions.split("|")) for resource, actions in pairs]


PLAIN_SEND = {
    "a": "producers", "b": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1795000000000", "h": "0", "i": "",
    "j": "0", "k": "false", "m": "false",
}  # fmt: skip
T, G = {"topic": "orders"}, {"consumerGroup": "readers"}
RETRY = {"topic": "%RETRY%readers", "b": "%RETRY%readers"}
QUEUES = {
    "consumerGroup": "readers",
    "clientId": "c",
    "mqSet": [{"topic": "orders", "brokerName": "b", "queueId": 0}],
}
CONSUMER = {"groupName": "readers", "subscriptionDataSet": [{"topic": "orders"}, {"topic": "%RETRY%readers"}]}
BEATS = {"clientID": "c", "producerDataSet": [{"groupName": "producers"}], "consumerDataSet": [CONSUMER]}
TOPICS = {"topicConfigList": [{"topicName": "orders"}, {"topicName": "clicks"}]}
READS, CHANGES = "Cluster:DefaultCluster Get", "Cluster:DefaultCluster Update"
SUPER = "super user"
"""No right is enough."""
CONSUMES = "Group:readers Sub; Topic:orders Sub"
READS_BOTH = "Group:readers Get; Topic:orders Get"

OF_CLIENTS = [
    *(Asks(code, "Topic:orders Pub", {name: "orders"}) for code, name in (
        (Code.SEND_MESSAGE, "topic"), (Code.SEND_MESSAGE_V2, "b"), (Code.SEND_BATCH_MESSAGE, "b"),
        (Code.SEND_REPLY_MESSAGE, "topic"), (Code.SEND_REPLY_MESSAGE_V2, "b"), (Code.END_TRANSACTION, "topic"),
    )),
    *(Asks(code, "Group:readers Sub", RETRY) for code in (
        Code.SEND_MESSAGE, Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE, Code.SEND_REPLY_MESSAGE_V2,
    )),
    Asks(Code.PULL_MESSAGE, CONSUMES, T | G),
    Asks(Code.PULL_MESSAGE, "Group:readers Sub", RETRY | G),
    Asks(Code.PULL_MESSAGE, "Group:readers Sub; Group:others Sub", {"topic": "%RETRY%others"} | G),
    Asks(Code.LITE_PULL_MESSAGE, CONSUMES, T | G),
    Asks(Code.QUERY_MESSAGE, "Topic:orders Sub|Get", T),
    Asks(Code.VIEW_MESSAGE_BY_ID, "Topic:orders Get", T | {"offset": "0"}),
    Asks(Code.QUERY_CONSUMER_OFFSET, "Group:readers Sub|Get; Topic:orders Sub|Get", T | G),
    Asks(Code.UPDATE_CONSUMER_OFFSET, "Group:readers Sub|Update; Topic:orders Sub|Update", T | G),
    *(Asks(code, "Topic:orders Sub|Get", T) for code in (
        Code.SEARCH_OFFSET_BY_TIMESTAMP, Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME,
    )),
    Asks(Code.HEART_BEAT, CONSUMES, body=BEATS),
    Asks(Code.UNREGISTER_CLIENT, "Group:readers Sub", G | {"clientID": "c"}),
    Asks(Code.CONSUMER_SEND_MSG_BACK, "Group:readers Sub", {"group": "readers", "originTopic": "orders"}),
    Asks(Code.GET_CONSUMER_LIST_BY_GROUP, "Group:readers Sub|Get", G),
    Asks(Code.LOCK_BATCH_MQ, CONSUMES, body=QUEUES),
    Asks(Code.UNLOCK_BATCH_MQ, CONSUMES, body=QUEUES),
    Asks(Code.CHECK_CLIENT_CONFIG, CONSUMES, body={"clientId": "c", "group": "readers", "subscriptionData": T}),
    Asks(Code.QUERY_ASSIGNMENT, CONSUMES, body={"clientId": "c", "consumerGroup": "readers", "topic": "orders"}),
]  # fmt: skip
OF_TOOLS = [
    Asks(Code.UPDATE_AND_CREATE_TOPIC, "Topic:orders Create", T),
    Asks(Code.UPDATE_AND_CREATE_TOPIC, "Group:readers Create", RETRY),
    Asks(Code.UPDATE_AND_CREATE_TOPIC_LIST, "Topic:orders Create; Topic:clicks Create", body=TOPICS),
    Asks(Code.DELETE_TOPIC_IN_BROKER, "Topic:orders Delete", T),
    Asks(
        Code.DELETE_TOPIC_IN_BROKER_LIST, "Topic:orders Delete; Topic:clicks Delete", body={"topicList": ["orders", "clicks"]},
    ),
    Asks(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, "Group:readers Create", body={"groupName": "readers"}),
    Asks(
        Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "Group:readers Create; Group:others Create",
        body={"groupConfigList": [{"groupName": "readers"}, {"groupName": "others"}]},
    ),
    Asks(Code.DELETE_SUBSCRIPTIONGROUP, "Group:readers Delete", {"groupName": "readers"}),
    Asks(
        Code.DELETE_SUBSCRIPTION_GROUP_LIST, "Group:readers Delete; Group:others Delete",
        body={"groupNameList": ["readers", "others"]},
    ),
    Asks(Code.INVOKE_BROKER_TO_RESET_OFFSET, "Group:readers Update; Topic:orders Update", T | {"group": "readers"}),
    Asks(Code.CLONE_GROUP_OFFSET, "Group:readers Get; Group:others Update", {"srcGroup": "readers", "destGroup": "others"}),
    Asks(
        Code.CLONE_GROUP_OFFSET, "Group:readers Get; Group:others Update; Topic:orders Update",
        T | {"srcGroup": "readers", "destGroup": "others"},
    ),
    *(Asks(code, "Topic:orders Get", T) for code in (
        Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO, Code.GET_TOPIC_CONFIG, Code.QUERY_CONSUME_QUEUE,
    )),
    Asks(Code.GET_TOPIC_CONFIG, "Group:readers Get", RETRY),
    Asks(Code.QUERY_CONSUME_QUEUE, READS_BOTH, T | G),
    *(Asks(code, "Group:readers Get", G) for code in (
        Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUMER_RUNNING_INFO, Code.GET_CONSUME_STATS,
    )),
    *(Asks(code, "Group:readers Get", {"group": "readers"}) for code in (
        Code.QUERY_TOPICS_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG,
    )),
    Asks(Code.GET_CONSUME_STATS, READS_BOTH, T | G),
    Asks(Code.GET_CONSUME_STATS, READS_BOTH + "; Topic:clicks Get", G | {"topicList": "orders;clicks"}),
    *(Asks(code, READS_BOTH, T | {"group": "readers"}) for code in (
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.QUERY_CONSUME_TIME_SPAN, Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
    )),
    Asks(Code.CONSUME_MESSAGE_DIRECTLY, "Group:readers Sub", G),
    Asks(Code.CONSUME_MESSAGE_DIRECTLY, CONSUMES, T | G),
    *(Asks(code, READS) for code in (
        Code.GET_BROKER_CONFIG, Code.GET_BROKER_RUNTIME_INFO, Code.GET_PRODUCER_CONNECTION_LIST,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_BROKER, Code.VIEW_BROKER_STATS_DATA, Code.GET_BROKER_CONSUME_STATS,
        Code.GET_ALL_PRODUCER_INFO, Code.AUTH_GET_USER, Code.AUTH_LIST_USER, Code.AUTH_GET_ACL, Code.AUTH_LIST_ACL,
    )),
    *(Asks(code, CHANGES) for code in (
        Code.UPDATE_BROKER_CONFIG, Code.CLEAN_EXPIRED_CONSUMEQUEUE, Code.DELETE_EXPIRED_COMMITLOG, Code.RESYNC_BROKER,
        Code.AUTH_CREATE_USER, Code.AUTH_UPDATE_USER, Code.AUTH_DELETE_USER, Code.AUTH_CREATE_ACL, Code.AUTH_UPDATE_ACL,
        Code.AUTH_DELETE_ACL,
    )),
]  # fmt: skip
READ_BY_SERVERS = [
    Code.GET_ALL_TOPIC_CONFIG, Code.GET_ALL_CONSUMER_OFFSET, Code.GET_ALL_DELAY_OFFSET, Code.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    Code.GET_ALL_MESSAGE_REQUEST_MODE, Code.EXCHANGE_BROKER_HA_INFO, Code.GET_BROKER_HA_STATUS, Code.GET_BROKER_EPOCH_CACHE,
]  # fmt: skip
OF_SERVERS = [Code.NOTIFY_BROKER_ROLE_CHANGED, Code.COPY_TABLES, Code.HAND_OVER, Code.AWAIT_MASTER]
OF_BROKERS = [
    *OF_CLIENTS, *OF_TOOLS, *(Asks(code, READS) for code in READ_BY_SERVERS), *(Asks(code, SUPER) for code in OF_SERVERS),
]  # fmt: skip
OF_CONTROLLERS = [
    Code.CONTROLLER_ALTER_SYNC_STATE_SET, Code.CONTROLLER_ELECT_MASTER, Code.CONTROLLER_REGISTER_BROKER,
    Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
    Code.CONTROLLER_GET_NEXT_BROKER_ID, Code.CONTROLLER_APPLY_BROKER_ID,
]  # fmt: skip
"""Brokers of Raft mode answer them, too, and name the command to use."""
FORMS = {
    "Brokers": OF_BROKERS,
    "Brokers of Raft mode": [*OF_BROKERS, *(Asks(code, READS) for code in OF_CONTROLLERS)],
    "Members": [
        *(Asks(code, SUPER) for code in (
            *MessageCode, Code.DLEDGER_CHANGE_MEMBERS, Code.DLEDGER_READ_LOG, Code.READ_TABLES,
        )),
        *(Asks(code, READS) for code in (Code.DLEDGER_METADATA, Code.EXCHANGE_BROKER_HA_INFO)),
    ],
    **{
        port: [Asks(code, SUPER) for code in table] for port, table in ADMINS_TABLES.items()
    },
}  # fmt: skip
"""By port. The requests of name servers and controllers are for administrators and servers only."""
SIGNED_ONLY = [
    Asks(Code.HEART_BEAT, "", body=BEATS | {"consumerDataSet": []}),  # producers only: each send is checked
    Asks(Code.UNREGISTER_CLIENT, "", {"clientID": "c", "producerGroup": "producers"}),
    Asks(Code.END_TRANSACTION, "", {"producerGroup": "producers"}),  # the handler asks for the half's topic
    Asks(Code.VIEW_MESSAGE_BY_ID, "", {"offset": "0"}),  # the handler asks for the message's topic
    Asks(Code.UPDATE_AND_CREATE_TOPIC_LIST, "", body={"topicConfigList": []}),  # these four change nothing
    Asks(Code.DELETE_TOPIC_IN_BROKER_LIST, "", body={"topicList": []}),
    Asks(Code.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, "", body={"groupConfigList": []}),
    Asks(Code.DELETE_SUBSCRIPTION_GROUP_LIST, "", body={"groupNameList": []}),
]
"""The forms for which any signature is enough."""
SENT_BY_SERVERS = {
    "Brokers": {*READ_BY_SERVERS, *OF_SERVERS},
    "Brokers of Raft mode": {*READ_BY_SERVERS, *OF_SERVERS},
    "Members": {
        *MessageCode, Code.DLEDGER_METADATA, Code.DLEDGER_READ_LOG, Code.READ_TABLES, Code.EXCHANGE_BROKER_HA_INFO,
    },
    "Name servers": {
        Code.REGISTER_BROKER, Code.UNREGISTER_BROKER, Code.BROKER_HEARTBEAT, Code.QUERY_DATA_VERSION,
        Code.REGISTER_TOPIC_IN_NAMESRV, Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO,
        Code.GET_BROKER_MEMBER_GROUP, Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER,
        Code.GET_SYSTEM_TOPIC_LIST_FROM_NS, Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST,
        Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE,
    },
    "Controllers": {
        *MessageCode, Code.DLEDGER_METADATA, *OF_CONTROLLERS, Code.BROKER_HEARTBEAT, Code.GIVE_UP_REPLICA,
    },
}  # fmt: skip
"""What a server's certificate is enough for, without a signature."""
OPEN = {"Name servers": {Code.GET_ROUTEINFO_BY_TOPIC}}
"""What the default settings open to everybody."""
MAY_BE_OPEN: dict[str, set[int]] = {
    "Members": {Code.DLEDGER_METADATA, Code.EXCHANGE_BROKER_HA_INFO},
    "Controllers": {
        Code.CONTROLLER_GET_REPLICA_INFO, Code.CONTROLLER_GET_METADATA_INFO, Code.CONTROLLER_GET_SYNC_STATE_DATA,
        Code.GET_CONTROLLER_CONFIG, Code.DLEDGER_METADATA,
    },
    "Name servers": {
        Code.GET_ROUTEINFO_BY_TOPIC, Code.GET_BROKER_CLUSTER_INFO, Code.GET_BROKER_MEMBER_GROUP,
        Code.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, Code.GET_TOPICS_BY_CLUSTER, Code.GET_SYSTEM_TOPIC_LIST_FROM_NS,
        Code.GET_UNIT_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_TOPIC_LIST, Code.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        Code.GET_KV_CONFIG, Code.GET_KVLIST_BY_NAMESPACE, Code.GET_NAMESRV_CONFIG,
    },
    "Brokers": {
        *READ_BY_SERVERS, *OF_CONTROLLERS, *(form.code for form in OF_TOOLS if form.needs == READS),
        Code.QUERY_MESSAGE, Code.VIEW_MESSAGE_BY_ID, Code.QUERY_CONSUMER_OFFSET, Code.SEARCH_OFFSET_BY_TIMESTAMP,
        Code.GET_MAX_OFFSET, Code.GET_MIN_OFFSET, Code.GET_EARLIEST_MSG_STORETIME, Code.GET_CONSUMER_LIST_BY_GROUP,
        Code.CHECK_CLIENT_CONFIG, Code.QUERY_ASSIGNMENT, Code.GET_TOPIC_STATS_INFO, Code.QUERY_TOPIC_CONSUME_BY_WHO,
        Code.GET_TOPIC_CONFIG, Code.QUERY_CONSUME_QUEUE, Code.GET_CONSUMER_CONNECTION_LIST, Code.GET_CONSUMER_RUNNING_INFO,
        Code.QUERY_TOPICS_BY_CONSUMER, Code.GET_SUBSCRIPTIONGROUP_CONFIG, Code.GET_CONSUME_STATS,
        Code.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, Code.QUERY_CONSUME_TIME_SPAN, Code.QUERY_SUBSCRIPTION_BY_CONSUMER,
    },
}  # fmt: skip
"""What settings may open to everybody: requests that change nothing."""


def no_right(user: str, resource: str, host: str = "10.0.4.1") -> str:
    return f"User:{user} has no permission to access {resource} from {host}, no matched policies."


class AskingPeer(RecordingPeer):
    """A connection from a client's host."""

    remote_address = "10.0.4.1:50000"
    had_its_turn = False
    certificate = NOT_ASKED


@dataclass
class Port:
    """A port's router with its guard, but with handlers that only record what reaches them. `app` is the broker whose users
    count there; None at a port with administrators only."""

    name: str
    served: frozenset[int]
    router: Router
    app: BrokerApp | None
    handled: list[RemotingCommand] = field(default_factory=list)

    @classmethod
    def of(cls, name: str, router: Router, app: BrokerApp | None) -> Port:
        port = cls(name, frozenset({*router.handlers, *router.batch_handlers}), Router(), app)
        port.router.admission = router.admission
        for code in router.handlers:
            port.router.add(code, port._handle)
        port.router.add_batch([*router.batch_handlers], port._handle_batch)
        return port

    def _handle(self, peer: Peer, request: RemotingCommand) -> RemotingCommand:
        self.handled.append(request)
        return request.reply()

    def _handle_batch(self, peer: Peer, requests: list[RemotingCommand]) -> None:
        peer.send([self._handle(peer, request) for request in requests])

    def ask(
        self, request: RemotingCommand, certificate: PeerCertificate = NOT_ASKED
    ) -> RemotingCommand | None:
        """The reply. It comes from the guard, or the request has reached its handler once."""
        peer, before = AskingPeer(), len(self.handled)
        peer.certificate = certificate
        RequestDispatcher(self.router, 10).deliver(cast(Peer, peer), [request])
        replies = peer.replies
        assert len(replies) == (0 if request.is_oneway else 1)
        reply = replies[0] if replies else None
        is_refused = reply is None or reply.code != ResponseCode.SUCCESS
        assert len(self.handled) == before + (not is_refused)
        return reply

    def outcome(
        self, request: RemotingCommand, certificate: PeerCertificate = NOT_ASKED
    ) -> tuple[int, str | None]:
        reply = self.ask(request, certificate)
        assert reply is not None
        return reply.code, reply.remark

    def give(self, *rights: tuple[str, str], decision: str = "Allow") -> None:
        """From now on these are the rights of alice: (resource, action)."""
        assert self.app is not None
        entries = [PolicyEntryInfo(resource, [action], None, decision) for resource, action in rights]
        acls = {"User:alice": AclInfo("User:alice", [PolicyInfo("Custom", entries)])} if rights else {}
        self.app.tables.acls.replace(acls)

    @property
    def forms(self) -> list[Asks]:
        """All forms of all served requests."""
        signed_only = SIGNED_ONLY if self.name.startswith("Brokers") else []
        return [*FORMS[self.name], *signed_only]


def with_users(app: BrokerApp) -> BrokerApp:
    rows = [UserInfo(user.access_key, user.secret_key, NORMAL, "enable") for user in (ALICE, GUEST)]
    app.tables.users.replace({**app.tables.users.rows, **{row.username or "": row for row in rows}})
    return app


def in_raft_mode(world: World) -> GroupSet:
    group = GroupSet(world, ports=ACCESS, credentials=ADMIN, **ACCESS, authorizationEnabled=True)
    group.start_up()
    return group


@pytest.fixture(scope="module")
def ports() -> Iterator[dict[str, Port]]:
    """By name. The worlds stand still while requests are checked."""
    found: dict[str, Port] = {}
    with ExitStack() as worlds:
        for seed, mode in enumerate((under_controllers, in_raft_mode), start=920):
            world = worlds.enter_context(World(seed))
            with servers_noted() as noted:
                cluster = mode(world)
            app = with_users(cluster.app(cluster.master))
            raft = " of Raft mode" if isinstance(cluster, GroupSet) else ""
            members = [app._log.member.router] if raft else []  # type: ignore[union-attr]
            for number, router in noted:
                name = {
                    9876: "Name servers",
                    9878: "Controllers",
                    10911: "Brokers" + raft,
                    40911: "Members",
                }.get(number)
                if name is None or name in found or (name == "Members" and router not in members):
                    continue
                if name.startswith("Brokers") and router is not app.requests.router:
                    continue
                found[name] = Port.of(name, router, None if name in ADMINS_TABLES else app)
        assert found.keys() == TABLES.keys()
        yield found


def under_controllers(world: World) -> Cluster:
    cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
    cluster.start_up()
    return cluster


every_port = pytest.mark.parametrize("name", TABLES)
ports_with_users = pytest.mark.parametrize("name", [name for name in TABLES if name not in ADMINS_TABLES])


# -- the table


@every_port
def test_each_served_request_has_its_own_row(ports: dict[str, Port], name: str) -> None:
    """None gets the row of unlisted codes, which would be refused to those who should have it, and not be noticed."""
    assert sorted(ports[name].served - TABLES[name].keys()) == []
    assert ports[name].served == {form.code for form in FORMS[name]}


def test_each_row_is_of_a_request_that_some_broker_serves(ports: dict[str, Port]) -> None:
    served = ports["Brokers"].served | ports["Brokers of Raft mode"].served
    assert sorted(TABLES["Brokers"].keys() - served) == []
    for name in ("Members", *ADMINS_TABLES):
        assert sorted(TABLES[name].keys() - ports[name].served) == []


@every_port
def test_only_requests_that_change_nothing_may_be_open(name: str) -> None:
    otherwise = ClusterRows("DefaultCluster").changes
    assert not otherwise.may_be_open and otherwise.is_administrative
    found = {code for code, row in TABLES[name].items() if row.may_be_open}
    expected = MAY_BE_OPEN[name.removesuffix(" of Raft mode")]
    assert sorted(found - expected) == []
    assert sorted(expected - found) == []
    assert not any(TABLES[name][code].is_administrative for code in found)


# -- who is refused


@every_port
@pytest.mark.parametrize(
    "certificate", [NOT_ASKED, MISSING, PeerCertificate(True)], ids=["none", "missing", "a client's"]
)
def test_an_unsigned_request_is_refused(
    ports: dict[str, Port], name: str, certificate: PeerCertificate
) -> None:
    port = ports[name]
    for form in port.forms:
        if form.code not in OPEN.get(name, set()):
            assert port.outcome(form.request(), certificate) == (NO_PERMISSION, "username cannot be null."), (
                form
            )
            one_way = form.request()
            one_way.flag |= ONEWAY_BIT
            assert port.ask(one_way, certificate) is None, form
    for code in sorted(OPEN.get(name, set())):
        assert port.outcome(RemotingCommand.request(code)) == (0, None)


@every_port
def test_a_user_with_a_wrong_signature_is_refused(ports: dict[str, Port], name: str) -> None:
    port = ports[name]
    for form in port.forms:
        if form.code not in OPEN.get(name, set()):
            wrong = form.request(Credentials("admin", "wrong"))
            assert port.outcome(wrong) == (NO_PERMISSION, "check signature failed."), form
            changed = form.request(ADMIN)
            changed.ext["zz"] = "added"
            assert port.outcome(changed) == (NO_PERMISSION, "check signature failed."), form


@ports_with_users
def test_a_user_without_a_policy_is_refused(ports: dict[str, Port], name: str) -> None:
    port = ports[name]
    for form in FORMS[name]:
        code, remark = port.outcome(form.request(GUEST))
        assert code == NO_PERMISSION, form
        assert (
            remark
            in [
                "User:guest is no super user, and no server.",
                *(no_right("guest", resource) for resource, _ in form.rights),
            ][form.needs != SUPER :]
        ), form


@pytest.mark.parametrize("name", ["Brokers", "Brokers of Raft mode"])
def test_few_forms_of_requests_need_a_signature_only(ports: dict[str, Port], name: str) -> None:
    for form in SIGNED_ONLY:
        assert ports[name].outcome(form.request(GUEST)) == (0, None), form


@pytest.mark.parametrize("name", ADMINS_TABLES)
def test_a_port_of_administrators_knows_no_other_user(ports: dict[str, Port], name: str) -> None:
    for form in FORMS[name]:
        if form.code not in OPEN.get(name, set()):
            outcome = ports[name].outcome(form.request(ALICE))
            assert outcome == (NO_PERMISSION, "User:alice is not found."), form


@every_port
def test_an_unknown_request_is_refused_to_all_but_administrators(ports: dict[str, Port], name: str) -> None:
    port = ports[name]
    unknown = Asks(UNKNOWN, CHANGES)
    assert port.outcome(unknown.request()) == (NO_PERMISSION, "username cannot be null.")
    assert port.outcome(unknown.request(GUEST))[0] == NO_PERMISSION
    assert port.outcome(unknown.request(), SERVER)[0] == NO_PERMISSION
    assert port.outcome(unknown.request(ADMIN)) == (3, " request type 7777 not supported")


# -- who is let in


@ports_with_users
def test_exactly_the_rights_of_the_row_are_needed(ports: dict[str, Port], name: str) -> None:
    """One alternative of each need is enough, each is needed, and no other action counts."""
    port = ports[name]
    actions = {action.value for action in Action} - {"All"}
    for form in FORMS[name]:
        first = [(resource, names[0]) for resource, names in form.rights]
        request = form.request(ALICE)
        for at, (resource, names) in enumerate(form.rights):
            others = first[:at] + first[at + 1 :]
            for action in sorted(actions):
                port.give(*others, (resource, action))
                assert port.outcome(request)[0] == (0 if action in names else NO_PERMISSION), (
                    form,
                    resource,
                    action,
                )
            port.give(*others)
            denied = no_right("alice", resource)
            assert port.outcome(request) == (NO_PERMISSION, denied), form
            port.give(*others, (resource + "x", names[0]))
            assert port.outcome(request) == (NO_PERMISSION, denied), form
    port.give()


@ports_with_users
def test_no_right_is_enough_for_what_only_servers_and_super_users_send(
    ports: dict[str, Port], name: str
) -> None:
    port = ports[name]
    port.give(("*", "All"))
    for form in FORMS[name]:
        refused = (NO_PERMISSION, "User:alice is no super user, and no server.")
        assert port.outcome(form.request(ALICE)) == (refused if form.needs == SUPER else (0, None)), form
    port.give()


@every_port
@pytest.mark.parametrize("user", [ADMIN, SERVERS], ids=lambda user: user.access_key)
def test_administrators_and_the_servers_credentials_may_all(
    ports: dict[str, Port], name: str, user: Credentials
) -> None:
    for form in ports[name].forms:
        assert ports[name].outcome(form.request(user)) == (0, None), form


@every_port
def test_a_servers_certificate_is_enough_for_the_requests_of_servers(
    ports: dict[str, Port], name: str
) -> None:
    port = ports[name]
    accepted = {form.code for form in port.forms if port.outcome(form.request(), SERVER)[0] == 0}
    assert sorted(accepted - SENT_BY_SERVERS[name]) == []
    assert sorted(SENT_BY_SERVERS[name] - accepted) == []


def test_a_servers_certificate_does_not_designate_a_master(ports: dict[str, Port]) -> None:
    port = ports["Controllers"]
    for designated, code in (("true", 16), ("TRUE", 16), ("1", 16), ("", 16), ("false", 0)):
        ext = {"brokerName": "broker-a", "designateElect": designated}
        asked = Asks(Code.CONTROLLER_ELECT_MASTER, CHANGES, ext)
        assert port.outcome(asked.request(), SERVER)[0] == code
        assert port.outcome(asked.request(ADMIN), SERVER)[0] == 0


# -- the handlers themselves


@pytest.mark.parametrize("in_mode", ["under_controllers", "in_raft_mode"])
def test_no_unsigned_request_reaches_a_handler_over_a_connection(in_mode: str) -> None:
    with World(922) as world, servers_noted() as noted:
        cluster = under_controllers(world) if in_mode == "under_controllers" else in_raft_mode(world)
        reached: list[RemotingCommand] = []
        for _, router in noted:
            note_unsigned(router, reached)
        app = cluster.app(cluster.master)
        end = app.store.max_offset()
        where = {"Brokers": app.address, "Name servers": NAMESRV, "Controllers": f"{CONTROLLERS[0]}:9878"}
        if isinstance(cluster, GroupSet):
            where = {"Brokers of Raft mode": app.address, "Members": f"{cluster.master.host}:40911"}
        for name, address in where.items():
            cluster.run(refused_over_a_connection(cluster, address, name))
        world.run_for_ms(1_000)
        assert reached == []
        assert app.store.max_offset() == end


def note_unsigned(router: Router, reached: list[RemotingCommand]) -> None:
    def noted(requests: list[RemotingCommand]) -> None:
        reached.extend(each for each in requests if "AccessKey" not in each.ext)

    def watch(peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        noted([request])
        return lambda outcome: None

    def noting(handler: BatchHandler) -> BatchHandler:
        def handle_batch(peer: Peer, requests: list[RemotingCommand]) -> None:
            noted(requests)
            handler(peer, requests)

        return handle_batch

    for code in [*router.handlers]:
        router.watch(code, watch)
    for code, handler in [*router.batch_handlers.items()]:
        router.batch_handlers[code] = noting(handler)


async def refused_over_a_connection(cluster: Cluster, address: str, name: str) -> None:
    forms = [form for form in FORMS[name] if form.code not in OPEN.get(name, set())]
    client = RemotingClient(clock=SimulatedClock(cluster._client_node))
    try:
        for form in forms:
            await client.one_way(address, form.request())
            reply = await client.call(address, form.request())
            assert (reply.code, reply.remark) == (NO_PERMISSION, "username cannot be null."), form
        for _ in range(2):  # the compiled module reads it, if the port takes sends
            reply = await client.call(
                address, RemotingCommand.request(Code.SEND_MESSAGE_V2, PLAIN_SEND, b"body")
            )
            assert reply.code == NO_PERMISSION
    finally:
        await client.close()


def test_handlers_ask_for_the_topic_that_they_find() -> None:
    """The topic is optional in these requests, and a topic in the request does not count."""
    with World(923) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:mine", ["All"]), ("Group:readers", ["All"]))
        sent = cluster.run(send(cluster, "orders"))
        place = str(int(sent.offset_message_id[-16:], 16))
        message_id = sent.offset_message_id
        asked = [
            Asks(Code.VIEW_MESSAGE_BY_ID, "Topic:orders Get", {"offset": place}),
            Asks(Code.CONSUMER_SEND_MSG_BACK, "Topic:orders Sub", {"group": "readers", "offset": place, "delayLevel": "1"}),
            Asks(
                Code.CONSUME_MESSAGE_DIRECTLY, "Topic:orders Sub",
                {"consumerGroup": "readers", "clientId": "c", "msgId": message_id},
            ),
        ]  # fmt: skip
        for form in asked:
            [(resource, [action])] = form.rights
            for topic in ({}, {"topic": "mine", "originTopic": "mine"}):
                named = form._replace(ext={**form.ext, **topic})
                code, remark = ask(cluster, named, ALICE)
                assert code == NO_PERMISSION, (form, topic)
                assert remark == no_right("alice", resource, CLIENT_HOST)
            cluster.allow(ALICE, (resource, [action]))
            assert ask(cluster, form, ALICE)[0] != NO_PERMISSION, form
            cluster.allow(ALICE, (resource, ["Create"]))
            assert ask(cluster, form, ALICE)[0] == NO_PERMISSION, form
            assert ask(cluster, form, ADMIN)[0] != NO_PERMISSION, form


def test_the_topic_of_a_half_decides_who_ends_the_transaction() -> None:
    with World(924) as world:
        cluster = GuardedCluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        cluster.create_user(ALICE)
        cluster.allow(ALICE, ("Topic:mine", ["All"]))
        properties = "TRAN_MSG\x01true\x02PGROUP\x01producers\x02UNIQ_KEY\x01K1\x02"
        half = Asks(Code.SEND_MESSAGE_V2, "", PLAIN_SEND | {"i": properties, "f": "4"}, "x")
        stored = cluster.run(call(cluster, half, ADMIN))
        assert stored.code == 0, stored.remark
        ext = {
            "producerGroup": "producers", "tranStateTableOffset": stored.ext["queueOffset"], "commitOrRollback": "8",
            "commitLogOffset": str(int(stored.ext["msgId"][-16:], 16)), "fromTransactionCheck": "false", "msgId": "K1",
            "transactionId": "K1",
        }  # fmt: skip
        end = Asks(Code.END_TRANSACTION, "", ext)
        refused = (
            NO_PERMISSION,
            no_right("alice", "Topic:orders", CLIENT_HOST),
        )
        assert ask(cluster, end, ALICE) == refused
        checked = end._replace(ext={**ext, "topic": HALF_TOPIC})  # Java's answer to a check
        for other in (end._replace(ext={**ext, "topic": "mine"}), checked):
            assert ask(cluster, other, ALICE) == refused
        cluster.allow(ALICE, ("Topic:orders", ["Pub"]))
        assert ask(cluster, checked, ALICE) == (0, None)
        assert cluster.bodies() == [b'"x"']


def ask(cluster: Cluster, form: Asks, user: Credentials) -> tuple[int, str | None]:
    reply = cluster.run(call(cluster, form, user))
    return reply.code, reply.remark


async def call(cluster: Cluster, form: Asks, user: Credentials) -> RemotingCommand:
    async with cluster.client(credentials=user) as client:
        return await client.remoting.call(cluster.app(cluster.master).address, form.request())


async def send(cluster: Cluster, topic: str) -> SendResult:
    async with cluster.client() as client:
        return await client.producer("producers").send(topic, b"secret")


# -- a row reads the names that the handler reads


class Fields(dict[str, str]):
    """Ext fields that note which of them are read; each absent one is "0"."""

    def __init__(self, ext: Mapping[str, str]) -> None:
        super().__init__(ext)
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> str:  # type: ignore[override]
        self.read.add(key)
        return super().get(key, "0")

    def __getitem__(self, key: str) -> str:
        return self.get(key)


NAMES = {
    "topic", "b", "topicList", "consumerGroup", "group", "groupName", "srcGroup", "destGroup", "producerGroup", "a",
    "originTopic", "defaultTopic", "c",
}  # fmt: skip
NOT_CHECKED: dict[int, set[str]] = {
    **dict.fromkeys((Code.SEND_MESSAGE, Code.SEND_REPLY_MESSAGE), {"producerGroup", "defaultTopic"}),
    **dict.fromkeys((Code.SEND_MESSAGE_V2, Code.SEND_BATCH_MESSAGE, Code.SEND_REPLY_MESSAGE_V2), {"a", "c"}),
    Code.END_TRANSACTION: {"producerGroup"},  # the half has it, too
    Code.UNREGISTER_CLIENT: {"producerGroup"},
    Code.CONSUMER_SEND_MSG_BACK: {"originTopic"},  # the stored message's topic counts
    Code.UPDATE_AND_CREATE_TOPIC: {"defaultTopic"},
}
"""Names that need no right: upstream's clients name them, and they give access to nothing."""


def test_a_row_reads_the_names_that_the_handler_reads() -> None:
    with World(925) as world:
        cluster = Cluster(world, 1, minInSyncReplicas=1)
        cluster.start_up()
        app = cluster.app(cluster.master)
        forms = [form for form in (*OF_CLIENTS, *OF_TOOLS) if form.ext]
        for form in forms:
            checked = Fields(form.ext)
            list(TABLES["Brokers"][form.code].needs(RemotingCommand(form.code, ext=checked)))
            handled = Fields(form.ext)
            cluster.run(handle(app.requests.router, RemotingCommand(form.code, ext=handled)))
            assert handled.read & NAMES, form
            assert sorted(handled.read & NAMES - checked.read - NOT_CHECKED.get(form.code, set())) == [], form


async def handle(router: Router, request: RemotingCommand) -> None:
    """What the handler answers does not count here."""
    peer = cast(Peer, AskingPeer())
    with suppress(Exception):
        if (batch := router.batch_handlers.get(request.code)) is not None:
            batch(peer, [request])
            await asyncio.sleep(0.01)
            return
        answer = router.handlers[request.code](peer, request)
        if inspect.isawaitable(answer):
            await asyncio.wait_for(answer, 1)
