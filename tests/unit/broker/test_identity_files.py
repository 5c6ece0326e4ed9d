"""Whether a broker keeps the identity in its file, by the other files of the store, in literals."""

from __future__ import annotations

import asyncio

import pytest

from broker.role.identity import Identity, IdentityInvalid, TemporaryIdentity
from broker.role.identityfiles import MARK_FILE, IdentityFiles, LogFound
from epochfile.history import EpochHistory
from tests.support.doubles import MemoryFiles

ONE = Identity("DefaultCluster", "broker-a", 1)
FOUR = Identity("DefaultCluster", "broker-a", 4)
APPLICATION = TemporaryIdentity("DefaultCluster", "broker-a", 4, "10.0.0.1:10911;1700000000000")
NOTHING = LogFound(segments=False, history=EpochHistory())
LOG = LogFound(segments=True, history=EpochHistory([(1, 0)]))
LED_BUT_EMPTY = LogFound(segments=False, history=EpochHistory([(1, 0)]))
LOG_GONE = LogFound(segments=False, history=EpochHistory([(1, 0), (2, 800)]))


def identity_files(files: MemoryFiles) -> IdentityFiles:
    return IdentityFiles(files, "brokerIdentity", "DefaultCluster", "broker-a")


def loaded(files: MemoryFiles, found: LogFound) -> Identity | TemporaryIdentity | None:
    return asyncio.run(identity_files(files).load(found))


def store_of(identity: Identity) -> MemoryFiles:
    return MemoryFiles({"brokerIdentity": identity.encode(), MARK_FILE: identity.encode()})


def test_a_store_is_marked_before_its_id_can_be_used() -> None:
    files = MemoryFiles()
    asyncio.run(identity_files(files).granted(FOUR))
    assert list(files.content) == [MARK_FILE, "brokerIdentity"], "the order in which the files became durable"
    assert files.content[MARK_FILE] == b"DefaultCluster#broker-a#4"


def test_the_store_mark_keeps_the_check_code() -> None:
    files = MemoryFiles()
    granted = Identity("DefaultCluster", "broker-a", 4, APPLICATION.check_code)
    asyncio.run(identity_files(files).granted(granted))
    assert files.content["brokerIdentity"] == FOUR.encode()
    assert files.content[MARK_FILE] == APPLICATION.encode()
    assert loaded(files, LOG) == granted


@pytest.mark.parametrize("found", [NOTHING, LED_BUT_EMPTY, LOG])
def test_a_marked_store_keeps_its_id_also_before_its_first_message(found: LogFound) -> None:
    files = store_of(ONE)
    assert loaded(files, found) == ONE
    assert files.replaced == 0


def test_an_identity_left_in_an_emptied_store_is_discarded() -> None:
    files = MemoryFiles({"brokerIdentity": ONE.encode()})
    assert loaded(files, NOTHING) is None
    assert files.content == {}


def test_an_identity_whose_log_is_gone_is_discarded_despite_mark_and_epochs() -> None:
    files = store_of(ONE)
    assert loaded(files, LOG_GONE) is None
    assert files.content == {}


def test_an_identity_put_back_meanwhile_is_discarded_again() -> None:
    files = store_of(ONE)
    loaded(files, LOG_GONE)
    files.content["brokerIdentity"] = ONE.encode()
    assert loaded(files, NOTHING) is None


@pytest.mark.parametrize("found", [LED_BUT_EMPTY, LOG])
def test_an_upstream_store_is_marked_at_its_first_start(found: LogFound) -> None:
    files = MemoryFiles({"brokerIdentity": ONE.encode()})
    assert loaded(files, found) == ONE
    assert files.content[MARK_FILE] == ONE.encode()


def test_an_interrupted_application_for_an_id_is_resumed() -> None:
    files = MemoryFiles()
    asyncio.run(identity_files(files).apply_for(APPLICATION))
    assert loaded(files, NOTHING) == APPLICATION
    files.content[MARK_FILE] = FOUR.encode()  # granted, and killed before the identity file
    assert loaded(files, NOTHING) == APPLICATION


def test_a_store_without_an_identity_file_has_no_identity() -> None:
    files = MemoryFiles({MARK_FILE: ONE.encode()})
    assert loaded(files, LOG) is None


def test_the_identity_of_another_store_stops_the_start() -> None:
    files = MemoryFiles({"brokerIdentity": ONE.encode(), MARK_FILE: FOUR.encode()})
    with pytest.raises(
        IdentityInvalid,
        match="brokerIdentity: says broker id 1, but storeMark says that the store is that of 4",
    ):
        loaded(files, LOG)
    assert files.replaced == 0
