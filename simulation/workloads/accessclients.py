"""Administrators who create, change and revoke users and rights, and the users, who ask all brokers all the time.

The clients are on hosts without faults, have their own random generator, and are independent of the fault plan. An
administrator changes one user after the other, each with one request after the other. A user is given up once a change of it
was lost, because this change may take effect at any later time; before, an administrator revokes what can still be revoked for
certain. Users sign with the password that they believe in, with former passwords, with wrong ones, or not at all.

Invariants: A1 to A4 of simulation.checkers.accesscheck."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from mqclient.message import decode_messages
from remoting.bodies.access import DISABLED, ENABLED, AclInfo, PolicyEntryInfo, PolicyInfo, UserInfo
from remoting.client import RemotingClient
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import NotSent, RemotingError
from remoting.headers.access import DeleteAclHeader, SubjectHeader, UserHeader
from remoting.headers.admin import CreateTopicHeader, TopicHeader
from remoting.headers.pull import SYS_FLAG_SUBSCRIPTION, SYS_FLAG_SUSPEND, PullMessageHeader
from remoting.headers.send import SendMessageHeader
from remoting.signing import Credentials, Signer
from simulation.checkers import accounthistory as history
from simulation.checkers.accesscheck import PULLED, SHOWN, STORED, AccessCheck, Leading
from simulation.checkers.accounthistory import Account, Change, Entry, Outcome, Request, Value
from simulation.cluster.looks import BrokerLook
from simulation.kernel.node import Node, SimulatedClock
from simulation.kernel.world import World
from simulation.workloads.accounts import OPERATOR
from simulation.workloads.mastertrouble import MasterTrouble

NAME = "user changed"
REVOKED = "right revoked"
DIED = "master dies behind a change of users"
WAS_PAUSED = "master stands still before a change of users"
HANDED_OVER = "hand-over before a change of users"
HOSTS = ("10.0.6.1", "10.0.6.2", "10.0.6.3")
"""The administrators' host, and the users' hosts."""
TOPIC, GROUP, QUEUES = "guarded", "guarded-readers", 2
NAMES = 3
"""The topic, the group and its retry topic."""
ON_TOPIC, ON_GROUP = f"Topic:{TOPIC}", f"Group:{GROUP}"
PUB, SUB, GET = "Pub", "Sub", "Get"
TO_SHOW, TO_SEND, TO_PULL = ((ON_TOPIC, GET),), ((ON_TOPIC, PUB),), ((ON_TOPIC, SUB), (ON_GROUP, SUB))
ALL_ACTIONS = {ON_TOPIC: frozenset({PUB, SUB, GET}), ON_GROUP: frozenset({SUB})}
SLOTS = 3
"""Users that exist at once."""
CHANGE_EACH_MS = (100, 700)
ENJOYED_MS = (400, 3_000)
"""So long a user who has all rights may use them."""
GRANTED = 0.85
"""The chance that an administrator grants what a user does not have."""
LIFE_CHANGES = 25
LAST_TRIES = 6
GIVEN_UP_MS = 4_000
"""So long a user still asks after the last change."""
CHANGE_MS = 3_000
ASK_EACH_MS = (20, 200)
ASK_MS = 4_000
FEED_EACH_MS = (200, 700)
WAIT_MS = (1_000, 9_000)
IN_FLIGHT_MAX = 60
AT_ONCE_MS = (0, 60, 500, 1_500)
"""So long after a revocation was answered all brokers are asked."""
TO_ANOTHER = 0.1
"""The chance that a change is sent to a broker that is perhaps not the master."""
MASTER_DIES, MASTER_IS_PAUSED, IS_HANDED_OVER = 0.05, 0.02, 0.04
SPARED_MS = 20_000
CHANGES_MIN, SERVED_MIN, REFUSED_MIN = 10, 50, 50
STOPPED_MS = 20_000


def sizes(users: int, hosts: int) -> dict[str, int]:
    """Sizes of tables, by class and attribute, if there were ever so many `users`. The super user asks from all `hosts` of the
    world."""
    rights = sum(map(len, ALL_ACTIONS.values()))
    return {
        "Users.rows": users + 1,
        "Acls.rows": users,
        "TableRules._known": users + 1,
        "TableRules._rights": users + 1,
        "AccessGuard._decisions": len(HOSTS) * rights * users,
        "AccessGuard._states": users + 1,
        "AccessGuard._sends_allowed": len(HOSTS) * users + hosts * hosts,
        "AccessRequests._passed": LIFE_CHANGES * users,
    }


class Asking(NamedTuple):
    """A kind of request: the rights that it needs, and the codes of an answer to a user who has them."""

    what: str
    needs: tuple[tuple[str, str], ...]
    serving: frozenset[ResponseCode]


@dataclass(frozen=True)
class Wanted:
    """A change to be requested."""

    what: str
    values: Mapping[str, Value]
    request: RemotingCommand

    @property
    def revokes(self) -> bool:
        return any(not isinstance(value, str) and not _permits(value) for value in self.values.values())


class AccessClients:
    """The clients. `targets()` are the nodes of all brokers, at `port`. `master()` is the node of the present master and
    `calm()` its process, if nothing is broken. `kill` kills it, and `hand_over()` lets an operator elect another."""

    def __init__(
        self,
        world: World,
        targets: Callable[[], Sequence[Node]],
        port: int,
        broker_set: str,
        *,
        master: Callable[[], Node | None],
        calm: Callable[[], Leading | None],
        kill: Callable[[Node], object],
        hand_over: Callable[[], object],
        done: Counter[str],
    ) -> None:
        self.check = AccessCheck()
        self._world = world
        self._random = random.Random(f"{world.seed}/access clients")
        self._administrators = world.node("administrators", HOSTS[0])
        self._hosts = [world.node(f"users-{number}", host) for number, host in enumerate(HOSTS[1:])]
        self._targets = targets
        self._port = port
        self._broker_set = broker_set
        self._master = master
        self._calm = calm
        self._hand_over = hand_over
        self._done = done
        self._trouble = MasterTrouble(world, self._random, master=master, kill=kill, spared_ms=SPARED_MS)
        self._spared_until_ms = 0
        self._active: list[Account] = []
        self._next_offsets = [0] * QUEUES
        self._at_once: dict[str, RemotingClient] = {}
        """By users' host: the connections for requests right after a revocation."""
        self._in_flight = 0
        self._working = 0
        self._begun = self._stopping = self._is_ready = False
        self.changes = self.revocations = 0

    @property
    def names(self) -> int:
        """The number of users that were ever requested."""
        return len(self.check.accounts)

    def next_step(self, looks: Iterable[BrokerLook]) -> None:
        """Called often. Raises Violation."""
        if not self._begun:
            self._begun = True
            self._administrators.spawn(self._begin())
        self.check.look(looks, self._calm(), self._now_us)

    def heal(self) -> None:
        self._trouble.healed = True

    def stop(self) -> None:
        """End all clients."""
        self._stopping = True
        self._world.run_until(lambda: self._working <= 0 and self._in_flight <= 0, STOPPED_MS)

    def at_the_end(self, looks: Iterable[BrokerLook]) -> None:
        """Check all brokers of a whole set. Raises Violation."""
        self.check.at_the_end(looks, self._now_us)
        seen = self.revocations, self.changes, self.check.served, self.check.refused
        least = 1, CHANGES_MIN, SERVED_MIN, REFUSED_MIN
        assert all(count >= limit for count, limit in zip(seen, least, strict=True)), (
            f"too little happened: {seen}, expected {least}"
        )

    def counts(self) -> dict[str, int]:
        """What happened, for totals."""
        check = self.check
        return {
            "changes of users": self.changes,
            "revocations": self.revocations,
            "requests of users served": check.served,
            "requests of users refused": check.refused,
            "requests of users put off": check.unsure,
        }

    @property
    def _now_us(self) -> int:
        return self._world.loop.now_us

    async def _begin(self) -> None:
        clock = SimulatedClock(self._administrators)
        administration = RemotingClient(clock=clock, signer=Signer(OPERATOR))
        await self._make_topic(administration)
        works = [*(self._administer(administration) for _ in range(SLOTS)), self._feed(administration)]
        self._working = len(works) + 2 * len(self._hosts)
        for work in works:
            self._administrators.spawn(work)
        for node in self._hosts:
            client = RemotingClient(clock=SimulatedClock(node))
            self._at_once[node.name] = RemotingClient(clock=SimulatedClock(node))
            node.spawn(self._ask_all_the_time(node, client))
            node.spawn(self._wait_for_messages(node, client))

    async def _make_topic(self, client: RemotingClient) -> None:
        header = CreateTopicHeader(TOPIC, "TBW102", QUEUES, QUEUES, 6)
        while True:
            address = self._master_address()
            with suppress(RemotingError):
                request = RemotingCommand.request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
                if address is not None and (await client.call(address, request, CHANGE_MS)).code == 0:
                    return
            await asyncio.sleep(0.2)

    def _master_address(self) -> str | None:
        master = self._master()
        return None if master is None else self._address(master)

    def _address(self, node: Node) -> str:
        return f"{node.host}:{self._port}"

    async def _pause(self, low_ms: int, high_ms: int) -> None:
        await asyncio.sleep(self._random.randint(low_ms, high_ms) / 1000)

    # -- administrators

    async def _administer(self, client: RemotingClient) -> None:
        """One user after the other."""
        while not self._stopping:
            account = self.check.new_account()
            self._active.append(account)
            await self._lead_life(client, account)
            if not self._stopping:
                await asyncio.sleep(GIVEN_UP_MS / 1000)
            self._active.remove(account)
        self._working -= 1

    async def _lead_life(self, client: RemotingClient, account: Account) -> None:
        for _ in range(LIFE_CHANGES):
            if self._stopping or account.lost:
                break
            await self._carry_out(client, account, self._next_change(account))
            has_all = all(_permits(account.known(resource)) for resource in ALL_ACTIONS)
            await self._pause(*(ENJOYED_MS if has_all else CHANGE_EACH_MS))
        for _ in range(LAST_TRIES):
            if self._stopping:
                return
            if (await self._carry_out(client, account, self._last_change(account))) is Outcome.DONE:
                return
            await self._pause(*CHANGE_EACH_MS)

    async def _carry_out(self, client: RemotingClient, account: Account, wanted: Wanted) -> Outcome | None:
        """Request the change. If its outcome is not sure, repeat it a few times."""
        outcome = None
        for _ in range(LAST_TRIES):
            outcome = await self._request(client, account, wanted)
            if outcome is not Outcome.UNSURE:
                break
            await self._pause(*CHANGE_EACH_MS)
        return outcome

    async def _request(self, client: RemotingClient, account: Account, wanted: Wanted) -> Outcome | None:
        """None if there is no master to ask."""
        self._make_trouble()
        address = self._master_address()
        if self._random.random() < TO_ANOTHER:
            address = self._address(self._random.choice(self._targets()))
        if address is None:
            return None
        change = account.asked(wanted.what, wanted.values, self._now_us)
        try:
            reply = await client.call(address, _copy(wanted.request), CHANGE_MS)
        except NotSent:
            change.outcome = Outcome.REFUSED
        except RemotingError:
            change.outcome = Outcome.LOST
            client.disconnect(address)
        else:
            change.outcome = _outcome(reply)
        change.answered_us = self._now_us
        if change.outcome is Outcome.DONE:
            self._done_with(account, change, wanted)
        return change.outcome

    def _done_with(self, account: Account, change: Change, wanted: Wanted) -> None:
        self.changes += 1
        self._done[NAME] += 1
        if wanted.revokes or history.PASSWORD in change.values:
            self.revocations += wanted.revokes
            self._done[REVOKED] += wanted.revokes
            for node in self._hosts:
                node.spawn(self._ask_at_once(node, account))
        if self._trouble.dies(MASTER_DIES):
            self._done[DIED] += 1

    def _make_trouble(self) -> None:
        if self._trouble.is_paused(MASTER_IS_PAUSED) is not None:
            self._done[WAS_PAUSED] += 1
            return
        is_spared = self._trouble.healed or self._world.now_ms < self._spared_until_ms
        if not is_spared and self._random.random() < IS_HANDED_OVER:
            self._spared_until_ms = self._world.now_ms + SPARED_MS
            self._hand_over()
            self._done[HANDED_OVER] += 1

    def _next_change(self, account: Account) -> Wanted:
        """What an administrator wants next, by what was answered."""
        password, is_enabled = account.known(history.PASSWORD), account.known(history.ENABLED)
        draw = self._random.random()
        if password is None:
            repeated = account.changes and account.changes[-1].what.startswith("create")
            return self._changed(account) if repeated and draw < 0.7 else self._created(account)
        if not is_enabled:
            return _status(account, is_enabled=True)
        missing = [resource for resource in ALL_ACTIONS if not _permits(account.known(resource))]
        if missing and draw < GRANTED:
            return self._granted(account, missing[0])
        draw = self._random.random()
        if draw < 0.1:
            return self._deleted(account)
        if draw < 0.25:
            return _status(account, is_enabled=False)
        if draw < 0.4:
            return self._changed(account)
        resource = ON_TOPIC if self._random.random() < 0.7 else ON_GROUP
        return self._revoked(account, resource, self._random.random())

    def _last_change(self, account: Account) -> Wanted:
        """A revocation that no lost change undoes later, if there is one."""
        lost = {
            aspect
            for change in account.lost
            for aspect, value in change.values.items()
            if value not in (None, False)
        }
        if history.PASSWORD not in lost and self._random.random() < 0.5:
            return self._deleted(account)
        if history.ENABLED not in lost:
            return _status(account, is_enabled=False)
        return self._revoked(account, ON_TOPIC, 0)

    def _new_password(self, account: Account) -> str:
        return f"{account.name}-{len(account.passwords())}"

    def _created(self, account: Account) -> Wanted:
        password = self._new_password(account)
        values: dict[str, Value] = {history.PASSWORD: password, history.ENABLED: True}
        body = UserInfo(account.name, password).encode()
        request = RemotingCommand.request(RequestCode.AUTH_CREATE_USER, UserHeader(account.name), body)
        return Wanted(f"create with {password}", values, request)

    def _changed(self, account: Account) -> Wanted:
        password = self._new_password(account)
        body = UserInfo(account.name, password, user_status=ENABLED).encode()
        request = RemotingCommand.request(RequestCode.AUTH_UPDATE_USER, UserHeader(account.name), body)
        values: dict[str, Value] = {history.PASSWORD: password, history.ENABLED: True}
        return Wanted(f"password {password}", values, request)

    def _deleted(self, account: Account) -> Wanted:
        values = {history.PASSWORD: None, history.ENABLED: None, ON_TOPIC: None, ON_GROUP: None}
        request = RemotingCommand.request(RequestCode.AUTH_DELETE_USER, UserHeader(account.name))
        return Wanted("delete", values, request)

    def _granted(self, account: Account, resource: str) -> Wanted:
        """All actions for all hosts, or some of them."""
        actions, hosts = ALL_ACTIONS[resource], frozenset[str]()
        if resource == ON_TOPIC and self._random.random() < 0.3:
            actions = frozenset(self._random.sample(sorted(actions), 2))
        if self._random.random() < 0.3:
            hosts = frozenset([self._random.choice(self._hosts).host])
        return _entry(account, resource, Entry(True, actions, hosts))

    def _revoked(self, account: Account, resource: str, draw: float) -> Wanted:
        """A denial, or no entry at all."""
        if draw < 0.5:
            return _entry(account, resource, Entry(False, ALL_ACTIONS[resource]))
        header = DeleteAclHeader(f"User:{account.name}", None, resource)
        request = RemotingCommand.request(RequestCode.AUTH_DELETE_ACL, header)
        return Wanted(f"remove {resource}", {resource: None}, request)

    async def _feed(self, client: RemotingClient) -> None:
        """Send messages for the users who wait."""
        while not self._stopping:
            address = self._master_address()
            if address is not None:
                with suppress(RemotingError):
                    await client.call(address, self._send(), CHANGE_MS)
            await self._pause(*FEED_EACH_MS)
        self._working -= 1

    # -- users

    async def _ask_all_the_time(self, node: Node, client: RemotingClient) -> None:
        while not self._stopping:
            await self._pause(*ASK_EACH_MS)
            if self._active and self._in_flight < IN_FLIGHT_MAX:
                account = self._random.choice(
                    self._active if self._random.random() < 0.95 else self.check.accounts
                )
                self._spawn_ask(node, client, account, self._broker())
        self._working -= 1

    async def _ask_at_once(self, node: Node, account: Account) -> None:
        """After a revocation: each broker, at several moments."""
        before_ms = 0
        for after_ms in AT_ONCE_MS:
            await asyncio.sleep((after_ms - before_ms) / 1000)
            before_ms = after_ms
            for target in self._targets():
                if self._in_flight < IN_FLIGHT_MAX and not self._stopping:
                    self._spawn_ask(node, self._at_once[node.name], account, target)

    def _broker(self) -> Node:
        master = self._master()
        return (
            master
            if master is not None and self._random.random() < 0.4
            else self._random.choice(self._targets())
        )

    def _spawn_ask(self, node: Node, client: RemotingClient, account: Account, target: Node) -> None:
        self._in_flight += 1
        node.spawn(self._ask(node, client, account, target))

    async def _ask(self, node: Node, client: RemotingClient, account: Account, target: Node) -> None:
        try:
            draw = self._random.random()
            if draw < 0.5:
                command = RemotingCommand.request(RequestCode.GET_TOPIC_CONFIG, TopicHeader(TOPIC))
                asking = Asking("topic config", TO_SHOW, SHOWN)
            elif draw < 0.75:
                command, asking = self._send(), Asking("send", TO_SEND, STORED)
            else:
                command, asking = (
                    self._pull(self._random.randrange(QUEUES), 0),
                    Asking("pull", TO_PULL, PULLED),
                )
            request = self._signed(command, asking, node, account, target)
            await self._judged(client, command, request, asking.serving, ASK_MS)
        finally:
            self._in_flight -= 1

    async def _wait_for_messages(self, node: Node, client: RemotingClient) -> None:
        """Pulls that a broker holds until a message comes."""
        while not self._stopping:
            await self._pause(*ASK_EACH_MS)
            if not self._active:
                continue
            account, wait_ms = self._random.choice(self._active), self._random.randint(*WAIT_MS)
            command = self._pull(self._random.randrange(QUEUES), wait_ms)
            asking = Asking("waiting pull", TO_PULL, PULLED)
            request = self._signed(command, asking, node, account, self._broker())
            await self._judged(client, command, request, PULLED, ASK_MS + wait_ms)
        self._working -= 1

    def _signed(
        self, command: RemotingCommand, asking: Asking, node: Node, account: Account, target: Node
    ) -> Request:
        """Sign the command, perhaps wrongly, and note it."""
        passwords, draw = account.passwords(), self._random.random()
        password: str | None = "never-a-password"
        user: Account | None = account
        if draw < 0.04:
            password = None
        elif draw < 0.08:
            user = None
        elif draw < 0.2 and passwords:
            password = self._random.choice(passwords)
        elif draw < 0.96 and passwords:
            password = passwords[-1]
        if password is not None:
            Signer(Credentials("nobody" if user is None else account.name, password)).sign(command)
        return Request(asking.what, user, password, node.host, target.name, asking.needs, self._now_us)

    async def _judged(
        self,
        client: RemotingClient,
        command: RemotingCommand,
        request: Request,
        serving: frozenset[ResponseCode],
        timeout_ms: int,
    ) -> None:
        address = self._address(self._world.nodes[request.broker])
        try:
            reply = await client.call(address, command, timeout_ms)
        except NotSent:
            return
        except RemotingError:
            client.disconnect(address)
            return
        newest_us = self._newest(reply) if serving is PULLED else None
        self.check.answered(request, reply.code, reply.remark or "", self._now_us, serving, newest_us)

    def _newest(self, reply: RemotingCommand) -> int | None:
        """When the newest message in the answer to a pull was sent."""
        if reply.code != ResponseCode.SUCCESS:
            return None
        messages = decode_messages(reply.body or b"")
        for message in messages:
            self._next_offsets[message.queue_id] = max(
                self._next_offsets[message.queue_id], message.queue_offset + 1
            )
        return max(int(message.body) for message in messages)

    def _send(self) -> RemotingCommand:
        header = SendMessageHeader(
            producer_group="guarded-producers",
            topic=TOPIC,
            default_topic="TBW102",
            default_topic_queue_nums=QUEUES,
            queue_id=self._random.randrange(QUEUES),
            sys_flag=0,
            born_timestamp=self._now_us // 1000,
            flag=0,
            properties="",
            reconsume_times=0,
            unit_mode=False,
            batch=False,
            broker_name=self._broker_set,
        )
        body = b"%d" % self._now_us
        return RemotingCommand.request(RequestCode.SEND_MESSAGE_V2, header.to_short_ext(), body)

    def _pull(self, queue_id: int, suspend_ms: int) -> RemotingCommand:
        header = PullMessageHeader(
            consumer_group=GROUP,
            topic=TOPIC,
            queue_id=queue_id,
            queue_offset=self._next_offsets[queue_id],
            max_msg_nums=32,
            sys_flag=SYS_FLAG_SUBSCRIPTION | (SYS_FLAG_SUSPEND if suspend_ms else 0),
            commit_offset=0,
            suspend_timeout_millis=suspend_ms,
            sub_version=0,
            subscription="*",
            expression_type="TAG",
            broker_name=self._broker_set,
        )
        return RemotingCommand.request(RequestCode.PULL_MESSAGE, header)


def _permits(value: Value) -> bool:
    """Whether this value lets a user do anything."""
    return value.allows if isinstance(value, Entry) else bool(value)


def _outcome(reply: RemotingCommand) -> Outcome:
    """The outcome of a change."""
    if reply.code == ResponseCode.SUCCESS:
        return Outcome.DONE
    if reply.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_BUSY):
        return Outcome.REFUSED
    if reply.code == ResponseCode.SERVICE_NOT_AVAILABLE:
        return Outcome.LOST  # perhaps passed on to a master that did not answer
    return Outcome.UNSURE


def _copy(request: RemotingCommand) -> RemotingCommand:
    return RemotingCommand.request(request.code, dict(request.ext), request.body)


def _status(account: Account, *, is_enabled: bool) -> Wanted:
    body = UserInfo(account.name, user_status=ENABLED if is_enabled else DISABLED).encode()
    request = RemotingCommand.request(RequestCode.AUTH_UPDATE_USER, UserHeader(account.name), body)
    return Wanted("enable" if is_enabled else "disable", {history.ENABLED: is_enabled}, request)


def _entry(account: Account, resource: str, entry: Entry) -> Wanted:
    info = PolicyEntryInfo(
        resource, sorted(entry.actions), sorted(entry.hosts) or None, "Allow" if entry.allows else "Deny"
    )
    subject = f"User:{account.name}"
    body = AclInfo(subject, [PolicyInfo("Custom", [info])]).encode()
    request = RemotingCommand.request(RequestCode.AUTH_UPDATE_ACL, SubjectHeader(subject), body)
    shown = f"{'allow' if entry.allows else 'deny'} {sorted(entry.actions)} on {resource} from {sorted(entry.hosts) or 'all'}"
    return Wanted(shown, {resource: entry}, request)
