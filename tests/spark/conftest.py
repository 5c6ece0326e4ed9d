"""Spark for these tests: short-lived JVMs, and one session shared by the tests that need no own one.

Invariant: at most one session is open in this process. A test that opens its own asks for `no_session`
first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.spark.loadedclasses import java_options
from tests.spark.sessions import SharedSession, again_where_python_was_slow
from tests.support.forkedservers import forked_servers


@pytest.fixture(scope="session", autouse=True)
def forked() -> Iterator[None]:
    with forked_servers():
        yield


@pytest.fixture(scope="session", autouse=True)
def short_lived_jvms() -> Iterator[None]:
    """Sets the environment, also for processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_TOOL_OPTIONS", java_options())
        yield


@pytest.fixture(scope="session", autouse=True)
def calls_of_java_are_patient() -> Iterator[None]:
    """Counts every call into a JVM."""
    try:
        from py4j.java_gateway import JavaMember
    except ImportError:  # no Spark, and no test of it runs
        yield
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JavaMember, "__call__", again_where_python_was_slow(JavaMember.__call__))
        yield


@pytest.fixture(scope="session")
def shared_session() -> Iterator[SharedSession]:
    shared = SharedSession()
    yield shared
    shared.stop()


@pytest.fixture
def spark(shared_session: SharedSession) -> Any:
    """Both sources are registered: `rocketmq`, and `faulty` of faultysource.py."""
    return shared_session.started()


@pytest.fixture
def no_session(shared_session: SharedSession) -> None:
    shared_session.stop()
