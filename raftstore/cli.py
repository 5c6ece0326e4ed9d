"""`python -m raftstore`: inspects the stores of Raft-mode brokers, adopts one into controller mode, and exports one
back.

Invariant: source stores are not changed. Exit codes: 0 if the work is done and nothing is wrong, 1 if it is not done or
something is wrong, 2 for an invalid command line. Each failure is reported in one line with a remedy."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from itertools import combinations
from pathlib import Path
from typing import TypeVar

import click
from pydantic import Field

from dledger.cli import conclude, described
from dledger.storage.entry import BLANK, ENTRY_HEADER_BYTES
from dledger.storage.inspection import Inspection, differences
from dledger.storage.keyvalues import BadKeyValues
from dledger.storage.memberfolder import NoMember
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from messagestore.errors import StoreError
from messagestore.store.settings import StoreSettings
from mqruntime import log
from mqruntime.realruntime import real_runtime
from mqruntime.runtime import Runtime
from mqruntime.settings import SettingsError
from mqruntime.storelock import LOCK_FILE, RealStoreLock, StoreLocked, StoreUnusable
from raftstore.adoption import Adopted, adopt
from raftstore.census import Census
from raftstore.folder import confirmed_end, plain_log, read_log, tables_of
from raftstore.givingback import give_back
from raftstore.messagelog import MessageLog

S = TypeVar("S", bound="NewStore")
STORE = click.Path(exists=True, file_okay=False, path_type=Path)


class NewStore(StoreSettings):
    """The store settings in a broker's properties file."""

    root: Path = Field(Path(), alias="storePathRootDir")
    epoch_file: str = Field("", alias="storePathEpochFile")
    controller_mode: bool = Field(True, alias="enableControllerMode")


class NewRaftModeStore(NewStore):
    """The store settings of a Raft-mode broker."""

    self_id: str = Field(alias="dLegerSelfId", pattern=r"^[A-Za-z]\d+$")


def properties(of: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option -c; `of` is its help text."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    return click.option("-c", "config", required=True, type=file, metavar="FILE", help=of)


@click.group()
def raftstore() -> None:
    """Stores of brokers in Raft mode (enableDLegerCommitLog=true), which upstream has deprecated."""


@raftstore.command("inspect")
@click.argument("stores", nargs=-1, required=True, type=STORE)
def inspect_command(stores: tuple[Path, ...]) -> None:
    """Reads every message in STORES and changes nothing. Several STORES must be of one group; they are compared.

    Each store is the folder that storePathRootDir names. The exit code is 1 when a store is damaged."""
    found: list[Inspection] = []
    try:
        for store in stores:
            census = taken(read_log(store))
            found.append(census.found)
            click.echo(described(census.found, store) + f"\n  messages {summary(census)}")
    except (NoMember, BadKeyValues, OSError) as error:
        raise click.ClickException(str(error)) from error
    conclude(found)


@raftstore.command("adopt")
@properties("The properties file of the broker that is to lead in controller mode.")
@click.argument("stores", nargs=-1, required=True, type=STORE)
def adopt_command(config: Path, stores: tuple[Path, ...]) -> None:
    """Makes a store of controller mode from the most complete one of STORES, in the empty folder that FILE names.

    STORES are the stores of one group's stopped brokers, or only the store that holds most according to `inspect`. They are not
    changed."""
    with failures_reported(config, NewStore) as settings:
        adopted = taken_over(stores, settings)
    click.echo(
        f"{settings.root} holds {adopted.messages} messages, from {adopted.begin} to {adopted.end}; start its broker first, "
        "and the others with empty stores once it leads"
    )


@raftstore.command("give-back")
@properties("The properties file of a member of the Raft-mode set.")
@click.argument("store", type=STORE)
def give_back_command(config: Path, store: Path) -> None:
    """Makes a store of Raft mode from STORE, in the empty folder that FILE names.

    STORE is the store of a broker of this implementation that was master and was stopped cleanly. It is not changed. The result
    is the same for each member."""
    with failures_reported(config, NewRaftModeStore) as settings:
        entries = given_back(store, settings)
    click.echo(
        f"{settings.root} holds {entries} messages; give all members of the group the same before any of them starts: two that "
        "are empty would elect one of them"
    )


@contextmanager
def failures_reported(config: Path, kind: type[S]) -> Iterator[S]:
    """Load the settings in `config`, and report failures in one line."""
    try:
        settings = kind.load(config)
    except SettingsError as error:
        raise click.ClickException(str(error)) from error
    try:
        yield settings
    except (NoMember, BadKeyValues, StoreLocked, StoreUnusable) as error:
        raise click.ClickException(str(error)) from error
    except (StoreError, OSError) as error:
        raise click.ClickException(
            f"{error}; empty {settings.root}, which may be half made, and try again"
        ) from error


def taken_over(stores: tuple[Path, ...], settings: NewStore) -> Adopted:
    """Adopt the most complete store. Raises what `adopt` raises, and ClickException if nothing was done."""
    if not settings.controller_mode:
        raise click.ClickException(
            "enableControllerMode=false: slaves of a pair would be missing all but the log's last file"
        )
    with ExitStack() as held:
        for store in stores:
            held.enter_context(held_alone(store, settings.root))
        store, source = most_of({store: read_log(store) for store in stores})
        census = source.census
        if not census.messages:
            raise click.ClickException(
                f"{store} holds no message: start the brokers of controller mode empty"
            )
        if settings.mapped_file_size_commit_log != census.file_bytes:
            raise click.ClickException(
                f"files of the log have {census.file_bytes} bytes: set mappedFileSizeCommitLog={census.file_bytes}"
            )
        if len(stores) > 1:
            click.echo(f"most is held by {store}")
        with rooted(settings.root) as runtime:
            epoch_file = settings.epoch_file or EPOCH_FILE
            return asyncio.run(adopt(source, tables_of(store), runtime, settings, epoch_file))


def most_of(logs: dict[Path, MessageLog]) -> tuple[Path, MessageLog]:
    """The store whose broker the group would elect; all stores are read first. Raises ClickException if a store is damaged, or
    if two stores cannot be of one group."""
    for log_of_one in logs.values():
        if damage := taken(log_of_one).damage:
            raise click.ClickException(f"nothing is done, for a log is damaged: {damage}")
    for one, other in combinations(logs.values(), 2):
        if found := differences(one.census.found, other.census.found):
            raise click.ClickException(f"nothing is done, for these are not of one group: {found[0]}")
    return max(logs.items(), key=lambda one: (one[1].census.found.last_term, one[1].census.found.last_index))


def given_back(store: Path, settings: NewRaftModeStore) -> int:
    """Export `store`. Raises what `give_back` raises, StoreError, and ClickException if nothing was done."""
    with held_alone(store, settings.root):
        end, file_bytes = confirmed_end(store), settings.mapped_file_size_commit_log
        largest = max((len(message.content) for message in plain_log(store, end)), default=0)
        if largest + ENTRY_HEADER_BYTES + BLANK.size > file_bytes:
            raise click.ClickException(
                f"a message of {largest} bytes does not fit: set mappedFileSizeCommitLog larger"
            )
        with rooted(settings.root) as runtime:
            messages = plain_log(store, end)
            return asyncio.run(give_back(messages, tables_of(store), runtime, settings.self_id, file_bytes))


@contextmanager
def held_alone(store: Path, root: Path) -> Iterator[None]:
    """Hold `store` exclusively, and check that `root` is empty. Raises StoreLocked, StoreUnusable, ClickException."""
    if root.exists() and any(root.iterdir()):
        raise click.ClickException(f"{root} is not empty; let storePathRootDir name a new folder")
    if not os.access(store / LOCK_FILE, os.W_OK):  # a read-only copy: no broker can run on it
        yield
        return
    lock = RealStoreLock(store)
    lock.acquire()
    try:
        yield
    finally:
        lock.release()


@contextmanager
def rooted(root: Path) -> Iterator[Runtime]:
    """The runtime of the new store. Raises StoreLocked, StoreUnusable."""
    log.configure(as_json=False)
    runtime = real_runtime(root)
    runtime.lock.acquire()
    try:
        yield runtime
    finally:
        runtime.lock.release()


def taken(source: MessageLog) -> Census:
    """The totals of the log, after reading all of its messages."""
    for _ in source.messages():
        pass
    return source.census


def summary(census: Census) -> str:
    """The totals in a few words."""
    if not census.messages:
        return "none"
    times = [
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds")
        for ms in (census.first_time, census.last_time)
    ]
    return f"{census.messages} in {len(census.queues)} queues, from {census.begin} on, stored {times[0]} to {times[1]}"
