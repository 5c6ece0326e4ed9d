"""Tests of a fleet of Java's servers and ours: failovers under load, and what the replicas know afterwards.

Invariant: acknowledged messages are judged by what can be read at the end. What replicas know is read from their own files."""

from __future__ import annotations

import asyncio
import random
import re
import signal
import subprocess
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import orjson

from localcluster.drill import DrillKind, drill_once, elect_another
from localcluster.history import Verdict, judge
from localcluster.load import SteadyLoad, read_back
from localcluster.processes import command_of, environment
from localcluster.secured import connector_of, context_of, credentials_of, environment_of
from localcluster.waiting import NotYet, wait_for
from mqadmin.replies import SyncStateInfo
from mqclient.client import Client
from mqclient.errors import ClientError
from mqclient.message import decode_messages
from mqclient.producer import SendStatus
from mqruntime.clock import SystemClock
from remoting.bodies.heartbeats import ConsumerData, HeartbeatData, SubscriptionData
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import RemotingError
from remoting.headers.pull import PullMessageHeader, PullMessageResponseHeader
from remoting.signing import Signer
from scripts.peers.fleet import Fleet
from scripts.peers.waits import WAIT_MS

TOPIC = "Mixed"
QUEUES = 4
QUIET_MS = 300
DELAYED = {"DELAY": "1"}
COMMITTED = 3
EXPRESSION = "kind = 'told'"
KINDS = ("told", "other")
CHOSEN_VERSION = 7
BARE_KEY = re.compile(r"([{,]\s*)(\d+)\s*:")
"""Upstream's JSON has numbers as names."""


@dataclass(slots=True)
class Outcome:
    """The outcome. `masters` is how often each process became master. If `verdict` holds, nothing was lost."""

    verdict: Verdict
    masters: Counter[str] = field(default_factory=Counter)
    outages_ms: list[int] = field(default_factory=list)


def client_of(fleet: Fleet, chance: random.Random) -> Client:
    layout = fleet.layout
    return Client(
        layout.namesrv,
        clock=SystemClock(),
        random=chance,
        tls=context_of(layout),
        credentials=credentials_of(layout),
    )


@asynccontextmanager
async def under_load(fleet: Fleet, seed: int, judged: list[Verdict]) -> AsyncIterator[SteadyLoad]:
    """A producer sends all the time. At the end everything is read back, and `judged` gets the verdict."""
    chance = random.Random(seed)
    clock = SystemClock()
    await fleet.create_topic(TOPIC, QUEUES)
    async with client_of(fleet, chance) as client:
        producer = client.producer("MixedProducers")
        load = SteadyLoad(producer, TOPIC, queues=QUEUES, clock=clock, random=chance, interval_ms=10)
        load.start()
        try:
            yield load
        finally:
            await load.stop()
    async with client_of(fleet, chance) as reader:
        found = await read_back(reader.consumer("MixedReaders"), TOPIC, load.attempts, WAIT_MS)
    judged.append(judge(load.attempts, found))


async def failovers(fleet: Fleet, count: int, *, seed: int = 1, facts: bool = False) -> Outcome:
    """Kill the master and hand over by turns, `count` times in all, to each broker in turn. With `facts` each master gets data
    that every replica must copy."""
    judged: list[Verdict] = []
    masters: Counter[str] = Counter()
    outages: list[int] = []
    told = set[str]()
    filters: list[int] = []
    async with under_load(fleet, seed, judged) as load:
        for number in range(count):
            kind = DrillKind.ELECT if number % 2 else DrillKind.KILL
            done = await drill_once(fleet, kind, load, QUIET_MS, partial(strike, fleet, kind, masters))
            masters[done.new_master] += 1
            outages.append(done.outage_ms or 0)
            if facts and done.new_master not in told:
                told.add(done.new_master)
                checks = [tell_facts(fleet, number)]
                if (
                    not fleet.layout.secure
                ):  # under a Java master our slave serves servers and administrators only
                    filters.append(number)
                    checks.append(filters_kept(fleet, filters))
                await asyncio.gather(*checks)
            elif filters:
                await filters_kept(fleet, filters)
    return Outcome(judged[0], masters, outages)


async def strike(
    fleet: Fleet, kind: DrillKind, masters: Counter[str], state: SyncStateInfo, master: str
) -> None:
    """Cause a fault at the master. The broker that was master least often is elected."""
    if kind is DrillKind.KILL:
        fleet.kill([master], signal.SIGKILL)
        return
    others = [replica for replica in state.in_sync if replica.broker_id != state.master_id]
    await elect_another(
        fleet, min(others, key=lambda each: masters[fleet.layout.name_of(each.address) or ""])
    )


async def tell_facts(fleet: Fleet, number: int) -> None:
    """Send a topic, a group, a committed offset and a delay offset to the master. Wait until all replicas have them in their
    files."""
    state = await fleet.wait_whole(timeout_ms=WAIT_MS)
    topic, group = f"Facts{number}", f"FactReaders{number}"
    admin = partial(mqadmin, fleet, "-b", str(state.master_address))
    await admin("updateTopic", "-t", topic, "-r", "2", "-w", "2")
    await admin("updateSubGroup", "-g", group, "-r", "7")
    async with client_of(fleet, random.Random(number)) as client:

        async def committed() -> None:
            try:
                producer = client.producer("FactProducers")
                for _ in range(COMMITTED):
                    sent = await producer.send(topic, b"told", queue_id=1, properties=DELAYED)
                    if sent.status is not SendStatus.SEND_OK:
                        raise NotYet(sent.status.name)
                consumer = client.consumer(group)
                queue = (await consumer.queues(topic))[1]
                await consumer.commit(queue, COMMITTED)
            except Exception as error:  # no route yet, or the master is just leaving
                raise NotYet(str(error)) from error

        await wait_for("facts told", committed, WAIT_MS)
    master = fleet.layout.broker_names.index(fleet.layout.name_of(state.master_address or "") or "")

    async def known() -> None:
        due = known_to(fleet, master)
        for replica in range(fleet.layout.brokers):
            held = known_to(fleet, replica)
            if topic not in held["topics"] or held["groups"].get(group) != 7:
                raise NotYet(f"broker-{replica} is missing {topic} or {group}")
            if held["offsets"].get(f"{topic}@{group}") != {"1": COMMITTED}:
                raise NotYet(f"broker-{replica} has offsets {held['offsets']}")
            if held["delays"].get("1", 0) < COMMITTED or held["delays"] != due["delays"]:
                raise NotYet(
                    f"broker-{replica} has delay offsets {held['delays']}, its master {due['delays']}"
                )

    await wait_for("facts at each replica", known, WAIT_MS)


def known_to(fleet: Fleet, replica: int) -> dict[str, Any]:
    """The facts in the files of a replica, in upstream's layout."""

    def table(file: str, name: str) -> dict[str, Any]:
        path = fleet.store(replica) / "config" / file
        try:
            text = path.read_text()
            return dict(orjson.loads(BARE_KEY.sub(r'\1"\2":', text))[name])
        except (FileNotFoundError, orjson.JSONDecodeError):  # not written yet, or just being
            return {}

    groups = table("subscriptionGroup.json", "subscriptionGroupTable")
    return {
        "topics": table("topics.json", "topicConfigTable"),
        "groups": {name: each["retryMaxTimes"] for name, each in groups.items()},
        "offsets": table("consumerOffset.json", "offsetTable"),
        "delays": table("delayOffset.json", "offsetTable"),
    }


async def filters_kept(fleet: Fleet, numbers: Sequence[int]) -> None:
    """A consumer that filters by SQL92 sends its expression to all brokers, as Java's clients do. Wait until each broker has
    the expression in its file, and still has those of earlier consumers, which are gone. Then a master, a different one each
    time, filters."""
    keys = credentials_of(fleet.layout)
    signer = None if keys is None else Signer(keys)
    client = RemotingClient(clock=SystemClock(), network=connector_of(fleet.layout), signer=signer)
    topic, group, version = f"Facts{numbers[-1]}", f"Choosers{numbers[-1]}", CHOSEN_VERSION
    wanted = SubscriptionData(topic, EXPRESSION, sub_version=version, expression_type="SQL92")
    data = HeartbeatData("chooser", consumer_data_set=[ConsumerData(group, subscription_data_set=[wanted])])

    async def known() -> None:
        for replica, name in enumerate(fleet.layout.broker_names):
            heartbeat = RemotingCommand.request(RequestCode.HEART_BEAT, None, data.encode())
            try:
                reply = await client.call(fleet.layout.address(name), heartbeat)
            except RemotingError as error:  # just started, and busy
                raise NotYet(f"{name}: {error}") from error
            if reply.code != ResponseCode.SUCCESS:
                raise NotYet(f"{name} answers {reply.code}: {reply.remark}")
            for number in numbers:
                of_topic = filters_of(fleet, replica).get(f"Facts{number}", {"groupFilterData": {}})
                held = of_topic["groupFilterData"].get(f"Choosers{number}")
                if held is None or (held["expression"], held["clientVersion"]) != (EXPRESSION, version):
                    raise NotYet(f"{name} has for Choosers{number} the filter {held}")

    try:
        await wait_for("filters at each replica", known, WAIT_MS)
        await wait_for("a master that chooses", partial(chosen, fleet, client, topic, group), WAIT_MS)
    finally:
        await client.close()


async def chosen(fleet: Fleet, client: RemotingClient, topic: str, group: str) -> None:
    """Check that the master returns, from all messages of both kinds that were ever sent, those that match the heartbeat's
    expression. Raises NotYet if the master does not answer yet."""
    state = await fleet.wait_whole(timeout_ms=WAIT_MS)
    try:
        async with client_of(fleet, random.Random(1)) as other:
            producer = other.producer("FactProducers")
            for kind in KINDS:
                sent = await producer.send(topic, b"to be chosen", queue_id=0, properties={"kind": kind})
                if sent.status is not SendStatus.SEND_OK:
                    raise NotYet(sent.status.name)
            consumer = other.consumer("FactReaders")
            queue = (await consumer.queues(topic))[0]
            end = await consumer.max_offset(queue)
            every = [message async for message in consumer.read(queue, 0, end)]
        found, at = list[int](), 0
        while at < end:
            header = PullMessageHeader(group, topic, 0, at, 32, 0, 0, 0, CHOSEN_VERSION)
            pull = RemotingCommand.request(RequestCode.PULL_MESSAGE, header)
            reply = await client.call(state.master_address or "", pull)
            if reply.code not in (ResponseCode.SUCCESS, ResponseCode.PULL_RETRY_IMMEDIATELY):
                raise NotYet(f"{state.master_address} answers {reply.code}: {reply.remark}")
            found += [message.queue_offset for message in decode_messages(reply.body or b"")]
            at = PullMessageResponseHeader.from_ext(reply.ext).next_begin_offset
    except (ClientError, RemotingError) as error:  # no route yet, or the master is just leaving
        raise NotYet(str(error)) from error
    taken = [message.queue_offset for message in every if message.properties["kind"] == KINDS[0]]
    assert taken and found == taken, (
        f"{state.master_address} chose {found} of {len(every)}, to give were {taken}"
    )


def filters_of(fleet: Fleet, replica: int) -> dict[str, Any]:
    """The filters by topic, from the file of a replica."""
    try:
        text = (fleet.store(replica) / "config/consumerFilter.json").read_text()
        return dict(orjson.loads(BARE_KEY.sub(r'\1"\2":', text))["filterDataByTopic"])
    except (FileNotFoundError, orjson.JSONDecodeError):  # not written yet, or just being
        return {}


async def mqadmin(fleet: Fleet, *arguments: str) -> str:
    """The output of our mqadmin, which is run again until it succeeds. The command follows the options of all commands."""
    shared, command, rest = arguments[:2], arguments[2], arguments[3:]

    def asked() -> subprocess.CompletedProcess[str]:
        line = command_of("mqadmin", [command, *shared, *rest])
        secrets = environment_of(fleet.layout)
        return subprocess.run(
            line, env={**environment(), **secrets}, capture_output=True, text=True, check=False
        )

    async def probe() -> str:
        done = await asyncio.to_thread(asked)
        if done.returncode:
            raise NotYet(done.stderr)
        return done.stdout

    return await wait_for(command, probe, WAIT_MS)
