"""What TLS and access control cost, next to neither and next to Apache RocketMQ 5.3.3, and what many handshakes do to a broker.

    python -m scripts.bench.security [--runs 3] [--seconds 10] [--warm-up 30] [--only rights,signatures,handshakes,sends]
        [--skip-java] [--handshakes 1000] [--handshake-seconds 10]

Rights: the decision whether a user with 1,000 policies may send to a topic, for each receive of one send, in this process.

Signatures: 256 signed messages of 1 KiB in flight from the light client to the master of three brokers at contract C, over a
plain connection. In turn the cluster checks signatures and rights, and checks nothing. The client signs in both, so the
difference is the cost of the checks. The master must check the sends in the compiled module.

Handshakes: another process opens so many TLS connections a second to a master, each with a certificate, and closes them.
Meanwhile a client asks that master a question every 10 ms over a connection of its own; its longest wait bounds the longest
turn of the broker's loop. The epoch must stay the same.

Sends: 256 messages of 1 KiB in flight from the public Java client to the master of three brokers with shipped settings, in
turn to our brokers at contract C without TLS and access control, to the same with both, and to Java's at contract A with both.
With TLS, clients and servers need certificates, and sign. Java has no TLS for the replication stream, which stays plain there.
Plain and TLS have a JVM each, because a JVM reads its certificates once; both JVMs are warmed up by the same load.

The exit code is 1 if a median misses its target."""

from __future__ import annotations

import asyncio
import ssl
import statistics
import sys
import tempfile
import time
import timeit
from argparse import Namespace
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from accesscontrol.audit import AuditLog
from accesscontrol.guard import AccessGuard
from broker.access.needs import broker_table, send_need
from broker.access.rules import TableRules
from broker.tables.accesstables import Acls, Users
from localcluster.cluster import Cluster
from localcluster.secured import (
    APPLICATION,
    admin_of,
    context_of,
    credentials_of,
    make_tools_file,
    tools_file,
)
from mqruntime.certificates import make_authority
from mqruntime.clock import SystemClock
from mqruntime.tlsclient import context_from
from mqruntime.tlsconnector import TlsConnector
from remoting.bodies.access import CUSTOM, NORMAL, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.headers.offsets import GetMaxOffsetHeader
from remoting.peer import Peer
from remoting.router import Router
from remoting.signing import Signer
from scripts.bench.bareloop import mean, probe
from scripts.bench.countedbroker import checked_one_by_one
from scripts.bench.javaload import JavaLoad
from scripts.bench.lightclient import Sends, load
from scripts.bench.measured import cpu_seconds, machine, spread
from scripts.bench.options import bounded, options
from scripts.bench.servers import Servers
from scripts.bench.sides import SIDES, Side, cluster_of
from scripts.bench.tables import Reach, Table
from scripts.peers.guarded import check_nobody, let_plain_connections_in
from scripts.peers.javapeer import broker_missing, missing
from scripts.peers.keys import key_file, signing_options

if TYPE_CHECKING:
    from nativepath.native import Sends as PlainSends

IN_FLIGHT, QUEUES, BODY = 256, 8, 1024
MEASUREMENTS = ("rights", "signatures", "handshakes", "sends")
POLICIES, DECISIONS, RIGHT_US_MAX = 1_000, 100_000, 1.0
CHECKED, UNCHECKED, COUNTED = "checked", "not checked", "scripts.bench.countedbroker"
CHECKS_US, CHECKS_US_MAX = "checks, µs/message", 3.0
ALONE_MAX = 0.01
"""The part of the sends that may be checked one by one: those that came before the first in its receive."""
LIGHT_WARM_UP_S_MAX = 5
TOPIC = "secured"
RATE, CPU_US = "messages/s", "master CPU, µs/message"
WHOLE_MS_MAX = 180_000
STALL_MS_MAX = 50
ASKED_EACH_S = 0.01
SIDES_OF_SENDS = ("ours-c-tls", "ours-c", "java-a-tls")
REACHES = (
    Reach(RATE, least=0.5, beside="ours C"),
    Reach(RATE, least=1.5, beside="Java A TLS"),
)


def measure_rights(runs: int) -> int:
    """The number of missed targets."""
    users, acls = Users(lambda: None), Acls(lambda: None)
    users.put(UserInfo(APPLICATION, "secret", NORMAL))
    entries = [PolicyEntryInfo(f"Topic:{TOPIC}-{each}", ["Pub"], None, "Allow") for each in range(POLICIES)]
    acls.put(AclInfo(f"User:{APPLICATION}", [PolicyInfo(CUSTOM, entries)]))
    rules = TableRules(users, acls)
    guard = AccessGuard(broker_table("cluster"), rules, AuditLog("broker", SystemClock()), cluster="cluster")
    guard.guard(Router(), send_need)
    peer = cast(Peer, SimpleNamespace(remote_address="127.0.0.1:1"))
    topic = f"{TOPIC}-{POLICIES - 1}".encode()
    code = RequestCode.SEND_MESSAGE_V2
    one = SimpleNamespace(code=code, signers=[(APPLICATION.encode(), topic)], signed_by=lambda states: True)
    sends = cast("PlainSends", one)
    if not guard.admits_sends(peer, sends):
        raise SystemExit("the user may not send")
    took = timeit.repeat(lambda: guard.admits_sends(peer, sends), number=DECISIONS, repeat=max(runs, 3))
    us = [seconds / DECISIONS * 1e6 for seconds in took]
    title = f"rights of one send, {POLICIES:,} policies"
    print(f"{title}   {spread(us, 'µs', 2)}, wanted {RIGHT_US_MAX:g}", flush=True)
    return int(statistics.median(us) > RIGHT_US_MAX)


async def compiled_module(cluster: Cluster, address: str) -> str:
    """What the broker says of it."""
    admin = admin_of(cluster.layout)
    try:
        return (await admin.runtime_info(address))["compiledModule"]
    finally:
        await admin.close()


def send_signed(name: str, given: Namespace, table: Table) -> float:
    """One of both in one run; returns the master's µs/message."""
    side = replace(SIDES["ours-c-tls"], module=COUNTED)
    with cluster_of(side) as cluster:
        let_plain_connections_in(cluster)
        if name == UNCHECKED:
            check_nobody(cluster)
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WHOLE_MS_MAX))
        asyncio.run(cluster.create_topic(TOPIC, QUEUES))
        servers = Servers(cluster)
        pid, log = servers.pid(servers.master), servers.log(servers.master)
        if asyncio.run(compiled_module(cluster, servers.address)) != "yes":
            raise SystemExit("the master runs without the compiled module")
        sends = Sends(TOPIC, QUEUES, BODY, credentials=credentials_of(cluster.layout))
        load(servers.address, sends, IN_FLIGHT, min(given.warm_up, LIGHT_WARM_UP_S_MAX))
        before, alone_before = servers.settle().spent(), checked_one_by_one(pid, log)
        outcome = load(servers.address, sends, IN_FLIGHT, given.seconds)
        alone = checked_one_by_one(pid, log) - alone_before
        spent = servers.settle().spent().since(before)
    if outcome.refused or alone > outcome.messages * ALONE_MAX:
        why = f"{outcome.refused:,} refused, {alone:,} checked one by one: {outcome.last_refusal}"
        raise SystemExit(f"of {outcome.messages:,} sends {why}")
    us = spent.master / outcome.messages * 1e6
    table.note(RATE, name, outcome.messages / outcome.seconds)
    table.note(CPU_US, name, us)
    return us


def measure_signatures(given: Namespace) -> int:
    """The number of missed targets."""
    table = Table()
    for number in range(given.runs):
        us = {name: send_signed(name, given, table) for name in (CHECKED, UNCHECKED)}
        table.note(CHECKS_US, CHECKED, us[CHECKED] - us[UNCHECKED])
        print(f"run {number + 1} of signatures is done; {machine()}", flush=True)
    for line in table.lines([CHECKED, UNCHECKED]):
        print(line)
    lines, missed = table.judged(CHECKED, [Reach(CHECKS_US, most=CHECKS_US_MAX)])
    print("\n".join(lines), flush=True)
    return missed


def send_once(
    side: Side, given: Namespace, java: JavaLoad, keys: Path, authority: Path, table: Table
) -> None:
    """One side in one run. `keys` is the file of the client's credentials."""
    with cluster_of(side, authority=authority if side.secure else None) as cluster:
        cluster.start()
        asyncio.run(cluster.wait_whole(timeout_ms=WHOLE_MS_MAX))
        asyncio.run(cluster.create_topic(TOPIC, QUEUES))
        servers, namesrv = Servers(cluster), cluster.layout.namesrv
        if (credentials := credentials_of(cluster.layout)) is not None:
            key_file(keys, credentials)
        java.load("async", namesrv, TOPIC, given.warm_up, BODY, IN_FLIGHT)
        servers.settle()
        before, probed = servers.spent(), probe(None, BODY, IN_FLIGHT, 1.0)
        outcome = java.load("async", namesrv, TOPIC, given.seconds, BODY, IN_FLIGHT)
        spent = servers.settle().spent().since(before)
        rate_of_probe = mean(probed, probe(None, BODY, IN_FLIGHT, 1.0)).per_second
        java.leave(namesrv)
    rate = outcome.messages / outcome.seconds
    table.note(RATE, side.name, rate, rate_of_probe)
    table.note(CPU_US, side.name, spent.master / outcome.messages * 1e6)


def measure_sends(given: Namespace, stack: ExitStack) -> int:
    """The number of missed targets."""
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    make_authority(folder)
    file = make_tools_file(folder)
    plain = stack.enter_context(JavaLoad(folder))
    keys = folder / "keys"
    options = ["-Dtls.enable=true", f"-Dtls.config.file={file}", *signing_options(keys)]
    secured = stack.enter_context(JavaLoad(folder, options))
    table = Table()
    sides = [SIDES[name] for name in SIDES_OF_SENDS]
    for number in range(given.runs):
        for side in sides:
            send_once(side, given, secured if side.secure else plain, keys, folder, table)
            print(f"run {number + 1} of {side.name} is done; {machine()}", flush=True)
    for line in table.lines([side.name for side in sides]):
        print(line)
    lines, missed = table.judged(sides[0].name, REACHES)
    print("\n".join(lines), flush=True)
    return missed


async def shake_hands(address: str, context: ssl.SSLContext, rate: int, seconds: float) -> int:
    """Open `rate` connections a second, as far as this process can, and close each after its handshake; returns how many."""
    host, _, port = address.rpartition(":")
    done, running = 0, set[asyncio.Task[None]]()

    async def one() -> None:
        nonlocal done
        _, writer = await asyncio.open_connection(host, int(port), ssl=context)
        done += 1
        writer.transport.abort()

    begun = time.perf_counter()
    number = 0
    while (passed := time.perf_counter() - begun) < seconds:
        while number < passed * rate and len(running) < rate:
            task = asyncio.create_task(one())
            running.add(task)
            task.add_done_callback(running.discard)
            number += 1
        await asyncio.sleep(0.001)
    await asyncio.gather(*running, return_exceptions=True)
    return done


async def worst_ms(client: RemotingClient, address: str, seconds: float) -> float:
    """The longest wait for an answer within so many seconds."""
    worst, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        question = RemotingCommand.request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(TOPIC, 0))
        asked = time.perf_counter()
        answer = await client.call(address, question, WHOLE_MS_MAX)
        if answer.code != ResponseCode.SUCCESS:
            raise SystemExit(f"{address} answers {answer.code}: {answer.remark}")
        worst = max(worst, 1000 * (time.perf_counter() - asked))
        await asyncio.sleep(ASKED_EACH_S)
    return worst


async def measure_handshakes(given: Namespace) -> int:
    """The number of missed targets."""
    with cluster_of(SIDES["ours-c-tls"]) as cluster:
        cluster.start()
        before = await cluster.wait_whole(timeout_ms=WHOLE_MS_MAX)
        await cluster.create_topic(TOPIC, QUEUES)
        context, address = context_of(cluster.layout), before.master_address or ""
        credentials = credentials_of(cluster.layout)
        assert context is not None and credentials is not None
        signer = Signer(credentials)
        client = RemotingClient(clock=SystemClock(), network=TlsConnector(context), signer=signer)
        name = cluster.layout.name_of(address) or ""
        identity = cluster.states()[name]
        assert identity is not None
        quiet, busy, rates, costs = [], [], [], []
        for _ in range(given.runs):
            quiet.append(await worst_ms(client, address, given.handshake_seconds / 2))
            spent = cpu_seconds(identity.pid)
            arguments = (
                address,
                str(tools_file(cluster.layout)),
                str(given.handshakes),
                str(given.handshake_seconds),
            )
            child = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "scripts.bench.security",
                "--shake",
                *arguments,
                stdout=asyncio.subprocess.PIPE,
            )
            busy.append(await worst_ms(client, address, given.handshake_seconds))
            output, _ = await child.communicate()
            done = int(output)
            rates.append(done / given.handshake_seconds)
            costs.append((cpu_seconds(identity.pid) - spent) / done * 1e6)
        await client.close()
        after = await cluster.wait_whole(timeout_ms=WHOLE_MS_MAX)
    print(f"handshakes a second                 {spread(rates, '/s', 0)}")
    print(f"CPU of the master for each          {spread(costs, 'µs', 0)}")
    print(f"longest wait for an answer, quiet   {spread(quiet, 'ms')}")
    print(f"longest wait for an answer, busy    {spread(busy, 'ms')}, wanted {STALL_MS_MAX}")
    if (after.master_id, after.master_epoch) != (before.master_id, before.master_epoch):
        print(f"another epoch: {before.master_epoch} before, {after.master_epoch} after")
        return 1
    return int(statistics.median(busy) > STALL_MS_MAX)


def main() -> int:
    parser = options(__doc__)
    parser.add_argument("--runs", type=bounded(1, 100), default=3)
    parser.add_argument("--seconds", type=bounded(1, 600), default=10)
    parser.add_argument("--warm-up", type=bounded(1, 600), default=30)
    parser.add_argument("--only", default=",".join(MEASUREMENTS), help=f"some of {','.join(MEASUREMENTS)}")
    parser.add_argument("--skip-java", action="store_true", help="no sends by the Java client")
    parser.add_argument("--handshakes", type=bounded(1, 10_000), default=1_000, help="a second")
    parser.add_argument("--handshake-seconds", type=bounded(1, 600), default=10)
    parser.add_argument(
        "--shake", nargs=4, metavar="ADDRESS FILE RATE SECONDS", help="only the other process"
    )
    given = parser.parse_args()
    if given.shake:
        address, file, rate, seconds = given.shake
        print(asyncio.run(shake_hands(address, context_from(Path(file)), int(rate), float(seconds))))
        return 0
    chosen = given.only.split(",")
    if unknown := [name for name in chosen if name not in MEASUREMENTS]:
        parser.error(f"no measurement {unknown[0]!r}; there are {', '.join(MEASUREMENTS)}")
    print(machine(), flush=True)
    missed = measure_rights(given.runs) if "rights" in chosen else 0
    missed += measure_signatures(given) if "signatures" in chosen else 0
    missed += asyncio.run(measure_handshakes(given)) if "handshakes" in chosen else 0
    if "sends" in chosen:
        why = "as requested" if given.skip_java else missing() or broker_missing()
        if why is not None:
            print(f"without Java: {why}")
        else:
            with ExitStack() as stack:
                missed += measure_sends(given, stack)
    print(machine())
    return int(missed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
