"""Latencies of answers to clients, and of topics and groups that administrators create. Kept only while metrics are on.

Invariant: each answer counts once in a histogram, with the whole milliseconds since its request arrived. `watch` observes the
results of handlers. Answers that are sent later or in batches are observed by the code that sends them. Sends that came
together and get the same answer have one latency, so they are added to the histogram together; each of them counts. A one-way
request has no answer, so it is not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import NamedTuple

from broker.replication.pending import Answered
from broker.tables.subscriptiongroups import is_system_group
from broker.tables.topics import Topics
from mqruntime.clock import Clock
from mqruntime.histogram import Histogram
from remoting.bodies.groups import SubscriptionGroupConfig
from remoting.codes import RequestCode, ResponseCode
from remoting.command import RemotingCommand
from remoting.errors import BodyError
from remoting.peer import Peer
from remoting.router import Outcome, Router

CALL_BOUNDS = (1.0, 3.0, 5.0, 7.0, 10.0, 100.0, 1000.0, 2000.0, 3000.0)
CREATION_BOUNDS = (10.0, 100.0, 1000.0, 3000.0, 5000.0)
"""Upstream's bounds, in milliseconds."""

SUCCESS = "success"
FAILURE = "failure"
HANDLER_FAILED = "process_request_failed"

BATCH = attrgetter("request_code", "response_code", "deadline_ms")


class Call(NamedTuple):
    """The labels of an answer: the codes on the wire, and upstream's word for the result."""

    request_code: int
    response_code: int
    long_polling: bool = False
    result: str = SUCCESS


class Creation(NamedTuple):
    """The labels of a creation. `request_code` is the request code for a topic or a group; `status` is upstream's word."""

    request_code: int
    status: str
    is_system: bool


class Latencies:
    """The latencies: histograms of `calls` and `creations` by their labels. Sends wait `send_wait_ms` at most."""

    def __init__(self, clock: Clock, topics: Topics, send_wait_ms: int) -> None:
        self.calls: dict[Call, Histogram] = {}
        self.creations: dict[Creation, Histogram] = {}
        self._clock = clock
        self._topics = topics
        self._send_wait_ms = send_wait_ms

    def watch(self, router: Router) -> None:
        """Observe the results of the handlers of `router` from now on."""
        for code in list(router.handlers):
            router.watch(code, self._begun)

    def observe(self, call: Call, arrived_ms: int, count: int = 1) -> None:
        """Observe that `count` requests, which arrived at `arrived_ms` (monotonic), are answered now."""
        histogram = self.calls.get(call)
        if histogram is None:
            histogram = self.calls[call] = Histogram(CALL_BOUNDS)
        histogram.observe(self._clock.monotonic_ms() - arrived_ms, count)

    def sends_settled(self, sends: Sequence[Answered]) -> None:
        """Observe answered sends. Sends with equal request code, response code and deadline have one latency, so they are added
        to the histogram together; each of them counts."""
        counts: Counter[tuple[int, int, int]] = Counter()
        for send in sends:
            counts[BATCH(send)] += send.count
        for (request_code, response_code, deadline_ms), count in counts.items():
            self.observe(Call(request_code, response_code), deadline_ms - self._send_wait_ms, count)

    def answered_at_once(
        self, requests: Sequence[RemotingCommand], replies: Sequence[RemotingCommand], arrived_ms: int
    ) -> None:
        """Observe `replies` to some of `requests`, which arrived together."""
        codes = {request.opaque: request.code for request in requests}
        for (request_code, response_code), count in Counter(
            (codes[reply.opaque], reply.code) for reply in replies
        ).items():
            self.observe(Call(request_code, response_code), arrived_ms, count)

    def _begun(self, peer: Peer, request: RemotingCommand) -> Callable[[Outcome], None]:
        return partial(self._ended, request, peer.active_at_ms)

    def _ended(self, request: RemotingCommand, arrived_ms: int, outcome: Outcome) -> None:
        if request.is_oneway or outcome is None:
            return
        if isinstance(outcome, Exception):
            self.observe(Call(request.code, ResponseCode.SYSTEM_ERROR, result=HANDLER_FAILED), arrived_ms)
            succeeded = False
        else:
            self.observe(Call(request.code, outcome.code), arrived_ms)
            succeeded = outcome.code == ResponseCode.SUCCESS
        self._created(request, SUCCESS if succeeded else FAILURE, arrived_ms)

    def _created(self, request: RemotingCommand, status: str, arrived_ms: int) -> None:
        if request.code == RequestCode.UPDATE_AND_CREATE_TOPIC:
            is_system = self._topics.is_system(request.ext.get("topic", ""))
        elif request.code == RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP:
            is_system = is_system_group(_group_in(request))
        else:
            return
        creation = Creation(request.code, status, is_system)
        histogram = self.creations.setdefault(creation, Histogram(CREATION_BOUNDS))
        histogram.observe(self._clock.monotonic_ms() - arrived_ms)


def name_of(code: int, kind: type[RequestCode] | type[ResponseCode]) -> str:
    """Upstream's label for a code: the name of the constant in lower case; for an unknown code the number."""
    return kind(code).name.lower() if code in kind._value2member_map_ else str(code)


def _group_in(request: RemotingCommand) -> str:
    try:
        return SubscriptionGroupConfig.from_request(request.body).group_name
    except BodyError:
        return ""
