"""One handler for each code; a watch of a code sees the outcome of each request once."""

from __future__ import annotations

import asyncio
import inspect
from types import SimpleNamespace
from typing import Any, cast

import pytest

from remoting.command import RemotingCommand
from remoting.dispatch import RequestDispatcher
from remoting.peer import Peer
from remoting.router import Handler, Outcome, Reply, Router

CODE = 60_001
PEER = cast(Peer, object())
REQUEST = RemotingCommand.request(CODE)
ANSWER = REQUEST.reply()
BROKEN = ValueError("no such thing")


def raises(peer: Peer, request: RemotingCommand) -> Reply:
    raise BROKEN


async def raises_later(peer: Peer, request: RemotingCommand) -> Reply:
    raise BROKEN


async def answers_later(peer: Peer, request: RemotingCommand) -> Reply:
    return ANSWER


def watched(handler: Handler) -> tuple[Router, list[Any]]:
    """A router with `handler` under CODE, and the events of its watch, in order."""
    seen: list[Any] = []

    def watch(peer: Peer, request: RemotingCommand) -> Any:
        seen.append((peer, request))
        return seen.append

    router = Router()
    router.add(CODE, handler)
    router.watch(CODE, watch)
    return router, seen


async def outcome(router: Router) -> Outcome:
    try:
        result = router.handlers[CODE](PEER, REQUEST)
        return await result if inspect.isawaitable(result) else result
    except ValueError as error:
        return error


@pytest.mark.parametrize(
    ("handler", "came_to"),
    [
        (lambda peer, request: ANSWER, ANSWER),
        (lambda peer, request: None, None),
        (answers_later, ANSWER),
        (raises, BROKEN),
        (raises_later, BROKEN),
    ],
)
def test_a_watch_sees_the_outcome_of_each_request(handler: Handler, came_to: Outcome) -> None:
    router, seen = watched(handler)
    assert asyncio.run(outcome(router)) is came_to
    assert seen == [(PEER, REQUEST), came_to]


def test_a_watch_sees_no_outcome_of_a_cancelled_request() -> None:
    async def never(peer: Peer, request: RemotingCommand) -> Reply:
        await asyncio.get_running_loop().create_future()
        return ANSWER

    router, seen = watched(never)

    async def story() -> None:
        waiting = asyncio.ensure_future(outcome(router))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    asyncio.run(story())
    assert seen == [(PEER, REQUEST)]


@pytest.mark.filterwarnings("error::RuntimeWarning", "error::pytest.PytestUnraisableExceptionWarning")
def test_an_answer_refused_before_its_start_closes_its_handler() -> None:
    router, seen = watched(answers_later)
    result = router.handlers[CODE](PEER, REQUEST)
    cast(Any, result).close()  # as the dispatcher does when too many wait
    del result
    assert seen == [(PEER, REQUEST)]


def test_a_code_without_a_handler_cannot_be_watched() -> None:
    with pytest.raises(KeyError):
        Router().watch(CODE, lambda peer, request: lambda outcome: None)


def test_a_code_has_one_handler() -> None:
    router = Router()
    router.add(CODE, raises)
    with pytest.raises(AssertionError, match="two handlers for code 60001"):
        router.add_batch({CODE}, lambda peer, requests: None)


def test_a_handler_not_started_before_the_server_stopped_is_closed() -> None:
    """Else Python warns of a coroutine that was never awaited."""
    begun = list[str]()

    async def handler(peer: Peer, request: RemotingCommand) -> RemotingCommand:
        begun.append("handler")
        return request.reply()

    async def story() -> None:
        router = Router()
        results: list[Any] = []

        def noting(peer: Peer, request: RemotingCommand) -> Any:
            results.append(handler(peer, request))
            return results[-1]

        router.add(1, noting)
        dispatcher = RequestDispatcher(router, 10)
        ends = list[str]()
        peer = SimpleNamespace(
            closed=False, remote_address="x", began=lambda: None, ended=lambda: ends.append("x")
        )
        dispatcher.deliver(cast(Peer, peer), [RemotingCommand.request(1)])
        await dispatcher.stop()
        assert ends == ["x"]
        assert not begun and inspect.getcoroutinestate(results[0]) == inspect.CORO_CLOSED

    asyncio.run(story())
