"""The pages over HTTP: one answer for each connection, and bounded resources."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
import uvloop

from mqruntime.httppages import CONNECTIONS_MAX, HEAD_BYTES_MAX, HttpPage, HttpPages, PagesCannotListen
from tests.support.doubles import ManualClock

Run = Callable[[Coroutine[Any, Any, Any]], Any]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Runs a scenario on each event loop."""

    def on_this_loop(scenario: Coroutine[Any, Any, Any]) -> Any:
        with asyncio.Runner(loop_factory=request.param) as runner:
            return runner.run(scenario)

    return on_this_loop


def failing() -> HttpPage:
    raise RuntimeError("a bug in a page")


PAGES = {
    "/up": lambda: HttpPage(b"yes\n"),
    "/master": lambda: HttpPage(b"{}", "application/json", 503),
    "/broken": failing,
}


async def asked(pages: HttpPages, request: bytes, *, step: int = 1000) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", pages.port)
    for at in range(0, len(request), step):
        writer.write(request[at : at + step])
        await writer.drain()
    answer = await reader.read()
    writer.close()
    return answer


async def answers(*requests: bytes, step: int = 1000) -> list[bytes]:
    pages = HttpPages(PAGES, host="127.0.0.1", port=0)
    await pages.start()
    try:
        return [await asked(pages, request, step=step) for request in requests]
    finally:
        await pages.stop()


@pytest.mark.parametrize("step", [1, 7, 1000])
def test_a_page_is_answered_with_the_request_in_any_chunks(run: Run, step: int) -> None:
    [answer] = run(answers(b"GET /up?x=1 HTTP/1.1\r\nHost: h\r\n\r\n", step=step))
    assert answer == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: 4\r\nConnection: close\r\n\r\n"
        b"yes\n"
    )


def test_each_kind_of_request_gets_its_status(run: Run) -> None:
    got = run(
        answers(
            b"GET /master HTTP/1.1\r\n\r\n",
            b"HEAD /up HTTP/1.0\r\n\r\n",
            b"GET /nowhere HTTP/1.1\r\n\r\n",
            b"POST /up HTTP/1.1\r\n\r\n",
            b"nonsense\r\n\r\n",
            b"\xff\x00\r\n\r\n",
            b"GET /broken HTTP/1.1\r\n\r\n",
            b"GET /" + b"x" * HEAD_BYTES_MAX,
        )
    )
    assert [int(answer.split(b" ")[1]) for answer in got] == [503, 200, 404, 405, 400, 400, 500, 400]
    assert got[1].endswith(b"\r\n\r\n"), "HEAD has no body"
    assert b"/broken /master /up" in got[2], "a 404 names the pages there are"


def test_a_page_that_took_long_is_shown_again_for_a_while() -> None:
    clock, made = ManualClock(), list[int]()

    def slow() -> HttpPage:
        clock.ms += 20
        made.append(clock.ms)
        return HttpPage(b"%d\n" % clock.ms)

    pages = HttpPages({"/slow": slow, "/up": PAGES["/up"]}, host="127.0.0.1", port=0, clock=clock)
    for _ in range(1_000):
        assert pages.answer(b"GET /slow?x HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200 OK")
        clock.ms += 1
    assert 5 <= len(made) <= 7, "a tenth of the time"
    clock.ms += 1_000
    assert pages.answer(b"GET /slow HTTP/1.1\r\n\r\n").endswith(b"%d\n" % clock.ms), "then it is made again"


def test_silent_connections_do_not_keep_out_a_probe(run: Run) -> None:
    async def scenario() -> None:
        pages = HttpPages(PAGES, host="127.0.0.1", port=0)
        await pages.start()
        held = [await asyncio.open_connection("127.0.0.1", pages.port) for _ in range(CONNECTIONS_MAX)]
        assert (await asked(pages, b"GET /up HTTP/1.1\r\n\r\n")).endswith(b"yes\n")
        first, *_, last = held
        with suppress(ConnectionError):
            assert await first[0].read() == b"", "the oldest one made room"
        last[1].write(b"GET /up HTTP/1.1\r\n\r\n")
        assert (await last[0].read()).endswith(b"yes\n")
        for _, writer in held:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        await pages.stop()

    run(scenario())


def test_a_used_port_is_a_typed_error_that_names_the_setting(run: Run) -> None:
    async def scenario(port: int) -> None:
        await HttpPages(PAGES, host="127.0.0.1", port=port).start()

    with socket.create_server(("127.0.0.1", 0)) as taken:
        with pytest.raises(PagesCannotListen, match="metricsPromExporterPort .*another process listens here"):
            run(scenario(taken.getsockname()[1]))
