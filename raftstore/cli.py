"""`python -m raftstore`: looks at the stores of Raft-mode brokers, and takes one over into controller mode.

Invariant: the stores that are named are not changed. The exit code says what is certain: 0 done and nothing found wrong, 1 not
done or something is wrong, 2 the command line cannot be used. Each failure is one line that says what to do."""

from __future__ import annotations

import asyncio
import os
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import click
from pydantic import Field

from dledger.cli import conclude, described
from dledger.inspection import Inspection
from dledger.keyvalues import BadKeyValues
from dledger.memberfolder import NoMember
from epochfile.file import DEFAULT_NAME as EPOCH_FILE
from messagestore.errors import StoreError
from messagestore.settings import StoreSettings
from mqruntime import log
from mqruntime.realruntime import real_runtime
from mqruntime.settings import SettingsError
from mqruntime.storelock import LOCK_FILE, RealStoreLock, StoreLocked, StoreUnusable
from raftstore.adoption import Adopted, adopt
from raftstore.census import Census
from raftstore.folder import read_log, tables_of
from raftstore.messagelog import MessageLog

STORE = click.Path(exists=True, file_okay=False, path_type=Path)


class NewStore(StoreSettings):
    """What a broker's properties file says of its store."""

    root: Path = Field(Path(), alias="storePathRootDir")
    epoch_file: str = Field("", alias="storePathEpochFile")


@click.group()
def raftstore() -> None:
    """Stores of brokers in Raft mode (enableDLegerCommitLog=true), upstream's deprecated one."""


@raftstore.command("inspect")
@click.argument("stores", nargs=-1, required=True, type=STORE)
def inspect_command(stores: tuple[Path, ...]) -> None:
    """Reads every message in STORES and changes nothing. Several are of one group, and compared.

    Each is what storePathRootDir names. Exit code 1 when one is damaged.
    """
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
@click.option(
    "-c", "config", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE", help="The properties file of the broker that is to lead in controller mode.",
)  # fmt: skip
@click.argument("store", type=STORE)
def adopt_command(config: Path, store: Path) -> None:
    """Makes a store of controller mode of what STORE holds, in the folder that FILE names, which is empty.

    STORE is the stopped broker's that holds most, see `inspect`; it is not changed.
    """
    try:
        settings = NewStore.load(config)
        adopted = taken_over(store, settings)
    except (SettingsError, NoMember, BadKeyValues, StoreLocked, StoreUnusable) as error:
        raise click.ClickException(str(error)) from error
    except (StoreError, OSError) as error:
        raise click.ClickException(
            f"{error}; empty {settings.root}, which is half made, and try again"
        ) from error
    click.echo(
        f"{settings.root} holds {adopted.messages} messages, from {adopted.begin} to {adopted.end}; start its broker first, "
        "and the others with empty stores once it leads"
    )


def taken_over(store: Path, settings: NewStore) -> Adopted:
    """Raises what `adopt` raises, and ClickException with nothing done."""
    root = settings.root
    if root.exists() and any(root.iterdir()):
        raise click.ClickException(f"{root} is not empty; let storePathRootDir name a new folder")
    with ExitStack() as held:
        if os.access(store / LOCK_FILE, os.W_OK):  # or its broker runs
            lock = RealStoreLock(store)
            lock.acquire()
            held.callback(lock.release)
        source = read_log(store)
        census = taken(source)
        if census.damage:
            raise click.ClickException(f"nothing is done, for the log is damaged: {census.damage}")
        if not census.messages:
            raise click.ClickException(
                f"{store} holds no message: start the brokers of controller mode empty"
            )
        if settings.mapped_file_size_commit_log != census.file_bytes:
            raise click.ClickException(
                f"files of the log have {census.file_bytes} bytes: set mappedFileSizeCommitLog={census.file_bytes}"
            )
        runtime = real_runtime(root)
        runtime.lock.acquire()
        held.callback(runtime.lock.release)
        log.configure(as_json=False)
        return asyncio.run(
            adopt(source, tables_of(store), runtime, settings, settings.epoch_file or EPOCH_FILE)
        )


def taken(source: MessageLog) -> Census:
    """The census of all of it."""
    for _ in source.messages():
        pass
    return source.census


def summary(census: Census) -> str:
    """A few words for people."""
    if not census.messages:
        return "none"
    times = [
        datetime.fromtimestamp(ms / 1000, UTC).isoformat(" ", "seconds")
        for ms in (census.first_time, census.last_time)
    ]
    return f"{census.messages} in {len(census.queues)} queues, from {census.begin} on, stored {times[0]} to {times[1]}"
