"""The request of a resend: source, target and ledger. A worker of Spark gets the same request.

Invariant: a ledger is continued only for the same rows of the same topic and logs and for the same target queues. Only one run
uses a ledger at a time."""

from __future__ import annotations

import asyncio
import fcntl
import glob
import os
import random
import signal
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import uvloop

from messagestore.systemtopics import is_system_topic
from mqclient import Credentials
from mqclient.client import Client
from mqruntime.clock import SystemClock
from mqruntime.tlsclient import context_from
from mqruntime.tlsfiles import TlsUnusable, environment_file
from mqruntime.toolcredentials import CredentialsUnusable, keys_of_environment
from sparkreplay.errors import OptionError
from sparkreplay.read.plan import boundary_of
from sparkreplay.read.reader import ReadPlan
from sparkreplay.resend.errors import ResendLedgerUnusable
from sparkreplay.resend.ledger import Ledger, SourceProgress, decode_ledger
from sparkreplay.resend.rate import RateLimit
from sparkreplay.resend.rewrite import ROW_COLUMNS
from sparkreplay.resend.run import ALL, ResendCounts, ResendLimits, Run, WorkerShare
from sparkreplay.resend.target import QueueSender, TargetQueue, same_queues, target_queues
from sparkreplay.store.samelog import first_apart, marks_of
from sparkreplay.store.snapshot import StoreSnapshot

PRODUCER_GROUP = "mqreplay"
ROWS_BY = (
    "queues",
    "startingoffsets",
    "endingoffsets",
    "startingoffsetsbytimestamp",
    "endingoffsetsbytimestamp",
    "startingtimestamp",
    "endingtimestamp",
)
"""Options that leave rows out for ever. The ledger counts these rows as done, so a later run without the option would miss
them."""
Epochs = list[list[int]]


@dataclass(frozen=True)
class ResendJob:
    """The whole request. Rates are per second and worker; a rate of None means no limit."""

    read: ReadPlan
    topic: str
    cluster: str
    to_topic: str
    namesrv: str
    ledger: str
    messages_per_s: float | None = None
    bytes_per_s: float | None = None
    not_taken_s_max: float = 120.0
    rows: Mapping[str, str] = field(default_factory=dict)
    """The result of rows_by."""

    def ledger_of(self, share: WorkerShare) -> Path:
        return Path(self.ledger if share.count == 1 else f"{self.ledger}.{share.number}-of-{share.count}")


def rows_by(options: Mapping[str, str]) -> dict[str, str]:
    """The read options that leave rows out. A physical end is not among them, because a later run sends the rows after it."""
    given = {name.lower(): value for name, value in options.items()}
    if not given.get("endingoffsets", "").startswith("{"):
        given.pop("endingoffsets", None)
    if given.get("startingoffsets") == "earliest":
        del given["startingoffsets"]
    return {name: given[name] for name in ROWS_BY if name in given}


def prepare(job: ResendJob, *, force: bool) -> ResendJob:
    """The job, with a read of only the rows to send. Raises OptionError for a system topic, and for a target that is the
    source."""
    if is_system_topic(job.topic):
        raise OptionError(
            "--topic",
            f"{job.topic} belongs to the brokers themselves: what is delayed is in its own topic once it was delivered, "
            "and half messages are in theirs once they were committed",
        )
    names = [source.store.broker_name for source in job.read.sources]
    if len(set(names)) != len(names):
        raise OptionError(
            "STORE", f"two stores of one broker set ({', '.join(names)}); name one of its replicas"
        )
    if not force:
        asyncio.run(refuse_own_topic(job, set(names)))
    sources = tuple(
        replace(
            source,
            selection=replace(
                source.selection,
                columns=ROW_COLUMNS,
                topics=frozenset({job.topic}),
                decompress=False,
                committed_only=True,
            ),
        )
        for source in job.read.sources
    )
    return replace(job, read=replace(job.read, columns=ROW_COLUMNS, sources=sources))


async def refuse_own_topic(job: ResendJob, broker_names: set[str]) -> None:
    """Raise OptionError if messages would return to the topic and broker set that they come from."""
    if job.topic != job.to_topic:
        return
    async with client_of(job) as client:
        queues = await target_queues(client, job.cluster, job.to_topic)
    own = sorted(broker_names & {queue.broker_name for queue in queues})
    if own:
        raise OptionError(
            "--to",
            f"{job.cluster}/{job.to_topic} on broker set {', '.join(own)} seems to be where the messages come from; "
            "--force sends them there all the same",
        )


def client_of(job: ResendJob) -> Client:
    """A client with the certificate and the credentials that the environment names. Raises OptionError."""
    try:
        file, keys = environment_file(), keys_of_environment()
        return Client(
            job.namesrv,
            clock=SystemClock(),
            random=random.Random(),
            tls=None if file is None else context_from(file),
            credentials=None if keys is None else Credentials(*keys),
        )
    except (TlsUnusable, CredentialsUnusable) as error:
        raise OptionError("--namesrv", str(error)) from None


@contextmanager
def only_run(job: ResendJob, count: int) -> Iterator[None]:
    """Hold the ledger for this run. Raises ResendLedgerUnusable while another run, with any number of workers, uses the same
    ledger, and if the ledger was begun with another number of workers."""
    with only_one(Path(job.ledger)) if count > 1 else nullcontext():  # a single worker locks it itself
        refuse_other_workers(job, count)
        yield


def refuse_other_workers(job: ResendJob, count: int) -> None:
    """Raise ResendLedgerUnusable if the ledger was begun with another number of workers. Each worker has its own part of the
    ledger, so the number cannot change."""
    path = Path(job.ledger)
    mine = {str(job.ledger_of(WorkerShare(number, count))) for number in range(count)}
    parts = [path, *path.parent.glob(f"{glob.escape(path.name)}.*-of-*[0-9]")]  # no lock, none unfinished
    others = [str(part) for part in parts if part.exists() and str(part) not in mine]
    if others:
        begun = others[0].rpartition("-of-")[2] if others[0] != job.ledger else "1"
        raise ResendLedgerUnusable(others[0], f"was begun with --workers {begun}; go on with as many")


def send_share(
    job: ResendJob,
    share: WorkerShare = ALL,
    on_progress: Callable[[int, int], None] = lambda size, rows: None,
) -> ResendCounts:
    """Send one worker's queues, without the messages that an earlier run with the same ledger sent. Raises KeyboardInterrupt
    on SIGINT, and on SIGTERM if its handler raises it."""
    return uvloop.run(ended_by_sigterm(send_with_ledger(job, share, job.ledger_of(share), on_progress)))


async def ended_by_sigterm(work: Coroutine[Any, Any, ResendCounts]) -> ResendCounts:
    """SIGTERM cancels the task in this block, as uvloop does for SIGINT. An exception raised by a signal handler could be lost
    in a connection's callback."""
    if signal.getsignal(signal.SIGTERM) is not signal.default_int_handler:
        return await work
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None, "a coroutine runs in a task"
    loop.add_signal_handler(signal.SIGTERM, task.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        raise KeyboardInterrupt from None
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        signal.signal(signal.SIGTERM, signal.default_int_handler)


async def send_with_ledger(
    job: ResendJob, share: WorkerShare, path: Path, on_progress: Callable[[int, int], None]
) -> ResendCounts:
    async with client_of(job) as client:
        queues = await target_queues(client, job.cluster, job.to_topic)
        with only_one(path):
            return await send_to(queues, client, job, share, path, on_progress)


async def send_to(
    queues: list[TargetQueue],
    client: Client,
    job: ResendJob,
    share: WorkerShare,
    path: Path,
    on_progress: Callable[[int, int], None],
) -> ResendCounts:
    ledger = open_ledger(path, job, queues)
    queues = same_queues(ledger.purpose["queues"], queues)
    producer = client.producer(PRODUCER_GROUP, message_bytes_max=None)
    run = Run(
        what_is_left(job.read, ledger, str(path)),
        ledger,
        path,
        topic=job.topic,
        sender_of=lambda queue_id: QueueSender(producer, queues[queue_id % len(queues)]).send,
        limits=ResendLimits(RateLimit(job.messages_per_s), RateLimit(job.bytes_per_s), job.not_taken_s_max),
        share=share,
        on_progress=on_progress,
    )
    await run.send_all()
    return run.counts


def open_ledger(path: Path, job: ResendJob, queues: list[TargetQueue]) -> Ledger:
    """The ledger at `path`, or a new ledger. Raises ResendLedgerUnusable if it belongs to another resend."""
    wanted = purpose_of(job, queues)
    fresh = {
        source.store.broker_name: SourceProgress(source.start, source.start) for source in job.read.sources
    }
    try:
        found = decode_ledger(str(path), path.read_bytes())
    except FileNotFoundError:
        return Ledger(wanted, fresh)
    for name in ("topic", "target"):
        if found.purpose[name] != wanted[name]:
            raise ResendLedgerUnusable(str(path), f"is of {name} {found.purpose[name]}, not {wanted[name]}")
    begun, asked = found.purpose["namesrv"], wanted["namesrv"]
    if not set(begun) & set(asked):  # different clusters often share a name
        raise ResendLedgerUnusable(
            str(path),
            f"was begun with the name servers {';'.join(begun)}, not {';'.join(asked)} (where they are of one cluster, name "
            f"both: -n '{';'.join((*begun, *asked))}')",
        )
    before, now = found.purpose["rows"], wanted["rows"]
    for name in ROWS_BY:
        if before.get(name) != now.get(name):
            raise ResendLedgerUnusable(
                str(path),
                f"was begun with {name} {before.get(name, 'left out')} and not {now.get(name, 'left out')}; the rows that it "
                "passed over would never be sent",
            )
    for broker_name, progress in found.sources.items():
        if broker_name not in fresh:
            raise ResendLedgerUnusable(
                str(path), f"is also of broker set {broker_name}, which is not among the stores"
            )
        store = store_of(job.read, broker_name)
        if (apart := first_apart(store, found.purpose["logs"][broker_name])) is not None:
            raise ResendLedgerUnusable(
                str(path),
                f"is of another log of the name {broker_name}: {store.root} begins with another record at {apart}",
            )
        were, are = found.purpose["epochs"][broker_name], wanted["epochs"][broker_name]
        low = store.min_offset
        if epochs_between(were, low, progress.sent_below) != epochs_between(are, low, progress.sent_below):
            raise ResendLedgerUnusable(
                str(path),
                f"knows the log of {broker_name} up to {progress.sent_below} with the epochs {were}, but they are {are}: "
                "it was truncated below what was sent",
            )
    found.purpose.update(epochs=wanted["epochs"], logs=wanted["logs"])
    found.purpose["namesrv"] = sorted({*begun, *asked})
    found.sources = {**fresh, **found.sources}
    return found


def purpose_of(job: ResendJob, queues: list[TargetQueue]) -> dict[str, Any]:
    epochs = {
        source.store.broker_name: [list(entry) for entry in source.store.epochs_below(source.end)]
        for source in job.read.sources
    }
    return {
        "topic": job.topic,
        "target": f"{job.cluster}/{job.to_topic}",
        "namesrv": sorted(part for each in job.namesrv.split(";") if (part := each.strip())),
        "queues": [str(queue) for queue in queues],
        "rows": dict(job.rows),
        "epochs": epochs,
        "logs": {source.store.broker_name: marks_of(source.store) for source in job.read.sources},
    }


def store_of(read: ReadPlan, broker_name: str) -> StoreSnapshot:
    return next(source.store for source in read.sources if source.store.broker_name == broker_name)


def epochs_between(epochs: Epochs, low: int, high: int) -> Epochs:
    """The epochs of the offsets [low, high), each with its first offset in that range."""
    ends = [*(start for _, start in epochs[1:]), high]
    return [
        [epoch, max(start, low)]
        for (epoch, start), end in zip(epochs, ends, strict=False)
        if low < end and start < high
    ]


def what_is_left(read: ReadPlan, ledger: Ledger, path: str) -> ReadPlan:
    """The stretches that are not done according to the ledger. Raises ResendLedgerUnusable if some of them were deleted."""
    left = []
    for stretch in read.stretches:
        store = read.sources[stretch.source].store
        done_below = ledger.sources[store.broker_name].done_below
        if stretch.start < done_below < stretch.end:
            left.append(replace(stretch, start=boundary_of(store, done_below)))
        elif done_below < stretch.end:
            left.append(stretch)
    for source in read.sources:
        done_below = ledger.sources[source.store.broker_name].done_below
        if done_below < source.store.min_offset:
            raise ResendLedgerUnusable(
                path,
                f"ends at {done_below} of {source.store.broker_name}, but its log begins at {source.store.min_offset}: "
                "what lies between was deleted before it was sent",
            )
    return replace(read, stretches=tuple(left))


@contextmanager
def only_one(ledger: Path) -> Iterator[None]:
    """Lock the ledger. Raises ResendLedgerUnusable while another process uses the same ledger. The lock file is removed at the
    end, unless the process is killed."""
    path = Path(f"{ledger}.lock")
    lock = locked(path, ledger)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(lock)


def locked(path: Path, ledger: Path) -> int:
    """The descriptor of a locked lock file that is at `path`. An opened file may have been removed before it was locked; then
    it is opened again."""
    while True:
        try:
            lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:  # with another ledger everything would be sent again
            raise ResendLedgerUnusable(
                str(ledger),
                f"{path.name} cannot be made next to it ({error.strerror})",
                "make the folder writable with room in it, or move the ledger to one that is, and name it there",
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise ResendLedgerUnusable(str(ledger), "is in use by another run", "wait for its end") from None
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(path)):
                return lock
        os.close(lock)
