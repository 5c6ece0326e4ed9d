"""Java clients of three versions with signed requests on our guarded cluster, over plain connections. Each client works
with the rights of its own task, and gets upstream's refusal without them. rights/Rights.java documents each line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from localcluster.cluster import Cluster
from localcluster.drill import elect_another, other_members
from localcluster.secured import credentials_of
from scripts.peers.javapeer import (
    NEWER,
    OLD_CLIENT,
    OLD_CLIENT_JARS,
    OLDER,
    default_clients,
    missing,
    newer_missing,
    old_client_missing,
    peers_of,
)
from scripts.peers.keys import key_file, signing_options
from scripts.peers.waits import WAIT_MS
from tests.interop.guardedcluster import Users, guarded_cluster
from tests.interop.javaclient import RightsClient
from tests.support.longtests import long

pytestmark = [pytest.mark.skipif(missing() is not None, reason=str(missing()))]

NEWER_CLIENT = "5.5.0"
JARS_OF = {
    OLDER: peers_of(OLDER) / "jars",
    NEWER_CLIENT: peers_of(NEWER) / "jars",
    OLD_CLIENT: OLD_CLIENT_JARS,
}
MISSING = {OLDER: missing, NEWER_CLIENT: newer_missing, OLD_CLIENT: old_client_missing}
SENT = 30
COMMITTED = 20
"""Of 30 transactions: 10 at once, and 10 when the broker asks."""
REPLIES = "Topic_DefaultCluster_REPLY_TOPIC"
PAUSE_S = 4.0
"""A Java consumer pulls again 3 s after a refusal."""
GOING_ON_MS = 2_000


class Guarded(NamedTuple):
    """A cluster, clients of one version and the users."""

    cluster: Cluster
    jars: Path
    java: RightsClient
    users: Users


@pytest.fixture(scope="module", params=[OLDER, *long([NEWER_CLIENT, OLD_CLIENT])])
def guarded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """Each version has its own cluster, whose logs have its refusals only."""
    if (why := MISSING[request.param]()) is not None:
        pytest.skip(why)
    folder, jars = tmp_path_factory.mktemp("rights"), JARS_OF[request.param]
    (folder / "home").mkdir()
    with (
        guarded_cluster(folder / "cluster") as cluster,
        RightsClient(cluster.layout.namesrv, folder / "home", jars) as java,
    ):
        yield Guarded(cluster, jars, java, Users(cluster, folder))


def create_topics(guarded: Guarded, *topics: str) -> None:
    for topic in topics:
        asyncio.run(guarded.cluster.create_topic(topic))


def sent(count: int) -> dict[str, object]:
    """The answer if all are acknowledged."""
    return {"acked": count, "code": 0, "remark": ""}


def consumed(count: int, deliveries: int) -> dict[str, int]:
    return {"count": count, "deliveries": deliveries}


def test_each_java_client_needs_the_rights_of_its_own_task_only(guarded: Guarded) -> None:
    _, _, java, users = guarded
    create_topics(guarded, "Orders", "Asked")
    producer = users.add("producer", Topic_Orders="Pub")
    assert java.ask("send", producer, "Orders", SENT) == sent(SENT)
    assert java.ask("transact", producer, "Orders", SENT) == sent(SENT)
    groups = {f"Group_{name}": "Sub" for name in ("Push", "Retry", "Order", "Pull")}
    reader = users.add("reader", Topic_Orders="Sub", **groups)
    java.ask("push", "push", reader, "Orders", "Push")
    java.ask("push", "retry", reader, "Orders", "Retry", 1)
    java.ask("order", "order", reader, "Orders", "Order", 1)
    java.ask("pull", "pull", reader, "Orders", "Pull")
    count = SENT + COMMITTED
    for name, times in (("push", 1), ("retry", 2), ("order", 2), ("pull", 1)):
        assert java.ask("seen", name, count)["count"] == count
        assert java.ask("count", name) == consumed(count, times * count)
        java.ask("close", name)
    asker = users.add("asker", Topic_Asked="Pub")
    answerer = users.add("answerer", Topic_Asked="Sub", Group_Answerers="Sub", **{REPLIES: "Pub"})
    java.ask("answers", "answerer", answerer, "Asked", "Answerers")
    assert java.ask("ask", asker, "Asked", 20) == {"answered": 20}
    java.ask("close", "answerer")
    assert users.refusals() == [], "also requests whose senders do not get the refusal need no more"


def refused(remark: str) -> dict[str, object]:
    return {"acked": 0, "code": 16, "remark": remark}


def test_a_java_producer_gets_upstreams_refusal(guarded: Guarded) -> None:
    _, _, java, users = guarded
    create_topics(guarded, "Secret")
    writer = users.add("writer", Topic_Other="Pub", Group_Secret="Sub", Topic_Secret="Sub")
    assert java.ask("send", writer, "Secret", 1) == refused(
        "User:writer has no permission to access Topic:Secret from 127.0.0.1, no matched policies."
    )
    assert java.ask("transact", writer, "Secret", 3)["code"] == 16
    unknown, wrong = users.keys("ghost", "secret"), users.keys("writer", "wrong")
    assert java.ask("send", unknown, "Secret", 1) == refused("User:ghost is not found.")
    assert java.ask("send", wrong, "Secret", 1) == refused("check signature failed.")
    assert java.ask("send", "-", "Secret", 1) == refused("username cannot be null.")
    users.grant("writer", Topic_Secret="Pub")
    assert java.ask("send", writer, "Secret", 1) == sent(1)
    users.disable("writer")
    assert java.ask("send", writer, "Secret", 1) == refused("User:writer is disabled.")


@pytest.mark.parametrize("kind", ["Topic", "Group"])
def test_a_java_consumer_gets_nothing_after_its_right_is_revoked(guarded: Guarded, kind: str) -> None:
    _, _, java, users = guarded
    topic, name, consumers = f"RevokedBy{kind}", f"revoked{kind}", ("push", "order", "pull")
    create_topics(guarded, topic)
    of_topic = {f"Topic_{topic}": "Sub"}
    of_groups = {f"Group_{topic}{consumer}": "Sub" for consumer in consumers}
    sender = users.add(f"sender{kind}", **{f"Topic_{topic}": "Pub"})
    reader = users.add(name, **of_topic, **of_groups)
    for consumer in consumers:
        java.ask(consumer, consumer, reader, topic, f"{topic}{consumer}")
    assert java.ask("send", sender, topic, SENT) == sent(SENT)
    for consumer in consumers:
        assert java.ask("seen", consumer, SENT)["count"] == SENT
    for resource in of_topic if kind == "Topic" else of_groups:
        users.revoke(name, resource.replace("_", ":", 1))
    assert java.ask("send", sender, topic, SENT) == sent(SENT)
    time.sleep(PAUSE_S)
    assert [java.ask("count", consumer) for consumer in consumers] == [consumed(SENT, SENT)] * len(consumers)
    users.grant(name, **of_topic, **of_groups)
    for consumer in consumers:
        assert java.ask("seen", consumer, 2 * SENT)["count"] == 2 * SENT
        java.ask("close", consumer)


def test_java_clients_that_sign_lose_nothing_at_a_change_of_master(guarded: Guarded, tmp_path: Path) -> None:
    """The user is the one that may send to and read all topics."""
    cluster = guarded.cluster
    topic = "Elected"
    create_topics(guarded, topic)
    credentials = credentials_of(cluster.layout)
    assert credentials is not None
    keys = signing_options(key_file(tmp_path / "keys", credentials))
    with default_clients(
        guarded.jars, cluster.layout.namesrv, topic, tmp_path, 500, interval_ms=10, more=keys
    ) as clients:
        clients.ask("watch", 0)
        for _ in range(2):
            clients.ask("mark")
            state = asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
            asyncio.run(elect_another(cluster, other_members(state)[0]))
            asyncio.run(cluster.wait_whole(timeout_ms=WAIT_MS))
            went_on = clients.ask("watch", GOING_ON_MS)
            assert all(role["count"] > 0 for role in went_on.values()), went_on
        drained = clients.ask("drained")
    assert set(drained) == {"push", "orderly", "pull"}
    for role, seen in drained.items():
        assert seen == {"missing": 0, "disordered": seen["disordered"], "rolledBack": 0, "twice": 0}, role
    assert drained["orderly"]["disordered"] == 0
