from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator

import pytest

from mqruntime import log
from mqruntime.clock import SystemClock


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield io.StringIO()
    root.handlers[:] = handlers
    root.setLevel(level)


def test_an_event_is_one_line_with_its_fields(stream: io.StringIO) -> None:
    log.configure(stream=stream)
    logging.getLogger("broker").info("became master", extra=log.fields(epoch=4, name="a b", path='x="y"\n'))
    line = stream.getvalue()
    assert line.endswith(' INFO broker became master epoch=4 name="a b" path="x=\\"y\\"\\n"\n')
    assert line.count("\n") == 1 and line[10] == "T" and line[23] == "Z"


def test_a_traceback_stays_on_its_line(stream: io.StringIO) -> None:
    log.configure(stream=stream)
    try:
        raise ValueError("two\nlines")
    except ValueError:
        logging.getLogger("broker").exception("it\nfailed")
    assert stream.getvalue().count("\n") == 1 and "ValueError: two" in stream.getvalue()


def test_json_lines_contain_message_and_fields(stream: io.StringIO) -> None:
    log.configure(stream=stream, as_json=True)
    logging.getLogger("ha").warning("lag of %s", "slave", extra=log.fields(slave_id=2))
    line = json.loads(stream.getvalue())
    assert (line["level"], line["logger"], line["message"], line["slave_id"]) == (
        "WARNING",
        "ha",
        "lag of slave",
        2,
    )


def test_the_system_clock_reads_whole_milliseconds() -> None:
    clock = SystemClock()
    assert clock.now_ms() > 1_700_000_000_000
    assert clock.monotonic_ms() <= clock.monotonic_ms()
